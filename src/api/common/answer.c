#include "api/common/answer_state.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { FLUSH_AT = 32 * 1024, FIELDS_MOST = 24 };

/* ---- creation ---- */

static void make_response_id(struct answer *a, const char *own)
{
    struct str prefix = str_of(a->wire->id_prefix);

    if (own) {
        snprintf(a->id, sizeof(a->id), "%s%s", prefix.p, own);
        return;
    }
    CHECK(prefix.n + RNG_HEX < sizeof(a->id));
    memcpy(a->id, prefix.p, prefix.n);
    rng_hex(a->id + prefix.n);
}

int answer_new(struct answer **out, const struct answer_setup *s, struct err *e)
{
    const struct ask *ask = s->ask;
    int n = ask_n_choices(ask);

    CHECK(n >= 1 && n <= ASK_PROMPTS_MAX);
    struct answer *a = try_calloc(1, sizeof(*a) + (size_t)n * sizeof(a->choices[0]));
    if (!a)
        return err_set(e, ERR_MEMORY, "No memory for a response.");
    a->setup = *s;
    a->wire = ask->wire;
    a->n_choices = n;
    a->id_slot = -1;
    buf_init(&a->out, ANSWER_BYTES_MAX);
    buf_init(&a->head, 64 * KB);
    buf_init(&a->tail, 4 * KB);
    buf_init(&a->plain_tail, 4 * KB);
    for (int i = 0; i < n; i++) {
        struct choice *c = &a->choices[i];
        c->number = i / ask->best_of * ask->n + i % ask->best_of;
        c->stop_id = -1;
        buf_init(&c->text, ANSWER_BYTES_MAX);
        buf_init(&c->reasoning, ANSWER_BYTES_MAX);
        for (int k = 0; k < N_ANSWER_LISTS; k++)
            buf_init(&c->lists[k], ANSWER_BYTES_MAX);
    }
    make_response_id(a, s->id);
    a->wire->begin(a);
    if (!answer_ok(a)) {
        answer_free(a);
        return err_set(e, ERR_MEMORY, "No memory for a response.");
    }
    *out = a;
    return 0;
}

void answer_free(struct answer *a)
{
    if (!a)
        return;
    for (int i = 0; i < a->n_choices; i++) {
        buf_clear(&a->choices[i].text);
        buf_clear(&a->choices[i].reasoning);
        answer_calls_clear(&a->choices[i]);
        for (int k = 0; k < N_ANSWER_LISTS; k++)
            buf_clear(&a->choices[i].lists[k]);
    }
    if (a->wire->clear)
        a->wire->clear(a);
    buf_clear(&a->head);
    buf_clear(&a->tail);
    buf_clear(&a->plain_tail);
    buf_clear(&a->out);
    mem_free(a);
}

const char *answer_id(const struct answer *a)
{
    return a->id;
}

bool answer_ok(const struct answer *a)
{
    return !a->has_failed && buf_ok(&a->out) && buf_ok(&a->head) && buf_ok(&a->tail) &&
           buf_ok(&a->plain_tail);
}

bool answer_has_begun(const struct answer *a)
{
    return a->has_begun;
}

struct answer_counts answer_counts(const struct answer *a)
{
    struct answer_counts n = { .prompt_tokens = a->n_prompt,
        .cached_tokens = a->n_cached,
        .accepted_prediction_tokens = a->n_accepted,
        .rejected_prediction_tokens = a->n_rejected };

    for (int i = 0; i < a->n_choices; i++) {
        n.completion_tokens += a->choices[i].n_tokens;
        n.reasoning_tokens += a->choices[i].n_reasoning;
    }
    return n;
}

void answer_usage(struct answer *a, int n_prompt, int n_cached)
{
    a->n_prompt = n_prompt;
    a->n_cached = n_cached;
}

void answer_predicted(struct answer *a, int n_accepted, int n_rejected)
{
    a->n_accepted = n_accepted;
    a->n_rejected = n_rejected;
}

void answer_times(struct answer *a, const struct answer_times *t)
{
    a->times = *t;
}

void answer_slot(struct answer *a, int id_slot)
{
    a->id_slot = id_slot;
}

/* ---- output to the sink ---- */

void answer_begin(struct answer *a)
{
    struct http_field all[FIELDS_MOST + 2];
    int n = MIN(a->setup.n_fields, (int)FIELDS_MOST);

    if (!a->setup.ask->stream || a->has_begun || a->has_ended)
        return;
    a->has_begun = true;
    if (n)
        memcpy(all, a->setup.fields, (size_t)n * sizeof(*all));
    all[n++] = (struct http_field){ STR("Cache-Control"), STR("no-cache") };
    all[n++] = (struct http_field){ STR("X-Accel-Buffering"), STR("no") };
    sink_begin(a->setup.sink, 200, a->wire->stream_type, -1, all, n);
    if (a->wire->start)
        a->wire->start(a);
}

