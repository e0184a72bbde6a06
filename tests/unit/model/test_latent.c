/* Latent attention (MLA) of whole models: a row has the same bits for all KV types, alone, split
 * over threads and in a shared-prefix group; sizes that contradict each other are refused. The
 * logits are compared with llama.cpp in tests/golden/test_family_logits.c. */
#include "base/mem.h"
#include "format/gguf.h"
#include "model/forward.h"
#include "model/llama.h"
#include "support/check.h"
#include "testing/synth.h"

#include <unistd.h>

enum {
    N_TOKENS = 1100, /* three splits */
    N_SEQS = 4,
    N_PAGES = N_TOKENS / PAGE_TOKENS + 1 + N_SEQS,
    CHUNK = 50,
};

static struct gguf *open_shape(const struct synth *s)
{
    char path[] = "/tmp/inferflux-latent-XXXXXX";
    struct gguf *g = NULL;
    struct err e;

    close(mkstemp(path));
    if (synth_write(s, path, &e) || gguf_open(&g, path, &e)) {
        fprintf(stderr, "%s: %s\n", s->name, e.msg);
        fail();
    }
    unlink(path);
    return g;
}

static struct gguf *open_preset(const char *preset)
{
    struct synth s;

    EXPECT(synth_preset(&s, preset));
    return open_shape(&s);
}

/* The settings of a preset without those that begin with `tail`; returns their number. */
static size_t settings_without(
    const struct synth *s, const char *tail, size_t n_tail, const char *settings[64])
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_settings; i++)
        if (strncmp(s->settings[i], tail, n_tail) != 0)
            settings[n++] = s->settings[i];
    return n;
}

static struct lm *open_lm(const struct gguf *g, enum kv_type type, int n_threads)
{
    struct llama_options o = { .n_threads = n_threads,
        .n_pages = N_PAGES,
        .kv_type = type,
        .max_rows = CHUNK,
        .max_logits = N_SEQS };
    struct lm *m;
    struct err e;

