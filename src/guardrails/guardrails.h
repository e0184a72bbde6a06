/* guardrails.h: all sets of guardrails of one version of the policy, compiled: one Aho-Corasick
 * matcher of the folded entries of all blocklists, the PCRE2 patterns, and the detectors.
 *
 * Immutable after creation; references are counted atomically. Any thread. */
#pragma once

#include "base/aho_corasick.h"
#include "guardrails/guard_set.h"

enum { GUARD_SETS_MAX = 64 };

struct guardrails;

/* Takes the n references in `take`, on failure, too. ERR_INVALID names a pattern that PCRE2 refuses
 * or that has a construct whose result depends on where a search begins (\G, \C, "(*"); ERR_RANGE:
 * too many sets, entries, patterns or bytes together; two sets with one name: ERR_CORRUPT;
 * ERR_MEMORY. */
int guardrails_new(
    struct guardrails **out, const struct guard_set *const *take, int n, struct err *e) MUST_CHECK;
/* A copy of `old` (NULL: empty) with the set in place of the one of its name, or added. Takes no
 * reference. The same errors. */
int guardrails_put(struct guardrails **out, const struct guardrails *old,
    const struct guard_set *set, struct err *e) MUST_CHECK;
/* A copy without the set, which `old` contains. */
int guardrails_delete(struct guardrails **out, const struct guardrails *old,
    const struct guard_set *set, struct err *e) MUST_CHECK;
/* Both accept NULL, which has no sets. */
const struct guardrails *guardrails_ref(const struct guardrails *g);
void guardrails_unref(const struct guardrails *g);

int guardrails_count(const struct guardrails *g);                         /* accepts NULL */
const struct guard_set *guardrails_at(const struct guardrails *g, int i); /* in order of names */
const struct guard_set *guardrails_find(const struct guardrails *g, struct str name);

/* The sets that apply, as bits of their numbers; 0 for NULL. */
uint64_t guardrails_select(
    const struct guardrails *g, enum guard_place place, const char *model, const char *tenant);
/* Whether the sets have patterns, whose search may be slow. */
bool guardrails_have_patterns(const struct guardrails *g, uint64_t sets);

/* ---- for scan.c */

enum { GUARD_WINDOW = 256, GUARD_LOOKBEHIND_MAX = 16 }; /* bytes; characters */

struct guard_owner { /* an entry of a set that has a string of the matcher */
    int set, entry;
};
enum guard_kind { GUARD_WORD, GUARD_PATTERN, GUARD_DETECTOR };

struct guard_matcher { /* a pattern or a detector */
    enum guard_kind kind;
    int set, entry; /* entry: index of the pattern, or enum guard_detector */
    const struct guard_pattern *pattern;
};

struct guardrails_compiled {
    const struct aho_corasick *words; /* NULL: no set has a blocklist */
    const uint32_t *first_owner; /* [strings + 1]: owners of string i are from here to the next */
    const struct guard_owner *owners;
    const struct guard_matcher *matchers;
    int n_matchers;
};
const struct guardrails_compiled *guardrails_compiled(const struct guardrails *g);

struct guard_search; /* scratch memory of searches with patterns */
struct guard_search *guard_search_new(void) MUST_CHECK; /* NULL: no memory */
void guard_search_free(struct guard_search *s);         /* accepts NULL */

enum guard_found { GUARD_FOUND_NONE, GUARD_FOUND, GUARD_FOUND_MORE };
struct guard_range { /* bytes of a text */
    size_t begin, end;
};
/* Searches text[out->begin, n) for the pattern; a match has at most GUARD_WINDOW bytes from its
 * start. is_end: nothing follows. FOUND: the match is *out, which may be empty. MORE: whether there
 * is a match at out->begin depends on the bytes that follow; there is none before. A match whose
 * search exceeds the limits of time and memory is the whole window. */
enum guard_found guard_pattern_find(const struct guard_pattern *p, struct guard_search *s,
    struct str text, bool is_end, struct guard_range *out);
