/* Tokenizer: small vocabularies of known tokens, hostile vocabularies, and the spans that may
 * produce special tokens. */
#include "support/text_kit.h"

#include "base/rng.h"
#include "base/utf8.h"
#include "tokenizer/merge.h"

#define EXPECT_IDS(tokens, ...)                                                                    \
    do {                                                                                           \
        const int32_t want_[] = { __VA_ARGS__ };                                                   \
        expect_ids(tokens, want_, ARRAY_LEN(want_), __LINE__);                                     \
    } while (0)

static void expect_ids(struct tokens t, const int32_t *want, size_t n, int line)
{
    bool ok = t.n == n && !memcmp(t.ids, want, n * sizeof(*want));

    if (!ok) {
        fprintf(stderr, "line %d: got", line);
        for (size_t i = 0; i < t.n; i++)
            fprintf(stderr, " %d", t.ids[i]);
        fprintf(stderr, "\n");
    }
    kit_free_tokens(&t);
    EXPECT(ok);
}

/* ---- a BPE vocabulary: bytes 0..255, then */
enum { LO = 256, LOW, ER, LOWER, SP_L, SP_LO, HE, CTRL, CTRL_LONG, TOOL, NL3, UNUSED, UNK, N_BPE };

static struct vocab *bpe(const char *pre)
{
    static struct kit_vocab k;
    struct gguf_writer *w = gguf_writer_new(0);
    struct vocab *v = NULL;
    struct err e = { 0 };

    k = (struct kit_vocab){ 0 };
    kit_add_bytes(&k, true);
    kit_add_merge(&k, "l o", "lo");
    kit_add_merge(&k, "lo w", "low");
    kit_add_merge(&k, "e r", "er");
    kit_add_merge(&k, "low er", "lower");
    kit_add_merge(&k, "\xC4\xA0 l", "\xC4\xA0l");
    kit_add_merge(&k, "\xC4\xA0l o", "\xC4\xA0lo");
    kit_add_merge(&k, "h e", "he");
    kit_add_token(&k, "<|x|>", TOKEN_CONTROL);
    kit_add_token(&k, "<|x|>yz", TOKEN_CONTROL);
    kit_add_token(&k, "<tool>", TOKEN_USER_DEFINED);
    kit_add_token(&k, "\n\n\n", TOKEN_USER_DEFINED);
    kit_add_token(&k, "abc", TOKEN_UNUSED);
    kit_add_token(&k, "<unk>", TOKEN_UNKNOWN);
    EXPECT_EQ(k.n, (size_t)N_BPE);
    gguf_put_str(w, "tokenizer.ggml.pre", str_of(pre));
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", CTRL);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", CTRL_LONG);
    if (kit_make_vocab(&v, &k, "gpt2", w, &e))
        fprintf(stderr, "%s\n", e.msg);
    EXPECT(v);
    return v;
}

static void bpe_merges_by_rank(void)
{
    struct vocab *v = bpe("gpt-2");

    EXPECT_STR(vocab_kind(v), "bpe");
    EXPECT_STR(vocab_pre(v), "gpt-2");
    EXPECT_IDS(kit_encode(v, STR("lower"), false), LOWER);
    EXPECT_IDS(kit_encode(v, STR("lowe"), false), LOW, 'e');
    EXPECT_IDS(kit_encode(v, STR("her"), false), 'h', ER); /* "er" has a better rank than "he" */
    EXPECT_IDS(kit_encode(v, STR(" lo"), false), ' ', LO);
    EXPECT_IDS(kit_encode(v, STR("lolo"), false), LO, LO);
    struct tokens none = kit_encode(v, STR(""), true);
    EXPECT_EQ(none.n, 0ul);
    kit_free_tokens(&none);
    vocab_close(v);
}

/* kit_add_bytes adds bytes first, so their ids equal their values. */
static void ids_of_bytes(void)
{
    struct vocab *v = bpe("gpt-2");

    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        EXPECT(str_eq(vocab_bytes(v, b), (struct str){ &c, 1 }));
    }
    EXPECT(str_is(vocab_bytes(v, SP_LO), " lo"));
    EXPECT(str_is(vocab_text(v, SP_LO), "\xC4\xA0lo"));
    EXPECT(str_is(vocab_bytes(v, CTRL), "<|x|>"));
    EXPECT_EQ(vocab_bytes(v, UNUSED).n, 0ul);
    EXPECT(!vocab_bytes(v, N_BPE).p && !vocab_bytes(v, -1).p && !vocab_text(v, 1 << 30).p);
    EXPECT_EQ(vocab_find(v, STR("nothing")), TOKEN_NONE);
    EXPECT_EQ(vocab_find(v, STR("")), TOKEN_NONE);
    vocab_close(v);
}

