#include "policy/token_keys.h"

#include "base/mem.h"

#include <openssl/sha.h>
#include <stdio.h>

enum { CACHE_SLOTS = 1024, CACHE_WAYS = 4 }; /* a power of two; slots that a token may use */

struct cached {
    uint8_t digest[POLICY_DIGEST_BYTES]; /* digest of the token */
    const struct policy_key *key;        /* NULL: empty */
};

struct token_keys {
    const struct token_rules *rules;
    struct jwks *keys;
    const struct role_set *roles;
    uint64_t number;
    unsigned next_way; /* way of the entry that is replaced next */
    struct cached cache[CACHE_SLOTS];
};

/* ---- rules */

static bool next_item(struct str *rest, struct str *item)
{
    ptrdiff_t comma;

    if (!rest->n)
        return false;
    comma = str_find(*rest, STR(","));
    *item = str_trim((struct str){ rest->p, comma < 0 ? rest->n : (size_t)comma });
    *rest = str_skip(*rest, comma < 0 ? rest->n : (size_t)comma + 1);
    return true;
}

static int read_algorithms(unsigned *out, const char *list, struct err *e)
{
    struct str rest = str_of(list);

    *out = 0;
    for (struct str item; next_item(&rest, &item);) {
        int a = jwt_algorithm_of(item);
        if (a < 0)
            return err_set(e, ERR_INVALID,
                "auth.oidc.algorithms: '%.40s' is none of RS256, PS256, ES256, EdDSA",
                item.n ? item.p : "");
        *out |= 1u << a;
    }
    return *out ? 0 : err_set(e, ERR_INVALID, "auth.oidc.algorithms is empty");
}

static unsigned scope_of(struct str name)
{
    return str_is(name, "read")       ? SCOPE_READ
           : str_is(name, "generate") ? SCOPE_GENERATE
           : str_is(name, "admin")    ? SCOPE_ADMIN
                                      : SCOPE_NONE;
}

static int read_scope_values(struct token_rules *out, const char *list, struct err *e)
{
    struct str rest = str_of(list);

    for (struct str item; next_item(&rest, &item); out->n_values++) {
        ptrdiff_t is = str_find(item, STR("="));
        struct str name = { item.p, is < 0 ? 0 : (size_t)is };
        struct str value = is < 0 ? STR_NONE : str_skip(item, (size_t)is + 1);
        unsigned scope = scope_of(name);
        if (!scope || !value.n)
            return err_set(e, ERR_INVALID,
                "auth.oidc.scopes: '%.*s' is not SCOPE=VALUE with read, generate or admin",
                (int)MIN(item.n, (size_t)80), item.p);
        if (out->n_values == TOKEN_SCOPE_VALUES_MAX)
            return err_set(e, ERR_INVALID, "auth.oidc.scopes has more than %d entries",
                TOKEN_SCOPE_VALUES_MAX);
        out->values[out->n_values].scope = scope;
        out->values[out->n_values].value = value;
    }
    return 0;
}

int token_rules_read(struct token_rules *out, const struct token_options *o, struct err *e)
{
    *out = (struct token_rules){ .jwt = { .issuer = str_of(o->issuer),
                                     .audience = str_of(o->audience),
                                     .skew_s = o->skew_s },
        .scopes_claim = str_of(o->scopes_claim),
        .tenant_claim = str_of(o->tenant_claim) };
    if (!*o->audience)
        return err_set(e, ERR_INVALID, "auth.oidc.issuer is set, and auth.oidc.audience is not");
    if (read_algorithms(&out->jwt.algorithms, o->algorithms, e))
        return -1;
    return read_scope_values(out, o->scopes, e);
}

/* ---- claims */

static const struct json *member(const struct json *object, struct str name)
{
    const struct json *found = NULL;

    if (!object || object->kind != JSON_OBJECT)
        return NULL;
    for (const struct json *j = object->child; j; j = j->next)
        if (str_eq(j->key, name))
            found = j;
    return found;
}

/* The claim with this name, which may contain dots; else the path that the dots separate. */
static const struct json *find_claim(const struct json *claims, struct str name)
{
    const struct json *whole = member(claims, name);

    while (!whole && claims) {
        ptrdiff_t dot = str_find(name, STR("."));
        claims = member(claims, (struct str){ name.p, dot < 0 ? name.n : (size_t)dot });
        if (dot < 0)
            return claims;
        name = str_skip(name, (size_t)dot + 1);
    }
    return whole;
}

static unsigned scopes_of_value(const struct token_rules *r, struct str value)
{
    unsigned scopes = SCOPE_NONE;

    for (int i = 0; i < r->n_values; i++)
        if (str_eq(r->values[i].value, value))
            scopes |= r->values[i].scope;
    return scopes;
}

