/* json_acceptor_in.h: parts of the acceptor of JSON values.
 *
 *   json_acceptor.c  the JSON grammar: brackets, commas, whitespace, scalars
 *   json_member.c    frames: branches of an array or object, and the members that may follow
 *   json_key.c       keys: named ones, and others, which are unique
 *   json_completion.c  short completions
 *
 * Owner: that of the acceptor. */
#pragma once

#include "constrain/regular/shortest.h"
#include "constrain/vocab/class_reach.h"
#include "constrain/json/json_stack.h"

enum lex {
    LEX_START, /* before the value */
    LEX_VALUE,
    LEX_SCALAR,
    LEX_ARRAY_OPEN,
    LEX_OBJECT_OPEN,
    LEX_NEXT_KEY, /* after a comma */
    LEX_KEY,
    LEX_COLON,
    LEX_AFTER, /* after a value in an array or object */
    LEX_END,
    LEX_UNSURE, /* after a comma in an object whose last key was not read (text_end) */
    N_LEX
};

enum { VALUES_MAX = 512, OTHERS_MAX = 256, JSON_TEXT_MAX = 1 << 16, LANES_MAX = 64 * 64 };

/* Excluded texts that begin with the current one. */
struct json_others {
    struct str all[OTHERS_MAX];
    uint32_t n;
    bool is_full;
};

struct json_acceptor {
    struct acceptor base;
    struct json_program *p; /* not changed */
    struct automaton *a;
    struct class_reach *reach;
    state_id *starts; /* roots of the program */
    struct automaton_roots start_roots;
    struct json_stack s;
    struct branch *next; /* scratch: a branch after a member */
    struct option_stack search;
    struct value_entry values[VALUES_MAX];
    uint32_t n_values;
    struct json_others others;
    struct byte_set token_bytes[N_LEX];
    bool alive[LANES_MAX];
    char text[JSON_TEXT_MAX];
    struct member_options options;
    struct json_sizes *sizes; /* NULL: completions are not needed */
    const char *error;        /* bound that was exceeded, or NULL */
    uint64_t seed;
};

static inline struct branch *first_branch(const struct frame *f)
{
    return (struct branch *)(uintptr_t)(f + 1);
}
static inline struct branch *next_branch(const struct branch *b)
{
    return (struct branch *)((uintptr_t)b + branch_bytes(b->shape));
}
static inline const struct frame *frame_at(const struct json_acceptor *a, uint32_t offset)
{
    return offset ? json_at(&a->s, offset) : NULL;
}
static inline bool fits_depth(unsigned cost, uint32_t depth)
{
    return cost != COST_NONE && cost + depth <= JSON_DEPTH_MAX;
}

/* ---- frames */

/* An empty frame; NULL: the memory is full. Branches are added until json_frame_end. */
struct frame *json_frame_begin(
    struct json_acceptor *a, uint32_t parent, uint32_t kind, uint32_t depth);
/* Adds a->next, or its parents to an equal branch. Returns its number; -1: too many. */
int json_frame_add(struct json_acceptor *a, struct frame *f);
void json_frame_end(struct json_acceptor *a, struct frame *f);
/* The frame with the branches of the set only; its offset, or 0: full. */
uint32_t json_frame_filter(struct json_acceptor *a, const struct frame *f, uint64_t set);
/* Opens an array or object with the values. False: dead. */
bool json_open(struct json_acceptor *a, struct pos *q, uint32_t kind);
/* Prepares the next item or the next keys of q->frame. False: none may follow. */
bool json_next_item(struct json_acceptor *a, struct pos *q);
bool json_next_keys(struct json_acceptor *a, struct pos *q);
/* The key is complete; `rank`: its rank if a branch names it, or NO_ITEM. */
bool json_end_key(struct json_acceptor *a, struct pos *q, uint32_t rank);
/* The same for a key with one state, of which the text is not known. */
bool json_end_other_key(struct json_acceptor *a, struct pos *q);
/* The branches of the enclosing frame that continue after the end of q->frame. */
uint64_t json_close(struct json_acceptor *a, const struct frame *f);

/* ---- keys and texts */

bool json_key_step(struct json_acceptor *a, struct pos *q, uint8_t byte);
/* Appends the byte to q->text. */
bool json_text_add(struct json_acceptor *a, struct pos *q, uint8_t byte);
/* Whether a text that begins with q->text and continues from `state` is neither the text of an
 * entry of `shape` (NULL: none) nor in the list `seen`. *has_prefix: some of those begin so. */
bool json_other_text(struct json_acceptor *a, const struct pos *q, state_id state,
    const struct shape *shape, uint32_t seen, bool *has_prefix);
/* Adds the bytes after which the key, which has one state, begins like an excluded text. False:
 * they are too many. */
bool json_key_exceptions(struct json_acceptor *a, const struct pos *q, struct byte_set *all);
/* Adds the text, or a digest without text, to the list. Returns its offset; 0: full. */
uint32_t json_seen_add(struct json_acceptor *a, uint32_t seen, uint32_t text, uint64_t digest);
bool json_seen_has(const struct json_acceptor *a, uint32_t seen, uint64_t hash);
uint64_t json_text_hash(const struct json_acceptor *a, uint32_t text);

/* ---- completions (acceptor.h) */

int json_completion_new(struct acceptor *base, struct err *e);
int32_t json_completion(struct acceptor *base, pos_id p);
void json_completion_free(struct json_acceptor *a);
size_t json_completion_bytes(const struct json_acceptor *a);
