/* One chat request with its Nth allocation failed, for N = 1, 2, ... until none fails: the server
 * answers something sensible or cuts the connection, frees everything, and serves the next one. */
#include "base/log.h"
#include "base/mem.h"
#include "check.h"
#include "serve/serve.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static const char demo[] = "models/demo.gguf";

struct world {
    struct pool *pool;
    struct keys *keys;
    struct service *service;
    struct model_spec spec;
};

static void world_open(struct world *w)
{
    struct err e;

    *w = (struct world){ .spec = { .id = "echo",
                             .path = demo,
                             .backend = BACKEND_SCRIPT,
                             .family = "",
                             .template_path = "",
                             .kernels = "auto",
                             .kv_type = "f16",
                             .engine = engine_options_default } };
    EXPECT_EQ(keys_open(&w->keys, "", &e), 0);
    EXPECT_EQ(pool_open(&w->pool, &(struct pool_options){ &w->spec, 1, false }, &e), 0);
    struct serve_options o = { .http = http_options_default,
        .n_threads = 1,
        .max_body = 1 << 20,
        .ping_ms = 15000,
        .drain_ms = 2000,
        .cors_origin = "*",
        .role = "unified",
        .pool = w->pool,
        .keys = w->keys };
    o.http.host = "127.0.0.1";
    o.http.port = 0;
    EXPECT_EQ(service_open(&w->service, &o, &e), 0);
    while (model_state(pool_at(w->pool, 0)) == MODEL_LOADING)
        poll(NULL, 0, 1);
    EXPECT_EQ(model_state(pool_at(w->pool, 0)), MODEL_READY);
}

static void world_close(struct world *w)
{
    service_drain(w->service);
    pool_close(w->pool);
    service_close(w->service);
    keys_close(w->keys);
}

static int connect_to(const struct world *w)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
        .sin_port = htons(service_port(w->service)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct timeval patience = { 20, 0 };

    int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof(to)));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return fd;
}

/* Status of the answer; 0 when the connection was cut without one; its body in `text`. */
static int post(const struct world *w, const char *path, const char *body, char *text, size_t size)
{
    char head[256];
    size_t n = 0;
    ssize_t got;

    int fd = connect_to(w);
    int n_head = snprintf(head, sizeof(head),
        "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", path,
        strlen(body));
    if (write(fd, head, (size_t)n_head) < 0 || write(fd, body, strlen(body)) < 0)
        n = 0; /* it was cut already: reading tells */
    while (n < size - 1 && (got = read(fd, text + n, size - 1 - n)) > 0)
        n += (size_t)got;
    close(fd);
    text[n] = '\0';
    return n > 12 && !strncmp(text, "HTTP/1.1 ", 9) ? (int)strtol(text + 9, NULL, 10) : 0;
}

static void walk(struct world *w, const char *path, const char *body, const char *whole)
{
    char text[16384];
    uint64_t n, before;
    int n_cut = 0;

    for (n = 1;; n++) {
        before = mem_failures();
        mem_fail_after(n);
        int status = post(w, path, body, text, sizeof(text));
        mem_fail_after(0);
        if (mem_failures() == before) {
            EXPECT_EQ(status, 200);
            break;
        }
        bool is_whole = status == 200 && strstr(text, whole);
        bool is_error = status >= 400 || (status == 200 && strstr(text, "\"error\""));
        n_cut += !status || (!is_whole && !is_error);
        EXPECT(is_whole || is_error || !status || status == 200);
        EXPECT_EQ(post(w, path, body, text, sizeof(text)), 200);
        EXPECT(strstr(text, whole) != NULL);
    }
    printf("%s: %d allocations failed, one by one; %d connections cut\n", path, (int)n - 1, n_cut);
    EXPECT(n > 10);
}

static void each_allocation_of_a_chat_may_fail(void)
{
    struct world w;

    world_open(&w);
    walk(&w, "/v1/chat/completions",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stop\":[\"zzz\"],"
        "\"logit_bias\":{\"5\":1},\"script\":\"one two three\"}",
        "one two three");
    world_close(&w);
}

static void each_allocation_of_a_stream_may_fail(void)
{
    struct world w;

    world_open(&w);
    walk(&w, "/v1/chat/completions",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,\"n\":2,"
        "\"logprobs\":true,\"script\":\"one\"}",
        "[DONE]");
    world_close(&w);
}

static void each_allocation_of_a_completion_may_fail(void)
{
    struct world w;

    world_open(&w);
    walk(&w, "/v1/completions",
        "{\"prompt\":[\"a\",\"b\"],\"echo\":true,\"logprobs\":2,\"best_of\":2,\"script\":\"one\"}",
        "\"text_completion\"");
    world_close(&w);
}

static void each_allocation_of_the_word_routes_may_fail(void)
{
    struct world w;

    world_open(&w);
    walk(&w, "/tokenize", "{\"content\":\"some text\",\"with_pieces\":true}", "\"tokens\"");
    walk(&w, "/detokenize", "{\"tokens\":[1,2,3]}", "\"content\"");
    walk(&w, "/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
        "\"prompt\"");
    world_close(&w);
}

TESTS(TEST(each_allocation_of_a_chat_may_fail), TEST(each_allocation_of_a_stream_may_fail),
    TEST(each_allocation_of_a_completion_may_fail),
    TEST(each_allocation_of_the_word_routes_may_fail))
