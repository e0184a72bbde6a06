/* Loading a model with each allocation and thread start failing once, and with a file that is
 * truncated meanwhile: one error, no leak, nothing remains. */
#include "support/check.h"
#include "support/tiny.h"
#include "support/tmpdir.h"
#include "base/fault.h"
#include "format/model_file.h"
#include "model/llama.h"
#include "testing/hf_write.h"
#include "testing/synth.h"

#include <sys/stat.h>
#include <unistd.h>

enum { MAX_CALLS = 200, PAGE = 4096 };

/* Fails the nth call at a site while a model is loaded. Returns true if loading succeeded, that
 * is, if there are fewer than n calls. */
static bool opens_despite(enum fault_site site, uint64_t nth)
{
    struct llama_options o = { .n_threads = 3, .n_pages = 2, .max_rows = 4 };
    struct tiny_model t = tiny_default;
    struct err e = { 0 };
    struct lm *m;

    t.arch = "qwen3";
    struct gguf *g = tiny_open(&t);
    EXPECT(g);
    fault_arm(site, nth);
    int rc = lm_open_llama(&m, g, &o, &e);
    fault_arm(site, 0);
    if (rc == 0)
        m->ops->close(m);
    else
        EXPECT(e.code != ERR_NONE && e.msg[0]);
    gguf_close(g);
    return rc == 0;
}

static void fail_each_call(enum fault_site site, uint64_t least)
{
#ifndef TESTING
    printf("skipped: faults are compiled into test builds only\n");
    (void)site;
    (void)least;
#else
    uint64_t nth = 1;
    while (!opens_despite(site, nth)) {
        nth++;
        EXPECT(nth < MAX_CALLS);
    }
    printf("%d calls failed, one by one\n", (int)nth - 1);
    EXPECT(nth > least);
#endif
}

static void each_failed_allocation_is_an_error(void)
{
    fail_each_call(FAULT_ALLOC, 5);
}

static void each_failed_thread_is_an_error(void)
{
    fail_each_call(FAULT_THREAD, 2);
}

/* ---- families and formats */

static char folder[TMPDIR_NAME], gguf_path[TMPDIR_NAME + 16], hf_path[TMPDIR_NAME + 16],
    pack_path[TMPDIR_NAME + 16], weights_path[TMPDIR_NAME + 40];

/* Writes the model as a GGUF file, and with `o` as a directory as well. */
static void write_model(const char *preset, enum qtype type, const struct hf_write_options *o)
{
    struct synth s;
    struct gguf *g = NULL;
    struct err e = { 0 };

    tmpdir_make(folder);
    snprintf(gguf_path, sizeof(gguf_path), "%s/m.gguf", folder);
    snprintf(hf_path, sizeof(hf_path), "%s/hf", folder);
    snprintf(pack_path, sizeof(pack_path), "%s/pack", folder);
    snprintf(weights_path, sizeof(weights_path), "%s/model.safetensors", hf_path);
    EXPECT(synth_preset(&s, preset));
    s.type = type;
    s.head_type = Q_F16;
    if (s.n_experts && !strcmp(s.arch, "gemma4"))
        s.fuses_experts = o && !o->is_mlx;
    EXPECT(!synth_write(&s, gguf_path, &e));
    if (!o)
        return;
    EXPECT(!mkdir(hf_path, 0700) && !gguf_open(&g, gguf_path, &e));
    if (hf_write(g, hf_path, o, &e))
        fprintf(stderr, "%s: %s\n", preset, e.msg);
    EXPECT(e.code == ERR_NONE);
    gguf_close(g);
}

/* Opens the file or directory and loads the model; with `packfile` also its digest is computed. */
static int load(const char *path, bool has_packfile, struct err *e)
{
    struct llama_options o = { .n_threads = 2,
        .n_pages = 2,
        .n_states = 2,
        .max_rows = 4,
        .packfile = has_packfile ? pack_path : NULL };
    struct gguf *g = NULL;
    struct lm *m;

    if (model_file_open(&g, path, e))
        return -1;
    const int rc = lm_open_llama(&m, g, &o, e);
    if (!rc)
        m->ops->close(m);
    gguf_close(g);
    return rc;
}

/* Returns the number of allocations, each of which has failed once. */
static uint64_t fail_each_allocation(const char *path, bool has_packfile)
{
    for (uint64_t nth = 1;; nth++) {
        struct err e = { 0 };
        const uint64_t before = mem_failures();
        mem_fail_after(nth);
        const int rc = load(path, has_packfile, &e);
        mem_fail_after(0);
        if (mem_failures() == before) {
            EXPECT_EQ(rc, 0);
            return nth - 1;
        }
        if (rc != -1 || e.code != ERR_MEMORY)
            fprintf(stderr, "%s, allocation %llu: %s\n", path, (unsigned long long)nth, e.msg);
        EXPECT(rc == -1 && e.code == ERR_MEMORY && !strchr(e.msg, '\n'));
    }
}

