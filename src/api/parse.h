/* parse.h: POST /v1/parse, the output parser as a route: parses model output, given in fragments,
 * into content, reasoning and tool calls. It uses the parser of all responses (output/parser.h).
 *
 *     {"tool_parser": "hermes_json",     ids; absent or "null": none
 *      "thinking_parser": "think_tag",
 *      "tools": [..],                    as in a chat request; for the types of arguments
 *      "in_thinking": true,              the prompt ends inside reasoning; default: of the format
 *      "chunks": ["a", "b"]}             or "text": "ab"
 *
 *     {"content": "..", "reasoning": "..", "tool_calls": [..], "finish_reason": "stop",
 *      "deltas": [..]}
 *
 * reasoning is null if there is none. Deltas are those of a streamed chat, with "reasoning" for
 * reasoning; {"broken_call": 0} withdraws the call with that index: the content after it is the
 * text of the call. Withdrawn calls are not in tool_calls. Pure; any thread. */
#pragma once

#include "base/json.h"

struct parse_request {
    struct str tool_parser, thinking_parser; /* .p NULL when absent */
    struct str text;                         /* .p NULL if chunks is set */
    const struct json *tools, *chunks;       /* arrays or NULL */
    bool has_start, in_thinking;
};

/* ERR_SYNTAX, ERR_MISSING, ERR_INVALID with the field. */
int parse_request_read(struct parse_request *out, struct str body, struct arena *a, struct err *e);
/* ERR_INVALID for an unknown parser id, listing the known ones; ERR_MEMORY, ERR_TOO_LARGE. */
int parse_put_response(struct buf *out, const struct parse_request *request, struct err *e);
