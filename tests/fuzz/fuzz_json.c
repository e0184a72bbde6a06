/* Fuzzes the JSON parser: an accepted text is written, parsed again, and must be equal. */
#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *a = arena_new(16 * MB);
    struct json *j = NULL, *again = NULL;
    struct err e;
    struct buf b;
    struct jw w;

    buf_init(&b, 16 * MB);
    if (a && !json_parse(&j, (struct str){ (const char *)data, size }, a, NULL, &e)) {
        int64_t i;
        double d;
        jw_init(&w, &b);
        jw_json(&w, j);
        CHECK(buf_ok(&b));
        CHECK(!json_parse(&again, buf_str(&b), a, NULL, &e));
        CHECK(json_equal(j, again));
        if (json_f64(j, &d) && json_i64(j, &i))
            CHECK(d <= 9223372036854775808.0 && d >= -9223372036854775808.0);
        jw_init(&w, &b);
        buf_reset(&b);
        if (json_f64(j, &d)) { /* written numbers are parsed to the same value */
            double back;
            jw_f64(&w, d);
            CHECK(!json_parse(&again, buf_str(&b), a, NULL, &e) && json_f64(again, &back));
            CHECK(back == d);
        }
    }
    buf_clear(&b);
    arena_free(a);
    return 0;
}
