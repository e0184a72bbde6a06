/* sse.h: a stream of server-sent events over a sink (WHATWG HTML, section 9.2).
 *
 *     sse_begin  ->  sse_data | sse_event | sse_comment ...  ->  sse_end
 *                                                            or  sse_stop when the client left
 *
 * Every call writes whole frames, so a comment never stands inside one. After `silence_ms`
 * without a frame a comment is sent by the clock, whatever the model is doing: clients and
 * proxies give up on connections that are silent for a minute or five.
 *
 * Owner: the io thread of the sink. */
#pragma once

#include "http/sink.h"
#include "os/loop.h"

enum { SSE_SILENCE_MS = 15000 };

struct sse {
    struct sink *sink;
    struct loop *loop;
    struct loop_timer timer;
    uint64_t last_ns; /* when the last frame was written */
    uint64_t silence_ns;
};

/* *s is overwritten and must stay where it is until sse_end or sse_stop. Status 200; the fields
 * come on top of Content-Type, Cache-Control and X-Accel-Buffering. silence_ms 0 = no comments. */
void sse_begin(struct sse *s, struct sink *sink, struct loop *loop, uint32_t silence_ms,
    const struct http_field *fields, int n_fields);
void sse_data(struct sse *s, struct str data);                   /* lines are split as need be */
void sse_event(struct sse *s, struct str name, struct str data); /* name: no line breaks */
void sse_comment(struct sse *s, struct str text);
void sse_end(struct sse *s);  /* ends the sink too */
void sse_stop(struct sse *s); /* only the timer: in on_gone, before sink_abort; again is fine */
