/* acceptor.h: a language that is read byte by byte: the common interface of automata, JSON values
 * and grammars.
 *
 * A position is the state of an acceptor after a text. Positions are persistent: a step makes a new
 * one and leaves the old one valid, so that a mask can follow many tokens from one position, and a
 * grammar can hold several positions of a JSON value. Their memory is a stack: acceptor_mark and
 * acceptor_release free all positions that were made since the mark.
 *
 * Exact: a position other than POS_DEAD always has a continuation that is accepted.
 *
 * An acceptor is made from a compiled constraint for one choice. Work and memory are bounded; after
 * an exceeded bound every step returns POS_DEAD and acceptor_check returns the error.
 *
 * Owner: one thread at a time. */
#pragma once

#include "constrain/regular/automaton.h"
#include "constrain/vocab/token_class.h"

typedef struct pos_id {
    uint32_t i;
} pos_id;

#define POS_DEAD  ((pos_id){ 0 }) /* no text can be completed */
#define POS_START ((pos_id){ 1 })

struct acceptor;

enum { COMPLETION_END = -1, COMPLETION_NONE = -2, COMPLETION_TOKEN = 256 };

struct acceptor_text {
    state_id state;
    /* Bytes after which the text has to be read by steps of the acceptor. All others lead to a live
     * position exactly if the state has a transition, and so do all bytes after them. */
    struct byte_set except;
};

struct acceptor_ops {
    void (*free)(struct acceptor *a);
    pos_id (*step)(struct acceptor *a, pos_id p, uint8_t byte);
    /* A control token, which has no bytes. NULL: the language contains none. */
    pos_id (*step_token)(struct acceptor *a, pos_id p, int32_t token);
    /* The control tokens that may follow: writes at most `cap` ids, returns their number, which may
     * be larger. NULL: none. */
    size_t (*tokens)(struct acceptor *a, pos_id p, int32_t *ids, size_t cap);
    bool (*accepts)(struct acceptor *a, pos_id p);
    struct byte_set (*next_bytes)(struct acceptor *a, pos_id p);
    /* A superset of next_bytes that takes few instructions. NULL: all bytes. */
    struct byte_set (*may_follow)(struct acceptor *a, pos_id p);
    /* Returns the same as class_reach_get (class_reach.h): exactly so many characters of the class
     * are permitted, or at least n_max of them; 0: unknown. */
    uint32_t (*reach)(struct acceptor *a, pos_id p, enum token_class class, uint32_t n_max);
    /* True if all texts may follow; false does not exclude it. */
    bool (*permits_all)(struct acceptor *a, pos_id p);
    /* Positions with equal keys permit the same texts; valid until acceptor_generation changes. 0:
     * there is no key. */
    uint64_t (*key)(struct acceptor *a, pos_id p);
    uint64_t (*generation)(struct acceptor *a);

    /* The automaton that reads texts: scalars and keys of JSON, or the whole language. NULL: there
     * is none, and the next four are NULL, too. */
    struct automaton *(*texts)(struct acceptor *a);
    /* True if the position is inside of a text that a state of this automaton describes. */
    bool (*text)(struct acceptor *a, pos_id p, struct acceptor_text *out);
    /* The position after the end of the text, or POS_DEAD if nothing may follow. A text has ended
     * in a final state; in an accepting state it also ends before a byte without transition, which
     * is then read from this position. */
    pos_id (*text_end)(struct acceptor *a, pos_id p);
    /* True if a position that follows text_end depends on the bytes of the text: they have to be
     * read. It has no successors. NULL: never. */
    bool (*is_unsure)(struct acceptor *a, pos_id p);

    uint32_t (*mark)(struct acceptor *a);
    void (*release)(struct acceptor *a, uint32_t mark);
    /* Frees the positions made since the mark except `p`, which receives a new id. */
    pos_id (*keep)(struct acceptor *a, uint32_t mark, pos_id p);

    /* Short completions (completion.h). `completion_new` allocates what they need, once, before the
     * first step; -1: out of memory. `completion` returns how a short completion of p continues: a
     * byte, COMPLETION_TOKEN + the id of a control token, COMPLETION_END if p accepts, or
     * COMPLETION_NONE. It depends on the language after p only. */
    int (*completion_new)(struct acceptor *a, struct err *e);
    int32_t (*completion)(struct acceptor *a, pos_id p);

    int (*check)(const struct acceptor *a, struct err *e); /* -1 after an exceeded bound */
    size_t (*bytes)(const struct acceptor *a);
};

struct acceptor { /* first member of each implementation */
    const struct acceptor_ops *ops;
};
