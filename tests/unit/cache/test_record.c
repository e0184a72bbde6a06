/* KV records: checksums, round trip, damage and mismatched models. */
#include "cache/record.h"
#include "base/crc.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/check.h"

enum { PAGE_BYTES = 96, STATE_BYTES = 40, WINDOW_BYTES = 56 };

static struct record_kind kind = { .model = "a model", .kv_kind = 7, .page_bytes = PAGE_BYTES };

/* A sealed record of n tokens, in a heap block of exactly its size, so that a sanitizer detects
 * a read beyond it. */
static uint8_t *make_record(int n_tokens, int first_page, size_t *n)
{
    int32_t tokens[200];
    struct record r = { .scope.tenant = 3,
        .tokens = tokens,
        .n_tokens = n_tokens,
        .first_page = first_page,
        .has_state = kind.state_bytes > 0,
        .n_windows = kind.window_bytes ? 1 + (n_tokens > PAGE_TOKENS) : 0 };
    uint8_t *bytes;

    r.scope.salt[31] = 9;
    for (int i = 0; i < n_tokens; i++)
        tokens[i] = i * 31;
    *n = record_bytes(&kind, &r);
    bytes = try_aligned(RECORD_ALIGN, *n);
    EXPECT(bytes);
    record_begin(bytes, &kind, &r);
    for (int i = 0; i < r.n_pages * PAGE_BYTES; i++)
        r.pages[i] = (uint8_t)(i * 7);
    for (uint64_t i = 0; i < kind.state_bytes; i++)
        r.state[i] = (uint8_t)(i * 5);
    for (int i = 0; i < r.n_windows * WINDOW_BYTES; i++)
        r.windows[i] = (uint8_t)(i * 3);
    record_seal(bytes);
    return bytes;
}

static void checksums_equal_the_published_vectors(void)
{
    uint8_t zeros[32] = { 0 };

    EXPECT_EQ(crc32c(0, "123456789", 9), 0xe3069283u);
    EXPECT_EQ(crc32c(0, zeros, 32), 0x8a9136aau); /* RFC 3720, B.4 */
    memset(zeros, 0xff, 32);
    EXPECT_EQ(crc32c(0, zeros, 32), 0x62a8ab43u);
    EXPECT_EQ(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
    EXPECT_EQ(crc32c(0, "", 0), 0u);
}

static void written_record_is_read_back(void)
{
    for (int n_tokens = 1; n_tokens <= 3 * PAGE_TOKENS; n_tokens++) {
        int last = (n_tokens - 1) / PAGE_TOKENS;
        for (int first = 0; first <= last; first++) {
            struct record r;
            struct err e;
            size_t n;
            uint8_t *bytes = make_record(n_tokens, first, &n);
            EXPECT_EQ(record_read(&r, &kind, bytes, n, &e), 0);
            EXPECT_EQ(r.n_tokens, n_tokens);
            EXPECT_EQ(r.first_page, first);
            EXPECT_EQ(r.n_pages, last - first + 1);
            EXPECT(r.scope.tenant == 3 && r.scope.salt[31] == 9);
            for (int i = 0; i < n_tokens; i++)
                EXPECT_EQ(r.tokens[i], i * 31);
            EXPECT(
                r.pages[r.n_pages * PAGE_BYTES - 1] == (uint8_t)((r.n_pages * PAGE_BYTES - 1) * 7));
            EXPECT_EQ(r.has_state, kind.state_bytes > 0);
            EXPECT_EQ(r.n_windows, kind.window_bytes ? 1 + (n_tokens > PAGE_TOKENS) : 0);
            EXPECT(!r.n_windows || r.windows + r.n_windows * WINDOW_BYTES == bytes + n);
            for (int i = 0; i < r.n_windows * WINDOW_BYTES; i++)
                EXPECT_EQ(r.windows[i], (uint8_t)(i * 3));
            if (r.has_state && !r.n_windows) {
                size_t n_before = (size_t)(r.pages - bytes) + (size_t)r.n_pages * PAGE_BYTES;
                size_t at = (n_before + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
                EXPECT(r.state == bytes + at && r.state + kind.state_bytes == bytes + n);
            }
            for (uint64_t i = 0; i < kind.state_bytes; i++)
                EXPECT_EQ(r.state[i], (uint8_t)(i * 5));
            mem_free(bytes);
        }
    }
}

static void every_changed_byte_and_every_truncation_is_detected(void)
{
    struct record r;
    struct err e;
    size_t n;
    uint8_t *bytes = make_record(2 * PAGE_TOKENS + 1, 0, &n);

    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (uint8_t)(1 << bit);
            EXPECT_EQ(record_read(&r, &kind, bytes, n, &e), -1);
            EXPECT(e.code == ERR_CORRUPT || e.code == ERR_UNSUPPORTED);
            bytes[i] ^= (uint8_t)(1 << bit);
        }
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *some = try_aligned(RECORD_ALIGN, MAX(cut, (size_t)1));
        EXPECT(some);
        memcpy(some, bytes, cut);
        EXPECT_EQ(record_read(&r, &kind, some, cut, &e), -1);
        EXPECT(e.code == ERR_CORRUPT);
        mem_free(some);
    }
    EXPECT_EQ(record_read(&r, &kind, bytes, n, &e), 0);
    mem_free(bytes);
}

