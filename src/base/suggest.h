/* suggest.h: the known name that is nearest to a misspelt one, for "did you mean".
 *
 * The distance is the number of characters to insert, delete, replace or exchange with their
 * neighbour. A name is suggested up to a distance of a third of its length, at most 3.
 *
 * Plain data of the caller; any thread. */
#pragma once

#include "base/str.h"

enum { SUGGEST_NAME_MAX = 64 }; /* longer names have no suggestion */

struct suggestion {
    struct str name; /* misspelt, borrowed */
    struct str best; /* STR_NONE: none; borrowed from the caller of suggest_offer */
    size_t distance;
};

struct suggestion suggest_for(struct str name);
void suggest_offer(struct suggestion *s, struct str candidate);
/* The same for each of "a|b|c". */
void suggest_offer_list(struct suggestion *s, const char *candidates);
/* Writes "; did you mean PREFIXbest?" or nothing; returns out. */
const char *suggest_text(const struct suggestion *s, const char *prefix, char *out, size_t size);

size_t suggest_distance(struct str a, struct str b); /* both at most SUGGEST_NAME_MAX bytes */
