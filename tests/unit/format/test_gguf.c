/* format/gguf.c: valid files are read, invalid files are rejected, and hostile files cannot
 * cause a read outside of the file. */
#include "support/check.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "format/cursor.h"
#include "format/gguf.h"
#include "testing/gguf_write.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- a small file with one entry of each kind */

static void put_all(struct gguf_writer *w)
{
    static const struct str words[] = { { "a", 1 }, { "", 0 }, { "\xC3\xA9t\xC3\xA9", 5 } };
    static const int16_t shorts[] = { -1, 2, -32768 };
    static const float floats[] = { 0.5f, -2.0f };
    static const uint8_t bools[] = { 1, 0 };

    gguf_put_str(w, "general.architecture", STR("llama"));
    gguf_put_u32(w, "llama.block_count", 7);
    gguf_put_u64(w, "big", 1ull << 60);
    gguf_put_i32(w, "minus", -5);
    gguf_put_f32(w, "eps", 0.25f);
    gguf_put_bool(w, "yes", true);
    gguf_put_strs(w, "words", words, 3);
    gguf_put_arr(w, "shorts", GGUF_I16, shorts, 3);
    gguf_put_arr(w, "floats", GGUF_F32, floats, 2);
    gguf_put_arr(w, "bools", GGUF_BOOL, bools, 2);
}

static void put_tensors(struct gguf_writer *w)
{
    EXPECT_EQ(gguf_put_tensor(w, STR("m.weight"), Q_F32, 2, (uint64_t[]){ 5, 3 }), 60ul);
    EXPECT_EQ(gguf_put_tensor(w, STR("q.weight"), Q_Q4_0, 2, (uint64_t[]){ 64, 2 }), 72ul);
    EXPECT_EQ(gguf_put_tensor(w, STR("b.bias"), Q_F16, 1, (uint64_t[]){ 1 }), 2ul);
}

/* Header and zeroed data in one buffer. */
static struct buf finish_file(struct gguf_writer *w)
{
    struct err e = { 0 };
    struct buf b;

    buf_init(&b, 64 * MB);
    EXPECT_EQ(gguf_writer_header(w, &b, &e), 0);
    size_t n = gguf_writer_data_bytes(w);
    char *data = n ? buf_reserve(&b, n) : NULL;
    if (data) {
        memset(data, 0, n);
        b.n += n;
    }
    EXPECT(buf_ok(&b));
    gguf_writer_free(w);
    return b;
}

static struct buf sample_file(void)
{
    struct gguf_writer *w = gguf_writer_new(0);

    EXPECT(w);
    put_all(w);
    put_tensors(w);
    return finish_file(w);
}

/* Reads every view that was returned, so that a sanitizer detects one outside of the file. */
static uint64_t read_everything(const struct gguf *g)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_value *v = &gguf_kv_at(g, i)->value;
        struct str s;
        uint64_t at = 0;
        double f;
        int64_t n;
        if (v->kind == GGUF_STR)
            sum += hash_bytes(0, v->s.p, v->s.n);
        while (gguf_arr_next_str(v, &at, &s))
            sum += hash_bytes(0, s.p, s.n);
        for (uint64_t k = 0; v->kind == GGUF_ARR && k < v->arr.n; k++)
            sum += (uint64_t)gguf_arr_i64(v, k, &n) + (uint64_t)gguf_arr_f64(v, k, &f);
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        for (uint64_t k = 0; k < t->bytes; k++)
            sum += t->data[k];
        sum += hash_bytes(0, t->name.p, t->name.n);
        gguf_tensor_release(g, t);
    }
    return sum;
}

static struct gguf *must_open(const struct buf *b)
{
    struct gguf *g = NULL;
    struct err e = { 0 };

    if (gguf_open_bytes(&g, (const uint8_t *)b->p, b->n, &e))
        fprintf(stderr, "%s\n", e.msg);
    EXPECT(g);
    return g;
}

