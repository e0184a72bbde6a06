/* Number of rows and logits for which a model is opened, and its vocabulary tables. */
#include "engine/engine.h"
#include "testing/synth.h"
#include "registry/model.h"
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PROMPT = 100 };

static char path[64];

static void write_model(void)
{
    struct synth s;
    struct err e = { 0 };

    EXPECT(synth_preset(&s, "tiny"));
    snprintf(path, sizeof(path), "/tmp/pool-model-XXXXXX");
    int fd = mkstemp(path);
    EXPECT(fd >= 0);
    close(fd);
    EXPECT_EQ(synth_write(&s, path, &e), 0);
}

static void open_model(struct model *m, struct model_spec *spec, int batch, int n_drafts)
{
    struct err e = { 0 };

    *m = (struct model){ 0 };
    *spec = model_spec_of("m", path);
    spec->threads = 1;
    spec->ctx_size = 200;
    spec->kv_bytes = 1 << 24;
    spec->engine.max_batch = batch;
    spec->engine.prefill_chunk = 512; /* also in SMALL builds */
    spec->engine.spec.max = n_drafts;
    EXPECT_EQ(model_open(m, spec, &e), 0);
}

static void score_a_prompt(struct model *m)
{
    static int32_t prompt[PROMPT];
    struct gen_input in = { .cache_prompt = true,
        .prompt = prompt,
        .n_prompt = PROMPT,
        .max_tokens = 1,
        .n_choices = 1,
        .sample = sample_params_default,
        .want_prompt_logprobs = true };
    struct mailbox *box;
    struct gen *g;
    struct err e;
    int n = 0;

    for (int i = 0; i < PROMPT; i++)
        prompt[i] = 10 + i;
    EXPECT_EQ(mailbox_open(&box, &e), 0);
    EXPECT_EQ(gen_new(&g, &in, box, NULL, &e), 0);
    EXPECT_EQ(engine_submit(m->engine, g, &e), 0);
    for (bool is_over = false; !is_over;) {
        struct msg *next;
        mailbox_wait(box, UINT64_MAX);
        for (struct msg *msg = mailbox_drain(box); msg; msg = next) {
            next = msg->next;
            n += msg->kind == GEN_PROMPT_TOKEN;
            is_over |= msg->kind == GEN_END;
            gen_event_done(container_of(msg, struct gen_event, msg));
        }
    }
    EXPECT_EQ(n, PROMPT - 1);
    gen_free(g);
    mailbox_close(box);
}

/* Holds with and without concurrent decoding: one row per step would be as slow as decoding. */
static void a_prompt_is_scored_many_rows_at_a_time(void)
{
    struct model_spec spec;
    struct model m;

    write_model();
    open_model(&m, &spec, 1, 0);
    EXPECT_EQ(engine_lm(m.engine)->max_logits, 128);
    score_a_prompt(&m);
    /* with two events at a time there are many steps */
    EXPECT(SMALL || engine_stats(m.engine)->steps <= 2);
    model_close(&m);

    open_model(&m, &spec, 200, 10); /* all sequences that may decode, with their drafts */
    EXPECT_EQ(engine_lm(m.engine)->max_logits, 220);
    model_close(&m);
    unlink(path);
}

static void constraints_have_the_tables_of_the_vocabulary(void)
{
    struct model_spec spec;
    struct model m;

    write_model();
    open_model(&m, &spec, 1, 0);
    EXPECT(m.vocab_tables && m.vocab_tables->n_tokens == vocab_n_tokens(m.vocab));
    EXPECT(vocab_tables_bytes(m.vocab_tables) > 0 && m.vocab_tables->n_ends > 0);
    model_close(&m);
    EXPECT(!m.vocab_tables);
    unlink(path);
}

TESTS(TEST(constraints_have_the_tables_of_the_vocabulary),
    TEST(a_prompt_is_scored_many_rows_at_a_time))
