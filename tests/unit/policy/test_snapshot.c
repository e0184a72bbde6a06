/* API keys of the policy: networks, attributes, snapshots. */
#include "support/check.h"
#include "base/mem.h"
#include "os/clock.h"
#include "policy/snapshot.h"

#include <stdio.h>

static struct network network_of(const char *text)
{
    struct network n;
    struct err e;

    EXPECT_EQ(network_parse(&n, str_of(text), &e), 0);
    return n;
}

static void networks_contain_their_addresses(void)
{
    static const struct {
        const char *network, *address;
        bool is_inside;
    } cases[] = {
        { "10.0.0.0/8", "10.255.0.1", true },
        { "10.0.0.0/8", "11.0.0.1", false },
        { "192.0.2.7", "192.0.2.7", true },
        { "192.0.2.7", "192.0.2.6", false },
        { "0.0.0.0/0", "255.255.255.255", true },
        { "0.0.0.0/0", "::1", false },
        { "::/0", "10.0.0.1", true },
        { "192.0.2.128/25", "192.0.2.127", false },
        { "192.0.2.128/25", "192.0.2.255", true },
        { "10.0.0.0/8", "::ffff:10.1.2.3", true },
        { "2001:db8::/33", "2001:db8:7fff::1", true },
        { "2001:db8::/33", "2001:db8:8000::1", false },
        { "::1", "::1", true },
        { "10.0.0.0/8", "", false },
        { "::/0", "10.0.0", false },
        { "::/0", "host", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct network n = network_of(cases[i].network);
        EXPECT_EQ(network_contains(&n, str_of(cases[i].address)), cases[i].is_inside);
    }
}

static void bad_networks_are_errors_and_good_ones_are_written_back(void)
{
    static const char *const bad[] = { "", "/", "10.0.0.0/", "10.0.0.0/33", "10.0.0.1/8", "::/129",
        "::1/64", "10.0.0.0/-1", "10.0.0.0/8/8", "010.0.0.1.1", "host", "10.0.0.0 /8" };
    static const char *const good[] = { "10.0.0.0/8", "192.0.2.7/32", "0.0.0.0/0", "::/0",
        "::1/128", "2001:db8::/33" };
    struct network n;
    struct buf b;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        EXPECT_EQ(network_parse(&n, str_of(bad[i]), &e), -1);
    buf_init(&b, KB);
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        n = network_of(good[i]);
        buf_reset(&b);
        network_write(&n, &b);
        EXPECT(str_is(buf_str(&b), good[i]));
    }
    buf_clear(&b);
}

/* A key with a digest that depends on `number`. */
static struct policy_key *key_of(uint32_t number)
{
    uint8_t digest[POLICY_DIGEST_BYTES];

    policy_digest(digest, (struct str){ (const char *)&number, sizeof(number) });
    struct policy_key *k = policy_key_new(digest);
    CHECK(k);
    return k;
}

static void set(struct policy_key *k, const char *name, const char *text)
{
    struct err e;

    EXPECT_EQ(policy_key_set(k, policy_attribute_find(str_of(name)), str_of(text), &e), 0);
}

static struct policy_key *full_key(void)
{
    struct policy_key *k = key_of(1);

    set(k, "name", "a name = x");
    set(k, "scopes", "read\tadmin");
    set(k, "expires_at", "4102444800");
    set(k, "tenant", "acme");
    set(k, "cache_group", "g");
    set(k, "weight", "2.5");
    set(k, "priority", "7");
    set(k, "models", "demo\tfiles/other model");
    set(k, "networks", "10.0.0.0/8\t::1/128");
    set(k, "limits", "requests_per_minute=60\tcost_per_day=9000000");
    set(k, "version", "12");
    return k;
}

static void expect_equal_keys(const struct policy_key *a, const struct policy_key *b)
{
    struct buf x, y;

    buf_init(&x, MB);
    buf_init(&y, MB);
    for (size_t i = 0; i < ARRAY_LEN(policy_attributes); i++) {
        policy_attributes[i].write(a, &x);
        policy_attributes[i].write(b, &y);
    }
    EXPECT(str_eq(buf_str(&x), buf_str(&y)));
    buf_clear(&x);
    buf_clear(&y);
}

