/* submit_queue.h: submission queue of the engine, and load shedding without waiting for a step.
 *
 * Requests and the engine hold counted references; the last release frees the queue and the
 * messages in it. Therefore a message can be posted at any time, also after the engine is closed.
 *
 * Messages to the engine thread (prefix ENGINE_MSG_) and their owners:
 *
 *   SUBMIT         gen.submit_msg; the engine owns the gen until GEN_END
 *   CANCEL         gen.cancel_msg, posted at most once
 *   STOP_CHOICE    choice.stop_msg, posted at most once
 *   EVENT_RETURN   a returned event
 *   FREE           gen.free_msg, the last message of its gen: the receiver frees the memory.
 *                  Messages of one thread arrive in order, so no later message points into it.
 *   AUDIT          owned by the caller; returned to the mailbox that it names
 *   CALL           on the stack of the caller, which waits for it
 *   TIER_WRITTEN, TIER_READ   completed jobs of the KV offload tier
 *   WAKE           no content; owned by the queue
 *
 * Any thread. Only load shedding depends on the counters. */
#pragma once

#include "engine/engine.h"
#include "engine/sched/throughput.h"

enum port_kind {
    ENGINE_MSG_SUBMIT = 100,
    ENGINE_MSG_CANCEL,
    ENGINE_MSG_STOP_CHOICE,
    ENGINE_MSG_EVENT_RETURN,
    ENGINE_MSG_FREE,
    ENGINE_MSG_AUDIT,
    ENGINE_MSG_CALL,
    ENGINE_MSG_TIER_WRITTEN,
    ENGINE_MSG_TIER_READ,
    ENGINE_MSG_WAKE,
};

struct submit_queue {
    struct mailbox *inbox;
    _Atomic int refs;
    /* Set before the queue is used, then constant. */
    int n_vocab, n_ctx;
    int max_requests, max_seqs, max_batch;
    int64_t max_tokens;
    /* Load shedding. */
    _Atomic int n_requests, n_seqs;  /* admitted and not ended */
    _Atomic int64_t n_prompt_tokens; /* tokens of admitted prompts that are not computed yet */
    struct wait_estimate wait_estimate;
    _Atomic int n_submitting; /* submissions between the check of is_draining and the post */
    _Atomic bool is_draining;
    struct engine_stats stats;
    struct msg wake; /* posted once, at shutdown */
};

int submit_queue_open(struct submit_queue **out, struct err *e); /* with one reference */
void submit_queue_unref(struct submit_queue *p);

/* Admits the request at time now_ns, or returns the reason for the rejection. */
int submit_queue_submit(struct submit_queue *p, struct gen *g, uint64_t now_ns, struct err *e);
/* Removes an ended request from the counters. */
void submit_queue_uncount(struct submit_queue *p, const struct gen *g);
/* See engine_check_size. */
int submit_queue_check_size(const struct submit_queue *p, int n_requests, int n_choices,
    int64_t n_prompt_tokens, struct err *e);
/* Estimated time until the waiting prompts are computed; 0 = none or unknown. */
uint64_t submit_queue_wait_ns(const struct submit_queue *p);
/* Afterwards no request is admitted, and all admitted ones are in the inbox. */
void submit_queue_shut(struct submit_queue *p);
