#include "constrain/grammar/grammar_positions.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

enum { BYTES_PER_ROW = 152 }; /* memory of a row and its share of the other arrays */

static uint32_t power_of_two(uint32_t n)
{
    uint32_t p = 64;

    while (p < n)
        p *= 2;
    return p;
}

/* Takes the next n * size bytes of the memory, which is zeroed. */
static void *carve(char **at, size_t n, size_t size)
{
    char *p = *at;

    *at += (n * size + 15) / 16 * 16;
    return p;
}

int positions_init(struct positions *p, size_t bytes_max, const struct symbol *symbols,
    struct acceptor **subs, uint32_t n_subs)
{
    uint32_t n = (uint32_t)MIN(MAX(bytes_max / BYTES_PER_ROW, (size_t)64), (size_t)1 << 24);

    *p = (struct positions){ .symbols = symbols, .subs = subs, .n_subs = n_subs, .cap_rows = n };
    p->seed = rng_entropy();
    p->cap = (struct heights){ .items = 4 * n, .units = n / 2, .callers = n, .journal = n };
    p->row_mask = power_of_two(n + n / 2) - 1;
    p->unit_mask = power_of_two(n / 2 + n / 4) - 1;
    size_t sizes = n * (sizeof(*p->rows) + sizeof(*p->callers) + sizeof(*p->journal)) +
                   4 * (size_t)n * (sizeof(*p->items) + sizeof(*p->states)) +
                   (size_t)n / 2 * (sizeof(*p->units) + sizeof(*p->moved)) +
                   ((size_t)p->row_mask + p->unit_mask + 2) * sizeof(uint32_t);
    p->bytes = sizes + n_subs + 16 * 16;
    p->memory = try_calloc(1, p->bytes);
    if (!p->memory)
        return -1;
    char *at = p->memory;
    p->rows = carve(&at, n, sizeof(*p->rows));
    p->items = carve(&at, p->cap.items, sizeof(*p->items));
    p->states = carve(&at, p->cap.items, sizeof(*p->states));
    p->units = carve(&at, p->cap.units, sizeof(*p->units));
    p->moved = carve(&at, p->cap.units, sizeof(*p->moved));
    p->callers = carve(&at, p->cap.callers, sizeof(*p->callers));
    p->journal = carve(&at, p->cap.journal, sizeof(*p->journal));
    p->row_slots = carve(&at, p->row_mask + 1, sizeof(*p->row_slots));
    p->unit_slots = carve(&at, p->unit_mask + 1, sizeof(*p->unit_slots));
    p->is_kept = carve(&at, n_subs, sizeof(*p->is_kept));
    p->n_rows = 1;
    return 0;
}

void positions_clear(struct positions *p)
{
    mem_free(p->memory);
    *p = (struct positions){ 0 };
}

/* ---- hash tables. Entries are removed in the reverse order of their insertion, so that linear
 * probing needs no marks of removed entries. */

static uint32_t free_slot(const uint32_t *slots, uint32_t mask, uint64_t hash)
{
    uint32_t at = (uint32_t)(hash >> 32) & mask;

    while (slots[at])
        at = (at + 1) & mask;
    return at;
}

static void remove_entry(uint32_t *slots, uint32_t mask, uint64_t hash, uint32_t entry)
{
    uint32_t at = (uint32_t)(hash >> 32) & mask;

    while (slots[at] != entry)
        at = (at + 1) & mask;
    slots[at] = 0;
}

static uint64_t callers_hash(
    const struct positions *p, uint32_t component, const struct caller *c, uint32_t n)
{
    uint64_t h = hash_fold(p->seed, component);

    for (uint32_t k = 0; k < n; k++)
        h = hash_fold(
            hash_fold(h, ((uint64_t)c[k].rule << 32) | c[k].slot), p->units[c[k].unit].hash);
    return h;
}

uint32_t positions_unit(
    struct positions *p, uint32_t component, const struct caller *callers, uint32_t n)
{
    uint64_t hash = callers_hash(p, component, callers, n);

