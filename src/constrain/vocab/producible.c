#include "constrain/vocab/producible.h"

#include "base/mem.h"
#include "constrain/regular/live.h"

#include <stdio.h>

static bool has_tokens(const struct token_trie *t, uint32_t node)
{
    return trie_first(&t->nodes[node]) < trie_first(&t->nodes[node + 1]);
}

static bool has_all_bytes(const struct byte_set *s)
{
    return (s->w[0] & s->w[1] & s->w[2] & s->w[3]) == UINT64_MAX;
}

/* ---- units */

static bool has_only_bytes(struct str s, const struct byte_set *set)
{
    for (size_t k = 0; k < s.n; k++)
        if (!byte_set_has(set, (uint8_t)s.p[k]))
            return false;
    return true;
}

/* Steps along the trie in one vocabulary. The tokens after that count as units, which is correct,
 * too. */
enum { SEQUENCE_STEPS_MAX = 1 << 26 };

/* True if the token is a sequence of shorter tokens. */
static bool is_sequence(const struct token_trie *t, struct str s, uint64_t *n_steps)
{
    bool is_reached[TOKEN_TRIE_DEPTH_MAX + 1] = { true };

    for (size_t from = 0; from < s.n && *n_steps < SEQUENCE_STEPS_MAX; from++) {
        uint32_t node = TRIE_ROOT;
        for (size_t to = from; is_reached[from] && to < s.n; to++) {
            ++*n_steps;
            node = token_trie_child(t, node, (uint8_t)s.p[to]);
            if (node == TRIE_NONE)
                break;
            is_reached[to + 1] |= has_tokens(t, node) && (from > 0 || to + 1 < s.n);
        }
    }
    return is_reached[s.n];
}

static void select_units(const struct producible *p, const struct token_source *src,
    const struct token_trie *all, uint32_t *set)
{
    uint64_t n_steps = 0;

    for (int32_t id = 0; id < src->n_tokens; id++) {
        struct str s = src->bytes(src->ctx, id);
        if (s.n && s.n <= TOKEN_TRIE_DEPTH_MAX && !has_only_bytes(s, &p->single) &&
            !is_sequence(all, s, &n_steps))
            token_set_add(set, id);
    }
}

int producible_init(struct producible *p, const struct token_source *src,
    const struct token_trie *all, struct err *e)
{
    uint32_t *set = try_calloc(token_set_words(src->n_tokens), sizeof(*set));

    *p = (struct producible){ 0 };
    if (!set)
        return err_set(e, ERR_MEMORY, "no memory for the tables of the vocabulary");
    for (uint32_t i = 0; i < all->n_nodes; i++) {
        byte_set_add(&p->any, trie_byte(&all->nodes[i]));
        if (trie_depth(&all->nodes[i]) == 1 && has_tokens(all, i))
            byte_set_add(&p->single, trie_byte(&all->nodes[i]));
    }
    select_units(p, src, all, set);
    int rc = token_trie_init(&p->units, src, set, e);
    mem_free(set);
    return rc;
}

void producible_clear(struct producible *p)
{
    token_trie_clear(&p->units);
    *p = (struct producible){ 0 };
}

/* ---- languages */

static expr_id all_texts_of(struct exprs *x, const struct byte_set *bytes)
{
    return expr_repeat(x, expr_bytes(x, bytes), 0, REPEAT_INF);
}

/* The union of the tokens of nodes[from..to), which have one parent. `below[i]` is the language of
 * the texts that begin with node i. */
static expr_id union_of_siblings(
    struct exprs *x, const struct token_trie *t, const expr_id *below, uint32_t from, uint32_t to)
{
    expr_id members[256];
    size_t n = 0;

    for (uint32_t i = from; i < to; i += trie_size(&t->nodes[i]))
        members[n++] = below[i];
    return expr_or_all(x, members, n);
}

/* One unit, as a tree of unions: a union of all would exceed OR_MEMBERS_MAX. */
static expr_id one_unit(struct exprs *x, const struct token_trie *t, struct err *e)
{
    expr_id *below = try_malloc(MAX(t->n_nodes, 1u) * sizeof(*below));

    if (!below) {
        err_set(e, ERR_MEMORY, "no memory for the bytes of the vocabulary");
        return EXPR_NONE;
    }
    for (uint32_t i = t->n_nodes; i-- > 0;) {
        const struct trie_node *k = &t->nodes[i];
        expr_id rest = union_of_siblings(x, t, below, i + 1, i + trie_size(k));
        if (has_tokens(t, i))
            rest = expr_or(x, EXPR_EPS, rest);
        below[i] = expr_cat(x, expr_range(x, trie_byte(k), trie_byte(k)), rest);
    }
    expr_id all = union_of_siblings(x, t, below, 0, t->n_nodes);
    mem_free(below);
    return all;
}

static bool is_live_within(struct exprs *x, expr_id root, const struct byte_set *bytes)
{
    return expr_is_live(x, expr_and(x, root, all_texts_of(x, bytes)));
}

/* The smallest byte b for which no text consists of `present` and bytes above b; -1 if texts of
 * `present` exist. */
static int needed_byte(struct exprs *x, expr_id root, const struct byte_set *present)
{
    int low = 0, high = 256; /* texts exist without the missing bytes below `low` */

    if (is_live_within(x, root, present))
        return -1;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        struct byte_set rest = *present;
        byte_set_add_range(&rest, (unsigned)middle, 255);
        if (is_live_within(x, root, &rest))
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int refuse(const struct producible *p, struct exprs *x, expr_id root, struct err *e)
{
    int byte = needed_byte(x, root, &p->any);

    if (byte < 0)
        byte = needed_byte(x, root, &p->single);
    if (exprs_check(x, e))
        return -1;
    CHECK(byte >= 0); /* texts of single bytes can be produced */
    char shown[16] = "";
    if (byte > ' ' && byte < 0x7F)
        snprintf(shown, sizeof(shown), " (%c)", byte);
    return err_set(e, ERR_INVALID,
        "the constraint requires byte 0x%02X%s, for which the vocabulary has no token", byte,
        shown);
}

int producible_restrict(
    const struct producible *p, struct exprs *x, expr_id root, expr_id *out, struct err *e)
{
    *out = root;
    if (has_all_bytes(&p->single))
        return 0;
    struct err memory = { 0 };
    expr_id unit = expr_or(x, expr_bytes(x, &p->single), one_unit(x, &p->units, &memory));
    if (memory.code != ERR_NONE) {
        *e = memory;
        return -1;
    }
    *out = expr_and(x, root, expr_repeat(x, unit, 0, REPEAT_INF));
    bool is_live = expr_is_live(x, *out), was_live = is_live || expr_is_live(x, root);
    if (exprs_check(x, e))
        return -1;
    return is_live || !was_live ? 0 : refuse(p, x, root, e);
}
