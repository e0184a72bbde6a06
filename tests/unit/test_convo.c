#include "chat/convo.h"
#include "base/mem.h"
#include "../check.h"

static void roles_go_there_and_back(void)
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

static void expect_text(struct part *parts, int n, const char *want)
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
    struct part parts[] = { { .kind = PART_TEXT, .text = STR("a") },
        { .kind = PART_IMAGE, .text = STR("no") }, { .kind = PART_TEXT, .text = STR("") },
        { .kind = PART_TEXT, .text = STR("b") } };

    expect_text(parts, 4, "a\n\nb");
    expect_text(parts, 1, "a");
    expect_text(parts + 1, 1, "");
    expect_text(parts + 2, 2, "\nb");
    expect_text(NULL, 0, "");
}

static void without_memory_there_is_no_text(void)
{
    struct part parts[] = { { .kind = PART_TEXT, .text = STR("a") },
        { .kind = PART_TEXT, .text = STR("b") } };
    struct message m = { .parts = parts, .n_parts = 2, .has_content = true };
    struct arena *a = arena_new(1);

    EXPECT(!message_text(&m, a).p);
    arena_free(a);
}

TESTS(TEST(roles_go_there_and_back), TEST(the_text_of_a_message_is_its_text_parts),
    TEST(without_memory_there_is_no_text))
