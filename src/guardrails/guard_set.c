#include "guardrails/guard_set.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "guardrails/fold.h"

#include <stdatomic.h>
#include <stdio.h>

const char *const guard_action_names[N_GUARD_ACTIONS] = { "log", "redact", "block" };
const char *const guard_place_names[N_GUARD_PLACES] = { "prompt", "output" };
const char *const guard_detector_names[N_GUARD_DETECTORS] = { "email", "card", "iban", "secret" };

bool guard_name_is_valid(struct str name)
{
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];
        bool is_letter = (c | 32) >= 'a' && (c | 32) <= 'z';
        if (!is_letter && !(c >= '0' && c <= '9') && !memchr("._-", c, 3))
            return false;
    }
    return name.n >= 1 && name.n <= GUARD_NAME_MAX;
}

/* ---- reading */

static int bad(struct err *e, enum errcode code, const char *member, int i, const char *what)
{
    char at[48];

    if (i < 0)
        snprintf(at, sizeof(at), "%s", member);
    else
        snprintf(at, sizeof(at), "%s[%d]", member, i);
    return err_param(e, code, at, "%s %s.", at, what);
}

/* Folded bytes of an entry; 0: it has no visible character. */
static size_t folded_bytes(struct str s)
{
    char to[FOLD_BYTES_MAX];
    size_t n = 0;
    uint32_t cp;

    for (int len; s.n && (len = utf8_decode(s, &cp)) > 0; s = str_skip(s, (size_t)len))
        n += fold_char(cp, to);
    return n;
}

static int check_text(
    struct str s, const char *member, int i, size_t max, bool is_entry, struct err *e)
{
    char what[64];
    size_t n = is_entry && utf8_valid(s) ? MAX(folded_bytes(s), s.n) : s.n;

    if (!s.n || !utf8_valid(s) || memchr(s.p, '\0', s.n))
        return bad(e, ERR_INVALID, member, i, "must be a text that is not empty");
    if (is_entry && !folded_bytes(s))
        return bad(e, ERR_INVALID, member, i, "has no visible character");
    snprintf(what, sizeof(what), "is longer than %zu bytes", max);
    return n <= max ? 0 : bad(e, ERR_RANGE, member, i, what);
}

struct list_rule {
    const char *name;
    int n_max;
    size_t bytes_max;
    bool is_entry;
};

static int read_list(struct guard_list *out, struct arena *a, const struct json *v,
    const struct list_rule *rule, struct err *e)
{
    char what[64];
    struct str *list;
    int i = 0;

    if (json_is_null(v))
        return 0;
    if (v->kind != JSON_ARRAY)
        return bad(e, ERR_INVALID, rule->name, -1, "must be an array of strings");
    snprintf(what, sizeof(what), "has more than %d elements", rule->n_max);
    if (v->n > (uint32_t)rule->n_max)
        return bad(e, ERR_RANGE, rule->name, -1, what);
    list = arena_zalloc(a, MAX(v->n, 1u), sizeof(*list));
    for (const struct json *s = v->child; list && s; s = s->next, i++) {
        if (s->kind != JSON_STRING)
            return bad(e, ERR_INVALID, rule->name, i, "must be a string");
        if (check_text(s->s, rule->name, i, rule->bytes_max, rule->is_entry, e))
            return -1;
        list[i] = arena_str(a, s->s);
        if (!list[i].p)
            list = NULL;
    }
    if (!list)
        return err_set(e, ERR_MEMORY, "no memory for the guardrails");
    *out = (struct guard_list){ list, i };
    return 0;
}

/* Index of the name; -1: there is none. */
static int index_of(struct str s, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (str_is(s, names[i]))
            return i;
    return -1;
}

/* An array of names as bits. */
static int read_bits(unsigned *out, const struct json *v, const char *member,
    const char *const *names, int n, struct err *e)
{
    int k = 0;

    if (json_is_null(v))
        return 0;
    if (v->kind != JSON_ARRAY)
        return bad(e, ERR_INVALID, member, -1, "must be an array of strings");
    *out = 0;
    for (const struct json *s = v->child; s; s = s->next, k++) {
        int i = s->kind == JSON_STRING ? index_of(s->s, names, n) : -1;
        if (i < 0)
            return bad(e, ERR_INVALID, member, k,
                n == N_GUARD_PLACES ? "must be \"prompt\" or \"output\""
                                    : "must be \"email\", \"card\", \"iban\" or \"secret\"");
        *out |= 1u << i;
    }
    return 0;
}

