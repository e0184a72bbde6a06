/* HTTP server with regular and misbehaving clients. Deadlines are short. The tests wait for
 * events, not for a time, except where the absence of an event is expected. */
#include "support/http_peer.h"

#include "base/fault.h"
#include "base/limits.h"

#include <netdb.h>
#include <stdlib.h>
#include <sys/resource.h>

#define GET(path) STR("GET " path " HTTP/1.1\r\nHost: a\r\n\r\n")

static struct str read_head(struct http_kit *k, int fd, struct buf *b)
{
    buf_reset(b);
    EXPECT(http_kit_read_to(k, fd, b, "\r\n\r\n"));
    return buf_str(b);
}

static bool contains(struct str s, const char *what)
{
    return str_find(s, str_of(what)) >= 0;
}

/* Waits until no connection is open; the memory of the exchange is then freed as well. */
static void expect_no_connections(struct http_kit *k)
{
    uint64_t end = clock_ns() + 20000000000u;

    while (http_server_stats(k->server)->open && clock_ns() < end)
        loop_once(k->loop, 1);
    EXPECT_EQ(http_server_stats(k->server)->open, 0u);
}

/* ---- disconnects */

static void disconnect_before_the_response_is_detected(void)
{
    struct http_kit k;

    http_kit_init(&k);
    http_kit_open(&k);
    int fd = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, fd, GET("/hold")));
    EXPECT(http_kit_wait(&k, &k.n_requests, 1));
    close(fd);
    http_kit_run_loop(&k, 1); /* in the next loop iteration */
    EXPECT_EQ(k.n_gone, 1);
    expect_no_connections(&k);
    EXPECT_EQ(k.n_gone, 1);
    EXPECT_EQ(http_server_stats(k.server)->gone, 1u);
    http_kit_close(&k);
}

static void reset_is_reported_once(void)
{
    struct linger at_once = { .l_onoff = 1 };
    struct http_kit k;

    http_kit_init(&k);
    http_kit_open(&k);
    int fd = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, fd, GET("/hold")));
    EXPECT(http_kit_wait(&k, &k.n_requests, 1));
    sink_begin(&k.held->sink, 200, "text/plain", -1, NULL, 0);
    sink_write(&k.held->sink, STR("x"));
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(fd);
    EXPECT(http_kit_wait(&k, &k.n_gone, 1));
    expect_no_connections(&k);
    EXPECT_EQ(k.n_gone, 1);
    http_kit_close(&k);
}

static void disconnect_during_the_stream_is_detected(void)
{
    struct http_kit k;
    struct buf b;

    buf_init(&b, MB);
    http_kit_init(&k);
    k.o.allow_half_close = true; /* no effect on a stream */
    http_kit_open(&k);
    int fd = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, fd, GET("/hold")));
    EXPECT(http_kit_wait(&k, &k.n_requests, 1));
    sink_begin(&k.held->sink, 200, "text/plain", -1, NULL, 0);
    EXPECT(contains(read_head(&k, fd, &b), "chunked")); /* the head is sent at once */
    shutdown(fd, SHUT_WR);
    EXPECT(http_kit_wait(&k, &k.n_gone, 1));
    EXPECT(!k.held);
    close(fd);
    expect_no_connections(&k);
    buf_clear(&b);
    http_kit_close(&k);
}

static void disconnect_after_pipelined_bytes_is_detected(void)
{
    struct http_kit k;

    http_kit_init(&k);
    http_kit_open(&k);
    int fd = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, fd, GET("/hold")));
    EXPECT(http_kit_wait(&k, &k.n_requests, 1));
    EXPECT(http_kit_send(&k, fd, GET("/echo")));
    http_kit_run_loop(&k, 3);
    EXPECT_EQ(k.n_requests, 1); /* one at a time */
    close(fd);
    EXPECT(http_kit_wait(&k, &k.n_gone, 1));
    expect_no_connections(&k);
    EXPECT_EQ(k.n_requests, 1);
    http_kit_close(&k);
}

static void disconnect_outside_of_an_exchange_is_not_reported(void)
{
    static const char *const parts[] = { "", "G", "GET /echo HTTP/1.1\r\nHost: a\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc",
        "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n" };
    struct http_kit k;

    http_kit_init(&k);
    http_kit_open(&k);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        int fd = http_kit_connect(&k);
        EXPECT(http_kit_send(&k, fd, str_of(parts[i])));
        http_kit_run_loop(&k, 20);
        close(fd);
        expect_no_connections(&k);
    }
    EXPECT_EQ(k.n_gone, 0);
    EXPECT_EQ(k.n_requests, 1);
    http_kit_close(&k);
}

