/* mkmodel: writes a GGUF file of a given shape with random weights, for tests and benchmarks, or a
 * copy of a model without some of its layers or as a directory.
 *
 *     mkmodel --preset llama-3.2-1b --type Q4_0 -o /tmp/1b.gguf
 *     mkmodel --arch qwen3 --layers 4 --embd 512 --heads 8 --kv-heads 2 --type Q6_K -o small.gguf
 *
 *     mkmodel --from models/demo.gguf --keep 0,1,4 -o draft.gguf
 *
 * --preset must come first; later options change its values. The default preset is "tiny". With
 * --from the file contains only the layers in --keep of another model; it can be the draft model of
 * that model for speculative decoding. */
#include "base/str.h"
#include "testing/drop_layers.h"
#include "testing/hf_write.h"
#include "testing/synth.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum option_id {
    OPT_ARCH = 256,
    OPT_PRESET,
    OPT_TYPE,
    OPT_HEAD_TYPE,
    OPT_LAYERS,
    OPT_EMBD,
    OPT_HEADS,
    OPT_KV_HEADS,
    OPT_HEAD_DIM,
    OPT_FF,
    OPT_VOCAB,
    OPT_CTX,
    OPT_VOCAB_FROM,
    OPT_EXPERTS,
    OPT_USED,
    OPT_TIED,
    OPT_NO_TIED,
    OPT_SEED,
    OPT_SET,
    OPT_OPTIONAL,
    OPT_SCALES,
    OPT_VECTOR_SIGMA,
    OPT_NAME,
    OPT_FROM,
    OPT_KEEP,
    OPT_DIRECTORY,
};

static const struct option options[] = {
    { "preset", required_argument, NULL, OPT_PRESET },
    { "arch", required_argument, NULL, OPT_ARCH },
    { "name", required_argument, NULL, OPT_NAME },
    { "type", required_argument, NULL, OPT_TYPE },
    { "head-type", required_argument, NULL, OPT_HEAD_TYPE },
    { "layers", required_argument, NULL, OPT_LAYERS },
    { "embd", required_argument, NULL, OPT_EMBD },
    { "heads", required_argument, NULL, OPT_HEADS },
    { "kv-heads", required_argument, NULL, OPT_KV_HEADS },
    { "head-dim", required_argument, NULL, OPT_HEAD_DIM },
    { "ff", required_argument, NULL, OPT_FF },
    { "vocab", required_argument, NULL, OPT_VOCAB },
    { "ctx", required_argument, NULL, OPT_CTX },
    { "experts", required_argument, NULL, OPT_EXPERTS },
    { "experts-used", required_argument, NULL, OPT_USED },
    { "vocab-from", required_argument, NULL, OPT_VOCAB_FROM },
    { "tied", no_argument, NULL, OPT_TIED },
    { "no-tied", no_argument, NULL, OPT_NO_TIED },
    { "set", required_argument, NULL, OPT_SET },
    { "optional", no_argument, NULL, OPT_OPTIONAL },
    { "scales", no_argument, NULL, OPT_SCALES },
    { "vector-sigma", required_argument, NULL, OPT_VECTOR_SIGMA },
    { "seed", required_argument, NULL, OPT_SEED },
    { "from", required_argument, NULL, OPT_FROM },
    { "keep", required_argument, NULL, OPT_KEEP },
    { "directory", required_argument, NULL, OPT_DIRECTORY },
    { "output", required_argument, NULL, 'o' },
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

enum { KEEP_MAX = 256, SETTINGS_MAX = 64 };

static const struct {
    const char *name;
    struct hf_write_options o;
} layouts[] = {
    { "hf", { .is_mlx = false } },
    { "mlx", { .is_mlx = true } },
    { "fp8", { .quant = HF_WRITE_FP8 } },
    { "mxfp8", { .is_mlx = true, .quant = HF_WRITE_MXFP8 } },
};

static const struct hf_write_options *find_layout(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++)
        if (!strcmp(name, layouts[i].name))
            return &layouts[i].o;
    return NULL;
}

struct args {
    struct synth s;
    const char *vocab_from, *output;
    bool has_head_type;
    const char *from; /* NULL: random weights */
    uint32_t keep[KEEP_MAX];
    size_t n_keep;
    const struct hf_write_options *layout; /* layout of a directory; NULL: a GGUF file */
    const char *settings[SETTINGS_MAX];
};

