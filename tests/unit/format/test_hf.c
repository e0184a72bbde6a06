/* format/hf: model directories that are refused, with one line that names the file, the name and
 * the value; names and links that may not leave the directory; failing allocations and system
 * calls. */
#include "support/check.h"
#include "support/tmpdir.h"

#include "base/fault.h"
#include "base/mem.h"
#include "base/rng.h"
#include "format/hf/hf_family.h"
#include "format/model_file.h"
#include "model/llama.h"
#include "testing/hf_write.h"
#include "testing/synth.h"
#include "tokenizer/vocab.h"

#include <sys/stat.h>

static char folder[TMPDIR_NAME], dir[TMPDIR_NAME + 120];

static void path_of(char out[512], const char *name)
{
    snprintf(out, 512, "%s/%s", dir, name);
}

static struct buf read_file(const char *name)
{
    char path[512], chunk[4096];
    struct buf b;
    size_t n;

    path_of(path, name);
    FILE *f = fopen(path, "rb");
    EXPECT(f);
    buf_init(&b, 16 * MB);
    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0)
        buf_put(&b, chunk, n);
    fclose(f);
    return b;
}

static void write_file(const char *name, const char *p, size_t n)
{
    char path[512];

    path_of(path, name);
    FILE *f = fopen(path, "wb");
    EXPECT(f && fwrite(p, 1, n, f) == n && !fclose(f));
}

/* The model of a preset in dir, of n_layers layers unless it is 0. */
static void make_preset_in(
    const char *name, const char *preset, uint32_t n_layers, const struct hf_write_options *o)
{
    char gguf[TMPDIR_NAME + 16];
    struct synth s;
    struct gguf *g = NULL;
    struct err e = { 0 };

    snprintf(dir, sizeof(dir), "%s/%s", folder, name);
    snprintf(gguf, sizeof(gguf), "%s/m.gguf", folder);
    EXPECT(synth_preset(&s, preset));
    s.n_layers = n_layers ? n_layers : s.n_layers;
    s.type = s.head_type = Q_BF16;
    EXPECT(!synth_write(&s, gguf, &e) && !gguf_open(&g, gguf, &e));
    EXPECT(!mkdir(dir, 0700) && !hf_write(g, dir, o, &e));
    gguf_close(g);
}

/* A model of one layer in two files. */
static void make_model_in(const char *name)
{
    static const struct hf_write_options o = { .n_shards = 2 };

    make_preset_in(name, "tiny-qwen3", 1, &o);
}

static void make_model(void)
{
    tmpdir_make(folder);
    make_model_in("model");
}

/* Opens the directory and its vocabulary. */
static int open_model(struct err *e)
{
    struct gguf *g = NULL;
    struct vocab *v = NULL;
    int rc = model_file_open(&g, dir, e) || vocab_open(&v, g, e) ? -1 : 0;

    vocab_close(v);
    gguf_close(g);
    return rc;
}

static void expect_error(enum errcode code, const char *message)
{
    struct err e = { 0 };

    EXPECT_EQ(open_model(&e), -1);
    if (e.code != code || !strstr(e.msg, message) || strchr(e.msg, '\n'))
        fprintf(stderr, "expected '%s' (%s), got '%s' (%s)\n", message, errcode_name(code), e.msg,
            errcode_name(e.code));
    EXPECT(e.code == code && strstr(e.msg, message) && !strchr(e.msg, '\n'));
}

/* Replaces the first occurrence of `from`, opens, and restores the file. */
static void expect_error_with(
    const char *name, const char *from, const char *to, enum errcode code, const char *message)
{
    struct buf b = read_file(name), changed;
    ptrdiff_t at = str_find(buf_str(&b), str_of(from));

    if (at < 0)
        fprintf(stderr, "%s does not contain %s\n", name, from);
    EXPECT(at >= 0);
    buf_init(&changed, 16 * MB);
    buf_put(&changed, b.p, (size_t)at);
    buf_putz(&changed, to);
    buf_puts(&changed, str_skip(buf_str(&b), (size_t)at + strlen(from)));
    write_file(name, changed.p, changed.n);
    expect_error(code, message);
    write_file(name, b.p, b.n);
    buf_clear(&b);
    buf_clear(&changed);
}

static void a_directory_is_opened(void)
{
    struct gguf *g;
    struct err e = { 0 };
    struct str s;
    char with_slash[sizeof(dir) + 2];

    make_model();
    snprintf(with_slash, sizeof(with_slash), "%s/", dir);
    EXPECT_EQ(model_file_open(&g, with_slash, &e), 0);
    EXPECT(gguf_is_translated(g) && !gguf_is_lost(g) && gguf_is_unchanged(g));
    EXPECT(gguf_get_str(g, "general.name", &s) && str_is(s, "model"));
    EXPECT_EQ(gguf_n_parts(g), 6ul); /* three JSON files, the index, two shards */
    EXPECT(gguf_file_bytes(g) > 100000);
    gguf_close(g);
    tmpdir_remove(folder);
}