static void half_closed_client_gets_its_response_if_allowed(void)
{
    for (int allowed = 0; allowed < 2; allowed++) {
        struct http_kit k;
        struct buf b;

        buf_init(&b, MB);
        http_kit_init(&k);
        k.o.allow_half_close = allowed;
        http_kit_open(&k);
        int fd = http_kit_connect(&k);
        EXPECT(http_kit_send(&k, fd, GET("/hold")));
        EXPECT(http_kit_wait(&k, &k.n_requests, 1));
        shutdown(fd, SHUT_WR);
        http_kit_run_loop(&k, 5);
        EXPECT_EQ(k.n_gone, !allowed);
        EXPECT_EQ(k.held != NULL, allowed);
        if (k.held)
            sink_respond(&k.held->sink, 200, "text/plain", STR("late"), NULL, 0);
        EXPECT_EQ((int)http_kit_read(&k, fd, &b, SIZE_MAX), (int)KIT_EOF);
        EXPECT_EQ(contains(buf_str(&b), "late"), allowed);
        close(fd);
        expect_no_connections(&k);
        buf_clear(&b);
        http_kit_close(&k);
    }
}

static void rejected_head_request_gets_no_body(void)
{
    static const char *const heads[] = { "HEAD /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
        "HEAD /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n" };
    struct http_kit k;
    struct buf b;

    buf_init(&b, MB);
    http_kit_init(&k);
    http_kit_open(&k);
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        int fd = http_kit_connect(&k);
        EXPECT(http_kit_send(&k, fd, str_of(heads[i])));
        buf_reset(&b);
        EXPECT_EQ((int)http_kit_read(&k, fd, &b, SIZE_MAX), (int)KIT_EOF);
        EXPECT(contains(buf_str(&b), " 400 ") && contains(buf_str(&b), "Content-Length: "));
        EXPECT_EQ(str_ends(buf_str(&b), STR("\r\n\r\n")), i < 2);
        close(fd);
        expect_no_connections(&k);
    }
    buf_clear(&b);
    http_kit_close(&k);
}

/* ---- deadlines */

static void slow_head_is_cut_by_total_time(void)
{
    struct http_kit k;
    struct buf b;

    buf_init(&b, MB);
    http_kit_init(&k);
    k.o.head_ms = 60;
    http_kit_open(&k);
    int fd = http_kit_connect(&k);
    uint64_t start = clock_ns();
    EXPECT(http_kit_send(&k, fd, STR("GET /")));
    while (b.n < 12 && clock_ns() - start < 60 * 1000000000ull) {
        char some[12];
        (void)!send(fd, "a", 1, MSG_NOSIGNAL); /* never idle */
        http_kit_run_loop_ms(&k, 2);
        ssize_t n = recv(fd, some, sizeof(some) - b.n, 0);
        buf_put(&b, some, (size_t)MAX(n, 0));
    }
    EXPECT(contains(buf_str(&b), "HTTP/1.1 408"));
    EXPECT(clock_ns() - start >= 55000000u);
    close(fd);
    expect_no_connections(&k);
    EXPECT_EQ(k.n_heads, 0);
    buf_clear(&b);
    http_kit_close(&k);
}

static enum http_kit_end read_until_closed(struct http_kit *k, const char *sent, struct buf *b)
{
    int fd = http_kit_connect(k);

    EXPECT(http_kit_send(k, fd, str_of(sent)));
    buf_reset(b);
    enum http_kit_end end = http_kit_read(k, fd, b, SIZE_MAX);
    close(fd);
    expect_no_connections(k);
    return end;
}

/* Only one deadline is short at a time, so that a slow machine does not exceed another. */
static void idle_connection_is_cut_in_every_state(void)
{
    static const struct {
        const char *sent, *want;
        uint32_t head_ms, body_ms, idle_ms;
    } cases[] = {
        { "", "", 50, 60000, 60000 },
        { "GET / HTTP/1.1\r\nHo", " 408 ", 50, 60000, 60000 },
        { "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab", " 408 ", 60000, 50,
            60000 },
        { "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", " 200 ", 60000, 60000, 50 },
    };
    struct http_kit k;
    struct buf b;

    buf_init(&b, MB);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        http_kit_init(&k);
        k.o.head_ms = cases[i].head_ms;
        k.o.body_ms = cases[i].body_ms;
        k.o.idle_ms = cases[i].idle_ms;
        http_kit_open(&k);
        EXPECT_EQ((int)read_until_closed(&k, cases[i].sent, &b), (int)KIT_EOF);
        /* a client that sends nothing receives nothing */
        EXPECT_EQ(b.n == 0, cases[i].want[0] == '\0');
        EXPECT(contains(buf_str(&b), cases[i].want));
        EXPECT_EQ(str_find(str_skip(buf_str(&b), 12), STR("HTTP/1.1")), -1); /* nor later */
        EXPECT_EQ(k.n_gone, 0);
        http_kit_close(&k);
    }
    buf_clear(&b);
}

