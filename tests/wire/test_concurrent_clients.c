/* Concurrent clients on two io threads and two models, with disconnects and cancellations during
 * requests: each response equals the one that the request gets alone, and at the end nothing
 * leaks. */
#include "base/rng.h"
#include "os/thread.h"
#include "support/test_server.h"

enum { CLIENTS = 6, ROUNDS = 18, N_BODIES = 5, TEXT = 1 << 16 };

static const char *const bodies[N_BODIES] = {
    "{\"model\":\"echo\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
    "\"script\":{\"text\":\"one two three four\",\"chunk\":\"char\"},\"stop\":\"four\"}",
    "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"What is 3 plus 4?\"}],"
    "\"temperature\":0,\"max_tokens\":8}",
    "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello!\"}],"
    "\"temperature\":1.1,\"seed\":7,\"n\":3,\"max_tokens\":6,\"logprobs\":true,\"top_logprobs\":2}",
    "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello!\"}],"
    "\"temperature\":0.7,\"seed\":1,\"max_tokens\":10,\"stream\":true}",
    "{\"model\":\"echo\",\"messages\":[{\"role\":\"user\",\"content\":\"a longer message\"}],"
    "\"script\":{\"text\":\"slow words come late\",\"delay_ms\":3},\"stream\":true}",
};

static const char path[] = "/v1/chat/completions";
static char expected[N_BODIES][TEXT];

struct client {
    const struct test_server *w;
    pthread_t thread;
    struct rng rng;
    int index, n_wrong;
    char text[TEXT];
};

/* Removes what may differ between two responses to one request: id, time, ping comments, and the
 * number of cached prompt tokens. */
static void remove_variable_fields(char *text)
{
    static const char cached[] = "\"cached_tokens\":";
    char *to = text;

    for (char *line = text, *end; *line; line = end) {
        end = strchrnul(line, '\n');
        end += *end != '\0';
        char *choices = memmem(line, (size_t)(end - line), "\"choices\":", 10);
        size_t n = choices ? (size_t)(end - choices) : 0;
        memmove(to, choices ? choices : line, n);
        to += n;
    }
    *to = '\0';
    to = strstr(text, cached);
    if (to) {
        to += strlen(cached);
        size_t n = strspn(to, "0123456789");
        memmove(to, to + n, strlen(to + n) + 1);
    }
}

static void disconnect_early(struct client *c, int which)
{
    char some[512];
    int fd = test_server_connect(c->w);

    test_server_send(fd, path, bodies[which]);
    for (uint64_t i = rng_below(&c->rng, 4); i > 0; i--)
        if (read(fd, some, 1 + rng_below(&c->rng, sizeof(some) - 1)) <= 0)
            break;
    close(fd);
}

/* Cancels a request through the API or by a deadline at a random moment: the client receives the
 * response, or the matching error. */
static void cancel_early(struct client *c, int which, int round)
{
    char fields[128], start[128];
    bool has_deadline = rng_below(&c->rng, 2);
    int fd = test_server_connect(c->w);

    snprintf(fields, sizeof(fields), "X-Request-Id: storm-%d-%d\r\n%s%d\r\n", c->index, round,
        has_deadline ? "X-Request-Timeout-Ms: " : "X-Nothing: ", 1 + (int)rng_below(&c->rng, 20));
    test_server_send_with(fd, "POST /v1/chat/completions", fields, bodies[which]);
    if (!has_deadline) {
        poll(NULL, 0, (int)rng_below(&c->rng, 6)); /* at a random moment of the request */
        int other = test_server_connect(c->w);
        snprintf(start, sizeof(start), "DELETE /v1/requests/storm-%d-%d", c->index, round);
        test_server_send_with(other, start, "", "");
        int status = test_server_read(other, c->text, TEXT);
        c->n_wrong += status != 200 && status != 404;
        close(other);
    }
    int status = test_server_read(fd, c->text, TEXT);
    /* or rejected at submission because it would be late */
    bool is_late = has_deadline && (status == 504 || status == 503);
    if (status != 200 && !is_late && (has_deadline || status != 499)) {
        c->n_wrong++;
        fprintf(stderr, "request %d, status %d:\n%s\n", which, status, c->text);
    }
    close(fd);
}

static void *run_client(void *arg)
{
    struct client *c = arg;

    for (int i = 0; i < ROUNDS; i++) {
        int which = (int)rng_below(&c->rng, N_BODIES);
        if (rng_below(&c->rng, 3) == 0) {
            disconnect_early(c, which);
            continue;
        }
        if (rng_below(&c->rng, 3) == 0) {
            cancel_early(c, which, i);
            continue;
        }
        int status = test_server_post(c->w, path, bodies[which], c->text, TEXT);
        remove_variable_fields(c->text);
        if (status != 200 || strcmp(c->text, expected[which])) {
            c->n_wrong++;
            fprintf(stderr, "request %d, status %d:\n%s\nalone:\n%s\n", which, status, c->text,
                expected[which]);
        }
    }
    return NULL;
}

static void responses_are_the_same_under_concurrency(void)
{
    static struct client clients[CLIENTS];
    struct test_server w;
    struct err e;

    test_server_open(&w, 2, 2);
    for (int i = 0; i < N_BODIES; i++) {
        EXPECT_EQ(test_server_post(&w, path, bodies[i], expected[i], TEXT), 200);
        remove_variable_fields(expected[i]);
        EXPECT(strlen(expected[i]) > 20);
    }
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){ .w = &w, .rng = { .key = (uint64_t)i + 1 }, .index = i };
        EXPECT_EQ(thread_start(&clients[i].thread, "client", run_client, &clients[i], &e), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        EXPECT_EQ(clients[i].n_wrong, 0);
    }
    for (int i = 0; i < 2; i++) {
        struct model *model = test_server_take(&w, w.specs[i].id);
        struct engine_audit a;
        do
            engine_audit(model->engine, &a);
        /* waits for the sequences of disconnected clients */
        while (a.sequences && !poll(NULL, 0, 1));
        EXPECT(a.ok);
        EXPECT_EQ(a.pages_free + a.pages_cached, a.pages_total);
        model_release(model);
    }
    test_server_close(&w);
}

TESTS(TEST(responses_are_the_same_under_concurrency))
