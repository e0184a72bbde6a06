/* Fuzzes model loading: metadata, binding, packing, and one forward pass of the loaded network,
 * whatever its weights are. */
#include "format/gguf.h"
#include "model/llama.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct llama_options o = { .n_threads = 1, .n_pages = 1, .max_rows = 2 };
    struct gguf *g;
    struct lm *m;
    struct err e;

    if (gguf_open_bytes(&g, data, n, &e))
        return 0;
    if (!lm_open_llama(&m, g, &o, &e)) {
        const int32_t tokens[2] = { 0, m->n_vocab - 1 };
        const page_id pages[1] = { { 0 } };
        struct lm_run run = { .tokens = tokens, .n = 2, .pages = pages, .n_logits = 1 };
        m->ops->forward(m, &run, 1, NULL);
        m->ops->close(m);
    }
    gguf_close(g);
    return 0;
}
