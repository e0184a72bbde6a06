/* Fuzzes bodies of every route of a complete server over a real socket: each response has a
 * status and the form of its Content-Type, and nothing leaks.
 *
 * The first byte selects the entry of routes.c, so that new routes are included; the second
 * selects the API key and how the body is sent. For a path that ends in '*' the rest of the path
 * is the first line. */
#include "base/log.h"
#include "base/mem.h"
#include "serve/io.h"
#include "serve/slots.h"
#include "support/raw_response.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BODY_MAX = 16384, ANSWER_MAX = 4 << 20, LIMIT_MS = 100, PATIENCE_S = 20 };

static struct service *service;
static char response_text[ANSWER_MAX];

/* ---- the server */

/* The fuzzer uses SIGALRM, which must not interrupt a connect. */
static void restart_calls_after_alarms(void)
{
    struct sigaction a;

    CHECK(!sigaction(SIGALRM, NULL, &a));
    a.sa_flags |= SA_RESTART;
    CHECK(!sigaction(SIGALRM, &a, NULL));
}

/* One script model, API keys, and all optional routes enabled. */
static void open_server(void)
{
    static char dir[] = "/tmp/fuzz_routes.XXXXXX";
    static struct live_fairness fairness;
    static struct model_spec spec;
    struct serve_options o = { .http = http_options_default,
        .n_threads = 1,
        .max_body = MB,
        .ping_ms = 10,
        .cors_origin = "*",
        .role = "unified",
        .slot_dir = dir,
        .slot_bytes = (int64_t)MB,
        .needs_key = true,
        .fairness = &fairness };
    struct response_cache_options response_cache = { MB, 1000000000 };
    struct response_store_options response_store = { MB, MB, UINT64_MAX };
    struct err e;

    log_set_level(LOG_ERROR);
    restart_calls_after_alarms();
    CHECK(mkdtemp(dir));
    spec = model_spec_of("echo", "models/demo.gguf");
    spec.backend = BACKEND_SCRIPT;
    spec.threads = 1;
    fairness_set(&fairness, &fairness_default);
    CHECK(!keys_open(&o.keys, "reader,boss:admin", &e));
    CHECK(!registry_open(&o.registry, &(struct registry_options){ &spec, 1 }, &e));
    CHECK(!response_cache_open(&o.response_cache, &response_cache, &e) &&
          !response_store_open(&o.response_store, &response_store, &e));
    o.slots = slots_new(true);
    for (int i = 0; i < N_SERVE_LIMITS; i++)
        o.limit_ms[i] = i == LIMIT_NONE ? 0 : LIMIT_MS;
    o.http.host = "127.0.0.1";
    o.http.port = 0;
    static struct serve_options kept;
    kept = o;
    CHECK(!service_open(&service, &kept, &e) && !registry_start(o.registry, &e));
    while (registry_n_ready(o.registry) < 1)
        poll(NULL, 0, 1);
}

/* ---- a client */

static int connect_to(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)
    };
    struct timeval patience = { PATIENCE_S, 0 };
    struct linger at_once = { .l_onoff = 1 }; /* leaves no port in TIME_WAIT */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof(to)));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    return fd;
}

static bool is_of_path(char c)
{
    return c > ' ' && c < 0x7f && c != '#';
}

static void put_request(struct buf *b, const struct route *r, uint8_t how, struct str in)
{
    static const char *const keys[] = { "", "x-api-key: reader\r\n",
        "Authorization: Bearer boss\r\n", "x-api-key: nobody\r\n" };

    buf_printf(b, "%s %.*s", r->method, (int)strcspn(r->path, "*"), r->path);
    if (strchr(r->path, '*'))
        for (; in.n && *in.p != '\n'; in = str_skip(in, 1))
            if (is_of_path(*in.p))
                buf_putc(b, *in.p);
    if (in.n && *in.p == '\n')
        in = str_skip(in, 1);
    buf_putz(b, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    /* Usually a key with the required scope. */
    buf_putz(b, keys[how % 8 < 6 ? 2 : how % 8 == 6 ? 1 : how / 8 % 4]);
    if (how & 128)
        buf_putz(b, "X-Request-Timeout-Ms: 5\r\n");
    if (how & 64) { /* in chunks of any size */
        size_t step = (size_t)(how & 63) + 1;
        buf_putz(b, "Transfer-Encoding: chunked\r\n\r\n");
        for (; in.n; in = str_skip(in, MIN(step, in.n))) {
            buf_printf(b, "%zx\r\n", MIN(step, in.n));
            buf_put(b, in.p, MIN(step, in.n));
            buf_putz(b, "\r\n");
        }
        buf_putz(b, "0\r\n\r\n");
    } else {
        buf_printf(b, "Content-Length: %zu\r\n\r\n", in.n);
        buf_puts(b, in);
    }
    CHECK(buf_ok(b));
}

/* Reads until the end. STR_NONE: the connection was cut, which is permitted if a deadline
 * passes. */
static struct str exchange(struct str request, bool has_deadline)
{
    int fd = connect_to(service_port(service));
    size_t n = 0;
    ssize_t got;

    while (request.n) {
        ssize_t sent = send(fd, request.p, request.n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            break; /* already rejected: reading reports it */
        request = str_skip(request, (size_t)MAX(sent, 0));
    }
    while ((got = recv(fd, response_text + n, sizeof(response_text) - n, 0)) > 0 ||
           (got && errno == EINTR))
        n += (size_t)MAX(got, 0); /* with SO_RCVTIMEO a call is not restarted */
    CHECK(n < sizeof(response_text));
    CHECK(got == 0 || (has_deadline && errno == ECONNRESET));
    close(fd);
    return got ? STR_NONE : (struct str){ response_text, n };
}

/* ---- response */

static void check_response(struct str all, const struct route *r)
{
    struct raw_response s = raw_response_parse(response_text, all.n);

    if (s.status < 200 || s.status == 500)
        fprintf(stderr, "%.*s\n", (int)MIN(all.n, (size_t)2000), all.p);
    CHECK(s.status >= 200 && s.status != 500);
    if (!strcmp(r->method, "HEAD")) {
        CHECK(!s.body.n);
        return;
    }
    CHECK(s.is_whole);
    check_body_form(&s);
    CHECK(strcmp(r->path, "/debug/invariants") || str_find(s.body, STR("\"ok\":false")) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n_routes = 0;
    struct buf request;

    if (size < 2 || size > BODY_MAX)
        return 0;
    if (!service)
        open_server();
    while (route_at(n_routes))
        n_routes++;
    const struct route *r = route_at(data[0] % n_routes);
    buf_init(&request, 64 * BODY_MAX);
    put_request(&request, r, data[1], (struct str){ (const char *)data + 2, size - 2 });
    struct str told = exchange(buf_str(&request), data[1] & 128);
    if (told.p)
        check_response(told, r);
    buf_clear(&request);
    return 0;
}
