/* Fuzzes the body of /v1/parse: the result is a JSON response, or an error that names the cause. */
#include "api/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *a = arena_new(64 * MB);
    struct err e = { 0 };
    struct parse_request request;
    struct buf out;
    struct json *j;

    buf_init(&out, 256 * MB);
    if (a && !parse_request_read(&request, (struct str){ (const char *)data, size }, a, &e) &&
        !parse_put_response(&out, &request, &e)) {
        CHECK(buf_ok(&out) && !json_parse(&j, buf_str(&out), a, NULL, &e));
        CHECK(json_get(j, "content")->kind == JSON_STRING);
        bool has_calls = json_get(j, "tool_calls")->n > 0;
        CHECK(str_is(json_get(j, "finish_reason")->s, has_calls ? "tool_calls" : "stop"));
    } else {
        CHECK(e.code == ERR_SYNTAX || e.code == ERR_INVALID || e.code == ERR_MISSING);
        CHECK(e.msg[0]);
    }
    buf_clear(&out);
    arena_free(a);
    return 0;
}
