/* decimal.h: exact decimal numbers as written in JSON (RFC 8259, section 6).
 *
 * The value is 0.d1 d2 .. dn * 10^exponent with d1 > 0 and dn > 0; n = 0 is zero. Pure; any
 * thread. */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum {
    DECIMAL_DIGITS_MAX = 64,      /* significant digits */
    DECIMAL_EXPONENT_MAX = 10000, /* magnitude of the exponent */
};

struct decimal {
    int32_t exponent;
    uint8_t is_negative; /* false for zero */
    uint8_t n;
    uint8_t digits[DECIMAL_DIGITS_MAX]; /* 0..9; unused ones are 0 */
};

/* -1: not a number of JSON, or one of the bounds above is exceeded */
int decimal_parse(struct decimal *d, struct str text, struct err *e) MUST_CHECK;
int decimal_compare(const struct decimal *a, const struct decimal *b); /* -1, 0, 1 */
