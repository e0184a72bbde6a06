/* store/growing.c: what is made on the shelf is found, read and followed meanwhile, stays until its
 * end, has room for a last word, and no more room than it may. */
#include "support/shelf.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "os/thread.h"
#include "serve/responses/growing.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>

static const struct kept *begin(struct shelf *s, const char *id)
{
    struct kept k = { .id = str_of(id), .answer = STR("queued"), .input = STR("input") };

    k.is_told = true;
    k.maker = 3;
    return growing_begin(s, 1, &k, 0);
}

static bool end(struct shelf *s, const struct kept *k, enum kept_stage stage, const char *answer)
{
    struct growing_last last = { stage, str_of(answer), STR_NONE, false };
    uint64_t listeners;

    return growing_end(s, k, &last, 0, &listeners);
}

static void looks_like(
    struct shelf *s, const struct kept *k, enum kept_stage stage, const char *answer)
{
    struct kept_view v;

    shelf_look(s, k, &v);
    EXPECT_EQ(v.stage, stage);
    EXPECT(str_is(v.answer, answer));
}

static void it_is_found_from_its_beginning(void)
{
    struct shelf *s = new_shelf(MB, MB);
    const struct kept *k = begin(s, "a");

    EXPECT(k && k->is_grown && k->is_told && k->maker == 3 && str_is(k->input, "input"));
    EXPECT(!begin(s, "a")); /* the id is there */
    const struct kept *seen = shelf_take(s, 1, STR("a"), 0);
    EXPECT(seen == k && !shelf_take(s, 2, STR("a"), 0));
    looks_like(s, seen, KEPT_WAITS, "queued");
    growing_runs(s, k);
    growing_runs(s, k);
    looks_like(s, seen, KEPT_RUNS, "queued");
    shelf_check(s);
    EXPECT(end(s, k, KEPT_ENDED, "done"));
    looks_like(s, seen, KEPT_ENDED, "done");
    EXPECT(!growing_stop(s, k));
    shelf_check(s);
    shelf_unref(s, seen);
    shelf_unref(s, k);
    seen = shelf_take(s, 1, STR("a"), 0);
    looks_like(s, seen, KEPT_ENDED, "done");
    shelf_unref(s, seen);
    shelf_close(s);
}

static void what_was_put_at_once_looks_ended(void)
{
    struct shelf *s = new_shelf(MB, MB);
    struct kept k = { .id = STR("a"), .answer = STR("done") };

    EXPECT(shelf_put(s, 1, &k, 0));
    const struct kept *seen = shelf_take(s, 1, STR("a"), 0);
    EXPECT(!seen->is_grown);
    looks_like(s, seen, KEPT_ENDED, "done");
    shelf_unref(s, seen);
    shelf_close(s);
}

static void it_neither_grows_old_nor_goes_for_room(void)
{
    struct shelf *s = new_shelf(20 * KB, 20 * KB);
    const struct kept *k = begin(s, "a");
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
    EXPECT(end(s, k, KEPT_ENDED, "done"));
    shelf_unref(s, k);
    other.id = STR("last");
    EXPECT(shelf_put(s, 1, &other, 5000 * (uint64_t)SECOND)); /* now it is as old as others */
    EXPECT(!shelf_take(s, 1, STR("a"), 5000 * (uint64_t)SECOND));
    shelf_close(s);
}

static void its_bytes_count_as_they_come(void)
{
    struct shelf *s = new_shelf(100 * KB, 100 * KB);
    const struct kept *k = begin(s, "a");
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
    EXPECT(!end(s, k, KEPT_ENDED, big)); /* nothing has changed */
    EXPECT(bytes_of(s) == full);
    looks_like(s, k, KEPT_WAITS, "queued");
    struct growing_last word = { KEPT_FAILED, STR("a last word has room"), STR("word\n\n"), false };
    struct tape_place p;
    EXPECT(growing_end(s, k, &word, 0, &listeners));
    looks_like(s, k, KEPT_FAILED, "a last word has room");
    EXPECT(growing_seek(s, k, &p, (uint64_t)n) && !growing_seek(s, k, &p, (uint64_t)n + 1));
    EXPECT(str_is(growing_read(s, k, &p, 99), "word\n\n"));
    EXPECT(bytes_of(s) <= 100 * KB);
    shelf_check(s);
    EXPECT(shelf_drop(s, 1, STR("a"), 0));
    EXPECT(bytes_of(s) > 0); /* it is held */
    shelf_unref(s, k);
    EXPECT(bytes_of(s) == 0);
    shelf_close(s);
}

