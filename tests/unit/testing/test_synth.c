/* Synthetic models open, are deterministic, and have weights with the requested deviation. */
#include "support/text_kit.h"

#include "testing/synth.h"
#include "testing/synth_blocks.h"
#include "kernel/gemm.h"

#include <math.h>
#include <unistd.h>

static char path[] = "/tmp/inferflux-test-synth-XXXXXX";

static void begin_test(void)
{
    int fd = mkstemp(path);

    EXPECT(fd >= 0);
    close(fd);
}

static void end_test(void)
{
    unlink(path);
    memcpy(path + strlen(path) - 6, "XXXXXX", 6);
}

static struct gguf *write_and_open(const struct synth *s)
{
    struct gguf *g = NULL;
    struct err e = { 0 };

    if (synth_write(s, path, &e) || gguf_open(&g, path, &e))
        fprintf(stderr, "%s\n", e.msg);
    EXPECT(g);
    return g;
}

static const enum qtype all_types[] = { Q_F32, Q_F16, Q_BF16, Q_Q8_0, Q_Q4_0, Q_Q4_K, Q_Q5_K,
    Q_Q6_K, Q_Q4_1, Q_Q5_0, Q_Q5_1, Q_IQ4_NL, Q_MXFP4, Q_IQ4_XS, Q_Q2_K, Q_Q3_K, Q_IQ2_XXS,
    Q_IQ2_XS, Q_IQ2_S, Q_IQ3_XXS, Q_IQ3_S, Q_IQ1_S, Q_IQ1_M, Q_TQ1_0, Q_TQ2_0, Q_Q1_0, Q_Q2_0,
    Q_NVFP4, Q_FP8_32, Q_FP8_128, Q_MXFP8, Q_AFFINE2_32, Q_AFFINE2_64, Q_AFFINE3_32, Q_AFFINE3_64,
    Q_AFFINE5_32, Q_AFFINE5_64, Q_AFFINE6_32, Q_AFFINE6_64 };

/* The file is read back by the code that serves models. */
static void weights_have_the_deviation_asked_for(void)
{
    enum { ROWS = 32, COLS = 512 };
    static _Alignas(64) uint8_t packed[ROWS * COLS * 5];

    for (size_t k = 0; k < ARRAY_LEN(all_types); k++) {
        const struct qtype_info *q = qtype_info((uint32_t)all_types[k]);
        static uint8_t rows[ROWS * COLS * 4];
        static float x[COLS];
        struct packed w;
        struct err e = { 0 };
        double sum = 0, squares = 0;

        synth_blocks(all_types[k], 0.05f, 7, 0, rows, ROWS * COLS / q->block);
        EXPECT(pack_bytes(all_types[k], ROWS, COLS) <= sizeof(packed));
        EXPECT_EQ(pack_init(&w, all_types[k], ROWS, COLS, packed, &e), 0);
        pack_panels(&w, rows, 0, w.n_panels);
        for (int r = 0; r < ROWS; r++) {
            pack_get_row(&w, r, x);
            for (int i = 0; i < COLS; i++) {
                sum += (double)x[i];
                squares += (double)x[i] * (double)x[i];
            }
        }
        double n = ROWS * COLS, mean = sum / n, deviation = sqrt(squares / n);
        printf("%-5s mean %+.5f deviation %.5f\n", q->name, mean, deviation);
        EXPECT(fabs(mean) < 0.0025);
        EXPECT(deviation > 0.045 && deviation < 0.055);
    }
}

static void a_block_does_not_depend_on_its_neighbours(void)
{
    for (size_t k = 0; k < ARRAY_LEN(all_types); k++) {
        size_t n = qtype_info((uint32_t)all_types[k])->block_bytes;
        uint8_t many[8 * 256], one[256];
        synth_blocks(all_types[k], 1, 3, 10, many, 8);
        for (size_t i = 0; i < 8; i++) {
            synth_blocks(all_types[k], 1, 3, 10 + i, one, 1);
            EXPECT_EQ(memcmp(one, many + i * n, n), 0);
        }
        synth_blocks(all_types[k], 1, 4, 10, one, 1);
        EXPECT(memcmp(one, many, n));
    }
}

static void every_family_has_its_tensors(void)
{
    static const struct {
        const char *arch, *tensor;
        size_t n;
    } rows[] = { { "llama", "blk.1.ffn_down.weight", 2 + 2 * 9 },
        { "qwen2", "blk.1.attn_k.bias", 2 + 2 * 12 },
        { "qwen3", "blk.1.attn_q_norm.weight", 2 + 2 * 11 } };

    begin_test();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct synth s;
        struct str arch;
        EXPECT(synth_preset(&s, "tiny"));
        s.arch = rows[i].arch;
        struct gguf *g = write_and_open(&s);
        EXPECT(gguf_get_str(g, "general.architecture", &arch) && str_is(arch, rows[i].arch));
        EXPECT(gguf_tensor(g, rows[i].tensor));
        EXPECT_EQ(gguf_n_tensors(g), rows[i].n);
        EXPECT(gguf_tensor(g, "token_embd.weight")->type == Q_Q6_K);
        EXPECT(gguf_tensor(g, "blk.0.attn_q.weight")->type == Q_Q4_0);
        gguf_close(g);
    }
    end_test();
}

