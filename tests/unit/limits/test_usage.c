/* Usage: sums, pages, restart, failures of the disk, kill -9, and budgets after a restart. */
#include "support/check.h"
#include "base/mem.h"
#include "limits/usage.h"
#include "os/clock.h"
#include "support/tmpdir.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Hours are relative to this one; old ones would be removed. */
static int64_t base(void)
{
    return clock_wall_s() / 3600 - 1000;
}

struct place {
    char dir[TMPDIR_NAME], path[TMPDIR_NAME + 16];
};

static void place_init(struct place *p)
{
    tmpdir_make(p->dir);
    snprintf(p->path, sizeof(p->path), "%s/usage", p->dir);
}

static struct usage *open_at(const char *path)
{
    struct usage *u;
    struct err e;

    if (usage_open(&u, path, &e) || usage_start(u, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        EXPECT(false);
    }
    return u;
}

static struct usage_row row_of(int64_t hour, const char *key, const char *model, int64_t n)
{
    struct usage_row r = {
        .hour = hour, .requests = n, .prompt = 10 * n, .output = 20 * n, .cost = 30 * n
    };

    snprintf(r.key, sizeof(r.key), "%s", key);
    snprintf(r.model, sizeof(r.model), "%s", model);
    return r;
}

/* Posts the query, whose filters are set, and waits for its result. */
static void ask(struct usage *u, struct usage_query *q)
{
    struct mailbox *m;
    struct err e;

    EXPECT_EQ(mailbox_open(&m, &e), 0);
    q->reply_to = m;
    usage_post(u, q);
    while (!mailbox_drain(m))
        mailbox_wait(m, UINT64_MAX);
    mailbox_close(m);
}

static void sums_are_read_by_page_and_filter_and_after_a_restart(void)
{
    const int64_t first = base();
    struct usage_row rows[4];
    struct usage_query q = { .to_hour = INT64_MAX, .n_max = 2, .rows = rows };
    const struct usage_row added[] = { row_of(first, "a", "m", 1), row_of(first, "a", "m", 2),
        row_of(first, "b", "m", 4), row_of(first + 1, "a", "m", 8),
        row_of(first + 1, "a", "n", 16) };
    struct place p;

    place_init(&p);
    struct usage *u = open_at(p.path);
    for (size_t i = 0; i < ARRAY_LEN(added); i++) {
        usage_add(u, &added[i]);
        ask(u, &q); /* stores the sums; the next ones are added to them */
        EXPECT(!q.err.code);
    }
    usage_close(u);
    u = open_at(p.path);
    ask(u, &q);
    EXPECT(!q.err.code && q.n == 2 && q.has_more);
    EXPECT(rows[0].hour == first && rows[0].requests == 3 && rows[0].output == 60);
    EXPECT_STR(rows[1].key, "b");
    q.after_id = rows[1].id;
    ask(u, &q);
    EXPECT(q.n == 2 && !q.has_more && rows[0].requests == 8 && rows[1].cost == 480);
    q.after_id = 0;
    snprintf(q.key, sizeof(q.key), "a");
    snprintf(q.model, sizeof(q.model), "m");
    q.from_hour = first + 1;
    ask(u, &q);
    EXPECT(q.n == 1 && rows[0].prompt == 80);
    usage_close(u);
    tmpdir_remove(p.dir);
}

static void budgets_continue_after_a_restart(void)
{
    const struct limit_time t = { clock_ns(), 7259356800 }; /* 2200-01-15 08:00 */
    const int64_t hour = t.wall_s / 3600;
    struct limiter *l;
    struct place p;
    struct usage *u;
    struct err e;

    place_init(&p);
    u = open_at(p.path);
    struct usage_row rows[] = { row_of(hour, "k", "m", 1), row_of(hour - 8, "k", "m", 2),
        row_of(hour - 9, "k", "m", 4), row_of(hour - 14 * 24 - 8, "k", "m", 8),
        row_of(hour - 14 * 24 - 9, "k", "m", 16) };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        usage_add(u, &rows[i]);
    usage_close(u);
    EXPECT_EQ(usage_open(&u, p.path, &e), 0);
    EXPECT_EQ(limiter_open(&l, NS_PER_S, &e), 0);
    EXPECT_EQ(usage_restore(u, l, &t, &e), 0);
    EXPECT_EQ(limiter_used(l, LIMIT_OF_KEY, "k", POLICY_LIMIT_tokens_per_day, &t), 30 * 3);
    EXPECT_EQ(limiter_used(l, LIMIT_OF_MODEL, "m", POLICY_LIMIT_tokens_per_month, &t), 30 * 15);
    limiter_close(l);
    usage_close(u);
    tmpdir_remove(p.dir);
}

static void bad_files_are_errors_and_failed_writes_lose_nothing(void)
{
    struct usage_row rows[2], r = row_of(base(), "a", "m", 1);
    struct usage_query q = { .to_hour = INT64_MAX, .n_max = 2, .rows = rows };
    struct place p;
    struct usage *u;
    struct err e;

    place_init(&p);
    EXPECT_EQ(usage_open(&u, p.dir, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_INVALID);
    FILE *f = fopen(p.path, "w");
    EXPECT(f && fprintf(f, "%4000s", "no database") > 0 && !fclose(f));
    EXPECT_EQ(usage_open(&u, p.path, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_CORRUPT);
    unlink(p.path);
    u = open_at(p.path);
    for (int nth = 1; nth < 4; nth++) {
        mem_fail_after((uint64_t)nth); /* an addition without memory is lost, and reported */
        usage_add(u, &r);
        mem_fail_after(0);
    }
    ask(u, &q);
    EXPECT(!q.err.code && q.n == 1 && rows[0].requests == 3 - (int64_t)mem_failures());
    usage_close(u);
    tmpdir_remove(p.dir);
}

/* The child adds and queries, which stores; it reports each number that a query has returned. */
static void add_until_killed(const char *path, int out)
{
    struct usage_row row;
    struct usage_query q = { .to_hour = INT64_MAX, .n_max = 1, .rows = &row };
    struct usage *u = open_at(path);
    const struct usage_row one = row_of(base(), "a", "m", 1);

    for (;;) {
        usage_add(u, &one);
        ask(u, &q);
        if (q.err.code || write(out, &row.requests, sizeof(row.requests)) < 0)
            _exit(1);
    }
}

static void kill_9_keeps_what_was_stored_and_the_sums_consistent(void)
{
    struct place p;
    int64_t before = 0;

    place_init(&p);
    for (int round = 0; round < 5; round++) {
        struct usage_row row = { 0 };
        struct usage_query q = { .to_hour = INT64_MAX, .n_max = 1, .rows = &row };
        int64_t acknowledged = 0, n;
        int ends[2];
        EXPECT_EQ(pipe(ends), 0);
        pid_t child = fork();
        if (!child)
            add_until_killed(p.path, ends[1]);
        close(ends[1]);
        for (int i = 0; i < 20 && read(ends[0], &n, sizeof(n)) == sizeof(n); i++)
            acknowledged = n;
        kill(child, SIGKILL);
        EXPECT_EQ(waitpid(child, NULL, 0), child);
        while (read(ends[0], &n, sizeof(n)) == sizeof(n))
            acknowledged = n;
        close(ends[0]);
        struct usage *u = open_at(p.path);
        ask(u, &q);
        EXPECT(acknowledged > before && row.requests >= acknowledged);
        EXPECT(row.prompt == 10 * row.requests && row.cost == 30 * row.requests);
        before = row.requests;
        usage_close(u);
    }
    tmpdir_remove(p.dir);
}

TESTS(TEST(sums_are_read_by_page_and_filter_and_after_a_restart),
    TEST(budgets_continue_after_a_restart),
    TEST(bad_files_are_errors_and_failed_writes_lose_nothing),
    TEST(kill_9_keeps_what_was_stored_and_the_sums_consistent))
