/* serve/async.c: a client that leaves, a deadline and a stopping server at every moment of a job at
 * the worker thread. Semaphores determine the order of events; no test waits for a time. */
#include "support/check.h"

#include "base/mem.h"
#include "os/clock.h"
#include "serve/async.h"
#include "serve/io.h"
#include "support/fake_sink.h"

#include <semaphore.h>

/* Counts of a job; they remain after the job was freed. */
struct seen {
    int n_run, n_done, n_gone, n_expired, n_drained, n_free;
    bool was_open_when_done, was_open_when_expired, was_stopped;
    pthread_t ran_on, freed_on;
    sem_t running; /* posted when run begins */
    sem_t go;      /* run with `waits` returns after this was posted */
    sem_t freed;   /* posted when the arena was freed */
};

struct job {
    struct async async;
    struct seen *seen;
    bool waits, fails;
    size_t n_bytes; /* size of the response */
};

struct exchange { /* an HTTP exchange whose sink checks its use */
    struct http_exchange x;
    struct http_request req;
    struct route_call call;
    struct fake_sink f;
    size_t n_queued; /* bytes that the client has not read */
};

static struct io io;
static struct serve_options options;
static int n_blockers, n_returned; /* jobs without an exchange: posted, returned */
/* Allocated per test, because a job of a failed test may still wait for its `go`. */
static struct seen *seen;
static struct exchange ex;

/* ---- the sink: written bytes stay queued until client_reads */

static void ex_begin(struct sink *s, int status, const char *type, int64_t n_bytes,
    const struct http_field *fields, int n_fields)
{
    sink_begin(&ex.f.sink, status, type, n_bytes, fields, n_fields);
}

static void ex_write(struct sink *s, struct str bytes)
{
    ex.n_queued += bytes.n;
    sink_write(&ex.f.sink, bytes);
}

static void ex_end(struct sink *s)
{
    sink_end(&ex.f.sink);
}

static void ex_abort(struct sink *s)
{
    sink_abort(&ex.f.sink);
}

static size_t ex_queued(const struct sink *s)
{
    return ex.n_queued;
}

static void client_leaves(void)
{
    if (ex.x.user)
        async_client_left(ex.x.user);
}

static void client_reads(void)
{
    ex.n_queued = 0;
    if (ex.x.user)
        async_drained(ex.x.user);
}

/* ---- the job */

static struct job *job_of(struct async *a)
{
    return container_of(a, struct job, async);
}

static int run(struct async *a)
{
    struct job *j = job_of(a);

    j->seen->n_run++;
    j->seen->ran_on = pthread_self();
    sem_post(&j->seen->running);
    if (j->waits)
        sem_wait(&j->seen->go);
    j->seen->was_stopped = a->job.is_stopped;
    if (j->fails)
        return err_set(&a->err, ERR_NOT_FOUND, "no such thing");
    for (size_t i = 0; i < j->n_bytes; i++)
        buf_putc(&a->out, 'a');
    return 0;
}

static void done(struct async *a)
{
    job_of(a)->seen->n_done++;
    job_of(a)->seen->was_open_when_done = a->is_open;
    if (a->is_open)
        async_reply(a);
}

static void gone(struct async *a)
{
    job_of(a)->seen->n_gone++;
    EXPECT(!a->is_open && !a->x && !a->call);
}

static void expired(struct async *a, const struct err *e)
{
    job_of(a)->seen->n_expired++;
    job_of(a)->seen->was_open_when_expired = a->is_open;
    EXPECT(e->code == ERR_TIMEOUT);
    async_close(a);
}

static void drained(struct async *a)
{
    job_of(a)->seen->n_drained++;
}

static void release(struct async *a)
{
    job_of(a)->seen->n_free++;
}

static void arena_freed(void *arg)
{
    struct seen *s = arg;

    s->freed_on = pthread_self();
    sem_post(&s->freed);
}

