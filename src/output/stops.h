/* stops.h: stop strings, which end a choice when they are generated.
 *
 * Holds back the longest suffix that may still become a stop string. Time is linear in the text,
 * for any strings (Aho-Corasick). The string that is completed first wins; of two that are
 * completed by the same byte, the one that began first (the longer one); of equal strings, the
 * first in the list.
 *
 * Owner: the caller (the io thread). Memory comes from the arena of stops_new. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"

struct stops;

enum { STOPS_MAX = 64, STOP_BYTES_MAX = 4096 }; /* strings; total bytes */

/* NULL if there is no memory, or if the limits above are exceeded (the caller checks with stops_fit
 * first). Strings are copied; empty ones are ignored. */
struct stops *stops_new(struct arena *a, const struct str *strings, int n) MUST_CHECK;
bool stops_fit(const struct str *strings, int n);

/* Adds text and appends to out what cannot become a stop string. Returns the index of the string
 * that was completed first, or -1. After a hit, out ends before the stop string (with `include`:
 * after it), and further text is ignored. */
int stops_put(struct stops *s, struct str text, bool include, struct buf *out);
void stops_end(struct stops *s, struct buf *out); /* appends the held bytes */
