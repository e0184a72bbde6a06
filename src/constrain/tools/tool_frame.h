/* tool_frame.h: text around names and arguments of tool calls, as parts of a grammar.
 *
 * Owner: that of the grammar. */
#pragma once

#include "constrain/grammar/grammar.h"
#include "output/format_table.h"

enum {
    FRAME_IN_STRING = 1,  /* BODY_JSON: the text begins inside a JSON string */
    FRAME_KEEP_FIRST = 2, /* the first byte is exact, although it is a blank */
    FRAME_IS_LAST = 4     /* the text ends before a token that ends the output */
};

/* The text with control tokens by id. Runs of blanks that are not between letters are optional; so
 * are blanks next to JSON punctuation of BODY_JSON; a quoted number is any number. */
part_id tool_frame(struct grammar *g, const struct tool_format *f, struct str text, unsigned flags);
part_id tool_frame_blanks(struct grammar *g); /* at most 40 blanks, tabs and newlines */
