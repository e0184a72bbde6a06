/* port.h: the engine's letter box, and what can be decided at its door.
 *
 * Askers hold it through their gens, the engine through itself; the last one out empties it. So a
 * message can be posted at any moment, also to an engine that is gone, and is never lost memory.
 *
 * Messages to the engine and who owns them:
 *
 *   SUBMIT       gen.submit_msg; the gen is the engine's until GEN_END
 *   CANCEL       gen.cancel_msg, posted at most once
 *   STOP_CHOICE  choice.stop_msg, posted at most once
 *   EVENT_HOME   the event itself comes back
 *   FREE         gen.free_msg, the last one of its gen: the memory is the engine's to free. The
 *                messages of one thread arrive in order: none can follow that points into it.
 *   AUDIT        the caller's; goes back to the mailbox it names
 *   CALL         on the stack of the caller, who waits for it
 *   WRITTEN, FETCHED   the disk tier's: work that comes home
 *   WAKE         says nothing; the port's own
 *
 * Any thread. The counters decide admission and nothing else. */
#pragma once

#include "engine/engine.h"
#include "engine/sched/pace.h"

enum port_kind {
    PORT_SUBMIT = 100,
    PORT_CANCEL,
    PORT_STOP_CHOICE,
    PORT_EVENT_HOME,
    PORT_FREE,
    PORT_AUDIT,
    PORT_CALL,
    PORT_WRITTEN,
    PORT_FETCHED,
    PORT_WAKE,
};

struct port {
    struct mailbox *inbox;
    _Atomic int refs;
    /* set before the port is used, then constant */
    int n_vocab, n_ctx;
    int max_requests, max_seqs, max_batch;
    int64_t max_tokens;
    /* at the door */
    _Atomic int n_requests, n_seqs;  /* admitted, not ended */
    _Atomic int64_t n_prompt_tokens; /* of prompts admitted and not computed yet */
    struct forecast forecast;
    _Atomic int n_submitting; /* between the question whether we are closing and the post */
    _Atomic bool is_draining;
    struct engine_stats stats;
    struct msg wake; /* posted once, at the end */
};

int port_open(struct port **out, struct err *e); /* one reference */
void port_unref(struct port *p);

/* Admits the request or says why not; now_ns is when. */
int port_submit(struct port *p, struct gen *g, uint64_t now_ns, struct err *e);
/* A request that was admitted has ended. */
void port_uncount(struct port *p, const struct gen *g);
/* Until what waits now has had its turn, as far as it can be told. */
uint64_t port_wait_ns(const struct port *p);
/* From here on nothing is admitted, and whatever was is in the inbox. */
void port_shut(struct port *p);
