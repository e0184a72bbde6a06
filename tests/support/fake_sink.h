/* fake_sink.h: a sink over a buffer that checks its use: one begin, then writes, then one end or
 * abort; the body must have the announced length. */
#pragma once

#include "http/sink.h"

struct fake_sink {
    struct sink sink;
    struct buf body;
    int status, n_begun, n_ended, n_aborted, n_writes, n_fields;
    int64_t promised;
    char type[64];
    char fields[1000]; /* "Name: value\n"... */
};

static inline struct fake_sink *fake_sink_of(struct sink *s)
{
    return container_of(s, struct fake_sink, sink);
}

static inline void fake_begin(struct sink *s, int status, const char *type, int64_t n_bytes,
    const struct http_field *fields, int n_fields)
{
    struct fake_sink *f = fake_sink_of(s);
    size_t at = 0;

    CHECK(f->n_begun++ == 0);
    f->status = status;
    f->promised = n_bytes;
    f->n_fields = n_fields;
    snprintf(f->type, sizeof(f->type), "%s", type);
    for (int i = 0; i < n_fields && at < sizeof(f->fields); i++)
        at += (size_t)snprintf(f->fields + at, sizeof(f->fields) - at, STR_FMT ": " STR_FMT "\n",
            STR_ARG(fields[i].name), STR_ARG(fields[i].value));
}

static inline void fake_write(struct sink *s, struct str bytes)
{
    struct fake_sink *f = fake_sink_of(s);

    CHECK(f->n_begun == 1 && !f->n_ended && !f->n_aborted);
    f->n_writes++;
    buf_puts(&f->body, bytes);
}

static inline void fake_end(struct sink *s)
{
    struct fake_sink *f = fake_sink_of(s);

    CHECK(f->n_begun == 1 && !f->n_ended && !f->n_aborted);
    CHECK(f->promised < 0 || !buf_ok(&f->body) || (size_t)f->promised == f->body.n);
    f->n_ended++;
}

static inline void fake_abort(struct sink *s)
{
    struct fake_sink *f = fake_sink_of(s);

    CHECK(f->n_begun == 1 && !f->n_ended && !f->n_aborted);
    f->n_aborted++;
}

static inline size_t fake_queued(const struct sink *s)
{
    (void)s;
    return 0;
}

static inline void fake_sink_init(struct fake_sink *f)
{
    static const struct sink_ops ops = { fake_begin, fake_write, fake_end, fake_abort,
        fake_queued };

    memset(f, 0, sizeof(*f));
    f->sink.ops = &ops;
    buf_init(&f->body, 256 * MB);
}

static inline void fake_sink_clear(struct fake_sink *f)
{
    buf_clear(&f->body);
}
