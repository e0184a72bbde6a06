/* sse_load: HTTP load generator: one thread with many connections.
 *
 *     sse_load requests  --port N [options]   sequential requests on each connection
 *     sse_load streams   --port N [options]   the same; also reports SSE events per second
 *     sse_load idle      --port N [options]   opens idle streams, measures the server's memory
 *
 *     --host A (127.0.0.1)  --path P (/)  --body TEXT|@FILE (POST)  --header 'Name: value'
 *     --connections N (64)  --seconds S (3)  --pid N (server process, for memory and CPU time)
 *     --csv
 *
 * Times are from sending a request to the first byte of the response (ttfb) and to its last byte
 * (total). An event is a line that begins with "data:", including [DONE]. The client runs on the
 * same machine as the server, so the results include the client's CPU time. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "os/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum mode { REQUESTS, STREAMS, IDLE };
enum body_state { IN_HEAD, IN_LENGTH, CHUNK_SIZE, CHUNK_REST, CHUNK_DATA, CHUNK_END, TRAILERS };

struct client {
    int fd;
    enum body_state state;
    uint64_t left; /* remaining bytes of the body or chunk */
    uint64_t sent_ns;
    size_t n_sent;  /* bytes of the request sent */
    int line_n;     /* bytes of the current line compared with "data:"; -1 = another line */
    int trailer_n;  /* bytes of the current trailer line */
    bool has_first; /* the first byte of the response was received */
    struct buf head;
};

struct times {
    uint64_t *ns;
    size_t n, cap;
};

static struct {
    enum mode mode;
    const char *host, *port, *path, *body, *header;
    int n, pid;
    double seconds;
    bool csv;
} opt = { .host = "127.0.0.1", .port = "8080", .path = "/", .n = 64, .seconds = 3 };

static struct buf request;
static struct sockaddr_storage server;
static socklen_t server_n;
static int ep;
static struct times ttfb, total;
static uint64_t n_done, n_events, n_bytes, n_failed, n_first;
static int first_bad_status;
static bool is_over;