static void others_go_for_it(void)
{
    struct shelf *s = new_shelf(40 * KB, 40 * KB);
    static char text[10 * KB];
    struct kept other = { .id = STR("other"), .answer = { text, sizeof(text) } };
    const struct kept *k = begin(s, "a");

    EXPECT(shelf_put(s, 1, &other, 0));
    static char big[26 * KB];
    memset(big, 'y', sizeof(big) - 1);
    EXPECT(end(s, k, KEPT_ENDED, big));
    EXPECT(!shelf_take(s, 1, STR("other"), 0));
    looks_like(s, k, KEPT_ENDED, big);
    shelf_unref(s, k);
    shelf_check(s);
    shelf_close(s);
}

static void too_many_at_once_have_no_room(void)
{
    struct shelf *s = new_shelf(MB, 20 * KB);
    const struct kept *all[10];
    char id[8];
    int n = 0;

    for (; n < 10; n++) {
        snprintf(id, sizeof(id), "%d", n);
        all[n] = begin(s, id);
        if (!all[n])
            break;
    }
    EXPECT(n > 1 && n < 10);
    shelf_check(s);
    while (n--) {
        EXPECT(end(s, all[n], KEPT_CANCELLED, "gone"));
        shelf_unref(s, all[n]);
    }
    shelf_check(s);
    shelf_close(s);
}

static void one_that_is_forgotten_goes_on_for_who_holds_it(void)
{
    struct shelf *s = new_shelf(MB, MB);
    const struct kept *k = begin(s, "a");
    struct tape_place p = { 0 };
    uint64_t listeners;

    EXPECT(shelf_drop(s, 1, STR("a"), 0) && !shelf_take(s, 1, STR("a"), 0));
    EXPECT(growing_put(s, k, STR("x\n\n"), &listeners));
    const struct kept *again = begin(s, "a"); /* the id is free */
    EXPECT(again && again != k);
    EXPECT(str_is(growing_read(s, k, &p, 10), "x\n\n"));
    EXPECT(end(s, k, KEPT_ENDED, "done"));
    shelf_check(s);
    shelf_unref(s, k);
    EXPECT(end(s, again, KEPT_ENDED, "done"));
    shelf_unref(s, again);
    shelf_check(s);
    shelf_close(s);
}

static void who_makes_it_hears_that_nobody_wants_it(void)
{
    struct shelf *s = new_shelf(MB, MB);
    const struct kept *k = begin(s, "a");

    EXPECT(!growing_is_unwanted(s, k));
    EXPECT(growing_stop(s, k) && growing_is_unwanted(s, k) && growing_stop(s, k));
    EXPECT(end(s, k, KEPT_CANCELLED, "gone"));
    EXPECT(!growing_stop(s, k));
    shelf_unref(s, k);
    shelf_close(s);
}

