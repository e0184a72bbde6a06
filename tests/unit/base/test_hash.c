/* Hash functions: pinned values, and the spread of similar keys. */
#include "base/hash.h"
#include "support/check.h"

static void the_values_of_splitmix64_are_those_of_the_paper(void)
{
    /* the first numbers of the reference implementation with the seed 1234567 */
    static const uint64_t want[] = { 6457827717110365317u, 3203168211198807973u,
        9817491932198370423u, 4593380528125082431u, 16408922859458223821u };

    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        EXPECT_EQ(hash_mix(1234567 + (i + 1) * HASH_GOLDEN), want[i]);
}

/* Names of exported pages and synthetic files consist of these values. */
static void the_values_of_step_and_fold_are_pinned(void)
{
    EXPECT_EQ(hash_step(0, 1), (uint64_t)0x9e3779b97f4a7c15u);
    EXPECT_EQ(hash_step(3, 1), (uint64_t)0x3c6ef372fe94f82au);
    EXPECT_EQ(hash_fold(HASH_GOLDEN, 5), (uint64_t)0);
    EXPECT_EQ(hash_fold(HASH_GOLDEN ^ 2, 0xd6e8feb86659fd93u ^ 0x8000000000000001u), (uint64_t)3);
}

static int bits_set(uint64_t x)
{
    return __builtin_popcountll(x);
}

/* Changing one bit of the key changes about half of the 64 bits of the hash. */
static void each_bit_of_a_key_changes_half_of_the_hash(void)
{
    enum { N = 200 };
    uint8_t key[40];
    int64_t n_mix = 0, n_bytes = 0, n_seed = 0;

    for (int i = 0; i < N; i++) {
        uint64_t x = hash_mix((uint64_t)i);
        n_mix += bits_set(hash_mix(x) ^ hash_mix(x ^ (uint64_t)1 << i % 64));
        for (size_t k = 0; k < sizeof(key); k++)
            key[k] = (uint8_t)hash_mix((uint64_t)i * 64 + k);
        uint64_t before = hash_bytes(x, key, sizeof(key));
        n_seed += bits_set(before ^ hash_bytes(x ^ (uint64_t)1 << i % 64, key, sizeof(key)));
        key[i % (int)sizeof(key)] ^= (uint8_t)(1 << i % 8);
        n_bytes += bits_set(before ^ hash_bytes(x, key, sizeof(key)));
    }
    EXPECT(n_mix > N * 30 && n_mix < N * 34);
    EXPECT(n_bytes > N * 30 && n_bytes < N * 34);
    EXPECT(n_seed > N * 30 && n_seed < N * 34);
}

static void strings_of_zeros_differ_by_their_length(void)
{
    enum { N = 70 };
    static const uint8_t zeros[N];
    uint64_t h[N + 1];

    for (size_t n = 0; n <= N; n++) {
        h[n] = hash_bytes(7, n ? zeros : NULL, n);
        for (size_t k = 0; k < n; k++)
            EXPECT(h[n] != h[k]);
    }
}

static void equal_strings_at_other_addresses_have_equal_hashes(void)
{
    enum { N = 37 };
    char space[N + 16];

    for (size_t n = 0; n <= N; n++) {
        uint64_t want = 0;
        for (size_t at = 0; at < 16; at++) {
            for (size_t i = 0; i < n; i++)
                space[at + i] = (char)('a' + i);
            uint64_t h = hash_bytes(n, space + at, n);
            EXPECT(at == 0 || h == want);
            want = h;
        }
    }
}

/* Low bits of hashes select buckets: numbers in sequence fill them evenly. */
static void numbers_in_sequence_fill_the_buckets_evenly(void)
{
    enum { BUCKETS = 256, N = 256 * 64 };
    int n_mix[BUCKETS] = { 0 }, n_bytes[BUCKETS] = { 0 };

    for (uint32_t i = 0; i < N; i++) {
        n_mix[hash_mix(i) % BUCKETS]++;
        n_bytes[hash_bytes(1, &i, sizeof(i)) % BUCKETS]++;
    }
    for (int b = 0; b < BUCKETS; b++) /* mean 64, standard deviation 8 */
        EXPECT(n_mix[b] > 24 && n_mix[b] < 104 && n_bytes[b] > 24 && n_bytes[b] < 104);
}

TESTS(TEST(the_values_of_splitmix64_are_those_of_the_paper),
    TEST(the_values_of_step_and_fold_are_pinned), TEST(each_bit_of_a_key_changes_half_of_the_hash),
    TEST(strings_of_zeros_differ_by_their_length),
    TEST(equal_strings_at_other_addresses_have_equal_hashes),
    TEST(numbers_in_sequence_fill_the_buckets_evenly))
