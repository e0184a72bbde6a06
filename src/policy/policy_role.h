/* policy_role.h: roles: named sets of scopes, models and limits for API keys and for tokens.
 *
 *     {"scopes": ["read", "generate"], "models": ["demo"], "limits": {"requests_per_minute": 60},
 *      "claims": ["groups=staff"], "description": "..."}
 *
 * A key has the scopes of its own and those of all its roles. It may use a model if its own list
 * and the list of one of its roles allow the model; a role that has neither scopes nor models does
 * not count. A limit that the key does not set itself is the smallest of those that its roles set.
 * A role that does not exist grants nothing. A token has each
 * role one of whose claims equals or contains the value.
 *
 * Sets are immutable after creation; references are counted atomically. Any thread. */
#pragma once

#include "base/json.h"
#include "policy/object_set.h"
#include "policy/policy_key.h"

enum { ROLE_CLAIMS_MAX = 64, ROLE_DESCRIPTION_MAX = 200, ROLE_JSON_MAX = 256 * 1024 };

struct policy_role {
    char name[OBJECT_NAME_MAX + 1];
    char description[ROLE_DESCRIPTION_MAX + 1];
    unsigned scopes;
    int64_t limits[N_POLICY_LIMITS]; /* 0 = not set */
    struct policy_key *lists;        /* its `models`; a key so that both have one reader */
    char *claims;                    /* "NAME=VALUE" items, separated by tabs; NULL = none */
};

/* Reads the JSON of a role. The error has the name of the member as its parameter. ERR_INVALID,
 * ERR_RANGE, ERR_MEMORY. */
int policy_role_parse(
    struct policy_role **out, const char *name, const struct json *body, struct err *e) MUST_CHECK;
void policy_role_free(struct policy_role *r); /* accepts NULL */
/* Writes the members of the JSON of a role into an open object. */
void policy_role_write(const struct policy_role *r, struct jw *w);

struct role_set;

/* The roles among the objects; *out is NULL if there are none. ERR_CORRUPT, ERR_MEMORY. */
int role_set_new(struct role_set **out, const struct object_set *objects, struct err *e) MUST_CHECK;
/* These accept NULL, which is an empty set. */
const struct role_set *role_set_ref(const struct role_set *s);
void role_set_unref(const struct role_set *s);
int role_set_count(const struct role_set *s);
const struct policy_role *role_set_at(
    const struct role_set *s, int i); /* in the order of the names */
const struct policy_role *role_set_find(const struct role_set *s, struct str name);

/* Sets what the roles of the key grant. The key is not shared yet. ERR_MEMORY. */
int role_set_apply(const struct role_set *s, struct policy_key *k, struct err *e) MUST_CHECK;
