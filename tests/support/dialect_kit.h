/* dialect_kit.h: parses a request body of a dialect, and writes responses to a fake sink. Bodies
 * and expected bytes are written with ' for ". */
#pragma once

#include "support/check.h"

#include "api/common/dialect.h"
#include "base/mem.h"
#include "support/fake_sink.h"

struct wire_kit {
    struct arena *arena;
    struct err e;
    struct request request;
    struct fake_sink sink;
    struct response *response;
};

static struct wire_kit kit;

static inline int kit_parse_request(const struct dialect *w, const char *body)
{
    arena_free(kit.arena);
    kit.arena = arena_new(64 * MB);
    memset(&kit.e, 0, sizeof(kit.e));
    struct str copy = arena_str(kit.arena, str_of(body));
    for (char *c = (char *)(uintptr_t)copy.p; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return request_parse(&kit.request, w, copy, kit.arena, &kit.e);
}

struct kit_row {
    const char *body;
    enum errcode code;
    const char *param;
};

static inline void kit_check_rows(const struct dialect *w, const struct kit_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int rc = kit_parse_request(w, rows[i].body);
        enum errcode code = rc ? kit.e.code : ERR_NONE;
        if (code != rows[i].code || strcmp(kit.e.param, rows[i].param))
            fprintf(stderr, "%s: %s '%s' %s\n", rows[i].body, errcode_name(code), kit.e.param,
                kit.e.msg);
        EXPECT(code == rows[i].code);
        EXPECT_STR(kit.e.param, rows[i].param);
        EXPECT(!rc || kit.e.msg[0]);
    }
}

static inline const char *kit_cstr(struct str s)
{
    static char out[4][2000];
    static unsigned turn;
    char *to = out[turn++ % 4];

    snprintf(to, 2000, STR_FMT, STR_ARG(s));
    return to;
}

/* The conversation as text: "system: a|user: b, c|assistant: d [call(args)#id]
 * {reasoning}|tool#id: e". */
static inline const char *kit_convo_text(void)
{
    static char out[4000];
    size_t n = 0;

    out[0] = 0;
    for (int i = 0; i < kit.request.convo.n_messages; i++) {
        const struct message *m = &kit.request.convo.messages[i];
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%s", i ? "|" : "", role_name(m->role));
        if (m->tool_call_id.p)
            n += (size_t)snprintf(out + n, sizeof(out) - n, "#%s", kit_cstr(m->tool_call_id));
        n += (size_t)snprintf(out + n, sizeof(out) - n, m->has_content ? ":" : "");
        for (int k = 0; k < m->n_parts; k++)
            n += (size_t)snprintf(
                out + n, sizeof(out) - n, "%s%s", k ? ", " : " ", kit_cstr(m->parts[k].text));
        for (int k = 0; k < m->n_tool_calls; k++)
            n += (size_t)snprintf(out + n, sizeof(out) - n, " [%s(%s)#%s]",
                kit_cstr(m->tool_calls[k].name), kit_cstr(m->tool_calls[k].arguments),
                kit_cstr(m->tool_calls[k].id));
        if (m->reasoning.p)
            n += (size_t)snprintf(out + n, sizeof(out) - n, " {%s}", kit_cstr(m->reasoning));
        EXPECT(n < sizeof(out));
    }
    return out;
}

/* ---- responses */

static const char *const kit_token_texts[] = { "<end>", "Hello", " wor", "ld", "\"q\"\n", "!",
    "\xC3", "\xA9" };

static inline struct str kit_token_bytes(const void *vocab, int32_t id)
{
    CHECK(vocab == kit_token_texts && id >= 0 && id < (int32_t)ARRAY_LEN(kit_token_texts));
    return str_of(kit_token_texts[id]);
}

/* Leaves only what the server keeps of a request while it runs; the body and its tree are freed. */
static inline void kit_keep_request(const struct dialect *w)
{
    struct arena *kept = arena_new(64 * MB);
    struct prompt *none = NULL;

    EXPECT_EQ(request_keep(&kit.request, &none, &w->needs, kept, &kit.e), 0);
    arena_free(kit.arena);
    kit.arena = kept;
}

static inline void kit_open_response(const struct dialect *w, const char *body)
{
    struct response_setup s = { .request = &kit.request,
        .sink = &kit.sink.sink,
        .model = STR("m"),
        .fingerprint = "fp_1",
        .created = 1700000000,
        .id = "1",
        .token_bytes = kit_token_bytes,
        .vocab = kit_token_texts };

    response_free(kit.response);
    fake_sink_clear(&kit.sink);
    fake_sink_init(&kit.sink);
    if (kit_parse_request(w, body))
        fprintf(stderr, "%s\n", kit.e.msg);
    EXPECT(!kit.e.code);
    kit_keep_request(w);
    EXPECT_EQ(response_new(&kit.response, &s, &kit.e), 0);
}

static inline void kit_close_response(void)
{
    response_free(kit.response);
    kit.response = NULL;
    fake_sink_clear(&kit.sink);
    arena_free(kit.arena);
    kit.arena = NULL;
}

/* Emits a token and its text. */
static inline void kit_emit_token(int choice, int32_t id)
{
    struct sampled t = { .id = id, .logprob = -0.5f, .n_top = 1, .top = { { id, -0.5f } } };

    response_add_token(kit.response, choice, &t);
    response_output_ops.content(kit.response, choice, str_of(kit_token_texts[id]));
}

static inline void kit_expect_body(const char *want)
{
    static char got[20000];

    snprintf(got, sizeof(got), STR_FMT, STR_ARG(kit.sink.body));
    for (char *c = got; *c; c++)
        *c = *c == '"' ? '\'' : *c;
    EXPECT_STR(got, want);
}
