/* string_format.h: the values of `format` of JSON Schema as patterns.
 *
 *   date-time date time    RFC 3339, with leap years and leap seconds (23:59:60 UTC)
 *   duration               RFC 3339, appendix A
 *   email idn-email        RFC 5321 addr-spec with dot-string or quoted-string; domain or address
 *   hostname idn-hostname  RFC 1123: labels of 1 to 63 characters, 253 characters
 *   ipv4 ipv6              RFC 2673 dotted quad; RFC 4291 text form
 *   uri uri-reference      RFC 3986; iri and iri-reference: RFC 3987
 *   uri-template           RFC 6570
 *   uuid                   RFC 4122
 *   json-pointer, relative-json-pointer     RFC 6901 and its draft extension
 *   regex                  a subset of the patterns that pattern.h accepts: groups are not nested
 *                          more than twice
 *   byte                   RFC 4648 base64 with padding (OpenAPI)
 *
 * The language of a format that is not regular or depends on tables is narrower, so that each text
 * in it is valid: hostname has no "xn--" labels; labels of idn-hostname that are not ASCII have at
 * most 11 characters, of the scripts and contexts listed in string_format.c.
 *
 * int32, int64, uint32 and uint64 are formats of numbers: number.h with their limits.
 *
 * Constant data; pure functions on the pool. */
#pragma once

#include "constrain/regular/text.h"

bool string_format_is_known(struct str name);
/* The values of a known format. -1: a bound of the pool. `mode` is TEXT_UTF8 or TEXT_JSON. */
int string_format_compile(
    struct exprs *x, struct str name, enum text_mode mode, expr_id *out, struct err *e) MUST_CHECK;
