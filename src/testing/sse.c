#include "testing/sse.h"
#include "base/limits.h"
#include "base/mem.h"

enum { MAX_FIELDS = 32, SMALL_FRAME = SMALL ? 16 : 2048 };

static const struct str data_prefix = { "data: ", 6 };

static void on_silence(struct loop_timer *t)
{
    struct sse *s = container_of(t, struct sse, timer);
    uint64_t due = s->last_ns + s->keepalive_ns;

    /* A frame does not reset the timer; the due time is computed when the timer fires. */
    if (loop_now(s->loop) >= due) {
        /* A client with this many queued bytes needs no keep-alive comment. */
        if (sink_queued(s->sink) <= SINK_HIGH_WATER)
            sink_write(s->sink, STR(":\n\n"));
        s->last_ns = loop_now(s->loop);
        due = s->last_ns + s->keepalive_ns;
    }
    loop_timer_set(s->loop, &s->timer, due);
}

void sse_begin(struct sse *s, struct sink *sink, struct loop *loop, uint32_t keepalive_ms,
    const struct http_field *fields, int n_fields)
{
    struct http_field all[MAX_FIELDS] = {
        { STR("Cache-Control"), STR("no-cache") },
        { STR("X-Accel-Buffering"), STR("no") }, /* disables response buffering in nginx */
    };

    CHECK(n_fields <= MAX_FIELDS - 2);
    if (n_fields)
        memcpy(all + 2, fields, (size_t)n_fields * sizeof(*fields));
    *s = (struct sse){ .sink = sink,
        .loop = loop,
        .timer.fn = on_silence,
        .last_ns = loop_now(loop),
        .keepalive_ns = keepalive_ms * 1000000ull };
    sink_begin(sink, 200, "text/event-stream", -1, all, n_fields + 2);
    if (keepalive_ms)
        loop_timer_set(loop, &s->timer, s->last_ns + s->keepalive_ns);
}

/* Removes the first line from *rest; false if there is none. CR, LF and CRLF end a line. */
static bool next_line(struct str *rest, struct str *line)
{
    size_t n = 0;

    if (!rest->p)
        return false;
    while (n < rest->n && rest->p[n] != '\n' && rest->p[n] != '\r')
        n++;
    *line = (struct str){ rest->p, n };
    if (n == rest->n)
        *rest = STR_NONE;
    else
        *rest = str_skip(*rest, n + (str_starts(str_skip(*rest, n), STR("\r\n")) ? 2 : 1));
    return true;
}

static char *append(char *to, struct str s)
{
    if (s.n)
        memcpy(to, s.p, s.n);
    return to + s.n;
}

/* Writes a frame with one sink_write, hence in one chunk. Frames of a few tokens fit on the
 * stack. */
static void write_frame(struct sse *s, struct str name, struct str data)
{
    char small[SMALL_FRAME], *whole = small;
    struct str rest = data.p ? data : STR(""), line;
    size_t n = name.n ? STR("event: ").n + name.n + 1 : 0;

    while (next_line(&rest, &line))
        n += data_prefix.n + line.n + 1;
    n++;
    if (n > sizeof(small))
        whole = try_malloc(n);
    if (!whole) {
        sink_abort(s->sink); /* a stream with a missing frame must not look complete */
        sse_stop(s);
        return;
    }
    char *to = whole;
    if (name.n) {
        to = append(to, STR("event: "));
        to = append(to, name);
        *to++ = '\n';
    }
    rest = data.p ? data : STR("");
    while (next_line(&rest, &line)) {
        to = append(to, data_prefix);
        to = append(to, line);
        *to++ = '\n';
    }
    *to++ = '\n';
    CHECK((size_t)(to - whole) == n);
    s->last_ns = loop_now(s->loop);
    sink_write(s->sink, (struct str){ whole, n });
    if (whole != small)
        mem_free(whole);
}

void sse_data(struct sse *s, struct str data)
{
    write_frame(s, STR_NONE, data);
}

void sse_event(struct sse *s, struct str name, struct str data)
{
    CHECK(!name.n || (!memchr(name.p, '\n', name.n) && !memchr(name.p, '\r', name.n)));
    write_frame(s, name, data);
}

void sse_comment(struct sse *s, struct str text)
{
    struct buf b;
    struct str line;

    if (!text.p)
        text = STR("");
    buf_init(&b, 4 * text.n + 8); /* ": " before and LF after every line */
    while (next_line(&text, &line)) {
        buf_putz(&b, line.n ? ": " : ":");
        buf_puts(&b, line);
        buf_putc(&b, '\n');
    }
    buf_putc(&b, '\n');
    s->last_ns = loop_now(s->loop);
    if (buf_ok(&b))
        sink_write(s->sink, buf_str(&b));
    buf_clear(&b);
}

void sse_end(struct sse *s)
{
    sse_stop(s);
    sink_end(s->sink);
}

void sse_stop(struct sse *s)
{
    if (s->loop)
        loop_timer_stop(s->loop, &s->timer);
}