static void configurations_are_refused_by_name_and_value(void)
{
    static const struct {
        const char *from, *to;
        enum errcode code;
        const char *message;
    } rows[] = {
        { "{", "", ERR_SYNTAX, "config.json" },
        { "\"qwen3\"", "\"mamba\"", ERR_UNSUPPORTED, "model_type 'mamba' is not supported" },
        { "\"silu\"", "\"relu2\"", ERR_UNSUPPORTED, "hidden_act = \"relu2\"" },
        { "\"num_hidden_layers\":1", "\"num_hidden_layers\":-1", ERR_CORRUPT, "= -1 is not" },
        { "\"num_hidden_layers\":1", "\"num_hidden_layers\":[\n]", ERR_CORRUPT, "several lines" },
        { "\"num_hidden_layers\":1", "\"num_hidden_layers\":5000", ERR_RANGE, "5000 layers" },
        { "\"hidden_size\"", "\"hidden\"", ERR_CORRUPT, "hidden_size is missing" },
        { "\"head_dim\":32", "\"head_dim\":0", ERR_RANGE, "of 0 dimensions" },
        { "\"rope_theta\":10000", "\"rope_theta\":\"x\"", ERR_CORRUPT, "rope_theta = \"x\"" },
        { "\"rope_scaling\":null", "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}",
            ERR_UNSUPPORTED, "rope_scaling = {\"type\":\"dynamic\"" },
        { "\"rope_scaling\":null", "\"rope_scaling\":{\"type\":\"yarn\"}", ERR_UNSUPPORTED,
            "rope_scaling" },
        { "\"rope_scaling\":null", "\"quantization_config\":{\"quant_method\":\"gptq\"}",
            ERR_UNSUPPORTED, "quant_method = \"gptq\"" },
        { "\"rope_scaling\":null", "\"quantization\":{\"bits\":7,\"group_size\":64}",
            ERR_UNSUPPORTED, "7 bits in groups of 64" },
        { "\"rope_scaling\":null", "\"layer_types\":[\"linear_attention\"]", ERR_UNSUPPORTED,
            "\"linear_attention\"" },
        { "\"rope_scaling\":null", "\"layer_types\":[]", ERR_CORRUPT, "array of 1 strings" },
        { "\"vocab_size\":307", "\"vocab_size\":307,\"mlp_only_layers\":[0]", ERR_UNSUPPORTED,
            "mlp_only_layers = [0]" },
        { "\"vocab_size\":307", "\"vocab_size\":307,\"decoder_sparse_step\":2", ERR_UNSUPPORTED,
            "decoder_sparse_step = 2" },
        { "\"tie_word_embeddings\":false", "\"tie_word_embeddings\":null,\"no_rope_layers\":[0]",
            ERR_UNSUPPORTED, "no_rope_layers = [0]" },
    };

    make_model();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        expect_error_with("config.json", rows[i].from, rows[i].to, rows[i].code, rows[i].message);
    tmpdir_remove(folder);
}

static void tensors_are_refused_by_name(void)
{
    static const char shard[] = "model-00001-of-00002.safetensors";
    static const char index[] = "model.safetensors.index.json";

    make_model();
    expect_error_with(shard, "model.embed_tokens.weight", "model.embed_tokens.weighs",
        ERR_UNSUPPORTED, "model.embed_tokens.weighs is not expected in family qwen3");
    expect_error_with(shard, "layers.0.", "layers.1.", ERR_CORRUPT, "the network has 1 layers");
    expect_error_with(shard, "\"BF16\"", "\"F8_E4M3\"", ERR_CORRUPT, "its type and shape require");
    expect_error_with(
        index, "-00001-of-", "-00003-of-", ERR_NOT_FOUND, "model-00003-of-00002.safetensors");
    expect_error_with(index, "model-00001-of-00002.safetensors", "../m.safetensors", ERR_INVALID,
        "'../m.safetensors' is not the name of a file in the directory");
    expect_error_with(index, "model-00001-of-00002.safetensors", "/etc/x.safetensors", ERR_INVALID,
        "is not the name of a file");
    expect_error_with(index, "model-00001-of-00002.safetensors", ".x.safetensors", ERR_INVALID,
        "is not the name of a file");
    expect_error_with(index, "model-00001-of-00002.safetensors", "m\\u000a.safetensors",
        ERR_INVALID, "'?' is not the name of a file");
    expect_error_with(index, "model-00001-of-00002.safetensors", "m.bin", ERR_CORRUPT,
        "is not a safetensors file");
    expect_error_with(index, "weight_map", "weights", ERR_CORRUPT, "weight_map is not an object");
    expect_error_with(index, "\"model.embed_tokens.weight\"", "\"absent\"", ERR_CORRUPT,
        "tensor absent is not in the file");
    struct buf b = read_file(shard);
    write_file("model-00002-of-00002.safetensors", b.p, b.n);
    expect_error(ERR_CORRUPT, "are the same matrix");
    buf_clear(&b);
    tmpdir_remove(folder);
}

/* Mamba2 layers have vectors and a convolution that have another shape in GGUF terms. */
static void tensors_of_hybrid_models_are_checked(void)
{
    static const char file[] = "model.safetensors", mixer[] = "backbone.layers.0.mixer.";
    static const struct hf_write_options o = { .n_shards = 1 };
    char from[96], to[96];
    struct err e = { 0 };

    tmpdir_make(folder);
    make_preset_in("model", "tiny-nemotron-h-moe", 0, &o);
    EXPECT_EQ(open_model(&e), 0);
    expect_error_with(file, "[264,1,4]", "[264,2,2]", ERR_CORRUPT,
        "layers.0.mixer.conv1d.weight: expected [channels, 1, taps]");
    snprintf(from, sizeof(from), "\"%sA_log\":{\"dtype\":\"F32\"", mixer);
    snprintf(to, sizeof(to), "\"%sA_log\":{\"dtype\":\"I32\"", mixer);
    expect_error_with(file, from, to, ERR_UNSUPPORTED, "A_log: type I32 is not supported");
    snprintf(from, sizeof(from), "\"%sA_log\"", mixer);
    snprintf(to, sizeof(to), "\"%sA_lag\"", mixer);
    expect_error_with(
        file, from, to, ERR_UNSUPPORTED, "A_lag is not expected in family nemotron_h");
    expect_error_with("config.json", "\"n_groups\":3", "\"n_groups\":7", ERR_CORRUPT,
        "mixer.norm.weight: expected a vector of whole groups");
    tmpdir_remove(folder);
}

