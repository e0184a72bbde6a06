/* serve/responses/live_response.c: a response in generation can be found, read and subscribed
 * to; it is not evicted before its end, has reserved space for a terminal event, and stays
 * within the size limits. */
#include "support/response_store_kit.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "os/thread.h"
#include "serve/responses/live_response.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>

static const struct stored_response *begin_response(struct response_store *s, const char *id)
{
    struct stored_response k = {
        .id = str_of(id), .response = STR("queued"), .input = STR("input")
    };

    k.has_event_log = true;
    k.producer = 3;
    return live_response_begin(s, 1, &k, 0);
}

static bool end_response(struct response_store *s, const struct stored_response *k,
    enum stored_stage stage, const char *response)
{
    struct live_response_final last = { stage, str_of(response), STR_NONE, false };
    uint64_t listeners;

    return live_response_end(s, k, &last, 0, &listeners);
}

static void expect_stage(struct response_store *s, const struct stored_response *k,
    enum stored_stage stage, const char *response)
{
    struct stored_response_view v;

    response_store_view(s, k, &v);
    EXPECT_EQ(v.stage, stage);
    EXPECT(str_is(v.response, response));
}

static void response_is_found_from_its_beginning(void)
{
    struct response_store *s = new_response_store(MB, MB);
    const struct stored_response *k = begin_response(s, "a");

    EXPECT(
        k && k->is_background && k->has_event_log && k->producer == 3 && str_is(k->input, "input"));
    EXPECT(!begin_response(s, "a")); /* the id exists */
    const struct stored_response *seen = response_store_take(s, 1, STR("a"), 0);
    EXPECT(seen == k && !response_store_take(s, 2, STR("a"), 0));
    expect_stage(s, seen, STORED_QUEUED, "queued");
    live_response_set_running(s, k);
    live_response_set_running(s, k);
    expect_stage(s, seen, STORED_RUNNING, "queued");
    response_store_check(s);
    EXPECT(end_response(s, k, STORED_COMPLETED, "done"));
    expect_stage(s, seen, STORED_COMPLETED, "done");
    EXPECT(!live_response_cancel(s, k));
    response_store_check(s);
    response_store_unref(s, seen);
    response_store_unref(s, k);
    seen = response_store_take(s, 1, STR("a"), 0);
    expect_stage(s, seen, STORED_COMPLETED, "done");
    response_store_unref(s, seen);
    response_store_close(s);
}

static void response_stored_whole_has_ended(void)
{
    struct response_store *s = new_response_store(MB, MB);
    struct stored_response k = { .id = STR("a"), .response = STR("done") };

    EXPECT(response_store_put(s, 1, &k, 0));
    const struct stored_response *seen = response_store_take(s, 1, STR("a"), 0);
    EXPECT(!seen->is_background);
    expect_stage(s, seen, STORED_COMPLETED, "done");
    response_store_unref(s, seen);
    response_store_close(s);
}

static void live_response_neither_expires_nor_is_evicted(void)
{
    struct response_store *s = new_response_store(20 * KB, 20 * KB);
    const struct stored_response *k = begin_response(s, "a");
    static char text[2000];
    struct stored_response other = { .response = { text, sizeof(text) } };
    char id[32];

    for (int i = 0; i < 50; i++) {
        snprintf(id, sizeof(id), "id_%d", i);
        other.id = str_of(id);
        EXPECT(response_store_put(s, 1, &other, 20 * (uint64_t)SECOND * (uint64_t)i));
        const struct stored_response *seen =
            response_store_take(s, 1, STR("a"), 20 * (uint64_t)SECOND * (uint64_t)i);
        EXPECT(seen == k);
        response_store_unref(s, seen);
        response_store_check(s);
    }
    EXPECT(end_response(s, k, STORED_COMPLETED, "done"));
    response_store_unref(s, k);
    other.id = STR("last");
    /* since its end it expires like others */
    EXPECT(response_store_put(s, 1, &other, 5000 * (uint64_t)SECOND));
    EXPECT(!response_store_take(s, 1, STR("a"), 5000 * (uint64_t)SECOND));
    response_store_close(s);
}

