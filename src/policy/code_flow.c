#include "policy/code_flow.h"

#include "base/base64.h"
#include "base/mem.h"
#include "base/rng.h"
#include "os/clock.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>

enum { EXCHANGE_MS = 10000, RESPONSE_BYTES_MAX = 128 * 1024, EXPIRES_S_DEFAULT = 300 };

#define LOGOUT_EVENT "http://schemas.openid.net/event/backchannel-logout"

struct code_flow {
    const struct code_flow_options *o;
    const struct token_rules *rules;
    struct http_client *client;
    struct oidc_endpoints endpoints;
    bool has_endpoints;
    struct jwks *keys; /* NULL: none were received */
};

/* ---- secrets */

void code_flow_secret_new(char out[CODE_FLOW_SECRET_BYTES + 1])
{
    rng_hex(out);
    rng_hex(out + RNG_HEX);
}

static void derive(char out[2 * SHA256_DIGEST_LENGTH + 1], const char *name, const char *secret)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    char text[32 + CODE_FLOW_SECRET_BYTES];
    int n = snprintf(text, sizeof(text), "%s:%s", name, secret);

    SHA256((const unsigned char *)text, MIN((size_t)n, sizeof(text) - 1), digest);
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++)
        snprintf(out + (ptrdiff_t)2 * i, 3, "%02x", digest[i]);
}

/* ---- texts */

static void put_escaped(struct buf *b, struct str s)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";

    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] && strchr(plain, s.p[i]))
            buf_putc(b, s.p[i]);
        else
            buf_printf(b, "%%%02X", (unsigned char)s.p[i]);
}

/* "&name=value"; without the & at the begin of a body */
static void put_parameter(struct buf *b, const char *name, struct str value)
{
    if (b->n)
        buf_putc(b, '&');
    buf_printf(b, "%s=", name);
    put_escaped(b, value);
}

static bool has_openid(struct str scopes)
{
    while (scopes.n) {
        ptrdiff_t space = str_find(scopes, STR(" "));
        size_t n = space < 0 ? scopes.n : (size_t)space;
        if (str_is((struct str){ scopes.p, n }, "openid"))
            return true;
        scopes = str_skip(scopes, n + 1);
    }
    return false;
}

int code_flow_url(
    const struct code_flow *f, const char *secret, char out[CODE_FLOW_URL_MAX], struct err *e)
{
    char state[2 * SHA256_DIGEST_LENGTH + 1], nonce[sizeof(state)], verifier[sizeof(state)];
    const char *separator = strchr(f->endpoints.authorization, '?') ? "&" : "?";
    uint8_t challenge[SHA256_DIGEST_LENGTH];
    char scopes[1024];
    struct buf b;

    if (!f->has_endpoints)
        return err_set(e, ERR_UNAVAILABLE, "The issuer of tokens cannot be reached.");
    derive(state, "state", secret);
    derive(nonce, "nonce", secret);
    derive(verifier, "verifier", secret);
    SHA256((const unsigned char *)verifier, strlen(verifier), challenge);
    snprintf(scopes, sizeof(scopes), "%s%s", has_openid(str_of(f->o->scopes)) ? "" : "openid ",
        f->o->scopes);
    buf_init(&b, CODE_FLOW_URL_MAX - 1);
    buf_printf(&b, "%s%sresponse_type=code", f->endpoints.authorization, separator);
    put_parameter(&b, "client_id", str_of(f->o->client_id));
    put_parameter(&b, "redirect_uri", str_of(f->o->redirect_url));
    put_parameter(&b, "scope", str_trim(str_of(scopes)));
    put_parameter(&b, "state", str_of(state));
    put_parameter(&b, "nonce", str_of(nonce));
    buf_putz(&b, "&code_challenge_method=S256&code_challenge=");
    base64url_encode(&b, (struct str){ (const char *)challenge, sizeof(challenge) });
    if (buf_ok(&b))
        snprintf(out, CODE_FLOW_URL_MAX, STR_FMT, STR_ARG(buf_str(&b)));
    int failed = buf_ok(&b) ? 0 : err_set(e, ERR_MEMORY, "no memory for the URL of the login");
    buf_clear(&b);
    return failed;
}

void code_flow_logout_url(const struct code_flow *f, char out[CODE_FLOW_URL_MAX])
{
    const char *end = f->endpoints.end_session;
    struct buf b;

    *out = '\0';
    if (!f->has_endpoints || !*end)
        return;
    buf_init(&b, CODE_FLOW_URL_MAX - 1);
    buf_printf(&b, "%s%sclient_id=", end, strchr(end, '?') ? "&" : "?");
    put_escaped(&b, str_of(f->o->client_id));
    if (buf_ok(&b))
        snprintf(out, CODE_FLOW_URL_MAX, STR_FMT, STR_ARG(buf_str(&b)));
    buf_clear(&b);
}

