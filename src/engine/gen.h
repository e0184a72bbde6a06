/* gen.h: an engine request: all memory that a request needs in the engine, in one block.
 *
 * Owner, in sequence: the caller until engine_submit; the engine thread until GEN_END (the caller
 * only reads `in` and posts messages); the caller again. The receiver of ENGINE_MSG_FREE frees the
 * block. An event is either free (linked from its choice) or sent to the caller. */
#pragma once

#include "base/list.h"
#include "engine/spec/draft_text.h"
#include "engine/submit_queue.h"
#include "engine/seq.h"

_Static_assert(sizeof(struct gen_event) % 64 == 0, "see there");
_Static_assert((int)GEN_CHOICES_MAX == (int)SEQ_CHOICES_MAX, "one choice, one sequence");

struct gen_choice {
    /* First cache line: fields that each token reads and writes. */
    ALIGNED(64) struct gen *gen;
    int32_t *tokens;               /* [n_prompt + max_tokens] */
    struct gen_event *free_events; /* list of free events that were returned, through msg.next */
    /* SEQ_NONE after release: after is_ended and, for the first choice, after the fork. */
    seq_id seq;
    int index;
    int n_out;
    int credits;        /* number of free events; the scheduler has a copy */
    int n_script;       /* script tokens sent */
    int script_group;   /* group being sent */
    int n_used;         /* events from here on have never been sent */
    bool is_ended;      /* GEN_CHOICE_END is posted */
    bool was_predicted; /* the last token equals the client's prediction */
    bool has_waited;    /* the delay of the group is over */

    /* Constraint (constrained.h): the mask of the next token, unless it is pending; the masks of
     * the logits rows of a step with draft tokens. */
    struct token_mask mask;
    const struct token_mask *draft_masks;    /* [draft tokens + 1]; NULL: there are none */
    bool is_mask_pending, is_mask_continued; /* not computed; an earlier step has begun it */
    bool has_mask_error;                     /* a bound was exceeded */
    struct list_link in_masks;               /* in core.masks_pending while pending */

    int n_events;
    struct gen_event *events; /* [n_events] */
    page_id *pages, *windows; /* [pages_for(n_prompt + max_tokens)] */
    struct draft_seq draft;
    enum draft_source draft_source; /* source of the draft tokens of this step */
    struct tier_read *tier_read;    /* parked until these pages are read; NULL = none */
    int n_tier_lookups;             /* tier look-ups; at most one more than the preemptions */
    struct gen_event end;
    struct msg stop_msg;
    _Atomic bool is_stop_posted;
    /* Owned by the caller, in a cache line that the engine does not write: n_returned processed
     * events that are not yet returned. */
    struct msg *returned, *returned_last;
    int n_returned;
};

struct gen {
    /* First cache line: fields that each token reads, including the first ones of `in`. */
    ALIGNED(64) struct mailbox *reply;
    int max_out;       /* max_tokens, or the rest of the context */
    int priority_slot; /* index in engine_stats.by_priority; ENGINE_PRIORITIES = others */
    bool is_forked;    /* the prompt is computed and the choices are independent */
    bool has_started;  /* result.started_ns is set */
    bool has_token;    /* result.first_token_ns is set */
    struct gen_input in;

    void *user;
    uint64_t id;
    struct submit_queue *queue;  /* counted reference; NULL until submitted */
    int n_live;                  /* choices that have not ended */
    int n_masks_pending;         /* choices with is_mask_pending */
    bool is_over;                /* GEN_END is posted */
    struct tier_read *tier_read; /* pages read before the sequences are scheduled; NULL = none */
    int n_unmet;                 /* choices that ended with FINISH_UNMET */
    int unmet_choice;            /* lowest choice that could not continue, and the reason */
    struct err unmet;            /* ERR_NONE: there is none */
    struct ngram prompt_ngram, predicted_ngram; /* filled by gen_new, then constant */
    struct list_link in_core;                   /* in core.gens */
    struct gen_result result;
    struct gen_event begun, end;
    struct msg submit_msg, cancel_msg, free_msg;
    _Atomic bool is_cancel_posted;
    struct gen_choice choice[];
};

/* Unique among all choices of the process. */
static inline uint64_t choice_key(const struct gen_choice *ch)
{
    return ch->gen->id * GEN_CHOICES_MAX + (uint64_t)ch->index;
}

/* Constraint of the choice; NULL: there is none. */
static inline const struct sample_constraint *choice_constraint(const struct gen_choice *ch)
{
    const struct gen_input *in = &ch->gen->in;

    return in->constraints && in->constraints[ch->index].ops ? &in->constraints[ch->index] : NULL;
}

struct gen_event *choice_new_event(struct gen_choice *ch); /* an event that was never sent */

/* Takes a free event to send; the choice must have credits. The caller fills in the token. */
static inline struct gen_event *choice_take_event(struct gen_choice *ch)
{
    struct gen_event *ev = ch->free_events;

    CHECK(ch->credits > 0);
    ch->credits--;
    if (!ev)
        return choice_new_event(ch);
    ch->free_events = ev->msg.next ? container_of(ev->msg.next, struct gen_event, msg) : NULL;
    return ev;
}

void choice_return_event(struct gen_choice *ch, struct gen_event *ev);

/* Script: end index of the group being sent; skips empty groups. */
static inline int choice_group_end(struct gen_choice *ch)
{
    const struct gen_script *s = ch->gen->in.script;

    while (ch->script_group < s->n_groups && s->group_end[ch->script_group] <= ch->n_script)
        ch->script_group++;
    return ch->script_group < s->n_groups ? s->group_end[ch->script_group] : s->n_tokens;
}
