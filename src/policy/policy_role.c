#include "policy/policy_role.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdatomic.h>
#include <stdio.h>

struct role_set {
    _Atomic int n_refs;
    int n;
    struct policy_role *roles[]; /* in the order of the names */
};

/* ---- JSON */

static bool is_plain(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < ' ' || s.p[i] == 0x7f)
            return false;
    return utf8_valid(s);
}

static int bad_member(const char *name, const char *type, struct err *e)
{
    return err_param(e, ERR_INVALID, name, "%s must be %s.", name, type);
}

/* An array of strings as a list with tab characters. */
static int read_list(struct buf *out, const struct json *v, struct err *e)
{
    char name[40];

    snprintf(name, sizeof(name), "%.*s", (int)MIN(v->key.n, sizeof(name) - 1), v->key.p);
    if (v->kind != JSON_ARRAY)
        return bad_member(name, "an array of strings", e);
    for (const struct json *item = v->child; item; item = item->next) {
        if (item->kind != JSON_STRING || !item->s.n || !is_plain(item->s))
            return bad_member(name, "an array of strings without control characters", e);
        if (item != v->child)
            buf_putc(out, '\t');
        buf_puts(out, item->s);
    }
    return buf_ok(out) ? 0 : err_param(e, ERR_TOO_LARGE, name, "%s is too large.", name);
}

/* Scopes and models, which a key has, too. */
static int read_key_list(struct policy_role *r, const struct json *v, struct err *e)
{
    const struct policy_attribute *a = policy_attribute_find(v->key);
    struct buf text;

    buf_init(&text, POLICY_ATTRIBUTE_BYTES);
    int failed = read_list(&text, v, e);
    if (!failed && text.n)
        failed = policy_key_set(r->lists, a, buf_str(&text), e);
    buf_clear(&text);
    return failed;
}

static int read_claims(struct policy_role *r, const struct json *v, struct err *e)
{
    struct buf text;
    int n = 0;

    for (const struct json *item = v->child; item; item = item->next, n++)
        if (item->kind == JSON_STRING && str_find(item->s, STR("=")) < 1)
            return bad_member("claims", "an array of strings \"NAME=VALUE\"", e);
    if (n > ROLE_CLAIMS_MAX)
        return err_param(e, ERR_RANGE, "claims", "claims has more than %d items.", ROLE_CLAIMS_MAX);
    buf_init(&text, ROLE_JSON_MAX);
    int failed = read_list(&text, v, e);
    if (!failed && text.n) {
        buf_putc(&text, '\0');
        failed = buf_ok(&text) ? 0 : err_set(e, ERR_MEMORY, "no memory for a role");
    }
    mem_free(r->claims);
    r->claims = NULL;
    if (!failed && text.n)
        r->claims = (char *)(uintptr_t)buf_steal(&text).p;
    buf_clear(&text);
    return failed;
}

static int read_limits(struct policy_role *r, const struct json *v, struct err *e)
{
    if (v->kind != JSON_OBJECT)
        return bad_member("limits", "an object of numbers", e);
    for (const struct json *item = v->child; item; item = item->next) {
        int i = 0;
        int64_t n;
        if (json_is_null(item))
            continue;
        while (i < N_POLICY_LIMITS && !str_is(item->key, policy_limit_names[i]))
            i++;
        if (i == N_POLICY_LIMITS || i == POLICY_LIMIT_exempt)
            return err_param(e, ERR_INVALID, "limits", "A role has no limit '%.*s'.",
                (int)MIN(item->key.n, (size_t)40), item->key.p);
        if (!json_i64(item, &n) || n < 1)
            return err_param(e, ERR_RANGE, "limits",
                "limits.%s must be a whole number of at least 1.", policy_limit_names[i]);
        r->limits[i] = n;
    }
    return 0;
}

