/* forwarded.h: the addresses of clients and proxies that a request states: Forwarded (RFC 7239),
 * else X-Forwarded-For. The header is written by the client or by a proxy: the caller decides which
 * addresses it trusts. Any thread; pure functions. */
#pragma once

#include "base/err.h"
#include "http/server.h"

enum { FORWARDED_MAX = 32 };

/* Sets the addresses in the order of the hops, the client first: without port and brackets; an
 * identifier such as `unknown` or `_proxy` as it is. They point to the fields of the request.
 * *n = 0: the request has neither field. ERR_SYNTAX; ERR_RANGE: more than FORWARDED_MAX hops. */
int forwarded_read(
    const struct http_request *r, struct str out[FORWARDED_MAX], int *n, struct err *e) MUST_CHECK;