    for (uint32_t at = (uint32_t)(hash >> 32) & p->unit_mask; p->unit_slots[at];
         at = (at + 1) & p->unit_mask) {
        uint32_t k = p->unit_slots[at] - 1;
        const struct unit *u = &p->units[k];
        if (u->hash == hash && u->component == component && u->n == n &&
            !memcmp(p->callers + u->first, callers, n * sizeof(*callers)))
            return k;
    }
    if (p->n.units == p->cap.units || n > p->cap.callers - p->n.callers)
        return UINT32_MAX;
    p->units[p->n.units] = (struct unit){ hash, component, p->n.callers, n };
    if (n)
        memcpy(p->callers + p->n.callers, callers, n * sizeof(*callers));
    p->n.callers += n;
    p->unit_slots[free_slot(p->unit_slots, p->unit_mask, hash)] = p->n.units + 1;
    return p->n.units++;
}

static uint64_t items_hash(
    const struct positions *p, const struct item *items, uint32_t n, bool accepts)
{
    uint64_t h = p->seed + accepts;

    for (uint32_t k = 0; k < n; k++)
        h = hash_fold(hash_fold(h, ((uint64_t)items[k].slot << 32) | items[k].pos),
            p->units[items[k].unit].hash);
    return h;
}

static bool is_same_row(
    const struct positions *p, const struct row *r, const struct item *items, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        const struct item *i = &p->items[r->first + k];
        if (i->slot != items[k].slot || i->unit != items[k].unit || i->pos != items[k].pos)
            return false;
    }
    return true;
}

static void write_items(struct positions *p, uint32_t first, const struct item *items, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        p->items[first + k] = items[k];
        p->states[first + k].i = items[k].pos;
    }
}

uint32_t positions_row(struct positions *p, const struct item *items, uint32_t n, bool accepts,
    const struct heights *below)
{
    uint64_t hash = items_hash(p, items, n, accepts);

    for (uint32_t at = (uint32_t)(hash >> 32) & p->row_mask; p->row_slots[at];
         at = (at + 1) & p->row_mask) {
        const struct row *r = &p->rows[p->row_slots[at]];
        if (r->hash == hash && r->n == n && r->accepts == accepts && is_same_row(p, r, items, n)) {
            uint32_t found = p->row_slots[at];
            positions_cut(p, below);
            return found;
        }
    }
    if (p->n_rows == p->cap_rows || n > p->cap.items - below->items)
        return 0;
    write_items(p, below->items, items, n);
    p->n.items = below->items + n;
    p->rows[p->n_rows] = (struct row){ hash, below->items, n, accepts, p->n };
    p->row_slots[free_slot(p->row_slots, p->row_mask, hash)] = p->n_rows;
    return p->n_rows++;
}

void positions_cut(struct positions *p, const struct heights *to)
{
    while (p->n.journal > to->journal) {
        const struct journal_entry *j = &p->journal[--p->n.journal];
        p->subs[j->sub]->ops->release(p->subs[j->sub], j->mark);
    }
    while (p->n.units > to->units) {
        const struct unit *u = &p->units[--p->n.units];
        remove_entry(p->unit_slots, p->unit_mask, u->hash, p->n.units + 1);
    }
    p->n.items = to->items;
    p->n.callers = to->callers;
}

static void remove_rows(struct positions *p, uint32_t n_rows)
{
    while (p->n_rows > n_rows) {
        p->n_rows--;
        remove_entry(p->row_slots, p->row_mask, p->rows[p->n_rows].hash, p->n_rows);
    }
}

void positions_release(struct positions *p, uint32_t n_rows)
{
    if (n_rows >= p->n_rows)
        return;
    struct heights to = n_rows > 1 ? p->rows[n_rows - 1].top : (struct heights){ 0 };
    remove_rows(p, n_rows);
    positions_cut(p, &to);
}

/* Moves the units that the items reach to the bottom of the released part, in their order, so that
 * sorted lists stay sorted. */
static void keep_units(
    struct positions *p, const struct heights *to, struct item *items, uint32_t n)
{
    uint32_t n_units = p->n.units, at = to->units, at_caller = to->callers;

