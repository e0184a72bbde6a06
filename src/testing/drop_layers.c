#include "testing/drop_layers.h"
#include "testing/gguf_write.h"

#include <stdio.h>

enum { LAYERS_MAX = 1024, NAME_MAX_BYTES = 128 };

struct layer_filter {
    const struct gguf *g;
    const uint32_t *keep;
    size_t n_keep;
    char count_key[NAME_MAX_BYTES]; /* "<arch>.block_count" */
    struct str prefix;              /* "<arch>." */
    uint64_t n_layers;
};

static int check_layers(struct layer_filter *t, struct err *e)
{
    struct str arch;

    if (!gguf_get_str(t->g, "general.architecture", &arch) || arch.n > 64)
        return err_set(e, ERR_INVALID, "general.architecture is missing");
    snprintf(t->count_key, sizeof(t->count_key), STR_FMT ".block_count", STR_ARG(arch));
    t->prefix = (struct str){ t->count_key, arch.n + 1 };
    if (!gguf_get_u64(t->g, t->count_key, &t->n_layers) || t->n_layers > LAYERS_MAX)
        return err_set(e, ERR_INVALID, "block_count is missing");
    if (t->n_keep == 0)
        return err_set(e, ERR_INVALID, "the list of layers to keep is empty");
    for (size_t i = 0; i < t->n_keep; i++) {
        if (t->keep[i] >= t->n_layers)
            return err_set(e, ERR_INVALID, "layer %u does not exist, the layers are 0 to %d",
                t->keep[i], (int)t->n_layers - 1);
        if (i && t->keep[i] <= t->keep[i - 1])
            return err_set(e, ERR_INVALID, "the layers to keep must be in ascending order");
    }
    return 0;
}

static int copy_metadata(const struct layer_filter *t, struct gguf_writer *w, struct err *e)
{
    for (size_t i = 0; i < gguf_n_kv(t->g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(t->g, i);
        if (str_eq(kv->key, str_of(t->count_key))) {
            gguf_put_u32(w, t->count_key, (uint32_t)t->n_keep);
            continue;
        }
        if (str_starts(kv->key, t->prefix) && kv->value.kind == GGUF_ARR &&
            kv->value.arr.n == t->n_layers)
            return err_set(e, ERR_INVALID,
                STR_FMT " has one value per layer, which is not supported", STR_ARG(kv->key));
        gguf_put_value(w, kv->key, &kv->value);
    }
    return 0;
}

/* Parses a tensor name: "blk.7.ffn_up.weight" belongs to layer 7; false for other names. */
static bool parse_layer(struct str name, uint64_t *layer, struct str *rest)
{
    if (!str_starts(name, STR("blk.")))
        return false;
    struct str tail = str_skip(name, 4);
    ptrdiff_t dot = str_find(tail, STR("."));
    if (dot <= 0 || !str_to_u64((struct str){ tail.p, (size_t)dot }, layer))
        return false;
    *rest = str_skip(tail, (size_t)dot);
    return true;
}

/* Name of the tensor in the new file; false: it is omitted. */
static bool rename_tensor(const struct layer_filter *t, struct str name, char *out)
{
    struct str rest;
    uint64_t layer;

    if (!parse_layer(name, &layer, &rest)) {
        snprintf(out, NAME_MAX_BYTES, STR_FMT, STR_ARG(name));
        return true;
    }
    for (size_t i = 0; i < t->n_keep; i++)
        if (t->keep[i] == layer) {
            snprintf(out, NAME_MAX_BYTES, "blk.%zu" STR_FMT, i, STR_ARG(rest));
            return true;
        }
    return false;
}

static int copy_tensors(const struct layer_filter *t, struct gguf_writer *w, struct err *e)
{
    char name[NAME_MAX_BYTES];

    for (size_t i = 0; i < gguf_n_tensors(t->g); i++) {
        const struct gguf_tensor *from = gguf_tensor_at(t->g, i);
        if (rename_tensor(t, from->name, name) &&
            gguf_writer_data(w, from->data, (size_t)from->bytes, e))
            return -1;
    }
    return 0;
}

int drop_layers_write(
    const struct gguf *g, const uint32_t *keep, size_t n_keep, const char *path, struct err *e)
{
    struct layer_filter t = { .g = g, .keep = keep, .n_keep = n_keep };
    char name[NAME_MAX_BYTES];

    if (check_layers(&t, e))
        return -1;
    struct gguf_writer *w = gguf_writer_new(0);
    if (!w)
        return err_set(e, ERR_MEMORY, "no memory to write a model");
    int rc = copy_metadata(&t, w, e);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *from = gguf_tensor_at(g, i);
        if (rename_tensor(&t, from->name, name))
            gguf_put_tensor(w, str_of(name), from->type, from->n_dims, from->dims);
    }
    rc = rc || gguf_writer_open(w, path, e) || copy_tensors(&t, w, e) || gguf_writer_finish(w, e);
    gguf_writer_free(w);
    return rc ? -1 : 0;
}
