#include "base/hash.h"
#include "constrain/json/json_acceptor_in.h"

/* ---- texts */

static uint32_t text_length(const struct json_acceptor *a, uint32_t text)
{
    return text ? ((struct text *)json_at(&a->s, text))->n : 0;
}

bool json_text_add(struct json_acceptor *a, struct pos *q, uint8_t byte)
{
    struct text *t = json_blob(&a->s, BLOB_TEXT, sizeof(*t), q->text);

    if (!t)
        return false;
    t->byte = byte;
    t->n = text_length(a, q->text) + 1;
    q->text = json_offset(&a->s, t);
    return true;
}

static void copy_text(const struct json_acceptor *a, uint32_t text, uint32_t n, char *out)
{
    for (; text && n; text = ((struct blob *)json_at(&a->s, text))->link)
        out[--n] = (char)((struct text *)json_at(&a->s, text))->byte;
}

uint32_t json_seen_add(struct json_acceptor *a, uint32_t seen, uint32_t text, uint64_t digest)
{
    uint32_t n = text_length(a, text);
    struct seen *s = json_blob(&a->s, BLOB_SEEN, sizeof(*s) + n, seen);

    if (!s)
        return 0;
    s->n = n;
    copy_text(a, text, n, s->text);
    s->hash = n ? hash_bytes(a->seed, s->text, n) : digest;
    return json_offset(&a->s, s);
}

bool json_seen_has(const struct json_acceptor *a, uint32_t seen, uint64_t hash)
{
    for (; seen; seen = ((struct blob *)json_at(&a->s, seen))->link)
        if (((struct seen *)json_at(&a->s, seen))->hash == hash)
            return true;
    return false;
}

uint64_t json_text_hash(const struct json_acceptor *a, uint32_t text)
{
    char room[512];
    uint32_t n = text_length(a, text);
    uint64_t h = n;

    if (n <= sizeof(room)) {
        copy_text(a, text, n, room);
        return hash_bytes(a->seed, room, n);
    }
    /* The same value as that of json_seen_add is only needed for texts in the list, which are
     * found by their digest then. */
    for (; text; text = ((struct blob *)json_at(&a->s, text))->link)
        h = hash_fold(h ^ a->seed, ((struct text *)json_at(&a->s, text))->byte);
    return h;
}

/* ---- texts that are not excluded */

static void add_other(struct json_others *o, struct str s, struct str prefix)
{
    if (!str_starts(s, prefix))
        return;
    o->is_full = o->is_full || o->n == OTHERS_MAX;
    if (o->n < OTHERS_MAX)
        o->all[o->n++] = s;
}

static int compare_prefix(struct str s, struct str prefix)
{
    int order = memcmp(s.p, prefix.p, MIN(s.n, prefix.n));

    return order ? order : s.n < prefix.n ? -1 : 0;
}

static void add_entries(
    const struct json_acceptor *a, struct json_others *o, const struct shape *s, struct str prefix)
{
    uint32_t lo = 0, hi = s->n_entries;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (compare_prefix(a->p->keys[s->entries[mid].key].spelled, prefix) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < s->n_entries && !o->is_full; lo++) {
        struct str key = a->p->keys[s->entries[lo].key].spelled;
        if (!str_starts(key, prefix))
            break;
        add_other(o, key, prefix);
    }
}

/* Whether a byte leads from the state to a text that no excluded one begins with. `at`: the bytes
 * of `path` so far. */
static bool leaves(
    struct json_acceptor *a, state_id s, const struct json_others *o, struct str path, size_t at)
{
    struct byte_set used = { 0 };
    bool is_excluded = false;
    struct str prefix = { path.p, at };

    for (uint32_t k = 0; k < o->n; k++)
        if (str_starts(o->all[k], prefix)) {
            is_excluded = is_excluded || o->all[k].n == at;
            if (o->all[k].n > at)
                byte_set_add(&used, (uint8_t)o->all[k].p[at]);
        }
    if (!is_excluded && automaton_accepts(a->a, s))
        return true;
    for (unsigned b = 0; b < 256; b++)
        if (!byte_set_has(&used, (uint8_t)b) && automaton_step(a->a, s, (uint8_t)b).i)
            return true;
    return false;
}

/* Whether an excluded text has at least n bytes. */
static bool has_longer(
    const struct json_acceptor *a, const struct shape *shape, uint32_t seen, uint32_t n)
{
    bool has = shape && shape->n_entries && n <= a->p->key_bytes_max;

    for (; seen && !has; seen = ((struct blob *)json_at(&a->s, seen))->link)
        has = ((struct seen *)json_at(&a->s, seen))->n >= n;
    return has;
}

/* Lists the excluded texts that begin with q->text, which is copied to a->text. */
static void list_others(
    struct json_acceptor *a, const struct pos *q, const struct shape *shape, uint32_t seen)
{
    struct json_others *o = &a->others;
    uint32_t n = text_length(a, q->text);
    struct str prefix = { a->text, n };

