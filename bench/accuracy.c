/* accuracy: helper program of bench/accuracy.py.
 *
 *     accuracy retype FROM.gguf TYPE OUT.gguf           converts the matrices to another type
 *     accuracy logits FILE.gguf IDS OUT WINDOW KV       computes all logits, WINDOW tokens per text
 *
 * IDS is an array of int32, OUT an array of float [n][n_vocab]. `retype` reads the weights after
 * packing and dequantisation, so a conversion from a quantised type to F32 writes exactly the
 * values that the kernels multiply. */
#include "base/mem.h"
#include "base/str.h"
#include "testing/gguf_write.h"
#include "kernel/gemm.h"
#include "testing/quant.h"
#include "format/model_file.h"
#include "model/llama.h"

#include <stdio.h>
#include <stdlib.h>

static int find_type(enum qtype *out, const char *name)
{
    for (uint32_t t = 0; t < 64; t++) {
        const struct qtype_info *info = qtype_info(t);
        if (info && quant_has_type((enum qtype)t) && !strcmp(info->name, name)) {
            *out = (enum qtype)t;
            return 0;
        }
    }
    return fprintf(stderr, "accuracy: no type %s\n", name), -1;
}

static enum qtype target_type(const struct gguf_tensor *t, enum qtype wanted)
{
    return t->n_dims > 1 ? wanted : t->type;
}

static int write_matrix(
    struct gguf_writer *w, const struct gguf_tensor *t, enum qtype type, struct err *e)
{
    int n = (int)t->dims[0], rows = (int)t->dims[1];
    uint64_t row_bytes;
    struct packed p;
    int rc = -1;

    if (t->n_dims > 2 || !qtype_bytes(type, t->dims[0], &row_bytes))
        return err_set(e, ERR_UNSUPPORTED, "a matrix of this shape has no such type");
    uint8_t *data = try_aligned(64, pack_bytes(t->type, rows, n));
    float *row = try_calloc((size_t)n, sizeof(*row));
    uint8_t *out = try_calloc(1, row_bytes);
    if (!data || !row || !out) {
        err_set(e, ERR_MEMORY, "no memory for a matrix");
        goto out;
    }
    if (pack_init(&p, t->type, rows, n, data, e))
        goto out;
    pack_panels(&p, t->data, 0, p.n_panels);
    rc = 0;
    for (int r = 0; !rc && r < rows; r++) {
        pack_get_row(&p, r, row);
        quant_row(type, row, n, out);
        rc = gguf_writer_data(w, out, row_bytes, e);
    }
out:
    mem_free(data);
    mem_free(row);
    mem_free(out);
    return rc;
}

static int convert_types(const char *from, const char *type_name, const char *to, struct err *e)
{
    struct gguf_writer *w = gguf_writer_new(0);
    struct gguf *g = NULL;
    enum qtype type;
    int rc = -1;

    if (!w || find_type(&type, type_name) || model_file_open(&g, from, e))
        goto out;
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        gguf_put_value(w, gguf_kv_at(g, i)->key, &gguf_kv_at(g, i)->value);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        gguf_put_tensor(w, t->name, target_type(t, type), t->n_dims, t->dims);
    }
    rc = gguf_writer_open(w, to, e);
    for (size_t i = 0; !rc && i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        rc =
            t->n_dims > 1 ? write_matrix(w, t, type, e) : gguf_writer_data(w, t->data, t->bytes, e);
    }
    rc = rc || gguf_writer_finish(w, e) ? -1 : 0;
out:
    gguf_writer_free(w);
    gguf_close(g);
    return rc;
}

struct text {
    int32_t *ids;
    int n, window;
};

static int read_ids(struct text *t, const char *path, struct err *e)
{
    enum { MAX_IDS = 1 << 20 };
    FILE *f = fopen(path, "rb");

    if (!f)
        return err_set(e, ERR_NOT_FOUND, "%s: cannot be opened", path);
    t->ids = try_calloc(MAX_IDS, sizeof(*t->ids));
    t->n = t->ids ? (int)fread(t->ids, sizeof(*t->ids), MAX_IDS, f) : 0;
    fclose(f);
    return t->n ? 0 : err_set(e, ERR_INVALID, "%s: no tokens", path);
}

static int write_logits(struct lm *m, const struct text *t, FILE *out, struct err *e)
{
    page_id *pages = try_calloc(m->n_pages, sizeof(*pages));

    if (!pages)
        return err_set(e, ERR_MEMORY, "no memory for pages");
    for (uint32_t i = 0; i < m->n_pages; i++)
        pages[i].i = i;
    for (int at = 0; at < t->n; at += t->window) {
        int n = MIN(t->window, t->n - at);
        struct lm_run run = {
            .tokens = t->ids + at, .n = n, .pages = pages, .n_logits = n, .state = STATE_NONE
        };
        m->ops->forward(m, &run, 1, NULL);
        fwrite(run.logits, sizeof(float) * (size_t)m->n_vocab, (size_t)n, out);
    }
    mem_free(pages);
    return ferror(out) ? err_set(e, ERR_IO, "the logits could not be written") : 0;
}

static int compute_logits(char **argv, struct err *e)
{
    uint64_t window;
    if (!str_to_u64(str_of(argv[3]), &window) || !window || window > 1 << 14)
        return err_set(e, ERR_INVALID, "a window has 1 to 16384 tokens");
    struct text t = { .window = (int)window };
    struct llama_options o = { .kv_type = kv_type_by_name(argv[4]),
        .max_rows = t.window,
        .max_logits = t.window,
        .n_states = 2,
        .n_pages = (uint32_t)(t.window / PAGE_TOKENS + 1) };
    struct gguf *g = NULL;
    struct lm *m = NULL;
    FILE *out = NULL;
    int rc = -1;

    if (o.kv_type == N_KV_TYPES)
        return err_set(e, ERR_INVALID, "the KV type is f16, bf16 or q8_0");
    if (read_ids(&t, argv[1], e) || model_file_open(&g, argv[0], e) || lm_open_llama(&m, g, &o, e))
        goto out;
    out = fopen(argv[2], "wb");
    rc = out ? write_logits(m, &t, out, e) : err_set(e, ERR_IO, "%s: cannot be written", argv[2]);
out:
    if (out && fclose(out))
        rc = -1;
    if (m)
        m->ops->close(m);
    gguf_close(g);
    mem_free(t.ids);
    return rc;
}

int main(int argc, char **argv)
{
    struct err e = { 0 };
    int rc;

    if (argc == 5 && !strcmp(argv[1], "retype"))
        rc = convert_types(argv[2], argv[3], argv[4], &e);
    else if (argc == 7 && !strcmp(argv[1], "logits"))
        rc = compute_logits(argv + 2, &e);
    else
        return fprintf(stderr, "usage: accuracy retype FROM TYPE OUT\n"
                               "       accuracy logits FILE IDS OUT WINDOW KV\n"),
               2;
    if (rc)
        fprintf(stderr, "accuracy: %s\n", e.msg);
    return rc ? 1 : 0;
}
