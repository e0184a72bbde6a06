#include "base/mem.h"
#include "tokenizer/vocab_in.h"

/* Replaces unprintable bytes of a file's string for error messages. */
static const char *printable(struct str s, char out[40])
{
    size_t n = MIN(s.n, (size_t)39);

    for (size_t i = 0; i < n; i++)
        out[i] = s.p[i] >= 0x20 && s.p[i] < 0x7F ? s.p[i] : '?';
    out[n] = '\0';
    return out;
}

static int load_kind(struct vocab *v, const struct gguf *g, struct err *e)
{
    struct str kind, pre = STR("default");
    char shown[40];

    if (!gguf_get_str(g, "tokenizer.ggml.model", &kind))
        return err_set(e, ERR_UNSUPPORTED, "the file has no vocabulary (tokenizer.ggml.model)");
    if (str_is(kind, "llama")) {
        v->type = VOCAB_SPM;
        return 0;
    }
    if (!str_is(kind, "gpt2") && !str_is(kind, "gemma4"))
        return err_set(e, ERR_UNSUPPORTED,
            "vocabulary type '%s' is not supported; supported types: gpt2 and gemma4 (BPE), "
            "llama (SPM)",
            printable(kind, shown));
    (void)gguf_get_str(g, "tokenizer.ggml.pre", &pre);
    if (str_is(kind, "gemma4"))
        pre = STR("gemma4");
    v->type = str_is(pre, "gemma4") ? VOCAB_CHAR_BPE : VOCAB_BPE;
    v->pre = pretok_find(pre);
    if (!v->pre)
        return err_set(e, ERR_UNSUPPORTED, "unknown pre-tokenizer '%s'", printable(pre, shown));
    CHECK(pre.n < sizeof(v->pre_name)); /* a name of the pre-tokenizer table */
    memcpy(v->pre_name, pre.p, pre.n);
    v->ignores_merges = pretok_ignores_merges(v->pre);
    (void)gguf_get_bool(g, "tokenizer.ggml.ignore_merges", &v->ignores_merges);
    return 0;
}

/* ---- tokens with special roles */

/* Files encode "none" as -1 or 2^32 - 1. */
static int load_id(
    const struct vocab *v, const struct gguf *g, const char *key, int32_t *out, struct err *e)
{
    const struct gguf_value *value = gguf_find(g, key);
    uint64_t id;

    if (!value)
        return 0;
    *out = TOKEN_NONE;
    if (gguf_get_u64(g, key, &id)) {
        if (id == UINT32_MAX)
            return 0;
        if (id < (uint64_t)v->n) {
            *out = (int32_t)id;
            return 0;
        }
    } else if ((value->kind == GGUF_I32 || value->kind == GGUF_I64) && value->i == -1) {
        return 0;
    }
    return err_set(e, ERR_CORRUPT, "%s is not a token id: the vocabulary has %d tokens", key, v->n);
}

/* Names of tokens that end a turn in some family. */
static const char *const end_names[] = { "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>",
    "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "<turn|>", "<|eot|>", "<|return|>",
    "<|call|>", "<EOT>", "[EOT]", "_<EOT>", "< EOT >", "<|end_of_turn|>", "<end_of_utterance>",
    "<eos>", "</s>", "<|tool_response>", "<｜end▁of▁sentence｜>" };

bool vocab_names_control(struct str text)
{
    static const char *const names[] = { "<s>", "<bos>", "<|im_start|>", "<|begin_of_text|>",
        "<|start_header_id|>", "<|end_header_id|>", "<start_of_turn>", "<|user|>", "<|assistant|>",
        "<|system|>" };
    bool found = false;

    for (size_t i = 0; i < ARRAY_LEN(end_names); i++)
        found |= str_is(text, end_names[i]);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        found |= str_is(text, names[i]);
    return found;
}

