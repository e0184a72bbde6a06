#include "chat/thinking.h"

const struct thinking_row *thinking_find(const char *id)
{
    const struct thinking_row *r;

    for (size_t i = 0; (r = thinking_row_at(i)); i++)
        if (!strcmp(r->id, id))
            return r;
    return NULL;
}

bool thinking_ends_prompt(const struct thinking_row *r, struct str prompt, enum mark_kind kind)
{
    prompt = str_trim(prompt);
    for (int i = 0; i < r->n_marks; i++)
        if (r->marks[i].kind == kind && str_ends(prompt, str_trim(r->marks[i].text)))
            return true;
    return false;
}

bool thinking_is_in(const struct thinking_row *r, struct str text, enum mark_kind kind)
{
    for (int i = 0; i < r->n_marks; i++)
        if (r->marks[i].kind == kind && str_find(text, str_trim(r->marks[i].text)) >= 0)
            return true;
    return false;
}

/* Index after the last marker of this kind; 0 if there is none. */
static size_t last_end(const struct thinking_row *r, struct str text, enum mark_kind kind)
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

bool thinking_is_open(const struct thinking_row *r, struct str text)
{
    return last_end(r, text, MARK_THINK) > last_end(r, text, MARK_THINK_END);
}
