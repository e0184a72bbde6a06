/* Slots of llama-server: assignment to requests, and the stored conversation of each slot. */
#include "base/mem.h"
#include "serve/slots.h"
#include "support/check.h"

enum { N_SLOTS = 3, TOKENS = 40, ANSWER = 4 };

static struct model_spec spec;
static struct model slot_model = { .spec = &spec, .load = 1 };
static const struct model *model = &slot_model;
static struct slots *slots;

static void begin_test(bool keeps)
{
    spec = model_spec_of("m", "/nowhere");
    spec.engine.max_batch = N_SLOTS;
    slots = slots_new(keeps);
    EXPECT_EQ(slots_count(slots, model), N_SLOTS);
}

static void end_test(void)
{
    slots_free(slots);
}

static int32_t text[8][TOKENS];

static struct slot_use make_use(int which, int wanted, uint64_t tenant)
{
    for (int i = 0; i < TOKENS; i++)
        text[which][i] = which * 1000 + i;
    return (struct slot_use){ .model = model,
        .wanted = wanted,
        .scope = { .tenant = tenant },
        .prompt = text[which],
        .n_prompt = TOKENS,
        .n_max = ANSWER };
}

static int begin_slot(struct slot_lease *h, int which, int wanted, uint64_t tenant)
{
    struct slot_use u = make_use(which, wanted, tenant);
    struct err e;

    EXPECT_EQ(slot_begin(h, slots, &u, &e), 0);
    return slot_id(h);
}

static bool is_busy(int id)
{
    struct slot_view v;

    slots_view(slots, model, id, &v);
    return v.is_busy;
}

static void request_without_slot_takes_one_with_its_first_token(void)
{
    struct slot_lease h[N_SLOTS + 2];

    begin_test(true);
    for (int i = 0; i < N_SLOTS; i++)
        EXPECT_EQ(begin_slot(&h[i], i, SLOT_NONE, 0), i);
    EXPECT_EQ(begin_slot(&h[3], 3, SLOT_NONE, 0), SLOT_NONE);
    EXPECT_EQ(begin_slot(&h[4], 4, SLOT_NONE, 0), SLOT_NONE);
    slot_end(&h[1]);
    EXPECT(is_busy(0) && !is_busy(1));
    slot_token(&h[3], 7);
    EXPECT_EQ(slot_id(&h[3]), 1);
    slot_token(&h[4], 7); /* too late: only the first token requests a slot */
    slot_end(&h[0]);
    slot_token(&h[4], 7);
    EXPECT_EQ(slot_id(&h[4]), SLOT_NONE);
    slot_end(&h[4]);
    slot_end(&h[3]);
    slot_end(&h[2]);
    for (int i = 0; i < N_SLOTS; i++)
        EXPECT(!is_busy(i));
    end_test();
}

static void conversation_returns_to_its_slot(void)
{
    struct slot_lease h;

    begin_test(true);
    for (int i = 0; i < N_SLOTS; i++) {
        EXPECT_EQ(begin_slot(&h, i, SLOT_NONE, 5), i);
        slot_end(&h);
    }
    EXPECT_EQ(begin_slot(&h, 1, SLOT_NONE, 5), 1); /* not slot 0, the least recently used */
    slot_end(&h);
    EXPECT_EQ(begin_slot(&h, 1, SLOT_NONE, 6), 0); /* the slot of another tenant is not reused */
    slot_end(&h);
    EXPECT_EQ(begin_slot(&h, 7, SLOT_NONE, 5), 2);
    slot_end(&h);
    end_test();
}

static void requested_slot_is_assigned(void)
{
    struct slot_use u;
    struct slot_lease one, two, none;
    struct slot_view v;
    struct err e;

    begin_test(true);
    EXPECT_EQ(begin_slot(&one, 1, 2, 0), 2);
    EXPECT_EQ(begin_slot(&two, 2, 2, 0), 2);
    slot_token(&two, 9);
    slots_view(slots, model, 2, &v);
    EXPECT(v.is_busy && v.task == 2 && v.n_generated == 1 && v.n_max == ANSWER);
    slot_end(&one);
    EXPECT(is_busy(2));
    slot_end(&two);
    EXPECT(!is_busy(2));
    u = make_use(0, N_SLOTS, 0);
    EXPECT_EQ(slot_begin(&none, slots, &u, &e), -1);
    EXPECT(e.code == ERR_RANGE);
    slot_end(&none);
    u.wanted = 0;
    EXPECT_EQ(slot_begin(&none, NULL, &u, &e), 0); /* a server without slots */
    slot_token(&none, 1);
    EXPECT_EQ(slot_id(&none), SLOT_NONE);
    slot_end(&none);
    end_test();
}

static void slot_keeps_its_conversation_for_its_tenant(void)
{
    struct slot_lease h;
    struct slot_conversation talk;
    struct err e;

    begin_test(true);
    begin_slot(&h, 3, 1, 5);
    for (int i = 0; i < ANSWER + 3; i++) /* never more than max_tokens */
        slot_token(&h, 70 + i);
    slot_end(&h);
    EXPECT_EQ(slots_copy_conversation(slots, model, 1, 6, &talk, &e), -1);
    EXPECT(e.code == ERR_FORBIDDEN);
    EXPECT_EQ(slots_copy_conversation(slots, model, N_SLOTS, 5, &talk, &e), -1);
    EXPECT(e.code == ERR_RANGE);
    EXPECT_EQ(slots_copy_conversation(slots, model, 0, 5, &talk, &e), 0);
    EXPECT(talk.n == 0 && !talk.tokens);
    EXPECT_EQ(slots_copy_conversation(slots, model, 1, 5, &talk, &e), 0);
    EXPECT(talk.n == TOKENS + ANSWER && talk.scope.tenant == 5);
    EXPECT(!memcmp(talk.tokens, text[3], sizeof(text[3])));
    EXPECT_EQ(talk.tokens[TOKENS + 1], 71);
    slots_set_conversation(slots, model, 0, &talk);
    EXPECT(!talk.tokens);
    EXPECT_EQ(slots_copy_conversation(slots, model, 0, 5, &talk, &e), 0);
    EXPECT_EQ(talk.n, TOKENS + ANSWER);
    mem_free(talk.tokens);
    end_test();
}

static void without_directory_or_memory_nothing_is_stored(void)
{
    struct slot_lease h;
    struct slot_conversation talk;
    struct err e;

    begin_test(false);
    begin_slot(&h, 3, 1, 5);
    slot_end(&h);
    EXPECT_EQ(slots_copy_conversation(slots, model, 1, 5, &talk, &e), 0);
    EXPECT_EQ(talk.n, 0);
    end_test();
#ifdef TESTING
    begin_test(true);
    mem_fail_after(1);
    begin_slot(&h, 3, 1, 5);
    mem_fail_after(0);
    slot_token(&h, 1);
    slot_end(&h);
    EXPECT_EQ(slots_copy_conversation(slots, model, 1, 5, &talk, &e), 0);
    EXPECT_EQ(talk.n, 0);
    end_test();
#endif
}

TESTS(TEST(request_without_slot_takes_one_with_its_first_token),
    TEST(conversation_returns_to_its_slot), TEST(requested_slot_is_assigned),
    TEST(slot_keeps_its_conversation_for_its_tenant),
    TEST(without_directory_or_memory_nothing_is_stored))
