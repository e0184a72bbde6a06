#include "guardrails/prompt_guard.h"

#include "base/mem.h"
#include "guardrails/json_guard.h"

#include <stdatomic.h>

/* Longest text that is redacted; a request body is at most as long. */
#define TEXT_MAX ((size_t)1 << 30)

enum { DEPTH_MAX = 128, PIECE_BYTES = 64 * 1024 };

struct walk { /* through one request */
    const struct prompt_guard *p;
    struct guard_scan scan;
    struct json_guard json;
    struct buf out;
    bool is_blocked, has_failed;
};

static void on_hit(void *ctx, const struct guard_hit *hit)
{
    struct walk *w = ctx;

    guard_record_add(w->p->record, w->p->g, GUARD_PROMPT, hit);
}

static void on_json_hit(void *ctx, const struct guard_hit *hit)
{
    struct json_guard *j = ctx;

    on_hit(container_of(j, struct walk, json), hit);
}

static void on_text(void *ctx, struct str raw)
{
    struct walk *w = ctx;

    buf_puts(&w->out, raw);
}

static bool is_over(const struct walk *w)
{
    return w->is_blocked || w->has_failed ||
           (w->p->is_stopped && atomic_load_explicit(w->p->is_stopped, memory_order_relaxed));
}

/* Searches the text; w->out becomes the redacted text if scan.is_redacted. */
static void search(struct walk *w, struct str text)
{
    buf_reset(&w->out);
    w->scan.is_redacted = false;
    w->scan.on_text = on_text;
    w->scan.on_hit = on_hit;
    w->scan.ctx = w;
    for (size_t n; text.n && !is_over(w); text = str_skip(text, n)) {
        n = MIN(text.n, (size_t)PIECE_BYTES);
        while (n < text.n && ((unsigned char)text.p[n] & 0xC0) == 0x80)
            n++; /* whole characters */
        guard_scan_put(&w->scan, (struct str){ text.p, n });
        w->is_blocked |= w->scan.is_blocked;
        w->has_failed |= w->scan.has_failed;
    }
    guard_scan_end(&w->scan);
    w->is_blocked |= w->scan.is_blocked;
    w->has_failed |= w->scan.has_failed || !buf_ok(&w->out);
}

static void replace(struct walk *w, struct str *s, struct str text)
{
    struct str copy = arena_str(w->p->arena, text);

    w->has_failed |= !copy.p;
    if (copy.p)
        *s = copy;
}

static void visit(struct walk *w, struct str *s)
{
    if (!s->n || is_over(w))
        return;
    search(w, *s);
    if (w->scan.is_redacted && !is_over(w))
        replace(w, s, buf_str(&w->out));
}

/* A text that cannot be replaced. */
static void visit_fixed(struct walk *w, struct str s)
{
    if (!s.n || is_over(w))
        return;
    search(w, s);
    w->is_blocked |= w->scan.is_redacted;
    w->p->record->is_blocked |= w->scan.is_redacted;
}

/* A JSON text, such as the arguments of a call. */
static void visit_json_text(struct walk *w, struct str *s)
{
    if (!s->n || is_over(w))
        return;
    json_guard_begin(&w->json);
    w->scan.is_redacted = false;
    w->scan.on_hit = on_json_hit;
    json_guard_put(&w->json, *s);
    json_guard_end(&w->json);
    w->is_blocked |= w->scan.is_blocked;
    w->has_failed |= w->scan.has_failed || !buf_ok(&w->json.out);
    if (w->scan.is_redacted && !is_over(w))
        replace(w, s, buf_str(&w->json.out));
}

/* Members whose strings are not texts: kinds, ids, encoded media, and signatures. */
static bool is_text_member(struct str key)
{
    static const char *const others[] = { "role", "type", "id", "tool_call_id", "call_id",
        "tool_use_id", "item_id", "data", "url", "image_url", "file_data", "file_id", "media_type",
        "detail", "signature", "encrypted_content", "status" };

    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (str_is(key, others[i]))
            return false;
    return true;
}

/* The tree belongs to the request's arena, and only this thread uses it. Its source text (`raw`)
 * keeps what the client sent. */
