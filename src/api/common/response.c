#include "api/common/response_state.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { FLUSH_AT = 32 * 1024, FIELDS_MOST = 24 };

/* ---- creation ---- */

static void make_response_id(struct response *a, const char *own)
{
    struct str prefix = str_of(a->dialect->id_prefix);

    if (own) {
        snprintf(a->id, sizeof(a->id), "%s%s", prefix.p, own);
        return;
    }
    CHECK(prefix.n + RNG_HEX < sizeof(a->id));
    memcpy(a->id, prefix.p, prefix.n);
    rng_hex(a->id + prefix.n);
}

int response_new(struct response **out, const struct response_setup *s, struct err *e)
{
    const struct request *request = s->request;
    int n = request_n_choices(request);

    CHECK(n >= 1 && n <= REQUEST_PROMPTS_MAX);
    struct response *a = try_calloc(1, sizeof(*a) + (size_t)n * sizeof(a->choices[0]));
    if (!a)
        return err_set(e, ERR_MEMORY, "No memory for a response.");
    a->setup = *s;
    a->dialect = request->dialect;
    a->n_choices = n;
    a->id_slot = -1;
    buf_init(&a->out, RESPONSE_BYTES_MAX);
    buf_init(&a->head, 64 * KB);
    buf_init(&a->tail, 4 * KB);
    buf_init(&a->plain_tail, 4 * KB);
    for (int i = 0; i < n; i++) {
        struct response_choice *c = &a->choices[i];
        c->number = i / request->best_of * request->n + i % request->best_of;
        c->stop_id = -1;
        buf_init(&c->text, RESPONSE_BYTES_MAX);
        buf_init(&c->reasoning, RESPONSE_BYTES_MAX);
        for (int k = 0; k < N_RESPONSE_LISTS; k++)
            buf_init(&c->lists[k], RESPONSE_BYTES_MAX);
    }
    make_response_id(a, s->id);
    a->dialect->begin(a);
    if (!response_ok(a)) {
        response_free(a);
        return err_set(e, ERR_MEMORY, "No memory for a response.");
    }
    *out = a;
    return 0;
}

void response_free(struct response *a)
{
    if (!a)
        return;
    for (int i = 0; i < a->n_choices; i++) {
        buf_clear(&a->choices[i].text);
        buf_clear(&a->choices[i].reasoning);
        response_calls_clear(&a->choices[i]);
        for (int k = 0; k < N_RESPONSE_LISTS; k++)
            buf_clear(&a->choices[i].lists[k]);
    }
    if (a->dialect->clear)
        a->dialect->clear(a);
    buf_clear(&a->head);
    buf_clear(&a->tail);
    buf_clear(&a->plain_tail);
    buf_clear(&a->out);
    mem_free(a);
}

const char *response_id(const struct response *a)
{
    return a->id;
}

bool response_ok(const struct response *a)
{
    return !a->has_failed && buf_ok(&a->out) && buf_ok(&a->head) && buf_ok(&a->tail) &&
           buf_ok(&a->plain_tail);
}

static int set_too_large(struct err *e)
{
    return err_set(e, ERR_RANGE,
        "The response exceeds the limit of %d MB. Request a stream, or less output.",
        RESPONSE_BYTES_MAX / (int)MB);
}

int response_check_size(const struct request *request, int64_t n_tokens, struct err *e)
{
    int64_t entry_bytes = request->kind == REQUEST_CHAT ? 40 : 8;
    int64_t per_token = (1 + request->sample.n_top) * entry_bytes;

    if (request->stream || !request->want_logprobs || n_tokens <= RESPONSE_BYTES_MAX / per_token)
        return 0;
    return set_too_large(e);
}

int response_failure(const struct response *a, struct err *e)
{
    /* The body repeats what the choices hold, with its own framing. */
    if (a->held_bytes > RESPONSE_BYTES_MAX / 2 || a->out.n > RESPONSE_BYTES_MAX / 2)
        return set_too_large(e);
    return err_set(e, ERR_MEMORY, "No memory for the response.");
}

bool response_has_begun(const struct response *a)
{
    return a->has_begun;
}

struct response_counts response_counts(const struct response *a)
{
    struct response_counts n = { .prompt_tokens = a->n_prompt,
        .cached_tokens = a->n_cached,
        .accepted_prediction_tokens = a->n_accepted,
        .rejected_prediction_tokens = a->n_rejected };

