#include "policy/limit_set.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdatomic.h>
#include <stdio.h>

const char *const limit_entry_kinds[N_LIMIT_ENTRY_KINDS] = { "default", "tenant", "model" };

struct limit_set {
    _Atomic int n_refs;
    int n;
    struct limit_entry entries[];
};

/* ---- values */

const char *limit_value_name(int i)
{
    CHECK(i >= 0 && i < N_LIMIT_VALUES);
    if (i < N_POLICY_LIMITS)
        return policy_limit_names[i];
    return i == LIMIT_PROMPT_PRICE ? "prompt_price" : "output_price";
}

static bool is_plain(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < ' ' || s.p[i] == 0x7f)
            return false;
    return s.n > 0 && s.n <= LIMIT_ENTRY_NAME_MAX && s.p[0] != ' ' && s.p[s.n - 1] != ' ' &&
           !memchr(s.p, ']', s.n) && utf8_valid(s);
}

int limit_entry_init(struct limit_entry *out, struct str subject, char separator, struct err *e)
{
    memset(out, 0, sizeof(*out));
    if (str_is(subject, limit_entry_kinds[LIMITS_DEFAULT]))
        return 0;
    for (int k = LIMITS_TENANT; k < N_LIMIT_ENTRY_KINDS; k++) {
        struct str kind = str_of(limit_entry_kinds[k]);
        if (!str_starts(subject, kind) || subject.n <= kind.n || subject.p[kind.n] != separator)
            continue;
        struct str name = str_skip(subject, kind.n + 1);
        if (!is_plain(name) || (k == LIMITS_TENANT && name.n > KEY_GROUP_MAX))
            break;
        out->kind = (enum limit_entry_kind)k;
        memcpy(out->name, name.p, name.n);
        return 0;
    }
    return err_set(e, ERR_INVALID, "'%.*s' is neither default, tenant%cNAME nor model%cNAME",
        (int)MIN(subject.n, (size_t)80), subject.p, separator, separator);
}

void limit_entry_write_subject(const struct limit_entry *l, char separator, struct buf *out)
{
    buf_putz(out, limit_entry_kinds[l->kind]);
    if (l->kind != LIMITS_DEFAULT)
        buf_printf(out, "%c%s", separator, l->name);
}

int limit_entry_set(struct limit_entry *l, struct str name, int64_t value, struct err *e)
{
    int i = 0;

    while (i < N_LIMIT_VALUES && !str_is(name, limit_value_name(i)))
        i++;
    if (i == N_LIMIT_VALUES || i == POLICY_LIMIT_exempt)
        return err_set(
            e, ERR_INVALID, "there is no limit '%.*s'", (int)MIN(name.n, (size_t)40), name.p);
    bool is_price = i >= N_POLICY_LIMITS;
    int64_t max = is_price ? LIMIT_PRICE_MAX : LIMIT_VALUE_MAX;
    if (is_price && l->kind != LIMITS_MODEL)
        return err_set(e, ERR_INVALID, "%s is a value of a model", limit_value_name(i));
    if (value < 1 || value > max)
        return err_set(e, ERR_RANGE, "%s must be a whole number from 1 to %lld",
            limit_value_name(i), (long long)max);
    l->values[i] = value;
    return 0;
}

void limit_entry_write(const struct limit_entry *l, struct buf *out)
{
    const char *separator = "";

    for (int i = 0; i < N_LIMIT_VALUES; i++) {
        if (!l->values[i])
            continue;
        buf_printf(out, "%s%s=%lld", separator, limit_value_name(i), (long long)l->values[i]);
        separator = "\t";
    }
}

int limit_entry_read(struct limit_entry *l, struct str text, struct err *e)
{
    while (text.n) {
        const char *tab = memchr(text.p, '\t', text.n);
        struct str item = { text.p, tab ? (size_t)(tab - text.p) : text.n };
        ptrdiff_t is = str_find(item, STR("="));
        int64_t v = 0;
        if (is < 0 || !str_to_i64(str_skip(item, (size_t)is + 1), &v))
            return err_set(
                e, ERR_INVALID, "'%.*s' is not NAME=NUMBER", (int)MIN(item.n, (size_t)80), item.p);
        if (limit_entry_set(l, (struct str){ item.p, (size_t)is }, v, e))
            return -1;
        text = str_skip(text, item.n + 1);
    }
    return 0;
}

/* ---- sets */

static int compare(const struct limit_entry *a, enum limit_entry_kind kind, const char *name)
{
    return a->kind != kind ? (a->kind < kind ? -1 : 1) : strcmp(a->name, name);
}

/* Index of the first entry that is not before the subject. */
static int lower_bound(const struct limit_set *s, enum limit_entry_kind kind, const char *name)
{
    int low = 0, high = limit_set_count(s);

    while (low < high) {
        int mid = low + (high - low) / 2;
        if (compare(&s->entries[mid], kind, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* A copy in which `entry`, if any, replaces n_gone entries at index `at`. */
static int derive(struct limit_set **out, const struct limit_set *old, int at, int n_gone,
    const struct limit_entry *entry, struct err *e)
{
    int n_old = limit_set_count(old), n = n_old - n_gone + (entry != NULL);
    struct limit_set *s = NULL;

    if (n > LIMIT_ENTRIES_MAX)
        return err_set(e, ERR_RANGE, "more than %d entries with limits", LIMIT_ENTRIES_MAX);
    s = try_calloc(1, sizeof(*s) + (size_t)n * sizeof(*entry));
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the limits");
    s->n_refs = 1;
    for (int i = 0; i < at; i++)
        s->entries[s->n++] = old->entries[i];
    if (entry)
        s->entries[s->n++] = *entry;
    for (int i = at + n_gone; i < n_old; i++)
        s->entries[s->n++] = old->entries[i];
    *out = s;
    return 0;
}

int limit_set_put(struct limit_set **out, const struct limit_set *old,
    const struct limit_entry *entry, struct err *e)
{
    bool is_present = limit_set_find(old, entry->kind, entry->name) != NULL;

    return derive(out, old, lower_bound(old, entry->kind, entry->name), is_present, entry, e);
}

int limit_set_delete(struct limit_set **out, const struct limit_set *old,
    const struct limit_entry *entry, struct err *e)
{
    return derive(out, old, lower_bound(old, entry->kind, entry->name), 1, NULL, e);
}

/* The count is the only member that changes in a shared set. */
static struct limit_set *counted(const struct limit_set *s)
{
    return (struct limit_set *)(uintptr_t)s;
}

const struct limit_set *limit_set_ref(const struct limit_set *s)
{
    if (s)
        atomic_fetch_add_explicit(&counted(s)->n_refs, 1, memory_order_relaxed);
    return s;
}

void limit_set_unref(const struct limit_set *s)
{
    if (s && atomic_fetch_sub_explicit(&counted(s)->n_refs, 1, memory_order_acq_rel) == 1)
        mem_free(counted(s));
}

int limit_set_count(const struct limit_set *s)
{
    return s ? s->n : 0;
}

const struct limit_entry *limit_set_at(const struct limit_set *s, int i)
{
    CHECK(i >= 0 && i < limit_set_count(s));
    return &s->entries[i];
}

const struct limit_entry *limit_set_find(
    const struct limit_set *s, enum limit_entry_kind kind, const char *name)
{
    int i = lower_bound(s, kind, name);

    return i < limit_set_count(s) && !compare(&s->entries[i], kind, name) ? &s->entries[i] : NULL;
}