/* Newer files have "model." for "backbone.". Draft layers are not part of the language model. */
static void names_of_hybrid_models_have_two_forms(void)
{
    static const struct {
        const char *from, *to;
    } rows[] = { { "\"backbone.norm_f.weight\":", "\"model.norm_f.weight\":   " },
        { "\"backbone.layers.0.mixer.D\":", "\"model.layers.0.mixer.D\":   " } };
    static const struct hf_write_options o = { .n_shards = 1 };
    struct err e = { 0 };

    tmpdir_make(folder);
    make_preset_in("model", "tiny-nemotron-h", 0, &o);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf b = read_file("model.safetensors");
        ptrdiff_t at = str_find(buf_str(&b), str_of(rows[i].from));
        EXPECT(at > 0);
        memcpy(b.p + at, rows[i].to, strlen(rows[i].to));
        write_file("model.safetensors", b.p, b.n);
        buf_clear(&b);
        EXPECT_EQ(open_model(&e), 0);
    }
    EXPECT(hf_tensor_is_ignored(STR("mtp.layers.0.enorm.weight")));
    tmpdir_remove(folder);
}

static void tokenizers_are_refused_by_name(void)
{
    static const struct {
        const char *from, *to;
        enum errcode code;
        const char *message;
    } rows[] = {
        { "\"BPE\"", "\"Unigram\"", ERR_UNSUPPORTED, "model.type Unigram" },
        { "\"ignore_merges\":false", "\"byte_fallback\":true", ERR_UNSUPPORTED, "byte_fallback" },
        { "\"ignore_merges\":false", "\"dropout\":0.1", ERR_UNSUPPORTED, "dropout 0.1" },
        { "\"ignore_merges\":false", "\"end_of_word_suffix\":\"</w>\"", ERR_UNSUPPORTED,
            "end_of_word_suffix </w>" },
        { "\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}", ERR_UNSUPPORTED,
            "normalizer Lowercase" },
        { "\"Isolated\"", "\"Removed\"", ERR_UNSUPPORTED, "split behavior Removed" },
        { "(?i:'s|", "(?i:'x|", ERR_UNSUPPORTED, "expression (?i:'x|'t|" },
        { "\"Sequence\"", "\"Metaspace\"", ERR_UNSUPPORTED, "pre_tokenizer Metaspace" },
        { "\"decoder\":{\"type\":\"ByteLevel\"}", "\"decoder\":{\"type\":\"Fuse\"}",
            ERR_UNSUPPORTED, "decoder Fuse" },
        { "\"id\":304", "\"id\":307", ERR_CORRUPT, "has the id 307, the embedding has 307 rows" },
        { "\"id\":304", "\"id\":303", ERR_CORRUPT, "have the id 303" },
        { "\"id\":304", "\"id\":\"x\"", ERR_CORRUPT, "has no id" },
        { "\"merges\":[", "\"merges\":[[\"a b\",\"c\"],", ERR_CORRUPT, "merge 0 is not a pair" },
        { "\"normalizer\":null", "\"post_processor\":{\"type\":\"BertProcessing\"}",
            ERR_UNSUPPORTED, "post_processor BertProcessing" },
    };
    char path[512];

    make_model();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        expect_error_with(
            "tokenizer.json", rows[i].from, rows[i].to, rows[i].code, rows[i].message);
    path_of(path, "tokenizer.json");
    unlink(path);
    expect_error(ERR_UNSUPPORTED, "tokenizer.json is missing");
    tmpdir_remove(folder);
}

/* Replaces the first occurrence of `from` in a file. */
static void replace_in(const char *name, const char *from, const char *to)
{
    struct buf b = read_file(name), changed;
    ptrdiff_t at = str_find(buf_str(&b), str_of(from));

    EXPECT(at >= 0);
    buf_init(&changed, 16 * MB);
    buf_put(&changed, b.p, (size_t)at);
    buf_putz(&changed, to);
    buf_puts(&changed, str_skip(buf_str(&b), (size_t)at + strlen(from)));
    write_file(name, changed.p, changed.n);
    buf_clear(&b);
    buf_clear(&changed);
}

#define SPLIT(regex)                                                                               \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex                                          \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}"

/* The pre-tokenizer of DeepSeek V3: three expressions, with line breaks as characters. */
static void a_sequence_of_expressions_is_recognised(void)
{
    static const char splits[] = "\"pretokenizers\":[" SPLIT("\\\\p{N}{1,3}") "," SPLIT(
        "[一-龥぀-ゟ゠-ヿ]"
        "+") "," SPLIT("[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|"
                       "[^\\r\\n\\\\p{L}\\\\p{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| "
                       "?[\\\\p{P}\\\\p{S}]+[\\r\\n]*|"
                       "\\\\s*[\\r\\n]+|\\\\s+(?!\\\\S)|\\\\s+") ",{\"type\":\"ByteLevel\",\"use_"
                                                                 "regex\":"
                                                                 "false}"
                                                                 "],\"unused\":[";
    struct gguf *g;
    struct vocab *v;
    struct err e = { 0 };

    make_model();
    replace_in("tokenizer.json", "\"pretokenizers\":[", splits);
    EXPECT_EQ(model_file_open(&g, dir, &e), 0);
    EXPECT_EQ(vocab_open(&v, g, &e), 0);
    EXPECT(!strcmp(vocab_pre(v), "deepseek-v3"));
    vocab_close(v);
    gguf_close(g);
    expect_error_with("tokenizer.json", "]+", "]*", ERR_UNSUPPORTED, "the expression ?");
    tmpdir_remove(folder);
}

