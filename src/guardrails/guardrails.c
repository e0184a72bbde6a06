#include "guardrails/guardrails.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "guardrails/fold.h"
#include "guardrails/pattern.h"

#include <stdatomic.h>
#include <stdlib.h>

struct guardrails {
    _Atomic int n_refs;
    int n;
    const struct guard_set *sets[GUARD_SETS_MAX]; /* references, in the order of the names */
    struct guardrails_compiled compiled;
    struct guard_pattern *patterns[GUARD_PATTERNS_MAX];
    int n_patterns;
    struct arena *arena; /* contains what is compiled, except the patterns */
};

/* ---- blocklists */

struct folded { /* an entry while the matcher is built */
    struct str text;
    struct guard_owner owner;
};

static int compare_folded(const void *a, const void *b)
{
    const struct folded *x = a, *y = b;
    int order = memcmp(x->text.p, y->text.p, MIN(x->text.n, y->text.n));

    if (!order && x->text.n != y->text.n)
        order = x->text.n < y->text.n ? -1 : 1;
    if (!order && x->owner.set != y->owner.set)
        order = x->owner.set - y->owner.set;
    return order ? order : x->owner.entry - y->owner.entry;
}

static struct str fold_text(struct arena *a, struct str s)
{
    char text[2 * GUARD_ENTRY_BYTES + FOLD_BYTES_MAX];
    size_t n = 0;
    uint32_t cp;

    for (int len; s.n && (len = utf8_decode(s, &cp)) > 0; s = str_skip(s, (size_t)len)) {
        n += fold_char(cp, text + n);
        CHECK(n <= GUARD_ENTRY_BYTES); /* guard_set_read */
    }
    return arena_str(a, (struct str){ text, n });
}

static int no_memory(struct err *e)
{
    return err_set(e, ERR_MEMORY, "no memory for the guardrails");
}

/* Lists the folded entries of all sets. */
static int fold_entries(struct guardrails *g, struct folded *out, struct err *e)
{
    size_t bytes = 0;
    int n = 0;

    for (int s = 0; s < g->n; s++)
        for (int i = 0; i < g->sets[s]->blocklist.n; i++) {
            struct str text = fold_text(g->arena, g->sets[s]->blocklist.at[i]);
            if (!text.p)
                return no_memory(e);
            bytes += text.n;
            if (bytes > GUARD_BYTES_MAX)
                return err_param(e, ERR_RANGE, "blocklist",
                    "The blocklists of all sets have more than %d bytes.", GUARD_BYTES_MAX);
            out[n++] = (struct folded){ text, { s, i } };
        }
    return 0;
}

/* Equal entries are one string of the matcher with several owners. */
static int build_words(struct guardrails *g, struct folded *all, int n, struct err *e)
{
    struct str *strings = arena_zalloc(g->arena, (size_t)n, sizeof(*strings));
    uint32_t *first = arena_zalloc(g->arena, (size_t)n + 1, sizeof(*first));
    struct guard_owner *owners = arena_zalloc(g->arena, (size_t)n, sizeof(*owners));
    int n_strings = 0;

    if (!strings || !first || !owners)
        return no_memory(e);
    qsort(all, (size_t)n, sizeof(*all), compare_folded);
    for (int i = 0; i < n; i++) {
        if (!i || !str_eq(all[i].text, all[i - 1].text)) {
            first[n_strings] = (uint32_t)i;
            strings[n_strings++] = all[i].text;
        }
        owners[i] = all[i].owner;
    }
    first[n_strings] = (uint32_t)n;
    g->compiled.first_owner = first;
    g->compiled.owners = owners;
    g->compiled.words = aho_corasick_new(g->arena, strings, n_strings);
    return g->compiled.words ? 0 : no_memory(e);
}

static int compile_words(struct guardrails *g, struct err *e)
{
    int n = 0;

    for (int i = 0; i < g->n; i++)
        n += g->sets[i]->blocklist.n;
    if (n > GUARD_ENTRIES_MAX)
        return err_param(e, ERR_RANGE, "blocklist",
            "The blocklists of all sets have more than %d entries.", GUARD_ENTRIES_MAX);
    if (!n)
        return 0;
    struct folded *all = try_calloc((size_t)n, sizeof(*all));
    int failed = all ? fold_entries(g, all, e) || build_words(g, all, n, e) : no_memory(e);
    mem_free(all);
    return failed ? -1 : 0;
}

/* ---- patterns and detectors */

static int compile_matchers(struct guardrails *g, struct err *e)
{
    enum { MOST = GUARD_PATTERNS_MAX + GUARD_SETS_MAX * N_GUARD_DETECTORS };
    struct guard_matcher *m = arena_zalloc(g->arena, MOST, sizeof(*m));
    int n = 0;

    if (!m)
        return no_memory(e);
    for (int s = 0; s < g->n; s++) {
        const struct guard_set *set = g->sets[s];
        for (int i = 0; i < set->patterns.n; i++) {
            if (g->n_patterns == GUARD_PATTERNS_MAX)
                return err_param(e, ERR_RANGE, "patterns",
                    "The sets have more than %d patterns together.", GUARD_PATTERNS_MAX);
            struct guard_pattern *p = NULL;
            if (guard_pattern_new(&p, set->patterns.at[i], i, e))
                return -1;
            g->patterns[g->n_patterns++] = p;
            m[n++] = (struct guard_matcher){ GUARD_PATTERN, s, i, p };
        }
        for (int d = 0; d < N_GUARD_DETECTORS; d++)
            if (set->detectors >> d & 1)
                m[n++] = (struct guard_matcher){ GUARD_DETECTOR, s, d, NULL };
    }
    g->compiled.matchers = m;
    g->compiled.n_matchers = n;
    return 0;
}

