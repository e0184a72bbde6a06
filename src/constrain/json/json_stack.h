/* json_stack.h: positions of an acceptor of JSON values, and the blobs that they refer to.
 *
 * Positions and blobs are immutable and are on stacks, so that the newest are freed at once. A blob
 * refers to older ones only. The states of the automaton that positions hold are on a third stack,
 * which is registered as roots of the automaton. All address space is reserved at creation. The
 * stacks share one bound in bytes for their largest sizes so far, which is the memory that was
 * written.
 *
 * Owner: the acceptor. */
#pragma once

#include "constrain/regular/automaton.h"
#include "constrain/json/json_program_in.h"

enum blob_type {
    BLOB_FRAME,
    BLOB_VALUES,
    BLOB_LANES,
    BLOB_KEYS,
    BLOB_KEY_LANES,
    BLOB_TEXT,
    BLOB_SEEN
};

struct blob {
    uint32_t size;    /* bytes, a multiple of 8 */
    uint32_t type;    /* enum blob_type */
    uint32_t forward; /* while positions are compacted: new offset; otherwise 0 */
    uint32_t link;    /* an older blob of the type's chain, or 0 */
};

/* An open array or object: `link` is the enclosing one. */
struct frame {
    struct blob blob;
    uint32_t seen; /* keys of classes, or items of an array with uniqueItems: struct seen */
    uint32_t depth;
    uint64_t hash;               /* hash of this frame and all enclosing ones */
    uint64_t n;                  /* members, saturating at the shapes' n_cap */
    uint64_t digest, key_digest; /* digests of the members so far, if is_canonical */
    uint32_t kind, n_branches;
    bool is_unique, is_canonical;
    bool is_partial; /* `seen` lacks the newest key */
    uint8_t pad[5];
    /* struct branch ... */
};

/* The conjunctions that a value has to satisfy. `link` is the frame that encloses the value, with
 * the state after it. */
struct values {
    struct blob blob;
    uint32_t n, pad;
    struct value_entry {
        uint64_t branches; /* branches of the frame that continue */
        conj_id child;
        uint32_t pad;
    } all[];
};

struct lanes { /* scalars: per state of the position */
    struct blob blob;
    uint64_t branches[];
};

struct keys { /* entries that may follow, by rank */
    struct blob blob;
    uint32_t n, all[];
};

struct key_lanes { /* other keys: per state of the position */
    struct blob blob;
    struct key_lane {
        uint32_t branch, class;
    } all[];
};

struct text { /* a byte of the current key or scalar: `link` is the one before */
    struct blob blob;
    uint32_t n; /* bytes, with this one */
    uint32_t byte;
};

struct seen { /* `link` is the one before */
    struct blob blob;
    uint64_t hash; /* hash of the text, or digest of an array or object, which has no text */
    uint64_t n;
    char text[];
};

struct pos {
    uint8_t lex, space;
    uint8_t pad[2];
    uint32_t frame; /* 0: none */
    uint32_t aux;   /* values, lanes or keys */
    uint32_t lanes; /* key_lanes */
    uint32_t text;
    uint32_t states, n_states;
    uint32_t lo, hi, at; /* keys lo..hi agree with the first `at` bytes */
    uint32_t blobs_end, states_end;
};

struct json_stack {
    struct pos *pos;
    uint8_t *blobs;
    state_id *states;
    uint32_t n_pos, blobs_end;
    size_t pos_most, blobs_most, states_most; /* largest sizes so far, in bytes */
    size_t bytes_max;                         /* limit of their sum */
    struct automaton_roots held;              /* the states */
    bool is_full;
};

int json_stack_init(struct json_stack *s, size_t bytes_max, struct err *e) MUST_CHECK;
void json_stack_clear(struct json_stack *s);
/* Zeroed, except for the header; NULL: full. */
void *json_blob(struct json_stack *s, enum blob_type type, size_t bytes, uint32_t link);
static inline void *json_at(const struct json_stack *s, uint32_t offset)
{
    return s->blobs + offset;
}
static inline uint32_t json_offset(const struct json_stack *s, const void *blob)
{
    return (uint32_t)((const uint8_t *)blob - s->blobs);
}
bool json_push_state(struct json_stack *s, state_id id);         /* false: full */
pos_id json_push_pos(struct json_stack *s, const struct pos *p); /* POS_DEAD: full */
void json_stack_release(struct json_stack *s, uint32_t n_pos);
pos_id json_stack_keep(struct json_stack *s, uint32_t n_pos, pos_id p);
size_t json_stack_bytes(const struct json_stack *s); /* written so far */
