/* rfc3339.h: time stamps of RFC 3339. Any thread; pure function. */
#pragma once

#include "base/str.h"

/* Unix time of "2026-11-24T08:00:00Z", or with an offset such as +01:00 instead of Z; fractions of
 * a second are not accepted. */
bool rfc3339_read(struct str text, int64_t *out);