static void times_add(struct times *t, uint64_t ns)
{
    if (t->n == t->cap) {
        t->cap = MAX(t->cap * 2, (size_t)4096);
        t->ns = xrealloc(t->ns, t->cap * sizeof(*t->ns));
    }
    t->ns[t->n++] = ns;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Quantile in microseconds; t must be sorted. */
static double quantile(const struct times *t, double q)
{
    return t->n ? (double)t->ns[(size_t)(q * (double)(t->n - 1))] / 1e3 : 0;
}

NORETURN static void die(const char *what)
{
    fprintf(stderr, "sse_load: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- client */

static void watch(struct client *c, uint32_t events, int op)
{
    struct epoll_event ev = { .events = events, .data.ptr = c };

    if (epoll_ctl(ep, op, c->fd, &ev))
        die("epoll_ctl");
}

static void client_connect(struct client *c)
{
    int one = 1;

    c->fd = socket(server.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        die("socket");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(c->fd, (struct sockaddr *)&server, server_n))
        die("connect");
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    watch(c, EPOLLIN, EPOLL_CTL_ADD);
}

static void client_send(struct client *c)
{
    while (c->n_sent < request.n) {
        ssize_t n = send(c->fd, request.p + c->n_sent, request.n - c->n_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            watch(c, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
            return;
        }
        if (n < 0)
            return; /* the next recv reports the error */
        c->n_sent += (size_t)n;
    }
}

static void client_send_request(struct client *c)
{
    c->state = IN_HEAD;
    c->n_sent = 0;
    c->left = 0;
    c->line_n = 0;
    c->trailer_n = 0;
    c->has_first = false;
    buf_clear(&c->head);
    buf_init(&c->head, 64 * KB);
    c->sent_ns = clock_ns();
    client_send(c);
}

static void client_next_request(struct client *c, bool reconnect)
{
    if (is_over)
        return;
    if (reconnect) {
        close(c->fd);
        client_connect(c);
    }
    client_send_request(c);
}

static void response_done(struct client *c)
{
    n_done++;
    times_add(&total, clock_ns() - c->sent_ns);
    client_next_request(c, str_find(buf_str(&c->head), STR("\r\nConnection: close")) >= 0);
}

/* Counts lines that begin with "data:". */
static void count_events(struct client *c, const char *p, size_t n)
{
    static const char want[] = "data:";

    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\n') {
            c->line_n = 0;
        } else if (c->line_n >= 0) {
            c->line_n = p[i] == want[c->line_n] ? c->line_n + 1 : -1;
            if (c->line_n == 5) {
                n_events++;
                c->line_n = -1;
            }
        } else {
            const char *lf = memchr(p + i, '\n', n - i); /* the rest of the line is skipped */
            i = lf ? (size_t)(lf - p) - 1 : n;
        }
    }
}

static void head_done(struct client *c)
{
    struct str head = buf_str(&c->head);
    ptrdiff_t length = str_find(head, STR("\r\nContent-Length: "));

    int status = head.n > 12 ? (int)strtol(head.p + 9, NULL, 10) : 0;
    if (status / 100 != 2) {
        n_failed++;
        first_bad_status = first_bad_status ? first_bad_status : status;
    }
    if (str_find(head, STR("\r\nTransfer-Encoding: chunked")) >= 0) {
        c->state = CHUNK_SIZE;
    } else {
        c->state = IN_LENGTH;
        c->left = length < 0 ? 0 : strtoull(head.p + length + 18, NULL, 10);
    }
}

static size_t read_head(struct client *c, const char *p, size_t n)
{
    size_t n_read = 0;

    while (n_read < n) {
        const char *lf = memchr(p + n_read, '\n', n - n_read);
        size_t line_end = lf ? (size_t)(lf - p) + 1 : n;
        buf_put(&c->head, p + n_read, line_end - n_read);
        n_read = line_end;
        if (str_ends(buf_str(&c->head), STR("\r\n\r\n"))) {
            buf_putc(&c->head, '\0');
            head_done(c);
            break;
        }
    }
    return n_read;
}

static size_t read_data(struct client *c, const char *p, size_t n, enum body_state next)
{
    n = MIN(n, (size_t)c->left);
    count_events(c, p, n);
    c->left -= n;
    if (!c->left)
        c->state = next;
    return n;
}

/* Parses one byte of chunk framing; returns true at the end of the response. */
static bool read_chunk_byte(struct client *c, char b)
{
    if (c->state == CHUNK_SIZE && b != '\r' && b != ';') {
        c->left = c->left << 4 | (uint64_t)(b <= '9' ? b - '0' : (b | 0x20) - 'a' + 10);
    } else if (c->state == CHUNK_SIZE) {
        c->state = CHUNK_REST;
    } else if (c->state == CHUNK_REST) {
        if (b == '\n')
            c->state = c->left ? CHUNK_DATA : TRAILERS;
    } else if (c->state == CHUNK_END) {
        if (b == '\n')
            c->state = CHUNK_SIZE;
    } else if (b == '\n') { /* TRAILERS */
        if (!c->trailer_n)
            return true;
        c->trailer_n = 0;
    } else if (b != '\r') {
        c->trailer_n++;
    }
    return false;
}

static void client_read(struct client *c, const char *p, size_t n)
{
    n_bytes += n;
    if (!c->has_first) {
        c->has_first = true;
        n_first++;
        times_add(&ttfb, clock_ns() - c->sent_ns);
    }
    for (size_t at = 0; at < n;) {
        bool is_done = false;
        if (c->state == IN_HEAD) {
            at += read_head(c, p + at, n - at);
            is_done = c->state == IN_LENGTH && !c->left;
        } else if (c->state == IN_LENGTH) {
            at += read_data(c, p + at, n - at, IN_LENGTH);
            is_done = !c->left;
        } else if (c->state == CHUNK_DATA) {
            at += read_data(c, p + at, n - at, CHUNK_END);
        } else {
            is_done = read_chunk_byte(c, p[at++]);
        }
        if (is_done) {
            response_done(c);
            return;
        }
    }
}

static void client_event(struct client *c, uint32_t events)
{
    static char bytes[65536];

    if (events & EPOLLOUT) {
        watch(c, EPOLLIN, EPOLL_CTL_MOD);
        client_send(c);
    }
    if (!(events & ~(uint32_t)EPOLLOUT))
        return;
    ssize_t n = recv(c->fd, bytes, sizeof(bytes), 0);
    if (n > 0) {
        client_read(c, bytes, (size_t)n);
    } else if (n == 0 || errno != EAGAIN) {
        n_failed += !is_over;
        client_next_request(c, true);
    }
}

/* ---- load patterns */

static void poll_events(int ms)
{
    struct epoll_event ev[256];

    int n = epoll_wait(ep, ev, 256, ms);
    for (int i = 0; i < n; i++)
        client_event(ev[i].data.ptr, ev[i].events);
}

/* Resident memory of --pid in kB; 0 without --pid. */
static long server_kb(void)
{
    char path[64], line[128];
    long kb = 0;

    if (!opt.pid)
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/status", opt.pid);
    FILE *f = fopen(path, "r");
    if (!f)
        die(path);
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1)
            break;
    fclose(f);
    return kb;
}

/* CPU seconds that --pid has used; 0 without --pid. */
static double server_cpu(void)
{
    char path[64], text[1024];
    unsigned long user = 0, sys = 0;

    if (!opt.pid)
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", opt.pid);
    FILE *f = fopen(path, "r");
    if (!f)
        die(path);
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *rest = strrchr(text, ')'); /* the process name may contain any character */
    if (rest)
        sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys);
    return (double)(user + sys) / (double)sysconf(_SC_CLK_TCK);
}

