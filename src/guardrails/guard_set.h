/* guard_set.h: one named set of guardrails, as an administrator has written it:
 *
 *     {"blocklist": ["word", ...], "whole_words": true,
 *      "patterns": ["\\bACME-\\d{6}\\b", ...],
 *      "detectors": ["email", "card", "iban", "secret"],
 *      "action": "block" | "redact" | "log", "apply_to": ["prompt", "output"],
 *      "models": ["name", ...], "tenants": ["name", ...]}
 *
 * An empty list of models or tenants means all. The same JSON is the text form that backends store.
 *
 * Immutable after creation; references are counted atomically. Any thread. */
#pragma once

#include "base/json.h"

enum guard_action { GUARD_LOG, GUARD_REDACT, GUARD_BLOCK, N_GUARD_ACTIONS };
enum guard_place { GUARD_PROMPT, GUARD_OUTPUT, N_GUARD_PLACES };
enum guard_detector { DETECT_EMAIL, DETECT_CARD, DETECT_IBAN, DETECT_SECRET, N_GUARD_DETECTORS };
extern const char *const guard_action_names[N_GUARD_ACTIONS];
extern const char *const guard_place_names[N_GUARD_PLACES];
extern const char *const guard_detector_names[N_GUARD_DETECTORS];

enum {
    GUARD_NAME_MAX = 64,
    GUARD_ENTRIES_MAX = 50000, /* of one set, and of all sets together */
    GUARD_ENTRY_BYTES = 256,   /* of an entry, also after folding */
    GUARD_BYTES_MAX = 1 << 20, /* of all entries of all sets, after folding */
    GUARD_PATTERNS_MAX = 64,   /* of one set, and of all sets together */
    GUARD_PATTERN_BYTES = 1024,
    GUARD_SCOPE_MAX = 256,          /* models or tenants of a set */
    GUARD_SCOPE_BYTES = 256,        /* of a name of a model or tenant */
    GUARD_TEXT_BYTES = 4 * 1 << 20, /* of the text form */
};

struct guard_list {
    const struct str *at;
    int n;
};

struct guard_set {
    _Atomic int n_refs;
    char name[GUARD_NAME_MAX + 1];
    enum guard_action action;
    unsigned places;    /* bits of enum guard_place */
    unsigned detectors; /* bits of enum guard_detector */
    bool whole_words;   /* entries of the blocklist match only where no word goes on */
    struct guard_list blocklist, patterns, models, tenants;
    struct arena *arena; /* contains the lists */
};

/* 1 to GUARD_NAME_MAX letters, digits, '.', '_' and '-'. */
bool guard_name_is_valid(struct str name);
/* Reads the JSON form. ERR_INVALID, ERR_RANGE and ERR_MISSING name the member and the index;
 * ERR_MEMORY. Patterns are checked by guardrails_new. */
int guard_set_read(
    struct guard_set **out, struct str name, const struct json *body, struct err *e) MUST_CHECK;
/* The same from text. */
int guard_set_parse(
    struct guard_set **out, struct str name, struct str text, struct err *e) MUST_CHECK;
/* Writes the members into an open object. */
void guard_set_write(const struct guard_set *s, struct jw *w);
void guard_set_text(const struct guard_set *s, struct buf *out); /* the whole object */

const struct guard_set *guard_set_ref(const struct guard_set *s);
void guard_set_unref(const struct guard_set *s); /* accepts NULL */

/* Whether the set applies to this model and tenant; NULL: to any. */
bool guard_set_covers(const struct guard_set *s, const char *model, const char *tenant);