static const struct async_ops job_ops = { .run = run, .gone = gone, .free = release };
static const struct async_ops done_ops = { .run = run, .done = done, .free = release };
static const struct async_ops must_run_ops = { .run = run, .free = release, .must_run = true };
static const struct async_ops callback_ops = {
    .expired = expired, .drained = drained, .free = release
};

/* ---- fixture */

static void on_message(void *ctx, struct msg *m)
{
    EXPECT_EQ(m->kind, (int)WORKER_DONE);
    worker_done(io.worker, m);
}

static struct seen *new_seen(void)
{
    struct seen *s = xcalloc(1, sizeof(*s));

    sem_init(&s->running, 0, 0);
    sem_init(&s->go, 0, 0);
    sem_init(&s->freed, 0, 0);
    return s;
}

static void open_all(void)
{
    static const struct sink_ops ops = { ex_begin, ex_write, ex_end, ex_abort, ex_queued };
    struct err e;

    memset(&io, 0, sizeof(io));
    memset(&options, 0, sizeof(options));
    io.o = &options;
    n_blockers = n_returned = 0;
    EXPECT_EQ(loop_open(&io.loop, &e), 0);
    loop_on_message(io.loop, on_message, NULL);
    EXPECT_EQ(worker_open(&io.worker, loop_mailbox(io.loop), &e), 0);
    memset(&ex, 0, sizeof(ex));
    fake_sink_init(&ex.f);
    ex.x.sink.ops = &ops;
    ex.x.req = &ex.req;
    ex.call.io = &io;
    seen = new_seen();
}

static void close_all(void)
{
    EXPECT(io.n_held == 0 && !ex.x.user);
    worker_close(io.worker);
    loop_close(io.loop);
    fake_sink_clear(&ex.f);
    mem_free(seen);
}

static struct job *new_job(const struct async_ops *ops)
{
    struct job *j = async_new(sizeof(*j), ops, &io, &ex.x, &ex.call);

    CHECK(j && !arena_cleanup(j->async.arena, arena_freed, seen));
    EXPECT(ex.x.user && j->async.is_open);
    j->seen = seen;
    j->n_bytes = 2;
    return j;
}

static struct job *start_at_worker(const struct async_ops *ops)
{
    struct job *j = new_job(ops);

    j->waits = true;
    async_start(&j->async, true);
    return j;
}

/* A job that keeps the worker thread busy until its `go` is posted. */
struct blocker {
    struct worker_job job;
    sem_t running, go;
};

static void block(struct worker_job *j)
{
    struct blocker *b = container_of(j, struct blocker, job);

    sem_post(&b->running);
    sem_wait(&b->go);
}

static void count_returned(struct worker_job *j)
{
    n_returned++;
}

/* Returns when the worker thread runs the blocker: all earlier jobs have been returned. */
static void start_blocker(struct blocker *b)
{
    *b = (struct blocker){ .job = { .run = block, .done = count_returned } };
    sem_init(&b->running, 0, 0);
    sem_init(&b->go, 0, 0);
    n_blockers++;
    struct err e;
    EXPECT_EQ(worker_post(io.worker, &b->job, &e), 0);
    sem_wait(&b->running);
}

static void receive_jobs(void)
{
    while (io.n_held || n_returned < n_blockers)
        loop_once(io.loop, -1);
}

static void expect_response(int status, const char *body)
{
    EXPECT_EQ(ex.f.n_begun, 1);
    EXPECT_EQ(ex.f.status, status);
    EXPECT_EQ(ex.f.n_ended, 1);
    if (body)
        EXPECT(str_is(buf_str(&ex.f.body), body));
}

static void expect_freed(void)
{
    sem_wait(&seen->freed);
    EXPECT_EQ(seen->n_free, 1);
    EXPECT(sem_trywait(&seen->freed) != 0);
}

static bool is_worker(pthread_t t)
{
    return !pthread_equal(t, pthread_self());
}

