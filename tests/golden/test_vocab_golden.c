/* Real vocabularies: token ids compared with those of the reference implementation. */
#include "support/text_kit.h"
#include "chat/family.h"

#define MARK "\n__ggml_vocab_test__\n"

/* Parses the ids of one line and consumes the line. */
static size_t ids_of_line(struct str *out, int32_t *ids, size_t max)
{
    size_t n = 0;
    uint64_t id;

    while (out->n && *out->p != '\n') {
        size_t len = 0;
        while (len < out->n && out->p[len] != ' ' && out->p[len] != '\n')
            len++;
        if (len) {
            EXPECT(n < max && str_to_u64((struct str){ out->p, len }, &id));
            ids[n++] = (int32_t)id;
        } else {
            len = 1;
        }
        *out = str_skip(*out, len);
    }
    *out = str_skip(*out, 1);
    return n;
}

static void print_ids(const char *what, const int32_t *ids, size_t n)
{
    fprintf(stderr, "  %s:", what);
    for (size_t i = 0; i < n; i++)
        fprintf(stderr, " %d", ids[i]);
    fprintf(stderr, "\n");
}

static bool expect_same_ids(const struct tokens *got, const int32_t *want, size_t n)
{
    return got->n == n && (n == 0 || !memcmp(got->ids, want, n * sizeof(*want)));
}

/* Each text gives the listed ids however it is cut into spans, and decodes to the same bytes. */
static bool check_text(const struct vocab *v, struct str text, const int32_t *want, size_t n)
{
    struct tokens got = kit_encode(v, text, false);
    bool ok = expect_same_ids(&got, want, n);
    struct buf back = kit_decode(v, got.ids, got.n);

    if (!ok) {
        fprintf(stderr, "text: '" STR_FMT "'\n", STR_ARG(text));
        print_ids("got ", got.ids, got.n);
        print_ids("want", want, n);
    }
    if (str_find(text, STR("\xE2\x96\x81")) < 0) /* it may stand for a blank */
        EXPECT(str_eq(buf_str(&back), text));
    for (size_t cut = 0; cut <= text.n; cut++) {
        struct span spans[] = { { { text.p, cut }, true }, { str_skip(text, cut), false } };
        struct tokens cut_up = kit_encode_spans(v, spans, 2, false);
        ok &= expect_same_ids(&cut_up, want, n);
        kit_free_tokens(&cut_up);
    }
    buf_clear(&back);
    kit_free_tokens(&got);
    return ok;
}

/* base.inp contains texts, base.out their tokens with the vocabulary of the file `path`. */
static void check_vocab_file(const char *path, const char *base, size_t n_least)
{
    char file[560];
    int32_t ids[4096];
    size_t n_texts = 0, n_wrong = 0;
    struct vocab *v = kit_open_vocab(path);

    snprintf(file, sizeof(file), "%s.inp", base);
    struct str inp = kit_read(file), at = inp;
    snprintf(file, sizeof(file), "%s.out", base);
    struct str out = kit_read(file), line = out;
    for (ptrdiff_t n; (n = str_find(at, STR(MARK))) >= 0; n_texts++) {
        struct str text = { at.p, (size_t)n };
        size_t n_ids = ids_of_line(&line, ids, ARRAY_LEN(ids));
        n_wrong += !check_text(v, text, ids, n_ids);
        at = str_skip(at, (size_t)n + sizeof(MARK) - 1);
    }
    printf("%s: %zu texts, %zu wrong\n", base, n_texts, n_wrong);
    EXPECT(n_texts >= n_least);
    EXPECT_EQ(n_wrong, 0ul);
    vocab_close(v);
    mem_free((void *)(uintptr_t)inp.p);
    mem_free((void *)(uintptr_t)out.p);
}

static void check_vocab(const char *name)
{
    char path[512], file[64];

    snprintf(file, sizeof(file), "vocab/ggml-vocab-%s.gguf", name);
    if (kit_data_path(path, file))
        check_vocab_file(path, path, 41);
}

/* The files are written by char_bpe.py. */
static void bpe_on_characters_is_exact(void)
{
    check_vocab_file("tests/golden/char_bpe.gguf", "tests/golden/char_bpe", 31);
}

static void gpt_2_is_exact(void)
{
    check_vocab("gpt-2");
}

static void llama_spm_is_exact(void)
{
    check_vocab("llama-spm");
}

static void deepseek_llm_is_exact(void)
{
    check_vocab("deepseek-llm");
}

static void wordpiece_is_rejected_by_name(void)
{
    char path[512];
    struct gguf *g = NULL;
    struct vocab *v = NULL;
    struct err e = { 0 };

    if (!kit_data_path(path, "vocab/ggml-vocab-bert-bge.gguf"))
        return;
    EXPECT_EQ(gguf_open(&g, path, &e), 0);
    EXPECT_EQ(vocab_open(&v, g, &e), -1);
    EXPECT(e.code == ERR_UNSUPPORTED && strstr(e.msg, "'bert'"));
    gguf_close(g);
}

