/* KV offload tier without an engine: its index, and loads from changed or damaged files. Pages
 * that are loaded always have the right bytes. */
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "cache/tier.h"
#include "support/check.h"
#include "support/tmpdir.h"

#include <fcntl.h>
#include <unistd.h>

enum { N_PAGES = 64, PAGE_BYTES = 1000, CHAIN = 20, TEXTS = 3, WRITTEN = 70, FETCHED };
enum { STATE_BYTES = 200, STATE_PAGE = CHAIN }; /* the page of a checkpoint is read there */

static char dir[TMPDIR_NAME];
static struct record_kind kind = { "a model", 7, PAGE_BYTES, 0 };
static uint8_t arena[N_PAGES][PAGE_BYTES], slot[STATE_BYTES];
static enum aio_kind aio = AIO_AUTO;

/* The first byte of a state is the number of positions before its own at which it can resume. */
static int write_slot(struct lm *m, state_id state, const void *in, int pos)
{
    (void)m;
    EXPECT_EQ(state.i, 0u);
    memcpy(slot, in, STATE_BYTES);
    return slot[0] > STATE_LOG_ROWS ? -1 : pos - slot[0];
}

static const struct lm_ops ops = { .write_page = lm_write_page, .write_state = write_slot };
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

static struct cache_scope scope = { .tenant = 5, .salt = "salt" };

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
    struct tier_write *w = tier_write_begin(t, TIER_PAGE);
    struct record r = {
        .scope = scope, .tokens = tokens, .n_tokens = (page + 1) * PAGE_TOKENS, .first_page = page
    };

    if (!w)
        return false;
    text_of(text, tokens);
    record_begin(w->bytes, &kind, &r);
    memset(r.pages, byte_of(text, page), PAGE_BYTES);
    w->n_bytes = record_bytes(&kind, &r);
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
        EXPECT(tier_read_ns(t, 1) > 0);
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
    tier_remove(t, TIER_PAGE, name_of(tokens, 3));
    EXPECT_EQ(get_text(t, 1, 0), 2);
    EXPECT(!tier_has(t, TIER_PAGE, name_of(tokens, 3)));
    EXPECT(tier_has(t, TIER_PAGE, name_of(tokens, 4)));
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
    EXPECT(tier_has(t, TIER_PAGE, 77));
    EXPECT(put_page(t, 0, 11, 78) &&
           tier_has(t, TIER_PAGE, 78)); /* later writes are executed at once */
    tier_close(t);
    end_test();
}

/* ---- checkpoints */

static uint8_t state_byte(int text, int n, int i)
{
    return (uint8_t)(i == 0 ? n % 3 : text * 31 + n * 7 + i);
}

/* Writes the checkpoint at position n; `n_rows` is the first byte of the state. */
static bool put_checkpoint_with(struct tier *t, int text, int n, uint8_t n_rows)
{
    int32_t tokens[CHAIN * PAGE_TOKENS];
    struct tier_write *w = tier_write_begin(t, TIER_CHECKPOINT);
    struct record r = { .scope = scope,
        .tokens = tokens,
        .n_tokens = n,
        .first_page = (n - 1) / PAGE_TOKENS,
        .has_state = true };

    if (!w)
        return false;
    text_of(text, tokens);
    record_begin(w->bytes, &kind, &r);
    memset(r.pages, n, PAGE_BYTES);
    for (int i = 0; i < STATE_BYTES; i++)
        r.state[i] = i ? state_byte(text, n, i) : n_rows;
    w->n_bytes = record_bytes(&kind, &r);
    w->hash = tree_tokens_hash(&scope, tokens, n);
    tier_put_write(t, w);
    return true;
}

static void put_checkpoint(struct tier *t, int text, int n)
{
    EXPECT(put_checkpoint_with(t, text, n, state_byte(text, n, 0)));
    run_queue(t);
}

/* Reads a checkpoint and the pages before it from page `first` on. Returns true if everything was
 * read, and then verifies every byte. */