static void only_trusted_spans_produce_special_tokens(void)
{
    struct vocab *v = bpe("gpt-2");
    struct str text = STR("<|x|>");
    struct tokens t;

    EXPECT_IDS(kit_encode(v, text, true), CTRL);
    EXPECT_IDS(kit_encode(v, STR("<|x|>yz"), true), CTRL_LONG); /* the longest */
    EXPECT_IDS(kit_encode(v, STR("<|x|>y"), true), CTRL, 'y');
    EXPECT_IDS(kit_encode(v, STR("<tool>"), true), TOOL);
    EXPECT_IDS(kit_encode(v, STR("<tool>"), false), '<', 't', 'o', 'o', 'l', '>');
    /* not a control token: matches everywhere */
    EXPECT_IDS(kit_encode(v, STR("a\n\n\nb"), false), 'a', NL3, 'b');
    EXPECT_IDS(kit_encode(v, STR("<unk>"), true), '<', 'u', 'n', 'k', '>');
    EXPECT_IDS(kit_encode(v, STR("abc"), true), 'a', 'b', 'c'); /* an unused token never matches */
    t = kit_encode(v, text, false);
    EXPECT_EQ(t.n, 5ul);
    kit_free_tokens(&t);
    for (size_t cut = 1; cut < text.n; cut++) { /* one untrusted byte prevents the match */
        struct span half[] = { { { text.p, cut }, true }, { str_skip(text, cut), false } };
        struct span other[] = { { { text.p, cut }, false }, { str_skip(text, cut), true } };
        struct span whole[] = { { { text.p, cut }, true }, { str_skip(text, cut), true } };
        EXPECT_IDS(kit_encode_spans(v, half, 2, false), '<', '|', 'x', '|', '>');
        EXPECT_IDS(kit_encode_spans(v, other, 2, false), '<', '|', 'x', '|', '>');
        EXPECT_IDS(kit_encode_spans(v, whole, 2, false), CTRL);
    }
    vocab_close(v);
}

static void spans_are_joined_between_special_tokens(void)
{
    struct vocab *v = bpe("gpt-2");
    struct span s[] = { { STR("lo"), false }, { STR(""), true }, { STR("wer"), true } };
    struct span t[] = { { STR("lo"), false }, { STR("<|x|>"), true }, { STR("wer"), false } };

    EXPECT_IDS(kit_encode_spans(v, s, 3, false), LOWER);
    EXPECT_IDS(kit_encode_spans(v, t, 3, false), LO, CTRL, 'w', ER);
    struct tokens none = kit_encode_spans(v, NULL, 0, false);
    EXPECT_EQ(none.n, 0ul);
    kit_free_tokens(&none);
    vocab_close(v);
}

/* Control token texts that BPE merges would form from user bytes if they were allowed to. */
static void no_merge_makes_a_control_token(void)
{
    static struct kit_vocab k;
    struct gguf_writer *w = gguf_writer_new(0);
    struct vocab *v = NULL;
    struct err e = { 0 };

    k = (struct kit_vocab){ 0 };
    kit_add_bytes(&k, true);
    kit_add_merge(&k, "e n", "en");
    kit_add_merge(&k, "en d", NULL);
    int32_t control = kit_add_token(&k, "end", TOKEN_CONTROL);
    gguf_put_str(w, "tokenizer.ggml.pre", STR("llama-bpe"));
    EXPECT_EQ(kit_make_vocab(&v, &k, "gpt2", w, &e), 0);
    EXPECT_IDS(kit_encode(v, STR("end"), true), control);
    EXPECT_IDS(kit_encode(v, STR("end"), false), 'e', 'n', 'd');
    vocab_close(v);
}

/* A merge may pass through a piece that is not a token; if that piece remains, it is encoded as
 * bytes. */
static void pieces_without_a_token_are_passed_through(void)
{
    static struct kit_vocab k;
    struct gguf_writer *w = gguf_writer_new(0);
    struct vocab *v = NULL;
    struct err e = { 0 };

    k = (struct kit_vocab){ 0 };
    kit_add_bytes(&k, true);
    kit_add_merge(&k, "a b", NULL);
    kit_add_merge(&k, "ab c", "abc");
    gguf_put_str(w, "tokenizer.ggml.pre", STR("gpt-2"));
    EXPECT_EQ(kit_make_vocab(&v, &k, "gpt2", w, &e), 0);
    EXPECT_IDS(kit_encode(v, STR("abc"), false), 256);
    EXPECT_IDS(kit_encode(v, STR("abd"), false), 'a', 'b', 'd');
    vocab_close(v);
}

