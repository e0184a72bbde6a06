/* parser_in.h: internals of the output parser, for the files parser_*.c.
 *
 * parser.c scans plain text with the Aho-Corasick matcher of the format's markers. A marker that
 * begins a call switches to the body reader of the format, a small state machine whose result after
 * each run of bytes is an enum verdict. All bytes of the current call are kept in `raw`, since they
 * become text again if the call breaks.
 *
 * Owner: see parser.h. */
#pragma once

#include "base/aho_corasick.h"
#include "output/coerce.h"
#include "output/parser.h"
#include "output/parser_states.h"

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
    /* End of the text inside a call. NULL: the call is incomplete. */
    enum verdict (*end)(struct parser *p);
};

extern const struct body_reader reader_json, reader_tags, reader_elements, reader_python,
    reader_channels;

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
};

struct parser_call {
    char name[PARSER_NAME_MAX];
    size_t n_name;
    bool has_name, has_args, is_reported;
    int index;
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
    bool is_start;       /* no content yet: a call may begin without a marker */
    bool is_bare_format; /* calls have no marker and may begin anywhere in the content */
    bool is_trial;       /* parser_trial.c: only tools of the request are calls */
    bool is_after_call;  /* no content since a call: its end markers are not text */
    bool in_answer, has_reasoning_end; /* after MARK_ANSWER; after MARK_REASONING_END */
    struct buf section; /* MARK_SECTION and blanks after it: content unless a call follows */
    struct text_context context;
    struct parser *trial; /* parser_trial.c; NULL: no call inside reasoning is being read */
    struct buf trial_text;
    bool is_trial_off, has_trial_failed;
    uint32_t at; /* matcher state */
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
    struct element_reader element;
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
bool parser_call_has_argument(struct parser *p, const struct json *schema, struct str argument);
struct str parser_call_argument_name(struct parser *p, const struct json *schema, uint32_t i);
/* Types of a schema inside `root`, the schema of the call; schema of a member or of the items. */
unsigned parser_call_types(struct parser *p, const struct json *root, const struct json *schema);
const struct json *parser_call_child_schema(struct parser *p, const struct json *root,
    const struct json *schema, struct str name, bool is_item);

/* The call began without a marker: it may be other text. */
static inline bool parser_call_is_bare(const struct parser *p)
{
    return p->is_bare_format && !p->opener.n;
}

/* parser_trial.c: from a marker that begins a call inside reasoning, a second parser reads on. */
bool parser_trial_begins(const struct parser *p, int mark);
void parser_trial_begin(struct parser *p, struct str marker);
size_t parser_trial_run(struct parser *p, struct str in); /* returns the bytes read */
void parser_trial_end(struct parser *p);                  /* end of the text */

void parser_put_valid(struct parser *p, struct str in);

/* For body readers: sets the complete name; false if it is not a possible name. */
bool parser_set_call_name(struct parser *p, struct str name);
/* The text from here on belongs to this stream, as a new message. */
void parser_begin_message(struct parser *p, enum output_stream_id stream);
