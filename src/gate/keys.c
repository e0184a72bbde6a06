#include "gate/keys.h"
#include "base/mem.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>

struct key {
    unsigned char hash[SHA256_DIGEST_LENGTH];
    unsigned scopes;
};

struct keys {
    int n;
    struct key keys[KEYS_MAX];
};

static int add(struct keys *k, struct str item, int place, struct err *e)
{
    unsigned scopes = SCOPE_READ | SCOPE_GENERATE;

    if (str_ends(item, STR(":admin"))) {
        scopes |= SCOPE_ADMIN;
        item.n -= strlen(":admin");
    }
    if (!item.n)
        return err_set(e, ERR_INVALID, "api keys: entry %d is empty", place);
    for (size_t i = 0; i < item.n; i++)
        if (item.p[i] <= ' ' || item.p[i] > '~')
            return err_set(
                e, ERR_INVALID, "api keys: entry %d has a blank or a control character", place);
    if (k->n == KEYS_MAX)
        return err_set(e, ERR_RANGE, "api keys: more than %d", KEYS_MAX);
    SHA256((const unsigned char *)item.p, item.n, k->keys[k->n].hash);
    k->keys[k->n++].scopes = scopes;
    return 0;
}

int keys_open(struct keys **out, const char *list, struct err *e)
{
    struct keys *k = xcalloc(1, sizeof(*k));
    struct str rest = str_trim(str_of(list));

    for (int place = 1; rest.n; place++) {
        ptrdiff_t comma = str_find(rest, STR(","));
        size_t n = comma < 0 ? rest.n : (size_t)comma;
        if (add(k, str_trim((struct str){ rest.p, n }), place, e)) {
            keys_close(k);
            return -1;
        }
        rest = str_skip(rest, n + 1);
    }
    *out = k;
    return 0;
}

void keys_close(struct keys *k)
{
    if (!k)
        return;
    OPENSSL_cleanse(k, sizeof(*k));
    mem_free(k);
}

int keys_count(const struct keys *k)
{
    return k->n;
}

bool keys_find(const struct keys *k, struct str key, struct caller *out)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    const struct key *found = NULL;

    if (!key.n)
        return false;
    SHA256((const unsigned char *)key.p, key.n, hash);
    /* All are compared, so that the time does not tell which one was near. */
    for (int i = 0; i < k->n; i++)
        if (!CRYPTO_memcmp(k->keys[i].hash, hash, sizeof(hash)))
            found = &k->keys[i];
    if (!found)
        return false;
    out->scopes = found->scopes;
    for (int i = 0; i < KEY_ID_BYTES; i++)
        snprintf(out->id + 2 * i, 3, "%02x", hash[i]);
    return true;
}

uint64_t caller_tenant(const struct caller *c)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    uint64_t tenant;

    if (!*c->id)
        return 0;
    SHA256((const unsigned char *)c->id, strlen(c->id), hash);
    memcpy(&tenant, hash, sizeof(tenant));
    return tenant ? tenant : 1;
}

struct str keys_from_fields(struct str authorization, struct str x_api_key)
{
    struct str scheme = { authorization.p, MIN(authorization.n, (size_t)7) };

    if (authorization.p && str_eq_nocase(scheme, STR("bearer ")))
        return str_trim(str_skip(authorization, 7));
    return x_api_key.p ? str_trim(x_api_key) : STR_NONE;
}
