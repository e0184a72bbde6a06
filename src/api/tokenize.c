#include "api/tokenize.h"
#include "api/common/body.h"
#include "base/utf8.h"

enum { TOKENS_MAX = 4 * 1024 * 1024 };

static const struct json_limits limits = { .max_depth = 32, .max_nodes = TOKENS_MAX };

int tokenize_parse(struct tokenize_request *out, struct str body, struct arena *a, struct err *e)
{
    struct json *o;

    *out = (struct tokenize_request){ .parse_special = true };
    if (body_object(&o, body, &limits, a, e) || body_text(o, "model", &out->model, e) ||
        body_text(o, "prompt", &out->content, e) || body_text(o, "content", &out->content, e) ||
        body_flag(o, "add_special_tokens", &out->add_special, e) ||
        body_flag(o, "add_special", &out->add_special, e) ||
        body_flag(o, "parse_special", &out->parse_special, e) ||
        body_flag(o, "with_pieces", &out->with_pieces, e))
        return -1;
    if (!out->content.p)
        return err_param(e, ERR_MISSING, "content", "'content' is missing; it is required.");
    return 0;
}

static void put_piece(struct jw *w, struct str bytes)
{
    if (utf8_valid(bytes)) {
        jw_str(w, bytes);
        return;
    }
    jw_array(w);
    for (size_t i = 0; i < bytes.n; i++)
        jw_u64(w, (unsigned char)bytes.p[i]);
    jw_end_array(w);
}

void tokenize_put_response(struct buf *out, const int32_t *ids, size_t n,
    struct str (*bytes)(const void *vocab, int32_t id), const void *vocab)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, "tokens");
    jw_array(&w);
    for (size_t i = 0; i < n; i++) {
        if (!bytes) {
            jw_i64(&w, ids[i]);
            continue;
        }
        jw_object(&w);
        jw_key(&w, "id");
        jw_i64(&w, ids[i]);
        jw_key(&w, "piece");
        put_piece(&w, bytes(vocab, ids[i]));
        jw_end_object(&w);
    }
    jw_end_array(&w);
    jw_end_object(&w);
}

int detokenize_parse(
    struct detokenize_request *out, struct str body, struct arena *a, struct err *e)
{
    struct json *o;
    int64_t id;

    *out = (struct detokenize_request){ .n = 0 };
    if (body_object(&o, body, &limits, a, e) || body_text(o, "model", &out->model, e))
        return -1;
    const struct json *tokens = json_get(o, "tokens");
    if (json_is_null(tokens))
        return err_param(e, ERR_MISSING, "tokens", "'tokens' is missing; it is required.");
    if (tokens->kind != JSON_ARRAY)
        return err_param(e, ERR_INVALID, "tokens", "'tokens' must be an array of token ids.");
    out->ids = arena_alloc(a, (size_t)tokens->n * sizeof(*out->ids));
    if (!out->ids)
        return err_set(e, ERR_MEMORY, "No memory for this request.");
    for (const struct json *c = tokens->child; c; c = c->next) {
        if (!json_i64(c, &id))
            return err_param(e, ERR_INVALID, "tokens", "'tokens' must be an array of token ids.");
        if (id < 0 || id > INT32_MAX)
            return err_param(e, ERR_RANGE, "tokens", "'tokens' has %lld, which is not a token id.",
                (long long)id);
        out->ids[out->n++] = (int32_t)id;
    }
    return 0;
}

static void put_one(struct buf *out, const char *key, struct str text)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, key);
    jw_str(&w, text);
    jw_end_object(&w);
}

void detokenize_put_response(struct buf *out, struct str text)
{
    put_one(out, "content", text);
}

int request_template_read(struct request_template *out, const struct json *body, struct err *e)
{
    *out = (struct request_template){ 0 };
    return body_text(body, "chat_template", &out->source, e) ||
                   body_text(body, "bos_token", &out->bos_token, e) ||
                   body_text(body, "eos_token", &out->eos_token, e)
               ? -1
               : 0;
}

void apply_template_put_response(struct buf *out, struct str prompt)
{
    put_one(out, "prompt", prompt);
}
