/* template_kit.h: compiles and renders a template and compares the result, in one call. */
#pragma once

#include "base/mem.h"
#include "chat/template.h"
#include "support/check.h"
#include "support/convo_json.h"

struct rendering {
    struct arena *a;
    struct chat_template *t;
    struct rendered r;
    struct err e;
    int rc;
    char *text; /* all spans, zero-terminated */
};

static const struct template_env kit_env = {
    .bos_token = { "<s>", 3 }, .eos_token = { "</s>", 4 }, .now = 1732155555
};

static inline struct rendering kit_render_with(const char *source, const char *request,
    const struct template_env *env, const struct template_limits *limits)
{
    struct rendering x = { .a = arena_new(256 * MB), .rc = -1 };
    struct json *j;
    struct convo c;

    EXPECT(x.a);
    EXPECT(!json_parse(&j, str_of(request), x.a, &json_limits_default, &x.e));
    EXPECT(cj_convo(j, &c, x.a));
    x.rc = chat_template_compile(&x.t, str_of(source), &x.e);
    if (!x.rc)
        x.rc = chat_template_render(x.t, &c, env, limits, x.a, &x.r, &x.e);
    x.text = arena_zalloc(x.a, x.r.n_bytes + 1, 1);
    EXPECT(x.text);
    size_t n = 0;
    for (size_t i = 0; i < x.r.n_spans; i++) {
        memcpy(x.text + n, x.r.spans[i].text.p, x.r.spans[i].text.n);
        n += x.r.spans[i].text.n;
    }
    EXPECT_EQ(n, x.r.n_bytes);
    return x;
}

static inline void kit_free(struct rendering *x)
{
    chat_template_free(x->t);
    arena_free(x->a);
}

static inline void kit_expect_request(const char *source, const char *request, const char *want)
{
    struct rendering x = kit_render_with(source, request, &kit_env, &template_limits_default);

    if (x.rc)
        fprintf(stderr, "%s\n", x.e.msg);
    EXPECT_EQ(x.rc, 0);
    EXPECT_STR(x.text, want);
    kit_free(&x);
}

/* Renders with one user message "hi". */
static inline void kit_expect(const char *source, const char *want)
{
    kit_expect_request(source, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", want);
}

static inline void kit_expect_error(const char *source, enum errcode code, const char *want)
{
    struct rendering x =
        kit_render_with(source, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", &kit_env,
            &template_limits_default);

    EXPECT(x.rc != 0);
    EXPECT_STR(errcode_name(x.e.code), errcode_name(code));
    EXPECT_STR(x.e.msg, want);
    kit_free(&x);
}