static unsigned scopes_of_claims(const struct token_rules *r, const struct json *claims)
{
    const struct json *claim = find_claim(claims, r->scopes_claim);
    unsigned scopes = SCOPE_NONE;

    if (claim && claim->kind == JSON_ARRAY)
        for (const struct json *j = claim->child; j; j = j->next)
            scopes |= j->kind == JSON_STRING ? scopes_of_value(r, j->s) : SCOPE_NONE;
    if (!claim || claim->kind != JSON_STRING)
        return scopes;
    for (struct str rest = claim->s; rest.n;) {
        ptrdiff_t space = str_find(rest, STR(" "));
        size_t n = space < 0 ? rest.n : (size_t)space;
        scopes |= scopes_of_value(r, (struct str){ rest.p, n });
        rest = str_skip(rest, n + 1);
    }
    return scopes;
}

/* A value that is no name of a tenant, such as a UUID, is represented by its hash. */
static int set_tenant(
    struct policy_key *k, const struct token_rules *r, const struct json *claims, struct err *e)
{
    const struct json *claim = r->tenant_claim.n ? find_claim(claims, r->tenant_claim) : NULL;
    uint8_t digest[SHA256_DIGEST_LENGTH];
    struct err ignored;

    if (!r->tenant_claim.n)
        return 0;
    if (!claim || claim->kind != JSON_STRING || !claim->s.n)
        return err_set(e, ERR_AUTH, "The token has no claim " STR_FMT " with the tenant.",
            STR_ARG(r->tenant_claim));
    if (!policy_key_set(k, policy_attribute_find(STR("tenant")), claim->s, &ignored))
        return 0;
    SHA256((const unsigned char *)claim->s.p, claim->s.n, digest);
    snprintf(k->tenant, sizeof(k->tenant), "oidc-");
    for (int i = 0; i < 12; i++)
        snprintf(k->tenant + 5 + 2 * i, 3, "%02x", digest[i]);
    return 0;
}

static bool has_value(const struct json *claim, struct str value)
{
    if (!claim || (claim->kind != JSON_ARRAY && claim->kind != JSON_STRING))
        return false;
    if (claim->kind == JSON_STRING)
        return str_eq(claim->s, value);
    for (const struct json *j = claim->child; j; j = j->next)
        if (j->kind == JSON_STRING && str_eq(j->s, value))
            return true;
    return false;
}

static bool has_role(const struct policy_role *role, const struct json *claims)
{
    struct str rest = str_of(role->claims);

    for (struct str item; policy_list_next(&rest, &item);) {
        size_t is = (size_t)str_find(item, STR("="));
        if (has_value(find_claim(claims, (struct str){ item.p, is }), str_skip(item, is + 1)))
            return true;
    }
    return false;
}

/* Gives the key the roles whose claims the token has, at most POLICY_ROLES_MAX. */
static int set_roles(
    struct policy_key *k, const struct role_set *roles, const struct json *claims, struct err *e)
{
    struct buf names;
    int n = 0;

    buf_init(&names, (size_t)POLICY_ROLES_MAX * (OBJECT_NAME_MAX + 1));
    for (int i = 0; i < role_set_count(roles) && n < POLICY_ROLES_MAX; i++)
        if (has_role(role_set_at(roles, i), claims))
            buf_printf(&names, "%s%s", n++ ? "\t" : "", role_set_at(roles, i)->name);
    int failed = !buf_ok(&names)
                     ? err_set(e, ERR_MEMORY, "no memory for a token")
                     : policy_key_set(k, policy_attribute_find(STR("roles")), buf_str(&names), e);
    buf_clear(&names);
    return failed || role_set_apply(roles, k, e) ? -1 : 0;
}

/* A session of a browser stores the claims (logins.h). */
static int keep_claims(struct policy_key *k, const struct json *claims, struct err *e)
{
    k->claims = try_malloc(claims->raw.n + 1);
    if (!k->claims)
        return err_set(e, ERR_MEMORY, "no memory for a token");
    memcpy(k->claims, claims->raw.p, claims->raw.n);
    k->claims[claims->raw.n] = '\0';
    return 0;
}

static uint32_t hash_of(const char *text)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    uint32_t h;

    SHA256((const unsigned char *)text, strlen(text), digest);
    memcpy(&h, digest, sizeof(h));
    return h;
}

void token_rules_digest(
    uint8_t out[POLICY_DIGEST_BYTES], const struct token_rules *r, struct str subject)
{
    uint8_t both[2 * POLICY_DIGEST_BYTES];

    policy_digest(both, r->jwt.issuer);
    policy_digest(both + POLICY_DIGEST_BYTES, subject);
    policy_digest(out, (struct str){ (const char *)both, sizeof(both) });
}

struct policy_key *token_rules_key(
    const struct token_rules *r, const struct role_set *roles, const struct jwt *jwt, struct err *e)
{
    uint8_t digest[POLICY_DIGEST_BYTES];
    struct policy_key *k;
    struct err ignored;

    token_rules_digest(digest, r, jwt->subject);
    k = policy_key_new(digest);
    if (!k) {
        err_set(e, ERR_MEMORY, "no memory for a token");
        return NULL;
    }
    k->is_token = true;
    k->expires_at = jwt->expires_at;
    k->scopes = scopes_of_claims(r, jwt->claims);
    if (policy_key_set(k, policy_attribute_find(STR("name")), jwt->subject, &ignored))
        *k->name = '\0'; /* for display only */
    if (set_tenant(k, r, jwt->claims, e) || set_roles(k, roles, jwt->claims, e) ||
        keep_claims(k, jwt->claims, e)) {
        policy_key_unref(k);
        return NULL;
    }
    k->owner = POLICY_KEYS_MAX + 1 +
               (int)(hash_of(*k->tenant ? k->tenant : k->id) % (uint32_t)TOKEN_OWNERS);
    return k;
}