/* ---- without a race */

static void small_job_runs_at_once(void)
{
    open_all();
    async_start(&new_job(&job_ops)->async, false);
    expect_response(200, "aa");
    EXPECT_EQ(seen->n_gone, 0);
    expect_freed();
    EXPECT(!is_worker(seen->ran_on) && !is_worker(seen->freed_on));
    close_all();
}

static void slow_job_runs_and_is_freed_at_the_worker(void)
{
    open_all();
    struct job *j = start_at_worker(&job_ops);
    sem_wait(&seen->running);
    EXPECT(j->async.is_at_worker && io.n_held == 1);
    EXPECT_EQ(ex.f.n_begun, 0);
    sem_post(&seen->go);
    receive_jobs();
    expect_response(200, "aa");
    expect_freed();
    EXPECT(!seen->was_stopped && is_worker(seen->ran_on) && is_worker(seen->freed_on));
    close_all();
}

/* The error of run is the response; an error that run has overcome is not. */
static int run_overcomes_an_error(struct async *a)
{
    err_set(&a->err, ERR_IO, "the first attempt failed");
    buf_puts(&a->out, STR("ok"));
    return 0;
}

/* The status shows whether a retry helps; the memory is given back on each path. */
static void refused_memory_is_an_error_with_its_reason(void)
{
    static const struct {
        size_t n_own, n_others; /* bytes held by other requests: of this key, of other keys */
        size_t n_bytes;         /* size of the response */
        int status;
        bool at_worker;
    } cases[] = {
        { 0, 0, 10000, 200, false },
        { 0, 0, 10000, 200, true },
        { 0, 0, 300000, 413, false }, /* more than the share of 150,000 bytes */
        { 0, 0, 300000, 413, true },
        { 140000, 0, 80000, 429, false },
        { 140000, 0, 80000, 429, true },
        { 0, 280000, 80000, 503, false },
    };
    struct budget_stats stats;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct budget *b = budget_new(
            &(struct budget_options){ .max = 400000, .share_percent = 50, .n_owners = 4 });
        struct charge own = { b, 1 }, others[2] = { { b, 2 }, { b, 3 } };
        open_all();
        options.request_memory = b;
        ex.call.caller.number = 1;
        EXPECT(charge_add(&own, cases[i].n_own));
        for (int k = 0; k < 2; k++)
            EXPECT(charge_add(&others[k], cases[i].n_others / 2));
        struct job *j = new_job(&job_ops);
        j->n_bytes = cases[i].n_bytes;
        j->waits = cases[i].at_worker;
        sem_post(&seen->go);
        async_start(&j->async, cases[i].at_worker);
        receive_jobs();
        expect_response(cases[i].status, NULL);
        expect_freed();
        close_all();
        charge_clear(&own);
        for (int k = 0; k < 2; k++)
            charge_clear(&others[k]);
        budget_stats(b, &stats);
        EXPECT_EQ(stats.bytes, 0u);
        budget_free(b);
    }
}

/* The first allocation of a request can be refused, too. */
static void a_request_without_any_memory_is_refused(void)
{
    static const struct async_ops ops = { 0 };
    struct budget *b =
        budget_new(&(struct budget_options){ .max = 40000, .share_percent = 100, .n_owners = 2 });
    struct charge other = { b };

    open_all();
    options.request_memory = b;
    ex.call.caller.number = 1;
    EXPECT(charge_add(&other, 30000));
    EXPECT(!async_new(sizeof(struct job), &ops, &io, &ex.x, &ex.call));
    EXPECT(!ex.x.user);
    expect_response(503, NULL);
    charge_clear(&other);
    budget_free(b);
    close_all();
}