    for (int i = 0; i < a->n_choices; i++) {
        n.completion_tokens += a->choices[i].n_tokens;
        n.reasoning_tokens += a->choices[i].n_reasoning;
    }
    return n;
}

void response_set_usage(struct response *a, int n_prompt, int n_cached)
{
    a->n_prompt = n_prompt;
    a->n_cached = n_cached;
}

void response_set_prediction_counts(struct response *a, int n_accepted, int n_rejected)
{
    a->n_accepted = n_accepted;
    a->n_rejected = n_rejected;
}

void response_set_times(struct response *a, const struct response_times *t)
{
    a->times = *t;
}

void response_set_slot(struct response *a, int id_slot)
{
    a->id_slot = id_slot;
}

/* ---- output to the sink ---- */

void response_begin(struct response *a)
{
    struct http_field all[FIELDS_MOST + 2];
    int n = MIN(a->setup.n_fields, (int)FIELDS_MOST);

    if (!a->setup.request->stream || a->has_begun || a->has_ended)
        return;
    a->has_begun = true;
    if (n)
        memcpy(all, a->setup.fields, (size_t)n * sizeof(*all));
    all[n++] = (struct http_field){ STR("Cache-Control"), STR("no-cache") };
    all[n++] = (struct http_field){ STR("X-Accel-Buffering"), STR("no") };
    sink_begin(a->setup.sink, 200, a->dialect->stream_type, -1, all, n);
    if (a->dialect->start)
        a->dialect->start(a);
}

void response_set_running(struct response *a)
{
    if (a->dialect->set_running && a->setup.request->background && !a->has_ended)
        a->dialect->set_running(a);
}

static void send_out(struct response *a)
{
    sink_write(a->setup.sink, buf_str(&a->out));
    buf_reset(&a->out);
}

/* A frame consists of several buffers: if one of them has failed, the frame is incomplete. */
void response_flush(struct response *a)
{
    if (a->has_begun && !a->has_ended && a->out.n && response_ok(a))
        send_out(a);
}

void response_keepalive(struct response *a)
{
    if (!a->has_begun || a->has_ended)
        return;
    response_flush(a);
    sink_write(a->setup.sink, a->dialect->keepalive);
}

void response_error(struct response *a, const struct err *e, const struct error_extra *x)
{
    if (a->has_ended)
        return;
    if (!a->has_begun) {
        a->has_ended = true;
        if (a->setup.request->background)
            a->dialect->failed(a, e, x); /* for the stored response */
        else
            status_reply(
                a->setup.sink, a->dialect->error_form, e, x, a->setup.fields, a->setup.n_fields);
        return;
    }
    if (!response_ok(a))
        buf_reset(&a->out); /* the last frame is incomplete */
    struct error_extra extra = x ? *x : (struct error_extra){ 0 };
    extra.request_id = status_request_id(a->setup.fields, a->setup.n_fields);
    if (a->dialect->failed)
        a->dialect->failed(a, e, &extra);
    else
        a->dialect->error_frame(&a->out, e, &extra);
    a->has_ended = true;
    if (!buf_ok(&a->out)) {
        sink_abort(a->setup.sink); /* a stream that ends normally would look complete */
        return;
    }
    send_out(a);
    sink_end(a->setup.sink);
}

/* ---- tokens and text ---- */

size_t response_choice_bytes(const struct response_choice *c)
{
    size_t n = c->text.n + c->reasoning.n;

    for (int k = 0; k < N_RESPONSE_LISTS; k++)
        n += c->lists[k].n;
    return n;
}

void response_account_bytes(struct response *a, const struct response_choice *c, size_t before)
{
    bool ok = buf_ok(&c->text) && buf_ok(&c->reasoning);

    for (int k = 0; k < N_RESPONSE_LISTS; k++)
        ok = ok && buf_ok(&c->lists[k]);
    a->held_bytes += response_choice_bytes(c);
    a->held_bytes -= before;
    if (!ok || a->held_bytes > RESPONSE_BYTES_MAX)
        a->has_failed = true;
}

struct buf *response_list_item(struct response_choice *c, enum response_list list)
{
    struct buf *b = &c->lists[list];

    if (b->n)
        buf_putc(b, ',');
    return b;
}

