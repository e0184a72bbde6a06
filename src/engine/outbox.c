#include "engine/outbox.h"

static void post(struct outbox *o, int i)
{
    mailbox_post_chain(o->chain[i].to, o->chain[i].newest, o->chain[i].oldest);
}

void outbox_add_first(struct outbox *o, struct mailbox *to, struct msg *take)
{
    if (o->n == OUTBOXES)
        post(o, --o->n);
    int i = o->n++;
    o->chain[i].to = to;
    o->chain[i].newest = o->chain[i].oldest = take;
}

void outbox_flush(struct outbox *o)
{
    for (int i = 0; i < o->n; i++)
        post(o, i);
    o->n = 0;
}
