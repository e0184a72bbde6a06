/* number.h: the texts of numbers in an interval, and the texts of multiples of a number.
 *
 * The texts are those of JSON, narrowed by the output policy: at most `digits_max` digits, an
 * exponent of at most three digits, and neither fraction nor exponent unless allowed. The value is
 * compared exactly, as decimal digits; no binary floating point is involved.
 *
 * Interval: the text has the value 0.T * 10^P, where T are its digits without leading zeros and P
 * follows from the point and the exponent. A bound is 0.S * 10^E, so the order is that of
 * (P, T) and (E, S). The state is P and, for each bound, how T compares with S so far.
 *
 * Multiple: m = M / 10^s with integers M and s. The state is the value of the digits modulo M. The
 * text is a multiple if its digits, scaled to s digits after the point, are 0 modulo M and all
 * further digits are 0. An exponent is not allowed.
 *
 * Pure functions; any thread. */
#pragma once

#include "constrain/regular/decimal.h"
#include "constrain/regular/expr.h"

enum { NUMBER_DIGITS_MAX = 40, NUMBER_EXPONENT_DIGITS = 3, NUMBER_SCALE_MAX = 400 };

/* Request of the caller. */
struct number_range {
    bool has_min, has_max;
    bool is_min_exclusive, is_max_exclusive;
    bool has_multiple;
    bool allows_fraction, allows_exponent;
    struct decimal min, max, multiple; /* multiple > 0 */
};

/* -1: a multiple of more than 37 digits or below 10^-400, or not positive. EXPR_NONE if no number
 * satisfies the range. Texts of multiples have no exponent. */
int expr_number(
    struct exprs *x, const struct number_range *r, expr_id *out, struct err *e) MUST_CHECK;

/* The range of the formats int32, int64, uint32 and uint64 of JSON Schema; false: another name. */
bool number_format_range(struct str name, struct number_range *out) MUST_CHECK;

/* ---- one machine, for expr.c and derive.c */

struct number_spec {
    struct number_range range; /* either bounds or a multiple */
    unsigned __int128 modulus; /* M */
    uint32_t scale;            /* s */
};

struct number_state {
    uint8_t phase, is_negative, n_digits, has_nonzero;
    uint8_t n_exponent, is_exponent_negative;
    int16_t exponent;
    int16_t position;   /* P without the exponent */
    uint16_t n_scaled;  /* digits after the point, at most the scale */
    uint8_t order[2];   /* T compared with the digits of the lower and upper bound so far */
    uint8_t matched[2]; /* digits of the bound that are equal to those of T */
    uint32_t remainder[4];
};

#define NUMBER_WORDS (sizeof(struct number_state) / sizeof(uint32_t))

bool number_step(const struct number_spec *s, struct number_state *t, uint8_t byte);
bool number_accepts(const struct number_spec *s, const struct number_state *t);
/* True if some continuation of the text is accepted; exact. */
bool number_is_live(const struct number_spec *s, const struct number_state *t);