static void error_of_the_job_is_the_response(void)
{
    static const struct async_ops ops = { .run = run_overcomes_an_error, .free = release };

    open_all();
    struct job *j = new_job(&job_ops);
    j->fails = true;
    async_start(&j->async, false);
    expect_response(404, NULL);
    expect_freed();
    close_all();

    open_all();
    async_start(&new_job(&ops)->async, false);
    expect_response(200, "ok");
    expect_freed();
    close_all();

    open_all();
    j = new_job(&job_ops);
    j->async.out.failed = true;
    async_start(&j->async, false);
    expect_response(503, NULL);
    expect_freed();
    close_all();
}

static void large_body_is_sent_at_the_pace_of_the_client(void)
{
    enum { PIECES = 5 };

    open_all();
    struct job *j = new_job(&job_ops);
    j->n_bytes = PIECES * SINK_HIGH_WATER;
    async_start(&j->async, false);
    EXPECT_EQ(ex.f.promised, (int64_t)PIECES * SINK_HIGH_WATER);
    for (int i = 0; i < PIECES && !ex.f.n_ended; i++) {
        EXPECT(ex.n_queued <= 2 * (size_t)SINK_HIGH_WATER);
        client_reads();
    }
    expect_response(200, NULL);
    EXPECT_EQ(ex.f.body.n, (size_t)PIECES * SINK_HIGH_WATER);
    expect_freed();
    client_reads(); /* the exchange is not watched any more */
    close_all();
}

/* ---- the client leaves */

static void client_leaves_before_the_job_starts(void)
{
    struct blocker b;

    open_all();
    start_blocker(&b);
    struct job *j = start_at_worker(&done_ops);
    client_leaves();
    EXPECT(j->async.is_at_worker && seen->n_free == 0);
    sem_post(&b.go);
    sem_post(&seen->go); /* a job that runs nevertheless returns */
    receive_jobs();
    EXPECT(seen->n_run == 0 && seen->n_done == 1 && !seen->was_open_when_done);
    EXPECT_EQ(ex.f.n_begun, 0);
    expect_freed();
    close_all();
}

/* The response is 503, and the rest of the life is that of a job that has returned. */
static void job_that_the_worker_thread_does_not_accept(void)
{
    static struct worker_job jobs[WORKER_JOBS_MAX];
    struct blocker b;
    struct err e;

    open_all();
    start_blocker(&b);
    for (int i = 1; i < WORKER_JOBS_MAX; i++) {
        jobs[i] = (struct worker_job){ .done = count_returned, .is_stopped = true };
        EXPECT_EQ(worker_post(io.worker, &jobs[i], &e), 0);
    }
    async_start(&new_job(&done_ops)->async, true);
    expect_response(503, NULL);
    EXPECT(seen->n_run == 0 && seen->n_done == 1 && seen->was_open_when_done && !io.n_held);
    sem_post(&b.go);
    n_blockers += WORKER_JOBS_MAX - 1;
    receive_jobs();
    expect_freed();
    close_all();
}

static void client_leaves_while_the_job_runs(void)
{
    open_all();
    struct job *j = start_at_worker(&job_ops);
    sem_wait(&seen->running);
    client_leaves();
    EXPECT_EQ(seen->n_gone, 1);
    EXPECT(!ex.x.user && j->async.is_at_worker && seen->n_free == 0);
    sem_post(&seen->go);
    receive_jobs();
    EXPECT(seen->was_stopped);
    EXPECT_EQ(ex.f.n_begun, 0);
    expect_freed();
    close_all();
}

static void client_leaves_after_the_job_has_returned(void)
{
    struct blocker b;

    open_all();
    struct job *j = start_at_worker(&done_ops);
    sem_post(&seen->go);
    start_blocker(&b); /* the message of the job is in the mailbox */
    client_leaves();
    EXPECT(j->async.is_at_worker && seen->n_free == 0);
    sem_post(&b.go);
    receive_jobs();
    EXPECT(seen->n_run == 1 && seen->n_done == 1 && !seen->was_open_when_done);
    EXPECT_EQ(ex.f.n_begun, 0);
    expect_freed();
    close_all();
}

