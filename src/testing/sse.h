/* sse.h: a stream of server-sent events on a sink (WHATWG HTML, section 9.2).
 *
 *     sse_begin  ->  sse_data | sse_event | sse_comment ...  ->  sse_end
 *                                                            or  sse_stop after a disconnect
 *
 * Every call writes whole frames, so a comment is never inside a frame. After `keepalive_ms`
 * without a frame, a timer sends a comment, because clients and proxies close connections without
 * traffic after one to five minutes.
 *
 * Owner: the io thread of the sink. */
#pragma once

#include "http/sink.h"
#include "os/loop.h"

enum { SSE_KEEPALIVE_MS = 15000 };

struct sse {
    struct sink *sink;
    struct loop *loop;
    struct loop_timer timer;
    uint64_t last_ns; /* time of the last frame */
    uint64_t keepalive_ns;
};

/* Overwrites *s, which must not move until sse_end or sse_stop. Status 200; `fields` are sent in
 * addition to Content-Type, Cache-Control and X-Accel-Buffering. keepalive_ms 0 = no comments. */
void sse_begin(struct sse *s, struct sink *sink, struct loop *loop, uint32_t keepalive_ms,
    const struct http_field *fields, int n_fields);
void sse_data(struct sse *s, struct str data); /* one data line per line of `data` */
void sse_event(struct sse *s, struct str name, struct str data); /* name: no line breaks */
void sse_comment(struct sse *s, struct str text);
void sse_end(struct sse *s); /* also ends the sink */
/* stops the timer only: call it in on_disconnect, before sink_abort; may be repeated */
void sse_stop(struct sse *s);
