/* store/tape.c: frames come back from any place, in pieces of any size, while more are written. */
#include "../check.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "serve/responses/tape.h"

#include <inttypes.h>

static struct str everything(const struct tape *t, struct tape_place *p, struct buf *b, size_t most)
{
    struct str piece;

    buf_reset(b);
    while ((piece = tape_read(t, p, most)).n)
        buf_puts(b, piece);
    return buf_str(b);
}

static void an_empty_tape_says_nothing(void)
{
    struct tape t = { 0 };
    struct tape_place p = { 0 };

    EXPECT(!tape_read(&t, &p, 10).n && !tape_seek(&t, &p, 0));
    EXPECT(tape_put(&t, STR("")) && !t.n_frames && !tape_cost(&t, 0));
    EXPECT(tape_put(&t, STR("a\nb\n\n")) && t.n_frames == 1);
    EXPECT(str_is(tape_read(&t, &p, 3), "a\nb")); /* the place of before still holds */
    EXPECT(str_is(tape_read(&t, &p, 30), "\n\n") && !tape_read(&t, &p, 1).n);
    tape_clear(&t);
    EXPECT(!t.first && !t.n_frames);
    tape_clear(&t);
}

static void several_frames_may_come_at_once(void)
{
    struct tape t = { 0 };
    struct tape_place p;

    EXPECT(tape_put(&t, STR("a\n\nb\nb\n\n\n\n")));
    EXPECT(t.n_frames == 3); /* the last is an empty one */
    EXPECT(tape_seek(&t, &p, 1) && str_is(tape_read(&t, &p, 100), "b\nb\n\n\n\n"));
    EXPECT(tape_seek(&t, &p, 2) && str_is(tape_read(&t, &p, 100), "\n\n"));
    EXPECT(!tape_seek(&t, &p, 3));
    tape_clear(&t);
}

static void no_memory_leaves_it_as_it_was(void)
{
#ifdef TESTING
    struct tape t = { 0 };

    EXPECT(tape_put(&t, STR("a\n\n")));
    size_t cost = tape_cost(&t, 100 * KB);
    EXPECT(cost >= 100 * KB);
    static char big[100 * KB];
    memset(big, 'x', sizeof(big));
    memset(big + sizeof(big) - 2, '\n', 2);
    mem_fail_after(1);
    EXPECT(!tape_put(&t, (struct str){ big, sizeof(big) }) && t.n_frames == 1);
    EXPECT(tape_put(&t, (struct str){ big, sizeof(big) }) && t.n_frames == 2);
    tape_clear(&t);
#endif
}

static void last_words_have_room(void)
{
    struct tape t = { 0 };
    struct tape_place p = { 0 };

    EXPECT(!tape_put_reserved(&t, STR("z\n\n")));
    EXPECT(tape_reserve(&t, 10) > 10);
    EXPECT(tape_put(&t, STR("a\n\n")) && !tape_put_reserved(&t, STR("123456789\n\n")));
    mem_fail_after(1);
    EXPECT(tape_put_reserved(&t, STR("end\n\n")) && t.n_frames == 2);
    mem_fail_after(0);
    EXPECT(!tape_put_reserved(&t, STR("e\n\n")));
    EXPECT(str_is(tape_read(&t, &p, 99), "a\n\n") && str_is(tape_read(&t, &p, 99), "end\n\n"));
    tape_clear(&t);
    EXPECT(tape_reserve(&t, 10) > 10); /* and is freed when nobody says any */
    tape_clear(&t);
}

/* ---- against one long buffer with the beginning of every frame */

enum { FRAMES = 4000 };

static size_t begins[FRAMES + 1];

static void put_some(struct tape *t, struct buf *all, struct rng *rng)
{
    size_t from = all->n;

    for (uint64_t k = 1 + rng_below(rng, 3); k && t->n_frames + k <= FRAMES; k--) {
        for (uint64_t n = rng_below(rng, 10) ? rng_below(rng, 30) : rng_below(rng, 5000); n; n--)
            buf_putc(all, n % 7 == 1 && all->p[all->n - 1] != '\n' ? '\n' : 'a' + (char)(n % 23));
        buf_putz(all, "x\n\n");
    }
    size_t cost = tape_cost(t, all->n - from);
    uint64_t before = t->n_frames;
    const struct reel *last = t->last;
    EXPECT(tape_put(t, (struct str){ all->p + from, all->n - from }));
    EXPECT((cost > 0) == (t->last != last));
    for (size_t at = from; before < t->n_frames; before++) {
        begins[before] = at;
        at += (size_t)str_find(str_skip(buf_str(all), at), STR("\n\n")) + 2;
        begins[before + 1] = at;
    }
    EXPECT_EQ(begins[t->n_frames], all->n);
}

static void any_frame_is_found(void)
{
    struct rng rng = { 20261121, 0 };
    struct tape_place reader = { 0 }, p;
    struct tape t = { 0 };
    struct buf all, got, read;

    printf("seed %d\n", 20261121);
    buf_init(&all, 64 * MB);
    buf_init(&got, 64 * MB);
    buf_init(&read, 64 * MB);
    buf_putc(&all, '\n'); /* so that there is one before the first */
    all.n = 0;
    while (t.n_frames < FRAMES - 4) {
        put_some(&t, &all, &rng);
        struct str piece = tape_read(&t, &reader, 1 + (size_t)rng_below(&rng, 300));
        buf_puts(&read, piece);
        uint64_t frame = rng_below(&rng, t.n_frames + 2);
        EXPECT_EQ(tape_seek(&t, &p, frame), frame < t.n_frames);
        if (frame >= t.n_frames || rng_below(&rng, 20))
            continue;
        struct str want = str_skip(buf_str(&all), begins[frame]);
        EXPECT(str_eq(everything(&t, &p, &got, 1 + (size_t)rng_below(&rng, 9000)), want));
    }
    for (struct str piece; (piece = tape_read(&t, &reader, 1 << 20)).n;)
        buf_puts(&read, piece);
    EXPECT(str_eq(buf_str(&read), buf_str(&all)));
    buf_clear(&all);
    buf_clear(&got);
    buf_clear(&read);
    tape_clear(&t);
}

TESTS(TEST(an_empty_tape_says_nothing), TEST(several_frames_may_come_at_once),
    TEST(no_memory_leaves_it_as_it_was), TEST(last_words_have_room), TEST(any_frame_is_found))
