/* A whole server whose Nth allocation, read, write, accept or epoll_ctl fails while clients do what
 * clients do: for N = 1, 2, ... every answer is whole, or one clear error in the shape of its wire,
 * or a connection that was closed. Nothing stays behind, and who asks next gets the same bytes as
 * ever. */
#include "base/fault.h"
#include "base/log.h"
#include "os/clock.h"
#include "support/answer.h"
#include "support/world.h"

#include <inttypes.h>

enum { ANSWERS = 24, TEXT = 1 << 18, PATIENCE_MS = 100000 };

/* One thing that was asked, and what came. Answers are looked at when nothing fails any more: to
 * look at them takes memory, too. */
struct told {
    const char *start, *must_have; /* a whole answer has this in it */
    int status;                    /* when nothing fails */
    size_t n;
    char text[TEXT];
};

struct site {
    enum fault_site site;
    const char *name;
    int most; /* how many of its calls fail, evenly spread; all with WALK_ALL in the environment */
};

struct walk {
    struct world w;
    struct told told[ANSWERS];
    int n_told;
    bool is_whole;                   /* nothing fails */
    int n_errors, n_closed, n_whole; /* how answers came out, of all */
    char reference[TEXT];
};

static struct walk walk;

/* ---- a client */

static struct told *told_of(const char *start, const char *must_have, int status)
{
    CHECK(walk.n_told < ANSWERS);
    struct told *t = &walk.told[walk.n_told++];
    t->start = start;
    t->must_have = must_have;
    t->status = status;
    t->n = 0;
    t->text[0] = '\0';
    return t;
}

static void read_rest(struct told *t, int fd)
{
    ssize_t got;

    while (t->n < TEXT - 1 && (got = read(fd, t->text + t->n, TEXT - 1 - t->n)) > 0)
        t->n += (size_t)got;
    CHECK(t->n < TEXT - 1);
    t->text[t->n] = '\0';
    close(fd);
}

static struct told *ask(const char *start, const char *body, const char *must_have, int status)
{
    struct told *t = told_of(start, must_have, status);
    int fd = world_connect(&walk.w);

    world_send_with(fd, start, "", body);
    read_rest(t, fd);
    return t;
}

/* ---- what clients do */

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static void talk(void)
{
    ask("POST /v1/chat/completions",
        "{\"model\":\"demo\"," HI ",\"temperature\":0,\"max_tokens\":6}", "\"finish_reason\"", 200);
    ask("POST /v1/chat/completions", "{" HI ",\"stream\":true,\"script\":\"one two\"}", "[DONE]",
        200);
    ask("POST /v1/messages",
        "{\"max_tokens\":9," HI ",\"stream\":true,\"script\":\"<think>a</think>b\"}",
        "message_stop", 200);
    ask("POST /api/chat", "{" HI ",\"script\":\"one\"}", "\"done\":true", 200);
}

static void call_tools(void)
{
    ask("POST /v1/chat/completions",
        "{" HI ",\"stream\":true,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}}}],"
        "\"tool_choice\":\"required\",\"script\":\"{\\\"a\\\": 1}}\"}",
        "[DONE]", 200);
}

static void ask_around(void)
{
    ask("GET /v1/models", "", "\"data\"", 200);
    ask("GET /metrics", "", "inferflux_responses_background_running", 200);
    ask("GET /props", "", "default_generation_settings", 200);
    ask("POST /tokenize", "{\"content\":\"some text\",\"with_pieces\":true}", "\"tokens\"", 200);
    ask("POST /api/embed", "{\"model\":\"echo\",\"input\":\"x\"}", "\"error\"", 400);
    ask("GET /nowhere", "", "\"status\":404", 404);
    ask("POST /v1/chat/completions", "{\"messages\":[{\"role\":\"user\"", "\"error\"", 400);
    ask("DELETE /v1/requests/nobody", "", "request_not_found", 404);
}