static void ignore_merges_takes_whole_words(void)
{
    static struct kit_vocab k;
    static const char *const pres[] = { "llama-bpe", "gpt-2" };

    k = (struct kit_vocab){ 0 };
    kit_add_bytes(&k, true);
    int32_t whole = kit_add_token(&k, "word", TOKEN_NORMAL); /* no merge produces it */
    for (size_t i = 0; i < 2; i++) {
        struct gguf_writer *w = gguf_writer_new(0);
        struct vocab *v = NULL;
        struct err e = { 0 };
        gguf_put_str(w, "tokenizer.ggml.pre", str_of(pres[i]));
        EXPECT_EQ(kit_make_vocab(&v, &k, "gpt2", w, &e), 0);
        if (i == 0)
            EXPECT_IDS(kit_encode(v, STR("word"), false), whole);
        else
            EXPECT_IDS(kit_encode(v, STR("word"), false), 'w', 'o', 'r', 'd');
        vocab_close(v);
    }
}

/* ---- SPM */
enum { S_UNK, S_BOS, S_EOS, S_BYTES };
enum {
    S_BLANK = S_BYTES + 256,
    S_H,
    S_E,
    S_HE,
    S_BLANK_H,
    S_BLANK_HE,
    S_TWO,
    S_EACUTE,
    S_USER,
    N_SPM
};

static struct vocab *spm(bool prefix, bool squeeze)
{
    static struct kit_vocab k;
    struct gguf_writer *w = gguf_writer_new(0);
    struct vocab *v = NULL;
    struct err e = { 0 };

    k = (struct kit_vocab){ 0 };
    kit_add_token(&k, "<unk>", TOKEN_UNKNOWN);
    kit_add_token(&k, "<s>", TOKEN_CONTROL);
    kit_add_token(&k, "</s>", TOKEN_CONTROL);
    kit_add_bytes(&k, false);
    kit_add_scored(&k, "\xE2\x96\x81", -9);
    kit_add_scored(&k, "h", -10);
    kit_add_scored(&k, "e", -11);
    kit_add_scored(&k, "he", -2);
    kit_add_scored(&k, "\xE2\x96\x81h", -1);
    kit_add_scored(&k, "\xE2\x96\x81he", -5);
    kit_add_scored(&k, "\xE2\x96\x81\xE2\x96\x81", -3);
    kit_add_scored(&k, "\xC3\xA9", -12);
    kit_add_token(&k, "\n\n", TOKEN_USER_DEFINED);
    EXPECT_EQ(k.n, (size_t)N_SPM);
    gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", prefix);
    gguf_put_bool(w, "tokenizer.ggml.remove_extra_whitespaces", squeeze);
    EXPECT_EQ(kit_make_vocab(&v, &k, "llama", w, &e), 0);
    return v;
}

static void spm_merges_by_score(void)
{
    struct vocab *v = spm(true, false);

    EXPECT_STR(vocab_kind(v), "spm");
    EXPECT_STR(vocab_pre(v), "");
    EXPECT_IDS(kit_encode(v, STR("he"), false), S_BLANK_HE);
    EXPECT_IDS(kit_encode(v, STR("hehe"), false), S_BLANK_HE, S_HE);
    EXPECT_IDS(kit_encode(v, STR(" he"), false), S_BLANK, S_BLANK_HE);
    EXPECT_IDS(kit_encode(v, STR("e  h"), false), S_BLANK, S_E, S_BLANK, S_BLANK_H);
    EXPECT_IDS(kit_encode(v, STR("\xC3\xA9z"), false), S_BLANK, S_EACUTE, S_BYTES + 'z');
    EXPECT_IDS(kit_encode(v, STR("</s>"), true), S_EOS);
    EXPECT_IDS(kit_encode(v, STR("he</s>he"), true), S_BLANK_HE, S_EOS, S_BLANK_HE);
    /* A user-defined token does not end a text: no blank is inserted after it. */
    EXPECT_IDS(kit_encode(v, STR("he\n\nhe"), false), S_BLANK_HE, S_USER, S_HE);
    EXPECT_IDS(kit_encode(v, STR("\n\nhe"), false), S_USER, S_HE);
    EXPECT_IDS(kit_encode(v, STR("\xFF\xC3"), false), S_BLANK, S_BYTES + 255, S_BYTES + 0xC3);
    vocab_close(v);
}