/* The order of value heads requires whole heads; norms have the meaning of one format. */
static void tensors_of_delta_net_models_are_checked(void)
{
    static const char file[] = "model.safetensors";
    static const struct {
        const char *name, *from, *to, *message; /* `to` is as long as `from` */
        enum errcode code;
    } rows[] = {
        { "A_log", "F32", "I32", "A_log: type I32 is not supported", ERR_UNSUPPORTED },
        { "conv1d.weight", "[200,1,4]", "[200,2,2]", "[channels, 1, taps]", ERR_CORRUPT },
        { "conv1d.weight", "[200,1,4]", "[200,4,1]", "the layouts of two formats", ERR_CORRUPT },
        { "conv1d.weight", "[200,1,4]", "[400,1,2]", "400 rows are not 6 heads", ERR_CORRUPT },
        { "in_proj_qkv.weight", "[200,96]", "[300,64]", "300 rows are not 6 heads", ERR_CORRUPT },
        { "in_proj_z.weight", "[120,96]", "[128,90]", "128 rows are not 6 heads", ERR_CORRUPT },
        { "out_proj.weight", "[96,120]", "[90,128]", "128 columns are not 6 heads", ERR_CORRUPT },
        { "in_proj_z", "proj_z", "proj_y", "in_proj_y.weight is not expected", ERR_UNSUPPORTED },
    };
    static const struct hf_write_options o = { .n_shards = 1 };
    struct err e = { 0 };

    tmpdir_make(folder);
    make_preset_in("model", "tiny-qwen35", 0, &o);
    EXPECT_EQ(open_model(&e), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf b = read_file(file);
        char name[96];
        const size_t n = strlen(rows[i].from);
        snprintf(name, sizeof(name), "\"model.layers.0.linear_attn.%s", rows[i].name);
        const ptrdiff_t at = str_find(buf_str(&b), str_of(name));
        EXPECT(at > 0);
        const ptrdiff_t in = str_find(str_skip(buf_str(&b), (size_t)at), str_of(rows[i].from));
        EXPECT(in > 0 && strlen(rows[i].to) == n);
        memcpy(b.p + at + in, rows[i].to, n);
        write_file(file, b.p, b.n);
        expect_error(rows[i].code, rows[i].message);
        memcpy(b.p + at + in, rows[i].from, n);
        write_file(file, b.p, b.n);
        buf_clear(&b);
    }
    tmpdir_remove(folder);
}

/* Gemma 4: a quarter of a head of full layers is rotated; layers without attn_v are as stated. */
static void values_of_gemma4_are_checked(void)
{
    static const struct hf_write_options o = { .n_shards = 1 };
    static const char llama3[] = "\"rope_type\":\"llama3\",\"factor\":8";
    struct err e = { 0 };
    struct gguf *g;
    float f;

    tmpdir_make(folder);
    make_preset_in("model", "tiny-gemma4", 0, &o);
    EXPECT_EQ(open_model(&e), 0);
    expect_error_with("config.json", "\"attention_k_eq_v\":true", "\"attention_k_eq_v\":false",
        ERR_CORRUPT, "layers.2.self_attn.v_proj is missing: attention_k_eq_v = false");
    expect_error_with("model.safetensors", "layers.0.self_attn.v_proj", "layers.2.self_attn.v_proj",
        ERR_CORRUPT, "layers.0.self_attn.v_proj is missing: attention_k_eq_v = true");
    expect_error_with("model.safetensors", "layers.3.self_attn.v_proj", "layers.2.self_attn.v_proj",
        ERR_CORRUPT, "layers.2.self_attn.v_proj is unexpected: attention_k_eq_v = true");
    replace_in("config.json", llama3,
        "\"rope_type\":\"proportional\",\"factor\":2,\"partial_rotary_factor\":0.25");
    EXPECT_EQ(model_file_open(&g, dir, &e), 0);
    const struct gguf_tensor *t = gguf_tensor(g, "rope_freqs.weight");
    EXPECT(t && t->dims[0] == 24);
    for (int i = 0; i < 24; i++) {
        memcpy(&f, t->data + (size_t)i * sizeof(f), sizeof(f));
        EXPECT(i < 6 ? f == 2.0f : f == 1e30f);
    }
    gguf_close(g);
    tmpdir_remove(folder);
}

/* Replaces the start of all names of tensors that begin with it. */
static void rename_tensors(const char *from, const char *to)
{
    struct buf file = read_file("model.safetensors"), header, all;
    struct str data = str_skip(buf_str(&file), 8), left;
    uint64_t n;

    memcpy(&n, file.p, sizeof(n));
    left = (struct str){ data.p, (size_t)n };
    buf_init(&header, MB);
    for (ptrdiff_t at; (at = str_find(left, str_of(from))) >= 0;) {
        buf_put(&header, left.p, (size_t)at);
        buf_putz(&header, to);
        left = str_skip(left, (size_t)at + strlen(from));
    }
    buf_puts(&header, left);
    data = str_skip(data, (size_t)n);
    n = header.n;
    buf_init(&all, 16 * MB);
    buf_put(&all, &n, sizeof(n));
    buf_puts(&all, buf_str(&header));
    buf_puts(&all, data);
    write_file("model.safetensors", all.p, all.n);
    buf_clear(&all);
    buf_clear(&header);
    buf_clear(&file);
}

