#include "constrain/regular/number.h"

#include "constrain/regular/expr_in.h"

typedef unsigned __int128 u128;

enum phase {
    PH_START,
    PH_SIGN, /* after `-` */
    PH_ZERO, /* the integer part is 0 */
    PH_INTEGER,
    PH_POINT,
    PH_FRACTION,
    PH_E,
    PH_E_SIGN,
    PH_EXPONENT
};

enum order { IS_EQUAL, IS_LESS, IS_GREATER };
enum { LOWER, UPPER };

/* Bounds of the magnitude for one sign; NULL: none. */
struct magnitude {
    const struct decimal *bound[2];
    bool is_exclusive[2];
    bool is_impossible;
};

static struct magnitude magnitude_of(const struct number_spec *s, bool is_negative)
{
    const struct number_range *r = &s->range;
    bool has[2] = { r->has_min, r->has_max };
    const struct decimal *value[2] = { &r->min, &r->max };
    bool is_exclusive[2] = { r->is_min_exclusive, r->is_max_exclusive };
    struct magnitude m = { 0 };

    for (int side = LOWER; side <= UPPER; side++) {
        int from = is_negative ? 1 - side : side; /* a maximum below 0 is a least magnitude */
        const struct decimal *d = value[from];
        if (!has[from])
            continue;
        bool is_other_sign = d->n && d->is_negative != is_negative;
        if (is_other_sign && side == UPPER)
            m.is_impossible = true;
        if (is_other_sign)
            continue;
        m.bound[side] = d;
        m.is_exclusive[side] = is_exclusive[from];
    }
    return m;
}

/* ---- steps */

static u128 remainder_of(const struct number_state *t)
{
    u128 r;

    memcpy(&r, t->remainder, sizeof(r));
    return r;
}

static void put_digit(
    const struct number_spec *s, struct number_state *t, uint8_t digit, bool is_fraction)
{
    struct magnitude m = magnitude_of(s, t->is_negative);

    t->n_digits++;
    if (!s->range.has_min && !s->range.has_max)
        return; /* one state for all values */
    if (!t->has_nonzero && !digit) {
        t->position = (int16_t)(t->position - is_fraction);
        return;
    }
    t->position = (int16_t)(t->position + !is_fraction);
    t->has_nonzero = true;
    for (int side = LOWER; side <= UPPER; side++) {
        const struct decimal *d = m.bound[side];
        if (!d || t->order[side] != IS_EQUAL)
            continue;
        uint8_t other = t->matched[side] < d->n ? d->digits[t->matched[side]] : 0;
        if (digit != other)
            t->order[side] = digit < other ? IS_LESS : IS_GREATER;
        else if (t->matched[side] < d->n)
            t->matched[side]++;
        if (t->order[side] != IS_EQUAL)
            t->matched[side] = 0;
    }
}

/* False if the number is no multiple, whatever follows. */
static bool put_remainder(
    const struct number_spec *s, struct number_state *t, uint8_t digit, bool is_fraction)
{
    t->n_digits++;
    if (is_fraction && t->n_scaled == s->scale)
        return digit == 0;
    u128 r = (remainder_of(t) * 10 + digit) % s->modulus;
    t->n_scaled = (uint16_t)(t->n_scaled + is_fraction);
    memcpy(t->remainder, &r, sizeof(r));
    return true;
}

static bool step_digit(const struct number_spec *s, struct number_state *t, uint8_t digit)
{
    bool is_fraction = t->phase == PH_POINT || t->phase == PH_FRACTION;

    if (t->phase >= PH_E) {
        if (t->n_exponent == NUMBER_EXPONENT_DIGITS)
            return false;
        t->n_exponent++;
        t->exponent = (int16_t)(t->exponent * 10 + digit);
        t->phase = PH_EXPONENT;
        return true;
    }
    if (t->phase == PH_ZERO || t->n_digits == NUMBER_DIGITS_MAX)
        return false;
    if (s->range.has_multiple) {
        if (!put_remainder(s, t, digit, is_fraction))
            return false;
    } else {
        put_digit(s, t, digit, is_fraction);
    }
    if (is_fraction)
        t->phase = PH_FRACTION;
    else
        t->phase = t->phase == PH_INTEGER || digit ? PH_INTEGER : PH_ZERO;
    return true;
}

