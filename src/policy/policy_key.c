#include "policy/policy_key.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "policy/object_set.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdatomic.h>
#include <stdio.h>

const char *const policy_limit_names[N_POLICY_LIMITS] = {
#define X(name) #name,
    POLICY_LIMITS(X)
#undef X
};

static const struct {
    const char *name;
    unsigned scope;
} scopes[] = { { "generate", SCOPE_GENERATE }, { "read", SCOPE_READ }, { "admin", SCOPE_ADMIN } };

/* ---- life */

struct policy_key *policy_key_new(const uint8_t digest[POLICY_DIGEST_BYTES])
{
    struct policy_key *k = try_calloc(1, sizeof(*k));

    if (!k)
        return NULL;
    k->n_refs = 1;
    memcpy(k->digest, digest, POLICY_DIGEST_BYTES);
    for (int i = 0; i < KEY_ID_BYTES; i++)
        snprintf(k->id + 2 * i, 3, "%02x", digest[i]);
    k->scopes = SCOPE_READ | SCOPE_GENERATE;
    k->weight = 1;
    return k;
}

static void free_key(struct policy_key *k)
{
    mem_free(k->models);
    mem_free(k->networks);
    mem_free(k->roles);
    mem_free(k->role_models);
    mem_free(k->claims);
    mem_free(k);
}

/* False: no memory. */
static bool copy_text(char **out, const char *from)
{
    size_t n = from ? strlen(from) + 1 : 0;

    *out = n ? try_malloc(n) : NULL;
    if (*out)
        memcpy(*out, from, n);
    return *out || !n;
}

struct policy_key *policy_key_copy(const struct policy_key *from)
{
    struct policy_key *k = policy_key_new(from->digest);
    size_t n_networks = (size_t)from->n_networks * sizeof(*from->networks);

    if (!k)
        return NULL;
    memcpy(k->name, from->name, sizeof(k->name));
    memcpy(k->tenant, from->tenant, sizeof(k->tenant));
    memcpy(k->cache_group, from->cache_group, sizeof(k->cache_group));
    memcpy(k->limits, from->limits, sizeof(k->limits));
    k->scopes = from->scopes;
    k->created_at = from->created_at;
    k->expires_at = from->expires_at;
    k->weight = from->weight;
    k->max_priority = from->max_priority;
    k->version = from->version;
    k->owner = from->owner;
    k->role_scopes = from->role_scopes;
    memcpy(k->role_limits, from->role_limits, sizeof(k->role_limits));
    k->n_networks = from->n_networks;
    k->networks = n_networks ? try_malloc(n_networks) : NULL;
    if ((n_networks && !k->networks) || !copy_text(&k->models, from->models) ||
        !copy_text(&k->roles, from->roles) || !copy_text(&k->role_models, from->role_models) ||
        !copy_text(&k->claims, from->claims)) {
        free_key(k);
        return NULL;
    }
    if (n_networks)
        memcpy(k->networks, from->networks, n_networks);
    return k;
}

/* The count is the only member that changes in a shared key. */
static struct policy_key *counted(const struct policy_key *k)
{
    return (struct policy_key *)(uintptr_t)k;
}

const struct policy_key *policy_key_ref(const struct policy_key *k)
{
    if (k)
        atomic_fetch_add_explicit(&counted(k)->n_refs, 1, memory_order_relaxed);
    return k;
}

void policy_key_unref(const struct policy_key *k)
{
    if (k && atomic_fetch_sub_explicit(&counted(k)->n_refs, 1, memory_order_acq_rel) == 1)
        free_key(counted(k));
}

void policy_digest(uint8_t out[POLICY_DIGEST_BYTES], struct str secret)
{
    SHA256((const unsigned char *)secret.p, secret.n, out);
}

