/* server.c: listening sockets, accepting connections, draining. server.h and conn.h describe the
 * interface and the owner thread. */
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/conn.h"
#include "os/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum {
    ACCEPTS_PER_EVENT = SMALL ? 2 : 64,
    BACKLOG = 4096,
    ANY_PORT_TRIES = 8, /* ports that the system chooses, until one is free on all addresses */
    PAUSE_MS = 50,      /* pause after the system had no memory for a socket */
};

const struct http_options http_options_default = {
    .host = "127.0.0.1",
    .port = 8080,
    .max_connections = 10000,
    .max_head_bytes = 32 * KB,
    .max_fields = 100,
    .head_ms = 10 * 1000,
    .body_ms = 30 * 1000,
    .body_min_rate = 8 * KB,
    .idle_ms = 75 * 1000,
    .write_ms = 30 * 1000,
    .max_queued = 64 * MB,
    .max_arena = 512 * MB,
};

struct str http_field_get(const struct http_request *r, const char *name)
{
    struct str want = str_of(name);

    for (int i = 0; i < r->n_fields; i++)
        if (str_eq_nocase(r->fields[i].name, want))
            return r->fields[i].value;
    return STR_NONE;
}

const char *server_date(struct http_server *s)
{
    static const char days[][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
    static const char months[][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep",
        "Oct", "Nov", "Dec" };
    int64_t now = clock_wall_s();
    struct tm t;

    if (now != s->date_s) {
        time_t secs = (time_t)now;
        gmtime_r(&secs, &t);
        snprintf(s->date, sizeof(s->date), "%s, %02d %s %04d %02d:%02d:%02d GMT", days[t.tm_wday],
            t.tm_mday, months[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
        s->date_s = now;
    }
    return s->date;
}

/* ---- accepting */

static void reject_with_503(struct http_server *s, int fd)
{
    static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
                               "Content-Length: 0\r\nConnection: close\r\n\r\n";

    if (!s->tls)
        (void)!send(fd, busy, sizeof(busy) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(fd);
}

static void warn_accept(struct http_server *s, const char *what)
{
    uint64_t now = loop_now(s->loop);

    if (now - s->warned_ns < 1000000000u && s->warned_ns)
        return;
    s->warned_ns = now;
    log_warn("http", "accept_failed", "error=\"%s\" open=%d", what, s->n_conns);
}

/* Without free descriptors, the listener would stay readable forever. The spare descriptor allows
 * one client to be accepted and closed, which the client notices. */
static void accept_with_reserve(struct http_server *s, int listener)
{
    if (s->reserve_fd >= 0)
        close(s->reserve_fd);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    s->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void pause_accepting(struct http_server *s)
{
    for (int i = 0; i < s->n_listeners; i++)
        loop_mod(s->loop, &s->listeners[i].io, 0);
    loop_timer_set(s->loop, &s->pause_timer, loop_now(s->loop) + PAUSE_MS * 1000000ull);
}

static void resume_accepting(struct loop_timer *t)
{
    struct http_server *s = container_of(t, struct http_server, pause_timer);

    for (int i = 0; i < s->n_listeners; i++)
        loop_mod(s->loop, &s->listeners[i].io, EPOLLIN);
}

static void admit_conn(struct http_server *s, int fd, const struct sockaddr *peer)
{
    if (s->n_conns >= s->o.max_connections) {
        warn_accept(s, "max_connections");
        if (!s->idle.first) {
            reject_with_503(s, fd);
            return;
        }
        /* the connection that has been idle for the longest time */
        conn_abort(LIST_ELEMENT(s->idle.first, struct conn, in_server));
    }
    conn_accept(s, fd, peer);
}

/* Accepts one connection; false: no more for now. */
static bool accept_one(struct http_server *s, int listener)
{
    struct sockaddr_storage peer;
    socklen_t n = sizeof(peer);

    int fd = fault_hit(FAULT_ACCEPT)
                 ? (errno = EMFILE, -1)
                 : accept4(listener, (struct sockaddr *)&peer, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        admit_conn(s, fd, (struct sockaddr *)&peer);
        return true;
    }
    switch (errno) {
    case EAGAIN:
        return false;
    case EMFILE:
    case ENFILE:
        warn_accept(s, strerror(errno));
        accept_with_reserve(s, listener);
        return true;
    case ENOBUFS:
    case ENOMEM:
        warn_accept(s, strerror(errno));
        pause_accepting(s);
        return false;
    default:
        return true; /* the connection failed while it was queued; the listener works */
    }
}

static void on_accept(struct loop_io *io, uint32_t events)
{
    struct listener *l = container_of(io, struct listener, io);

    for (int i = 0; i < ACCEPTS_PER_EVENT; i++)
        if (!accept_one(l->s, io->fd))
            break;
}

/* ---- listening */

/* Linux copies these options to every accepted socket, which saves three calls per connection. A
 * peer whose machine has crashed does not acknowledge: TCP_USER_TIMEOUT detects this while a
 * response is being sent, keep-alive probes while a long prefill has nothing to send. */
static int set_socket_options(const struct http_server *s, int fd, int family)
{
    int one = 1, idle_s = 30, probes = 3, failed = 0;
    unsigned ms = s->o.write_ms;

    failed |= setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    failed |= setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    failed |= setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    failed |= setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    failed |= setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof(idle_s));
    failed |= setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    failed |= setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
    if (s->n_listeners && family == AF_INET6)
        failed |= setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    return failed;
}

/* SO_REUSEPORT before bind() shares the port with all sockets that have the option, also with those
 * of another process. The first server of a port therefore sets it after bind(), which fails if any
 * other socket listens there; the servers of the other io threads then join. */
static int bind_socket(
    const struct http_server *s, int fd, const struct sockaddr *address, socklen_t n)
{
    int one = 1;

    if (s->o.port_use == PORT_JOIN && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)))
        return -1;
    if (bind(fd, address, n))
        return -1;
    return s->o.port_use == PORT_SHARE ? setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one))
                                       : 0;
}

