#include "api/common/fields.h"
#include "api/common/no_effect.h"

static const char *kind_name(const struct json *v)
{
    switch (v->kind) {
    case JSON_NULL:
        return "null";
    case JSON_BOOL:
        return "a boolean";
    case JSON_NUMBER:
        return "a number";
    case JSON_STRING:
        return "a string";
    case JSON_ARRAY:
        return "an array";
    case JSON_OBJECT:
        return "an object";
    }
    return "something else";
}

int field_wrong_kind(struct fields *f, const char *name, const char *want, const struct json *v)
{
    return err_param(f->e, ERR_INVALID, name, "'%s' must be %s, not %s.", name, want, kind_name(v));
}

int field_unsupported(struct fields *f, const char *name, const char *what)
{
    return err_param(f->e, ERR_UNSUPPORTED, name, "'%s' is not supported: %s.", name, what);
}

int field_missing(struct fields *f, const char *name)
{
    return err_param(f->e, ERR_MISSING, name, "'%s' is missing; it is required.", name);
}

int field_no_memory(struct fields *f)
{
    return err_set(f->e, ERR_MEMORY, "No memory for this request.");
}

bool field_is_neutral(const struct json *v)
{
    double d;

    if (json_is_null(v))
        return true;
    switch (v->kind) {
    case JSON_NULL:
        return true;
    case JSON_BOOL:
        return !v->b;
    case JSON_NUMBER:
        return json_f64(v, &d) && d == 0;
    case JSON_STRING:
        return v->s.n == 0;
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    return v->n == 0;
}

/* ---- single values ---- */

int field_bool(struct fields *f, const char *name, const struct json *v, bool *out)
{
    if (v->kind != JSON_BOOL)
        return field_wrong_kind(f, name, "a boolean", v);
    *out = v->b;
    return 0;
}

static int out_of_range(struct fields *f, const char *name, const struct json *v, struct range in)
{
    int shown = (int)MIN(v->s.n, (size_t)40);

    return err_param(f->e, ERR_RANGE, name, "'%s' must be between %.10g and %.10g, not %.*s.", name,
        in.lo, in.hi, shown, v->s.p);
}

int field_int(struct fields *f, const char *name, const struct json *v, struct range in, int *out)
{
    double d;
    int64_t i;

    if (v->kind != JSON_NUMBER)
        return field_wrong_kind(f, name, "an integer", v);
    if (json_i64(v, &i)) {
        if ((double)i < in.lo || (double)i > in.hi)
            return out_of_range(f, name, v, in);
        *out = (int)i;
        return 0;
    }
    if (v->is_int || !json_f64(v, &d) || d < in.lo || d > in.hi)
        return out_of_range(f, name, v, in);
    return err_param(f->e, ERR_INVALID, name, "'%s' must be an integer, not %.*s.", name,
        (int)MIN(v->s.n, (size_t)40), v->s.p);
}

int field_number(
    struct fields *f, const char *name, const struct json *v, struct range in, double *out)
{
    double d;

    if (v->kind != JSON_NUMBER)
        return field_wrong_kind(f, name, "a number", v);
    if (!json_f64(v, &d) || d < in.lo || d > in.hi)
        return out_of_range(f, name, v, in);
    *out = d;
    return 0;
}

int field_text(
    struct fields *f, const char *name, const struct json *v, size_t most, struct str *out)
{
    if (v->kind != JSON_STRING)
        return field_wrong_kind(f, name, "a string", v);
    if (v->s.n > most)
        return err_param(
            f->e, ERR_RANGE, name, "'%s' may have at most %zu bytes, not %zu.", name, most, v->s.n);
    *out = v->s;
    return 0;
}

static bool is_one_of(struct str word, const char *words)
{
    for (const char *at = words; *at;) {
        size_t n = strcspn(at, "|");
        if (str_eq(word, (struct str){ at, n }))
            return true;
        at += n + (at[n] == '|');
    }
    return false;
}

int field_enum(
    struct fields *f, const char *name, const struct json *v, const char *words, struct str *out)
{
    if (v->kind != JSON_STRING)
        return field_wrong_kind(f, name, "a string", v);
    if (!is_one_of(v->s, words))
        return err_param(f->e, ERR_INVALID, name, "'%s' must be one of %s, not '%.*s'.", name,
            words, (int)MIN(v->s.n, (size_t)40), v->s.p);
    *out = v->s;
    return 0;
}

int field_ids(struct fields *f, const char *name, const struct json *v, size_t most, int32_t **out)
{
    const struct range ids = { 0, INT32_MAX };
    int32_t *list;
    size_t n = 0;

    if (v->kind != JSON_ARRAY)
        return field_wrong_kind(f, name, "an array of token ids", v);
    if (v->n > most)
        return err_param(
            f->e, ERR_RANGE, name, "'%s' may have at most %zu entries, not %u.", name, most, v->n);
    list = arena_alloc(f->arena, (size_t)v->n * sizeof(*list));
    if (!list)
        return field_no_memory(f);
    for (const struct json *c = v->child; c; c = c->next) {
        int id;
        if (field_int(f, name, c, ids, &id))
            return -1;
        list[n++] = id;
    }
    *out = list;
    return 0;
}

/* ---- the table ---- */

static int find_entry(const struct fields *f, struct str name)
{
    size_t lo = 0, hi = f->n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        struct str at = str_of(f->table[mid].name);
        int c = memcmp(name.p, at.p, MIN(name.n, at.n));
        if (!c && name.n == at.n)
            return (int)mid;
        if (c < 0 || (!c && name.n < at.n))
            hi = mid;
        else
            lo = mid + 1;
    }
    return -1;
}

