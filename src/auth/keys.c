#include "auth/keys.h"
#include "base/mem.h"
#include "os/files.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct key {
    unsigned char hash[SHA256_DIGEST_LENGTH];
    unsigned scopes;
    char group[KEY_GROUP_MAX + 1];
    _Atomic float weight;
    int max_priority;
};

struct keys {
    int n;
    struct key keys[KEYS_MAX];
};

static int read_group(struct key *key, struct str name, struct err *e)
{
    static const char characters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    if (*key->group || name.n < 1 || name.n > KEY_GROUP_MAX)
        return err_set(e, ERR_INVALID, "bad group");
    for (size_t i = 0; i < name.n; i++)
        if (!memchr(characters, name.p[i], sizeof(characters) - 1))
            return err_set(e, ERR_INVALID, "bad group");
    memcpy(key->group, name.p, name.n);
    return 0;
}

static int read_weight(struct key *key, struct str text, struct err *e)
{
    double v;

    if (!str_to_f64(text, &v) || !(v >= KEY_WEIGHT_MIN && v <= KEY_WEIGHT_MAX))
        return err_set(e, ERR_INVALID, "bad weight");
    key->weight = (float)v;
    return 0;
}

static int read_priority(struct key *key, struct str text, struct err *e)
{
    uint64_t v;

    if (!str_to_u64(text, &v) || v > KEY_PRIORITY_MAX)
        return err_set(e, ERR_INVALID, "bad priority");
    key->max_priority = (int)v;
    return 0;
}

/* Parses the suffixes of an entry, from its end; afterwards *item is the key alone. */
static int read_suffixes(struct key *key, struct str *item, struct err *e)
{
    static const struct {
        const char *name;
        int (*read)(struct key *key, struct str text, struct err *e);
    } suffixes[] = {
        { ":group=", read_group },
        { ":weight=", read_weight },
        { ":priority=", read_priority },
    };
    const struct str admin = STR(":admin");

    for (;;) {
        const char *colon = item->n ? memrchr(item->p, ':', item->n) : NULL;
        size_t n = colon ? (size_t)(colon - item->p) : item->n;
        struct str suffix = str_skip(*item, n);
        size_t i = 0;
        while (i < ARRAY_LEN(suffixes) && !str_starts(suffix, str_of(suffixes[i].name)))
            i++;
        if (str_eq(suffix, admin))
            key->scopes |= SCOPE_ADMIN;
        else if (i == ARRAY_LEN(suffixes))
            return 0;
        else if (suffixes[i].read(key, str_skip(suffix, strlen(suffixes[i].name)), e))
            return -1;
        item->n = n;
    }
}

static int add_key(struct keys *k, struct str item, struct err *e)
{
    struct key key = { .scopes = SCOPE_READ | SCOPE_GENERATE, .weight = 1 };

    if (read_suffixes(&key, &item, e))
        return -1;
    if (!item.n)
        return err_set(e, ERR_INVALID, "empty");
    for (size_t i = 0; i < item.n; i++)
        if (item.p[i] <= ' ' || item.p[i] > '~')
            return err_set(e, ERR_INVALID, "a blank or a control character");
    if (memchr(item.p, ',', item.n)) /* in a file: probably a list in one line */
        return err_set(e, ERR_INVALID, "a comma");
    if (k->n == KEYS_MAX)
        return err_set(e, ERR_RANGE, "more than %d keys", KEYS_MAX);
    SHA256((const unsigned char *)item.p, item.n, key.hash);
    for (int i = 0; i < k->n; i++)
        if (!memcmp(k->keys[i].hash, key.hash, sizeof(key.hash)))
            return err_set(e, ERR_INVALID, "the same key as key %d", i + 1);
    k->keys[k->n++] = key;
    return 0;
}

int keys_open(struct keys **out, const char *list, struct err *e)
{
    struct keys *k = xcalloc(1, sizeof(*k));
    struct str rest = str_trim(str_of(list));

    for (int position = 1; rest.n; position++) {
        ptrdiff_t comma = str_find(rest, STR(","));
        size_t n = comma < 0 ? rest.n : (size_t)comma;
        if (add_key(k, str_trim((struct str){ rest.p, n }), e)) {
            keys_close(k);
            return err_wrap(e, "api keys: entry %d", position);
        }
        rest = str_skip(rest, n + 1);
    }
    *out = k;
    return 0;
}