static void a_slow_body_is_cut_and_a_steady_one_is_not(void)
{
    static const char head[] = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 400\r\n\r\n";
    static const struct {
        size_t first, each; /* bytes at once, then bytes per 60 ms */
        uint32_t min_rate;
        const char *want;
    } cases[] = {
        { 1, 0, 10, " 408 " }, { 50, 50, 10, " 200 " }, /* takes longer than body_ms */
        { 300, 0, 10, " 408 " },                        /* the first bytes do not pay for silence */
        { 300, 1, 1000, " 408 " },                      /* nor for single bytes */
        { 50, 50, 0, " 408 " }, /* without a rate, body_ms is the time for the whole body */
    };
    struct http_kit k;
    struct buf b, first;
    char piece[400], peeked;

    memset(piece, 'x', sizeof(piece));
    buf_init(&b, MB);
    buf_init(&first, MB);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        http_kit_init(&k);
        k.o.body_ms = 300;
        k.o.body_min_rate = cases[i].min_rate;
        http_kit_open(&k);
        int fd = http_kit_connect(&k), n_pieces = 0;
        buf_reset(&first);
        buf_putz(&first, head);
        buf_put(&first, piece, cases[i].first);
        EXPECT(http_kit_send(&k, fd, buf_str(&first)));
        while (recv(fd, &peeked, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && n_pieces++ < 60) {
            http_kit_run_loop_ms(&k, 60);
            if (cases[i].each)
                (void)!send(fd, piece, cases[i].each, MSG_NOSIGNAL);
        }
        EXPECT(n_pieces < 60); /* answered before the client stopped sending */
        buf_reset(&b);
        EXPECT(http_kit_read(&k, fd, &b, 12) != KIT_RESET);
        if (!contains(buf_str(&b), cases[i].want))
            fail_msg("case %zu: %.*s", i, (int)b.n, b.p);
        close(fd);
        expect_no_connections(&k);
        http_kit_close(&k);
    }
    buf_clear(&b);
    buf_clear(&first);
}

/* ---- slow clients */

static void client_that_never_reads_is_cut_in_time(void)
{
    struct http_kit k;
    char block[65536];

    memset(block, 'x', sizeof(block));
    http_kit_init(&k);
    k.o.write_ms = 50;
    http_kit_open(&k);
    int fd = http_kit_connect_with(&k, 4096);
    EXPECT(http_kit_send(&k, fd, GET("/hold")));
    EXPECT(http_kit_wait(&k, &k.n_requests, 1));
    sink_begin(&k.held->sink, 200, "text/plain", -1, NULL, 0);
    uint64_t end = clock_ns() + 20000000000u;
    while (k.held && clock_ns() < end) {
        if (sink_queued(&k.held->sink) < SINK_HIGH_WATER)
            sink_write(&k.held->sink, (struct str){ block, sizeof(block) });
        loop_once(k.loop, 1);
    }
    EXPECT_EQ(k.n_gone, 1);
    close(fd);
    expect_no_connections(&k);
    http_kit_close(&k);
}

static void a_writer_that_ignores_the_queue_is_bounded(void)
{
    struct http_kit k;
    char block[65536];

    memset(block, 'x', sizeof(block));
    http_kit_init(&k);
    k.o.max_queued = MB;
    http_kit_open(&k);
    int fd = http_kit_connect_with(&k, 4096);
    EXPECT(http_kit_send(&k, fd, GET("/hold")));
    EXPECT(http_kit_wait(&k, &k.n_requests, 1));
    struct http_exchange *x = k.held;
    sink_begin(&x->sink, 200, "text/plain", -1, NULL, 0);
    size_t most = 0;
    for (int i = 0; i < 1000; i++) { /* 64 MB in one loop iteration */
        sink_write(&x->sink, (struct str){ block, sizeof(block) });
        most = MAX(most, sink_queued(&x->sink));
    }
    EXPECT(most <= MB + 64);
    EXPECT_EQ(k.n_gone, 0); /* never called from inside a sink function */
    loop_once(k.loop, 0);
    EXPECT_EQ(k.n_gone, 1);
    close(fd);
    expect_no_connections(&k);
    http_kit_close(&k);
}

