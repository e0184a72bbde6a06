#include "engine/outbox.h"

void outbox_add(struct outbox *o, struct mailbox *to, struct msg *take)
{
    int i = o->n - 1; /* most likely the one used last */

    while (i >= 0 && o->chain[i].to != to)
        i--;
    if (i >= 0) {
        take->next = o->chain[i].newest;
        o->chain[i].newest = take;
        return;
    }
    if (o->n == OUTBOXES) {
        o->n--;
        mailbox_post_chain(o->chain[o->n].to, o->chain[o->n].newest, o->chain[o->n].oldest);
    }
    i = o->n++;
    o->chain[i].to = to;
    o->chain[i].newest = o->chain[i].oldest = take;
}

void outbox_flush(struct outbox *o)
{
    for (int i = 0; i < o->n; i++)
        mailbox_post_chain(o->chain[i].to, o->chain[i].newest, o->chain[i].oldest);
    o->n = 0;
}
