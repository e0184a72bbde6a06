/* Threads as in the server: two io threads share a port, one engine thread sends tokens to their
 * mailboxes, and clients stay or disconnect. Written for the thread sanitizer; also, no message,
 * exchange or request may be lost or counted twice. */
#include "support/check.h"

#include "base/mem.h"
#include "base/rng.h"
#include "http/server.h"
#include "testing/sse.h"
#include "os/clock.h"
#include "os/thread.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

enum { N_IO = 2, N_CLIENTS = 60, N_TOKENS = 20 };
enum { ASK, CANCEL, STOP, TOKEN, END, DRAIN };

struct io {
    struct loop *loop;
    struct http_server *server;
    pthread_t thread;
    int n_asked, n_ended, n_gone; /* written by its own thread until joined */
    struct msg drain;
};

/* Exists from on_request until the engine has sent END and, if a cancellation was sent, has
 * returned that message too: the two may cross. The exchange may end long before. */
struct client_request {
    struct msg submit, cancel;
    struct io *io;
    struct http_exchange *x; /* NULL once gone; io thread */
    int n_awaited;           /* messages expected from the engine; io thread */
    struct sse sse;
    int n_left;                  /* engine thread */
    bool is_cancelled;           /* engine thread */
    struct client_request *next; /* engine thread */
};

struct event {
    struct msg m;
    struct client_request *request;
};

static struct mailbox *engine_box;
static struct io ios[N_IO];

/* ---- the engine */

static void post_event(struct client_request *a, int kind)
{
    struct event *ev = xcalloc(1, sizeof(*ev));

    ev->m.kind = kind;
    ev->request = a;
    mailbox_post(loop_mailbox(a->io->loop), &ev->m);
}

static bool engine_take(struct client_request **running)
{
    bool is_over = false;

    for (struct msg *m = mailbox_drain(engine_box), *next; m; m = next) {
        next = m->next;
        if (m->kind == STOP) {
            is_over = true;
        } else if (m->kind == ASK) {
            struct client_request *a = container_of(m, struct client_request, submit);
            a->next = *running;
            *running = a;
        } else {
            struct client_request *a = container_of(m, struct client_request, cancel);
            a->is_cancelled = true;
            post_event(a, CANCEL);
        }
    }
    return is_over;
}

static void engine_step(struct client_request **running)
{
    for (struct client_request **at = running, *a; (a = *at);) {
        if (a->is_cancelled || !a->n_left) {
            *at = a->next;
            post_event(a, END); /* from here on the io thread owns a */
            continue;
        }
        a->n_left--;
        post_event(a, TOKEN);
        at = &a->next;
    }
}

static void *engine(void *arg)
{
    struct client_request *running = NULL;
    bool is_over = false;

    while (!is_over || running) {
        mailbox_wait(engine_box, running ? 0 : UINT64_MAX);
        is_over |= engine_take(&running);
        engine_step(&running);
    }
    return NULL;
}

/* ---- the io threads */

static void on_request(void *ctx, struct http_exchange *x)
{
    struct io *io = ctx;
    struct client_request *a = xcalloc(1, sizeof(*a));

    io->n_asked++;
    a->io = io;
    a->x = x;
    a->n_left = N_TOKENS;
    a->n_awaited = 1;
    a->submit.kind = ASK;
    a->cancel.kind = CANCEL;
    x->user = a;
    sse_begin(&a->sse, &x->sink, io->loop, 1000, NULL, 0);
    mailbox_post(engine_box, &a->submit);
}

static void on_disconnect(void *ctx, struct http_exchange *x)
{
    struct io *io = ctx;
    struct client_request *a = x->user;

    io->n_gone++;
    a->x = NULL;
    a->n_awaited++;
    sse_stop(&a->sse);
    mailbox_post(engine_box, &a->cancel);
}

static void on_drained(void *arg)
{
    loop_stop(arg);
}

static void on_message(void *ctx, struct msg *m)
{
    struct io *io = ctx;
    struct event *ev = container_of(m, struct event, m);

    if (m->kind == DRAIN) {
        http_server_drain(io->server, 10000, on_drained, io->loop);
        return;
    }
    struct client_request *a = ev->request;
    if (m->kind == TOKEN && a->x) {
        sse_data(&a->sse, STR("token"));
    } else if (m->kind == END) {
        io->n_ended++;
        if (a->x)
            sse_end(&a->sse);
    }
    if (m->kind != TOKEN && !--a->n_awaited)
        mem_free(a);
    mem_free(ev);
}

