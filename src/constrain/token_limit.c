#include "constrain/token_limit.h"

#include "base/hash.h"
#include "base/mem.h"

enum {
    WORST_SLOTS = 256,
    IDS_SHARE = 50 /* a list has at most one in 50 tokens */
};

struct worst_cost { /* of the tokens of the mask at the position with this key */
    uint64_t key;   /* 0: unused */
    uint32_t cost;
};

struct step {
    pos_id p;
    uint32_t mark; /* newer positions are those of the bytes after it */
};

struct token_limit {
    const struct vocab_tables *tables;
    struct acceptor *a;
    struct completions *completions;
    size_t n_words;
    uint64_t generation; /* of `worst` */
    struct worst_cost worst[WORST_SLOTS];
    uint32_t *bits; /* [n_words] */
    int32_t *ids;   /* [n_tokens / IDS_SHARE + 1] */

    /* The mask in progress. */
    struct token_mask mask;
    pos_id start;
    uint32_t room, first_mark;
    uint32_t most; /* largest cost so far */
    bool is_running, has_removed;
    const struct token_trie *trie;
    uint32_t at;       /* node */
    struct step *path; /* [depth_max + 1] after the bytes of the path; [0]: the start */
};

/* ---- creation */

int token_limit_new(struct token_limit **out, const struct vocab_tables *t, struct acceptor *a,
    uint32_t tokens_max, struct err *e)
{
    if (!a->ops->completion_new)
        return err_set(e, ERR_UNSUPPORTED, "the output of this constraint cannot be completed");
    struct token_limit *l = try_calloc(1, sizeof(*l));
    if (!l)
        return err_set(e, ERR_MEMORY, "no memory for the state of a constraint");
    l->tables = t;
    l->a = a;
    l->n_words = token_set_words(t->n_tokens);
    l->bits = try_calloc(l->n_words, sizeof(*l->bits));
    l->ids = try_calloc((size_t)t->n_tokens / IDS_SHARE + 1, sizeof(*l->ids));
    l->path = try_calloc((size_t)t->trie.depth_max + 1, sizeof(*l->path));
    if (!l->bits || !l->ids || !l->path) {
        token_limit_free(l);
        return err_set(e, ERR_MEMORY, "no memory for the state of a constraint");
    }
    if (a->ops->completion_new(a, e) || completions_new(&l->completions, t, a, tokens_max, e)) {
        token_limit_free(l);
        return -1;
    }
    *out = l;
    return 0;
}

void token_limit_free(struct token_limit *l)
{
    if (!l)
        return;
    completions_free(l->completions);
    mem_free(l->bits);
    mem_free(l->ids);
    mem_free(l->path);
    mem_free(l);
}

size_t token_limit_bytes(const struct token_limit *l)
{
    return sizeof(*l) + completions_bytes(l->completions) + l->n_words * sizeof(*l->bits) +
           ((size_t)l->tables->n_tokens / IDS_SHARE + 1) * sizeof(*l->ids) +
           ((size_t)l->tables->trie.depth_max + 1) * sizeof(*l->path);
}

uint32_t token_limit_cost(struct token_limit *l, pos_id p)
{
    uint64_t work = 0;

    return completion_cost(l->completions, p, &work);
}

int token_limit_tokens(struct token_limit *l, pos_id p, int32_t *ids, int cap)
{
    return completion_tokens(l->completions, p, ids, cap);
}

/* ---- stored costs */

static struct worst_cost *worst_of(struct token_limit *l, uint64_t key)
{
    uint64_t generation = l->a->ops->generation(l->a);

    if (l->generation != generation) {
        l->generation = generation;
        memset(l->worst, 0, sizeof(l->worst));
    }
    return &l->worst[hash_mix(key) % WORST_SLOTS];
}

static bool all_fit(struct token_limit *l, pos_id p, uint32_t room)
{
    uint64_t key = l->a->ops->key(l->a, p);
    const struct worst_cost *known = worst_of(l, key);

    return key && known->key == key && known->cost < room;
}

static void store_worst(struct token_limit *l)
{
    uint64_t key = l->a->ops->key(l->a, l->start);

    if (key)
        *worst_of(l, key) = (struct worst_cost){ key, l->most };
}

/* ---- tokens */

static bool in_mask(const struct token_limit *l, int32_t id)
{
    return token_set_has(l->bits, id);
}

static void remove_token(struct token_limit *l, int32_t id)
{
    l->bits[(uint32_t)id >> 5] &= ~((uint32_t)1 << (id & 31));
    l->has_removed = true;
}

/* Cost of the position after a token. */
static uint32_t cost_after(struct token_limit *l, pos_id p, uint64_t *work)
{
    uint32_t cost = completion_cost(l->completions, p, work);

    l->most = MAX(l->most, cost);
    return cost;
}