static void other_model_or_layout_is_rejected(void)
{
    struct record_kind other[5] = { kind, kind, kind, kind, kind };
    const int n_other = kind.state_bytes ? 5 : 3;
    struct record r;
    struct err e;
    size_t n;
    uint8_t *bytes = make_record(5, 0, &n);

    other[0].model[31] = 1;
    other[1].kv_kind++;
    other[2].page_bytes--;
    other[3].state_bytes++;
    other[4].state_bytes = 0;
    for (int i = 0; i < n_other; i++) {
        EXPECT_EQ(record_read(&r, &other[i], bytes, n, &e), -1);
        EXPECT(e.code == ERR_UNSUPPORTED);
    }
    mem_free(bytes);
}

/* Changes a number in the part table, or the number of parts, with valid checksums. */
static void expect_part_is_rejected(size_t at, uint64_t value, size_t n_value, enum errcode code)
{
    struct record r;
    struct err e;
    size_t n, n_front;
    uint8_t *bytes = make_record(3, 0, &n);

    memcpy(bytes + at, &value, n_value);
    n_front = record_meta_bytes(bytes);
    EXPECT(n_front >= RECORD_HEAD);
    uint32_t sum = crc32c(0, bytes, RECORD_HEAD - 4);
    sum = crc32c(sum, bytes + RECORD_HEAD, n_front - RECORD_HEAD);
    memcpy(bytes + RECORD_HEAD - 4, &sum, sizeof(sum));
    EXPECT_EQ(record_read(&r, &kind, bytes, n, &e), -1);
    EXPECT_EQ(e.code, code);
    mem_free(bytes);
}

static void parts_that_the_model_does_not_have_are_rejected(void)
{
    enum { N_PARTS_AT = 112, TABLE_AT = RECORD_HEAD + 3 * 4, BYTES_AT = TABLE_AT + 8 };

    kind.state_bytes = STATE_BYTES;
    expect_part_is_rejected(TABLE_AT, 2, 4, ERR_UNSUPPORTED); /* another kind */
    expect_part_is_rejected(BYTES_AT, STATE_BYTES + 1, 8, ERR_UNSUPPORTED);
    expect_part_is_rejected(BYTES_AT, UINT64_MAX, 8, ERR_UNSUPPORTED);
    expect_part_is_rejected(N_PARTS_AT, 2, 4, ERR_UNSUPPORTED); /* the checksums as a part */
    kind.state_bytes = 0;
}

static void records_may_have_a_state(void)
{
    kind.state_bytes = STATE_BYTES;
    written_record_is_read_back();
    every_changed_byte_and_every_truncation_is_detected();
    other_model_or_layout_is_rejected();
    kind.state_bytes = 0;
}

/* Window pages, alone and after a state. */
static void records_may_have_window_pages(void)
{
    enum { N_TOKENS = 3, TABLE_AT = RECORD_HEAD + N_TOKENS * 4, BYTES_AT = TABLE_AT + 8 };

    kind.window_bytes = WINDOW_BYTES;
    written_record_is_read_back();
    every_changed_byte_and_every_truncation_is_detected();
    expect_part_is_rejected(TABLE_AT, 1, 4, ERR_UNSUPPORTED); /* a state */
    expect_part_is_rejected(BYTES_AT, 0, 8, ERR_UNSUPPORTED);
    expect_part_is_rejected(BYTES_AT, WINDOW_BYTES + 1, 8, ERR_UNSUPPORTED);
    expect_part_is_rejected(BYTES_AT, 1u << 30, 8, ERR_UNSUPPORTED); /* more than pages */
    expect_part_is_rejected(BYTES_AT, UINT64_MAX, 8, ERR_UNSUPPORTED);
    kind.state_bytes = STATE_BYTES;
    written_record_is_read_back();
    every_changed_byte_and_every_truncation_is_detected();
    kind.state_bytes = kind.window_bytes = 0;
}

TESTS(TEST(checksums_equal_the_published_vectors), TEST(written_record_is_read_back),
    TEST(every_changed_byte_and_every_truncation_is_detected),
    TEST(other_model_or_layout_is_rejected), TEST(records_may_have_a_state),
    TEST(records_may_have_window_pages), TEST(parts_that_the_model_does_not_have_are_rejected))
