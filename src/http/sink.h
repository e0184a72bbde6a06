/* sink.h: interface to which a response is written. api writes to a sink; http implements it on a
 * connection, tests on a buffer.
 *
 *     begin (once)  ->  write (any number)  ->  end | abort (once)
 *
 * No function blocks: bytes are queued, and sink_queued() returns the number of queued bytes. A
 * streaming writer stops producing above SINK_HIGH_WATER and continues when it is notified that the
 * queue has drained.
 *
 * Owner: the io thread of the connection. */
#pragma once

#include "base/buf.h"

enum { SINK_HIGH_WATER = 256 * 1024 };

struct http_field {
    struct str name, value;
};

struct sink;

struct sink_ops {
    /* n_bytes: length of the whole body, or -1 for a stream of unknown length, whose headers are
     * sent at once. type: the Content-Type. */
    void (*begin)(struct sink *s, int status, const char *type, int64_t n_bytes,
        const struct http_field *fields, int n_fields);
    void (*write)(struct sink *s, struct str bytes);
    void (*end)(struct sink *s);
    /* after begin: closes the connection without the end of the body, so that the client detects
     * it */
    void (*abort)(struct sink *s);
    size_t (*queued)(const struct sink *s);
};

struct sink {
    const struct sink_ops *ops;
};

static inline void sink_begin(struct sink *s, int status, const char *type, int64_t n_bytes,
    const struct http_field *fields, int n_fields)
{
    s->ops->begin(s, status, type, n_bytes, fields, n_fields);
}
static inline void sink_write(struct sink *s, struct str bytes)
{
    s->ops->write(s, bytes);
}
static inline void sink_end(struct sink *s)
{
    s->ops->end(s);
}
static inline void sink_abort(struct sink *s)
{
    s->ops->abort(s);
}
static inline size_t sink_queued(const struct sink *s)
{
    return s->ops->queued(s);
}

/* Sends a whole response in one call. */
static inline void sink_respond(struct sink *s, int status, const char *type, struct str body,
    const struct http_field *fields, int n_fields)
{
    sink_begin(s, status, type, (int64_t)body.n, fields, n_fields);
    sink_write(s, body);
    sink_end(s);
}