static void visit_json(struct walk *w, const struct json *shared, int depth)
{
    struct json *j = (struct json *)(uintptr_t)shared;

    if (!j || depth > DEPTH_MAX || is_over(w))
        return;
    if (j->kind == JSON_STRING && str_is(j->key, "name"))
        visit_fixed(w, j->s);
    else if (j->kind == JSON_STRING && str_is(j->key, "arguments"))
        visit_json_text(w, &j->s);
    else if (j->kind == JSON_STRING)
        visit(w, &j->s);
    else if (j->kind == JSON_NUMBER)
        visit_fixed(w, j->s);
    for (const struct json *c = j->child; c && j->kind >= JSON_ARRAY; c = c->next) {
        if (j->kind == JSON_OBJECT)
            visit_fixed(w, c->key);
        if (c->kind >= JSON_ARRAY || j->kind == JSON_ARRAY || is_text_member(c->key))
            visit_json(w, c, depth + 1);
    }
}

static void visit_message(struct walk *w, struct message *m)
{
    for (int i = 0; i < m->n_parts; i++) {
        visit(w, &m->parts[i].text);
        visit_json(w, m->parts[i].raw, 0);
    }
    visit(w, &m->reasoning);
    visit_fixed(w, m->name);
    for (int i = 0; i < m->n_tool_calls; i++) {
        visit_fixed(w, m->tool_calls[i].name);
        visit_json_text(w, &m->tool_calls[i].arguments);
        visit_json(w, m->tool_calls[i].raw, 0);
    }
    visit_json(w, m->raw, 0);
}

static void visit_infill(struct walk *w, const struct infill *shared)
{
    struct infill *q = (struct infill *)(uintptr_t)shared;

    if (!q)
        return;
    visit(w, &q->prefix);
    visit(w, &q->suffix);
    visit(w, &q->prompt);
    for (int i = 0; i < q->n_extra; i++) {
        struct infill_file *f = (struct infill_file *)(uintptr_t)&q->extra[i];
        visit_fixed(w, f->name);
        visit(w, &f->text);
    }
}

static void visit_prompt(struct walk *w, struct request_prompt *p)
{
    visit(w, &p->text);
    for (int i = 0; i < p->n_pieces; i++) {
        struct prompt_piece *piece = (struct prompt_piece *)(uintptr_t)&p->pieces[i];
        if (!piece->is_token)
            visit(w, &piece->text);
    }
    visit_infill(w, p->infill);
}

static void visit_request(struct walk *w, struct request *r)
{
    for (int i = 0; i < r->convo.n_messages; i++)
        visit_message(w, &r->convo.messages[i]);
    visit_json(w, r->convo.tools, 0);
    if (r->tools != r->convo.tools)
        visit_json(w, r->tools, 0);
    visit_json(w, r->convo.template_kwargs, 0);
    for (int i = 0; r->prompts && i < r->n_prompts; i++)
        visit_prompt(w, &r->prompts[i]);
    visit(w, &r->prediction);
    if (r->constraint.is_set) {
        visit_fixed(w, r->constraint.source.text);
        visit_fixed(w, r->constraint.name);
        visit_fixed(w, r->constraint.description);
    }
}

static int begin(struct walk *w, const struct prompt_guard *p, struct err *e)
{
    *w = (struct walk){ .p = p };
    if (guard_scan_init(&w->scan, p->g, p->sets, e))
        return -1;
    json_guard_init(&w->json, &w->scan, TEXT_MAX);
    buf_init(&w->out, TEXT_MAX);
    return 0;
}

static int end(struct walk *w, bool *is_blocked, struct err *e)
{
    *is_blocked |= w->is_blocked;
    guard_scan_clear(&w->scan);
    json_guard_clear(&w->json);
    buf_clear(&w->out);
    return w->has_failed ? err_set(e, ERR_MEMORY, "no memory for the guardrails") : 0;
}

int prompt_guard_request(
    const struct prompt_guard *p, struct request *request, bool *is_blocked, struct err *e)
{
    struct walk w;

    if (!p->sets)
        return 0;
    if (begin(&w, p, e))
        return -1;
    visit_request(&w, request);
    return end(&w, is_blocked, e);
}

int prompt_guard_text(
    const struct prompt_guard *p, struct str text, bool *is_blocked, struct err *e)
{
    struct walk w;

    if (!p->sets)
        return 0;
    if (begin(&w, p, e))
        return -1;
    visit_fixed(&w, text);
    return end(&w, is_blocked, e);
}
