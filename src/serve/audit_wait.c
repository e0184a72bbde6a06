#include "serve/audit_wait.h"

int audit_wait_reserve(struct inflight *r, struct err *e)
{
    struct audit *a = r->io->o->audit;
    bool must_queue = r->io->audit_waiting.first != NULL; /* older requests come first */

    if (!a || r->has_audit_room)
        return 0;
    r->has_audit_room = !must_queue && audit_reserve(a);
    if (r->has_audit_room)
        return 0;
    if (audit_when_full(a) == AUDIT_BLOCK)
        return 1;
    return err_set(e, ERR_OVERLOADED, "The audit log cannot be written at present.");
}

void audit_wait_start(struct inflight *r, void (*continue_fn)(struct inflight *r))
{
    CHECK(!r->on_audit_room);
    r->on_audit_room = continue_fn;
    list_add_last(&r->io->audit_waiting, &r->in_audit_waiting);
    metric_add(&r->io->metrics, METRIC_requests_waiting_for_audit, 1);
}

void audit_wait_stop(struct inflight *r)
{
    r->on_audit_room = NULL;
    list_remove(&r->in_audit_waiting);
    metric_add(&r->io->metrics, METRIC_requests_waiting_for_audit, -1);
}

/* The flag is cleared before room is reserved, so that room that is made later posts another
 * message. */
void audit_wait_message(struct io *io)
{
    atomic_exchange(&io->audit_room.is_posted, false);
    while (io->audit_waiting.first && audit_reserve(io->o->audit)) {
        struct inflight *r =
            LIST_ELEMENT(io->audit_waiting.first, struct inflight, in_audit_waiting);
        void (*continue_fn)(struct inflight * r) = r->on_audit_room;
        audit_wait_stop(r);
        r->has_audit_room = true;
        continue_fn(r);
    }
}

void audit_wait_notify(struct io *io)
{
    if (atomic_exchange(&io->audit_room.is_posted, true))
        return;
    io->audit_room.msg.kind = MSG_AUDIT_ROOM;
    mailbox_post(loop_mailbox(io->loop), &io->audit_room.msg);
}
