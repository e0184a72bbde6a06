#include "cmd/ctl_generate.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

const struct ctl_generate_params ctl_generate_params_default = { -1, -1, -1, -1, false };

const char *const ctl_generate_options[CTL_GENERATE_N_OPTIONS] = {
    "temperature=", "top-p=", "max-tokens=", "seed=", "no-stream"
};

const char ctl_generate_help[] =
    "  --temperature T   sampling temperature; 0 = greedy decoding\n"
    "  --top-p P         nucleus sampling: probability mass of the candidates\n"
    "  --max-tokens N    maximum output tokens\n"
    "  --seed N          random seed; the same seed gives the same output\n"
    "  --no-stream       print the response when it is complete\n"
    "  --json            print the raw response\n";

static volatile bool is_interrupted;

static void on_interrupt(int sig)
{
    (void)sig;
    is_interrupted = true;
}

void ctl_generate_catch_interrupt(void)
{
    /* no SA_RESTART: a blocked read returns */
    struct sigaction sa = { .sa_handler = on_interrupt };

    sigaction(SIGINT, &sa, NULL);
}

bool ctl_generate_was_interrupted(void)
{
    bool was = is_interrupted;

    is_interrupted = false;
    return was;
}

int ctl_generate_option(struct ctl_generate_params *p, int i, const char *value)
{
    double *numbers[] = { &p->temperature, &p->top_p };
    int64_t *integers[] = { &p->max_tokens, &p->seed };
    bool ok = true;

    if (i < 2)
        ok = str_to_f64(str_of(value), numbers[i]) && *numbers[i] >= 0;
    else if (i < 4)
        ok = str_to_i64(str_of(value), integers[i - 2]) && *integers[i - 2] >= 0;
    else
        p->no_stream = true;
    if (!ok)
        ctl_usage("'%s' is not a number that --%.*s accepts", value,
            (int)strlen(ctl_generate_options[i]) - 1, ctl_generate_options[i]);
    return ok ? 0 : -1;
}

void ctl_generate_put_params(struct jw *w, const struct ctl *c, const struct ctl_generate_params *p)
{
    if (*c->model)
        jw_key(w, "model"), jw_z(w, c->model);
    if (p->temperature >= 0)
        jw_key(w, "temperature"), jw_f64(w, p->temperature);
    if (p->top_p >= 0)
        jw_key(w, "top_p"), jw_f64(w, p->top_p);
    if (p->max_tokens >= 0)
        jw_key(w, "max_tokens"), jw_i64(w, p->max_tokens);
    if (p->seed >= 0)
        jw_key(w, "seed"), jw_i64(w, p->seed);
    jw_key(w, "stream"), jw_bool(w, !p->no_stream);
}

struct printer {
    const struct ctl *c;
    struct buf *text;
    struct buf error;     /* from an error frame in the stream */
    bool is_in_reasoning; /* reasoning was printed, and no text since */
};

/* Prints reasoning, only to a terminal. */
static void print_reasoning(struct printer *p, const struct json *answer)
{
    const struct json *choices = json_get(answer, "choices");
    const struct json *first = choices ? choices->child : NULL;
    const struct json *delta_text = json_get(json_get(first, "delta"), "reasoning_content");
    const struct json *message_text = json_get(json_get(first, "message"), "reasoning_content");
    const struct json *text = delta_text ? delta_text : message_text;

    if (!text || text->kind != JSON_STRING || !text->s.n || !isatty(STDOUT_FILENO))
        return;
    ctl_style(p->is_in_reasoning ? "" : "\033[2m");
    ctl_put(text->s);
    ctl_flush();
    p->is_in_reasoning = true;
}

/* Returns the text of a chunk or of a whole response, chat or completion. */
static struct str text_of(const struct json *answer)
{
    const struct json *choices = json_get(answer, "choices");
    const struct json *first = choices ? choices->child : NULL;
    const struct json *candidates[] = { json_get(json_get(first, "delta"), "content"),
        json_get(json_get(first, "message"), "content"), json_get(first, "text") };

    for (size_t i = 0; i < ARRAY_LEN(candidates); i++)
        if (candidates[i] && candidates[i]->kind == JSON_STRING)
            return candidates[i]->s;
    return STR("");
}

static bool print_response(struct printer *p, struct str json)
{
    struct arena *a = arena_new(64 * MB);
    struct json *j;
    struct err e;

    CHECK(a);
    if (p->c->as_json)
        ctl_printf(STR_FMT "\n", STR_ARG(json));
    bool ok = !json_parse(&j, json, a, &json_limits_default, &e);
    if (!ok) {
        buf_printf(&p->error, "the server sent invalid JSON: %s", e.msg);
    } else if (!json_is_null(json_get(j, "error"))) {
        buf_puts(&p->error, json);
        ok = false;
    } else {
        struct str text = text_of(j);
        if (p->text)
            buf_puts(p->text, text);
        if (!p->c->as_json) {
            print_reasoning(p, j);
            if (text.n && p->is_in_reasoning)
                ctl_style("\033[0m\n");
            p->is_in_reasoning = p->is_in_reasoning && !text.n;
            ctl_put(text);
            ctl_flush();
        }
    }
    arena_free(a);
    return ok;
}

static bool on_data(void *ctx, struct str data)
{
    return print_response(ctx, data);
}

int ctl_generate(
    struct ctl *c, const char *path, const struct buf *body, bool stream, struct buf *text)
{
    struct printer p = { .c = c, .text = text };
    struct ctl_response r;

    is_interrupted = false;
    buf_init(&p.error, MB);
    if (stream) {
        ctl_stream(c, path, buf_str(body), on_data, &p, &is_interrupted, &r);
    } else {
        struct str b = buf_str(body);
        ctl_request(c, path, &b, &r);
        if (r.status == 200)
            print_response(&p, buf_str(&r.body));
    }
    if (p.is_in_reasoning)
        ctl_style("\033[0m");
    if (!c->as_json && r.status == 200)
        ctl_put(STR("\n"));
    int rc = is_interrupted ? EXIT_OK : ctl_check(&r);
    if (rc == EXIT_OK && p.error.n) {
        buf_clear(&r.body);
        r.body = p.error;
        p.error = (struct buf){ 0 };
        r.status = 500;
        rc = ctl_check(&r);
    }
    buf_clear(&p.error);
    buf_clear(&r.body);
    return rc;
}
