#include "constrain/constraint_in.h"

#include "base/mem.h"
#include "constrain/forced.h"
#include "constrain/mask.h"
#include "constrain/token_limit.h"

enum {
    STACK_MAX = 4 * CONSTRAINT_POP_MAX, /* tokens that can be popped, and older ones */
    MASK_CACHE_BYTES = 64 * 1024,
    FORCED_BYTES = 512
};

/* A token of the output. */
struct pushed {
    int32_t token;
    pos_id p;      /* after the token */
    uint32_t mark; /* before it */
};

/* MASK_LIMITING: the mask of the acceptor is done, and tokens are removed from it. */
enum mask_state { NO_MASK, MASK_RUNNING, MASK_LIMITING, MASK_READY };

/* Positions, oldest first: `base`, `bottom`, those of the stack, those of a mask that is being
 * computed. */
struct constraint_state {
    struct constraint *c;
    const struct vocab_tables *tables;
    struct acceptor *a;
    struct mask *mask;
    enum mask_state mask_state;
    struct token_limit *limit; /* NULL: the output may end anywhere */
    bool has_completions;      /* a limit was set, or failed to be */
    int tokens_max, n_tokens;  /* with a limit: of the output; pushed so far */
    struct token_mask limited;
    int32_t one;         /* the only token of `limited` */
    uint32_t first_mark; /* before `base` */
    pos_id base;         /* before the first token */
    uint32_t base_mark;  /* after `base` */
    pos_id bottom;       /* before the tokens of the stack; `base` unless older ones were dropped */
    int n_stack;
    struct pushed stack[STACK_MAX];
};

static pos_id top_of(const struct constraint_state *s)
{
    return s->n_stack ? s->stack[s->n_stack - 1].p : s->bottom;
}

static void drop_mask(struct constraint_state *s)
{
    mask_drop(s->mask);
    if (s->limit)
        token_limit_drop(s->limit);
    s->mask_state = NO_MASK;
}

/* ---- the limit of tokens */

static uint32_t room_of(const struct constraint_state *s)
{
    return (uint32_t)MAX(s->tokens_max - s->n_tokens, 0);
}

/* The limit applies: the output can be completed. After a position that cannot be completed in time
 * all tokens of the acceptor are permitted. */
static bool is_limited(struct constraint_state *s, pos_id p)
{
    return s->limit && token_limit_cost(s->limit, p) <= room_of(s);
}

/* Only the completion fits. */
static bool is_tight(struct constraint_state *s, pos_id p)
{
    return s->limit && token_limit_cost(s->limit, p) == room_of(s);
}

static bool is_first_of_completion(struct constraint_state *s, pos_id p, int32_t token)
{
    int32_t first;

    return token_limit_tokens(s->limit, p, &first, 1) == 1 && first == token;
}

/* A token from p to q leaves enough tokens for the rest. */
static bool leaves_room(struct constraint_state *s, pos_id p, pos_id q, int32_t token)
{
    return !is_limited(s, p) || token_limit_cost(s->limit, q) < room_of(s) ||
           is_first_of_completion(s, p, token);
}

/* ---- tokens */

/* The position after a token; POS_DEAD: it is not permitted. */
static pos_id step_token(struct constraint_state *s, pos_id p, int32_t token)
{
    const struct token_source *src = &s->tables->source;
    const struct acceptor_ops *ops = s->a->ops;
    pos_id start = p;

    if (token < 0 || token >= s->tables->n_tokens || src->is_end(src->ctx, token))
        return POS_DEAD;
    struct str bytes = src->bytes(src->ctx, token);
    if (!bytes.n || bytes.n > TOKEN_TRIE_DEPTH_MAX)
        p = POS_DEAD;
    for (size_t k = 0; k < bytes.n && p.i; k++)
        p = ops->step(s->a, p, (uint8_t)bytes.p[k]);
    return p.i || !ops->step_token ? p : ops->step_token(s->a, start, token);
}

/* Adds a token to the stack if it is permitted. `is_new`: it was not on the stack before. */
static bool append(struct constraint_state *s, int32_t token, bool is_new)
{
    const struct acceptor_ops *ops = s->a->ops;
    uint32_t mark = ops->mark(s->a);
    pos_id p = step_token(s, top_of(s), token);

    if (!p.i || (is_new && !leaves_room(s, top_of(s), p, token))) {
        ops->release(s->a, mark);
        return false;
    }
    s->stack[s->n_stack++] = (struct pushed){ token, ops->keep(s->a, mark, p), mark };
    return true;
}

