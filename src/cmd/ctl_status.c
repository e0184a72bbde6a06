/* ctl_status.c: `inferctl status` and `inferctl models`. */
#include "cmd/ctl.h"

#include <stdio.h>

static int only_json_option(struct ctl *c, int argc, char **argv)
{
    static const char *const names[] = { "json" };
    struct ctl_args a = { .argc = argc, .argv = argv };

    for (int i; (i = ctl_next(&a, names, 1)) != -1;) {
        if (i != 0)
            return i == -3 ? EXIT_USAGE : ctl_usage("%s takes no arguments", argv[0]);
        c->as_json = true;
    }
    return EXIT_OK;
}

static int print_raw(const struct ctl_response *r)
{
    ctl_put(buf_str(&r->body));
    ctl_put(STR("\n"));
    return EXIT_OK;
}

static const char *text_of(const struct json *object, const char *key, struct arena *a)
{
    const struct json *v = json_get(object, key);
    struct str s = v && (v->kind == JSON_STRING || v->kind == JSON_NUMBER) ? v->s : STR("-");

    return ctl_cell(s, a);
}

/* Returns the value of a metric without labels. */
static double metric_value(struct str text, const char *name)
{
    size_t n = strlen(name);

    while (text.n) {
        ptrdiff_t newline = str_find(text, STR("\n"));
        struct str line = { text.p, newline < 0 ? text.n : (size_t)newline };
        double v;
        if (line.n > n && !memcmp(line.p, name, n) && line.p[n] == ' ' &&
            str_to_f64(str_skip(line, n + 1), &v))
            return v;
        text = str_skip(text, line.n + 1);
    }
    return 0;
}

static void print_status(
    const struct ctl *c, const struct json *ready, struct str metrics, struct arena *a)
{
    double finished = metric_value(metrics, "inferflux_requests_finished_total");
    double ttft = metric_value(metrics, "inferflux_time_to_first_token_seconds_sum");
    double n_ttft = metric_value(metrics, "inferflux_time_to_first_token_seconds_count");

    ctl_printf("%-18s %s\n", "server", c->url);
    ctl_printf("%-18s %s\n", "status", text_of(ready, "status", a));
    ctl_printf("%-18s %s\n", "role", text_of(ready, "role", a));
    if (json_get(ready, "reason"))
        ctl_printf("%-18s %s\n", "reason", text_of(ready, "reason", a));
    ctl_printf("%-18s %.0f ready\n", "models", metric_value(metrics, "inferflux_models_ready"));
    ctl_printf("%-18s %.0f running, %.0f waiting, %.0f finished\n", "requests",
        metric_value(metrics, "inferflux_requests_running"),
        metric_value(metrics, "inferflux_scheduler_queue_depth"), finished);
    ctl_printf("%-18s %.0f prompt, %.0f generated\n", "tokens",
        metric_value(metrics, "inferflux_prompt_tokens_total"),
        metric_value(metrics, "inferflux_generated_tokens_total"));
    ctl_printf("%-18s %.0f of %.0f used\n", "kv pages",
        metric_value(metrics, "inferflux_kv_pages_used"),
        metric_value(metrics, "inferflux_kv_pages_total"));
    if (n_ttft > 0)
        ctl_printf("%-18s %.1f ms on average\n", "first token", 1000 * ttft / n_ttft);
}

int ctl_status(struct ctl *c, int argc, char **argv)
{
    struct ctl_response ready, metrics;
    struct arena *a = arena_new(16 * MB);
    struct json *j;
    struct err e;

    CHECK(a);
    int rc = only_json_option(c, argc, argv);
    if (rc != EXIT_OK)
        goto out;
    ctl_request(c, "/readyz", NULL, &ready);
    if (ready.status != 200 && ready.status != 503) {
        rc = ctl_check(&ready);
    } else if (c->as_json) {
        rc = print_raw(&ready);
    } else if (json_parse(&j, buf_str(&ready.body), a, &json_limits_default, &e)) {
        rc = ctl_fail("%s/readyz: %s", c->url, e.msg);
    } else {
        ctl_request(c, "/metrics", NULL, &metrics);
        rc = ctl_check(&metrics);
        if (rc == EXIT_OK)
            print_status(c, j, buf_str(&metrics.body), a);
        buf_clear(&metrics.body);
    }
    if (rc == EXIT_OK && ready.status != 200)
        rc = EXIT_FAILED;
    buf_clear(&ready.body);
out:
    arena_free(a);
    return rc;
}

static int print_models(const struct ctl_response *r, struct arena *a)
{
    struct json *j;
    struct err e;

    if (json_parse(&j, buf_str(&r->body), a, &json_limits_default, &e))
        return ctl_fail("/v1/models: %s", e.msg);
    const struct json *data = json_get(j, "data");
    ctl_printf("%-32s %-10s %-10s %-8s %10s\n", "id", "status", "family", "type", "context");
    for (const struct json *m = data ? data->child : NULL; m; m = m->next) {
        const struct json *meta = json_get(m, "meta");
        const struct json *status = json_get(m, "status");
        bool is_object = status && status->kind == JSON_OBJECT;
        ctl_printf("%-32s %-10s %-10s %-8s %10s\n", text_of(m, "id", a),
            is_object ? text_of(status, "value", a) : text_of(m, "status", a),
            text_of(m, "family", a), text_of(m, "quantization", a),
            json_get(meta, "n_ctx") ? text_of(meta, "n_ctx", a) : text_of(m, "max_model_len", a));
    }
    return EXIT_OK;
}

int ctl_models(struct ctl *c, int argc, char **argv)
{
    struct ctl_response r;
    struct arena *a;

    int rc = only_json_option(c, argc, argv);
    if (rc != EXIT_OK)
        return rc;
    a = arena_new(64 * MB);
    CHECK(a);
    ctl_request(c, "/v1/models", NULL, &r);
    rc = ctl_check(&r);
    if (rc == EXIT_OK)
        rc = c->as_json ? print_raw(&r) : print_models(&r, a);
    buf_clear(&r.body);
    arena_free(a);
    return rc;
}