/* Opens a copy in a heap block of exactly the size; returns whether it was accepted. */
static bool try_open(const void *p, size_t n, struct err *e)
{
    uint8_t *copy = xmalloc(n);
    struct gguf *g = NULL;

    if (n)
        memcpy(copy, p, n);
    memset(e, 0, sizeof(*e));
    bool ok = gguf_open_bytes(&g, copy, n, e) == 0;
    if (ok) {
        EXPECT(read_everything(g) != 1);
        gguf_close(g);
    } else {
        EXPECT(e->code != ERR_NONE && e->msg[0] && !strchr(e->msg, '\n'));
    }
    mem_free(copy);
    return ok;
}

static void reads_back_what_was_written(void)
{
    struct buf b = sample_file();
    struct gguf *g = must_open(&b);
    uint64_t u = 99;
    double f = 0;
    bool yes = false;
    struct str s = STR_NONE;

    EXPECT_EQ(gguf_version(g), 3u);
    EXPECT_EQ(gguf_n_kv(g), 10ul);
    EXPECT_EQ(gguf_n_tensors(g), 3ul);
    EXPECT_EQ(gguf_file_bytes(g), b.n);
    EXPECT(gguf_get_u64(g, "llama.block_count", &u) && u == 7);
    EXPECT(gguf_get_u64(g, "big", &u) && u == 1ull << 60);
    EXPECT(!gguf_get_u64(g, "minus", &u) && u == 1ull << 60);
    EXPECT(!gguf_get_u64(g, "absent", &u) && !gguf_get_u64(g, "eps", &u));
    EXPECT(gguf_get_f64(g, "eps", &f) && f == 0.25);
    EXPECT(gguf_get_f64(g, "llama.block_count", &f) && f == 7);
    EXPECT(gguf_get_bool(g, "yes", &yes) && yes);
    EXPECT(!gguf_get_bool(g, "llama.block_count", &yes));
    EXPECT(gguf_get_str(g, "general.architecture", &s) && str_is(s, "llama"));
    EXPECT(!gguf_get_str(g, "eps", &s));
    EXPECT_EQ(gguf_find(g, "minus")->i, -5l);
    EXPECT(str_is(gguf_kv_at(g, 0)->key, "general.architecture"));

    const struct gguf_tensor *t = gguf_tensor(g, "q.weight");
    EXPECT(t && t->type == Q_Q4_0 && t->n_dims == 2);
    EXPECT(t->dims[0] == 64 && t->dims[1] == 2 && t->dims[2] == 1 && t->dims[3] == 1);
    EXPECT_EQ(t->bytes, 72ul);
    EXPECT_EQ((size_t)(t->data - gguf_tensor(g, "m.weight")->data), 64ul); /* aligned */
    EXPECT(!gguf_tensor(g, "q.weigh"));
    gguf_close(g);
    buf_clear(&b);
}

static void walks_its_arrays(void)
{
    struct buf b = sample_file();
    struct gguf *g = must_open(&b);
    const struct gguf_value *words = gguf_find(g, "words"), *shorts = gguf_find(g, "shorts");
    struct str s;
    uint64_t at = 0;
    int64_t n;
    double f;

    EXPECT(gguf_arr_next_str(words, &at, &s) && str_is(s, "a"));
    EXPECT(gguf_arr_next_str(words, &at, &s) && str_is(s, ""));
    EXPECT(gguf_arr_next_str(words, &at, &s) && str_is(s, "\xC3\xA9t\xC3\xA9"));
    EXPECT(!gguf_arr_next_str(words, &at, &s));
    at = 0;
    EXPECT(!gguf_arr_next_str(shorts, &at, &s));
    EXPECT(gguf_arr_i64(shorts, 0, &n) && n == -1);
    EXPECT(gguf_arr_i64(shorts, 2, &n) && n == -32768);
    EXPECT(!gguf_arr_i64(shorts, 3, &n) && !gguf_arr_i64(shorts, UINT64_MAX / 2, &n));
    EXPECT(!gguf_arr_i64(words, 0, &n) && !gguf_arr_f64(words, 0, &f));
    EXPECT(gguf_arr_f64(gguf_find(g, "floats"), 1, &f) && f == -2.0);
    EXPECT(gguf_arr_f64(shorts, 1, &f) && f == 2.0);
    EXPECT(!gguf_arr_i64(gguf_find(g, "floats"), 0, &n));
    EXPECT(gguf_arr_i64(gguf_find(g, "bools"), 0, &n) && n == 1);
    gguf_close(g);
    buf_clear(&b);
}

