#include "serve/key_wait.h"

#include "base/mem.h"
#include "os/clock.h"
#include "os/loop.h"
#include "serve/async.h"

struct issuer_keys_message {
    struct msg msg;
    struct oidc_result result; /* with a reference of the keys */
};

const struct policy_key *key_wait_find(
    struct io *io, struct route_call *c, struct str token, struct err *e)
{
    const struct policy_key *k = token_keys_find(io->tokens, token, clock_wall_s(), e);

    c->waits_for_keys = false;
    if (k || e->code != ERR_NOT_FOUND)
        return k;
    c->waits_for_keys = !c->has_waited && oidc_refetch(io->o->oidc, token_keys_number(io->tokens));
    if (token_keys_has_set(io->tokens))
        e->code = ERR_AUTH;
    else
        err_set(e, ERR_OVERLOADED, "The keys of the issuer of tokens cannot be fetched.");
    return NULL;
}

static void check_again(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct err e;

    x->user = NULL;
    if (service_check_caller(io, x, c, &e))
        reply_error(x, c, &e, NULL);
    else
        c->route->fn(io, x, c);
}

/* The set may have arrived with the body. */
void key_wait_begin(struct io *io, struct http_exchange *x, struct route_call *c)
{
    static const struct async_ops ops = { .run = NULL };
    struct async *a;
    struct err e;

    if (!service_check_caller(io, x, c, &e)) {
        c->route->fn(io, x, c);
        return;
    }
    a = c->waits_for_keys ? arena_zalloc(x->arena, 1, sizeof(*a)) : NULL;
    if (!a) {
        if (c->waits_for_keys)
            err_set(&e, ERR_MEMORY, "no memory for the request");
        reply_error(x, c, &e, NULL);
        return;
    }
    c->has_waited = true;
    async_init(a, &ops, io, x, c);
    list_add_last(&io->key_waits, &a->in_open);
    async_set_deadline(a, c->deadline_ns);
}

void key_wait_publish(struct io *io, const struct oidc_result *r)
{
    struct issuer_keys_message *m = xmalloc(sizeof(*m));

    m->msg.kind = MSG_ISSUER_KEYS;
    m->result = *r;
    jwks_ref(r->keys);
    mailbox_post(loop_mailbox(io->loop), &m->msg);
}

void key_wait_message(struct io *io, struct msg *m)
{
    struct issuer_keys_message *k = container_of(m, struct issuer_keys_message, msg);

    token_keys_set(io->tokens, k->result.keys, k->result.number);
    jwks_unref(k->result.keys);
    mem_free(k);
    LIST_EACH (struct async, a, &io->key_waits, in_open) {
        struct http_exchange *x = a->x;
        struct route_call *c = a->call;
        async_close(a);
        check_again(io, x, c);
    }
}
