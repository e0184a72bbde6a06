/* serve/responses/live_response.c: a response in generation can be found, read and subscribed
 * to; it is not evicted before its end, has reserved space for a terminal event, and stays
 * within the size limits. */
#include "support/shelf.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "os/thread.h"
#include "serve/responses/growing.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>

static const struct kept *begin_response(struct shelf *s, const char *id)
{
    struct kept k = { .id = str_of(id), .answer = STR("queued"), .input = STR("input") };

    k.is_told = true;
    k.maker = 3;
    return growing_begin(s, 1, &k, 0);
}

static bool end_response(
    struct shelf *s, const struct kept *k, enum kept_stage stage, const char *answer)
{
    struct growing_last last = { stage, str_of(answer), STR_NONE, false };
    uint64_t listeners;

    return growing_end(s, k, &last, 0, &listeners);
}

static void expect_stage(
    struct shelf *s, const struct kept *k, enum kept_stage stage, const char *answer)
{
    struct kept_view v;

    shelf_look(s, k, &v);
    EXPECT_EQ(v.stage, stage);
    EXPECT(str_is(v.answer, answer));
}

static void response_is_found_from_its_beginning(void)
{
    struct shelf *s = new_shelf(MB, MB);
    const struct kept *k = begin_response(s, "a");

    EXPECT(k && k->is_grown && k->is_told && k->maker == 3 && str_is(k->input, "input"));
    EXPECT(!begin_response(s, "a")); /* the id exists */
    const struct kept *seen = shelf_take(s, 1, STR("a"), 0);
    EXPECT(seen == k && !shelf_take(s, 2, STR("a"), 0));
    expect_stage(s, seen, KEPT_WAITS, "queued");
    growing_runs(s, k);
    growing_runs(s, k);
    expect_stage(s, seen, KEPT_RUNS, "queued");
    shelf_check(s);
    EXPECT(end_response(s, k, KEPT_ENDED, "done"));
    expect_stage(s, seen, KEPT_ENDED, "done");
    EXPECT(!growing_stop(s, k));
    shelf_check(s);
    shelf_unref(s, seen);
    shelf_unref(s, k);
    seen = shelf_take(s, 1, STR("a"), 0);
    expect_stage(s, seen, KEPT_ENDED, "done");
    shelf_unref(s, seen);
    shelf_close(s);
}

static void response_stored_whole_has_ended(void)
{
    struct shelf *s = new_shelf(MB, MB);
    struct kept k = { .id = STR("a"), .answer = STR("done") };

    EXPECT(shelf_put(s, 1, &k, 0));
    const struct kept *seen = shelf_take(s, 1, STR("a"), 0);
    EXPECT(!seen->is_grown);
    expect_stage(s, seen, KEPT_ENDED, "done");
    shelf_unref(s, seen);
    shelf_close(s);
}

static void live_response_neither_expires_nor_is_evicted(void)
{
    struct shelf *s = new_shelf(20 * KB, 20 * KB);
    const struct kept *k = begin_response(s, "a");
    static char text[2000];
    struct kept other = { .answer = { text, sizeof(text) } };
    char id[32];

    for (int i = 0; i < 50; i++) {
        snprintf(id, sizeof(id), "id_%d", i);
        other.id = str_of(id);
        EXPECT(shelf_put(s, 1, &other, 20 * (uint64_t)SECOND * (uint64_t)i));
        const struct kept *seen = shelf_take(s, 1, STR("a"), 20 * (uint64_t)SECOND * (uint64_t)i);
        EXPECT(seen == k);
        shelf_unref(s, seen);
        shelf_check(s);
    }
    EXPECT(end_response(s, k, KEPT_ENDED, "done"));
    shelf_unref(s, k);
    other.id = STR("last");
    /* since its end it expires like others */
    EXPECT(shelf_put(s, 1, &other, 5000 * (uint64_t)SECOND));
    EXPECT(!shelf_take(s, 1, STR("a"), 5000 * (uint64_t)SECOND));
    shelf_close(s);
}

static void bytes_are_counted_as_they_are_appended(void)
{
    struct shelf *s = new_shelf(100 * KB, 100 * KB);
    const struct kept *k = begin_response(s, "a");
    uint64_t listeners;
    char frame[1000];
    int n = 0;

    memset(frame, 'x', sizeof(frame));
    memset(frame + sizeof(frame) - 2, '\n', 2);
    size_t before = bytes_of(s);
    while (growing_put(s, k, (struct str){ frame, sizeof(frame) }, &listeners)) {
        n++;
        EXPECT(bytes_of(s) >= before + (size_t)n * sizeof(frame) && bytes_of(s) <= 100 * KB);
    }
    EXPECT(n > 20);
    shelf_check(s);
    static char big[50 * KB];
    memset(big, 'y', sizeof(big) - 1);
    size_t full = bytes_of(s);
    EXPECT(!end_response(s, k, KEPT_ENDED, big)); /* nothing has changed */
    EXPECT(bytes_of(s) == full);
    expect_stage(s, k, KEPT_WAITS, "queued");
    struct growing_last word = { KEPT_FAILED, STR("a last word has room"), STR("word\n\n"), false };
    struct tape_place p;
    EXPECT(growing_end(s, k, &word, 0, &listeners));
    expect_stage(s, k, KEPT_FAILED, "a last word has room");
    EXPECT(growing_seek(s, k, &p, (uint64_t)n) && !growing_seek(s, k, &p, (uint64_t)n + 1));
    EXPECT(str_is(growing_read(s, k, &p, 99), "word\n\n"));
    EXPECT(bytes_of(s) <= 100 * KB);
    shelf_check(s);
    EXPECT(shelf_drop(s, 1, STR("a"), 0));
    EXPECT(bytes_of(s) > 0); /* a reference is held */
    shelf_unref(s, k);
    EXPECT(bytes_of(s) == 0);
    shelf_close(s);
}

