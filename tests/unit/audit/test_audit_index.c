/* The index of the audit log: filters, pages, rotation, retention, and an index that is missing,
 * damaged, or of another log. AUDIT_INDEX_LINES sets the number of lines of the large log. */
#include "support/check.h"
#include "audit/audit_index.h"
#include "base/log.h"
#include "os/clock.h"
#include "support/tmpdir.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATH = TMPDIR_NAME + 16, PATIENCE_MS = 30000 };

static struct {
    char dir[TMPDIR_NAME], path[PATH], index[PATH + 8];
    struct audit *log;
    struct audit_index *index_thread;
    struct mailbox *replies;
} t;

static void open_log(uint64_t rotate_bytes)
{
    struct audit_options o = { .path = t.path, .rotate_bytes = rotate_bytes };
    struct err e;

    EXPECT_EQ(audit_open(&t.log, &o, &e), 0);
    EXPECT_EQ(audit_index_open(&t.index_thread, t.path, t.log, &e), 0);
    EXPECT_EQ(mailbox_open(&t.replies, &e), 0);
}

static void close_log(void)
{
    audit_index_close(t.index_thread);
    audit_close(t.log, 10000);
    mailbox_close(t.replies);
}

static void begin(void)
{
    tmpdir_make(t.dir);
    snprintf(t.path, sizeof(t.path), "%s/a.log", t.dir);
    snprintf(t.index, sizeof(t.index), "%s.index", t.path);
}

static void end(void)
{
    tmpdir_remove(t.dir);
}

static void wait_written(uint64_t n)
{
    struct audit_stats s;

    for (int waited = 0; audit_stats(t.log, &s), s.n_lines < n; waited++) {
        EXPECT(waited < PATIENCE_MS);
        poll(NULL, 0, 1);
    }
}

/* Writes n lines in turn of three keys and two models, and waits until they are in the file. */
static void write_lines(int n)
{
    static const char *const keys[] = { "k0", "k1", "" };
    struct audit_stats s;

    audit_stats(t.log, &s);
    uint64_t wanted = s.n_lines + (uint64_t)n;
    for (int i = 0; i < n; i++)
        audit_write(t.log, &(struct audit_entry){ .request_id = "r",
                               .key_id = keys[i % 3],
                               .tenant = i % 3 ? "" : "team",
                               .route = "/v1/x",
                               .model = i % 2 ? STR("odd") : STR("even"),
                               .status = i % 10 ? 200 : 503,
                               .finish = "done" });
    wait_written(wanted);
}

static void ask(struct audit_query *q)
{
    struct msg *m;

    if (!q->filter.limit)
        q->filter.limit = AUDIT_PAGE_MAX;
    q->reply_to = t.replies;
    audit_index_post(t.index_thread, q);
    while (!(m = mailbox_drain(t.replies)))
        mailbox_wait(t.replies, UINT64_MAX);
    EXPECT(m == &q->msg);
}

static void set(struct audit_filter_text *f, const char *text)
{
    f->is_set = true;
    snprintf(f->text, sizeof(f->text), "%s", text);
}

/* Number of lines of one page, once the index is complete. */
static int count(struct audit_query q)
{
    struct audit_query this = q;

    ask(&this);
    for (int waited = 0; !this.is_complete || this.err.code; waited++) {
        EXPECT(waited < PATIENCE_MS / 10);
        buf_clear(&this.lines);
        poll(NULL, 0, 10);
        this = q;
        ask(&this);
    }
    buf_clear(&this.lines);
    return this.n_lines;
}

static int count_all(void)
{
    return count((struct audit_query){ 0 });
}

static void filters_select_lines(void)
{
    struct audit_query q = { 0 };

    begin();
    open_log(0);
    write_lines(60);
    EXPECT_EQ(count(q), 61); /* and the event `begin` */
    set(&q.filter.key, "k0");
    EXPECT_EQ(count(q), 20);
    set(&q.filter.model, "odd");
    EXPECT_EQ(count(q), 10);
    q = (struct audit_query){ 0 };
    set(&q.filter.key, ""); /* anonymous: also lines about the log */
    EXPECT_EQ(count(q), 21);
    set(&q.filter.action, "generate");
    EXPECT_EQ(count(q), 20);
    q = (struct audit_query){ .filter.has_status = true, .filter.status = 503 };
    EXPECT_EQ(count(q), 6);
    q = (struct audit_query){ 0 };
    set(&q.filter.tenant, "team");
    EXPECT_EQ(count(q), 20);
    q = (struct audit_query){ .filter.has_from = true, .filter.from_s = clock_wall_s() + 100 };
    EXPECT_EQ(count(q), 0);
    q = (struct audit_query){ .filter.has_to = true, .filter.to_s = clock_wall_s() - 100 };
    EXPECT_EQ(count(q), 0);
    q = (struct audit_query){ .filter.has_from = true,
        .filter.has_to = true,
        .filter.from_s = clock_wall_s() - 100,
        .filter.to_s = clock_wall_s() + 100 };
    EXPECT_EQ(count(q), 61);
    q = (struct audit_query){ 0 };
    set(&q.filter.key, "' OR 1 --");
    EXPECT_EQ(count(q), 0);
    close_log();
    end();
}

