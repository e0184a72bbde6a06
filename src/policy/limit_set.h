/* limit_set.h: limits of one version of the policy that do not belong to a single key:
 *
 *     default      of each key that does not set them itself
 *     tenant NAME  of all keys of a tenant together
 *     model NAME   of all requests to a model together, and its prices
 *
 * An entry has values by name, as text "requests_per_minute=60<TAB>tokens_per_day=1000000": the
 * limits of policy_key.h without `exempt`, and the prices in millionths of the currency per million
 * tokens.
 *
 * Immutable after creation; references are counted atomically. Any thread. */
#pragma once

#include "policy/policy_key.h"

enum limit_entry_kind { LIMITS_DEFAULT, LIMITS_TENANT, LIMITS_MODEL, N_LIMIT_ENTRY_KINDS };
extern const char *const limit_entry_kinds[N_LIMIT_ENTRY_KINDS]; /* "default", "tenant", "model" */

enum {
    LIMIT_PROMPT_PRICE = N_POLICY_LIMITS,
    LIMIT_OUTPUT_PRICE,
    N_LIMIT_VALUES,
    LIMIT_ENTRIES_MAX = 4096,
    LIMIT_ENTRY_NAME_MAX = POLICY_MODEL_NAME_MAX,
    LIMIT_VALUES_BYTES = 1024, /* size of the text of an entry */
    LIMIT_SUBJECT_BYTES = LIMIT_ENTRY_NAME_MAX + 16
};
#define LIMIT_VALUE_MAX INT64_C(1000000000000000)
#define LIMIT_PRICE_MAX INT64_C(1000000000)

struct limit_entry {
    enum limit_entry_kind kind;
    char name[LIMIT_ENTRY_NAME_MAX + 1]; /* "" for LIMITS_DEFAULT only */
    uint64_t version;                    /* version of the policy that set the values */
    int64_t values[N_LIMIT_VALUES];      /* 0 = none */
};

const char *limit_value_name(int i); /* i < N_LIMIT_VALUES */
/* Sets kind and name from "default", "tenant NAME" or "model NAME", with the separator ' ' or '/',
 * and clears the rest. ERR_INVALID. */
int limit_entry_init(
    struct limit_entry *out, struct str subject, char separator, struct err *e) MUST_CHECK;
void limit_entry_write_subject(const struct limit_entry *l, char separator, struct buf *out);
/* Sets one value. ERR_INVALID: an unknown name, or a price of what is no model; ERR_RANGE. */
int limit_entry_set(
    struct limit_entry *l, struct str name, int64_t value, struct err *e) MUST_CHECK;
void limit_entry_write(const struct limit_entry *l, struct buf *out); /* the values as text */
int limit_entry_read(struct limit_entry *l, struct str text, struct err *e) MUST_CHECK;

struct limit_set;

/* A copy of `old` (NULL: empty) with `entry` in place of the one of its subject, or added.
 * ERR_MEMORY; ERR_RANGE: more than LIMIT_ENTRIES_MAX. */
int limit_set_put(struct limit_set **out, const struct limit_set *old,
    const struct limit_entry *entry, struct err *e) MUST_CHECK;
/* A copy without the entry, which `old` contains. ERR_MEMORY. */
int limit_set_delete(struct limit_set **out, const struct limit_set *old,
    const struct limit_entry *entry, struct err *e) MUST_CHECK;
/* Both accept NULL, which is an empty set. */
const struct limit_set *limit_set_ref(const struct limit_set *s);
void limit_set_unref(const struct limit_set *s);

int limit_set_count(const struct limit_set *s);
/* Entry i < count, in the order of the kinds and names. */
const struct limit_entry *limit_set_at(const struct limit_set *s, int i);
/* NULL: there is none. The entry belongs to the set. */
const struct limit_entry *limit_set_find(
    const struct limit_set *s, enum limit_entry_kind kind, const char *name);
