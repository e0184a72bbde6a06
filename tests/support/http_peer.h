/* http_peer.h: clients in the thread of the server, so that tests need no sleeps and are
 * deterministic: a client writes, then the loop runs until the response is complete or a
 * deadline has passed. */
#pragma once

#include "support/http_kit.h"
#include "os/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

static inline void http_kit_run_loop(struct http_kit *k, int rounds)
{
    while (rounds--)
        loop_once(k->loop, 0);
}

static inline void http_kit_run_loop_ms(struct http_kit *k, int ms)
{
    uint64_t end = clock_ns() + (uint64_t)ms * 1000000u;

    while (clock_ns() < end)
        loop_once(k->loop, 1);
}

static inline int http_kit_connect_with(struct http_kit *k, int receive_buffer)
{
    struct sockaddr_in where = { .sin_family = AF_INET,
        .sin_port = htons(http_server_port(k->server)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (receive_buffer)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    EXPECT_EQ(connect(fd, (struct sockaddr *)&where, sizeof(where)), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static inline int http_kit_connect(struct http_kit *k)
{
    return http_kit_connect_with(k, 0);
}

/* Sends as much as the server accepts; returns false if it has closed the connection. */
static inline bool http_kit_send(struct http_kit *k, int fd, struct str s)
{
    uint64_t end = clock_ns() + 20000000000u;

    while (s.n && clock_ns() < end) {
        ssize_t n = send(fd, s.p, s.n, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            return false;
        s = str_skip(s, (size_t)MAX(n, 0));
        loop_once(k->loop, 0);
    }
    return !s.n;
}

enum http_kit_end { KIT_OPEN, KIT_EOF, KIT_RESET };

/* Appends received bytes to *b until it has at least n, or the server has closed the connection. */
static inline enum http_kit_end http_kit_read(struct http_kit *k, int fd, struct buf *b, size_t n)
{
    uint64_t end = clock_ns() + 20000000000u;
    char piece[65536];

    while (b->n < n && clock_ns() < end) {
        ssize_t got = recv(fd, piece, sizeof(piece), 0);
        if (got == 0)
            return KIT_EOF;
        if (got < 0 && errno != EAGAIN)
            return KIT_RESET;
        if (got > 0)
            buf_put(b, piece, (size_t)got);
        else
            loop_once(k->loop, 1);
    }
    return KIT_OPEN;
}

/* Reads until b contains `mark`. */
static inline bool http_kit_read_to(struct http_kit *k, int fd, struct buf *b, const char *mark)
{
    while (str_find(buf_str(b), str_of(mark)) < 0)
        if (http_kit_read(k, fd, b, b->n + 1) != KIT_OPEN)
            return str_find(buf_str(b), str_of(mark)) >= 0;
        else if (!b->n)
            return false;
    return true;
}

/* Waits until *what is `value`. */
static inline bool http_kit_wait(struct http_kit *k, const int *what, int value)
{
    uint64_t end = clock_ns() + 20000000000u;

    while (*what != value && clock_ns() < end)
        loop_once(k->loop, 1);
    return *what == value;
}
