#include "auth/jwks.h"

#include "base/base64.h"
#include "base/json.h"
#include "base/mem.h"

#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>
#include <stdatomic.h>

enum { RSA_BITS_MIN = 2048, RSA_BITS_MAX = 8192, EXPONENT_BYTES_MAX = 8, COORDINATE_BYTES = 32 };
enum { MEMBER_BYTES_MAX = RSA_BITS_MAX / 8 + 8 };

struct jwk {
    char kid[JWK_ID_MAX + 1];
    bool has_kid;
    unsigned algorithms; /* bits by jwt_algorithm; 0 = the key verifies nothing */
    EVP_PKEY *key;       /* NULL: the members are not valid */
};

struct jwks {
    _Atomic int n_refs;
    int n;
    struct jwk keys[];
};

/* ---- members */

struct bytes {
    uint8_t p[MEMBER_BYTES_MAX];
    size_t n;
};

/* A base64url member of at most `max` bytes. */
static bool read_bytes(const struct json *jwk, const char *name, size_t max, struct bytes *out)
{
    const struct json *j = json_get(jwk, name);
    ptrdiff_t n;

    if (!j || j->kind != JSON_STRING || j->s.n / 4 * 3 + 2 > sizeof(out->p))
        return false;
    n = base64url_decode(out->p, j->s);
    out->n = n < 0 ? 0 : (size_t)n;
    return n > 0 && out->n <= max;
}

static bool member_is(const struct json *jwk, const char *name, const char *value)
{
    const struct json *j = json_get(jwk, name);

    return j && j->kind == JSON_STRING && str_is(j->s, value);
}

/* key_ops, if present, is an array of different strings, and one of them is "verify". */
static bool allows_verify(const struct json *jwk)
{
    const struct json *ops = json_get(jwk, "key_ops");
    bool has_verify = false;

    if (!ops)
        return true;
    if (ops->kind != JSON_ARRAY || ops->n > 16)
        return false;
    for (const struct json *op = ops->child; op; op = op->next) {
        if (op->kind != JSON_STRING)
            return false;
        for (const struct json *other = op->next; other; other = other->next)
            if (json_equal(op, other))
                return false;
        has_verify |= str_is(op->s, "verify");
    }
    return has_verify;
}

/* ---- keys of each type; NULL: the members are not valid */

static EVP_PKEY *key_from_params(const char *type, OSSL_PARAM_BLD *b)
{
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(b);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    EVP_PKEY *key = NULL;

    if (!params || !ctx || EVP_PKEY_fromdata_init(ctx) <= 0 ||
        EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_PUBLIC_KEY, params) <= 0)
        key = NULL;
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    return key;
}

static EVP_PKEY *read_rsa(const struct json *jwk)
{
    struct bytes n, e;

    if (!read_bytes(jwk, "n", RSA_BITS_MAX / 8 + 1, &n) ||
        !read_bytes(jwk, "e", EXPONENT_BYTES_MAX, &e))
        return NULL;
    BIGNUM *modulus = BN_bin2bn(n.p, (int)n.n, NULL), *exponent = BN_bin2bn(e.p, (int)e.n, NULL);
    OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
    EVP_PKEY *key = NULL;
    if (modulus && exponent && b && BN_num_bits(modulus) >= RSA_BITS_MIN &&
        BN_num_bits(modulus) <= RSA_BITS_MAX && BN_is_odd(modulus) && BN_is_odd(exponent) &&
        !BN_is_one(exponent) && OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_N, modulus) &&
        OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_E, exponent))
        key = key_from_params("RSA", b);
    OSSL_PARAM_BLD_free(b);
    BN_free(modulus);
    BN_free(exponent);
    return key;
}

static EVP_PKEY *read_p256(const struct json *jwk)
{
    uint8_t point[1 + 2 * COORDINATE_BYTES] = { 4 }; /* uncompressed */
    struct bytes x, y;

    if (!read_bytes(jwk, "x", COORDINATE_BYTES, &x) || x.n != COORDINATE_BYTES ||
        !read_bytes(jwk, "y", COORDINATE_BYTES, &y) || y.n != COORDINATE_BYTES)
        return NULL;
    memcpy(point + 1, x.p, COORDINATE_BYTES);
    memcpy(point + 1 + COORDINATE_BYTES, y.p, COORDINATE_BYTES);
    OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
    EVP_PKEY *key = NULL;
    if (b && OSSL_PARAM_BLD_push_utf8_string(b, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) &&
        OSSL_PARAM_BLD_push_octet_string(b, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof(point)))
        key = key_from_params("EC", b); /* fails if the point is not on the curve */
    OSSL_PARAM_BLD_free(b);
    return key;
}

