/* tool_triggers.h: the markers after which the output of a model is a tool call (tool_choice auto).
 *
 * The triggers of a format are the markers in before_name that may begin a call: that of a list of
 * calls, and that of one call, since some models omit the first. A marker of plain letters, which a
 * text may contain, is a trigger together with the text up to the first bracket.
 *
 * Pure. */
#pragma once

#include "output/format_table.h"

enum { TOOL_TRIGGERS_MAX = 4 };

struct tool_trigger {
    struct str text; /* part of before_name */
    size_t at;       /* offset in that text */
};

/* Returns the number of triggers; 0: the calls of the format begin without a marker, or the format
 * has no grammar. */
int tool_triggers(const struct tool_format *f, struct tool_trigger out[TOOL_TRIGGERS_MAX]);