static void drained_queue_is_reported_and_every_byte_arrives(void)
{
    enum { TOTAL = SMALL ? 600 * 1024 : 3 * 1024 * 1024 };
    struct http_kit k;
    struct buf b;
    char block[10007];
    uint64_t sent = 0;

    for (size_t i = 0; i < sizeof(block); i++)
        block[i] = (char)('a' + i % 23);
    buf_init(&b, 8 * MB);
    http_kit_init(&k);
    http_kit_open(&k);
    int fd = http_kit_connect_with(&k, 4096);
    EXPECT(http_kit_send(&k, fd, GET("/hold")));
    EXPECT(http_kit_wait(&k, &k.n_requests, 1));
    sink_begin(&k.held->sink, 200, "text/plain", TOTAL, NULL, 0);
    int n_drained = -1;
    while (sent < TOTAL && n_drained != k.n_drained) {
        n_drained = k.n_drained;
        while (sent < TOTAL && sink_queued(&k.held->sink) <= SINK_HIGH_WATER) {
            size_t n = MIN(sizeof(block), TOTAL - sent);
            sink_write(&k.held->sink, (struct str){ block, n });
            sent += n;
        }
        EXPECT(sink_queued(&k.held->sink) <= SINK_HIGH_WATER + sizeof(block));
        while (k.n_drained == n_drained && sent < TOTAL && b.n < b.max)
            EXPECT_EQ((int)http_kit_read(&k, fd, &b, b.n + 1), (int)KIT_OPEN);
    }
    EXPECT(k.n_drained > 1);
    sink_end(&k.held->sink);
    EXPECT(http_kit_read_to(&k, fd, &b, "\r\n\r\n"));
    size_t head_n = (size_t)str_find(buf_str(&b), STR("\r\n\r\n")) + 4;
    EXPECT_EQ((int)http_kit_read(&k, fd, &b, head_n + TOTAL), (int)KIT_OPEN);
    struct str body = str_skip(buf_str(&b), head_n);
    EXPECT_EQ(body.n, (size_t)TOTAL);
    for (size_t i = 0; i < body.n; i++)
        EXPECT_EQ(body.p[i], block[i % sizeof(block)]);
    close(fd);
    expect_no_connections(&k);
    buf_clear(&b);
    http_kit_close(&k);
}

static void a_flood_of_pipelined_requests_without_reading_is_bounded(void)
{
    struct http_kit k;
    struct buf flood;

    buf_init(&flood, MB);
    for (int i = 0; i < 100; i++)
        buf_puts(&flood, GET("/echo"));
    http_kit_init(&k);
    http_kit_open(&k);
    int fd = http_kit_connect_with(&k, 4096);
    /* The server stops reading instead of buffering responses: at some point it accepts no more. */
    const struct http_stats *stats = http_server_stats(k.server);
    uint64_t before = UINT64_MAX;
    for (int i = 0; i < 20000 && before != stats->bytes_in; i++) {
        before = stats->bytes_in;
        while (send(fd, flood.p, flood.n, MSG_NOSIGNAL) > 0)
            loop_once(k.loop, 0);
        EXPECT_EQ(errno, EAGAIN);
        http_kit_run_loop(&k, 20);
    }
    EXPECT_EQ(before, stats->bytes_in);
    EXPECT(k.n_requests > 0);
    close(fd);
    expect_no_connections(&k);
    buf_clear(&flood);
    http_kit_close(&k);
}

/* ---- bodies */

static void million_one_byte_chunks_are_cheap(void)
{
    enum { N = SMALL ? 5000 : 1000000 };
    struct http_kit k;
    struct buf b, reply;

    buf_init(&b, 16 * MB);
    buf_init(&reply, 16 * MB);
    buf_putz(&b, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < N; i++)
        buf_putz(&b, "1\r\nx\r\n");
    buf_putz(&b, "0\r\n\r\n");
    http_kit_init(&k);
    k.max_body = N;
    http_kit_open(&k);
    int fd = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, fd, buf_str(&b)));
    while (reply.n < N && http_kit_read(&k, fd, &reply, reply.n + 1) == KIT_OPEN)
        ;
    EXPECT(reply.n > N);
    close(fd);
    buf_clear(&b);
    buf_clear(&reply);
    expect_no_connections(&k);
    http_kit_close(&k);
}

