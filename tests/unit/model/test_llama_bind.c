/* Loading a model file whose tensors or keys do not form the declared network fails with a
 * one-line error that names the cause. */
#include "support/check.h"
#include "model/llama.h"
#include "support/tiny.h"

/* Opens the model; returns the error message, "" if there is none. */
static const char *load_error(const struct tiny_model *t)
{
    static struct err e;
    struct llama_options o = { .n_threads = 1, .n_pages = 2, .max_rows = 4 };
    struct gguf *g = tiny_open(t);
    struct lm *m;

    EXPECT(g);
    e = (struct err){ 0 };
    if (lm_open_llama(&m, g, &o, &e)) {
        EXPECT(e.code != ERR_NONE && e.msg[0] && !strchr(e.msg, '\n'));
    } else {
        EXPECT(e.code == ERR_NONE);
        m->ops->close(m);
    }
    gguf_close(g);
    return e.msg;
}

static void expect_load_error(const struct tiny_model *t, const char *what, const char *also)
{
    const char *got = load_error(t);
    if (strstr(got, what) && strstr(got, also))
        return;
    fprintf(stderr, "expected '%s' and '%s' in: %s\n", what, also, got);
    fail();
}

static const char *name_of(enum tensor id, int layer)
{
    static char name[64];
    snprintf(name, sizeof(name), tensor_rows[id].name, layer);
    return name;
}

static bool is_in(const struct tiny_model *t, enum tensor id)
{
    struct gguf *g = tiny_open(t);
    bool found = gguf_tensor(g, name_of(id, 0));
    gguf_close(g);
    return found;
}

static struct tiny_model tiny_of(const char *arch)
{
    struct tiny_model t = tiny_default;
    t.arch = arch;
    t.is_untied = t.has_factors = true;
    t.experts = strcmp(arch, "qwen3moe") ? 0 : 5;
    t.experts_used = MIN(t.experts, 2);
    return t;
}

static const char *const archs[] = { "llama", "qwen2", "qwen3", "qwen3moe" };

/* ---- tensors */

static void whole_models_open(void)
{
    for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
        struct tiny_model t = tiny_of(archs[i]);
        EXPECT_STR(load_error(&t), "");
    }
}

static void every_missing_tensor_is_named(void)
{
    for (size_t i = 0; i < ARRAY_LEN(archs); i++)
        for (int id = 0; id < N_TENSORS; id++) {
            struct tiny_model t = tiny_of(archs[i]);
            if (!is_in(&t, (enum tensor)id))
                continue;
            t.drop = name_of((enum tensor)id, t.layers - 1);
            if (id == TENSOR_HEAD || id == TENSOR_ROPE_FREQS)
                EXPECT_STR(load_error(&t), ""); /* tied embeddings, or a separate output matrix */
            else
                expect_load_error(&t, t.drop, "missing");
        }
}

static void every_wrong_shape_is_named_with_both(void)
{
    for (size_t i = 0; i < ARRAY_LEN(archs); i++)
        for (int id = 0; id < N_TENSORS; id++) {
            struct tiny_model t = tiny_of(archs[i]);
            if (!is_in(&t, (enum tensor)id))
                continue;
            t.widen = name_of((enum tensor)id, t.layers - 1);
            expect_load_error(&t, t.widen, "expected [");
            expect_load_error(&t, "found [", "");
        }
}

static void every_type_that_is_not_served_is_named(void)
{
    for (int id = 0; id < N_TENSORS; id++) {
        struct tiny_model t = tiny_of("llama");
        if (!is_in(&t, (enum tensor)id))
            continue;
        bool is_vector = tensor_rows[id].rows == DIM_ONE;
        t.retype = name_of((enum tensor)id, 0);
        t.retype_to = is_vector ? Q_F16 : 9;
        expect_load_error(&t, t.retype, is_vector ? "F16" : "Q8_1");
    }
}