static void pages_contain_each_line_once(void)
{
    int n, all;

    begin();
    open_log(3000); /* several files */
    write_lines(50);
    do { /* the last rotation, which adds lines, may be under way */
        struct audit_query q = { .filter.limit = 7 };
        n = 0;
        all = count_all();
        EXPECT(all > 50);
        do {
            ask(&q);
            EXPECT_EQ((int)q.err.code, ERR_NONE);
            EXPECT(n == 0 || q.n_lines > 0);
            n += q.n_lines;
            buf_clear(&q.lines);
            q.filter.has_before = true;
            q.filter.before = q.last;
        } while (q.has_more);
        EXPECT_EQ((int)q.last, 0);
    } while (count_all() != all);
    EXPECT_EQ(n, all);
    close_log();
    end();
}

static void damage(const char *text)
{
    FILE *f = fopen(t.index, "w");

    EXPECT(f && fputs(text, f) >= 0);
    fclose(f);
}

/* Renames PATH<suffix>, as for a log that another one replaces. */
static void move_away(const char *suffix)
{
    char from[PATH + 16], to[PATH + 24];

    snprintf(from, sizeof(from), "%s%s", t.path, suffix);
    snprintf(to, sizeof(to), "%s.other%s", t.path, suffix);
    EXPECT_EQ(rename(from, to), 0);
}

static void index_is_made_again(void)
{
    begin();
    open_log(0);
    write_lines(10);
    EXPECT_EQ(count_all(), 11);
    close_log();
    for (int i = 0; i < 3; i++) { /* deleted, no database, cut */
        if (i == 0)
            EXPECT_EQ(unlink(t.index), 0);
        else if (i == 1)
            damage("this is no database, but it is long enough to have a header of SQLite: "
                   "0123456789012345678901234567890123456789012345678901234567890123456789");
        else
            EXPECT_EQ(truncate(t.index, 4096), 0);
        open_log(0);
        write_lines(1);
        EXPECT_EQ(count_all(), 12 + i);
        close_log();
    }
    /* The index of another log: the files have other lines at the same places. */
    move_away("");
    move_away(".keys");
    move_away(".checkpoint");
    open_log(0);
    write_lines(3);
    EXPECT_EQ(count_all(), 4);
    close_log();
    end();
}

/* Retention removes a file while the server runs. */
static void removed_files_are_forgotten(void)
{
    char first[PATH + 32];

    begin();
    open_log(2000);
    for (int i = 0; i < 20; i++) /* a rotation follows a group of lines */
        write_lines(1);
    int all = count_all();
    snprintf(first, sizeof(first), "%s.%020d", t.path, 0);
    EXPECT_EQ(unlink(first), 0);
    write_lines(1);
    int rest = count_all();
    EXPECT(rest > 10 && rest < all);
    close_log();
    end();
}

static double ms_since(uint64_t from_ns)
{
    return (double)(clock_ns() - from_ns) / 1e6;
}

/* A start does not wait for the index, even if the index has to be made. */
static void large_log_opens_in_100_ms(void)
{
    const char *text = getenv("AUDIT_INDEX_LINES");
    int64_t n_lines = 20000;
    const int part = 5000;
    struct audit_query q = { .filter.limit = 100 };

    if (text)
        EXPECT(str_to_i64(str_of(text), &n_lines) && n_lines > 300);
    int n = (int)n_lines;
    begin();
    open_log(0);
    for (int i = 0; i < n; i += part)
        write_lines(MIN(part, n - i));
    close_log();
    unlink(t.index);
    uint64_t from_ns = clock_ns();
    open_log(0);
    double open_ms = ms_since(from_ns);
    count_all();
    double make_ms = ms_since(from_ns);
    close_log();
    from_ns = clock_ns();
    open_log(0);
    double again_ms = ms_since(from_ns);
    set(&q.filter.key, "k1");
    from_ns = clock_ns();
    EXPECT_EQ(count(q), MIN(100, n / 3));
    printf("%d lines: open %.1f ms, with an index %.1f ms; index made in %.0f ms; page %.1f ms\n",
        n, open_ms, again_ms, make_ms, ms_since(from_ns));
    if (text) /* other tests may use the processors */
        EXPECT(open_ms < 100 && again_ms < 100);
    close_log();
    end();
}

TESTS(TEST(filters_select_lines), TEST(pages_contain_each_line_once), TEST(index_is_made_again),
    TEST(removed_files_are_forgotten), TEST(large_log_opens_in_100_ms))