static void rejection_reaches_a_client_that_continues_sending(void)
{
    struct http_kit k;
    struct buf b;
    char block[16384];

    memset(block, 'x', sizeof(block));
    buf_init(&b, MB);
    http_kit_init(&k);
    k.max_body = 1000;
    http_kit_open(&k);
    int fd = http_kit_connect(&k);
    EXPECT(http_kit_send(
        &k, fd, STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n")));
    /* the client does not read until everything is sent */
    for (int i = 0; i < (SMALL ? 4 : 120); i++)
        EXPECT(http_kit_send(&k, fd, (struct str){ block, sizeof(block) }));
    EXPECT_EQ((int)http_kit_read(&k, fd, &b, SIZE_MAX), (int)KIT_EOF); /* no reset */
    EXPECT(contains(buf_str(&b), " 413 "));
    close(fd);
    buf_clear(&b);
    expect_no_connections(&k);
    http_kit_close(&k);
}

static void all_bodies_together_are_bounded(void)
{
    static const char post[] = "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 60\r\n\r\n"
                               "012345678901234567890123456789012345678901234567890123456789";
    struct http_kit k;
    struct buf b;
    struct budget *bodies =
        budget_new(&(struct budget_options){ .max = 133, .share_percent = 100, .n_owners = 2 });

    buf_init(&b, MB);
    http_kit_init(&k);
    k.o.bodies = bodies; /* 100 bytes, since no body is small */
    http_kit_open(&k);
    for (int i = 1; i <= 2; i++) { /* closed connections free their slots */
        int holder = http_kit_connect(&k), other = http_kit_connect(&k);
        EXPECT(http_kit_send(&k, holder, str_of(post)));
        EXPECT(http_kit_wait(&k, &k.n_requests, i));
        EXPECT(http_kit_send(&k, other, str_of(post)));
        EXPECT(contains(read_head(&k, other, &b), " 503 "));
        close(other);
        close(holder);
        expect_no_connections(&k);
    }
    EXPECT_EQ(k.n_gone, 2);
    buf_clear(&b);
    http_kit_close(&k);
    budget_free(bodies);
}

#define POST(path, n) "POST " path " HTTP/1.1\r\nHost: a\r\nContent-Length: " #n "\r\n\r\n"
#define TEN           "0123456789"
#define SIXTY         TEN TEN TEN TEN TEN TEN

/* Uploads that stop fill the share of their owner; the other owner and small bodies find room. */
static void bodies_of_one_owner_leave_room_for_others(void)
{
    static const struct {
        const char *sent, *want;
    } cases[] = {
        { POST("/echo", 25) TEN TEN "01234", " 429 " },   /* above the share of its owner */
        { POST("/echo", 10) TEN, " 200 " },               /* small */
        { POST("/echo?1", 25) TEN TEN "01234", " 200 " }, /* the other owner has its share */
        { POST("/echo?1", 71) SIXTY TEN "0", " 413 " },   /* above what one body may have */
    };
    struct budget *bodies = budget_new(
        &(struct budget_options){ .max = 160, .small = 10, .share_percent = 50, .n_owners = 2 });
    struct budget_stats stats = { 0 };
    struct http_kit k;
    struct buf b;

    buf_init(&b, MB);
    http_kit_init(&k);
    k.o.bodies = bodies;
    http_kit_open(&k);
    int silent = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, silent, STR(POST("/echo", 70) SIXTY)));
    while (stats.bytes < 60) { /* 10 of the reserve, 50 of the main pool; the share is 20 and 60 */
        http_kit_run_loop(&k, 1);
        budget_stats(bodies, &stats);
    }
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int fd = http_kit_connect(&k);
        EXPECT(http_kit_send(&k, fd, str_of(cases[i].sent)));
        if (!contains(read_head(&k, fd, &b), cases[i].want))
            fail_msg("case %zu: %.*s", i, (int)b.n, b.p);
        close(fd);
    }
    close(silent);
    expect_no_connections(&k);
    budget_stats(bodies, &stats);
    EXPECT_EQ(stats.bytes, 0u);
    buf_clear(&b);
    http_kit_close(&k);
    budget_free(bodies);
}

/* ---- limits on connections */

static void the_longest_idle_connection_makes_room(void)
{
    struct http_kit k;
    struct buf b;
    int fds[4];

    buf_init(&b, MB);
    http_kit_init(&k);
    k.o.max_connections = 3;
    http_kit_open(&k);
    for (int i = 0; i < 3; i++) {
        fds[i] = http_kit_connect(&k);
        EXPECT(http_kit_send(&k, fds[i], i == 0 ? GET("/hold") : GET("/echo")));
        http_kit_run_loop(&k, 12);
    }
    fds[3] = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, fds[3], GET("/echo")));
    EXPECT(contains(read_head(&k, fds[3], &b), " 200 "));
    buf_reset(&b);
    EXPECT_EQ((int)http_kit_read(&k, fds[1], &b, SIZE_MAX), (int)KIT_EOF); /* the oldest idle one */
    EXPECT_EQ(http_server_stats(k.server)->open, 3u);
    EXPECT(k.held); /* the busy connection is not closed */
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    expect_no_connections(&k);
    buf_clear(&b);
    http_kit_close(&k);
}