static void the_end_comes_in_one_piece(void)
{
    struct shelf *s = new_shelf(MB, MB);
    const struct kept *k = begin(s, "a");
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

static void a_conversation_is_held(void)
{
    struct shelf *s = new_shelf(MB, MB);
    const struct kept *a = begin(s, "a");
    struct kept next = { .id = STR("b"), .answer = STR("queued"), .before = a };

    EXPECT(end(s, a, KEPT_ENDED, "done"));
    const struct kept *b = growing_begin(s, 1, &next, 0);
    shelf_unref(s, a);
    EXPECT(shelf_drop(s, 1, STR("a"), 0) && b->before == a && b->depth == 1);
    looks_like(s, b->before, KEPT_ENDED, "done");
    EXPECT(end(s, b, KEPT_ENDED, "done"));
    shelf_unref(s, b);
    EXPECT(shelf_drop(s, 1, STR("b"), 0));
    EXPECT(bytes_of(s) == 0);
    shelf_close(s);
}

/* Every allocation fails once: nothing is left behind, and what is said holds. */
static void no_memory_is_told(void)
{
    static char big[20 * KB];
    bool was_whole = false;

    memset(big, 'y', sizeof(big) - 1);
    for (uint64_t nth = 1; !was_whole; nth++) {
        struct shelf *s = new_shelf(MB, MB);
        uint64_t listeners, failed = mem_failures();
        mem_fail_after(nth);
        const struct kept *k = begin(s, "a");
        if (k) {
            size_t before = bytes_of(s);
            bool has_put = growing_put(s, k, STR("x\n\n"), &listeners);
            EXPECT(has_put == (bytes_of(s) > before));
            struct tape_place p = { 0 };
            EXPECT(growing_read(s, k, &p, 9).n == (has_put ? 3u : 0u));
            if (!end(s, k, KEPT_ENDED, big))
                EXPECT(end(s, k, KEPT_FAILED, "no memory"));
            shelf_unref(s, k);
        }
        mem_fail_after(0);
        was_whole = mem_failures() == failed;
        EXPECT(k || !bytes_of(s));
        shelf_check(s);
        shelf_close(s);
    }
}

/* ---- one writes, others read on their threads; who listens and then reads misses nothing */

enum { TELLS = 3000, READERS = 3 };

static struct {
    struct shelf *shelf;
    const struct kept *kept;
    _Atomic uint64_t told; /* listeners that were told */
} story;

static void *reads(void *arg)
{
    unsigned me = *(const unsigned *)arg;
    struct tape_place p = { 0 };
    struct kept_view v;
    struct str piece;
    struct buf all;

    buf_init(&all, MB);
    const struct kept *k = shelf_take(story.shelf, 1, STR("a"), 0);
    growing_listen(story.shelf, k, me);
    do {
        shelf_look(story.shelf, k, &v);
        while ((piece = growing_read(story.shelf, k, &p, 100)).n)
            buf_puts(&all, piece);
        while (v.stage != KEPT_ENDED && !(atomic_fetch_and(&story.told, ~(1ull << me)) >> me & 1))
            sched_yield();
    } while (v.stage != KEPT_ENDED);
    shelf_unref(story.shelf, k);
    struct str rest = buf_str(&all);
    for (int i = 0; i < TELLS; i++) {
        char want[16];
        int n = snprintf(want, sizeof(want), "%d\n\n", i);
        EXPECT(str_starts(rest, (struct str){ want, (size_t)n }));
        rest = str_skip(rest, (size_t)n);
    }
    EXPECT(str_is(rest, "end\n\n") && str_is(v.answer, "done"));
    buf_clear(&all);
    return NULL;
}

static void readers_on_other_threads_miss_nothing(void)
{
    struct growing_last last = { KEPT_ENDED, STR("done"), STR("end\n\n"), false };
    unsigned names[READERS];
    pthread_t threads[READERS];
    uint64_t listeners;
    struct err e;

    story.shelf = new_shelf(MB, MB);
    story.kept = begin(story.shelf, "a");
    for (unsigned i = 0; i < READERS; i++) {
        names[i] = i;
        EXPECT_EQ(thread_start(&threads[i], "reader", reads, &names[i], &e), 0);
    }
    for (int i = 0; i < TELLS; i++) {
        char frame[16];
        int n = snprintf(frame, sizeof(frame), "%d\n\n", i);
        EXPECT(growing_put(story.shelf, story.kept, (struct str){ frame, (size_t)n }, &listeners));
        atomic_fetch_or(&story.told, listeners);
    }
    EXPECT(growing_end(story.shelf, story.kept, &last, 0, &listeners));
    atomic_fetch_or(&story.told, listeners);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    shelf_unref(story.shelf, story.kept);
    shelf_check(story.shelf);
    shelf_close(story.shelf);
}

TESTS(TEST(it_is_found_from_its_beginning), TEST(what_was_put_at_once_looks_ended),
    TEST(it_neither_grows_old_nor_goes_for_room), TEST(its_bytes_count_as_they_come),
    TEST(others_go_for_it), TEST(too_many_at_once_have_no_room),
    TEST(one_that_is_forgotten_goes_on_for_who_holds_it),
    TEST(who_makes_it_hears_that_nobody_wants_it), TEST(the_end_comes_in_one_piece),
    TEST(a_conversation_is_held), TEST(no_memory_is_told),
    TEST(readers_on_other_threads_miss_nothing))
