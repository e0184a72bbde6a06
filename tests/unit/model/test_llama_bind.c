/* Loading a model file whose tensors or keys do not form the declared network fails with a
 * one-line error that names the cause. */
#include "support/check.h"
#include "model/llama.h"
#include "testing/gguf_write.h"
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
    for (size_t i = CHECK_STRIDE > 1 ? ARRAY_LEN(archs) - 1 : 0; i < ARRAY_LEN(archs); i++)
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
    for (size_t i = CHECK_STRIDE > 1 ? ARRAY_LEN(archs) - 1 : 0; i < ARRAY_LEN(archs); i++)
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
    /* factors without a meaning, without their matrix, and with a wrong shape */
    t.extra_tensor = "blk.0.ffn_norm.scale";
    expect_load_error(&t, t.extra_tensor, "is not expected in family");
    t.extra_tensor = "blk.0.attn_qkv.scale";
    expect_load_error(&t, t.extra_tensor, "is not expected in family");
    t.extra_tensor = "blk.0.attn_qkv.input_scale";
    expect_load_error(&t, t.extra_tensor, "is not expected in family");
    t.extra_tensor = "blk.9.attn_q.scale";
    expect_load_error(&t, t.extra_tensor, "is not expected in family");
    t.extra_tensor = "blk.0.ffn_up.scale";
    expect_load_error(&t, t.extra_tensor, "expected F32 [1], found F32 [");
    t.extra_tensor = "blk.0.attn_k_b.scale"; /* llama has no latent attention */
    expect_load_error(&t, t.extra_tensor, "is not expected in family");
    t.extra_tensor = "blk.0.ffn_up.input_scale"; /* without effect on the result */
    EXPECT(!*load_error(&t));
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

/* ---- keys with a value for each layer */

enum { N_LAYERS = 6 };

struct layer_key { /* a key that replaces the one of the file */
    const char *tail;
    enum gguf_kind kind;
    size_t n; /* length of the array; 0: a number */
    uint64_t values[N_LAYERS + 1];
};

static void put_layer_key(struct gguf_writer *w, const struct layer_key *k)
{
    char key[96];
    uint32_t narrow[N_LAYERS + 1];
    uint8_t flags[N_LAYERS + 1];

    snprintf(key, sizeof(key), "gemma4.%s", k->tail);
    for (int i = 0; i <= N_LAYERS; i++) {
        narrow[i] = (uint32_t)k->values[i];
        flags[i] = (uint8_t)k->values[i];
    }
    if (!k->n)
        gguf_put_u64(w, key, k->values[0]);
    else
        gguf_put_arr(w, key, k->kind,
            k->kind == GGUF_BOOL  ? flags
            : k->kind == GGUF_I32 ? (const void *)narrow
                                  : (const void *)k->values,
            k->n);
}

/* Reads the hyper-parameters of a gemma4 file, in which one key is replaced. */
static int read_with_key(struct hparams *h, const struct layer_key *changed, struct err *e)
{
    static const struct layer_key keys[] = { { "block_count", 0, 0, { N_LAYERS } },
        { "context_length", 0, 0, { 512 } }, { "embedding_length", 0, 0, { 96 } },
        { "feed_forward_length", GGUF_I32, N_LAYERS, { 112, 112, 112, 112, 224, 224 } },
        { "attention.head_count", 0, 0, { 4 } },
        { "attention.head_count_kv", GGUF_I32, N_LAYERS, { 2, 1, 2, 1, 2, 1 } },
        { "attention.key_length", 0, 0, { 512 } }, { "attention.key_length_swa", 0, 0, { 32 } },
        { "rope.dimension_count_swa", 0, 0, { 32 } }, { "attention.sliding_window", 0, 0, { 30 } },
        { "attention.sliding_window_pattern", GGUF_BOOL, N_LAYERS, { 1, 0, 1, 0, 1, 0 } },
        { "attention.shared_kv_layers", 0, 0, { 2 } },
        { "embedding_length_per_layer_input", 0, 0, { 32 } } };
    struct gguf_writer *w = gguf_writer_new(0);
    struct gguf *g = NULL;
    struct buf header;

    buf_init(&header, MB);
    gguf_put_str(w, "general.architecture", STR("gemma4"));
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        put_layer_key(w, changed && !strcmp(changed->tail, keys[i].tail) ? changed : &keys[i]);
    EXPECT(!gguf_writer_header(w, &header, e));
    EXPECT(!gguf_open_bytes(&g, (const uint8_t *)header.p, header.n, e));
    int rc = hparams_read_keys(h, g, 307, e);
    gguf_close(g);
    buf_clear(&header);
    gguf_writer_free(w);
    return rc;
}

