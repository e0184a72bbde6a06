/* adapter_kit.h: compiles a chat template and opens the adapter of a model with it. */
#pragma once

#include "chat/adapter.h"
#include "support/template_kit.h"
#include "support/text_kit.h"

#include <dirent.h>

static const struct render_options kit_when = { .now = 1732155555 };

struct adapter_fixture {
    struct chat_template *t;
    struct adapter *adapter;
    const struct adapter_info *info;
    struct err e;
    int rc;
};

static inline struct adapter_fixture adapter_fixture_open(
    const char *source, const struct adapter_options *options)
{
    struct adapter_fixture f = { .rc = -1 };
    struct adapter_options o = *options;

    if (source)
        EXPECT_EQ(chat_template_compile(&f.t, str_of(source), &f.e), 0);
    o.template = f.t;
    o.env = o.env ? o.env : &kit_env;
    f.rc = adapter_open(&f.adapter, &o, &f.e);
    f.info = f.rc ? NULL : adapter_info(f.adapter);
    return f;
}

static inline void adapter_fixture_close(struct adapter_fixture *f)
{
    adapter_close(f->adapter);
    chat_template_free(f->t);
}

/* Returns a template of the test data; NULL, with a message, if it is missing. The caller frees
 * it. */
static inline char *kit_template(const char *name)
{
    char path[512], file[300];

    snprintf(file, sizeof(file), "templates/%s.jinja", name);
    if (!kit_data_path(path, file))
        return NULL;
    struct str s = kit_read(path);
    char *z = xrealloc((void *)(uintptr_t)s.p, s.n + 1);
    z[s.n] = '\0';
    return z;
}

/* Parses a request body of OpenAI's chat API; the conversation is in the arena. */
static inline struct convo kit_parse_convo(struct str request, struct arena *a)
{
    struct json *j;
    struct convo c = { 0 };
    struct err e;

    EXPECT(a && !json_parse(&j, request, a, NULL, &e) && cj_convo(j, &c, a));
    return c;
}

/* Returns 0, or -1 and prints the error. */
static inline int kit_render_convo(
    struct rendered *r, const struct adapter *adapter, const struct convo *c, struct arena *a)
{
    struct err e;
    int rc = adapter_render(adapter, c, &kit_when, a, r, &e);

    if (rc)
        fprintf(stderr, "%s\n", e.msg);
    return rc;
}

/* Calls fn for every template: the built-in ones and those of the test data. Returns false if
 * the test data are missing. */
static inline bool kit_each_template(
    void (*fn)(const char *source, const char *name, void *ctx), void *ctx)
{
    const char *shared = getenv("SHARED_DATA");
    char path[512];

    for (size_t i = 0; chat_family_at(i); i++)
        if (chat_family_at(i)->source)
            fn(chat_family_at(i)->source, chat_family_at(i)->name, ctx);
    snprintf(path, sizeof(path), "%s/templates", shared && *shared ? shared : "../shared/data");
    DIR *d = opendir(path);
    for (struct dirent *f; d && (f = readdir(d));) {
        struct str name = str_of(f->d_name);
        if (!str_ends(name, STR(".jinja")))
            continue;
        f->d_name[name.n - strlen(".jinja")] = '\0';
        char *source = kit_template(f->d_name);
        fn(source, f->d_name, ctx);
        mem_free(source);
    }
    if (d)
        closedir(d);
    return d != NULL;
}
