/* output_ops.h: output events of generated text: content, reasoning, tool calls.
 *
 * The output parser (parser.h) produces these events. The parts between the model and the client
 * implement or forward this one interface: the response and the dialects of the server, the
 * embeddable library, POST /v1/parse, the capability probe and the tests.
 *
 * `choice` is the number given to the producer. Calls are numbered from 0 within a choice,
 * including broken ones, and are reported one after the other: call_begin, call_args (none or
 * more), then call_end or call_broken. The fragments of call_args of a call that ends are together
 * the JSON text of an object; after call_broken the text of the call follows as content, and the
 * fragments were a prefix of valid JSON. Text is valid UTF-8, is never empty, and is borrowed for
 * the callback.
 *
 * A callback that is NULL: the receiver ignores this event.
 *
 * Owner: ctx belongs to the receiver; callbacks run on the thread of the producer. */
#pragma once

#include "base/str.h"

struct output_ops {
    void (*content)(void *ctx, int choice, struct str text);
    void (*reasoning)(void *ctx, int choice, struct str text);
    void (*call_begin)(void *ctx, int choice, int call, struct str name);
    void (*call_args)(void *ctx, int choice, int call, struct str json);
    void (*call_end)(void *ctx, int choice, int call);
    void (*call_broken)(void *ctx, int choice, int call);
};
