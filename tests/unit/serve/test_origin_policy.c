/* serve/origin_policy.c: which Host, Origin, Sec-Fetch-Site and peer a request may have, for each
 * class of routes, with and without keys. */
#include "serve/origin_policy.h"
#include "support/check.h"

#include <stdio.h>

struct sent { /* a request; NULL: the field is absent */
    const char *method, *path, *host, *origin, *site, *peer;
};

static int check(
    const struct origin_policy *p, const struct sent *s, struct origin_verdict *v, struct err *e)
{
    struct http_field fields[2];
    struct http_request q = { .method = str_of(s->method),
        .path = str_of(s->path),
        .peer = str_of(s->peer),
        .host = s->host ? str_of(s->host) : STR_NONE,
        .fields = fields };

    if (s->origin)
        fields[q.n_fields++] = (struct http_field){ STR("Origin"), str_of(s->origin) };
    if (s->site)
        fields[q.n_fields++] = (struct http_field){ STR("sec-fetch-site"), str_of(s->site) };
    e->code = ERR_NONE;
    return origin_check(p, &q, false, v, e);
}

static struct origin_policy policy_of(
    const char *listen_host, const char *hosts, const char *origins, bool needs_key)
{
    struct origin_settings s = { listen_host, hosts, origins, needs_key };
    struct origin_policy p;
    struct err e;

    EXPECT_EQ(origin_policy_init(&p, &s, &e), 0);
    return p;
}

/* ---- the matrix */

enum host_kind { LOOPBACK, CONFIGURED, FOREIGN, NO_HOST };

static const struct {
    const char *text;
    enum host_kind kind;
} hosts[] = {
    { "localhost:8080", LOOPBACK },
    { "LocalHost.:8080", LOOPBACK },
    { "[::1]:8080", LOOPBACK },
    { "llm.example:8080", CONFIGURED },
    { "evil.example:8080", FOREIGN },
    { "192.168.1.5:8080", FOREIGN },
    { "0.0.0.0:8080", FOREIGN },
    { "localhost.evil.example", FOREIGN },
    { "localhost:8080:1", FOREIGN },
    { "", NO_HOST },
    { NULL, NO_HOST },
};

static const struct {
    const char *text;
    bool is_trusted; /* for inference */
    const char *own; /* the hosts whose own origin it is; or NULL */
} origins[] = {
    { NULL, false, NULL },
    { "http://localhost:8080", true, "localhost:8080|LocalHost.:8080" },
    { "http://LOCALHOST:8080", true, "localhost:8080|LocalHost.:8080" },
    { "http://[::1]:8080", true, "[::1]:8080" },
    { "http://localhost:3000", true, NULL },
    { "https://app.localhost", true, NULL },
    { "app://obsidian.md", true, NULL },
    { "tauri://localhost", true, NULL },
    { "vscode-webview://1ab2", true, NULL },
    { "https://ui.example", true, NULL },
    { "http://llm.example:8080", false, "llm.example:8080" },
    { "https://evil.example", false, NULL },
    { "http://evil.example:8080", false, "evil.example:8080" },
    { "https://ui.example.evil.example", false, NULL },
    { "https://localhost.evil.example", false, "localhost.evil.example" },
    { "null", false, NULL },
    { "", false, NULL },
    { "file://", false, NULL },
    { "ftp://localhost", false, NULL },
    { "xapp://a", false, NULL },
};

static const char *const sites[] = { NULL, "same-origin", "none", "same-site", "cross-site", "x" };

static const struct {
    const char *method, *path;
    bool is_safe, is_admin;
} routes[] = {
    { "GET", "/v1/models", true, false },
    { "HEAD", "/", true, false },
    { "POST", "/v1/chat/completions", false, false },
    { "DELETE", "/v1/requests/a", false, false },
    { "OPTIONS", "/v1/completions", true, false },
    { "POST", "/v1/administer", false, false }, /* no segment of this name */
    { "GET", "/v1/admin/cache", true, true },
    { "PUT", "/v1/admin/fairness", false, true },
    { "OPTIONS", "/v1/admin/fairness", true, true },
    { "POST", "/v1/session", false, true },
    { "GET", "/debug/invariants", true, true },
};

static const struct {
    const char *text;
    bool is_loopback;
} peers[] = { { "127.0.0.1", true }, { "::1", true }, { "192.168.1.5", false }, { "", false } };

static bool is_own(size_t origin, size_t host)
{
    const char *own = origins[origin].own;
    const char *found =
        own && hosts[host].text && *hosts[host].text ? strstr(own, hosts[host].text) : NULL;

    return found;
}

struct index {
    size_t host, origin, site, route, peer;
};

static enum errcode expected(const struct index *i, bool is_loopback, bool has_hosts, bool has_keys)
{
    bool is_admin = routes[i->route].is_admin, is_local = is_admin && !has_keys;
    enum host_kind host = hosts[i->host].kind;
    bool is_foreign_host = host == FOREIGN || (host == CONFIGURED && !has_hosts);
    const char *origin = origins[i->origin].text, *site = sites[i->site];
    bool is_same = is_own(i->origin, i->host);