static void bytes_are_counted_as_they_are_appended(void)
{
    struct response_store *s = new_response_store(100 * KB, 100 * KB);
    const struct stored_response *k = begin_response(s, "a");
    uint64_t listeners;
    char frame[1000];
    int n = 0;

    memset(frame, 'x', sizeof(frame));
    memset(frame + sizeof(frame) - 2, '\n', 2);
    size_t previous = stored_bytes(s);
    while (live_response_append(s, k, (struct str){ frame, sizeof(frame) }, &listeners)) {
        n++;
        EXPECT(
            stored_bytes(s) >= previous + (size_t)n * sizeof(frame) && stored_bytes(s) <= 100 * KB);
    }
    EXPECT(n > 20);
    response_store_check(s);
    static char big[50 * KB];
    memset(big, 'y', sizeof(big) - 1);
    size_t full = stored_bytes(s);
    EXPECT(!end_response(s, k, STORED_COMPLETED, big)); /* nothing has changed */
    EXPECT(stored_bytes(s) == full);
    expect_stage(s, k, STORED_QUEUED, "queued");
    struct live_response_final word = { STORED_FAILED, STR("a last word has room"), STR("word\n\n"),
        false };
    struct event_log_pos p;
    EXPECT(live_response_end(s, k, &word, 0, &listeners));
    expect_stage(s, k, STORED_FAILED, "a last word has room");
    EXPECT(live_response_seek(s, k, &p, (uint64_t)n) &&
           !live_response_seek(s, k, &p, (uint64_t)n + 1));
    EXPECT(str_is(live_response_read(s, k, &p, 99), "word\n\n"));
    EXPECT(stored_bytes(s) <= 100 * KB);
    response_store_check(s);
    EXPECT(response_store_remove(s, 1, STR("a"), 0));
    EXPECT(stored_bytes(s) > 0); /* a reference is held */
    response_store_unref(s, k);
    EXPECT(stored_bytes(s) == 0);
    response_store_close(s);
}

static void other_responses_are_evicted_for_it(void)
{
    struct response_store *s = new_response_store(40 * KB, 40 * KB);
    static char text[10 * KB];
    struct stored_response other = { .id = STR("other"), .response = { text, sizeof(text) } };
    const struct stored_response *k = begin_response(s, "a");

    EXPECT(response_store_put(s, 1, &other, 0));
    static char big[26 * KB];
    memset(big, 'y', sizeof(big) - 1);
    EXPECT(end_response(s, k, STORED_COMPLETED, big));
    EXPECT(!response_store_take(s, 1, STR("other"), 0));
    expect_stage(s, k, STORED_COMPLETED, big);
    response_store_unref(s, k);
    response_store_check(s);
    response_store_close(s);
}

static void too_many_live_responses_are_rejected(void)
{
    struct response_store *s = new_response_store(MB, 20 * KB);
    const struct stored_response *all[10];
    char id[8];
    int n = 0;

    for (; n < 10; n++) {
        snprintf(id, sizeof(id), "%d", n);
        all[n] = begin_response(s, id);
        if (!all[n])
            break;
    }
    EXPECT(n > 1 && n < 10);
    response_store_check(s);
    while (n--) {
        EXPECT(end_response(s, all[n], STORED_CANCELLED, "gone"));
        response_store_unref(s, all[n]);
    }
    response_store_check(s);
    response_store_close(s);
}

