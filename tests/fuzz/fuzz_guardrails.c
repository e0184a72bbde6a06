/* Fuzzes sets of guardrails and the search with them. The input is the JSON of a set, a zero byte,
 * and a text. A set that is accepted is written again, and reading that gives the same. The result
 * for the text does not depend on its pieces, and for a JSON text it is a valid one. */
#include "base/utf8.h"
#include "guardrails/json_guard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void on_text(void *ctx, struct str raw)
{
    buf_puts(ctx, raw);
}

/* step: bytes of a piece, at least. Returns whether the text was blocked. */
static bool search(const struct guardrails *g, struct str text, size_t step, struct buf *out)
{
    struct guard_scan s;
    struct err e;

    CHECK(!guard_scan_init(&s, g, UINT64_MAX, &e));
    s.on_text = on_text;
    s.ctx = out;
    while (text.n) {
        size_t end = MIN(step, text.n);
        while (end < text.n && ((unsigned char)text.p[end] & 0xC0) == 0x80)
            end++;
        guard_scan_put(&s, (struct str){ text.p, end });
        text = str_skip(text, end);
    }
    guard_scan_end(&s);
    bool is_blocked = s.is_blocked;
    CHECK(!s.has_failed);
    guard_scan_clear(&s);
    return is_blocked;
}

static void search_json(const struct guardrails *g, struct str text)
{
    struct arena *a = arena_new(64 * MB);
    struct guard_scan s;
    struct json_guard j;
    struct json *root;
    struct err e;

    CHECK(a && !guard_scan_init(&s, g, UINT64_MAX, &e));
    json_guard_init(&j, &s, 64 * MB);
    json_guard_begin(&j);
    json_guard_put(&j, text);
    json_guard_end(&j);
    if (!s.is_blocked && !json_parse(&root, text, a, &json_limits_default, &e))
        CHECK(!json_parse(&root, buf_str(&j.out), a, &json_limits_default, &e));
    json_guard_clear(&j);
    guard_scan_clear(&s);
    arena_free(a);
}

static void use(const struct guardrails *g, struct str text)
{
    struct buf whole, pieces;

    buf_init(&whole, 64 * MB);
    buf_init(&pieces, 64 * MB);
    bool is_blocked = search(g, text, text.n, &whole);
    for (size_t step = 1; step < 8; step += 3) {
        buf_reset(&pieces);
        CHECK(search(g, text, step, &pieces) == is_blocked);
        CHECK(str_eq(buf_str(&whole), buf_str(&pieces)));
    }
    buf_clear(&whole);
    buf_clear(&pieces);
    search_json(g, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *end = n ? memchr(data, 0, n) : NULL;
    size_t n_json = end ? (size_t)(end - data) : n;
    struct str text = { (const char *)data + n_json + 1, end ? n - n_json - 1 : 0 };
    struct guard_set *s = NULL, *again = NULL;
    struct guardrails *g = NULL;
    struct buf first, second;
    struct err e;

    if (guard_set_parse(&s, STR("x"), (struct str){ (const char *)data, n_json }, &e))
        return 0;
    buf_init(&first, 64 * MB);
    buf_init(&second, 64 * MB);
    guard_set_text(s, &first);
    CHECK(!guard_set_parse(&again, STR("x"), buf_str(&first), &e));
    guard_set_text(again, &second);
    CHECK(str_eq(buf_str(&first), buf_str(&second)));
    guard_set_unref(again);
    buf_clear(&first);
    buf_clear(&second);
    const struct guard_set *take = s;
    if (!guardrails_new(&g, &take, 1, &e) && text.n <= 4096 && utf8_valid(text))
        use(g, text);
    guardrails_unref(g);
    return 0;
}