static bool read_checkpoint(struct tier *t, int text, int n, struct disk_pos at, int first)
{
    int32_t tokens[CHAIN * PAGE_TOKENS];
    struct tier_read *f = tier_read_begin(t);

    EXPECT(f);
    text_of(text, tokens);
    f->scope = scope;
    f->first_page = first;
    f->n_ok = 0;
    f->n_pages = (n - 1) / PAGE_TOKENS - first;
    EXPECT_EQ(
        tier_chain(t, name_of(tokens, first), tokens + first * PAGE_TOKENS, f->n_pages, f->at),
        f->n_pages);
    f->checkpoint = (struct tier_checkpoint){ .n = n, .at = at, .state = { 0 } };
    memcpy(f->tokens, tokens, sizeof(tokens));
    for (int i = 0; i <= f->n_pages; i++)
        f->pages[i] = (page_id){ (uint32_t)(i < f->n_pages ? i : STATE_PAGE) };
    memset(arena, 0, sizeof(arena));
    tier_put_read(t, f);
    EXPECT(run_queue(t) == f);
    bool is_ok = f->checkpoint.is_ok && f->n_ok == f->n_pages;
    EXPECT(f->checkpoint.is_ok || f->n_ok == 0);
    if (f->checkpoint.is_ok) {
        EXPECT_EQ(f->checkpoint.n_min, n - state_byte(text, n, 0));
        for (int i = 0; i < STATE_BYTES; i++)
            EXPECT(slot[i] == state_byte(text, n, i));
        for (int i = 0; i < PAGE_BYTES; i++)
            EXPECT(arena[STATE_PAGE][i] == (uint8_t)n);
    }
    for (int i = 0; i < f->n_ok; i++)
        EXPECT(arena[i][0] == byte_of(text, first + i));
    tier_read_end(t, f);
    return is_ok;
}

static int find_in(struct tier *t, int text, int from, int n, struct disk_pos *at)
{
    int32_t tokens[CHAIN * PAGE_TOKENS];

    text_of(text, tokens);
    return tier_find_checkpoint(t, &scope, tokens, from, n, at);
}

/* Finds the deepest checkpoint of a text and reads it; 0 = none, or it could not be read. */
static int get_checkpoint(struct tier *t, int text, int first)
{
    struct disk_pos at;
    int n = find_in(t, text, 0, CHAIN * PAGE_TOKENS, &at);

    return n && read_checkpoint(t, text, n, at, first) ? n : 0;
}

static void begin_checkpoint_test(void)
{
    begin_test();
    kind.state_bytes = STATE_BYTES;
}

static void end_checkpoint_test(void)
{
    kind.state_bytes = 0;
    end_test();
}

/* Positions of checkpoints; ALONE has no page before its own. */
enum { ALONE = PAGE_TOKENS, IN_PAGE = 3 * PAGE_TOKENS + 1, AT_END = 5 * PAGE_TOKENS };

static void written_checkpoints_are_loaded_also_by_a_later_process(void)
{
    struct disk_pos at;

    begin_checkpoint_test();
    struct tier *t = open_tier(1 << 20);
    EXPECT_EQ(get_checkpoint(t, 0, 0), 0);
    for (int i = 0; i < TEXTS; i++) {
        put_text(t, i);
        put_checkpoint(t, i, IN_PAGE);
        EXPECT_EQ(get_checkpoint(t, i, 0), (int)IN_PAGE);
        put_checkpoint(t, i, AT_END);
        put_checkpoint(t, i, 1);
    }
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < TEXTS; i++) {
            EXPECT_EQ(get_checkpoint(t, i, 0), (int)AT_END);
            EXPECT_EQ(get_checkpoint(t, i, 4), (int)AT_END); /* without a page before it */
            EXPECT_EQ(get_text(t, i, 0), CHAIN); /* the full page is still found alone */
            EXPECT_EQ(find_in(t, i, 0, AT_END - 1, &at), (int)IN_PAGE);
            EXPECT_EQ(find_in(t, i, IN_PAGE, AT_END - 1, &at), 0);
            EXPECT_EQ(find_in(t, i, IN_PAGE - 1, IN_PAGE, &at), (int)IN_PAGE);
            EXPECT_EQ(find_in(t, i, 0, IN_PAGE - 1, &at), 1);
        }
        EXPECT_EQ(tier_stats_get(t)->n_failed, 0u);
        EXPECT_EQ(tier_stats_get(t)->n_checkpoints_written, again ? 0u : 3u * TEXTS);
        close_tier(t);
        t = open_tier(1 << 20);
    }
    int32_t tokens[CHAIN * PAGE_TOKENS];
    text_of(1, tokens);
    tier_remove_after(t, &scope, tokens, IN_PAGE, CHAIN * PAGE_TOKENS);
    EXPECT_EQ(get_checkpoint(t, 1, 0), (int)IN_PAGE);
    EXPECT_EQ(get_text(t, 1, 0), 3);
    close_tier(t);
    end_checkpoint_test();
}

