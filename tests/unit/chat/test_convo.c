/* Conversations (chat/convo.h): roles, text of messages, removal of billing lines. */
#include "chat/convo.h"
#include "base/mem.h"
#include "support/check.h"

static void roles_round_trip(void)
{
    for (int i = ROLE_SYSTEM; i <= ROLE_FUNCTION; i++) {
        enum role r;
        EXPECT(role_parse(str_of(role_name((enum role)i)), &r));
        EXPECT_EQ((int)r, i);
    }
    enum role r = ROLE_TOOL;
    EXPECT(!role_parse(STR("User"), &r));
    EXPECT(!role_parse(STR(""), &r));
    EXPECT(!role_parse(STR_NONE, &r));
    EXPECT_EQ((int)r, (int)ROLE_TOOL);
}

static void expect_text(struct content_part *parts, int n, const char *want)
{
    struct arena *a = arena_new(MB);
    struct message m = { .parts = parts, .n_parts = n, .has_content = true };
    struct str s = message_text(&m, a);

    EXPECT(s.p);
    EXPECT(str_is(s, want));
    arena_free(a);
}

static void the_text_of_a_message_is_its_text_parts(void)
{
    struct content_part parts[] = { { .kind = PART_TEXT, .text = STR("a") },
        { .kind = PART_IMAGE, .text = STR("no") }, { .kind = PART_TEXT, .text = STR("") },
        { .kind = PART_TEXT, .text = STR("b") } };

    expect_text(parts, 4, "a\n\nb");
    expect_text(parts, 1, "a");
    expect_text(parts + 1, 1, "");
    expect_text(parts + 2, 2, "\nb");
    expect_text(NULL, 0, "");
}

static void out_of_memory_returns_no_text(void)
{
    struct content_part parts[] = { { .kind = PART_TEXT, .text = STR("a") },
        { .kind = PART_TEXT, .text = STR("b") } };
    struct message m = { .parts = parts, .n_parts = 2, .has_content = true };
    struct arena *a = arena_new(1);

    EXPECT(!message_text(&m, a).p);
    arena_free(a);
}

/* Expects this text of the system prompt after removal of billing lines, parts joined; "-" if
 * there is no system message. */
static void expect_system_text(const char *first, const char *second, const char *want)
{
    struct content_part parts[] = { { .kind = PART_TEXT, .text = str_of(first) },
        { .kind = PART_TEXT, .text = str_of(second) } };
    struct message m[] = {
        { .role = ROLE_SYSTEM, .parts = parts, .n_parts = second ? 2 : 1, .has_content = true },
        { .role = ROLE_USER, .has_content = true }
    };
    struct convo c = { .messages = m, .n_messages = 2 };
    struct arena *a = arena_new(MB);

    convo_drop_billing(&c);
    if (!strcmp(want, "-")) {
        EXPECT_EQ(c.n_messages, 1);
        EXPECT_EQ((int)c.messages[0].role, (int)ROLE_USER);
    } else {
        EXPECT_EQ(c.n_messages, 2);
        EXPECT(str_is(message_text(&c.messages[0], a), want));
    }
    arena_free(a);
}

static void only_a_leading_billing_line_is_removed(void)
{
    expect_system_text("x-anthropic-billing-header: cc=1; cch=0aF;", "You are.", "You are.");
    expect_system_text("x-anthropic-billing-header: cc=1;\nYou are.", NULL, "You are.");
    expect_system_text("x-anthropic-billing-header: cc=1;\n", NULL, "-");
    expect_system_text("x-anthropic-billing-header:", NULL, "-");
    expect_system_text(
        "You are.", "x-anthropic-billing-header: 1", "You are.\nx-anthropic-billing-header: 1");
    expect_system_text(
        "The x-anthropic-billing-header: 1", NULL, "The x-anthropic-billing-header: 1");
    expect_system_text("", NULL, "");

    struct content_part p = { .kind = PART_TEXT, .text = STR("x-anthropic-billing-header: 1") };
    struct message user = { .role = ROLE_USER, .parts = &p, .n_parts = 1, .has_content = true };
    struct convo c = { .messages = &user, .n_messages = 1 };
    convo_drop_billing(&c);
    EXPECT(c.n_messages == 1 && user.n_parts == 1 && p.text.n);
    convo_drop_billing(&(struct convo){ 0 });
}

TESTS(TEST(only_a_leading_billing_line_is_removed), TEST(roles_round_trip),
    TEST(the_text_of_a_message_is_its_text_parts), TEST(out_of_memory_returns_no_text))