/* ---- the browser returns */

static bool is_error_code(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!(s.p[i] == '_' || (s.p[i] >= 'a' && s.p[i] <= 'z')))
            return false;
    return s.n > 0 && s.n <= 40;
}

int code_flow_check(const struct token_rules *rules, const char *secret,
    const struct code_response *r, struct err *e)
{
    char state[2 * SHA256_DIGEST_LENGTH + 1];

    if (!secret || strlen(secret) != CODE_FLOW_SECRET_BYTES)
        return err_set(
            e, ERR_AUTH, "The login was not begun in this browser, or more than 10 minutes ago.");
    derive(state, "state", secret);
    if (r->state.n != strlen(state) || CRYPTO_memcmp(r->state.p, state, r->state.n) != 0)
        return err_set(e, ERR_AUTH, "The response of the issuer belongs to another login.");
    if (r->issuer.p && !str_eq(r->issuer, rules->jwt.issuer))
        return err_set(e, ERR_AUTH, "The response is from another issuer.");
    if (r->error.p)
        return err_set(e, ERR_AUTH, "The issuer has refused the login (%.*s).",
            is_error_code(r->error) ? (int)r->error.n : 5,
            is_error_code(r->error) ? r->error.p : "error");
    if (!r->code.n || r->code.n > CODE_FLOW_CODE_MAX)
        return err_set(e, ERR_AUTH, "The response of the issuer has no code.");
    return 0;
}

/* ---- token endpoint */

/* RFC 6749 section 2.3.1: the parts are form-encoded before they are joined. */
static int set_authorization(const struct code_flow *f, struct code_exchange *x, struct err *e)
{
    struct buf plain, b;

    buf_init(&plain, sizeof(x->authorization));
    buf_init(&b, sizeof(x->authorization) - 1);
    put_escaped(&plain, str_of(f->o->client_id));
    buf_putc(&plain, ':');
    put_escaped(&plain, str_of(f->o->client_secret));
    buf_putz(&b, "Basic ");
    base64_encode(&b, buf_str(&plain));
    bool is_complete = buf_ok(&plain) && buf_ok(&b);
    if (is_complete)
        snprintf(x->authorization, sizeof(x->authorization), STR_FMT, STR_ARG(buf_str(&b)));
    if (plain.p)
        OPENSSL_cleanse(plain.p, plain.n);
    if (b.p)
        OPENSSL_cleanse(b.p, b.n);
    buf_clear(&plain);
    buf_clear(&b);
    return is_complete ? 0 : err_set(e, ERR_MEMORY, "no memory for a login");
}

static int post(struct code_flow *f, struct code_exchange *x, struct err *e)
{
    bool has_secret = *f->o->client_secret;

    if (!has_secret)
        put_parameter(&x->body, "client_id", str_of(f->o->client_id));
    if (has_secret && set_authorization(f, x, e))
        return -1;
    if (!buf_ok(&x->body))
        return err_set(e, ERR_MEMORY, "no memory for a login");
    memcpy(x->url, f->endpoints.token, sizeof(x->url));
    struct msg msg = x->fetch.msg;
    x->fetch = (struct http_fetch){ .msg = msg,
        .reply_to = x->fetch.reply_to,
        .policy = FETCH_CONFIGURED,
        .url = x->url,
        .authorization = has_secret ? x->authorization : NULL,
        .fields = { "Accept: application/json", "Content-Type: application/x-www-form-urlencoded" },
        .body = buf_str(&x->body),
        .max_bytes = RESPONSE_BYTES_MAX,
        .timeout_ms = EXCHANGE_MS };
    x->has_response = true;
    http_client_post(f->client, &x->fetch);
    return 0;
}

int code_flow_exchange(struct code_flow *f, struct code_exchange *x, struct str code,
    const char *secret, bool has_issuer, struct err *e)
{
    char verifier[2 * SHA256_DIGEST_LENGTH + 1];

    if (!f->has_endpoints)
        return err_set(e, ERR_UNAVAILABLE, "The issuer of tokens cannot be reached.");
    if (f->endpoints.sends_issuer && !has_issuer)
        return err_set(e, ERR_AUTH, "The response does not name its issuer.");
    snprintf(x->secret, sizeof(x->secret), "%s", secret);
    derive(verifier, "verifier", secret);
    buf_init(&x->body, 16 * 1024);
    put_parameter(&x->body, "grant_type", STR("authorization_code"));
    put_parameter(&x->body, "code", code);
    put_parameter(&x->body, "redirect_uri", str_of(f->o->redirect_url));
    put_parameter(&x->body, "code_verifier", str_of(verifier));
    return post(f, x, e);
}

