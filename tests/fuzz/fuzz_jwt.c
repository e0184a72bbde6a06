/* Fuzzes the verification of tokens: the input as a token, which no key has signed, and as claims
 * that are signed with a key of the set. */
#include "auth/jwt.h"
#include "base/mem.h"

#include <openssl/evp.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { NOW = 1800000000 };

static EVP_PKEY *key;
static struct jwks *keys;

static void put_base64url(struct buf *out, const void *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const uint8_t *bytes = p;

    for (size_t i = 0; i < n * 8; i += 6) {
        unsigned v = (unsigned)bytes[i / 8] << 8 | (i / 8 + 1 < n ? bytes[i / 8 + 1] : 0);
        buf_putc(out, digits[v >> (10 - i % 8) & 63]);
    }
}

static void open_keys(void)
{
    static const uint8_t secret[32] = { 1, 2, 3 };
    uint8_t point[32];
    size_t n = sizeof(point);
    struct buf b;
    struct err e;

    key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, secret, sizeof(secret));
    CHECK(key && EVP_PKEY_get_raw_public_key(key, point, &n) == 1);
    buf_init(&b, MB);
    buf_putz(&b, "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"");
    put_base64url(&b, point, n);
    buf_putz(&b, "\"}]}");
    CHECK(!jwks_parse(&keys, buf_str(&b), &e));
    CHECK(jwks_count(keys) == 1);
    buf_clear(&b);
}

static int verify(struct str token, struct jwt *out, struct arena *a)
{
    struct jwt_rules rules = { STR("issuer"), STR("audience"), JWT_ALL_ALGORITHMS, 60, NOW };
    struct err e;

    if (!jwt_verify(out, token, keys, &rules, a, &e))
        return 0;
    CHECK(e.code == ERR_NOT_FOUND || e.code == ERR_AUTH || e.code == ERR_MEMORY);
    return -1;
}

static void put_signed(struct buf *out, const uint8_t *data, size_t n)
{
    uint8_t signature[64];
    size_t n_signature = sizeof(signature);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    put_base64url(out, "{\"alg\":\"EdDSA\"}", 15);
    buf_putc(out, '.');
    put_base64url(out, data, n);
    CHECK(ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, key) == 1 &&
          EVP_DigestSign(ctx, signature, &n_signature, (uint8_t *)out->p, out->n) == 1);
    EVP_MD_CTX_free(ctx);
    buf_putc(out, '.');
    put_base64url(out, signature, n_signature);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct arena *a = arena_new(8 * MB);
    struct buf token;
    struct jwt jwt;

    CHECK(a);
    if (!keys)
        open_keys();
    CHECK(verify((struct str){ (const char *)data, n }, &jwt, a));
    buf_init(&token, 64 * MB);
    put_signed(&token, data, n);
    if (!verify(buf_str(&token), &jwt, a)) {
        CHECK(jwt.subject.n && jwt.expires_at > NOW);
        token.p[token.n - 40] ^= 1; /* another signature */
        CHECK(verify(buf_str(&token), &jwt, a));
    }
    buf_clear(&token);
    arena_free(a);
    return 0;
}
