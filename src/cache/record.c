#include "cache/record.h"
#include "base/crc.h"
#include "format/cursor.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are little-endian");

static const char magic[8] = "IFLUXKV";

enum { VERSION = 2, HEAD_SUM_AT = RECORD_HEAD - 4, PARTS_MAX = 8 };

enum part_kind { PART_STATE = 1, PART_WINDOWS = 2 };

struct record_header { /* file layout, without padding */
    char magic[8];
    uint32_t version, page_tokens;
    uint8_t model[32];
    uint64_t page_bytes;
    uint32_t kv_kind;
    uint32_t n_tokens, first_page, n_pages;
    uint64_t tenant;
    uint8_t salt[32];
    uint32_t n_parts;
    uint8_t reserved[8];
    uint32_t sum;
};
_Static_assert(sizeof(struct record_header) == RECORD_HEAD &&
                   offsetof(struct record_header, sum) == HEAD_SUM_AT,
    "the head of a record");

struct part_header { /* entry of the part table, without padding */
    uint32_t kind, sum;
    uint64_t n_bytes;
};
_Static_assert(sizeof(struct part_header) == 16, "an entry of the part table");

static uint64_t align_up(uint64_t n)
{
    return (n + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
}

static int n_pages_for(int n_tokens)
{
    return (n_tokens + PAGE_TOKENS - 1) / PAGE_TOKENS;
}

/* Bytes before the pages. In 64 bits, since each term is below 2^36. */
static uint64_t meta_bytes(uint64_t n_tokens, uint64_t n_pages, uint64_t n_parts)
{
    return align_up(RECORD_HEAD + n_tokens * sizeof(int32_t) +
                    n_parts * sizeof(struct part_header) + n_pages * sizeof(uint32_t));
}

static uint64_t meta_bytes_of(const struct record_header *h)
{
    return meta_bytes(h->n_tokens, h->n_pages, h->n_parts);
}

static uint8_t *part_table(const struct record_header *h, uint8_t *bytes)
{
    return bytes + RECORD_HEAD + h->n_tokens * sizeof(int32_t);
}

static uint8_t *page_sums(const struct record_header *h, uint8_t *bytes)
{
    return part_table(h, bytes) + h->n_parts * sizeof(struct part_header);
}

static struct part_header get_part(const struct record_header *h, uint8_t *bytes, uint32_t i)
{
    struct part_header part;

    memcpy(&part, part_table(h, bytes) + i * sizeof(part), sizeof(part));
    return part;
}

/* Offset of the first part. */
static uint64_t first_part_at(const struct record_header *h)
{
    return align_up(meta_bytes_of(h) + h->n_pages * h->page_bytes);
}

/* The parts of a record in their order; returns their number. */
static uint32_t list_parts(
    const struct record_kind *k, const struct record *r, struct part_header parts[PARTS_MAX])
{
    uint32_t n = 0;

    if (r->has_state)
        parts[n++] = (struct part_header){ .kind = PART_STATE, .n_bytes = k->state_bytes };
    if (r->n_windows > 0)
        parts[n++] = (struct part_header){ .kind = PART_WINDOWS,
            .n_bytes = (uint64_t)r->n_windows * k->window_bytes };
    return n;
}

size_t record_bytes(const struct record_kind *k, const struct record *r)
{
    struct part_header parts[PARTS_MAX];
    uint32_t n_parts = list_parts(k, r, parts);
    uint64_t n_pages = (uint64_t)(n_pages_for(r->n_tokens) - r->first_page);
    uint64_t n = meta_bytes((uint64_t)r->n_tokens, n_pages, n_parts) + n_pages * k->page_bytes;

    for (uint32_t i = 0; i < n_parts; i++)
        n = align_up(n) + parts[i].n_bytes;
    return n;
}

size_t record_meta_max(int n_tokens)
{
    return meta_bytes((uint64_t)n_tokens, (uint64_t)n_pages_for(n_tokens), PARTS_MAX);
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
        .n_tokens = (uint32_t)r->n_tokens,
        .first_page = (uint32_t)r->first_page,
        .tenant = r->scope.tenant };
    struct part_header parts[PARTS_MAX];

    CHECK(r->n_tokens >= 1 && r->n_tokens <= RECORD_TOKENS_MAX);
    CHECK(r->first_page >= 0 && r->first_page < n_pages_for(r->n_tokens));
    CHECK(!r->has_state || k->state_bytes > 0);
    CHECK(r->n_windows == 0 || k->window_bytes > 0);
    h.n_parts = list_parts(k, r, parts);
    r->n_pages = n_pages_for(r->n_tokens) - r->first_page;
    h.n_pages = (uint32_t)r->n_pages;
    memcpy(h.magic, magic, sizeof(magic));
    memcpy(h.model, k->model, sizeof(h.model));
    memcpy(h.salt, r->scope.salt, sizeof(h.salt));
    size_t n_front = meta_bytes_of(&h), n = h.n_tokens * sizeof(*r->tokens);
    memcpy(out, &h, sizeof(h));
    memcpy(out + RECORD_HEAD, r->tokens, n);
    memset(out + RECORD_HEAD + n, 0, n_front - RECORD_HEAD - n);
    memcpy(part_table(&h, out), parts, h.n_parts * sizeof(parts[0]));
    r->pages = out + n_front;
    r->state = r->windows = NULL;
    uint64_t end = n_front + h.n_pages * h.page_bytes;
    for (uint32_t i = 0; i < h.n_parts; i++) {
        uint64_t at = align_up(end);
        memset(out + end, 0, at - end);
        *(parts[i].kind == PART_STATE ? &r->state : &r->windows) = out + at;
        end = at + parts[i].n_bytes;
    }
}