static int read_members(struct guard_set *s, const struct json *body, struct err *e)
{
    static const char *const names[] = { "blocklist", "whole_words", "patterns", "detectors",
        "action", "apply_to", "models", "tenants" };
    static const struct list_rule rules[] = { { "blocklist", GUARD_ENTRIES_MAX, GUARD_ENTRY_BYTES,
                                                  true },
        { "patterns", GUARD_PATTERNS_MAX, GUARD_PATTERN_BYTES, false },
        { "models", GUARD_SCOPE_MAX, GUARD_SCOPE_BYTES, false },
        { "tenants", GUARD_SCOPE_MAX, GUARD_SCOPE_BYTES, false } };
    struct guard_list *const lists[] = { &s->blocklist, &s->patterns, &s->models, &s->tenants };

    if (body->kind != JSON_OBJECT)
        return err_set(e, ERR_INVALID, "The guardrails must be a JSON object.");
    for (const struct json *v = body->child; v; v = v->next)
        if (index_of(v->key, names, ARRAY_LEN(names)) < 0)
            return err_param(e, ERR_INVALID, "guardrails", "Unknown field '%.*s'.",
                (int)MIN(v->key.n, (size_t)40), v->key.p);
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (read_list(lists[i], s->arena, json_get(body, rules[i].name), &rules[i], e))
            return -1;
    s->places = 1u << GUARD_PROMPT | 1u << GUARD_OUTPUT;
    if (read_bits(&s->detectors, json_get(body, "detectors"), "detectors", guard_detector_names,
            N_GUARD_DETECTORS, e) ||
        read_bits(&s->places, json_get(body, "apply_to"), "apply_to", guard_place_names,
            N_GUARD_PLACES, e))
        return -1;
    const struct json *whole = json_get(body, "whole_words"), *action = json_get(body, "action");
    if (!json_is_null(whole) && whole->kind != JSON_BOOL)
        return bad(e, ERR_INVALID, "whole_words", -1, "must be true or false");
    s->whole_words = !json_is_null(whole) && whole->b;
    if (json_is_null(action))
        return err_param(e, ERR_MISSING, "action", "The field 'action' is missing.");
    int i =
        action->kind == JSON_STRING ? index_of(action->s, guard_action_names, N_GUARD_ACTIONS) : -1;
    if (i < 0)
        return bad(e, ERR_INVALID, "action", -1, "must be \"block\", \"redact\" or \"log\"");
    s->action = (enum guard_action)i;
    return 0;
}

int guard_set_read(struct guard_set **out, struct str name, const struct json *body, struct err *e)
{
    if (!guard_name_is_valid(name))
        return err_param(e, ERR_INVALID, "name",
            "The name of a set has 1 to %d letters, digits, '.', '_' and '-'.", GUARD_NAME_MAX);
    struct guard_set *s = try_calloc(1, sizeof(*s));
    if (s)
        s->arena = arena_new(4 * (size_t)GUARD_TEXT_BYTES);
    if (!s || !s->arena) {
        mem_free(s);
        return err_set(e, ERR_MEMORY, "no memory for the guardrails");
    }
    s->n_refs = 1;
    memcpy(s->name, name.p, name.n);
    if (read_members(s, body, e)) {
        guard_set_unref(s);
        return -1;
    }
    *out = s;
    return 0;
}

int guard_set_parse(struct guard_set **out, struct str name, struct str text, struct err *e)
{
    const struct json_limits limits = { 4, 2 * GUARD_ENTRIES_MAX };
    struct arena *a = arena_new(64 * MB);
    struct json *root;

    if (!a)
        return err_set(e, ERR_MEMORY, "no memory for the guardrails");
    int failed =
        text.n > GUARD_TEXT_BYTES
            ? err_set(e, ERR_TOO_LARGE, "guardrails of more than %d bytes", GUARD_TEXT_BYTES)
            : json_parse(&root, text, a, &limits, e) || guard_set_read(out, name, root, e);
    arena_free(a);
    return failed ? -1 : 0;
}

/* ---- writing */

static void write_list(struct jw *w, const char *name, const struct guard_list *l)
{
    jw_key(w, name), jw_array(w);
    for (int i = 0; i < l->n; i++)
        jw_str(w, l->at[i]);
    jw_end_array(w);
}

static void write_bits(
    struct jw *w, const char *name, unsigned bits, const char *const *names, int n)
{
    jw_key(w, name), jw_array(w);
    for (int i = 0; i < n; i++)
        if (bits >> i & 1)
            jw_z(w, names[i]);
    jw_end_array(w);
}

void guard_set_write(const struct guard_set *s, struct jw *w)
{
    write_list(w, "blocklist", &s->blocklist);
    jw_member_bool(w, "whole_words", s->whole_words);
    write_list(w, "patterns", &s->patterns);
    write_bits(w, "detectors", s->detectors, guard_detector_names, N_GUARD_DETECTORS);
    jw_key(w, "action"), jw_z(w, guard_action_names[s->action]);
    write_bits(w, "apply_to", s->places, guard_place_names, N_GUARD_PLACES);
    write_list(w, "models", &s->models);
    write_list(w, "tenants", &s->tenants);
}

void guard_set_text(const struct guard_set *s, struct buf *out)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    guard_set_write(s, &w);
    jw_end_object(&w);
}

/* ---- references and use */

/* The count is the only member that changes in a shared set. */
static struct guard_set *counted(const struct guard_set *s)
{
    return (struct guard_set *)(uintptr_t)s;
}

const struct guard_set *guard_set_ref(const struct guard_set *s)
{
    atomic_fetch_add_explicit(&counted(s)->n_refs, 1, memory_order_relaxed);
    return s;
}

void guard_set_unref(const struct guard_set *s)
{
    if (!s || atomic_fetch_sub_explicit(&counted(s)->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    arena_free(s->arena);
    mem_free(counted(s));
}

static bool list_has(const struct guard_list *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (str_is(l->at[i], name))
            return true;
    return l->n == 0 || !name;
}

bool guard_set_covers(const struct guard_set *s, const char *model, const char *tenant)
{
    return list_has(&s->models, model) && list_has(&s->tenants, tenant);
}