static void spm_follows_the_flags_of_the_file(void)
{
    struct vocab *v = spm(false, false), *w = spm(true, true);
    struct span he = { STR("he"), false };

    EXPECT_IDS(kit_encode(v, STR("he"), false), S_HE);
    EXPECT_IDS(kit_encode_spans(v, &he, 1, true), S_BOS, S_HE);
    EXPECT_IDS(kit_encode(w, STR("  he   he "), false), S_BLANK_HE, S_BLANK_HE);
    vocab_close(v);
    vocab_close(w);
}

static void spm_drops_the_first_blank_again(void)
{
    struct vocab *v = spm(true, false), *plain = spm(false, false);
    const int32_t ids[] = { S_BLANK_HE, S_BLANK_HE };
    struct buf a = kit_decode(v, ids, 2), b = kit_decode(plain, ids, 2), c;
    struct detok going = { .has_begun = true };

    EXPECT(str_is(buf_str(&a), "he he"));
    EXPECT(str_is(buf_str(&b), " he he"));
    buf_init(&c, KB);
    detok_put(&going, v, S_BLANK_HE, false, &c);
    EXPECT(str_is(buf_str(&c), " he"));
    buf_clear(&a);
    buf_clear(&b);
    buf_clear(&c);
    vocab_close(v);
    vocab_close(plain);
}

/* ---- special tokens for begin and end */

static void special_token_ids_come_from_keys_and_names(void)
{
    static struct kit_vocab k;
    struct gguf_writer *w = gguf_writer_new(0);
    struct vocab *v = NULL;
    struct err e = { 0 };

    k = (struct kit_vocab){ 0 };
    kit_add_bytes(&k, true);
    int32_t by_name = kit_add_token(&k, "<|im_end|>", TOKEN_CONTROL);
    int32_t by_key = kit_add_token(&k, "<|stop|>", TOKEN_CONTROL);
    int32_t not_control = kit_add_token(&k, "</s>", TOKEN_NORMAL);
    int32_t other = kit_add_token(&k, "<|im_start|>", TOKEN_CONTROL);
    int32_t eos = kit_add_token(&k, "<e>", TOKEN_CONTROL);
    gguf_put_str(w, "tokenizer.ggml.pre", STR("qwen2"));
    gguf_put_u32(w, "tokenizer.ggml.eot_token_id", (uint32_t)by_key);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    /* none; some files write this value */
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", UINT32_MAX);
    gguf_put_i32(w, "tokenizer.ggml.eom_token_id", -1);
    EXPECT_EQ(kit_make_vocab(&v, &k, "gpt2", w, &e), 0);
    EXPECT(vocab_is_end(v, by_name) && vocab_is_end(v, by_key) && vocab_is_end(v, eos));
    EXPECT(!vocab_is_end(v, not_control) && !vocab_is_end(v, other));
    EXPECT(!vocab_is_end(v, -1) && !vocab_is_end(v, 1 << 30));
    EXPECT_EQ(vocab_bos(v), TOKEN_NONE);
    EXPECT_EQ(vocab_eos(v), eos);
    vocab_close(v);
}

/* ---- the detokenizer, cut at every token */

static void no_half_character_is_emitted(void)
{
    struct vocab *v = bpe("gpt-2");
    struct str text = STR("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z\xE2\x82\xAC");
    struct tokens t = kit_encode(v, text, false);
    struct detok d = { 0 };
    struct buf out;

    EXPECT_EQ(t.n, text.n); /* every byte is a token: the worst case */
    buf_init(&out, KB);
    for (size_t i = 0; i < t.n; i++) {
        size_t before = out.n;
        detok_put(&d, v, t.ids[i], false, &out);
        EXPECT(utf8_valid(str_skip(buf_str(&out), before)));
        EXPECT(str_starts(text, buf_str(&out)));
        EXPECT_EQ(out.n, utf8_complete((struct str){ text.p, i + 1 }));
    }
    detok_end(&d, &out);
    EXPECT(str_eq(buf_str(&out), text));
    buf_clear(&out);
    kit_free_tokens(&t);
    vocab_close(v);
}

