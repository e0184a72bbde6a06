#include "constrain/regular/unicode_property.h"

enum set_kind { GENERAL_CATEGORY, BINARY, SCRIPT };

struct unicode_set {
    enum set_kind kind;
    const char *short_name, *long_name;
    const char *ranges; /* the format is described in unicode_sets.mjs */
};

static const struct unicode_set sets[] = {
#define UNICODE_SET(kind, short_name, long_name, ranges) { kind, short_name, long_name, ranges },
#include "constrain/regular/unicode_sets.def"
#undef UNICODE_SET
};

/* Unions of general categories; the first letters select them. */
static const struct {
    const char *names[3];
    const char *members[3];
} groups[] = {
    { { "L", "Letter" }, { "L" } },
    { { "LC", "Cased_Letter" }, { "Lu", "Ll", "Lt" } },
    { { "M", "Mark", "Combining_Mark" }, { "M" } },
    { { "N", "Number" }, { "N" } },
    { { "P", "Punctuation", "punct" }, { "P" } },
    { { "S", "Symbol" }, { "S" } },
    { { "Z", "Separator" }, { "Z" } },
    { { "C", "Other" }, { "C" } },
    { { "digit" }, { "Nd" } },
    { { "cntrl" }, { "Cc" } },
};

/* Further names of a binary property: those of ECMA-262 without a table. */
static const struct {
    const char *name;
    uint32_t from, to;
} intervals[] = {
    { "Any", 0, CODE_POINT_MAX },
    { "ASCII", 0, 0x7F },
};

static uint32_t value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (uint32_t)(c - 'A');
    if (c >= 'a' && c <= 'z')
        return (uint32_t)(c - 'a') + 26;
    if (c >= '0' && c <= '9')
        return (uint32_t)(c - '0') + 52;
    return c == '+' ? 62 : 63;
}

static void add_ranges(struct code_points *s, const char *text)
{
    uint32_t at = 0;
    bool is_inside = false;

    while (*text) {
        uint32_t n = 0, bits = 0, v;
        do {
            v = value_of(*text++);
            n |= (v & 31) << bits;
            bits += 5;
        } while (v & 32);
        if (is_inside)
            code_points_add(s, at, at + n - 1);
        at += n;
        is_inside = !is_inside;
    }
}

static bool add_sets(struct code_points *s, enum set_kind kind, struct str name)
{
    for (size_t k = 0; k < ARRAY_LEN(sets); k++)
        if (sets[k].kind == kind &&
            (str_is(name, sets[k].short_name) || str_is(name, sets[k].long_name))) {
            add_ranges(s, sets[k].ranges);
            return true;
        }
    return false;
}

static void add_members(struct code_points *s, struct str prefix)
{
    for (size_t k = 0; k < ARRAY_LEN(sets); k++)
        if (sets[k].kind == GENERAL_CATEGORY && str_starts(str_of(sets[k].short_name), prefix))
            add_ranges(s, sets[k].ranges);
}

static bool add_general_category(struct code_points *s, struct str name)
{
    for (size_t g = 0; g < ARRAY_LEN(groups); g++)
        for (size_t k = 0; k < 3 && groups[g].names[k]; k++) {
            if (!str_is(name, groups[g].names[k]))
                continue;
            for (size_t m = 0; m < 3 && groups[g].members[m]; m++)
                add_members(s, str_of(groups[g].members[m]));
            return true;
        }
    return add_sets(s, GENERAL_CATEGORY, name);
}

static bool add_binary(struct code_points *s, struct str name)
{
    struct code_points unassigned = { 0 };

    for (size_t k = 0; k < ARRAY_LEN(intervals); k++)
        if (str_is(name, intervals[k].name)) {
            code_points_add(s, intervals[k].from, intervals[k].to);
            return true;
        }
    if (!str_is(name, "Assigned"))
        return add_sets(s, BINARY, name);
    bool is_found = add_sets(&unassigned, GENERAL_CATEGORY, STR("Cn"));
    code_points_invert(&unassigned);
    code_points_add_all(s, &unassigned);
    code_points_clear(&unassigned);
    return is_found;
}

bool unicode_property_add(struct code_points *s, struct str expression)
{
    ptrdiff_t equals = str_find(expression, STR("="));

    if (equals < 0)
        return add_general_category(s, expression) || add_binary(s, expression);
    struct str key = { expression.p, (size_t)equals };
    struct str value = str_skip(expression, (size_t)equals + 1);
    if (str_is(key, "gc") || str_is(key, "General_Category"))
        return add_general_category(s, value);
    if (str_is(key, "sc") || str_is(key, "Script"))
        return add_sets(s, SCRIPT, value);
    return false;
}