void answer_runs(struct answer *a)
{
    if (a->wire->runs && a->setup.ask->background && !a->has_ended)
        a->wire->runs(a);
}

static void send_out(struct answer *a)
{
    sink_write(a->setup.sink, buf_str(&a->out));
    buf_reset(&a->out);
}

/* A frame consists of several buffers: if one of them has failed, the frame is incomplete. */
void answer_flush(struct answer *a)
{
    if (a->has_begun && !a->has_ended && a->out.n && answer_ok(a))
        send_out(a);
}

void answer_keepalive(struct answer *a)
{
    if (!a->has_begun || a->has_ended)
        return;
    answer_flush(a);
    sink_write(a->setup.sink, a->wire->keepalive);
}

void answer_error(struct answer *a, const struct err *e, const struct error_extra *x)
{
    if (a->has_ended)
        return;
    if (!a->has_begun) {
        a->has_ended = true;
        if (a->setup.ask->background)
            a->wire->failed(a, e, x); /* for the stored response */
        else
            status_reply(
                a->setup.sink, a->wire->error_form, e, x, a->setup.fields, a->setup.n_fields);
        return;
    }
    if (!answer_ok(a))
        buf_reset(&a->out); /* the last frame is incomplete */
    struct error_extra extra = x ? *x : (struct error_extra){ 0 };
    extra.request_id = status_request_id(a->setup.fields, a->setup.n_fields);
    if (a->wire->failed)
        a->wire->failed(a, e, &extra);
    else
        a->wire->error_frame(&a->out, e, &extra);
    a->has_ended = true;
    if (!buf_ok(&a->out)) {
        sink_abort(a->setup.sink); /* a stream that ends normally would look complete */
        return;
    }
    send_out(a);
    sink_end(a->setup.sink);
}

/* ---- tokens and text ---- */

size_t answer_choice_bytes(const struct choice *c)
{
    size_t n = c->text.n + c->reasoning.n;

    for (int k = 0; k < N_ANSWER_LISTS; k++)
        n += c->lists[k].n;
    return n;
}

void answer_account(struct answer *a, const struct choice *c, size_t before)
{
    bool ok = buf_ok(&c->text) && buf_ok(&c->reasoning);

    for (int k = 0; k < N_ANSWER_LISTS; k++)
        ok = ok && buf_ok(&c->lists[k]);
    a->held += answer_choice_bytes(c);
    a->held -= before;
    if (!ok || a->held > ANSWER_BYTES_MAX)
        a->has_failed = true;
}

struct buf *choice_item(struct choice *c, enum answer_list list)
{
    struct buf *b = &c->lists[list];

    if (b->n)
        buf_putc(b, ',');
    return b;
}

static void put_token(struct answer *a, struct choice *c, int32_t id, const struct sampled *s)
{
    const struct ask *ask = a->setup.ask;

    if (!ask->want_logprobs && !ask->want_token_ids)
        return;
    size_t before = answer_choice_bytes(c);
    if (ask->want_token_ids)
        buf_printf(choice_item(c, LIST_IDS), "%d", id);
    if (ask->want_logprobs) {
        struct answer_token t = { id, a->setup.token_bytes(a->setup.vocab, id), s,
            c->n_characters };
        a->wire->token(a, c, &t);
        for (size_t i = 0; i < t.bytes.n; i++)
            c->n_characters += (t.bytes.p[i] & 0xC0) != 0x80;
    }
    answer_account(a, c, before);
}

static void mark_lists_shown(struct choice *c)
{
    for (int k = 0; k < N_ANSWER_LISTS; k++)
        c->shown[k] = c->lists[k].n;
}

/* A stream's frame contains the lists, so they are emptied. A body keeps them; a stop string no
 * longer removes these entries. */
void answer_shown(struct answer *a, struct choice *c)
{
    if (!answer_tells(a)) {
        mark_lists_shown(c);
        return;
    }
    for (int k = 0; k < N_ANSWER_LISTS; k++) {
        a->held -= c->lists[k].n;
        buf_reset(&c->lists[k]);
        c->shown[k] = 0;
    }
    if (a->out.n >= FLUSH_AT)
        answer_flush(a);
}

static void put_text(struct answer *a, struct choice *c, struct str text, bool is_reasoning)
{
    const struct wire *w = a->wire;
    bool is_incremental = answer_tells(a);

    if (!text.n)
        return;
    if (!is_incremental || (w->keeps_thoughts && is_reasoning)) {
        size_t before = answer_choice_bytes(c);
        json_escape(is_reasoning ? &c->reasoning : &c->text, text);
        answer_account(a, c, before);
    }
    void (*emit)(struct answer *, struct choice *, struct str) =
        is_reasoning ? w->reasoning : w->text;
    if (is_incremental && !emit)
        return;
    if (is_incremental)
        emit(a, c, text);
    answer_shown(a, c);
}