/* ---- life */

static int compare_names(const void *a, const void *b)
{
    const struct guard_set *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static int compile(struct guardrails *g, struct err *e)
{
    qsort(g->sets, (size_t)g->n, sizeof(g->sets[0]), compare_names);
    for (int i = 1; i < g->n; i++)
        if (!strcmp(g->sets[i - 1]->name, g->sets[i]->name))
            return err_set(
                e, ERR_CORRUPT, "two sets of guardrails have the name %s", g->sets[i]->name);
    return compile_words(g, e) || compile_matchers(g, e) ? -1 : 0;
}

int guardrails_new(
    struct guardrails **out, const struct guard_set *const *take, int n, struct err *e)
{
    enum { ARENA_BYTES = 128 * 1024 * 1024 };
    struct guardrails *g = n <= GUARD_SETS_MAX ? try_calloc(1, sizeof(*g)) : NULL;

    if (g)
        g->arena = arena_new(ARENA_BYTES);
    if (!g || !g->arena) {
        mem_free(g);
        for (int i = 0; i < n; i++)
            guard_set_unref(take[i]);
        if (n > GUARD_SETS_MAX)
            return err_set(e, ERR_RANGE, "more than %d sets of guardrails", GUARD_SETS_MAX);
        return no_memory(e);
    }
    g->n_refs = 1;
    for (int i = 0; i < n; i++)
        g->sets[g->n++] = take[i];
    if (compile(g, e)) {
        guardrails_unref(g);
        return -1;
    }
    *out = g;
    return 0;
}

/* Compiles the sets of `old` without the one of this name, and with `set`, if any. */
static int derive(struct guardrails **out, const struct guardrails *old, const char *name,
    const struct guard_set *set, struct err *e)
{
    const struct guard_set *list[GUARD_SETS_MAX + 1];
    int n = 0;

    for (int i = 0; i < guardrails_count(old); i++)
        if (strcmp(old->sets[i]->name, name))
            list[n++] = guard_set_ref(old->sets[i]);
    if (set)
        list[n++] = guard_set_ref(set);
    return guardrails_new(out, list, n, e);
}

int guardrails_put(struct guardrails **out, const struct guardrails *old,
    const struct guard_set *set, struct err *e)
{
    return derive(out, old, set->name, set, e);
}

int guardrails_delete(struct guardrails **out, const struct guardrails *old,
    const struct guard_set *set, struct err *e)
{
    return derive(out, old, set->name, NULL, e);
}

/* The count is the only member that changes in shared guardrails. */
static struct guardrails *counted(const struct guardrails *g)
{
    return (struct guardrails *)(uintptr_t)g;
}

const struct guardrails *guardrails_ref(const struct guardrails *g)
{
    if (g)
        atomic_fetch_add_explicit(&counted(g)->n_refs, 1, memory_order_relaxed);
    return g;
}

void guardrails_unref(const struct guardrails *shared)
{
    struct guardrails *g = counted(shared);

    if (!g || atomic_fetch_sub_explicit(&g->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    for (int i = 0; i < g->n; i++)
        guard_set_unref(g->sets[i]);
    for (int i = 0; i < g->n_patterns; i++)
        guard_pattern_free(g->patterns[i]);
    arena_free(g->arena);
    mem_free(g);
}

/* ---- use */

int guardrails_count(const struct guardrails *g)
{
    return g ? g->n : 0;
}

const struct guard_set *guardrails_at(const struct guardrails *g, int i)
{
    CHECK(i >= 0 && i < guardrails_count(g));
    return g->sets[i];
}

const struct guard_set *guardrails_find(const struct guardrails *g, struct str name)
{
    for (int i = 0; i < guardrails_count(g); i++)
        if (str_is(name, g->sets[i]->name))
            return g->sets[i];
    return NULL;
}

uint64_t guardrails_select(
    const struct guardrails *g, enum guard_place place, const char *model, const char *tenant)
{
    uint64_t sets = 0;

    for (int i = 0; i < guardrails_count(g); i++)
        if (g->sets[i]->places >> place & 1 && guard_set_covers(g->sets[i], model, tenant))
            sets |= UINT64_C(1) << i;
    return sets;
}

bool guardrails_have_patterns(const struct guardrails *g, uint64_t sets)
{
    for (int i = 0; i < guardrails_count(g); i++)
        if (sets >> i & 1 && g->sets[i]->patterns.n)
            return true;
    return false;
}

const struct guardrails_compiled *guardrails_compiled(const struct guardrails *g)
{
    return &g->compiled;
}
