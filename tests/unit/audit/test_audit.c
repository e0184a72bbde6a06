/* The audit log: hash chain, torn ends, failed and short writes, lost lines, second writers, and
 * reopening. A limit of the file size (RLIMIT_FSIZE) makes write(2) fail or write less, as a full
 * disk does. */
#include "support/check.h"
#include "base/log.h"
#include "audit/audit.h"
#include "audit/audit_file.h"
#include "audit/verify.h"
#include "base/fault.h"
#include "support/tmpdir.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

enum { TEXT = 8 * 1024 * 1024, PATH = TMPDIR_NAME + 16, PATIENCE_MS = 20000 };

static struct {
    char dir[TMPDIR_NAME], path[PATH], old[PATH];
    char text[TEXT];
    size_t n_bytes;      /* length of text */
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

    EXPECT_EQ(audit_open(&a, &(struct audit_options){ .path = t.path }, &e), 0);
    return a;
}

static int open_again(struct audit **out, struct err *e)
{
    return audit_open(out, &(struct audit_options){ .path = t.path }, e);
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
    t.n_bytes = n;
    fclose(f);
    return n;
}

static void write_file(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "w");

    EXPECT(f && fwrite(text, 1, n, f) == n);
    fclose(f);
}

/* Number of lines of intact files, the oldest first; -1: they are not intact. */
static int verify_files(const char *const *paths, int n)
{
    struct audit_verifier v = { 0 };
    struct audit_keys *keys;
    char keys_path[PATH + 8];
    struct err e;
    int rc = 0;

    snprintf(keys_path, sizeof(keys_path), "%s.keys", t.path);
    EXPECT_EQ(audit_keys_open(&keys, keys_path, false, &e), 0);
    v.keys = keys;
    for (int i = 0; i < n && !rc; i++)
        rc = audit_verify_file(&v, paths[i], i == n - 1, &e);
    audit_keys_close(keys);
    return rc ? -1 : (int)v.n_lines;
}

static int verify(const char *path)
{
    return verify_files(&path, 1);
}

static void copy_checkpoint(bool restore)
{
    char from[PATH + 16], to[PATH + 16];

    snprintf(from, sizeof(from), "%s.%s", t.path, restore ? "saved" : "checkpoint");
    snprintf(to, sizeof(to), "%s.%s", t.path, restore ? "checkpoint" : "saved");
    write_file(to, t.text, read_file(from));
}

/* Position of `text` at or after `at` in t.text; NULL = none. The sanitizers make strstr and memmem
 * read the whole rest of the text in each call. */
static const char *find(const char *at, const char *text)
{
    const size_t n = strlen(text);

    for (; at + n <= t.text + t.n_bytes; at++)
        if (*at == *text && !memcmp(at, text, n))
            return at;
    return NULL;
}

static int count(const char *text)
{
    int n = 0;

    for (const char *at = t.text; (at = find(at, text)); at++)
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
    EXPECT_EQ(verify(t.path), 6);
    size_t n = read_file(t.path);
    EXPECT(!strstr(t.text, "secret"));
    for (size_t flip = 0; flip < n; flip += CHECK_STRIDE) {
        t.text[flip] ^= 1;
        write_file(t.path, t.text, n);
        EXPECT_EQ(verify(t.path), -1);
        t.text[flip] ^= 1;
    }
    end();
}

static void prompts_have_the_same_hmac_after_a_restart(void)
{
    char hmac[AUDIT_HEX + 1];

    begin();
    write_lines(1);
    write_lines(1);
    read_file(t.path);
    const char *at = strstr(t.text, "\"prompt_hmac\":\"");
    EXPECT(at);
    snprintf(hmac, sizeof(hmac), "%s", at + strlen("\"prompt_hmac\":\""));
    EXPECT(audit_is_hex(hmac, AUDIT_HEX));
    EXPECT_EQ(count(hmac), 2);
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
    EXPECT_EQ(count("\n"), 5);
    EXPECT_EQ(verify(t.path), -1);
    end();
}

/* ---- torn ends */

