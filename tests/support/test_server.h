/* test_server.h: a complete server inside a test: model registry, service, and clients over
 * loopback. */
#pragma once

#include "base/mem.h"
#include "support/check.h"
#include "serve/serve.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct test_server {
    struct registry *registry;
    struct keys *keys;
    struct service *service;
    struct response_store *response_store;
    struct model_spec specs[2]; /* "echo" is a script back end, "demo" computes */
};

static inline void test_server_close(struct test_server *w)
{
    if (w->service)
        service_drain(w->service);
    if (w->registry)
        registry_close(w->registry);
    service_close(w->service);
    response_store_close(w->response_store);
    keys_close(w->keys);
}

/* Listens and loads no model. models/demo.gguf is relative to the repository root, the working
 * directory of tests. The server must also be closed after -1. */
static inline int test_server_listen(
    struct test_server *w, int n_models, int n_threads, struct err *e)
{
    struct model_spec spec = model_spec_of("echo", "models/demo.gguf");

    *w = (struct test_server){ 0 };
    spec.backend = BACKEND_SCRIPT;
    spec.threads = 2;
    w->specs[0] = spec;
    spec.id = "demo";
    spec.backend = BACKEND_NATIVE;
    spec.kv_bytes = 1 << 20; /* few pages, so that sequences are preempted */
    w->specs[1] = spec;
    struct response_store_options so = { 1 << 20, 1 << 20, UINT64_MAX };
    if (keys_open(&w->keys, "", e) ||
        registry_open(&w->registry, &(struct registry_options){ w->specs, n_models, true }, e) ||
        response_store_open(&w->response_store, &so, e))
        return -1;
    struct serve_options o = { .http = http_options_default,
        .n_threads = n_threads,
        .max_body = 1 << 20,
        .ping_ms = 20,
        .drain_ms = 2000,
        .role = "unified",
        .registry = w->registry,
        .response_store = w->response_store,
        .keys = w->keys };
    o.http.host = "127.0.0.1";
    o.http.port = 0;
    return service_open(&w->service, &o, e);
}

static inline int test_server_start(
    struct test_server *w, int n_models, int n_threads, struct err *e)
{
    return test_server_listen(w, n_models, n_threads, e) || registry_start(w->registry, e) ? -1 : 0;
}

static inline enum model_state test_server_state(const struct test_server *w, const char *id)
{
    struct registry_entry *m = registry_find_id(w->registry, str_of(id));
    struct registry_view v;

    CHECK(m);
    registry_view(m, &v);
    registry_view_clear(&v);
    registry_entry_unref(m);
    return v.state;
}

/* Waits until no model is being loaded. */
static inline void test_server_wait(const struct test_server *w)
{
    for (int i = 0; i < registry_n_models(w->registry); i++)
        while (test_server_state(w, w->specs[i].id) == MODEL_LOADING)
            poll(NULL, 0, 1);
}

/* A model that is ready; the caller owns a reference (model_release). */
static inline struct model *test_server_take(const struct test_server *w, const char *id)
{
    struct registry_entry *m = registry_find_id(w->registry, str_of(id));
    struct model *model = NULL;
    struct err e;

    CHECK(m && registry_take(m, &model, &e) == TAKE_OK);
    registry_entry_unref(m);
    return model;
}

static inline void test_server_open(struct test_server *w, int n_models, int n_threads)
{
    struct err e;

    EXPECT_EQ(test_server_start(w, n_models, n_threads, &e), 0);
    test_server_wait(w);
    EXPECT_EQ(registry_n_ready(w->registry), n_models);
}

static inline int test_server_connect(const struct test_server *w)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
        .sin_port = htons(service_port(w->service)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct timeval patience = { 60, 0 };

    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof(to)));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return fd;
}

/* start: "POST /path"; fields: complete header lines, or "". */
static inline void test_server_send_with(
    int fd, const char *start, const char *fields, const char *body)
{
    char head[512];

    int n = snprintf(head, sizeof(head),
        "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%sContent-Length: %zu\r\n\r\n",
        start, fields, strlen(body));
    if (send(fd, head, (size_t)n, MSG_NOSIGNAL) < 0 ||
        send(fd, body, strlen(body), MSG_NOSIGNAL) < 0)
        return; /* the connection was closed: reading reports it */
}

static inline void test_server_send(int fd, const char *path, const char *body)
{
    char start[128];

    snprintf(start, sizeof(start), "POST %s", path);
    test_server_send_with(fd, start, "", body);
}

/* Reads until the end. Returns the status; 0 if the connection was closed without one. */
static inline int test_server_read(int fd, char *text, size_t size)
{
    size_t n = 0;
    ssize_t got;

    while (n < size - 1 && (got = read(fd, text + n, size - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = '\0';
    return n > 12 && !strncmp(text, "HTTP/1.1 ", 9) ? (int)strtol(text + 9, NULL, 10) : 0;
}

/* Sends a request; returns the status of the response, whose bytes are in `text`; 0 if the
 * connection was closed without one. */
static inline int test_server_request(
    const struct test_server *w, const char *start, const char *body, char *text, size_t size)
{
    int fd = test_server_connect(w);

    test_server_send_with(fd, start, "", body);
    int status = test_server_read(fd, text, size);
    close(fd);
    return status;
}

static inline int test_server_post(
    const struct test_server *w, const char *path, const char *body, char *text, size_t size)
{
    char start[128];

    snprintf(start, sizeof(start), "POST %s", path);
    return test_server_request(w, start, body, text, size);
}