static void dropped_response_continues_for_reference_holders(void)
{
    struct response_store *s = new_response_store(MB, MB);
    const struct stored_response *k = begin_response(s, "a");
    struct event_log_pos p = { 0 };
    uint64_t listeners;

    EXPECT(response_store_remove(s, 1, STR("a"), 0) && !response_store_take(s, 1, STR("a"), 0));
    EXPECT(live_response_append(s, k, STR("x\n\n"), &listeners));
    const struct stored_response *again = begin_response(s, "a"); /* the id is free */
    EXPECT(again && again != k);
    EXPECT(str_is(live_response_read(s, k, &p, 10), "x\n\n"));
    EXPECT(end_response(s, k, STORED_COMPLETED, "done"));
    response_store_check(s);
    response_store_unref(s, k);
    EXPECT(end_response(s, again, STORED_COMPLETED, "done"));
    response_store_unref(s, again);
    response_store_check(s);
    response_store_close(s);
}

static void writer_sees_the_cancellation(void)
{
    struct response_store *s = new_response_store(MB, MB);
    const struct stored_response *k = begin_response(s, "a");

    EXPECT(!live_response_is_cancel_requested(s, k));
    EXPECT(live_response_cancel(s, k) && live_response_is_cancel_requested(s, k) &&
           live_response_cancel(s, k));
    EXPECT(end_response(s, k, STORED_CANCELLED, "gone"));
    EXPECT(!live_response_cancel(s, k));
    response_store_unref(s, k);
    response_store_close(s);
}

static void end_is_appended_atomically(void)
{
    struct response_store *s = new_response_store(MB, MB);
    const struct stored_response *k = begin_response(s, "a");
    struct live_response_final last = { STORED_COMPLETED, STR("done"), STR("the end\n\n"), false };
    struct event_log_pos p = { 0 };
    uint64_t listeners;

    EXPECT(live_response_append(s, k, STR("one\n\ntwo\n\n"), &listeners) && !listeners);
    live_response_subscribe(s, k, 0);
    live_response_subscribe(s, k, 63);
    EXPECT(!live_response_seek(s, k, &p, 2));
    EXPECT(live_response_end(s, k, &last, 0, &listeners));
    EXPECT(listeners == (1 | 1ull << 63));
    EXPECT(
        live_response_seek(s, k, &p, 2) && str_is(live_response_read(s, k, &p, 99), "the end\n\n"));
    EXPECT(live_response_seek(s, k, &p, 1) && str_is(live_response_read(s, k, &p, 5), "two\n\n"));
    response_store_unref(s, k);
    response_store_close(s);
}

static void previous_response_is_referenced(void)
{
    struct response_store *s = new_response_store(MB, MB);
    const struct stored_response *a = begin_response(s, "a");
    struct stored_response next = { .id = STR("b"), .response = STR("queued"), .previous = a };

    EXPECT(end_response(s, a, STORED_COMPLETED, "done"));
    const struct stored_response *b = live_response_begin(s, 1, &next, 0);
    response_store_unref(s, a);
    EXPECT(response_store_remove(s, 1, STR("a"), 0) && b->previous == a && b->depth == 1);
    expect_stage(s, b->previous, STORED_COMPLETED, "done");
    EXPECT(end_response(s, b, STORED_COMPLETED, "done"));
    response_store_unref(s, b);
    EXPECT(response_store_remove(s, 1, STR("b"), 0));
    EXPECT(stored_bytes(s) == 0);
    response_store_close(s);
}

/* Each allocation fails once: nothing leaks, and the returned results are correct. */
static void out_of_memory_is_reported(void)
{
    static char big[20 * KB];
    bool was_whole = false;

    memset(big, 'y', sizeof(big) - 1);
    for (uint64_t nth = 1; !was_whole; nth++) {
        struct response_store *s = new_response_store(MB, MB);
        uint64_t listeners, failed = mem_failures();
        mem_fail_after(nth);
        const struct stored_response *k = begin_response(s, "a");
        if (k) {
            size_t previous = stored_bytes(s);
            bool has_put = live_response_append(s, k, STR("x\n\n"), &listeners);
            EXPECT(has_put == (stored_bytes(s) > previous));
            struct event_log_pos p = { 0 };
            EXPECT(live_response_read(s, k, &p, 9).n == (has_put ? 3u : 0u));
            if (!end_response(s, k, STORED_COMPLETED, big))
                EXPECT(end_response(s, k, STORED_FAILED, "no memory"));
            response_store_unref(s, k);
        }
        mem_fail_after(0);
        was_whole = mem_failures() == failed;
        EXPECT(k || !stored_bytes(s));
        response_store_check(s);
        response_store_close(s);
    }
}

