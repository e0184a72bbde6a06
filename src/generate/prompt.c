#include "generate/prompt.h"
#include "base/utf8.h"
#include "os/clock.h"
#include "generate/tool_choice.h"

#include <openssl/sha.h>
#include <stdio.h>

int prompt_render(
    struct rendered *out, const struct convo *c, const struct prompt_ctx *ctx, struct err *e)
{
    const struct model *m = ctx->model;
    struct render_options when = { clock_wall_s(), ctx->stop };

    return adapter_render(m->adapter, c, &when, ctx->arena, out, e);
}

int prompt_encode_chat(struct tokens *out, const struct rendered *r, bool with_bos,
    const struct model *m, struct err *e)
{
    int32_t bos = vocab_bos(m->vocab);

    CHECK(!out->n);
    if (vocab_encode(m->vocab, r->spans, r->n_spans, with_bos, out, e))
        return -1;
    bool is_double = with_bos && vocab_add_bos(m->vocab) && bos != TOKEN_NONE && out->n > 1 &&
                     out->ids[0] == bos && out->ids[1] == bos;
    if (is_double)
        memmove(out->ids, out->ids + 1, --out->n * sizeof(*out->ids));
    return 0;
}

static int build_chat(
    struct prompt *p, const struct request *request, const struct prompt_ctx *ctx, struct err *e)
{
    struct rendered r;
    struct tokens t = { .arena = ctx->arena, .stop = ctx->stop };

    if (prompt_render(&r, &request->convo, ctx, e) ||
        tool_choice_output(&p->output, &r, request, ctx, e) ||
        prompt_encode_chat(&t, &r, request->add_special_tokens, ctx->model, e))
        return -1;
    p->ids = t.ids;
    p->n = (int)t.n;
    p->output.turn_end = adapter_turn_end(ctx->model->adapter);
    return 0;
}

static int build_infill(struct prompt *p, const struct request *request,
    const struct infill *infill, const struct prompt_ctx *ctx, struct err *e)
{
    struct tokens t = { .arena = ctx->arena, .stop = ctx->stop };

    if (infill_encode(ctx->model->vocab, infill, &t, e)) {
        if (e->code == ERR_UNSUPPORTED && request_has(request, "suffix"))
            /* the name of the field in other dialects */
            snprintf(e->param, sizeof(e->param), "suffix");
        return -1;
    }
    *p = (struct prompt){ .ids = t.ids, .n = (int)t.n, .text = infill->prefix };
    return 0;
}

/* Prompt of mixed text and tokens. If the first piece is text, BOS is added as for a text
 * prompt. */
static int build_mixed(struct prompt *p, const struct request *request,
    const struct request_prompt *from, const struct prompt_ctx *ctx, struct err *e)
{
    struct tokens t = { .arena = ctx->arena, .stop = ctx->stop };

    for (int i = 0; i < from->n_pieces; i++) {
        const struct prompt_piece *piece = &from->pieces[i];
        struct span span = { piece->text, true };
        bool with_bos = !i && request->add_special_tokens;
        if (piece->is_token ? tokens_push(&t, piece->id, e)
                            : vocab_encode(ctx->model->vocab, &span, 1, with_bos, &t, e))
            return -1;
    }
    *p = (struct prompt){ .ids = t.ids, .n = (int)t.n };
    return 0;
}

/* The client of a completion writes its own template, so control tokens in the text are parsed as
 * such. */
static int build_completion(struct prompt *p, const struct request *request,
    const struct request_prompt *from, const struct prompt_ctx *ctx, struct err *e)
{
    struct span span = { from->text, true };
    struct tokens t = { .arena = ctx->arena, .stop = ctx->stop };

    if (from->is_tokens) {
        *p = (struct prompt){ .ids = from->ids, .n = from->n_ids };
        return 0;
    }
    if (from->infill)
        return build_infill(p, request, from->infill, ctx, e);
    if (from->pieces)
        return build_mixed(p, request, from, ctx, e);
    if (vocab_encode(ctx->model->vocab, &span, 1, request->add_special_tokens, &t, e))
        return -1;
    *p = (struct prompt){ .ids = t.ids, .n = (int)t.n, .text = from->text };
    return 0;
}

