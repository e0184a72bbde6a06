/* authority.h: host and port of a Host field, an absolute-form target or an Origin (RFC 9110 7.2,
 * RFC 6454), in one canonical form, so that equal hosts compare equal.
 *
 * Pure. Any thread. */
#pragma once

#include "base/str.h"

enum { HTTP_HOST_MAX = 253 };

struct http_authority {
    /* Name in lower case without a final dot, or address as inet_ntop writes it. */
    char host[HTTP_HOST_MAX + 1];
    int port;         /* 0: none */
    bool is_loopback; /* 127.0.0.0/8, ::1, localhost or a name below it */
};

/* "name", "1.2.3.4", "[::1]", each with an optional port. Returns -1 if s has another form: other
 * characters than letters, digits, '-' and '_' in a name, an empty label, a zone, user
 * information. */
int http_authority_parse(struct http_authority *out, struct str s) MUST_CHECK;