/* ---- one writer, several reader threads: a reader that subscribes and then reads misses no
 * frame */

enum { N_FRAMES = 3000, N_READERS = 3 };

static struct {
    struct response_store *response_store;
    const struct stored_response *stored_response;
    _Atomic uint64_t notified; /* subscribers that were notified */
} shared;

static void *read_all(void *arg)
{
    unsigned me = *(const unsigned *)arg;
    struct event_log_pos p = { 0 };
    struct stored_response_view v;
    struct str piece;
    struct buf all;

    buf_init(&all, MB);
    const struct stored_response *k = response_store_take(shared.response_store, 1, STR("a"), 0);
    live_response_subscribe(shared.response_store, k, me);
    do {
        response_store_view(shared.response_store, k, &v);
        while ((piece = live_response_read(shared.response_store, k, &p, 100)).n)
            buf_puts(&all, piece);
        while (v.stage != STORED_COMPLETED &&
               !(atomic_fetch_and(&shared.notified, ~(1ull << me)) >> me & 1))
            sched_yield();
    } while (v.stage != STORED_COMPLETED);
    response_store_unref(shared.response_store, k);
    struct str rest = buf_str(&all);
    for (int i = 0; i < N_FRAMES; i++) {
        char want[16];
        int n = snprintf(want, sizeof(want), "%d\n\n", i);
        EXPECT(str_starts(rest, (struct str){ want, (size_t)n }));
        rest = str_skip(rest, (size_t)n);
    }
    EXPECT(str_is(rest, "end\n\n") && str_is(v.response, "done"));
    buf_clear(&all);
    return NULL;
}

static void reader_threads_miss_no_frame(void)
{
    struct live_response_final last = { STORED_COMPLETED, STR("done"), STR("end\n\n"), false };
    unsigned names[N_READERS];
    pthread_t threads[N_READERS];
    uint64_t listeners;
    struct err e;

    shared.response_store = new_response_store(MB, MB);
    shared.stored_response = begin_response(shared.response_store, "a");
    for (unsigned i = 0; i < N_READERS; i++) {
        names[i] = i;
        EXPECT_EQ(thread_start(&threads[i], "reader", read_all, &names[i], &e), 0);
    }
    for (int i = 0; i < N_FRAMES; i++) {
        char frame[16];
        int n = snprintf(frame, sizeof(frame), "%d\n\n", i);
        EXPECT(live_response_append(shared.response_store, shared.stored_response,
            (struct str){ frame, (size_t)n }, &listeners));
        atomic_fetch_or(&shared.notified, listeners);
    }
    EXPECT(live_response_end(shared.response_store, shared.stored_response, &last, 0, &listeners));
    atomic_fetch_or(&shared.notified, listeners);
    for (int i = 0; i < N_READERS; i++)
        pthread_join(threads[i], NULL);
    response_store_unref(shared.response_store, shared.stored_response);
    response_store_check(shared.response_store);
    response_store_close(shared.response_store);
}

TESTS(TEST(response_is_found_from_its_beginning), TEST(response_stored_whole_has_ended),
    TEST(live_response_neither_expires_nor_is_evicted),
    TEST(bytes_are_counted_as_they_are_appended), TEST(other_responses_are_evicted_for_it),
    TEST(too_many_live_responses_are_rejected),
    TEST(dropped_response_continues_for_reference_holders), TEST(writer_sees_the_cancellation),
    TEST(end_is_appended_atomically), TEST(previous_response_is_referenced),
    TEST(out_of_memory_is_reported), TEST(reader_threads_miss_no_frame))
