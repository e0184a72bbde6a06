/* Random expressions with all operations, compared with their definition on all short words. */
#include "constrain/regular/derive.h"

#include "base/rng.h"
#include "support/language_kit.h"

enum { WORD_MAX = 5, NODES = 24, N_TREES = 1500 };
enum op { LETTER, EPS, CAT, OR, AND, NOT, REPEAT, LOOK, CARET, BOUNDARY, SCOPE, N_OPS };

struct tree {
    enum op op;
    char letter;
    int min, max; /* number of repetitions; max -1: no limit */
    bool is_negated;
    const struct tree *a, *b;
};

static struct tree pool[NODES];
static int n_pool;

static const struct tree *random_tree(struct rng *r, int depth)
{
    struct tree *t = &pool[n_pool++];

    *t = (struct tree){ .op = (enum op)rng_below(r, N_OPS) };
    if (depth == 0 || n_pool > NODES - 8)
        t->op = rng_below(r, 4) ? LETTER : EPS;
    t->letter = "ab-"[rng_below(r, 3)];
    t->min = (int)rng_below(r, 3);
    t->max = rng_below(r, 3) ? t->min + (int)rng_below(r, 3) : -1;
    t->is_negated = rng_below(r, 2);
    if (t->op >= CAT && t->op != CARET && t->op != BOUNDARY)
        t->a = random_tree(r, depth - 1);
    if (t->op == CAT || t->op == OR || t->op == AND)
        t->b = random_tree(r, depth - 1);
    return t;
}

static expr_id build(struct exprs *x, const struct tree *t)
{
    expr_id a = t->a ? build(x, t->a) : EXPR_NONE, b = t->b ? build(x, t->b) : EXPR_NONE;
    uint32_t max = t->max < 0 ? REPEAT_INF : (uint32_t)t->max;

    switch (t->op) {
    case LETTER:
        return expr_range(x, (uint8_t)t->letter, (uint8_t)t->letter);
    case EPS:
        return EXPR_EPS;
    case CAT:
        return expr_cat(x, a, b);
    case OR:
        return expr_or(x, a, b);
    case AND:
        return expr_and(x, a, b);
    case NOT:
        return expr_not(x, a);
    case REPEAT:
        return expr_repeat(x, a, (uint32_t)t->min, max);
    case LOOK:
        return expr_look(x, expr_cat(x, a, EXPR_ALL));
    case CARET:
        return expr_caret(x, false);
    case BOUNDARY:
        return expr_boundary(x, t->is_negated);
    case SCOPE:
        return expr_scope(x, a, CTX_START);
    default:
        return EXPR_NONE;
    }
}

/* Part from..to of a word; the scope is the part first..end. */
struct span {
    const char *word;
    int first, from, to, end;
};

static bool is_in(const struct tree *t, struct span s);

/* a^n for some n in min..max covers from..to; empty iterations may be repeated freely. */
static bool is_repeated(const struct tree *t, struct span s, int min, int max)
{
    if (min <= 0 && s.from == s.to)
        return true;
    if (max == 0)
        return false;
    struct span empty = { s.word, s.first, s.from, s.from, s.end };
    if (min > 0 && is_in(t->a, empty) && is_repeated(t, s, min - 1, max < 0 ? -1 : max - 1))
        return true;
    for (int mid = s.from + 1; mid <= s.to; mid++) {
        struct span head = { s.word, s.first, s.from, mid, s.end }, tail = s;
        tail.from = mid;
        if (is_in(t->a, head) && is_repeated(t, tail, min - 1, max < 0 ? -1 : max - 1))
            return true;
    }
    return false;
}

static bool is_word(struct span s, int at)
{
    return at >= s.first && at < s.end && s.word[at] != '-';
}

