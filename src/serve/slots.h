/* slots.h: llama-server's slots: the numbered places in which its conversations run.
 *
 * Here nothing runs in them: the scheduler decides who runs, and a prefix is found whoever computed
 * it. A slot is a name: of a request while it runs, and of the conversation it leaves, which can
 * then be saved to a file, restored from one, or erased (slot_files.c).
 *
 *     idle   ---- slot_begin: the one asked for, else the one whose conversation the prompt goes
 *      ^          on from, else the one not used for longest ----> busy
 *      +---------- slot_end: what was said is its conversation now ---+
 *
 * There are as many as a model runs sequences at once. A request that finds them all busy, for it
 * will have to wait, takes one with its first token, or none; one that asks for a busy slot by its
 * number gets it, too.
 *
 * Any thread. One mutex, held to copy or compare the tokens of conversations at most. */
#pragma once

#include "registry/pool.h"

enum { SLOT_NONE = -1, SLOT_CONTINUES_PERCENT = 10 };

struct slots;
struct slot;

struct slot_params { /* of a request, as GET /slots shows them to whose it is */
    uint64_t seed;
    float temperature, top_p, min_p, typical_p;
    float repeat_penalty, presence_penalty, frequency_penalty;
    int top_k, repeat_last_n, n_predict;
    bool stream, ignore_eos;
};

struct slot_use { /* borrowed until slot_end */
    const struct model *model;
    int wanted; /* SLOT_NONE: any */
    struct cache_scope scope;
    const int32_t *prompt;
    int n_prompt, n_max; /* n_max: tokens of the answer, at most */
    struct slot_params params;
};

struct slot_hold { /* a request's; zeroed = it has none and wants none */
    struct slots *slots;
    struct slot_use use;
    struct slot *slot; /* NULL: none */
    int id, n_told;
    int32_t *tokens; /* prompt and answer; NULL: conversations are not kept */
    int n_tokens;
};

/* Borrows the pool, whose models do not change. keeps: conversations, for save_dir is set; else
 * slots only say who runs. */
struct slots *slots_new(struct pool *p, bool keeps);
void slots_free(struct slots *s); /* NULL is fine; everybody has left */

/* s may be NULL. ERR_RANGE: no such slot. Without memory the conversation is not kept. */
int slot_begin(struct slot_hold *h, struct slots *s, const struct slot_use *u, struct err *e);
void slot_token(struct slot_hold *h, int32_t id); /* a token of the answer; its first choice's */
void slot_end(struct slot_hold *h);               /* also of one that has none */
int slot_id(const struct slot_hold *h);           /* SLOT_NONE: none */

struct slot_view {
    uint64_t task; /* number of the request it was last used by; 0: none yet */
    uint64_t tenant;
    bool is_busy;
    int n_told, n_max; /* tokens of its answer: so far, and at most */
    struct slot_params params;
};
int slots_count(const struct slots *s, const struct model *m);
void slots_view(struct slots *s, const struct model *m, int id, struct slot_view *out);

struct slot_talk { /* a conversation */
    struct cache_scope scope;
    int32_t *tokens; /* mem_free */
    int n;           /* 0: there is none */
};
/* A slot's conversation, copied. ERR_RANGE: no such slot. ERR_FORBIDDEN: another tenant's.
 * ERR_MEMORY. */
int slots_copy(struct slots *s, const struct model *m, int id, uint64_t tenant,
    struct slot_talk *out, struct err *e);
/* It is this one now; *take is empty afterwards. */
void slots_put(struct slots *s, const struct model *m, int id, struct slot_talk *take);

/* The digest of a model's file, once somebody has computed it. */
bool slots_digest(struct slots *s, const struct model *m, uint8_t out[32]);
void slots_set_digest(struct slots *s, const struct model *m, const uint8_t digest[32]);
