/* format_table.h: tables of the output formats of model families: markers of tool calls and
 * reasoning.
 *
 * A tool format has markers, the syntax between them (the body) and a few flags. A new format with
 * a known body is a table entry and its cases in tests/golden/parser.txt.
 *
 *     BODY_JSON     {"name": .., "arguments": {..}}, alone, in a list, or one after the other
 *     BODY_TAGS     a name between tags, then JSON, or each argument between tags: the entry has
 *                   the tags as edges of a state graph
 *     BODY_ELEMENTS a name, then each argument as an element with its name as the tag; nested
 *     BODY_PYTHON   name(key=literal, ..), alone or in a list; the punctuation may differ
 *     BODY_CHANNELS messages with a header that names the recipient
 *
 * Read-only; any thread. */
#pragma once

#include "output/parser.h"

/* Markers that do not form a call, a reasoning block or a wrapped answer stay in the text, except
 * MARK_DROP and the markers of BODY_CHANNELS, which are control tokens. */
enum marker_kind {
    MARK_OPEN,        /* begins a call */
    MARK_CLOSE,       /* ends a call or a list of calls */
    MARK_SECTION,     /* begins a list of calls; MARK_IN_SECTION markers are active after it */
    MARK_SECTION_END, /* up to this marker */
    MARK_REASONING,   /* counts only before any content */
    MARK_REASONING_END,
    MARK_ANSWER, /* begins an answer that is enclosed as a whole; counts only before any content */
    MARK_ANSWER_END,
    MARK_DROP,   /* control token without effect, removed everywhere */
    MARK_HEADER, /* BODY_CHANNELS: a header begins */
    MARK_MESSAGE_END
};

enum marker_flag {
    MARK_IN_SECTION = 1 /* active only inside a section */
};

struct marker {
    enum marker_kind kind;
    unsigned flags;
    struct str text;
};

enum body { BODY_NONE, BODY_JSON, BODY_TAGS, BODY_ELEMENTS, BODY_PYTHON, BODY_CHANNELS };

enum {
    TOOL_LIST = 1,             /* JSON: [{..}, {..}] is accepted */
    TOOL_SEMICOLON = 2,        /* JSON: {..}; {..} is accepted */
    TOOL_KEY_IS_NAME = 4,      /* JSON: {"name": {arguments}} */
    TOOL_VERBATIM = 8,         /* tags: newlines around a value are part of it */
    TOOL_MANY = 16,            /* Python: calls may follow each other without a list */
    TOOL_FENCE = 32,           /* JSON, Python: a ``` fence may enclose the calls */
    TOOL_START_IS_CALL = 64,   /* the prompt ends with a call marker, so a call may begin at once */
    TOOL_START_IS_HEADER = 128 /* the prompt ends inside the header of a message (MARK_HEADER) */
};

/* States of BODY_TAGS. The states of the first group collect text up to one of the literals of
 * their edges; those of the second group skip blanks and require one of the literals. "{" begins
 * JSON arguments. */
enum tag_state {
    TAG_NAME,
    TAG_KEY,
    TAG_VALUE,  /* type from the tool's schema */
    TAG_STRING, /* a string, whatever the schema specifies */
    TAG_ANY,    /* JSON if it parses as JSON */
    TAG_CDATA,  /* value in <![CDATA[..]]>; the edge counts only before any byte of the value */
    TAG_SKIP,   /* ignored text */
    TAG_GAP,    /* after a name or a value */
    TAG_MID,    /* between key and value */
    TAG_ARGS,   /* before JSON */
    TAG_HEAD,   /* before the name */
    TAG_JSON,
    TAG_DONE,
    TAG_PENDING, /* after a tag that ends an unclosed value if no other text follows */
    N_TAG_STATES
};

enum { TAG_EDGES_MAX = 8 };

struct tag_edge {
    enum tag_state from;
    struct str literal;
    enum tag_state to;
};

struct tool_format {
    const char *id;
    enum body body;
    unsigned flags;
    const struct marker *marks;
    int n_marks;
    const struct tag_edge *edges;
    int n_edges;
    enum tag_state first;
    const char *start_bytes; /* bytes with which a call may begin the text; NULL: none */
    const char *prefix; /* prefix of names, not part of the name; mandatory before a Python call */
    const char *suffix; /* suffix of names: ':' and digits, or a word */
    const char *text_name; /* a name after which text follows, not a call */
    /* Beginning of a call up to its name, and from there to its arguments; used to force a call.
     * NULL: a call cannot be forced. */
    const char *before_name, *after_name;
    /* Grammar of the calls (constrain/tools): before_name CALL (next_call CALL)* after_calls, where
     * CALL is a name, after_name, the arguments, after_args. NULL: no grammar; one call at most;
     * nothing. */
    const char *after_args, *next_call, *after_calls;
    enum call_id_form ids;
    char open, close, assign; /* Python: ( ) = if 0 */
    struct str quote;         /* Python: string quotes of the dialect */
};

enum {
    REASONING_TOGGLE = 1,    /* templates have a switch for it */
    REASONING_STARTS = 2,    /* the output begins inside reasoning */
    REASONING_CALL_ENDS = 4, /* the beginning of a call ends it; else only calls at the end do */
    REASONING_IS_CHANNEL = 8 /* reasoning is a channel of BODY_CHANNELS */
};

struct reasoning_format {
    const char *id;
    unsigned flags;
    const struct marker *marks;
    int n_marks;
};

const struct tool_format *tool_format_at(size_t i);                  /* NULL after the last */
const struct reasoning_format *reasoning_format_at(size_t i);        /* NULL after the last */
const struct tool_format *tool_format_find(struct str id);           /* NULL: no such format */
const struct reasoning_format *reasoning_format_find(struct str id); /* NULL: no such format */
