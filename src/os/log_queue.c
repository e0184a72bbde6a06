#include "os/log_queue.h"

#include "base/log.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/thread.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* The state is static, since a thread that is blocked in write(2) can outlive log_queue_close. */
static struct {
    pthread_mutex_t mu; /* guards all members but n_dropped; never held during a write */
    pthread_cond_t changed;
    char *bytes; /* ring of LOG_QUEUE_BYTES */
    size_t from, n;
    bool is_open, is_writing;
    _Atomic uint64_t n_dropped;
} queue = { .mu = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void append(const char *line, size_t n)
{
    size_t at = (queue.from + queue.n) % LOG_QUEUE_BYTES;
    size_t first = MIN(n, LOG_QUEUE_BYTES - at);

    memcpy(queue.bytes + at, line, first);
    memcpy(queue.bytes, line + first, n - first);
    queue.n += n;
}

/* Receives the lines of log_line(). */
static void put_line(const char *line, size_t n)
{
    pthread_mutex_lock(&queue.mu);
    if (!queue.is_open) {
        pthread_mutex_unlock(&queue.mu);
        log_write_direct(line, n);
        return;
    }
    if (n <= LOG_QUEUE_BYTES - queue.n)
        append(line, n);
    else
        atomic_fetch_add_explicit(&queue.n_dropped, 1, memory_order_relaxed);
    pthread_cond_broadcast(&queue.changed);
    pthread_mutex_unlock(&queue.mu);
}

/* Copies the oldest lines, as many as `max` bytes hold, out of the ring. Waits until there are
 * some; returns 0 if the queue is closed and empty. */
static size_t take(char *out, size_t max)
{
    pthread_mutex_lock(&queue.mu);
    queue.is_writing = false;
    pthread_cond_broadcast(&queue.changed);
    while (queue.is_open && !queue.n)
        pthread_cond_wait(&queue.changed, &queue.mu);
    size_t n = MIN(queue.n, max), first = MIN(n, LOG_QUEUE_BYTES - queue.from);
    memcpy(out, queue.bytes + queue.from, first);
    memcpy(out + first, queue.bytes, n - first);
    while (n && out[n - 1] != '\n')
        n--;
    queue.from = (queue.from + n) % LOG_QUEUE_BYTES;
    queue.n -= n;
    queue.is_writing = n > 0;
    pthread_mutex_unlock(&queue.mu);
    return n;
}

/* Logs the number of lines dropped since the last report. The queue can be full, so that this line
 * is written directly, between two lines of the queue. */
static void report_dropped(uint64_t *n_reported)
{
    uint64_t n = log_queue_dropped();

    if (n == *n_reported)
        return;
    log_line_to(log_write_direct, LOG_WARN, "log", "dropped",
        "lines=%llu reason=\"stderr is not read\"", (unsigned long long)(n - *n_reported));
    *n_reported = n;
}

static void *write_lines(void *arg)
{
    static char bytes[64 * 1024];
    uint64_t *n_reported = arg;

    for (size_t n; (n = take(bytes, sizeof(bytes)));) {
        log_write_direct(bytes, n);
        report_dropped(n_reported);
    }
    return NULL;
}

int log_queue_open(struct err *e)
{
    static uint64_t n_reported; /* log thread */
    pthread_t thread;

    queue.bytes = queue.bytes ? queue.bytes : try_malloc(LOG_QUEUE_BYTES);
    if (!queue.bytes)
        return err_set(e, ERR_MEMORY, "no memory for the queue of log lines");
    queue.is_open = true;
    if (thread_start(&thread, "log", write_lines, &n_reported, e)) {
        queue.is_open = false;
        return -1;
    }
    pthread_detach(thread);
    log_set_output(put_line);
    return 0;
}

void log_queue_close(uint32_t timeout_ms)
{
    struct timespec until;

    if (!queue.bytes)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * (long)NS_PER_MS;
    until.tv_sec += until.tv_nsec / (long)NS_PER_S;
    until.tv_nsec %= (long)NS_PER_S;
    pthread_mutex_lock(&queue.mu);
    queue.is_open = false;
    pthread_cond_broadcast(&queue.changed);
    while (queue.n || queue.is_writing)
        if (pthread_cond_timedwait(&queue.changed, &queue.mu, &until))
            break;
    pthread_mutex_unlock(&queue.mu);
}

uint64_t log_queue_dropped(void)
{
    return atomic_load_explicit(&queue.n_dropped, memory_order_relaxed);
}
