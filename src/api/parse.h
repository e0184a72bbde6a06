/* parse.h: POST /v1/parse, the output parser by itself: what would a model's words, in these
 * pieces, be to a client? The code is the one that reads every answer (chat/parser.h).
 *
 *     {"tool_parser": "hermes_json",     ids; absent or "null": none
 *      "thinking_parser": "think_tag",
 *      "tools": [..],                    as in a chat request; for the types of arguments
 *      "in_thinking": true,              the prompt has opened the thinking; default: the format's
 *      "chunks": ["a", "b"]}             or "text": "ab"
 *
 *     {"content": "..", "reasoning": "..", "tool_calls": [..], "finish_reason": "stop",
 *      "deltas": [..]}
 *
 * reasoning is null when there was none. Deltas are those of a streamed chat, with "reasoning"
 * for thinking; {"broken_call": 0} takes back the call of that index: what follows it as content
 * is its text. Calls that were taken back are not in tool_calls. Pure; any thread. */
#pragma once

#include "base/json.h"

struct parse_ask {
    struct str tool_parser, thinking_parser; /* .p NULL when absent */
    struct str text;                         /* .p NULL when there are chunks */
    const struct json *tools, *chunks;       /* arrays or NULL */
    bool has_start, in_thinking;
};

/* ERR_SYNTAX, ERR_MISSING, ERR_INVALID with the field. */
int parse_ask_read(struct parse_ask *out, struct str body, struct arena *a, struct err *e);
/* ERR_INVALID for an unknown id, with the known ones; ERR_MEMORY, ERR_TOO_LARGE. */
int parse_answer(struct buf *out, const struct parse_ask *ask, struct err *e);