/* A changed byte anywhere in the record is a miss, and the file is otherwise unchanged. */
static void changed_byte_of_a_checkpoint_is_a_miss(void)
{
    char path[700];
    struct disk_pos at;

    log_set_level(LOG_ERROR); /* each damage is logged */
    begin_checkpoint_test();
    struct tier *t = open_tier(1 << 20);
    put_checkpoint(t, 1, ALONE);
    EXPECT_EQ(find_in(t, 1, 0, ALONE, &at), (int)ALONE);
    snprintf(path, sizeof(path), "%s/kv-%016x.seg", dir, at.segment);
    int fd = open(path, O_RDWR);
    EXPECT(fd >= 0);
    for (uint32_t i = 0; i < at.n_bytes; i++) {
        uint8_t old, changed;
        EXPECT_EQ(pread(fd, &old, 1, (off_t)(at.offset + i)), 1);
        changed = old ^ (uint8_t)(1 << i % 8);
        EXPECT_EQ(pwrite(fd, &changed, 1, (off_t)(at.offset + i)), 1);
        EXPECT(!read_checkpoint(t, 1, ALONE, at, 0));
        if (i < RECORD_HEAD + 64) { /* a later process does not find it, or fails too */
            close_tier(t);
            t = open_tier(1 << 20);
            EXPECT_EQ(get_checkpoint(t, 1, 0), 0);
        }
        EXPECT_EQ(pwrite(fd, &old, 1, (off_t)(at.offset + i)), 1);
    }
    EXPECT(read_checkpoint(t, 1, ALONE, at, 0));
    close_tier(t);
    for (off_t size = (off_t)(at.offset + at.n_bytes) - 1; size >= 0; size -= 41) {
        EXPECT_EQ(ftruncate(fd, size), 0);
        t = open_tier(1 << 20);
        EXPECT_EQ(get_checkpoint(t, 1, 0), 0);
        close_tier(t);
    }
    close(fd);
    end_checkpoint_test();
    log_set_level(LOG_INFO);
}

static void checkpoint_of_another_model_layout_or_tenant_is_a_miss(void)
{
    const struct record_kind own = { "a model", 7, PAGE_BYTES, STATE_BYTES };
    struct record_kind others[] = { own, own, own, own };
    const struct cache_scope mine = scope;
    struct disk_pos at;

    others[0].model[31] = 1;
    others[1].kv_kind++;
    others[2].page_bytes++;
    others[3].state_bytes++;
    begin_checkpoint_test();
    struct tier *t = open_tier(1 << 20);
    put_checkpoint(t, 1, ALONE);
    EXPECT_EQ(find_in(t, 1, 0, ALONE, &at), (int)ALONE);
    scope.tenant++; /* not found, and not read from the right place */
    EXPECT_EQ(get_checkpoint(t, 1, 0), 0);
    EXPECT(!read_checkpoint(t, 1, ALONE, at, 0));
    scope = mine;
    scope.salt[31]++;
    EXPECT_EQ(get_checkpoint(t, 1, 0), 0);
    EXPECT(!read_checkpoint(t, 1, ALONE, at, 0));
    scope = mine;
    EXPECT_EQ(get_checkpoint(t, 1, 0), (int)ALONE);
    close_tier(t);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        kind = others[i];
        t = open_tier(1 << 20);
        EXPECT_EQ(get_checkpoint(t, 1, 0), 0);
        close_tier(t);
    }
    kind = own;
    t = open_tier(1 << 20);
    EXPECT_EQ(get_checkpoint(t, 1, 0), (int)ALONE);
    close_tier(t);
    end_checkpoint_test();
}