    if (is_foreign_host && (is_loopback || has_hosts || is_local))
        return ERR_HOST;
    if (is_local && origin && !is_same)
        return ERR_ORIGIN;
    if (!(origin && origins[i->origin].is_trusted && !is_admin)) {
        bool passes =
            site ? !strcmp(site, "same-origin") || !strcmp(site, "none") : !origin || is_same;
        if (!passes && (origin || is_admin || !routes[i->route].is_safe))
            return ERR_ORIGIN;
    }
    return is_local && !peers[i->peer].is_loopback ? ERR_FORBIDDEN : ERR_NONE;
}

static void check_all(
    const struct origin_policy *p, bool is_loopback, bool has_hosts, bool has_keys)
{
    struct index i;

    for (i.host = 0; i.host < ARRAY_LEN(hosts); i.host++)
        for (i.origin = 0; i.origin < ARRAY_LEN(origins); i.origin++)
            for (i.site = 0; i.site < ARRAY_LEN(sites); i.site++)
                for (i.route = 0; i.route < ARRAY_LEN(routes); i.route++)
                    for (i.peer = 0; i.peer < ARRAY_LEN(peers); i.peer++) {
                        struct sent s = { routes[i.route].method, routes[i.route].path,
                            hosts[i.host].text, origins[i.origin].text, sites[i.site],
                            peers[i.peer].text };
                        struct origin_verdict v;
                        struct err e;
                        int rc = check(p, &s, &v, &e);
                        EXPECT_EQ((int)e.code, (int)expected(&i, is_loopback, has_hosts, has_keys));
                        EXPECT_EQ(rc, e.code ? -1 : 0);
                        bool is_cross = origins[i.origin].text && origins[i.origin].is_trusted &&
                                        !routes[i.route].is_admin;
                        if (!rc)
                            EXPECT_EQ(v.allow_origin.p != NULL, is_cross);
                        if (!rc && is_cross)
                            EXPECT(str_is(v.allow_origin, origins[i.origin].text));
                    }
}

static void every_combination_has_the_expected_result(void)
{
    static const char *const listen_hosts[] = { "127.0.0.1", "::1", "localhost", "0.0.0.0" };

    for (size_t l = 0; l < ARRAY_LEN(listen_hosts); l++)
        for (int has_hosts = 0; has_hosts < 2; has_hosts++)
            for (int has_keys = 0; has_keys < 2; has_keys++) {
                const char *names = has_hosts ? " other.example , LLM.example." : NULL;
                struct origin_policy p = policy_of(
                    listen_hosts[l], names, "https://a.example, https://UI.example", has_keys);
                check_all(&p, l < 3, has_hosts, has_keys);
            }
}

/* ---- single cases */

static void web_page_cannot_use_a_server_without_keys(void)
{
    static const struct {
        struct sent s;
        enum errcode code;
    } cases[] = {
        /* The requests of a page of evil.example, in the order of the finding. */
        { { "POST", "/v1/completions", "127.0.0.1:8177", "https://evil.example", NULL,
              "127.0.0.1" },
            ERR_ORIGIN },
        { { "PUT", "/v1/admin/fairness", "127.0.0.1:8177", "https://evil.example", NULL,
              "127.0.0.1" },
            ERR_ORIGIN },
        { { "GET", "/v1/admin/cache", "evil.example:8177", NULL, NULL, "127.0.0.1" }, ERR_HOST },
        /* DNS rebinding: for the browser, the page and the server have one origin. */
        { { "POST", "/v1/completions", "evil.example:8177", "http://evil.example:8177",
              "same-origin", "127.0.0.1" },
            ERR_HOST },
        /* A form, and an image, of a page that hides its origin. */
        { { "POST", "/v1/completions", "localhost:8177", "null", "cross-site", "127.0.0.1" },
            ERR_ORIGIN },
        { { "GET", "/v1/admin/cache", "localhost:8177", NULL, "cross-site", "127.0.0.1" },
            ERR_ORIGIN },
        /* A page of another server of this machine may generate, not administrate. */
        { { "POST", "/v1/completions", "localhost:8177", "http://localhost:3000", "same-site",
              "127.0.0.1" },
            ERR_NONE },
        { { "PUT", "/v1/admin/fairness", "localhost:8177", "http://localhost:3000", "same-site",
              "127.0.0.1" },
            ERR_ORIGIN },
        /* curl, and a page of the server itself. */
        { { "PUT", "/v1/admin/fairness", "127.0.0.1:8177", NULL, NULL, "127.0.0.1" }, ERR_NONE },
        { { "PUT", "/v1/admin/fairness", "localhost:8177", "http://localhost:8177", "same-origin",
              "::1" },
            ERR_NONE },
        { { "PUT", "/v1/admin/fairness", "localhost", "http://localhost:80", NULL, "::1" },
            ERR_NONE },
        { { "PUT", "/v1/admin/fairness", "localhost", "http://localhost:443", NULL, "::1" },
            ERR_ORIGIN },
        { { "PUT", "/v1/admin/fairness", "localhost:443", "https://localhost", NULL, "::1" },
            ERR_NONE },
    };
    struct origin_policy p = policy_of("127.0.0.1", NULL, NULL, false);

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct origin_verdict v;
        struct err e;
        check(&p, &cases[i].s, &v, &e);
        EXPECT_EQ((int)e.code, (int)cases[i].code);
    }
}

