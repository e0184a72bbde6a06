/* keys.h: who may ask. API keys as SHA-256 hashes, compared in constant time.
 *
 * Made once at start from a list; read-only after, but for the weights, which anybody may change:
 * any thread. The keys themselves are not kept. */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum scope { SCOPE_NONE = 0, SCOPE_READ = 1, SCOPE_GENERATE = 2, SCOPE_ADMIN = 4 };

struct keys;

enum { KEYS_MAX = 1024, KEY_ID_BYTES = 8, KEY_GROUP_MAX = 32 };

/* "KEY,KEY:admin,KEY:group=NAME,KEY:weight=2.5,KEY:admin:group=NAME,...": blanks around commas do
 * not count. A key has the scopes read and generate; `:admin` adds administration. With twice the
 * weight (1 where none is given) it may get twice the service when others want it, too. Keys of one
 * group (letters, digits, . _ -) trust each other with what they ask: they find each other's
 * prefixes. NULL list or "" = no keys. ERR_INVALID names the place, never the key. */
int keys_open(struct keys **out, const char *list, struct err *e);
void keys_close(struct keys *k);
int keys_count(const struct keys *k);

struct caller { /* who asks, as far as it is known */
    unsigned scopes;
    char id[2 * KEY_ID_BYTES + 1]; /* start of the key's hash in hex: for logs; "" = anonymous */
    char group[KEY_GROUP_MAX + 1]; /* "": none */
    float weight;                  /* 0 = anonymous: 1 */
};

/* Who pays for what a caller uses, as a number: the same for all requests of a key, for others
 * another. 0 = anonymous. */
uint64_t caller_tenant(const struct caller *c);

/* Who shares prefixes with a caller, as a number: its group, else its tenant. */
uint64_t caller_circle(const struct caller *c);

/* The caller behind a key; false when it is none of ours. */
bool keys_find(const struct keys *k, struct str key, struct caller *out);

#define KEY_WEIGHT_MIN 0.001f
#define KEY_WEIGHT_MAX 1000.0f

/* Key i < keys_count(): what is said of it in a list, and its weight from now on. */
void keys_at(const struct keys *k, int i, struct caller *out);
int keys_place(const struct keys *k, struct str id); /* of the key with this id; -1: none */
void keys_set_weight(struct keys *k, int i, float weight);

/* The key of a request: `Authorization: Bearer KEY`, else `x-api-key: KEY`; STR_NONE. */
struct str keys_from_fields(struct str authorization, struct str x_api_key);
