#include "auth/jwt.h"

#include "base/base64.h"

enum { HEADER, CLAIMS, SIGNATURE, N_PARTS };

struct parts {
    struct str text[N_PARTS];
    struct str signed_text;
};

/* ---- parts */

static bool split(struct str token, struct parts *out)
{
    const char *first = token.n ? memchr(token.p, '.', token.n) : NULL;
    const char *second =
        first ? memchr(first + 1, '.', token.n - (size_t)(first + 1 - token.p)) : 0;

    if (!second)
        return false;
    out->text[HEADER] = (struct str){ token.p, (size_t)(first - token.p) };
    out->text[CLAIMS] = (struct str){ first + 1, (size_t)(second - first - 1) };
    out->text[SIGNATURE] = str_skip(token, (size_t)(second + 1 - token.p));
    out->signed_text = (struct str){ token.p, (size_t)(second - token.p) };
    return !memchr(second + 1, '.', out->text[SIGNATURE].n);
}

bool jwt_has_form(struct str text)
{
    struct parts parts;

    return split(text, &parts);
}

static int decode(struct str *out, struct str part, struct arena *a, struct err *e)
{
    char *bytes = arena_alloc(a, part.n / 4 * 3 + 2);
    ptrdiff_t n;

    if (!bytes)
        return err_set(e, ERR_MEMORY, "no memory for a token");
    n = base64url_decode(bytes, part);
    if (n < 0)
        return err_set(e, ERR_AUTH, "The token is not encoded as base64url.");
    *out = (struct str){ bytes, (size_t)n };
    return 0;
}

static int decode_object(
    const struct json **out, struct str part, struct arena *a, const char *name, struct err *e)
{
    struct json_limits limits = { .max_depth = 32, .max_nodes = 4096 };
    struct json *j;
    struct str text;

    if (decode(&text, part, a, e))
        return -1;
    if (json_parse(&j, text, a, &limits, e))
        return e->code == ERR_MEMORY
                   ? -1
                   : err_set(e, ERR_AUTH, "The %s of the token is not JSON.", name);
    if (j->kind != JSON_OBJECT)
        return err_set(e, ERR_AUTH, "The %s of the token is not a JSON object.", name);
    *out = j;
    return 0;
}

/* ---- header */

static int read_header(
    struct jwt_signature *out, const struct json *header, unsigned allowed, struct err *e)
{
    const struct json *alg = json_get(header, "alg"), *kid = json_get(header, "kid");
    int algorithm = alg && alg->kind == JSON_STRING ? jwt_algorithm_of(alg->s) : -1;

    if (algorithm < 0 || !(allowed & 1u << algorithm))
        return err_set(e, ERR_AUTH, "The algorithm of the token is not allowed.");
    if (json_get(header, "crit"))
        return err_set(e, ERR_AUTH, "The token needs extensions (crit) that are not supported.");
    if (kid && kid->kind != JSON_STRING)
        return err_set(e, ERR_AUTH, "The kid of the token is not a string.");
    out->algorithm = (enum jwt_algorithm)algorithm;
    out->kid = kid ? kid->s : STR_NONE;
    if (kid && !kid->s.n)
        out->kid = STR(""); /* an empty id differs from none */
    return 0;
}

/* ---- claims */

static bool is_string(const struct json *j, struct str text)
{
    return j && j->kind == JSON_STRING && str_eq(j->s, text);
}

static bool has_audience(const struct json *aud, struct str audience)
{
    if (!aud || aud->kind != JSON_ARRAY)
        return is_string(aud, audience);
    for (const struct json *j = aud->child; j; j = j->next)
        if (is_string(j, audience))
            return true;
    return false;
}

/* NumericDate of a claim (RFC 7519, section 2). *out is unchanged if the claim is absent. */
static int read_time(const struct json *claims, const char *name, double *out, struct err *e)
{
    const struct json *j = json_get(claims, name);

    if (j && (j->kind != JSON_NUMBER || !json_f64(j, out)))
        return err_set(e, ERR_AUTH, "The claim %s of the token is not a number.", name);
    return 0;
}

static int check_times(struct jwt *out, const struct jwt_rules *r, struct err *e)
{
    const double never = (double)(INT64_C(1) << 53);
    double exp = -1, nbf = -never, iat = 0, now = (double)r->now_s, skew = (double)r->skew_s;

    if (read_time(out->claims, "exp", &exp, e) || read_time(out->claims, "nbf", &nbf, e) ||
        read_time(out->claims, "iat", &iat, e))
        return -1;
    if (!json_get(out->claims, "exp"))
        return err_set(e, ERR_AUTH, "The token has no claim exp.");
    if (!(exp > now - skew))
        return err_set(e, ERR_AUTH, "The token has expired.");
    if (!(nbf <= now + skew))
        return err_set(e, ERR_AUTH, "The token is not valid yet (nbf).");
    out->expires_at = (int64_t)MIN(exp, never) + r->skew_s;
    return 0;
}

static int check_claims(struct jwt *out, const struct jwt_rules *r, struct err *e)
{
    const struct json *sub = json_get(out->claims, "sub");

    if (!is_string(json_get(out->claims, "iss"), r->issuer))
        return err_set(e, ERR_AUTH, "The token is from another issuer (iss).");
    if (!has_audience(json_get(out->claims, "aud"), r->audience))
        return err_set(e, ERR_AUTH, "The token is for another audience (aud).");
    if (!sub || sub->kind != JSON_STRING || !sub->s.n)
        return err_set(e, ERR_AUTH, "The token names no subject (sub).");
    out->subject = sub->s;
    return check_times(out, r, e);
}

int jwt_verify(struct jwt *out, struct str token, const struct jwks *keys,
    const struct jwt_rules *rules, struct arena *a, struct err *e)
{
    struct jwt_signature signature;
    const struct json *header;
    struct parts parts;

    if (token.n > JWT_BYTES_MAX)
        return err_set(e, ERR_AUTH, "The token has more than %d bytes.", JWT_BYTES_MAX);
    if (!split(token, &parts))
        return err_set(e, ERR_AUTH, "The token does not have three parts.");
    signature.text = parts.signed_text;
    if (decode_object(&header, parts.text[HEADER], a, "header", e) ||
        read_header(&signature, header, rules->algorithms, e) ||
        decode(&signature.bytes, parts.text[SIGNATURE], a, e))
        return -1;
    if (!keys)
        return err_set(e, ERR_NOT_FOUND, "The keys of the issuer are not known.");
    if (jwks_verify(keys, &signature, e) ||
        decode_object(&out->claims, parts.text[CLAIMS], a, "claims", e))
        return -1;
    return check_claims(out, rules, e);
}
