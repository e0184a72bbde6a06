#include "constrain/schema_uri.h"
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

struct path_writer {
    char *p; /* URI_BYTES_MAX bytes for each of base and reference */
    size_t n;
};

static void put(struct path_writer *w, struct str s)
{
    if (s.n)
        memcpy(w->p + w->n, s.p, s.n);
    w->n += s.n;
}

/* Appends the path without dot segments (RFC 3986, section 5.2.4). `root` is the position of its
 * first byte. */
static void put_path(struct path_writer *w, struct str path)
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

int uri_resolve(
    struct str *out, struct str base, struct str reference, struct arena *a, struct err *e)
{
    if (base.n > URI_BYTES_MAX || reference.n > URI_BYTES_MAX)
        return err_set(e, ERR_TOO_LARGE, "a URI of more than %d bytes", (int)URI_BYTES_MAX);
    struct uri b = uri_parse(base), r = uri_parse(reference), t = r;
    size_t cap = base.n + reference.n + 8;
    char *merged = arena_alloc(a, cap);
    struct path_writer w = { arena_alloc(a, cap), 0 };

    if (!w.p || !merged)
        return err_set(e, ERR_MEMORY, "no memory for a URI");
    if (!r.has_scheme) {
        t.has_scheme = b.has_scheme;
        t.scheme = b.scheme;
        if (!r.has_authority) {
            t.has_authority = b.has_authority;
            t.authority = b.authority;
            if (!r.path.n) {
                t.path = b.path;
                t.has_query = r.has_query || b.has_query;
                t.query = r.has_query ? r.query : b.query;
            } else if (r.path.p[0] != '/') {
                size_t keep = b.path.n;
                while (keep && b.path.p[keep - 1] != '/')
                    keep--;
                struct path_writer m = { merged, 0 };
                put(&m, (struct str){ b.path.p, keep });
                if (b.has_authority && !b.path.n)
                    put(&m, STR("/"));
                put(&m, r.path);
                t.path = (struct str){ m.p, m.n };
            }
        }
    }
    if (t.has_scheme) {
        put(&w, t.scheme);
        put(&w, STR(":"));
    }
    if (t.has_authority) {
        put(&w, STR("//"));
        put(&w, t.authority);
    }
    put_path(&w, t.path);
    if (t.has_query) {
        put(&w, STR("?"));
        put(&w, t.query);
    }
    *out = (struct str){ w.p, w.n };
    if (w.n > URI_BYTES_MAX)
        return err_set(e, ERR_TOO_LARGE, "a URI of more than %d bytes", (int)URI_BYTES_MAX);
    return 0;
}

int uri_decode(struct str *out, struct str text, struct arena *a, struct err *e)
{
    char *p = arena_alloc(a, text.n + 1);
    size_t n = 0;

    if (!p)
        return err_set(e, ERR_MEMORY, "no memory for a URI");
    for (size_t k = 0; k < text.n; k++) {
        if (text.p[k] != '%') {
            p[n++] = text.p[k];
            continue;
        }
        int high = k + 2 < text.n ? json_hex(text.p[k + 1]) : -1;
        int low = k + 2 < text.n ? json_hex(text.p[k + 2]) : -1;
        if (high < 0 || low < 0)
            return err_set(e, ERR_INVALID, "%% is not followed by two hexadecimal digits");
        p[n++] = (char)(high * 16 + low);
        k += 2;
    }
    *out = (struct str){ p, n };
    return 0;
}
