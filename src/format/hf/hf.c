#include "format/hf/hf.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "format/hf/hf_config.h"
#include "format/hf/hf_files.h"
#include "format/hf/hf_tensors.h"
#include "format/hf/hf_tokenizer.h"
#include "format/safetensors.h"

#include <dirent.h>
#include <stdio.h>

enum {
    CONFIG_MAX = 16 << 20, /* bytes of a small JSON file */
    INDEX_MAX = 100 << 20, /* bytes of the index of the shards */
    TOKENIZER_MAX = 200 << 20,
    TEMPLATE_MAX = 1 << 20,
    TREE_MAX = 1 << 30, /* bytes of parsed files */
};

struct hf {
    struct hf_files files;
    struct arena *arena; /* parsed files, names; ends with the model */
    const struct json *config_json, *generation;
    struct hf_config config;
    struct hf_tensors tensors;
    struct gguf_keys keys;
};

static int parse_file(
    struct hf *h, const char *name, struct str text, const struct json **out, struct err *e)
{
    static const struct json_limits limits = { 128, 4 << 20, .has_infinity = true };
    struct json *j;

    if (json_parse(&j, text, h->arena, &limits, e))
        return err_wrap(e, "%s", name);
    *out = j;
    return 0;
}

/* ---- weights */

static void clear_safetensors(void *arg)
{
    safetensors_clear(arg);
}

/* Reads the header of a file and adds its tensors. `s` is set for checks of the index. */
static int add_file(struct hf *h, struct str name, struct safetensors **s, struct err *e)
{
    struct str bytes;

    *s = arena_zalloc(h->arena, 1, sizeof(**s));
    if (!*s || arena_cleanup(h->arena, clear_safetensors, *s))
        return err_set(e, ERR_MEMORY, "no memory for the weights files");
    if (hf_files_map(&h->files, name, UINT64_MAX, &bytes, e))
        return -1;
    if (safetensors_read(*s, bytes, e))
        return err_wrap(e, STR_FMT, STR_ARG(name));
    for (size_t i = 0; i < (*s)->n; i++)
        if (hf_tensors_add(&h->tensors, &(*s)->tensors[i], e))
            return err_wrap(e, STR_FMT, STR_ARG(name));
    return 0;
}

/* Every name of the index must be in the file that the index states. A map from the names of all
 * tensors to files is compared, since a model has many of both. */
static int check_index(const struct json *map, const struct str_map *where,
    const struct str_map *file_ids, struct err *e)
{
    for (const struct json *j = map->child; j; j = j->next) {
        uint32_t is_in, should;
        if (!str_map_get(file_ids, j->s, &should) || !str_map_get(where, j->key, &is_in) ||
            is_in != should)
            return err_set(e, ERR_CORRUPT,
                "model.safetensors.index.json: tensor %.*s is not in the file %.*s",
                (int)MIN(j->key.n, (size_t)100), utf8_is_printable(j->key) ? j->key.p : "?",
                (int)MIN(j->s.n, (size_t)100), utf8_is_printable(j->s) ? j->s.p : "?");
    }
    return 0;
}

/* Adds the file of an entry, unless an earlier entry was in the same file. */
static int add_indexed_file(struct hf *h, const struct json *entry, struct str_map *where,
    struct str_map *file_ids, struct err *e)
{
    uint32_t id = (uint32_t)str_map_count(file_ids);
    struct safetensors *s;

