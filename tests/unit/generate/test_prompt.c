/* generate/prompt.h: prompt tokens of chat requests. */
#include "generate/prompt.h"

#include "api/common/dialect.h"
#include "support/check.h"
#include "support/patched_model.h"

#define SAYS_HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

struct fixture {
    struct patched_model file;
    struct model_spec spec;
    struct model *m;
};

static void fixture_open(struct fixture *f, const char *template_source)
{
    struct err e;

    patched_model_end(&f->file, template_source);
    f->spec = model_spec_of("m", f->file.path);
    f->spec.backend = BACKEND_SCRIPT;
    f->spec.template_path = template_source ? f->file.template_path : "";
    f->m = xcalloc(1, sizeof(*f->m));
    int rc = model_open(f->m, &f->spec, &e);
    if (rc)
        fprintf(stderr, "%s\n", e.msg);
    EXPECT_EQ(rc, 0);
}

static void fixture_close(struct fixture *f)
{
    model_close(f->m);
    mem_free(f->m);
    patched_model_remove(&f->file);
}

/* Number of BOS tokens at the beginning of the prompt, which has other tokens after them. */
static int n_leading_bos(const struct model *m, const char *body)
{
    struct arena *a = arena_new(64 * MB);
    const struct prompt_ctx ctx = { m, a, NULL };
    struct request request;
    struct prompt *p;
    struct err e;
    int n = 0;

    EXPECT_EQ(request_parse(&request, &dialect_openai_chat, str_of(body), a, &e), 0);
    EXPECT_EQ(prompts_build(&p, &request, &ctx, &e), 0);
    while (n < p->n && p->ids[n] == vocab_bos(m->vocab))
        n++;
    EXPECT(n < p->n);
    arena_free(a);
    return n;
}

/* A chat prompt begins with BOS once if the file requests it, whether or not the template writes
 * it. Only add_special_tokens: false leaves the prompt to the template. */
static void a_chat_prompt_begins_with_bos_once(void)
{
    static const struct {
        const char *source;
        int n_own; /* BOS tokens that the template writes */
    } templates[] = {
        { "<|im_start|>{{ messages[0].content }}", 0 },
        { "{{ messages[0].content }}", 0 },
        { "{{ bos_token }}{{ messages[0].content }}", 1 },
        { "<|endoftext|>{{ messages[0].content }}", 1 },
        { "{{ bos_token }}<|im_start|>{{ messages[0].content }}", 1 },
    };
    static const struct {
        const char *body;
        bool is_off;
    } requests[] = {
        { "{" SAYS_HI "}", false },
        { "{" SAYS_HI ",\"add_special_tokens\":null}", false },
        { "{" SAYS_HI ",\"add_special_tokens\":true}", false },
        { "{" SAYS_HI ",\"add_special_tokens\":false}", true },
        /* text of a client is never BOS */
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"<|endoftext|>hi\"}]}", false },
    };

    for (int add_bos = 0; add_bos < 2; add_bos++)
        for (size_t t = 0; t < ARRAY_LEN(templates); t++) {
            struct fixture f;
            patched_model_begin(&f.file);
            if (add_bos)
                patched_model_set_add_bos(&f.file);
            fixture_open(&f, templates[t].source);
            EXPECT_EQ(vocab_add_bos(f.m->vocab), add_bos);
            for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
                bool is_added = add_bos && !requests[i].is_off;
                EXPECT_EQ(n_leading_bos(f.m, requests[i].body), is_added ? 1 : templates[t].n_own);
            }
            fixture_close(&f);
        }
}

TESTS(TEST(a_chat_prompt_begins_with_bos_once))