static void report(double seconds, double cpu)
{
    qsort(ttfb.ns, ttfb.n, sizeof(*ttfb.ns), compare_u64);
    qsort(total.ns, total.n, sizeof(*total.ns), compare_u64);
    double rps = (double)n_done / seconds, eps = (double)n_events / seconds;
    double mbps = (double)n_bytes / seconds / 1e6;
    if (opt.csv) {
        printf("mode,connections,seconds,requests_s,events_s,mb_s,ttfb_p50_us,ttfb_p99_us,"
               "total_p50_us,total_p99_us,server_cpu_s,failed\n");
        printf("%s,%d,%.2f,%.0f,%.0f,%.1f,%.1f,%.1f,%.1f,%.1f,%.2f,%llu\n",
            opt.mode == STREAMS ? "streams" : "requests", opt.n, seconds, rps, eps, mbps,
            quantile(&ttfb, .5), quantile(&ttfb, .99), quantile(&total, .5), quantile(&total, .99),
            cpu, (unsigned long long)n_failed);
        return;
    }
    printf("%d connections, %.2f s: %.0f requests/s, %.0f events/s, %.1f MB/s, %llu failed\n",
        opt.n, seconds, rps, eps, mbps, (unsigned long long)n_failed);
    printf("  first byte p50 %.1f us, p99 %.1f us; whole response p50 %.1f us, p99 %.1f us\n",
        quantile(&ttfb, .5), quantile(&ttfb, .99), quantile(&total, .5), quantile(&total, .99));
    if (opt.pid)
        printf("  server: %.2f s of CPU time, %.2f us per request, %.2f us per event\n", cpu,
            n_done ? cpu * 1e6 / (double)n_done : 0, n_events ? cpu * 1e6 / (double)n_events : 0);
}

static void run_load(struct client *clients)
{
    for (int i = 0; i < opt.n; i++)
        client_connect(&clients[i]);
    double cpu = server_cpu();
    uint64_t start = clock_ns(), end = start + (uint64_t)(opt.seconds * 1e9);
    for (int i = 0; i < opt.n; i++)
        client_send_request(&clients[i]);
    while (clock_ns() < end)
        poll_events(10);
    is_over = true;
    report((double)(clock_ns() - start) / 1e9, server_cpu() - cpu);
}

static void run_idle(struct client *clients)
{
    long before = server_kb();
    uint64_t start = clock_ns();

    for (int i = 0; i < opt.n; i++) {
        client_connect(&clients[i]);
        client_send_request(&clients[i]);
        if (i % 64 == 63)
            poll_events(0);
    }
    uint64_t end = clock_ns() + 30 * 1000000000ull;
    while (n_first < (uint64_t)opt.n && clock_ns() < end)
        poll_events(10);
    double open_s = (double)(clock_ns() - start) / 1e9;
    end = clock_ns() + (uint64_t)(opt.seconds * 1e9);
    while (clock_ns() < end)
        poll_events(10);
    is_over = true;
    long after = server_kb();
    double per = opt.n ? (double)(after - before) * 1024 / opt.n : 0;
    if (opt.csv)
        printf("mode,streams,open_s,rss_before_kb,rss_after_kb,bytes_per_stream,failed\n"
               "idle,%d,%.2f,%ld,%ld,%.0f,%llu\n",
            opt.n, open_s, before, after, per, (unsigned long long)n_failed);
    else
        printf("%llu of %d streams open in %.2f s; server %.1f MB before, %.1f MB with them: "
               "%.0f bytes per stream; %llu failed\n",
            (unsigned long long)n_first, opt.n, open_s, (double)before / 1024, (double)after / 1024,
            per, (unsigned long long)n_failed);
}

