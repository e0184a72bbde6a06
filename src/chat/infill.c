#include "chat/infill.h"

#include <stdio.h>

struct infill_ctx {
    const struct vocab *v;
    struct tokens *out;
    struct err *e;
};

static int put_text(struct infill_ctx *c, struct str a, struct str b)
{
    const struct span spans[] = { { a, false }, { b, false } };

    return a.n + b.n ? vocab_encode(c->v, spans, 2, false, c->out, c->e) : 0;
}

/* A control token and its text; the text alone if the vocabulary has no such token. */
static int put_marked(struct infill_ctx *c, enum fim which, struct str a, struct str b)
{
    int32_t id = vocab_fim(c->v, which);

    return (id != TOKEN_NONE && tokens_push(c->out, id, c->e)) || put_text(c, a, b) ? -1 : 0;
}

static int put_file(struct infill_ctx *c, const struct infill_file *f, int nth)
{
    char name[32];

    snprintf(name, sizeof(name), "file_%d", nth);
    if (put_marked(c, FIM_SEP, f->name.n ? f->name : str_of(name), STR("\n")))
        return -1;
    return put_text(c, f->text, str_ends(f->text, STR("\n")) ? STR("") : STR("\n"));
}

static int put_extra(struct infill_ctx *c, const struct infill *q)
{
    bool has_sep = vocab_fim(c->v, FIM_SEP) != TOKEN_NONE;

    if (vocab_fim(c->v, FIM_REP) != TOKEN_NONE && put_marked(c, FIM_REP, STR("project"), STR("\n")))
        return -1;
    for (int i = 0; i < q->n_extra; i++)
        if (put_file(c, &q->extra[i], i))
            return -1;
    return has_sep ? put_marked(c, FIM_SEP, STR("this_file"), STR("\n")) : 0;
}

bool infill_is_possible(const struct vocab *v)
{
    return vocab_fim(v, FIM_PRE) != TOKEN_NONE && vocab_fim(v, FIM_SUF) != TOKEN_NONE &&
           vocab_fim(v, FIM_MID) != TOKEN_NONE;
}

int infill_encode(const struct vocab *v, const struct infill *q, struct tokens *out, struct err *e)
{
    struct infill_ctx c = { v, out, e };

    if (!infill_is_possible(v))
        return err_set(e, ERR_UNSUPPORTED, "The model has no fill-in-the-middle tokens.");
    if (vocab_add_bos(v) && vocab_bos(v) != TOKEN_NONE && tokens_push(out, vocab_bos(v), e))
        return -1;
    if (q->n_extra && put_extra(&c, q))
        return -1;
    return put_marked(&c, FIM_PRE, q->prefix, STR("")) ||
                   put_marked(&c, FIM_SUF, q->suffix, STR("")) ||
                   put_marked(&c, FIM_MID, q->prompt, STR(""))
               ? -1
               : 0;
}
