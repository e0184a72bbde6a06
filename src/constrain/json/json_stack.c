#include "constrain/json/json_stack.h"

#include "base/mem.h"

enum { BLOBS_START = 16 /* offset 0 means none */ };

int json_stack_init(struct json_stack *s, size_t bytes_max, struct err *e)
{
    CHECK(bytes_max < UINT32_MAX);
    s->bytes_max = bytes_max;
    s->pos = try_malloc(bytes_max);
    s->blobs = try_malloc(bytes_max);
    s->states = try_malloc(bytes_max);
    if (!s->pos || !s->blobs || !s->states)
        return err_set(e, ERR_MEMORY, "no memory for the state of a constraint");
    s->blobs_end = BLOBS_START;
    s->held = (struct automaton_roots){ .ids = s->states };
    return 0;
}

size_t json_stack_bytes(const struct json_stack *s)
{
    return s->pos_most + s->blobs_most + s->states_most;
}

/* Whether one of the stacks may grow to `bytes`; `most` is its largest size so far. */
static bool may_grow(struct json_stack *s, size_t *most, size_t bytes)
{
    if (bytes <= *most)
        return true;
    if (bytes - *most > s->bytes_max - json_stack_bytes(s)) {
        s->is_full = true;
        return false;
    }
    *most = bytes;
    return true;
}

void json_stack_clear(struct json_stack *s)
{
    mem_free(s->pos);
    mem_free(s->blobs);
    mem_free(s->states);
}

void *json_blob(struct json_stack *s, enum blob_type type, size_t bytes, uint32_t link)
{
    struct blob *b = json_at(s, s->blobs_end);

    bytes = (bytes + 7) & ~(size_t)7;
    if (bytes > s->bytes_max || !may_grow(s, &s->blobs_most, s->blobs_end + bytes))
        return NULL;
    memset(b, 0, bytes);
    *b = (struct blob){ .size = (uint32_t)bytes, .type = type, .link = link };
    s->blobs_end += (uint32_t)bytes;
    return b;
}

bool json_push_state(struct json_stack *s, state_id id)
{
    if (!may_grow(s, &s->states_most, (s->held.n + 1) * sizeof(id)))
        return false;
    s->states[s->held.n++] = id;
    return true;
}

pos_id json_push_pos(struct json_stack *s, const struct pos *p)
{
    if (!may_grow(s, &s->pos_most, (s->n_pos + (size_t)1) * sizeof(*p)))
        return POS_DEAD;
    s->pos[s->n_pos] = *p;
    s->pos[s->n_pos].blobs_end = s->blobs_end;
    s->pos[s->n_pos].states_end = (uint32_t)s->held.n;
    return (pos_id){ s->n_pos++ };
}

void json_stack_release(struct json_stack *s, uint32_t n_pos)
{
    s->n_pos = n_pos;
    s->blobs_end = s->pos[n_pos - 1].blobs_end;
    s->held.n = s->pos[n_pos - 1].states_end;
}

/* ---- compaction */

static void mark_chain(struct json_stack *s, uint32_t offset, uint32_t from)
{
    while (offset >= from) {
        struct blob *b = json_at(s, offset);
        if (b->forward)
            return;
        b->forward = 1;
        for (uint32_t k = b->type == BLOB_FRAME ? ((struct frame *)b)->seen : 0; k >= from && k;) {
            struct blob *c = json_at(s, k);
            if (c->forward)
                break;
            c->forward = 1;
            k = c->link;
        }
        offset = b->link;
    }
}

static uint32_t moved(const struct json_stack *s, uint32_t offset, uint32_t from)
{
    return offset < from ? offset : ((struct blob *)json_at(s, offset))->forward;
}

/* Moves the marked blobs to `from`; new offsets of the position. */
static void compact(struct json_stack *s, uint32_t from, struct pos *p)
{
    uint32_t end = from, *refs[] = { &p->frame, &p->aux, &p->lanes, &p->text };

    for (size_t k = 0; k < ARRAY_LEN(refs); k++)
        mark_chain(s, *refs[k], from);
    for (uint32_t at = from; at < s->blobs_end;) {
        struct blob *b = json_at(s, at);
        at += b->size;
        if (b->forward) {
            b->forward = end;
            end += b->size;
        }
    }
    for (size_t k = 0; k < ARRAY_LEN(refs); k++)
        *refs[k] = moved(s, *refs[k], from);
    for (uint32_t at = from; at < s->blobs_end;) {
        struct blob *b = json_at(s, at);
        at += b->size;
        b->link = b->forward ? moved(s, b->link, from) : 0;
        if (b->forward && b->type == BLOB_FRAME)
            ((struct frame *)b)->seen = moved(s, ((struct frame *)b)->seen, from);
    }
    for (uint32_t at = from; at < s->blobs_end;) {
        struct blob *b = json_at(s, at);
        uint32_t to = b->forward, size = b->size;
        if (to) {
            b->forward = 0;
            memmove(json_at(s, to), b, size);
        }
        at += size;
    }
    s->blobs_end = end;
}

pos_id json_stack_keep(struct json_stack *s, uint32_t n_pos, pos_id id)
{
    struct pos p = s->pos[id.i];
    uint32_t from = s->pos[n_pos - 1].blobs_end, states = s->pos[n_pos - 1].states_end;

    if (id.i < n_pos) {
        json_stack_release(s, n_pos);
        return id;
    }
    compact(s, from, &p);
    if (p.states >= states) {
        memmove(s->states + states, s->states + p.states, p.n_states * sizeof(*s->states));
        p.states = states;
        states += p.n_states;
    }
    s->held.n = states;
    s->n_pos = n_pos;
    return json_push_pos(s, &p);
}