static EVP_PKEY *read_ed25519(const struct json *jwk)
{
    struct bytes x;

    if (!read_bytes(jwk, "x", COORDINATE_BYTES, &x) || x.n != COORDINATE_BYTES)
        return NULL;
    return EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, x.p, x.n);
}

/* ---- algorithms */

static const struct {
    const char *name;
    const char *kty, *crv; /* crv NULL: not used */
    EVP_PKEY *(*read)(const struct json *jwk);
} algorithms[N_JWT_ALGORITHMS] = {
    [JWT_RS256] = { "RS256", "RSA", NULL, read_rsa },
    [JWT_PS256] = { "PS256", "RSA", NULL, read_rsa },
    [JWT_ES256] = { "ES256", "EC", "P-256", read_p256 },
    [JWT_EDDSA] = { "EdDSA", "OKP", "Ed25519", read_ed25519 },
};

int jwt_algorithm_of(struct str name)
{
    for (int i = 0; i < N_JWT_ALGORITHMS; i++)
        if (str_is(name, algorithms[i].name))
            return i;
    return -1;
}

const char *jwt_algorithm_name(enum jwt_algorithm a)
{
    return algorithms[a].name;
}

/* ---- sets */

static unsigned algorithms_of(const struct json *jwk)
{
    const struct json *ext = json_get(jwk, "ext"), *alg = json_get(jwk, "alg");
    unsigned all = 0;

    if ((json_get(jwk, "use") && !member_is(jwk, "use", "sig")) || !allows_verify(jwk) ||
        (ext && ext->kind != JSON_BOOL))
        return 0;
    for (int i = 0; i < N_JWT_ALGORITHMS; i++)
        if (member_is(jwk, "kty", algorithms[i].kty) &&
            (!algorithms[i].crv || member_is(jwk, "crv", algorithms[i].crv)) &&
            (!alg || member_is(jwk, "alg", algorithms[i].name)))
            all |= 1u << i;
    return all;
}

/* A key with a kid that is no string or too long matches only tokens without kid. */
static void read_key(struct jwk *out, const struct json *jwk)
{
    const struct json *kid = json_get(jwk, "kid");

    out->algorithms = algorithms_of(jwk);
    if (kid && kid->kind == JSON_STRING && kid->s.n <= JWK_ID_MAX &&
        !memchr(kid->s.p, '\0', kid->s.n)) {
        memcpy(out->kid, kid->s.p, kid->s.n);
        out->has_kid = true;
    }
    if (json_get(jwk, "d")) /* a private key must not be public */
        return;
    for (int i = 0; i < N_JWT_ALGORITHMS && !out->key; i++)
        if (out->algorithms & 1u << i)
            out->key = algorithms[i].read(jwk);
}

static int read_keys(struct jwks **out, const struct json *set, struct err *e)
{
    const struct json *keys = json_get(set, "keys");
    struct jwks *s;

    if (!keys || keys->kind != JSON_ARRAY)
        return err_set(e, ERR_INVALID, "the key set has no array `keys`");
    if (keys->n > JWKS_KEYS_MAX)
        return err_set(e, ERR_TOO_LARGE, "the key set has more than %d keys", JWKS_KEYS_MAX);
    for (const struct json *k = keys->child; k; k = k->next)
        if (k->kind != JSON_OBJECT)
            return err_set(e, ERR_INVALID, "a key of the set is not an object");
    s = try_calloc(1, sizeof(*s) + keys->n * sizeof(s->keys[0]));
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for a key set");
    s->n_refs = 1;
    for (const struct json *k = keys->child; k; k = k->next)
        read_key(&s->keys[s->n++], k);
    *out = s;
    return 0;
}