/* Invalid bytes are decoded to replacement characters. Each byte is a separate token here. */
static void broken_bytes_become_replacement_characters(void)
{
    static const struct {
        const char *bytes, *text;
    } rows[] = {
        { "\xFF", "\xEF\xBF\xBD" },
        { "a\xC3z", "a\xEF\xBF\xBDz" },
        { "\xE2\x82z", "\xEF\xBF\xBDz" }, /* an incomplete character counts once */
        { "\xE2\x82", "\xEF\xBF\xBD" },
        { "\xF0\x9F\x98\xC3\xA9", "\xEF\xBF\xBD\xC3\xA9" },
        /* a surrogate: three replacement characters */
        { "\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD" },
        { "\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD" },
        { "\xF4\x90", "\xEF\xBF\xBD\xEF\xBF\xBD" },
        { "\xC3\xF0\x9F\x98\x80", "\xEF\xBF\xBD\xF0\x9F\x98\x80" },
    };
    struct vocab *v = bpe("gpt-2");

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int32_t ids[16];
        size_t n = strlen(rows[i].bytes);
        for (size_t k = 0; k < n; k++)
            ids[k] = (unsigned char)rows[i].bytes[k];
        struct buf out = kit_decode(v, ids, n);
        if (!str_is(buf_str(&out), rows[i].text))
            fprintf(stderr, "row %zu: " STR_FMT "\n", i, STR_ARG(buf_str(&out)));
        EXPECT(str_is(buf_str(&out), rows[i].text));
        buf_clear(&out);
    }
    vocab_close(v);
}

static void control_tokens_are_shown_only_on_request(void)
{
    struct vocab *v = bpe("gpt-2");
    struct detok d = { 0 };
    struct buf out;

    buf_init(&out, KB);
    detok_put(&d, v, CTRL, false, &out);
    detok_put(&d, v, LOW, false, &out);
    detok_put(&d, v, UNUSED, true, &out);
    detok_put(&d, v, 12345, true, &out);
    EXPECT(str_is(buf_str(&out), "low"));
    detok_put(&d, v, CTRL, true, &out);
    EXPECT(str_is(buf_str(&out), "low<|x|>"));
    buf_clear(&out);
    vocab_close(v);
}

/* ---- round trip */

static struct str random_text(struct rng *r, char *p, size_t n, bool is_valid)
{
    static const uint32_t tops[] = { 0x80, 0x80, 0x250, 0x3000, 0xFFFF, 0x110000 };
    size_t at = 0;

    while (at + 4 < n) {
        uint32_t cp = (uint32_t)rng_below(r, tops[rng_below(r, ARRAY_LEN(tops))]);
        if (!is_valid && rng_below(r, 4) == 0)
            p[at++] = (char)rng_next(r);
        else if (rng_below(r, 3) == 0)
            p[at++] = "lower he<|x|>\n\n\n"[rng_below(r, 15)];
        else if (cp < 0xD800 || cp > 0xDFFF)
            at += (size_t)utf8_encode(cp, p + at);
    }
    return (struct str){ p, at };
}

static void encoding_and_decoding_is_identity(void)
{
    struct vocab *all[] = { bpe("gpt-2"), bpe("llama-bpe"), bpe("qwen2"), bpe("deepseek-llm"),
        bpe("deepseek-coder"), bpe("smollm"), bpe("default"), spm(true, false), spm(false, false) };
    struct rng r = { .key = 77 };
    char text[256];

    printf("seed %llu\n", (unsigned long long)r.key);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        for (int round = 0; round < 300; round++) {
            struct str s = random_text(&r, text, 5 + rng_below(&r, sizeof(text) - 5), true);
            struct tokens t = kit_encode(all[i], s, false);
            struct buf back = kit_decode(all[i], t.ids, t.n);
            EXPECT(str_eq(buf_str(&back), s));
            buf_clear(&back);
            for (size_t k = 0; k < t.n; k++)
                EXPECT(vocab_attr(all[i], t.ids[k]) != TOKEN_CONTROL);
            kit_free_tokens(&t);
        }
        vocab_close(all[i]);
    }
}

/* The bytes of the tokens equal the bytes of the text, also for invalid UTF-8. */
static void broken_text_keeps_its_bytes(void)
{
    struct vocab *v = bpe("llama-bpe");
    struct rng r = { .key = 78 };
    char text[128];

    for (int round = 0; round < 500; round++) {
        struct str s = random_text(&r, text, sizeof(text), false);
        struct tokens t = kit_encode(v, s, false);
        struct buf bytes;
        buf_init(&bytes, KB);
        for (size_t k = 0; k < t.n; k++)
            buf_puts(&bytes, vocab_bytes(v, t.ids[k]));
        EXPECT(str_eq(buf_str(&bytes), s));
        buf_clear(&bytes);
        kit_free_tokens(&t);
    }
    vocab_close(v);
}