/* Replaces an empty prompt by BOS, if the vocabulary has it. */
static int replace_empty(struct prompt *p, const struct prompt_ctx *ctx, struct err *e)
{
    int32_t bos = vocab_bos(ctx->model->vocab);

    if (p->n || bos == TOKEN_NONE)
        return 0;
    int32_t *ids = arena_alloc(ctx->arena, sizeof(*ids));
    if (!ids)
        return err_set(e, ERR_MEMORY, "no memory for the prompt");
    *ids = bos;
    p->ids = ids;
    p->n = 1;
    return 0;
}

/* Rejects a conversation that cannot fit before it is rendered, by a lower bound of its length. */
static int check_room(struct prompt *p, const struct request *request, int n_max,
    const struct prompt_ctx *ctx, struct err *e)
{
    if (request->kind != REQUEST_CHAT)
        return 0;
    size_t least = adapter_min_tokens(ctx->model->adapter, &request->convo, (size_t)n_max);
    if (least <= (size_t)n_max)
        return 0;
    *p = (struct prompt){ .n = (int)MIN(least, (size_t)INT32_MAX), .is_lower_bound = true };
    return err_context_at_least(e, "messages", p->n, ctx->model->n_ctx);
}

int prompts_build(
    struct prompt **out, const struct request *request, const struct prompt_ctx *ctx, struct err *e)
{
    const char *field = request->kind == REQUEST_CHAT ? "messages" : "prompt";
    struct prompt *prompts = arena_zalloc(ctx->arena, (size_t)request->n_prompts, sizeof(*prompts));
    int n_ctx = ctx->model->n_ctx;
    /* the whole context may be used if only prompt logprobs are requested */
    int n_max = n_ctx - (request->max_tokens == 0 ? 0 : 1);

    if (!prompts)
        return err_set(e, ERR_MEMORY, "no memory for %d prompts", request->n_prompts);
    *out = prompts;
    for (int i = 0; i < request->n_prompts; i++) {
        struct prompt *p = &prompts[i];
        if (check_room(p, request, n_max, ctx, e))
            return -1;
        int rc = request->kind == REQUEST_CHAT
                     ? build_chat(p, request, ctx, e)
                     : build_completion(p, request, &request->prompts[i], ctx, e);
        if (rc || replace_empty(p, ctx, e))
            return -1;
        if (!p->n)
            return err_param(e, ERR_INVALID, field, "The prompt is empty.");
        if (p->n > n_max)
            return err_context(e, field, p->n, n_ctx);
    }
    return 0;
}

int bias_build(struct request *request, const struct prompt_ctx *ctx, struct err *e)
{
    struct token_bias *all;
    int n = request->sample.n_bias;

    if (!request->n_text_bias)
        return 0;
    all = arena_alloc(ctx->arena, REQUEST_BIAS_MAX * sizeof(*all));
    if (!all)
        return err_set(e, ERR_MEMORY, "no memory for the logit biases");
    if (n)
        memcpy(all, request->sample.bias, (size_t)n * sizeof(*all));
    for (int i = 0; i < request->n_text_bias; i++) {
        struct span span = { request->text_bias[i].text, false };
        struct tokens t = { .arena = ctx->arena, .stop = ctx->stop };
        if (span.text.n && vocab_encode(ctx->model->vocab, &span, 1, false, &t, e))
            return -1;
        if (t.n > (size_t)(REQUEST_BIAS_MAX - n))
            return err_param(e, ERR_RANGE, "logit_bias", "'logit_bias' may name at most %d tokens.",
                REQUEST_BIAS_MAX);
        for (size_t k = 0; k < t.n; k++)
            all[n++] = (struct token_bias){ t.ids[k], request->text_bias[i].bias };
    }
    return request_set_bias(request, ctx->arena, all, n, e);
}

int prediction_build(const int32_t **out, int *n, const struct request *request,
    const struct prompt_ctx *ctx, struct err *e)
{
    struct span span = { request->prediction, false };
    struct tokens t = { .arena = ctx->arena, .stop = ctx->stop };

    if (request->prediction.n && vocab_encode(ctx->model->vocab, &span, 1, false, &t, e))
        return err_wrap(e, "prediction");
    *out = t.ids;
    *n = (int)MIN(t.n, (size_t)ctx->model->n_ctx);
    return 0;
}

int prompt_max_tokens(
    const struct request *request, const struct model *m, const struct prompt *p, int default_max)
{
    int room = m->n_ctx - p->n;
    int want = request->max_tokens >= 0 ? request->max_tokens
               : default_max > 0        ? default_max
                                        : room;

    return MIN(want, room);
}

