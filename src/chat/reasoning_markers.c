#include "chat/reasoning_markers.h"

bool reasoning_marker_ends_prompt(
    const struct reasoning_format *r, struct str prompt, enum marker_kind kind)
{
    prompt = str_trim(prompt);
    for (int i = 0; i < r->n_marks; i++)
        if (r->marks[i].kind == kind && str_ends(prompt, str_trim(r->marks[i].text)))
            return true;
    return false;
}

bool reasoning_marker_is_in(
    const struct reasoning_format *r, struct str text, enum marker_kind kind)
{
    for (int i = 0; i < r->n_marks; i++)
        if (r->marks[i].kind == kind && str_find(text, str_trim(r->marks[i].text)) >= 0)
            return true;
    return false;
}

/* Index after the last marker of this kind; 0 if there is none. */
static size_t last_end(const struct reasoning_format *r, struct str text, enum marker_kind kind)
{
    size_t last = 0;

    for (int i = 0; i < r->n_marks; i++) {
        struct str mark = r->marks[i].text, rest = text;
        ptrdiff_t at;
        if (r->marks[i].kind != kind)
            continue;
        while ((at = str_find(rest, mark)) >= 0) {
            rest = str_skip(rest, (size_t)at + mark.n);
            last = MAX(last, text.n - rest.n);
        }
    }
    return last;
}

bool reasoning_is_open(const struct reasoning_format *r, struct str text)
{
    return last_end(r, text, MARK_REASONING) > last_end(r, text, MARK_REASONING_END);
}
