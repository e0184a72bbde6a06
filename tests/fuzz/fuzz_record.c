/* Fuzzes KV records, unchanged and with corrected checksums, so that the code after the checksum
 * is reached, too. An accepted record can be read to its last byte. */
#include "base/crc.h"
#include "base/mem.h"
#include "cache/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static uint32_t touch(const struct record *r, size_t page_bytes)
{
    uint32_t sum = 0;

    for (int i = 0; i < r->n_tokens; i++)
        sum += (uint32_t)r->tokens[i];
    for (size_t i = 0; i < (size_t)r->n_pages * page_bytes; i++)
        sum += r->pages[i];
    return sum;
}

/* Makes the header one of our kind, with a valid checksum, whatever its counts are. */
static void fix_header(const struct record_kind *k, uint8_t *bytes, size_t n)
{
    enum { VERSION_AT = 8, MODEL_AT = 16, N_TOKENS_AT = 60, N_PAGES_AT = 68 };
    const uint32_t shape[2] = { 1, PAGE_TOKENS };
    uint32_t n_tokens, n_pages;

    memcpy(bytes, "IFLUXKV", 8);
    memcpy(bytes + VERSION_AT, shape, sizeof(shape));
    memcpy(bytes + MODEL_AT, k->model, sizeof(k->model));
    memcpy(bytes + MODEL_AT + 32, &k->page_bytes, 8);
    memcpy(bytes + MODEL_AT + 40, &k->kv_kind, 4);
    memcpy(&n_tokens, bytes + N_TOKENS_AT, 4);
    memcpy(&n_pages, bytes + N_PAGES_AT, 4);
    uint64_t front = RECORD_HEAD + ((uint64_t)n_tokens + n_pages) * 4;
    front = (front + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
    if (front > n)
        return;
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
        sum += touch(&r, kind.page_bytes);
    if (n >= RECORD_HEAD) {
        fix_header(&kind, bytes, n);
        if (!record_read_head(&r, &kind, bytes, n, &n_bytes, &e)) {
            CHECK(n_bytes <= n);
            sum += touch(&r, kind.page_bytes);
        }
    }
    mem_free(bytes);
    return 0;
}
