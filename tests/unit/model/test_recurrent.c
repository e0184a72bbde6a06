/* Recurrent layers: refusals of files and records, sizes, and the content of state slots.
 * tests/golden/test_family_logits.c tests the results. */
#include "base/mem.h"
#include "format/gguf.h"
#include "model/llama.h"
#include "support/check.h"
#include "testing/synth.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_SETTINGS = 16 };

struct file {
    uint8_t *p;
    size_t n;
};

/* The bytes of a preset with one more setting, which replaces that of the same key; or NULL. */
static int make_file(struct file *f, const char *preset, const char *setting, struct err *e)
{
    char path[] = "/tmp/inferflux-recurrent-XXXXXX";
    const char *settings[MAX_SETTINGS];
    const size_t n_key = setting ? (size_t)(strchr(setting, '=') - setting) + 1 : 0;
    struct synth s;
    size_t n = 0;

    EXPECT(synth_preset(&s, preset));
    s.type = s.head_type = Q_F32;
    for (size_t i = 0; i < s.n_settings; i++)
        if (!setting || strncmp(s.settings[i], setting, n_key) != 0)
            settings[n++] = s.settings[i];
    if (setting)
        settings[n++] = setting;
    s.settings = settings;
    s.n_settings = n;
    *f = (struct file){ 0 };
    close(mkstemp(path));
    int rc = synth_write(&s, path, e);
    FILE *in = fopen(path, "rb");
    if (!rc) {
        fseek(in, 0, SEEK_END);
        f->n = (size_t)ftell(in);
        rewind(in);
        f->p = xmalloc(f->n);
        EXPECT_EQ(fread(f->p, 1, f->n, in), f->n);
    }
    fclose(in);
    unlink(path);
    return rc;
}

/* Replaces all occurrences of a text by one of the same length; returns their number. */
static int patch(struct file *f, const char *from, const char *to)
{
    const size_t n = strlen(from);
    int n_found = 0;

    EXPECT_EQ(n, strlen(to));
    for (uint8_t *p = f->p; (p = memmem(p, f->n - (size_t)(p - f->p), from, n)); p += n) {
        memcpy(p, to, n);
        n_found++;
    }
    return n_found;
}

static const char *packfile; /* argument of open_file; NULL: none */

static int open_file(struct lm **m, const struct file *f, uint32_t n_states, struct err *e)
{
    struct llama_options o = { .n_threads = 1,
        .n_pages = 4,
        .n_states = n_states,
        .max_rows = 32,
        .max_logits = 32,
        .packfile = packfile };
    struct gguf *g;

    if (gguf_open_bytes(&g, f->p, f->n, e))
        return -1;
    int rc = lm_open_llama(m, g, &o, e);
    gguf_close(g);
    return rc;
}

