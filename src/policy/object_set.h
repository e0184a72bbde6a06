/* object_set.h: named objects of one version of the policy that are neither keys nor limits. An
 * object has a kind, a name and a body, which is one JSON value in one line; the module of its kind
 * reads the body.
 *
 *     role NAME     scopes, models and limits of keys and tokens (policy_role.h)
 *     guardrail NAME  blocklist, patterns and detectors of a set (guardrails/guard_set.h)
 *
 * Objects and sets are immutable after creation; references are counted atomically. Any thread. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum policy_object_kind { OBJECT_GUARDRAIL, OBJECT_ROLE, N_OBJECT_KINDS };
extern const char *const policy_object_kinds[N_OBJECT_KINDS]; /* in alphabetical order */

enum {
    OBJECT_NAME_MAX = 64,
    OBJECT_BODY_MAX = 4 * 1024 * 1024,
    OBJECTS_MAX = 4096, /* of one set */
    OBJECT_SUBJECT_BYTES = OBJECT_NAME_MAX + 16
};

struct policy_object {
    _Atomic int n_refs;
    enum policy_object_kind kind;
    char name[OBJECT_NAME_MAX + 1];
    uint64_t version; /* of the policy that set the body */
    struct str body;  /* follows the struct in memory */
};

/* "KIND NAME", with a name of letters, digits, '.', '_' and '-'. ERR_INVALID. */
int policy_object_subject(struct str subject, enum policy_object_kind *kind,
    char name[OBJECT_NAME_MAX + 1], struct err *e) MUST_CHECK;
bool policy_object_name_is_valid(struct str name);
/* One reference. ERR_TOO_LARGE; ERR_INVALID: the body has a newline; ERR_MEMORY. */
int policy_object_new(struct policy_object **out, enum policy_object_kind kind, const char *name,
    struct str body, struct err *e) MUST_CHECK;
const struct policy_object *policy_object_ref(const struct policy_object *o); /* accepts NULL */
void policy_object_unref(const struct policy_object *o);                      /* accepts NULL */

struct object_set;

/* A copy of `old` (NULL: empty) with `object` in place of the one of its kind and name, or added.
 * Takes no reference. ERR_MEMORY; ERR_RANGE: more than OBJECTS_MAX. */
int object_set_put(struct object_set **out, const struct object_set *old,
    const struct policy_object *object, struct err *e) MUST_CHECK;
/* A copy without the object, which `old` contains. ERR_MEMORY. */
int object_set_delete(struct object_set **out, const struct object_set *old,
    const struct policy_object *object, struct err *e) MUST_CHECK;
/* These accept NULL, which is an empty set. */
const struct object_set *object_set_ref(const struct object_set *s);
void object_set_unref(const struct object_set *s);
int object_set_count(const struct object_set *s);
/* Object i < count, in the order of the kinds and names. */
const struct policy_object *object_set_at(const struct object_set *s, int i);
/* Index of the first object of the kind whose name follows `name` ("" = all follow). */
int object_set_after(const struct object_set *s, enum policy_object_kind kind, const char *name);
/* NULL: there is none. The object belongs to the set. */
const struct policy_object *object_set_find(
    const struct object_set *s, enum policy_object_kind kind, const char *name);
