#include "http/client/http_client.h"

#include "base/mem.h"
#include "http/client/transfer.h"
#include "os/clock.h"
#include "os/loop.h"
#include "os/thread.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 64, CONNECTIONS_PER_HOST_MAX = 16 };

/* The connections of one policy. libcurl would reuse a connection of another policy to the same
 * host, whose address was not checked, if it were in the same multi handle. */
struct connections {
    struct http_client *client;
    CURLM *multi;
    struct loop_timer timer;
};

struct http_client {
    struct http_client_options options;
    char ca_file[4096];
    struct connections all[N_FETCH_POLICIES];
    struct list transfers;
    struct loop *loop;
    struct msg stop, quit; /* distinguished from a fetch by their addresses */
    bool is_stopped;
    pthread_t thread;
    bool has_thread;
};

/* ---- results */

static void end_transfer(struct transfer *t)
{
    struct http_fetch *f = t->fetch;

    list_remove(&t->in_client);
    transfer_free(t);
    if (f->err.code)
        buf_clear(&f->response);
    mailbox_post(f->reply_to, &f->msg);
}

static void start_hop(struct connections *c, struct transfer *t)
{
    if (!curl_multi_add_handle(c->multi, t->easy))
        return;
    err_set(&t->fetch->err, ERR_MEMORY, "no memory for a request");
    end_transfer(t);
}

static void collect_results(struct connections *c)
{
    int n;

    for (CURLMsg *m; (m = curl_multi_info_read(c->multi, &n));) {
        CURLcode result = m->data.result;
        struct transfer *t;
        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        curl_multi_remove_handle(c->multi, t->easy);
        if (transfer_next(t, result, clock_ns()))
            start_hop(c, t);
        else
            end_transfer(t);
    }
}

/* ---- event loop */

struct watch { /* one socket of libcurl */
    struct loop_io io;
    struct connections *of;
};

static void act(struct connections *c, curl_socket_t fd, int events)
{
    int n_running;

    curl_multi_socket_action(c->multi, fd, events, &n_running);
    collect_results(c);
}

static void on_socket_event(struct loop_io *io, uint32_t events)
{
    struct watch *w = container_of(io, struct watch, io);

    act(w->of, io->fd,
        (events & EPOLLIN ? CURL_CSELECT_IN : 0) | (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
            (events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0));
}

static void on_timer(struct loop_timer *t)
{
    act(container_of(t, struct connections, timer), CURL_SOCKET_TIMEOUT, 0);
}

/* CURLMOPT_SOCKETFUNCTION */
static int watch_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *socket_ctx)
{
    struct connections *c = ctx;
    struct watch *w = socket_ctx;
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    struct err e;

    if (what == CURL_POLL_REMOVE) {
        if (w)
            loop_del(c->client->loop, &w->io);
        mem_free(w);
        return 0;
    }
    if (w) {
        loop_mod(c->client->loop, &w->io, events);
        return 0;
    }
    w = try_calloc(1, sizeof(*w));
    if (!w)
        return -1;
    w->io.fd = fd;
    w->io.fn = on_socket_event;
    w->of = c;
    if (loop_add(c->client->loop, &w->io, events, &e)) {
        mem_free(w);
        return -1;
    }
    curl_multi_assign(c->multi, fd, w);
    return 0;
}

/* CURLMOPT_TIMERFUNCTION: libcurl must not be called from here. */
static int set_timer(CURLM *multi, long ms, void *ctx)
{
    struct connections *c = ctx;

    if (ms < 0)
        loop_timer_stop(c->client->loop, &c->timer);
    else
        loop_timer_set(c->client->loop, &c->timer, clock_ns() + (uint64_t)ms * NS_PER_MS);
    return 0;
}

static void cancel_transfer(struct http_client *c, struct transfer *t)
{
    curl_multi_remove_handle(c->all[t->fetch->policy].multi, t->easy); /* or it is in none */
    err_set(&t->fetch->err, ERR_CANCELLED, "the server is shutting down");
    end_transfer(t);
}

static void cancel_all(struct http_client *c)
{
    LIST_EACH (struct transfer, t, &c->transfers, in_client) {
        cancel_transfer(c, t);
    }
}

static void on_message(void *ctx, struct msg *m)
{
    struct http_client *c = ctx;

    if (m == &c->stop || m == &c->quit) {
        c->is_stopped = true;
        cancel_all(c);
        if (m == &c->quit)
            loop_stop(c->loop);
        return;
    }
    struct http_fetch *f = container_of(m, struct http_fetch, msg);
    struct transfer *t = transfer_new(f, &c->options, clock_ns());
    if (!t) {
        mailbox_post(f->reply_to, &f->msg);
        return;
    }
    list_add_last(&c->transfers, &t->in_client);
    if (c->is_stopped)
        cancel_transfer(c, t);
    else
        start_hop(&c->all[f->policy], t);
}

/* ---- life */

static void *run(void *arg)
{
    loop_run(((struct http_client *)arg)->loop);
    return NULL;
}

static void init_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int open_connections(struct http_client *c, struct connections *all)
{
    all->client = c;
    all->timer.fn = on_timer;
    all->multi = curl_multi_init();
    if (!all->multi)
        return -1;
    curl_multi_setopt(all->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
    curl_multi_setopt(all->multi, CURLMOPT_SOCKETDATA, all);
    curl_multi_setopt(all->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(all->multi, CURLMOPT_TIMERDATA, all);
    curl_multi_setopt(all->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)CONNECTIONS_MAX);
    curl_multi_setopt(all->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)CONNECTIONS_PER_HOST_MAX);
    return 0;
}

static int check_ca_file(struct http_client *c, const char *path, struct err *e)
{
    if (!path || !*path)
        return 0;
    if (snprintf(c->ca_file, sizeof(c->ca_file), "%s", path) >= (int)sizeof(c->ca_file) ||
        access(path, R_OK))
        return err_set(e, ERR_INVALID, "cannot read the certificates of '%.200s'", path);
    c->options.ca_file = c->ca_file;
    return 0;
}

int http_client_open(struct http_client **out, const struct http_client_options *o, struct err *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct http_client *c = xcalloc(1, sizeof(*c));

    pthread_once(&once, init_curl);
    c->options = *o;
    if (check_ca_file(c, o->ca_file, e) || loop_open(&c->loop, e))
        goto fail;
    loop_on_message(c->loop, on_message, c);
    for (int i = 0; i < N_FETCH_POLICIES; i++)
        if (open_connections(c, &c->all[i])) {
            err_set(e, ERR_MEMORY, "no memory for the HTTP client");
            goto fail;
        }
    if (thread_start(&c->thread, "http-client", run, c, e))
        goto fail;
    c->has_thread = true;
    *out = c;
    return 0;

fail:
    http_client_close(c);
    return -1;
}

void http_client_post(struct http_client *c, struct http_fetch *take)
{
    mailbox_post(loop_mailbox(c->loop), &take->msg);
}

void http_client_stop(struct http_client *c)
{
    if (c)
        mailbox_post(loop_mailbox(c->loop), &c->stop);
}

void http_client_close(struct http_client *c)
{
    if (!c)
        return;
    if (c->has_thread) {
        mailbox_post(loop_mailbox(c->loop), &c->quit);
        pthread_join(c->thread, NULL);
    }
    for (int i = 0; i < N_FETCH_POLICIES; i++)
        if (c->all[i].multi)
            curl_multi_cleanup(c->all[i].multi); /* closes sockets: the loop must exist */
    if (c->loop)
        loop_close(c->loop);
    mem_free(c);
}
