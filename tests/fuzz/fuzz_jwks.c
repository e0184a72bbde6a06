/* Fuzzes the parser of JSON Web Key Sets. No key of a set verifies a signature that was not made
 * for it. */
#include "auth/jwks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct str kids[] = { { NULL, 0 }, { "", 0 }, { "1", 1 } };
    static const char zeros[256];
    struct jwks *keys;
    struct err e;

    if (jwks_parse(&keys, (struct str){ (const char *)data, n }, &e))
        return 0;
    CHECK(jwks_count(keys) <= JWKS_KEYS_MAX);
    for (int a = 0; a < N_JWT_ALGORITHMS; a++)
        for (size_t i = 0; i < ARRAY_LEN(kids); i++) {
            struct jwt_signature s = { .algorithm = (enum jwt_algorithm)a,
                .kid = kids[i],
                .text = STR("text"),
                .bytes = { zeros, a == JWT_ES256 || a == JWT_EDDSA ? 64 : 256 } };
            CHECK(jwks_verify(keys, &s, &e));
            CHECK(e.code == ERR_NOT_FOUND || e.code == ERR_AUTH);
        }
    jwks_unref(keys);
    return 0;
}