static void client_leaves_while_the_body_is_sent(void)
{
    open_all();
    struct job *j = new_job(&job_ops);
    j->n_bytes = 5 * SINK_HIGH_WATER;
    async_start(&j->async, false);
    EXPECT_EQ(seen->n_free, 0);
    client_leaves();
    EXPECT(ex.f.n_begun == 1 && ex.f.n_ended == 0);
    EXPECT_EQ(seen->n_gone, 1);
    expect_freed();
    close_all();
}

static void job_that_must_run_runs_without_its_client(void)
{
    struct blocker b;

    open_all();
    start_blocker(&b);
    start_at_worker(&must_run_ops);
    client_leaves();
    sem_post(&b.go);
    sem_post(&seen->go);
    receive_jobs();
    EXPECT(seen->n_run == 1 && !seen->was_stopped);
    EXPECT_EQ(ex.f.n_begun, 0);
    expect_freed();
    close_all();
}

/* ---- the deadline */

static void pass_deadline(struct job *j)
{
    async_set_deadline(&j->async, clock_ns());
    loop_once(io.loop, 0);
}

static void deadline_while_the_job_runs(void)
{
    open_all();
    struct job *j = start_at_worker(&job_ops);
    sem_wait(&seen->running);
    pass_deadline(j);
    expect_response(504, NULL);
    EXPECT(!ex.x.user && j->async.is_at_worker && seen->n_free == 0);
    sem_post(&seen->go);
    receive_jobs();
    EXPECT(seen->was_stopped);
    expect_response(504, NULL); /* the result of the job was dropped */
    expect_freed();
    close_all();
}

/* Timers precede messages in a round of the loop. */
static void deadline_after_the_job_has_returned(void)
{
    struct blocker b;

    open_all();
    struct job *j = start_at_worker(&done_ops);
    sem_post(&seen->go);
    start_blocker(&b);
    pass_deadline(j);
    expect_response(504, NULL);
    sem_post(&b.go);
    receive_jobs();
    EXPECT(seen->n_done == 1 && !seen->was_open_when_done);
    expect_freed();
    close_all();
}

static void deadline_while_the_body_is_sent(void)
{
    open_all();
    struct job *j = new_job(&job_ops);
    j->n_bytes = 5 * SINK_HIGH_WATER;
    async_start(&j->async, false);
    pass_deadline(j);
    EXPECT(ex.f.n_begun == 1 && ex.f.n_aborted == 1 && ex.f.n_ended == 0);
    expect_freed();
    close_all();
}

static void earlier_deadline_counts_and_none_after_the_end(void)
{
    uint64_t far = clock_ns() + 3600 * NS_PER_S;

    open_all();
    struct job *j = new_job(&job_ops);
    async_set_deadline(&j->async, UINT64_MAX);
    EXPECT_EQ(j->async.deadline.heap_index, 0u);
    async_set_deadline(&j->async, far);
    async_set_deadline(&j->async, far + 1);
    EXPECT_EQ(j->async.deadline_ns, far);
    async_ref(&j->async);
    async_close(&j->async);
    async_close(&j->async); /* no effect */
    EXPECT_EQ(j->async.deadline.heap_index, 0u);
    pass_deadline(j); /* no effect */
    EXPECT(ex.f.n_begun == 0 && seen->n_free == 0);
    async_unref(&j->async);
    expect_freed();
    close_all();
}

/* ---- the server stops: http aborts the exchanges, and the io thread waits for its jobs */

