/* Fuzzes conversations over /v1/responses; parts are separated by NUL. The first two are stored
 * as response resp_0 and its input, whatever they contain. Each other part is a body whose
 * response is stored as resp_1, resp_2, ..., so that bodies continue each other and reference
 * items; a background response is stored from its beginning. Responses, stored objects and lists
 * must be JSON, and the accounting of the response store must be correct. */
#include "api/common/answer_state.h"
#include "api/responses/responses.h"
#include "http/sink.h"
#include "serve/responses/kept.h"
#include "serve/responses/growing.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SHELF_BYTES = 64 * 1024, TURNS = 12 };

static struct buf output;

static void on_begin(struct sink *s, int status, const char *type, int64_t n_bytes,
    const struct http_field *fields, int n_fields)
{
    CHECK(status >= 200 && type);
}

static void on_write(struct sink *s, struct str bytes)
{
    buf_puts(&output, bytes);
}

static void on_end(struct sink *s)
{
}

static size_t on_queued(const struct sink *s)
{
    return 0;
}

static const struct sink_ops ops = { on_begin, on_write, on_end, on_end, on_queued };

static struct str token_bytes(const void *vocab, int32_t id)
{
    return STR("a");
}

static struct str next_part(struct str *rest)
{
    ptrdiff_t at = str_find(*rest, (struct str){ "", 1 });
    struct str part = { rest->p, at < 0 ? rest->n : (size_t)at };

    *rest = at < 0 ? STR_NONE : str_skip(*rest, (size_t)at + 1);
    return part;
}

/* Emits text, reasoning and calls made of the client's bytes. */
static void emit_response(struct answer *a, const struct ask *ask)
{
    struct sampled t = { .id = 1, .logprob = -0.75f, .n_top = 1, .top = { { 1, -1 } } };

    answer_begin(a);
    answer_usage(a, 3, 1);
    answer_runs(a);
    answer_token(a, 0, &t);
    answer_reasoning(a, 0, ask->user);
    answer_text(a, 0, ask->raw->raw);
    answer_call_begin(a, 0, 0, ask->tool_name.n ? ask->tool_name : STR("f"));
    answer_call_args(a, 0, 0, STR("{\"a\": \""));
    answer_call_args(a, 0, 0, STR("\"}"));
    if (ask->parallel_tool_calls)
        answer_call_end(a, 0, 0);
    else
        answer_call_broken(a, 0, 0);
    answer_text(a, 0, ask->n_stops ? ask->stops[0] : STR("."));
    answer_choice_end(a, 0, ask->has_seed ? FINISH_LENGTH : FINISH_STOP, STR_NONE, -1);
    answer_end(a);
}

static void check_stored(struct shelf *shelf, struct str id, struct arena *arena)
{
    const struct kept *k = shelf_take(shelf, 1, id, 0);
    struct kept_view v;
    struct json *j;
    struct buf b;
    struct err e;

    if (!k)
        return; /* too large, or already evicted */
    shelf_look(shelf, k, &v);
    buf_init(&b, GB);
    CHECK(!json_parse(&j, v.answer, arena, NULL, &e) && j->kind == JSON_OBJECT);
    struct responses_page page = { .limit = 3, .after = STR("x") };
    CHECK(!responses_list_input(&b, k->input, &page, arena, &e));
    CHECK(!json_parse(&j, buf_str(&b), arena, NULL, &e));
    buf_clear(&b);
    shelf_unref(shelf, k);
}

static void must_be_an_object(struct str text, struct arena *arena)
{
    struct json *j;
    struct err e;

    CHECK(!json_parse(&j, text, arena, NULL, &e) && j->kind == JSON_OBJECT);
}

/* NULL: too large, or the id exists. */
static const struct kept *begin_live_response(
    struct shelf *shelf, const struct answer *a, const struct kept *before, struct arena *arena)
{
    struct err e = { .code = ERR_MEMORY, .msg = "no \"room\"\n" };
    struct buf answer, input, again;

    buf_init(&answer, GB);
    buf_init(&input, GB);
    buf_init(&again, GB);
    CHECK(answer_keep(a, &answer, &input));
    responses_restate(&again, buf_str(&answer), "failed", &e);
    must_be_an_object(buf_str(&answer), arena);
    must_be_an_object(buf_str(&again), arena);
    CHECK(again.n <= answer.n + GROWING_SPARE);
    struct kept k = { .id = str_of(answer_id(a)),
        .answer = buf_str(&answer),
        .input = buf_str(&input),
        .before = before,
        .is_told = true };
    const struct kept *kept = growing_begin(shelf, 1, &k, 0);
    buf_clear(&answer);
    buf_clear(&input);
    buf_clear(&again);
    return kept;
}

static void end_live_response(struct shelf *shelf, const struct kept *k, const struct answer *a)
{
    struct growing_last last = { .stage = KEPT_ENDED };
    struct buf answer, input;
    uint64_t listeners;

    if (!k)
        return;
    buf_init(&answer, GB);
    buf_init(&input, GB);
    CHECK(answer_keep(a, &answer, &input));
    last.answer = buf_str(&answer);
    last.frames = a->setup.ask->stream ? buf_str(&output) : STR_NONE;
    if (!growing_end(shelf, k, &last, 0, &listeners)) {
        last = (struct growing_last){ .stage = KEPT_FAILED, .answer = k->answer, .is_cut = true };
        CHECK(growing_end(shelf, k, &last, 0, &listeners));
    }
    shelf_unref(shelf, k);
    buf_clear(&answer);
    buf_clear(&input);
}

static void run_body(struct shelf *shelf, struct str body, int number, struct arena *arena)
{
    struct kept_place at = { shelf, 1, arena };
    const struct kept *before = NULL;
    struct sink sink = { &ops };
    struct answer *a = NULL;
    struct err e = { 0 };
    struct ask ask;
    char id[32];

    snprintf(id, sizeof(id), "%d", number);
    if (ask_parse(&ask, &wire_responses, body, arena, &e) || kept_recall(&before, &ask, &at, &e)) {
        CHECK(e.code && e.msg[0]);
        shelf_unref(shelf, before);
        return;
    }
    CHECK(ask.convo.n_messages >= 1 && ask.n_prompts == 1);
    struct answer_setup s = {
        .ask = &ask, .sink = &sink, .model = ask.model, .id = id, .token_bytes = token_bytes
    };
    buf_init(&output, GB);
    CHECK(!answer_new(&a, &s, &e));
    const struct kept *growing =
        ask.background ? begin_live_response(shelf, a, before, arena) : NULL;
    emit_response(a, &ask);
    end_live_response(shelf, growing, a);
    if (!ask.background)
        kept_put(shelf, 1, &ask, a, before);
    shelf_check(shelf);
    check_stored(shelf, str_of(answer_id(a)), arena);
    answer_free(a);
    buf_clear(&output);
    shelf_unref(shelf, before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shelf_options o = { SHELF_BYTES, SHELF_BYTES, UINT64_MAX };
    struct str rest = { (const char *)data, size };
    struct arena *arena = arena_new(256 * MB);
    struct shelf *shelf;
    struct err e;

    CHECK(arena && !shelf_open(&shelf, &o, &e));
    struct kept first = { .id = STR("resp_0"), .answer = next_part(&rest) };
    first.input = next_part(&rest);
    shelf_put(shelf, 1, &first, 0);
    for (int i = 1; i <= TURNS && rest.n; i++)
        run_body(shelf, next_part(&rest), i, arena);
    shelf_check(shelf);
    shelf_close(shelf);
    arena_free(arena);
    return 0;
}
