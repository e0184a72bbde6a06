/* json_space.h: whitespace between JSON tokens, by the output policy.
 *
 *   default  none, one blank, or one or two newlines (\n or \r\n) and at most 40 blanks or tabs;
 *            before the whole value at most one character, after it none
 *   compact  none
 *   any      every whitespace
 *
 * The state is a number; 0 is the state before the first character. Pure functions. */
#pragma once

#include "constrain/constraint.h"

enum { SPACE_NONE, SPACE_BLANK, SPACE_CR, SPACE_NL, SPACE_CR2, SPACE_INDENT };
enum { SPACE_INDENT_MAX = 40 }; /* SPACE_INDENT + k: k blanks or tabs after a newline */

static inline bool is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

/* False: the character is not permitted. `is_outer`: before the whole value. */
static inline bool space_step(
    enum json_whitespace policy, bool is_outer, uint8_t *state, uint8_t byte)
{
    bool is_indent = *state == SPACE_NL || *state >= SPACE_INDENT;
    uint8_t n = *state >= SPACE_INDENT ? (uint8_t)(*state - SPACE_INDENT) : 0;

    if (policy == JSON_WS_ANY)
        return true;
    if (policy == JSON_WS_COMPACT || (is_outer && *state != SPACE_NONE))
        return false;
    if (is_outer)
        *state = SPACE_BLANK;
    else if (*state == SPACE_NONE && byte != '\t')
        *state = byte == ' ' ? SPACE_BLANK : byte == '\n' ? SPACE_NL : SPACE_CR;
    else if ((*state == SPACE_CR || *state == SPACE_CR2) && byte == '\n')
        *state = *state == SPACE_CR ? SPACE_NL : SPACE_INDENT;
    else if (*state == SPACE_NL && (byte == '\n' || byte == '\r'))
        *state = byte == '\n' ? SPACE_INDENT : SPACE_CR2;
    else if (is_indent && n < SPACE_INDENT_MAX && (byte == ' ' || byte == '\t'))
        *state = (uint8_t)(SPACE_INDENT + n + 1);
    else
        return false;
    return true;
}

/* Whether a JSON token may follow: not between \r and \n. */
static inline bool space_may_end(uint8_t state)
{
    return state != SPACE_CR && state != SPACE_CR2;
}
