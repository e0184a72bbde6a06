/* Many clients at once on two io threads and two models, some of which leave or are ended in the
 * middle: each answer is the one it would be alone, and at the end nothing is left over. */
#include "base/rng.h"
#include "os/thread.h"
#include "support/world.h"

enum { CLIENTS = 6, ROUNDS = 18, ASKS = 5, TEXT = 1 << 16 };

static const char *const bodies[ASKS] = {
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
static char alone[ASKS][TEXT];

struct client {
    const struct world *w;
    pthread_t thread;
    struct rng rng;
    int index, n_wrong;
    char text[TEXT];
};

/* What may differ between two answers to one request: id, time, comments of the ping, and how much
 * of the prompt was found in the prefix cache. */
static void keep_what_counts(char *text)
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

static void leave_early(struct client *c, int which)
{
    char some[512];
    int fd = world_connect(c->w);

    world_send(fd, path, bodies[which]);
    for (uint64_t i = rng_below(&c->rng, 4); i > 0; i--)
        if (read(fd, some, 1 + rng_below(&c->rng, sizeof(some) - 1)) <= 0)
            break;
    close(fd);
}

/* Ended from outside, or by a deadline, at any moment: the answer, or an honest end. */
static void end_early(struct client *c, int which, int round)
{
    char fields[128], start[128];
    bool is_hurry = rng_below(&c->rng, 2);
    int fd = world_connect(c->w);

    snprintf(fields, sizeof(fields), "X-Request-Id: storm-%d-%d\r\n%s%d\r\n", c->index, round,
        is_hurry ? "X-Request-Timeout-Ms: " : "X-Nothing: ", 1 + (int)rng_below(&c->rng, 20));
    world_send_with(fd, "POST /v1/chat/completions", fields, bodies[which]);
    if (!is_hurry) {
        poll(NULL, 0, (int)rng_below(&c->rng, 6)); /* some moment of its life */
        int other = world_connect(c->w);
        snprintf(start, sizeof(start), "DELETE /v1/requests/storm-%d-%d", c->index, round);
        world_send_with(other, start, "", "");
        int status = world_read(other, c->text, TEXT);
        c->n_wrong += status != 200 && status != 404;
        close(other);
    }
    int status = world_read(fd, c->text, TEXT);
    bool is_late = is_hurry && (status == 504 || status == 503); /* or would be: told at the door */
    if (status != 200 && !is_late && (is_hurry || status != 499)) {
        c->n_wrong++;
        fprintf(stderr, "request %d, status %d:\n%s\n", which, status, c->text);
    }
    close(fd);
}

static void *run_client(void *arg)
{
    struct client *c = arg;

    for (int i = 0; i < ROUNDS; i++) {
        int which = (int)rng_below(&c->rng, ASKS);
        if (rng_below(&c->rng, 3) == 0) {
            leave_early(c, which);
            continue;
        }
        if (rng_below(&c->rng, 3) == 0) {
            end_early(c, which, i);
            continue;
        }
        int status = world_post(c->w, path, bodies[which], c->text, TEXT);
        keep_what_counts(c->text);
        if (status != 200 || strcmp(c->text, alone[which])) {
            c->n_wrong++;
            fprintf(stderr, "request %d, status %d:\n%s\nalone:\n%s\n", which, status, c->text,
                alone[which]);
        }
    }
    return NULL;
}

static void everybody_gets_what_they_would_get_alone(void)
{
    static struct client clients[CLIENTS];
    struct world w;
    struct err e;

    world_open(&w, 2, 2);
    for (int i = 0; i < ASKS; i++) {
        EXPECT_EQ(world_post(&w, path, bodies[i], alone[i], TEXT), 200);
        keep_what_counts(alone[i]);
        EXPECT(strlen(alone[i]) > 20);
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
        struct engine_audit a;
        do
            engine_audit(pool_at(w.pool, i)->engine, &a);
        while (a.sequences && !poll(NULL, 0, 1)); /* those whose clients left, on their way out */
        EXPECT(a.ok);
        EXPECT_EQ(a.pages_free + a.pages_cached, a.pages_total);
    }
    world_close(&w);
}

TESTS(TEST(everybody_gets_what_they_would_get_alone))