static void connection_is_rejected_if_all_are_busy(void)
{
    struct http_kit k;
    struct buf b;

    buf_init(&b, MB);
    http_kit_init(&k);
    k.o.max_connections = 1;
    http_kit_open(&k);
    int busy = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, busy, GET("/hold")));
    EXPECT(http_kit_wait(&k, &k.n_requests, 1));
    int fd = http_kit_connect(&k);
    EXPECT(contains(read_head(&k, fd, &b), " 503 "));
    EXPECT(contains(buf_str(&b), "Retry-After: 1"));
    close(fd);
    close(busy);
    expect_no_connections(&k);
    buf_clear(&b);
    http_kit_close(&k);
}

static void without_descriptors_clients_are_dropped_and_service_continues(void)
{
    struct rlimit before, few;
    struct http_kit k;
    struct buf b;
    int fds[8];

    buf_init(&b, MB);
    http_kit_init(&k);
    http_kit_open(&k);
    int first = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, first, GET("/echo")));
    EXPECT(contains(read_head(&k, first, &b), " 200 "));
    for (int i = 0; i < 8; i++)
        fds[i] = http_kit_connect(&k); /* in the backlog */
    getrlimit(RLIMIT_NOFILE, &before);
    few = before;
    few.rlim_cur = (rlim_t)fds[7] + 1;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    http_kit_run_loop(&k, 20);
    setrlimit(RLIMIT_NOFILE, &before);
    for (int i = 0; i < 8; i++) {
        buf_reset(&b);
        EXPECT(
            http_kit_read(&k, fds[i], &b, SIZE_MAX) != KIT_OPEN); /* rejected, not kept waiting */
        close(fds[i]);
    }
    EXPECT(http_kit_send(&k, first, GET("/echo")));
    EXPECT(contains(read_head(&k, first, &b), " 200 "));
    int after = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, after, GET("/echo")));
    EXPECT(contains(read_head(&k, after, &b), " 200 "));
    close(after);
    close(first);
    expect_no_connections(&k);
    buf_clear(&b);
    http_kit_close(&k);
}

/* ---- draining */

static void set_flag(void *arg)
{
    *(int *)arg += 1;
}

static void draining_waits_for_responses_and_closes_idle_connections(void)
{
    struct http_kit k;
    struct buf b;
    int n_done = 0;

    buf_init(&b, MB);
    http_kit_init(&k);
    http_kit_open(&k);
    int idle = http_kit_connect(&k), busy = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, idle, GET("/echo")));
    EXPECT(contains(read_head(&k, idle, &b), "keep-alive"));
    EXPECT(http_kit_send(&k, busy, GET("/hold")));
    EXPECT(http_kit_wait(&k, &k.n_requests, 2));
    uint16_t port = http_server_port(k.server);
    http_server_drain(k.server, 60000, set_flag, &n_done);
    EXPECT_EQ(n_done, 0);
    while (http_kit_read(&k, idle, &b, SIZE_MAX) != KIT_EOF)
        ;
    struct sockaddr_in where = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)
    };
    int late = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(late, (struct sockaddr *)&where, sizeof(where)), -1);
    close(late);
    close(idle);
    http_kit_run_loop(&k, 10);
    EXPECT_EQ(n_done, 0);
    sink_respond(&k.held->sink, 200, "text/plain", STR("done"), NULL, 0);
    buf_reset(&b);
    EXPECT_EQ((int)http_kit_read(&k, busy, &b, SIZE_MAX), (int)KIT_EOF);
    EXPECT(contains(buf_str(&b), "Connection: close") && contains(buf_str(&b), "done"));
    close(busy);
    EXPECT(http_kit_wait(&k, &n_done, 1));
    EXPECT_EQ(k.n_gone, 0);
    buf_clear(&b);
    http_kit_close(&k);
}

static void a_drain_ends_at_its_deadline(void)
{
    struct http_kit k;
    int n_done = 0;

    http_kit_init(&k);
    http_kit_open(&k);
    int busy = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, busy, GET("/hold")));
    EXPECT(http_kit_wait(&k, &k.n_requests, 1));
    http_server_drain(k.server, 20, set_flag, &n_done);
    EXPECT(http_kit_wait(&k, &n_done, 1));
    EXPECT_EQ(k.n_gone, 1);
    close(busy);
    http_kit_run_loop(&k, 3);
    EXPECT_EQ(n_done, 1);
    http_kit_close(&k);
}

