#include "cache/record.h"
#include "base/crc.h"
#include "format/cursor.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are little-endian");

static const char magic[8] = "IFLUXKV";

enum { VERSION = 1, HEAD_SUM_AT = RECORD_HEAD - 4 };

struct record_header { /* file layout, without padding */
    char magic[8];
    uint32_t version, page_tokens;
    uint8_t model[32];
    uint64_t page_bytes;
    uint32_t kv_kind;
    uint32_t n_tokens, first_page, n_pages;
    uint64_t tenant;
    uint8_t salt[32];
    uint64_t state_bytes;
    uint8_t reserved[4];
    uint32_t sum;
};
_Static_assert(sizeof(struct record_header) == RECORD_HEAD &&
                   offsetof(struct record_header, sum) == HEAD_SUM_AT,
    "the head of a record");

static uint64_t align_up(uint64_t n)
{
    return (n + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
}

static int n_pages_for(int n_tokens)
{
    return (n_tokens + PAGE_TOKENS - 1) / PAGE_TOKENS;
}

/* Bytes before the pages. */
static size_t meta_bytes(size_t n_tokens, size_t n_pages, bool has_state)
{
    size_t n_sums = n_pages + has_state;

    return align_up(RECORD_HEAD + n_tokens * sizeof(int32_t) + n_sums * sizeof(uint32_t));
}

static size_t meta_bytes_of(const struct record_header *h)
{
    return meta_bytes(h->n_tokens, h->n_pages, h->state_bytes > 0);
}

/* Checksum i of a record: of page i, or of the state after the pages. */
static uint32_t content_checksum(const struct record_header *h, const uint8_t *pages, uint32_t i)
{
    return crc32c(0, pages + i * h->page_bytes, i < h->n_pages ? h->page_bytes : h->state_bytes);
}

size_t record_bytes(const struct record_kind *k, int n_tokens, int first_page)
{
    size_t n_pages = (size_t)(n_pages_for(n_tokens) - first_page);

    return meta_bytes((size_t)n_tokens, n_pages, k->state_bytes > 0) + n_pages * k->page_bytes +
           k->state_bytes;
}

static uint32_t meta_checksum(const uint8_t *bytes, size_t n)
{
    uint32_t sum = crc32c(0, bytes, HEAD_SUM_AT);

    return crc32c(sum, bytes + RECORD_HEAD, n - RECORD_HEAD);
}

void record_begin(uint8_t *out, const struct record_kind *k, struct record *r)
{
    struct record_header h = { .version = VERSION,
        .page_tokens = PAGE_TOKENS,
        .page_bytes = k->page_bytes,
        .kv_kind = k->kv_kind,
        .state_bytes = k->state_bytes,
        .n_tokens = (uint32_t)r->n_tokens,
        .first_page = (uint32_t)r->first_page,
        .tenant = r->scope.tenant };

    CHECK(r->n_tokens >= 1 && r->n_tokens <= RECORD_TOKENS_MAX);
    CHECK(r->first_page >= 0 && r->first_page < n_pages_for(r->n_tokens));
    r->n_pages = n_pages_for(r->n_tokens) - r->first_page;
    h.n_pages = (uint32_t)r->n_pages;
    memcpy(h.magic, magic, sizeof(magic));
    memcpy(h.model, k->model, sizeof(h.model));
    memcpy(h.salt, r->scope.salt, sizeof(h.salt));
    size_t n_front = meta_bytes_of(&h), n = h.n_tokens * sizeof(*r->tokens);
    memcpy(out, &h, sizeof(h));
    memcpy(out + RECORD_HEAD, r->tokens, n);
    memset(out + RECORD_HEAD + n, 0, n_front - RECORD_HEAD - n);
    r->pages = out + n_front;
    r->state = r->pages + h.n_pages * h.page_bytes;
}

void record_seal(uint8_t *bytes)
{
    struct record_header h;

    memcpy(&h, bytes, sizeof(h));
    size_t n_front = meta_bytes_of(&h);
    uint8_t *sums = bytes + RECORD_HEAD + h.n_tokens * sizeof(int32_t);
    for (uint32_t i = 0; i < h.n_pages + (h.state_bytes > 0); i++) {
        uint32_t sum = content_checksum(&h, bytes + n_front, i);
        memcpy(sums + i * sizeof(sum), &sum, sizeof(sum));
    }
    uint32_t sum = meta_checksum(bytes, n_front);
    memcpy(bytes + HEAD_SUM_AT, &sum, sizeof(sum));
}

/* ---- reading */

static int check_counts(const struct record_header *h, size_t n, struct err *e)
{
    if (memcmp(h->magic, magic, sizeof(magic)) != 0)
        return err_set(e, ERR_CORRUPT, "not a KV record");
    if (h->version != VERSION)
        return err_set(
            e, ERR_UNSUPPORTED, "the KV record has version %u, expected %d", h->version, VERSION);
    if (h->n_tokens < 1 || h->n_tokens > RECORD_TOKENS_MAX || h->page_bytes < 1 ||
        h->page_tokens < 1 || h->n_pages < 1)
        return err_set(e, ERR_CORRUPT, "the KV record has invalid counts");
    /* In 64 bits, since each term is below 2^32. */
    uint64_t n_sums = (uint64_t)h->n_pages + (h->state_bytes > 0);
    uint64_t front = align_up(RECORD_HEAD + (uint64_t)h->n_tokens * 4 + n_sums * 4);
    if (front > n || h->n_pages > (n - front) / h->page_bytes ||
        h->state_bytes > n - front - h->n_pages * h->page_bytes)
        return err_set(e, ERR_CORRUPT, "the KV record is truncated");
    return 0;
}

static int check_kind(const struct record_header *h, const struct record_kind *k, struct err *e)
{
    if (memcmp(h->model, k->model, sizeof(h->model)) != 0)
        return err_set(e, ERR_UNSUPPORTED, "the KV record belongs to another model");
    if (h->page_tokens != PAGE_TOKENS || h->page_bytes != k->page_bytes ||
        h->kv_kind != k->kv_kind || h->state_bytes != k->state_bytes)
        return err_set(e, ERR_UNSUPPORTED, "the KV record has another page layout");
    return 0;
}

size_t record_meta_bytes(const uint8_t *record_header)
{
    struct record_header h;

    memcpy(&h, record_header, sizeof(h));
    if (memcmp(h.magic, magic, sizeof(magic)) != 0 || h.n_tokens < 1 ||
        h.n_tokens > RECORD_TOKENS_MAX || h.n_pages < 1 || h.n_pages > h.n_tokens)
        return 0;
    return meta_bytes_of(&h);
}

int record_read_head(struct record *out, const struct record_kind *k, uint8_t *bytes, size_t n,
    size_t *n_bytes, struct err *e)
{
    struct cursor c = { .p = bytes, .n = n };
    struct record_header h;
    const uint8_t *p = cursor_take(&c, sizeof(h));

    if (!p)
        return err_set(e, ERR_CORRUPT, "the KV record is truncated");
    memcpy(&h, p, sizeof(h));
    if (check_counts(&h, n, e))
        return -1;
    size_t n_front = meta_bytes_of(&h);
    if (meta_checksum(bytes, n_front) != h.sum)
        return err_set(e, ERR_CORRUPT, "the checksum of the KV record header is wrong");
    if (check_kind(&h, k, e))
        return -1;
    int n_tokens = (int)h.n_tokens;
    if (h.n_pages > (uint32_t)n_pages_for(n_tokens) ||
        h.first_page != (uint32_t)n_pages_for(n_tokens) - h.n_pages)
        return err_set(e, ERR_CORRUPT, "the page range of the KV record does not match its tokens");
    *out = (struct record){ .scope.tenant = h.tenant,
        .tokens = (const int32_t *)(const void *)(bytes + RECORD_HEAD),
        .n_tokens = n_tokens,
        .first_page = (int)h.first_page,
        .n_pages = (int)h.n_pages,
        .pages = bytes + n_front,
        .state = bytes + n_front + h.n_pages * (size_t)h.page_bytes };
    memcpy(out->scope.salt, h.salt, sizeof(h.salt));
    *n_bytes = n_front + h.n_pages * (size_t)h.page_bytes + h.state_bytes;
    return 0;
}

int record_read(
    struct record *out, const struct record_kind *k, uint8_t *bytes, size_t n, struct err *e)
{
    struct record r;
    size_t n_bytes;

    if (record_read_head(&r, k, bytes, n, &n_bytes, e))
        return -1;
    const uint8_t *sums = bytes + RECORD_HEAD + (size_t)r.n_tokens * sizeof(int32_t);
    struct record_header h;
    memcpy(&h, bytes, sizeof(h));
    for (uint32_t i = 0; i < h.n_pages + (h.state_bytes > 0); i++) {
        uint32_t sum;
        memcpy(&sum, sums + i * sizeof(sum), sizeof(sum));
        if (content_checksum(&h, r.pages, i) != sum)
            return err_set(e, ERR_CORRUPT, "the checksum of %s %u of the KV record is wrong",
                i < h.n_pages ? "page" : "state", i);
    }
    *out = r;
    return 0;
}
