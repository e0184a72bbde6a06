#include "constrain/regular/json_string.h"

#include "constrain/regular/pattern.h"
#include "constrain/regular/string_format.h"

int expr_json_string(
    struct exprs *x, const struct json_string_limits *l, expr_id *out, struct err *e)
{
    expr_id all = EXPR_ALL, part = EXPR_ALL;
    bool has_format = false;

    if (l->min_length > REPEAT_MAX)
        return err_set(e, ERR_TOO_LARGE, "minLength %llu is above %d",
            (unsigned long long)l->min_length, REPEAT_MAX);
    for (size_t k = 0; k < l->n_patterns; k++) {
        if (pattern_compile(x, l->patterns[k], TEXT_JSON, PATTERN_SEARCH, &part, e))
            return -1;
        all = expr_and(x, all, part);
    }
    for (size_t k = 0; k < l->n_formats; k++) {
        if (!string_format_is_known(l->formats[k]))
            continue;
        if (string_format_compile(x, l->formats[k], TEXT_JSON, &part, e))
            return -1;
        all = expr_and(x, all, part);
        has_format = true;
    }
    enum text_mode mode = l->n_patterns || has_format ? TEXT_JSON : TEXT_JSON_U_ESCAPE;
    uint32_t max = l->max_length > REPEAT_MAX ? REPEAT_INF : (uint32_t)l->max_length;
    expr_id any = text_any_star(x, mode); /* interned, so that unions with it are simplified */
    if (l->min_length > max)
        any = EXPR_NONE;
    else if (l->min_length || max != REPEAT_INF)
        any = expr_repeat(x, text_any(x, mode), (uint32_t)l->min_length, max);
    *out = expr_and(x, all, any);
    return exprs_check(x, e);
}
