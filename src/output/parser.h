/* parser.h: streaming parser of generated text: content, reasoning, tool calls.
 *
 * One pass over text in pieces of any size. Every decision depends on the bytes and never on how
 * they are cut: the same text gives the same calls and the same concatenated content, reasoning and
 * arguments, whole or byte by byte. Inference, the capability probe and POST /v1/parse all use this
 * parser. Time is linear in the text; there are no regular expressions and no recursion.
 *
 * The markers of tool calls and reasoning are two entries of format_table.c, named by ids. A pair
 * of entries is compiled once, when a model is loaded (struct parser_format); a struct parser
 * parses one output.
 *
 * Rules:
 *   - A marker counts where it forms a call, a reasoning block before any content, or an enclosed
 *     answer; elsewhere it is text. Whitespace next to a marker that counts is not content, but
 *     between two texts the whitespace on one side of it is kept.
 *   - Only the longest suffix that may become a marker is held back, and whitespace that may
 *     precede a marker. Control tokens must arrive as text.
 *   - A call is reported when its name and the beginning of its arguments have been read. Arguments
 *     are JSON text and are reported as they arrive. They are complete at their closing bracket; a
 *     missing end marker after it is accepted.
 *   - In formats without markers, an object or a list is a call only if its name is a tool of the
 *     request and it has arguments.
 *   - A call that does not parse, or is incomplete at the end of the text, becomes content with its
 *     markers. If parts of the call were already reported, call_broken comes first: a client that
 *     shows calls early must discard this one. The reported arguments are a prefix of valid JSON
 *     even then. A broken call is never an error.
 *   - Markers inside an argument are part of the argument.
 *   - Reasoning that is never closed continues to the end of the text, except complete calls of
 *     the request's tools at that end (parser_trial.c).
 *
 * Memory: PARSER_CALL_MAX bytes of the current call (a longer one is text), held whitespace, and
 * the output of one parser_put. Names have at most PARSER_NAME_MAX bytes, and there are at most
 * PARSER_CALLS_MAX calls; further ones are text. A lookup in the tools can cost their whole length,
 * so after PARSER_SCHEMA_MAX bytes there are no more lookups and types are inferred from the text.
 *
 * Owner: the caller (the io thread); a format is read-only, any thread. */
#pragma once

#include "base/json.h"
#include "output/output_ops.h"

enum {
    PARSER_CALL_MAX = 16 * 1024 * 1024,
    PARSER_NAME_MAX = 256,
    PARSER_CALLS_MAX = 1024,
    PARSER_SCHEMA_MAX = 512 * 1024 * 1024,
    /* limit of the output, and of the held bytes, of one parser_put */
    PARSER_TEXT_MAX = 256 * 1024 * 1024
};

/* ---- formats, by id */

const char *parser_tool_id(size_t i);      /* NULL after the last */
const char *parser_reasoning_id(size_t i); /* NULL after the last */

enum call_id_form { /* form of call ids, for templates that require one */
    CALL_IDS_ANY,
    CALL_IDS_NINE, /* nine letters and digits */
    CALL_IDS_NAME  /* functions.NAME:NUMBER, numbered over the conversation */
};

struct parser_format;

/* Ids must match exactly; an empty one means "null". ERR_INVALID lists the known ids in the message
 * and has the field (tool_parser, thinking_parser) in e->param; ERR_MEMORY. */
int parser_format_new(
    struct parser_format **out, struct str tool, struct str reasoning, struct err *e);
void parser_format_free(struct parser_format *f);
const char *parser_format_tool(const struct parser_format *f); /* ids of its table entries */
const char *parser_format_reasoning(const struct parser_format *f);
enum call_id_form parser_format_ids(const struct parser_format *f);
/* True if a token with this text is a marker of the format, or part of one. */
bool parser_format_has_marker(const struct parser_format *f, struct str token);
bool parser_can_toggle_reasoning(const struct parser_format *f); /* reasoning can be turned off */

/* ---- parsing one output */

enum parser_start {
    PARSER_START_DEFAULT, /* specified by the reasoning format */
    PARSER_START_CONTENT,
    PARSER_START_REASONING /* the prompt ends inside reasoning */
};

struct parser_options {
    const struct json *tools; /* tools of the request, or NULL; outlives the parser */
    enum parser_start start;
    /* callable functions: a call of any other is text; n_names 0: all names are calls. Outlives the
     * parser */
    const struct str *names;
    int n_names;
    int max_calls; /* no events after this many complete calls; 0: no limit */
    int choice;    /* number of the choice in the output events */
};

struct parser;

/* The format and the tools of the options outlive the parser; `o` may be NULL. Returns NULL if
 * there is no memory. */
struct parser *parser_new(const struct parser_format *f, const struct parser_options *o,
    const struct output_ops *ops, void *ctx) MUST_CHECK;
void parser_free(struct parser *p);

/* Invalid UTF-8 becomes U+FFFD; a character may be cut. After ERR_MEMORY or ERR_TOO_LARGE the
 * parser can only be freed. */
int parser_put(struct parser *p, struct str text, struct err *e);
/* End of the text: reports everything that was held back. Called once. */
int parser_end(struct parser *p, struct err *e);

bool parser_in_reasoning(const struct parser *p);
/* calls so far that are complete; calls that broke */
int parser_n_calls(const struct parser *p);
int parser_n_broken_calls(const struct parser *p);
bool parser_is_full(const struct parser *p); /* max_calls reached: further events are dropped */
/* Bytes examined or moved, for tests of linearity: a small multiple of the input. */
uint64_t parser_work(const struct parser *p);

/* ---- parsing a whole text */

struct parsed_call {
    struct str name, arguments; /* `arguments` is the JSON text of an object */
    bool is_complete;           /* false while the call is incomplete, and if it broke */
};

struct parsed {
    struct buf content, reasoning;
    struct parsed_call *calls; /* without broken ones once the text has ended */
    int n_calls, cap_calls;
    struct buf arguments; /* arguments of the current call */
    bool failed;
};

extern const struct output_ops parsed_ops; /* ctx: struct parsed *, of one choice */
void parsed_init(struct parsed *r, size_t max_bytes);
void parsed_clear(struct parsed *r);

/* Parses a whole text. ERR_MEMORY, ERR_TOO_LARGE. The caller calls parsed_clear in any case. */
int parse_text(struct parsed *out, const struct parser_format *f, const struct parser_options *o,
    struct str text, struct err *e);

/* For the capability probe: true if the text has a complete call of this function. */
bool parser_has_call(const struct parser_format *f, struct str text, struct str function);