static void server_stops_while_jobs_wait_and_run(void)
{
    open_all();
    start_at_worker(&job_ops);
    sem_wait(&seen->running);
    client_leaves();
    struct seen *second = new_seen();
    struct job *j = async_new(sizeof(*j), &job_ops, &io, &ex.x, &ex.call);
    CHECK(j && !arena_cleanup(j->async.arena, arena_freed, second));
    j->seen = second;
    async_start(&j->async, true);
    client_leaves();
    EXPECT_EQ(io.n_held, 2); /* the io thread may not end */
    sem_post(&seen->go);
    receive_jobs();
    EXPECT(seen->n_run == 1 && seen->was_stopped && second->n_run == 0);
    EXPECT_EQ(ex.f.n_begun, 0);
    expect_freed();
    sem_wait(&second->freed);
    EXPECT_EQ(second->n_free, 1);
    close_all();
    mem_free(second);
}

/* ---- references, detached exchanges, memory of the exchange */

static void reference_of_a_message_outlives_the_response(void)
{
    open_all();
    struct job *j = new_job(&job_ops);
    async_ref(&j->async);
    async_start(&j->async, false);
    expect_response(200, "aa");
    EXPECT(!j->async.is_open && !j->async.x && seen->n_free == 0);
    async_unref(&j->async);
    expect_freed();
    close_all();
}

static void detached_request_continues_until_its_deadline(void)
{
    open_all();
    struct job *j = new_job(&callback_ops);
    client_reads();
    EXPECT_EQ(seen->n_drained, 1);
    async_detach(&j->async);
    EXPECT(!ex.x.user && j->async.is_open);
    client_leaves(); /* the exchange belongs to another handler */
    client_reads();
    EXPECT(seen->n_drained == 1 && seen->n_free == 0);
    pass_deadline(j);
    EXPECT(seen->n_expired == 1 && seen->was_open_when_expired);
    expect_freed();
    close_all();
}

static void struct_in_the_arena_of_the_exchange(void)
{
    open_all();
    ex.x.arena = arena_new(MB);
    struct job *j = arena_zalloc(ex.x.arena, 1, sizeof(*j));
    CHECK(j);
    j->seen = seen;
    async_init(&j->async, &job_ops, &io, &ex.x, &ex.call);
    client_leaves();
    EXPECT(seen->n_gone == 1 && seen->n_free == 1);
    close_all();
    arena_free(ex.x.arena);
}

static void list_contains_open_requests(void)
{
    struct list list = { 0 };
    struct async *a[3];

    open_all();
    for (int i = 0; i < 3; i++) {
        a[i] = &new_job(&job_ops)->async;
        async_ref(a[i]);
        list_add_first(&list, &a[i]->in_open);
    }
    async_close(a[1]);
    EXPECT(list.first == &a[2]->in_open && list.last == &a[0]->in_open);
    async_close(a[2]);
    EXPECT(list.first == &a[0]->in_open && list.last == list.first);
    async_close(a[0]);
    EXPECT(!list.first);
    for (int i = 0; i < 3; i++)
        async_unref(a[i]);
    EXPECT_EQ(seen->n_free, 3);
    close_all();
}

TESTS(TEST(refused_memory_is_an_error_with_its_reason),
    TEST(a_request_without_any_memory_is_refused), TEST(list_contains_open_requests),
    TEST(small_job_runs_at_once), TEST(slow_job_runs_and_is_freed_at_the_worker),
    TEST(job_that_the_worker_thread_does_not_accept), TEST(error_of_the_job_is_the_response),
    TEST(large_body_is_sent_at_the_pace_of_the_client), TEST(client_leaves_before_the_job_starts),
    TEST(client_leaves_while_the_job_runs), TEST(client_leaves_after_the_job_has_returned),
    TEST(client_leaves_while_the_body_is_sent), TEST(job_that_must_run_runs_without_its_client),
    TEST(deadline_while_the_job_runs), TEST(deadline_after_the_job_has_returned),
    TEST(deadline_while_the_body_is_sent), TEST(earlier_deadline_counts_and_none_after_the_end),
    TEST(server_stops_while_jobs_wait_and_run), TEST(reference_of_a_message_outlives_the_response),
    TEST(detached_request_continues_until_its_deadline), TEST(struct_in_the_arena_of_the_exchange))