/* Step to the next tested size: 1 near the ends of lines, and everywhere without sanitizers. */
static size_t next_size(size_t size, size_t first, size_t n)
{
    const size_t to_end = (size < first ? first : n) - size;

    return to_end > CHECK_STRIDE ? CHECK_STRIDE : 1;
}

static void torn_line_is_recorded_at_every_position(void)
{
    begin();
    write_lines(0);
    size_t begin_bytes = read_file(t.path);
    copy_checkpoint(false);
    write_lines(2);
    size_t n = read_file(t.path);
    char *text = strdup(t.text);
    size_t first = (size_t)(strchr(text + begin_bytes, '\n') + 1 - text);

    for (size_t size = begin_bytes; size <= n; size += next_size(size, first, n)) {
        bool is_whole = size == begin_bytes || size == first || size == n;
        write_file(t.path, text, size);
        copy_checkpoint(true);
        write_lines(1);
        int n_before = 1 + (size >= first) + (size == n);
        EXPECT_EQ(verify(t.path), n_before + !is_whole + 1);
        read_file(t.path);
        EXPECT_EQ(count("\"event\":\"torn\""), !is_whole);
        char bytes[32];
        snprintf(
            bytes, sizeof(bytes), "\"bytes\":%zu,", size - (size > first ? first : begin_bytes));
        EXPECT(is_whole || count(bytes) == 1);
    }
    free(text);
    end();
}

static void lines_after_a_torn_one_are_removed_with_it(void)
{
    static const char zeros[4096];

    begin();
    write_lines(2);
    copy_checkpoint(false);
    size_t n = read_file(t.path);
    memcpy(t.text + n, zeros, sizeof(zeros));
    memcpy(t.text + n + sizeof(zeros), "half\nline", 9);
    write_file(t.path, t.text, n + sizeof(zeros) + 9);
    write_lines(1);
    EXPECT_EQ(verify(t.path), 5);
    /* A power cut can lose a block in the middle of a group of lines. */
    copy_checkpoint(true);
    EXPECT_EQ(truncate(t.path, (off_t)n), 0);
    write_lines(300);
    size_t more = read_file(t.path);
    memset(t.text + n + 1000, 0, 3000);
    write_file(t.path, t.text, more);
    copy_checkpoint(true);
    write_lines(1);
    EXPECT(verify(t.path) > 0);
    end();
}

static void first_line_may_be_torn_or_zeros(void)
{
    static const char zeros[4096];

    begin();
    write_lines(0);
    size_t n = read_file(t.path);
    char *text = strdup(t.text);
    for (size_t size = 0; size < n; size++) {
        char name[PATH + 16];
        snprintf(name, sizeof(name), "%s.checkpoint", t.path);
        unlink(name);
        write_file(t.path, text, size);
        write_lines(1);
        EXPECT_EQ(verify(t.path), 2 + (size > 0));
        unlink(name);
        write_file(t.path, zeros, size);
        write_lines(1);
        EXPECT_EQ(verify(t.path), 2 + (size > 0));
    }
    free(text);
    end();
}

/* ---- missing lines */

/* The server starts, keeps the file as evidence, and the log is not intact from there on. */
static void expect_damage(const char *what)
{
    write_lines(1);
    read_file(t.path);
    EXPECT_EQ(count("\"reason\":\"missing\""), 1);
    EXPECT_EQ(verify(t.path), -1);
    EXPECT(is_logged(what));
    clear_log();
}

static void log_that_was_cut_removed_or_replaced_is_not_intact(void)
{
    char checkpoint[PATH + 16], old[PATH + 16];

    begin();
    write_lines(2);
    size_t n = read_file(t.path);
    snprintf(checkpoint, sizeof(checkpoint), "%s.checkpoint", t.path);
    snprintf(old, sizeof(old), "%s.copy", t.path);
    write_file(old, t.text, n);
    write_lines(1);
    EXPECT_EQ(verify(t.path), 4);
    write_file(t.path, t.text, n); /* an earlier state of the same file */
    EXPECT_EQ(verify(t.path), -1);
    expect_damage("audit_file_damaged");
    unlink(t.path);
    expect_damage("audit_file_missing");
    write_file(t.path, t.text, 0);
    expect_damage("audit_file_missing");
    unlink(checkpoint);
    expect_damage("audit_file_damaged");
    write_file(checkpoint, "x", 1);
    expect_damage("audit_file_damaged");
    write_file(t.path, "# a file\n", 9);
    expect_damage("audit_file_damaged");
    end();
}

