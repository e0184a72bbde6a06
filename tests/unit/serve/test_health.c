/* Probes before and after a model is loaded. */
#include "support/check.h"
#include "support/test_server.h"

static struct test_server w;
static char text[4096];

static void expect(const char *start, int status, const char *must_have)
{
    EXPECT_EQ(test_server_request(&w, start, "", text, sizeof(text)), status);
    EXPECT(strstr(text, must_have));
}

static void without_a_model_the_server_is_live_and_not_ready(void)
{
    struct err e;

    EXPECT_EQ(test_server_listen(&w, 1, 1, &e), 0);
    expect("GET /livez", 200, "");
    expect("GET /healthz", 200, "{\"status\":\"degraded\",\"reason\":\"model_not_loaded\"}");
    expect("GET /readyz", 503,
        "{\"status\":\"not_ready\",\"role\":\"unified\",\"reason\":\"no model backend loaded\"}");
    expect("GET /health", 503, "\"type\":\"unavailable_error\"");
    EXPECT_EQ(
        test_server_post(&w, "/v1/completions", "{\"prompt\":\"x\"}", text, sizeof(text)), 503);
    EXPECT(strstr(text, "still loading"));
    EXPECT_EQ(registry_start(w.registry, &e), 0);
    test_server_wait(&w);
    expect("GET /readyz", 200, "\"status\":\"ready\"");
    expect("GET /healthz", 200, "{\"status\":\"ok\"}");
    expect("GET /health", 200, "{\"status\":\"ok\"}");
    test_server_close(&w);
}

TESTS(TEST(without_a_model_the_server_is_live_and_not_ready))