bool number_step(const struct number_spec *s, struct number_state *t, uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return step_digit(s, t, (uint8_t)(byte - '0'));
    switch (byte) {
    case '-':
        if (t->phase == PH_START) {
            t->is_negative = true;
            t->phase = PH_SIGN;
            return true;
        }
        t->is_exponent_negative = true;
        /* fall through */
    case '+':
        if (t->phase != PH_E)
            return false;
        t->phase = PH_E_SIGN;
        return true;
    case '.':
        if ((t->phase != PH_ZERO && t->phase != PH_INTEGER) || !s->range.allows_fraction ||
            t->n_digits == NUMBER_DIGITS_MAX)
            return false;
        t->phase = PH_POINT;
        return true;
    case 'e':
    case 'E':
        if ((t->phase != PH_ZERO && t->phase != PH_INTEGER && t->phase != PH_FRACTION) ||
            !s->range.allows_exponent)
            return false;
        t->phase = PH_E;
        return true;
    default:
        return false;
    }
}

/* ---- intervals */

/* The exponents P for which 0.T * 10^P is between the bounds, T as read so far: from..to. */
static void allowed_positions(
    const struct magnitude *m, const struct number_state *t, int32_t *from, int32_t *to)
{
    *from = INT32_MIN / 2;
    *to = m->is_impossible ? INT32_MIN : INT32_MAX / 2;
    for (int side = LOWER; side <= UPPER; side++) {
        const struct decimal *d = m->bound[side];
        if (!d)
            continue;
        /* T that ends inside of S is less, since S has no trailing zeros. */
        enum order o = t->order[side];
        if (o == IS_EQUAL && t->matched[side] < d->n)
            o = IS_LESS;
        bool is_inside =
            o == IS_EQUAL ? !m->is_exclusive[side] : o == (side == LOWER ? IS_GREATER : IS_LESS);
        if (side == LOWER && d->n)
            *from = d->exponent + !is_inside;
        else if (side == UPPER)
            *to = d->n ? d->exponent - !is_inside : INT32_MIN;
    }
}

static bool zero_is_inside(const struct magnitude *m)
{
    const struct decimal *low = m->bound[LOWER], *high = m->bound[UPPER];

    return !m->is_impossible && !(low && (low->n || m->is_exclusive[LOWER])) &&
           !(high && !high->n && m->is_exclusive[UPPER]);
}

/* True if a number with the digits read so far and an exponent first..last is inside. */
static bool is_inside(
    const struct magnitude *m, const struct number_state *t, int32_t first, int32_t last)
{
    int32_t from, to;

    if (!t->has_nonzero)
        return zero_is_inside(m);
    allowed_positions(m, t, &from, &to);
    return MAX(from, t->position + first) <= MIN(to, t->position + last);
}

static bool is_complete(const struct number_state *t)
{
    return t->phase == PH_ZERO || t->phase == PH_INTEGER || t->phase == PH_FRACTION ||
           t->phase == PH_EXPONENT;
}

/* Continuations of a text with an exponent. */
static bool exponent_is_live(const struct magnitude *m, const struct number_state *t)
{
    int32_t first = t->exponent, last = t->exponent, largest = 999;

    if (t->phase == PH_E)
        return is_inside(m, t, -largest, largest);
    if (t->phase == PH_E_SIGN)
        return is_inside(
            m, t, t->is_exponent_negative ? -largest : 0, t->is_exponent_negative ? 0 : largest);
    for (int n = t->n_exponent; n <= NUMBER_EXPONENT_DIGITS; n++) {
        bool is_negative = t->is_exponent_negative;
        if (is_inside(m, t, is_negative ? -last : first, is_negative ? -first : last))
            return true;
        first *= 10;
        last = last * 10 + 9;
    }
    return false;
}

/* Follows only digits for which the comparison with a bound is undecided, so the recursion visits
 * few states: prefixes of two numbers, for each place of the point. Its depth is that of the text,
 * at most NUMBER_DIGITS_MAX + 3. */
static bool interval_is_live(const struct number_spec *s, const struct number_state *t)
{
    static const char next[] = "0123456789.-";
    struct magnitude m = magnitude_of(s, t->is_negative);
    int32_t largest = s->range.allows_exponent ? 999 : 0;
    bool is_decided = t->has_nonzero && t->phase > PH_SIGN;

    if (t->phase >= PH_E)
        return exponent_is_live(&m, t);
    if (is_complete(t) && is_inside(&m, t, -largest, largest))
        return true;
    for (int side = LOWER; side <= UPPER; side++)
        is_decided &= !m.bound[side] || t->order[side] != IS_EQUAL;
    if (is_decided) {
        int32_t left = t->phase == PH_INTEGER ? NUMBER_DIGITS_MAX - t->n_digits : 0;
        return is_inside(&m, t, -largest, largest + left);
    }
    for (const char *c = next; *c; c++) {
        struct number_state after = *t;
        if (number_step(s, &after, (uint8_t)*c) && interval_is_live(s, &after))
            return true;
    }
    return false;
}

/* ---- multiples */

