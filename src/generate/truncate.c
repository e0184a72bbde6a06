/* truncate.c: truncation of a conversation that does not fit, if the request allows it
 * (may_truncate). Whole turns are removed from the start, each from one user message to the
 * next, so that no tool result remains without its call. System messages and the last turn are
 * kept. Owner: the thread that owns the request.
 *
 *     system  | user assistant tool assistant | user assistant | user
 *     kept      removed first                   removed second   kept */
#include "generate/prompt.h"

struct truncation {
    const struct request *request;
    const struct prompt_ctx *ctx;
    int n_head; /* system messages at the start */
    int *cuts;  /* indices of the messages that start a turn, without the first turn */
    int n_cuts;
    int n_room; /* tokens reserved for the response */
};

/* A template that exceeds its step limit is treated as a prompt that is too long. */
static bool is_too_long(const struct err *e)
{
    return e->code == ERR_CONTEXT || e->code == ERR_TOO_LARGE;
}

static bool is_system_message(const struct message *m)
{
    return m->role == ROLE_SYSTEM || m->role == ROLE_DEVELOPER;
}

static int find_cuts(struct truncation *s, struct err *e)
{
    const struct convo *c = &s->request->convo;

    while (s->n_head < c->n_messages && is_system_message(&c->messages[s->n_head]))
        s->n_head++;
    s->cuts = arena_alloc(s->ctx->arena, (size_t)(c->n_messages + 1) * sizeof(*s->cuts));
    if (!s->cuts)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    for (int i = s->n_head + 1; i < c->n_messages; i++)
        if (c->messages[i].role == ROLE_USER)
            s->cuts[s->n_cuts++] = i;
    return 0;
}

/* Builds the prompt without the messages from n_head to `cut`. Returns 0, or -1 with the reason. */
static int build_from(struct prompt **out, const struct truncation *s, int cut, struct err *e)
{
    const struct convo *c = &s->request->convo;
    int n = s->n_head + c->n_messages - cut;
    struct request request = *s->request;

    request.convo.messages = arena_alloc(s->ctx->arena, (size_t)n * sizeof(*c->messages));
    if (!request.convo.messages)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    memcpy(request.convo.messages, c->messages, (size_t)s->n_head * sizeof(*c->messages));
    memcpy(request.convo.messages + s->n_head, c->messages + cut,
        (size_t)(c->n_messages - cut) * sizeof(*c->messages));
    request.convo.n_messages = n;
    return prompts_build(out, &request, s->ctx, e);
}

/* Binary search for the smallest number of turns to remove; fewer turns give a shorter prompt. If
 * the last turn alone leaves less than n_room, the response gets what remains. */
static int find_shortest_cut(
    struct prompt **out, const struct truncation *s, const struct err *why, struct err *e)
{
    int lo = 0, hi = s->n_cuts;
    struct prompt *p, *last = NULL;
    struct err tried;

    while (lo < hi) {
        int mid = (lo + hi) / 2;
        int rc = build_from(&p, s, s->cuts[mid], &tried);
        if (rc && !is_too_long(&tried)) {
            *e = tried;
            return -1;
        }
        if (!rc && (p->n + s->n_room <= s->ctx->model->n_ctx || mid == s->n_cuts - 1)) {
            last = p;
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    if (!last) {
        *e = *why;
        return -1;
    }
    *out = last;
    return 0;
}

int prompts_build_truncated(
    struct prompt **out, const struct request *request, const struct prompt_ctx *ctx, struct err *e)
{
    int n_ctx = ctx->model->n_ctx;
    struct truncation s = { .request = request,
        .ctx = ctx,
        .n_room = request->max_tokens >= 0 ? MIN(request->max_tokens, n_ctx / 2) : n_ctx / 4 };
    struct err why;

    if (!prompts_build(out, request, ctx, &why))
        return 0;
    if (!is_too_long(&why) || !request->may_truncate) {
        *e = why;
        return -1;
    }
    return find_cuts(&s, e) ? -1 : find_shortest_cut(out, &s, &why, e);
}