/* ---- options */

static int usage(void)
{
    fprintf(stderr,
        "usage: sse_load requests|streams|idle --port N [--host A] [--path P]\n"
        "       [--body TEXT|@FILE] [--header 'Name: value'] [--connections N] [--seconds S]\n"
        "       [--pid N] [--csv]\n");
    return 2;
}

static void append_file(struct buf *b, const char *path)
{
    char bytes[4096];
    size_t n;
    FILE *f = fopen(path, "r");

    if (!f)
        die(path);
    while ((n = fread(bytes, 1, sizeof(bytes), f)) > 0)
        buf_put(b, bytes, n);
    fclose(f);
}

static void build_request(void)
{
    struct buf body;

    buf_init(&body, 64 * MB);
    buf_init(&request, 65 * MB);
    if (opt.body && opt.body[0] == '@')
        append_file(&body, opt.body + 1);
    else if (opt.body)
        buf_putz(&body, opt.body);
    buf_printf(&request, "%s %s HTTP/1.1\r\nHost: %s:%s\r\n", opt.body ? "POST" : "GET", opt.path,
        opt.host, opt.port);
    if (opt.body)
        buf_printf(&request, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body.n);
    if (opt.header)
        buf_printf(&request, "%s\r\n", opt.header);
    buf_putz(&request, "\r\n");
    buf_puts(&request, buf_str(&body));
    buf_clear(&body);
    CHECK(buf_ok(&request));
}

static bool parse_options(int argc, char **argv)
{
    static const struct option names[] = { { "host", 1, NULL, 'h' }, { "port", 1, NULL, 'p' },
        { "path", 1, NULL, 'P' }, { "body", 1, NULL, 'b' }, { "header", 1, NULL, 'H' },
        { "connections", 1, NULL, 'n' }, { "seconds", 1, NULL, 's' }, { "pid", 1, NULL, 'i' },
        { "csv", 0, NULL, 'c' }, { NULL, 0, NULL, 0 } };

    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 'h':
            opt.host = optarg;
            break;
        case 'p':
            opt.port = optarg;
            break;
        case 'P':
            opt.path = optarg;
            break;
        case 'b':
            opt.body = optarg;
            break;
        case 'H':
            opt.header = optarg;
            break;
        case 'n':
            opt.n = (int)strtol(optarg, NULL, 10);
            break;
        case 's':
            opt.seconds = strtod(optarg, NULL);
            break;
        case 'i':
            opt.pid = (int)strtol(optarg, NULL, 10);
            break;
        case 'c':
            opt.csv = true;
            break;
        default:
            return false;
        }
    }
    const char *mode = optind < argc ? argv[optind] : "";
    opt.mode = !strcmp(mode, "streams") ? STREAMS : !strcmp(mode, "idle") ? IDLE : REQUESTS;
    return (opt.mode != REQUESTS || !strcmp(mode, "requests")) && opt.n > 0;
}

static void resolve(void)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *a;

    int failed = getaddrinfo(opt.host, opt.port, &hints, &a);
    if (failed) {
        fprintf(stderr, "sse_load: %s: %s\n", opt.host, gai_strerror(failed));
        exit(1);
    }
    memcpy(&server, a->ai_addr, a->ai_addrlen);
    server_n = a->ai_addrlen;
    freeaddrinfo(a);
}

int main(int argc, char **argv)
{
    struct rlimit files;

    if (!parse_options(argc, argv))
        return usage();
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    resolve();
    build_request();
    ep = epoll_create1(EPOLL_CLOEXEC);
    struct client *clients = xcalloc((size_t)opt.n, sizeof(*clients));
    if (opt.mode == IDLE)
        run_idle(clients);
    else
        run_load(clients);
    if (n_failed)
        fprintf(stderr, "sse_load: %llu requests failed; first unexpected status: %d\n",
            (unsigned long long)n_failed, first_bad_status);
    return n_failed || !n_first;
}
