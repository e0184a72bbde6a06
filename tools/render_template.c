/* render_template: renders chat templates from a list of jobs, for tests and debugging.
 *
 * Reads one JSON value per line from stdin and writes one per line to stdout:
 *     {"source": "{{ ... }}"}                               sets the template of the next lines
 *     {"messages": [...], "tools": [...], "chat_template_kwargs": {...}, "bos_token": "<s>",
 *      "eos_token": "</s>", "now": 0, "add_generation_prompt": true, "exact": true}
 * The output is {"ok": true, "text": "...", "trusted": [[from, to], ...]}, where `trusted` lists
 * the byte ranges from the template, or {"ok": false, "code": "...", "error": "..."}. */
#include "support/convo_json.h"
#include "base/mem.h"
#include "chat/template.h"
#include "support/lines.h"

#include <stdio.h>

static void write_line(struct buf *b)
{
    buf_putc(b, '\n');
    fwrite(b->p, 1, b->n, stdout);
    fflush(stdout);
    buf_clear(b);
}

static void write_error(const struct err *e)
{
    struct buf b;
    struct jw w;

    buf_init(&b, MB);
    jw_init(&w, &b);
    jw_object(&w);
    jw_key(&w, "ok");
    jw_bool(&w, false);
    jw_key(&w, "code");
    jw_z(&w, errcode_name(e->code));
    jw_key(&w, "error");
    jw_z(&w, e->msg);
    jw_end_object(&w);
    write_line(&b);
}

static void write_text(const struct rendered *r)
{
    struct buf b, text;
    struct jw w;
    int64_t at = 0;

    buf_init(&b, 256 * MB);
    buf_init(&text, 64 * MB);
    for (size_t i = 0; i < r->n_spans; i++)
        buf_puts(&text, r->spans[i].text);
    jw_init(&w, &b);
    jw_object(&w);
    jw_key(&w, "ok");
    jw_bool(&w, true);
    jw_key(&w, "text");
    jw_str(&w, buf_str(&text));
    jw_key(&w, "trusted");
    jw_array(&w);
    for (size_t i = 0; i < r->n_spans; i++) {
        int64_t end = at + (int64_t)r->spans[i].text.n;
        if (r->spans[i].is_trusted) {
            jw_array(&w);
            jw_i64(&w, at);
            jw_i64(&w, end);
            jw_end_array(&w);
        }
        at = end;
    }
    jw_end_array(&w);
    jw_end_object(&w);
    buf_clear(&text);
    write_line(&b);
}

static void render(const struct chat_template *t, const struct json *j, struct arena *a)
{
    const struct json *exact = json_get(j, "exact"), *now = json_get(j, "now");
    struct template_env env = { .bos_token = cj_str(j, "bos_token"),
        .eos_token = cj_str(j, "eos_token"),
        .no_variants = exact && exact->b };
    struct rendered r;
    struct convo c;
    struct err e = { .code = ERR_INVALID, .msg = "no messages, or a bad role" };

    if (now)
        json_i64(now, &env.now);
    if (!t || !cj_convo(j, &c, a) ||
        chat_template_render(t, &c, &env, &template_limits_default, a, &r, &e))
        write_error(&e);
    else
        write_text(&r);
}

/* ctx: the template of the next lines, struct chat_template *. */
static void respond(char *line, size_t n, void *ctx)
{
    struct chat_template **t = ctx, *next = NULL;
    struct arena *a = arena_new(GB);
    struct json *j;
    struct err e;

    CHECK(a);
    if (json_parse(&j, (struct str){ line, n }, a, &json_limits_default, &e)) {
        write_error(&e);
    } else if (json_get(j, "source")) {
        if (chat_template_compile(&next, cj_str(j, "source"), &e))
            write_error(&e);
        else
            write_text(&(struct rendered){ 0 });
        chat_template_free(*t);
        *t = next;
    } else {
        render(*t, j, a);
    }
    arena_free(a);
}

int main(void)
{
    struct chat_template *t = NULL;

    lines_each(respond, &t);
    chat_template_free(t);
    return 0;
}