/* More than 32 kB: the clerk's. */
static void send_much(void)
{
    static char body[80 * 1024];

    int n = snprintf(body, sizeof(body), "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    memset(body + n, 'x', 40 * 1024);
    snprintf(body + n + 40 * 1024, 200, "\"}],\"script\":\"one\"}");
    ask("POST /v1/messages/count_tokens", body, "input_tokens", 200);
    ask("POST /apply-template", body, "\"prompt\"", 200);
    ask("POST /v1/chat/completions", body, "\"finish_reason\"", 200);
}

static bool id_of(const struct told *t, char id[64])
{
    const char *at = strstr(t->text, "\"id\":\"resp_");

    return at && sscanf(at, "\"id\":\"%63[^\"]", id) == 1;
}

/* Its answer is looked for until it has ended: however that is, it does. */
static void wait_for(const char *id)
{
    char start[128];
    struct told *t;

    snprintf(start, sizeof(start), "GET /v1/responses/%s", id);
    for (uint64_t end = clock_ns() + PATIENCE_MS * 1000000ull;;) {
        t = ask(start, "", "\"object\":\"response\"", 200);
        t->start = "GET /v1/responses/ID";
        if (t->n && !strstr(t->text, "\"queued\"") && !strstr(t->text, "\"in_progress\""))
            return;
        EXPECT(clock_ns() < end);
        walk.n_told--;
        poll(NULL, 0, 1);
    }
}

static void let_it_be_made(void)
{
    char id[64], start[160];

    struct told *t = ask("POST /v1/responses",
        "{\"input\":\"hi\",\"background\":true,\"script\":{\"text\":\"one two\",\"delay_ms\":1}}",
        "\"queued\"", 200);
    if (id_of(t, id)) {
        wait_for(id);
        snprintf(start, sizeof(start), "DELETE /v1/responses/%s", id);
        ask(start, "", "\"deleted\":true", 200)->start = "DELETE /v1/responses/ID";
    }
    t = ask("POST /v1/responses",
        "{\"input\":\"hi\",\"background\":true,\"stream\":true,\"script\":\"one two\"}",
        "response.completed", 200);
    if (id_of(t, id)) {
        wait_for(id);
        snprintf(start, sizeof(start), "GET /v1/responses/%s?stream=true", id);
        ask(start, "", "response.completed", 200)->start = "GET /v1/responses/ID?stream=true";
        snprintf(start, sizeof(start),
            "{\"input\":\"more\",\"previous_response_id\":\"%s\",\"script\":\"on\"}", id);
        ask("POST /v1/responses", start, "\"completed\"", 200);
    }
}

static void change_ones_mind(void)
{
    static const char long_one[] =
        "{" HI ",\"stream\":true,\"script\":{\"text\":\"one two three four five six seven eight\","
        "\"delay_ms\":2000}}";
    char id[64], start[128], body[128];
    char some[1];

    struct told *t = told_of("POST /v1/chat/completions", "\"error\"", 200);
    int fd = world_connect(&walk.w);
    world_send_with(fd, "POST /v1/chat/completions", "x-request-id: walk\r\n", long_one);
    t->n = read(fd, t->text, 1) == 1;
    for (int i = 0; t->n && i < 20; i++) { /* until somebody has heard of it */
        struct told *end = ask("DELETE /v1/requests/walk", "", "\"cancelled\":true", 200);
        if (strstr(end->text, "HTTP/1.1 200"))
            break;
        walk.n_told--;
    }
    if (t->n)
        shutdown(fd, SHUT_WR); /* who cannot cancel leaves */
    read_rest(t, fd);

    fd = world_connect(&walk.w);
    world_send_with(fd, "POST /v1/chat/completions", "", long_one);
    (void)!read(fd, some, 1);
    close(fd);

    /* Where nothing fails it does not end before it is cancelled; else it is waited for. */
    snprintf(body, sizeof(body),
        "{\"input\":\"hi\",\"background\":true,\"script\":{\"text\":\"one two\","
        "\"delay_ms\":%d}}",
        walk.is_whole ? 30000 : 400);
    t = ask("POST /v1/responses", body, "\"queued\"", 200);
    if (!id_of(t, id))
        return;
    snprintf(start, sizeof(start), "POST /v1/responses/%s/cancel", id);
    for (int i = 0; i < 20; i++) {
        t = ask(start, "", "\"cancelled\"", 200);
        t->start = "POST /v1/responses/ID/cancel";
        if (strstr(t->text, "HTTP/1.1 200") || strstr(t->text, "HTTP/1.1 4"))
            break;
        walk.n_told--;
    }
}

/* ---- what came of it */

static bool is_error(const struct seen *s)
{
    return str_find(s->body, STR("\"error\":{")) >= 0 ||
           str_find(s->body, STR("\"error\":\"")) >= 0 ||
           (str_find(s->body, STR("\"title\"")) >= 0 && seen_has(s, "problem+json"));
}

static void say(const struct told *t, const char *what)
{
    fprintf(stderr, "%s: %s\n%s\n", t->start, what, t->text);
}

/* False: that is no way to answer. */
static bool look_at(struct told *t)
{
    struct seen s = seen_of(t->text, t->n);
    bool has_it = str_find(s.body, str_of(t->must_have)) >= 0;

    if (s.status && s.is_whole)
        must_have_its_shape(&s);
    if (!s.status || !s.is_whole)
        walk.n_closed++;
    else if (s.status == t->status && has_it)
        walk.n_whole++;
    else if (is_error(&s) && (s.status >= 400 || s.status == 200))
        walk.n_errors++;
    else {
        say(t, "neither what was asked for nor an error");
        return false;
    }
    return true;
}

static const char *without_what_changes(char *text)
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

static bool is_quiet(void)
{
    static char text[TEXT];

    EXPECT_EQ(world_ask(&walk.w, "GET /debug/invariants", "", text, TEXT), 200);
    bool is_empty = strstr(text, "\"ok\":true") && strstr(text, "\"sequences\":0,") &&
                    strstr(text, "\"running\":0,") && strstr(text, "\"waiting\":0}");
    bool is_home = number_of(text, "\"total\":") ==
                   number_of(text, "\"free\":") + number_of(text, "\"cached\":");
    EXPECT_EQ(world_ask(&walk.w, "GET /metrics", "", text, TEXT), 200);
    return is_empty && is_home && number_of(text, "\ninferflux_requests_running ") == 0 &&
           number_of(text, "\ninferflux_requests_loading ") == 0 &&
           number_of(text, "\ninferflux_responses_background_running ") == 0;
}

/* Sequences of those who left end with the next step. */
static void expect_quiet(void)
{
    for (uint64_t end = clock_ns() + PATIENCE_MS * 1000000ull; !is_quiet();) {
        EXPECT(clock_ns() < end);
        poll(NULL, 0, 1);
    }
    shelf_check(walk.w.shelf);
}

static void expect_the_same_as_ever(void)
{
    static char text[TEXT];
    static const char body[] = "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":"
                               "\"What is 3 plus 4?\"}],\"temperature\":0,\"max_tokens\":8}";

    EXPECT_EQ(world_ask(&walk.w, "POST /v1/chat/completions", body, text, TEXT), 200);
    const char *told = without_what_changes(text);
    EXPECT(*told);
    if (!*walk.reference)
        snprintf(walk.reference, TEXT, "%s", told);
    EXPECT_STR(told, walk.reference);
}

/* ---- the walk */

/* Returns how many calls of the site there were until all was done, at least. */
static uint64_t do_it(void (*clients)(void), enum fault_site site, uint64_t nth)
{
    walk.n_told = 0;
    walk.is_whole = nth == UINT64_MAX;
    fault_arm(site, nth);
    clients();
    uint64_t left = fault_left(site);
    fault_arm(site, 0);
    int n_bad = 0, n_perfect = walk.n_whole;
    for (int i = 0; i < walk.n_told; i++)
        n_bad += !look_at(&walk.told[i]);
    EXPECT_EQ(n_bad, 0);
    if (left) /* nothing has failed */
        EXPECT_EQ(walk.n_whole - n_perfect, walk.n_told);
    expect_quiet();
    return nth - left;
}

static uint64_t step_of(const struct site *s, uint64_t n)
{
    return getenv("WALK_ALL") ? 1 : n / (uint64_t)s->most + 1;
}

static void walk_through(void (*clients)(void), const char *name)
{
    static const struct site sites[] = { { FAULT_ALLOC, "allocations", 90 },
        { FAULT_READ, "reads", 8 }, { FAULT_WRITE, "writes", 8 }, { FAULT_ACCEPT, "accepts", 4 },
        { FAULT_EPOLL, "epoll_ctls", 8 } };

    for (size_t i = 0; i < ARRAY_LEN(sites); i++) {
        uint64_t n = do_it(clients, sites[i].site, UINT64_MAX), n_failed = 0;
        uint64_t step = step_of(&sites[i], n);
        walk.n_errors = walk.n_closed = walk.n_whole = 0;
        for (uint64_t nth = 1 + n % step; nth <= n; nth += step, n_failed++)
            do_it(clients, sites[i].site, nth);
        expect_the_same_as_ever();
        printf("%s: %" PRIu64 " of %" PRIu64 " %s failed: %d answers, %d errors, %d closed\n", name,
            n_failed, n, sites[i].name, walk.n_whole, walk.n_errors, walk.n_closed);
    }
}

static void in_a_world(void (*clients)(void), const char *name)
{
    log_set_level(LOG_ERROR);
    world_open(&walk.w, 2, 1);
    expect_the_same_as_ever();
    walk_through(clients, name);
    world_close(&walk.w);
}

static void who_talks_is_answered_or_told_why(void)
{
    in_a_world(talk, "talk");
}

static void who_has_tools_is_answered_or_told_why(void)
{
    in_a_world(call_tools, "call_tools");
}

static void who_asks_around_is_answered_or_told_why(void)
{
    in_a_world(ask_around, "ask_around");
}

static void who_sends_much_is_answered_or_told_why(void)
{
    in_a_world(send_much, "send_much");
}

static void who_comes_back_later_finds_how_it_ended(void)
{
    in_a_world(let_it_be_made, "let_it_be_made");
}

static void who_changes_their_mind_leaves_nothing_behind(void)
{
    in_a_world(change_ones_mind, "change_ones_mind");
}

/* ---- the beginning */

/* Returns how many calls of the site there were. A server that has started answers, be it that its
 * models could not be loaded. */
static uint64_t start_it(enum fault_site site, uint64_t nth, int *n_started)
{
    struct world *w = &walk.w;
    static char text[TEXT];
    struct err e = { 0 };

    fault_arm(site, nth);
    int rc = world_start(w, 2, 2, &e);
    if (!rc)
        world_wait(w);
    uint64_t left = fault_left(site);
    fault_arm(site, 0);
    EXPECT(!rc || (e.code && *e.msg));
    EXPECT(!rc || !left);
    if (!rc) {
        bool is_ready = pool_n_ready(w->pool) == 2;
        int status = world_ask(w, "POST /v1/chat/completions",
            "{\"model\":\"demo\"," HI ",\"max_tokens\":1}", text, TEXT);
        EXPECT(status == 200 || (status == 503 && !is_ready && strstr(text, "\"error\":{")));
        EXPECT(is_ready || !left);
        *n_started += 1;
    }
    world_close(w);
    return nth - left;
}

static void who_cannot_start_says_why(void)
{
    static const struct site sites[] = { { FAULT_ALLOC, "allocations", 30 },
        { FAULT_OPEN, "opens", 4 }, { FAULT_MMAP, "mmaps", 4 }, { FAULT_THREAD, "threads", 16 },
        { FAULT_EPOLL, "epoll_ctls", 8 } };
    int n_started = 0;

    log_set_level(LOG_ERROR);
    for (size_t i = 0; i < ARRAY_LEN(sites); i++) {
        uint64_t n = start_it(sites[i].site, UINT64_MAX, &n_started), n_failed = 0;
        uint64_t step = step_of(&sites[i], n);
        n_started = 0;
        for (uint64_t nth = 1 + n % step; nth <= n; nth += step, n_failed++)
            start_it(sites[i].site, nth, &n_started);
        printf("%" PRIu64 " of %" PRIu64 " %s failed: %d servers all the same\n", n_failed, n,
            sites[i].name, n_started);
    }
}

TESTS(TEST(who_cannot_start_says_why), TEST(who_talks_is_answered_or_told_why),
    TEST(who_has_tools_is_answered_or_told_why), TEST(who_asks_around_is_answered_or_told_why),
    TEST(who_sends_much_is_answered_or_told_why), TEST(who_comes_back_later_finds_how_it_ended),
    TEST(who_changes_their_mind_leaves_nothing_behind))