/* The language model of a multimodal checkpoint has other names; the tensors of vision and of draft
 * layers are not loaded. */
static void multimodal_directories_are_read(void)
{
    static const char *const ignored[] = { "model.visual.blocks.0.attn.qkv.weight",
        "mtp.layers.0.self_attn.q_proj.weight", "model.mtp.fc.weight",
        "model.vision_embedder.patch_dense.weight",
        "model.embed_audio.embedding_projection.weight" };
    static const struct hf_write_options o = { .n_shards = 1 };
    struct err e = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        EXPECT(hf_tensor_is_ignored(str_of(ignored[i])));
    tmpdir_make(folder);
    make_preset_in("model", "tiny-qwen35moe", 0, &o);
    replace_in("config.json", "{\"model_type\":\"qwen3_5_moe\"",
        "{\"model_type\":\"qwen3_5_moe\",\"vision_config\":{},\"text_config\":{\"model_type\":"
        "\"qwen3_5_moe_text\"");
    struct buf b = read_file("config.json");
    buf_putc(&b, '}');
    write_file("config.json", b.p, b.n);
    buf_clear(&b);
    EXPECT_EQ(open_model(&e), 0);
    rename_tensors("\"model.", "\"model.language_model.");
    EXPECT_EQ(open_model(&e), 0);
    rename_tensors("\"model.language_model.", "\"language_model.model.");
    rename_tensors("\"lm_head.", "\"language_model.lm_head.");
    EXPECT_EQ(open_model(&e), 0);
    rename_tensors("\"language_model.model.layers.0.mlp", "\"model.visual.layers.0.mlp");
    EXPECT_EQ(open_model(&e), 0); /* missing tensors are found when the weights are loaded */
    tmpdir_remove(folder);
}

/* The decoder is that of Gemma 4 without inputs of layers. */
static void unified_directories_of_gemma4_are_read(void)
{
    static const struct hf_write_options o = { .n_shards = 1 };
    struct err e = { 0 };
    struct gguf *g;
    uint64_t d_input = 1;
    struct str arch;

    tmpdir_make(folder);
    make_preset_in("model", "tiny-gemma4", 0, &o);
    replace_in("config.json", "{\"model_type\":\"gemma4_text\"",
        "{\"model_type\":\"gemma4_unified\",\"vision_config\":{},\"text_config\":{\"model_type\":"
        "\"gemma4_unified_text\"");
    replace_in("config.json", "\"hidden_size_per_layer_input\":0,", "");
    struct buf b = read_file("config.json");
    buf_putc(&b, '}');
    write_file("config.json", b.p, b.n);
    buf_clear(&b);
    rename_tensors("\"model.", "\"model.language_model.");
    EXPECT_EQ(model_file_open(&g, dir, &e), 0);
    EXPECT(gguf_get_str(g, "general.architecture", &arch) && str_is(arch, "gemma4"));
    EXPECT(gguf_get_u64(g, "gemma4.embedding_length_per_layer_input", &d_input) && !d_input);
    EXPECT(gguf_tensor(g, "blk.5.attn_q.weight") && !gguf_tensor(g, "per_layer_proj_norm.weight"));
    gguf_close(g);
    expect_error_with("config.json", "\"attention_bias\":false",
        "\"use_bidirectional_attention\":\"all\"", ERR_UNSUPPORTED,
        "use_bidirectional_attention = \"all\"");
    tmpdir_remove(folder);
}