int code_flow_refresh(
    struct code_flow *f, struct code_exchange *x, const char *refresh_token, struct err *e)
{
    if (!f->has_endpoints)
        return err_set(e, ERR_UNAVAILABLE, "The issuer of tokens cannot be reached.");
    *x->secret = '\0';
    buf_init(&x->body, 4 * CODE_FLOW_TOKEN_MAX);
    put_parameter(&x->body, "grant_type", STR("refresh_token"));
    put_parameter(&x->body, "refresh_token", str_of(refresh_token));
    return post(f, x, e);
}

/* ---- response */

static bool is_text(const struct json *j, struct str text)
{
    return j && j->kind == JSON_STRING && str_eq(j->s, text);
}

/* `aud` contains this client. A token for several audiences names the one that it was issued to. */
static int check_party(const struct code_flow *f, const struct jwt *t, struct err *e)
{
    const struct json *azp = json_get(t->claims, "azp"), *aud = json_get(t->claims, "aud");
    bool has_others = aud && aud->kind == JSON_ARRAY && aud->n > 1;

    if ((azp || has_others) && !is_text(azp, str_of(f->o->client_id)))
        return err_set(e, ERR_AUTH, "The ID token was issued to another client (azp).");
    return 0;
}

static int verify_for_client(
    struct code_flow *f, struct jwt *out, struct str token, struct arena *a, struct err *e)
{
    struct jwt_rules rules = f->rules->jwt;

    rules.audience = str_of(f->o->client_id);
    rules.now_s = clock_wall_s();
    return jwt_verify(out, token, f->keys, &rules, a, e) || check_party(f, out, e) ? -1 : 0;
}

static int read_id_token(struct code_flow *f, const struct code_exchange *x, struct str token,
    struct jwt *out, struct arena *a, struct err *e)
{
    char nonce[2 * SHA256_DIGEST_LENGTH + 1];

    if (verify_for_client(f, out, token, a, e))
        return -1;
    if (!*x->secret)
        return 0; /* of a refresh: there was no request with a nonce */
    derive(nonce, "nonce", x->secret);
    if (!is_text(json_get(out->claims, "nonce"), str_of(nonce)))
        return err_set(e, ERR_AUTH, "The ID token belongs to another login (nonce).");
    return 0;
}

static int read_access_token(struct code_flow *f, struct str token, const struct jwt *id,
    struct jwt *out, struct arena *a, struct err *e)
{
    struct jwt_rules rules = f->rules->jwt;

    rules.now_s = clock_wall_s();
    if (!jwt_has_form(token))
        return err_set(e, ERR_AUTH,
            "The access token is not a JSON Web Token; auth.login.claims can be id_token.");
    if (jwt_verify(out, token, f->keys, &rules, a, e))
        return -1;
    if (id && !str_eq(out->subject, id->subject))
        return err_set(e, ERR_AUTH, "The access token has another subject than the ID token.");
    return 0;
}

static struct str member_text(const struct json *j, const char *name)
{
    const struct json *m = json_get(j, name);

    return m && m->kind == JSON_STRING ? m->s : STR_NONE;
}

static int read_tokens(struct code_flow *f, struct code_exchange *x, const struct json *j,
    struct arena *a, struct code_result *out, struct err *e)
{
    struct str id_token = member_text(j, "id_token"), access = member_text(j, "access_token");
    struct str refresh = member_text(j, "refresh_token");
    bool has_id = id_token.n, must_have_id = *x->secret != '\0';
    struct jwt id, from_access;

    if (must_have_id && !has_id)
        return err_set(e, ERR_AUTH, "The response of the issuer has no ID token.");
    if (has_id && read_id_token(f, x, id_token, &id, a, e))
        return -1;
    if (!f->o->uses_id_token &&
        read_access_token(f, access, has_id ? &id : NULL, &from_access, a, e))
        return -1;
    if (refresh.n && (refresh.n > CODE_FLOW_TOKEN_MAX || memchr(refresh.p, '\0', refresh.n)))
        return err_set(e, ERR_AUTH, "The refresh token is too long.");
    const struct json *expires = json_get(j, "expires_in");
    if (!json_i64(expires, &out->expires_in_s) || out->expires_in_s < 0)
        out->expires_in_s = EXPIRES_S_DEFAULT;
    if (has_id || !f->o->uses_id_token) {
        out->key = token_rules_key(f->rules, NULL, f->o->uses_id_token ? &id : &from_access, e);
        if (!out->key)
            return -1;
    }
    out->refresh_token = refresh.n ? try_malloc(refresh.n + 1) : NULL;
    if (out->refresh_token) /* without memory, the login ends with the access token */
        snprintf(out->refresh_token, refresh.n + 1, STR_FMT, STR_ARG(refresh));
    return 0;
}