static void attributes_equal_their_text(void)
{
    struct policy_key *k = full_key(), *again = key_of(1), *copy = policy_key_copy(k);
    struct caller c;
    struct buf b;
    struct err e;

    buf_init(&b, MB);
    for (size_t i = 0; i < ARRAY_LEN(policy_attributes); i++) {
        buf_reset(&b);
        policy_attributes[i].write(k, &b);
        EXPECT_EQ(policy_key_set(again, &policy_attributes[i], buf_str(&b), &e), 0);
    }
    expect_equal_keys(k, again);
    expect_equal_keys(k, copy);
    EXPECT(!memcmp(copy->digest, k->digest, sizeof(k->digest)) && !strcmp(copy->id, k->id));
    EXPECT(policy_key_allows_model(k, "demo") && policy_key_allows_model(k, "files/other model"));
    EXPECT(!policy_key_allows_model(k, "dem") && !policy_key_allows_model(k, ""));
    EXPECT(policy_key_allows_address(k, STR("10.1.1.1")));
    EXPECT(!policy_key_allows_address(k, STR("127.0.0.1")));
    EXPECT(!policy_key_is_expired(k, 4102444799) && policy_key_is_expired(k, 4102444800));
    policy_key_caller(k, &c);
    EXPECT_EQ(c.scopes, (unsigned)(SCOPE_READ | SCOPE_ADMIN));
    EXPECT_EQ(c.max_priority, 7);
    struct caller other = { .id = "0123456789abcdef", .tenant = "acme" };
    EXPECT_EQ(caller_tenant(&c), caller_tenant(&other));
    EXPECT(caller_cache_group(&c) != caller_cache_group(&other));
    buf_clear(&b);
    policy_key_unref(k);
    policy_key_unref(again);
    policy_key_unref(copy);
}

static void bad_attributes_leave_the_key_unchanged(void)
{
    static const struct {
        const char *name, *text;
    } bad[] = { { "scopes", "" },
        { "scopes", "read\t"
                    "root" },
        { "expires_at", "-1" }, { "expires_at", "99999999999999999999" }, { "tenant", "a b" },
        { "weight", "0" }, { "weight", "nan" }, { "priority", "1000001" },
        { "networks", "10.0.0.0/8\t"
                      "x" },
        { "models", "a\t\tb" }, { "limits", "requests_per_minute" }, { "limits", "x=1" },
        { "limits", "requests_per_minute=0" }, { "version", "x" }, { "name", "a\nb" },
        { "name", " a" },
        { "models", "a \t"
                    "b" },
        { "name", "\xff" } };
    struct policy_key *k = full_key(), *copy = policy_key_copy(k);
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const struct policy_attribute *a = policy_attribute_find(str_of(bad[i].name));
        EXPECT_EQ(policy_key_set(k, a, str_of(bad[i].text), &e), -1);
        EXPECT_STR(e.param, bad[i].name);
    }
    expect_equal_keys(k, copy);
    policy_key_unref(k);
    policy_key_unref(copy);
}

enum { MANY = 100000 };

static struct policy_snapshot *snapshot_of(uint32_t n)
{
    const struct policy_key **keys = xcalloc(n, sizeof(struct policy_key *));
    struct policy_snapshot *s;
    struct err e;

    for (uint32_t i = 0; i < n; i++)
        keys[i] = key_of(i);
    EXPECT_EQ(policy_snapshot_new(&s, keys, (int)n, 1, &e), 0);
    mem_free((void *)keys);
    return s;
}

static void snapshots_find_every_key_and_no_other(void)
{
    struct policy_snapshot *s = snapshot_of(5000);

    EXPECT_EQ(policy_snapshot_count(s), 5000);
    for (uint32_t i = 0; i < 10000; i++) {
        struct policy_key *k = key_of(i);
        const struct policy_key *found = policy_snapshot_find(s, k->digest);
        EXPECT_EQ(found != NULL, i < 5000);
        EXPECT(policy_snapshot_find_id(s, str_of(k->id)) == found);
        policy_key_unref(k);
    }
    for (int i = 1; i < 5000; i++)
        EXPECT(strcmp(policy_snapshot_at(s, i - 1)->id, policy_snapshot_at(s, i)->id) < 0);
    EXPECT_EQ(policy_snapshot_after(s, STR("")), 0);
    EXPECT_EQ(policy_snapshot_after(s, str_of(policy_snapshot_at(s, 7)->id)), 8);
    EXPECT_EQ(policy_snapshot_after(s, STR("g")), 5000);
    EXPECT(!policy_snapshot_find_id(s, STR("")) && !policy_snapshot_find_id(s, STR("00")));
    policy_snapshot_unref(s);
}