static void each_layer_has_its_own_shape(void)
{
    static struct hparams h;
    struct err e;

    EXPECT(!read_with_key(&h, NULL, &e));
    for (int i = 0; i < N_LAYERS; i++) {
        const struct layer_params *p = &h.layers[i];
        const bool has_window = i % 2 == 0;
        EXPECT_EQ(p->has_window, has_window);
        EXPECT_EQ(p->n_heads, 4);
        EXPECT_EQ(p->n_kv_heads, has_window ? 2 : 1);
        EXPECT_EQ(p->head_dim, has_window ? 32 : 512);
        EXPECT_EQ(p->d_ff, i < 4 ? 112 : 224);
        EXPECT_EQ(p->kv_layer, i < 4 ? i : i - 2);
        EXPECT_EQ(hparams_dim(&h, DIM_Q, i), 4 * p->head_dim);
        EXPECT(hparams_need(&h, TENSOR_K, i) == (i < 4 ? NEED_YES : NEED_UNUSED));
    }
    EXPECT_EQ(h.rope.n_rot, 512);
    EXPECT_EQ(h.window_rope.n_rot, 32);
    EXPECT_EQ(hparams_max_dim(&h, DIM_Q), 4 * 512);
    EXPECT_EQ(hparams_max_dim(&h, DIM_FF), 224);
}

/* Array lengths other than block_count, zero, and numbers above any sensible size, which no
 * conversion to int may turn into valid ones. */
static void invalid_layer_keys_are_rejected_by_name(void)
{
    const uint64_t big = 1ull << 31, wrap = (1ull << 32) + 2;
    const struct {
        struct layer_key key;
        const char *also;
    } rows[] = {
        { { "feed_forward_length", GGUF_I32, 5, { 112, 112, 112, 112, 112 } }, "has 5 values" },
        { { "feed_forward_length", GGUF_I32, 7, { 1, 1, 1, 1, 1, 1, 1 } }, "has 7 values" },
        { { "feed_forward_length", GGUF_I32, 6, { 112, 112, 0, 112, 112, 112 } }, "in layer 2" },
        { { "feed_forward_length", GGUF_U64, 6, { 112, 112, 112, big, 112, 112 } }, "in layer 3" },
        { { "feed_forward_length", GGUF_U64, 6, { wrap, 112, 112, 112, 112, 112 } }, "in layer 0" },
        { { "feed_forward_length", 0, 0, { 0 } }, "= 0" },
        { { "feed_forward_length", 0, 0, { big } }, "= 2147483648" },
        { { "attention.head_count", GGUF_I32, 5, { 4, 4, 4, 4, 4 } }, "has 5 values" },
        { { "attention.head_count", GGUF_I32, 6, { 4, 4, 4, 4, 4, 0 } }, "in layer 5" },
        { { "attention.head_count", GGUF_U64, 6, { 4, 4, wrap, 4, 4, 4 } }, "in layer 2" },
        { { "attention.head_count_kv", GGUF_I32, 1, { 2 } }, "has 1 values" },
        { { "attention.head_count_kv", GGUF_I32, 6, { 2, 1, 0, 1, 2, 1 } }, "in layer 2" },
        { { "attention.head_count_kv", GGUF_I32, 6, { 2, 1, 2, 8, 2, 1 } }, "in layer 3" },
        { { "attention.head_count_kv", GGUF_U64, 6, { 2, 1, big, 1, 2, 1 } }, "in layer 2" },
        { { "attention.sliding_window_pattern", GGUF_BOOL, 5, { 1, 0, 1, 0, 1 } }, "5 values" },
        { { "attention.key_length", 0, 0, { 514 } }, "2 to 512" },
        { { "attention.key_length_swa", 0, 0, { 514 } }, "2 to 512" },
        { { "attention.key_length_swa", 0, 0, { 0 } }, "= 0" },
        { { "rope.dimension_count_swa", 0, 0, { 34 } }, "2 to 32" },
        { { "attention.shared_kv_layers", 0, 0, { 6 } }, "0 to 5" },
        { { "attention.shared_kv_layers", 0, 0, { 5 } }, "no layer of its kind" },
        { { "attention.shared_kv_layers", 0, 0, { big } }, "= 2147483648" },
        { { "embedding_length_per_layer_input", 0, 0, { big } }, "= 2147483648" },
    };
    static struct hparams h;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        if (read_with_key(&h, &rows[i].key, &e) && strstr(e.msg, rows[i].key.tail) &&
            strstr(e.msg, rows[i].also))
            continue;
        fprintf(stderr, "row %zu: expected '%s' and '%s' in: %s\n", i, rows[i].key.tail,
            rows[i].also, e.msg);
        fail();
    }
}

/* A layer must have the KV heads of the layer whose keys it reads. */
static void shared_keys_have_the_same_heads(void)
{
    const struct layer_key key = { "attention.head_count_kv", GGUF_I32, 6, { 2, 1, 2, 1, 1, 1 } };
    static struct hparams h;
    struct err e;

    EXPECT(read_with_key(&h, &key, &e));
    EXPECT(strstr(e.msg, "layers 2 and 4 differ in the number of KV heads"));
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
    TEST(loading_holds_the_weights_only_once), TEST(each_layer_has_its_own_shape),
    TEST(invalid_layer_keys_are_rejected_by_name), TEST(shared_keys_have_the_same_heads),
    TEST(options_out_of_range_are_refused))