/* The checksums are valid, but the model rejects the state. */
static void state_that_cannot_resume_is_a_miss(void)
{
    begin_checkpoint_test();
    struct tier *t = open_tier(1 << 20);

    EXPECT(put_checkpoint_with(t, 1, ALONE, STATE_LOG_ROWS + 1));
    run_queue(t);
    EXPECT_EQ(get_checkpoint(t, 1, 0), 0);
    EXPECT_EQ(tier_stats_get(t)->n_failed, 1u);
    put_checkpoint(t, 1, ALONE); /* the newer record replaces it */
    EXPECT_EQ(get_checkpoint(t, 1, 0), (int)ALONE);
    close_tier(t);
    end_checkpoint_test();
}

static void pages_are_not_read_without_their_checkpoint(void)
{
#ifdef TESTING
    begin_checkpoint_test();
    struct tier *t = open_tier(1 << 20);

    put_text(t, 1);
    put_checkpoint(t, 1, AT_END);
    for (uint64_t nth = 1; nth <= 5; nth++) {
        uint64_t n_read = tier_stats_get(t)->n_read;
        fault_arm(FAULT_DISK_READ, nth); /* the checkpoint is read first */
        EXPECT_EQ(get_checkpoint(t, 1, 0), 0);
        fault_arm(FAULT_DISK_READ, 0);
        EXPECT_EQ(tier_stats_get(t)->n_read - n_read, nth - 1);
    }
    EXPECT_EQ(get_checkpoint(t, 1, 0), (int)AT_END);
    close_tier(t);
    end_checkpoint_test();
#endif
}

static void checkpoints_above_the_limit_of_writes_are_dropped(void)
{
    begin_checkpoint_test();
    struct tier *t = open_tier(1 << 20);

    for (int i = 1; i <= TIER_CHECKPOINT_WRITES; i++)
        EXPECT(put_checkpoint_with(t, 1, i, 0));
    EXPECT(!put_checkpoint_with(t, 1, 9, 0));
    EXPECT_EQ(tier_stats_get(t)->n_lost, 1u);
    EXPECT(put_page(t, 1, 0, 77)); /* pages have their own buffers */
    run_queue(t);
    EXPECT(put_checkpoint_with(t, 1, 9, 0));
    run_queue(t);
    close_tier(t);
    end_checkpoint_test();
}

static void old_checkpoints_are_removed_from_disk_and_index(void)
{
    begin_checkpoint_test();
    struct tier *t = open_tier(2 * MB);

    for (int i = 0; i < 3000; i++) {
        put_checkpoint(t, i, PAGE_TOKENS + 1);
        EXPECT(tier_stats_get(t)->n_bytes <= 2 * MB);
        struct disk_pos at;
        EXPECT_EQ(find_in(t, i, 0, PAGE_TOKENS + 1, &at), PAGE_TOKENS + 1);
    }
    EXPECT_EQ(get_checkpoint(t, 1, 0), 0);
    EXPECT_EQ(tier_stats_get(t)->n_failed, 0u);
    close_tier(t);
    end_checkpoint_test();
}

/* ---- window pages */

enum { WINDOW_BYTES = 300, WINDOW_FROM = 12 }; /* the first page with a window page */

static uint8_t window_arena[N_PAGES][WINDOW_BYTES];

static void begin_window_test(void)
{
    begin_test();
    kind.window_bytes = WINDOW_BYTES;
    lm.n_window_pages = N_PAGES;
    lm.window_page_bytes = WINDOW_BYTES;
    lm.window_arena = window_arena[0];
}

static void end_window_test(void)
{
    kind.window_bytes = 0;
    end_test();
}

static void put_windowed_page(struct tier *t, int text, int page)
{
    int32_t tokens[CHAIN * PAGE_TOKENS];
    struct tier_write *w = tier_write_begin(t, TIER_PAGE);
    struct record r = { .scope = scope,
        .tokens = tokens,
        .n_tokens = (page + 1) * PAGE_TOKENS,
        .first_page = page,
        .n_windows = 1 };

    EXPECT(w && !w->has_window);
    text_of(text, tokens);
    record_begin(w->bytes, &kind, &r);
    memset(r.pages, byte_of(text, page), PAGE_BYTES);
    memset(r.windows, byte_of(text, page) ^ 0x80, WINDOW_BYTES);
    w->n_bytes = record_bytes(&kind, &r);
    w->hash = name_of(tokens, page + 1);
    w->has_window = true;
    tier_put_write(t, w);
    run_queue(t);
}