static void changes_make_new_snapshots_and_keep_the_old_ones(void)
{
    struct policy_snapshot *s = snapshot_of(100), *more, *other, *less;
    struct policy_key *k = key_of(100), *changed = key_of(50);
    struct err e;

    set(changed, "name", "changed");
    EXPECT_EQ(policy_snapshot_put(&more, s, k, 2, &e), 0);
    EXPECT_EQ(policy_snapshot_put(&other, more, changed, 3, &e), 0);
    EXPECT_EQ(policy_snapshot_delete(&less, other, k, 4, &e), 0);
    EXPECT_EQ(policy_snapshot_count(s), 100);
    EXPECT_EQ(policy_snapshot_count(more), 101);
    EXPECT_EQ(policy_snapshot_count(other), 101);
    EXPECT_EQ(policy_snapshot_count(less), 100);
    EXPECT_EQ(policy_snapshot_version(less), (uint64_t)4);
    EXPECT(policy_snapshot_find(more, k->digest) == k && !policy_snapshot_find(less, k->digest));
    EXPECT(policy_snapshot_find(less, changed->digest) == changed);
    EXPECT(policy_snapshot_find(more, changed->digest) != changed);
    policy_key_unref(k);
    policy_key_unref(changed);
    struct policy_snapshot *all[] = { s, more, other, less };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        policy_snapshot_unref(all[i]);
}

static void two_keys_with_one_digest_are_an_error(void)
{
    const struct policy_key *keys[] = { key_of(1), key_of(1) };
    struct policy_snapshot *s;
    struct err e;

    EXPECT_EQ(policy_snapshot_new(&s, keys, 2, 1, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_INVALID);
}

static void keys_of_a_tenant_have_one_number(void)
{
    const struct policy_key *keys[3];
    struct policy_snapshot *s;
    struct err e;

    for (int i = 0; i < 3; i++) {
        struct policy_key *k = key_of((uint32_t)i);
        k->owner = i == 2 ? 4 : i + 1;
        if (i == 2)
            set(k, "tenant", "acme");
        keys[i] = k;
    }
    EXPECT_EQ(policy_snapshot_new(&s, keys, 3, 1, &e), 0);
    EXPECT_EQ(policy_snapshot_owner(s, "acme"), 4);
    EXPECT_EQ(policy_snapshot_owner(s, "other"), 3);
    EXPECT_EQ(policy_snapshot_owner(s, ""), 3);
    policy_snapshot_unref(s);
}

/* Nanoseconds per lookup of keys that are in the snapshot; the best of several runs. */
static double lookup_ns(const struct policy_snapshot *s, int n_lookups)
{
    double best = 1e9;

    for (int run = 0; run < 9; run++) {
        uint64_t began = clock_ns();
        int n_found = 0;
        for (int i = 0; i < n_lookups; i++)
            n_found +=
                policy_snapshot_find(
                    s, policy_snapshot_at(s, i * 17 % policy_snapshot_count(s))->digest) != NULL;
        EXPECT_EQ(n_found, n_lookups);
        best = MIN(best, (double)(clock_ns() - began) / n_lookups);
    }
    return best;
}

/* A linear search would be 25,000 times slower for the large snapshot. Cache misses remain. */
static void lookup_time_does_not_grow_with_the_keys(void)
{
    struct policy_snapshot *few = snapshot_of(4), *many = snapshot_of(MANY);
    double few_ns = lookup_ns(few, 100000), many_ns = lookup_ns(many, 100000);

    printf("lookup: %.0f ns with 4 keys, %.0f ns with %d keys\n", few_ns, many_ns, MANY);
    EXPECT(many_ns < 50 * few_ns + 1000);
    policy_snapshot_unref(few);
    policy_snapshot_unref(many);
}

static void secrets_are_random_and_long(void)
{
    char a[POLICY_SECRET_BYTES + 1], b[POLICY_SECRET_BYTES + 1];

    policy_secret_new(a);
    policy_secret_new(b);
    EXPECT(!strncmp(a, "ifx_", 4) && strlen(a) == POLICY_SECRET_BYTES && strcmp(a, b));
    EXPECT(strncmp(a + 4, a + 36, 32));
}

TESTS(TEST(networks_contain_their_addresses),
    TEST(bad_networks_are_errors_and_good_ones_are_written_back), TEST(attributes_equal_their_text),
    TEST(bad_attributes_leave_the_key_unchanged), TEST(snapshots_find_every_key_and_no_other),
    TEST(changes_make_new_snapshots_and_keep_the_old_ones),
    TEST(two_keys_with_one_digest_are_an_error), TEST(keys_of_a_tenant_have_one_number),
    TEST(lookup_time_does_not_grow_with_the_keys), TEST(secrets_are_random_and_long))
