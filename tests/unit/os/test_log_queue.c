/* Queue of log lines: a reader of stderr that is stalled delays no thread, lines are whole, dropped
 * lines are counted and reported. */
#include "os/log_queue.h"

#include "base/log.h"
#include "os/thread.h"
#include "support/check.h"

#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

static int saved_stderr, reader;

/* Redirects stderr into a pipe that nothing reads yet. */
static void begin_pipe(void)
{
    int ends[2];

    EXPECT_EQ(pipe(ends), 0);
    saved_stderr = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    reader = ends[0];
}

static void end_pipe(void)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
}

struct received {
    sem_t has_report;
    int n_lines, n_bad, n_reports;
    unsigned long long n_reported;
};

static void read_line(struct received *r, const char *line)
{
    const char *report = strstr(line, "dropped   lines=");

    r->n_lines += strstr(line, "end=x") != NULL;
    r->n_bad += !report && !strstr(line, "end=x");
    if (!report)
        return;
    r->n_reports++;
    r->n_reported += strtoull(report + strlen("dropped   lines="), NULL, 10);
    sem_post(&r->has_report);
}

/* Reads to the end of the pipe. */
static void *read_lines(void *arg)
{
    struct received *r = arg;
    FILE *in = fdopen(reader, "r");
    char line[2048];

    while (fgets(line, sizeof(line), in))
        read_line(r, line);
    fclose(in);
    return NULL;
}

static void log_lines(int n)
{
    static char filler[700];

    memset(filler, 'a', sizeof(filler) - 1);
    for (int i = 0; i < n; i++)
        log_info("test", "line", "n=%d filler=%s end=x", i, filler);
}

static void stalled_reader_delays_no_thread(void)
{
    /* Several times the size of the queue and of the pipe. The short lines fill the queue so far
     * that it has no room for the line about dropped lines. */
    enum { LONG = 5000, SHORT = 100, LINES = LONG + SHORT };
    struct received r = { 0 };
    uint64_t before = log_queue_dropped();
    pthread_t thread;
    struct err e;

    sem_init(&r.has_report, 0, 0);
    begin_pipe();
    EXPECT_EQ(log_queue_open(&e), 0);
    log_lines(LONG); /* would block for ever in a direct write */
    for (int i = 0; i < SHORT; i++)
        log_info("test", "line", "end=x");
    uint64_t n_dropped = log_queue_dropped() - before;
    EXPECT(n_dropped > 0 && n_dropped < LINES);
    EXPECT_EQ(thread_start(&thread, "reader", read_lines, &r, &e), 0);
    sem_wait(&r.has_report);
    log_queue_close(60000); /* the reader takes all lines */
    end_pipe();
    pthread_join(thread, NULL);
    EXPECT_EQ(r.n_bad, 0);
    EXPECT(r.n_lines == LINES - (int)n_dropped);
    EXPECT(r.n_reports > 0);
    EXPECT(r.n_reported == n_dropped);
}

static void close_ends_although_stderr_is_not_read(void)
{
    struct err e;

    begin_pipe();
    EXPECT_EQ(log_queue_open(&e), 0);
    log_lines(1000);
    log_queue_close(10);
    close(reader); /* the writing thread gets EPIPE for all that is left, and ends */
    log_queue_close(60000);
    end_pipe();
}

TESTS(TEST(stalled_reader_delays_no_thread), TEST(close_ends_although_stderr_is_not_read))
