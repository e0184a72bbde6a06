#include "constrain/schema/schema_uri.h"
#include "base/json_scan.h"

struct uri { /* has_x: the part is present, perhaps empty */
    struct str scheme, authority, path, query;
    bool has_scheme, has_authority, has_query;
};

void uri_split(struct str text, struct str *uri, struct str *fragment)
{
    const char *hash = text.n ? memchr(text.p, '#', text.n) : NULL;

    *fragment = STR_NONE;
    *uri = text;
    if (hash) {
        uri->n = (size_t)(hash - text.p);
        *fragment = str_skip(text, uri->n + 1);
    }
}

static size_t span_until(struct str s, const char *stops)
{
    size_t n = 0;

    while (n < s.n && (!s.p[n] || !strchr(stops, s.p[n])))
        n++;
    return n;
}

static bool is_scheme(struct str s)
{
    for (size_t k = 0; k < s.n; k++) {
        char c = s.p[k];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        bool is_other = (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
        if (!is_letter && (!is_other || !k))
            return false;
    }
    return s.n > 0;
}

/* RFC 3986, appendix B, without fragment. */
static struct uri uri_parse(struct str s)
{
    struct uri u = { 0 };
    size_t n = span_until(s, ":/?");

    if (n < s.n && s.p[n] == ':' && is_scheme((struct str){ s.p, n })) {
        u.has_scheme = true;
        u.scheme = (struct str){ s.p, n };
        s = str_skip(s, n + 1);
    }
    if (str_starts(s, STR("//"))) {
        s = str_skip(s, 2);
        n = span_until(s, "/?");
        u.has_authority = true;
        u.authority = (struct str){ s.p, n };
        s = str_skip(s, n);
    }
    n = span_until(s, "?");
    u.path = (struct str){ s.p, n };
    u.has_query = n < s.n;
    u.query = str_skip(s, n + 1);
    return u;
}

static void put(struct uri_text *w, struct str s)
{
    if (s.n)
        memcpy(w->p + w->n, s.p, s.n);
    w->n += s.n;
}

/* Appends the path without dot segments (RFC 3986, section 5.2.4). `root` is the position of its
 * first byte. */
static void put_path(struct uri_text *w, struct str path)
{
    size_t root = w->n;

    while (path.n) {
        size_t n = (path.p[0] == '/') + span_until(str_skip(path, path.p[0] == '/'), "/");
        struct str segment = { path.p, n };
        struct str name = str_skip(segment, segment.p[0] == '/');
        bool is_dot = str_is(name, "."), is_up = str_is(name, "..");
        bool is_relative = name.n == segment.n;
        path = str_skip(path, n + ((is_dot || is_up) && is_relative));
        if (is_up) {
            while (w->n > root && w->p[w->n - 1] != '/')
                w->n--;
            w->n -= w->n > root;
        }
        if (!is_dot && !is_up)
            put(w, segment);
        else if (!path.n && segment.p[0] == '/')
            put(w, STR("/"));
    }
}

/* The path of the reference after the directory of the base (section 5.2.3). */
static struct str merge_paths(struct uri_text *out, const struct uri *base, struct str path)
{
    size_t keep = base->path.n;

    while (keep && base->path.p[keep - 1] != '/')
        keep--;
    out->n = 0;
    put(out, (struct str){ base->path.p, keep });
    if (base->has_authority && !base->path.n)
        put(out, STR("/"));
    put(out, path);
    return (struct str){ out->p, out->n };
}

static struct uri target_of(struct uri_text *merged, struct str base, struct str reference)
{
    struct uri b = uri_parse(base), t = uri_parse(reference);

    if (t.has_scheme)
        return t;
    t.has_scheme = b.has_scheme;
    t.scheme = b.scheme;
    if (t.has_authority)
        return t;
    t.has_authority = b.has_authority;
    t.authority = b.authority;
    if (!t.path.n) {
        t.path = b.path;
        t.query = t.has_query ? t.query : b.query;
        t.has_query |= b.has_query;
    } else if (t.path.p[0] != '/') {
        t.path = merge_paths(merged, &b, t.path);
    }
    return t;
}

int uri_resolve(struct uri_text *out, struct str base, struct str reference, struct err *e)
{
    struct uri_text merged;

    out->n = 0;
    if (base.n > URI_BYTES_MAX || reference.n > URI_BYTES_MAX)
        return err_set(e, ERR_TOO_LARGE, "a URI of more than %d bytes", (int)URI_BYTES_MAX);
    struct uri t = target_of(&merged, base, reference);
    if (t.has_scheme) {
        put(out, t.scheme);
        put(out, STR(":"));
    }
    if (t.has_authority) {
        put(out, STR("//"));
        put(out, t.authority);
    }
    put_path(out, t.path);
    if (t.has_query) {
        put(out, STR("?"));
        put(out, t.query);
    }
    if (out->n > URI_BYTES_MAX)
        return err_set(e, ERR_TOO_LARGE, "a URI of more than %d bytes", (int)URI_BYTES_MAX);
    return 0;
}

int uri_decode(char *out, size_t *n, struct str text, struct err *e)
{
    *n = 0;
    for (size_t k = 0; k < text.n; k++) {
        if (text.p[k] != '%') {
            out[(*n)++] = text.p[k];
            continue;
        }
        int high = k + 2 < text.n ? json_hex(text.p[k + 1]) : -1;
        int low = k + 2 < text.n ? json_hex(text.p[k + 2]) : -1;
        if (high < 0 || low < 0)
            return err_set(e, ERR_INVALID, "%% is not followed by two hexadecimal digits");
        out[(*n)++] = (char)(high * 16 + low);
        k += 2;
    }
    return 0;
}
