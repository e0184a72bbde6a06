/* Background responses with many readers on two io threads: clients create, follow, retrieve,
 * cancel and delete them concurrently. All readers of a stream receive the same bytes; at the
 * end nothing leaks. */
#include "base/rng.h"
#include "os/clock.h"
#include "os/thread.h"
#include "support/test_server.h"

enum { CLIENTS = 6, ROUNDS = 12, TEXT = 1 << 17, ID = 64, PATIENCE_S = 100 };

static const char body[] = "{\"input\":\"hi\",\"background\":true,\"stream\":true,\"script\":"
                           "{\"text\":\"one two three four five six\",\"delay_ms\":1}}";

static struct {
    struct test_server w;
    pthread_mutex_t mu; /* guards the ids, which all clients share */
    char ids[CLIENTS][ID];
} shared = { .mu = PTHREAD_MUTEX_INITIALIZER };

struct client {
    pthread_t thread;
    struct rng rng;
    int index, n_wrong, n_followed, n_ended;
    char text[TEXT], again[TEXT];
};

static void store_id(int i, const char *id)
{
    pthread_mutex_lock(&shared.mu);
    snprintf(shared.ids[i], ID, "%s", id);
    pthread_mutex_unlock(&shared.mu);
}

static bool random_id(struct client *c, char id[ID])
{
    uint64_t i = rng_below(&c->rng, CLIENTS);

    pthread_mutex_lock(&shared.mu);
    memcpy(id, shared.ids[i], ID);
    pthread_mutex_unlock(&shared.mu);
    return *id;
}

static void report_wrong(struct client *c, const char *what, int status, const char *text)
{
    c->n_wrong++;
    fprintf(stderr, "%s: status %d\n%s\n", what, status, text);
}

/* Creates a background response; its client reads the stream and disconnects at a random moment. */
static void create_response(struct client *c)
{
    char id[ID] = "";
    int fd = test_server_connect(&shared.w);
    size_t n = 0;
    ssize_t got;

    test_server_send(fd, "/v1/responses", body);
    while (n < TEXT - 1 && (got = read(fd, c->text + n, TEXT - 1 - n)) > 0) {
        n += (size_t)got;
        c->text[n] = '\0';
        const char *at = strstr(c->text, "\"id\":\"resp_");
        if (at && sscanf(at, "\"id\":\"%63[^\"]", id) == 1 && rng_below(&c->rng, 3) == 0)
            break;
    }
    close(fd);
    if (*id)
        store_id(c->index, id);
    else
        report_wrong(c, "POST /v1/responses", 0, c->text);
}

static int read_stream(const char *id, int from, char *text)
{
    char start[192];

    snprintf(start, sizeof(start), "GET /v1/responses/%s?stream=true&starting_after=%d", id, from);
    int status = test_server_request(&shared.w, start, "", text, TEXT);
    char *frames = status == 200 ? strstr(text, "\r\n\r\n") : NULL;
    if (frames)
        memmove(text, frames + 4, strlen(frames + 4) + 1);
    return status;
}

/* Checks that events are in order without gaps. Chunks and keep-alives may be anywhere. */
static int count_events(const char *text, int from)
{
    static const char mark[] = "\"sequence_number\":";
    int n = from;

    for (const char *at = text; (at = strstr(at, mark)); n++) {
        at += strlen(mark);
        if (strtol(at, NULL, 10) != n)
            return -1;
    }
    return n;
}

static void read_stream_twice(struct client *c, const char *id)
{
    int from = (int)rng_below(&c->rng, 4);
    int status = read_stream(id, from, c->text);

    if (status == 404)
        return;
    int n = count_events(c->text, from + 1);
    bool has_end = strstr(c->text, "response.completed") || strstr(c->text, "response.failed");
    if (status != 200 || n < 0 || (n > from + 1 && !has_end)) {
        report_wrong(c, "a stream", status, c->text);
        return;
    }
    c->n_followed++;
    status = read_stream(id, from, c->again);
    if (status != 404 && count_events(c->again, from + 1) != n)
        report_wrong(c, "a stream that is read again", status, c->again);
}

static void retrieve(struct client *c, const char *id)
{
    char start[128];

    snprintf(start, sizeof(start), "GET /v1/responses/%s", id);
    int status = test_server_request(&shared.w, start, "", c->text, TEXT);
    if (status != 404 && (status != 200 || !strstr(c->text, "\"object\":\"response\"")))
        report_wrong(c, start, status, c->text);
}

static void cancel_or_delete(struct client *c, const char *id)
{
    char start[128];
    bool is_cancel = rng_below(&c->rng, 2);

    snprintf(start, sizeof(start),
        is_cancel ? "POST /v1/responses/%s/cancel" : "DELETE /v1/responses/%s", id);
    int status = test_server_request(&shared.w, start, "", c->text, TEXT);
    c->n_ended += status == 200;
    /* 400: the response has completed. */
    if (status != 200 && status != 404 && !(is_cancel && status == 400))
        report_wrong(c, start, status, c->text);
}

static void *run_client(void *arg)
{
    struct client *c = arg;
    char id[ID];

    for (int i = 0; i < ROUNDS; i++) {
        create_response(c);
        for (int k = 0; k < 3; k++) {
            if (!random_id(c, id))
                continue;
            switch (rng_below(&c->rng, 4)) {
            case 0:
                retrieve(c, id);
                break;
            case 1:
                cancel_or_delete(c, id);
                break;
            default:
                read_stream_twice(c, id);
            }
        }
    }
    return NULL;
}

static void all_readers_of_a_response_receive_the_same_bytes(void)
{
    static struct client clients[CLIENTS];
    struct response_store_stats kept;
    struct engine_audit a;
    struct err e;
    int n_followed = 0, n_ended = 0;

    test_server_open(&shared.w, 1, 2);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){ .rng = { .key = (uint64_t)i + 1 }, .index = i };
        EXPECT_EQ(thread_start(&clients[i].thread, "client", run_client, &clients[i], &e), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        EXPECT_EQ(clients[i].n_wrong, 0);
        n_followed += clients[i].n_followed;
        n_ended += clients[i].n_ended;
    }
    struct model *model = test_server_take(&shared.w, "echo");
    uint64_t until = clock_ns() + PATIENCE_S * 1000000000ull;
    do {
        engine_audit(model->engine, &a);
        EXPECT(clock_ns() < until);
    } while (a.sequences && !poll(NULL, 0, 1));
    model_release(model);
    EXPECT(a.ok);
    EXPECT_EQ(a.pages_free + a.pages_cached, a.pages_total);
    response_store_check(shared.w.response_store);
    response_store_stats(shared.w.response_store, &kept);
    printf("%d streams read, %d responses ended by other clients, %zu stored\n", n_followed,
        n_ended, kept.entries);
    EXPECT(n_followed > CLIENTS && n_ended > 0);
    test_server_close(&shared.w);
}

TESTS(TEST(all_readers_of_a_response_receive_the_same_bytes))