/* With "*" and keys, every origin may use the inference routes, and none the others. */
static void any_origin_needs_keys(void)
{
    struct origin_settings s = { "127.0.0.1", NULL, "https://a.example,*", false };
    struct sent page = { "POST", "/v1/completions", "localhost", "https://evil.example",
        "cross-site", "127.0.0.1" };
    struct origin_verdict v;
    struct origin_policy p;
    struct err e;

    EXPECT_EQ(origin_policy_init(&p, &s, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_INVALID);
    p = policy_of("127.0.0.1", NULL, "https://a.example,*", true);
    EXPECT_EQ(check(&p, &page, &v, &e), 0);
    EXPECT(str_is(v.allow_origin, "*"));
    page.origin = "null";
    EXPECT_EQ(check(&p, &page, &v, &e), 0);
    page.path = "/v1/admin/cache";
    EXPECT_EQ(check(&p, &page, &v, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_ORIGIN);
}

/* A proxy that replaces Host: the browser states that the page and the server have one origin. */
static void same_origin_after_a_proxy_is_allowed_with_keys(void)
{
    struct sent page = { "POST", "/v1/completions", "127.0.0.1:8080", "https://ui.example",
        "same-origin", "127.0.0.1" };
    struct origin_policy p = policy_of("127.0.0.1", NULL, NULL, true);
    struct origin_verdict v;
    struct err e;

    EXPECT_EQ(check(&p, &page, &v, &e), 0);
    EXPECT(!v.allow_origin.p);
    page.site = "cross-site"; /* http and https of one host have different origins */
    page.origin = "http://127.0.0.1:8080";
    page.path = "/v1/admin/cache";
    EXPECT_EQ(check(&p, &page, &v, &e), -1);
}

/* Routes with admin scope are administration routes, whatever their path. */
static void scope_determines_the_class(void)
{
    struct http_field origin = { STR("origin"), STR("http://localhost:3000") };
    struct http_request q = { .method = STR("POST"),
        .path = STR("/api/create"),
        .peer = STR("127.0.0.1"),
        .host = STR("localhost"),
        .fields = &origin,
        .n_fields = 1 };
    struct origin_policy p = policy_of("127.0.0.1", NULL, NULL, true);
    struct origin_verdict v;
    struct err e;

    EXPECT_EQ(origin_check(&p, &q, false, &v, &e), 0);
    EXPECT_EQ(origin_check(&p, &q, true, &v, &e), -1);
}

static void bad_settings_are_errors(void)
{
    static const char *const bad_hosts[] = { "a b", "a:80", "http://a", "::1", ",a", "a,,b", "*" };
    static const char *const bad_origins[] = { "a", "https://", "https://a/", "://a", "null", "**",
        "https://a b", "https://a,,https://b" };
    struct origin_policy p;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(bad_hosts); i++) {
        struct origin_settings s = { "127.0.0.1", bad_hosts[i], "", true };
        EXPECT_EQ(origin_policy_init(&p, &s, &e), -1);
        EXPECT_EQ((int)e.code, (int)ERR_INVALID);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad_origins); i++) {
        struct origin_settings s = { "127.0.0.1", "", bad_origins[i], true };
        EXPECT_EQ(origin_policy_init(&p, &s, &e), -1);
        EXPECT_EQ((int)e.code, (int)ERR_INVALID);
    }
    for (int n = POLICY_HOSTS_MAX; n <= POLICY_HOSTS_MAX + 1; n++) {
        char names[3 * (POLICY_HOSTS_MAX + 1)] = "", urls[9 * (POLICY_ORIGINS_MAX + 1)] = "";
        for (int i = 0, at = 0, url_at = 0; i < n; i++) {
            at += snprintf(names + at, sizeof(names) - (size_t)at, "%sa", i ? "," : "");
            url_at +=
                snprintf(urls + url_at, sizeof(urls) - (size_t)url_at, "%shttp://a", i ? "," : "");
        }
        struct origin_settings h = { "127.0.0.1", names, "", true };
        struct origin_settings o = { "127.0.0.1", "", urls, true };
        EXPECT_EQ(origin_policy_init(&p, &h, &e), n > POLICY_HOSTS_MAX ? -1 : 0);
        EXPECT_EQ(origin_policy_init(&p, &o, &e), n > POLICY_ORIGINS_MAX ? -1 : 0);
    }
}

TESTS(TEST(every_combination_has_the_expected_result),
    TEST(web_page_cannot_use_a_server_without_keys), TEST(any_origin_needs_keys),
    TEST(same_origin_after_a_proxy_is_allowed_with_keys), TEST(scope_determines_the_class),
    TEST(bad_settings_are_errors))