/* ---- BPE compared with a simple reference */

static size_t reference_bpe(const struct vocab *v, struct str word, int32_t *ids)
{
    size_t n = word.n;

    for (size_t i = 0; i < n; i++)
        ids[i] = (unsigned char)word.p[i];
    for (;;) {
        uint32_t best = UINT32_MAX, rank;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            uint64_t pair = (uint64_t)ids[i] << 32 | (uint32_t)ids[i + 1];
            if (u64_map_get(v->merges, pair, &rank) && rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == UINT32_MAX)
            return n;
        ids[at] = (int32_t)v->merged[best];
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof(*ids));
        n--;
    }
}

/* Random merges over three letters; words long enough to use every code path of merge.c. */
static struct vocab *random_merges(struct rng *r, char names[][40])
{
    static struct kit_vocab k;
    static char pairs[300][88];
    struct gguf_writer *w = gguf_writer_new(0);
    struct vocab *v = NULL;
    struct err e = { 0 };
    size_t n = 3;

    k = (struct kit_vocab){ 0 };
    kit_add_bytes(&k, true);
    for (size_t i = 0; i < 3; i++)
        snprintf(names[i], 40, "%c", (char)('a' + i));
    for (size_t i = 0; i < 60; i++) {
        char a[40], b[40];
        memcpy(a, names[rng_below(r, n)], 40);
        memcpy(b, names[rng_below(r, n)], 40);
        if (strlen(a) + strlen(b) > 16)
            continue;
        snprintf(pairs[i], sizeof(pairs[i]), "%s %s", a, b);
        snprintf(names[n], 40, "%.16s%.16s", a, b);
        kit_add_merge(&k, pairs[i], names[n]); /* pairs and texts may be duplicated */
        n++;
    }
    gguf_put_str(w, "tokenizer.ggml.pre", STR("gpt-2"));
    EXPECT_EQ(kit_make_vocab(&v, &k, "gpt2", w, &e), 0);
    return v;
}

static void merging_agrees_with_its_definition(void)
{
    static char names[128][40];
    struct rng r = { .key = 4 };

    printf("seed %llu\n", (unsigned long long)r.key);
    for (int round = 0; round < 60; round++) {
        struct vocab *v = random_merges(&r, names);
        struct merge m = { 0 };
        merge_enable_memo(&m, round % 2 ? MERGE_MEMO_FROM : MERGE_MEMO_FROM - 1);
        EXPECT_EQ(m.memo != NULL, round % 2);
        for (int k = 0; k < 20; k++) {
            char word[600];
            int32_t want[600];
            size_t n = 1 + rng_below(&r, k < 15 ? 40 : sizeof(word) - 1), got = 0;
            bool is_run = rng_below(&r, 4) == 0;
            for (size_t i = 0; i < n; i++)
                word[i] = (char)('a' + (is_run ? 0 : rng_below(&r, 3)));
            size_t n_want = reference_bpe(v, (struct str){ word, n }, want);
            EXPECT_EQ(merge_word(&m, v, (struct str){ word, n }), 0);
            for (int32_t i = 0; i >= 0; i = m.symbols[i].next, got++)
                EXPECT(got < n_want && m.symbols[i].id == want[got]);
            EXPECT_EQ(got, n_want);
        }
        merge_clear(&m);
        vocab_close(v);
    }
}

/* ---- cost */

static uint64_t steps_for(const struct vocab *v, const char *piece, size_t n)
{
    struct merge m = { 0 };
    size_t len = strlen(piece);
    char *p = xmalloc(n * len);

    for (size_t i = 0; i < n; i++)
        memcpy(p + i * len, piece, len);
    EXPECT_EQ(merge_word(&m, v, (struct str){ p, n * len }), 0);
    uint64_t steps = m.n_steps;
    merge_clear(&m);
    mem_free(p);
    return steps;
}

/* At most n log n: ten times as much text may take ten times as many steps plus a third. */
static void long_words_are_nearly_linear(void)
{
    static char names[128][40];
    static const char *const pieces[] = { "a", "ab", "abc", "aab", "\xF0\x9F\x98\x80" };
    struct rng r = { .key = 5 };

    for (int round = 0; round < 10; round++) {
        struct vocab *v = random_merges(&r, names);
        for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
            uint64_t few = steps_for(v, pieces[i], 4000), many = steps_for(v, pieces[i], 40000);
            EXPECT(many <= few * 14 + 100);
        }
        vocab_close(v);
    }
}