static void close_server(void *arg)
{
    struct http_kit *k = arg;

    http_server_close(k->server);
    k->server = NULL;
}

static void an_empty_server_is_drained_at_once_and_may_be_closed_then(void)
{
    struct http_kit k;

    http_kit_init(&k);
    http_kit_open(&k);
    http_server_drain(k.server, 1000, close_server, &k);
    EXPECT(k.server); /* not freed inside the call */
    http_kit_run_loop(&k, 2);
    EXPECT(!k.server);
    http_kit_close(&k);
}

static void closing_the_server_reports_each_cut_exchange(void)
{
    struct http_kit k;

    http_kit_init(&k);
    http_kit_open(&k);
    int a = http_kit_connect(&k), b = http_kit_connect(&k), c = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, a, GET("/hold")));
    EXPECT(http_kit_send(&k, b, STR("GET /e")));
    EXPECT(http_kit_wait(&k, &k.n_requests, 1));
    http_kit_run_loop(&k, 3);
    http_kit_close(&k);
    EXPECT_EQ(k.n_gone, 1);
    close(a);
    close(b);
    close(c);
}

/* ---- other */

static void response_fields_cannot_inject_lines(void)
{
    struct http_field f[] = { { STR("X-Id"), STR("a\r\nSet-Cookie: b\n\0\x7f"
                                                 "c") },
        { STR("Connection"), STR("upgrade") }, { STR("transfer-encoding"), STR("gzip") } };
    struct http_kit k;
    struct buf b;

    buf_init(&b, MB);
    http_kit_init(&k);
    http_kit_open(&k);
    int fd = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, fd, GET("/hold")));
    EXPECT(http_kit_wait(&k, &k.n_requests, 1));
    sink_respond(&k.held->sink, 200, "text/plain", STR(""), f, 3);
    struct str got = read_head(&k, fd, &b);
    EXPECT(contains(got, "X-Id: aSet-Cookie: bc\r\n"));
    EXPECT(!contains(got, "\nSet-Cookie") && !contains(got, "upgrade") && !contains(got, "gzip"));
    close(fd);
    expect_no_connections(&k);
    buf_clear(&b);
    http_kit_close(&k);
}

static void request_is_delivered_complete(void)
{
    struct http_kit k;

    http_kit_init(&k);
    http_kit_open(&k);
    int fd = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, fd,
        STR("POST /hold?q=%41 HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nx-b:  2 \r\n"
            "Content-Length: 3\r\n\r\nxyz")));
    EXPECT(http_kit_wait(&k, &k.n_requests, 1));
    const struct http_request *r = k.held->req;
    EXPECT(str_is(r->method, "POST") && str_is(r->target, "/hold?q=%41"));
    EXPECT(str_is(r->path, "/hold") && str_is(r->query, "q=%41") && str_is(r->body, "xyz"));
    EXPECT(str_is(r->peer, "127.0.0.1") && !r->is_tls);
    EXPECT_EQ(r->n_fields, 4);
    EXPECT(str_is(http_field_get(r, "X-B"), "2") && str_is(http_field_get(r, "x-a"), "1"));
    EXPECT(!http_field_get(r, "x-c").p);
    EXPECT(k.held->started_ns && k.held->started_ns <= clock_ns());
    close(fd);
    expect_no_connections(&k);
    http_kit_close(&k);
}

static void response_shorter_than_declared_cuts_the_connection(void)
{
    struct http_kit k;
    struct buf b;

    buf_init(&b, MB);
    for (int longer = 0; longer < 2; longer++) {
        http_kit_init(&k);
        http_kit_open(&k);
        int fd = http_kit_connect(&k);
        EXPECT(http_kit_send(&k, fd, GET("/hold")));
        EXPECT(http_kit_wait(&k, &k.n_requests, 1));
        sink_begin(&k.held->sink, 200, "text/plain", 3, NULL, 0);
        sink_write(&k.held->sink, longer ? STR("abcd") : STR("ab"));
        sink_end(&k.held->sink);
        buf_reset(&b);
        EXPECT(http_kit_read(&k, fd, &b, SIZE_MAX) != KIT_OPEN);
        close(fd);
        expect_no_connections(&k);
        http_kit_close(&k);
    }
    buf_clear(&b);
}

