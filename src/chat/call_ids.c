#include "chat/call_ids.h"

#include <stdio.h>

enum { NINE = 9, RESULT_LOOKUPS_MAX = 256 };

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_nine_alnum(struct str id)
{
    bool fits = id.n == NINE;

    for (size_t i = 0; i < id.n; i++)
        fits = fits && is_alnum(id.p[i]);
    return fits;
}

/* functions.NAME:NUMBER */
static bool is_name_id(struct str id)
{
    size_t n = id.n;

    while (n && id.p[n - 1] >= '0' && id.p[n - 1] <= '9')
        n--;
    return n < id.n && n > 11 && id.p[n - 1] == ':' && str_starts(id, STR("functions."));
}

/* Equal ids give equal results, in every version, since clients and models see them: the hash is
 * FNV-1a, not one of base/hash.h. */
static struct str nine_id_of(struct str id, struct arena *a)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint64_t h = 0xcbf29ce484222325u;
    char text[NINE];

    for (size_t i = 0; i < id.n; i++)
        h = (h ^ (unsigned char)id.p[i]) * 0x100000001b3u;
    for (int i = 0; i < NINE; i++, h /= 62)
        text[i] = letters[h % 62];
    return arena_str(a, (struct str){ text, NINE });
}

static struct str name_id_of(struct str name, int number, struct arena *a)
{
    char digits[16];
    struct buf b;

    snprintf(digits, sizeof(digits), ":%d", number);
    buf_init(&b, name.n + 64);
    buf_putz(&b, "functions.");
    buf_puts(&b, name);
    buf_putz(&b, digits);
    struct str s = buf_ok(&b) ? arena_str(a, buf_str(&b)) : STR_NONE;
    buf_clear(&b);
    return s;
}

struct renaming {
    enum call_id_form form;
    struct arena *a;
    /* the last message with calls, before and after renaming */
    const struct message *old_calls, *new_calls;
    int n_results; /* since that message */
    int n_calls;   /* calls of the whole conversation */
};

static int rename_calls(struct renaming *r, const struct message *was, struct message *m)
{
    struct tool_call *calls = arena_zalloc(r->a, (size_t)was->n_tool_calls, sizeof(*calls));

    if (!calls)
        return -1;
    for (int i = 0; i < was->n_tool_calls; i++, r->n_calls++) {
        struct tool_call *c = &calls[i];
        *c = was->tool_calls[i];
        bool nine = r->form == CALL_IDS_NINE;
        if (nine ? is_nine_alnum(c->id) : is_name_id(c->id))
            continue;
        c->id = nine ? nine_id_of(c->id, r->a) : name_id_of(c->name, r->n_calls, r->a);
        c->raw = NULL; /* the raw call has the old id */
        if (!c->id.p)
            return -1;
    }
    m->tool_calls = calls;
    r->old_calls = was;
    r->new_calls = m;
    r->n_results = 0;
    return 0;
}

/* Results mostly arrive in the order of the calls: each search begins after the last hit. */
static int rename_result(struct renaming *r, const struct message *was, struct message *m)
{
    int n = r->old_calls ? r->old_calls->n_tool_calls : 0;

    for (int k = 0; k < MIN(n, RESULT_LOOKUPS_MAX); k++) {
        int i = (r->n_results + k) % n;
        if (!str_eq(r->old_calls->tool_calls[i].id, was->tool_call_id))
            continue;
        m->tool_call_id = r->new_calls->tool_calls[i].id;
        r->n_results = i + 1;
        return 0;
    }
    if (r->form == CALL_IDS_NINE && !is_nine_alnum(was->tool_call_id))
        m->tool_call_id = nine_id_of(was->tool_call_id, r->a);
    return m->tool_call_id.p ? 0 : -1;
}

int call_ids_convert(struct convo *out, const struct convo *in, enum call_id_form form,
    struct arena *a, struct err *e)
{
    struct renaming r = { .form = form, .a = a };
    bool has_any = false;

    *out = *in;
    for (int i = 0; i < in->n_messages; i++)
        has_any |= in->messages[i].n_tool_calls > 0 || in->messages[i].tool_call_id.n > 0;
    if (form == CALL_IDS_ANY || !has_any)
        return 0;
    out->messages = arena_zalloc(a, (size_t)in->n_messages, sizeof(*out->messages));
    if (!out->messages)
        return err_set(e, ERR_MEMORY, "no memory for the conversation");
    for (int i = 0; i < in->n_messages; i++) {
        const struct message *was = &in->messages[i];
        struct message *m = &out->messages[i];
        *m = *was;
        if ((was->n_tool_calls && rename_calls(&r, was, m)) ||
            (was->tool_call_id.n && rename_result(&r, was, m)))
            return err_set(e, ERR_MEMORY, "no memory for the conversation");
    }
    return 0;
}