const struct json *field_get(const struct fields *f, const char *name)
{
    int row = find_entry(f, str_of(name));

    CHECK(row >= 0);
    return f->found[row];
}

static int read_entry(struct fields *f, const struct field *row, const struct json *v)
{
    void *to = row->to == FIELD_TYPE_ONLY ? NULL : (char *)f->request + row->to;
    struct str text = STR_NONE;
    double number = 0;
    bool flag = false;
    int rc = 0, whole = 0;

    switch (row->kind) {
    case FIELD_BOOL:
        rc = field_bool(f, row->name, v, to ? to : &flag);
        break;
    case FIELD_INT:
        rc = field_int(f, row->name, v, row->in, to ? to : &whole);
        break;
    case FIELD_FLOAT:
        rc = field_number(f, row->name, v, row->in, &number);
        if (!rc && to)
            *(float *)to = (float)number;
        break;
    case FIELD_DOUBLE:
        rc = field_number(f, row->name, v, row->in, to ? to : &number);
        break;
    case FIELD_TEXT:
        rc = field_text(f, row->name, v, (size_t)row->in.hi, to ? to : &text);
        break;
    case FIELD_ENUM:
        rc = field_enum(f, row->name, v, row->text, to ? to : &text);
        break;
    case FIELD_OBJECT:
        if (v->kind != JSON_OBJECT)
            return field_wrong_kind(f, row->name, "an object", v);
        if (to)
            *(const struct json **)to = v;
        break;
    case FIELD_UNSUPPORTED:
        if (!field_is_neutral(v))
            return field_unsupported(f, row->name, row->text);
        break;
    case FIELD_CUSTOM:
        rc = row->read(f, row->name, v);
        break;
    case FIELD_DEFERRED:
        break;
    }
    if (!rc && row->to == FIELD_TYPE_ONLY)
        no_effect_note(row->name);
    return rc;
}

int fields_read(struct fields *f, const struct json *body)
{
    CHECK(f->n <= FIELDS_MAX);
    /* The binary search in find_entry requires a sorted table; test builds check each request. */
    for (size_t i = 1; i < f->n; i++)
        DCHECK(strcmp(f->table[i - 1].name, f->table[i].name) < 0);
    memset(f->found, 0, sizeof(f->found));
    for (const struct json *m = body->child; m; m = m->next) {
        int row = m->key.n ? find_entry(f, m->key) : -1;
        if (row >= 0 && f->table[row].on & 1u << f->request->kind)
            f->found[row] = m->kind == JSON_NULL ? NULL : m;
    }
    for (size_t i = 0; i < f->n; i++)
        if (f->found[i] && read_entry(f, &f->table[i], f->found[i]))
            return -1;
    return 0;
}