int code_flow_read(
    struct code_flow *f, struct code_exchange *x, struct code_result *out, struct err *e)
{
    const struct json_limits limits = { .max_depth = 8, .max_nodes = 1024 };
    struct http_fetch *h = &x->fetch;
    struct json *j;

    *out = (struct code_result){ NULL };
    if (h->err.code)
        return err_set(e, ERR_UNAVAILABLE, "The issuer does not respond: %.200s.", h->err.msg);
    if (h->status == 400 || h->status == 401)
        return err_set(e, ERR_AUTH, "The issuer has refused the login (status %d).", h->status);
    if (h->status != 200)
        return err_set(e, ERR_UNAVAILABLE, "The issuer has returned status %d.", h->status);
    struct arena *a = arena_new(4 * MB);
    if (!a)
        return err_set(e, ERR_MEMORY, "no memory for a login");
    int failed = json_parse(&j, buf_str(&h->response), a, &limits, e);
    if (failed && e->code != ERR_MEMORY)
        err_set(e, ERR_AUTH, "The response of the issuer is not JSON.");
    if (!failed)
        failed = read_tokens(f, x, j, a, out, e);
    arena_free(a);
    return failed ? -1 : 0;
}

void code_exchange_clear(struct code_exchange *x)
{
    if (x->body.p)
        OPENSSL_cleanse(x->body.p, x->body.n);
    buf_clear(&x->body);
    if (x->has_response && x->fetch.response.p) {
        OPENSSL_cleanse(x->fetch.response.p, x->fetch.response.n);
        buf_clear(&x->fetch.response);
    }
    OPENSSL_cleanse(x->authorization, sizeof(x->authorization));
    OPENSSL_cleanse(x->secret, sizeof(x->secret));
    x->has_response = false;
}

int code_flow_read_logout(
    struct code_flow *f, struct str token, uint8_t out[POLICY_DIGEST_BYTES], struct err *e)
{
    struct arena *a = arena_new(4 * MB);
    struct jwt t;

    if (!a)
        return err_set(e, ERR_MEMORY, "no memory for a logout token");
    int failed = verify_for_client(f, &t, token, a, e);
    const struct json *events = failed ? NULL : json_get(t.claims, "events");
    if (!failed && (json_get(t.claims, "nonce") || !json_get(events, LOGOUT_EVENT)))
        failed = err_set(e, ERR_AUTH, "The token is not a logout token.");
    if (!failed)
        token_rules_digest(out, f->rules, t.subject);
    arena_free(a);
    return failed ? -1 : 0;
}

/* ---- life */

void code_flow_set_issuer(struct code_flow *f, const struct oidc_result *r)
{
    if (r->endpoints) {
        f->endpoints = *r->endpoints;
        f->has_endpoints = true;
    }
    jwks_unref(f->keys);
    f->keys = jwks_ref(r->keys);
}

bool code_flow_has_issuer(const struct code_flow *f)
{
    return f->has_endpoints;
}

int code_flow_open(struct code_flow **out, const struct code_flow_options *o,
    const struct token_rules *rules, struct http_client *client, struct err *e)
{
    struct str url = str_of(o->redirect_url);

    if (oidc_check_url(url, "auth.login.redirect_url", e))
        return -1;
    if (!str_ends(url, STR("/v1/session/callback")))
        return err_set(e, ERR_INVALID,
            "auth.login.redirect_url does not end in /v1/session/callback, the path of the server");
    if (strlen(o->client_id) > 512 || strlen(o->client_secret) > 512 || strlen(o->scopes) > 900)
        return err_set(e, ERR_INVALID, "a setting of auth.login is longer than 512 bytes");
    struct code_flow *f = xcalloc(1, sizeof(*f));
    f->o = o;
    f->rules = rules;
    f->client = client;
    *out = f;
    return 0;
}

void code_flow_close(struct code_flow *f)
{
    if (!f)
        return;
    jwks_unref(f->keys);
    mem_free(f);
}
