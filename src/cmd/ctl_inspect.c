/* ctl_inspect.c: `inferctl inspect MODEL`: contents of a model file or directory, whether it can be
 * served, and whether another model can be its draft model. Needs no server. */
#include "cmd/ctl.h"
#include "format/describe.h"
#include "format/gguf.h"
#include "format/model_file.h"
#include "model/llama.h"
#include "registry/draft.h"
#include "tokenizer/vocab.h"

#include <stdio.h>

static uint64_t tensor_bytes(const struct gguf *g)
{
    uint64_t n = 0;

    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        n += gguf_tensor_at(g, i)->bytes;
    return n;
}

static int inspect_pair(const struct ctl *c, const struct gguf *g, const char *draft)
{
    struct gguf *small;
    struct err e;

    if (model_file_open(&small, draft, &e))
        return ctl_fail("%s", e.msg);
    int rc = draft_check(g, small, &e);
    double share = (double)tensor_bytes(small) / (double)MAX(tensor_bytes(g), 1u);
    gguf_close(small);
    if (rc)
        return ctl_fail("%s cannot be the draft model: %s", draft, e.msg);
    if (c->as_json)
        ctl_printf("{\"draft\": true, \"weights_share\": %.3f}\n", share);
    else
        ctl_printf(
            "draft         %s: the same tokens, %.0f %% of the weight bytes\n", draft, 100 * share);
    return EXIT_OK;
}

/* Reads the hyper-parameters and the vocabulary, as a start of the server does. `e` has the
 * reason. */
static struct gguf_facts find_facts(const struct gguf *g, struct err *e)
{
    struct llama_needs needs;
    struct vocab *v = NULL;

    if (llama_needs(&needs, g, KV_F16, e) || vocab_open(&v, g, e))
        return (struct gguf_facts){ .reason = e->msg };
    vocab_close(v);
    return (struct gguf_facts){ .kv_bytes_per_token = needs.page_bytes / PAGE_TOKENS,
        .window = needs.window.size,
        .window_kv_bytes_per_token = needs.window_page_bytes / PAGE_TOKENS,
        .state_bytes = needs.state_bytes };
}

int ctl_inspect(struct ctl *c, int argc, char **argv)
{
    static const char *const names[] = { "json", "help", "draft=" };
    struct ctl_args a = { .argc = argc, .argv = argv };
    const char *path = NULL, *draft = NULL;
    struct gguf *g;
    struct buf out;
    struct err e;

    for (int i; (i = ctl_next(&a, names, ARRAY_LEN(names))) != -1;) {
        if (i == 1) {
            ctl_printf("usage: inferctl inspect [--json] [--draft SMALL] MODEL\n\n"
                       "Prints metadata, tensors and sizes of a model, and whether it can be "
                       "served. MODEL is a\n"
                       "GGUF file, or a directory of Hugging Face or MLX.\n"
                       "With --draft: checks whether SMALL can be its draft model (same "
                       "vocabulary).\n");
            return EXIT_OK;
        }
        if (i == -3 || (i == -2 && path))
            return i == -3 ? EXIT_USAGE : ctl_usage("inspect: one model at a time");
        if (i == -2)
            path = a.value;
        else if (i == 2)
            draft = a.value;
        else
            c->as_json = true;
    }
    if (!path)
        return ctl_usage("inspect: which model?");
    if (model_file_open(&g, path, &e))
        return ctl_fail("%s", e.msg);
    if (draft) {
        int pair = inspect_pair(c, g, draft);
        gguf_close(g);
        return pair;
    }
    buf_init(&out, 256 * MB);
    struct gguf_facts facts = find_facts(g, &e);
    gguf_describe(g, &facts, c->as_json, &out);
    gguf_close(g);
    int rc = buf_ok(&out) ? EXIT_OK : ctl_fail("inspect: no memory");
    ctl_put(buf_str(&out));
    buf_clear(&out);
    return rc;
}