static int add_lines(struct keys *k, struct str rest, const char *path, struct err *e)
{
    for (int number = 1; rest.n; number++) {
        ptrdiff_t newline = str_find(rest, STR("\n"));
        size_t n = newline < 0 ? rest.n : (size_t)newline;
        struct str line = str_trim((struct str){ rest.p, n });
        if (line.n && *line.p != '#' && add_key(k, line, e))
            return err_wrap(e, "api keys: %s:%d", path, number);
        rest = str_skip(rest, n + 1);
    }
    return 0;
}

int keys_add_file(struct keys *k, const char *path, struct err *e)
{
    struct stat st;
    char *text = NULL;
    int failed = -1, fd;

    if (file_open_regular(path, O_RDONLY, &fd, e))
        return err_wrap(e, "api keys");
    if (fstat(fd, &st) || st.st_size < 0)
        err_set(e, ERR_IO, "api keys: %s: %s", path, strerror(errno));
    else if (st.st_size > KEY_FILE_BYTES_MAX)
        err_set(e, ERR_TOO_LARGE, "api keys: %s: more than %d bytes", path, KEY_FILE_BYTES_MAX);
    else if (!(text = try_malloc((size_t)st.st_size + 1)))
        err_set(e, ERR_MEMORY, "api keys: %s: no memory", path);
    else if (file_read(fd, text, (size_t)st.st_size, 0))
        err_set(e, ERR_IO, "api keys: %s: %s", path, strerror(errno));
    else
        failed = add_lines(k, (struct str){ text, (size_t)st.st_size }, path, e);
    if (text)
        OPENSSL_cleanse(text, (size_t)st.st_size);
    mem_free(text);
    close(fd);
    return failed;
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

static void describe(const struct key *key, struct caller *out)
{
    *out->tenant = '\0';
    out->scopes = key->scopes;
    out->weight = key->weight;
    out->max_priority = key->max_priority;
    memcpy(out->group, key->group, sizeof(out->group));
    for (int i = 0; i < KEY_ID_BYTES; i++)
        snprintf(out->id + 2 * i, 3, "%02x", key->hash[i]);
}

void keys_at(const struct keys *k, int i, struct caller *out)
{
    CHECK(i >= 0 && i < k->n);
    describe(&k->keys[i], out);
    out->number = i + 1;
}

const uint8_t *keys_hash(const struct keys *k, int i)
{
    CHECK(i >= 0 && i < k->n);
    return k->keys[i].hash;
}

int keys_index(const struct keys *k, struct str id)
{
    struct caller c;

    for (int i = 0; i < k->n; i++) {
        describe(&k->keys[i], &c);
        if (str_is(id, c.id))
            return i;
    }
    return -1;
}

void keys_set_weight(struct keys *k, int i, float weight)
{
    CHECK(i >= 0 && i < k->n && weight >= KEY_WEIGHT_MIN && weight <= KEY_WEIGHT_MAX);
    k->keys[i].weight = weight;
}

/* Never returns 0. */
static uint64_t hash_to_number(const char *text)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    uint64_t n;

    SHA256((const unsigned char *)text, strlen(text), hash);
    memcpy(&n, hash, sizeof(n));
    return n ? n : 1;
}

/* Names contain '=', so they cannot equal the id of a key, which is hex. */
static uint64_t name_to_number(const char *kind, const char *name)
{
    char text[KEY_GROUP_MAX + 16];

    snprintf(text, sizeof(text), "%s=%s", kind, name);
    return hash_to_number(text);
}

uint64_t caller_tenant(const struct caller *c)
{
    if (*c->tenant)
        return name_to_number("tenant", c->tenant);
    return *c->id ? hash_to_number(c->id) : 0;
}

uint64_t caller_cache_group(const struct caller *c)
{
    return *c->group ? name_to_number("group", c->group) : caller_tenant(c);
}

struct str keys_from_fields(struct str authorization, struct str x_api_key)
{
    struct str scheme = { authorization.p, MIN(authorization.n, (size_t)7) };

    if (authorization.p && str_eq_nocase(scheme, STR("bearer ")))
        return str_trim(str_skip(authorization, 7));
    return x_api_key.p ? str_trim(x_api_key) : STR_NONE;
}
