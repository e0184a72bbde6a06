/* answer_state.h: the state of an answer, for answer.c and the rows of wire.h only.
 *
 * Everything a row needs later is formatted when it comes: text is escaped into `text` (a body) or
 * straight into a frame (a stream), logprobs into lists of JSON items without brackets. A stream
 * empties the lists with each frame. Owner: the io thread. */
#pragma once

#include "api/common/answer.h"
#include "api/common/wire.h"

enum answer_list {
    LIST_TOKENS,   /* chat: logprob objects; completion: token texts */
    LIST_LOGPROBS, /* completion: numbers */
    LIST_TOP,      /* completion: objects */
    LIST_OFFSETS,  /* completion: numbers */
    LIST_IDS,      /* token_ids */
    N_ANSWER_LISTS
};

struct answer_token { /* one token as its wire shows it */
    int32_t id;
    struct str bytes;
    const struct sampled *s; /* NULL: nothing predicted it */
    uint32_t offset;         /* characters before it */
};

struct answer_call {
    int number;          /* as the caller counts them: broken ones, too */
    struct str id, name; /* heap; the id is made here */
    struct buf args;     /* raw JSON so far */
    bool has_ended;      /* complete: the arguments are a JSON object */
    int block;           /* for the wire's own use: the number of a block or an item */
};

struct choice {
    int number; /* what the client sees as index */
    bool has_ended, has_started;
    enum finish finish;
    struct str stop_text; /* .p NULL: none */
    int32_t stop_id;      /* -1: none */
    int n_tokens;         /* generated */
    double sum_logprob;
    uint32_t n_characters;     /* of the tokens so far */
    int n_reasoning;           /* of n_tokens, thoughts */
    struct buf text;           /* escaped; of a body */
    struct buf reasoning;      /* likewise */
    struct answer_call *calls; /* heap, also of a stream; broken ones are gone */
    int n_calls, cap_calls;
    bool has_open_call; /* the last of them goes on */
    bool ends_in_calls; /* FINISH_STOP and a complete call: a finish of its own on each wire */
    /* For the wire's own use: what is open in its stream, how many were, where it begins. */
    int block, n_blocks;
    size_t block_from;
    struct buf lists[N_ANSWER_LISTS];
    size_t shown[N_ANSWER_LISTS]; /* their lengths when text was last shown */
};

struct answer {
    struct answer_setup setup;
    const struct wire *wire;
    char id[64];
    bool has_begun, has_ended, has_failed;
    int n_prompt, n_cached;
    int id_slot;                /* -1: none */
    int n_accepted, n_rejected; /* tokens of the client's prediction */
    struct answer_times times;
    void *state;           /* the wire's own; see its begin and clear */
    size_t held;           /* bytes of all choices, against ANSWER_BYTES_MAX */
    struct buf out;        /* stream: whole frames not yet in the sink; else the body */
    struct buf head, tail; /* of every frame; see the row's begin */
    struct buf plain_tail; /* of a frame with nothing but text; empty: there are none */
    size_t n_head_common;  /* bytes of head that go in front of any frame */
    int n_choices;
    struct choice choices[];
};

/* True: what comes is given to the row as it comes. */
static inline bool answer_tells(const struct answer *a)
{
    return a->setup.ask->stream || a->wire->is_gathering;
}

/* ---- between answer.c and answer_calls.c */

/* The choice, or NULL when nothing more is to be told of it. */
struct choice *answer_open_choice(struct answer *a, int i);
size_t answer_choice_bytes(const struct choice *c);
/* What a choice holds has changed by what it had before. */
void answer_account(struct answer *a, const struct choice *c, size_t before);
/* Something was shown, and so were the tokens that made it. */
void answer_shown(struct answer *a, struct choice *c);
void answer_calls_end(
    struct answer *a, struct choice *c); /* the choice ends: so does an open call */
void answer_calls_clear(struct choice *c);

/* ---- for the rows */

/* The choice's list, with a comma when it has items. */
struct buf *choice_item(struct choice *c, enum answer_list list);
/* The next best of a prompt that has not been taken yet, by mean log-probability; for bodies. */
const struct choice *answer_rank(const struct answer *a, int prompt, int place);