static void a_cursor_stays_failed(void)
{
    uint8_t bytes[6] = { 1, 2, 3, 4, 5, 6 };
    struct cursor c = { .p = bytes, .n = 6 };

    EXPECT_EQ(cursor_u32(&c), 0x04030201u);
    EXPECT_EQ(cursor_u32(&c), 0u);
    EXPECT(c.failed && c.at == 4);
    EXPECT_EQ(cursor_uint(&c, 1), 0ul); /* one byte remains, but the cursor has failed */
    EXPECT(!cursor_take(&c, 0));
}

static void number_formats_are_decoded(void)
{
    uint64_t n = 0;

    EXPECT(qtype_bytes(Q_Q4_K, 512, &n) && n == 288);
    EXPECT(!qtype_bytes(Q_Q4_K, 128, &n));
    EXPECT(!qtype_bytes(Q_F32, UINT64_MAX / 2, &n));
    EXPECT(!qtype_info(4) && !qtype_info(1000) && !qtype_info(UINT32_MAX));
    EXPECT_STR(qtype_info(Q_BF16)->name, "BF16");
    EXPECT(qtype_info(Q_Q6_K)->is_supported && !qtype_info(Q_I8)->is_supported);
}

/* ---- damage */

static void rejects_every_truncation(void)
{
    struct buf b = sample_file();
    struct err e;

    /* The last tensor ends before its padding does: that padding may be missing. */
    size_t needed = b.n - 30;
    for (size_t n = 0; n < needed; n++)
        EXPECT(!try_open(b.p, n, &e));
    EXPECT(try_open(b.p, needed, &e));
    buf_clear(&b);
}

static void every_damaged_field_is_safe(void)
{
    static const uint64_t evil[] = { 0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
        0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFE0, 12, 9 };
    struct buf b = sample_file();
    struct err e;
    size_t n_refused = 0, n_tried = 0;

    for (size_t at = 0; at + 8 <= b.n; at++)
        for (size_t i = 0; i < ARRAY_LEN(evil); i++)
            for (size_t width = 1; width <= 8; width *= 2) {
                char saved[8];
                memcpy(saved, b.p + at, 8);
                memcpy(b.p + at, &evil[i], width);
                n_refused += !try_open(b.p, b.n, &e);
                n_tried++;
                memcpy(b.p + at, saved, 8);
            }
    EXPECT(n_refused > n_tried / 4); /* most bytes of a small file are lengths and kinds */
    EXPECT(try_open(b.p, b.n, &e));
    buf_clear(&b);
}

static void random_damage_is_safe(void)
{
    struct rng r = { .key = 20260801 };
    struct buf b = sample_file(), c;
    struct err e;

    printf("seed %llu\n", (unsigned long long)r.key);
    buf_init(&c, b.n);
    for (int round = 0; round < 3000; round++) {
        buf_reset(&c);
        buf_puts(&c, buf_str(&b));
        for (uint64_t k = 1 + rng_below(&r, 4); k; k--)
            c.p[rng_below(&r, c.n)] = (char)rng_next(&r);
        try_open(c.p, c.n, &e);
    }
    buf_clear(&b);
    buf_clear(&c);
}

static void expect_refused(struct buf *b, enum errcode code, const char *says)
{
    struct err e;

    EXPECT(!try_open(b->p, b->n, &e));
    if (e.code != code || !strstr(e.msg, says))
        fprintf(stderr, "%s: %s\n  want: %s: %s\n", errcode_name(e.code), e.msg, errcode_name(code),
            says);
    EXPECT(e.code == code && strstr(e.msg, says));
}

static void overwrite(struct buf *b, size_t at, uint64_t v, size_t n)
{
    memcpy(b->p + at, &v, n);
}