static void unknown_tensor_is_rejected(void)
{
    struct tiny_model t = tiny_of("llama");
    t.extra_tensor = "blk.0.ffn_gate.0.weight";
    expect_load_error(&t, t.extra_tensor, "is not expected in family");
    t.extra_tensor = "blk.0.ffn_gate_exps.weight"; /* expert tensors without an expert count */
    expect_load_error(&t, t.extra_tensor, "without experts");
    t.extra_tensor = "blk.7.attn_q.weight";
    expect_load_error(&t, t.extra_tensor, "2 layers");
    /* llama has no such tensor: ignoring it would compute a wrong result */
    t.extra_tensor = "blk.0.attn_q_norm.weight";
    expect_load_error(&t, t.extra_tensor, "is not expected in family");
    t.extra_tensor = "blk.00.attn_q.weight";
    expect_load_error(&t, t.extra_tensor, "is not expected in family");
    t.extra_tensor = "blk.12345.attn_q.weight";
    expect_load_error(&t, t.extra_tensor, "is not expected in family");
    t = tiny_of("qwen3moe");
    t.extra_tensor = "blk.0.ffn_up.weight";
    expect_load_error(&t, t.extra_tensor, "with experts");
}

static void tensor_names_round_trip(void)
{
    static const char *const strange[] = { "", "blk.", "blk.0", "blk.0.", "blk.x.attn_q.weight",
        "blk.-1.attn_q.weight", "blk.01.attn_q.weight", "token_embd.weight.", "blk.0.output.weight",
        "attn_q.weight", "token_embd.bias", "blk.0.attn_q.weight2" };
    enum tensor id;
    int layer;

    for (int t = 0; t < N_TENSORS; t++)
        for (int l = 0; l < MAX_LAYERS; l += 511) {
            EXPECT(tensor_parse(str_of(name_of((enum tensor)t, l)), &id, &layer));
            EXPECT((int)id == t);
            EXPECT_EQ(layer, t < TENSOR_FIRST_OF_LAYER ? 0 : l);
        }
    for (size_t i = 0; i < ARRAY_LEN(strange); i++)
        EXPECT(!tensor_parse(str_of(strange[i]), &id, &layer));
    for (size_t i = 0; family_at(i); i++)
        EXPECT(family_find(str_of(family_at(i)->arch)) == family_at(i));
    EXPECT(!family_find(STR("llam")));
}

/* ---- hyper-parameters */

static void every_key_that_must_be_there_is_named(void)
{
    static const char *const keys[] = { "block_count", "embedding_length", "feed_forward_length",
        "attention.head_count", "context_length" };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        struct tiny_model t = tiny_of("llama");
        t.key = keys[i];
        t.value = -1;
        expect_load_error(&t, keys[i], "missing");
    }
}

