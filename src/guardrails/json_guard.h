/* json_guard.h: applies guardrails to the strings and numbers of a JSON text that arrives in
 * pieces, such as the arguments of a tool call. Each string is a text of its own, searched as it is
 * decoded. A redaction replaces characters inside of a string; a number that is redacted becomes
 * the string "[redacted]". So valid JSON stays valid.
 *
 * Owner: one thread at a time. */
#pragma once

#include "guardrails/scan.h"

struct json_guard {
    struct guard_scan *scan; /* borrowed; on_text and ctx are set while it is used */
    enum { JSON_OUTSIDE, JSON_IN_STRING, JSON_IN_ESCAPE, JSON_IN_HEX, JSON_IN_NUMBER } state;
    struct buf out;    /* result so far; the caller empties it */
    struct buf number; /* the number that is being read */
    char escape[12];   /* escapes of the character that is being read */
    int n_escape;
    unsigned unit, high; /* UTF-16 units; high 0: none is held */
};

void json_guard_init(struct json_guard *j, struct guard_scan *scan, size_t max_bytes);
void json_guard_clear(struct json_guard *j);
/* Begins a JSON text. */
void json_guard_begin(struct json_guard *j);
/* Whole characters. The state of the scan is the result: blocked, failed. */
void json_guard_put(struct json_guard *j, struct str text);
void json_guard_end(struct json_guard *j);
