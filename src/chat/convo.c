#include "chat/convo.h"

static const char *const roles[] = {
    [ROLE_SYSTEM] = "system",
    [ROLE_DEVELOPER] = "developer",
    [ROLE_USER] = "user",
    [ROLE_ASSISTANT] = "assistant",
    [ROLE_TOOL] = "tool",
    [ROLE_FUNCTION] = "function",
};

const char *role_name(enum role r)
{
    return roles[r];
}

bool role_parse(struct str name, enum role *out)
{
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        if (str_is(name, roles[i])) {
            *out = (enum role)i;
            return true;
        }
    return false;
}

struct str message_text(const struct message *m, struct arena *a)
{
    size_t n = 0, n_texts = 0;
    struct str one = STR("");

    for (int i = 0; i < m->n_parts; i++)
        if (m->parts[i].kind == PART_TEXT) {
            one = m->parts[i].text;
            n += one.n + 1;
            n_texts++;
        }
    if (n_texts < 2)
        return one.p ? one : STR("");
    char *p = arena_alloc(a, n);
    if (!p)
        return STR_NONE;
    bool is_first = true;
    n = 0;
    for (int i = 0; i < m->n_parts; i++) {
        struct str s = m->parts[i].text;
        if (m->parts[i].kind != PART_TEXT)
            continue;
        if (!is_first)
            p[n++] = '\n';
        is_first = false;
        if (s.n)
            memcpy(p + n, s.p, s.n);
        n += s.n;
    }
    return (struct str){ p, n };
}

void convo_drop_billing(struct convo *c)
{
    struct message *m = c->messages;

    if (!c->n_messages || m->role != ROLE_SYSTEM || !m->n_parts)
        return;
    struct content_part *p = &m->parts[0];
    if (p->kind != PART_TEXT || !str_starts(p->text, STR("x-anthropic-billing-header:")))
        return;
    ptrdiff_t line = str_find(p->text, STR("\n"));
    p->text = line < 0 ? STR("") : str_skip(p->text, (size_t)line + 1);
    p->raw = NULL; /* the raw part still has the removed line */
    if (p->text.n)
        return;
    m->parts++;
    if (--m->n_parts)
        return;
    c->messages++;
    c->n_messages--;
}