static void unsupported_features_are_named(void)
{
    struct buf b = sample_file();

    overwrite(&b, 4, 1, 4);
    expect_refused(&b, ERR_UNSUPPORTED, "GGUF version 1");
    overwrite(&b, 4, 0x03000000, 4);
    expect_refused(&b, ERR_UNSUPPORTED, "big-endian");
    overwrite(&b, 4, 3, 4);
    overwrite(&b, 8, 1ull << 63, 8);
    expect_refused(&b, ERR_TOO_LARGE, "tensors");
    overwrite(&b, 8, 1000, 8);
    expect_refused(&b, ERR_CORRUPT, "offset 8: 1000 tensors in");
    overwrite(&b, 8, 3, 8);
    overwrite(&b, 16, 1ull << 62, 8);
    expect_refused(&b, ERR_CORRUPT, "offset 16");
    overwrite(&b, 0, 0x6C6D6767, 4); /* "ggml", the magic of older formats */
    expect_refused(&b, ERR_CORRUPT, "not a GGUF file");
    buf_clear(&b);
}

static void rejects_duplicate_names(void)
{
    struct gguf_writer *w = gguf_writer_new(0);

    gguf_put_u32(w, "twin", 1);
    gguf_put_u32(w, "twin", 2);
    struct buf b = finish_file(w);
    expect_refused(&b, ERR_CORRUPT, "offset 44: key twin is duplicated");
    buf_clear(&b);

    w = gguf_writer_new(0);
    for (int i = 0; i < 2; i++)
        EXPECT(gguf_put_tensor(w, STR("t"), Q_F32, 1, (uint64_t[]){ 4 }));
    b = finish_file(w);
    expect_refused(&b, ERR_CORRUPT, "tensor t is duplicated");
    buf_clear(&b);
}

static void rejects_names_with_control_characters(void)
{
    static const char *const bad[] = { "a\nb", "\x1B[2J", "\x7F", "\xFF", "\xC0\x80", "" };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct gguf_writer *w = gguf_writer_new(0);
        gguf_put_u32(w, bad[i], 1);
        struct buf b = finish_file(w);
        expect_refused(&b, ERR_CORRUPT, "key 0 is empty, too long or not printable");
        buf_clear(&b);

        w = gguf_writer_new(0);
        gguf_put_tensor(w, str_of(bad[i]), Q_F32, 1, (uint64_t[]){ 4 });
        b = finish_file(w);
        expect_refused(&b, ERR_CORRUPT, "the name of a tensor");
        buf_clear(&b);
    }
}

/* One F32 tensor of 4: its record ends the header. */
static struct buf one_tensor(uint32_t alignment)
{
    struct gguf_writer *w = gguf_writer_new(alignment);

    EXPECT(gguf_put_tensor(w, STR("t"), Q_F32, 2, (uint64_t[]){ 4, 2 }));
    EXPECT(gguf_put_tensor(w, STR("u"), Q_F32, 2, (uint64_t[]){ 4, 2 }));
    return finish_file(w);
}

static void checks_shapes_and_offsets(void)
{
    /* 24 header | 8 len 1 "t" 4 n_dims | 8 8 dims | 4 type | 8 offset */
    enum { N_DIMS = 33, DIM0 = 37, DIM1 = 45, TYPE = 53, OFFSET = 57, RECORD = 41 };
    struct buf b = one_tensor(0);
    struct err e;

    EXPECT(try_open(b.p, b.n, &e));
    overwrite(&b, N_DIMS, 5, 4);
    expect_refused(&b, ERR_CORRUPT, "tensor t has 5 dimensions");
    overwrite(&b, N_DIMS, 0, 4);
    expect_refused(&b, ERR_CORRUPT, "0 dimensions");
    overwrite(&b, N_DIMS, 2, 4);
    overwrite(&b, DIM0, 0, 8);
    expect_refused(&b, ERR_CORRUPT, "invalid dimensions");
    overwrite(&b, DIM0, 1ull << 33, 8);
    overwrite(&b, DIM1, 1ull << 33, 8);
    expect_refused(&b, ERR_CORRUPT, "invalid dimensions");
    overwrite(&b, DIM1, 1ull << 30, 8); /* 2^63 elements: the bytes overflow */
    expect_refused(&b, ERR_CORRUPT, "t: ");
    overwrite(&b, DIM0, 4, 8);
    overwrite(&b, DIM1, 2, 8);
    overwrite(&b, TYPE, Q_Q4_0, 4);
    expect_refused(&b, ERR_CORRUPT, "rows of 4 do not fit type Q4_0");
    overwrite(&b, TYPE, 77, 4);
    expect_refused(&b, ERR_UNSUPPORTED, "unknown type 77");
    overwrite(&b, TYPE, Q_F32, 4);
    overwrite(&b, OFFSET + RECORD, 16, 8);
    expect_refused(&b, ERR_CORRUPT, "not aligned to 32");
    overwrite(&b, OFFSET + RECORD, 0, 8);
    expect_refused(&b, ERR_CORRUPT, "overlap");
    overwrite(&b, OFFSET + RECORD, 64, 8);
    expect_refused(&b, ERR_CORRUPT, "beyond the file");
    overwrite(&b, OFFSET + RECORD, 1ull << 63, 8);
    expect_refused(&b, ERR_CORRUPT, "beyond the file");
    buf_clear(&b);
}

