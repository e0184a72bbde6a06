#include "registry/draft.h"

#include "base/log.h"
#include "engine/spec/draft_lm.h"
#include "format/model_file.h"
#include "model/llama.h"
#include "os/clock.h"
#include "os/memory.h"
#include "os/thread.h"

enum { DRAFT_ROWS = 512, DRAFT_LOGITS = 64 };

static int same_vocab(const struct vocab *large, const struct vocab *small, struct err *e)
{
    int32_t a = vocab_n_tokens(large), b = vocab_n_tokens(small), n = MIN(a, b);

    if (MAX(a, b) - n > VOCAB_PADDING)
        return err_set(e, ERR_INVALID,
            "the draft model has %d tokens and the target model %d: the vocabularies differ", b, a);
    for (int32_t id = 0; id < n; id++) {
        struct str x = vocab_bytes(large, id), y = vocab_bytes(small, id);
        if (!str_eq(x, y))
            return err_set(e, ERR_INVALID,
                "token %d is '" STR_FMT "' in the draft model and '" STR_FMT
                "' in the target model: the vocabularies differ",
                id, STR_ARG(y), STR_ARG(x));
    }
    return 0;
}

static int check_vocab(const struct vocab *large, const struct gguf *g, struct err *e)
{
    struct vocab *v = NULL;

    if (vocab_open(&v, g, e))
        return -1;
    int rc = same_vocab(large, v, e);
    vocab_close(v);
    return rc;
}

int draft_check(const struct gguf *large, const struct gguf *small, struct err *e)
{
    struct vocab *v = NULL;

    if (vocab_open(&v, large, e))
        return -1;
    int rc = check_vocab(v, small, e);
    vocab_close(v);
    return rc;
}

/* One context per running sequence, within an eighth of the available memory; at least one
 * context. */
static uint32_t n_pages(const struct model *m, size_t page_bytes)
{
    uint64_t per_seq = (uint64_t)m->n_ctx / PAGE_TOKENS + 1;
    uint64_t fit = memory_available() / 8 / page_bytes;

    return (uint32_t)MIN(
        MAX(MIN(fit, per_seq * (uint64_t)m->spec->engine.max_batch), per_seq), UINT32_MAX / 8 - 1);
}

static int open_lm(struct lm **out, const struct model *m, const struct gguf *g,
    const struct kernels *k, struct err *e)
{
    enum kv_type kv = kv_type_by_name(m->spec->kv_type);
    struct llama_needs needs;

    if (llama_needs(&needs, g, kv, e))
        return -1;
    struct llama_options o = {
        .kernels = k,
        .n_threads = m->spec->threads ? m->spec->threads : thread_count_online(),
        .n_pages = n_pages(m, needs.page_bytes + needs.window_page_bytes),
        .kv_type = kv,
        .n_ctx = m->n_ctx,
        .max_rows = DRAFT_ROWS,
        .max_logits = DRAFT_LOGITS,
    };
    return lm_open_llama(out, g, &o, e);
}

int draft_check_file(const struct model *m, struct err *e)
{
    const char *path = m->spec->draft_path;
    struct llama_needs needs;
    struct gguf *g;

    if (model_file_open(&g, path, e))
        return err_wrap(e, "draft model");
    int rc =
        check_vocab(m->vocab, g, e) || llama_needs(&needs, g, kv_type_by_name(m->spec->kv_type), e);
    if (!rc && needs.state_bytes > 0)
        rc = err_set(e, ERR_UNSUPPORTED, "a model with recurrent layers cannot be a draft model");
    gguf_close(g);
    return rc ? err_wrap(e, "draft model %s", path) : 0;
}

int draft_open(struct drafter **out, const struct model *m, const struct kernels *k, struct err *e)
{
    const char *path = m->spec->draft_path;
    uint64_t began = clock_ns();
    struct gguf *g;
    struct lm *lm;

    if (model_file_open(&g, path, e))
        return err_wrap(e, "draft model");
    int rc = check_vocab(m->vocab, g, e) || open_lm(&lm, m, g, k, e) ||
             draft_lm_open(out, lm, k, m->spec->engine.max_batch, m->n_ctx, e);
    gguf_close(g);
    if (rc)
        return err_wrap(e, "draft model %s", path);
    log_info("registry", "draft_loaded", "model=%s draft=\"%s\" ms=%d", m->spec->id, path,
        (int)((clock_ns() - began) / NS_PER_MS));
    return 0;
}
