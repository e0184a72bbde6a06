#include "serve/origin_policy.h"

#include "http/forwarded.h"

#include <arpa/inet.h>
#include <stdio.h>

/* ---- tables */

enum route_class { ROUTE_INFERENCE, ROUTE_ADMIN, ROUTE_CALLBACK };

static const struct {
    bool allows_cross_origin;
    bool checks_safe_methods; /* checks Sec-Fetch-Site, also without Origin */
    bool is_local_without_key;
    bool allows_navigation; /* from pages of other sites */
} class_rules[] = {
    [ROUTE_INFERENCE] = { .allows_cross_origin = true },
    [ROUTE_ADMIN] = { .checks_safe_methods = true, .is_local_without_key = true },
    [ROUTE_CALLBACK] = { .checks_safe_methods = true,
        .is_local_without_key = true,
        .allows_navigation = true },
};

/* Paths without routes count, too. */
static const char *const admin_paths[] = { "/v1/admin", "/v1/session", "/debug" };

static const char callback_path[] = "/v1/session/callback";

static const char *const safe_methods[] = { "GET", "HEAD", "OPTIONS" };

static const char *const desktop_schemes[] = { "app://", "tauri://", "vscode-webview://" };

static enum route_class class_of(struct str path, bool is_admin)
{
    if (str_is(path, callback_path))
        return ROUTE_CALLBACK;
    for (size_t i = 0; i < ARRAY_LEN(admin_paths) && !is_admin; i++) {
        struct str prefix = str_of(admin_paths[i]);
        is_admin = str_starts(path, prefix) && (path.n == prefix.n || path.p[prefix.n] == '/');
    }
    return is_admin ? ROUTE_ADMIN : ROUTE_INFERENCE;
}

static bool is_safe(struct str method)
{
    for (size_t i = 0; i < ARRAY_LEN(safe_methods); i++)
        if (str_is(method, safe_methods[i]))
            return true;
    return false;
}

/* ---- settings */

/* The next entry of a comma list, trimmed; false at the end. */
static bool next_entry(struct str *list, struct str *entry)
{
    if (!list->n)
        return false;
    ptrdiff_t comma = str_find(*list, STR(","));
    size_t n = comma < 0 ? list->n : (size_t)comma;
    *entry = str_trim((struct str){ list->p, n });
    *list = str_skip(*list, MIN(n + 1, list->n));
    return true;
}

static int read_hosts(struct origin_policy *p, struct str list, struct err *e)
{
    for (struct str entry; next_entry(&list, &entry);) {
        if (p->n_hosts == POLICY_HOSTS_MAX)
            return err_set(e, ERR_INVALID, "server.hosts: more than %d hosts", POLICY_HOSTS_MAX);
        struct http_authority *a = &p->hosts[p->n_hosts++];
        if (http_authority_parse(a, entry) || a->port)
            return err_set(e, ERR_INVALID,
                "server.hosts: '%.*s' is not a name or address without port (IPv6 in brackets)",
                (int)MIN(entry.n, (size_t)100), entry.p);
    }
    return 0;
}

/* Splits "scheme://authority"; false for another form. */
static bool split_origin(struct str origin, struct str *scheme, struct http_authority *a)
{
    ptrdiff_t at = str_find(origin, STR("://"));

    if (at <= 0)
        return false;
    *scheme = (struct str){ origin.p, (size_t)at };
    return !http_authority_parse(a, str_skip(origin, (size_t)at + 3));
}

static int read_origins(struct origin_policy *p, struct str list, struct err *e)
{
    struct http_authority a;
    struct str scheme;

    for (struct str entry; next_entry(&list, &entry);) {
        if (str_is(entry, "*")) {
            p->allows_any_origin = true;
            continue;
        }
        if (!split_origin(entry, &scheme, &a))
            return err_set(e, ERR_INVALID,
                "server.cors_origin: '%.*s' is not an origin like https://example.com",
                (int)MIN(entry.n, (size_t)100), entry.p);
        if (p->n_origins == POLICY_ORIGINS_MAX)
            return err_set(
                e, ERR_INVALID, "server.cors_origin: more than %d origins", POLICY_ORIGINS_MAX);
        p->origins[p->n_origins++] = entry;
    }
    if (p->allows_any_origin && !p->needs_key)
        return err_set(e, ERR_INVALID,
            "server.cors_origin: * needs API keys, since any web page could use the server");
    return 0;
}

static int read_proxies(struct origin_policy *p, struct str list, struct err *e)
{
    for (struct str entry; next_entry(&list, &entry);) {
        if (p->n_proxies == POLICY_PROXIES_MAX)
            return err_set(
                e, ERR_INVALID, "server.proxies: more than %d entries", POLICY_PROXIES_MAX);
        if (network_parse(&p->proxies[p->n_proxies++], entry, e))
            return err_wrap(e, "server.proxies");
    }
    return 0;
}

int origin_policy_init(struct origin_policy *p, const struct origin_settings *s, struct err *e)
{
    *p = (struct origin_policy){ .is_loopback = host_is_loopback(s->listen_host),
        .needs_key = s->needs_key };
    return read_hosts(p, str_trim(str_of(s->hosts)), e) ||
                   read_origins(p, str_trim(str_of(s->origins)), e) ||
                   read_proxies(p, str_trim(str_of(s->proxies)), e)
               ? -1
               : 0;
}

bool host_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (!strcmp(host, "localhost"))
        return true;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/* ---- requests */

