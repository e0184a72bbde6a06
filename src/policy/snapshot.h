/* snapshot.h: all API keys, limits and objects of one version of the policy: the keys of the
 * configuration and those of the backend, found by the digest of their secret.
 *
 * A lookup reads one slot of a hash table on average, whatever the number of keys is. A change
 * makes a new snapshot that shares the keys with the old one: a copy of pointers, in O(n).
 *
 * Immutable after creation; references are counted atomically. Any thread. */
#pragma once

#include "guardrails/guardrails.h"
#include "policy/limit_set.h"
#include "policy/policy_role.h"

enum { POLICY_KEYS_MAX = 1 << 17 }; /* static and stored ones together */

struct policy_snapshot;

/* Takes the n references in `take`, on failure, too. ERR_MEMORY; ERR_RANGE: more than
 * POLICY_KEYS_MAX; ERR_INVALID: two keys with one digest or id. */
int policy_snapshot_new(struct policy_snapshot **out, const struct policy_key *const *take, int n,
    uint64_t version, struct err *e) MUST_CHECK;
/* A copy with `key` in place of the one with its digest, or added. Takes no reference of `key`. The
 * errors are the same. */
int policy_snapshot_put(struct policy_snapshot **out, const struct policy_snapshot *old,
    const struct policy_key *key, uint64_t version, struct err *e) MUST_CHECK;
/* A copy without `key`, which `old` contains. ERR_MEMORY. */
int policy_snapshot_delete(struct policy_snapshot **out, const struct policy_snapshot *old,
    const struct policy_key *key, uint64_t version, struct err *e) MUST_CHECK;
/* A copy with other limits (NULL: none), of which it takes a reference on success. A new snapshot
 * has none, and the functions above keep those of `old`. ERR_MEMORY. */
int policy_snapshot_set_limits(struct policy_snapshot **out, const struct policy_snapshot *old,
    const struct limit_set *limits, uint64_t version, struct err *e) MUST_CHECK;
const struct limit_set *policy_snapshot_limits(const struct policy_snapshot *s); /* borrowed */
/* A copy with other objects (NULL: none), of which it takes a reference on success. The keys get
 * what the roles among the objects grant. A new snapshot has none, and the functions above keep
 * those of `old`; their key was passed to role_set_apply before. ERR_MEMORY, ERR_CORRUPT. */
int policy_snapshot_set_objects(struct policy_snapshot **out, const struct policy_snapshot *old,
    const struct object_set *objects, uint64_t version, struct err *e) MUST_CHECK;
const struct object_set *policy_snapshot_objects(const struct policy_snapshot *s); /* borrowed */
const struct role_set *policy_snapshot_roles(const struct policy_snapshot *s);     /* borrowed */
/* The guardrails among the objects, compiled; borrowed, NULL: none. */
const struct guardrails *policy_snapshot_guardrails(const struct policy_snapshot *s);
struct policy_snapshot *policy_snapshot_ref(struct policy_snapshot *s);
void policy_snapshot_unref(struct policy_snapshot *s); /* accepts NULL */

uint64_t policy_snapshot_version(const struct policy_snapshot *s);
int policy_snapshot_count(const struct policy_snapshot *s);
/* Key i < count, in the order of the ids. */
const struct policy_key *policy_snapshot_at(const struct policy_snapshot *s, int i);
/* NULL: unknown. The digest is compared in constant time. The key belongs to the snapshot. */
const struct policy_key *policy_snapshot_find(
    const struct policy_snapshot *s, const uint8_t digest[POLICY_DIGEST_BYTES]);
const struct policy_key *policy_snapshot_find_id(const struct policy_snapshot *s, struct str id);
/* Index of the first key whose id follows `id`; count if there is none. */
int policy_snapshot_after(const struct policy_snapshot *s, struct str id);

/* Number for budgets of a key that is not in the snapshot: that of the other keys of its tenant,
 * else the lowest unused number above 0. Numbers are at most POLICY_KEYS_MAX. */
int policy_snapshot_owner(const struct policy_snapshot *s, const char *tenant);