static void put_token(
    struct response *a, struct response_choice *c, int32_t id, const struct sampled *s)
{
    const struct request *request = a->setup.request;

    if (!request->want_logprobs && !request->want_token_ids)
        return;
    size_t before = response_choice_bytes(c);
    if (request->want_token_ids)
        buf_printf(response_list_item(c, LIST_IDS), "%d", id);
    if (request->want_logprobs) {
        struct response_token t = { id, a->setup.token_bytes(a->setup.vocab, id), s,
            c->n_characters };
        a->dialect->token(a, c, &t);
        for (size_t i = 0; i < t.bytes.n; i++)
            c->n_characters += (t.bytes.p[i] & 0xC0) != 0x80;
    }
    response_account_bytes(a, c, before);
}

static void mark_lists_shown(struct response_choice *c)
{
    for (int k = 0; k < N_RESPONSE_LISTS; k++)
        c->shown[k] = c->lists[k].n;
}

/* A stream's frame contains the lists, so they are emptied. A body keeps them; a stop string no
 * longer removes these entries. */
void response_commit_lists(struct response *a, struct response_choice *c)
{
    if (!response_is_incremental(a)) {
        mark_lists_shown(c);
        return;
    }
    for (int k = 0; k < N_RESPONSE_LISTS; k++) {
        a->held_bytes -= c->lists[k].n;
        buf_reset(&c->lists[k]);
        c->shown[k] = 0;
    }
    if (a->out.n >= FLUSH_AT)
        response_flush(a);
}

static void put_text(
    struct response *a, struct response_choice *c, struct str text, bool is_reasoning)
{
    const struct dialect *w = a->dialect;
    bool is_incremental = response_is_incremental(a);

    if (!text.n)
        return;
    if (!is_incremental || (w->keeps_reasoning && is_reasoning)) {
        size_t before = response_choice_bytes(c);
        json_escape(is_reasoning ? &c->reasoning : &c->text, text);
        response_account_bytes(a, c, before);
    }
    void (*emit)(void *, int, struct str) =
        is_reasoning ? w->output->reasoning : w->output->content;
    if (is_incremental && !emit)
        return;
    if (is_incremental)
        emit(a, response_choice_index(a, c), text);
    response_commit_lists(a, c);
}

struct response_choice *response_open_choice(struct response *a, int i)
{
    CHECK(i >= 0 && i < a->n_choices);
    return a->has_ended || a->has_failed || a->choices[i].has_ended ? NULL : &a->choices[i];
}

void response_add_prompt_token(struct response *a, int prompt, int32_t id, const struct sampled *t)
{
    int each = a->setup.request->best_of;

    for (int i = prompt * each; i < (prompt + 1) * each; i++) {
        struct response_choice *c = response_open_choice(a, i);
        if (!c)
            continue;
        put_token(a, c, id, t);
        mark_lists_shown(c); /* stop strings do not apply to the prompt */
    }
}

void response_add_prompt_text(struct response *a, int prompt, struct str text)
{
    int each = a->setup.request->best_of;

    for (int i = prompt * each; i < (prompt + 1) * each; i++) {
        struct response_choice *c = response_open_choice(a, i);
        if (c)
            put_text(a, c, text, false);
    }
}

void response_add_token(struct response *a, int choice, const struct sampled *t)
{
    struct response_choice *c = response_open_choice(a, choice);

    if (!c)
        return;
    c->n_tokens++;
    c->sum_logprob += (double)t->logprob;
    put_token(a, c, t->id, t);
}

void response_count_token(struct response *a, int choice, const struct sampled *t)
{
    struct response_choice *c = response_open_choice(a, choice);

    if (!c)
        return;
    c->n_tokens++;
    c->sum_logprob += (double)t->logprob;
}

static void on_content(void *ctx, int choice, struct str text)
{
    struct response *a = ctx;
    struct response_choice *c = response_open_choice(a, choice);

    if (c)
        put_text(a, c, text, false);
}

static void on_reasoning(void *ctx, int choice, struct str text)
{
    struct response *a = ctx;
    struct response_choice *c = response_open_choice(a, choice);

    if (c && !a->setup.request->is_reasoning_hidden)
        put_text(a, c, text, true);
}

const struct output_ops response_output_ops = { on_content, on_reasoning, response_call_begin,
    response_call_args, response_call_end, response_call_broken };

