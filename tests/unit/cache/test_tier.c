/* KV offload tier without an engine: its index, and loads from changed or damaged files. Pages
 * that are loaded always have the right bytes. */
#include "base/fault.h"
#include "base/mem.h"
#include "cache/tier.h"
#include "support/check.h"
#include "support/tmpdir.h"

enum { N_PAGES = 64, PAGE_BYTES = 1000, CHAIN = 20, TEXTS = 3, WRITTEN = 70, FETCHED };

static char dir[TMPDIR_NAME];
static const struct record_kind kind = { "a model", 7, PAGE_BYTES };
static uint8_t arena[N_PAGES][PAGE_BYTES];
static enum aio_kind aio = AIO_AUTO;

static const struct lm_ops ops = { .write_page = lm_write_page };
static struct lm lm = {
    .ops = &ops, .n_pages = N_PAGES, .page_bytes = PAGE_BYTES, .arena = arena[0]
};
static struct mailbox *done_box;

static struct tier *open_tier(uint64_t max_bytes)
{
    struct tier_options o = { .dir = dir,
        .max_bytes = max_bytes,
        .kind = kind,
        .max_tokens = CHAIN * PAGE_TOKENS,
        .lm = &lm,
        .reply = done_box,
        .written_kind = WRITTEN,
        .read_kind = FETCHED,
        .aio = aio,
        .is_manual = true };
    struct tier *t;
    struct err e;

    EXPECT_EQ(tier_open(&t, &o, &e), 0);
    return t;
}

static void close_tier(struct tier *t)
{
    tier_stop(t);
    tier_close(t);
}

static int32_t token_of(int text, int i)
{
    return i < PAGE_TOKENS ? i : i * 7 + text; /* common prefix */
}

static uint8_t byte_of(int text, int page)
{
    return (uint8_t)(page ? 10 * text + page : 99);
}

static void text_of(int text, int32_t *tokens)
{
    for (int i = 0; i < CHAIN * PAGE_TOKENS; i++)
        tokens[i] = token_of(text, i);
}

static const struct cache_scope scope = { .tenant = 5, .salt = "salt" };

static uint64_t name_of(const int32_t *tokens, int n_pages)
{
    uint64_t hash = tree_scope_hash(&scope);

    for (int i = 0; i < n_pages; i++)
        hash = tree_extend_hash(hash, tokens + i * PAGE_TOKENS, PAGE_TOKENS);
    return hash;
}

/* Executes queued operations and receives their results. Returns the last load. */
static struct tier_read *run_queue(struct tier *t)
{
    struct tier_read *f = NULL;

    tier_send(t);
    tier_work(t);
    for (struct msg *m = mailbox_drain(done_box), *next; m; m = next) {
        next = m->next;
        if (m->kind == WRITTEN)
            tier_write_end(t, m);
        else
            f = container_of(m, struct tier_read, msg);
    }
    return f;
}

/* Writes a page under any name. Returns false if the queue is full. */
static bool put_page(struct tier *t, int text, int page, uint64_t hash)
{
    int32_t tokens[CHAIN * PAGE_TOKENS];
    struct tier_write *w = tier_write_begin(t);
    struct record r = {
        .scope = scope, .tokens = tokens, .n_tokens = (page + 1) * PAGE_TOKENS, .first_page = page
    };

    if (!w)
        return false;
    text_of(text, tokens);
    record_begin(w->bytes, &kind, &r);
    memset(r.pages, byte_of(text, page), PAGE_BYTES);
    w->n_bytes = record_bytes(&kind, r.n_tokens, page);
    w->hash = hash;
    tier_put_write(t, w);
    return true;
}

static void put_text(struct tier *t, int text)
{
    int32_t tokens[CHAIN * PAGE_TOKENS];

    text_of(text, tokens);
    for (int i = 0; i < CHAIN; i++) {
        EXPECT(put_page(t, text, i, name_of(tokens, i + 1)));
        run_queue(t);
    }
}

/* Number of pages that are loaded from `first` on; their bytes are checked. */
static int get_text(struct tier *t, int text, int first)
{
    int32_t tokens[CHAIN * PAGE_TOKENS];
    struct tier_read *f = tier_read_begin(t);

    text_of(text, tokens);
    EXPECT(f);
    f->n_pages =
        tier_chain(t, name_of(tokens, first), tokens + first * PAGE_TOKENS, CHAIN - first, f->at);
    f->first_page = first;
    f->scope = scope;
    f->n_ok = 0;
    memcpy(f->tokens, tokens, sizeof(tokens));
    for (int i = 0; i < f->n_pages; i++)
        f->pages[i] = (page_id){ (uint32_t)i };
    memset(arena, 0, sizeof(arena));
    if (f->n_pages > 0) {
        tier_put_read(t, f);
        EXPECT(run_queue(t) == f);
    }
    int n = f->n_ok;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < PAGE_BYTES; j++)
            EXPECT(arena[i][j] == byte_of(text, first + i));
    tier_read_end(t, f);
    return n;
}

static void begin_test(void)
{
    struct err e;

    tmpdir_make(dir);
    EXPECT_EQ(mailbox_open(&done_box, &e), 0);
}

static void end_test(void)
{
    mailbox_close(done_box);
    tmpdir_remove(dir);
}

