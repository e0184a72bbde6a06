/* query.h: query parameters and conditions of a request (reply.c). Owner: the io thread. */
#pragma once

#include "http/server.h"

/* Reads the value of `name` in the query, percent-decoded; *out is unchanged if there is none.
 * ERR_SYNTAX, ERR_MEMORY. */
int query_get(const struct http_exchange *x, const char *name, struct str *out, struct err *e);
/* ERR_INVALID: the query has a parameter that is not in names[n]. */
int query_check(const struct http_exchange *x, const char *const *names, int n, struct err *e);
/* If-Match: a version in quotation marks, as in ETag. *has_version is false without the field and
 * for *. ERR_INVALID. */
int query_if_match(
    const struct http_exchange *x, bool *has_version, uint64_t *version, struct err *e);
