/* jwks.h: the public keys of an identity provider: a JSON Web Key Set (RFC 7517, RFC 7518, RFC
 * 8037), and verification of signatures with them.
 *
 * A key serves the algorithms of its type only, and of its member `alg`, if it has one:
 *
 *     RS256, PS256   kty RSA, 2,048 to 8,192 bits
 *     ES256          kty EC, crv P-256
 *     EdDSA          kty OKP, crv Ed25519
 *
 * There is no HMAC and no `none`. Keys of other types, for encryption, or with private members are
 * in the set, but match no token.
 *
 * Immutable after jwks_parse; references are counted atomically. Any thread. */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum jwt_algorithm { JWT_RS256, JWT_PS256, JWT_ES256, JWT_EDDSA, N_JWT_ALGORITHMS };
enum { JWT_ALL_ALGORITHMS = (1 << N_JWT_ALGORITHMS) - 1 };

enum { JWKS_BYTES_MAX = 256 * 1024, JWKS_KEYS_MAX = 100, JWK_ID_MAX = 255 };

struct jwks;

/* "RS256"; -1: no algorithm of this module. Case matters. */
int jwt_algorithm_of(struct str name);
const char *jwt_algorithm_name(enum jwt_algorithm a);

/* ERR_INVALID: not a key set; ERR_TOO_LARGE; ERR_MEMORY. A key that cannot be used is no error. */
int jwks_parse(struct jwks **out, struct str json, struct err *e) MUST_CHECK;
struct jwks *jwks_ref(struct jwks *s); /* accepts NULL */
void jwks_unref(struct jwks *s);       /* accepts NULL */
int jwks_count(const struct jwks *s);  /* keys that can verify a token */

/* Verifies a signature with the key that `kid` (STR_NONE: the token has none) and the algorithm
 * select. ERR_NOT_FOUND: no key matches; ERR_AUTH: several keys match, the key is not valid, or the
 * signature is wrong. */
struct jwt_signature {
    enum jwt_algorithm algorithm;
    struct str kid;
    struct str text; /* the signed text */
    struct str bytes;
};
int jwks_verify(
    const struct jwks *s, const struct jwt_signature *signature, struct err *e) MUST_CHECK;
