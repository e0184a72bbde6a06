/* stops.h: text that ends an answer. Holds back the longest tail that could still become one of
 * the stop strings; linear in the text, whatever the strings (Aho-Corasick).
 *
 * Which string wins: the one that is completed first; when two are completed by the same byte,
 * the one that began first, which is the longer; of equal strings the one listed first.
 *
 * Owner: whoever holds it (the io thread). Lives in the arena it was given. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"

struct stops;

enum { STOPS_MAX = 64, STOP_BYTES_MAX = 4096 }; /* strings; bytes of all together */

/* NULL when memory is gone, or when there are more strings or bytes than the limits above (ask
 * stops_fit first). Strings are copied; empty ones are ignored. */
struct stops *stops_new(struct arena *a, const struct str *strings, int n) MUST_CHECK;
bool stops_fit(const struct str *strings, int n);

/* Feeds text; appends to out what is safe to show. Returns the index of the string that was
 * completed first (the text before it is in out, what follows is dropped), or -1. After a hit
 * further text is ignored. include: the stop string itself is shown too. */
int stops_put(struct stops *s, struct str text, bool include, struct buf *out);
void stops_end(struct stops *s, struct buf *out); /* what was held back */