static void other_responses_are_evicted_for_it(void)
{
    struct shelf *s = new_shelf(40 * KB, 40 * KB);
    static char text[10 * KB];
    struct kept other = { .id = STR("other"), .answer = { text, sizeof(text) } };
    const struct kept *k = begin_response(s, "a");

    EXPECT(shelf_put(s, 1, &other, 0));
    static char big[26 * KB];
    memset(big, 'y', sizeof(big) - 1);
    EXPECT(end_response(s, k, KEPT_ENDED, big));
    EXPECT(!shelf_take(s, 1, STR("other"), 0));
    expect_stage(s, k, KEPT_ENDED, big);
    shelf_unref(s, k);
    shelf_check(s);
    shelf_close(s);
}

static void too_many_live_responses_are_rejected(void)
{
    struct shelf *s = new_shelf(MB, 20 * KB);
    const struct kept *all[10];
    char id[8];
    int n = 0;

    for (; n < 10; n++) {
        snprintf(id, sizeof(id), "%d", n);
        all[n] = begin_response(s, id);
        if (!all[n])
            break;
    }
    EXPECT(n > 1 && n < 10);
    shelf_check(s);
    while (n--) {
        EXPECT(end_response(s, all[n], KEPT_CANCELLED, "gone"));
        shelf_unref(s, all[n]);
    }
    shelf_check(s);
    shelf_close(s);
}

static void dropped_response_continues_for_reference_holders(void)
{
    struct shelf *s = new_shelf(MB, MB);
    const struct kept *k = begin_response(s, "a");
    struct tape_place p = { 0 };
    uint64_t listeners;

    EXPECT(shelf_drop(s, 1, STR("a"), 0) && !shelf_take(s, 1, STR("a"), 0));
    EXPECT(growing_put(s, k, STR("x\n\n"), &listeners));
    const struct kept *again = begin_response(s, "a"); /* the id is free */
    EXPECT(again && again != k);
    EXPECT(str_is(growing_read(s, k, &p, 10), "x\n\n"));
    EXPECT(end_response(s, k, KEPT_ENDED, "done"));
    shelf_check(s);
    shelf_unref(s, k);
    EXPECT(end_response(s, again, KEPT_ENDED, "done"));
    shelf_unref(s, again);
    shelf_check(s);
    shelf_close(s);
}

static void writer_sees_the_cancellation(void)
{
    struct shelf *s = new_shelf(MB, MB);
    const struct kept *k = begin_response(s, "a");

    EXPECT(!growing_is_unwanted(s, k));
    EXPECT(growing_stop(s, k) && growing_is_unwanted(s, k) && growing_stop(s, k));
    EXPECT(end_response(s, k, KEPT_CANCELLED, "gone"));
    EXPECT(!growing_stop(s, k));
    shelf_unref(s, k);
    shelf_close(s);
}

static void end_is_appended_atomically(void)
{
    struct shelf *s = new_shelf(MB, MB);
    const struct kept *k = begin_response(s, "a");
    struct growing_last last = { KEPT_ENDED, STR("done"), STR("the end\n\n"), false };
    struct tape_place p = { 0 };
    uint64_t listeners;

    EXPECT(growing_put(s, k, STR("one\n\ntwo\n\n"), &listeners) && !listeners);
    growing_listen(s, k, 0);
    growing_listen(s, k, 63);
    EXPECT(!growing_seek(s, k, &p, 2));
    EXPECT(growing_end(s, k, &last, 0, &listeners));
    EXPECT(listeners == (1 | 1ull << 63));
    EXPECT(growing_seek(s, k, &p, 2) && str_is(growing_read(s, k, &p, 99), "the end\n\n"));
    EXPECT(growing_seek(s, k, &p, 1) && str_is(growing_read(s, k, &p, 5), "two\n\n"));
    shelf_unref(s, k);
    shelf_close(s);
}