static void out_of_range_numbers_are_rejected_by_name(void)
{
    static const struct {
        const char *key;
        int64_t value;
        const char *says;
    } rows[] = {
        { "block_count", 0, "block_count" },
        { "block_count", 1 << 20, "block_count" },
        { "block_count", 3, "blk.2." },
        { "embedding_length", 0, "embedding_length" },
        { "embedding_length", INT64_MAX, "embedding_length" },
        { "embedding_length", 65, "token_embd.weight" },
        { "feed_forward_length", 1LL << 40, "feed_forward_length" },
        { "feed_forward_length", 97, "ffn_gate" },
        { "attention.head_count", 0, "attention.head_count" },
        { "attention.head_count", 5, "not divisible" },
        { "attention.head_count", 1 << 30, "attention.head_count" },
        { "attention.head_count_kv", 0, "head_count_kv" },
        { "attention.head_count_kv", 3, "not divisible" },
        { "attention.head_count_kv", 8, "head_count_kv" },
        { "attention.key_length", 15, "must be even" },
        { "attention.key_length", 514, "key_length" },
        { "attention.value_length", 8, "value_length" },
        { "rope.dimension_count", 18, "dimension_count" },
        { "rope.dimension_count", 7, "must be even" },
        { "context_length", 0, "context_length" },
        { "context_length", 1LL << 33, "context_length" },
        { "vocab_size", 84, "vocab_size" },
        { "rope.freq_base", 0, "rope.freq_base" },
        { "attention.layer_norm_rms_epsilon", 0, "layer_norm_rms_epsilon" },
        { "expert_count", 8, "expert_used_count is missing" },
        { "expert_count", 1 << 20, "expert_count" },
        { "attention.causal", 0, "attention.causal" },
        { "attn_logit_softcapping", 10000000, "softcapping" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct tiny_model t = tiny_of("llama");
        t.key = rows[i].key;
        t.value = rows[i].value;
        expect_load_error(&t, rows[i].says, "");
    }
}

static void invalid_expert_counts_are_rejected_by_name(void)
{
    static const struct {
        const char *key;
        int64_t value;
        const char *says;
    } rows[] = {
        { "expert_count", 0, "expert_count is missing" },
        { "expert_count", -1, "expert_count is missing" },
        { "expert_count", 4, "ffn_gate_inp.weight" },
        { "expert_count", 1025, "expert_count" },
        { "expert_used_count", 0, "expert_used_count" },
        { "expert_used_count", 6, "expert_used_count" },
        { "expert_used_count", -1, "expert_used_count is missing" },
        { "expert_feed_forward_length", 100, "multiples of 16" },
        { "expert_feed_forward_length", 112, "ffn_gate_exps.weight" },
        { "expert_weights_scale", 10000000, "expert_weights_scale" },
        { "expert_gating_func", 4, "expert_gating_func" },
        { "expert_group_count", 2, "expert_group_used_count is missing" },
        { "expert_group_count", 3, "expert_group_count" },
        { "expert_shared_count", 1, "ffn_gate_shexp.weight" },
        { "expert_shared_count", 65, "expert_shared_count" },
        { "expert_shared_feed_forward_length", 1 << 21, "expert_shared_feed_forward_length" },
        { "leading_dense_block_count", 1, "blk.0.ffn_gate.weight" },
        { "leading_dense_block_count", 3, "leading_dense_block_count" },
        { "nextn_predict_layers", 1, "nextn_predict_layers" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct tiny_model t = tiny_of("qwen3moe");
        t.key = rows[i].key;
        t.value = rows[i].value;
        expect_load_error(&t, rows[i].says, "");
    }
    struct tiny_model t = tiny_of("qwen3");
    t.key = "expert_count";
    t.value = 8;
    expect_load_error(&t, "expert_count", "not supported");
}

static void unsupported_features_are_named(void)
{
    struct tiny_model t = tiny_of("llama");
    t.key_str = "llama.rope.scaling.type";
    t.str = "longrope";
    expect_load_error(&t, "longrope", "rope.scaling.type");

    t = tiny_of("mamba");
    expect_load_error(&t, "mamba", "llama, qwen2");
}

static void a_window_does_not_limit_the_context(void)
{
    struct tiny_model t = tiny_of("llama");
    struct llama_needs needs;
    struct err e;

    t.key = "attention.sliding_window";
    t.value = 100;
    struct gguf *g = tiny_open(&t);
    EXPECT(!llama_needs(&needs, g, KV_F16, &e));
    EXPECT_EQ(needs.n_ctx_train, t.ctx);
    EXPECT_EQ(needs.n_vocab, t.vocab);
    gguf_close(g);
}

/* ---- load progress */

struct progress_log {
    int n;
    double last;
};

static void on_progress(void *arg, double share)
{
    struct progress_log *h = arg;
    EXPECT(share > h->last && share <= 1);
    h->last = share;
    h->n++;
}

static void loading_reports_its_progress(void)
{
    struct progress_log progress_log = { 0 };
    struct tiny_model t = tiny_of("qwen3");
    struct llama_options o = {
        .n_threads = 2, .n_pages = 3, .progress = on_progress, .progress_arg = &progress_log
    };
    struct gguf *g = tiny_open(&t);
    struct lm *m;
    struct err e;
    struct llama_needs needs;

    EXPECT(!llama_needs(&needs, g, KV_F16, &e));
    EXPECT(!lm_open_llama(&m, g, &o, &e));
    EXPECT_EQ(progress_log.n, (int)gguf_n_tensors(g));
    EXPECT(progress_log.last == 1);
    EXPECT_EQ(m->n_vocab, t.vocab);
    EXPECT_EQ(m->n_ctx_train, t.ctx);
    EXPECT_EQ(m->n_pages, 3u);
    EXPECT_EQ(m->page_bytes, needs.page_bytes);
    uint64_t n_params = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        n_params += gguf_tensor_at(g, i)->dims[0] * gguf_tensor_at(g, i)->dims[1];
    EXPECT_EQ(m->n_params, n_params);
    EXPECT(m->weight_bytes >= n_params * 4);
    m->ops->close(m);
    gguf_close(g);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_OWN_MEMORY 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_OWN_MEMORY 0
#endif
#endif
#ifndef HAS_OWN_MEMORY
#define HAS_OWN_MEMORY 1
#endif

/* Value in kB of this field in /proc/self/status; 0 if there is none. */
static long status_kb(const char *name)
{
    char line[256];
    long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");

    while (f && fgets(line, sizeof(line), f))
        if (!strncmp(line, name, strlen(name)))
            kb = strtol(line + strlen(name), NULL, 10);
    if (f)
        fclose(f);
    return kb;
}

/* The peak memory while loading is the size of the weights, not of the file plus the weights. */
static void loading_holds_the_weights_only_once(void)
{
    struct tiny_model t = tiny_of("llama");
    struct llama_options o = { .n_threads = 2, .n_pages = 2, .max_rows = 8 };
    struct lm *m;
    struct err e;

    if (!HAS_OWN_MEMORY) {
        printf("skipped: a sanitizer's memory is not ours\n");
        return;
    }
    t.type = t.type_v = Q_F16;
    t.d = t.ff = 1024;
    t.layers = 6; /* about 40 MB, the largest tensor 2 MB */
    struct gguf *g = tiny_open(&t);
    long before = status_kb("VmRSS:");
    FILE *f = fopen("/proc/self/clear_refs", "w");
    bool can_reset = f && fputs("5", f) >= 0 && fflush(f) == 0;
    if (f)
        fclose(f);
    EXPECT(!lm_open_llama(&m, g, &o, &e));
    long peak = status_kb("VmHWM:") - before, weights = (long)(m->weight_bytes / 1024);
    printf("weights %ld kB, peak %ld kB more than before\n", weights, peak);
    EXPECT(weights > 30 * 1024);
    if (can_reset && before)
        EXPECT(peak < weights + 8 * 1024);
    else
        printf("skipped: the peak is not this test's own\n");
    m->ops->close(m);
    gguf_close(g);
}

static void options_out_of_range_are_refused(void)
{
    struct gguf *g = tiny_open(&tiny_default);
    const struct llama_options bad[] = { { .n_pages = 0 }, { .n_pages = 1, .max_rows = -1 },
        { .n_pages = 1, .max_rows = 1 << 20 }, { .n_pages = 1, .max_logits = -1 } };
    struct lm *m;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        EXPECT(lm_open_llama(&m, g, &bad[i], &e));
        EXPECT(e.code == ERR_RANGE);
    }
    gguf_close(g);
}

TESTS(TEST(whole_models_open), TEST(every_missing_tensor_is_named),
    TEST(every_wrong_shape_is_named_with_both), TEST(every_type_that_is_not_served_is_named),
    TEST(unknown_tensor_is_rejected), TEST(tensor_names_round_trip),
    TEST(every_key_that_must_be_there_is_named), TEST(out_of_range_numbers_are_rejected_by_name),
    TEST(invalid_expert_counts_are_rejected_by_name), TEST(unsupported_features_are_named),
    TEST(a_window_does_not_limit_the_context), TEST(loading_reports_its_progress),
    TEST(loading_holds_the_weights_only_once), TEST(options_out_of_range_are_refused))