/* Drops all tokens that cannot be popped: keeps one position, and reads the others again. */
static bool compact(struct constraint_state *s)
{
    int first = s->n_stack - CONSTRAINT_POP_MAX;

    s->bottom = s->a->ops->keep(s->a, s->base_mark, s->stack[first - 1].p);
    s->n_stack = 0;
    for (int k = 0; k < CONSTRAINT_POP_MAX; k++)
        if (!append(s, s->stack[first + k].token, false))
            return false;
    return true;
}

static bool push(void *self, int32_t token)
{
    struct constraint_state *s = self;

    drop_mask(s);
    if (s->n_stack == STACK_MAX && !compact(s))
        return false; /* a bound of the acceptor; the next mask fails */
    if (!append(s, token, true))
        return false;
    s->n_tokens++;
    return true;
}

static void pop(void *self, int n)
{
    struct constraint_state *s = self;

    CHECK(n >= 0 && n <= CONSTRAINT_POP_MAX && n <= s->n_stack);
    if (!n)
        return;
    drop_mask(s);
    s->n_stack -= n;
    s->n_tokens -= n;
    s->a->ops->release(s->a, s->stack[s->n_stack].mark);
}

static void reset(void *self)
{
    struct constraint_state *s = self;

    drop_mask(s);
    s->a->ops->release(s->a, s->base_mark);
    s->bottom = s->base;
    s->n_stack = 0;
    s->n_tokens = 0;
}

size_t constraint_state_read(struct constraint_state *s, struct str text)
{
    const struct acceptor_ops *ops = s->a->ops;

    CHECK(!s->n_stack);
    drop_mask(s);
    for (size_t k = 0; k < text.n; k++) {
        pos_id p = ops->step(s->a, s->base, (uint8_t)text.p[k]);
        if (!p.i) {
            ops->release(s->a, s->base_mark);
            return k;
        }
        s->base = s->bottom = ops->keep(s->a, s->first_mark, p);
        s->base_mark = ops->mark(s->a);
    }
    return text.n;
}

/* ---- queries */

/* If no token remains, the completion continues. */
static void keep_completion(struct constraint_state *s)
{
    bool is_empty = s->limited.form == MASK_FORM_IDS && !s->limited.n_ids;

    if (is_empty && token_limit_tokens(s->limit, top_of(s), &s->one, 1))
        s->limited = (struct token_mask){ .form = MASK_FORM_IDS, .ids = &s->one, .n_ids = 1 };
}

static enum mask_progress run_limit(struct constraint_state *s, uint64_t steps, struct err *e)
{
    enum mask_progress progress = token_limit_run(s->limit, steps, &s->limited, e);

    if (progress == MASK_DONE)
        keep_completion(s);
    return progress;
}

/* The mask of the acceptor is done. */
static enum mask_progress begin_limit(struct constraint_state *s, uint64_t steps, struct err *e)
{
    pos_id p = top_of(s);

    s->limited = mask_form(s->mask);
    if (!is_limited(s, p))
        return s->a->ops->check(s->a, e) ? MASK_ERROR : MASK_DONE;
    s->mask_state = MASK_LIMITING;
    token_limit_begin(s->limit, p, &s->limited, room_of(s));
    return run_limit(s, steps, e);
}

static enum mask_progress run_mask(struct constraint_state *s, uint64_t steps, struct err *e)
{
    if (s->mask_state == MASK_LIMITING)
        return run_limit(s, steps, e);
    if (s->mask_state == NO_MASK)
        mask_begin(s->mask, top_of(s));
    s->mask_state = MASK_RUNNING;
    enum mask_progress progress = mask_run(s->mask, steps, e);
    return progress == MASK_DONE ? begin_limit(s, steps, e) : progress;
}

static enum mask_progress compute_mask(
    void *self, uint64_t steps, struct token_mask *out, struct err *e)
{
    struct constraint_state *s = self;
    enum mask_progress progress = MASK_DONE;

    if (s->mask_state != MASK_READY)
        progress = run_mask(s, steps, e);
    if (progress == MASK_ERROR)
        drop_mask(s);
    if (progress == MASK_DONE)
        s->mask_state = MASK_READY;
    if (progress == MASK_DONE)
        *out = s->limited;
    return progress;
}

bool constraint_state_accepts(const struct constraint_state *s)
{
    return s->a->ops->accepts(s->a, top_of(s));
}

static bool accepts(void *self)
{
    return constraint_state_accepts(self);
}