static void the_seed_decides_the_bytes(void)
{
    struct synth s;
    struct err e = { 0 };

    begin_test();
    synth_preset(&s, "tiny");
    s.is_tied = false;
    EXPECT_EQ(synth_write(&s, path, &e), 0);
    struct str a = kit_read(path);
    EXPECT_EQ(synth_write(&s, path, &e), 0);
    struct str b = kit_read(path);
    EXPECT(str_eq(a, b));
    s.seed++;
    EXPECT_EQ(synth_write(&s, path, &e), 0);
    struct str c = kit_read(path);
    EXPECT(c.n == a.n && memcmp(a.p, c.p, a.n));
    mem_free((void *)(uintptr_t)a.p);
    mem_free((void *)(uintptr_t)b.p);
    mem_free((void *)(uintptr_t)c.p);
    end_test();
}

static void rows_of_odd_size_use_a_fitting_type(void)
{
    EXPECT(synth_type_for(Q_Q4_K, 512) == Q_Q4_K);
    EXPECT(synth_type_for(Q_Q4_K, 896) == Q_Q8_0);
    EXPECT(synth_type_for(Q_Q4_0, 100) == Q_F16);
    EXPECT(synth_type_for(Q_F32, 7) == Q_F32);
}

static void mixed_files_use_finer_types_in_sensitive_layers(void)
{
    static const uint32_t finer[] = { 0, 1, 4, 7, 10, 13, 14, 15 }; /* layers of 16 */
    struct synth s;
    char name[64];

    begin_test();
    synth_preset(&s, "tiny");
    s.type = Q_Q4_K;
    s.is_mixed = true;
    s.n_layers = 16;
    s.d_model = 256;
    s.d_ff = 256;
    struct gguf *g = write_and_open(&s);
    for (uint32_t i = 0, at = 0; i < 16; i++) {
        bool is_finer = at < ARRAY_LEN(finer) && finer[at] == i;
        enum qtype want = is_finer ? Q_Q6_K : Q_Q4_K;
        at += is_finer;
        snprintf(name, sizeof(name), "blk.%u.attn_v.weight", i);
        EXPECT(gguf_tensor(g, name)->type == want);
        snprintf(name, sizeof(name), "blk.%u.ffn_down.weight", i);
        EXPECT(gguf_tensor(g, name)->type == want);
        snprintf(name, sizeof(name), "blk.%u.attn_q.weight", i);
        EXPECT(gguf_tensor(g, name)->type == Q_Q4_K);
    }
    gguf_close(g);
    EXPECT(synth_use_more_bits(0, 1) && synth_use_more_bits(2, 4) && !synth_use_more_bits(1, 4));
    end_test();
}

static void synthetic_vocabularies_work(void)
{
    static const uint32_t sizes[] = { 259, 512, 20000 };
    struct str text = STR("Hello there, world!\n  42 caf\xC3\xA9 \xF0\x9F\x98\x80");

    begin_test();
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct synth s;
        synth_preset(&s, "tiny");
        s.n_vocab = sizes[i];
        s.n_layers = 1;
        struct gguf *g = write_and_open(&s);
        gguf_close(g);
        struct vocab *v = kit_open_vocab(path);
        EXPECT_EQ(vocab_n_tokens(v), (int32_t)sizes[i]);
        EXPECT(vocab_is_end(v, vocab_find(v, STR("<|im_end|>"))));
        EXPECT(vocab_is_end(v, vocab_find(v, STR("<|endoftext|>"))));
        struct tokens t = kit_encode(v, text, false);
        EXPECT(i ? t.n < text.n : t.n == text.n);
        struct buf back = kit_decode(v, t.ids, t.n);
        EXPECT(str_eq(buf_str(&back), text));
        buf_clear(&back);
        kit_free_tokens(&t);
        vocab_close(v);
    }
    end_test();
}

static void vocabulary_can_be_copied_from_a_file(void)
{
    struct synth s, other;
    struct str a, b;

    begin_test();
    synth_preset(&s, "tiny");
    s.n_vocab = 300;
    struct gguf *g = write_and_open(&s);
    other = s;
    other.vocab_from = g;
    other.arch = "qwen2";
    unlink(path); /* the mapping remains valid */
    struct gguf *h = write_and_open(&other);
    EXPECT(gguf_get_str(g, "tokenizer.chat_template", &a));
    EXPECT(gguf_get_str(h, "tokenizer.chat_template", &b));
    EXPECT(str_eq(a, b));
    EXPECT_EQ(gguf_find(h, "tokenizer.ggml.tokens")->arr.n, 300ul);
    gguf_close(g);
    gguf_close(h);
    end_test();
}

static void impossible_shapes_are_refused(void)
{
    struct synth s;
    struct err e = { 0 };

    begin_test();
#define REFUSED(change, says)                                                                      \
    do {                                                                                           \
        synth_preset(&s, "tiny");                                                                  \
        change;                                                                                    \
        EXPECT_EQ(synth_write(&s, path, &e), -1);                                                  \
        EXPECT(e.code == ERR_INVALID && strstr(e.msg, says));                                      \
    } while (0)
    REFUSED(s.n_heads = 3, "3 heads");
    REFUSED(s.n_layers = 0, "every size");
    REFUSED(s.head_dim = 33, "odd");
    REFUSED(s.n_vocab = 100, "generated vocabulary");
    REFUSED(s.arch = "gpt9", "'gpt9'");
    REFUSED(s.type = Q_I8, "cannot be generated");
#undef REFUSED
    EXPECT(!synth_preset(&s, "nothing"));
    end_test();
}

TESTS(TEST(weights_have_the_deviation_asked_for), TEST(a_block_does_not_depend_on_its_neighbours),
    TEST(every_family_has_its_tensors), TEST(the_seed_decides_the_bytes),
    TEST(rows_of_odd_size_use_a_fitting_type),
    TEST(mixed_files_use_finer_types_in_sensitive_layers), TEST(synthetic_vocabularies_work),
    TEST(vocabulary_can_be_copied_from_a_file), TEST(impossible_shapes_are_refused))
