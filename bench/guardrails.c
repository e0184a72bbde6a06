/* guardrails: cost of guardrails per byte of output that arrives in tokens, and the time and memory
 * of a blocklist. Usage: bench/guardrails [ENTRIES]. The result is the median of ROUNDS rounds;
 * "forward" is the same output without guardrails, which is what the filter replaces. */
#include "guardrails/output_guard.h"
#include "os/clock.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 15, TEXT = 1 << 20, TOKEN = 4, N_WORDS = 5000 };

static uint64_t random_state = 1;

static unsigned random_below(unsigned n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % n;
}

/* A pronounceable word, so that entries and the text share their beginnings. */
static void put_word(struct buf *out, unsigned seed)
{
    static const char *const syllables[] = { "ka", "to", "ri", "men", "sol", "ber", "an", "est",
        "in", "or", "pla", "ve", "du", "gra", "lo", "ci" };
    unsigned x = seed * 2654435761u;

    for (unsigned i = 0; i < 2 + (x >> 28) % 3; i++, x = x * 1103515245u + 12345u)
        buf_putz(out, syllables[(x >> 16) % ARRAY_LEN(syllables)]);
}

static struct guardrails *make(int n_entries, const char *more)
{
    struct guard_set *s = NULL;
    struct guardrails *g = NULL;
    struct buf json;
    struct err e;

    buf_init(&json, 64 * MB);
    buf_putz(&json, "{\"action\":\"redact\",\"blocklist\":[");
    for (int i = 0; i < n_entries; i++) {
        buf_putz(&json, i ? ",\"" : "\"");
        put_word(&json, (unsigned)i);
        buf_printf(&json, " %d\"", i); /* rarely in the text */
    }
    buf_printf(&json, "]%s}", more);
    uint64_t start = clock_ns();
    if (guard_set_parse(&s, STR("bench"), buf_str(&json), &e)) {
        fprintf(stderr, "%s\n", e.msg);
        exit(1);
    }
    const struct guard_set *take = s;
    if (guardrails_new(&g, &take, 1, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        exit(1);
    }
    if (n_entries)
        printf("compile %d entries: %.1f ms, %u states\n", n_entries,
            (double)(clock_ns() - start) / 1e6, guardrails_compiled(g)->words->n_nodes);
    buf_clear(&json);
    return g;
}

static void count(void *ctx, int choice, struct str text)
{
    *(size_t *)ctx += text.n;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double pass(const struct guardrails *g, struct str text)
{
    static const struct output_ops next = { .content = count };
    double ns[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        struct guard_record record = { 0 };
        struct output_guard *o = NULL;
        size_t n = 0;
        struct output_guard_setup s = {
            .g = g, .sets = 1, .n_choices = 1, .record = &record, .next = &next, .next_ctx = &n
        };
        struct err e;
        if (g && output_guard_new(&o, &s, &e))
            exit(1);
        const struct output_ops *volatile ops = g ? &output_guard_ops : &next;
        void *ctx = g ? (void *)o : (void *)&n;
        uint64_t start = clock_ns();
        for (size_t at = 0; at < text.n; at += TOKEN)
            ops->content(ctx, 0, (struct str){ text.p + at, MIN(text.n - at, (size_t)TOKEN) });
        if (g)
            output_guard_end(o, 0);
        ns[i] = (double)(clock_ns() - start) / (double)text.n;
        output_guard_free(o);
    }
    qsort(ns, ROUNDS, sizeof(ns[0]), compare);
    return ns[ROUNDS / 2];
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name, *more;
        bool has_words;
    } rows[] = {
        { "blocklist", "", true },
        { "e-mail, card, IBAN, secret", ",\"detectors\":[\"email\",\"card\",\"iban\",\"secret\"]",
            false },
        { "4 patterns",
            ",\"patterns\":[\"\\\\bACME-\\\\d{6}\\\\b\",\"(?i)project falcon\",\"\\\\d{3}-\\\\d{2}-"
            "\\\\d{4}\",\"x-[a-f0-9]{32}\"]",
            false },
    };
    int64_t n = 10000;
    struct buf text;

    if (argc > 1 && (!str_to_i64(str_of(argv[1]), &n) || n < 1 || n > GUARD_ENTRIES_MAX)) {
        fprintf(stderr, "usage: guardrails [ENTRIES]\n");
        return 2;
    }
    int n_entries = (int)n;

    buf_init(&text, 2 * (size_t)TEXT);
    while (text.n < TEXT) {
        put_word(&text, random_below(N_WORDS));
        buf_putc(&text, ' ');
    }
    double plain = pass(NULL, buf_str(&text));
    printf("forward: %.2f ns per byte\n", plain);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct guardrails *g = make(rows[i].has_words ? n_entries : 0, rows[i].more);
        double ns = pass(g, buf_str(&text));
        printf("%s: %.1f ns per byte, %.0f ns per token of %d bytes; 1 %% of one core: %.0f "
               "tokens/s\n",
            rows[i].name, ns, ns * TOKEN, TOKEN, 0.01 * 1e9 / (ns * TOKEN));
        guardrails_unref(g);
    }
    buf_clear(&text);
    return 0;
}
