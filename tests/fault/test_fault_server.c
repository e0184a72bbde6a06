/* A complete server whose Nth allocation, read, write, accept or epoll_ctl fails while clients
 * use it: for N = 1, 2, ... every response is complete, or one clear error in the form of its
 * dialect, or a closed connection. Nothing leaks, and the next client receives the same bytes as
 * before. */
#include "base/fault.h"
#include "base/log.h"
#include "os/clock.h"
#include "support/raw_response.h"
#include "support/test_server.h"

#include <inttypes.h>

enum { ANSWERS = 24, TEXT = 1 << 18, PATIENCE_MS = 100000 };

/* One request and its response. Responses are checked after fault injection has ended, since
 * checking allocates memory. */
struct exchange {
    const char *start, *must_have; /* a complete response contains this text */
    int status;                    /* expected status without failures */
    size_t n;
    char text[TEXT];
};

struct site {
    enum fault_site site;
    const char *name;
    /* number of calls to fail, evenly spread; with WALK_ALL in the environment, all calls */
    int most;
};

struct fault_walk {
    struct test_server w;
    struct exchange exchange[ANSWERS];
    int n_exchanges;
    bool is_whole;                   /* no failure is injected */
    int n_errors, n_closed, n_whole; /* results of all requests */
    char reference[TEXT];
};

static struct fault_walk fault_walk;

/* ---- a client */

static struct exchange *new_exchange(const char *start, const char *must_have, int status)
{
    CHECK(fault_walk.n_exchanges < ANSWERS);
    struct exchange *t = &fault_walk.exchange[fault_walk.n_exchanges++];
    t->start = start;
    t->must_have = must_have;
    t->status = status;
    t->n = 0;
    t->text[0] = '\0';
    return t;
}

static void read_rest(struct exchange *t, int fd)
{
    ssize_t got;

    while (t->n < TEXT - 1 && (got = read(fd, t->text + t->n, TEXT - 1 - t->n)) > 0)
        t->n += (size_t)got;
    CHECK(t->n < TEXT - 1);
    t->text[t->n] = '\0';
    close(fd);
}

static struct exchange *send_request(
    const char *start, const char *body, const char *must_have, int status)
{
    struct exchange *t = new_exchange(start, must_have, status);
    int fd = test_server_connect(&fault_walk.w);

    test_server_send_with(fd, start, "", body);
    read_rest(t, fd);
    return t;
}

/* ---- client scenarios */

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static void chat_scenario(void)
{
    send_request("POST /v1/chat/completions",
        "{\"model\":\"demo\"," HI ",\"temperature\":0,\"max_tokens\":6}", "\"finish_reason\"", 200);
    send_request("POST /v1/chat/completions", "{" HI ",\"stream\":true,\"script\":\"one two\"}",
        "[DONE]", 200);
    send_request("POST /v1/messages",
        "{\"max_tokens\":9," HI ",\"stream\":true,\"script\":\"<think>a</think>b\"}",
        "message_stop", 200);
    send_request("POST /api/chat", "{" HI ",\"script\":\"one\"}", "\"done\":true", 200);
}

static void tools_scenario(void)
{
    send_request("POST /v1/chat/completions",
        "{" HI ",\"stream\":true,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}}}],"
        "\"tool_choice\":\"required\",\"script\":\"{\\\"a\\\": 1}}\"}",
        "[DONE]", 200);
}

static void routes_scenario(void)
{
    send_request("GET /v1/models", "", "\"data\"", 200);
    send_request("GET /metrics", "", "inferflux_responses_background_running", 200);
    send_request("GET /props", "", "default_generation_settings", 200);
    send_request(
        "POST /tokenize", "{\"content\":\"some text\",\"with_pieces\":true}", "\"tokens\"", 200);
    send_request("POST /api/embed", "{\"model\":\"echo\",\"input\":\"x\"}", "\"error\"", 400);
    send_request("GET /nowhere", "", "\"status\":404", 404);
    send_request(
        "POST /v1/chat/completions", "{\"messages\":[{\"role\":\"user\"", "\"error\"", 400);
    send_request("DELETE /v1/requests/nobody", "", "request_not_found", 404);
}

