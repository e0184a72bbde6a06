#include "http/forwarded.h"

/* ---- nodes: "192.0.2.7", "192.0.2.7:80", "[2001:db8::1]:80", "2001:db8::1", "unknown", "_id" */

/* Characters of addresses and of identifiers. */
static bool is_node_text(struct str s)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:";

    for (size_t i = 0; i < s.n; i++)
        if (!memchr(allowed, s.p[i], sizeof(allowed) - 1))
            return false;
    return s.n > 0 && s.n < 64;
}

static bool read_node(struct str text, struct str *out)
{
    const char *colon = text.n ? memchr(text.p, ':', text.n) : NULL;
    bool has_one_colon = colon && !memchr(colon + 1, ':', text.n - (size_t)(colon + 1 - text.p));

    *out = text;
    if (text.n && *text.p == '[') {
        ptrdiff_t end = str_find(text, STR("]"));
        if (end < 0 || ((size_t)end + 1 < text.n && text.p[end + 1] != ':'))
            return false;
        *out = (struct str){ text.p + 1, (size_t)end - 1 };
        text = str_skip(text, (size_t)end + 1);
    } else if (has_one_colon) { /* an IPv4 address or identifier with a port */
        out->n = (size_t)(colon - text.p);
        text = STR("");
    } else {
        text = STR("");
    }
    return is_node_text(*out) && (!text.n || is_node_text(text));
}

static int add(
    struct str node, struct str out[FORWARDED_MAX], int *n, const char *field, struct err *e)
{
    if (*n == FORWARDED_MAX)
        return err_param(
            e, ERR_RANGE, field, "%s has more than %d addresses.", field, FORWARDED_MAX);
    if (!read_node(node, &out[*n]))
        return err_param(e, ERR_SYNTAX, field, "%s has an address that is invalid.", field);
    ++*n;
    return 0;
}

/* ---- X-Forwarded-For: a list of nodes */

static int read_list(
    struct str value, struct str out[FORWARDED_MAX], int *n, const char *field, struct err *e)
{
    while (value.n) {
        ptrdiff_t comma = str_find(value, STR(","));
        struct str node = str_trim((struct str){ value.p, comma < 0 ? value.n : (size_t)comma });
        value = comma < 0 ? STR_NONE : str_skip(value, (size_t)comma + 1);
        if (node.n && add(node, out, n, field, e))
            return -1;
    }
    return 0;
}

/* ---- Forwarded: elements separated by commas, of pairs separated by semicolons */

static void skip_blanks(struct str *s)
{
    while (s->n && (*s->p == ' ' || *s->p == '\t'))
        *s = str_skip(*s, 1);
}

/* Splits off a token or a quoted string; a quoted string with escapes is not an address, and is
 * returned with them. False: the quotation is not closed. */
static bool next_value(struct str *rest, struct str *out)
{
    size_t i = 0;

    if (rest->n && *rest->p == '"') {
        for (i = 1; i < rest->n && rest->p[i] != '"'; i++)
            i += rest->p[i] == '\\';
        if (i >= rest->n)
            return false;
        *out = (struct str){ rest->p + 1, i - 1 };
        *rest = str_skip(*rest, i + 1);
        return true;
    }
    while (i < rest->n && !memchr(",;= \t\"", rest->p[i], 6))
        i++;
    *out = (struct str){ rest->p, i };
    *rest = str_skip(*rest, i);
    return true;
}

/* Reads one pair. */
static bool read_pair(struct str *rest, struct str *name, struct str *value)
{
    skip_blanks(rest);
    if ((rest->n && *rest->p == '"') || !next_value(rest, name))
        return false;
    if (!name->n) { /* an empty element or pair */
        *value = STR_NONE;
        return true;
    }
    if (!rest->n || *rest->p != '=')
        return false;
    *rest = str_skip(*rest, 1);
    return next_value(rest, value) && value->n;
}

static int read_elements(struct str value, struct str out[FORWARDED_MAX], int *n, struct err *e)
{
    bool has_for = false, has_pair = false;
    struct str name, v;

    while (value.n) {
        if (!read_pair(&value, &name, &v))
            return err_param(e, ERR_SYNTAX, "Forwarded", "Forwarded is not as in RFC 7239.");
        bool is_for = str_eq_nocase(name, STR("for"));
        if (is_for && (has_for || add(v, out, n, "Forwarded", e)))
            return has_for ? err_param(e, ERR_SYNTAX, "Forwarded", "Forwarded has `for` twice.")
                           : -1;
        has_for |= is_for;
        has_pair |= name.n > 0;
        skip_blanks(&value);
        bool is_end = !value.n || *value.p == ',';
        if (!is_end && *value.p != ';')
            return err_param(e, ERR_SYNTAX, "Forwarded", "Forwarded is not as in RFC 7239.");
        if (is_end && has_pair && !has_for && add(STR("unknown"), out, n, "Forwarded", e))
            return -1; /* a hop that states no address */
        if (is_end)
            has_for = has_pair = false;
        value = str_skip(value, value.n ? 1 : 0);
    }
    return 0;
}

/* Several fields of one name are one list. */
int forwarded_read(
    const struct http_request *r, struct str out[FORWARDED_MAX], int *n, struct err *e)
{
    bool has_forwarded = http_field_get(r, "forwarded").p != NULL;
    struct str name = has_forwarded ? STR("forwarded") : STR("x-forwarded-for");

    *n = 0;
    for (int i = 0; i < r->n_fields; i++) {
        if (!str_eq_nocase(r->fields[i].name, name))
            continue;
        struct str value = r->fields[i].value;
        if (has_forwarded ? read_elements(value, out, n, e)
                          : read_list(value, out, n, "X-Forwarded-For", e))
            return -1;
    }
    return 0;
}