    if (entry->kind != JSON_STRING || !str_ends(entry->s, STR(".safetensors")))
        return err_set(e, ERR_CORRUPT,
            "model.safetensors.index.json: the file of tensor %.*s is not a safetensors file",
            (int)MIN(entry->key.n, (size_t)100),
            utf8_is_printable(entry->key) ? entry->key.p : "?");
    int n_inserted = str_map_put(file_ids, entry->s, id);
    if (n_inserted == 0)
        return 0;
    if (n_inserted < 0)
        return err_set(e, ERR_MEMORY, "no memory for the index");
    if (add_file(h, entry->s, &s, e))
        return -1;
    for (size_t i = 0; i < s->n; i++) {
        n_inserted = str_map_put(where, s->tensors[i].name, id);
        if (n_inserted < 0)
            return err_set(e, ERR_MEMORY, "no memory for the index");
        if (n_inserted == 0)
            return err_set(e, ERR_CORRUPT, STR_FMT ": tensor %.*s is in another file as well",
                STR_ARG(entry->s), (int)MIN(s->tensors[i].name.n, (size_t)100),
                s->tensors[i].name.p);
    }
    return 0;
}

static int add_shards(struct hf *h, struct str index, struct err *e)
{
    const struct json *all, *map;
    struct str_map *where = str_map_new(1024), *file_ids = str_map_new(16);
    int rc = where && file_ids ? 0 : err_set(e, ERR_MEMORY, "no memory for the index");

    rc = rc ? rc : parse_file(h, "model.safetensors.index.json", index, &all, e);
    map = rc ? NULL : json_get(all, "weight_map");
    if (!rc && (!map || map->kind != JSON_OBJECT || !map->n))
        rc = err_set(e, ERR_CORRUPT, "model.safetensors.index.json: weight_map is not an object");
    for (const struct json *j = rc ? NULL : map->child; j && !rc; j = j->next)
        rc = add_indexed_file(h, j, where, file_ids, e);
    if (!rc)
        rc = check_index(map, where, file_ids, e);
    str_map_free(where);
    str_map_free(file_ids);
    return rc;
}

/* Explains which files the directory has instead of the expected ones. */
static int reject_directory(const struct hf *h, const char *missing, struct err *e)
{
    static const struct {
        const char *end, *what;
    } rows[] = {
        { ".bin", "a pickle" },
        { ".pt", "a pickle" },
        { ".pth", "a pickle" },
        { ".ckpt", "a pickle" },
        { ".onnx", "an ONNX model" },
        { ".npz", "an NPZ archive" },
        { ".gguf", "a GGUF file, which is named by its own path" },
    };
    DIR *d = opendir(h->files.dir);
    const char *what = NULL;
    char name[256] = "";

    for (struct dirent *f; d && !what && (f = readdir(d));)
        for (size_t i = 0; i < ARRAY_LEN(rows); i++)
            if (str_ends(str_of(f->d_name), str_of(rows[i].end))) {
                what = rows[i].what;
                snprintf(name, sizeof(name), "%s",
                    utf8_is_printable(str_of(f->d_name)) ? f->d_name : "?");
            }
    if (d)
        closedir(d);
    return err_set(e, what ? ERR_UNSUPPORTED : ERR_NOT_FOUND,
        "%s is missing%s%s%s%s; a model is a GGUF file, or a directory with config.json, "
        "tokenizer.json and *.safetensors",
        missing, what ? ", and " : "", name, what ? " is " : "", what ? what : "");
}

static int add_weights(struct hf *h, struct err *e)
{
    static const char single[] = "model.safetensors", shards[] = "model.safetensors.index.json";
    struct safetensors *s;
    struct str index;
    struct err why = { 0 };

    if (hf_files_map_optional(&h->files, shards, INDEX_MAX, &index, e))
        return -1;
    if (index.n)
        return add_shards(h, index, e);
    if (!add_file(h, str_of(single), &s, &why))
        return 0;
    if (why.code == ERR_NOT_FOUND)
        return reject_directory(h, single, e);
    *e = why;
    return -1;
}

/* The tensors in GGUF terms, and the keys that depend on them; *n_vocab is the number of rows of
 * the embedding. */
