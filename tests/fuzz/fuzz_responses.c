/* Fuzzes conversations over /v1/responses; parts are separated by NUL. The first two are stored
 * as response resp_0 and its input, whatever they contain. Each other part is a body whose
 * response is stored as resp_1, resp_2, ..., so that bodies continue each other and reference
 * items; a background response is stored from its beginning. Responses, stored objects and lists
 * must be JSON, and the accounting of the response store must be correct. */
#include "api/common/response_state.h"
#include "api/responses/responses.h"
#include "http/sink.h"
#include "serve/responses/stored_response.h"
#include "serve/responses/live_response.h"

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
static void emit_response(struct response *a, const struct request *request)
{
    struct sampled t = { .id = 1, .logprob = -0.75f, .n_top = 1, .top = { { 1, -1 } } };

    response_begin(a);
    response_set_usage(a, 3, 1);
    response_set_running(a);
    response_add_token(a, 0, &t);
    response_output_ops.reasoning(a, 0, request->user);
    response_output_ops.content(a, 0, request->raw->raw);
    response_output_ops.call_begin(a, 0, 0, request->tool_name.n ? request->tool_name : STR("f"));
    response_output_ops.call_args(a, 0, 0, STR("{\"a\": \""));
    response_output_ops.call_args(a, 0, 0, STR("\"}"));
    if (request->parallel_tool_calls)
        response_output_ops.call_end(a, 0, 0);
    else
        response_output_ops.call_broken(a, 0, 0);
    response_output_ops.content(a, 0, request->n_stops ? request->stops[0] : STR("."));
    response_choice_end(a, 0, request->has_seed ? FINISH_LENGTH : FINISH_STOP, STR_NONE, -1);
    response_end(a);
}

static void check_stored(struct response_store *response_store, struct str id, struct arena *arena)
{
    const struct stored_response *k = response_store_take(response_store, 1, id, 0);
    struct stored_response_view v;
    struct json *j;
    struct buf b;
    struct err e;

    if (!k)
        return; /* too large, or already evicted */
    response_store_view(response_store, k, &v);
    buf_init(&b, GB);
    CHECK(!json_parse(&j, v.response, arena, NULL, &e) && j->kind == JSON_OBJECT);
    struct responses_page page = { .limit = 3, .after = STR("x") };
    CHECK(!responses_list_input(&b, k->input, &page, arena, &e));
    CHECK(!json_parse(&j, buf_str(&b), arena, NULL, &e));
    buf_clear(&b);
    response_store_unref(response_store, k);
}

static void must_be_an_object(struct str text, struct arena *arena)
{
    struct json *j;
    struct err e;

    CHECK(!json_parse(&j, text, arena, NULL, &e) && j->kind == JSON_OBJECT);
}

/* NULL: too large, or the id exists. */
static const struct stored_response *begin_live_response(struct response_store *response_store,
    const struct response *a, const struct stored_response *previous, struct arena *arena)
{
    struct err e = { .code = ERR_MEMORY, .msg = "no \"room\"\n" };
    struct buf response, input, again;

    buf_init(&response, GB);
    buf_init(&input, GB);
    buf_init(&again, GB);
    CHECK(response_serialize(a, &response, &input));
    responses_set_status(&again, buf_str(&response), "failed", &e);
    must_be_an_object(buf_str(&response), arena);
    must_be_an_object(buf_str(&again), arena);
    CHECK(again.n <= response.n + LIVE_RESPONSE_RESERVE);
    struct stored_response k = { .id = str_of(response_id(a)),
        .response = buf_str(&response),
        .input = buf_str(&input),
        .previous = previous,
        .has_event_log = true };
    const struct stored_response *stored_response = live_response_begin(response_store, 1, &k, 0);
    buf_clear(&response);
    buf_clear(&input);
    buf_clear(&again);
    return stored_response;
}

static void end_live_response(struct response_store *response_store,
    const struct stored_response *k, const struct response *a)
{
    struct live_response_final last = { .stage = STORED_COMPLETED };
    struct buf response, input;
    uint64_t listeners;

    if (!k)
        return;
    buf_init(&response, GB);
    buf_init(&input, GB);
    CHECK(response_serialize(a, &response, &input));
    last.response = buf_str(&response);
    last.frames = a->setup.request->stream ? buf_str(&output) : STR_NONE;
    if (!live_response_end(response_store, k, &last, 0, &listeners)) {
        last = (struct live_response_final){
            .stage = STORED_FAILED, .response = k->response, .is_log_truncated = true
        };
        CHECK(live_response_end(response_store, k, &last, 0, &listeners));
    }
    response_store_unref(response_store, k);
    buf_clear(&response);
    buf_clear(&input);
}

static void run_body(
    struct response_store *response_store, struct str body, int number, struct arena *arena)
{
    struct stored_response_ctx at = { response_store, 1, arena };
    const struct stored_response *previous = NULL;
    struct sink sink = { &ops };
    struct response *a = NULL;
    struct err e = { 0 };
    struct request request;
    char id[32];

    snprintf(id, sizeof(id), "%d", number);
    if (request_parse(&request, &dialect_responses, body, arena, &e) ||
        stored_response_recall(&previous, &request, &at, &e)) {
        CHECK(e.code && e.msg[0]);
        response_store_unref(response_store, previous);
        return;
    }
    CHECK(request.convo.n_messages >= 1 && request.n_prompts == 1);
    struct response_setup s = { .request = &request,
        .sink = &sink,
        .model = request.model,
        .id = id,
        .token_bytes = token_bytes };
    buf_init(&output, GB);
    CHECK(!response_new(&a, &s, &e));
    const struct stored_response *growing =
        request.background ? begin_live_response(response_store, a, previous, arena) : NULL;
    emit_response(a, &request);
    end_live_response(response_store, growing, a);
    if (!request.background)
        stored_response_put(response_store, 1, &request, a, previous);
    response_store_check(response_store);
    check_stored(response_store, str_of(response_id(a)), arena);
    response_free(a);
    buf_clear(&output);
    response_store_unref(response_store, previous);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct response_store_options o = { SHELF_BYTES, SHELF_BYTES, UINT64_MAX };
    struct str rest = { (const char *)data, size };
    struct arena *arena = arena_new(256 * MB);
    struct response_store *response_store;
    struct err e;

    CHECK(arena && !response_store_open(&response_store, &o, &e));
    struct stored_response first = { .id = STR("resp_0"), .response = next_part(&rest) };
    first.input = next_part(&rest);
    response_store_put(response_store, 1, &first, 0);
    for (int i = 1; i <= TURNS && rest.n; i++)
        run_body(response_store, next_part(&rest), i, arena);
    response_store_check(response_store);
    response_store_close(response_store);
    arena_free(arena);
    return 0;
}