static void a_word_beyond_the_limit_is_refused(void)
{
    struct vocab *v = bpe("gpt-2");
    size_t n = (size_t)MERGE_MAX_WORD + 1;
    char *p = xmalloc(n);
    struct tokens t = { .arena = arena_new(64 * MB) };
    struct err e = { 0 };

    memset(p, 'a', n);
    EXPECT_EQ(vocab_encode(v, &(struct span){ { p, n }, false }, 1, false, &t, &e), -1);
    EXPECT(e.code == ERR_TOO_LARGE);
    kit_free_tokens(&t);
    t.arena = arena_new(KB); /* also with an arena too small for the tokens */
    EXPECT_EQ(vocab_encode(v, &(struct span){ { p, 4000 }, false }, 1, false, &t, &e), -1);
    EXPECT(e.code == ERR_MEMORY);
    kit_free_tokens(&t);
    mem_free(p);
    vocab_close(v);
}

/* ---- hostile files */

static void expect_refused(
    const struct kit_vocab *k, const char *model, struct gguf_writer *w, const char *says)
{
    struct vocab *v = NULL;
    struct err e = { 0 };

    EXPECT_EQ(kit_make_vocab(&v, k, model, w, &e), -1);
    if (!strstr(e.msg, says))
        fprintf(stderr, "got: %s\nwant: %s\n", e.msg, says);
    EXPECT(strstr(e.msg, says));
}

static void damaged_vocabularies_are_named(void)
{
    static struct kit_vocab k, bad;
    static const char *const bytes[] = { "<0x-1>", "<0x1>", "<0xGG>", "<0x100>", "x", "<0x00" };
    struct gguf_writer *w;

    k = (struct kit_vocab){ 0 };
    kit_add_bytes(&k, true);
    expect_refused(&k, "bert", gguf_writer_new(0), "vocabulary type 'bert'");
    expect_refused(&k, "a\nb", gguf_writer_new(0), "vocabulary type 'a?b'");
    w = gguf_writer_new(0);
    gguf_put_str(w, "tokenizer.ggml.pre", STR("martian"));
    expect_refused(&k, "gpt2", w, "pre-tokenizer 'martian'");
    w = gguf_writer_new(0);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 256);
    expect_refused(&k, "gpt2", w, "bos_token_id is not a token id: the vocabulary has 256");
    w = gguf_writer_new(0);
    gguf_put_i32(w, "tokenizer.ggml.eot_token_id", -2);
    expect_refused(&k, "gpt2", w, "eot_token_id is not a token id");
    bad = k;
    bad.n = 0;
    expect_refused(&bad, "gpt2", gguf_writer_new(0), "tokens is empty");
    bad = k;
    bad.types[7] = 9;
    expect_refused(&bad, "gpt2", gguf_writer_new(0), "token 7 has an unknown type");
    bad = k;
    bad.merges[bad.n_merges++] = STR("ab");
    expect_refused(&bad, "gpt2", gguf_writer_new(0), "merges: merge 0 is not a pair");
    for (size_t i = 0; i < ARRAY_LEN(bytes); i++) {
        bad = (struct kit_vocab){ 0 };
        kit_add_token(&bad, "a", TOKEN_NORMAL);
        kit_add_token(&bad, bytes[i], TOKEN_BYTE);
        expect_refused(&bad, "llama", gguf_writer_new(0), "byte token 1 is not written");
    }
    w = gguf_writer_new(0);
    char *text = xcalloc(1, 65537);
    memset(text, 'a', 65537);
    bad = k;
    bad.tokens[3] = (struct str){ text, 65537 };
    expect_refused(&bad, "gpt2", w, "token 3 has 65537 bytes, more than 65536");
    mem_free(text);
    bad = k;
    bad.scores[3] = __builtin_nanf("");
    expect_refused(&bad, "llama", gguf_writer_new(0), "score of token 3 is not a number");
}