static void ten_million_lines_open_in_100_ms(void)
{
    enum { LINE = 500 };
    const uint64_t bytes = 10000000ull * LINE;
    struct audit_keys *keys;
    struct checkpoint_file f;
    struct checkpoint c;
    enum checkpoint_state state;
    char name[PATH + 16];
    struct timespec from, to;
    struct err e;

    begin();
    write_lines(1);
    size_t n = read_file(t.path);
    char *last = strchr(t.text, '\n') + 1;
    size_t n_last = n - (size_t)(last - t.text);
    /* The lines before the last one are a hole in the file, which no start reads. */
    int fd = open(t.path, O_WRONLY);
    EXPECT_EQ(ftruncate(fd, 0), 0);
    EXPECT_EQ(pwrite(fd, "\n", 1, (off_t)bytes - 1), (ssize_t)1);
    EXPECT_EQ(pwrite(fd, last, n_last, (off_t)bytes), (ssize_t)n_last);
    close(fd);
    snprintf(name, sizeof(name), "%s.keys", t.path);
    EXPECT_EQ(audit_keys_open(&keys, name, false, &e), 0);
    snprintf(name, sizeof(name), "%s.checkpoint", t.path);
    EXPECT_EQ(checkpoint_open(&f, name, keys, &c, &state, &e), 0);
    EXPECT_EQ((int)state, CHECKPOINT_VALID);
    c.offset = bytes + n_last;
    EXPECT_EQ(checkpoint_write(&f, &c, audit_keys_current(keys), &e), 0);
    checkpoint_close(&f);
    audit_keys_close(keys);
    long ms = 100;
    for (int i = 0; i < 10 && ms >= 100; i++) { /* other tests may use the processors */
        clock_gettime(CLOCK_MONOTONIC, &from);
        struct audit *a = open_log();
        clock_gettime(CLOCK_MONOTONIC, &to);
        audit_close(a, 1000);
        ms = (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
    }
    EXPECT(!is_logged("audit_file_damaged"));
    EXPECT(ms < 100);
    end();
}

static void other_files_are_refused_and_unchanged(void)
{
    static const char other[] = "# a configuration file\n";
    struct audit *a;
    struct err e;

    begin();
    write_file(t.path, other, strlen(other));
    EXPECT_EQ(open_again(&a, &e), -1);
    EXPECT(e.code == ERR_CORRUPT);
    EXPECT(strstr(e.msg, t.path));
    EXPECT_EQ(read_file(t.path), strlen(other));
    EXPECT_STR(t.text, other);
    unlink(t.path);
    EXPECT_EQ(mkfifo(t.path, 0600), 0);
    EXPECT_EQ(open_again(&a, &e), -1);
    EXPECT(strstr(e.msg, "not a regular file"));
    unlink(t.path);
    EXPECT_EQ(mkdir(t.path, 0700), 0);
    EXPECT_EQ(open_again(&a, &e), -1);
    end();
}

static void second_writer_is_refused(void)
{
    struct audit *a, *b;
    struct err e;

    begin();
    a = open_log();
    EXPECT_EQ(open_again(&b, &e), -1);
    EXPECT(strstr(e.msg, t.path) && strstr(e.msg, "another process writes to it"));
    write_line(a);
    audit_close(a, 1000);
    EXPECT_EQ(verify(t.path), 2);
    write_lines(1);
    EXPECT_EQ(verify(t.path), 3);
    end();
}

/* ---- failed writes */

static void short_write_is_undone_at_every_position(void)
{
    struct audit_stats s;

    begin();
    write_lines(1);
    size_t n = read_file(t.path), n_line = n - (size_t)(strchr(t.text, '\n') + 1 - t.text);
    for (size_t more = 0; more < n_line; more++) {
        struct audit *a = open_log();
        set_size_limit(n + more);
        write_line(a);
        UNTIL(a, s, s.n_failures > 0);
        EXPECT_EQ(read_file(t.path), n);
        audit_close(a, 1000);
        set_size_limit(RLIM_INFINITY);
        EXPECT_EQ(verify(t.path), 2);
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
    write_lines(3); /* more bytes than the checkpoint has */
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
    EXPECT_EQ(verify(t.path), 6);
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
    for (const char *at = t.text; (at = find(at, "\"event\":\"lost\",\"lines\":")); at++)
        n_lost += strtoull(at + strlen("\"event\":\"lost\",\"lines\":"), NULL, 10);
    EXPECT_EQ(n_lost, (unsigned long long)s.n_lost);
    EXPECT_EQ(count("\"request_id\""), (int)(n_written - s.n_lost));
    EXPECT_EQ(verify(t.path), 1 + (int)(n_written - s.n_lost) + count("\"event\":\"lost\""));
    end();
}

static void no_reserved_line_is_lost(void)
{
    struct audit_entry entry = { "req_1", "", "/v1/x", STR("m"), STR("secret"), 200, "done", 1, 2,
        0, 5000000, true };
    struct audit_stats s;
    int n = 0;
    struct err e;

    begin();
    struct audit *a;
    EXPECT_EQ(
        audit_open(&a, &(struct audit_options){ .path = t.path, .when_full = AUDIT_REFUSE }, &e),
        0);
    set_size_limit(100);
    while (audit_reserve(a))
        n++;
    EXPECT(n > 1000);
    audit_unreserve(a);
    EXPECT(audit_reserve(a));
    for (int i = 0; i < 100; i++) /* no other line takes the room */
        refuse(a);
    audit_stats(a, &s);
    EXPECT_EQ(s.n_lost, (uint64_t)100);
    for (int i = 0; i < n; i++)
        audit_write(a, &entry);
    audit_stats(a, &s);
    EXPECT_EQ(s.n_lost, (uint64_t)100);
    set_size_limit(RLIM_INFINITY);
    audit_close(a, 10000);
    read_file(t.path);
    EXPECT_EQ(count("\"request_id\""), n);
    EXPECT_EQ(verify(t.path), 1 + n + 1);
    /* Without the option there is always room. */
    a = open_log();
    for (int i = 0; i < n + 10; i++)
        EXPECT(audit_reserve(a));
    audit_close(a, 1000);
    end();
}

static void count_call(void *ctx)
{
    ++*(int *)ctx;
}

/* Room that the disk makes, and room that a reservation gives back. */
static void watcher_is_called_when_a_full_queue_has_room(void)
{
    struct err e;
    struct audit *a;
    int n_calls = 0, n_reserved = 0;

    begin();
    EXPECT_EQ(
        audit_open(&a, &(struct audit_options){ .path = t.path, .when_full = AUDIT_BLOCK }, &e), 0);
    audit_watch(a, count_call, &n_calls);
    while (audit_reserve(a))
        n_reserved++;
    EXPECT(n_reserved > 1000 && !audit_reserve(a));
    EXPECT_EQ(n_calls, 0);
    audit_unreserve(a); /* one call for two failures */
    EXPECT_EQ(n_calls, 1);
    audit_unreserve(a); /* no reservation has failed since */
    EXPECT_EQ(n_calls, 1);
    EXPECT(audit_reserve(a) && audit_reserve(a) && !audit_reserve(a));
    audit_watch(a, NULL, NULL);
    audit_unreserve(a);
    EXPECT_EQ(n_calls, 1);
    audit_close(a, 1000);
    end();
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Paths of the rotated files and of the current one. Returns their number. */
static int list_files(char *paths[], int max)
{
    DIR *d = opendir(t.dir);
    int n = 0;

    for (struct dirent *f; (f = readdir(d));) {
        if (strncmp(f->d_name, "a.log.0", 7))
            continue;
        EXPECT(n < max - 1);
        EXPECT(asprintf(&paths[n++], "%s/%s", t.dir, f->d_name) > 0);
    }
    closedir(d);
    qsort(paths, (size_t)n, sizeof(*paths), compare_names);
    paths[n++] = strdup(t.path);
    return n;
}

/* Opens, writes, rotates and closes with a failure of the nth call at a site: whatever fails, the
 * log is intact at the next start, and the lines that were counted are in it. */
static void every_failure_leaves_an_intact_log(void)
{
    static const enum fault_site sites[] = { FAULT_ALLOC, FAULT_OPEN, FAULT_READ, FAULT_WRITE,
        FAULT_DISK_READ, FAULT_DISK_WRITE, FAULT_DISK_SHORT, FAULT_THREAD };
    enum { MAX = 100 };
    char *paths[MAX];
    struct audit_stats s;
    struct err e;
    int n_failed_opens = 0;

    for (size_t i = 0; i < ARRAY_LEN(sites); i++) {
        bool has_fired = true;
        for (uint64_t nth = 1; has_fired && nth < 500; nth++) {
            struct audit *a;
            uint64_t n_lines = 0;
            begin();
            fault_arm(sites[i], nth);
            int rc =
                audit_open(&a, &(struct audit_options){ .path = t.path, .rotate_bytes = 1500 }, &e);
            n_failed_opens += rc != 0;
            for (int k = 0; !rc && k < 8; k++)
                write_line(a);
            if (!rc) {
                UNTIL(a, s, s.n_lines + s.n_lost >= 8 || s.n_failures > 0);
                n_lines = s.n_lines;
                audit_close(a, 10000);
            }
            has_fired = !fault_left(sites[i]);
            fault_arm(sites[i], 0);
            audit_close(open_log(), 10000);
            int n = list_files(paths, MAX);
            EXPECT(verify_files((const char *const *)paths, n) >= (int)n_lines + 1);
            for (int k = 0; k < n; k++)
                free(paths[k]);
            end();
        }
    }
#ifdef TESTING /* other builds cannot inject failures */
    EXPECT(n_failed_opens > 3);
#else
    EXPECT_EQ(n_failed_opens, 0);
#endif
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

static void renamed_file_is_followed_by_a_new_one_of_the_same_chain(void)
{
    begin();
    struct audit *a = open_log();
    write_and_wait(a);
    reopen_and_wait(a);
    write_and_wait(a);
    EXPECT_EQ(rename(t.path, t.old), 0);
    reopen_and_wait(a);
    write_and_wait(a);
    audit_close(a, 1000);
    EXPECT_EQ(verify(t.old), 4);
    EXPECT_EQ(verify(t.path), 2);
    EXPECT_EQ(verify_files((const char *[]){ t.old, t.path }, 2), 6);
    EXPECT_EQ(verify_files((const char *[]){ t.path, t.old }, 2), -1);
    /* A file that was cut at its end has no event at its end, and the next one does not follow. */
    size_t n = read_file(t.old);
    t.text[n - 1] = '\0';
    EXPECT_EQ(truncate(t.old, strrchr(t.text, '\n') + 1 - t.text), 0);
    EXPECT_EQ(verify(t.old), -1);
    EXPECT_EQ(verify_files((const char *[]){ t.old, t.path }, 2), -1);
    end();
}

static void file_that_was_renamed_without_a_server_is_followed(void)
{
    begin();
    write_lines(2);
    EXPECT_EQ(rename(t.path, t.old), 0);
    write_lines(1);
    EXPECT_EQ(verify_files((const char *[]){ t.old, t.path }, 2), 5);
    EXPECT_EQ(verify(t.path), -1); /* the file before could have been removed */
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
    EXPECT_EQ(rmdir(t.path), 0);
    reopen_and_wait(a);
    write_and_wait(a);
    audit_close(a, 1000);
    EXPECT_EQ(verify_files((const char *[]){ t.old, t.path }, 2), 7);
    end();
}

/* ---- rotation */

static struct audit *open_with(struct audit_options o)
{
    struct audit *a;
    struct err e;

    o.path = t.path;
    EXPECT_EQ(audit_open(&a, &o, &e), 0);
    return a;
}

static void file_is_rotated_by_size_and_the_chain_continues(void)
{
    enum { MAX = 100, N = 200 };
    char *paths[MAX];

    begin();
    struct audit *a = open_with((struct audit_options){ .rotate_bytes = 10000 });
    for (int i = 0; i < N; i++)
        write_and_wait(a);
    audit_close(a, 1000);
    int n = list_files(paths, MAX);
    EXPECT(n > 5);
    EXPECT_EQ(verify_files((const char *const *)paths, n), N + n + (n - 1));
    for (int i = 0; i < n; i++)
        EXPECT(verify(paths[i]) > 0);
    /* A removed file in the middle is detected. */
    char *kept = paths[2];
    paths[2] = paths[1];
    EXPECT_EQ(verify_files((const char *const *)paths + 2, n - 2), -1);
    paths[2] = kept;
    for (int i = 0; i < n; i++)
        free(paths[i]);
    end();
}

static void old_files_are_removed_and_the_removal_is_recorded(void)
{
    enum { MAX = 100 };
    char *paths[MAX];

    begin();
    struct audit *a = open_with((struct audit_options){ .rotate_bytes = 1000 });
    for (int i = 0; i < 10; i++)
        write_and_wait(a);
    audit_close(a, 1000);
    int n = list_files(paths, MAX);
    struct utimbuf old = { time(NULL) - 100, time(NULL) - 100 };
    EXPECT(n > 3);
    EXPECT_EQ(utime(paths[0], &old), 0);
    EXPECT_EQ(utime(paths[1], &old), 0);
    a = open_with((struct audit_options){ .retain_s = 50 });
    write_and_wait(a);
    audit_close(a, 1000);
    EXPECT(access(paths[0], F_OK) && access(paths[1], F_OK) && !access(paths[2], F_OK));
    read_file(t.path);
    EXPECT_EQ(count("\"event\":\"removed\""), 2);
    EXPECT(verify_files((const char *const *)paths + 2, n - 2) > 0);
    for (int i = 0; i < n; i++)
        free(paths[i]);
    end();
}

/* A damaged file is evidence for as long as the files that were closed by rotation. */
static void damaged_files_are_removed_at_the_same_age(void)
{
    char name[PATH + 40], other[PATH + 40];

    begin();
    snprintf(name, sizeof(name), "%s.damaged-%020d", t.path, 1700000000);
    snprintf(other, sizeof(other), "%s.damaged-%020d.copy", t.path, 1700000000);
    for (int is_old = 0; is_old < 2; is_old++) {
        struct utimbuf old = { time(NULL) - 100, time(NULL) - 100 };
        write_file(name, "x\n", 2);
        write_file(other, "x\n", 2);
        EXPECT(utime(other, &old) == 0 && (!is_old || utime(name, &old) == 0));
        struct audit *a = open_with((struct audit_options){ .retain_s = 50 });
        write_and_wait(a);
        audit_close(a, 1000);
        EXPECT_EQ(access(name, F_OK) != 0, is_old);
        EXPECT_EQ(access(other, F_OK), 0);
    }
    read_file(t.path);
    EXPECT_EQ(count("\"event\":\"removed\""), 1);
    end();
}

static void lost_key_file_is_an_error_and_no_new_one_is_made(void)
{
    char keys[PATH + 16], kept[PATH + 16], checkpoint[PATH + 16];
    struct audit *a;
    struct err e;

    begin();
    write_lines(1);
    snprintf(keys, sizeof(keys), "%s.keys", t.path);
    snprintf(kept, sizeof(kept), "%s.kept", t.path);
    snprintf(checkpoint, sizeof(checkpoint), "%s.checkpoint", t.path);
    EXPECT_EQ(rename(keys, kept), 0);
    EXPECT_EQ(open_again(&a, &e), -1);
    EXPECT_EQ((int)e.code, ERR_NOT_FOUND);
    EXPECT(strstr(e.msg, keys) && strstr(e.msg, "restore the key file"));
    EXPECT(access(keys, F_OK));
    EXPECT_EQ(unlink(checkpoint), 0); /* the log alone */
    EXPECT_EQ(open_again(&a, &e), -1);
    EXPECT(access(keys, F_OK) && access(checkpoint, F_OK));
    EXPECT_EQ(rename(kept, keys), 0);
    write_lines(1);
    EXPECT_EQ(unlink(keys), 0);
    EXPECT_EQ(unlink(t.path), 0); /* the checkpoint alone */
    EXPECT_EQ(open_again(&a, &e), -1);
    EXPECT(access(keys, F_OK) && access(t.path, F_OK));
    EXPECT_EQ(unlink(checkpoint), 0);
    write_lines(1); /* a new log has a new key */
    EXPECT_EQ(verify(t.path), 2);
    end();
}

static void key_is_rotated_by_age(void)
{
    char ids[2][AUDIT_KEY_ID + 1];

    begin();
    write_lines(1);
    read_file(t.path);
    memcpy(ids[0], strstr(t.text, "\"kid\":\"") + 7, AUDIT_KEY_ID);
    ids[0][AUDIT_KEY_ID] = '\0';
    poll(NULL, 0, 1100); /* the age of a key is counted in seconds */
    struct audit *a = open_with((struct audit_options){ .key_s = 1 });
    write_and_wait(a);
    audit_close(a, 1000);
    write_lines(1);
    size_t n = read_file(t.path);
    memcpy(ids[1], t.text + n - 3 - AUDIT_HEX - 9 - AUDIT_KEY_ID, AUDIT_KEY_ID);
    ids[1][AUDIT_KEY_ID] = '\0';
    EXPECT(strcmp(ids[0], ids[1]));
    EXPECT_EQ(count("\"event\":\"key\""), 1);
    EXPECT_EQ(verify(t.path), 1 + 3 + 1);
    end();
}

static void checkpoint_is_sent_to_syslog(void)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    struct audit_verifier v = { 0 };
    struct audit_keys *keys;
    char text[1024] = "", name[PATH + 16];
    struct err e;

    begin();
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/log", t.dir);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    struct audit *a = open_with((struct audit_options){ .syslog_path = at.sun_path });
    write_and_wait(a);
    audit_close(a, 1000);
    while (recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT) > 0) /* the last one counts */
        EXPECT(!strncmp(text, "<85>inferfluxd: audit checkpoint ", 33));
    EXPECT(!strncmp(text + 33, "2:", 2));
    text[35 + AUDIT_HEX] = '\0';
    snprintf(name, sizeof(name), "%s.keys", t.path);
    EXPECT_EQ(audit_keys_open(&keys, name, false, &e), 0);
    v.keys = keys;
    v.anchor.n_lines = 2;
    v.anchor.mac = text + 35;
    EXPECT_EQ(audit_verify_file(&v, t.path, true, &e), 0);
    EXPECT(v.anchor.is_found);
    audit_keys_close(keys);
    close(fd);
    /* A socket that is gone is a failure and loses no line. */
    a = open_with((struct audit_options){ .syslog_path = "/nonexistent/log" });
    write_and_wait(a);
    audit_close(a, 1000);
    EXPECT(is_logged("audit_syslog_failed"));
    EXPECT_EQ(verify(t.path), 3);
    end();
}

TESTS(TEST(file_is_rotated_by_size_and_the_chain_continues),
    TEST(old_files_are_removed_and_the_removal_is_recorded), TEST(key_is_rotated_by_age),
    TEST(damaged_files_are_removed_at_the_same_age),
    TEST(lost_key_file_is_an_error_and_no_new_one_is_made), TEST(checkpoint_is_sent_to_syslog),
    TEST(chain_continues_and_detects_changes), TEST(prompts_have_the_same_hmac_after_a_restart),
    TEST(damaged_middle_is_found_by_verification_and_not_at_start),
    TEST(torn_line_is_recorded_at_every_position), TEST(lines_after_a_torn_one_are_removed_with_it),
    TEST(first_line_may_be_torn_or_zeros), TEST(log_that_was_cut_removed_or_replaced_is_not_intact),
    TEST(ten_million_lines_open_in_100_ms), TEST(other_files_are_refused_and_unchanged),
    TEST(second_writer_is_refused), TEST(short_write_is_undone_at_every_position),
    TEST(line_is_written_when_the_disk_has_room_again),
    TEST(lines_beyond_the_queue_are_counted_in_the_file), TEST(no_reserved_line_is_lost),
    TEST(watcher_is_called_when_a_full_queue_has_room), TEST(every_failure_leaves_an_intact_log),
    TEST(renamed_file_is_followed_by_a_new_one_of_the_same_chain),
    TEST(file_that_was_renamed_without_a_server_is_followed),
    TEST(failed_reopening_keeps_the_old_file))
