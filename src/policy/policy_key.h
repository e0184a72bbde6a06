/* policy_key.h: one API key of the policy: the SHA-256 digest of its secret, and attributes.
 *
 *     secret  "ifx_" and 64 hexadecimal digits (256 random bits); returned once, never stored
 *     digest  SHA-256 of the secret
 *     id      the first 8 bytes of the digest in hex, as in logs, /v1/admin routes and audit lines
 *
 * Attributes have a name and a text form, which the backends store (policy_attributes). The items
 * of a list are separated by tab characters; no item contains a control character.
 *
 * States: a key is changed by the thread that has allocated it, until it is part of a published
 * snapshot. From then on it is immutable and shared; references are counted atomically. Any
 * thread. */
#pragma once

#include "auth/keys.h"
#include "base/buf.h"
#include "policy/network.h"

enum {
    POLICY_DIGEST_BYTES = 32,
    POLICY_SECRET_BYTES = 4 + 64,
    POLICY_NAME_MAX = 100,
    POLICY_MODELS_MAX = 64, /* models and networks of one key */
    POLICY_NETWORKS_MAX = 64,
    POLICY_ROLES_MAX = 64, /* of one key */
    POLICY_MODEL_NAME_MAX = 200,
    POLICY_ATTRIBUTE_BYTES = POLICY_MODELS_MAX * (POLICY_MODEL_NAME_MAX + 1)
};

/* Limits per key, which the policy stores: requests, tokens, and money in millionths. */
#define POLICY_LIMITS(X)                                                                           \
    X(requests_per_minute)                                                                         \
    X(tokens_per_minute)                                                                           \
    X(prompt_tokens_per_minute)                                                                    \
    X(output_tokens_per_minute)                                                                    \
    X(concurrent_requests)                                                                         \
    X(tokens_per_day)                                                                              \
    X(tokens_per_month)                                                                            \
    X(cost_per_day)                                                                                \
    X(cost_per_month)                                                                              \
    X(exempt) /* 1: the limits of limit_set.h for each key do not apply */

enum policy_limit {
#define X(name) POLICY_LIMIT_##name,
    POLICY_LIMITS(X)
#undef X
        N_POLICY_LIMITS
};
extern const char *const policy_limit_names[N_POLICY_LIMITS];

struct policy_key {
    _Atomic int n_refs;
    uint8_t digest[POLICY_DIGEST_BYTES];
    char id[2 * KEY_ID_BYTES + 1];
    char name[POLICY_NAME_MAX + 1];
    unsigned scopes;                     /* enum scope; see policy_key_scopes */
    int64_t created_at;                  /* Unix time */
    int64_t expires_at;                  /* Unix time; 0 = never */
    char tenant[KEY_GROUP_MAX + 1];      /* "" = the key is its own tenant */
    char cache_group[KEY_GROUP_MAX + 1]; /* "" = that of the tenant */
    float weight;
    int max_priority;
    int64_t limits[N_POLICY_LIMITS]; /* 0 = none */
    char *models;                    /* list of allowed models; NULL = all */
    char *roles;                     /* list of names; NULL = none */
    /* Grants of the roles, set by role_set_apply: scopes, the list of models (NULL = all; "" =
     * none), and limits. */
    unsigned role_scopes;
    char *role_models;
    int64_t role_limits[N_POLICY_LIMITS];
    char *claims; /* of a token: JSON object; NULL = none */
    struct network *networks;
    int n_networks;   /* 0 = all */
    uint64_t version; /* version of the policy whose change set these attributes */
    int owner;        /* number for budgets (base/budget.h), equal for the keys of a tenant */
    bool is_static;   /* an entry of the configuration, which cannot be changed */
    bool is_token;    /* belongs to a token of an issuer; in no snapshot (token_keys.h) */
};

/* One reference; scopes read and generate, weight 1. NULL: no memory. */
struct policy_key *policy_key_new(const uint8_t digest[POLICY_DIGEST_BYTES]) MUST_CHECK;
/* A copy with the same digest, one reference, which is not static. NULL: no memory. */
struct policy_key *policy_key_copy(const struct policy_key *k) MUST_CHECK;
const struct policy_key *policy_key_ref(const struct policy_key *k); /* accepts NULL */
void policy_key_unref(const struct policy_key *k);                   /* accepts NULL */

void policy_digest(uint8_t out[POLICY_DIGEST_BYTES], struct str secret);
/* Reads a digest of 64 hexadecimal digits in lower case. False: the text is none. */
bool policy_digest_read(uint8_t out[POLICY_DIGEST_BYTES], struct str text);
void policy_secret_new(char out[POLICY_SECRET_BYTES + 1]);

/* ---- attributes as text */

enum { N_POLICY_ATTRIBUTES = 13 };
enum attribute_kind {
    ATTRIBUTE_TEXT,
    ATTRIBUTE_NUMBER,
    ATTRIBUTE_TIME,
    ATTRIBUTE_LIST,
    ATTRIBUTE_LIMITS
};

struct policy_attribute {
    const char *name; /* also that of the member of the admin API and of the SQL column */
    void (*write)(const struct policy_key *k, struct buf *out); /* nothing = the default */
    /* ERR_INVALID, ERR_RANGE, ERR_MEMORY; the key is unchanged on failure */
    int (*read)(struct policy_key *k, struct str text, struct err *e);
    enum attribute_kind kind; /* in JSON */
    bool is_internal;         /* not set by the admin API */
};
extern const struct policy_attribute policy_attributes[N_POLICY_ATTRIBUTES];
/* NULL: unknown */
const struct policy_attribute *policy_attribute_find(struct str name);
/* Reads one attribute. The error has the name of the attribute as its parameter. */
int policy_key_set(struct policy_key *k, const struct policy_attribute *a, struct str text,
    struct err *e) MUST_CHECK;

/* Splits off the first item of a list, which tab characters separate; false at the end. */
bool policy_list_next(struct str *rest, struct str *item);

/* ---- use */

/* Scopes of the key and of its roles. */
static inline unsigned policy_key_scopes(const struct policy_key *k)
{
    return k->scopes | k->role_scopes;
}

bool policy_key_allows_model(const struct policy_key *k, const char *model);
bool policy_key_allows_address(const struct policy_key *k, struct str address);
static inline bool policy_key_is_expired(const struct policy_key *k, int64_t now_s)
{
    return k->expires_at && now_s >= k->expires_at;
}
/* Scopes, tenant, cache group, weight, priority and budget owner of a request with this key. */
void policy_key_caller(const struct policy_key *k, struct caller *out);
