/* Dropping layers: the written model has the kept layers in order, and everything else is
 * unchanged. */
#include "testing/synth.h"
#include "testing/drop_layers.h"
#include "support/check.h"

#include <stdlib.h>
#include <unistd.h>

enum { LAYERS = 5 };

static char full_model[64], thin[64];
static struct gguf *source_model;

static void make_path(char *out)
{
    snprintf(out, 64, "/tmp/inferflux-thin-XXXXXX");
    int fd = mkstemp(out);
    EXPECT(fd >= 0);
    close(fd);
}

static void begin_test(void)
{
    struct synth s;
    struct err e = { 0 };

    make_path(full_model);
    make_path(thin);
    EXPECT(synth_preset(&s, "tiny"));
    s.n_layers = LAYERS;
    EXPECT_EQ(synth_write(&s, full_model, &e), 0);
    EXPECT_EQ(gguf_open(&source_model, full_model, &e), 0);
}

static void end_test(void)
{
    gguf_close(source_model);
    unlink(full_model);
    unlink(thin);
}

static bool expect_same_tensor(const struct gguf_tensor *a, const struct gguf_tensor *b)
{
    return a && b && a->type == b->type && a->n_dims == b->n_dims &&
           !memcmp(a->dims, b->dims, sizeof(a->dims)) && a->bytes == b->bytes &&
           !memcmp(a->data, b->data, (size_t)a->bytes);
}

static void kept_layers_are_in_order_and_nothing_else_changes(void)
{
    static const uint32_t keep[] = { 0, 3, 4 };
    uint64_t n = 0, n_layer_tensors = 0;
    struct err e = { 0 };
    struct gguf *g;

    begin_test();
    EXPECT_EQ(drop_layers_write(source_model, keep, ARRAY_LEN(keep), thin, &e), 0);
    EXPECT_EQ(gguf_open(&g, thin, &e), 0);
    EXPECT(gguf_get_u64(g, "llama.block_count", &n));
    EXPECT_EQ(n, 3u);
    EXPECT_EQ(gguf_n_kv(g), gguf_n_kv(source_model));
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char name[128];
        int layer;
        snprintf(name, sizeof(name), STR_FMT, STR_ARG(t->name));
        if (sscanf(name, "blk.%d.", &layer) == 1) {
            snprintf(
                name, sizeof(name), "blk.%u" STR_FMT, keep[layer], STR_ARG(str_skip(t->name, 5)));
            n_layer_tensors++;
        }
        EXPECT(expect_same_tensor(t, gguf_tensor(source_model, name)));
    }
    EXPECT_EQ(n_layer_tensors % 3, 0u);
    EXPECT_EQ(gguf_n_tensors(source_model) - gguf_n_tensors(g), n_layer_tensors / 3 * 2);
    gguf_close(g);
    end_test();
}

static void invalid_layer_lists_are_reported(void)
{
    static const uint32_t beyond[] = { 0, LAYERS }, twice[] = { 1, 1 }, back[] = { 2, 1 };
    struct err e;

    begin_test();
    EXPECT_EQ(drop_layers_write(source_model, beyond, 2, thin, &e), -1);
    EXPECT_STR(e.msg, "layer 5 does not exist, the layers are 0 to 4");
    EXPECT_EQ(drop_layers_write(source_model, twice, 2, thin, &e), -1);
    EXPECT_EQ(drop_layers_write(source_model, back, 2, thin, &e), -1);
    EXPECT_STR(e.msg, "the layers to keep must be in ascending order");
    EXPECT_EQ(drop_layers_write(source_model, back, 0, thin, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_INVALID);
    EXPECT_EQ(drop_layers_write(source_model, beyond, 1, "/nowhere/at/all", &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_IO);
    end_test();
}

TESTS(
    TEST(kept_layers_are_in_order_and_nothing_else_changes), TEST(invalid_layer_lists_are_reported))