/* Returns 0; -1; or 1 with e set if this host does not have the address. */
static int listen_on(struct http_server *s, const struct addrinfo *a, struct err *e)
{
    bool is_absent = false;
    struct listener *l = &s->listeners[s->n_listeners];
    struct sockaddr_storage address;
    socklen_t n = sizeof(address);

    /* With port 0 the first address determines the port, the others use the same one. */
    memcpy(&address, a->ai_addr, a->ai_addrlen);
    if (s->n_listeners && a->ai_family == AF_INET)
        ((struct sockaddr_in *)&address)->sin_port = htons(s->port);
    if (s->n_listeners && a->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)&address)->sin6_port = htons(s->port);

    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        is_absent = errno == EAFNOSUPPORT;
        err_set(e, ERR_IO, "socket: %s", strerror(errno));
        return is_absent ? 1 : -1;
    }
    if (set_socket_options(s, fd, a->ai_family) ||
        bind_socket(s, fd, (struct sockaddr *)&address, a->ai_addrlen) || listen(fd, BACKLOG) ||
        getsockname(fd, (struct sockaddr *)&address, &n)) {
        is_absent = errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT;
        err_set(e, ERR_IO, "listen on %s port %u: %s", s->o.host ? s->o.host : "*",
            s->n_listeners ? s->port : s->o.port, strerror(errno));
        goto fail;
    }
    l->s = s;
    l->io = (struct loop_io){ .fd = fd, .fn = on_accept };
    if (loop_add(s->loop, &l->io, EPOLLIN, e))
        goto fail;
    s->n_listeners++;
    s->port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                  : ((struct sockaddr_in *)&address)->sin_port);
    return 0;

fail:
    close(fd);
    return is_absent ? 1 : -1;
}

static void stop_listening(struct http_server *s)
{
    for (int i = 0; i < s->n_listeners; i++) {
        loop_del(s->loop, &s->listeners[i].io);
        close(s->listeners[i].io.fd);
    }
    s->n_listeners = 0;
    loop_timer_stop(s->loop, &s->pause_timer);
}

/* Listens on each address of the host name that this host has, for example 127.0.0.1 and ::1 of
 * localhost. A taken port of one of them is an error: the clients of that address would reach
 * another server. */
static int listen_all(struct http_server *s, struct err *e)
{
    struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM };
    struct addrinfo *all = NULL;
    char port[8];
    struct err why;
    int rc = 1;

    snprintf(port, sizeof(port), "%u", s->o.port);
    int failed = getaddrinfo(s->o.host, port, &hints, &all);
    if (failed)
        return err_set(e, ERR_INVALID, "address %s: %s", s->o.host, gai_strerror(failed));
    /* The port that the system chose on the first address may be taken on the second. */
    for (int i = 0; i < (s->o.port ? 1 : ANY_PORT_TRIES); i++) {
        rc = 1;
        for (const struct addrinfo *a = all; a && rc >= 0 && s->n_listeners < MAX_LISTENERS;
             a = a->ai_next)
            rc = listen_on(s, a, &why);
        if (rc >= 0)
            break;
        stop_listening(s);
    }
    freeaddrinfo(all);
    if (s->n_listeners)
        return 0;
    *e = why;
    return -1;
}