static void previous_response_is_referenced(void)
{
    struct shelf *s = new_shelf(MB, MB);
    const struct kept *a = begin_response(s, "a");
    struct kept next = { .id = STR("b"), .answer = STR("queued"), .before = a };

    EXPECT(end_response(s, a, KEPT_ENDED, "done"));
    const struct kept *b = growing_begin(s, 1, &next, 0);
    shelf_unref(s, a);
    EXPECT(shelf_drop(s, 1, STR("a"), 0) && b->before == a && b->depth == 1);
    expect_stage(s, b->before, KEPT_ENDED, "done");
    EXPECT(end_response(s, b, KEPT_ENDED, "done"));
    shelf_unref(s, b);
    EXPECT(shelf_drop(s, 1, STR("b"), 0));
    EXPECT(bytes_of(s) == 0);
    shelf_close(s);
}

/* Each allocation fails once: nothing leaks, and the returned results are correct. */
static void out_of_memory_is_reported(void)
{
    static char big[20 * KB];
    bool was_whole = false;

    memset(big, 'y', sizeof(big) - 1);
    for (uint64_t nth = 1; !was_whole; nth++) {
        struct shelf *s = new_shelf(MB, MB);
        uint64_t listeners, failed = mem_failures();
        mem_fail_after(nth);
        const struct kept *k = begin_response(s, "a");
        if (k) {
            size_t before = bytes_of(s);
            bool has_put = growing_put(s, k, STR("x\n\n"), &listeners);
            EXPECT(has_put == (bytes_of(s) > before));
            struct tape_place p = { 0 };
            EXPECT(growing_read(s, k, &p, 9).n == (has_put ? 3u : 0u));
            if (!end_response(s, k, KEPT_ENDED, big))
                EXPECT(end_response(s, k, KEPT_FAILED, "no memory"));
            shelf_unref(s, k);
        }
        mem_fail_after(0);
        was_whole = mem_failures() == failed;
        EXPECT(k || !bytes_of(s));
        shelf_check(s);
        shelf_close(s);
    }
}

/* ---- one writer, several reader threads: a reader that subscribes and then reads misses no
 * frame */

enum { N_FRAMES = 3000, N_READERS = 3 };

static struct {
    struct shelf *shelf;
    const struct kept *kept;
    _Atomic uint64_t notified; /* subscribers that were notified */
} shared;

static void *read_all(void *arg)
{
    unsigned me = *(const unsigned *)arg;
    struct tape_place p = { 0 };
    struct kept_view v;
    struct str piece;
    struct buf all;

    buf_init(&all, MB);
    const struct kept *k = shelf_take(shared.shelf, 1, STR("a"), 0);
    growing_listen(shared.shelf, k, me);
    do {
        shelf_look(shared.shelf, k, &v);
        while ((piece = growing_read(shared.shelf, k, &p, 100)).n)
            buf_puts(&all, piece);
        while (
            v.stage != KEPT_ENDED && !(atomic_fetch_and(&shared.notified, ~(1ull << me)) >> me & 1))
            sched_yield();
    } while (v.stage != KEPT_ENDED);
    shelf_unref(shared.shelf, k);
    struct str rest = buf_str(&all);
    for (int i = 0; i < N_FRAMES; i++) {
        char want[16];
        int n = snprintf(want, sizeof(want), "%d\n\n", i);
        EXPECT(str_starts(rest, (struct str){ want, (size_t)n }));
        rest = str_skip(rest, (size_t)n);
    }
    EXPECT(str_is(rest, "end\n\n") && str_is(v.answer, "done"));
    buf_clear(&all);
    return NULL;
}

static void reader_threads_miss_no_frame(void)
{
    struct growing_last last = { KEPT_ENDED, STR("done"), STR("end\n\n"), false };
    unsigned names[N_READERS];
    pthread_t threads[N_READERS];
    uint64_t listeners;
    struct err e;

    shared.shelf = new_shelf(MB, MB);
    shared.kept = begin_response(shared.shelf, "a");
    for (unsigned i = 0; i < N_READERS; i++) {
        names[i] = i;
        EXPECT_EQ(thread_start(&threads[i], "reader", read_all, &names[i], &e), 0);
    }
    for (int i = 0; i < N_FRAMES; i++) {
        char frame[16];
        int n = snprintf(frame, sizeof(frame), "%d\n\n", i);
        EXPECT(
            growing_put(shared.shelf, shared.kept, (struct str){ frame, (size_t)n }, &listeners));
        atomic_fetch_or(&shared.notified, listeners);
    }
    EXPECT(growing_end(shared.shelf, shared.kept, &last, 0, &listeners));
    atomic_fetch_or(&shared.notified, listeners);
    for (int i = 0; i < N_READERS; i++)
        pthread_join(threads[i], NULL);
    shelf_unref(shared.shelf, shared.kept);
    shelf_check(shared.shelf);
    shelf_close(shared.shelf);
}

TESTS(TEST(response_is_found_from_its_beginning), TEST(response_stored_whole_has_ended),
    TEST(live_response_neither_expires_nor_is_evicted),
    TEST(bytes_are_counted_as_they_are_appended), TEST(other_responses_are_evicted_for_it),
    TEST(too_many_live_responses_are_rejected),
    TEST(dropped_response_continues_for_reference_holders), TEST(writer_sees_the_cancellation),
    TEST(end_is_appended_atomically), TEST(previous_response_is_referenced),
    TEST(out_of_memory_is_reported), TEST(reader_threads_miss_no_frame))
