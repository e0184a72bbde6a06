/* API keys. */
#include "support/check.h"
#include "auth/keys.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <unistd.h>

static bool keys_find(const struct keys *k, struct str key, struct caller *out)
{
    uint8_t hash[SHA256_DIGEST_LENGTH];

    SHA256((const uint8_t *)key.p, key.n, hash);
    for (int i = 0; i < keys_count(k); i++)
        if (!memcmp(keys_hash(k, i), hash, sizeof(hash))) {
            keys_at(k, i, out);
            return true;
        }
    return false;
}

static void keys_are_found_with_their_scopes(void)
{
    struct caller c = { 0 };
    struct keys *k;
    struct err e;

    EXPECT_EQ(keys_open(&k, " alpha , beta:admin", &e), 0);
    EXPECT_EQ(keys_count(k), 2);
    EXPECT(keys_find(k, STR("alpha"), &c));
    EXPECT_EQ(c.scopes, (unsigned)(SCOPE_READ | SCOPE_GENERATE));
    EXPECT_EQ(strlen(c.id), (size_t)(2 * KEY_ID_BYTES));
    EXPECT(keys_find(k, STR("beta"), &c));
    EXPECT(c.scopes & SCOPE_ADMIN);
    EXPECT(!keys_find(k, STR("beta:admin"), &c));
    EXPECT(!keys_find(k, STR("alph"), &c));
    EXPECT(!keys_find(k, STR(""), &c));
    keys_close(k);
}

static void key_is_one_tenant_and_anonymous_is_tenant_zero(void)
{
    struct caller alpha = { 0 }, beta = { 0 }, again = { 0 }, nobody = { 0 };
    struct keys *k;
    struct err e;

    EXPECT_EQ(keys_open(&k, "alpha,beta", &e), 0);
    EXPECT(keys_find(k, STR("alpha"), &alpha) && keys_find(k, STR("beta"), &beta));
    EXPECT(keys_find(k, STR("alpha"), &again));
    EXPECT(caller_tenant(&alpha) != 0 && caller_tenant(&beta) != 0);
    EXPECT(caller_tenant(&alpha) == caller_tenant(&again));
    EXPECT(caller_tenant(&alpha) != caller_tenant(&beta));
    EXPECT_EQ(caller_tenant(&nobody), (uint64_t)0);
    keys_close(k);
}

static void keys_have_a_maximum_priority(void)
{
    static const char *bad[] = { "a:priority=", "a:priority=-1", "a:priority=1000001",
        "a:priority=x", "a:priority=1.5", "a:priority=99999999999999999999" };
    struct caller a = { 0 }, b = { 0 };
    struct keys *k;
    struct err e;

    EXPECT_EQ(keys_open(&k, "a,b:priority=7:admin:weight=2", &e), 0);
    EXPECT(keys_find(k, STR("a"), &a) && keys_find(k, STR("b"), &b));
    EXPECT(a.max_priority == 0 && b.max_priority == 7 && b.weight == 2 && b.scopes == 7);
    keys_close(k);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        EXPECT_EQ(keys_open(&k, bad[i], &e), -1);
        EXPECT_STR(e.msg, "api keys: entry 1: bad priority");
    }
}

static void keys_have_weights_that_change(void)
{
    struct caller a, b, c;
    struct keys *k;
    struct err e;

    EXPECT_EQ(keys_open(&k, "a,b:weight=2.5:admin,c:group=x:weight=0.25", &e), 0);
    EXPECT(keys_find(k, STR("a"), &a) && keys_find(k, STR("b"), &b) && keys_find(k, STR("c"), &c));
    EXPECT(a.weight == 1 && b.weight == 2.5f && c.weight == 0.25f);
    EXPECT(b.scopes & SCOPE_ADMIN);
    EXPECT_STR(c.group, "x");
    EXPECT_EQ(keys_index(k, str_of(b.id)), 1);
    EXPECT_EQ(keys_index(k, STR("0123456789abcdef")), -1);
    keys_set_weight(k, 1, 7);
    EXPECT(keys_find(k, STR("b"), &b) && b.weight == 7);
    keys_at(k, 2, &a);
    EXPECT_STR(a.id, c.id);
    keys_close(k);
}

static void keys_of_a_group_share_a_cache_group_but_not_a_tenant(void)
{
    struct caller a = { 0 }, b = { 0 }, other = { 0 }, alone = { 0 };
    struct keys *k;
    struct err e;

    EXPECT_EQ(keys_open(&k, "a:group=red,b:admin:group=red,c:group=blue:admin,d:e:f", &e), 0);
    EXPECT(keys_find(k, STR("a"), &a) && keys_find(k, STR("b"), &b));
    EXPECT(keys_find(k, STR("c"), &other) && keys_find(k, STR("d:e:f"), &alone));
    EXPECT(!(a.scopes & SCOPE_ADMIN) && (b.scopes & SCOPE_ADMIN) && (other.scopes & SCOPE_ADMIN));
    EXPECT(caller_cache_group(&a) == caller_cache_group(&b));
    EXPECT(caller_cache_group(&a) != caller_cache_group(&other));
    EXPECT(caller_cache_group(&alone) == caller_tenant(&alone));
    EXPECT(caller_cache_group(&a) != caller_tenant(&a) && caller_tenant(&a) != caller_tenant(&b));
    /* Reuses a struct that held another caller. */
    EXPECT(keys_find(k, STR("d:e:f"), &a));
    EXPECT_STR(a.group, "");
    keys_close(k);
}