static void on_drain_deadline(struct loop_timer *t);
static void on_drain_done(struct loop_task *t);

int http_server_open(struct http_server **out, struct loop *loop, const struct http_options *o,
    const struct http_app *app, struct err *e)
{
    struct http_server *s = xcalloc(1, sizeof(*s));

    CHECK(app->on_request && o->max_head_bytes && o->max_fields > 0 && o->max_connections > 0);
    s->loop = loop;
    s->o = *o;
    s->app = *app;
    s->limits = (struct http_parse_limits){ o->max_head_bytes, o->max_fields };
    s->pause_timer.fn = resume_accepting;
    s->drain_timer.fn = on_drain_deadline;
    s->drain_task.fn = on_drain_done;
    s->date_s = -1;
    s->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (!o->tls_cert != !o->tls_key) {
        err_set(e, ERR_INVALID, "TLS needs both a certificate and a key");
        goto fail;
    }
    if (o->tls_client_ca && !o->tls_cert) {
        err_set(e, ERR_INVALID, "%s: client certificates need TLS", o->tls_client_ca);
        goto fail;
    }
    if (o->tls_cert &&
        tls_open(&s->tls, &(struct tls_files){ o->tls_cert, o->tls_key, o->tls_client_ca }, e))
        goto fail;
    if (listen_all(s, e))
        goto fail;
    *out = s;
    return 0;

fail:
    http_server_close(s);
    return -1;
}

void http_server_set_tls(struct http_server *s, struct tls *take)
{
    CHECK(s->tls);
    tls_close(s->tls);
    s->tls = take;
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

const struct http_stats *http_server_stats(const struct http_server *s)
{
    return &s->stats;
}

void http_server_stats_read(const struct http_server *s, struct http_stats *out)
{
    const struct http_stats *from = &s->stats;

    out->accepted = __atomic_load_n(&from->accepted, __ATOMIC_RELAXED);
    out->requests = __atomic_load_n(&from->requests, __ATOMIC_RELAXED);
    out->bad_requests = __atomic_load_n(&from->bad_requests, __ATOMIC_RELAXED);
    out->gone = __atomic_load_n(&from->gone, __ATOMIC_RELAXED);
    out->bytes_in = __atomic_load_n(&from->bytes_in, __ATOMIC_RELAXED);
    out->bytes_out = __atomic_load_n(&from->bytes_out, __ATOMIC_RELAXED);
    out->open = __atomic_load_n(&from->open, __ATOMIC_RELAXED);
}

/* ---- draining and closing */

void server_conn_freed(struct http_server *s)
{
    if (s->is_draining && !s->is_closing && !s->n_conns)
        loop_defer(s->loop, &s->drain_task);
}

static void on_drain_done(struct loop_task *t)
{
    struct http_server *s = container_of(t, struct http_server, drain_task);
    void (*done)(void *arg) = s->drain_done;

    loop_timer_stop(s->loop, &s->drain_timer);
    s->drain_done = NULL;
    if (done)
        done(s->drain_arg); /* `done` may close the server */
}

static void cut_all(struct http_server *s)
{
    LIST_EACH (struct conn, c, &s->idle, in_server)
        conn_abort(c); /* moves it to the end of the busy list */
    LIST_EACH (struct conn, c, &s->busy, in_server)
        conn_abort(c);
}

static void on_drain_deadline(struct loop_timer *t)
{
    struct http_server *s = container_of(t, struct http_server, drain_timer);

    log_warn("http", "drain_timeout", "closed=%d", s->n_conns);
    cut_all(s);
}

void http_server_drain(
    struct http_server *s, uint32_t deadline_ms, void (*done)(void *arg), void *arg)
{
    CHECK(!s->is_draining);
    s->is_draining = true;
    s->drain_done = done;
    s->drain_arg = arg;
    stop_listening(s);
    LIST_EACH (struct conn, c, &s->idle, in_server)
        conn_close(c);
    loop_timer_set(s->loop, &s->drain_timer, clock_ns() + deadline_ms * 1000000ull);
    server_conn_freed(s);
}

void http_server_close(struct http_server *s)
{
    if (!s)
        return;
    s->is_closing = true;
    stop_listening(s);
    cut_all(s);
    while (s->busy.first)
        conn_free(LIST_ELEMENT(s->busy.first, struct conn, in_server));
    CHECK(!s->idle.first && !s->n_conns);
    loop_timer_stop(s->loop, &s->drain_timer);
    loop_undefer(s->loop, &s->drain_task);
    if (s->reserve_fd >= 0)
        close(s->reserve_fd);
    tls_close(s->tls);
    mem_free(s);
}