static void checks_the_alignment(void)
{
    static const struct {
        uint32_t value;
        bool ok;
    } rows[] = { { 8, true }, { 32, true }, { 4096, true }, { 0, false }, { 1, false },
        { 24, false }, { 1u << 31, false } };
    /* 24 header | 8 len 17 "general.alignment" 4 kind | the value */
    enum { VALUE = 24 + 8 + 17 + 4 };
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf b = one_tensor(rows[i].ok ? rows[i].value : 32);
        overwrite(&b, VALUE, rows[i].value, 4);
        EXPECT_EQ(try_open(b.p, b.n, &e), rows[i].ok);
        EXPECT(rows[i].ok || strstr(e.msg, "general.alignment"));
        buf_clear(&b);
    }
}

/* ---- split models */

static char dir[] = "/tmp/inferflux-test-gguf-XXXXXX";

static struct gguf_writer *part_of(unsigned no, unsigned count, unsigned total, const char *tensor)
{
    struct gguf_writer *w = gguf_writer_new(0);

    EXPECT(w);
    if (no == 0)
        gguf_put_str(w, "general.architecture", STR("llama"));
    gguf_put_u32(w, "split.no", no);
    gguf_put_u32(w, "split.count", count);
    gguf_put_i32(w, "split.tensors.count", (int32_t)total);
    EXPECT(gguf_put_tensor(w, str_of(tensor), Q_F32, 1, (uint64_t[]){ 8 }));
    return w;
}

static void write_part(struct gguf_writer *w, unsigned i, unsigned count)
{
    const float ones[8] = { (float)i, 1, 1, 1, 1, 1, 1, 1 };
    char path[256];
    struct err e = { 0 };

    snprintf(path, sizeof(path), "%s/m-%05u-of-%05u.gguf", dir, i, count);
    EXPECT_EQ(gguf_writer_open(w, path, &e), 0);
    EXPECT_EQ(gguf_writer_data(w, ones, sizeof(ones), &e), 0);
    EXPECT_EQ(gguf_writer_finish(w, &e), 0);
    gguf_writer_free(w);
}

static void remove_parts(unsigned count)
{
    for (unsigned i = 1; i <= count; i++) {
        char path[256];
        snprintf(path, sizeof(path), "%s/m-%05u-of-%05u.gguf", dir, i, count);
        unlink(path);
    }
    rmdir(dir);
    memcpy(dir + strlen(dir) - 6, "XXXXXX", 6);
}

