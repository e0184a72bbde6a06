/* parser_in.h: internals of the output parser, for the files parser_*.c.
 *
 * parser.c scans plain text with the Aho-Corasick matcher of the format's markers. A marker that
 * begins a call switches to the body reader of the format, a small state machine whose result after
 * each run of bytes is an enum verdict. All bytes of the current call are kept in `raw`, since they
 * become text again if the call breaks.
 *
 * Owner: see parser.h. */
#pragma once

#include "output/coerce.h"
#include "output/literal.h"
#include "base/aho_corasick.h"
#include "output/parser.h"
#include "output/format_table.h"

enum verdict {
    READ_MORE,  /* the call continues */
    READ_CALL,  /* a call is complete; another one of a list may follow */
    READ_LEAVE, /* no call continues: text follows */
    READ_BAD    /* not a call: its bytes become text */
};

/* Consumes a run of bytes and sets *used; 0 is allowed if the state changed or the verdict is not
 * READ_MORE. The byte at which READ_BAD occurs depends on the bytes only. `in` is not empty. */
struct body_reader {
    void (*begin)(struct parser *p);
    enum verdict (*read)(struct parser *p, struct str in, size_t *used);
    /* NULL: never. True: input goes through the JSON validator into the arguments, and nowhere
     * else. */
    bool (*is_walking)(const struct parser *p);
};

extern const struct body_reader reader_json, reader_tags, reader_python, reader_channels;

struct parser_format {
    struct arena *arena;
    const struct tool_format *tool;
    const struct reasoning_format *reasoning;
    const struct body_reader *reader; /* body reader of MARK_OPEN; NULL: no calls */
    struct str
        texts[AHO_CORASICK_MAX_STRINGS]; /* texts of the markers, those of the tool format first */
    struct marker rows[AHO_CORASICK_MAX_STRINGS];
    bool is_tool[AHO_CORASICK_MAX_STRINGS];
    int n_marks;
    struct aho_corasick *marks;
    struct aho_corasick
        *tags[N_TAG_STATES]; /* matchers of BODY_TAGS: literals that end each state */
    struct str tag_texts[N_TAG_STATES][TAG_EDGES_MAX];
    enum tag_state tag_to[N_TAG_STATES][TAG_EDGES_MAX];
};

enum output_stream_id { CONTENT, REASONING, N_STREAMS };

struct output_stream {
    struct buf blanks;  /* trailing whitespace, which may precede a marker */
    bool has_text;      /* text was reported */
    bool after_mark;    /* only whitespace since a marker */
    bool keeps_blanks;  /* keep the whitespace after the marker: there was none before it */
    bool needs_newline; /* between two messages or reasoning blocks */
    /* matcher state over the reported text: removing a marker must not form another one */
    uint16_t guard_state;
};

struct parser_call {
    char name[PARSER_NAME_MAX];
    size_t n_name;
    bool has_name, has_args, is_reported;
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
    bool is_fresh, has_newline; /* value state: no byte yet; a newline is held back */
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
    const struct output_ops *ops;
    void *ctx;
    int choice, max_calls; /* see struct parser_options */
    const struct json *tools;
    const struct str *names;
    int n_names;
    uint64_t schema_bytes; /* upper bound of schema bytes examined so far */

    char tail[4]; /* an incomplete UTF-8 character */
    size_t n_tail;

    const struct body_reader *reader; /* body reader of the current call */
    bool in_call;                     /* false: in text */
    bool in_reasoning;                /* stream of the text */
    bool in_section;
    bool is_start; /* no content yet: a call may begin without a marker */
    uint16_t at;   /* matcher state */
    struct output_stream streams[N_STREAMS];
    struct buf out; /* text of one stream, not yet reported */
    enum output_stream_id out_stream;

    struct parser_call call;
    struct str opener;                 /* the marker that began the call; empty: none */
    struct buf raw, args;              /* bytes of the call so far; arguments not yet reported */
    bool drop_raw;                     /* the consumed bytes are not part of a call */
    bool is_between;                   /* the reader is between two calls of a list */
    int n_begun, n_complete, n_broken; /* calls */
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

/* For body readers: schema lookups for the current call, as in coerce.h; no result after
 * PARSER_SCHEMA_MAX bytes. */
const struct json *parser_call_schema(struct parser *p);
unsigned parser_call_argument_types(
    struct parser *p, const struct json *schema, struct str argument);
struct str parser_call_argument_name(struct parser *p, const struct json *schema, uint32_t i);

/* For body readers: sets the complete name; false if it is not a possible name. */
bool parser_set_call_name(struct parser *p, struct str name);
/* From here on text belongs to this stream, as a new message. */
void parser_begin_message(struct parser *p, enum output_stream_id stream);