static bool is_in(const struct tree *t, struct span s)
{
    bool is_empty = s.from == s.to;

    switch (t->op) {
    case LETTER:
        return s.to == s.from + 1 && s.word[s.from] == t->letter;
    case EPS:
        return is_empty;
    case CAT:
        for (int mid = s.from; mid <= s.to; mid++) {
            struct span head = s, tail = s;
            head.to = tail.from = mid;
            if (is_in(t->a, head) && is_in(t->b, tail))
                return true;
        }
        return false;
    case OR:
        return is_in(t->a, s) || is_in(t->b, s);
    case AND:
        return is_in(t->a, s) && is_in(t->b, s);
    case NOT:
        return !is_in(t->a, s);
    case REPEAT:
        return is_repeated(t, s, t->min, t->max);
    case LOOK:
        for (int to = s.from; is_empty && to <= s.end; to++)
            if (is_in(t->a, (struct span){ s.word, s.first, s.from, to, s.end }))
                return true;
        return false;
    case CARET:
        return is_empty && s.from == s.first;
    case BOUNDARY:
        return is_empty && (is_word(s, s.from - 1) != is_word(s, s.from)) != t->is_negated;
    case SCOPE:
        return is_in(t->a, (struct span){ s.word, s.from, s.from, s.to, s.to });
    default:
        return false;
    }
}

/* Sets `word` to the number in base 3, with `n` digits. */
static void set_word(char *word, int n, int number)
{
    for (int k = 0; k < n; k++, number /= 3)
        word[k] = "ab-"[number % 3];
    word[n] = 0;
}

static bool has_completion(const struct tree *t, const char *prefix, int n)
{
    char word[WORD_MAX + 8];
    int count = 1;

    for (int more = 0; n + more <= WORD_MAX; more++, count *= 3)
        for (int k = 0; k < count; k++) {
            memcpy(word, prefix, (size_t)n);
            set_word(word + n, more, k);
            if (is_in(t, (struct span){ word, 0, 0, n + more, n + more }))
                return true;
        }
    return false;
}

static void random_expressions_equal_their_definition(void)
{
    int n_inside = 0;

    for (uint64_t seed = 0; seed < N_TREES; seed++) {
        struct rng r = { .key = seed };
        struct language l;
        char word[WORD_MAX + 1];
        n_pool = 0;
        const struct tree *t = random_tree(&r, 4);
        language_begin(&l);
        expr_id root = expr_scope(l.x, build(l.x, t), CTX_START);
        EXPECT_EQ(language_start(&l, root), 0);
        for (int n = 0, count = 1; n <= WORD_MAX - (seed % 8 != 0); n++, count *= 3)
            for (int k = 0; k < count; k++) {
                set_word(word, n, k);
                state_id s = automaton_run(l.a, automaton_start(l.a), str_of(word));
                bool want = is_in(t, (struct span){ word, 0, 0, n, n });
                if (want != automaton_accepts(l.a, s))
                    fprintf(stderr, "seed %d, word \"%s\": want %d\n", (int)seed, word, want);
                EXPECT_EQ(automaton_accepts(l.a, s), want);
                EXPECT(s.i || n == WORD_MAX || !has_completion(t, word, n));
                n_inside += want;
            }
        EXPECT_EQ(automaton_check(l.a, &l.e), 0);
        language_end(&l);
    }
    EXPECT(n_inside > 10000);
}

static void classes_have_equal_derivatives(void)
{
    struct byte_partition p;
    struct language l;
    expr_id root;

    language_begin(&l);
    EXPECT_EQ(pattern_compile(l.x, STR("^(?:\\bab|[^c]\\p{L}|(?=d))+$"), TEXT_JSON, PATTERN_SEARCH,
                  &root, &l.e),
        0);
    expr_partition(l.x, root, &p);
    EXPECT(p.n > 4 && p.n < 40);
    for (unsigned b = 0; b < 256; b++)
        EXPECT(expr_eq(
            expr_derive(l.x, root, (uint8_t)b), expr_derive(l.x, root, p.first[p.class_of[b]])));
    language_end(&l);
}

TESTS(TEST(random_expressions_equal_their_definition), TEST(classes_have_equal_derivatives))
