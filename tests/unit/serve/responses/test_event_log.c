/* Event log: frames are read from any position, in pieces of any size, while more are appended. */
#include "support/check.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "serve/responses/event_log.h"

#include <inttypes.h>

static struct str read_all(
    const struct event_log *t, struct event_log_pos *p, struct buf *b, size_t most)
{
    struct str piece;

    buf_reset(b);
    while ((piece = event_log_read(t, p, most)).n)
        buf_puts(b, piece);
    return buf_str(b);
}

static void empty_log_has_no_frames(void)
{
    struct event_log t = { 0 };
    struct event_log_pos p = { 0 };

    EXPECT(!event_log_read(&t, &p, 10).n && !event_log_seek(&t, &p, 0));
    EXPECT(event_log_append(&t, STR("")) && !t.n_frames && !event_log_cost(&t, 0));
    EXPECT(event_log_append(&t, STR("a\nb\n\n")) && t.n_frames == 1);
    EXPECT(str_is(event_log_read(&t, &p, 3), "a\nb")); /* the previous position is still valid */
    EXPECT(str_is(event_log_read(&t, &p, 30), "\n\n") && !event_log_read(&t, &p, 1).n);
    event_log_clear(&t);
    EXPECT(!t.first && !t.n_frames);
    event_log_clear(&t);
}

static void several_frames_may_be_appended_at_once(void)
{
    struct event_log t = { 0 };
    struct event_log_pos p;

    EXPECT(event_log_append(&t, STR("a\n\nb\nb\n\n\n\n")));
    EXPECT(t.n_frames == 3); /* the last frame is empty */
    EXPECT(event_log_seek(&t, &p, 1) && str_is(event_log_read(&t, &p, 100), "b\nb\n\n\n\n"));
    EXPECT(event_log_seek(&t, &p, 2) && str_is(event_log_read(&t, &p, 100), "\n\n"));
    EXPECT(!event_log_seek(&t, &p, 3));
    event_log_clear(&t);
}

static void failed_append_leaves_the_log_unchanged(void)
{
#ifdef TESTING
    struct event_log t = { 0 };

    EXPECT(event_log_append(&t, STR("a\n\n")));
    size_t cost = event_log_cost(&t, 100 * KB);
    EXPECT(cost >= 100 * KB);
    static char big[100 * KB];
    memset(big, 'x', sizeof(big));
    memset(big + sizeof(big) - 2, '\n', 2);
    mem_fail_after(1);
    EXPECT(!event_log_append(&t, (struct str){ big, sizeof(big) }) && t.n_frames == 1);
    EXPECT(event_log_append(&t, (struct str){ big, sizeof(big) }) && t.n_frames == 2);
    event_log_clear(&t);
#endif
}

static void reserved_terminal_frame_always_fits(void)
{
    struct event_log t = { 0 };
    struct event_log_pos p = { 0 };

    EXPECT(!event_log_append_reserved(&t, STR("z\n\n")));
    EXPECT(event_log_reserve(&t, 10) > 10);
    EXPECT(
        event_log_append(&t, STR("a\n\n")) && !event_log_append_reserved(&t, STR("123456789\n\n")));
    mem_fail_after(1);
    EXPECT(event_log_append_reserved(&t, STR("end\n\n")) && t.n_frames == 2);
    mem_fail_after(0);
    EXPECT(!event_log_append_reserved(&t, STR("e\n\n")));
    EXPECT(str_is(event_log_read(&t, &p, 99), "a\n\n") &&
           str_is(event_log_read(&t, &p, 99), "end\n\n"));
    event_log_clear(&t);
    /* freed by event_log_clear if the reserved frame is never written */
    EXPECT(event_log_reserve(&t, 10) > 10);
    event_log_clear(&t);
}

/* ---- comparison with one long buffer and the offset of each frame */

enum { FRAMES = 4000 };

static size_t frame_offsets[FRAMES + 1];

static void put_frames(struct event_log *t, struct buf *all, struct rng *rng)
{
    size_t from = all->n;

    for (uint64_t k = 1 + rng_below(rng, 3); k && t->n_frames + k <= FRAMES; k--) {
        for (uint64_t n = rng_below(rng, 10) ? rng_below(rng, 30) : rng_below(rng, 5000); n; n--)
            buf_putc(all, n % 7 == 1 && all->p[all->n - 1] != '\n' ? '\n' : 'a' + (char)(n % 23));
        buf_putz(all, "x\n\n");
    }
    size_t cost = event_log_cost(t, all->n - from);
    uint64_t before = t->n_frames;
    const struct log_chunk *last = t->last;
    EXPECT(event_log_append(t, (struct str){ all->p + from, all->n - from }));
    EXPECT((cost > 0) == (t->last != last));
    for (size_t at = from; before < t->n_frames; before++) {
        frame_offsets[before] = at;
        at += (size_t)str_find(str_skip(buf_str(all), at), STR("\n\n")) + 2;
        frame_offsets[before + 1] = at;
    }
    EXPECT_EQ(frame_offsets[t->n_frames], all->n);
}

static void reading_from_any_frame_works(void)
{
    struct rng rng = { 20261121, 0 };
    struct event_log_pos reader = { 0 }, p;
    struct event_log t = { 0 };
    struct buf all, got, read;

    printf("seed %d\n", 20261121);
    buf_init(&all, 64 * MB);
    buf_init(&got, 64 * MB);
    buf_init(&read, 64 * MB);
    buf_putc(&all, '\n'); /* a newline before the first frame */
    all.n = 0;
    while (t.n_frames < FRAMES - 4) {
        put_frames(&t, &all, &rng);
        struct str piece = event_log_read(&t, &reader, 1 + (size_t)rng_below(&rng, 300));
        buf_puts(&read, piece);
        uint64_t frame = rng_below(&rng, t.n_frames + 2);
        EXPECT_EQ(event_log_seek(&t, &p, frame), frame < t.n_frames);
        if (frame >= t.n_frames || rng_below(&rng, 20))
            continue;
        struct str want = str_skip(buf_str(&all), frame_offsets[frame]);
        EXPECT(str_eq(read_all(&t, &p, &got, 1 + (size_t)rng_below(&rng, 9000)), want));
    }
    for (struct str piece; (piece = event_log_read(&t, &reader, 1 << 20)).n;)
        buf_puts(&read, piece);
    EXPECT(str_eq(buf_str(&read), buf_str(&all)));
    buf_clear(&all);
    buf_clear(&got);
    buf_clear(&read);
    event_log_clear(&t);
}

TESTS(TEST(empty_log_has_no_frames), TEST(several_frames_may_be_appended_at_once),
    TEST(failed_append_leaves_the_log_unchanged), TEST(reserved_terminal_frame_always_fits),
    TEST(reading_from_any_frame_works))
