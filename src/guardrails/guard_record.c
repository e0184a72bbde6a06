#include "guardrails/guard_record.h"

void guard_record_add(struct guard_record *r, const struct guardrails *g, enum guard_place place,
    const struct guard_hit *hit)
{
    enum guard_action action = guardrails_at(g, hit->set)->action;

    r->n_hits[place][action]++;
    r->is_blocked |= action == GUARD_BLOCK;
    for (int i = 0; i < r->n; i++) {
        const struct guard_note *n = &r->notes[i];
        if (n->set == hit->set && n->kind == hit->kind && n->entry == hit->entry &&
            n->place == place)
            return;
    }
    if (r->n == GUARD_NOTES_MAX) {
        r->n_more++;
        return;
    }
    r->notes[r->n++] =
        (struct guard_note){ (uint8_t)hit->set, (uint8_t)hit->kind, (uint8_t)place, hit->entry };
}

void guard_entry_write(enum guard_kind kind, int entry, struct buf *out)
{
    if (kind == GUARD_DETECTOR)
        buf_putz(out, guard_detector_names[entry]);
    else
        buf_printf(out, "%s[%d]", kind == GUARD_WORD ? "word" : "pattern", entry);
}

void guard_record_write(const struct guard_record *r, const struct guardrails *g, struct buf *out)
{
    for (int i = 0; i < r->n; i++) {
        const struct guard_note *n = &r->notes[i];
        const struct guard_set *set = guardrails_at(g, n->set);
        buf_printf(out, "%s%s/", i ? "," : "", set->name);
        guard_entry_write((enum guard_kind)n->kind, n->entry, out);
        buf_printf(out, " %s %s", guard_action_names[set->action], guard_place_names[n->place]);
    }
    if (r->n_more)
        buf_printf(out, ",%d more", r->n_more);
}