static void written_pages_are_loaded(void)
{
    static const enum aio_kind kinds[] = { AIO_AUTO, AIO_THREADS };

    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        aio = kinds[k];
        begin_test();
        struct tier *t = open_tier(1 << 20);
        printf("     %s\n", tier_aio(t));
        EXPECT_EQ(get_text(t, 0, 0), 0);
        for (int i = 0; i < TEXTS; i++)
            put_text(t, i);
        for (int i = 0; i < TEXTS; i++) {
            EXPECT_EQ(get_text(t, i, 0), CHAIN);
            EXPECT_EQ(get_text(t, i, 7), CHAIN - 7);
        }
        EXPECT(tier_page_ns(t) > 0);
        EXPECT_EQ(tier_stats_get(t)->n_failed, 0u);
        close_tier(t);
        t = open_tier(1 << 20); /* a later process */
        for (int i = 0; i < TEXTS; i++)
            EXPECT_EQ(get_text(t, i, 0), CHAIN);
        close_tier(t);
        end_test();
    }
    aio = AIO_AUTO;
}

static void failed_read_is_a_miss_from_its_page_on(void)
{
#ifdef TESTING
    begin_test();
    struct tier *t = open_tier(1 << 20);

    put_text(t, 1);
    for (uint64_t nth = 1; nth <= CHAIN; nth++) {
        fault_arm(FAULT_DISK_READ, nth);
        EXPECT_EQ(get_text(t, 1, 0), (int)nth - 1);
        fault_arm(FAULT_DISK_READ, 0);
        fault_arm(FAULT_DISK_SHORT, nth); /* continues after a short read */
        EXPECT_EQ(get_text(t, 1, 0), CHAIN);
        fault_arm(FAULT_DISK_SHORT, 0);
    }
    EXPECT_EQ(tier_stats_get(t)->n_failed, (uint64_t)CHAIN * (CHAIN + 1) / 2);
    close_tier(t);
    end_test();
#endif
}

static void failed_write_loses_one_page(void)
{
#ifdef TESTING
    begin_test();
    struct tier *t = open_tier(1 << 20);

    for (int i = 0; i < TEXTS; i++) {
        fault_arm(FAULT_DISK_WRITE, 6);
        put_text(t, i);
        fault_arm(FAULT_DISK_WRITE, 0);
        EXPECT_EQ(get_text(t, i, 0), 5);
    }
    EXPECT_EQ(tier_stats_get(t)->n_lost, (uint64_t)TEXTS);
    put_text(t, 0);
    EXPECT_EQ(get_text(t, 0, 0), CHAIN);
    close_tier(t);
    t = open_tier(1 << 20); /* the failed write left nothing that ends the file */
    EXPECT_EQ(get_text(t, 0, 0), CHAIN);
    EXPECT_EQ(get_text(t, 1, 0), 5);
    close_tier(t);
    end_test();
#endif
}

/* Two prefixes with one 64-bit name: a collision, here made deliberately. */
static void name_collision_is_a_miss(void)
{
    int32_t tokens[CHAIN * PAGE_TOKENS];

    begin_test();
    struct tier *t = open_tier(1 << 20);
    put_text(t, 1);
    text_of(1, tokens);
    EXPECT(put_page(t, 2, 4, name_of(tokens, 5)));
    run_queue(t);
    EXPECT_EQ(get_text(t, 1, 0), 4);
    tier_remove(t, name_of(tokens, 3));
    EXPECT_EQ(get_text(t, 1, 0), 2);
    EXPECT(!tier_has(t, name_of(tokens, 3)) && tier_has(t, name_of(tokens, 4)));
    close_tier(t);
    end_test();
}

static void old_pages_are_removed_from_disk_and_index(void)
{
    begin_test();
    struct tier *t = open_tier(4 * MB);

    for (int i = 0; i < 400; i++) {
        put_text(t, i);
        EXPECT(tier_stats_get(t)->n_bytes <= 4 * MB);
        EXPECT_EQ(get_text(t, i, 1), CHAIN - 1);
    }
    EXPECT_EQ(get_text(t, 1, 1), 0);
    EXPECT_EQ(tier_stats_get(t)->n_failed, 0u);
    close_tier(t);
    end_test();
}

static void writes_above_the_queue_limit_are_dropped_and_counted(void)
{
    begin_test();
    struct tier *t = open_tier(1 << 20);
    struct tier_read *f[TIER_READS];

    for (int i = 0; i < TIER_WRITES; i++)
        EXPECT(put_page(t, 0, i, (uint64_t)i + 1));
    EXPECT(!put_page(t, 0, 10, 77));
    EXPECT_EQ(tier_stats_get(t)->n_lost, 1u);
    run_queue(t);
    EXPECT(put_page(t, 0, 10, 77));
    for (int i = 0; i < TIER_READS; i++)
        EXPECT((f[i] = tier_read_begin(t)));
    EXPECT(!tier_read_begin(t));
    for (int i = 0; i < TIER_READS; i++) {
        f[i]->n_pages = f[i]->n_ok = 0;
        tier_read_end(t, f[i]);
    }
    tier_stop(t); /* executes the queued operations */
    EXPECT(!run_queue(t));
    EXPECT(tier_has(t, 77));
    EXPECT(put_page(t, 0, 11, 78) && tier_has(t, 78)); /* later writes are executed at once */
    tier_close(t);
    end_test();
}

TESTS(TEST(written_pages_are_loaded), TEST(failed_read_is_a_miss_from_its_page_on),
    TEST(failed_write_loses_one_page), TEST(name_collision_is_a_miss),
    TEST(old_pages_are_removed_from_disk_and_index),
    TEST(writes_above_the_queue_limit_are_dropped_and_counted))