static void find_window(struct tier *t, int text, int page, struct disk_pos *at)
{
    int32_t tokens[CHAIN * PAGE_TOKENS];

    text_of(text, tokens);
    tier_find(t, TIER_WINDOW, name_of(tokens, page + 1), at);
}

/* Reads a text whose first n_held pages are in memory, with the window pages from WINDOW_FROM on.
 * Returns the number of pages that could be read; their bytes are checked. */
static int get_windowed_text(struct tier *t, int text, int n_held)
{
    int32_t tokens[CHAIN * PAGE_TOKENS];
    struct tier_read *f = tier_read_begin(t);

    text_of(text, tokens);
    EXPECT(f);
    EXPECT_EQ(tier_chain(t, name_of(tokens, 0), tokens, CHAIN, f->at), CHAIN);
    f->first_page = f->n_ok = 0;
    f->n_pages = CHAIN;
    f->scope = scope;
    memcpy(f->tokens, tokens, sizeof(tokens));
    for (int i = 0; i < CHAIN; i++) {
        f->pages[i] = i < n_held ? PAGE_NONE : (page_id){ (uint32_t)i };
        f->windows[i] = i < WINDOW_FROM ? PAGE_NONE : (page_id){ (uint32_t)(CHAIN - i) };
        if (i >= WINDOW_FROM)
            find_window(t, text, i, &f->at[i]);
        else if (i < n_held)
            f->at[i] = (struct disk_pos){ 0 };
    }
    memset(arena, 0, sizeof(arena));
    memset(window_arena, 0, sizeof(window_arena));
    tier_put_read(t, f);
    EXPECT(run_queue(t) == f);
    int n = f->n_ok;
    for (int i = 0; i < n; i++) {
        uint8_t page = i < n_held ? 0 : byte_of(text, i);
        uint8_t window = i < WINDOW_FROM ? 0 : byte_of(text, i) ^ 0x80;
        EXPECT(arena[i][0] == page && arena[i][PAGE_BYTES - 1] == page);
        EXPECT(window_arena[CHAIN - i][0] == window);
        EXPECT(window_arena[CHAIN - i][WINDOW_BYTES - 1] == window);
    }
    tier_read_end(t, f);
    return n;
}

static void window_pages_are_loaded_with_and_without_their_pages(void)
{
    struct disk_pos at;

    begin_window_test();
    struct tier *t = open_tier(1 << 20);
    put_text(t, 1);
    for (int i = WINDOW_FROM; i < CHAIN; i++)
        put_windowed_page(t, 1, i);
    for (int again = 0; again < 2; again++) {
        find_window(t, 1, WINDOW_FROM - 1, &at);
        EXPECT_EQ(at.n_bytes, 0u);
        find_window(t, 1, WINDOW_FROM, &at);
        EXPECT(at.n_bytes > PAGE_BYTES + WINDOW_BYTES);
        uint64_t n_read = tier_stats_get(t)->n_read;
        EXPECT_EQ(get_windowed_text(t, 1, 0), CHAIN);
        EXPECT_EQ(tier_stats_get(t)->n_read - n_read, (uint64_t)CHAIN);
        EXPECT_EQ(get_windowed_text(t, 1, WINDOW_FROM + 3), CHAIN);
        EXPECT_EQ(get_windowed_text(t, 1, CHAIN), CHAIN);
        EXPECT_EQ(tier_stats_get(t)->n_read - n_read,
            (uint64_t)(CHAIN + 2 * (CHAIN - WINDOW_FROM))); /* the others are in memory */
        EXPECT_EQ(tier_stats_get(t)->n_failed, 0u);
        close_tier(t);
        t = open_tier(1 << 20);
    }
    int32_t tokens[CHAIN * PAGE_TOKENS];
    text_of(1, tokens);
    tier_remove_after(t, &scope, tokens, 14 * PAGE_TOKENS, CHAIN * PAGE_TOKENS);
    find_window(t, 1, 13, &at);
    EXPECT(at.n_bytes > 0);
    find_window(t, 1, 14, &at);
    EXPECT_EQ(at.n_bytes, 0u);
    close_tier(t);
    end_window_test();
}

