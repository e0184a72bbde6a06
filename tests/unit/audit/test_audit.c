/* The audit log: hash chain, torn ends, failed and short writes, lost lines, second writers, and
 * reopening. A limit of the file size (RLIMIT_FSIZE) makes write(2) fail or write less, as a full
 * disk does. */
#include "support/check.h"
#include "base/log.h"
#include "audit/audit.h"
#include "audit/audit_file.h"
#include "support/tmpdir.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT = 8 * 1024 * 1024, PATH = TMPDIR_NAME + 16, PATIENCE_MS = 20000 };

static struct {
    char dir[TMPDIR_NAME], path[PATH], old[PATH];
    char text[TEXT];
    pthread_mutex_t mu;  /* guards the log lines */
    char log[64 * 1024]; /* log lines of the test */
    size_t n_log;
} t = { .mu = PTHREAD_MUTEX_INITIALIZER };

static void keep_log(const char *line, size_t n)
{
    pthread_mutex_lock(&t.mu);
    n = MIN(n, sizeof(t.log) - 1 - t.n_log);
    memcpy(t.log + t.n_log, line, n);
    t.n_log += n;
    t.log[t.n_log] = '\0';
    pthread_mutex_unlock(&t.mu);
}

static void clear_log(void)
{
    pthread_mutex_lock(&t.mu);
    t.n_log = 0;
    t.log[0] = '\0';
    pthread_mutex_unlock(&t.mu);
}

static bool is_logged(const char *text)
{
    pthread_mutex_lock(&t.mu);
    bool is_found = strstr(t.log, text) != NULL;
    pthread_mutex_unlock(&t.mu);
    return is_found;
}

static void begin(void)
{
    tmpdir_make(t.dir);
    snprintf(t.path, sizeof(t.path), "%s/a.log", t.dir);
    snprintf(t.old, sizeof(t.old), "%s/a.log.1", t.dir);
    signal(SIGXFSZ, SIG_IGN);
    log_set_output(keep_log);
    clear_log();
}

static void end(void)
{
    tmpdir_remove(t.dir);
}

static struct audit *open_log(void)
{
    struct audit *a;
    struct err e;

    EXPECT_EQ(audit_open(&a, t.path, &e), 0);
    return a;
}

static void write_line(struct audit *a)
{
    audit_write(a, &(struct audit_entry){ "req_1", "", "/v1/x", STR("m\"\n"), STR("secret"), 200,
                       "done", 1, 2, 0, 5000000 });
}

static void refuse(struct audit *a)
{
    audit_refuse(a,
        &(struct audit_refusal){ "req_2", "", STR("::1"), STR("POST"), STR("/v1/y"), 401, "AUTH" });
}

static void write_lines(int n)
{
    struct audit *a = open_log();

    for (int i = 0; i < n; i++)
        write_line(a);
    audit_close(a, 1000);
}

static size_t read_file(const char *path)
{
    FILE *f = fopen(path, "r");

    EXPECT(f);
    size_t n = fread(t.text, 1, TEXT - 1, f);
    t.text[n] = '\0';
    fclose(f);
    return n;
}

static void write_file(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "w");

    EXPECT(f && fwrite(text, 1, n, f) == n);
    fclose(f);
}

/* Number of lines of a file whose chain is complete; -1: it is not. */
static int verify(const char *path)
{
    char last[AUDIT_HEX + 1] = "";
    int64_t n;
    struct err e;

    return audit_file_verify(path, last, &n, &e) ? -1 : (int)n;
}

static int count(const char *text)
{
    int n = 0;

    for (const char *at = t.text; (at = strstr(at, text)); at++)
        n++;
    return n;
}

/* Waits until the statistics satisfy the condition. */
#define UNTIL(a, s, condition)                                                                     \
    for (int waited = 0; audit_stats(a, &(s)), !(condition); waited++) {                           \
        EXPECT(waited < PATIENCE_MS);                                                              \
        poll(NULL, 0, 1);                                                                          \
    }

static void set_size_limit(rlim_t bytes)
{
    struct rlimit l;

    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &l), 0);
    l.rlim_cur = bytes;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &l), 0);
}

/* ---- chain */

static void chain_continues_and_detects_changes(void)
{
    begin();
    write_lines(3);
    write_lines(2);
    EXPECT_EQ(verify(t.path), 5);
    size_t n = read_file(t.path);
    EXPECT(!strstr(t.text, "secret"));
    for (size_t flip = 10; flip < n - 1; flip += 97) {
        if (strchr(t.text + flip, '\n') == t.text + n - 1)
            break; /* no line follows the last one, so no hash covers it */
        t.text[flip] ^= 1;
        write_file(t.path, t.text, n);
        EXPECT_EQ(verify(t.path), -1);
        t.text[flip] ^= 1;
    }
    end();
}

static void damaged_middle_is_found_by_verification_and_not_at_start(void)
{
    begin();
    write_lines(3);
    size_t n = read_file(t.path);
    t.text[100] ^= 1;
    write_file(t.path, t.text, n);
    write_lines(1);
    read_file(t.path);
    EXPECT_EQ(count("\n"), 4);
    EXPECT_EQ(verify(t.path), -1);
    end();
}