/* ---- cache */

static void clear_cache(struct token_keys *t)
{
    for (int i = 0; i < CACHE_SLOTS; i++) {
        policy_key_unref(t->cache[i].key);
        t->cache[i].key = NULL;
    }
}

struct token_keys *token_keys_new(const struct token_rules *rules)
{
    struct token_keys *t = xcalloc(1, sizeof(*t));

    t->rules = rules;
    return t;
}

void token_keys_free(struct token_keys *t)
{
    if (!t)
        return;
    clear_cache(t);
    jwks_unref(t->keys);
    role_set_unref(t->roles);
    mem_free(t);
}

void token_keys_set(struct token_keys *t, struct jwks *keys, uint64_t number)
{
    t->number = number;
    if (keys == t->keys)
        return;
    clear_cache(t);
    jwks_unref(t->keys);
    t->keys = jwks_ref(keys);
}

void token_keys_set_roles(struct token_keys *t, const struct role_set *roles)
{
    if (roles == t->roles)
        return;
    clear_cache(t);
    role_set_unref(t->roles);
    t->roles = role_set_ref(roles);
}

uint64_t token_keys_number(const struct token_keys *t)
{
    return t->number;
}

bool token_keys_has_set(const struct token_keys *t)
{
    return t->keys != NULL;
}

static struct cached *set_of(struct token_keys *t, const uint8_t digest[POLICY_DIGEST_BYTES])
{
    uint32_t h;

    memcpy(&h, digest, sizeof(h));
    return &t->cache[h % (CACHE_SLOTS / CACHE_WAYS) * CACHE_WAYS];
}

static const struct policy_key *find_cached(
    struct token_keys *t, const uint8_t digest[POLICY_DIGEST_BYTES])
{
    struct cached *set = set_of(t, digest);

    for (int i = 0; i < CACHE_WAYS; i++)
        if (set[i].key && !memcmp(set[i].digest, digest, POLICY_DIGEST_BYTES))
            return set[i].key;
    return NULL;
}

static void add_cached(
    struct token_keys *t, const uint8_t digest[POLICY_DIGEST_BYTES], const struct policy_key *take)
{
    struct cached *slot = &set_of(t, digest)[t->next_way++ % CACHE_WAYS];

    policy_key_unref(slot->key);
    memcpy(slot->digest, digest, POLICY_DIGEST_BYTES);
    slot->key = take;
}

const struct policy_key *token_keys_find(
    struct token_keys *t, struct str token, int64_t now_s, struct err *e)
{
    struct jwt_rules rules = t->rules->jwt;
    uint8_t digest[POLICY_DIGEST_BYTES];
    const struct policy_key *k;
    struct jwt jwt;

    policy_digest(digest, token);
    if ((k = find_cached(t, digest)))
        return k;
    struct arena *a = arena_new(4 * MB);
    if (!a) {
        err_set(e, ERR_MEMORY, "no memory for a token");
        return NULL;
    }
    rules.now_s = now_s;
    if (!jwt_verify(&jwt, token, t->keys, &rules, a, e))
        k = token_rules_key(t->rules, t->roles, &jwt, e);
    arena_free(a);
    if (k)
        add_cached(t, digest, k);
    return k;
}

static int read_claims(
    struct jwt *out, const struct policy_key *login, struct arena *a, struct err *e)
{
    const struct json_limits limits = { .max_depth = 32, .max_nodes = 16 * 1024 };
    struct json *claims;

    if (!a)
        return err_set(e, ERR_MEMORY, "no memory for a login");
    if (json_parse(&claims, str_of(login->claims ? login->claims : ""), a, &limits, e))
        return e->code == ERR_MEMORY ? -1 : err_set(e, ERR_AUTH, "The claims are not JSON.");
    const struct json *sub = json_get(claims, "sub");
    if (!sub || sub->kind != JSON_STRING)
        return err_set(e, ERR_AUTH, "The claims name no subject.");
    *out = (struct jwt){ claims, sub->s, login->expires_at };
    return 0;
}

const struct policy_key *token_keys_of_login(struct token_keys *t,
    const uint8_t digest[POLICY_DIGEST_BYTES], const struct policy_key *login, struct err *e)
{
    const struct policy_key *k = find_cached(t, digest);
    struct jwt jwt;

    if (k)
        return k;
    struct arena *a = arena_new(4 * MB);
    if (!read_claims(&jwt, login, a, e))
        k = token_rules_key(t->rules, t->roles, &jwt, e);
    arena_free(a);
    if (k)
        add_cached(t, digest, k);
    return k;
}
