/* keys.h: API keys of the configuration, stored as SHA-256 hashes. policy/snapshot.h finds a key
 * by its hash. A key yields the scopes, the cache group, the fairness weight and the maximum
 * priority of a request.
 *
 * The list is created once at start from the configuration and is read-only afterwards, except the
 * weights, which any thread may change. Any thread. The keys themselves are not stored. */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum scope { SCOPE_NONE = 0, SCOPE_READ = 1, SCOPE_GENERATE = 2, SCOPE_ADMIN = 4 };

/* Requirement of a route: any valid key, whatever its scopes are. */
enum { SCOPE_ANY = 8 };

struct keys;

enum { KEYS_MAX = 1024, KEY_ID_BYTES = 8, KEY_GROUP_MAX = 32, KEY_FILE_BYTES_MAX = 1024 * 1024 };

/* "KEY,KEY:admin,KEY:group=NAME,KEY:weight=2.5,KEY:priority=10,KEY:admin:group=NAME,...". Blanks
 * around commas are ignored. A key has the scopes read and generate; `:admin` adds admin. Under
 * contention a key with twice the weight (default 1) receives twice the service. Compared with
 * requests of other keys, a request has at most the priority of its key (default 0); a higher one
 * only precedes requests of the same key. Keys of one cache group (letters, digits, . _ -) share
 * prefix-cache entries. A NULL or empty list contains no keys. A key may occur once. ERR_INVALID
 * names the position of the entry, never the key. */
int keys_open(struct keys **out, const char *list, struct err *e);
/* Adds the entries of a file, one per line. Empty lines and lines that begin with # are ignored.
 * ERR_NOT_FOUND, ERR_IO, ERR_TOO_LARGE; ERR_INVALID: not a regular file, or a line, whose number it
 * names. The keys that were added before the error remain. */
int keys_add_file(struct keys *k, const char *path, struct err *e);
void keys_close(struct keys *k);
int keys_count(const struct keys *k);

struct caller { /* identity of the caller of a request */
    unsigned scopes;
    /* first bytes of the key's hash in hex, for logs; "" = anonymous */
    char id[2 * KEY_ID_BYTES + 1];
    char tenant[KEY_GROUP_MAX + 1]; /* "" = the key is its own tenant */
    char group[KEY_GROUP_MAX + 1];  /* cache group; "" = none */
    float weight;                   /* 0 = anonymous, which counts as 1 */
    /* number for budgets; of a key of the list its position, from 1; 0 = anonymous */
    int number;
    /* A request with a higher priority has this one compared with other tenants. */
    int max_priority;
};

/* Tenant number for quota and fairness, derived from the name of the tenant, else from the key.
 * 0 = anonymous. */
uint64_t caller_tenant(const struct caller *c);

/* Cache group number for sharing the prefix cache: derived from the group, else the tenant
 * number. */
uint64_t caller_cache_group(const struct caller *c);

#define KEY_WEIGHT_MIN 0.001f
#define KEY_WEIGHT_MAX 1000.0f
enum { KEY_PRIORITY_MAX = 1000000 };

/* Properties of key i < keys_count(), with its current weight. */
void keys_at(const struct keys *k, int i, struct caller *out);
/* SHA-256 of key i < keys_count(). */
const uint8_t *keys_hash(const struct keys *k, int i);
/* Index of the key with this id; -1: none. */
int keys_index(const struct keys *k, struct str id);
void keys_set_weight(struct keys *k, int i, float weight);

/* The key of a request: `Authorization: Bearer KEY`, else `x-api-key: KEY`, else STR_NONE. */
struct str keys_from_fields(struct str authorization, struct str x_api_key);
