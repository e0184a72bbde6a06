/* Failures from a path to tokens: the Nth allocation, for N = 1, 2, ... until none fails, and
 * failing system calls. Each failure gives one clear error and leaks nothing (address
 * sanitizer). */
#include "support/text_kit.h"

#include "base/fault.h"
#include "testing/synth.h"

#include <unistd.h>

static char model_path[] = "/tmp/inferflux-fault-gguf-XXXXXX";

/* Opens, encodes, closes; returns -1 with *e at the first failure. */
static int path_to_tokens(const char *path, struct err *e)
{
    static const struct span spans[] = { { { "<|im_start|>user\n", 17 }, true },
        { { "Hello, hello  world", 19 }, false } };
    struct gguf *g = NULL;
    struct vocab *v = NULL;
    struct tokens t = { .arena = arena_new(MB) };
    int rc = t.arena ? 0 : err_set(e, ERR_MEMORY, "no arena");

    rc = rc ? rc : gguf_open(&g, path, e);
    rc = rc ? rc : vocab_open(&v, g, e);
    rc = rc ? rc : vocab_encode(v, spans, 2, true, &t, e);
    EXPECT(rc || t.n > 3);
    vocab_close(v);
    gguf_close(g);
    arena_free(t.arena);
    return rc;
}

static uint64_t fail_each_allocation(const char *path)
{
    for (uint64_t nth = 1;; nth++) {
        struct err e = { 0 };
        uint64_t before = mem_failures();
        mem_fail_after(nth);
        int rc = path_to_tokens(path, &e);
        mem_fail_after(0);
        if (mem_failures() == before) {
            EXPECT_EQ(rc, 0);
            return nth - 1;
        }
        EXPECT_EQ(rc, -1);
        if (e.code != ERR_MEMORY)
            fprintf(stderr, "allocation %llu: %s\n", (unsigned long long)nth, e.msg);
        EXPECT(e.code == ERR_MEMORY && e.msg[0]);
    }
}

static void make_model(void)
{
    struct synth s;
    struct err e = { 0 };
    int fd = mkstemp(model_path);

    EXPECT(fd >= 0);
    close(fd);
    synth_preset(&s, "tiny");
    s.n_layers = 1;
    s.n_vocab = 400;
    EXPECT_EQ(synth_write(&s, model_path, &e), 0);
}

static void drop_model(void)
{
    unlink(model_path);
    memcpy(model_path + strlen(model_path) - 6, "XXXXXX", 6);
}

static void every_allocation_may_fail(void)
{
    char path[512];

    make_model();
    uint64_t n = fail_each_allocation(model_path);
    printf("synthetic BPE model: %llu allocations\n", (unsigned long long)n);
#ifdef TESTING
    EXPECT(n > 15);
#endif
    drop_model();
    if (!kit_data_path(path, "models/stories260K-f16.gguf"))
        return;
    n = fail_each_allocation(path);
    printf("stories260K (SPM): %llu allocations\n", (unsigned long long)n);
#ifdef TESTING
    EXPECT(n > 15);
#endif
}

static void every_system_call_may_fail(void)
{
#ifdef TESTING
    static const enum fault_site sites[] = { FAULT_OPEN, FAULT_MMAP };

    make_model();
    for (size_t i = 0; i < ARRAY_LEN(sites); i++) {
        struct err e = { 0 };
        fault_arm(sites[i], 1);
        EXPECT_EQ(path_to_tokens(model_path, &e), -1);
        fault_arm(sites[i], 0);
        EXPECT(e.code == ERR_IO && strstr(e.msg, model_path));
        EXPECT_EQ(path_to_tokens(model_path, &e), 0);
    }
    drop_model();
#else
    printf("skipped: faults exist in test builds only\n");
#endif
}

/* The same for the writer: no partial file remains after a failure. */
static void writing_may_fail_anywhere(void)
{
#ifdef TESTING
    static const struct {
        enum fault_site site;
        enum errcode code;
    } rows[] = { { FAULT_ALLOC, ERR_MEMORY }, { FAULT_WRITE, ERR_IO } };
    struct synth s;
    char part[64];

    synth_preset(&s, "tiny");
    s.n_layers = 1;
    s.n_vocab = 300;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t nth = 1;
        make_model();
        unlink(model_path);
        snprintf(part, sizeof(part), "%s.part", model_path);
        for (;; nth++) {
            struct err e = { 0 };
            fault_arm(rows[i].site, nth);
            int rc = synth_write(&s, model_path, &e);
            fault_arm(rows[i].site, 0);
            EXPECT(access(part, F_OK) < 0);
            if (rc == 0)
                break;
            EXPECT(e.code == rows[i].code && access(model_path, F_OK) < 0);
        }
        EXPECT(nth > 8);
        drop_model();
    }
#else
    printf("skipped: faults exist in test builds only\n");
#endif
}

TESTS(TEST(every_allocation_may_fail), TEST(every_system_call_may_fail),
    TEST(writing_may_fail_anywhere))
