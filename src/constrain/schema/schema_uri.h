/* schema_uri.h: resolution of URI references (RFC 3986, section 5.2), for $id and $ref.
 *
 * Pure functions. */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum { URI_BYTES_MAX = 2048 };

struct uri_text {
    size_t n;
    char p[2 * URI_BYTES_MAX + 8];
};

/* Sets *uri to the part before `#` and *fragment to the part after it, STR_NONE without `#`. */
void uri_split(struct str text, struct str *uri, struct str *fragment);

/* The target of `reference` from a document at `base`; neither has a fragment. `base` may be
 * empty. -1: a URI longer than URI_BYTES_MAX */
int uri_resolve(
    struct uri_text *out, struct str base, struct str reference, struct err *e) MUST_CHECK;

/* Replaces %XX; `out` has text.n bytes. -1: an escape without two hexadecimal digits */
int uri_decode(char *out, size_t *n, struct str text, struct err *e) MUST_CHECK;
