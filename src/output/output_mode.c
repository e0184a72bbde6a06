#include "output/output_mode.h"
#include "base/mem.h"

static int list_control(
    struct output_mode *r, const struct parser_format *f, const struct vocab *v, struct err *e)
{
    int32_t n = vocab_n_tokens(v);
    int cap = 0;

    for (int pass = 0; pass < 2; pass++) {
        for (int32_t id = 0; id < n; id++) {
            if (vocab_attr(v, id) != TOKEN_CONTROL ||
                !parser_format_has_marker(f, vocab_text(v, id)))
                continue;
            if (pass)
                r->control[r->n_control++] = id;
            else
                cap++;
        }
        if (!pass)
            r->control = try_calloc((size_t)MAX(cap, 1), sizeof(*r->control));
        if (!r->control)
            return err_set(e, ERR_MEMORY, "no memory for the marker tokens");
    }
    return 0;
}

int output_mode_open(struct output_mode *out, const struct parser_format *f, unsigned flags,
    const struct vocab *v, struct err *e)
{
    const char *tool = flags & OUTPUT_CALLS ? parser_format_tool(f) : "null";
    const char *reasoning = flags & OUTPUT_REASONING ? parser_format_reasoning(f) : "null";
    struct output_mode r = { .format = NULL };

    *out = r;
    if (!strcmp(tool, "null") && !strcmp(reasoning, "null"))
        return 0;
    if (parser_format_new(&r.format, str_of(tool), str_of(reasoning), e))
        return -1;
    if (list_control(&r, r.format, v, e)) {
        output_mode_close(&r);
        return -1;
    }
    *out = r;
    return 0;
}

void output_mode_close(struct output_mode *r)
{
    parser_format_free(r->format);
    mem_free(r->control);
    *r = (struct output_mode){ .format = NULL };
}

bool output_mode_shows_token(const struct output_mode *r, int32_t id)
{
    int lo = 0, hi = r->n_control;

    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (r->control[mid] < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < r->n_control && r->control[lo] == id;
}