static void opens_a_model_in_parts(void)
{
    char path[256];
    struct gguf *g = NULL;
    struct err e = { 0 };
    float f;

    EXPECT(mkdtemp(dir));
    write_part(part_of(0, 3, 3, "a"), 1, 3);
    write_part(part_of(1, 3, 3, "b"), 2, 3);
    write_part(part_of(2, 3, 3, "c"), 3, 3);
    snprintf(path, sizeof(path), "%s/m-00001-of-00003.gguf", dir);
    EXPECT_EQ(gguf_open(&g, path, &e), 0);
    EXPECT_EQ(gguf_n_tensors(g), 3ul);
    EXPECT_EQ(gguf_n_parts(g), 3ul);
    memcpy(&f, gguf_tensor(g, "c")->data, 4);
    EXPECT_EQ(f, 3.0f);
    EXPECT(read_everything(g));
    memcpy(&f, gguf_tensor(g, "b")->data, 4); /* released from memory, and still readable */
    EXPECT_EQ(f, 2.0f);
    gguf_close(g);

    snprintf(path, sizeof(path), "%s/m-00002-of-00003.gguf", dir);
    EXPECT_EQ(gguf_open(&g, path, &e), -1);
    EXPECT(strstr(e.msg, "part 2 of a split model, expected part 1"));
    remove_parts(3);
}

/* The mapping lasts until the last owner has closed the file, which has no name any more. */
static void several_owners_hold_a_file(void)
{
    char path[256];
    struct gguf *g = NULL, *second;
    struct err e = { 0 };
    float f;

    EXPECT(mkdtemp(dir));
    write_part(part_of(0, 2, 2, "a"), 1, 2);
    write_part(part_of(1, 2, 2, "b"), 2, 2);
    snprintf(path, sizeof(path), "%s/m-00001-of-00002.gguf", dir);
    EXPECT_EQ(gguf_open(&g, path, &e), 0);
    remove_parts(2);
    second = gguf_retain(g);
    gguf_close(g);
    const uint8_t *b = gguf_tensor(second, "b")->data;
    memcpy(&f, b, 4);
    EXPECT_EQ(f, 2.0f);
    memcpy(&f, gguf_tensor(second, "a")->data, 4);
    EXPECT_EQ(f, 1.0f);
    gguf_close(second);
}

static void expect_split_refused(const char *says)
{
    char path[256];
    struct gguf *g = NULL;
    struct err e = { 0 };

    snprintf(path, sizeof(path), "%s/m-00001-of-00002.gguf", dir);
    EXPECT_EQ(gguf_open(&g, path, &e), -1);
    if (!strstr(e.msg, says))
        fprintf(stderr, "got: %s\nwant: %s\n", e.msg, says);
    EXPECT(strstr(e.msg, says));
}

static void rejects_missing_and_foreign_parts(void)
{
    EXPECT(mkdtemp(dir));
    write_part(part_of(0, 2, 2, "a"), 1, 2);
    expect_split_refused("m-00002-of-00002.gguf: No such file");
    write_part(part_of(0, 2, 2, "b"), 2, 2);
    expect_split_refused("part 1 of a split model, expected part 2");
    write_part(part_of(1, 2, 2, "a"), 2, 2);
    expect_split_refused("tensor a is duplicated");
    write_part(part_of(1, 2, 5, "b"), 2, 2);
    expect_split_refused("not a part of the same model");
    write_part(part_of(1, 3, 2, "b"), 2, 2);
    expect_split_refused("not a part of the same model");
    struct gguf_writer *w = part_of(1, 2, 2, "b");
    gguf_put_str(w, "general.architecture", STR("qwen2"));
    write_part(w, 2, 2);
    expect_split_refused("not a part of the same model");
    write_part(part_of(0, 2, 9, "a"), 1, 2);
    write_part(part_of(1, 2, 9, "b"), 2, 2);
    expect_split_refused("contain 2 tensors, expected 9");
    write_part(part_of(0, 65535, 2, "a"), 1, 2);
    expect_split_refused("a model in 65535 parts");
    remove_parts(2);
}

TESTS(TEST(reads_back_what_was_written), TEST(walks_its_arrays), TEST(a_cursor_stays_failed),
    TEST(number_formats_are_decoded), TEST(rejects_every_truncation),
    TEST(every_damaged_field_is_safe), TEST(random_damage_is_safe),
    TEST(unsupported_features_are_named), TEST(rejects_duplicate_names),
    TEST(rejects_names_with_control_characters), TEST(checks_shapes_and_offsets),
    TEST(checks_the_alignment), TEST(opens_a_model_in_parts), TEST(several_owners_hold_a_file),
    TEST(rejects_missing_and_foreign_parts))