    o->n = 0;
    o->is_full = false;
    if (!has_longer(a, shape, seen, n))
        return;
    if (n >= JSON_TEXT_MAX) /* longer than all excluded texts of schemas of usual size */
        return;
    copy_text(a, q->text, n, a->text);
    if (shape)
        add_entries(a, o, shape, prefix);
    for (; seen && !o->is_full; seen = ((struct blob *)json_at(&a->s, seen))->link) {
        const struct seen *s = json_at(&a->s, seen);
        if (s->n)
            add_other(o, (struct str){ s->text, s->n }, prefix);
    }
}

bool json_key_exceptions(struct json_acceptor *a, const struct pos *q, struct byte_set *all)
{
    const struct frame *f = frame_at(a, q->frame);
    const struct branch *b = first_branch(f);
    uint32_t n = text_length(a, q->text);

    for (uint32_t k = ((struct key_lanes *)json_at(&a->s, q->lanes))->all->branch; k > 0; k--)
        b = next_branch(b);
    list_others(a, q, b->shape, f->seen);
    for (uint32_t k = 0; k < a->others.n; k++)
        if (a->others.all[k].n > n)
            byte_set_add(all, (uint8_t)a->others.all[k].p[n]);
    return !a->others.is_full;
}

bool json_other_text(struct json_acceptor *a, const struct pos *q, state_id state,
    const struct shape *shape, uint32_t seen, bool *has_prefix)
{
    const struct json_others *o = &a->others;
    uint32_t n = text_length(a, q->text);
    bool is_found = false;
    uint32_t pushed = (uint32_t)a->s.held.n;

    list_others(a, q, shape, seen);
    *has_prefix = o->n;
    if (!o->n || o->is_full)
        return true;
    /* Follows each excluded text until a byte leaves it. */
    for (uint32_t k = 0; k < o->n && !is_found; k++) {
        state_id s = state;
        for (size_t at = n; s.i && at <= o->all[k].n && !is_found; at++) {
            if (!json_push_state(&a->s, s))
                break;
            is_found = leaves(a, s, o, o->all[k], at);
            s = at < o->all[k].n ? automaton_step(a->a, s, (uint8_t)o->all[k].p[at]) : STATE_DEAD;
            a->s.held.n = pushed;
        }
    }
    return is_found;
}

/* ---- named keys */

/* Narrows lo..hi to the keys with the byte at q->at. */
static void narrow(const struct json_acceptor *a, struct pos *q, uint8_t byte)
{
    const struct keys *keys = json_at(&a->s, q->aux);
    uint32_t lo = q->lo, hi = q->hi;

    for (int upper = 0; upper < 2; upper++) {
        uint32_t from = upper ? q->lo : lo, to = hi;
        while (from < to) {
            uint32_t mid = from + (to - from) / 2;
            struct str s = a->p->keys[keys->all[mid]].spelled;
            int at = s.n > q->at ? (uint8_t)s.p[q->at] : -1;
            if (at < byte + upper)
                from = mid + 1;
            else
                to = mid;
        }
        if (upper)
            q->hi = from;
        else
            q->lo = from;
    }
    q->at++;
}

/* Steps the states of other keys; those which cannot end are dropped. */
static bool step_lanes(struct json_acceptor *a, struct pos *q, uint8_t byte)
{
    const struct key_lanes *old = json_at(&a->s, q->lanes);
    const struct frame *f = frame_at(a, q->frame);
    uint32_t first = (uint32_t)a->s.held.n, n = 0, from = q->states, n_from = q->n_states;
    bool *alive = a->alive, has_prefix;

    if (!n_from)
        return true;
    if (!json_text_add(a, q, byte))
        return false;
    for (uint32_t k = 0; k < n_from; k++) {
        state_id s = automaton_step(a->a, a->s.states[from + k], byte);
        const struct branch *b = first_branch(f);
        for (uint32_t j = 0; j < old->all[k].branch; j++)
            b = next_branch(b);
        if (s.i && !json_push_state(&a->s, s))
            return false;
        alive[k] = s.i && json_other_text(a, q, s, b->shape, f->seen, &has_prefix);
        n += alive[k];
        if (s.i && !alive[k])
            a->s.held.n--;
    }
    q->states = first;
    q->n_states = n;
    if (n == n_from)
        return true;
    struct key_lanes *lanes =
        json_blob(&a->s, BLOB_KEY_LANES, sizeof(*lanes) + n * sizeof(struct key_lane), 0);
    if (!lanes)
        return false;
    n = 0;
    for (uint32_t k = 0; k < n_from; k++)
        if (alive[k])
            lanes->all[n++] = old->all[k];
    q->lanes = json_offset(&a->s, lanes);
    return true;
}

bool json_key_step(struct json_acceptor *a, struct pos *q, uint8_t byte)
{
    const struct keys *keys = json_at(&a->s, q->aux);

    narrow(a, q, byte);
    if (!step_lanes(a, q, byte))
        return false;
    if (byte == '"' && q->at > 1) {
        bool is_named = q->lo < q->hi && a->p->keys[keys->all[q->lo]].spelled.n == q->at;
        bool is_other = q->n_states && automaton_is_final(a->a, a->s.states[q->states]);
        uint32_t rank = is_named ? keys->all[q->lo] : NO_ITEM;
        if (is_named || is_other) {
            q->lex = LEX_COLON;
            q->space = 0;
            return json_end_key(a, q, rank);
        }
    }
    return q->lo < q->hi || q->n_states;
}
