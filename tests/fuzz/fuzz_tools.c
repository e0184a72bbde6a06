/* Fuzzes the kind of constraint for tool calls (constrain/tools). A mask that is computed in parts
 * contains exactly the tokens that can be pushed; each position has a token, except with
 * uniqueItems (src/constrain/README.md); popped tokens leave no trace; memory and work stay within
 * their bounds.
 *
 * The input is the source of the constraint, a zero byte, and the output: each byte selects a
 * token. A token that is not permitted is skipped. */
#include "support/compiled_constraints.h"

enum {
    SOURCE_MAX = 1500,
    OUTPUT_MAX = 60,
    BYTES_MAX = 32 * MB,
    WORK_MAX = 31000000, /* work of one schema; there are fewer than SOURCE_MAX / 20 */
    LITERAL_FROM = 128   /* bytes from here on select fragments and control tokens */
};

struct fuzz {
    struct sample_constraint k;
    struct constraint_state *s;
    bool may_end_dead; /* the schema has uniqueItems */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* False: a bound of the acceptor is exceeded. */
static bool compute(const struct fuzz *f, uint64_t steps, uint32_t set[CC_VOCAB / 32 + 1])
{
    enum mask_progress progress = MASK_MORE;
    struct token_mask m = { 0 };
    struct err e = { 0 };

    while (progress == MASK_MORE)
        progress = f->k.ops->mask(f->k.self, steps, &m, &e);
    CHECK(progress == MASK_DONE || e.msg[0]);
    memset(set, m.form == MASK_FORM_ALL ? 0xff : 0, (CC_VOCAB / 32 + 1) * sizeof(*set));
    if (m.form == MASK_FORM_BITS)
        memcpy(set, m.bits, token_set_words(CC_VOCAB) * sizeof(*set));
    for (int i = 0; m.form == MASK_FORM_IDS && i < m.n_ids; i++)
        token_set_add(set, m.ids[i]);
    return progress == MASK_DONE;
}

/* Compares the mask with pushing each token alone. False: a bound is exceeded. */
static bool check_mask(const struct fuzz *f, uint64_t steps)
{
    uint32_t set[CC_VOCAB / 32 + 1], again[CC_VOCAB / 32 + 1];
    int n = 0;

    if (!compute(f, steps, set))
        return false;
    for (int32_t id = 0; id < CC_VOCAB; id++) {
        bool is_permitted = token_set_has(set, id);
        bool is_pushed = id != CC_END && f->k.ops->push(f->k.self, id);
        if (is_pushed)
            f->k.ops->pop(f->k.self, 1);
        n += is_permitted;
        if (id == CC_END)
            CHECK(is_permitted == f->k.ops->accepts(f->k.self));
        else if (is_pushed != is_permitted) {
            CHECK(!compute(f, UINT64_MAX, again)); /* a bound was exceeded */
            return false;
        }
    }
    CHECK(n > 0 || f->may_end_dead);
    CHECK(compute(f, UINT64_MAX, again));
    CHECK(!memcmp(set, again, token_set_words(CC_VOCAB) * sizeof(*set)));
    return true;
}

static void run(const struct fuzz *f, const uint8_t *data, size_t n)
{
    for (size_t i = 0; i < MIN(n, (size_t)OUTPUT_MAX); i++) {
        int32_t id = data[i];
        if (id >= LITERAL_FROM)
            id = CC_BYTES + id - LITERAL_FROM;
        if (f->k.ops->push(f->k.self, id) && !check_mask(f, 1 + data[i]))
            return;
    }
    CHECK(constraint_state_bytes(f->s) < 8 * MB * (size_t)SOURCE_MAX / 20);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct compiled_constraints vocab;
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - data) : size;
    struct constraint_source src = { .kind = CONSTRAINT_TOOLS,
        .text = { (const char *)data, MIN(n, (size_t)SOURCE_MAX) } };
    struct constraint *c = NULL;
    struct fuzz f = { 0 };
    struct err e = { 0 };

    if (!vocab.tables)
        compiled_constraints_vocab(&vocab);
    if (constraint_new(&c, &src, vocab.tables, &e) || constraint_state_new(&f.s, c, &e)) {
        CHECK(e.code != ERR_NONE && e.msg[0]);
    } else {
        f.k = constraint_state_ops(f.s);
        f.may_end_dead = str_find(src.text, STR("uniqueItems")) >= 0;
        if (check_mask(&f, 7) && zero)
            run(&f, zero + 1, size - n - 1);
    }
    CHECK(!c || constraint_bytes(c) < BYTES_MAX);
    CHECK(!c || constraint_work(c) < (uint64_t)WORK_MAX * (SOURCE_MAX / 20));
    constraint_state_free(f.s);
    constraint_unref(c);
    return 0;
}
