#include "engine/outbox.h"

static void post(struct outbox *o, int i)
{
    int fd = mailbox_post_asleep(o->chain[i].to, o->chain[i].newest, o->chain[i].oldest);

    if (fd < 0)
        return;
    if (o->n_sleepers == OUTBOXES)
        outbox_wake(o);
    o->sleepers[o->n_sleepers++] = fd;
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

void outbox_wake(struct outbox *o)
{
    for (int i = 0; i < o->n_sleepers; i++)
        mailbox_wake(o->sleepers[i]);
    o->n_sleepers = 0;
}
