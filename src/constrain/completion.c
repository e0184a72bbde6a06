#include "constrain/completion.h"

#include "base/hash.h"
#include "base/mem.h"

enum { COSTS = 4096, ELEMENTS_MAX = 1 << 16 };

struct known_cost {
    uint64_t key; /* 0: unused */
    uint32_t cost;
};

struct completions {
    const struct vocab_tables *tables;
    struct acceptor *a;
    uint32_t tokens_max;
    uint64_t generation; /* of `costs` */
    struct known_cost costs[COSTS];
    size_t cap;
    int32_t *elements; /* [cap] of one completion */
    char *text;        /* [cap] its bytes between control tokens */
};

int completions_new(struct completions **out, const struct vocab_tables *t, struct acceptor *a,
    uint32_t tokens_max, struct err *e)
{
    struct completions *c = try_calloc(1, sizeof(*c));
    size_t longest = MAX(t->trie.depth_max, 1u);

    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for the state of a constraint");
    c->tables = t;
    c->a = a;
    c->tokens_max = tokens_max;
    c->cap = MIN(tokens_max, ELEMENTS_MAX / longest) * longest + 1;
    c->elements = try_malloc(c->cap * sizeof(*c->elements));
    c->text = try_malloc(c->cap);
    if (!c->elements || !c->text) {
        completions_free(c);
        return err_set(e, ERR_MEMORY, "no memory for the state of a constraint");
    }
    *out = c;
    return 0;
}

void completions_free(struct completions *c)
{
    if (!c)
        return;
    mem_free(c->elements);
    mem_free(c->text);
    mem_free(c);
}

size_t completions_bytes(const struct completions *c)
{
    return sizeof(*c) + c->cap * (sizeof(*c->elements) + 1);
}

/* ---- elements */

/* No byte and no control token may follow. */
static bool is_complete(struct acceptor *a, pos_id p)
{
    int32_t id;

    if (a->ops->tokens && a->ops->tokens(a, p, &id, 1))
        return false;
    struct byte_set next = a->ops->next_bytes(a, p);
    return byte_set_is_empty(&next);
}

static pos_id step_element(struct acceptor *a, pos_id p, int32_t element)
{
    return element < COMPLETION_TOKEN ? a->ops->step(a, p, (uint8_t)element)
                                      : a->ops->step_token(a, p, element - COMPLETION_TOKEN);
}

/* The elements of the completion. Returns their number; SIZE_MAX: none was found. */
static size_t read_elements(struct completions *c, pos_id p, bool *needs_end)
{
    struct acceptor *a = c->a;
    uint32_t mark = a->ops->mark(a);
    int32_t element = COMPLETION_NONE;
    size_t n = 0;

    while (n < c->cap && p.i) {
        element = a->ops->completion(a, p);
        if (element < 0)
            break;
        c->elements[n++] = element;
        p = step_element(a, p, element);
    }
    *needs_end = element == COMPLETION_END && !is_complete(a, p);
    a->ops->release(a, mark);
    return element == COMPLETION_END ? n : SIZE_MAX;
}

/* ---- tokens */

struct token_list {
    int32_t *ids; /* NULL: they are only counted */
    uint32_t cap, n;
};

static void put_token(struct token_list *l, int32_t id)
{
    if (l->n < l->cap && l->ids)
        l->ids[l->n] = id;
    l->n++;
}

/* Divides the bytes that begin at element `at`, up to a control token. Returns their number; 0: the
 * vocabulary has no tokens for the text. */
static size_t divide_text(struct completions *c, size_t at, size_t n_elements, struct token_list *l)
{
    size_t n = 0, length;

    for (; at + n < n_elements && c->elements[at + n] < COMPLETION_TOKEN; n++)
        c->text[n] = (char)c->elements[at + n];
    for (struct str rest = { c->text, n }; rest.n; rest = str_skip(rest, length)) {
        int32_t id = token_trie_longest(&c->tables->trie, rest, &length);
        if (id == TOKEN_NONE)
            return 0;
        put_token(l, id);
    }
    return n;
}

static bool divide(struct completions *c, size_t n_elements, struct token_list *l)
{
    for (size_t at = 0, n = 1; at < n_elements; at += n) {
        n = 1;
        if (c->elements[at] >= COMPLETION_TOKEN)
            put_token(l, c->elements[at] - COMPLETION_TOKEN);
        else
            n = divide_text(c, at, n_elements, l);
        if (!n)
            return false;
    }
    return true;
}

static uint32_t compute_cost(struct completions *c, pos_id p, uint64_t *work)
{
    bool needs_end;
    size_t n = read_elements(c, p, &needs_end);
    struct token_list l = { .n = needs_end };

    *work += n == SIZE_MAX ? c->cap : n + 1;
    if (n == SIZE_MAX || !divide(c, n, &l) || l.n > c->tokens_max)
        return COMPLETION_COST_NONE;
    return l.n;
}

uint32_t completion_cost(struct completions *c, pos_id p, uint64_t *work)
{
    const struct acceptor_ops *ops = c->a->ops;
    uint64_t key = p.i ? ops->key(c->a, p) : 0;
    struct known_cost *known = &c->costs[hash_mix(key) % COSTS];

    if (!p.i)
        return COMPLETION_COST_NONE;
    if (c->generation != ops->generation(c->a)) {
        c->generation = ops->generation(c->a);
        memset(c->costs, 0, sizeof(c->costs));
    }
    if (key && known->key == key)
        return known->cost;
    uint64_t generation = c->generation;
    uint32_t cost = compute_cost(c, p, work);
    if (key && generation == ops->generation(c->a))
        *known = (struct known_cost){ key, cost };
    return cost;
}

int completion_tokens(struct completions *c, pos_id p, int32_t *ids, int cap)
{
    bool needs_end;
    size_t n = read_elements(c, p, &needs_end);
    struct token_list l = { .ids = ids, .cap = (uint32_t)cap };

    if (n == SIZE_MAX || !divide(c, n, &l))
        return 0;
    return (int)MIN(l.n, l.cap);
}
