#include "constrain/vocab/vocab_tables.h"

#include "base/mem.h"

#include <stdatomic.h>

static _Atomic uint64_t last_id;

static int no_memory(struct err *e)
{
    return err_set(e, ERR_MEMORY, "no memory for the tables of the vocabulary");
}

/* The tokens of a class. */
static void select_class(const struct token_classes *c, enum token_class class, uint32_t *set)
{
    memset(set, 0, c->n_words * sizeof(*set));
    token_classes_add(c, class, TOKEN_CLASS_CHARS_MAX, set);
}

static int list_ends(struct vocab_tables *t, const struct token_source *src)
{
    for (int32_t id = 0; id < src->n_tokens; id++)
        t->n_ends += src->is_end(src->ctx, id);
    t->ends = try_malloc(MAX(t->n_ends, 1u) * sizeof(*t->ends));
    if (!t->ends)
        return -1;
    t->n_ends = 0;
    for (int32_t id = 0; id < src->n_tokens; id++)
        if (src->is_end(src->ctx, id))
            t->ends[t->n_ends++] = id;
    return 0;
}

static int fill_tables(
    struct vocab_tables *t, const struct token_source *src, uint32_t *set, struct err *e)
{
    if (token_classes_init(&t->classes, src, e) || list_ends(t, src))
        return -1;
    select_class(&t->classes, CLASS_DIGITS, set);
    if (token_trie_mark(&t->trie, MARK_DIGITS, set))
        return -1;
    select_class(&t->classes, CLASS_BLANKS, set);
    if (token_trie_mark(&t->trie, MARK_BLANKS, set))
        return -1;
    select_class(&t->classes, CLASS_STRING, set);
    for (size_t w = 0; w < t->classes.n_words; w++)
        set[w] = ~set[w];
    return token_trie_init(&t->irregular, src, set, e) ||
                   producible_init(&t->producible, src, &t->trie, e)
               ? -1
               : 0;
}

int vocab_tables_new(struct vocab_tables **out, const struct token_source *src, struct err *e)
{
    struct vocab_tables *t = try_calloc(1, sizeof(*t));

    if (!t)
        return no_memory(e);
    t->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
    t->source = *src;
    t->n_tokens = src->n_tokens;
    if (token_trie_init(&t->trie, src, NULL, e)) { /* checks the number of tokens */
        vocab_tables_free(t);
        return -1;
    }
    uint32_t *set = try_malloc(token_set_words(src->n_tokens) * sizeof(*set));
    if (!set || fill_tables(t, src, set, e)) {
        mem_free(set);
        vocab_tables_free(t);
        return no_memory(e); /* the bounds hold, since those of `trie` do */
    }
    mem_free(set);
    *out = t;
    return 0;
}

void vocab_tables_free(struct vocab_tables *t)
{
    if (!t)
        return;
    token_trie_clear(&t->trie);
    token_trie_clear(&t->irregular);
    token_classes_clear(&t->classes);
    producible_clear(&t->producible);
    mem_free(t->ends);
    mem_free(t);
}

size_t vocab_tables_bytes(const struct vocab_tables *t)
{
    return sizeof(*t) + token_trie_bytes(&t->trie) + token_trie_bytes(&t->irregular) +
           token_trie_bytes(&t->producible.units) + token_classes_bytes(&t->classes) +
           t->n_ends * sizeof(*t->ends);
}