static void a_name_with_several_addresses_is_listened_on_at_one_port(void)
{
    struct addrinfo *found;
    struct http_kit k;

    if (getaddrinfo("localhost", NULL, NULL, &found)) {
        printf("skipped: this machine knows no localhost\n");
        return;
    }
    freeaddrinfo(found);
    http_kit_init(&k);
    k.o.host = "localhost";
    http_kit_open(&k);
    EXPECT(http_server_port(k.server) != 0);
    int fd = http_kit_connect(&k);
    EXPECT(http_kit_send(&k, fd, GET("/echo")));
    EXPECT(http_kit_wait(&k, &k.n_requests, 1));
    close(fd);
    http_kit_close(&k);
}

static void unavailable_address_is_an_error(void)
{
    struct http_app app = { .on_request = http_kit_on_request };
    struct http_server *s = NULL;
    struct err e = { 0 };
    struct http_kit k;

    http_kit_init(&k);
    http_kit_open(&k);
    k.o.port = http_server_port(k.server);
    EXPECT_EQ(http_server_open(&s, k.loop, &k.o, &app, &e), -1);
    EXPECT(strstr(e.msg, "in use"));
    k.o.host = "host.invalid";
    EXPECT_EQ(http_server_open(&s, k.loop, &k.o, &app, &e), -1);
    EXPECT(strstr(e.msg, "host.invalid"));
    http_kit_close(&k);
}

#ifdef TESTING
/* Each allocation, read, write, accept and epoll_ctl of a few exchanges fails in turn. Whatever
 * happens to that client, the server state is unchanged afterwards. */
static void server_survives_every_failure(void)
{
    static const enum fault_site sites[] = { FAULT_ALLOC, FAULT_READ, FAULT_WRITE, FAULT_ACCEPT,
        FAULT_EPOLL };

    for (size_t s = 0; s < ARRAY_LEN(sites); s++) {
        for (uint64_t nth = 1; nth <= (SMALL ? 60 : 30); nth++) {
            struct http_kit k;
            struct buf b;
            /* the client's own buffer must not be the failing allocation */
            char *mem = xmalloc(MB);

            http_kit_init(&k);
            http_kit_open(&k);
            int fd = http_kit_connect(&k);
            fault_arm(sites[s], nth);
            (void)!send(fd,
                "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
                "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n",
                88, MSG_NOSIGNAL);
            http_kit_run_loop(&k, SMALL ? 80 : 10);
            fault_arm(sites[s], 0);
            close(fd);
            expect_no_connections(&k);
            fd = http_kit_connect(&k);
            EXPECT(http_kit_send(&k, fd, GET("/echo")));
            b = (struct buf){ .p = mem, .cap = MB, .max = MB };
            EXPECT(http_kit_read_to(&k, fd, &b, "GET /echo"));
            close(fd);
            expect_no_connections(&k);
            mem_free(mem);
            http_kit_close(&k);
        }
    }
}
#else
static void server_survives_every_failure(void)
{
    printf("skipped: faults exist in test builds only\n");
}
#endif

TESTS(TEST(disconnect_before_the_response_is_detected), TEST(reset_is_reported_once),
    TEST(disconnect_during_the_stream_is_detected),
    TEST(disconnect_after_pipelined_bytes_is_detected),
    TEST(disconnect_outside_of_an_exchange_is_not_reported),
    TEST(half_closed_client_gets_its_response_if_allowed), TEST(rejected_head_request_gets_no_body),
    TEST(slow_head_is_cut_by_total_time), TEST(idle_connection_is_cut_in_every_state),
    TEST(a_slow_body_is_cut_and_a_steady_one_is_not), TEST(client_that_never_reads_is_cut_in_time),
    TEST(a_writer_that_ignores_the_queue_is_bounded),
    TEST(drained_queue_is_reported_and_every_byte_arrives),
    TEST(a_flood_of_pipelined_requests_without_reading_is_bounded),
    TEST(million_one_byte_chunks_are_cheap),
    TEST(rejection_reaches_a_client_that_continues_sending), TEST(all_bodies_together_are_bounded),
    TEST(bodies_of_one_owner_leave_room_for_others), TEST(the_longest_idle_connection_makes_room),
    TEST(connection_is_rejected_if_all_are_busy),
    TEST(without_descriptors_clients_are_dropped_and_service_continues),
    TEST(draining_waits_for_responses_and_closes_idle_connections),
    TEST(a_drain_ends_at_its_deadline),
    TEST(an_empty_server_is_drained_at_once_and_may_be_closed_then),
    TEST(closing_the_server_reports_each_cut_exchange), TEST(response_fields_cannot_inject_lines),
    TEST(request_is_delivered_complete), TEST(response_shorter_than_declared_cuts_the_connection),
    TEST(a_name_with_several_addresses_is_listened_on_at_one_port),
    TEST(unavailable_address_is_an_error), TEST(server_survives_every_failure))