void record_seal(uint8_t *bytes)
{
    struct record_header h;

    memcpy(&h, bytes, sizeof(h));
    size_t n_front = meta_bytes_of(&h);
    uint64_t at = first_part_at(&h);
    for (uint32_t i = 0; i < h.n_pages; i++) {
        uint32_t sum = crc32c(0, bytes + n_front + i * h.page_bytes, h.page_bytes);
        memcpy(page_sums(&h, bytes) + i * sizeof(sum), &sum, sizeof(sum));
    }
    for (uint32_t i = 0; i < h.n_parts; i++) {
        struct part_header part = get_part(&h, bytes, i);
        part.sum = crc32c(0, bytes + at, part.n_bytes);
        at = align_up(at + part.n_bytes);
        memcpy(part_table(&h, bytes) + i * sizeof(part), &part, sizeof(part));
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
    if (h->n_tokens < 1 || h->n_tokens > RECORD_TOKENS_MAX || h->page_tokens < 1 ||
        h->n_pages < 1 || h->n_parts > PARTS_MAX)
        return err_set(e, ERR_CORRUPT, "the KV record has invalid counts");
    uint64_t front = meta_bytes_of(h);
    if (front > n || (h->page_bytes > 0 && h->n_pages > (n - front) / h->page_bytes))
        return err_set(e, ERR_CORRUPT, "the KV record is truncated");
    return 0;
}

static int check_kind(const struct record_header *h, const struct record_kind *k, struct err *e)
{
    if (memcmp(h->model, k->model, sizeof(h->model)) != 0)
        return err_set(e, ERR_UNSUPPORTED, "the KV record belongs to another model");
    if (h->page_tokens != PAGE_TOKENS || h->page_bytes != k->page_bytes || h->kv_kind != k->kv_kind)
        return err_set(e, ERR_UNSUPPORTED, "the KV record has another page layout");
    return 0;
}

/* Sets the fields of a part that the model has and that the record has once; false = it is none. */
static bool set_part(
    struct record *out, const struct record_kind *k, const struct part_header *part, uint8_t *bytes)
{
    uint64_t n_windows = k->window_bytes ? part->n_bytes / k->window_bytes : 0;

    if (part->kind == PART_STATE && !out->has_state && k->state_bytes > 0 &&
        part->n_bytes == k->state_bytes) {
        out->has_state = true;
        out->state = bytes;
        return true;
    }
    if (part->kind != PART_WINDOWS || out->n_windows > 0 || n_windows == 0 ||
        n_windows > (uint64_t)n_pages_for(out->n_tokens) ||
        n_windows * k->window_bytes != part->n_bytes)
        return false;
    out->n_windows = (int)n_windows;
    out->windows = bytes;
    return true;
}

/* Sets the parts of *out, whose header has been checked. *n_bytes are the available bytes and
 * become the size of the record. */
static int find_parts(
    struct record *out, const struct record_kind *k, uint8_t *bytes, size_t *n_bytes, struct err *e)
{
    struct record_header h;

    memcpy(&h, bytes, sizeof(h));
    uint64_t n = *n_bytes, end = meta_bytes_of(&h) + h.n_pages * h.page_bytes;
    for (uint32_t i = 0; i < h.n_parts; i++) {
        struct part_header part = get_part(&h, bytes, i);
        uint64_t at = align_up(end);
        if (!set_part(out, k, &part, bytes + MIN(at, n)))
            return err_set(e, ERR_UNSUPPORTED,
                "part %u of the KV record has kind %u and %llu bytes, which this model does not "
                "have",
                i, part.kind, (unsigned long long)part.n_bytes);
        if (at > n || part.n_bytes > n - at)
            return err_set(e, ERR_CORRUPT, "the KV record is truncated");
        end = at + part.n_bytes;
    }
    *n_bytes = end;
    return 0;
}

/* Verifies the checksums of the parts, and that the bytes before each are zero. */
static int check_parts(const struct record_header *h, uint8_t *bytes, struct err *e)
{
    uint64_t at = meta_bytes_of(h) + h->n_pages * h->page_bytes;

    for (uint32_t i = 0; i < h->n_parts; i++) {
        struct part_header part = get_part(h, bytes, i);
        for (uint64_t begin = align_up(at); at < begin; at++)
            if (bytes[at] != 0)
                return err_set(
                    e, ERR_CORRUPT, "bytes between the parts of the KV record are not zero");
        if (crc32c(0, bytes + at, part.n_bytes) != part.sum)
            return err_set(e, ERR_CORRUPT, "the checksum of part %u of the KV record is wrong", i);
        at += part.n_bytes;
    }
    return 0;
}

size_t record_meta_bytes(const uint8_t *record_header)
{
    struct record_header h;

    memcpy(&h, record_header, sizeof(h));
    if (memcmp(h.magic, magic, sizeof(magic)) != 0 || h.n_tokens < 1 ||
        h.n_tokens > RECORD_TOKENS_MAX || h.n_pages < 1 || h.n_pages > h.n_tokens ||
        h.n_parts > PARTS_MAX)
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
    struct record r = { .scope.tenant = h.tenant,
        .tokens = (const int32_t *)(const void *)(bytes + RECORD_HEAD),
        .n_tokens = n_tokens,
        .first_page = (int)h.first_page,
        .n_pages = (int)h.n_pages,
        .pages = bytes + n_front };
    memcpy(r.scope.salt, h.salt, sizeof(h.salt));
    *n_bytes = n;
    if (find_parts(&r, k, bytes, n_bytes, e))
        return -1;
    *out = r;
    return 0;
}

int record_read(
    struct record *out, const struct record_kind *k, uint8_t *bytes, size_t n, struct err *e)
{
    struct record_header h;
    struct record r;
    size_t n_bytes;

    if (record_read_head(&r, k, bytes, n, &n_bytes, e))
        return -1;
    memcpy(&h, bytes, sizeof(h));
    for (uint32_t i = 0; i < h.n_pages; i++) {
        uint32_t sum;
        memcpy(&sum, page_sums(&h, bytes) + i * sizeof(sum), sizeof(sum));
        if (crc32c(0, r.pages + i * h.page_bytes, h.page_bytes) != sum)
            return err_set(e, ERR_CORRUPT, "the checksum of page %u of the KV record is wrong", i);
    }
    if (check_parts(&h, bytes, e))
        return -1;
    *out = r;
    return 0;
}
