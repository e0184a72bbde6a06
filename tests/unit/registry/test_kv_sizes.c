/* Number of KV pages for a memory budget, with and without windowed layers. */
#include "registry/kv_sizes.h"
#include "base/mem.h"
#include "support/check.h"

enum { N_CTX = 32768 };
static const uint64_t giga = 1000000000;

/* Gemma 3 12B: 8 layers without and 40 with a window, 8 KV heads of 256 dimensions in 16 bits. */
static const struct llama_needs gemma3_12b = { .page_bytes = 65536 * PAGE_TOKENS,
    .window_page_bytes = 327680 * PAGE_TOKENS,
    .window = { 1024, 256 } };

static struct kv_budget budget(const struct llama_needs *needs)
{
    return (struct kv_budget){ .needs = needs,
        .n_ctx = N_CTX,
        .max_batch = 1,
        .prefill_chunk = 512,
        .cache_bytes = 1,
        .available = 1000 * giga };
}

static struct kv_sizes choose(const struct kv_budget *b)
{
    struct kv_sizes s;
    struct err e;

    EXPECT_EQ(kv_sizes_choose(&s, b, &e), 0);
    return s;
}

static void a_window_takes_the_memory_of_its_positions(void)
{
    const struct llama_needs all_full = { .page_bytes = (65536 + 327680) * PAGE_TOKENS };
    struct kv_budget b = budget(&gemma3_12b), full = budget(&all_full);
    struct kv_sizes s = choose(&b), f = choose(&full);

    EXPECT_EQ(s.n_pages, N_CTX / PAGE_TOKENS + 1u);
    EXPECT_EQ(f.n_pages, s.n_pages);
    EXPECT_EQ(f.n_window_pages, 0u);
    /* the window, a key block, a chunk, and partly used pages */
    const int n_positions = (int)s.n_window_pages * PAGE_TOKENS;
    EXPECT(n_positions >= 1024 + 256 + 512);
    EXPECT(n_positions <= 1024 + 256 + 512 + 6 * 32);
    EXPECT(kv_sizes_bytes(&f, &all_full) > 128 * giga / 10);
    EXPECT(kv_sizes_bytes(&s, &gemma3_12b) < 28 * giga / 10);
    b.max_batch = 4;
    EXPECT_EQ(choose(&b).n_window_pages, 4 * s.n_window_pages);
}

static void checkpoints_have_window_pages_of_their_own(void)
{
    struct kv_budget b = budget(&gemma3_12b);
    uint32_t n = choose(&b).n_window_pages;

    b.cache_bytes = 10 * gemma3_12b.window_page_bytes;
    EXPECT_EQ(choose(&b).n_window_pages, n + 10);
    b.cache_bytes = 0;
    EXPECT(choose(&b).n_window_pages >= n + 2 * 1024u / PAGE_TOKENS);
    b.available = 12 * giga; /* an eighth of what is left, 1 GB */
    EXPECT(choose(&b).n_window_pages <= n + 12 * giga / 8 / gemma3_12b.window_page_bytes);
}

static void a_limit_shrinks_the_context(void)
{
    const uint64_t both = gemma3_12b.page_bytes + gemma3_12b.window_page_bytes;
    struct kv_budget b = budget(&gemma3_12b);
    struct kv_sizes s;
    struct err e;

    for (uint64_t limit = both; limit < 4 * giga; limit += limit / 3) {
        b.kv_bytes = limit;
        s = choose(&b);
        EXPECT(kv_sizes_bytes(&s, &gemma3_12b) <= limit);
        EXPECT(s.n_pages >= 1 && s.n_window_pages >= 1);
        EXPECT(s.n_window_pages >= MIN(s.n_pages, 1280u / PAGE_TOKENS));
        b.is_ctx_fixed = true;
        EXPECT_EQ(kv_sizes_choose(&s, &b, &e), limit < 26 * giga / 10 ? -1 : 0);
        b.is_ctx_fixed = false;
    }
    b.kv_bytes = both - 1;
    EXPECT_EQ(kv_sizes_choose(&s, &b, &e), -1);
    EXPECT(e.code == ERR_MEMORY);
}

/* The pages of the other class have no bytes: there are enough for each sequence. */
static void all_layers_may_have_a_window(void)
{
    const struct llama_needs needs = { .window_page_bytes = 1 << 20, .window = { 4096, 256 } };
    struct kv_budget b = budget(&needs);

    b.max_batch = 3;
    struct kv_sizes s = choose(&b);
    EXPECT_EQ(s.n_pages, (uint32_t)(3 * (N_CTX / PAGE_TOKENS + 1)));
    b.kv_bytes = 20 << 20;
    s = choose(&b);
    EXPECT(s.n_pages == 20 && s.n_window_pages == 20);
}

TESTS(TEST(a_window_takes_the_memory_of_its_positions),
    TEST(checkpoints_have_window_pages_of_their_own), TEST(a_limit_shrinks_the_context),
    TEST(all_layers_may_have_a_window))
