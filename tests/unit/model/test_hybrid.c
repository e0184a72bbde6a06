/* Hyper-parameters of models with layers of several kinds: experts with a width of their own, draft
 * layers, and values that do not fit together, which are refused by name. */
#include "model/hparams.h"
#include "support/check.h"
#include "testing/synth.h"

#include <stdlib.h>
#include <unistd.h>

enum { MAX_SETTINGS = 24 };

/* Writes the model of a preset with one setting replaced or added ("KEY=VALUE"; NULL: none), and
 * reads its hyper-parameters. */
static int read_preset(struct hparams *h, const char *preset, const char *setting, struct err *e)
{
    const char *settings[MAX_SETTINGS];
    char path[] = "/tmp/inferflux-hybrid-XXXXXX";
    const size_t n_key = setting ? strcspn(setting, "=") + 1 : 0;
    bool is_replaced = false;
    struct gguf *g = NULL;
    struct synth s;

    EXPECT(synth_preset(&s, preset));
    EXPECT(s.n_settings < MAX_SETTINGS);
    for (size_t i = 0; i < s.n_settings; i++) {
        bool is_same = n_key && !strncmp(s.settings[i], setting, n_key);
        settings[i] = is_same ? setting : s.settings[i];
        is_replaced |= is_same;
    }
    if (setting && !is_replaced)
        settings[s.n_settings++] = setting;
    s.settings = settings;
    close(mkstemp(path));
    int rc = synth_write(&s, path, e);
    if (!rc) {
        EXPECT(!gguf_open(&g, path, e));
        rc = hparams_read(h, g, e);
        gguf_close(g);
    }
    unlink(path);
    return rc;
}

static struct hparams h;

static void experts_may_be_narrower_than_the_row(void)
{
    struct err e;

    EXPECT(!read_preset(&h, "tiny-nemotron-h-latent", NULL, &e));
    EXPECT_EQ(hparams_dim(&h, DIM_EXPERT, 0), 32);
    for (int i = 0; i < h.n_layers; i++) {
        const bool has_experts = i == 1 || i == 2;
        EXPECT_EQ(hparams_has_experts(&h, i), has_experts);
        EXPECT(hparams_need(&h, TENSOR_LATENT_DOWN, i) == (has_experts ? NEED_YES : NEED_NO));
        EXPECT(hparams_need(&h, TENSOR_GATE_EXPERTS, i) == NEED_NO);
    }
    EXPECT(!read_preset(&h, "tiny-nemotron-h-moe", NULL, &e));
    EXPECT_EQ(hparams_dim(&h, DIM_EXPERT, 0), h.d_model);
    EXPECT(hparams_need(&h, TENSOR_LATENT_UP, 1) == NEED_NO);
}

static void each_layer_is_a_mixer_or_a_network(void)
{
    static const enum mixer mixers[] = { MIXER_MAMBA2, MIXER_NONE, MIXER_ATTENTION, MIXER_NONE,
        MIXER_MAMBA2, MIXER_NONE };
    struct err e;

    EXPECT(!read_preset(&h, "tiny-nemotron-h-moe", NULL, &e));
    EXPECT_EQ(h.n_layers, (int)ARRAY_LEN(mixers));
    for (int i = 0; i < h.n_layers; i++) {
        EXPECT(h.layers[i].mixer == mixers[i]);
        EXPECT_EQ(h.layers[i].has_ffn, mixers[i] == MIXER_NONE);
        EXPECT(!h.layers[i].has_rope);
    }
    EXPECT(h.router == ROUTER_SIGMOID && h.norms_expert_weights);
}

static void a_draft_layer_is_not_loaded(void)
{
    struct err e;

    EXPECT(!read_preset(&h, "tiny-nemotron-h-moe", "nextn_predict_layers=1", &e));
    EXPECT_EQ(h.n_layers, 5);
    EXPECT_EQ(h.n_mtp_layers, 1);
}

static void values_that_do_not_fit_are_refused_by_name(void)
{
    static const struct {
        const char *preset, *setting, *name, *also;
    } rows[] = {
        { "tiny-nemotron-h-latent", "moe_latent_size=40", "experts of 40 x 80", "16" },
        { "tiny-nemotron-h-latent", "moe_latent_size=1000000", "moe_latent_size", "= 1000000" },
        { "tiny-nemotron-h-latent", "moe_latent_size=-1", "moe_latent_size", "whole number" },
        { "tiny-qwen3moe", "moe_latent_size=32", "qwen3moe.moe_latent_size", "= 32" },
        { "tiny-nemotron-h-moe", "expert_group_count=3", "8 experts", "of 3 groups" },
        { "tiny-nemotron-h-moe", "expert_used_count=0", "expert_used_count", "= 0" },
        { "tiny-nemotron-h-moe", "expert_used_count=[0,3,0,3,0,3]", "expert_used_count", "whole" },
        { "tiny-nemotron-h-moe", "feed_forward_length=[0,48,0,48,0]", "feed_forward_length", "5" },
        { "tiny-nemotron-h-moe", "ssm.group_count=4", "ssm.time_step_rank", "= 4" },
        { "tiny-nemotron-h", "expert_count=4", "expert_count", "= 4" },
        { "tiny-granitehybrid", "ssm.inner_size=190", "ssm.inner_size", "= 190" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        if (read_preset(&h, rows[i].preset, rows[i].setting, &e) && strstr(e.msg, rows[i].name) &&
            strstr(e.msg, rows[i].also))
            continue;
        fprintf(stderr, "%s, %s: expected '%s' and '%s' in: %s\n", rows[i].preset, rows[i].setting,
            rows[i].name, rows[i].also, e.msg);
        fail();
    }
}

TESTS(TEST(experts_may_be_narrower_than_the_row), TEST(each_layer_is_a_mixer_or_a_network),
    TEST(a_draft_layer_is_not_loaded), TEST(values_that_do_not_fit_are_refused_by_name))