    if (n_units == to->units)
        return;
    memset(p->moved + to->units, 0, (n_units - to->units) * sizeof(*p->moved));
    for (uint32_t k = 0; k < n; k++)
        p->moved[items[k].unit] |= items[k].unit >= to->units;
    for (uint32_t u = n_units; u-- > to->units;) {
        remove_entry(p->unit_slots, p->unit_mask, p->units[u].hash, u + 1);
        for (uint32_t k = 0; p->moved[u] && k < p->units[u].n; k++)
            if (p->callers[p->units[u].first + k].unit >= to->units)
                p->moved[p->callers[p->units[u].first + k].unit] = 1;
    }
    for (uint32_t u = to->units; u < n_units; u++) {
        if (!p->moved[u])
            continue;
        struct unit kept = p->units[u];
        for (uint32_t k = 0; k < kept.n; k++) {
            struct caller c = p->callers[kept.first + k];
            c.unit = c.unit >= to->units ? p->moved[c.unit] : c.unit;
            p->callers[at_caller + k] = c;
        }
        kept.first = at_caller;
        at_caller += kept.n;
        p->moved[u] = at;
        p->units[at] = kept;
        p->unit_slots[free_slot(p->unit_slots, p->unit_mask, kept.hash)] = at + 1;
        at++;
    }
    for (uint32_t k = 0; k < n; k++)
        if (items[k].unit >= to->units)
            items[k].unit = p->moved[items[k].unit];
    p->n.units = at;
    p->n.callers = at_caller;
}

static bool is_of_sub(const struct positions *p, const struct item *i, uint32_t sub)
{
    return p->symbols[i->slot].kind == SYMBOL_JSON && p->symbols[i->slot].value == sub;
}

/* Releases a sub-acceptor to its mark, except the position of the items. Several positions cannot
 * be kept alone: then all stay. Returns true if something stays. */
static bool keep_sub(
    struct positions *p, const struct journal_entry *j, struct item *items, uint32_t n)
{
    struct acceptor *sub = p->subs[j->sub];
    pos_id pos = POS_DEAD;
    bool has_several = false;

    for (uint32_t k = 0; k < n; k++)
        if (is_of_sub(p, &items[k], j->sub)) {
            has_several = has_several || (pos.i && pos.i != items[k].pos);
            pos.i = items[k].pos;
        }
    if (has_several)
        return true;
    if (!pos.i) {
        sub->ops->release(sub, j->mark);
        return false;
    }
    pos_id kept = sub->ops->keep(sub, j->mark, pos);
    for (uint32_t k = 0; k < n; k++)
        if (is_of_sub(p, &items[k], j->sub))
            items[k].pos = kept.i;
    return true;
}

/* The first journal entry of each sub-acceptor has its mark before all of its positions. */
static void keep_subs(struct positions *p, uint32_t from, struct item *items, uint32_t n)
{
    uint32_t at = from;

    for (uint32_t k = from; k < p->n.journal; k++) {
        struct journal_entry j = p->journal[k];
        if (p->is_kept[j.sub])
            continue;
        p->is_kept[j.sub] = true;
        if (keep_sub(p, &j, items, n))
            p->journal[at++] = j;
    }
    if (p->n.journal > from)
        memset(p->is_kept, 0, p->n_subs);
    p->n.journal = at;
}

uint32_t positions_keep(struct positions *p, uint32_t n_rows, uint32_t row)
{
    struct row kept = p->rows[row];
    struct heights to = n_rows > 1 ? p->rows[n_rows - 1].top : (struct heights){ 0 };
    struct item *items = p->items + to.items;

    if (row < n_rows) {
        positions_release(p, n_rows);
        return row;
    }
    remove_rows(p, n_rows);
    memmove(items, p->items + kept.first, kept.n * sizeof(*items));
    keep_units(p, &to, items, kept.n);
    keep_subs(p, to.journal, items, kept.n);
    for (uint32_t k = 0; k < kept.n; k++)
        p->states[to.items + k].i = items[k].pos;
    p->n.items = to.items + kept.n;
    kept = (struct row){ items_hash(p, items, kept.n, kept.accepts), to.items, kept.n, kept.accepts,
        p->n };
    p->rows[p->n_rows] = kept;
    p->row_slots[free_slot(p->row_slots, p->row_mask, kept.hash)] = p->n_rows;
    return p->n_rows++;
}