int jwks_parse(struct jwks **out, struct str text, struct err *e)
{
    struct json_limits limits = { .max_depth = 16, .max_nodes = 16384 };
    struct arena *a;
    struct json *set;
    int failed;

    if (text.n > JWKS_BYTES_MAX)
        return err_set(e, ERR_TOO_LARGE, "the key set has more than %d bytes", JWKS_BYTES_MAX);
    a = arena_new(8 * MB);
    if (!a)
        return err_set(e, ERR_MEMORY, "no memory for a key set");
    failed = json_parse(&set, text, a, &limits, e);
    if (failed && e->code == ERR_SYNTAX)
        e->code = ERR_INVALID;
    if (failed)
        err_wrap(e, "the key set");
    else
        failed = read_keys(out, set, e);
    arena_free(a);
    return failed;
}

struct jwks *jwks_ref(struct jwks *s)
{
    if (s)
        atomic_fetch_add_explicit(&s->n_refs, 1, memory_order_relaxed);
    return s;
}

void jwks_unref(struct jwks *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    for (int i = 0; i < s->n; i++)
        EVP_PKEY_free(s->keys[i].key);
    mem_free(s);
}

int jwks_count(const struct jwks *s)
{
    int n = 0;

    for (int i = 0; i < s->n; i++)
        n += s->keys[i].algorithms && s->keys[i].key;
    return n;
}

/* ---- verification */

/* r and s of 32 bytes each (RFC 7518, section 3.4) to DER. Returns its length; 0: not valid. */
static size_t ecdsa_to_der(struct str raw, uint8_t out[80])
{
    const uint8_t *p = (const uint8_t *)raw.p;
    BIGNUM *r, *s;
    ECDSA_SIG *sig;
    int n = 0;

    if (raw.n != 2 * COORDINATE_BYTES)
        return 0;
    sig = ECDSA_SIG_new();
    r = BN_bin2bn(p, COORDINATE_BYTES, NULL);
    s = BN_bin2bn(p + COORDINATE_BYTES, COORDINATE_BYTES, NULL);
    if (sig && r && s && ECDSA_SIG_set0(sig, r, s)) {
        r = s = NULL;
        n = i2d_ECDSA_SIG(sig, NULL);
        n = n > 0 && n <= 80 ? i2d_ECDSA_SIG(sig, &out) : 0;
    }
    BN_free(r);
    BN_free(s);
    ECDSA_SIG_free(sig);
    return n > 0 ? (size_t)n : 0;
}

static bool set_padding(EVP_PKEY_CTX *ctx, enum jwt_algorithm a)
{
    return a != JWT_PS256 || (EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_PSS_PADDING) > 0 &&
                                 EVP_PKEY_CTX_set_rsa_pss_saltlen(ctx, RSA_PSS_SALTLEN_DIGEST) > 0);
}

static bool is_valid(EVP_PKEY *key, const struct jwt_signature *t)
{
    const EVP_MD *md = t->algorithm == JWT_EDDSA ? NULL : EVP_sha256();
    uint8_t der[80];
    struct str signature = t->bytes;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY_CTX *key_ctx = NULL; /* belongs to ctx */
    bool is_good;

    if (t->algorithm == JWT_ES256)
        signature = (struct str){ (const char *)der, ecdsa_to_der(t->bytes, der) };
    is_good = ctx && signature.n && EVP_DigestVerifyInit(ctx, &key_ctx, md, NULL, key) > 0 &&
              set_padding(key_ctx, t->algorithm) &&
              EVP_DigestVerify(ctx, (const uint8_t *)signature.p, signature.n,
                  (const uint8_t *)t->text.p, t->text.n) == 1;
    EVP_MD_CTX_free(ctx);
    return is_good;
}

int jwks_verify(const struct jwks *s, const struct jwt_signature *t, struct err *e)
{
    const struct jwk *found = NULL;

    for (int i = 0; i < s->n; i++) {
        const struct jwk *k = &s->keys[i];
        if (!(k->algorithms & 1u << t->algorithm) ||
            (t->kid.p && !(k->has_kid && str_is(t->kid, k->kid))))
            continue;
        if (found)
            return err_set(e, ERR_AUTH, "Several keys of the issuer match the token.");
        found = k;
    }
    if (!found)
        return err_set(e, ERR_NOT_FOUND, "No key of the issuer matches the token.");
    if (!found->key || !is_valid(found->key, t))
        return err_set(e, ERR_AUTH, "The signature of the token is not valid.");
    return 0;
}
