#include "policy/policy_text.h"

/* ---- writing */

static void write_key(const struct policy_key *k, struct buf *out)
{
    buf_putz(out, "\n[api_key ");
    for (int i = 0; i < POLICY_DIGEST_BYTES; i++)
        buf_printf(out, "%02x", k->digest[i]);
    buf_putz(out, "]\n");
    for (size_t i = 0; i < ARRAY_LEN(policy_attributes); i++) {
        size_t start = out->n;
        buf_printf(out, "%s = ", policy_attributes[i].name);
        size_t n = out->n;
        policy_attributes[i].write(k, out);
        if (out->n == n)
            out->n = MIN(start, out->n); /* the default */
        else
            buf_putc(out, '\n');
    }
}

static void write_limits(const struct limit_entry *l, struct buf *out)
{
    buf_putz(out, "\n[limits ");
    limit_entry_write_subject(l, ' ', out);
    buf_printf(out, "]\nversion = %llu\nvalues = ", (unsigned long long)l->version);
    limit_entry_write(l, out);
    buf_putc(out, '\n');
}

static void write_object(const struct policy_object *o, struct buf *out)
{
    buf_printf(out, "\n[object %s %s]\nversion = %llu\nbody = ", policy_object_kinds[o->kind],
        o->name, (unsigned long long)o->version);
    buf_puts(out, o->body);
    buf_putc(out, '\n');
}

void policy_text_write(const struct policy_snapshot *s, struct buf *out)
{
    buf_printf(out, "[policy]\nversion = %llu\n", (unsigned long long)policy_snapshot_version(s));
    for (int i = 0; i < policy_snapshot_count(s); i++)
        if (!policy_snapshot_at(s, i)->is_static)
            write_key(policy_snapshot_at(s, i), out);
    for (int i = 0; i < limit_set_count(policy_snapshot_limits(s)); i++)
        write_limits(limit_set_at(policy_snapshot_limits(s), i), out);
    for (int i = 0; i < object_set_count(policy_snapshot_objects(s)); i++)
        write_object(object_set_at(policy_snapshot_objects(s), i), out);
}

/* ---- reading */

struct reader {
    struct policy_list *out;
    struct policy_key
        *key; /* key of the current section; also in the list. NULL: another section */
    struct limit_entry limits; /* limits of the current section, if in_limits */
    /* the object of the current section, if in_object */
    enum policy_object_kind object_kind;
    char object_name[OBJECT_NAME_MAX + 1];
    struct str object_body; /* part of the text */
    uint64_t object_version;
    bool has_section, in_limits, in_object;
};

static int end_object(struct reader *r, struct err *e)
{
    struct policy_object *o;

    if (policy_object_new(&o, r->object_kind, r->object_name, r->object_body, e))
        return -1;
    o->version = r->object_version;
    return policy_list_put_object(r->out, o, e);
}

/* Limits and objects are complete at the end of their section. */
static int end_section(struct reader *r, struct err *e)
{
    bool in_limits = r->in_limits, in_object = r->in_object;

    r->in_limits = r->in_object = false;
    if (in_object)
        return end_object(r, e);
    return in_limits ? policy_list_put_limits(r->out, &r->limits, e) : 0;
}

static int begin_object(struct reader *r, struct str subject, struct err *e)
{
    r->in_object = true;
    r->object_body = STR_NONE;
    r->object_version = 0;
    return policy_object_subject(subject, &r->object_kind, r->object_name, e);
}

static int read_object_member(struct reader *r, struct str name, struct str value, struct err *e)
{
    if (str_is(name, "body"))
        r->object_body = value;
    else if (!str_is(name, "version") || !str_to_u64(value, &r->object_version))
        return err_set(e, ERR_SYNTAX, "unknown entry '%.*s', or a version that is no number",
            (int)MIN(name.n, (size_t)80), name.p);
    return 0;
}

static int read_limits_member(struct reader *r, struct str name, struct str value, struct err *e)
{
    if (str_is(name, "values"))
        return limit_entry_read(&r->limits, value, e);
    if (str_is(name, "version") && str_to_u64(value, &r->limits.version))
        return 0;
    return err_set(e, ERR_SYNTAX, "unknown entry '%.*s', or a version that is no number",
        (int)MIN(name.n, (size_t)80), name.p);
}

/* name: between the brackets. */
static int read_section(struct reader *r, struct str name, struct err *e)
{
    const struct str prefix = STR("api_key "), limits = STR("limits "), object = STR("object ");
    uint8_t digest[POLICY_DIGEST_BYTES];

    if (end_section(r, e))
        return -1;
    r->has_section = true;
    r->key = NULL;
    if (str_is(name, "policy"))
        return 0;
    if (str_starts(name, object))
        return begin_object(r, str_skip(name, object.n), e);
    r->in_limits = str_starts(name, limits);
    if (r->in_limits)
        return limit_entry_init(&r->limits, str_skip(name, limits.n), ' ', e);
    if (!str_starts(name, prefix) || !policy_digest_read(digest, str_skip(name, prefix.n)))
        return err_set(
            e, ERR_SYNTAX, "unknown section '%.*s'", (int)MIN(name.n, (size_t)80), name.p);
    r->key = policy_key_new(digest);
    if (!r->key)
        return err_set(e, ERR_MEMORY, "no memory for an API key");
    return policy_list_add(r->out, r->key, e);
}

static int read_member(struct reader *r, struct str name, struct str value, struct err *e)
{
    const struct policy_attribute *a = policy_attribute_find(name);

    if (!r->has_section)
        return err_set(e, ERR_SYNTAX, "an entry before the first section");
    if (r->in_limits)
        return read_limits_member(r, name, value, e);
    if (r->in_object)
        return read_object_member(r, name, value, e);
    if (!r->key && str_is(name, "version"))
        return str_to_u64(value, &r->out->version)
                   ? 0
                   : err_set(e, ERR_INVALID, "the version is not a number");
    if (!r->key || !a)
        return err_set(e, ERR_SYNTAX, "unknown entry '%.*s'", (int)MIN(name.n, (size_t)80), name.p);
    return policy_key_set(r->key, a, value, e);
}

static int read_line(struct reader *r, struct str line, struct err *e)
{
    ptrdiff_t is = str_find(line, STR("="));

    if (!line.n || *line.p == ';' || *line.p == '#')
        return 0;
    if (*line.p == '[' && str_ends(line, STR("]")))
        return read_section(r, (struct str){ line.p + 1, line.n - 2 }, e);
    if (is < 0)
        return err_set(e, ERR_SYNTAX, "neither a section nor an entry");
    return read_member(r, str_trim((struct str){ line.p, (size_t)is }),
        str_trim(str_skip(line, (size_t)is + 1)), e);
}

int policy_text_read(struct str text, struct policy_list *out, struct err *e)
{
    struct reader r = { .out = out };

    for (int number = 1; text.n; number++) {
        ptrdiff_t newline = str_find(text, STR("\n"));
        size_t n = newline < 0 ? text.n : (size_t)newline;
        if (read_line(&r, str_trim((struct str){ text.p, n }), e)) {
            policy_list_clear(out);
            return err_wrap(e, "line %d", number);
        }
        text = str_skip(text, n + 1);
    }
    if (!end_section(&r, e))
        return 0;
    policy_list_clear(out);
    return -1;
}