static void *io_main(void *arg)
{
    loop_run(((struct io *)arg)->loop);
    return NULL;
}

/* ---- clients, in the test's own thread, blocking */

static int request_stream(uint16_t port)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    struct sockaddr_in where = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)
    };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    EXPECT_EQ(connect(fd, (struct sockaddr *)&where, sizeof(where)), 0);
    EXPECT_EQ(send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL), (ssize_t)sizeof(text) - 1);
    return fd;
}

static int count_tokens(int fd)
{
    struct buf b;
    char piece[4096];
    int n_tokens = 0;
    ssize_t n;

    buf_init(&b, MB);
    while ((n = recv(fd, piece, sizeof(piece), 0)) > 0)
        buf_put(&b, piece, (size_t)n);
    for (struct str s = buf_str(&b); str_find(s, STR("data: token\n")) >= 0; n_tokens++)
        s = str_skip(s, (size_t)str_find(s, STR("data: token\n")) + 12);
    buf_clear(&b);
    return n_tokens;
}

static void responses_cross_threads_and_disconnects_cancel(void)
{
    struct http_options o = http_options_default;
    struct rng rng = { .key = 4 };
    struct msg stop = { .kind = STOP };
    pthread_t engine_thread;
    struct err e = { 0 };
    int fds[N_CLIENTS], n_stayed = 0, n_asked = 0, n_ended = 0, n_gone = 0;

    printf("seed %llu\n", (unsigned long long)rng.key);
    EXPECT_EQ(mailbox_open(&engine_box, &e), 0);
    EXPECT_EQ(thread_start(&engine_thread, "engine", engine, NULL, &e), 0);
    o.port = 0;
    o.port_use = PORT_SHARE;
    for (int i = 0; i < N_IO; i++) {
        struct io *io = &ios[i];
        struct http_app app = {
            .ctx = io, .on_request = on_request, .on_disconnect = on_disconnect
        };
        EXPECT_EQ(loop_open(&io->loop, &e), 0);
        EXPECT_EQ(http_server_open(&io->server, io->loop, &o, &app, &e), 0);
        o.port = http_server_port(io->server);
        o.port_use = PORT_JOIN;
        loop_on_message(io->loop, on_message, io);
        EXPECT_EQ(thread_start(&io->thread, "io", io_main, io, &e), 0);
    }
    for (int i = 0; i < N_CLIENTS; i++)
        fds[i] = request_stream(o.port);
    for (int i = 0; i < N_CLIENTS; i++) {
        char first[1];
        uint64_t how = rng_below(&rng, 3);
        if (how == 1) /* disconnects after the first byte */
            EXPECT_EQ(recv(fds[i], first, 1, 0), 1);
        if (how == 2) {
            EXPECT_EQ(count_tokens(fds[i]), (int)N_TOKENS);
            n_stayed++;
        }
        close(fds[i]);
    }
    for (int i = 0; i < N_IO; i++) {
        ios[i].drain.kind = DRAIN;
        mailbox_post(loop_mailbox(ios[i].loop), &ios[i].drain);
    }
    for (int i = 0; i < N_IO; i++)
        pthread_join(ios[i].thread, NULL);
    mailbox_post(engine_box, &stop);
    pthread_join(engine_thread, NULL);
    for (int i = 0; i < N_IO; i++) {
        struct http_stats stats;
        http_server_stats_read(ios[i].server, &stats);
        EXPECT_EQ(stats.open, 0u);
        http_server_close(ios[i].server);
        loop_close(ios[i].loop); /* handles the remaining messages */
        n_asked += ios[i].n_asked;
        n_ended += ios[i].n_ended;
        n_gone += ios[i].n_gone;
    }
    EXPECT(n_stayed > 0);
    EXPECT_EQ(n_asked, n_ended);
    EXPECT(n_asked <= (int)N_CLIENTS && n_asked - n_gone >= n_stayed);
    mailbox_close(engine_box);
}

TESTS(TEST(responses_cross_threads_and_disconnects_cancel))