static int usage(FILE *to)
{
    fprintf(to, "usage: mkmodel [--preset NAME] [options] -o OUT.gguf\n"
                "  --preset NAME      ");
    for (size_t i = 0; synth_preset_name(i); i++)
        fprintf(to, "%s%s", i ? ", " : "", synth_preset_name(i));
    fprintf(to,
        "\n"
        "  --arch NAME        a family that the server supports\n"
        "  --name TEXT        general.name of the file\n"
        "  --type TYPE        type of the layers: F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K\n"
        "                     Q4_K Q5_K Q6_K IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S\n"
        "                     IQ4_NL IQ4_XS TQ1_0 TQ2_0 Q1_0 Q2_0 MXFP4 NVFP4; Q4_K_M, Q5_K_M: "
        "with some matrices in Q6_K\n"
        "  --head-type TYPE   type of the embedding and output matrix (default: Q6_K if --type "
        "has\n"
        "                     less than 8 bits, else --type)\n"
        "  --layers --embd --heads --kv-heads --head-dim --ff --vocab --ctx N\n"
        "  --experts N        experts per layer, of size --ff each; 0: dense\n"
        "  --experts-used N   experts per token\n"
        "  --vocab-from FILE  copy vocabulary and chat template from another GGUF file\n"
        "  --tied, --no-tied  whether the output matrix is the embedding\n"
        "  --seed N           seed of the weights\n"
        "  --set KEY=VALUE    metadata with the prefix of the architecture, for example\n"
        "                     rope.scaling.type=yarn; may be repeated\n"
        "  --optional         with the biases and QK-norms that the family does not require\n"
        "  --scales           with a factor NAME.scale of each matrix, as in files of type NVFP4\n"
        "  --vector-sigma X   deviation of biases, and of norms from 1 (default: 0.02)\n"
        "  --from FILE --keep A,B,...   copy FILE with only these layers\n"
        "  --from FILE --directory hf|mlx|fp8|mxfp8   write FILE as a Hugging Face or MLX\n"
        "                     directory; F32 matrices in fp8 (Hugging Face) or mxfp8 (MLX)\n");
    return to == stdout ? 0 : 2;
}

/* Mixed types: Q4_K_M is Q4_K with some matrices in Q6_K, Q5_K_M is Q5_K with some in Q6_K. */
static bool parse_mixture(const char *text, struct synth *s)
{
    s->is_mixed = true;
    if (str_eq_nocase(str_of(text), STR("Q4_K_M")))
        s->type = Q_Q4_K;
    else if (str_eq_nocase(str_of(text), STR("Q5_K_M")))
        s->type = Q_Q5_K;
    else
        s->is_mixed = false;
    return s->is_mixed;
}

static bool parse_type(const char *text, enum qtype *out)
{
    for (uint32_t i = 0; i < 64; i++) {
        if (qtype_info(i) && str_eq_nocase(str_of(text), str_of(qtype_info(i)->name))) {
            *out = (enum qtype)i;
            return true;
        }
    }
    return false;
}

static uint32_t *size_option(struct synth *s, int option)
{
    switch (option) {
    case OPT_LAYERS:
        return &s->n_layers;
    case OPT_EMBD:
        return &s->d_model;
    case OPT_HEADS:
        return &s->n_heads;
    case OPT_KV_HEADS:
        return &s->n_kv_heads;
    case OPT_HEAD_DIM:
        return &s->head_dim;
    case OPT_FF:
        return &s->d_ff;
    case OPT_VOCAB:
        return &s->n_vocab;
    case OPT_CTX:
        return &s->n_ctx;
    case OPT_EXPERTS:
        return &s->n_experts;
    case OPT_USED:
        return &s->n_experts_used;
    default:
        return NULL;
    }
}

static bool parse_layers(struct args *a, const char *text)
{
    struct str rest = str_of(text);

    for (a->n_keep = 0; rest.n && a->n_keep < KEEP_MAX;) {
        ptrdiff_t comma = str_find(rest, STR(","));
        struct str item = { rest.p, comma < 0 ? rest.n : (size_t)comma };
        uint64_t n;
        if (!str_to_u64(item, &n) || n > UINT32_MAX)
            return false;
        a->keep[a->n_keep++] = (uint32_t)n;
        rest = comma < 0 ? STR_NONE : str_skip(rest, item.n + 1);
    }
    return a->n_keep > 0 && !rest.n;
}

/* Adds a setting to those of the preset, or replaces the one with the same key. */
static bool add_setting(struct args *a, const char *text)
{
    const char *end = strchr(text, '=');
    size_t i = 0;

    if (!end)
        return false;
    if (a->s.n_settings && a->s.settings != a->settings)
        memcpy(a->settings, a->s.settings, a->s.n_settings * sizeof(*a->settings));
    a->s.settings = a->settings;
    while (i < a->s.n_settings && strncmp(a->settings[i], text, (size_t)(end - text) + 1) != 0)
        i++;
    if (i == SETTINGS_MAX)
        return false;
    a->settings[i] = text;
    a->s.n_settings = MAX(a->s.n_settings, i + 1);
    return true;
}

