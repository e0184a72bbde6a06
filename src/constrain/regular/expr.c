#include "constrain/regular/expr_in.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

/* ---- memory and limits */

void expr_fail(struct exprs *x, enum fail_cause why)
{
    if (x->fail == FAIL_NONE)
        x->fail = why;
}

bool expr_work(struct exprs *x, uint64_t n)
{
    x->work += n;
    if (x->work > x->limits.work_max)
        expr_fail(x, FAIL_WORK);
    return x->fail == FAIL_NONE;
}

/* Makes room for `need` elements of `size` bytes in *p. */
static bool grow(struct exprs *x, void **p, uint32_t *cap, size_t need, size_t size)
{
    size_t n = MAX(*cap, (uint32_t)16);

    if (need <= *cap)
        return true;
    while (n < need)
        n *= 2;
    if (x->is_fixed || n > UINT32_MAX / 2 ||
        x->bytes - *cap * size + n * size > x->limits.bytes_max) {
        expr_fail(x, FAIL_MEMORY);
        return false;
    }
    void *bigger = try_realloc(*p, n * size);
    if (!bigger) {
        expr_fail(x, FAIL_MEMORY);
        return false;
    }
    x->bytes += (n - *cap) * size;
    *p = bigger;
    *cap = (uint32_t)n;
    return true;
}

