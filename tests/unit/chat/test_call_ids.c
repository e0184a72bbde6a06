/* chat/call_ids.c: each tool result keeps the id of its call when ids are rewritten. */
#include "support/check.h"

#include "base/arena.h"
#include "chat/call_ids.h"

#include <stdio.h>

static struct arena *arena;

static struct tool_call calls[3][2] = {
    { { .id = { "call_abcdef", 11 }, .name = { "f", 1 } },
        { .id = { "x", 1 }, .name = { "g", 1 } } },
    { { .id = { "x", 1 }, .name = { "g", 1 } } },
    { { .id = { "abc123XYZ", 9 }, .name = { "h", 1 } },
        { .id = { "functions.h:7", 13 }, .name = { "h", 1 } } },
};

static struct message messages[] = {
    { .role = ROLE_USER },
    { .role = ROLE_ASSISTANT, .tool_calls = calls[0], .n_tool_calls = 2 },
    { .role = ROLE_TOOL, .tool_call_id = { "x", 1 } },
    { .role = ROLE_TOOL, .tool_call_id = { "call_abcdef", 11 } },
    { .role = ROLE_ASSISTANT, .tool_calls = calls[1], .n_tool_calls = 1 },
    { .role = ROLE_TOOL, .tool_call_id = { "x", 1 } },
    { .role = ROLE_ASSISTANT, .tool_calls = calls[2], .n_tool_calls = 2 },
    { .role = ROLE_TOOL, .tool_call_id = { "functions.h:7", 13 } },
    { .role = ROLE_TOOL, .tool_call_id = { "abc123XYZ", 9 } },
    { .role = ROLE_TOOL, .tool_call_id = { "nobody's", 8 } },
};

static struct convo rewrite_ids(enum call_id_form form)
{
    struct convo in = { .messages = messages, .n_messages = ARRAY_LEN(messages) }, out;
    struct err e;

    arena_free(arena);
    arena = arena_new(1 << 20);
    EXPECT_EQ(call_ids_convert(&out, &in, form, arena, &e), 0);
    return out;
}

static bool pairs(const struct convo *c)
{
    const struct message *m = c->messages;

    return str_eq(m[1].tool_calls[1].id, m[2].tool_call_id) &&
           str_eq(m[1].tool_calls[0].id, m[3].tool_call_id) &&
           str_eq(m[4].tool_calls[0].id, m[5].tool_call_id) &&
           str_eq(m[6].tool_calls[1].id, m[7].tool_call_id) &&
           str_eq(m[6].tool_calls[0].id, m[8].tool_call_id);
}

static void ids_stay_if_the_template_accepts_any(void)
{
    struct convo c = rewrite_ids(CALL_IDS_ANY);

    EXPECT(c.messages == messages);
}

static void nine_characters_stay_and_others_become_nine(void)
{
    struct convo c = rewrite_ids(CALL_IDS_NINE);

    EXPECT(pairs(&c));
    for (int i = 0; i < c.n_messages; i++) {
        for (int k = 0; k < c.messages[i].n_tool_calls; k++)
            EXPECT_EQ(c.messages[i].tool_calls[k].id.n, (size_t)9);
        EXPECT(!c.messages[i].tool_call_id.n || c.messages[i].tool_call_id.n == 9);
    }
    EXPECT(str_is(c.messages[6].tool_calls[0].id, "abc123XYZ"));
    EXPECT(!str_eq(c.messages[1].tool_calls[0].id, c.messages[1].tool_calls[1].id));
    EXPECT(str_eq(c.messages[1].tool_calls[1].id, c.messages[4].tool_calls[0].id));
}

static void names_are_counted_over_the_conversation(void)
{
    struct convo c = rewrite_ids(CALL_IDS_NAME);

    EXPECT(pairs(&c));
    EXPECT(str_is(c.messages[1].tool_calls[0].id, "functions.f:0"));
    EXPECT(str_is(c.messages[1].tool_calls[1].id, "functions.g:1"));
    EXPECT(str_is(c.messages[4].tool_calls[0].id, "functions.g:2"));
    EXPECT(str_is(c.messages[6].tool_calls[0].id, "functions.h:3"));
    EXPECT(str_is(c.messages[6].tool_calls[1].id, "functions.h:7"));
    EXPECT(str_is(c.messages[9].tool_call_id, "nobody's"));
}

static void out_of_memory_is_reported(void)
{
    struct convo in = { .messages = messages, .n_messages = ARRAY_LEN(messages) }, out;
    struct err e;
    struct arena *small = arena_new(64);

    EXPECT(call_ids_convert(&out, &in, CALL_IDS_NINE, small, &e) == -1 && e.code == ERR_MEMORY);
    arena_free(small);
    arena_free(arena);
    arena = NULL;
}

TESTS(TEST(ids_stay_if_the_template_accepts_any), TEST(nine_characters_stay_and_others_become_nine),
    TEST(names_are_counted_over_the_conversation), TEST(out_of_memory_is_reported))