/* Returns false for an invalid value. */
static bool apply_option(struct args *a, int option, const char *value)
{
    uint32_t *size = size_option(&a->s, option);
    uint64_t n;

    if (option == OPT_OPTIONAL || option == OPT_SCALES) {
        *(option == OPT_SCALES ? &a->s.has_scales : &a->s.has_optional) = true;
        return true;
    }
    if (size) {
        if (!str_to_u64(str_of(value), &n) || n > UINT32_MAX)
            return false;
        *size = (uint32_t)n;
        return true;
    }
    switch (option) {
    case OPT_PRESET:
        return synth_preset(&a->s, value);
    case OPT_ARCH:
        a->s.arch = value;
        return true;
    case OPT_NAME:
        a->s.name = value;
        return true;
    case OPT_TYPE:
        return parse_mixture(value, &a->s) || parse_type(value, &a->s.type);
    case OPT_HEAD_TYPE:
        a->has_head_type = true;
        return parse_type(value, &a->s.head_type);
    case OPT_VOCAB_FROM:
        a->vocab_from = value;
        return true;
    case OPT_TIED:
    case OPT_NO_TIED:
        a->s.is_tied = option == OPT_TIED;
        return true;
    case OPT_SET:
        return add_setting(a, value);
    case OPT_VECTOR_SIGMA:
        a->s.vector_sigma = strtof(value, NULL);
        return a->s.vector_sigma > 0 && a->s.vector_sigma <= 1;
    case OPT_SEED:
        return str_to_u64(str_of(value), &a->s.seed);
    case OPT_FROM:
        a->from = value;
        return true;
    case OPT_KEEP:
        return parse_layers(a, value);
    case OPT_DIRECTORY:
        a->layout = find_layout(value);
        return a->layout;
    case 'o':
        a->output = value;
        return true;
    default:
        return false;
    }
}

static void show_progress(void *arg, uint64_t done, uint64_t all)
{
    fprintf(stderr, "\r%5.1f %% of %.1f MB ", 100 * (double)done / (double)all, (double)all / 1e6);
    if (done == all)
        fprintf(stderr, "\n");
}

/* Real files store the embedding and the output matrix with more bits than the layers. */
static enum qtype usual_head_type(enum qtype type)
{
    switch ((int)type) {
    case Q_F32:
    case Q_F16:
    case Q_BF16:
    case Q_Q8_0:
        return type;
    default:
        return Q_Q6_K;
    }
}

/* A copy with fewer layers, or as a directory. */
static int copy_model(const struct args *a, struct err *e)
{
    struct gguf *g;

    if (gguf_open(&g, a->from, e))
        return -1;
    int rc = a->layout ? hf_write(g, a->output, a->layout, e)
                       : drop_layers_write(g, a->keep, a->n_keep, a->output, e);
    gguf_close(g);
    return rc;
}

static int write_model(struct args *a, struct err *e)
{
    struct gguf *g = NULL;

    if (a->from)
        return copy_model(a, e);
    if (!a->has_head_type)
        a->s.head_type = usual_head_type(a->s.type);
    if (isatty(STDERR_FILENO))
        a->s.progress = show_progress;
    if (a->vocab_from) {
        if (gguf_open(&g, a->vocab_from, e))
            return -1;
        const struct gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");
        if (tokens && tokens->kind == GGUF_ARR && tokens->arr.n < UINT32_MAX)
            a->s.n_vocab = (uint32_t)tokens->arr.n;
        a->s.vocab_from = g;
    }
    int rc = synth_write(&a->s, a->output, e);
    gguf_close(g);
    return rc;
}

int main(int argc, char **argv)
{
    struct args a = { 0 };
    struct err e = { 0 };
    int option;

    synth_preset(&a.s, "tiny");
    while ((option = getopt_long(argc, argv, "o:h", options, NULL)) != -1) {
        if (option == 'h')
            return usage(stdout);
        if (option == '?')
            return usage(stderr);
        if (!apply_option(&a, option, optarg)) {
            fprintf(stderr, "mkmodel: %s has the invalid value '%s'\n", argv[optind - 2],
                optarg ? optarg : "");
            return 2;
        }
    }
    if (!a.output || optind < argc)
        return usage(stderr);
    if (write_model(&a, &e)) {
        fprintf(stderr, "mkmodel: %s\n", e.msg);
        return 1;
    }
    return 0;
}
