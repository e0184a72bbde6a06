/* Server-sent events over a fake sink: frames, comments on idle streams, aborts. */
#include "support/check.h"

#include "base/mem.h"
#include "testing/sse.h"
#include "os/clock.h"

struct fake_sse_sink {
    struct sink sink;
    struct buf bytes;
    int n_begins, n_ends, n_aborts, n_writes, n_fields;
    size_t queued;
};

static struct fake_sse_sink *sse_sink_of(struct sink *s)
{
    return container_of(s, struct fake_sse_sink, sink);
}
static void fake_begin(struct sink *s, int status, const char *type, int64_t n_bytes,
    const struct http_field *fields, int n_fields)
{
    struct fake_sse_sink *f = sse_sink_of(s);

    EXPECT_EQ(status, 200);
    EXPECT_STR(type, "text/event-stream");
    EXPECT_EQ(n_bytes, -1);
    f->n_begins++;
    f->n_fields = n_fields;
    EXPECT(str_is(fields[0].name, "Cache-Control") && str_is(fields[0].value, "no-cache"));
    EXPECT(str_is(fields[1].name, "X-Accel-Buffering") && str_is(fields[1].value, "no"));
}
static void fake_write(struct sink *s, struct str bytes)
{
    sse_sink_of(s)->n_writes++;
    EXPECT(str_ends(bytes, STR("\n\n"))); /* whole frames only */
    buf_puts(&sse_sink_of(s)->bytes, bytes);
}
static void fake_end(struct sink *s)
{
    sse_sink_of(s)->n_ends++;
}
static void fake_abort(struct sink *s)
{
    sse_sink_of(s)->n_aborts++;
}
static size_t fake_queued(const struct sink *s)
{
    return ((const struct fake_sse_sink *)(const void *)s)->queued;
}
static const struct sink_ops fake_ops = { fake_begin, fake_write, fake_end, fake_abort,
    fake_queued };

static struct fake_sse_sink fake_sse_sink;
static struct loop *loop;
static struct sse sse;

static void begin_stream(uint32_t keepalive_ms)
{
    struct err e;

    fake_sse_sink = (struct fake_sse_sink){ .sink.ops = &fake_ops };
    buf_init(&fake_sse_sink.bytes, MB);
    EXPECT_EQ(loop_open(&loop, &e), 0);
    sse_begin(&sse, &fake_sse_sink.sink, loop, keepalive_ms, NULL, 0);
}

static void expect_end(const char *want)
{
    EXPECT(str_is(buf_str(&fake_sse_sink.bytes), want));
    sse_stop(&sse);
    sse_stop(&sse);
    buf_clear(&fake_sse_sink.bytes);
    loop_close(loop);
}

static void frames_are_whole_and_lines_are_split(void)
{
    begin_stream(0);
    sse_data(&sse, STR("{\"a\":1}"));
    sse_event(&sse, STR("ping"), STR("{}"));
    sse_data(&sse, STR("one\ntwo\r\nthree\rfour"));
    sse_data(&sse, STR(""));
    sse_data(&sse, STR("tail\n"));
    sse_comment(&sse, STR("hi"));
    sse_comment(&sse, STR(""));
    sse_comment(&sse, STR("a\nb"));
    sse_end(&sse);
    EXPECT_EQ(fake_sse_sink.n_begins, 1);
    EXPECT_EQ(fake_sse_sink.n_ends, 1);
    EXPECT_EQ(fake_sse_sink.n_writes, 8); /* one write per frame */
    expect_end("data: {\"a\":1}\n\n"
               "event: ping\ndata: {}\n\n"
               "data: one\ndata: two\ndata: three\ndata: four\n\n"
               "data: \n\n"
               "data: tail\ndata: \n\n"
               ": hi\n\n"
               ":\n\n"
               ": a\n: b\n\n");
}

static void a_long_frame_is_still_one_write(void)
{
    size_t n = 100000;
    char *text = xmalloc(n);

    begin_stream(0);
    memset(text, 'x', n);
    sse_data(&sse, (struct str){ text, n });
    EXPECT_EQ(fake_sse_sink.n_writes, 1);
    EXPECT_EQ(fake_sse_sink.bytes.n, n + 8);
    mem_free(text);
    buf_reset(&fake_sse_sink.bytes);
    expect_end("");
}

static void extra_fields_are_added(void)
{
    struct http_field f = { STR("X-Request-Id"), STR("1") };

    begin_stream(0);
    fake_sse_sink.n_begins = 0;
    sse_begin(&sse, &fake_sse_sink.sink, loop, 0, &f, 1);
    EXPECT_EQ(fake_sse_sink.n_fields, 3);
    expect_end("");
}

static void idle_stream_gets_comments(void)
{
    uint64_t start = clock_ns();

    begin_stream(20);
    while (fake_sse_sink.n_writes < 2 && clock_ns() - start < 60 * 1000000000ull)
        loop_once(loop, 5);
    EXPECT(clock_ns() - start >= 40000000u);
    EXPECT_EQ(fake_sse_sink.n_writes, 2);
    sse_end(&sse);
    loop_once(loop, 30); /* and not after the end */
    expect_end(":\n\n:\n\n");
}

static void active_stream_gets_no_comments(void)
{
    uint64_t start = clock_ns();

    begin_stream(60000);
    while (clock_ns() - start < 30000000u) {
        sse_data(&sse, STR("x"));
        loop_once(loop, 1);
    }
    uint64_t due = sse.timer.due_ns;
    sse.last_ns = clock_ns();
    /* triggers it now; the timer callback only checks the last write */
    loop_timer_set(loop, &sse.timer, 0);
    int before = fake_sse_sink.n_writes;
    loop_once(loop, 0);
    EXPECT_EQ(fake_sse_sink.n_writes, before);
    EXPECT(sse.timer.due_ns >= due);
    buf_reset(&fake_sse_sink.bytes);
    expect_end("");
}

static void a_client_with_a_full_queue_gets_no_comments(void)
{
    begin_stream(1);
    fake_sse_sink.queued = SINK_HIGH_WATER + 1;
    uint64_t start = clock_ns();
    while (clock_ns() - start < 10000000u)
        loop_once(loop, 1);
    expect_end("");
}

#ifdef TESTING
static void without_memory_the_stream_is_aborted(void)
{
    static char text[100000];

    memset(text, 'x', sizeof(text));
    begin_stream(1000);
    mem_fail_after(1);
    sse_data(&sse, (struct str){ text, sizeof(text) });
    EXPECT_EQ(fake_sse_sink.n_aborts, 1);
    expect_end("");
}
#else
static void without_memory_the_stream_is_aborted(void)
{
    printf("skipped: faults exist in test builds only\n");
}
#endif

TESTS(TEST(frames_are_whole_and_lines_are_split), TEST(a_long_frame_is_still_one_write),
    TEST(extra_fields_are_added), TEST(idle_stream_gets_comments),
    TEST(active_stream_gets_no_comments), TEST(a_client_with_a_full_queue_gets_no_comments),
    TEST(without_memory_the_stream_is_aborted))