static int load_ends(struct vocab *v, const struct gguf *g, struct err *e)
{
    static const char *const keys[] = { "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id" };
    /* In the harmony format <|end|> ends a message; only <|return|> and <|call|> end the turn. */
    bool is_harmony = vocab_find(v, STR("<|return|>")) != TOKEN_NONE &&
                      vocab_find(v, STR("<|call|>")) != TOKEN_NONE;

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        int32_t id = TOKEN_NONE;
        if (load_id(v, g, keys[i], &id, e))
            return -1;
        if (id != TOKEN_NONE)
            v->is_end[id] = 1;
    }
    for (size_t i = 0; i < ARRAY_LEN(end_names); i++) {
        int32_t id = vocab_find(v, str_of(end_names[i]));
        if (id == TOKEN_NONE || v->attr[id] != TOKEN_CONTROL)
            continue;
        if (!is_harmony || strcmp(end_names[i], "<|end|>"))
            v->is_end[id] = 1;
    }
    if (v->eos != TOKEN_NONE)
        v->is_end[v->eos] = 1;
    /* a key of translated models only */
    const struct gguf_value *ids = gguf_find(g, "tokenizer.ggml.eos_token_ids");
    int64_t id;
    for (uint64_t i = 0; ids && gguf_arr_i64(ids, i, &id); i++)
        if (id >= 0 && id < v->n)
            v->is_end[id] = 1;
    return 0;
}

/* FIM tokens from the file's keys, or else by common names. */
static int load_fim(struct vocab *v, const struct gguf *g, struct err *e)
{
    static const struct {
        const char *keys[2], *names[8];
    } rows[N_FIM] = {
        [FIM_PRE] = { { "tokenizer.ggml.prefix_token_id", "tokenizer.ggml.fim_pre_token_id" },
            { "<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<PRE>", "▁<PRE>",
                "<｜fim▁begin｜>", "<|code_prefix|>" } },
        [FIM_SUF] = { { "tokenizer.ggml.suffix_token_id", "tokenizer.ggml.fim_suf_token_id" },
            { "<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<SUF>", "▁<SUF>", "<｜fim▁hole｜>",
                "<|code_suffix|>" } },
        [FIM_MID] = { { "tokenizer.ggml.middle_token_id", "tokenizer.ggml.fim_mid_token_id" },
            { "<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<MID>", "▁<MID>", "<｜fim▁end｜>",
                "<|code_middle|>" } },
        [FIM_REP] = { { "tokenizer.ggml.fim_rep_token_id" },
            { "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<reponame>", "<repo_name>",
                "<REPO>" } },
        [FIM_SEP] = { { "tokenizer.ggml.fim_sep_token_id" }, { "<|file_sep|>", "<file_sep>" } },
    };

    for (int i = 0; i < N_FIM; i++) {
        int32_t id = TOKEN_NONE;
        for (size_t k = 0; k < ARRAY_LEN(rows[i].keys) && rows[i].keys[k]; k++)
            if (load_id(v, g, rows[i].keys[k], &id, e))
                return -1;
        for (size_t k = 0; id == TOKEN_NONE && rows[i].names[k]; k++) {
            id = vocab_find(v, str_of(rows[i].names[k]));
            if (id != TOKEN_NONE && v->attr[id] != TOKEN_CONTROL &&
                v->attr[id] != TOKEN_USER_DEFINED)
                id = TOKEN_NONE;
        }
        v->fim[i] = id;
    }
    return 0;
}

