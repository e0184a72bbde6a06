/* code_flow.h: login of a browser with the authorization code flow of OpenID Connect (RFC 6749
 * section 4.1, OpenID Connect Core 1.0 section 3.1), with PKCE (RFC 7636).
 *
 *     code_flow_url        the browser is sent to the issuer, with a secret in a cookie
 *     code_flow_check      the browser returns: state and issuer (RFC 9207) are as requested
 *     code_flow_exchange   posts the code, and the secret that PKCE requires, to the issuer
 *     code_flow_read       reads the tokens of the response, which the browser never gets
 *
 * State, nonce and PKCE's verifier are hashes of the secret in the cookie. So a response is
 * accepted only from the browser that began the login, and the server stores nothing until then.
 *
 * Owner: the logins thread, except code_flow_check and code_flow_secret_new, which are pure. */
#pragma once

#include "auth/oidc.h"
#include "policy/token_keys.h"

enum {
    CODE_FLOW_SECRET_BYTES = 64,
    CODE_FLOW_URL_MAX = 4 * FETCH_URL_MAX,
    CODE_FLOW_CODE_MAX = 2048,
    CODE_FLOW_TOKEN_MAX = 16 * 1024 /* of a token in a response */
};

struct code_flow_options {     /* borrowed for the life of the struct */
    const char *client_id;     /* of this server at the issuer; "" = no browser login */
    const char *client_secret; /* "" = public client */
    const char *redirect_url;  /* where the issuer sends the browser: exactly this URL */
    const char *scopes;        /* of the authorization request, with spaces; `openid` is added */
    bool uses_id_token; /* scopes and tenant are claims of the ID token, not of the access token */
};

struct code_flow;

/* ERR_INVALID names the option. */
int code_flow_open(struct code_flow **out, const struct code_flow_options *o,
    const struct token_rules *rules, struct http_client *client, struct err *e) MUST_CHECK;
void code_flow_close(struct code_flow *f); /* accepts NULL */
/* The newest result of oidc.h. */
void code_flow_set_issuer(struct code_flow *f, const struct oidc_result *r);
bool code_flow_has_issuer(const struct code_flow *f); /* a result had the document */

void code_flow_secret_new(char out[CODE_FLOW_SECRET_BYTES + 1]);
/* ERR_UNAVAILABLE: the issuer's document was not received yet. */
int code_flow_url(const struct code_flow *f, const char *secret, char out[CODE_FLOW_URL_MAX],
    struct err *e) MUST_CHECK;
/* "" without such an endpoint. */
void code_flow_logout_url(const struct code_flow *f, char out[CODE_FLOW_URL_MAX]);

struct code_response { /* parameters of the redirect; .p NULL: absent */
    struct str state, issuer, code, error;
};
/* ERR_AUTH: not the response to the request of this secret (NULL or "": the cookie is missing),
 * from another issuer, or an error. */
int code_flow_check(const struct token_rules *rules, const char *secret,
    const struct code_response *r, struct err *e) MUST_CHECK;

struct code_exchange { /* one request to the token endpoint; zeroed before its first use */
    struct http_fetch fetch;
    struct buf body;
    char authorization[2048];
    char url[FETCH_URL_MAX + 1];
    char secret[CODE_FLOW_SECRET_BYTES + 1]; /* "": a refresh */
    bool has_response;
};

/* Post the request; fetch.msg returns to fetch.reply_to. `has_issuer`: the redirect had `iss`.
 * ERR_UNAVAILABLE, ERR_AUTH, ERR_MEMORY. */
int code_flow_exchange(struct code_flow *f, struct code_exchange *x, struct str code,
    const char *secret, bool has_issuer, struct err *e) MUST_CHECK;
int code_flow_refresh(struct code_flow *f, struct code_exchange *x, const char *refresh_token,
    struct err *e) MUST_CHECK;

struct code_result {
    struct policy_key *key; /* of the user; a reference. NULL: a refresh without new claims */
    char *refresh_token;    /* NULL: none. The receiver frees it */
    int64_t expires_in_s;   /* of the access token */
};
/* Reads the response. ERR_NOT_FOUND: its key is not known; the caller may repeat the call after the
 * next code_flow_set_issuer. ERR_AUTH: refused; ERR_UNAVAILABLE: the issuer does not respond. */
int code_flow_read(struct code_flow *f, struct code_exchange *x, struct code_result *out,
    struct err *e) MUST_CHECK;
void code_exchange_clear(struct code_exchange *x); /* the secrets are overwritten */

/* A logout token of the issuer (OpenID Connect Back-Channel Logout 1.0): the digest of the key of
 * its subject. The errors are those of code_flow_read. */
int code_flow_read_logout(struct code_flow *f, struct str token, uint8_t out[POLICY_DIGEST_BYTES],
    struct err *e) MUST_CHECK;
