/* adapter_kit.h: a template, and the adapter of a model that has it. */
#pragma once

#include "chat/adapter.h"
#include "template_kit.h"
#include "text_kit.h"

struct fitting {
    struct chat_template *t;
    struct adapter *adapter;
    const struct adapter_info *info;
    struct err e;
    int rc;
};

static inline struct fitting kit_fit(const char *source, const struct adapter_options *options)
{
    struct fitting f = { .rc = -1 };
    struct adapter_options o = *options;

    if (source)
        EXPECT_EQ(chat_template_compile(&f.t, str_of(source), &f.e), 0);
    o.template = f.t;
    o.env = o.env ? o.env : &kit_env;
    f.rc = adapter_open(&f.adapter, &o, &f.e);
    f.info = f.rc ? NULL : adapter_info(f.adapter);
    return f;
}

static inline void kit_unfit(struct fitting *f)
{
    adapter_close(f->adapter);
    chat_template_free(f->t);
}

/* A template of the test data; NULL (and says so) when it is not there. The caller frees it. */
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