/* That of Qwen 3.5, where marks belong to words. */
static void an_expression_with_marks_is_recognised(void)
{
    static const char split[] = "\"pretokenizers\":[" SPLIT(
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|\\\\p{"
        "N}"
        "| "
        "?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\r\\n]*|\\\\s*[\\r\\n]+|\\\\s+(?!\\\\S)|"
        "\\\\s+") ",{"
                  "\"type\":\"ByteLevel\",\"use_regex\":false}],\"unused\":[";
    struct gguf *g;
    struct vocab *v;
    struct err e = { 0 };

    make_model();
    replace_in("tokenizer.json", "\"pretokenizers\":[", split);
    EXPECT_EQ(model_file_open(&g, dir, &e), 0);
    EXPECT_EQ(vocab_open(&v, g, &e), 0);
    EXPECT(!strcmp(vocab_pre(v), "qwen35"));
    vocab_close(v);
    gguf_close(g);
    tmpdir_remove(folder);
}

/* Layers after the last one are for drafts, as many as config.json states. */
static void draft_layers_are_not_read(void)
{
    struct err e;

    make_model();
    replace_in("config.json", "\"vocab_size\"", "\"num_nextn_predict_layers\":2,\"vocab_size\"");
    replace_in("model-00002-of-00002.safetensors", "layers.0.", "layers.2.");
    replace_in("model.safetensors.index.json", "layers.0.", "layers.2.");
    EXPECT_EQ(open_model(&e), 0);
    expect_error_with("config.json", "\"num_nextn_predict_layers\":2",
        "\"num_nextn_predict_layers\":1", ERR_CORRUPT, "the network has 1 layers");
    tmpdir_remove(folder);
}

#define MISTRAL4                                                                                   \
    "\"mistral4\",\"n_routed_experts\":8,\"qk_rope_head_dim\":16,\"qk_nope_head_dim\":48,"         \
    "\"v_head_dim\":16,\"kv_lora_rank\":32,\"num_experts_per_tok\":2"
#define MISTRAL4_ROPE(values)                                                                      \
    MISTRAL4                                                                                       \
    ",\"norm_topk_prob\":true,\"rope_parameters\":{\"type\":\"yarn\",\"factor\":8," values "}"

static void values_of_other_families_are_refused(void)
{
    static const struct {
        const char *from, *to;
        enum errcode code;
        const char *message;
    } rows[] = {
        { "\"qwen3\"", "\"deepseek_v3\"", ERR_CORRUPT, "num_experts is missing" },
        { "\"qwen3\"", "\"deepseek_v3\",\"n_routed_experts\":8", ERR_CORRUPT,
            "qk_rope_head_dim is missing" },
        { "\"qwen3\"", "\"deepseek_v3\",\"n_routed_experts\":8,\"qk_rope_head_dim\":0", ERR_RANGE,
            "of 0 dimensions" },
        { "\"qwen3\"", "\"deepseek_v3\",\"n_routed_experts\":8,\"qk_rope_head_dim\":16",
            ERR_CORRUPT, "qk_nope_head_dim is missing" },
        { "\"qwen3\"",
            "\"deepseek_v3\",\"n_routed_experts\":8,\"qk_rope_head_dim\":16,"
            "\"rope_interleave\":false",
            ERR_UNSUPPORTED, "rope_interleave = false" },
        { "\"qwen3\"",
            "\"glm4_moe\",\"n_routed_experts\":8,\"num_experts_per_tok\":2,"
            "\"scoring_func\":\"tanh\"",
            ERR_UNSUPPORTED, "scoring_func = \"tanh\"" },
        { "\"qwen3\"",
            "\"glm4_moe\",\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"n_group\":4,"
            "\"topk_method\":\"group_limited_greedy\"",
            ERR_UNSUPPORTED, "topk_method = \"group_limited_greedy\"" },
        { "\"qwen3\"",
            "\"deepseek_v2\",\"n_routed_experts\":8,\"qk_rope_head_dim\":16,"
            "\"qk_nope_head_dim\":16,\"v_head_dim\":16,\"kv_lora_rank\":16,"
            "\"num_experts_per_tok\":2,\"n_group\":4,\"topk_method\":\"noaux_tc\"",
            ERR_UNSUPPORTED, "topk_method = \"noaux_tc\"" },
        { "\"qwen3\"",
            "\"glm4_moe\",\"n_routed_experts\":8,\"num_experts_per_tok\":2,"
            "\"mlp_layer_types\":[\"sparse\",\"dense\"]",
            ERR_UNSUPPORTED, "mlp_layer_types = [\"sparse\",\"dense\"]" },
        { "\"qwen3\"", "\"lfm2\"", ERR_CORRUPT, "layer_types is not an array of 1 strings" },
        { "\"qwen3\"", "\"lfm2\",\"layer_types\":[\"conv\"],\"conv_bias\":true", ERR_UNSUPPORTED,
            "conv_bias = true" },
        { "\"qwen3\"", "\"lfm2\",\"layer_types\":[\"conv\"]", ERR_CORRUPT,
            "conv_L_cache is missing" },
        { "\"qwen3\"", "\"lfm2\",\"layer_types\":[\"mamba\"],\"conv_L_cache\":3", ERR_UNSUPPORTED,
            "layer_types contains \"mamba\"" },
        { "\"qwen3\"", "\"lfm2\",\"layer_types\":[\"conv\"],\"conv_L_cache\":3,\"block_ff_dim\":0",
            ERR_RANGE, "of 0 dimensions" },
        { "\"qwen3\"",
            "\"lfm2\",\"layer_types\":[\"conv\"],\"conv_L_cache\":3,"
            "\"block_auto_adjust_ff_dim\":true,\"block_multiple_of\":0",
            ERR_UNSUPPORTED, "block_auto_adjust_ff_dim = true" },
        { "\"qwen3\"", MISTRAL4, ERR_CORRUPT, "norm_topk_prob is missing" },
        { "\"qwen3\"", MISTRAL4 ",\"rope_interleave\":false", ERR_UNSUPPORTED,
            "rope_interleave = false" },
        { "\"qwen3\"", MISTRAL4_ROPE("\"partial_rotary_factor\":0.5"), ERR_UNSUPPORTED,
            "partial_rotary_factor = 0.5" },
        { "\"qwen3\"",
            MISTRAL4_ROPE("\"partial_rotary_factor\":0.25,\"mscale\":0.7,\"mscale_all_dim\":0.7"),
            ERR_UNSUPPORTED, "rope_parameters = {" },
        { "\"qwen3\"",
            MISTRAL4_ROPE("\"partial_rotary_factor\":0.25,\"mscale\":1,\"mscale_all_dim\":1,"
                          "\"llama_4_scaling_beta\":-1"),
            ERR_UNSUPPORTED, "llama_4_scaling_beta = -1" },
        { "\"rope_scaling\":null",
            "\"rope_scaling\":{\"type\":\"default\",\"llama_4_scaling_beta\":-1}", ERR_UNSUPPORTED,
            "llama_4_scaling_beta = -1" },
    };

    make_model();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        expect_error_with("config.json", rows[i].from, rows[i].to, rows[i].code, rows[i].message);
    tmpdir_remove(folder);
}

/* All ids of generation_config.json end a choice, and the template of a file has precedence. */
static void roles_and_template_are_read(void)
{
    static const char post[] =
        "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":"
        "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<|im_start|>\"}},"
        "{\"Sequence\":{\"id\":\"A\"}}]}]},\"normalizer\":{\"type\":\"NFC\"}";
    struct gguf *g;
    struct vocab *v;
    struct err e = { 0 };
    struct str s;

    make_model();
    write_file("generation_config.json", "{\"eos_token_id\": [7, 9, 400]}", 29);
    write_file("chat_template.jinja", "from a file", 11);
    struct buf b = read_file("tokenizer.json"), changed;
    ptrdiff_t at = str_find(buf_str(&b), STR("\"normalizer\":null"));
    EXPECT(at > 0);
    buf_init(&changed, 16 * MB);
    buf_put(&changed, b.p, (size_t)at);
    buf_putz(&changed, post);
    buf_puts(&changed, str_skip(buf_str(&b), (size_t)at + strlen("\"normalizer\":null")));
    write_file("tokenizer.json", changed.p, changed.n);
    EXPECT_EQ(model_file_open(&g, dir, &e), 0);
    EXPECT(gguf_get_str(g, "tokenizer.chat_template", &s) && str_is(s, "from a file"));
    EXPECT_EQ(vocab_open(&v, g, &e), 0);
    EXPECT(vocab_is_end(v, 7) && vocab_is_end(v, 9) && !vocab_is_end(v, 8));
    EXPECT(vocab_add_bos(v) && str_is(vocab_text(v, vocab_bos(v)), "<|im_start|>"));
    vocab_close(v);
    gguf_close(g);
    buf_clear(&b);
    buf_clear(&changed);
    tmpdir_remove(folder);
}

static void other_formats_are_refused_with_what_is_read(void)
{
    static const char *const files[] = { "pytorch_model.bin", "model.pt", "model.pth", "model.onnx",
        "model.gguf" };
    static const char config[] = "{\"model_type\":\"llama\",\"num_hidden_layers\":1,"
                                 "\"hidden_size\":8,\"num_attention_heads\":1}";
    char path[512];
    struct gguf *g;
    struct err e;

    tmpdir_make(folder);
    snprintf(dir, sizeof(dir), "%s", folder);
    expect_error(ERR_NOT_FOUND, "config.json is missing");
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        write_file(files[i], "x", 1);
        expect_error(ERR_UNSUPPORTED, files[i]);
        expect_error(ERR_UNSUPPORTED, "*.safetensors");
        path_of(path, files[i]);
        EXPECT_EQ(model_file_open(&g, path, &e), -1);
        EXPECT_EQ((int)e.code, i < 4 ? ERR_UNSUPPORTED : ERR_CORRUPT);
        EXPECT(i == 4 || strstr(e.msg, "*.safetensors"));
        unlink(path);
    }
    write_file("config.json", config, strlen(config));
    write_file("pytorch_model.bin", "x", 1);
    expect_error(
        ERR_UNSUPPORTED, "model.safetensors is missing, and pytorch_model.bin is a pickle");
    tmpdir_remove(folder);
}