void response_set_reasoning_tokens(struct response *a, int choice, int n)
{
    struct response_choice *c = response_open_choice(a, choice);

    if (c)
        c->n_reasoning = n;
}

void response_set_ends_inside_call(struct response *a, int choice)
{
    struct response_choice *c = response_open_choice(a, choice);

    if (c)
        c->ends_inside_call = true;
}

void response_set_is_constraint_met(struct response *a, int choice)
{
    struct response_choice *c = response_open_choice(a, choice);

    if (c)
        c->is_constraint_met = true;
}

void response_put_constraint(
    struct buf *out, const struct response *a, const struct response_choice *c)
{
    const struct request_constraint *constraint = &a->setup.request->constraint;

    if (constraint->is_set)
        buf_printf(out, ",\"constraint\":{\"kind\":\"%s\",\"complete\":%s%s}",
            constraint_kind_name(constraint->source.kind), c->is_constraint_met ? "true" : "false",
            c->finish == FINISH_UNMET ? ",\"error\":\"constraint_not_met\"" : "");
}

void response_choice_end(
    struct response *a, int choice, enum finish finish, struct str stop_text, int32_t stop_id)
{
    struct response_choice *c = response_open_choice(a, choice);

    if (!c)
        return;
    response_calls_end(a, c);
    size_t before = response_choice_bytes(c);
    c->finish = finish;
    c->ends_in_calls = response_finish(c) == FINISH_STOP && c->n_calls > 0;
    c->stop_text = stop_text;
    c->stop_id = stop_id;
    if (stop_text.p && !a->setup.request->include_stop)
        for (int k = 0; k < N_RESPONSE_LISTS; k++)
            c->lists[k].n = c->shown[k];
    if (response_is_incremental(a)) {
        a->dialect->choice_end(a, c);
        for (int k = 0; k < N_RESPONSE_LISTS; k++)
            buf_clear(&c->lists[k]);
    }
    c->has_ended = true;
    response_account_bytes(a, c, before);
}

bool response_choice_has_ended(const struct response *a, int choice)
{
    CHECK(choice >= 0 && choice < a->n_choices);
    return a->choices[choice].has_ended;
}

/* ---- the end ---- */

static double mean_logprob(const struct response_choice *c)
{
    bool is_candidate = c->n_tokens && c->finish != FINISH_UNMET && c->finish != FINISH_FILTERED;

    return is_candidate ? c->sum_logprob / c->n_tokens : -INFINITY;
}

/* Higher mean log-probability, or the same and a lower index. */
static bool is_better(const struct response_choice *a, const struct response_choice *b)
{
    double x = mean_logprob(a), y = mean_logprob(b);
    return x > y || (x == y && a < b);
}

const struct response_choice *response_choice_at_rank(
    const struct response *a, int prompt, int place)
{
    const struct request *request = a->setup.request;
    const struct response_choice *first = &a->choices[prompt * request->best_of];

    if (request->best_of == request->n)
        return &first[place];
    for (int i = 0; i < request->best_of; i++) {
        int n_better = 0;
        for (int k = 0; k < request->best_of; k++)
            n_better += k != i && is_better(&first[k], &first[i]);
        if (n_better == place)
            return &first[i];
    }
    return &first[place]; /* a choice has NaN: no comparison is true */
}

void response_end(struct response *a)
{
    struct err e;

    if (a->has_ended)
        return;
    for (int i = 0; i < a->n_choices; i++)
        if (!a->choices[i].has_ended)
            response_choice_end(a, i, FINISH_LENGTH, STR_NONE, -1);
    if (response_ok(a) && a->setup.request->stream)
        a->dialect->end(a);
    else if (response_ok(a))
        a->dialect->body(a);
    if (!response_ok(a)) {
        response_failure(a, &e);
        response_error(a, &e, NULL);
        return;
    }
    if (a->setup.request->stream) {
        response_begin(a);
        response_flush(a);
        a->has_ended = true;
        sink_end(a->setup.sink);
        return;
    }
    a->has_ended = true;
    sink_respond(a->setup.sink, 200, "application/json", buf_str(&a->out), a->setup.fields,
        a->setup.n_fields);
}

bool response_serialize(const struct response *a, struct buf *response, struct buf *input)
{
    if (!a->dialect->serialize || !response_ok(a))
        return false;
    a->dialect->serialize(a, response, input);
    return buf_ok(response) && buf_ok(input);
}