static int read_description(struct policy_role *r, const struct json *v, struct err *e)
{
    if (v->kind != JSON_STRING || v->s.n > ROLE_DESCRIPTION_MAX || !is_plain(v->s))
        return err_param(e, ERR_INVALID, "description",
            "description must be a string of at most %d bytes without control characters.",
            ROLE_DESCRIPTION_MAX);
    snprintf(r->description, sizeof(r->description), STR_FMT, STR_ARG(v->s));
    return 0;
}

static int read_member(struct policy_role *r, const struct json *v, struct err *e)
{
    static const struct {
        const char *name;
        int (*read)(struct policy_role *r, const struct json *v, struct err *e);
    } members[] = { { "scopes", read_key_list }, { "models", read_key_list },
        { "limits", read_limits }, { "claims", read_claims }, { "description", read_description } };
    char name[40];

    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        if (str_is(v->key, members[i].name))
            return json_is_null(v) ? 0 : members[i].read(r, v, e);
    snprintf(name, sizeof(name), "%.*s", (int)MIN(v->key.n, sizeof(name) - 1), v->key.p);
    return err_param(e, ERR_INVALID, name, "Unknown field '%s'.", name);
}

int policy_role_parse(
    struct policy_role **out, const char *name, const struct json *body, struct err *e)
{
    static const uint8_t none[POLICY_DIGEST_BYTES];

    if (body->kind != JSON_OBJECT)
        return err_set(e, ERR_INVALID, "A role must be a JSON object.");
    struct policy_role *r = try_calloc(1, sizeof(*r));
    if (!r || !(r->lists = policy_key_new(none))) {
        mem_free(r);
        return err_set(e, ERR_MEMORY, "no memory for a role");
    }
    r->lists->scopes = SCOPE_NONE;
    snprintf(r->name, sizeof(r->name), "%s", name);
    for (const struct json *v = body->child; v; v = v->next)
        if (read_member(r, v, e)) {
            policy_role_free(r);
            return -1;
        }
    r->scopes = r->lists->scopes;
    *out = r;
    return 0;
}

void policy_role_free(struct policy_role *r)
{
    if (!r)
        return;
    policy_key_unref(r->lists);
    mem_free(r->claims);
    mem_free(r);
}

static void put_list(struct jw *w, const char *name, struct str text)
{
    jw_key(w, name), jw_array(w);
    for (struct str item; policy_list_next(&text, &item);)
        jw_str(w, item);
    jw_end_array(w);
}

void policy_role_write(const struct policy_role *r, struct jw *w)
{
    struct buf scopes;

    buf_init(&scopes, 256);
    if (r->scopes)
        policy_attribute_find(STR("scopes"))->write(r->lists, &scopes);
    jw_key(w, "description"), jw_z(w, r->description);
    put_list(w, "scopes", buf_str(&scopes));
    put_list(w, "models", str_of(r->lists->models));
    jw_key(w, "limits"), jw_object(w);
    for (int i = 0; i < N_POLICY_LIMITS; i++)
        if (r->limits[i])
            jw_member_i64(w, policy_limit_names[i], r->limits[i]);
    jw_end_object(w);
    put_list(w, "claims", str_of(r->claims));
    w->b->failed |= scopes.failed;
    buf_clear(&scopes);
}

/* ---- sets */

static int read_object(struct policy_role **out, const struct policy_object *o, struct err *e)
{
    const struct json_limits limits = { 4, 4096 };
    struct arena *a = arena_new(2 * MB);
    struct json *root;

    int failed = !a ? err_set(e, ERR_MEMORY, "no memory")
                 : json_parse(&root, o->body, a, &limits, e)
                     ? -1
                     : policy_role_parse(out, o->name, root, e);
    arena_free(a);
    if (failed && e->code != ERR_MEMORY && e->code != ERR_TOO_LARGE)
        e->code = ERR_CORRUPT;
    return failed ? err_wrap(e, "role %s", o->name) : 0;
}

