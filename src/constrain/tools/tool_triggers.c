#include "constrain/tools/tool_triggers.h"

#include "constrain/tools/tool_grammar.h"

/* Length of the marker of a call at the beginning of the text; 0: none. */
static size_t marker_length(const struct tool_format *f, struct str text)
{
    size_t longest = 0;

    for (int i = 0; i < f->n_marks; i++) {
        const struct marker *m = &f->marks[i];
        bool begins = m->kind == MARK_OPEN || m->kind == MARK_SECTION;
        if (begins && !(m->flags & MARK_IN_SECTION) && str_starts(text, m->text))
            longest = MAX(longest, m->text.n);
    }
    return longest;
}

static bool is_plain(struct str marker)
{
    bool plain = true;

    for (size_t i = 0; i < marker.n; i++)
        plain = plain && !strchr("<[|`>]", marker.p[i]);
    return plain;
}

int tool_triggers(const struct tool_format *f, struct tool_trigger out[TOOL_TRIGGERS_MAX])
{
    struct str before = tool_grammar_exists(f) ? str_of(f->before_name) : STR_NONE;
    int n = 0;

    for (size_t at = 0; at < before.n && n < TOOL_TRIGGERS_MAX;) {
        struct str rest = str_skip(before, at);
        size_t length = marker_length(f, rest);
        if (length && is_plain((struct str){ rest.p, length }))
            while (length < rest.n && rest.p[length - 1] != '[' && rest.p[length - 1] != '{')
                length++;
        if (length)
            out[n++] = (struct tool_trigger){ { rest.p, length }, at };
        at += MAX(length, (size_t)1);
    }
    return n && out[0].at == 0 ? n : 0;
}
