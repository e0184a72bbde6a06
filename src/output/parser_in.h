/* parser_in.h: the inside of the output parser, for the files parser_*.c.
 *
 * parser.c reads plain text with the format's marker automaton. At the marker that begins a call
 * it hands the bytes to the row's body reader, a small state machine that says after each run of
 * bytes how things stand (enum verdict). What a reader has used since the call began is kept in
 * `raw`, since it becomes text again if the call breaks.
 *
 * Owner: as the parser. */
#pragma once

#include "output/coerce.h"
#include "output/literal.h"
#include "base/marks.h"
#include "output/parser.h"
#include "output/parser_rows.h"

enum verdict {
    READ_MORE,  /* the call goes on */
    READ_CALL,  /* a call is complete; perhaps another one of a list follows */
    READ_LEAVE, /* no call goes on: what follows is text */
    READ_BAD    /* this was no call: it becomes text */
};

/* Uses a run of bytes: *used of them, 0 allowed when the state changed or the verdict is not
 * READ_MORE. Where it stops with READ_BAD depends on bytes only. in is not empty. */
struct reader {
    void (*begin)(struct parser *p);
    enum verdict (*read)(struct parser *p, struct str in, size_t *used);
    /* NULL: never. True: bytes go through the walk into the arguments, and nowhere else. */
    bool (*is_walking)(const struct parser *p);
};

extern const struct reader reader_json, reader_tags, reader_python, reader_channels;

struct parser_format {
    struct arena *arena;
    const struct tool_row *tool;
    const struct thinking_row *thinking;
    const struct reader *reader; /* of MARK_OPEN; NULL: no calls */
    struct str texts[MARKS_MAX]; /* of the marks, tool's first */
    struct mark_row rows[MARKS_MAX];
    bool is_tool[MARKS_MAX];
    int n_marks;
    struct marks *marks;
    struct marks *tags[N_TAG_STATES]; /* of BODY_TAGS: what each state looks for */
    struct str tag_texts[N_TAG_STATES][TAG_EDGES_MAX];
    enum tag_state tag_to[N_TAG_STATES][TAG_EDGES_MAX];
};

enum stream_id { CONTENT, REASONING, N_STREAMS };

struct stream {
    struct buf blanks;  /* at the end: perhaps they stand before a marker */
    bool any;           /* something has been told */
    bool after_mark;    /* nothing but blanks since a marker */
    bool keeps_blanks;  /* after a marker: there were none before it */
    bool needs_newline; /* between two messages or blocks of thinking */
    uint16_t guard;     /* automaton over what has been told: no marker may grow together */
};

struct call {
    char name[PARSER_NAME_MAX];
    size_t n_name;
    bool has_name, has_args, is_told;
    int index;
};

struct json_reader {
    uint8_t state, n_nested, key, n_fence;
    bool in_list, is_first; /* no key of the object has been read */
    struct json_string text;
    struct buf word; /* a key or a name */
};

struct tag_reader {
    enum tag_state state;
    uint16_t at;
    bool is_streaming, has_params;
    bool is_fresh, has_newline; /* of a value: nothing yet; a newline is held back */
    unsigned types;
    struct buf text; /* a name, a key or a value */
    const struct json *schema;
};

struct python_reader {
    uint8_t state, n_prefix;
    bool in_list, has_args;
    uint32_t n_positional;
    char word[PARSER_NAME_MAX];
    size_t n_word;
    struct literal literal;
    const struct json *schema;
};

struct channel_reader {
    uint8_t state;
    uint16_t at;
    struct buf header;
};

struct parser {
    const struct parser_format *f;
    const struct parser_ops *ops;
    void *arg;
    const struct json *tools;
    const struct str *names;
    int n_names;
    uint64_t schema_bytes; /* looked through so far, at most */

    char tail[4]; /* the beginning of a character that is not there yet */
    size_t n_tail;

    const struct reader *reader; /* of the call */
    bool in_call;                /* else in text */
    bool in_thinking;            /* of text: which stream */
    bool in_section;
    bool is_start; /* no content yet: a call may begin without a marker */
    uint16_t at;   /* state of the automaton */
    struct stream streams[N_STREAMS];
    struct buf out; /* text of one stream, not yet told */
    enum stream_id out_stream;

    struct call call;
    struct str opener;    /* the marker that began it; empty: none did */
    struct buf raw, args; /* arguments not yet told */
    bool drop_raw;        /* what was used is no part of a call */
    bool is_between;      /* the reader stands between two calls of a list */
    int n_begun, n_complete;
    struct json_walk walk;
    struct json_reader json;
    struct tag_reader tag;
    struct python_reader python;
    struct channel_reader channel;
    struct buf scratch;
    uint64_t work;
};

static inline bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* For readers: what the tools' schemas say about the call, as coerce.h has it; nothing when they
 * have been asked so often that it would take long. */
const struct json *call_schema(struct parser *p);
unsigned call_argument_types(struct parser *p, const struct json *schema, struct str argument);
struct str call_argument_at(struct parser *p, const struct json *schema, uint32_t i);

/* For readers. The name is complete: false when it cannot be one. */
bool call_named(struct parser *p, struct str name);
/* The text from here on belongs to this stream, as a new message. */
void parser_message(struct parser *p, enum stream_id stream);