/* ---- torn ends */

static void torn_line_is_recorded_at_every_position(void)
{
    begin();
    write_lines(2);
    size_t n = read_file(t.path);
    char *text = strdup(t.text);
    size_t first = (size_t)(strchr(text, '\n') + 1 - text);

    for (size_t size = 0; size <= n; size++) {
        bool is_whole = size == 0 || size == first || size == n;
        write_file(t.path, text, size);
        write_lines(1);
        int n_before = (size >= first) + (size == n);
        EXPECT_EQ(verify(t.path), n_before + !is_whole + 1);
        read_file(t.path);
        EXPECT_EQ(count("\"event\":\"torn\""), !is_whole);
        char bytes[32];
        snprintf(bytes, sizeof(bytes), "\"bytes\":%zu,", size - (size > first ? first : 0));
        EXPECT(is_whole || count(bytes) == 1);
    }
    free(text);
    end();
}

static void zeros_after_a_power_cut_are_a_torn_end(void)
{
    static const char zeros[4096];

    begin();
    write_lines(2);
    size_t n = read_file(t.path);
    memcpy(t.text + n, zeros, sizeof(zeros));
    memcpy(t.text + n + sizeof(zeros), "half\nline", 9);
    write_file(t.path, t.text, n + sizeof(zeros) + 9);
    write_lines(1);
    EXPECT_EQ(verify(t.path), 4);
    write_file(t.path, zeros, sizeof(zeros));
    write_lines(1);
    EXPECT_EQ(verify(t.path), 2);
    end();
}

static void only_the_end_of_a_long_file_is_read(void)
{
    struct audit *a;
    struct err e;

    begin();
    write_lines(300);
    size_t n = read_file(t.path);
    EXPECT(n > 2 * AUDIT_TAIL_BYTES);
    write_file(t.path, t.text, n - 5);
    write_lines(1);
    EXPECT_EQ(verify(t.path), 301);
    /* No line ends in the part that is read. */
    memset(t.text + n, 'x', AUDIT_TAIL_BYTES + 1);
    write_file(t.path, t.text, n + AUDIT_TAIL_BYTES + 1);
    EXPECT_EQ(audit_open(&a, t.path, &e), -1);
    EXPECT(e.code == ERR_CORRUPT);
    EXPECT_EQ(read_file(t.path), n + AUDIT_TAIL_BYTES + 1);
    end();
}

static void other_files_are_refused_and_unchanged(void)
{
    static const char other[] = "# a configuration file\n";
    struct audit *a;
    struct err e;

    begin();
    write_file(t.path, other, strlen(other));
    EXPECT_EQ(audit_open(&a, t.path, &e), -1);
    EXPECT(e.code == ERR_CORRUPT);
    EXPECT(strstr(e.msg, t.path));
    EXPECT_EQ(read_file(t.path), strlen(other));
    EXPECT_STR(t.text, other);
    unlink(t.path);
    EXPECT_EQ(mkfifo(t.path, 0600), 0);
    EXPECT_EQ(audit_open(&a, t.path, &e), -1);
    EXPECT(strstr(e.msg, "not a regular file"));
    unlink(t.path);
    EXPECT_EQ(mkdir(t.path, 0700), 0);
    EXPECT_EQ(audit_open(&a, t.path, &e), -1);
    end();
}

static void second_writer_is_refused(void)
{
    struct audit *a, *b;
    struct err e;

    begin();
    a = open_log();
    EXPECT_EQ(audit_open(&b, t.path, &e), -1);
    EXPECT(strstr(e.msg, t.path) && strstr(e.msg, "another process writes to it"));
    write_line(a);
    audit_close(a, 1000);
    EXPECT_EQ(verify(t.path), 1);
    write_lines(1);
    EXPECT_EQ(verify(t.path), 2);
    end();
}

/* ---- failed writes */

static void short_write_is_undone_at_every_position(void)
{
    struct audit_stats s;

    begin();
    write_lines(1);
    size_t n = read_file(t.path);
    for (size_t more = 0; more < n; more++) {
        struct audit *a = open_log();
        set_size_limit(n + more);
        write_line(a);
        UNTIL(a, s, s.n_failures > 0);
        EXPECT_EQ(read_file(t.path), n);
        audit_close(a, 1000);
        set_size_limit(RLIM_INFINITY);
        EXPECT_EQ(verify(t.path), 1);
    }
    EXPECT(is_logged("audit_write_failed"));
    EXPECT(is_logged("File too large"));
    EXPECT(is_logged("audit_line_lost"));
    EXPECT(!is_logged("temporarily unavailable"));
    end();
}