/* M / gcd(M, 10^n) */
static u128 without_tens(u128 m, uint32_t n)
{
    for (uint32_t k = 0, is_changed = 1; k < n && is_changed; k++) {
        is_changed = m % 2 == 0 || m % 5 == 0;
        /* 10^n has as many factors 2 as 5 */
        if (m % 2 == 0)
            m /= 2;
        if (m % 5 == 0)
            m /= 5;
    }
    return m;
}

/* True if the value with n more digits, of which n_scaled are then after the point, can be a
 * multiple: the digits t of V 10^n + t, 0 <= t < 10^n, can be chosen to be 0 modulo
 * M / gcd(M, 10^(s - n_scaled)). */
static bool can_be_multiple(
    const struct number_spec *s, const struct number_state *t, uint32_t n, uint32_t n_scaled)
{
    u128 m = without_tens(s->modulus, s->scale - n_scaled), power = 1;
    u128 r = remainder_of(t) % m;

    for (uint32_t k = 0; k < n; k++) {
        r = r * 10 % m;
        power = power < m ? power * 10 : power;
    }
    return r == 0 || m - r < power;
}

static bool multiple_is_live(const struct number_spec *s, const struct number_state *t)
{
    uint32_t left = NUMBER_DIGITS_MAX - t->n_digits;

    if (t->phase < PH_ZERO)
        return true; /* 0 */
    for (uint32_t n = 0; t->phase == PH_INTEGER && n <= left; n++)
        if (can_be_multiple(s, t, n, 0))
            return true;
    if (t->phase != PH_POINT && t->phase != PH_FRACTION && !s->range.allows_fraction)
        return number_accepts(s, t);
    uint32_t places = s->scale - t->n_scaled;
    for (uint32_t n = 0; n <= MIN(left, places); n++)
        if (can_be_multiple(s, t, n, t->n_scaled + n))
            return true;
    return false;
}

/* ---- machines */

bool number_accepts(const struct number_spec *s, const struct number_state *t)
{
    if (!is_complete(t))
        return false;
    if (s->range.has_multiple)
        return can_be_multiple(s, t, 0, t->n_scaled);
    struct magnitude m = magnitude_of(s, t->is_negative);
    int32_t exponent = t->is_exponent_negative ? -t->exponent : t->exponent;
    return is_inside(&m, t, exponent, exponent);
}

bool number_is_live(const struct number_spec *s, const struct number_state *t)
{
    return s->range.has_multiple ? multiple_is_live(s, t) : interval_is_live(s, t);
}

/* Sets M and s. */
static int read_multiple(struct number_spec *s, struct err *e)
{
    const struct decimal *m = &s->range.multiple;
    int32_t zeros = m->exponent - m->n; /* m = digits * 10^zeros */

    if (!m->n || m->is_negative)
        return err_set(e, ERR_RANGE, "multipleOf must be greater than 0");
    if (m->n > 37 || m->exponent > 37 || -zeros > NUMBER_SCALE_MAX)
        return err_set(e, ERR_UNSUPPORTED,
            "multipleOf has more than 37 digits or more than %d decimal places", NUMBER_SCALE_MAX);
    s->modulus = 0;
    for (int k = 0; k < m->n; k++)
        s->modulus = s->modulus * 10 + m->digits[k];
    for (; zeros > 0; zeros--)
        s->modulus *= 10;
    s->scale = (uint32_t)-zeros;
    return 0;
}

int expr_number(struct exprs *x, const struct number_range *r, expr_id *out, struct err *e)
{
    struct number_spec bounds = { .range = *r }, multiple = { .range = *r };
    struct number_state start = { 0 };

    bounds.range.has_multiple = false;
    if (r->has_multiple) {
        bounds.range.allows_exponent = multiple.range.allows_exponent = false;
        multiple.range.has_min = multiple.range.has_max = false;
        if (read_multiple(&multiple, e))
            return -1;
    }
    *out = expr_number_leaf(x, expr_number_add(x, &bounds), &start);
    if (r->has_multiple)
        *out = expr_and(x, *out, expr_number_leaf(x, expr_number_add(x, &multiple), &start));
    return exprs_check(x, e);
}

bool number_format_range(struct str name, struct number_range *out)
{
    static const struct {
        const char *name, *min, *max;
    } formats[] = {
        { "int32", "-2147483648", "2147483647" },
        { "int64", "-9223372036854775808", "9223372036854775807" },
        { "uint32", "0", "4294967295" },
        { "uint64", "0", "18446744073709551615" },
    };
    struct err e;

    for (size_t k = 0; k < ARRAY_LEN(formats); k++)
        if (str_is(name, formats[k].name)) {
            *out = (struct number_range){ .has_min = true, .has_max = true };
            return !decimal_parse(&out->min, str_of(formats[k].min), &e) &&
                   !decimal_parse(&out->max, str_of(formats[k].max), &e);
        }
    return false;
}