static bool is_proxy(const struct origin_policy *p, struct str address)
{
    for (int i = 0; i < p->n_proxies; i++)
        if (network_contains(&p->proxies[i], address))
            return true;
    return false;
}

int origin_client(
    const struct origin_policy *p, const struct http_request *q, struct str *out, struct err *e)
{
    struct str hops[FORWARDED_MAX];
    int n;

    *out = q->peer;
    if (!is_proxy(p, *out))
        return 0;
    if (forwarded_read(q, hops, &n, e))
        return -1;
    while (n > 0 && is_proxy(p, *out))
        *out = hops[--n];
    return 0;
}

/* The host is a loopback name or configured: its name cannot point to another machine's pages. */
static bool is_known_host(const struct origin_policy *p, const struct http_authority *host)
{
    bool is_known = host->is_loopback;

    for (int i = 0; i < p->n_hosts && !is_known; i++)
        is_known = !strcmp(host->host, p->hosts[i].host);
    return is_known;
}

static bool is_trusted_origin(const struct origin_policy *p, struct str origin)
{
    struct http_authority a;
    struct str scheme;

    for (size_t i = 0; i < ARRAY_LEN(desktop_schemes); i++)
        if (str_starts(origin, str_of(desktop_schemes[i])))
            return true;
    for (int i = 0; i < p->n_origins; i++)
        if (str_eq_nocase(origin, p->origins[i]))
            return true;
    return split_origin(origin, &scheme, &a) && a.is_loopback &&
           (str_is(scheme, "http") || str_is(scheme, "https"));
}

/* The origin has the host and the port of the request. The scheme may differ, since a proxy may
 * have ended TLS. */
static bool is_own_origin(struct str origin, const struct http_authority *host)
{
    struct http_authority a;
    struct str scheme;

    if (!split_origin(origin, &scheme, &a))
        return false;
    int default_port = str_is(scheme, "https") ? 443 : 80;
    return !strcmp(a.host, host->host) &&
           (a.port ? a.port : default_port) == (host->port ? host->port : default_port);
}

static bool is_loopback_peer(struct str peer)
{
    char address[INET6_ADDRSTRLEN];

    if (!peer.n || peer.n >= sizeof(address))
        return false;
    memcpy(address, peer.p, peer.n);
    address[peer.n] = '\0';
    return host_is_loopback(address);
}

struct facts { /* properties of a request */
    enum route_class class;
    struct str origin;
    bool is_known_host;  /* or none */
    bool is_own;         /* the origin is that of the request's host */
    bool is_same_origin; /* statement of the browser; without one: own or no origin */
    bool is_trusted;     /* of another origin, allowed for the class */
};

/* The user follows a link or a redirect of another site in the address bar. */
static bool is_navigation(const struct http_request *q)
{
    return str_is(q->method, "GET") && !http_field_get(q, "origin").p &&
           str_is(http_field_get(q, "sec-fetch-mode"), "navigate") &&
           str_is(http_field_get(q, "sec-fetch-dest"), "document");
}

static struct facts facts_of(
    const struct origin_policy *p, const struct http_request *q, bool is_admin)
{
    struct str origin = http_field_get(q, "origin"), site = http_field_get(q, "sec-fetch-site");
    struct facts f = { .class = class_of(q->path, is_admin), .origin = origin };
    struct http_authority host;
    bool has_host = q->host.n && !http_authority_parse(&host, q->host);

    f.is_known_host = !q->host.n || (has_host && is_known_host(p, &host));
    f.is_own = origin.p && has_host && is_own_origin(origin, &host);
    if (site.p)
        f.is_same_origin = str_is(site, "same-origin") || str_is(site, "none");
    else
        f.is_same_origin = !origin.p || f.is_own;
    f.is_trusted = origin.p ? class_rules[f.class].allows_cross_origin &&
                                  (p->allows_any_origin || is_trusted_origin(p, origin))
                            : class_rules[f.class].allows_navigation && is_navigation(q);
    return f;
}

int origin_check(const struct origin_policy *p, const struct http_request *q, bool is_admin,
    struct origin_verdict *out, struct err *e)
{
    struct facts f = facts_of(p, q, is_admin);
    bool is_keyless_admin = class_rules[f.class].is_local_without_key && !p->needs_key;
    bool is_checked = f.origin.p || !is_safe(q->method) || class_rules[f.class].checks_safe_methods;

    *out = (struct origin_verdict){ 0 };
    if (!f.is_known_host && (p->is_loopback || p->n_hosts || is_keyless_admin))
        return err_set(e, ERR_HOST,
            "This server does not serve the host '%.*s'. Its operator can add it to server.hosts.",
            (int)MIN(q->host.n, (size_t)100), q->host.p);
    if ((is_checked && !f.is_trusted && !f.is_same_origin) ||
        (is_keyless_admin && f.origin.p && !f.is_own))
        return err_set(e, ERR_ORIGIN,
            "Web pages of another origin may not use this route. The operator of the server can "
            "add origins of inference routes to server.cors_origin.");

    if (f.is_trusted && f.origin.p)
        out->allow_origin = p->allows_any_origin ? STR("*") : f.origin;
    out->allows_cookie = f.is_same_origin && (!f.origin.p || f.is_own);
    out->is_local = f.is_known_host && out->allows_cookie && is_loopback_peer(q->peer);
    if (is_keyless_admin && !out->is_local)
        return err_set(e, ERR_FORBIDDEN,
            "Without API keys, administration is allowed only from the server's machine.");
    return 0;
}