void prompt_scope(struct cache_scope *out, const struct request *request, uint64_t tenant)
{
    *out = (struct cache_scope){ .tenant = tenant };
    _Static_assert(sizeof(out->salt) == SHA256_DIGEST_LENGTH, "a salt is a digest");
    if (request->cache_salt.n)
        SHA256((const unsigned char *)request->cache_salt.p, request->cache_salt.n, out->salt);
}

/* ---- scripts */

/* Selects the script turn by the number of assistant messages. */
static struct str script_turn(const struct request *request)
{
    const struct convo *c = &request->convo;
    int turn = 0, n = c->n_messages - (c->continue_final_message ? 1 : 0);

    for (int i = 0; i < n; i++)
        turn += c->messages[i].role == ROLE_ASSISTANT;
    return request->script.turns[MIN(turn, request->script.n_turns - 1)];
}

static struct str script_text(const struct request *request, int prompt, struct arena *a)
{
    if (request->script.n_turns)
        return script_turn(request);
    if (request->script.is_set)
        return request->script.text;
    if (request->kind == REQUEST_COMPLETION)
        return request->prompts[prompt].is_tokens ? STR("") : request->prompts[prompt].text;
    for (int i = request->convo.n_messages - 1; i >= 0; i--)
        if (request->convo.messages[i].role == ROLE_USER)
            return message_text(&request->convo.messages[i], a);
    return STR("");
}

/* Encodes one byte as its own token, so that a script can be split at any byte. */
static int push_byte(struct tokens *t, const struct vocab *v, char byte, struct err *e)
{
    char name[8];

    snprintf(name, sizeof(name), "<0x%02X>", (unsigned char)byte);
    int32_t id = vocab_find(v, str_of(name));
    if (id == TOKEN_NONE) {
        struct span one = { { &byte, 1 }, false };
        return vocab_encode(v, &one, 1, false, t, e);
    }
    return tokens_push(t, id, e);
}

struct groups {
    int32_t *ends;
    int n;
};

static int group_chars(struct tokens *t, struct groups *g, const struct request_script *s,
    struct str text, const struct vocab *v, struct err *e)
{
    int in_group = 0;

    g->ends = arena_alloc(t->arena, (text.n + 1) * sizeof(*g->ends));
    if (!g->ends)
        return err_set(e, ERR_MEMORY, "no memory for the script");
    while (text.n) {
        uint32_t cp;
        int n = MAX(utf8_decode(text, &cp), 1);
        for (int i = 0; i < n; i++)
            if (push_byte(t, v, text.p[i], e))
                return -1;
        text = str_skip(text, (size_t)n);
        if (++in_group == s->per_chunk || !text.n) {
            g->ends[g->n++] = (int32_t)t->n;
            in_group = 0;
        }
    }
    return 0;
}

static int group_tokens(struct tokens *t, struct groups *g, const struct request_script *s,
    struct str text, const struct vocab *v, struct err *e)
{
    struct span span = { text, false };
    size_t step = s->is_set && s->unit == SCRIPT_ALL ? SIZE_MAX : (size_t)MAX(s->per_chunk, 1);

    if (text.n && vocab_encode(v, &span, 1, false, t, e))
        return -1;
    g->ends = arena_alloc(t->arena, (t->n + 1) * sizeof(*g->ends));
    if (!g->ends)
        return err_set(e, ERR_MEMORY, "no memory for the script");
    for (size_t at = 0; at < t->n;) {
        at = step > t->n - at ? t->n : at + step;
        g->ends[g->n++] = (int32_t)at;
    }
    return 0;
}

int script_build(const struct gen_script **out, const struct request *request, int prompt,
    const struct prompt_ctx *ctx, struct err *e)
{
    const struct request_script *s = &request->script;
    struct gen_script *script = arena_zalloc(ctx->arena, 1, sizeof(*script));
    struct tokens t = { .arena = ctx->arena, .stop = ctx->stop };
    struct groups g = { 0 };
    struct str text = script_text(request, prompt, ctx->arena);

    if (!script || !text.p)
        return err_set(e, ERR_MEMORY, "no memory for the script");
    bool by_chars = s->is_set && s->unit == SCRIPT_CHARS;
    if (by_chars ? group_chars(&t, &g, s, text, ctx->model->vocab, e)
                 : group_tokens(&t, &g, s, text, ctx->model->vocab, e))
        return -1;
    *script = (struct gen_script){ t.ids, (int)t.n, g.ends, g.n, s->delay_ms };
    *out = script;
    return 0;
}