/* A vocabulary file does not name its family; it is detected from the texts of its tokens. */
static const char *family_of(const char *path)
{
    struct vocab *v = kit_open_vocab(path);
    const struct chat_family *f = chat_family_of_vocab(v);

    vocab_close(v);
    return f ? f->name : "none";
}

static void families_are_detected_by_their_markers(void)
{
    static const struct {
        const char *file, *family;
    } rows[] = {
        { "vocab/ggml-vocab-gpt-2.gguf", "none" },
        { "vocab/ggml-vocab-llama-spm.gguf", "none" }, /* [INST] is plain text there, not a token */
        /* Base models: special tokens for begin and end, but no chat markers. */
        { "vocab/ggml-vocab-deepseek-llm.gguf", "none" },
        { "models/stories260K-f32.gguf", "none" },
    };
    char path[512];

    EXPECT_STR(family_of("models/demo.gguf"), "chatml");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (kit_data_path(path, rows[i].file))
            EXPECT_STR(family_of(path), rows[i].family);
}

/* A vocabulary with all markers of a family belongs to it; without one of them it belongs to
 * none. */
static void all_markers_are_needed_for_a_family(void)
{
    for (size_t i = 0; chat_family_at(i); i++) {
        const struct chat_family *f = chat_family_at(i);
        for (int n_missing = 0; f->markers && n_missing < 2; n_missing++) {
            struct kit_vocab k = { 0 };
            struct vocab *v;
            struct err e;
            kit_add_bytes(&k, true);
            for (const char *const *m = f->markers; *m; m++)
                if (m[1] || !n_missing)
                    kit_add_token(&k, *m, TOKEN_CONTROL);
            EXPECT_EQ(kit_make_vocab(&v, &k, "gpt2", gguf_writer_new(32), &e), 0);
            /* The markers of Qwen are those of ChatML; only the architecture distinguishes them. */
            const struct chat_family *got = chat_family_of_vocab(v);
            EXPECT(got == (n_missing ? NULL : f) ||
                   (!n_missing && got && got->source == f->source && !strcmp(f->name, "qwen")));
            vocab_close(v);
        }
    }
}

/* ---- lower bound of the number of tokens */

/* Checks the bound for the text, and for its two halves, which may meet in one token. */
static void expect_bound(const struct vocab *v, struct str text)
{
    struct tokens t = kit_encode(v, text, false);
    size_t least = vocab_min_tokens(v, text);

    EXPECT(least <= t.n);
    for (size_t cut = 0; cut <= text.n; cut += 1 + text.n / 16) {
        size_t a = vocab_min_tokens(v, (struct str){ text.p, cut });
        size_t b = vocab_min_tokens(v, str_skip(text, cut));
        EXPECT(a + b <= t.n + 1);
    }
    kit_free_tokens(&t);
}

static void expect_bounds(const struct vocab *v, const char *name)
{
    static const char *const words[] = { "word", " ", "  ", "\n", "=", "====", "\xC3\xA9t\xC3\xA9",
        "\xE2\x96\x81", "12345", "\xE4\xBD\xA0", "\xFF", "<s>", "\t", "a-b", "The", "." };
    uint64_t x = 7;

    for (int round = 0; round < 200; round++) {
        struct buf b;
        buf_init(&b, MB);
        for (int i = 0; i < round; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            buf_putz(&b, words[x >> 60]);
        }
        if (b.n)
            expect_bound(v, buf_str(&b));
        buf_clear(&b);
    }
    /* For plain words the bound is nearly exact. */
    struct str plain = STR("These are ten words, one after the other, with blanks.");
    EXPECT(vocab_min_tokens(v, plain) >= 10);
    EXPECT_EQ(vocab_min_tokens(v, STR("")), 0u);
    EXPECT_EQ(vocab_min_tokens(v, STR("  \n\t ")), 0u);
    printf("%s: at least %zu tokens in %zu bytes\n", name, vocab_min_tokens(v, plain), plain.n);
}

static void token_count_is_at_least_its_lower_bound(void)
{
    static const char *const files[] = { "vocab/ggml-vocab-deepseek-llm.gguf",
        "vocab/ggml-vocab-gpt-2.gguf", "vocab/ggml-vocab-llama-spm.gguf",
        "models/stories260K-f32.gguf" };
    char path[512];
    struct vocab *v = kit_open_vocab("models/demo.gguf");

    expect_bounds(v, "demo");
    vocab_close(v);
    v = kit_open_vocab("tests/golden/char_bpe.gguf");
    expect_bounds(v, "char_bpe");
    vocab_close(v);
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (kit_data_path(path, files[i])) {
            v = kit_open_vocab(path);
            expect_bounds(v, files[i]);
            vocab_close(v);
        }
}

TESTS(TEST(token_count_is_at_least_its_lower_bound), TEST(bpe_on_characters_is_exact),
    TEST(gpt_2_is_exact), TEST(families_are_detected_by_their_markers),
    TEST(all_markers_are_needed_for_a_family), TEST(llama_spm_is_exact),
    TEST(deepseek_llm_is_exact), TEST(wordpiece_is_rejected_by_name))