void policy_secret_new(char out[POLICY_SECRET_BYTES + 1])
{
    memcpy(out, "ifx_", 4);
    rng_hex(out + 4);
    rng_hex(out + 4 + RNG_HEX);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool policy_digest_read(uint8_t out[POLICY_DIGEST_BYTES], struct str text)
{
    if (text.n != 2 * POLICY_DIGEST_BYTES)
        return false;
    for (int i = 0; i < POLICY_DIGEST_BYTES; i++) {
        int high = hex_digit(text.p[2 * i]), low = hex_digit(text.p[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* ---- lists: items separated by tab characters */

bool policy_list_next(struct str *rest, struct str *item)
{
    if (!rest->n)
        return false;
    const char *tab = memchr(rest->p, '\t', rest->n);
    size_t n = tab ? (size_t)(tab - rest->p) : rest->n;
    *item = (struct str){ rest->p, n };
    *rest = str_skip(*rest, n + 1);
    return true;
}

/* UTF-8 without control characters, which the text form can contain at any place. */
static bool is_plain_text(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < ' ' || s.p[i] == 0x7f)
            return false;
    return utf8_valid(s) && (!s.n || (s.p[0] != ' ' && s.p[s.n - 1] != ' '));
}

static int shown(struct str s)
{
    return (int)MIN(s.n, (size_t)80);
}

/* ---- attributes */

static int read_i64(struct str text, int64_t *out, int64_t max, struct err *e)
{
    int64_t v = 0;

    if (text.n && (!str_to_i64(text, &v) || v < 0 || v > max))
        return err_set(e, ERR_RANGE, "'%.*s' is not a whole number from 0 to %lld", shown(text),
            text.p, (long long)max);
    *out = v;
    return 0;
}

static void write_i64(int64_t v, struct buf *out)
{
    if (v)
        buf_u64(out, (uint64_t)v);
}

static void write_name(const struct policy_key *k, struct buf *out)
{
    buf_putz(out, k->name);
}

static int read_name(struct policy_key *k, struct str text, struct err *e)
{
    if (text.n > POLICY_NAME_MAX || !is_plain_text(text))
        return err_set(e, ERR_INVALID,
            "a name has at most %d bytes of UTF-8 without control characters, and no space at "
            "the start or the end",
            POLICY_NAME_MAX);
    snprintf(k->name, sizeof(k->name), STR_FMT, STR_ARG(text));
    return 0;
}

static void write_scopes(const struct policy_key *k, struct buf *out)
{
    const char *separator = "";

    for (size_t i = 0; i < ARRAY_LEN(scopes); i++)
        if (k->scopes & scopes[i].scope) {
            buf_printf(out, "%s%s", separator, scopes[i].name);
            separator = "\t";
        }
    if (!k->scopes)
        buf_putz(out, "none"); /* no text is the default, which grants scopes */
}

static int read_scopes(struct policy_key *k, struct str text, struct err *e)
{
    bool is_none = str_is(text, "none");
    unsigned all = SCOPE_NONE;

    for (struct str item; !is_none && policy_list_next(&text, &item);) {
        size_t i = 0;
        while (i < ARRAY_LEN(scopes) && !str_is(item, scopes[i].name))
            i++;
        if (i == ARRAY_LEN(scopes))
            return err_set(
                e, ERR_INVALID, "'%.*s' is none of generate, read, admin", shown(item), item.p);
        all |= scopes[i].scope;
    }
    if (!all && !is_none)
        return err_set(e, ERR_INVALID, "a key needs at least one of generate, read, admin");
    k->scopes = all;
    return 0;
}

static void write_created(const struct policy_key *k, struct buf *out)
{
    write_i64(k->created_at, out);
}

static int read_created(struct policy_key *k, struct str text, struct err *e)
{
    return read_i64(text, &k->created_at, INT64_MAX, e);
}

static void write_expires(const struct policy_key *k, struct buf *out)
{
    write_i64(k->expires_at, out);
}

static int read_expires(struct policy_key *k, struct str text, struct err *e)
{
    return read_i64(text, &k->expires_at, INT64_MAX, e);
}

/* Names of tenants and cache groups. */
static int read_group_name(char out[KEY_GROUP_MAX + 1], struct str text, struct err *e)
{
    static const char characters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    bool is_good = text.n <= KEY_GROUP_MAX;

    for (size_t i = 0; is_good && i < text.n; i++)
        is_good = memchr(characters, text.p[i], sizeof(characters) - 1) != NULL;
    if (!is_good)
        return err_set(e, ERR_INVALID, "'%.*s' is not a name of at most %d letters, digits, . _ -",
            shown(text), text.p, KEY_GROUP_MAX);
    snprintf(out, KEY_GROUP_MAX + 1, STR_FMT, STR_ARG(text));
    return 0;
}

static void write_tenant(const struct policy_key *k, struct buf *out)
{
    buf_putz(out, k->tenant);
}

static int read_tenant(struct policy_key *k, struct str text, struct err *e)
{
    return read_group_name(k->tenant, text, e);
}

static void write_group(const struct policy_key *k, struct buf *out)
{
    buf_putz(out, k->cache_group);
}

static int read_group(struct policy_key *k, struct str text, struct err *e)
{
    return read_group_name(k->cache_group, text, e);
}

static void write_weight(const struct policy_key *k, struct buf *out)
{
    buf_printf(out, "%.9g", (double)k->weight);
}

static int read_weight(struct policy_key *k, struct str text, struct err *e)
{
    double v = 1;

    if (text.n && (!str_to_f64(text, &v) || !(v >= KEY_WEIGHT_MIN && v <= KEY_WEIGHT_MAX)))
        return err_set(e, ERR_RANGE, "'%.*s' is not a number from %g to %g", shown(text), text.p,
            (double)KEY_WEIGHT_MIN, (double)KEY_WEIGHT_MAX);
    k->weight = (float)v;
    return 0;
}

static void write_priority(const struct policy_key *k, struct buf *out)
{
    write_i64(k->max_priority, out);
}

static int read_priority(struct policy_key *k, struct str text, struct err *e)
{
    int64_t v;

    if (read_i64(text, &v, KEY_PRIORITY_MAX, e))
        return -1;
    k->max_priority = (int)v;
    return 0;
}

/* Replaces a list by a copy of the text; an empty one by NULL. */
static int set_text(char **list, struct str text, struct err *e)
{
    char *copy = text.n ? try_malloc(text.n + 1) : NULL;

    if (text.n && !copy)
        return err_set(e, ERR_MEMORY, "no memory for an API key");
    if (text.n) {
        memcpy(copy, text.p, text.n);
        copy[text.n] = '\0';
    }
    mem_free(*list);
    *list = copy;
    return 0;
}

static void write_models(const struct policy_key *k, struct buf *out)
{
    buf_putz(out, k->models ? k->models : "");
}

static int read_models(struct policy_key *k, struct str text, struct err *e)
{
    struct str rest = text;
    int n = 0;

    for (struct str item; policy_list_next(&rest, &item); n++)
        if (!item.n || item.n > POLICY_MODEL_NAME_MAX || !is_plain_text(item))
            return err_set(
                e, ERR_INVALID, "'%.*s' is not the name of a model", shown(item), item.p);
    if (n > POLICY_MODELS_MAX)
        return err_set(e, ERR_RANGE, "more than %d models", POLICY_MODELS_MAX);
    return set_text(&k->models, text, e);
}

static void write_roles(const struct policy_key *k, struct buf *out)
{
    buf_putz(out, k->roles ? k->roles : "");
}

static int read_roles(struct policy_key *k, struct str text, struct err *e)
{
    struct str rest = text;
    int n = 0;

    for (struct str item; policy_list_next(&rest, &item); n++)
        if (!policy_object_name_is_valid(item))
            return err_set(e, ERR_INVALID, "'%.*s' is not the name of a role", shown(item), item.p);
    if (n > POLICY_ROLES_MAX)
        return err_set(e, ERR_RANGE, "more than %d roles", POLICY_ROLES_MAX);
    return set_text(&k->roles, text, e);
}

static void write_networks(const struct policy_key *k, struct buf *out)
{
    for (int i = 0; i < k->n_networks; i++) {
        if (i)
            buf_putc(out, '\t');
        network_write(&k->networks[i], out);
    }
}

static int read_networks(struct policy_key *k, struct str text, struct err *e)
{
    struct network all[POLICY_NETWORKS_MAX], *networks = NULL;
    int n = 0;

    for (struct str item; policy_list_next(&text, &item); n++) {
        if (n == POLICY_NETWORKS_MAX)
            return err_set(e, ERR_RANGE, "more than %d networks", POLICY_NETWORKS_MAX);
        if (network_parse(&all[n], item, e))
            return -1;
    }
    if (n) {
        networks = try_malloc((size_t)n * sizeof(*networks));
        if (!networks)
            return err_set(e, ERR_MEMORY, "no memory for an API key");
        memcpy(networks, all, (size_t)n * sizeof(*networks));
    }
    mem_free(k->networks);
    k->networks = networks;
    k->n_networks = n;
    return 0;
}

static void write_limits(const struct policy_key *k, struct buf *out)
{
    const char *separator = "";

    for (int i = 0; i < N_POLICY_LIMITS; i++)
        if (k->limits[i]) {
            buf_printf(out, "%s%s=%lld", separator, policy_limit_names[i], (long long)k->limits[i]);
            separator = "\t";
        }
}

static int read_limits(struct policy_key *k, struct str text, struct err *e)
{
    int64_t limits[N_POLICY_LIMITS] = { 0 };

    for (struct str item; policy_list_next(&text, &item);) {
        ptrdiff_t is = str_find(item, STR("="));
        struct str name = { item.p, is < 0 ? item.n : (size_t)is };
        int i = 0;
        while (i < N_POLICY_LIMITS && !str_is(name, policy_limit_names[i]))
            i++;
        if (i == N_POLICY_LIMITS)
            return err_set(e, ERR_INVALID, "there is no limit '%.*s'", shown(name), name.p);
        if (is < 0 || !str_to_i64(str_skip(item, (size_t)is + 1), &limits[i]) || limits[i] < 1)
            return err_set(
                e, ERR_RANGE, "%s must be a whole number of at least 1", policy_limit_names[i]);
    }
    memcpy(k->limits, limits, sizeof(limits));
    return 0;
}

/* Version of the policy that set the attributes. */
static void write_version(const struct policy_key *k, struct buf *out)
{
    buf_u64(out, k->version);
}

static int read_version(struct policy_key *k, struct str text, struct err *e)
{
    return str_to_u64(text, &k->version)
               ? 0
               : err_set(e, ERR_INVALID, "'%.*s' is not a version", shown(text), text.p);
}

const struct policy_attribute policy_attributes[N_POLICY_ATTRIBUTES] = {
    { "version", write_version, read_version, ATTRIBUTE_NUMBER, true },
    { "created_at", write_created, read_created, ATTRIBUTE_TIME, true },
    { "name", write_name, read_name, ATTRIBUTE_TEXT, false },
    { "scopes", write_scopes, read_scopes, ATTRIBUTE_LIST, false },
    { "expires_at", write_expires, read_expires, ATTRIBUTE_TIME, false },
    { "tenant", write_tenant, read_tenant, ATTRIBUTE_TEXT, false },
    { "cache_group", write_group, read_group, ATTRIBUTE_TEXT, false },
    { "weight", write_weight, read_weight, ATTRIBUTE_NUMBER, false },
    { "priority", write_priority, read_priority, ATTRIBUTE_NUMBER, false },
    { "models", write_models, read_models, ATTRIBUTE_LIST, false },
    { "networks", write_networks, read_networks, ATTRIBUTE_LIST, false },
    { "limits", write_limits, read_limits, ATTRIBUTE_LIMITS, false },
    { "roles", write_roles, read_roles, ATTRIBUTE_LIST, false },
};

const struct policy_attribute *policy_attribute_find(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(policy_attributes); i++)
        if (str_is(name, policy_attributes[i].name))
            return &policy_attributes[i];
    return NULL;
}

int policy_key_set(
    struct policy_key *k, const struct policy_attribute *a, struct str text, struct err *e)
{
    struct err why;

    if (!a->read(k, text, &why))
        return 0;
    return err_param(e, why.code, a->name, "%s: %s", a->name, why.msg);
}

/* ---- use */

/* list: NULL = all. */
static bool has_model(const char *list, const char *model)
{
    struct str rest = str_of(list);

    for (struct str item; policy_list_next(&rest, &item);)
        if (str_is(item, model))
            return true;
    return !list;
}

bool policy_key_allows_model(const struct policy_key *k, const char *model)
{
    return has_model(k->models, model) && has_model(k->role_models, model);
}

bool policy_key_allows_address(const struct policy_key *k, struct str address)
{
    for (int i = 0; i < k->n_networks; i++)
        if (network_contains(&k->networks[i], address))
            return true;
    return !k->n_networks;
}

void policy_key_caller(const struct policy_key *k, struct caller *out)
{
    *out = (struct caller){ .scopes = policy_key_scopes(k),
        .weight = k->weight,
        .number = k->owner,
        .max_priority = k->max_priority };
    memcpy(out->id, k->id, sizeof(out->id));
    memcpy(out->tenant, k->tenant, sizeof(out->tenant));
    memcpy(out->group, k->cache_group, sizeof(out->group));
}
