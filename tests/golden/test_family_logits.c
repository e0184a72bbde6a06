/* Logits of a tiny model of each family against those of another implementation, which
 * tests/families/reference.py computes and writes to tests/families. */
#include "base/mem.h"
#include "format/gguf.h"
#include "model/llama.h"
#include "support/check.h"
#include "testing/synth.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { N_TOKENS = 300, STEP = 3, N_IDS = 12, N_VALUES = N_TOKENS / STEP * N_IDS };

/* The largest difference as a share of the range of the logits. The reference stores keys and
 * values as F32, this implementation as f16. */
static const double MAX_DIFFERENCE = 5e-4;

static int32_t token_at(int pos, int n_vocab)
{
    return (pos * 7919 + pos * pos * 31 + 17) % n_vocab;
}

static struct gguf *open_model(const char *preset)
{
    char path[] = "/tmp/inferflux-family-XXXXXX";
    struct gguf *g = NULL;
    struct synth s;
    struct err e;

    EXPECT(synth_preset(&s, preset));
    s.type = s.head_type = Q_F32;
    close(mkstemp(path));
    if (synth_write(&s, path, &e) || gguf_open(&g, path, &e)) {
        fprintf(stderr, "%s: %s\n", preset, e.msg);
        fail();
    }
    unlink(path);
    return g;
}

/* Logits of all tokens, in chunks. */
static float *compute(struct lm *m, int chunk)
{
    int32_t tokens[N_TOKENS];
    page_id pages[N_TOKENS];
    float *out = xcalloc((size_t)N_TOKENS * (size_t)m->n_vocab, sizeof(*out));

    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = token_at(i, m->n_vocab);
        pages[i].i = (uint32_t)MIN(i, (int)m->n_pages - 1);
    }
    for (int at = 0; at < N_TOKENS; at += chunk) {
        int n = MIN(chunk, N_TOKENS - at);
        struct lm_run run = {
            .tokens = tokens + at, .n = n, .pos = at, .pages = pages, .n_logits = n
        };
        EXPECT(m->ops->forward(m, &run, 1, NULL));
        memcpy(out + (size_t)at * (size_t)m->n_vocab, run.logits,
            sizeof(float) * (size_t)n * (size_t)m->n_vocab);
    }
    return out;
}

static struct lm *open_lm(const struct gguf *g, const char *kernels, int n_threads)
{
    struct llama_options o = { .n_threads = n_threads,
        .n_pages = N_TOKENS / PAGE_TOKENS + 1,
        .max_rows = 64,
        .max_logits = 64 };
    struct lm *m;
    struct err e;

    if (kernels_choose(&o.kernels, kernels, &e) || lm_open_llama(&m, g, &o, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        fail();
    }
    return m;
}

static bool read_reference(const char *preset, float want[N_VALUES])
{
    char path[128];
    snprintf(path, sizeof(path), "tests/families/%s.f32", preset);
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(want, sizeof(*want), N_VALUES, f) : 0;

    if (f)
        fclose(f);
    return n == N_VALUES;
}

/* The bits depend neither on the chunks of the prompt nor on threads and kernel sets. */
static void expect_same_bits(const struct gguf *g, const float *want)
{
    static const struct {
        const char *kernels;
        int n_threads, chunk;
    } rows[] = { { NULL, 1, 64 }, { "ref", 3, 1 } };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct lm *m = open_lm(g, rows[i].kernels, rows[i].n_threads);
        float *got = compute(m, rows[i].chunk);
        EXPECT(!memcmp(got, want, sizeof(*got) * (size_t)N_TOKENS * (size_t)m->n_vocab));
        mem_free(got);
        m->ops->close(m);
    }
}

static double difference(const char *preset)
{
    enum { CHUNK = 37 }; /* divides nothing */
    struct gguf *g = open_model(preset);
    struct lm *m = open_lm(g, NULL, 2);
    float want[N_VALUES], lo = INFINITY, hi = -INFINITY, most = 0;
    float *got = compute(m, CHUNK);

    EXPECT(read_reference(preset, want));
    for (int i = 0; i < N_VALUES; i++) {
        int pos = i / N_IDS * STEP, id = (pos * 13 + i % N_IDS * 41) % m->n_vocab;
        most = fmaxf(most, fabsf(got[(size_t)pos * (size_t)m->n_vocab + (size_t)id] - want[i]));
        lo = fminf(lo, want[i]);
        hi = fmaxf(hi, want[i]);
    }
    expect_same_bits(g, got);
    mem_free(got);
    m->ops->close(m);
    gguf_close(g);
    return (double)(most / (hi - lo));
}

static void each_family_agrees_with_the_reference(void)
{
    int n_failed = 0;

    for (size_t i = 0; synth_preset_name(i); i++) {
        const char *name = synth_preset_name(i);
        if (strncmp(name, "tiny-", 5) != 0)
            continue;
        double d = difference(name);
        printf("%-20s %.1e\n", name, d);
        n_failed += !(d < MAX_DIFFERENCE);
    }
    EXPECT_EQ(n_failed, 0);
}

TESTS(TEST(each_family_agrees_with_the_reference))