static void move_to(const char *name, const char *to)
{
    char from[512];

    path_of(from, name);
    EXPECT(!rename(from, to));
}

static void links_are_followed_in_a_hub_cache_only(void)
{
    char blob[512], link[512], text[512];
    struct gguf *g;
    struct err e = { 0 };
    struct str s;

    make_model();
    snprintf(blob, sizeof(blob), "%s/outside", folder);
    move_to("config.json", blob);
    path_of(link, "config.json");
    EXPECT(!symlink(blob, link));
    expect_error(ERR_INVALID, "symbolic link, which is followed in a hub cache only");
    tmpdir_remove(folder);

    tmpdir_make(folder);
    snprintf(text, sizeof(text), "%s/models--Org--Some-Model", folder);
    EXPECT(!mkdir(text, 0700));
    snprintf(text, sizeof(text), "%s/models--Org--Some-Model/snapshots", folder);
    EXPECT(!mkdir(text, 0700));
    snprintf(text, sizeof(text), "%s/models--Org--Some-Model/blobs", folder);
    EXPECT(!mkdir(text, 0700));
    make_model_in("models--Org--Some-Model/snapshots/abc123");
    snprintf(blob, sizeof(blob), "%s/models--Org--Some-Model/blobs/0123", folder);
    move_to("config.json", blob);
    path_of(link, "config.json");
    EXPECT(!symlink("../../blobs/0123", link));
    EXPECT_EQ(model_file_open(&g, dir, &e), 0);
    EXPECT(gguf_get_str(g, "general.name", &s) && str_is(s, "Org/Some-Model"));
    gguf_close(g);

    /* the directory of the repository stands for the snapshot of refs/main */
    char snapshot[sizeof(dir)];
    memcpy(snapshot, dir, sizeof(dir));
    snprintf(dir, sizeof(dir), "%s/models--Org--Some-Model", folder);
    expect_error(ERR_NOT_FOUND, "without a revision");
    snprintf(text, sizeof(text), "%s/refs", dir);
    EXPECT(!mkdir(text, 0700));
    write_file("refs/main", "abc123\n", 7);
    EXPECT_EQ(open_model(&e), 0);
    write_file("refs/main", "../../x", 7);
    expect_error(ERR_CORRUPT, "refs/main is not the name of a snapshot");

    /* a link that leaves the cache */
    memcpy(dir, snapshot, sizeof(dir));
    snprintf(blob, sizeof(blob), "%s/outside", folder);
    move_to("tokenizer.json", blob);
    path_of(link, "tokenizer.json");
    EXPECT(!symlink(blob, link));
    expect_error(ERR_INVALID, "which is not in");
    tmpdir_remove(folder);
}

