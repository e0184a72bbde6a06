/* reasoning_markers.h: finds reasoning markers of a format in prompts and texts. Pure functions;
 * any thread. */
#pragma once

#include "output/parser_rows.h"

const struct thinking_row *thinking_find(const char *id); /* NULL: no such format */

/* True if the prompt ends with a marker of this kind; blanks around the marker are ignored. */
bool thinking_ends_prompt(const struct thinking_row *r, struct str prompt, enum mark_kind kind);
bool thinking_is_in(const struct thinking_row *r, struct str text, enum mark_kind kind);
/* The text opens reasoning and does not close it. */
bool thinking_is_open(const struct thinking_row *r, struct str text);
