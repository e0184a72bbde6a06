/* gen.h: the inside of a request: everything it needs in the engine, in one block of memory.
 *
 * Owners, in turn: the asker until submit; then the engine (fields below), while the asker only
 * reads `in` and posts messages; the asker again after GEN_END; freed by whoever drains PORT_FREE.
 * Events travel: at home (linked from the choice), or out with the asker. */
#pragma once

#include "engine/spec/draft_text.h"
#include "engine/port.h"
#include "engine/seq.h"

_Static_assert(sizeof(struct gen_event) % 64 == 0, "see there");
_Static_assert((int)GEN_CHOICES_MAX == (int)SEQ_CHOICES_MAX, "one choice, one sequence");

struct choice {
    /* What each token reads and writes: one line of memory. */
    ALIGNED(64) struct gen *gen;
    int32_t *tokens;        /* [n_prompt + max_tokens] */
    struct gen_event *home; /* those that came back, through msg.next */
    seq_id seq; /* SEQ_NONE once released: after is_ended, when others need its prompt */
    int index;
    int n_out;
    int credits;        /* = events at home; the scheduler has a copy */
    int n_script;       /* script tokens sent */
    int script_group;   /* the one being sent */
    int n_used;         /* events from here on have never been out */
    bool is_ended;      /* its GEN_CHOICE_END is posted */
    bool was_predicted; /* the last token, by the client */
    bool has_waited;    /* its delay is over */

    int n_events;
    struct gen_event *events; /* [n_events] */
    page_id *pages;           /* [pages_for(n_prompt + max_tokens)] */
    struct draft_seq draft;
    enum draft_source draft_source; /* of the drafts under way */
    struct tier_fetch *fetch;       /* it is parked for pages from disk */
    int n_looks;                    /* of the times it had none, so often the disk was looked at */
    struct gen_event end;
    struct msg stop_msg;
    _Atomic bool is_stop_posted;
    /* The asker's, away from what the engine writes: n_back events it is done with, to go home. */
    struct msg *back, *back_last;
    int n_back;
};

struct gen {
    /* What each token reads: one line of memory; the first of `in` belong to it. */
    ALIGNED(64) struct mailbox *reply;
    int max_out;    /* max_tokens, or what the context leaves */
    int counted_as; /* place in engine_stats.by_priority; ENGINE_PRIORITIES: others */
    bool is_forked; /* the prompt was computed once: choices are on their own */
    bool has_begun; /* result.started_ns is set */
    bool has_token; /* ... first_token_ns */
    struct gen_input in;

    void *user;
    uint64_t id;
    struct port *port;        /* NULL until submitted; holds a reference */
    int n_live;               /* choices that have not ended */
    bool is_over;             /* GEN_END is posted */
    struct tier_fetch *fetch; /* pages it waits for before it is scheduled; NULL: none */
    struct ngram prompt_ngram, predicted_ngram; /* filled by gen_new, then constant */
    struct gen *prev, *next;                    /* the engine's list of live ones */
    struct gen_result result;
    struct gen_event begun, end;
    struct msg submit_msg, cancel_msg, free_msg;
    _Atomic bool is_cancel_posted;
    struct choice choice[];
};

/* Unlike any other choice's. */
static inline uint64_t choice_key(const struct choice *ch)
{
    return ch->gen->id * GEN_CHOICES_MAX + (uint64_t)ch->index;
}

struct gen_event *choice_new_event(struct choice *ch); /* one that was never out */

/* An event to send; the choice must have credits. What it says of a token is the caller's. */
static inline struct gen_event *choice_take_event(struct choice *ch)
{
    struct gen_event *ev = ch->home;

    CHECK(ch->credits > 0);
    ch->credits--;
    if (!ev)
        return choice_new_event(ch);
    ch->home = ev->msg.next ? container_of(ev->msg.next, struct gen_event, msg) : NULL;
    return ev;
}

void choice_event_home(struct choice *ch, struct gen_event *ev);

/* Script: tokens before this index leave with the group being sent; skips empty groups. */
static inline int choice_group_end(struct choice *ch)
{
    const struct gen_script *s = ch->gen->in.script;

    while (ch->script_group < s->n_groups && s->group_end[ch->script_group] <= ch->n_script)
        ch->script_group++;
    return ch->script_group < s->n_groups ? s->group_end[ch->script_group] : s->n_tokens;
}
