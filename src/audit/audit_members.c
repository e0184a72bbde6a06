#include "audit/audit_members.h"
#include "audit/audit_line.h"
#include "os/clock.h"

enum { TEXT_MAX = 256, IDS_MAX = 1024 };

static struct str cut(struct str s)
{
    return (struct str){ s.p, MIN(s.n, (size_t)TEXT_MAX) };
}

void audit_members_begin(struct jw *w, struct buf *b)
{
    buf_init(b, AUDIT_MEMBERS_BYTES);
    jw_init(w, b);
    jw_object(w);
    jw_member_i64(w, "time", clock_wall_s());
}

static void put_hmac(struct jw *w, const char *name, const struct audit_key *key, struct str bytes)
{
    char hex[AUDIT_HEX + 1];

    audit_hmac(key->text, bytes, hex);
    jw_key(w, name), jw_z(w, hex);
}

/* A comma-separated list as an array. */
static void put_ids(struct jw *w, const char *name, struct str list)
{
    list.n = MIN(list.n, (size_t)IDS_MAX);
    jw_key(w, name), jw_array(w);
    while (list.n) {
        ptrdiff_t comma = str_find(list, STR(","));
        jw_str(w, (struct str){ list.p, comma < 0 ? list.n : (size_t)comma });
        list = comma < 0 ? STR_NONE : str_skip(list, (size_t)comma + 1);
    }
    jw_end_array(w);
}

/* The longest start of whole characters whose JSON text has at most *room bytes; reduces *room. */
static struct str fitting(struct str s, size_t *room)
{
    size_t n = 0;

    for (size_t end = 0, used = 0; end < s.n; n = end) {
        do { /* one character; an invalid byte is written as U+FFFD */
            unsigned char c = (unsigned char)s.p[end];
            used += c < ' ' || c == '"' || c == '\\' ? 6 : c < 0x80 ? 1 : 3;
        } while (++end < s.n && ((unsigned char)s.p[end] & 0xc0) == 0x80);
        if (used > *room)
            break;
        n = end;
        if (end == s.n)
            *room -= used;
    }
    if (n < s.n)
        *room = 0;
    return (struct str){ s.p, n };
}

static void put_texts(struct jw *w, const struct audit_entry *en)
{
    size_t prompt_room = AUDIT_TEXT_JSON_BYTES, room = AUDIT_TEXT_JSON_BYTES;
    struct str prompt = fitting(en->prompt_text, &prompt_room);
    bool is_cut = en->is_text_cut || prompt.n < en->prompt_text.n;

    jw_member_str(w, "prompt", prompt);
    jw_key(w, "responses"), jw_array(w);
    for (int i = 0; i < en->n_responses && room > 3; i++) {
        room -= 3; /* quotation marks and comma */
        struct str text = fitting(en->response_texts[i], &room);
        is_cut |= text.n < en->response_texts[i].n;
        jw_str(w, text);
    }
    jw_end_array(w);
    if (is_cut)
        jw_member_bool(w, "is_text_cut", true);
}

void audit_members_entry(
    struct jw *w, const struct audit_entry *en, const struct audit_key *key, bool with_text)
{
    jw_key(w, "action"), jw_z(w, "generate");
    jw_key(w, "request_id"), jw_z(w, en->request_id);
    jw_key(w, "key"), jw_z(w, en->key_id);
    jw_key(w, "tenant"), jw_z(w, en->tenant ? en->tenant : "");
    jw_key(w, "route"), jw_z(w, en->route);
    jw_member_str(w, "model", cut(en->model));
    jw_key(w, "text_kid"), jw_z(w, key->id);
    put_hmac(w, "prompt_hmac", key, en->prompt);
    put_hmac(w, "response_hmac", key, en->response);
    jw_member_i64(w, "status", en->status);
    jw_key(w, "finish"), jw_z(w, en->finish);
    put_ids(w, "decision_ids", en->decision_ids);
    if (en->guardrails.n)
        put_ids(w, "guardrails", en->guardrails);
    jw_member_i64(w, "prompt_tokens", en->n_prompt);
    jw_member_i64(w, "completion_tokens", en->n_completion);
    jw_member_i64(w, "cached_tokens", en->n_cached);
    jw_key(w, "ttft_ms");
    if (en->first_token_ns)
        jw_u64(w, en->first_token_ns / NS_PER_MS);
    else
        jw_null(w);
    jw_member_i64(w, "total_ms", (int64_t)(en->total_ns / NS_PER_MS));
    if (with_text)
        put_texts(w, en);
}

void audit_members_refusal(struct jw *w, const struct audit_refusal *r)
{
    jw_key(w, "event"), jw_z(w, "refused");
    jw_key(w, "request_id"), jw_z(w, r->request_id);
    jw_key(w, "key"), jw_z(w, r->key_id);
    jw_key(w, "tenant"), jw_z(w, r->tenant ? r->tenant : "");
    jw_member_str(w, "peer", r->peer);
    jw_member_str(w, "method", cut(r->method));
    jw_member_str(w, "route", cut(r->path));
    jw_member_i64(w, "status", r->status);
    jw_key(w, "reason"), jw_z(w, r->reason);
    put_ids(w, "decision_ids", r->decision_ids);
    if (r->guardrails.n)
        put_ids(w, "guardrails", r->guardrails);
}

static void put_value(struct jw *w, const char *name, struct str json)
{
    jw_key(w, name);
    if (!json.n) {
        jw_null(w);
    } else if (json.n <= AUDIT_TEXT_JSON_BYTES) {
        jw_raw(w, json);
    } else {
        jw_object(w);
        jw_member_u64(w, "bytes", json.n);
        jw_end_object(w);
    }
}

void audit_members_change(struct jw *w, const struct audit_change *c)
{
    jw_key(w, "event"), jw_z(w, "change");
    jw_key(w, "action"), jw_z(w, c->action);
    jw_key(w, "request_id"), jw_z(w, c->request_id);
    jw_key(w, "key"), jw_z(w, c->key_id);
    jw_key(w, "tenant"), jw_z(w, c->tenant);
    jw_member_str(w, "route", cut(c->route));
    jw_member_i64(w, "status", c->status);
    put_value(w, "before", c->before);
    put_value(w, "after", c->after);
}