int role_set_new(struct role_set **out, const struct object_set *objects, struct err *e)
{
    int first = object_set_after(objects, OBJECT_ROLE, ""), end = first;

    while (end < object_set_count(objects) && object_set_at(objects, end)->kind == OBJECT_ROLE)
        end++;
    *out = NULL;
    if (first == end)
        return 0;
    struct role_set *s = try_calloc(1, sizeof(*s) + (size_t)(end - first) * sizeof(s->roles[0]));
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the roles");
    s->n_refs = 1;
    for (int i = first; i < end; i++, s->n++)
        if (read_object(&s->roles[s->n], object_set_at(objects, i), e)) {
            role_set_unref(s);
            return -1;
        }
    *out = s;
    return 0;
}

/* The count is the only member that changes in a shared set. */
static struct role_set *counted(const struct role_set *s)
{
    return (struct role_set *)(uintptr_t)s;
}

const struct role_set *role_set_ref(const struct role_set *s)
{
    if (s)
        atomic_fetch_add_explicit(&counted(s)->n_refs, 1, memory_order_relaxed);
    return s;
}

void role_set_unref(const struct role_set *s)
{
    if (!s || atomic_fetch_sub_explicit(&counted(s)->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    for (int i = 0; i < s->n; i++)
        policy_role_free(s->roles[i]);
    mem_free(counted(s));
}

int role_set_count(const struct role_set *s)
{
    return s ? s->n : 0;
}

const struct policy_role *role_set_at(const struct role_set *s, int i)
{
    CHECK(i >= 0 && i < role_set_count(s));
    return s->roles[i];
}

const struct policy_role *role_set_find(const struct role_set *s, struct str name)
{
    int low = 0, high = role_set_count(s);
    char text[OBJECT_NAME_MAX + 1];

    if (name.n > OBJECT_NAME_MAX)
        return NULL;
    snprintf(text, sizeof(text), STR_FMT, STR_ARG(name));
    while (low < high) {
        int mid = low + (high - low) / 2, order = strcmp(s->roles[mid]->name, text);
        if (!order)
            return s->roles[mid];
        low = order < 0 ? mid + 1 : low;
        high = order < 0 ? high : mid;
    }
    return NULL;
}

/* ---- keys */

static void add_limits(struct policy_key *k, const struct policy_role *r)
{
    for (int i = 0; i < N_POLICY_LIMITS; i++)
        if (r->limits[i] && (!k->role_limits[i] || r->limits[i] < k->role_limits[i]))
            k->role_limits[i] = r->limits[i];
}

int role_set_apply(const struct role_set *s, struct policy_key *k, struct err *e)
{
    struct str rest = str_of(k->roles);
    bool allows_all = false, is_restricted = false;
    struct buf models;

    memset(k->role_limits, 0, sizeof(k->role_limits));
    mem_free(k->role_models);
    k->role_models = NULL;
    k->role_scopes = SCOPE_NONE;
    if (!k->roles)
        return 0;
    buf_init(&models, (size_t)POLICY_ROLES_MAX * POLICY_ATTRIBUTE_BYTES);
    for (struct str item; policy_list_next(&rest, &item);) {
        const struct policy_role *r = role_set_find(s, item);
        const char *list = r ? r->lists->models : "";
        if (r && !r->scopes && !list) { /* of limits alone */
            add_limits(k, r);
            continue;
        }
        allows_all |= !list;
        is_restricted = true;
        buf_printf(&models, "%s%s", models.n ? "\t" : "", list ? list : "");
        if (!r)
            continue;
        k->role_scopes |= r->scopes;
        add_limits(k, r);
    }
    buf_putc(&models, '\0');
    if (!buf_ok(&models)) {
        buf_clear(&models);
        return err_set(e, ERR_MEMORY, "no memory for the roles of an API key");
    }
    if (is_restricted && !allows_all)
        k->role_models = (char *)(uintptr_t)buf_steal(&models).p;
    buf_clear(&models);
    return 0;
}