struct choice *answer_open_choice(struct answer *a, int i)
{
    CHECK(i >= 0 && i < a->n_choices);
    return a->has_ended || a->has_failed || a->choices[i].has_ended ? NULL : &a->choices[i];
}

void answer_prompt_token(struct answer *a, int prompt, int32_t id, const struct sampled *t)
{
    int each = a->setup.ask->best_of;

    for (int i = prompt * each; i < (prompt + 1) * each; i++) {
        struct choice *c = answer_open_choice(a, i);
        if (!c)
            continue;
        put_token(a, c, id, t);
        mark_lists_shown(c); /* stop strings do not apply to the prompt */
    }
}

void answer_prompt_text(struct answer *a, int prompt, struct str text)
{
    int each = a->setup.ask->best_of;

    for (int i = prompt * each; i < (prompt + 1) * each; i++) {
        struct choice *c = answer_open_choice(a, i);
        if (c)
            put_text(a, c, text, false);
    }
}

void answer_token(struct answer *a, int choice, const struct sampled *t)
{
    struct choice *c = answer_open_choice(a, choice);

    if (!c)
        return;
    c->n_tokens++;
    c->sum_logprob += (double)t->logprob;
    put_token(a, c, t->id, t);
}

void answer_text(struct answer *a, int choice, struct str text)
{
    struct choice *c = answer_open_choice(a, choice);

    if (c)
        put_text(a, c, text, false);
}

void answer_reasoning(struct answer *a, int choice, struct str text)
{
    struct choice *c = answer_open_choice(a, choice);

    if (c)
        put_text(a, c, text, true);
}

void answer_reasoning_tokens(struct answer *a, int choice, int n)
{
    struct choice *c = answer_open_choice(a, choice);

    if (c)
        c->n_reasoning = n;
}

void answer_choice_end(
    struct answer *a, int choice, enum finish finish, struct str stop_text, int32_t stop_id)
{
    struct choice *c = answer_open_choice(a, choice);

    if (!c)
        return;
    answer_calls_end(a, c);
    size_t before = answer_choice_bytes(c);
    c->finish = finish;
    c->ends_in_calls = finish == FINISH_STOP && c->n_calls > 0;
    c->stop_text = stop_text;
    c->stop_id = stop_id;
    if (stop_text.p && !a->setup.ask->include_stop)
        for (int k = 0; k < N_ANSWER_LISTS; k++)
            c->lists[k].n = c->shown[k];
    if (answer_tells(a)) {
        a->wire->choice_end(a, c);
        for (int k = 0; k < N_ANSWER_LISTS; k++)
            buf_clear(&c->lists[k]);
    }
    c->has_ended = true;
    answer_account(a, c, before);
}

bool answer_choice_ended(const struct answer *a, int choice)
{
    CHECK(choice >= 0 && choice < a->n_choices);
    return a->choices[choice].has_ended;
}

/* ---- the end ---- */

static double mean_logprob(const struct choice *c)
{
    return c->n_tokens ? c->sum_logprob / c->n_tokens : -INFINITY;
}

/* Higher mean log-probability, or the same and a lower index. */
static bool is_better(const struct choice *a, const struct choice *b)
{
    double x = mean_logprob(a), y = mean_logprob(b);
    return x > y || (x == y && a < b);
}

const struct choice *answer_rank(const struct answer *a, int prompt, int place)
{
    const struct ask *ask = a->setup.ask;
    const struct choice *first = &a->choices[prompt * ask->best_of];

    if (ask->best_of == ask->n)
        return &first[place];
    for (int i = 0; i < ask->best_of; i++) {
        int n_better = 0;
        for (int k = 0; k < ask->best_of; k++)
            n_better += k != i && is_better(&first[k], &first[i]);
        if (n_better == place)
            return &first[i];
    }
    return &first[place]; /* a choice has NaN: no comparison is true */
}

void answer_end(struct answer *a)
{
    const struct err memory = { .code = ERR_MEMORY, .msg = "The response became too large." };

    if (a->has_ended)
        return;
    for (int i = 0; i < a->n_choices; i++)
        if (!a->choices[i].has_ended)
            answer_choice_end(a, i, FINISH_LENGTH, STR_NONE, -1);
    if (answer_ok(a) && a->setup.ask->stream)
        a->wire->end(a);
    else if (answer_ok(a))
        a->wire->body(a);
    if (!answer_ok(a)) {
        answer_error(a, &memory, NULL);
        return;
    }
    if (a->setup.ask->stream) {
        answer_begin(a);
        answer_flush(a);
        a->has_ended = true;
        sink_end(a->setup.sink);
        return;
    }
    a->has_ended = true;
    sink_reply(a->setup.sink, 200, "application/json", buf_str(&a->out), a->setup.fields,
        a->setup.n_fields);
}

bool answer_keep(const struct answer *a, struct buf *answer, struct buf *input)
{
    if (!a->wire->keep || !answer_ok(a))
        return false;
    a->wire->keep(a, answer, input);
    return buf_ok(answer) && buf_ok(input);
}
