/* Pages of windowed layers: the logits are the same bytes if each page is freed and reused as soon
 * as no later row attends to it. Freed pages are filled with NaN. */
#include "support/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/llama.h"
#include "testing/synth.h"

#include <stdlib.h>
#include <unistd.h>

enum { N_TOKENS = 700, MOST = 50, N_PAGES = N_TOKENS / PAGE_TOKENS + 1 };

struct fixture {
    struct gguf *g;
    int n_vocab;
    int32_t tokens[N_TOKENS];
    float *want; /* [N_TOKENS][n_vocab] */
};

static void open_file(struct fixture *f, const char *preset, const char *setting)
{
    char path[] = "/tmp/inferflux-window-XXXXXX";
    const char *const settings[] = { setting };
    struct synth model;
    struct err e;

    EXPECT(synth_preset(&model, preset));
    model.type = model.head_type = Q_Q8_0;
    if (setting) {
        model.settings = settings;
        model.n_settings = 1;
    }
    close(mkstemp(path));
    EXPECT_EQ(synth_write(&model, path, &e), 0);
    EXPECT_EQ(gguf_open(&f->g, path, &e), 0);
    unlink(path);
}

static struct lm *open_lm(const struct fixture *f, uint32_t n_window_pages)
{
    struct llama_options o = { .n_threads = 2,
        .n_pages = N_PAGES,
        .n_window_pages = n_window_pages,
        .n_states = 4,
        .max_rows = MOST,
        .max_logits = MOST };
    struct lm *m = NULL;
    struct err e = { 0 };

    if (lm_open_llama(&m, f->g, &o, &e))
        fprintf(stderr, "%s\n", e.msg);
    EXPECT(m);
    return m;
}

/* Slots of the recurrent state, if the model has one: one slot is read and another one written. */
static void set_slots(const struct lm *m, struct lm_run *run, int i)
{
    if (!m->n_states)
        return;
    run->state = run->pos ? (state_id){ (uint32_t)(i + 1) % 2 } : STATE_NONE;
    run->state_out.i = (uint32_t)i % 2;
}

/* Both classes have the same page numbers, and no page is freed. */
static void compute_expected(struct fixture *f)
{
    struct lm *m = open_lm(f, 0);
    struct rng r = { .key = 1 };
    page_id pages[N_PAGES];

    f->n_vocab = m->n_vocab;
    f->want = xmalloc((size_t)N_TOKENS * (size_t)m->n_vocab * sizeof(float));
    for (int i = 0; i < N_TOKENS; i++)
        f->tokens[i] = (int32_t)rng_below(&r, (uint64_t)m->n_vocab);
    for (uint32_t i = 0; i < N_PAGES; i++)
        pages[i].i = N_PAGES - 1 - i;
    for (int pos = 0, i = 0, n; pos < N_TOKENS; pos += n, i++) {
        n = MIN(MOST, N_TOKENS - pos);
        struct lm_run run = {
            .tokens = f->tokens + pos, .n = n, .pos = pos, .pages = pages, .n_logits = n
        };
        set_slots(m, &run, i);
        EXPECT(m->ops->forward(m, &run, 1, NULL));
        memcpy(f->want + (size_t)pos * (size_t)m->n_vocab, run.logits,
            (size_t)n * (size_t)m->n_vocab * sizeof(float));
    }
    m->ops->close(m);
}

struct window_table { /* page table of the windowed layers and its free pages */
    page_id pages[N_PAGES], free[N_PAGES];
    int from, end, n_free;
};

static void free_before(struct window_table *t, struct lm *m, int pos, const void *nan)
{
    for (; t->from < kv_window_from(&m->window, pos) / PAGE_TOKENS; t->from++) {
        lm_write_window_page(m, t->pages[t->from], nan);
        t->free[t->n_free++] = t->pages[t->from];
        t->pages[t->from] = PAGE_NONE;
    }
}

static void reserve(struct window_table *t, int upto)
{
    for (; t->end * PAGE_TOKENS < upto; t->end++) {
        EXPECT(t->n_free > 0);
        t->pages[t->end] = t->free[--t->n_free];
    }
}

/* Chunks and single rows in random order, with as few window pages as the longest chunk needs. */
static void compare_with_freed_pages(struct fixture *f, uint64_t seed)
{
    struct lm *probe = open_lm(f, 0);
    uint32_t n_window =
        (uint32_t)(probe->window.size + probe->window.align + MOST) / PAGE_TOKENS + 2;
    probe->ops->close(probe);
    struct lm *m = open_lm(f, n_window);
    const size_t row = (size_t)m->n_vocab;
    struct window_table t = { .n_free = (int)n_window };
    struct rng r = { .key = seed };
    void *nan = xmalloc(m->window_page_bytes);
    page_id pages[N_PAGES];

    EXPECT(n_window < N_PAGES);
    memset(nan, 0xff, m->window_page_bytes);
    memset(m->window_arena, 0xff, n_window * m->window_page_bytes);
    for (uint32_t i = 0; i < N_PAGES; i++)
        pages[i].i = i;
    for (uint32_t i = 0; i < n_window; i++)
        t.free[i].i = i;
    for (int pos = 0, i = 0, n; pos < N_TOKENS; pos += n, i++) {
        n = rng_below(&r, 2) ? 1 : MIN(1 + (int)rng_below(&r, MOST), N_TOKENS - pos);
        free_before(&t, m, pos, nan);
        reserve(&t, pos + n);
        struct lm_run run = { .tokens = f->tokens + pos,
            .n = n,
            .pos = pos,
            .pages = pages,
            .window_pages = t.pages,
            .n_logits = n };
        set_slots(m, &run, i);
        EXPECT(m->ops->forward(m, &run, 1, NULL));
        EXPECT(!memcmp(run.logits, f->want + (size_t)pos * row, (size_t)n * row * sizeof(float)));
    }
    EXPECT(t.from > 0);
    mem_free(nan);
    m->ops->close(m);
}

static void check(const char *preset, const char *setting, bool has_full_layers)
{
    struct fixture f = { 0 };

    open_file(&f, preset, setting);
    compute_expected(&f);
    struct lm *m = open_lm(&f, 0);
    EXPECT(m->window.size > 0 && m->window_page_bytes > 0);
    EXPECT_EQ(m->page_bytes > 0, has_full_layers);
    m->ops->close(m);
    compare_with_freed_pages(&f, 2);
    compare_with_freed_pages(&f, 3);
    mem_free(f.want);
    gguf_close(f.g);
}

static void freed_pages_have_no_effect(void)
{
    check("tiny-gemma3", NULL, true);
    check("tiny-gemma4-e", NULL, true);
    check("tiny-gpt-oss", NULL, true);
}

static void all_layers_may_have_a_window(void)
{
    check("tiny-llama", "attention.sliding_window=20", false);
}

TESTS(TEST(freed_pages_have_no_effect), TEST(all_layers_may_have_a_window))
