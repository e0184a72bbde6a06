/* reasoning_markers.h: finds reasoning markers of a format in prompts and texts. Pure functions;
 * any thread. */
#pragma once

#include "output/format_table.h"

/* True if the prompt ends with a marker of this kind; blanks around the marker are ignored. */
bool reasoning_marker_ends_prompt(
    const struct reasoning_format *r, struct str prompt, enum marker_kind kind);
bool reasoning_marker_is_in(
    const struct reasoning_format *r, struct str text, enum marker_kind kind);
/* The text opens reasoning and does not close it. */
bool reasoning_is_open(const struct reasoning_format *r, struct str text);