/* Tokens ids[from..to) of the trie lead to the position. */
static void check_range(struct token_limit *l, uint32_t from, uint32_t to, pos_id p, uint64_t *work)
{
    bool is_known = false;
    uint32_t cost = 0;

    for (uint32_t k = from; k < to; k++) {
        int32_t id = l->trie->ids[k];
        if (!in_mask(l, id))
            continue;
        if (!is_known)
            cost = cost_after(l, p, work);
        is_known = true;
        if (cost >= l->room)
            remove_token(l, id);
    }
}

static void check_control_tokens(struct token_limit *l, uint64_t *work)
{
    const struct acceptor_ops *ops = l->a->ops;
    const struct token_source *src = &l->tables->source;
    uint32_t mark = ops->mark(l->a);

    for (int32_t id = 0; ops->step_token && id < l->tables->n_tokens; id++) {
        if (!in_mask(l, id) || src->bytes(src->ctx, id).n || src->is_end(src->ctx, id))
            continue;
        if (cost_after(l, ops->step_token(l->a, l->start, id), work) >= l->room)
            remove_token(l, id);
        ops->release(l->a, mark);
    }
}

/* ---- the walk */

static void walk(struct token_limit *l, uint64_t limit, uint64_t *work)
{
    const struct acceptor_ops *ops = l->a->ops;
    const struct trie_node *nodes = l->trie->nodes;
    uint32_t top = UINT32_MAX;

    while (l->at < l->trie->n_nodes && *work < limit) {
        const struct trie_node *k = &nodes[l->at];
        uint32_t depth = trie_depth(k), skip_to = l->at + trie_size(k);
        const struct step *before = &l->path[depth - 1];
        ++*work;
        if (top >= depth)
            ops->release(l->a, before->mark);
        pos_id p = ops->step(l->a, before->p, trie_byte(k));
        top = depth;
        if (!p.i) {
            l->at = skip_to;
            continue;
        }
        check_range(l, trie_first(k), trie_first(k + 1), p, work);
        l->path[depth] = (struct step){ p, ops->mark(l->a) };
        l->at++;
    }
}

void token_limit_drop(struct token_limit *l)
{
    if (l->is_running)
        l->a->ops->release(l->a, l->first_mark);
    l->is_running = false;
}

static void put_mask(struct token_limit *l, const struct token_mask *m)
{
    memset(l->bits, m->form == MASK_FORM_ALL ? 0xff : 0, l->n_words * sizeof(*l->bits));
    if (m->form == MASK_FORM_BITS)
        memcpy(l->bits, m->bits, l->n_words * sizeof(*l->bits));
    for (int i = 0; m->form == MASK_FORM_IDS && i < m->n_ids; i++)
        token_set_add(l->bits, m->ids[i]);
}

void token_limit_begin(struct token_limit *l, pos_id p, const struct token_mask *m, uint32_t room)
{
    uint64_t work = 0;

    token_limit_drop(l);
    l->mask = *m;
    l->start = p;
    l->room = room;
    l->most = 0;
    l->has_removed = false;
    if (all_fit(l, p, room))
        return;
    l->is_running = true;
    l->first_mark = l->a->ops->mark(l->a);
    put_mask(l, m);
    check_control_tokens(l, &work);
    l->trie = &l->tables->trie;
    l->at = 0;
    l->path[0] = (struct step){ p, l->a->ops->mark(l->a) };
}

/* The mask in its smallest form. */
static struct token_mask make_mask(const struct token_limit *l)
{
    int n = 0, n_max = l->tables->n_tokens / IDS_SHARE;

    for (size_t w = 0; w < l->n_words && n <= n_max; w++)
        for (uint32_t word = l->bits[w]; word && n <= n_max; word &= word - 1)
            l->ids[n++] = (int32_t)(w * 32) + __builtin_ctz(word);
    if (n <= n_max)
        return (struct token_mask){ .form = MASK_FORM_IDS, .ids = l->ids, .n_ids = n };
    return (struct token_mask){ .form = MASK_FORM_BITS, .bits = l->bits };
}

enum mask_progress token_limit_run(
    struct token_limit *l, uint64_t steps, struct token_mask *out, struct err *e)
{
    uint64_t work = 0;

    if (l->is_running)
        walk(l, MAX(steps, 1u), &work);
    if (l->is_running && l->at == l->trie->n_nodes) {
        token_limit_drop(l);
        store_worst(l);
        if (l->has_removed)
            l->mask = make_mask(l);
    }
    if (l->a->ops->check(l->a, e)) {
        token_limit_drop(l);
        return MASK_ERROR;
    }
    *out = l->mask;
    return l->is_running ? MASK_MORE : MASK_DONE;
}