static void missing_or_damaged_window_page_is_a_miss(void)
{
    int32_t tokens[CHAIN * PAGE_TOKENS];
    struct disk_pos at;
    char path[700];

    log_set_level(LOG_ERROR); /* the damage is logged */
    begin_window_test();
    struct tier *t = open_tier(1 << 20);
    text_of(1, tokens);
    put_text(t, 1);
    for (int i = WINDOW_FROM; i < CHAIN; i++)
        put_windowed_page(t, 1, i);
    find_window(t, 1, 17, &at);
    snprintf(path, sizeof(path), "%s/kv-%016x.seg", dir, at.segment);
    int fd = open(path, O_RDWR);
    off_t last = (off_t)(at.offset + at.n_bytes) - 1; /* last byte of the window page */
    EXPECT(fd >= 0 && pwrite(fd, "x", 1, last) == 1);
    close(fd);
    EXPECT_EQ(get_windowed_text(t, 1, 0), 17);
    EXPECT_EQ(tier_stats_get(t)->n_failed, (uint64_t)CHAIN - 17);
    tier_remove(t, TIER_WINDOW, name_of(tokens, 15)); /* at[] has no record: nothing is read */
    find_window(t, 1, 14, &at);
    EXPECT_EQ(at.n_bytes, 0u);
    /* A record without a window page cannot fill one. */
    struct tier_read *f = tier_read_begin(t);
    EXPECT_EQ(tier_chain(t, name_of(tokens, 0), tokens, 2, f->at), 2);
    f->first_page = 0;
    f->n_pages = 2;
    f->scope = scope;
    memcpy(f->tokens, tokens, sizeof(tokens));
    f->pages[0] = f->windows[1] = (page_id){ 0 };
    f->pages[1] = f->windows[0] = PAGE_NONE;
    tier_put_read(t, f);
    EXPECT(run_queue(t) == f);
    EXPECT_EQ(f->n_ok, 1);
    tier_read_end(t, f);
    close_tier(t);
    end_window_test();
    log_set_level(LOG_INFO);
}

static void failed_read_of_a_window_page_is_a_miss(void)
{
#ifdef TESTING
    begin_window_test();
    struct tier *t = open_tier(1 << 20);

    put_text(t, 1);
    for (int i = WINDOW_FROM; i < CHAIN; i++)
        put_windowed_page(t, 1, i);
    for (int nth = 1; nth <= CHAIN - WINDOW_FROM; nth++) {
        fault_arm(FAULT_DISK_READ, (uint64_t)nth);
        EXPECT_EQ(get_windowed_text(t, 1, CHAIN), WINDOW_FROM + nth - 1);
        fault_arm(FAULT_DISK_READ, 0);
    }
    EXPECT_EQ(get_windowed_text(t, 1, CHAIN), CHAIN);
    close_tier(t);
    end_window_test();
#endif
}

TESTS(TEST(written_pages_are_loaded), TEST(failed_read_is_a_miss_from_its_page_on),
    TEST(failed_write_loses_one_page), TEST(name_collision_is_a_miss),
    TEST(old_pages_are_removed_from_disk_and_index),
    TEST(writes_above_the_queue_limit_are_dropped_and_counted),
    TEST(written_checkpoints_are_loaded_also_by_a_later_process),
    TEST(changed_byte_of_a_checkpoint_is_a_miss),
    TEST(checkpoint_of_another_model_layout_or_tenant_is_a_miss),
    TEST(state_that_cannot_resume_is_a_miss), TEST(pages_are_not_read_without_their_checkpoint),
    TEST(checkpoints_above_the_limit_of_writes_are_dropped),
    TEST(old_checkpoints_are_removed_from_disk_and_index),
    TEST(window_pages_are_loaded_with_and_without_their_pages),
    TEST(missing_or_damaged_window_page_is_a_miss), TEST(failed_read_of_a_window_page_is_a_miss))
