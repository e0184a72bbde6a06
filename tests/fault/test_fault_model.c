/* Loading a model with each allocation and thread start failing once: one error, no leak,
 * nothing remains. */
#include "support/check.h"
#include "support/tiny.h"
#include "base/fault.h"
#include "model/llama.h"

enum { MAX_CALLS = 200 };

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

TESTS(TEST(each_failed_allocation_is_an_error), TEST(each_failed_thread_is_an_error))
