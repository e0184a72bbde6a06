/* Fuzzes config.json of a model directory, without files: it is rejected with an error of one line,
 * or becomes keys that the reader of GGUF accepts; and the quantisation entries of its modules. The
 * input is config.json. */
#include "base/mem.h"
#include "format/gguf_keys.h"
#include "format/hf/hf_config.h"
#include "format/hf/hf_quant.h"
#include "model/llama.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_error(const struct err *e)
{
    CHECK(e->code != ERR_NONE && e->msg[0] && !strchr(e->msg, '\n'));
}

/* The keys as those of a GGUF file; their values may still be refused. */
static void use_keys(struct gguf_keys *k)
{
    struct llama_needs needs;
    struct gguf *g = NULL;
    struct err e = { 0 };
    uint8_t *bytes = NULL;
    size_t n;

    if (gguf_keys_end(k, &bytes, &n, &e)) {
        check_error(&e);
        return;
    }
    CHECK(!gguf_open_bytes(&g, bytes, n, &e));
    if (llama_needs(&needs, g, KV_F16, &e))
        check_error(&e);
    gguf_close(g);
    mem_free(bytes);
}

static void read_config(const struct json *all, struct arena *a)
{
    struct hf_config c;
    struct gguf_keys k;
    struct err e = { 0 };

    for (int has_kv_b = 0; has_kv_b < 2; has_kv_b++) {
        gguf_keys_init(&k);
        if (hf_config_read(&c, all, &e) || hf_config_put(&c, &k, a, &e)) {
            check_error(&e);
        } else {
            hf_config_put_latent(&c, has_kv_b, &k);
            use_keys(&k);
        }
        gguf_keys_clear(&k);
    }
}

static void read_quants(const struct json *all, struct arena *a)
{
    static const char *const modules[] = { "lm_head", "model.layers.0.mlp.down_proj",
        "model.layers.0.self_attn.q_proj", "" };
    const struct json *text = json_get(all, "text_config");
    struct hf_quants q = { 0 };
    struct hf_quant of;
    struct err e = { 0 };

    if (hf_quants_read(&q, all, text && text->kind == JSON_OBJECT ? text : all, a, &e))
        check_error(&e);
    else
        for (size_t i = 0; i < ARRAY_LEN(modules); i++)
            if (hf_quants_of(&q, str_of(modules[i]), &of, &e))
                check_error(&e);
            else
                CHECK(of.bits >= 0 && of.group >= 0 && of.block_rows >= 0 && of.block_cols >= 0);
    hf_quants_clear(&q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct json_limits limits = { 128, 1 << 16, .has_infinity = true };
    struct arena *a = arena_new(64 * MB);
    struct json *all;
    struct err e;

    CHECK(a);
    if (!json_parse(&all, (struct str){ (const char *)data, n }, a, &limits, &e) &&
        all->kind == JSON_OBJECT) {
        read_config(all, a);
        read_quants(all, a);
    }
    arena_free(a);
    return 0;
}