static void invalid_sizes_are_rejected_by_name(void)
{
    static const struct {
        const char *preset, *setting, *says;
    } rows[] = {
        { "tiny-qwen35", "ssm.conv_kernel=1", "ssm.conv_kernel = 1, supported are 2 to 4" },
        { "tiny-qwen35", "ssm.conv_kernel=5", "ssm.conv_kernel = 5" },
        { "tiny-qwen35", "ssm.state_size=0", "ssm.state_size = 0" },
        { "tiny-qwen35", "ssm.state_size=257", "ssm.state_size = 257" },
        { "tiny-qwen35", "ssm.group_count=0", "ssm.group_count = 0" },
        { "tiny-qwen35", "ssm.group_count=4", "ssm.time_step_rank = 6 is not divisible" },
        { "tiny-qwen35", "ssm.time_step_rank=1025", "ssm.time_step_rank = 1025" },
        { "tiny-qwen35", "ssm.inner_size=121",
            "ssm.inner_size = 121, expected 6 heads of 20 dimensions" },
        { "tiny-qwen35", "ssm.state_size=21",
            "ssm.inner_size = 120, expected 6 heads of 21 dimensions" },
        { "tiny-qwen35", "full_attention_interval=0", "full_attention_interval = 0" },
        { "tiny-qwen35", "full_attention_interval=9", "without attention layers" },
        { "tiny-qwen35", "attention.recurrent_layers=[1,1,0,0]",
            "expected one for each of 5 layers" },
        { "tiny-qwen35", "attention.recurrent_layers=[1,1,2,0,0]",
            "recurrent_layers = 2 in layer 2" },
        { "tiny-qwen35", "attention.recurrent_layers=[1,1,1,1,1]", "without attention layers" },
        { "tiny-qwen35", "nextn_predict_layers=5", "nextn_predict_layers" },
        { "tiny-olmo2", "attention.shared_kv_layers=1", "shared_kv_layers = 1, supported are 0" },
        { "tiny-lfm2", "shortconv.l_cache=1", "shortconv.l_cache = 1, supported are 2 to 4" },
        { "tiny-lfm2", "shortconv.l_cache=5", "shortconv.l_cache = 5" },
        { "tiny-lfm2", "attention.head_count_kv=[0,0,0,0,0]", "without attention layers" },
        { "tiny-lfm2", "attention.head_count_kv=[0,2]", "expected one for each of 5 layers" },
        { "tiny-lfm2", "attention.head_count_kv=[0,0,4,0,0]", "not divisible by 4 KV heads" },
        { "tiny-lfm2", "attention.head_count_kv=[0,0,2000,0,0]", "head_count_kv = 2000" },
        { "tiny-granitehybrid", "ssm.inner_size=190",
            "ssm.inner_size = 190, expected 8 heads of 23 dimensions" },
        { "tiny-granitehybrid", "ssm.inner_size=7",
            "ssm.inner_size = 7, expected 8 heads of 0 dimensions" },
        { "tiny-granitehybrid", "ssm.inner_size=2056",
            "ssm.inner_size = 2056: heads of 257 dimensions, supported are up to 256" },
        { "tiny-granitehybrid", "ssm.group_count=3", "ssm.time_step_rank = 8 is not divisible" },
        { "tiny-granitehybrid", "attention.head_count_kv=0", "without attention layers" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct file f;
        struct err e;
        EXPECT(make_file(&f, rows[i].preset, rows[i].setting, &e));
        if (!strstr(e.msg, rows[i].says)) {
            fprintf(stderr, "%s: %s\n", rows[i].setting, e.msg);
            fail();
        }
    }
}

/* Layers for drafts follow the others, and their tensors are not loaded. */
static void draft_layers_are_not_loaded(void)
{
    struct file f;
    struct lm *m;
    struct err e;

    EXPECT(!make_file(&f, "tiny-qwen35", "nextn_predict_layers=0", &e));
    EXPECT(!open_file(&m, &f, 2, &e));
    const size_t state_bytes = m->state_bytes;
    const uint64_t n_params = m->n_params;
    EXPECT_EQ(m->n_layers, 5);
    m->ops->close(m);
    uint8_t *key = memmem(f.p, f.n, "nextn_predict_layers", 20);
    key[20 + sizeof(uint32_t)] = 1; /* the value follows its type */
    EXPECT(!open_file(&m, &f, 2, &e));
    EXPECT_EQ(m->n_layers, 4);
    EXPECT_EQ(m->state_bytes, state_bytes / 4 * 3); /* the last layer was recurrent */
    EXPECT(m->n_params < n_params);
    m->ops->close(m);
    /* The digest of a packfile contains the tensors that are not loaded. */
    packfile = "/nonexistent/model.pack";
    EXPECT(!open_file(&m, &f, 2, &e));
    EXPECT(m->n_layers == 4);
    m->ops->close(m);
    packfile = NULL;
    mem_free(f.p);
}

static void either_form_of_the_inputs_is_required(void)
{
    static const struct {
        const char *preset, *from, *to;
    } rows[] = {
        { "tiny-qwen3next", "blk.1.attn_gate", "blk.3.attn_gate" },
        { "tiny-qwen3next", "blk.0.attn_qkv", "blk.3.attn_qkv" },
        { "tiny-qwen3next-fused", "blk.2.ssm_in", "blk.3.ssm_in" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct file f;
        struct lm *m;
        struct err e;
        EXPECT(!make_file(&f, rows[i].preset, NULL, &e));
        EXPECT(!open_file(&m, &f, 2, &e));
        m->ops->close(m);
        EXPECT_EQ(patch(&f, rows[i].from, rows[i].to), 1); /* to a layer with attention */
        EXPECT(open_file(&m, &f, 2, &e));
        if (!strstr(e.msg, "either tensors blk.") || !strstr(e.msg, rows[i].from)) {
            fprintf(stderr, "%s: %s\n", rows[i].from, e.msg);
            fail();
        }
        mem_free(f.p);
    }
}

/* Only attention layers have keys and values in the pages. */
static void pages_contain_attention_layers_only(void)
{
    size_t bytes[3];

    for (int i = 0; i < 3; i++) {
        static const char *const intervals[] = { "full_attention_interval=5",
            "full_attention_interval=2", "full_attention_interval=1" };
        struct file f;
        struct gguf *g;
        struct llama_needs needs;
        struct err e;
        EXPECT(!make_file(&f, "tiny-qwen35", intervals[i], &e));
        EXPECT(!gguf_open_bytes(&g, f.p, f.n, &e));
        EXPECT(!llama_needs(&needs, g, KV_F16, &e));
        bytes[i] = needs.page_bytes;
        EXPECT_EQ(needs.state_bytes > 0, i < 2);
        gguf_close(g);
        mem_free(f.p);
    }
    EXPECT_EQ(bytes[1], 2 * bytes[0]);
    EXPECT_EQ(bytes[2], 5 * bytes[0]);
}

static struct lm *open_tiny(const char *preset)
{
    struct file f;
    struct lm *m;
    struct err e;

    EXPECT(!make_file(&f, preset, NULL, &e));
    EXPECT(open_file(&m, &f, 1, &e));
    EXPECT(strstr(e.msg, "at least two state slots"));
    EXPECT(!open_file(&m, &f, 4, &e));
    mem_free(f.p);
    return m;
}

static void run(struct lm *m, int pos, int n, state_id from, state_id to)
{
    page_id pages[32]; /* repeated pages change the keys of all runs in the same way */
    int32_t tokens[32];
    struct lm_run r = {
        .tokens = tokens, .n = n, .pos = pos, .pages = pages, .state = from, .state_out = to
    };

    for (int i = 0; i < (int)ARRAY_LEN(pages); i++)
        pages[i].i = (uint32_t)i % m->n_pages;
    for (int i = 0; i < n; i++)
        tokens[i] = (pos + i) * 7 % m->n_vocab;
    EXPECT(m->ops->forward(m, &r, 1, NULL));
}

/* The record of a slot contains nothing of the sequences that used the slot before. */
static void expect_clean_records(const char *preset)
{
    struct lm *m = open_tiny(preset);
    uint8_t *a = xmalloc(m->state_bytes), *b = xmalloc(m->state_bytes);

    for (int n = 1; n <= 12; n++) {
        memset(a, 0xa5, m->state_bytes);
        run(m, 0, n, STATE_NONE, (state_id){ 0 });
        m->ops->read_state(m, (state_id){ 0 }, a);
        run(m, 0, 31, STATE_NONE, (state_id){ 1 }); /* another sequence in the slot before */
        run(m, 0, n, STATE_NONE, (state_id){ 1 });
        m->ops->read_state(m, (state_id){ 1 }, b);
        EXPECT(!memcmp(a, b, m->state_bytes));
    }
    mem_free(a);
    mem_free(b);
    m->ops->close(m);
}

static void a_record_depends_on_its_sequence_only(void)
{
    expect_clean_records("tiny-qwen35");
    expect_clean_records("tiny-lfm2");
    expect_clean_records("tiny-granitehybrid");
}

/* A record resumes at the positions of its log and nowhere else; a damaged one is refused, and the
 * slot can be used afterwards. */
static void records_that_cannot_resume_are_refused(void)
{
    const state_id from = { 0 }, to = { 1 };
    struct lm *m = open_tiny("tiny-qwen35");
    uint8_t *record = xmalloc(m->state_bytes);
    const size_t layer_bytes = m->state_bytes / 4; /* a quarter: there are four recurrent layers */

    run(m, 0, 20, STATE_NONE, from); /* base 12, eight rows */
    m->ops->read_state(m, from, record);
    for (int pos = -1; pos < 25; pos++)
        EXPECT_EQ(m->ops->write_state(m, to, record, pos), pos >= 12 && pos <= 20 ? 12 : -1);
    for (size_t layer = 0; layer < 4; layer++)
        for (size_t field = 0; field < 2; field++) {
            static const int32_t bad[] = { -1, INT32_MIN, INT32_MAX, 21, 9 };
            uint8_t *at = record + layer * layer_bytes + field * sizeof(int32_t);
            for (size_t i = 0; i < ARRAY_LEN(bad) - !field; i++) { /* base 9 is a valid one */
                memcpy(at, &bad[i], sizeof(bad[i]));
                EXPECT_EQ(m->ops->write_state(m, to, record, 20), -1);
                m->ops->read_state(m, to, record); /* the slot is cleared */
                m->ops->read_state(m, from, record);
            }
        }
    EXPECT_EQ(m->ops->write_state(m, to, record, 18), 12);
    run(m, 18, 3, to, to);
    mem_free(record);
    m->ops->close(m);
}

TESTS(TEST(invalid_sizes_are_rejected_by_name), TEST(draft_layers_are_not_loaded),
    TEST(either_form_of_the_inputs_is_required), TEST(pages_contain_attention_layers_only),
    TEST(a_record_depends_on_its_sequence_only), TEST(records_that_cannot_resume_are_refused))
