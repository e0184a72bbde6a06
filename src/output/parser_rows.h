/* parser_rows.h: how families of models mark tool calls and thinking, as rows.
 *
 * A tool row is its markers, what stands between them (the body) and a few words about it. A new
 * format of a known shape is a row and its cases in tests/golden/parser.txt.
 *
 *     BODY_JSON     {"name": .., "arguments": {..}}, alone, in a list, or one after the other
 *     BODY_TAGS     a name between tags, then JSON or each argument between tags: the row has the
 *                   tags as edges of a small graph
 *     BODY_PYTHON   name(key=literal, ..), alone or in a list; the dialect may differ
 *     BODY_CHANNELS messages with a header that says whom they are for
 *
 * Read-only. */
#pragma once

#include "output/parser.h"

enum mark_kind {
    MARK_OPEN,        /* a call begins */
    MARK_DROP,        /* says nothing here: ends of calls and of lists of calls, ends of turns */
    MARK_SECTION,     /* MARK_IN_SECTION marks count from here */
    MARK_SECTION_END, /* to here */
    MARK_THINK,
    MARK_THINK_END,
    MARK_HEADER, /* BODY_CHANNELS: a header begins */
    MARK_MESSAGE_END
};

enum mark_flag {
    MARK_SOFT = 1,      /* also seen in plain text: comes back when no call follows */
    MARK_IN_SECTION = 2 /* only counts in a section */
};

struct mark_row {
    enum mark_kind kind;
    unsigned flags;
    struct str text;
};

enum body { BODY_NONE, BODY_JSON, BODY_TAGS, BODY_PYTHON, BODY_CHANNELS };

enum {
    TOOL_LIST = 1,          /* JSON: [{..}, {..}] is understood */
    TOOL_SEMICOLON = 2,     /* JSON: {..}; {..} is understood */
    TOOL_KEY_IS_NAME = 4,   /* JSON: {"name": {arguments}} */
    TOOL_VERBATIM = 8,      /* tags: the newlines around a value belong to it */
    TOOL_MANY = 16,         /* Python: calls follow each other without a list */
    TOOL_FENCE = 32,        /* JSON, Python: a fence of ``` may stand around the calls */
    TOOL_START_IS_CALL = 64 /* the text begins behind a marker */
};

/* Tags. In a state of the first group text is collected until one of its edges' literals comes;
 * in one of the second group blanks are skipped and one of the literals must follow. "{" is the
 * beginning of JSON arguments. */
enum tag_state {
    TAG_NAME,
    TAG_KEY,
    TAG_VALUE,  /* coerced by the tool's schema */
    TAG_STRING, /* a string, whatever the schema says */
    TAG_ANY,    /* JSON if it is JSON */
    TAG_SKIP,   /* of no interest */
    TAG_GAP,    /* behind a name or a value */
    TAG_MID,    /* between key and value */
    TAG_ARGS,   /* in front of JSON */
    TAG_HEAD,   /* in front of the name */
    TAG_JSON,
    TAG_DONE,
    N_TAG_STATES
};

enum { TAG_EDGES_MAX = 5 };

struct tag_edge {
    enum tag_state from;
    struct str literal;
    enum tag_state to;
};

struct tool_row {
    const char *id;
    enum body body;
    unsigned flags;
    const struct mark_row *marks;
    int n_marks;
    const struct tag_edge *edges;
    int n_edges;
    enum tag_state first;
    const char *bare;      /* bytes with which a call may begin the text; NULL: none */
    const char *prefix;    /* of names: not part of them; of a Python call: must be there */
    const char *suffix;    /* of names: ':' and digits, or a word */
    const char *text_name; /* a name that says: what follows is text */
    /* A call, up to its name, and from there to its arguments: how one that is asked for begins.
     * NULL: cannot be asked for. */
    const char *before_name, *after_name;
    enum call_ids ids;
    char open, close, assign; /* Python: ( ) = when 0 */
    struct str quote;         /* Python: the dialect's own quotes */
};

enum {
    THINKING_TOGGLE = 1,    /* templates can be told to turn it off */
    THINKING_STARTS = 2,    /* the answer begins inside */
    THINKING_CALL_ENDS = 4, /* the beginning of a call ends it */
    THINKING_IS_CHANNEL = 8 /* BODY_CHANNELS' own */
};

struct thinking_row {
    const char *id;
    unsigned flags;
    const struct mark_row *marks;
    int n_marks;
};

const struct tool_row *tool_row_at(size_t i);         /* NULL behind the last */
const struct thinking_row *thinking_row_at(size_t i); /* NULL behind the last */