static void invalid_list_error_names_the_entry_and_not_the_key(void)
{
    struct keys *k;
    struct err e;

    EXPECT_EQ(keys_open(&k, "good,,other", &e), -1);
    EXPECT_STR(e.msg, "api keys: entry 2: empty");
    EXPECT_EQ(keys_open(&k, "good,se cret", &e), -1);
    EXPECT(!strstr(e.msg, "cret"));
    EXPECT_EQ(keys_open(&k, ":admin", &e), -1);
    EXPECT_EQ(keys_open(&k, "a,b:group=", &e), -1);
    EXPECT_STR(e.msg, "api keys: entry 2: bad group");
    EXPECT_EQ(keys_open(&k, "secret,b,secret:admin", &e), -1);
    EXPECT_STR(e.msg, "api keys: entry 3: the same key as key 1");
    EXPECT_EQ(keys_open(&k, "secret,secret", &e), -1);
    EXPECT_EQ(keys_open(&k, "a:weight=0", &e), -1);
    EXPECT_STR(e.msg, "api keys: entry 1: bad weight");
    EXPECT_EQ(keys_open(&k, "a:weight=nan", &e), -1);
    EXPECT_EQ(keys_open(&k, "a:weight=", &e), -1);
    EXPECT_EQ(keys_open(&k, "a:weight=1001", &e), -1);
    EXPECT_EQ(keys_open(&k, "a:group=x y", &e), -1);
    EXPECT_EQ(keys_open(&k, "a:group=x:group=x", &e), -1);
    EXPECT_EQ(keys_open(&k, "a:group=a23456789012345678901234567890123", &e), -1);
}

static const char *file_with(const char *text, size_t n)
{
    static char path[64];

    snprintf(path, sizeof(path), "/tmp/test_keys-%d", (int)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    EXPECT(fd >= 0);
    EXPECT_EQ(write(fd, text, n), (ssize_t)n);
    close(fd);
    return path;
}

static void keys_of_a_file_are_added_and_errors_name_the_line(void)
{
    static const struct {
        const char *text, *msg;
    } bad[] = {
        { "x\n\nsec ret\n", "3: a blank or a control character" },
        { "y\nsecret,b", "2: a comma" },
        { "alpha", "1: the same key as key 1" },
        { "#\nz:weight=0", "2: bad weight" },
    };
    char expected[160];
    static char large[KEY_FILE_BYTES_MAX + 1];
    struct caller c = { 0 };
    struct keys *k;
    struct err e;

    EXPECT_EQ(keys_open(&k, "alpha", &e), 0);
    const char text[] = "# keys\n\n  beta:admin \r\ngamma:weight=2";
    EXPECT_EQ(keys_add_file(k, file_with(text, sizeof(text) - 1), &e), 0);
    EXPECT_EQ(keys_count(k), 3);
    EXPECT(keys_find(k, STR("beta"), &c) && c.scopes & SCOPE_ADMIN);
    EXPECT(keys_find(k, STR("gamma"), &c) && c.weight == 2 && c.number == 3);
    EXPECT_EQ(keys_add_file(k, file_with("", 0), &e), 0);
    EXPECT_EQ(keys_count(k), 3);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *path = file_with(bad[i].text, strlen(bad[i].text));
        EXPECT_EQ(keys_add_file(k, path, &e), -1);
        snprintf(expected, sizeof(expected), "api keys: %s:%s", path, bad[i].msg);
        EXPECT_STR(e.msg, expected);
    }
    EXPECT_EQ(keys_add_file(k, file_with("a\0b", 3), &e), -1);
    EXPECT_EQ(keys_add_file(k, file_with(large, sizeof(large)), &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_TOO_LARGE);
    EXPECT_EQ(keys_add_file(k, "/nonexistent", &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_NOT_FOUND);
    EXPECT_EQ(keys_add_file(k, "/tmp", &e), -1);
    unlink(file_with("", 0));
    keys_close(k);
}

static void key_is_read_from_either_header_field(void)
{
    EXPECT(str_is(keys_from_fields(STR("Bearer  abc "), STR_NONE), "abc"));
    EXPECT(str_is(keys_from_fields(STR("bearer abc"), STR("other")), "abc"));
    EXPECT(str_is(keys_from_fields(STR_NONE, STR("abc")), "abc"));
    EXPECT(str_is(keys_from_fields(STR("Basic abc"), STR_NONE), ""));
}

TESTS(TEST(keys_are_found_with_their_scopes), TEST(key_is_one_tenant_and_anonymous_is_tenant_zero),
    TEST(keys_have_weights_that_change), TEST(keys_have_a_maximum_priority),
    TEST(keys_of_a_group_share_a_cache_group_but_not_a_tenant),
    TEST(invalid_list_error_names_the_entry_and_not_the_key),
    TEST(keys_of_a_file_are_added_and_errors_name_the_line),
    TEST(key_is_read_from_either_header_field))
