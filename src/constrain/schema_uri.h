/* schema_uri.h: resolution of URI references (RFC 3986, section 5.2), for $id and $ref.
 *
 * Pure functions on an arena. */
#pragma once

#include "base/arena.h"
#include "base/err.h"

enum { URI_BYTES_MAX = 2048 };

/* Sets *uri to the part before `#` and *fragment to the part after it, STR_NONE without `#`. */
void uri_split(struct str text, struct str *uri, struct str *fragment);

/* The target of `reference` from a document at `base`, without fragment. `base` may be empty. -1: a
 * URI longer than URI_BYTES_MAX, or no memory. */
int uri_resolve(struct str *out, struct str base, struct str reference, struct arena *a,
    struct err *e) MUST_CHECK;

/* Replaces %XX. -1: an escape without two hexadecimal digits, or no memory. */
int uri_decode(struct str *out, struct str text, struct arena *a, struct err *e) MUST_CHECK;
