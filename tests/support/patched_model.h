/* patched_model.h: a copy of models/demo.gguf in which some bytes are replaced, for tests of
 * the prompts of model files with other metadata. */
#pragma once

#include "base/mem.h"
#include "support/text_kit.h"
#include "support/tmpdir.h"

struct patched_model {
    char dir[TMPDIR_NAME];
    char path[TMPDIR_NAME + 16], template_path[TMPDIR_NAME + 16];
    struct str bytes;
};

static inline void patched_model_write(const char *path, struct str s)
{
    FILE *f = fopen(path, "w");

    EXPECT(f && fwrite(s.p, 1, s.n, f) == s.n);
    EXPECT_EQ(fclose(f), 0);
}

static inline void patched_model_begin(struct patched_model *p)
{
    tmpdir_make(p->dir);
    snprintf(p->path, sizeof(p->path), "%s/model.gguf", p->dir);
    snprintf(p->template_path, sizeof(p->template_path), "%s/template", p->dir);
    p->bytes = kit_read("models/demo.gguf");
}

/* Replaces all occurrences; `to` is as long as `from`. */
static inline void patched_model_replace(struct patched_model *p, struct str from, struct str to)
{
    int n = 0;

    EXPECT_EQ(from.n, to.n);
    for (size_t at = 0; at < p->bytes.n; n++) {
        ptrdiff_t i = str_find(str_skip(p->bytes, at), from);
        if (i < 0)
            break;
        at += (size_t)i;
        memcpy((char *)(uintptr_t)p->bytes.p + at, to.p, to.n);
    }
    EXPECT(n > 0);
}

static inline void patched_model_set_add_bos(struct patched_model *p)
{
    patched_model_replace(p, STR("tokenizer.ggml.add_bos_token\7\0\0\0\0"),
        STR("tokenizer.ggml.add_bos_token\7\0\0\0\1"));
}

/* The copy has no chat template. */
static inline void patched_model_drop_template(struct patched_model *p)
{
    patched_model_replace(p, STR("tokenizer.chat_template"), STR("tokenizer.chat_nothing_"));
}

/* template_source: written to template_path; NULL = none. */
static inline void patched_model_end(struct patched_model *p, const char *template_source)
{
    patched_model_write(p->path, p->bytes);
    if (template_source)
        patched_model_write(p->template_path, str_of(template_source));
    mem_free((void *)(uintptr_t)p->bytes.p);
}

static inline void patched_model_remove(const struct patched_model *p)
{
    tmpdir_remove(p->dir);
}
