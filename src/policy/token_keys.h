/* token_keys.h: callers with a token of an OpenID Connect issuer. A token that jwt.h accepts
 * becomes a struct policy_key, as if it were an API key: scopes and tenant from its claims, expiry
 * from `exp`, the roles whose claims it has. Its id is derived from `iss` and `sub`, so all tokens
 * of a subject have one id.
 *
 * Each io thread has a cache of accepted tokens, found by their SHA-256 digests, so that a token is
 * verified once and not with each request. A new key set and new roles empty the cache.
 *
 * Owner: one thread at a time; the rules are immutable. */
#pragma once

#include "auth/jwt.h"
#include "policy/snapshot.h"

enum {
    TOKEN_OWNERS = 4096, /* numbers for budgets, above those of the keys; tenants may share one */
    TOKEN_SCOPE_VALUES_MAX = 16
};

struct token_options {
    const char *issuer, *audience;
    const char *algorithms;   /* comma-separated */
    const char *scopes;       /* "SCOPE=VALUE,...": values of the claim that grant a scope */
    const char *scopes_claim; /* a string with spaces or an array; "a.b" = member b of claim a */
    const char *tenant_claim; /* "" = each subject is its own tenant */
    int64_t skew_s;
};

struct token_rules { /* points into the options */
    struct jwt_rules jwt;
    struct str scopes_claim, tenant_claim;
    struct {
        struct str value;
        unsigned scope;
    } values[TOKEN_SCOPE_VALUES_MAX];
    int n_values;
};

/* ERR_INVALID names the option and the value. */
int token_rules_read(
    struct token_rules *out, const struct token_options *o, struct err *e) MUST_CHECK;

/* The key of a caller whose claims jwt_verify has accepted; a reference. roles: NULL = none. NULL:
 * ERR_AUTH: a claim is missing; ERR_MEMORY. */
struct policy_key *token_rules_key(const struct token_rules *r, const struct role_set *roles,
    const struct jwt *jwt, struct err *e) MUST_CHECK;
/* The digest of the key of a subject. */
void token_rules_digest(
    uint8_t out[POLICY_DIGEST_BYTES], const struct token_rules *r, struct str subject);

struct token_keys;

struct token_keys *token_keys_new(const struct token_rules *borrow); /* aborts without memory */
void token_keys_free(struct token_keys *t);                          /* accepts NULL */
/* Takes no reference. `number` is that of the result (auth/oidc.h). */
void token_keys_set(struct token_keys *t, struct jwks *keys, uint64_t number);
/* Takes a reference. NULL = none. */
void token_keys_set_roles(struct token_keys *t, const struct role_set *roles);
uint64_t token_keys_number(const struct token_keys *t); /* number of the last result; 0 = none */
bool token_keys_has_set(const struct token_keys *t);

/* The key of the caller, which belongs to `t` and is valid until the next call. NULL:
 * ERR_NOT_FOUND: the key set has no key for the token; ERR_AUTH: refused; ERR_MEMORY. */
const struct policy_key *token_keys_find(
    struct token_keys *t, struct str token, int64_t now_s, struct err *e) MUST_CHECK;

/* The same for a user with a session cookie (logins.h). digest: of the cookie and the claims;
 * login: a key with the claims. */
const struct policy_key *token_keys_of_login(struct token_keys *t,
    const uint8_t digest[POLICY_DIGEST_BYTES], const struct policy_key *login,
    struct err *e) MUST_CHECK;