/* More than 32 kB: processed by the worker thread. */
static void large_body_scenario(void)
{
    static char body[80 * 1024];

    int n = snprintf(body, sizeof(body), "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    memset(body + n, 'x', 40 * 1024);
    snprintf(body + n + 40 * 1024, 200, "\"}],\"script\":\"one\"}");
    send_request("POST /v1/messages/count_tokens", body, "input_tokens", 200);
    send_request("POST /apply-template", body, "\"prompt\"", 200);
    send_request("POST /v1/chat/completions", body, "\"finish_reason\"", 200);
}

static bool id_of(const struct exchange *t, char id[64])
{
    const char *at = strstr(t->text, "\"id\":\"resp_");

    return at && sscanf(at, "\"id\":\"%63[^\"]", id) == 1;
}

/* Polls the response until it has ended, in any state. */
static void wait_for(const char *id)
{
    char start[128];
    struct exchange *t;

    snprintf(start, sizeof(start), "GET /v1/responses/%s", id);
    for (uint64_t end = clock_ns() + PATIENCE_MS * 1000000ull;;) {
        t = send_request(start, "", "\"object\":\"response\"", 200);
        t->start = "GET /v1/responses/ID";
        if (t->n && !strstr(t->text, "\"queued\"") && !strstr(t->text, "\"in_progress\""))
            return;
        EXPECT(clock_ns() < end);
        fault_walk.n_exchanges--;
        poll(NULL, 0, 1);
    }
}

static void background_scenario(void)
{
    char id[64], start[160];

    struct exchange *t = send_request("POST /v1/responses",
        "{\"input\":\"hi\",\"background\":true,\"script\":{\"text\":\"one two\",\"delay_ms\":1}}",
        "\"queued\"", 200);
    if (id_of(t, id)) {
        wait_for(id);
        snprintf(start, sizeof(start), "DELETE /v1/responses/%s", id);
        send_request(start, "", "\"deleted\":true", 200)->start = "DELETE /v1/responses/ID";
    }
    t = send_request("POST /v1/responses",
        "{\"input\":\"hi\",\"background\":true,\"stream\":true,\"script\":\"one two\"}",
        "response.completed", 200);
    if (id_of(t, id)) {
        wait_for(id);
        snprintf(start, sizeof(start), "GET /v1/responses/%s?stream=true", id);
        send_request(start, "", "response.completed", 200)->start =
            "GET /v1/responses/ID?stream=true";
        snprintf(start, sizeof(start),
            "{\"input\":\"more\",\"previous_response_id\":\"%s\",\"script\":\"on\"}", id);
        send_request("POST /v1/responses", start, "\"completed\"", 200);
    }
}

static void cancel_scenario(void)
{
    static const char long_one[] =
        "{" HI ",\"stream\":true,\"script\":{\"text\":\"one two three four five six seven eight\","
        "\"delay_ms\":2000}}";
    char id[64], start[128], body[128];
    char some[1];

    struct exchange *t = new_exchange("POST /v1/chat/completions", "\"error\"", 200);
    int fd = test_server_connect(&fault_walk.w);
    test_server_send_with(fd, "POST /v1/chat/completions", "x-request-id: walk\r\n", long_one);
    t->n = read(fd, t->text, 1) == 1;
    for (int i = 0; t->n && i < 20; i++) { /* until the server has registered the request */
        struct exchange *end =
            send_request("DELETE /v1/requests/walk", "", "\"cancelled\":true", 200);
        if (strstr(end->text, "HTTP/1.1 200"))
            break;
        fault_walk.n_exchanges--;
    }
    if (t->n)
        shutdown(fd, SHUT_WR); /* if it cannot be cancelled, disconnect */
    read_rest(t, fd);

    fd = test_server_connect(&fault_walk.w);
    test_server_send_with(fd, "POST /v1/chat/completions", "", long_one);
    (void)!read(fd, some, 1);
    close(fd);

    /* Without failures the response does not end before it is cancelled; otherwise this waits
     * for its end. */
    snprintf(body, sizeof(body),
        "{\"input\":\"hi\",\"background\":true,\"script\":{\"text\":\"one two\","
        "\"delay_ms\":%d}}",
        fault_walk.is_whole ? 30000 : 400);
    t = send_request("POST /v1/responses", body, "\"queued\"", 200);
    if (!id_of(t, id))
        return;
    snprintf(start, sizeof(start), "POST /v1/responses/%s/cancel", id);
    for (int i = 0; i < 20; i++) {
        t = send_request(start, "", "\"cancelled\"", 200);
        t->start = "POST /v1/responses/ID/cancel";
        if (strstr(t->text, "HTTP/1.1 200") || strstr(t->text, "HTTP/1.1 4"))
            break;
        fault_walk.n_exchanges--;
    }
}

/* ---- checks */

static bool is_error(const struct raw_response *s)
{
    return str_find(s->body, STR("\"error\":{")) >= 0 ||
           str_find(s->body, STR("\"error\":\"")) >= 0 ||
           (str_find(s->body, STR("\"title\"")) >= 0 && raw_response_has(s, "problem+json"));
}

static void print_exchange(const struct exchange *t, const char *what)
{
    fprintf(stderr, "%s: %s\n%s\n", t->start, what, t->text);
}

/* Returns false if the response is neither correct nor an error. */
static bool check_exchange(struct exchange *t)
{
    struct raw_response s = raw_response_parse(t->text, t->n);
    bool has_it = str_find(s.body, str_of(t->must_have)) >= 0;

    if (s.status && s.is_whole)
        check_body_form(&s);
    if (!s.status || !s.is_whole)
        fault_walk.n_closed++;
    else if (s.status == t->status && has_it)
        fault_walk.n_whole++;
    else if (is_error(&s) && (s.status >= 400 || s.status == 200))
        fault_walk.n_errors++;
    else {
        print_exchange(t, "neither the expected response nor an error");
        return false;
    }
    return true;
}

static const char *choices_part(char *text)
{
    static const char *const marks[] = { "\"message\":", "\"usage\":" };
    char *from = strstr(text, marks[0]), *to = from ? strstr(from, marks[1]) : NULL;

    if (to)
        *to = '\0';
    return to ? from : "";
}

static int64_t number_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at ? strtoll(at + strlen(name), NULL, 10) : -1;
}