static void line_is_written_when_the_disk_has_room_again(void)
{
    struct audit_stats s;

    begin();
    write_lines(1);
    size_t n = read_file(t.path);
    struct audit *a = open_log();
    set_size_limit(n + 100);
    write_line(a);
    refuse(a);
    UNTIL(a, s, s.n_failures > 0);
    set_size_limit(RLIM_INFINITY);
    UNTIL(a, s, s.n_lines == 2);
    EXPECT_EQ(s.n_lost, (uint64_t)0);
    EXPECT_EQ(s.n_failures, (uint64_t)1);
    audit_close(a, 1000);
    EXPECT_EQ(verify(t.path), 3);
    end();
}

static void lines_beyond_the_queue_are_counted_in_the_file(void)
{
    struct audit_stats s;
    unsigned long long n_lost = 0;
    uint64_t n_written = 0, n_refused_lost;

    begin();
    struct audit *a = open_log();
    set_size_limit(100);
    for (n_refused_lost = 0; !n_refused_lost; n_refused_lost = s.n_lost) {
        refuse(a);
        n_written++;
        audit_stats(a, &s);
    }
    /* Refused requests leave half of the queue to accepted ones. */
    for (int i = 0; i < 100; i++)
        write_line(a);
    audit_stats(a, &s);
    EXPECT_EQ(s.n_lost, n_refused_lost);
    n_written += 100;
    while (s.n_lost < n_refused_lost + 50) {
        write_line(a);
        n_written++;
        audit_stats(a, &s);
    }
    set_size_limit(RLIM_INFINITY);
    audit_close(a, 10000);
    read_file(t.path);
    for (const char *at = t.text; (at = strstr(at, "\"event\":\"lost\",\"lines\":")); at++)
        n_lost += strtoull(at + strlen("\"event\":\"lost\",\"lines\":"), NULL, 10);
    EXPECT_EQ(n_lost, (unsigned long long)s.n_lost);
    EXPECT_EQ(count("\"request_id\""), (int)(n_written - s.n_lost));
    EXPECT_EQ(verify(t.path), (int)(n_written - s.n_lost) + count("\"event\":\"lost\""));
    end();
}

/* ---- reopening */

/* Writes a line and waits until it is in the file. */
static void write_and_wait(struct audit *a)
{
    struct audit_stats s;

    audit_stats(a, &s);
    uint64_t n = s.n_lines;
    write_line(a);
    UNTIL(a, s, s.n_lines > n);
}

static void reopen_and_wait(struct audit *a)
{
    clear_log();
    audit_reopen(a);
    for (int waited = 0; !is_logged("audit_reopen"); waited++) {
        EXPECT(waited < PATIENCE_MS);
        poll(NULL, 0, 1);
    }
}

static void renamed_file_is_followed_by_a_new_one_that_refers_to_it(void)
{
    char last[AUDIT_HEX + 1] = "";
    int64_t n;
    struct err e;

    begin();
    struct audit *a = open_log();
    write_and_wait(a);
    reopen_and_wait(a);
    write_and_wait(a);
    EXPECT_EQ(rename(t.path, t.old), 0);
    reopen_and_wait(a);
    write_and_wait(a);
    audit_close(a, 1000);
    EXPECT_EQ(verify(t.old), 2);
    EXPECT_EQ(verify(t.path), 2);
    EXPECT_EQ(audit_file_verify(t.old, last, &n, &e), 0);
    EXPECT_EQ(audit_file_verify(t.path, last, &n, &e), 0);
    /* In the other order no line refers to the end of the file before. */
    EXPECT_EQ(audit_file_verify(t.old, last, &n, &e), -1);
    /* A file that was cut at its end is no longer the one that the next file refers to. */
    size_t size = read_file(t.old);
    EXPECT_EQ(truncate(t.old, (off_t)(size / 2)), 0);
    EXPECT_EQ(count("\n"), 2);
    last[0] = '\0';
    EXPECT_EQ(audit_file_verify(t.old, last, &n, &e), 0);
    EXPECT_EQ(audit_file_verify(t.path, last, &n, &e), -1);
    end();
}

static void failed_reopening_keeps_the_old_file(void)
{
    struct audit_stats s;

    begin();
    struct audit *a = open_log();
    write_and_wait(a);
    EXPECT_EQ(rename(t.path, t.old), 0);
    EXPECT_EQ(mkdir(t.path, 0700), 0);
    audit_reopen(a);
    UNTIL(a, s, s.n_failures == 1);
    write_and_wait(a);
    audit_close(a, 1000);
    EXPECT_EQ(verify(t.old), 2);
    end();
}

TESTS(TEST(chain_continues_and_detects_changes),
    TEST(damaged_middle_is_found_by_verification_and_not_at_start),
    TEST(torn_line_is_recorded_at_every_position), TEST(zeros_after_a_power_cut_are_a_torn_end),
    TEST(only_the_end_of_a_long_file_is_read), TEST(other_files_are_refused_and_unchanged),
    TEST(second_writer_is_refused), TEST(short_write_is_undone_at_every_position),
    TEST(line_is_written_when_the_disk_has_room_again),
    TEST(lines_beyond_the_queue_are_counted_in_the_file),
    TEST(renamed_file_is_followed_by_a_new_one_that_refers_to_it),
    TEST(failed_reopening_keeps_the_old_file))
