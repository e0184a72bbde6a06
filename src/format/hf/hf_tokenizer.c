#include "format/hf/hf_tokenizer.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdio.h>

enum {
    TREE_MAX = 1 << 30, /* bytes of the parsed files */
    TOKENS_MAX = 1 << 24,
    ENDS_MAX = 64,
};

enum attr { ATTR_NORMAL = 1, ATTR_CONTROL = 3, ATTR_USER_DEFINED = 4, ATTR_UNUSED = 5 };

struct token {
    struct str text; /* STR_NONE: the id has no token */
    enum attr attr;
};

struct tokenizer {
    const struct json *all, *config; /* tokenizer.json; tokenizer_config.json or NULL */
    struct arena *arena;
    struct token *tokens; /* [n] by id */
    uint64_t n;
};

static struct str shown(struct str s)
{
    if (!utf8_is_printable(s))
        return STR("?");
    s.n = MIN(s.n, (size_t)120);
    return s;
}

static int reject(const char *what, struct str value, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "tokenizer.json: %s " STR_FMT " is not supported", what,
        STR_ARG(shown(value)));
}

static struct str type_of(const struct json *part)
{
    const struct json *type = json_get(part, "type");

    return type && type->kind == JSON_STRING ? type->s : STR("without a type");
}

static bool is_type(const struct json *part, const char *type)
{
    return str_is(type_of(part), type);
}

static bool is_set(const struct json *object, const char *key)
{
    const struct json *j = json_get(object, key);

    return j && j->kind == JSON_BOOL && j->b;
}

/* ---- pre-tokenizer */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE       "[^\\r\\n\\p{L}\\p{N}]?"