    if (lm_open_llama(&m, g, &o, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        fail();
    }
    return m;
}

static int32_t token_at(int pos)
{
    return (pos * 37 + pos / 7) % 300;
}

/* Computes tokens [0, n) without logits. */
static void prefill(struct lm *m, const page_id *pages, int n)
{
    int32_t tokens[N_TOKENS];

    for (int i = 0; i < n; i++)
        tokens[i] = token_at(i);
    for (int at = 0; at < n; at += CHUNK) {
        struct lm_run run = {
            .tokens = tokens + at, .n = MIN(CHUNK, n - at), .pos = at, .pages = pages
        };
        EXPECT(m->ops->forward(m, &run, 1, NULL));
    }
}

static void fill_pages(page_id *pages)
{
    for (int i = 0; i < N_PAGES; i++)
        pages[i].i = (uint32_t)i;
}

static const struct llama *llama_of(const struct lm *m)
{
    return (const struct llama *)(const void *)((const char *)m - offsetof(struct llama, lm));
}

/* Logits of the last token, as a decode row. */
static float *decode_alone(struct lm *m, bool is_split)
{
    const int32_t token = token_at(N_TOKENS - 1);
    page_id pages[N_PAGES];
    struct lm_run run = {
        .tokens = &token, .n = 1, .pos = N_TOKENS - 1, .pages = pages, .n_logits = 1
    };

    fill_pages(pages);
    prefill(m, pages, N_TOKENS - 1);
    EXPECT(m->ops->forward(m, &run, 1, NULL));
    EXPECT_EQ(llama_of(m)->n_pieces > 0, is_split);
    float *out = xmalloc((size_t)m->n_vocab * sizeof(*out));
    memcpy(out, run.logits, (size_t)m->n_vocab * sizeof(*out));
    return out;
}

/* The same token for several sequences that share all pages but the last one. */
static void expect_in_group(struct lm *m, const float *want)
{
    const int32_t token = token_at(N_TOKENS - 1);
    const int last = (N_TOKENS - 1) / PAGE_TOKENS;
    page_id pages[N_SEQS][N_PAGES];
    struct lm_run runs[N_SEQS];

    fill_pages(pages[0]);
    prefill(m, pages[0], N_TOKENS - 1);
    for (int i = 0; i < N_SEQS; i++) {
        fill_pages(pages[i]);
        pages[i][last].i += (uint32_t)i;
        if (i > 0)
            m->ops->copy_page(m, pages[0][last], pages[i][last]);
        runs[i] = (struct lm_run){
            .tokens = &token, .n = 1, .pos = N_TOKENS - 1, .pages = pages[i], .n_logits = 1
        };
    }
    EXPECT(m->ops->forward(m, runs, N_SEQS, NULL));
    EXPECT(llama_of(m)->attn_groups[0].n > 1);
    for (int i = 0; i < N_SEQS; i++)
        EXPECT(!memcmp(runs[i].logits, want, (size_t)m->n_vocab * sizeof(*want)));
}

static void rows_are_the_same_alone_split_and_in_a_group(void)
{
    static const char *const presets[] = { "tiny-deepseek2", "tiny-deepseek2-lite" };

#if defined(__SANITIZE_THREAD__) /* the KV types have the same memory accesses */
    const int n = 1;
#else
    const int n = 2 * N_KV_TYPES;
#endif

    for (int i = 0; i < n; i++) {
        struct gguf *g = open_preset(presets[i % 2]);
        const enum kv_type type = (enum kv_type)(i / 2);
        struct lm *one = open_lm(g, type, 1), *three = open_lm(g, type, 3);
        float *want = decode_alone(one, false);
        float *got = decode_alone(three, true);

        EXPECT(!memcmp(got, want, (size_t)one->n_vocab * sizeof(*want)));
        expect_in_group(one, want);
        mem_free(want);
        mem_free(got);
        one->ops->close(one);
        three->ops->close(three);
        gguf_close(g);
    }
}

/* A key of a token and layer is stored once, without a value. */
static void pages_contain_one_key_per_token(void)
{
    struct gguf *g = open_preset("tiny-deepseek2");
    struct llama_needs needs;
    struct err e;

    EXPECT(!llama_needs(&needs, g, KV_F16, &e));
    EXPECT_EQ(needs.page_bytes, (size_t)((PAGE_TOKENS + 15) / 16 * 16 * 3 * (48 + 16) * 2));
    gguf_close(g);
}

static void sizes_that_contradict_each_other_are_refused(void)
{
    static const struct {
        const char *setting, *says;
    } rows[] = {
        { "attention.kv_lora_rank=50", "multiples of 16" },
        { "attention.kv_lora_rank=8", "attention.kv_lora_rank = 8, supported are 16 to 576" },
        { "attention.kv_lora_rank=576", "rope.dimension_count" },
        { "attention.kv_lora_rank=2147483648", "attention.kv_lora_rank" },
        { "attention.kv_lora_rank=32", "attention.key_length = 64, supported are 48 to 48" },
        { "attention.value_length=32", "attention.value_length = 32, supported are 48 to 48" },
        { "attention.key_length_mla=16", "attention.key_length_mla = 16" },
        { "attention.value_length_mla=20", "multiples of 16" },
        { "attention.value_length_mla=0", "attention.value_length_mla" },
        { "rope.dimension_count=24", "multiples of 16" },
        { "rope.dimension_count=528", "rope.dimension_count = 528, supported are 2 to 512" },
        { "attention.q_lora_rank=65537", "attention.q_lora_rank" },
        { "expert_group_count=5", "not possible" },
        { "expert_group_used_count=5", "expert_group_used_count" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *settings[64];
        struct synth s;
        struct err e;

        EXPECT(synth_preset(&s, "tiny-deepseek2"));
        const size_t n_tail = strcspn(rows[i].setting, "=") + 1;
        const size_t n = settings_without(&s, rows[i].setting, n_tail, settings);
        settings[n] = rows[i].setting;
        s.settings = settings;
        s.n_settings = n + 1;
        EXPECT(synth_write(&s, "/dev/null", &e) == -1);
        if (!strstr(e.msg, rows[i].says)) {
            fprintf(stderr, "%s: %s\n", rows[i].setting, e.msg);
            fail();
        }
    }
}

/* Older files lack the key of the router function. */
static void a_router_with_a_bias_is_a_sigmoid(void)
{
    const char *settings[64], tail[] = "expert_gating_func=";
    struct synth s;

    EXPECT(synth_preset(&s, "tiny-deepseek2"));
    struct gguf *with = open_shape(&s);
    const size_t n = settings_without(&s, tail, sizeof(tail) - 1, settings);
    EXPECT_EQ(n + 1, s.n_settings);
    s.settings = settings;
    s.n_settings = n;
    struct gguf *without = open_shape(&s);
    struct lm *a = open_lm(with, KV_F16, 1), *b = open_lm(without, KV_F16, 1);
    float *want = decode_alone(a, false), *got = decode_alone(b, false);

    EXPECT(!memcmp(got, want, (size_t)a->n_vocab * sizeof(*want)));
    mem_free(want);
    mem_free(got);
    a->ops->close(a);
    b->ops->close(b);
    gguf_close(with);
    gguf_close(without);
}

TESTS(TEST(rows_are_the_same_alone_split_and_in_a_group), TEST(pages_contain_one_key_per_token),
    TEST(sizes_that_contradict_each_other_are_refused), TEST(a_router_with_a_bias_is_a_sigmoid))
