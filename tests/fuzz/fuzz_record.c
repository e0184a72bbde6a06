/* Fuzzes KV records, unchanged and with corrected checksums, so that the code after the checksum
 * is reached, too. An accepted record can be read to its last byte. */
#include "base/crc.h"
#include "base/mem.h"
#include "cache/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static uint32_t touch(const struct record *r, const struct record_kind *k)
{
    uint32_t sum = 0;

    for (int i = 0; i < r->n_tokens; i++)
        sum += (uint32_t)r->tokens[i];
    for (size_t i = 0; i < (size_t)r->n_pages * k->page_bytes; i++)
        sum += r->pages[i];
    for (size_t i = 0; r->has_state && i < k->state_bytes; i++)
        sum += r->state[i];
    return sum;
}

/* Makes the header one of our kind, with a valid checksum, whatever its counts are. */
static void fix_header(const struct record_kind *k, uint8_t *bytes, size_t n)
{
    enum { VERSION_AT = 8, MODEL_AT = 16, N_TOKENS_AT = 60, N_PAGES_AT = 68, N_PARTS_AT = 112 };
    const uint32_t shape[2] = { 2, PAGE_TOKENS };
    uint32_t n_tokens, n_pages, n_parts;

    memcpy(bytes, "IFLUXKV", 8);
    memcpy(bytes + VERSION_AT, shape, sizeof(shape));
    memcpy(bytes + MODEL_AT, k->model, sizeof(k->model));
    memcpy(bytes + MODEL_AT + 32, &k->page_bytes, 8);
    memcpy(bytes + MODEL_AT + 40, &k->kv_kind, 4);
    memcpy(&n_tokens, bytes + N_TOKENS_AT, 4);
    memcpy(&n_pages, bytes + N_PAGES_AT, 4);
    memcpy(&n_parts, bytes + N_PARTS_AT, 4);
    n_parts %= 2;
    memcpy(bytes + N_PARTS_AT, &n_parts, 4);
    uint64_t front = RECORD_HEAD + ((uint64_t)n_tokens + n_pages) * 4 + (uint64_t)n_parts * 16;
    front = (front + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
    if (front > n)
        return;
    if (n_parts > 0) {
        const uint64_t state[2] = { 1, k->state_bytes };
        memcpy(bytes + RECORD_HEAD + (uint64_t)n_tokens * 4, state, sizeof(state));
    }
    uint32_t sum = crc32c(0, bytes, RECORD_HEAD - 4);
    sum = crc32c(sum, bytes + RECORD_HEAD, front - RECORD_HEAD);
    memcpy(bytes + RECORD_HEAD - 4, &sum, 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct record_kind kind = {
        .model = "a model", .kv_kind = 7, .page_bytes = 96, .state_bytes = n % 2 ? 40 : 0
    };
    uint8_t *bytes = try_aligned(RECORD_ALIGN, MAX(n, (size_t)1));
    volatile uint32_t sum = 0;
    struct record r;
    struct err e;
    size_t n_bytes;

    CHECK(bytes);
    memcpy(bytes, data, n);
    if (!record_read(&r, &kind, bytes, n, &e))
        sum += touch(&r, &kind);
    if (n >= RECORD_HEAD) {
        fix_header(&kind, bytes, n);
        if (!record_read_head(&r, &kind, bytes, n, &n_bytes, &e)) {
            CHECK(n_bytes <= n);
            sum += touch(&r, &kind);
        }
    }
    mem_free(bytes);
    return 0;
}