static bool is_idle(void)
{
    static char text[TEXT];

    EXPECT_EQ(test_server_request(&fault_walk.w, "GET /debug/invariants", "", text, TEXT), 200);
    bool is_empty = strstr(text, "\"ok\":true") && strstr(text, "\"sequences\":0,") &&
                    strstr(text, "\"running\":0,") && strstr(text, "\"waiting\":0}");
    bool are_pages_free = number_of(text, "\"total\":") ==
                          number_of(text, "\"free\":") + number_of(text, "\"cached\":");
    EXPECT_EQ(test_server_request(&fault_walk.w, "GET /metrics", "", text, TEXT), 200);
    return is_empty && are_pages_free && number_of(text, "\ninferflux_requests_running ") == 0 &&
           number_of(text, "\ninferflux_requests_loading ") == 0 &&
           number_of(text, "\ninferflux_responses_background_running ") == 0;
}

/* The sequences of disconnected clients end with the next step. */
static void expect_idle(void)
{
    for (uint64_t end = clock_ns() + PATIENCE_MS * 1000000ull; !is_idle();) {
        EXPECT(clock_ns() < end);
        poll(NULL, 0, 1);
    }
    response_store_check(fault_walk.w.response_store);
}

static void expect_reference_response(void)
{
    static char text[TEXT];
    static const char body[] = "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":"
                               "\"What is 3 plus 4?\"}],\"temperature\":0,\"max_tokens\":8}";

    EXPECT_EQ(
        test_server_request(&fault_walk.w, "POST /v1/chat/completions", body, text, TEXT), 200);
    const char *exchange = choices_part(text);
    EXPECT(*exchange);
    if (!*fault_walk.reference)
        snprintf(fault_walk.reference, TEXT, "%s", exchange);
    EXPECT_STR(exchange, fault_walk.reference);
}

/* ---- fault injection */

/* Runs the clients with one failing call. Returns a lower bound of the number of calls of the
 * site. */
static uint64_t run_with_fault(void (*clients)(void), enum fault_site site, uint64_t nth)
{
    fault_walk.n_exchanges = 0;
    fault_walk.is_whole = nth == UINT64_MAX;
    fault_arm(site, nth);
    clients();
    uint64_t left = fault_left(site);
    fault_arm(site, 0);
    int n_bad = 0, n_whole_before = fault_walk.n_whole;
    for (int i = 0; i < fault_walk.n_exchanges; i++)
        n_bad += !check_exchange(&fault_walk.exchange[i]);
    EXPECT_EQ(n_bad, 0);
    if (left) /* no call has failed */
        EXPECT_EQ(fault_walk.n_whole - n_whole_before, fault_walk.n_exchanges);
    expect_idle();
    return nth - left;
}

static uint64_t step_of(const struct site *s, uint64_t n)
{
    return getenv("WALK_ALL") ? 1 : n / (uint64_t)s->most + 1;
}

