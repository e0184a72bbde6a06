#include "api/llama/llama.h"
#include "api/common/path.h"
#include "api/common/common_fields.h"

/* llama_prompt.c: reads `prompt`: text, an array of token ids, or an array that mixes texts and
 * ids. If an array contains neither ids nor a mix, each element is a prompt. Also reads the /infill
 * fields. Any thread. */

static bool is_mixed(const struct json *v)
{
    bool has_text = false, has_id = false;

    for (const struct json *c = v->child; c; c = c->next) {
        has_text |= c->kind == JSON_STRING;
        has_id |= c->kind == JSON_NUMBER;
    }
    return has_text && has_id;
}

static int read_mixed(struct fields *f, const struct json *v, struct request_prompt *p)
{
    const struct range ids = { 0, INT32_MAX };
    struct prompt_piece *pieces = arena_zalloc(f->arena, v->n, sizeof(*pieces));

    if (!pieces)
        return field_no_memory(f);
    p->pieces = pieces;
    for (const struct json *c = v->child; c; c = c->next) {
        struct prompt_piece *piece = &pieces[p->n_pieces++];
        piece->is_token = c->kind != JSON_STRING;
        piece->text = piece->is_token ? STR_NONE : c->s;
        if (piece->is_token && field_int(f, "prompt", c, ids, &piece->id))
            return -1;
    }
    return 0;
}

/* Reads {"prompt_string"}; its other member, multimodal_data, must be empty. */
static int read_object(struct fields *f, const struct json *v, struct request_prompt *p)
{
    const struct json *text = json_get(v, "prompt_string");

    if (!field_is_neutral(json_get(v, "multimodal_data")))
        return field_unsupported(f, "prompt.multimodal_data", "this model accepts only text");
    if (json_is_null(text))
        return field_missing(f, "prompt.prompt_string");
    return field_text(f, "prompt.prompt_string", text, SIZE_MAX, &p->text);
}

static int read_one(struct fields *f, const struct json *v, struct request_prompt *p)
{
    int32_t *ids;

    if (v->kind == JSON_OBJECT)
        return read_object(f, v, p);
    if (v->kind == JSON_STRING) {
        p->text = v->s;
        return 0;
    }
    if (v->kind != JSON_ARRAY)
        return field_wrong_kind(f, "prompt", "a string or an array", v);
    if (!v->n)
        return err_param(f->e, ERR_INVALID, "prompt", "'prompt' must not be empty.");
    if (is_mixed(v))
        return read_mixed(f, v, p);
    if (field_ids(f, "prompt", v, INT32_MAX, &ids))
        return -1;
    p->is_tokens = true;
    p->ids = ids;
    p->n_ids = (int)v->n;
    return 0;
}

int llama_read_prompts(struct fields *f)
{
    const struct json *v = field_get(f, "prompt");
    struct request *request = f->request;

    if (!v)
        return field_missing(f, "prompt");
    bool is_list = v->kind == JSON_ARRAY && v->n && v->child->kind != JSON_NUMBER && !is_mixed(v);
    uint32_t n = is_list ? v->n : 1;
    if (n > REQUEST_PROMPTS_MAX)
        return err_param(f->e, ERR_RANGE, "prompt", "'prompt' may have at most %d entries, not %u.",
            REQUEST_PROMPTS_MAX, n);
    request->prompts = arena_zalloc(f->arena, n, sizeof(*request->prompts));
    if (!request->prompts)
        return field_no_memory(f);
    request->n_prompts = (int)n;
    if (!is_list)
        return read_one(f, v, &request->prompts[0]);
    int i = 0;
    for (const struct json *c = v->child; c; c = c->next)
        if (read_one(f, c, &request->prompts[i++]))
            return -1;
    return 0;
}

/* ---- fill-in-the-middle */

static int read_files(struct fields *f, const struct json *v, struct infill *infill)
{
    const char *name = "input_extra";
    struct infill_file *files;

    if (!v)
        return 0;
    if (v->kind != JSON_ARRAY)
        return field_wrong_kind(f, name, "an array of objects", v);
    if (v->n > REQUEST_FILES_MAX)
        return err_param(f->e, ERR_RANGE, name, "'%s' may have at most %d entries, not %u.", name,
            REQUEST_FILES_MAX, v->n);
    files = arena_zalloc(f->arena, MAX(v->n, 1u), sizeof(*files));
    if (!files)
        return field_no_memory(f);
    infill->extra = files;
    for (const struct json *c = v->child; c; c = c->next, infill->n_extra++) {
        struct path *at = AT_INDEX(NULL, name, infill->n_extra);
        struct infill_file *file = &files[infill->n_extra];
        file->name = STR("");
        if (c->kind != JSON_OBJECT)
            return path_wrong_kind(f, at, "an object", c);
        if (path_take_text(f, AT(at, "filename"), json_get(c, "filename"), &file->name) ||
            path_need_text(f, AT(at, "text"), json_get(c, "text"), &file->text))
            return -1;
    }
    return 0;
}

int llama_read_infill(struct fields *f)
{
    const struct json *prefix = field_get(f, "input_prefix"),
                      *suffix = field_get(f, "input_suffix");
    const struct json *prompt = field_get(f, "prompt");
    struct infill infill = { 0 };

    if (!prefix)
        return field_missing(f, "input_prefix");
    if (!suffix)
        return field_missing(f, "input_suffix");
    if (field_text(f, "input_prefix", prefix, SIZE_MAX, &infill.prefix) ||
        field_text(f, "input_suffix", suffix, SIZE_MAX, &infill.suffix) ||
        (prompt && field_text(f, "prompt", prompt, SIZE_MAX, &infill.prompt)) ||
        read_files(f, field_get(f, "input_extra"), &infill))
        return -1;
    return common_field_infill(f, &infill);
}