static void arrays_must_agree(void)
{
    struct gguf *g = NULL;
    struct vocab *v = NULL;
    struct err e = { 0 };
    static const struct str tokens[] = { { "a", 1 }, { "b", 1 } };
    static const int32_t types[] = { 1, 1, 1 };
    struct buf b;

    for (int round = 0; round < 3; round++) {
        struct gguf_writer *w = gguf_writer_new(0);
        buf_init(&b, MB);
        gguf_put_str(w, "tokenizer.ggml.model", STR("llama"));
        if (round == 0)
            gguf_put_arr(w, "tokenizer.ggml.tokens", GGUF_I32, types, 3);
        if (round == 1)
            gguf_put_strs(w, "tokenizer.ggml.tokens", tokens, 2);
        gguf_put_arr(w, "tokenizer.ggml.token_type", GGUF_I32, types, 3);
        EXPECT_EQ(gguf_writer_header(w, &b, &e), 0);
        EXPECT_EQ(gguf_open_bytes(&g, (uint8_t *)b.p, b.n, &e), 0);
        EXPECT_EQ(vocab_open(&v, g, &e), -1);
        static const char *const says[] = { "of the wrong type", "3 entries for 2 tokens",
            "tokens is missing" };
        EXPECT(strstr(e.msg, says[round]));
        gguf_close(g);
        gguf_writer_free(w);
        buf_clear(&b);
    }
}

/* Duplicate texts: the last token is used; empty tokens exist and never match. */
static void duplicate_and_empty_tokens_are_tolerated(void)
{
    static struct kit_vocab k;
    struct gguf_writer *w = gguf_writer_new(0);
    struct vocab *v = NULL;
    struct err e = { 0 };

    k = (struct kit_vocab){ 0 };
    kit_add_bytes(&k, true);
    kit_add_merge(&k, "a b", "ab");
    kit_add_token(&k, "", TOKEN_NORMAL);
    int32_t last = kit_add_token(&k, "ab", TOKEN_NORMAL);
    EXPECT_EQ(kit_make_vocab(&v, &k, "gpt2", w, &e), 0);
    EXPECT_EQ(vocab_find(v, STR("ab")), last);
    EXPECT_IDS(kit_encode(v, STR("ab"), false), last);
    vocab_close(v);
}

/* Older files have no token types: tokens with the names of common control tokens become control
 * tokens. */
static void without_types_names_identify_control_tokens(void)
{
    static const struct str tokens[] = { { "a", 1 }, { "<|im_end|>", 10 } };
    struct gguf_writer *w = gguf_writer_new(0);
    struct gguf *g = NULL;
    struct vocab *v = NULL;
    struct err e = { 0 };
    struct buf b;

    buf_init(&b, MB);
    gguf_put_str(w, "tokenizer.ggml.model", STR("gpt2"));
    gguf_put_strs(w, "tokenizer.ggml.tokens", tokens, 2);
    gguf_put_strs(w, "tokenizer.ggml.merges", NULL, 0);
    EXPECT_EQ(gguf_writer_header(w, &b, &e), 0);
    EXPECT_EQ(gguf_open_bytes(&g, (uint8_t *)b.p, b.n, &e), 0);
    EXPECT_EQ(vocab_open(&v, g, &e), 0);
    EXPECT(vocab_attr(v, 1) == TOKEN_CONTROL && vocab_is_end(v, 1));
    EXPECT(vocab_attr(v, 0) == TOKEN_NORMAL);
    EXPECT_STR(vocab_pre(v), "default");
    vocab_close(v);
    gguf_close(g);
    gguf_writer_free(w);
    buf_clear(&b);
}

TESTS(TEST(bpe_merges_by_rank), TEST(ids_of_bytes), TEST(only_trusted_spans_produce_special_tokens),
    TEST(spans_are_joined_between_special_tokens), TEST(no_merge_makes_a_control_token),
    TEST(pieces_without_a_token_are_passed_through), TEST(ignore_merges_takes_whole_words),
    TEST(spm_merges_by_score), TEST(spm_follows_the_flags_of_the_file),
    TEST(spm_drops_the_first_blank_again), TEST(special_token_ids_come_from_keys_and_names),
    TEST(no_half_character_is_emitted), TEST(broken_bytes_become_replacement_characters),
    TEST(control_tokens_are_shown_only_on_request), TEST(encoding_and_decoding_is_identity),
    TEST(broken_text_keeps_its_bytes), TEST(merging_agrees_with_its_definition),
    TEST(long_words_are_nearly_linear), TEST(a_word_beyond_the_limit_is_refused),
    TEST(damaged_vocabularies_are_named), TEST(arrays_must_agree),
    TEST(duplicate_and_empty_tokens_are_tolerated),
    TEST(without_types_names_identify_control_tokens))