static void fail_calls_of_each_site(void (*clients)(void), const char *name)
{
    static const struct site sites[] = { { FAULT_ALLOC, "allocations", 90 },
        { FAULT_READ, "reads", 8 }, { FAULT_WRITE, "writes", 8 }, { FAULT_ACCEPT, "accepts", 4 },
        { FAULT_EPOLL, "epoll_ctls", 8 } };

    for (size_t i = 0; i < ARRAY_LEN(sites); i++) {
        uint64_t n = run_with_fault(clients, sites[i].site, UINT64_MAX), n_failed = 0;
        uint64_t step = step_of(&sites[i], n);
        fault_walk.n_errors = fault_walk.n_closed = fault_walk.n_whole = 0;
        for (uint64_t nth = 1 + n % step; nth <= n; nth += step, n_failed++)
            run_with_fault(clients, sites[i].site, nth);
        expect_reference_response();
        printf("%s: %" PRIu64 " of %" PRIu64 " %s failed: %d responses, %d errors, %d closed\n",
            name, n_failed, n, sites[i].name, fault_walk.n_whole, fault_walk.n_errors,
            fault_walk.n_closed);
    }
}

static void run_scenario(void (*clients)(void), const char *name)
{
    log_set_level(LOG_ERROR);
    test_server_open(&fault_walk.w, 2, 1);
    expect_reference_response();
    fail_calls_of_each_site(clients, name);
    test_server_close(&fault_walk.w);
}

static void chats_get_a_response_or_an_error(void)
{
    run_scenario(chat_scenario, "chat");
}

static void tool_calls_get_a_response_or_an_error(void)
{
    run_scenario(tools_scenario, "tools");
}

static void other_routes_get_a_response_or_an_error(void)
{
    run_scenario(routes_scenario, "routes");
}

static void large_bodies_get_a_response_or_an_error(void)
{
    run_scenario(large_body_scenario, "large_body");
}

static void background_responses_reach_an_end(void)
{
    run_scenario(background_scenario, "background");
}

static void cancelled_requests_leak_nothing(void)
{
    run_scenario(cancel_scenario, "cancel");
}

/* ---- start of the server */

/* Starts a server with one failing call. Returns the number of calls of the site. A started
 * server responds, even if its models could not be loaded. */
static uint64_t start_with_fault(enum fault_site site, uint64_t nth, int *n_started)
{
    struct test_server *w = &fault_walk.w;
    static char text[TEXT];
    struct err e = { 0 };

    fault_arm(site, nth);
    int rc = test_server_start(w, 2, 2, &e);
    if (!rc)
        test_server_wait(w);
    uint64_t left = fault_left(site);
    fault_arm(site, 0);
    EXPECT(!rc || (e.code && *e.msg));
    EXPECT(!rc || !left);
    if (!rc) {
        bool is_ready = registry_n_ready(w->registry) == 2;
        int status = test_server_request(w, "POST /v1/chat/completions",
            "{\"model\":\"demo\"," HI ",\"max_tokens\":1}", text, TEXT);
        EXPECT(status == 200 || (status == 503 && !is_ready && strstr(text, "\"error\":{")));
        EXPECT(is_ready || !left);
        *n_started += 1;
    }
    test_server_close(w);
    return nth - left;
}

static void failed_start_is_an_error(void)
{
    static const struct site sites[] = { { FAULT_ALLOC, "allocations", 30 },
        { FAULT_OPEN, "opens", 4 }, { FAULT_MMAP, "mmaps", 4 }, { FAULT_THREAD, "threads", 16 },
        { FAULT_EPOLL, "epoll_ctls", 8 } };
    int n_started = 0;

    log_set_level(LOG_ERROR);
    for (size_t i = 0; i < ARRAY_LEN(sites); i++) {
        uint64_t n = start_with_fault(sites[i].site, UINT64_MAX, &n_started), n_failed = 0;
        uint64_t step = step_of(&sites[i], n);
        n_started = 0;
        for (uint64_t nth = 1 + n % step; nth <= n; nth += step, n_failed++)
            start_with_fault(sites[i].site, nth, &n_started);
        printf("%" PRIu64 " of %" PRIu64 " %s failed: %d servers started nevertheless\n", n_failed,
            n, sites[i].name, n_started);
    }
}

TESTS(TEST(failed_start_is_an_error), TEST(chats_get_a_response_or_an_error),
    TEST(tool_calls_get_a_response_or_an_error), TEST(other_routes_get_a_response_or_an_error),
    TEST(large_bodies_get_a_response_or_an_error), TEST(background_responses_reach_an_end),
    TEST(cancelled_requests_leak_nothing))