static int put_tensors(struct hf *h, struct gguf_translation *t, uint64_t *n_vocab, struct err *e)
{
    bool has_head = false, has_k_b = false;

    if (hf_tensors_init(&h->tensors, &h->config, h->arena, e) || add_weights(h, e) ||
        hf_tensors_end(&h->tensors, t, e))
        return -1;
    *n_vocab = 0;
    for (size_t i = 0; i < t->n_tensors; i++) {
        if (str_is(t->tensors[i].name, "token_embd.weight"))
            *n_vocab = t->tensors[i].dims[1];
        has_head |= str_is(t->tensors[i].name, "output.weight");
        has_k_b |= str_ends(t->tensors[i].name, STR(".attn_k_b.weight"));
    }
    if (!*n_vocab)
        return err_set(e, ERR_CORRUPT, "tensor model.embed_tokens.weight is missing");
    if (h->config.states_tied && !h->config.is_tied && !has_head)
        return err_set(e, ERR_CORRUPT,
            "tensor lm_head.weight is missing, and config.json: tie_word_embeddings = false");
    hf_config_put_latent(&h->config, !has_k_b, &h->keys);
    return 0;
}

/* ---- the other files */

static int read_configs(struct hf *h, struct err *e)
{
    struct str text, generation;
    struct err why = { 0 };

    if (hf_files_map(&h->files, STR("config.json"), CONFIG_MAX, &text, &why)) {
        if (why.code == ERR_NOT_FOUND)
            return reject_directory(h, "config.json", e);
        *e = why;
        return -1;
    }
    if (parse_file(h, "config.json", text, &h->config_json, e) ||
        hf_files_map_optional(&h->files, "generation_config.json", CONFIG_MAX, &generation, e) ||
        (generation.n && parse_file(h, "generation_config.json", generation, &h->generation, e)))
        return -1;
    return hf_config_read(&h->config, h->config_json, e);
}

static int put_tokenizer(struct hf *h, uint64_t n_vocab, struct err *e)
{
    struct hf_tokenizer_files f = { .generation = h->generation, .model = h->config.text };

    if (hf_files_map_optional(&h->files, "tokenizer.json", TOKENIZER_MAX, &f.tokenizer, e) ||
        hf_files_map_optional(&h->files, "tokenizer_config.json", CONFIG_MAX, &f.config, e) ||
        hf_files_map_optional(&h->files, "chat_template.jinja", TEMPLATE_MAX, &f.template, e))
        return -1;
    if (!f.tokenizer.n)
        return err_set(e, ERR_UNSUPPORTED,
            "tokenizer.json is missing, and other tokenizer files are not read");
    return hf_tokenizer_put(&f, n_vocab, &h->keys, e);
}

static int translate(struct hf *h, struct gguf_translation *t, struct err *e)
{
    uint64_t n_vocab;

    if (read_configs(h, e))
        return -1;
    gguf_keys_str(&h->keys, "general.name", str_of(h->files.name));
    return hf_config_put(&h->config, &h->keys, h->arena, e) || put_tensors(h, t, &n_vocab, e) ||
                   put_tokenizer(h, n_vocab, e) ||
                   gguf_keys_end(&h->keys, &t->keys, &t->n_key_bytes, e)
               ? -1
               : 0;
}

int hf_open(struct gguf **out, const char *dir, struct err *e)
{
    struct hf h = { .arena = arena_new(TREE_MAX) };
    struct gguf_translation t = { 0 };

    gguf_keys_init(&h.keys);
    int rc = h.arena ? 0 : err_set(e, ERR_MEMORY, "no memory to open a model");
    rc = rc || hf_files_init(&h.files, dir, e) || translate(&h, &t, e);
    /* The names and recipes are in the arena, which ends with the recipes. */
    if (t.recipes)
        h.arena = NULL;
    t.files = h.files.files;
    t.n_files = h.files.n;
    gguf_keys_clear(&h.keys);
    hf_tensors_clear(&h.tensors);
    if (!rc)
        rc = gguf_open_translated(out, &t, e);
    gguf_translation_clear(&t);
    arena_free(h.arena);
    return rc ? err_wrap(e, "%.200s", dir) : 0;
}
