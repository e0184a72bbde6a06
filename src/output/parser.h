/* parser.h: what a model said, taken apart while it says it: text, thinking, tool calls.
 *
 * One pass over the text in any pieces. Every decision depends on the bytes and never on how they
 * were cut: the same text gives the same calls and the same concatenated content, reasoning and
 * arguments, whole or byte by byte. Inference, the probe and POST /v1/parse use this and nothing
 * else. Linear in the text; no regular expressions, no recursion.
 *
 * How a model marks its calls and its thinking are two rows of tables (parser_rows.c), named by
 * ids. A pair of them is compiled once, when a model is loaded (struct parser_format); a parser
 * is one answer.
 *
 * The rules:
 *   - A marker is never content. Whitespace next to a marker is not content either; only between
 *     two texts the whitespace on one side of what stood there is kept.
 *   - Only the longest tail that may become a marker is held back, and whitespace that may turn
 *     out to stand before one. Tokens of control must come as text.
 *   - A call is told when its name and the beginning of its arguments are there; arguments are
 *     JSON text, told as they arrive. They are complete with the bracket that closes them: a
 *     missing end marker behind it is forgiven.
 *   - A call that does not parse, or that has not ended when the text does, was text: its body
 *     becomes content, without the markers. When parts of it have been told, call_broken comes
 *     first: a client that shows calls early must take this one back. What has been told before
 *     was nevertheless a prefix of good JSON. It is never an error.
 *   - Markers inside an argument are part of the argument.
 *   - Thinking that never ends is reasoning to the end of the text.
 *
 * Memory: PARSER_CALL_MAX bytes of the call being read (a longer one is text), whitespace that is
 * held back, and what one parser_put produces. Names are at most PARSER_NAME_MAX bytes, there are
 * at most PARSER_CALLS_MAX calls; what goes beyond is text. A look-up in the tools may cost their
 * whole length: after PARSER_SCHEMA_MAX bytes they are asked no more, and types are guessed.
 *
 * Owner: whoever holds it (the io thread); a format is read-only, any thread. */
#pragma once

#include "base/json.h"

enum {
    PARSER_CALL_MAX = 16 * 1024 * 1024,
    PARSER_NAME_MAX = 256,
    PARSER_CALLS_MAX = 1024,
    PARSER_SCHEMA_MAX = 512 * 1024 * 1024,
    PARSER_TEXT_MAX = 256 * 1024 * 1024 /* what one put may produce, or hold back */
};

/* ---- rows, by id */

const char *parser_tool_id(size_t i);     /* NULL behind the last */
const char *parser_thinking_id(size_t i); /* NULL behind the last */

enum call_ids { /* what ids of calls look like, where templates want them in a form of their own */
    CALL_IDS_ANY,
    CALL_IDS_NINE, /* nine letters and digits */
    CALL_IDS_NAME  /* functions.NAME:NUMBER, counted over the conversation */
};

struct parser_format;

/* Ids are looked up as they are; empty means "null". ERR_INVALID with the known ids in the
 * message and the field (tool_parser, thinking_parser) in e->param; ERR_MEMORY. */
int parser_format_new(
    struct parser_format **out, struct str tool, struct str thinking, struct err *e);
void parser_format_free(struct parser_format *f);
const char *parser_format_tool(const struct parser_format *f); /* the ids of its rows */
const char *parser_format_thinking(const struct parser_format *f);
enum call_ids parser_format_ids(const struct parser_format *f);
/* Whether a token with this text is a marker of the format, or a part of one. */
bool parser_format_writes(const struct parser_format *f, struct str token);
bool parser_supports_toggle(const struct parser_format *f); /* thinking can be turned off */

/* ---- one answer */

struct parser_ops { /* text is valid UTF-8, never empty; borrowed for the call */
    void (*content)(void *arg, struct str text);
    void (*reasoning)(void *arg, struct str text);
    /* index counts from 0 over all calls that began, broken ones included */
    void (*call_begin)(void *arg, int index, struct str name);
    void (*call_args)(void *arg, int index, struct str json);
    void (*call_end)(void *arg, int index);
    void (*call_broken)(void *arg, int index);
};

enum parser_start {
    PARSER_START_DEFAULT, /* as the thinking row says */
    PARSER_START_CONTENT,
    PARSER_START_THINKING /* the prompt has opened the thinking */
};

struct parser_options {
    const struct json *tools; /* as in a request, or NULL; outlives the parser */
    enum parser_start start;
    const struct str *names; /* a call of any other is text; n_names 0: all are calls. Outlive it */
    int n_names;
};

struct parser;

/* The format and the options' tools outlive it. NULL when memory is gone. */
struct parser *parser_new(const struct parser_format *f, const struct parser_options *o,
    const struct parser_ops *ops, void *arg) MUST_CHECK;
void parser_free(struct parser *p);

/* Invalid UTF-8 becomes U+FFFD; a character may be cut. ERR_MEMORY, ERR_TOO_LARGE: the parser can
 * only be freed. */
int parser_put(struct parser *p, struct str text, struct err *e);
/* The text has ended: what was held back is told. Once. */
int parser_end(struct parser *p, struct err *e);

bool parser_in_thinking(const struct parser *p);
int parser_n_calls(const struct parser *p); /* complete ones so far */
/* Bytes looked at or moved, for tests: a small multiple of the bytes put. */
uint64_t parser_work(const struct parser *p);

/* ---- the result as a whole */

struct parsed_call {
    struct str name, arguments; /* arguments: JSON text of an object */
    bool is_complete;           /* false only while it is being told, and when it broke */
};

struct parsed {
    struct buf content, reasoning;
    struct parsed_call *calls; /* without broken ones once the text has ended */
    int n_calls, cap_calls;
    struct buf arguments; /* of the call being told */
    bool failed;
};

extern const struct parser_ops parsed_ops; /* arg: a struct parsed */
void parsed_init(struct parsed *r, size_t max_bytes);
void parsed_clear(struct parsed *r);

/* Batch: one piece. ERR_MEMORY, ERR_TOO_LARGE. parsed_clear in any case. */
int parse_text(struct parsed *out, const struct parser_format *f, const struct parser_options *o,
    struct str text, struct err *e);

/* For the probe: the text has a complete call of this function. */
bool parser_validates(const struct parser_format *f, struct str text, struct str function);
