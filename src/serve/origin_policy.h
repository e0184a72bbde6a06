/* origin_policy.h: protection of the server against web pages: which Host, Origin and peer a
 * request to a route may have. Checked for every request before its body is read.
 *
 * Host: a page of a name that its owner lets point to this machine (DNS rebinding) is refused with
 * 421. On a loopback address only loopback names and addresses and `hosts` are served; on other
 * addresses any host, unless `hosts` is set. A request without Host comes from no browser.
 *
 * Origin: cross-origin requests are allowed to inference routes from loopback origins, from the
 * schemes of desktop applications and from `origins`; all others are refused. Unsafe methods, and
 * every method of an administration route, are also checked by Sec-Fetch-Site, as in Go 1.25: a
 * request with neither header comes from no browser.
 *
 * Without API keys, administration is allowed to loopback peers only, with a Host that is certainly
 * this server and without Origin or with the server's own.
 *
 * The session cookie is accepted from the server's own pages only. A browser that returns from the
 * issuer of tokens arrives by a cross-site navigation, which that one route accepts.
 *
 * Immutable after origin_policy_init. Any thread. */
#pragma once

#include "base/err.h"
#include "http/authority.h"
#include "http/server.h"
#include "policy/network.h"

enum { POLICY_HOSTS_MAX = 32, POLICY_ORIGINS_MAX = 32, POLICY_PROXIES_MAX = 32 };

struct origin_policy {
    bool is_loopback; /* the server listens on a loopback address */
    bool needs_key;
    bool allows_any_origin; /* "*" */
    int n_hosts, n_origins, n_proxies;
    struct network proxies[POLICY_PROXIES_MAX];
    struct http_authority hosts[POLICY_HOSTS_MAX];
    struct str origins[POLICY_ORIGINS_MAX]; /* borrowed from origin_settings */
};

struct origin_settings {     /* the strings outlive the policy */
    const char *listen_host; /* address that the server listens on */
    const char *hosts;       /* comma-separated names and addresses without port */
    const char *origins;     /* comma-separated origins; "*" = any, only with API keys */
    bool needs_key;
    const char *proxies; /* comma-separated addresses and networks of reverse proxies */
};

/* ERR_INVALID. */
int origin_policy_init(
    struct origin_policy *p, const struct origin_settings *s, struct err *e) MUST_CHECK;

struct origin_verdict {
    struct str allow_origin; /* value of Access-Control-Allow-Origin; STR_NONE: not cross-origin */
    bool is_local;           /* administration is allowed without a key, if the server needs none */
    bool allows_cookie;      /* the session cookie is accepted: no page of another origin sent it */
};

/* is_admin: the route needs the admin scope. ERR_HOST, ERR_ORIGIN, ERR_FORBIDDEN. */
int origin_check(const struct origin_policy *p, const struct http_request *q, bool is_admin,
    struct origin_verdict *out, struct err *e) MUST_CHECK;

/* The address of the client: the peer of the connection. If that is one of the proxies, the last
 * address in Forwarded or X-Forwarded-For that is none of them; a hop that a proxy does not name is
 * `unknown`, which is in no network. ERR_SYNTAX, ERR_RANGE: a field of a proxy is invalid. */
int origin_client(const struct origin_policy *p, const struct http_request *q, struct str *out,
    struct err *e) MUST_CHECK;

/* True if `host` is a loopback address or "localhost". */
bool host_is_loopback(const char *host);
