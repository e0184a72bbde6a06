/* mask: benchmark of the masks of constrained decoding: microseconds per mask and steps of the
 * automaton, by kind of state; the size of the tables and the time to build them.
 *
 *     mask [MODEL.gguf | N_TOKENS]
 *
 * With a number (default 150000) the vocabulary is synthetic: random words, characters of other
 * scripts, code and digits, in the mix of a byte-level vocabulary. Each row walks texts of a kind
 * of state. `first`: states that the automaton has not seen before; `again`: a second walk, without
 * the cache of masks; `cached`: with it. Strings have a mask after each four characters, the other
 * kinds after each character. */
#include "base/mem.h"
#include "base/rng.h"
#include "constrain/automaton_acceptor.h"
#include "constrain/regular/json_string.h"
#include "constrain/mask.h"
#include "constrain/regular/pattern.h"
#include "os/clock.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_WALKS = 40, N_STATES = 60 };

/* ---- vocabulary */

struct synthetic {
    struct str *tokens;
    char (*text)[40];
    int32_t n;
};

static struct str synthetic_bytes(const void *ctx, int32_t id)
{
    const struct synthetic *v = ctx;
    return id + 1 < v->n ? v->tokens[id] : STR_NONE;
}

static bool synthetic_is_end(const void *ctx, int32_t id)
{
    return id + 1 == ((const struct synthetic *)ctx)->n;
}

static size_t put_word(char *out, struct rng *r)
{
    static const char frequent[] = "eeeeetttaaooiinnsshhrrddlucmfwypvbgkjqxz";
    size_t n = 2 + rng_below(r, 7);

    for (size_t k = 0; k < n; k++)
        out[k] = frequent[rng_below(r, sizeof(frequent) - 1)];
    if (rng_below(r, 4) == 0)
        out[0] = (char)(out[0] - 'a' + 'A');
    return n;
}

static size_t put_characters(char *out, struct rng *r, unsigned lead, size_t n_tail)
{
    size_t n = 0, n_chars = 1 + rng_below(r, 4);

    for (size_t c = 0; c < n_chars; c++) {
        out[n++] = (char)(lead + rng_below(r, 4));
        for (size_t k = 0; k < n_tail; k++)
            out[n++] = (char)(0x80 + rng_below(r, 64));
    }
    return n - rng_below(r, 10) / 9; /* one in ten ends inside a character */
}

/* Percent of the tokens: words after a blank 42, words 33, other scripts 12, code 11, digits. */
static size_t put_token(char *out, struct rng *r)
{
    static const char code[] = "\"'{}[]()<>:;,.=+-*/\\_#&|!?$%@\n\t  ";
    uint64_t kind = rng_below(r, 100);
    size_t n = 0;

    if (kind < 42) {
        out[0] = ' ';
        return 1 + put_word(out + 1, r);
    }
    if (kind < 75)
        return put_word(out, r);
    if (kind < 81)
        return put_characters(out, r, 0xD0, 1);
    if (kind < 87)
        return put_characters(out, r, 0xE4, 2);
    if (kind < 98) {
        for (n = 0; n < 1 + kind % 4; n++)
            out[n] = code[rng_below(r, sizeof(code) - 1)];
        return kind % 2 ? n + put_word(out + n, r) : n;
    }
    for (n = 0; n < 1 + kind % 3; n++)
        out[n] = (char)('0' + rng_below(r, 10));
    return n;
}

static void make_synthetic(struct synthetic *v, int32_t n)
{
    struct rng r = { .key = 1 };

    *v = (struct synthetic){ .n = n };
    v->tokens = xcalloc((size_t)n, sizeof(*v->tokens));
    v->text = xcalloc((size_t)n, sizeof(*v->text));
    for (int32_t id = 0; id < n; id++) {
        size_t bytes = id < 256 ? 1 : put_token(v->text[id], &r);
        if (id < 256)
            v->text[id][0] = (char)id;
        v->tokens[id] = (struct str){ v->text[id], bytes };
    }
}

/* ---- kinds of states */

static const struct kind {
    const char *name;
    const char *pattern;  /* or NULL: a string in quotation marks */
    const char *prefix;   /* text before the states */
    const char *alphabet; /* text of the walk */
    uint64_t max_length;
    const char *string_pattern;
} kinds[] = {
    { "inside a string", NULL, "\"", "etaoin shrdlu", UINT64_MAX, NULL },
    { "inside a string, maxLength 1000", NULL, "\"", "etaoin shrdlu", 1000, NULL },
    { "inside a string, maxLength 64", NULL, "\"", "etaoin shrdlu", 80, NULL },
    { "inside a string, pattern [a-z ]*", NULL, "\"", "etaoin shrdlu", UINT64_MAX, "^[a-z ]*$" },
    { "inside a number", "^[0-9]{1,39}$", "1", "0123456789", 0, NULL },
    { "inside a decimal", "^-?(?:0|[1-9][0-9]{0,60})(?:\\.[0-9]{1,60})?$", "1", "0123456789", 0,
        NULL },
    { "after a key", "^(?:\"[a-z]{1,60}\" ?: ?(?:true|false|null|[0-9]+)[,}])*$", "\"key\"", "", 0,
        NULL },
    { "blanks before a key", "^\\{\\n[ \\t]{0,70}\"[a-z]+\":$", "{\n", " ", 0, NULL },
};

static struct acceptor *acceptor_of(const struct kind *k)
{
    struct exprs *x = exprs_new((struct expr_limits){ 32 * MB, 10000000 });
    struct str pattern = str_of(k->string_pattern);
    struct json_string_limits limits = {
        .patterns = &pattern, .n_patterns = k->string_pattern != NULL, .max_length = k->max_length
    };
    struct acceptor *a = NULL;
    struct err e = { 0 };
    expr_id root = EXPR_NONE;

