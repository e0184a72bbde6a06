/* slots.h: emulation of llama-server's slots for its clients (GET /slots, save, restore, erase).
 *
 * A slot here is only a name: of a running request, and afterwards of its conversation, which can
 * be saved to a file, restored or erased (slot_files.c). Slots do not affect scheduling or the
 * prefix cache.
 *
 *     idle  -- slot_begin: the requested slot, else the slot whose conversation has the longest
 *       ^      common prefix with the prompt (over SLOT_CONTINUES_PERCENT of it), else the least
 *       |      recently used slot --> busy
 *       +----- slot_end: the conversation of the slot is prompt and output --+
 *
 * A model has as many slots as sequences that run at once; they exist from its first use on, also
 * while it is not loaded. If all are busy, the request waits for
 * admission; it gets a slot with its first token, or none. A request for a busy slot by its number
 * shares it.
 *
 * Any thread. One mutex, held at most while the tokens of conversations are copied or compared. */
#pragma once

#include "registry/registry.h"

enum { SLOT_NONE = -1, SLOT_CONTINUES_PERCENT = 10 };

struct slots;
struct slot;

struct slot_params { /* parameters of a request, which GET /slots shows to its tenant */
    struct sample_params sample;
    int n_predict;
    bool stream, ignore_eos;
};

struct slot_use { /* borrowed until slot_end */
    const struct model *model;
    int wanted; /* SLOT_NONE: any */
    struct cache_scope scope;
    const int32_t *prompt;
    int n_prompt, n_max; /* n_max: token limit of the response */
    struct slot_params params;
};

struct slot_lease { /* slot of a request; zeroed = has none and needs none */
    struct slots *slots;
    struct slot_use use;
    struct slot *slot; /* NULL: none */
    int id, n_generated;
    int32_t *tokens; /* prompt and output; NULL: conversations are not stored */
    int n_tokens;
};

/* keeps_conversations: a slot directory is configured; else slots only show which requests run. */
struct slots *slots_new(bool keeps_conversations);
void slots_free(struct slots *s); /* accepts NULL; no slot is busy */

/* s may be NULL. ERR_RANGE: no such slot. If memory is short, the conversation is not stored. */
int slot_begin(struct slot_lease *h, struct slots *s, const struct slot_use *u, struct err *e);
void slot_token(struct slot_lease *h, int32_t id); /* a generated token of the first choice */
void slot_end(struct slot_lease *h);               /* no effect without a slot */
int slot_id(const struct slot_lease *h);           /* SLOT_NONE: none */

struct slot_view {
    uint64_t task; /* number of the last request that used the slot; 0: none yet */
    uint64_t tenant;
    bool is_busy;
    int n_generated, n_max;    /* tokens of the response: so far, and limit */
    struct slot_params params; /* without the arrays and the mask, which end with the request */
};
int slots_count(struct slots *s, const struct model *m);
void slots_view(struct slots *s, const struct model *m, int id, struct slot_view *out);

struct slot_conversation { /* a conversation */
    struct cache_scope scope;
    int32_t *tokens; /* freed with mem_free */
    int n;           /* 0: no conversation */
};
/* Copies a slot's conversation. ERR_RANGE: no such slot. ERR_FORBIDDEN: it belongs to another
 * tenant. ERR_MEMORY. */
int slots_copy_conversation(struct slots *s, const struct model *m, int id, uint64_t tenant,
    struct slot_conversation *out, struct err *e);
/* Replaces the slot's conversation; *take is empty afterwards. */
void slots_set_conversation(
    struct slots *s, const struct model *m, int id, struct slot_conversation *take);

/* Removes the files that a save left unfinished because its process ended, from the directory of
 * the slot files and those of the keys. */
void slots_remove_stale_files(const char *dir);

/* The digest of a model's files, if slots_set_digest was called for it. */
bool slots_digest(struct slots *s, const struct model *m, uint8_t out[32]);
void slots_set_digest(struct slots *s, const struct model *m, const uint8_t digest[32]);
