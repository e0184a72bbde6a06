/* thinking.h: where a prompt stands with respect to thinking, by the markers of a row. Pure. */
#pragma once

#include "output/parser_rows.h"

const struct thinking_row *thinking_find(const char *id); /* NULL: no such */

/* Blanks around a marker do not count. */
bool thinking_ends_prompt(const struct thinking_row *r, struct str prompt, enum mark_kind kind);
bool thinking_is_in(const struct thinking_row *r, struct str text, enum mark_kind kind);
/* The text opens a thinking that it does not close. */
bool thinking_is_open(const struct thinking_row *r, struct str text);