static int load_roles(struct vocab *v, const struct gguf *g, struct err *e)
{
    bool is_spm = v->type == VOCAB_SPM;

    v->bos = is_spm && v->n > 2 && v->attr[1] == TOKEN_CONTROL ? 1 : TOKEN_NONE;
    v->eos = is_spm && v->n > 2 && v->attr[2] == TOKEN_CONTROL ? 2 : TOKEN_NONE;
    v->unk = is_spm && v->attr[0] == TOKEN_UNKNOWN ? 0 : TOKEN_NONE;
    if (load_id(v, g, "tokenizer.ggml.bos_token_id", &v->bos, e) ||
        load_id(v, g, "tokenizer.ggml.eos_token_id", &v->eos, e) ||
        load_id(v, g, "tokenizer.ggml.unknown_token_id", &v->unk, e))
        return -1;
    v->add_bos = is_spm || pretok_adds_bos(v->pre);
    v->add_space_prefix = is_spm;
    if (v->type != VOCAB_CHAR_BPE) /* files of Gemma 4 with the value false are wrong */
        (void)gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &v->add_bos);
    (void)gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &v->add_eos);
    if (is_spm) {
        (void)gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix);
        (void)gguf_get_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &v->squeezes_blanks);
    }
    return load_ends(v, g, e) || load_fim(v, g, e) ? -1 : 0;
}

static int load(struct vocab *v, const struct gguf *g, struct err *e)
{
    if (load_kind(v, g, e) || vocab_load_tokens(v, g, e))
        return -1;
    if (vocab_has_merges(v) && vocab_load_merges(v, g, e))
        return -1;
    if (load_roles(v, g, e) || vocab_load_self_merging(v, e))
        return -1;
    return special_init(&v->special, v) ? err_set(e, ERR_MEMORY, "no memory for the vocabulary")
                                        : 0;
}

int vocab_open(struct vocab **out, const struct gguf *g, struct err *e)
{
    struct vocab *v = try_calloc(1, sizeof(*v));

    if (!v)
        return err_set(e, ERR_MEMORY, "no memory for the vocabulary");
    if (load(v, g, e)) {
        vocab_close(v);
        return -1;
    }
    *out = v;
    return 0;
}

void vocab_close(struct vocab *v)
{
    if (!v)
        return;
    string_table_clear(&v->text);
    string_table_clear(&v->bytes);
    special_clear(&v->special);
    str_map_free(v->by_text);
    str_map_free(v->by_bytes);
    u64_map_free(v->merges);
    mem_free(v->merged);
    mem_free(v->scores);
    mem_free(v->attr);
    mem_free(v->is_end);
    mem_free(v->merges_to_self);
    mem_free(v);
}

/* ---- accessors */

const char *vocab_kind(const struct vocab *v)
{
    return vocab_has_merges(v) ? "bpe" : "spm";
}

const char *vocab_pre(const struct vocab *v)
{
    return v->pre_name;
}

int32_t vocab_n_tokens(const struct vocab *v)
{
    return v->n;
}

int32_t vocab_bos(const struct vocab *v)
{
    return v->bos;
}

int32_t vocab_eos(const struct vocab *v)
{
    return v->eos;
}

bool vocab_add_bos(const struct vocab *v)
{
    return v->add_bos;
}

bool vocab_add_eos(const struct vocab *v)
{
    return v->add_eos;
}

static bool is_token(const struct vocab *v, int32_t id)
{
    return id >= 0 && id < v->n;
}

int32_t vocab_fim(const struct vocab *v, enum fim which)
{
    return v->fim[which];
}

bool vocab_is_end(const struct vocab *v, int32_t id)
{
    return is_token(v, id) && v->is_end[id];
}

enum token_attr vocab_attr(const struct vocab *v, int32_t id)
{
    return is_token(v, id) ? (enum token_attr)v->attr[id] : TOKEN_UNUSED;
}

struct str vocab_text(const struct vocab *v, int32_t id)
{
    return is_token(v, id) ? string_table_at(&v->text, (size_t)id) : STR_NONE;
}

struct str vocab_bytes(const struct vocab *v, int32_t id)
{
    return is_token(v, id) ? string_table_at(&v->bytes, (size_t)id) : STR_NONE;
}

int32_t vocab_find(const struct vocab *v, struct str text)
{
    uint32_t id;

    return text.n && str_map_get(v->by_text, text, &id) ? (int32_t)id : TOKEN_NONE;
}
