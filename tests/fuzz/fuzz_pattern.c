/* Fuzzes ECMA-262 patterns: compilation and steps stay within their bounds, and an automaton with
 * little memory, which is flushed often, gives the same answers as one with much memory.
 *
 * The input is a pattern, a zero byte, and a text. */
#include "base/mem.h"
#include "constrain/regular/automaton.h"
#include "constrain/regular/pattern.h"

enum { WORK_MAX = 200000, TEXT_MAX = 200 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compare_steps(const struct exprs *x, expr_id root, struct str text)
{
    struct automaton *small = NULL, *large = NULL;
    struct err e;
    bool has_both =
        !automaton_new(&large, x, root, (struct automaton_limits){ 16 * MB, WORK_MAX }, &e) &&
        !automaton_new(&small, x, root, (struct automaton_limits){ 256 * KB, WORK_MAX }, &e);

    if (has_both) {
        state_id s = automaton_start(small), t = automaton_start(large);
        CHECK(!s.i == !t.i);
        for (size_t k = 0; k < MIN(text.n, (size_t)TEXT_MAX) && t.i; k++) {
            s = automaton_step(small, s, (uint8_t)text.p[k]);
            t = automaton_step(large, t, (uint8_t)text.p[k]);
            if (automaton_check(small, &e) || automaton_check(large, &e))
                break;
            CHECK(!s.i == !t.i);
            CHECK(automaton_accepts(small, s) == automaton_accepts(large, t));
            struct byte_set next = automaton_next_bytes(large, t);
            bool is_at_end = byte_set_is_empty(&next);
            CHECK(!t.i || automaton_accepts(large, t) || !is_at_end || automaton_check(large, &e));
        }
        CHECK(automaton_bytes(small) <= 256 * KB + 64 * KB);
    }
    automaton_free(small);
    automaton_free(large);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - data) : size;
    struct str pattern = { (const char *)data, n };
    struct str text = { (const char *)data + n, size - n };

    for (int k = 0; k < 3; k++) {
        struct exprs *x = exprs_new((struct expr_limits){ 8 * MB, WORK_MAX });
        enum text_mode mode = k == 1 ? TEXT_JSON : TEXT_UTF8;
        enum pattern_extent extent = k == 2 ? PATTERN_FULL : PATTERN_SEARCH;
        struct err e = { 0 };
        expr_id root;
        CHECK(x);
        if (!pattern_compile(x, pattern, mode, extent, &root, &e))
            compare_steps(x, root, str_skip(text, 1));
        else
            CHECK(e.code != ERR_NONE && e.msg[0]);
        CHECK(exprs_bytes(x) <= 8 * MB);
        exprs_free(x);
    }
    return 0;
}