/* Expressions and their names in tokenizer/pretok.c. */
static const struct {
    const char *expression, *pre;
} expressions[] = {
    { CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS,
        "llama-bpe" },
    { CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS, "qwen2" },
    { CONTRACTIONS "|" BEFORE "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS,
        "qwen35" },
    { BEFORE UPPER "*" LOWER "+" CONTRACTIONS "?|" BEFORE UPPER "+" LOWER "*" CONTRACTIONS
                   "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS,
        "gpt-4o" },
    { BEFORE UPPER "*" LOWER "+|" BEFORE UPPER "+" LOWER
                   "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS,
        "tekken" },
    { "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "gpt-2" },
    { "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", "gpt-2" },
};

/* Expressions that are applied one after the other, each to the words of those before. */
#define SPLITS_MAX 3
#define SIGNS      "[\\p{P}\\p{S}]"
static const struct {
    const char *expressions[SPLITS_MAX], *pre;
} sequences[] = {
    { { "\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
          "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
          "[\\p{L}\\p{M}]+| ?" SIGNS "+[\\r\\n]*|" BLANKS },
        "deepseek-v3" },
};

/* Whether the expressions are equal, where "\r" and "\n" may also be these characters. */
static bool is_expression(struct str regex, const char *expression)
{
    size_t i = 0;

    for (; *expression; expression++, i++) {
        if (i >= regex.n)
            return false;
        const char c = regex.p[i];
        if (c == '\r' || c == '\n') {
            if (*expression != '\\' || *++expression != (c == '\r' ? 'r' : 'n'))
                return false;
        } else if (c != *expression) {
            return false;
        }
    }
    return i == regex.n;
}

static const char *find_expression(struct str regex)
{
    for (size_t i = 0; i < ARRAY_LEN(expressions); i++)
        if (is_expression(regex, expressions[i].expression))
            return expressions[i].pre;
    return NULL;
}

static bool is_byte_level(const struct json *part, bool uses_regex)
{
    const struct json *j = json_get(part, "use_regex");
    bool found = !j || j->kind != JSON_BOOL || j->b;

    return is_type(part, "ByteLevel") && !is_set(part, "add_prefix_space") && found == uses_regex;
}

/* The expression of a split, of which each match is a word. */
static int read_split(const struct json *part, struct str *expression, struct err *e)
{
    const struct json *regex = json_get(json_get(part, "pattern"), "Regex");
    const struct json *behavior = json_get(part, "behavior");

    if (!regex || regex->kind != JSON_STRING)
        return reject("a split without an expression", STR(""), e);
    if (!behavior || behavior->kind != JSON_STRING || !str_is(behavior->s, "Isolated") ||
        is_set(part, "invert"))
        return reject("the split behavior", behavior ? behavior->s : STR(""), e);
    *expression = regex->s;
    return 0;
}

/* One expression, or a known sequence of expressions. */
static int read_splits(const struct json *part, size_t n, const char **pre, struct err *e)
{
    struct str found[SPLITS_MAX];

    for (size_t i = 0; i < n; i++, part = part->next)
        if (read_split(part, &found[i], e))
            return -1;
    *pre = n == 1 ? find_expression(found[0]) : NULL;
    for (size_t s = 0; s < ARRAY_LEN(sequences) && n == SPLITS_MAX; s++) {
        size_t n_equal = 0;
        while (n_equal < n && is_expression(found[n_equal], sequences[s].expressions[n_equal]))
            n_equal++;
        if (n_equal == n)
            *pre = sequences[s].pre;
    }
    return *pre ? 0 : reject("the expression", found[n - 1], e);
}

/* Number of splits before a final ByteLevel without an expression; 0: another sequence. */
static size_t count_splits(const struct json *parts)
{
    size_t n = 0;

    for (; parts && parts->next; parts = parts->next, n++)
        if (!is_type(parts, "Split"))
            return 0;
    return parts && is_byte_level(parts, false) && n <= SPLITS_MAX ? n : 0;
}

/* One of: ByteLevel with its own expression; that after single digits; ByteLevel after splits. */
static int read_pretokenizer(const struct tokenizer *t, const char **pre, struct err *e)
{
    const struct json *p = json_get(t->all, "pre_tokenizer"), *parts = p;
    uint32_t n = 1;

    if (json_is_null(p))
        return reject("no pre_tokenizer", STR(""), e);
    if (is_type(p, "Sequence")) {
        parts = json_get(p, "pretokenizers");
        n = parts && parts->kind == JSON_ARRAY ? parts->n : 0;
        parts = n ? parts->child : NULL;
    }
    if (n == 1 && is_byte_level(parts, true)) {
        *pre = "gpt-2";
        return 0;
    }
    if (n == 2 && is_type(parts, "Digits") && is_set(parts, "individual_digits") &&
        is_byte_level(parts->next, true)) {
        *pre = "smollm";
        return 0;
    }
    if (n > 1 && count_splits(parts))
        return read_splits(parts, count_splits(parts), pre, e);
    return reject("the pre_tokenizer", n > 1 ? p->raw : type_of(parts), e);
}

/* ---- tokens */

static int put_token(struct tokenizer *t, const struct json *id, struct token token, struct err *e)
{
    int64_t i;

    if (!id || !json_i64(id, &i) || i < 0 || !token.text.p)
        return err_set(e, ERR_CORRUPT, "tokenizer.json: token '" STR_FMT "' has no id",
            STR_ARG(shown(token.text)));
    if ((uint64_t)i >= t->n)
        return err_set(e, ERR_CORRUPT,
            "tokenizer.json: token '" STR_FMT "' has the id %lld, the embedding has %llu rows",
            STR_ARG(shown(token.text)), (long long)i, (unsigned long long)t->n);
    struct token *place = &t->tokens[i];
    if (place->text.p && !str_eq(place->text, token.text))
        return err_set(e, ERR_CORRUPT,
            "tokenizer.json: tokens '" STR_FMT "' and '" STR_FMT "' have the id %lld",
            STR_ARG(shown(place->text)), STR_ARG(shown(token.text)), (long long)i);
    *place = token;
    return 0;
}

static int read_tokens(struct tokenizer *t, const struct json *model, struct err *e)
{
    const struct json *vocab = json_get(model, "vocab"), *added = json_get(t->all, "added_tokens");

    if (!vocab || vocab->kind != JSON_OBJECT)
        return err_set(e, ERR_CORRUPT, "tokenizer.json: model.vocab is not an object");
    t->tokens = arena_zalloc(t->arena, (size_t)t->n, sizeof(*t->tokens));
    if (!t->tokens)
        return err_set(e, ERR_MEMORY, "no memory for %llu tokens", (unsigned long long)t->n);
    for (const struct json *j = vocab->child; j; j = j->next)
        if (put_token(t, j, (struct token){ j->key, ATTR_NORMAL }, e))
            return -1;
    if (json_is_null(added))
        return 0;
    for (const struct json *j = added->child; j; j = j->next) {
        const struct json *content = json_get(j, "content");
        struct token token = { STR_NONE, is_set(j, "special") ? ATTR_CONTROL : ATTR_USER_DEFINED };
        if (content && content->kind == JSON_STRING)
            token.text = content->s;
        if (put_token(t, json_get(j, "id"), token, e))
            return -1;
    }
    return 0;
}

static void put_tokens(const struct tokenizer *t, struct gguf_keys *k)
{
    gguf_keys_arr(k, "tokenizer.ggml.tokens", GGUF_STR, t->n);
    for (uint64_t i = 0; i < t->n; i++) {
        char pad[32];
        snprintf(pad, sizeof(pad), "[PAD%llu]", (unsigned long long)i);
        gguf_keys_item(k, t->tokens[i].text.p ? t->tokens[i].text : str_of(pad));
    }
    gguf_keys_arr(k, "tokenizer.ggml.token_type", GGUF_I32, t->n);
    for (uint64_t i = 0; i < t->n; i++) {
        int32_t attr = (int32_t)(t->tokens[i].text.p ? t->tokens[i].attr : ATTR_UNUSED);
        buf_put(&k->b, &attr, sizeof(attr));
    }
}

/* A merge is "A B" or ["A", "B"]. */
static int put_merges(const struct json *model, struct gguf_keys *k, struct err *e)
{
    const struct json *merges = json_get(model, "merges");
    uint32_t i = 0;

    if (!merges || merges->kind != JSON_ARRAY)
        return err_set(e, ERR_CORRUPT, "tokenizer.json: model.merges is not an array");
    gguf_keys_arr(k, "tokenizer.ggml.merges", GGUF_STR, merges->n);
    for (const struct json *j = merges->child; j; j = j->next, i++) {
        if (j->kind == JSON_STRING) {
            gguf_keys_item(k, j->s);
            continue;
        }
        const struct json *a = j->kind == JSON_ARRAY && j->n == 2 ? j->child : NULL;
        if (!a || a->kind != JSON_STRING || a->next->kind != JSON_STRING ||
            memchr(a->s.p, ' ', a->s.n) || memchr(a->next->s.p, ' ', a->next->s.n))
            return err_set(e, ERR_CORRUPT, "tokenizer.json: merge %u is not a pair", i);
        uint64_t n = a->s.n + 1 + a->next->s.n;
        buf_put(&k->b, &n, sizeof(n));
        buf_puts(&k->b, a->s);
        buf_putc(&k->b, ' ');
        buf_puts(&k->b, a->next->s);
    }
    return 0;
}

/* ---- the other parts of tokenizer.json */

static int check_normalizer(const struct json *n, struct err *e)
{
    const struct json *parts = json_get(n, "normalizers");

    if (json_is_null(n) || is_type(n, "NFC"))
        return 0;
    if (!is_type(n, "Sequence") || !parts || parts->kind != JSON_ARRAY)
        return reject("the normalizer", type_of(n), e);
    for (const struct json *j = parts->child; j; j = j->next)
        if (!is_type(j, "NFC"))
            return reject("the normalizer", type_of(j), e);
    return 0;
}

static int check_model(const struct tokenizer *t, const struct json *model, struct err *e)
{
    static const char *const empty[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    const struct json *dropout = json_get(model, "dropout");
    double rate = 0;

    if (!is_type(model, "BPE"))
        return reject("model.type", type_of(model), e);
    if (is_set(model, "byte_fallback"))
        return reject("model.byte_fallback", STR("true"), e);
    if (!json_is_null(dropout) && (!json_f64(dropout, &rate) || rate != 0))
        return reject("model.dropout", dropout->raw, e);
    for (size_t i = 0; i < ARRAY_LEN(empty); i++) {
        const struct json *j = json_get(model, empty[i]);
        if (j && j->kind == JSON_STRING && j->s.n)
            return reject(empty[i], j->s, e);
    }
    if (!is_type(json_get(t->all, "decoder"), "ByteLevel"))
        return reject("the decoder", type_of(json_get(t->all, "decoder")), e);
    return check_normalizer(json_get(t->all, "normalizer"), e);
}

/* ---- tokens with special roles */

static int64_t find_token(const struct tokenizer *t, struct str text)
{
    for (uint64_t i = t->n; i-- > 0 && text.n;)
        if (t->tokens[i].text.p && str_eq(t->tokens[i].text, text))
            return (int64_t)i;
    return -1;
}

/* Id of bos_token or eos_token of tokenizer_config.json, or else of config.json; -1: none. */
static int64_t role_of(
    const struct tokenizer *t, const struct json *model, const char *name, const char *id_name)
{
    const struct json *j = json_get(t->config, name);
    int64_t id = -1;

    if (j && j->kind == JSON_OBJECT)
        j = json_get(j, "content");
    if (j && j->kind == JSON_STRING)
        return find_token(t, j->s);
    j = json_get(model, id_name);
    if (j && j->kind == JSON_ARRAY)
        j = j->child;
    return !json_is_null(j) && json_i64(j, &id) && id >= 0 && (uint64_t)id < t->n ? id : -1;
}

/* The template of the post-processor, possibly inside of a sequence; NULL: none. */
static const struct json *find_post_template(const struct json *post)
{
    const struct json *all = json_get(post, "processors");

    if (is_type(post, "TemplateProcessing"))
        return post;
    for (const struct json *j = all ? all->child : NULL; j; j = j->next)
        if (is_type(j, "TemplateProcessing"))
            return j;
    return NULL;
}

/* Tokens that are added at both ends of a text: [BOS] A [EOS]. Sets *bos and *eos, -1: none. */
static int read_template(const struct tokenizer *t, int64_t *bos, int64_t *eos, struct err *e)
{
    const struct json *post = json_get(t->all, "post_processor");
    const struct json *template = find_post_template(post);
    const struct json *single = json_get(template, "single");
    bool has_text = false;

    *bos = *eos = -1;
    if (!json_is_null(post) && !template && !is_type(post, "ByteLevel") &&
        !is_type(post, "Sequence"))
        return reject("the post_processor", type_of(post), e);
    for (const struct json *j = single ? single->child : NULL; j; j = j->next) {
        const struct json *token = json_get(json_get(j, "SpecialToken"), "id");
        if (!token) {
            has_text = true;
            continue;
        }
        int64_t *place = has_text ? eos : bos;
        if (token->kind != JSON_STRING || *place >= 0)
            return reject("the post_processor", single->raw, e);
        *place = find_token(t, token->s);
        if (*place < 0)
            return err_set(e, ERR_CORRUPT,
                "tokenizer.json: the token '" STR_FMT "' of the post_processor does not exist",
                STR_ARG(shown(token->s)));
    }
    return 0;
}

/* All ids of eos_token_id of generation_config.json, or else of config.json. */
static void put_ends(
    const struct hf_tokenizer_files *f, const struct tokenizer *t, struct gguf_keys *k)
{
    const struct json *ids = json_get(f->generation, "eos_token_id");
    uint32_t found[ENDS_MAX];
    size_t n = 0;

    if (json_is_null(ids))
        ids = json_get(f->model, "eos_token_id");
    if (json_is_null(ids))
        return;
    for (const struct json *j = ids->kind == JSON_ARRAY ? ids->child : ids; j && n < ENDS_MAX;
         j = ids->kind == JSON_ARRAY ? j->next : NULL) {
        int64_t id;
        if (json_i64(j, &id) && id >= 0 && (uint64_t)id < t->n)
            found[n++] = (uint32_t)id;
    }
    gguf_keys_arr(k, "tokenizer.ggml.eos_token_ids", GGUF_U32, n);
    buf_put(&k->b, found, n * sizeof(found[0]));
}

static int put_roles(const struct hf_tokenizer_files *f, const struct tokenizer *t,
    struct gguf_keys *k, struct err *e)
{
    int64_t first, last;

    if (read_template(t, &first, &last, e))
        return -1;
    int64_t bos = first >= 0 ? first : role_of(t, f->model, "bos_token", "bos_token_id");
    int64_t eos = last >= 0 ? last : role_of(t, f->model, "eos_token", "eos_token_id");
    if (bos >= 0)
        gguf_keys_u32(k, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
    if (eos >= 0)
        gguf_keys_u32(k, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    gguf_keys_bool(k, "tokenizer.ggml.add_bos_token",
        first >= 0 || (bos >= 0 && is_set(t->config, "add_bos_token")));
    gguf_keys_bool(k, "tokenizer.ggml.add_eos_token", last >= 0);
    put_ends(f, t, k);
    return 0;
}

/* ---- chat template */

/* A template, or a list of named ones, of which one is called "default". */
static struct str find_template(const struct hf_tokenizer_files *f, const struct tokenizer *t)
{
    const struct json *j = json_get(t->config, "chat_template");

    if (f->template.n)
        return f->template;
    if (j && j->kind == JSON_STRING)
        return j->s;
    for (const struct json *i = j && j->kind == JSON_ARRAY ? j->child : NULL; i; i = i->next) {
        const struct json *name = json_get(i, "name"), *text = json_get(i, "template");
        if (name && name->kind == JSON_STRING && str_is(name->s, "default") && text &&
            text->kind == JSON_STRING)
            return text->s;
    }
    return STR_NONE;
}

static int put_all(
    const struct hf_tokenizer_files *f, struct tokenizer *t, struct gguf_keys *k, struct err *e)
{
    const struct json *model = json_get(t->all, "model");
    const char *pre;

    if (check_model(t, model, e) || read_pretokenizer(t, &pre, e) || read_tokens(t, model, e))
        return -1;
    gguf_keys_str(k, "tokenizer.ggml.model", STR("gpt2"));
    gguf_keys_str(k, "tokenizer.ggml.pre", str_of(pre));
    gguf_keys_bool(k, "tokenizer.ggml.ignore_merges", is_set(model, "ignore_merges"));
    put_tokens(t, k);
    if (put_merges(model, k, e) || put_roles(f, t, k, e))
        return -1;
    struct str template = find_template(f, t);
    if (template.n)
        gguf_keys_str(k, "tokenizer.chat_template", template);
    return 0;
}

int hf_tokenizer_put(
    const struct hf_tokenizer_files *f, uint64_t n_tokens, struct gguf_keys *k, struct err *e)
{
    static const struct json_limits limits = { 32, 1 << 24 };
    struct tokenizer t = { .n = n_tokens, .arena = arena_new(TREE_MAX) };
    struct json *all, *config = NULL;
    int rc = -1;

    if (!t.arena)
        return err_set(e, ERR_MEMORY, "no memory for the tokenizer");
    if (n_tokens < 1 || n_tokens > TOKENS_MAX) {
        err_set(e, ERR_RANGE, "an embedding of %llu rows, supported are 1 to %d",
            (unsigned long long)n_tokens, TOKENS_MAX);
        goto out;
    }
    if (json_parse(&all, f->tokenizer, t.arena, &limits, e)) {
        err_wrap(e, "tokenizer.json");
        goto out;
    }
    if (f->config.n && json_parse(&config, f->config, t.arena, &limits, e)) {
        err_wrap(e, "tokenizer_config.json");
        goto out;
    }
    t.all = all;
    t.config = config;
    rc = put_all(f, &t, k, e);
out:
    arena_free(t.arena);
    return rc;
}
