/* shorten.c: a conversation that does not fit, whose client would rather lose its front than be
 * refused (ask.may_shorten). Whole turns go, from one user's message to the next, so that no result
 * stands without its call; what the system says and the last turn stay.
 *
 *     system  | user assistant tool assistant | user assistant | user
 *     stays     goes first                      then this        stays */
#include "generate/prompt.h"

struct shorter {
    const struct ask *ask;
    const struct workplace *at;
    int n_head; /* messages in front of all turns */
    int *cuts;  /* where turns begin, but for the first */
    int n_cuts;
    int n_room; /* tokens the answer is to have */
};

/* What a template has not enough steps for is longer still. */
static bool is_too_long(const struct err *e)
{
    return e->code == ERR_CONTEXT || e->code == ERR_TOO_LARGE;
}

static bool is_of_system(const struct message *m)
{
    return m->role == ROLE_SYSTEM || m->role == ROLE_DEVELOPER;
}

static int find_cuts(struct shorter *s, struct err *e)
{
    const struct convo *c = &s->ask->convo;

    while (s->n_head < c->n_messages && is_of_system(&c->messages[s->n_head]))
        s->n_head++;
    s->cuts = arena_alloc(s->at->arena, (size_t)(c->n_messages + 1) * sizeof(*s->cuts));
    if (!s->cuts)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    for (int i = s->n_head + 1; i < c->n_messages; i++)
        if (c->messages[i].role == ROLE_USER)
            s->cuts[s->n_cuts++] = i;
    return 0;
}

/* The prompt of what is left from `cut` on: 0, or -1 when it cannot be, with why. */
static int build_from(struct prompt **out, const struct shorter *s, int cut, struct err *e)
{
    const struct convo *c = &s->ask->convo;
    int n = s->n_head + c->n_messages - cut;
    struct ask ask = *s->ask;

    ask.convo.messages = arena_alloc(s->at->arena, (size_t)n * sizeof(*c->messages));
    if (!ask.convo.messages)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    memcpy(ask.convo.messages, c->messages, (size_t)s->n_head * sizeof(*c->messages));
    memcpy(ask.convo.messages + s->n_head, c->messages + cut,
        (size_t)(c->n_messages - cut) * sizeof(*c->messages));
    ask.convo.n_messages = n;
    return prompts_build(out, &ask, s->at, e);
}

/* As few turns as have to go; the fewer there are, the shorter the prompt. If the last turn by
 * itself leaves less room than the answer should have, it has what there is. */
static int search(
    struct prompt **out, const struct shorter *s, const struct err *why, struct err *e)
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
        if (!rc && (p->n + s->n_room <= s->at->model->n_ctx || mid == s->n_cuts - 1)) {
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

int prompts_build_shorter(
    struct prompt **out, const struct ask *ask, const struct workplace *at, struct err *e)
{
    int n_ctx = at->model->n_ctx;
    struct shorter s = { .ask = ask,
        .at = at,
        .n_room = ask->max_tokens >= 0 ? MIN(ask->max_tokens, n_ctx / 2) : n_ctx / 4 };
    struct err why;

    if (!prompts_build(out, ask, at, &why))
        return 0;
    if (!is_too_long(&why) || !ask->may_shorten) {
        *e = why;
        return -1;
    }
    return find_cuts(&s, e) ? -1 : search(out, &s, &why, e);
}
