/* parser_states.h: states of the body readers and of the text before a call without a marker. Each
 * reader changes only its own struct. Owner: see parser.h. */
#pragma once

#include "output/format_table.h"
#include "output/json_text.h"
#include "output/literal.h"

/* Context of a call without a marker: the last byte of the text, its last byte that is not blank
 * and the byte before that, and whether a newline follows. */
struct text_context {
    char last, visible, before_visible;
    bool is_line_start;
};

struct json_reader {
    uint8_t state, n_nested, key, n_fence;
    bool in_list, is_first; /* no key of the object has been read */
    bool has_args;          /* the object has a member for the arguments */
    struct json_string text;
    struct buf word; /* a key or a name */
};

struct tag_reader {
    enum tag_state state;
    uint32_t at;
    bool is_streaming, has_params;
    /* value state: no byte yet; the value begins on its own line; a newline is held back */
    bool is_fresh, is_on_own_line, has_newline;
    bool has_blank; /* name state: a blank follows the name */
    unsigned types;
    struct buf text; /* a name, a key or a value */
    const struct json *schema;
    /* A value without its end tag ends at the tag of the next parameter or of the end of the call,
     * unless the bytes after it show that it is part of the value. Until then `since` has the
     * bytes from the tag on, `key` the next key; `unclosed` is the state of the value. */
    bool is_unclosed;
    enum tag_state unclosed;
    struct buf since, key;
    size_t n_end_tag; /* bytes of the tag */
    int next_mark;    /* number + 1 of the marker after the call, which was read with it; 0: none */
};

enum { ELEMENT_DEPTH_MAX = 32 };

struct element {
    size_t name_at; /* offset in `names`, of which the name is the rest */
    uint8_t kind;
    bool has_children;
    const struct json *schema; /* NULL: not specified */
};

struct element_reader {
    uint8_t state;
    uint32_t at; /* matcher state */
    int depth;
    struct element stack[ELEMENT_DEPTH_MAX]; /* the first one is the call */
    struct buf names, tag, text;             /* text since the last tag */
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
    uint32_t at;
    struct buf header;
};
