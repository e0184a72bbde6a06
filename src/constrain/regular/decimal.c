#include "constrain/regular/decimal.h"

static bool is_digit(struct str s, size_t at)
{
    return at < s.n && s.p[at] >= '0' && s.p[at] <= '9';
}

struct digits {
    struct decimal *d;
    bool is_fraction, is_too_long;
    uint32_t n_zeros; /* after the last digit that is not 0, not yet stored */
};

static void put_digit(struct digits *out, uint8_t digit)
{
    struct decimal *d = out->d;

    if (d->n || digit)
        d->exponent += !out->is_fraction;
    else
        d->exponent -= out->is_fraction;
    if (!digit) {
        out->n_zeros += d->n > 0;
        return;
    }
    if (d->n + out->n_zeros >= DECIMAL_DIGITS_MAX) {
        out->is_too_long = true;
        return;
    }
    d->n = (uint8_t)(d->n + out->n_zeros);
    out->n_zeros = 0;
    d->digits[d->n++] = digit;
}

/* Reads `e`, the sign and the digits of the exponent at *at; false if they are no exponent. The
 * value saturates. */
static bool read_exponent(struct str s, size_t *at, int32_t *exponent)
{
    size_t k = *at + 1;
    bool is_negative = k < s.n && s.p[k] == '-';
    int32_t value = 0;

    if (k < s.n && (s.p[k] == '-' || s.p[k] == '+'))
        k++;
    if (!is_digit(s, k))
        return false;
    for (; is_digit(s, k); k++)
        value = MIN(value * 10 + (s.p[k] - '0'), 1000000);
    *exponent = is_negative ? -value : value;
    *at = k;
    return true;
}

int decimal_parse(struct decimal *d, struct str text, struct err *e)
{
    struct digits out = { .d = d };
    size_t at = 0;
    int32_t exponent = 0;

    memset(d, 0, sizeof(*d));
    /* Positions are int32_t: a longer text would overflow them. */
    if (text.n > 4096)
        return err_set(e, ERR_TOO_LARGE, "a number of %zu characters, at most 4096", text.n);
    if (text.n && text.p[0] == '-')
        at++;
    bool is_negative = at;
    bool is_valid = is_digit(text, at) && !(text.p[at] == '0' && is_digit(text, at + 1));
    for (; is_digit(text, at); at++)
        put_digit(&out, (uint8_t)(text.p[at] - '0'));
    if (is_valid && at < text.n && text.p[at] == '.') {
        out.is_fraction = true;
        is_valid = is_digit(text, ++at);
        for (; is_digit(text, at); at++)
            put_digit(&out, (uint8_t)(text.p[at] - '0'));
    }
    if (is_valid && at < text.n && (text.p[at] == 'e' || text.p[at] == 'E'))
        is_valid = read_exponent(text, &at, &exponent);
    if (!is_valid || at != text.n)
        return err_set(e, ERR_SYNTAX, "\"" STR_FMT "\" is not a number",
            STR_ARG(((struct str){ text.p, MIN(text.n, (size_t)100) })));
    if (!d->n) {
        d->exponent = 0;
        return 0;
    }
    d->exponent += exponent;
    d->is_negative = is_negative;
    if (out.is_too_long)
        return err_set(
            e, ERR_TOO_LARGE, "a number of more than %d significant digits", DECIMAL_DIGITS_MAX);
    if (d->exponent > DECIMAL_EXPONENT_MAX || d->exponent < -DECIMAL_EXPONENT_MAX)
        return err_set(e, ERR_RANGE, "the magnitude of " STR_FMT " is out of range",
            STR_ARG(((struct str){ text.p, MIN(text.n, (size_t)100) })));
    return 0;
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    int sign = a->is_negative ? -1 : 1, larger = 0;

    if (a->is_negative != b->is_negative)
        return sign;
    if (!a->n || !b->n)
        return a->n == b->n ? 0 : a->n ? sign : b->is_negative ? 1 : -1;
    if (a->exponent != b->exponent)
        larger = a->exponent > b->exponent ? 1 : -1;
    else
        larger = memcmp(a->digits, b->digits, sizeof(a->digits));
    return larger ? (larger > 0 ? sign : -sign) : 0;
}
