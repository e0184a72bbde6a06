/* grammar_kit.h: reads a grammar and compares texts with it, for tests of src/constrain.
 *
 * Owner: the test. */
#pragma once

#include "base/mem.h"
#include "constrain/grammar/grammar_acceptor.h"
#include "support/check.h"

typedef int (*grammar_read_fn)(struct grammar *g, struct str text, rule_id *root, struct err *e);

struct grammar_kit {
    struct grammar *g;
    struct acceptor *a;
    struct err e;
};

/* A vocabulary of control tokens: 1 is an end token; 2 <think>, 3 </think>, 4 <tool>; token 5 has
 * the text "hello", and the others have no text. */
static inline int32_t kit_find_token(const void *ctx, struct str text)
{
    static const char *const names[] = { "", "</s>", "<think>", "</think>", "<tool>", "<hello>" };

    (void)ctx;
    for (int32_t k = 1; k < 6; k++)
        if (str_is(text, names[k]))
            return k;
    return -1;
}

static inline struct str kit_token_bytes(const void *ctx, int32_t id)
{
    (void)ctx;
    return id == 5 ? STR("hello") : STR_NONE;
}

static inline bool kit_token_is_end(const void *ctx, int32_t id)
{
    (void)ctx;
    return id == 1;
}

static const struct grammar_vocab kit_vocab = { { NULL, 8, kit_token_bytes, kit_token_is_end },
    kit_find_token, NULL };

/* -1 with k->e */
static inline int grammar_kit_begin(struct grammar_kit *k, grammar_read_fn read, struct str text)
{
    rule_id root;

    *k = (struct grammar_kit){ .g = grammar_new(&grammar_limits_default, &kit_vocab) };
    EXPECT(k->g != NULL);
    if (read(k->g, text, &root, &k->e) || grammar_finish(k->g, root, &k->e))
        return -1;
    return grammar_acceptor_new(&k->a, k->g, &grammar_acceptor_limits_default, NULL, &k->e);
}

static inline void grammar_kit_end(struct grammar_kit *k)
{
    if (k->a)
        k->a->ops->free(k->a);
    grammar_free(k->g);
    *k = (struct grammar_kit){ 0 };
}

/* The position after the text; bytes 1 to 7 are the control tokens with these ids. */
static inline pos_id grammar_kit_run(struct grammar_kit *k, pos_id p, const char *text)
{
    for (; *text && p.i; text++)
        p = (uint8_t)*text < 8 ? k->a->ops->step_token(k->a, p, *text)
                               : k->a->ops->step(k->a, p, (uint8_t)*text);
    return p;
}

static inline bool grammar_kit_has(struct grammar_kit *k, const char *text)
{
    return k->a->ops->accepts(k->a, grammar_kit_run(k, POS_START, text));
}

struct grammar_case {
    const char *grammar;
    const char *accepted[8], *rejected[8];
};

static inline void grammar_kit_check(grammar_read_fn read, const struct grammar_case *c)
{
    struct grammar_kit k;

    if (grammar_kit_begin(&k, read, str_of(c->grammar))) {
        fprintf(stderr, "%s\n%s\n", c->grammar, k.e.msg);
        fail();
    }
    for (int j = 0; j < 8; j++) {
        bool is_right = !(c->accepted[j] && !grammar_kit_has(&k, c->accepted[j])) &&
                        !(c->rejected[j] && grammar_kit_has(&k, c->rejected[j]));
        if (!is_right)
            fprintf(stderr, "%s\naccepted \"%s\", rejected \"%s\"\n", c->grammar,
                c->accepted[j] ? c->accepted[j] : "-", c->rejected[j] ? c->rejected[j] : "-");
        EXPECT(is_right);
    }
    EXPECT_EQ(k.a->ops->check(k.a, &k.e), 0);
    grammar_kit_end(&k);
}

struct grammar_error_case {
    const char *grammar, *message;
};

static inline void grammar_kit_check_error(grammar_read_fn read, const struct grammar_error_case *c)
{
    struct grammar_kit k;

    if (!grammar_kit_begin(&k, read, str_of(c->grammar)))
        fprintf(stderr, "no error: %s\n", c->grammar);
    EXPECT(k.e.code != ERR_NONE);
    if (!strstr(k.e.msg, c->message))
        fprintf(stderr, "%s\n  got:  %s\n  want: %s\n", c->grammar, k.e.msg, c->message);
    EXPECT(strstr(k.e.msg, c->message) != NULL);
    grammar_kit_end(&k);
}