/* Random changes of each file: no crash, and each error is one line. */
static void damaged_files_are_refused(void)
{
    static const char *const files[] = { "config.json", "tokenizer.json", "tokenizer_config.json",
        "model.safetensors.index.json", "model-00001-of-00002.safetensors" };
    struct rng r = { .key = 11 };
    int n_refused = 0;

    make_model();
    for (size_t f = 0; f < ARRAY_LEN(files); f++) {
        struct buf b = read_file(files[f]), changed;
        size_t n = MIN(b.n, (size_t)3000); /* the header of a shard */
        buf_init(&changed, 16 * MB);
        for (int i = 0; i < 60; i++) {
            struct err e = { 0 };
            buf_reset(&changed);
            buf_puts(&changed, buf_str(&b));
            for (int k = 0; k < 1 + i % 3; k++)
                changed.p[rng_below(&r, (uint32_t)n)] = "0919{}[]\",:-x\\\xff"[rng_below(&r, 15)];
            write_file(files[f], changed.p, i % 7 ? changed.n : rng_below(&r, (uint32_t)n) + 1);
            int rc = open_model(&e);
            EXPECT(!rc || (e.msg[0] && !strchr(e.msg, '\n')));
            n_refused += rc != 0;
        }
        write_file(files[f], b.p, b.n);
        buf_clear(&b);
        buf_clear(&changed);
    }
    EXPECT(n_refused > 60);
    struct err e;
    EXPECT_EQ(open_model(&e), 0);
    tmpdir_remove(folder);
}

/* Opens the directory and loads its weights, some of which are computed. */
static int load_model(struct err *e)
{
    const struct llama_options o = { .n_threads = 1, .n_pages = 1, .n_states = 2, .max_rows = 2 };
    struct gguf *g = NULL;
    struct lm *m = NULL;
    int rc = model_file_open(&g, dir, e) || lm_open_llama(&m, g, &o, e) ? -1 : 0;

    if (m)
        m->ops->close(m);
    gguf_close(g);
    return rc;
}

static void every_allocation_may_fail_while_weights_are_loaded(void)
{
    static const struct hf_write_options o = { .n_shards = 1 };
    struct err e = { 0 };
    uint64_t nth = 1;

    tmpdir_make(folder);
    make_preset_in("model", "tiny-nemotron-h-latent", 0, &o);
    for (;; nth++) {
        uint64_t before = mem_failures();
        mem_fail_after(nth);
        int rc = load_model(&e);
        mem_fail_after(0);
        if (mem_failures() == before) {
            EXPECT_EQ(rc, 0);
            break;
        }
        if (rc != -1 || e.code != ERR_MEMORY)
            fprintf(stderr, "allocation %llu: %s\n", (unsigned long long)nth, e.msg);
        EXPECT(rc == -1 && e.code == ERR_MEMORY);
    }
#ifdef TESTING
    EXPECT(nth > 60);
#endif
    tmpdir_remove(folder);
}

static void every_allocation_and_system_call_may_fail(void)
{
    struct err e = { 0 };
    uint64_t nth = 1;
    int n_optional = 0;

    make_model();
    for (;; nth++) {
        uint64_t before = mem_failures();
        mem_fail_after(nth);
        int rc = open_model(&e);
        mem_fail_after(0);
        if (mem_failures() == before) {
            EXPECT_EQ(rc, 0);
            break;
        }
        n_optional += rc == 0;
        if (rc && e.code != ERR_MEMORY)
            fprintf(stderr, "allocation %llu: %s\n", (unsigned long long)nth, e.msg);
        EXPECT(rc == 0 || e.code == ERR_MEMORY);
    }
    /* The memo of merges (tokenizer/merge.c). Only the small build has one for a vocabulary of this
     * size. */
    EXPECT(n_optional <= 1);
#ifdef TESTING
    static const enum fault_site sites[] = { FAULT_OPEN, FAULT_MMAP };
    EXPECT(nth > 60);
    for (size_t i = 0; i < ARRAY_LEN(sites); i++)
        for (uint64_t n = 1; n <= 6; n++) {
            fault_arm(sites[i], n);
            EXPECT_EQ(open_model(&e), -1);
            fault_arm(sites[i], 0);
            EXPECT_EQ((int)e.code, ERR_IO);
        }
#endif
    EXPECT_EQ(open_model(&e), 0);
    tmpdir_remove(folder);
}

TESTS(TEST(a_directory_is_opened), TEST(configurations_are_refused_by_name_and_value),
    TEST(tensors_are_refused_by_name), TEST(tensors_of_hybrid_models_are_checked),
    TEST(names_of_hybrid_models_have_two_forms), TEST(tokenizers_are_refused_by_name),
    TEST(a_sequence_of_expressions_is_recognised), TEST(an_expression_with_marks_is_recognised),
    TEST(draft_layers_are_not_read), TEST(tensors_of_delta_net_models_are_checked),
    TEST(multimodal_directories_are_read), TEST(unified_directories_of_gemma4_are_read),
    TEST(values_of_gemma4_are_checked), TEST(values_of_other_families_are_refused),
    TEST(roles_and_template_are_read), TEST(other_formats_are_refused_with_what_is_read),
    TEST(links_are_followed_in_a_hub_cache_only), TEST(damaged_files_are_refused),
    TEST(every_allocation_may_fail_while_weights_are_loaded),
    TEST(every_allocation_and_system_call_may_fail))