#define GROW(x, array, need)                                                                       \
    grow(x, (void **)&(x)->array, &(x)->cap_##array, need, sizeof(*(x)->array))

bool expr_push(struct exprs *x, uint32_t v)
{
    if (!GROW(x, stack, (size_t)x->n_stack + 1))
        return false;
    x->stack[x->n_stack++] = v;
    return true;
}

bool expr_visit(struct exprs *x, expr_id a)
{
    if (exprs_failed(x) || !GROW(x, visited, (size_t)x->n_visited + 1))
        return false;
    x->visited[x->n_visited++] = a.i;
    x->nodes[a.i].flags |= F_VISITED;
    return true;
}

static void add_constants(struct exprs *x)
{
    x->nodes[0] = (struct node){ .kind = K_NONE, .flags = F_DEAD | F_CODE, .min_len = MIN_LEN_INF };
    x->nodes[1] = (struct node){ .kind = K_EPS, .flags = F_ACCEPTS | F_LIVE | 7 * F_TEXT };
    x->nodes[2] = (struct node){ .kind = K_ALL, .flags = F_ACCEPTS | F_LIVE };
    x->n_nodes = 3;
}

struct exprs *exprs_new(struct expr_limits limits)
{
    struct exprs *x = try_calloc(1, sizeof(*x));

    if (!x)
        return NULL;
    x->limits = limits;
    x->seed = rng_entropy();
    x->n_slots = 64;
    x->slots = try_calloc(x->n_slots, sizeof(*x->slots));
    x->cache = try_calloc(DERIVATIVE_CACHE, sizeof(*x->cache));
    x->bytes = sizeof(*x) + x->n_slots * sizeof(*x->slots) + DERIVATIVE_CACHE * sizeof(*x->cache);
    if (!x->slots || !x->cache || !GROW(x, nodes, 3)) {
        exprs_free(x);
        return NULL;
    }
    add_constants(x);
    return x;
}

/* ---- fixed pools */

enum {
    FIXED_NODE = sizeof(struct node) + 10 * sizeof(uint32_t) + 4, /* bytes per node, with 4 args */
    FIXED_STACK_MIN = 1024,
    FIXED_SETS_MIN = 64
};

static bool reserve(struct exprs *x, void **p, uint32_t *cap, size_t n, size_t size)
{
    *p = try_malloc(n * size);
    *cap = (uint32_t)n;
    x->bytes += n * size;
    return *p != NULL;
}

#define RESERVE(x, array, n)                                                                       \
    reserve(x, (void **)&(x)->array, &(x)->cap_##array, n, sizeof(*(x)->array))

struct exprs *exprs_new_fixed(struct expr_limits limits, const struct exprs *from)
{
    size_t other = sizeof(struct exprs) + FIXED_STACK_MIN * sizeof(uint32_t) +
                   FIXED_SETS_MIN * sizeof(struct byte_set) +
                   from->n_numbers * sizeof(*from->numbers);
    size_t args = from->n_args / from->n_nodes; /* long lists of members */
    size_t n = limits.bytes_max > other ? limits.bytes_max - other : 0;
    struct exprs *x = try_calloc(1, sizeof(*x));
    uint32_t cap_map, cap_slots;

    if (!x)
        return NULL;
    n = MIN(n / (FIXED_NODE + args * sizeof(uint32_t)), (size_t)UINT32_MAX / 64);
    x->limits = limits;
    x->seed = rng_entropy();
    x->is_fixed = true;
    x->slots_max = 64;
    while (x->slots_max / 4 * 3 < n)
        x->slots_max *= 2;
    if (n < 16 || !RESERVE(x, nodes, n) || !RESERVE(x, args, n * (4 + args)) ||
        !RESERVE(x, stack, n + FIXED_STACK_MIN) || !RESERVE(x, visited, n) ||
        !RESERVE(x, sets, n / 16 + FIXED_SETS_MIN) ||
        !RESERVE(x, numbers, MAX(from->n_numbers, 1u)) ||
        !reserve(x, (void **)&x->map, &cap_map, n, sizeof(*x->map)) ||
        !reserve(x, (void **)&x->slots, &cap_slots, x->slots_max, sizeof(*x->slots))) {
        exprs_free(x);
        return NULL;
    }
    exprs_clear(x);
    return x;
}

void exprs_clear(struct exprs *x)
{
    CHECK(x->is_fixed);
    x->fail = FAIL_NONE;
    x->n_args = x->n_sets = x->n_stack = x->n_visited = x->n_numbers = 0;
    x->n_slots = 64;
    memset(x->slots, 0, x->n_slots * sizeof(*x->slots));
    memset(x->any_star, 0, sizeof(x->any_star));
    memset(x->classes, 0, sizeof(x->classes));
    add_constants(x);
}

int exprs_add_cache(struct exprs *x)
{
    x->cache = try_calloc(DERIVATIVE_CACHE, sizeof(*x->cache));
    return x->cache ? 0 : -1;
}

void exprs_move_cache(struct exprs *to, struct exprs *from)
{
    to->cache = from->cache;
    from->cache = NULL;
    memset(to->cache, 0, DERIVATIVE_CACHE * sizeof(*to->cache));
}

static void drop_array(struct exprs *x, void *p, size_t bytes)
{
    mem_free(p);
    x->bytes -= bytes;
}

void exprs_seal(struct exprs *x)
{
    CHECK(!x->is_fixed);
    drop_array(x, x->slots, x->n_slots * sizeof(*x->slots));
    drop_array(x, x->stack, x->cap_stack * sizeof(*x->stack));
    drop_array(x, x->visited, x->cap_visited * sizeof(*x->visited));
    drop_array(x, x->cache, DERIVATIVE_CACHE * sizeof(*x->cache));
    x->slots = x->stack = x->visited = NULL;
    x->cache = NULL;
    x->n_slots = x->cap_stack = x->cap_visited = 0;
}

void exprs_free(struct exprs *x)
{
    if (!x)
        return;
    mem_free(x->map);
    mem_free(x->nodes);
    mem_free(x->args);
    mem_free(x->sets);
    mem_free(x->slots);
    mem_free(x->stack);
    mem_free(x->visited);
    mem_free(x->numbers);
    mem_free(x->cache);
    mem_free(x);
}

bool exprs_failed(const struct exprs *x)
{
    return x->fail != FAIL_NONE;
}

bool exprs_is_full(const struct exprs *x)
{
    return x->fail == FAIL_MEMORY;
}

int exprs_check(const struct exprs *x, struct err *e)
{
    switch (x->fail) {
    case FAIL_NONE:
        return 0;
    case FAIL_MEMORY:
        return err_set(
            e, ERR_TOO_LARGE, "the expressions need more than %zu bytes", x->limits.bytes_max);
    case FAIL_WORK:
        return err_set(e, ERR_TOO_LARGE, "the language needs more than %llu steps of work",
            (unsigned long long)x->limits.work_max);
    case FAIL_DEPTH:
        return err_set(
            e, ERR_TOO_LARGE, "expressions are nested more than %d deep", EXPR_DEPTH_MAX);
    case FAIL_MEMBERS:
        return err_set(
            e, ERR_TOO_LARGE, "more than %d alternatives at one position", OR_MEMBERS_MAX);
    case FAIL_SEARCH:
        return err_set(e, ERR_TOO_LARGE, "the search for a completion of the text is too long");
    }
    return err_set(e, ERR_INTERNAL, "unexpected cause %d", (int)x->fail);
}

/* Bytes that are in use; the rest of a fixed pool has never been written. */
size_t exprs_bytes(const struct exprs *x)
{
    if (!x->is_fixed)
        return x->bytes;
    return sizeof(*x) + x->n_nodes * (sizeof(*x->nodes) + sizeof(*x->map)) +
           x->n_args * sizeof(*x->args) + x->n_sets * sizeof(*x->sets) +
           x->n_numbers * sizeof(*x->numbers) + x->n_slots * sizeof(*x->slots) +
           (x->cache ? DERIVATIVE_CACHE * sizeof(*x->cache) : 0);
}

size_t exprs_count(const struct exprs *x)
{
    return x->n_nodes;
}

uint64_t exprs_work(const struct exprs *x)
{
    return x->work;
}

void exprs_restart_work(struct exprs *x, uint64_t work_max)
{
    x->work = 0;
    x->limits.work_max = work_max;
}

bool expr_is_pure(const struct exprs *x, expr_id a)
{
    return !(node_of(x, a)->flags & F_IMPURE);
}

/* ---- properties of a node, from those of its children */

static uint32_t len_add(uint32_t a, uint32_t b)
{
    uint64_t sum = (uint64_t)a + b;

    return a == MIN_LEN_INF || b == MIN_LEN_INF ? MIN_LEN_INF : (uint32_t)MIN(sum, MIN_LEN_INF - 1);
}

static uint32_t len_times(uint32_t a, uint32_t n)
{
    uint64_t product = (uint64_t)a * n;

    return !n ? 0 : a == MIN_LEN_INF ? MIN_LEN_INF : (uint32_t)MIN(product, MIN_LEN_INF - 1);
}

static void describe_bytes(const struct exprs *x, struct node *d, const uint32_t *args)
{
    const struct byte_set *s = &x->sets[args[0]];
    /* JSON strings: ASCII from blank to tilde and DEL, without `"` and `\` */
    bool is_ascii = !s->w[2] && !s->w[3];
    bool is_json = is_ascii && !(s->w[0] & 0x4ffffffffu) && !(s->w[1] & (uint64_t)1 << 28);

    d->min_len = 1;
    d->flags = F_LIVE | F_CODE | (is_ascii ? F_TEXT << TEXT_UTF8 : 0);
    if (is_json)
        d->flags |= F_TEXT << TEXT_JSON | F_TEXT << TEXT_JSON_U_ESCAPE;
}

static void describe_members(const struct exprs *x, struct node *d, const uint32_t *args)
{
    bool is_or = d->kind == K_OR;
    unsigned any = 0, all = UINT16_MAX;

    d->min_len = is_or ? MIN_LEN_INF : 0;
    for (uint32_t k = 0; k < d->n; k++) {
        const struct node *c = &x->nodes[args[k]];
        any |= c->flags;
        all &= c->flags;
        d->min_len = is_or ? MIN(d->min_len, c->min_len) : MAX(d->min_len, c->min_len);
        d->depth = MAX(d->depth, c->depth + 1);
    }
    unsigned texts = 7 * F_TEXT & (is_or ? all : any);
    unsigned accepts = F_ACCEPTS & (is_or ? any : all);
    d->flags = (uint16_t)(texts | accepts | (any & F_IMPURE));
    if (is_or)
        d->flags |= any & F_LIVE;
    else if (any & F_DEAD)
        d->flags |= F_DEAD;
}

static void describe_repeat(const struct exprs *x, struct node *d, const uint32_t *args)
{
    const struct node *c = &x->nodes[args[0]];

    d->n_fixed = 2;
    d->depth = c->depth + 1;
    d->min_len = len_times(c->min_len, args[1]);
    d->flags = c->flags & (F_IMPURE | F_ACCEPTS | 7 * F_TEXT | F_LIVE);
    if (!args[1])
        d->flags |= F_ACCEPTS | F_LIVE;
}

static void describe_cat(const struct exprs *x, struct node *d, const uint32_t *args)
{
    const struct node *a = &x->nodes[args[0]], *b = &x->nodes[args[1]];
    unsigned both = a->flags & b->flags;

    /* Long concatenations are nested to the right, and are processed by loops. */
    d->depth = MAX(a->depth + 1, b->depth);
    d->min_len = len_add(a->min_len, b->min_len);
    d->flags = (uint16_t)((both & (F_ACCEPTS | F_LIVE | 7 * F_TEXT)) |
                          ((a->flags | b->flags) & (F_IMPURE | F_DEAD)));
}

static void describe(const struct exprs *x, struct node *d, const uint32_t *args)
{
    const struct node *c = d->n && d->kind >= K_CAT ? &x->nodes[args[0]] : NULL;

    switch ((enum expr_kind)d->kind) {
    case K_BYTES:
        d->n_fixed = 1;
        describe_bytes(x, d, args);
        break;
    case K_CAT:
        describe_cat(x, d, args);
        break;
    case K_OR:
    case K_AND:
        describe_members(x, d, args);
        break;
    case K_NOT:
        d->depth = c->depth + 1;
        d->flags = (uint16_t)((c->flags & F_IMPURE) | (~c->flags & F_ACCEPTS));
        d->min_len = !(d->flags & F_ACCEPTS) && !(d->flags & F_IMPURE);
        break;
    case K_REPEAT:
        describe_repeat(x, d, args);
        break;
    case K_LOOK:
        d->depth = c->depth + 1;
        d->flags = (uint16_t)((c->flags & (F_IMPURE | F_ACCEPTS)) | F_HAS_LOOK | 7 * F_TEXT);
        break;
    case K_CARET:
        d->n_fixed = 1;
        d->flags = F_HAS_CARET | 7 * F_TEXT;
        break;
    case K_BOUNDARY:
        d->n_fixed = 1;
        d->flags = F_HAS_BOUND | F_HAS_LOOK | 7 * F_TEXT;
        break;
    case K_SCOPE:
        d->n_fixed = 1;
        d->depth = c->depth + 1;
        d->min_len = c->min_len;
        /* A live expression contains a word with every rest. expr_scope adds F_ACCEPTS. */
        d->flags = c->flags & (F_LIVE | 7 * F_TEXT);
        break;
    case K_NUMBER:
        d->n_fixed = (uint8_t)d->n;
        d->flags = number_accepts(&x->numbers[args[0]], (const void *)&args[1]) ? F_ACCEPTS : 0;
        d->flags |= F_LIVE; /* a dead state is EXPR_NONE */
        d->min_len = !(d->flags & F_ACCEPTS);
        break;
    case K_NONE:
    case K_EPS:
    case K_ALL:
        break;
    }
    if (d->flags & F_ACCEPTS && !(d->flags & F_IMPURE))
        d->flags |= F_LIVE;
}

/* ---- interning */

static uint64_t hash_node(const struct exprs *x, unsigned kind, const uint32_t *args, uint32_t n)
{
    return hash_bytes(x->seed + kind, args, n * sizeof(*args));
}

static bool is_node(
    const struct exprs *x, uint32_t id, unsigned kind, const uint32_t *args, uint32_t n)
{
    const struct node *d = &x->nodes[id];

    return d->kind == kind && d->n == n &&
           (!n || !memcmp(&x->args[d->first], args, n * sizeof(*args)));
}

static void fill_slots(struct exprs *x)
{
    memset(x->slots, 0, x->n_slots * sizeof(*x->slots));
    for (uint32_t id = 3; id < x->n_nodes; id++) {
        const struct node *d = &x->nodes[id];
        uint32_t at = (uint32_t)hash_node(x, d->kind, &x->args[d->first], d->n) & (x->n_slots - 1);
        while (x->slots[at])
            at = (at + 1) & (x->n_slots - 1);
        x->slots[at] = id;
    }
}

/* Doubles the table. A fixed pool has at most 3/4 of slots_max expressions. */
static bool grow_slots(struct exprs *x)
{
    size_t more = x->n_slots * sizeof(*x->slots);

    if (x->is_fixed && x->n_slots == x->slots_max)
        return true;
    if (!x->is_fixed) {
        uint32_t *slots = x->bytes + more > x->limits.bytes_max
                              ? NULL
                              : try_malloc(2 * x->n_slots * sizeof(*slots));
        if (!slots) {
            expr_fail(x, FAIL_MEMORY);
            return false;
        }
        mem_free(x->slots);
        x->slots = slots;
        x->bytes += more;
    }
    x->n_slots *= 2;
    fill_slots(x);
    return true;
}

/* `args` must not point into x->args. */
expr_id expr_intern(struct exprs *x, enum expr_kind kind, const uint32_t *args, uint32_t n)
{
    if (!expr_work(x, 1) || ((x->n_nodes + 1) * 2 > x->n_slots && !grow_slots(x)))
        return EXPR_NONE;
    uint32_t at = (uint32_t)hash_node(x, kind, args, n) & (x->n_slots - 1);
    for (; x->slots[at]; at = (at + 1) & (x->n_slots - 1))
        if (is_node(x, x->slots[at], kind, args, n))
            return (expr_id){ x->slots[at] };
    if (!GROW(x, nodes, (size_t)x->n_nodes + 1) || !GROW(x, args, (size_t)x->n_args + n))
        return EXPR_NONE;
    struct node d = { .kind = (uint8_t)kind, .first = x->n_args, .n = n };
    describe(x, &d, args);
    if (d.depth > EXPR_DEPTH_MAX) {
        expr_fail(x, FAIL_DEPTH);
        return EXPR_NONE;
    }
    if (n)
        memcpy(x->args + x->n_args, args, n * sizeof(*args));
    x->n_args += n;
    x->nodes[x->n_nodes] = d;
    x->slots[at] = x->n_nodes;
    return (expr_id){ x->n_nodes++ };
}

uint32_t expr_set_number(struct exprs *x, const struct byte_set *s)
{
    /* Byte sets are few: a pattern has one per class and position in UTF-8. */
    for (uint32_t k = 0; k < x->n_sets; k++)
        if (!memcmp(&x->sets[k], s, sizeof(*s)))
            return k;
    if (!expr_work(x, 1 + x->n_sets / 64) || !GROW(x, sets, (size_t)x->n_sets + 1))
        return UINT32_MAX;
    x->sets[x->n_sets] = *s;
    return x->n_sets++;
}

/* ---- constructors of leaves, concatenation and repetition */

expr_id expr_bytes(struct exprs *x, const struct byte_set *s)
{
    uint32_t number = byte_set_is_empty(s) ? UINT32_MAX : expr_set_number(x, s);

    return number == UINT32_MAX ? EXPR_NONE : expr_intern(x, K_BYTES, &number, 1);
}

expr_id expr_range(struct exprs *x, uint8_t from, uint8_t to)
{
    struct byte_set s = { 0 };

    byte_set_add_range(&s, from, to);
    return expr_bytes(x, &s);
}

expr_id expr_literal(struct exprs *x, struct str s)
{
    expr_id all = EXPR_EPS;

    for (size_t k = s.n; k > 0; k--)
        all = expr_cat(x, expr_range(x, (uint8_t)s.p[k - 1], (uint8_t)s.p[k - 1]), all);
    return all;
}

/* Splits `a` into base{min,max}. */
static expr_id as_repeat(const struct exprs *x, expr_id a, uint32_t *min, uint32_t *max)
{
    bool is_repeat = node_of(x, a)->kind == K_REPEAT;

    *min = is_repeat ? arg_of(x, a, 1).i : 1;
    *max = is_repeat ? arg_of(x, a, 2).i : 1;
    return is_repeat ? arg_of(x, a, 0) : a;
}

/* a b as one repetition, if both are repetitions of the same expression; otherwise EXPR_NONE */
static expr_id merge_repeats(struct exprs *x, expr_id a, expr_id b)
{
    uint32_t a_min, a_max, b_min, b_max;

    if (node_of(x, a)->kind != K_REPEAT && node_of(x, b)->kind != K_REPEAT)
        return EXPR_NONE;
    expr_id base = as_repeat(x, a, &a_min, &a_max);
    if (!expr_eq(base, as_repeat(x, b, &b_min, &b_max)))
        return EXPR_NONE;
    bool is_inf = a_max == REPEAT_INF || b_max == REPEAT_INF;
    if ((uint64_t)a_min + b_min > REPEAT_MAX || (!is_inf && (uint64_t)a_max + b_max > REPEAT_MAX))
        return EXPR_NONE;
    return expr_repeat(x, base, a_min + b_min, is_inf ? REPEAT_INF : a_max + b_max);
}

/* True if each word of `a` begins with `^` of the start of the text. */
static bool starts_with_caret(const struct exprs *x, expr_id a)
{
    while (node_of(x, a)->kind == K_CAT)
        a = arg_of(x, a, 0);
    if (node_of(x, a)->kind != K_OR)
        return node_of(x, a)->kind == K_CARET && !arg_of(x, a, 0).i;
    for (uint32_t k = 0; k < node_of(x, a)->n; k++)
        if (!starts_with_caret(x, arg_of(x, a, k)))
            return false;
    return true;
}

expr_id expr_cat(struct exprs *x, expr_id a, expr_id b)
{
    const struct node *da = node_of(x, a), *db = node_of(x, b);

    if (expr_eq(a, EXPR_NONE) || expr_eq(b, EXPR_NONE))
        return EXPR_NONE;
    if (expr_eq(a, EXPR_EPS))
        return b;
    if (expr_eq(b, EXPR_EPS))
        return a;
    if (expr_eq(a, EXPR_ALL) && expr_eq(b, EXPR_ALL))
        return a;
    if (da->kind == K_LOOK && expr_eq(arg_of(x, a, 0), EXPR_EPS) && db->min_len)
        return EXPR_NONE; /* text after `$` */
    /* `^` after a word that is not empty never holds. */
    if (db->flags & F_HAS_CARET && !(da->flags & F_IMPURE) && starts_with_caret(x, b))
        return da->flags & F_ACCEPTS ? b : EXPR_NONE;
    bool is_list = db->kind == K_CAT; /* `db` moves when an expression is added */
    expr_id merged = merge_repeats(x, a, is_list ? arg_of(x, b, 0) : b);
    if (!expr_eq(merged, EXPR_NONE))
        return is_list ? expr_cat(x, merged, arg_of(x, b, 1)) : merged;
    return expr_intern(x, K_CAT, (uint32_t[]){ a.i, b.i }, 2);
}

/* (base{a,b}){min,max} is base{a min, b max} if the intervals k a .. k b for k = min..max have no
 * gap. The first gap is the widest: between min and min + 1. */
static bool can_flatten(uint64_t a, uint64_t b, uint64_t min, uint64_t max)
{
    bool has_gap = min != max && (b != REPEAT_INF || !min) && (min + 1) * a > min * b + 1;

    return !has_gap && a * min <= REPEAT_MAX &&
           (b == REPEAT_INF || max == REPEAT_INF || b * max <= REPEAT_MAX);
}

expr_id expr_repeat(struct exprs *x, expr_id a, uint32_t min, uint32_t max)
{
    const struct node *d = node_of(x, a);

    CHECK(min <= max && min <= REPEAT_MAX && (max <= REPEAT_MAX || max == REPEAT_INF));
    if (max == 0 || expr_eq(a, EXPR_EPS))
        return EXPR_EPS;
    if (expr_eq(a, EXPR_NONE))
        return min ? EXPR_NONE : EXPR_EPS;
    if ((min == 1 && max == 1) || expr_eq(a, EXPR_ALL))
        return a;
    if (d->flags & F_ACCEPTS && !(d->flags & F_IMPURE))
        min = 0;
    if (d->kind == K_REPEAT) {
        uint32_t p = arg_of(x, a, 1).i, q = arg_of(x, a, 2).i;
        if (can_flatten(p, q, min, max)) {
            bool is_inf = q == REPEAT_INF || max == REPEAT_INF;
            return expr_repeat(x, arg_of(x, a, 0), p * min, is_inf ? REPEAT_INF : q * max);
        }
    }
    return expr_intern(x, K_REPEAT, (uint32_t[]){ a.i, min, max }, 3);
}

expr_id expr_not(struct exprs *x, expr_id a)
{
    if (expr_eq(a, EXPR_NONE))
        return EXPR_ALL;
    if (expr_eq(a, EXPR_ALL))
        return EXPR_NONE;
    if (node_of(x, a)->kind == K_NOT)
        return arg_of(x, a, 0);
    return expr_intern(x, K_NOT, &a.i, 1);
}

/* ---- anchors and scopes */

expr_id expr_look(struct exprs *x, expr_id a)
{
    if (expr_eq(a, EXPR_NONE))
        return EXPR_NONE;
    if (expr_eq(a, EXPR_ALL))
        return EXPR_EPS;
    return expr_intern(x, K_LOOK, &a.i, 1);
}

expr_id expr_caret(struct exprs *x, bool of_lines)
{
    uint32_t arg = of_lines;

    return expr_intern(x, K_CARET, &arg, 1);
}

expr_id expr_boundary(struct exprs *x, bool is_negated)
{
    uint32_t arg = is_negated;

    return expr_intern(x, K_BOUNDARY, &arg, 1);
}

void expr_mark_text(struct exprs *x, expr_id a, enum text_mode mode)
{
    if (a.i > EXPR_ALL.i)
        x->nodes[a.i].flags |= F_CODE | F_TEXT << mode;
}

/* ---- numbers */

uint32_t expr_number_add(struct exprs *x, const struct number_spec *spec)
{
    if (!GROW(x, numbers, (size_t)x->n_numbers + 1))
        return 0;
    x->numbers[x->n_numbers] = *spec;
    return x->n_numbers++;
}

expr_id expr_number_leaf(struct exprs *x, uint32_t spec, const struct number_state *s)
{
    uint32_t args[1 + NUMBER_WORDS] = { spec };

    if (exprs_failed(x) || !number_is_live(&x->numbers[spec], s))
        return EXPR_NONE;
    memcpy(&args[1], s, sizeof(*s));
    return expr_intern(x, K_NUMBER, args, ARRAY_LEN(args));
}

/* ---- copies */

/* Marks what `roots` reach. Children have smaller ids, so one pass from the top is enough. */
static void mark_reachable(const struct exprs *x, uint32_t *map)
{
    for (uint32_t id = x->n_nodes; id-- > 3;) {
        const struct node *d = &x->nodes[id];
        bool is_list = d->kind == K_OR || d->kind == K_AND;
        uint32_t n_children = is_list ? d->n : d->kind == K_CAT ? 2 : 1;
        if (!map[id] || d->kind == K_BYTES || d->n == 0 || d->kind == K_NUMBER ||
            d->kind == K_BOUNDARY || d->kind == K_CARET)
            continue;
        for (uint32_t k = 0; k < n_children; k++)
            map[x->args[d->first + k]] = 1;
    }
}

static uint32_t copy_node(
    struct exprs *to, const struct exprs *from, uint32_t id, const uint32_t *map)
{
    const struct node *d = &from->nodes[id];
    uint32_t start = to->n_stack;
    expr_id copy = EXPR_NONE;

    for (uint32_t k = 0; k < d->n; k++) {
        uint32_t arg = from->args[d->first + k];
        bool is_child = d->kind == K_OR || d->kind == K_AND || d->kind == K_CAT ||
                        (k == 0 && d->kind != K_BYTES && d->kind != K_BOUNDARY &&
                            d->kind != K_CARET && d->kind != K_NUMBER);
        uint32_t set = d->kind == K_BYTES ? expr_set_number(to, &from->sets[arg]) : arg;
        if (!expr_push(to, is_child ? map[arg] : set))
            return 0;
    }
    if (to->n_stack == start && !expr_push(to, 0)) /* a leaf without args needs a pointer, too */
        return 0;
    uint32_t *args = to->stack + start;
    copy = expr_intern(to, d->kind, args, d->n);
    to->n_stack = start;
    if (copy.i > EXPR_ALL.i)
        to->nodes[copy.i].flags = d->flags & ~F_VISITED;
    return copy.i;
}

void exprs_copy(struct exprs *to, const struct exprs *from, expr_id *const *roots, size_t n)
{
    bool has_scratch = to->is_fixed && from->n_nodes <= to->cap_nodes;
    uint32_t *map = has_scratch ? to->map : try_malloc(from->n_nodes * sizeof(*map));

    CHECK(to->n_nodes == 3);
    if (!map) {
        expr_fail(to, FAIL_MEMORY);
        for (size_t k = 0; k < n; k++)
            *roots[k] = EXPR_NONE;
        return;
    }
    memset(map, 0, from->n_nodes * sizeof(*map));
    for (uint32_t k = 0; k < from->n_numbers; k++)
        expr_number_add(to, &from->numbers[k]);
    for (size_t k = 0; k < n; k++)
        map[roots[k]->i] = 1;
    for (int m = 0; m < N_TEXT_MODES; m++)
        map[from->any_star[m]] = 1;
    mark_reachable(from, map);
    for (uint32_t id = 0; id < from->n_nodes && !exprs_failed(to); id++)
        if (id < 3)
            map[id] = id;
        else if (map[id])
            map[id] = copy_node(to, from, id, map);
    for (size_t k = 0; k < n; k++)
        roots[k]->i = exprs_failed(to) ? EXPR_NONE.i : map[roots[k]->i];
    for (int m = 0; m < N_TEXT_MODES; m++)
        to->any_star[m] = exprs_failed(to) ? 0 : map[from->any_star[m]];
    if (!has_scratch)
        mem_free(map);
}
