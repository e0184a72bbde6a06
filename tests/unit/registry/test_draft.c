/* Draft model for speculative decoding, from the two model files to the output. */
#include "base/mem.h"
#include "testing/synth.h"
#include "registry/model.h"
#include "support/drop_layers_kit.h"

#include <stdlib.h>
#include <unistd.h>

enum { ANSWER = 60 };

static char large[64], small[64], other[64];

static void write_model(char *path, uint32_t n_layers, const struct gguf *vocab, uint32_t n_vocab)
{
    struct synth s;
    struct err e = { 0 };

    EXPECT(synth_preset(&s, "tiny"));
    s.n_layers = n_layers;
    s.n_vocab = n_vocab;
    s.vocab_from = vocab;
    snprintf(path, 64, "/tmp/pool-draft-XXXXXX");
    int fd = mkstemp(path);
    EXPECT(fd >= 0);
    close(fd);
    int rc = synth_write(&s, path, &e);
    if (rc)
        fprintf(stderr, "%s\n", e.msg);
    EXPECT_EQ(rc, 0);
}

static void write_models(void)
{
    struct gguf *demo;
    struct err e;

    EXPECT_EQ(gguf_open(&demo, "models/demo.gguf", &e), 0);
    uint32_t n_vocab = gguf_n_tokens(demo);
    write_model(large, 3, demo, n_vocab);
    write_model(small, 1, demo, n_vocab);
    write_model(other, 1, NULL, n_vocab);
    gguf_close(demo);
}

static void remove_models(void)
{
    unlink(large);
    unlink(small);
    unlink(other);
}

static int open_model(struct model *m, struct model_spec *s, const char *draft, struct err *e)
{
    *m = (struct model){ 0 };
    *s = model_spec_of("m", large);
    s->threads = 1;
    s->ctx_size = 200;
    s->kv_bytes = 1 << 24;
    s->draft_path = draft;
    s->engine.spec.min = draft ? 4 : 0;
    s->engine.spec.by_history = false;
    return model_open(m, s, e);
}

static int generate(const char *draft, int32_t *out, uint64_t *n_drafted, uint64_t *n_accepted)
{
    static const int32_t prompt[] = { 10, 20, 30, 40 };
    struct gen_input in = { .cache_prompt = true,
        .prompt = prompt,
        .n_prompt = 4,
        .max_tokens = ANSWER,
        .n_choices = 1,
        .sample = sample_params_default };
    struct model_spec spec;
    struct mailbox *box;
    struct model m;
    struct err e = { 0 };
    struct gen *g;
    int n = 0;

    in.sample.seed = 3;
    EXPECT_EQ(open_model(&m, &spec, draft, &e), 0);
    EXPECT_EQ(mailbox_open(&box, &e), 0);
    EXPECT_EQ(gen_new(&g, &in, box, NULL, &e), 0);
    EXPECT_EQ(engine_submit(m.engine, g, &e), 0);
    for (bool is_over = false; !is_over;) {
        struct msg *next;
        mailbox_wait(box, UINT64_MAX);
        for (struct msg *msg = mailbox_drain(box); msg; msg = next) {
            next = msg->next;
            struct gen_event *ev = container_of(msg, struct gen_event, msg);
            if (msg->kind == GEN_TOKEN)
                out[n++] = ev->token.id;
            is_over |= msg->kind == GEN_END;
            gen_event_done(ev);
        }
    }
    gen_free(g);
    *n_drafted = draft_sum(engine_stats(m.engine)).drafted;
    *n_accepted = draft_sum(engine_stats(m.engine)).accepted;
    model_close(&m);
    mailbox_close(box);
    return n;
}

static void output_is_equal_for_every_drafter(void)
{
    int32_t alone[ANSWER], with[ANSWER];
    uint64_t n_drafted, n_accepted;

    write_models();
    EXPECT_EQ(generate(NULL, alone, &n_drafted, &n_accepted), ANSWER);
    EXPECT_EQ(n_drafted, 0u);
    EXPECT_EQ(generate(small, with, &n_drafted, &n_accepted), ANSWER);
    EXPECT(SMALL || n_drafted > ANSWER / 3); /* with two events at a time there are few drafts */
    EXPECT(!memcmp(alone, with, sizeof(alone)));
    /* the model is its own draft model */
    EXPECT_EQ(generate(large, with, &n_drafted, &n_accepted), ANSWER);
    EXPECT(!memcmp(alone, with, sizeof(alone)));
    EXPECT(SMALL || n_accepted > ANSWER / 3);
    remove_models();
}

static void different_vocabulary_is_rejected_with_the_first_differing_token(void)
{
    struct model_spec spec;
    struct model m;
    struct err e;

    write_models();
    EXPECT_EQ(open_model(&m, &spec, other, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_INVALID);
    EXPECT(strstr(e.msg, "the vocabularies differ") && strstr(e.msg, other));
    EXPECT_EQ(open_model(&m, &spec, "/nowhere/draft.gguf", &e), -1);
    EXPECT(strstr(e.msg, "draft model") && strstr(e.msg, "/nowhere/draft.gguf"));
    remove_models();
}

TESTS(TEST(output_is_equal_for_every_drafter),
    TEST(different_vocabulary_is_rejected_with_the_first_differing_token))
