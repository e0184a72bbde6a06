#include "policy/object_set.h"

#include "base/mem.h"

#include <stdatomic.h>
#include <stdio.h>

const char *const policy_object_kinds[N_OBJECT_KINDS] = { "guardrail", "role" };

struct object_set {
    _Atomic int n_refs;
    int n;
    const struct policy_object *objects[]; /* references, in the order of kinds and names */
};

/* ---- objects */

bool policy_object_name_is_valid(struct str name)
{
    static const char characters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    for (size_t i = 0; i < name.n; i++)
        if (!memchr(characters, name.p[i], sizeof(characters) - 1))
            return false;
    return name.n && name.n <= OBJECT_NAME_MAX;
}

int policy_object_subject(struct str subject, enum policy_object_kind *kind,
    char name[OBJECT_NAME_MAX + 1], struct err *e)
{
    ptrdiff_t space = str_find(subject, STR(" "));
    struct str own = space < 0 ? STR_NONE : str_skip(subject, (size_t)space + 1);
    int k = 0;

    subject.n = space < 0 ? subject.n : (size_t)space;
    while (k < N_OBJECT_KINDS && !str_is(subject, policy_object_kinds[k]))
        k++;
    if (k == N_OBJECT_KINDS || !policy_object_name_is_valid(own))
        return err_set(e, ERR_INVALID, "'%.*s' is no kind of an object, or its name is invalid",
            (int)MIN(subject.n, (size_t)40), subject.p);
    *kind = (enum policy_object_kind)k;
    snprintf(name, OBJECT_NAME_MAX + 1, STR_FMT, STR_ARG(own));
    return 0;
}

int policy_object_new(struct policy_object **out, enum policy_object_kind kind, const char *name,
    struct str body, struct err *e)
{
    if (body.n > OBJECT_BODY_MAX)
        return err_set(e, ERR_TOO_LARGE, "%s %s has %zu bytes; at most %d are permitted",
            policy_object_kinds[kind], name, body.n, OBJECT_BODY_MAX);
    if (!body.n || memchr(body.p, '\n', body.n) || memchr(body.p, '\0', body.n))
        return err_set(
            e, ERR_INVALID, "%s %s has no body in one line", policy_object_kinds[kind], name);
    struct policy_object *o = try_calloc(1, sizeof(*o) + body.n);
    if (!o)
        return err_set(e, ERR_MEMORY, "no memory for %s %s", policy_object_kinds[kind], name);
    o->n_refs = 1;
    o->kind = kind;
    snprintf(o->name, sizeof(o->name), "%s", name);
    memcpy(o + 1, body.p, body.n);
    o->body = (struct str){ (const char *)(o + 1), body.n };
    *out = o;
    return 0;
}

/* The count is the only member that changes in a shared object. */
static struct policy_object *counted(const struct policy_object *o)
{
    return (struct policy_object *)(uintptr_t)o;
}

const struct policy_object *policy_object_ref(const struct policy_object *o)
{
    if (o)
        atomic_fetch_add_explicit(&counted(o)->n_refs, 1, memory_order_relaxed);
    return o;
}

void policy_object_unref(const struct policy_object *o)
{
    if (o && atomic_fetch_sub_explicit(&counted(o)->n_refs, 1, memory_order_acq_rel) == 1)
        mem_free(counted(o));
}

/* ---- sets */

static int compare(const struct policy_object *a, enum policy_object_kind kind, const char *name)
{
    return a->kind != kind ? (a->kind < kind ? -1 : 1) : strcmp(a->name, name);
}

/* Index of the first object that is not before the subject. */
static int lower_bound(const struct object_set *s, enum policy_object_kind kind, const char *name)
{
    int low = 0, high = object_set_count(s);

    while (low < high) {
        int mid = low + (high - low) / 2;
        if (compare(s->objects[mid], kind, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* A copy in which `object`, if any, replaces n_gone objects at index `at`. */
static int derive(struct object_set **out, const struct object_set *old, int at, int n_gone,
    const struct policy_object *object, struct err *e)
{
    int n_old = object_set_count(old), n = n_old - n_gone + (object != NULL);

    if (n > OBJECTS_MAX)
        return err_set(e, ERR_RANGE, "more than %d objects", OBJECTS_MAX);
    struct object_set *s = try_calloc(1, sizeof(*s) + (size_t)n * sizeof(s->objects[0]));
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the objects of the policy");
    s->n_refs = 1;
    for (int i = 0; i < at; i++)
        s->objects[s->n++] = policy_object_ref(old->objects[i]);
    if (object)
        s->objects[s->n++] = policy_object_ref(object);
    for (int i = at + n_gone; i < n_old; i++)
        s->objects[s->n++] = policy_object_ref(old->objects[i]);
    *out = s;
    return 0;
}

int object_set_put(struct object_set **out, const struct object_set *old,
    const struct policy_object *object, struct err *e)
{
    bool is_present = object_set_find(old, object->kind, object->name) != NULL;

    return derive(out, old, lower_bound(old, object->kind, object->name), is_present, object, e);
}

int object_set_delete(struct object_set **out, const struct object_set *old,
    const struct policy_object *object, struct err *e)
{
    return derive(out, old, lower_bound(old, object->kind, object->name), 1, NULL, e);
}

static struct object_set *counted_set(const struct object_set *s)
{
    return (struct object_set *)(uintptr_t)s;
}

const struct object_set *object_set_ref(const struct object_set *s)
{
    if (s)
        atomic_fetch_add_explicit(&counted_set(s)->n_refs, 1, memory_order_relaxed);
    return s;
}

void object_set_unref(const struct object_set *s)
{
    if (!s || atomic_fetch_sub_explicit(&counted_set(s)->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    for (int i = 0; i < s->n; i++)
        policy_object_unref(s->objects[i]);
    mem_free(counted_set(s));
}

int object_set_count(const struct object_set *s)
{
    return s ? s->n : 0;
}

const struct policy_object *object_set_at(const struct object_set *s, int i)
{
    CHECK(i >= 0 && i < object_set_count(s));
    return s->objects[i];
}

int object_set_after(const struct object_set *s, enum policy_object_kind kind, const char *name)
{
    int i = lower_bound(s, kind, name);

    return i < object_set_count(s) && !compare(s->objects[i], kind, name) ? i + 1 : i;
}

const struct policy_object *object_set_find(
    const struct object_set *s, enum policy_object_kind kind, const char *name)
{
    int i = lower_bound(s, kind, name);

    return i < object_set_count(s) && !compare(s->objects[i], kind, name) ? s->objects[i] : NULL;
}