static void each_family_survives_each_failed_allocation(void)
{
    uint64_t n = 0;

    for (size_t i = 0; synth_preset_name(i); i++) {
        if (strncmp(synth_preset_name(i), "tiny-", 5) != 0)
            continue;
        write_model(synth_preset_name(i), Q_Q4_0, NULL);
        n += fail_each_allocation(gguf_path, false);
        tmpdir_remove(folder);
    }
    printf("%llu allocations failed, one by one\n", (unsigned long long)n);
#ifdef TESTING
    EXPECT(n > 500);
#endif
}

/* A directory of Hugging Face or MLX. */
struct directory {
    const char *preset;
    enum qtype type;
    struct hf_write_options o;
};

static const struct directory directories[] = {
    { "tiny-qwen35moe", Q_BF16, { .n_shards = 2 } },
    { "tiny-gpt-oss", Q_MXFP4, { .n_shards = 1 } },
    { "tiny-deepseek2", Q_F32, { .n_shards = 1 } },
    { "tiny-deepseek2", Q_F16, { .is_mlx = true } },
    { "tiny-gemma4-e", Q_Q4_1, { .is_mlx = true } },
    { "tiny-granitehybrid-moe", Q_F32, { .n_shards = 1, .quant = HF_WRITE_FP8_ROWS } },
};

static void each_directory_survives_each_failed_allocation(void)
{
    for (size_t i = 0; i < ARRAY_LEN(directories); i++) {
        const struct directory *d = &directories[i];
        write_model(d->preset, d->type, &d->o);
        for (int has_packfile = 0; has_packfile < 2; has_packfile++) {
            uint64_t n = fail_each_allocation(hf_path, has_packfile);
#ifdef TESTING
            EXPECT(n > 60);
#endif
            (void)n;
        }
        tmpdir_remove(folder);
    }
}

/* ---- files that are truncated */

/* Truncates the file when the model is open, and loads it: an error, or the file is marked lost. */
static void load_truncated(const char *path, const char *file, off_t size)
{
    struct llama_options o = { .n_threads = 2, .n_pages = 2, .n_states = 2, .max_rows = 4 };
    struct gguf *g = NULL;
    struct lm *m;
    struct err e = { 0 };

    EXPECT(!model_file_open(&g, path, &e) && !truncate(file, size));
    if (!lm_open_llama(&m, g, &o, &e))
        m->ops->close(m);
    else
        EXPECT(e.msg[0] && !strchr(e.msg, '\n'));
    EXPECT(gguf_is_lost(g));
    gguf_close(g);
}

/* Each read beyond the end fails, from the n-th page on. */
static void truncate_at_each_page(const char *path, const char *file)
{
    struct stat st;
    char saved[sizeof(weights_path) + 8];

    EXPECT(!stat(file, &st));
    snprintf(saved, sizeof(saved), "%s.saved", file);
    EXPECT(!link(file, saved) && !unlink(file));
    const off_t step = MAX(st.st_size / PAGE / 40, (off_t)1) * PAGE;
    for (off_t size = 0; size < st.st_size - PAGE; size += step) {
        FILE *from = fopen(saved, "rb"), *to = fopen(file, "wb");
        char *p = xmalloc((size_t)st.st_size);
        EXPECT(from && to && fread(p, 1, (size_t)st.st_size, from) == (size_t)st.st_size);
        EXPECT(fwrite(p, 1, (size_t)st.st_size, to) == (size_t)st.st_size);
        EXPECT(!fclose(from) && !fclose(to));
        mem_free(p);
        load_truncated(path, file, size);
    }
}

static void a_file_that_is_truncated_is_known_as_lost(void)
{
    mapfile_catch_faults();
    for (size_t i = 0; i < ARRAY_LEN(directories); i++) {
        const struct directory *d = &directories[i];
        if (d->o.n_shards > 1 || !strcmp(d->preset, "tiny-gemma4-e"))
            continue; /* other file names; a table that is not read */
        write_model(d->preset, d->type, &d->o);
        truncate_at_each_page(hf_path, weights_path);
        truncate_at_each_page(gguf_path, gguf_path);
        tmpdir_remove(folder);
    }
}

TESTS(TEST(each_failed_allocation_is_an_error), TEST(each_failed_thread_is_an_error),
    TEST(each_family_survives_each_failed_allocation),
    TEST(each_directory_survives_each_failed_allocation),
    TEST(a_file_that_is_truncated_is_known_as_lost))