    int rc = k->pattern
                 ? pattern_compile(x, str_of(k->pattern), TEXT_UTF8, PATTERN_SEARCH, &root, &e)
                 : expr_json_string(x, &limits, &root, &e);
    if (!k->pattern) {
        expr_id quote = expr_literal(x, STR("\""));
        root = expr_cat(x, quote, expr_cat(x, root, quote));
    }
    struct automaton_limits states = { 32 * MB, 1000000 };
    if (rc || exprs_check(x, &e) || automaton_acceptor_new(&a, x, root, states, &e)) {
        fprintf(stderr, "mask: %s: %s\n", k->name, e.msg);
        exit(1);
    }
    exprs_free(x);
    return a;
}

/* ---- measurement */

struct samples {
    double *us;
    size_t n;
    uint64_t steps;
};

static int compare_doubles(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static double percentile(struct samples *s, double p)
{
    qsort(s->us, s->n, sizeof(*s->us), compare_doubles);
    return s->us[(size_t)(p * (double)(s->n - 1))];
}

static void measure_mask(struct mask *m, pos_id p, struct samples *out)
{
    struct err e = { 0 };
    uint64_t start = clock_ns();

    mask_begin(m, p);
    if (mask_run(m, UINT64_MAX, &e) != MASK_DONE) {
        fprintf(stderr, "mask: %s\n", e.msg);
        exit(1);
    }
    out->us[out->n++] = (double)(clock_ns() - start) / 1e3;
    out->steps += mask_steps(m);
}

/* One text of the kind. */
static void walk(const struct kind *k, struct acceptor *a, struct mask *m, struct samples *out)
{
    struct rng r = { .key = 1 };
    pos_id p = POS_START;
    size_t n_letters = strlen(k->alphabet);

    for (const char *c = k->prefix; *c; c++)
        p = a->ops->step(a, p, (uint8_t)*c);
    for (int n = 0; n < N_STATES && p.i; n++) {
        measure_mask(m, p, out);
        for (size_t c = 0; c < (k->pattern ? 1u : 4u) && n_letters && p.i; c++)
            p = a->ops->step(a, p, (uint8_t)k->alphabet[rng_below(&r, n_letters)]);
    }
    a->ops->release(a, POS_START.i + 1);
}

static void print_kind(const struct kind *k, const struct vocab_tables *t)
{
    static const char *const names[] = { "first", "again", "cached" };
    static double us[3][N_WALKS * N_STATES];
    struct samples s[3] = { { us[0] }, { us[1] }, { us[2] } };
    struct err e = { 0 };

    for (int n = 0; n < N_WALKS; n++) {
        struct acceptor *a = acceptor_of(k);
        struct mask *m, *cached;
        if (mask_new(&m, t, a, 0, &e) || mask_new(&cached, t, a, 4 * MB, &e))
            exit(1);
        walk(k, a, m, &s[0]);
        walk(k, a, m, &s[1]);
        struct samples unused = { s[2].us + s[2].n, 0, 0 };
        walk(k, a, cached, &unused);
        walk(k, a, cached, &s[2]);
        mask_free(m);
        mask_free(cached);
        a->ops->free(a);
    }
    for (int n = 0; n < 3; n++)
        printf("%-34s %-7s %9.1f %9.1f %9.1f %10.0f\n", n ? "" : k->name, names[n],
            percentile(&s[n], 0.5), percentile(&s[n], 0.99), percentile(&s[n], 1),
            (double)s[n].steps / (double)s[n].n);
}

int main(int argc, char **argv)
{
    struct synthetic synthetic = { 0 };
    struct vocab_tables *t = NULL;
    struct vocab *v = NULL;
    struct gguf *g = NULL;
    struct token_source src;
    struct err e = { 0 };
    uint64_t n_tokens = 150000;

    if (argc > 1 && !str_to_u64(str_of(argv[1]), &n_tokens)) {
        if (gguf_open(&g, argv[1], &e) || vocab_open(&v, g, &e)) {
            fprintf(stderr, "mask: %s\n", e.msg);
            return 1;
        }
        src = token_source_of_vocab(v);
    } else {
        if (n_tokens < 257 || n_tokens > TOKEN_IDS_MAX) {
            fprintf(stderr, "mask: %s tokens: 257 to %d are supported\n", argv[1], TOKEN_IDS_MAX);
            return 1;
        }
        make_synthetic(&synthetic, (int32_t)n_tokens);
        src = (struct token_source){ &synthetic, synthetic.n, synthetic_bytes, synthetic_is_end };
    }
    uint64_t start = clock_ns();
    if (vocab_tables_new(&t, &src, &e)) {
        fprintf(stderr, "mask: %s\n", e.msg);
        return 1;
    }
    printf("%d tokens: tables in %.1f ms, %.1f bytes per token; trie of %u nodes, %u of irregular "
           "tokens\n",
        src.n_tokens, (double)(clock_ns() - start) / 1e6,
        (double)vocab_tables_bytes(t) / src.n_tokens, t->trie.n_nodes, t->irregular.n_nodes);
    printf("%-34s %-7s %9s %9s %9s %10s\n", "us per mask", "", "p50", "p99", "max", "steps");
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
        print_kind(&kinds[k], t);
    vocab_tables_free(t);
    vocab_close(v);
    gguf_close(g);
    mem_free(synthetic.tokens);
    mem_free(synthetic.text);
    return 0;
}