static bool is_complete(void *self)
{
    struct constraint_state *s = self;
    const struct acceptor_ops *ops = s->a->ops;
    pos_id p = top_of(s);
    int32_t id;

    if (!ops->accepts(s->a, p) || (ops->tokens && ops->tokens(s->a, p, &id, 1)))
        return false;
    struct byte_set next = ops->next_bytes(s->a, p);
    return byte_set_is_empty(&next);
}

static int forced(void *self, int32_t *ids, int cap)
{
    struct constraint_state *s = self;
    const struct acceptor_ops *ops = s->a->ops;
    uint32_t mark = ops->mark(s->a);
    pos_id p = top_of(s);
    char text[FORCED_BYTES];
    int32_t control = 0;
    size_t n = 0;

    if (is_tight(s, p))
        return token_limit_tokens(s->limit, p, ids, cap);
    while (control != TOKEN_NONE && n < (size_t)cap) {
        size_t length = forced_text(s->a, p, text, sizeof(text), &p);
        n +=
            forced_tokens(&s->tables->trie, (struct str){ text, length }, ids + n, (size_t)cap - n);
        control = n < (size_t)cap && ops->step_token ? forced_control(s->a, p) : TOKEN_NONE;
        if (control != TOKEN_NONE) {
            ids[n++] = control;
            p = ops->step_token(s->a, p, control);
        }
    }
    ops->release(s->a, mark);
    return (int)n;
}

static const struct constraint_ops ops = {
    .mask = compute_mask,
    .push = push,
    .pop = pop,
    .forced = forced,
    .is_complete = is_complete,
    .accepts = accepts,
    .reset = reset,
};

struct sample_constraint constraint_state_ops(struct constraint_state *s)
{
    return (struct sample_constraint){ &ops, s };
}

/* ---- creation */

static int make_state(struct constraint_state **out, struct constraint *c, struct err *e)
{
    struct constraint_state *s = try_calloc(1, sizeof(*s));

    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the state of a constraint");
    s->tables = constraint_tables(c);
    if (constraint_acceptor(&s->a, c, e) ||
        mask_new(&s->mask, s->tables, s->a, MASK_CACHE_BYTES, e)) {
        constraint_state_delete(s);
        return -1;
    }
    s->base = s->bottom = POS_START;
    s->first_mark = s->base_mark = s->a->ops->mark(s->a);
    *out = s;
    return 0;
}

int constraint_state_new(struct constraint_state **out, struct constraint *c, struct err *e)
{
    struct constraint_state *s = constraint_take_state(c);

    if (!s && make_state(&s, c, e))
        return -1;
    s->c = constraint_ref(c);
    *out = s;
    return 0;
}

/* Returns to the start position; the transitions and masks that were computed remain. */
static void restart(struct constraint_state *s)
{
    drop_mask(s);
    s->a->ops->release(s->a, s->first_mark);
    s->base = s->bottom = POS_START;
    s->base_mark = s->first_mark;
    s->n_stack = 0;
    s->n_tokens = 0;
}

void constraint_state_delete(struct constraint_state *s)
{
    if (!s)
        return;
    mask_free(s->mask);
    token_limit_free(s->limit);
    if (s->a)
        s->a->ops->free(s->a);
    mem_free(s);
}

void constraint_state_free(struct constraint_state *s)
{
    struct constraint *c = s ? s->c : NULL;

    if (!s)
        return;
    restart(s);
    s->c = NULL;
    /* Not kept: a state that has exceeded a bound, which returns the error for every text, and one
     * with the memory of completions. */
    bool is_reusable = !s->has_completions && !s->a->ops->check(s->a, &(struct err){ 0 });
    if (!is_reusable || !constraint_keep_state(c, s))
        constraint_state_delete(s);
    constraint_unref(c);
}

size_t constraint_state_bytes(const struct constraint_state *s)
{
    return sizeof(*s) + s->a->ops->bytes(s->a) + mask_bytes(s->mask) +
           (s->limit ? token_limit_bytes(s->limit) : 0);
}

int constraint_state_limit(struct constraint_state *s, int tokens_max, struct err *e)
{
    s->tokens_max = tokens_max;
    s->has_completions = true;
    return token_limit_new(&s->limit, s->tables, s->a, (uint32_t)MAX(tokens_max, 0), e);
}

void constraint_state_set_limit(struct constraint_state *s, int tokens_max)
{
    if (s->tokens_max == tokens_max)
        return;
    drop_mask(s);
    s->tokens_max = tokens_max;
}

uint32_t constraint_state_cost(struct constraint_state *s)
{
    return token_limit_cost(s->limit, top_of(s));
}
