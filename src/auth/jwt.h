/* jwt.h: verification of signed JSON Web Tokens (RFC 7519) in compact form (RFC 7515):
 *
 *     base64url(header) "." base64url(claims) "." base64url(signature)
 *
 * The algorithm of the header only selects among those that the rules allow; jwks.h binds it to the
 * type of the key. A header with `crit` is refused, since no extension is implemented. Errors do
 * not contain the token.
 *
 * Pure; any thread. */
#pragma once

#include "auth/jwks.h"
#include "base/json.h"

enum { JWT_BYTES_MAX = 16 * 1024 };

struct jwt_rules {
    struct str issuer, audience; /* `iss` is equal; `aud` is equal or contains it */
    unsigned algorithms;         /* bits by jwt_algorithm */
    int64_t skew_s;              /* difference of the clocks of issuer and server */
    int64_t now_s;               /* Unix time */
};

struct jwt {
    const struct json *claims;
    struct str subject; /* `sub`, not empty */
    int64_t expires_at; /* Unix time, with the skew: the token is refused from here on */
};

/* Verifies signature, iss, aud, exp (required) and nbf. The result is in the arena. ERR_NOT_FOUND:
 * the set (NULL: no key is known) has no key for a token that is otherwise well formed; ERR_AUTH:
 * the token is refused; ERR_MEMORY. */
int jwt_verify(struct jwt *out, struct str token, const struct jwks *keys,
    const struct jwt_rules *rules, struct arena *a, struct err *e) MUST_CHECK;

/* Whether the text has the form of a token: three parts. */
bool jwt_has_form(struct str text);
