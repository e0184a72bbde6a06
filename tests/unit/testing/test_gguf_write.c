/* testing/gguf_write.c: a file is complete or absent, and contains the values that were written. */
#include "support/check.h"

#include "base/mem.h"
#include "testing/gguf_write.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/inferflux-test-write-XXXXXX";
static char path[64], part[80];

static void begin_test(void)
{
    EXPECT(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/m.gguf", dir);
    snprintf(part, sizeof(part), "%s.part", path);
}

static void end_test(void)
{
    unlink(path);
    EXPECT_EQ(rmdir(dir), 0); /* the directory contains no other file */
    memcpy(dir + strlen(dir) - 6, "XXXXXX", 6);
}

static struct gguf_writer *two_tensors(uint32_t alignment)
{
    struct gguf_writer *w = gguf_writer_new(alignment);

    EXPECT(w);
    EXPECT_EQ(gguf_put_tensor(w, STR("a"), Q_F32, 1, (uint64_t[]){ 3 }), 12ul);
    EXPECT_EQ(gguf_put_tensor(w, STR("b"), Q_F16, 2, (uint64_t[]){ 2, 2 }), 8ul);
    return w;
}

static void data_may_be_written_in_any_pieces(void)
{
    uint8_t bytes[20];
    struct gguf *g = NULL;
    struct err e = { 0 };

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i + 1);
    begin_test();
    for (size_t piece = 1; piece <= sizeof(bytes); piece++) {
        struct gguf_writer *w = two_tensors(64);
        EXPECT_EQ(gguf_writer_open(w, path, &e), 0);
        for (size_t at = 0; at < sizeof(bytes); at += piece)
            EXPECT_EQ(gguf_writer_data(w, bytes + at, MIN(piece, sizeof(bytes) - at), &e), 0);
        EXPECT_EQ(gguf_writer_finish(w, &e), 0);
        gguf_writer_free(w);
        EXPECT_EQ(gguf_open(&g, path, &e), 0);
        EXPECT_EQ(memcmp(gguf_tensor(g, "a")->data, bytes, 12), 0);
        EXPECT_EQ(memcmp(gguf_tensor(g, "b")->data, bytes + 12, 8), 0);
        EXPECT_EQ(gguf_tensor(g, "b")->data - gguf_tensor(g, "a")->data, 64l);
        gguf_close(g);
    }
    end_test();
}

static void incomplete_file_never_appears(void)
{
    struct err e = { 0 };
    struct stat st;

    begin_test();
    struct gguf_writer *w = two_tensors(0);
    EXPECT_EQ(gguf_writer_open(w, path, &e), 0);
    EXPECT_EQ(gguf_writer_data(w, "0123456789", 10, &e), 0);
    EXPECT_EQ(gguf_writer_finish(w, &e), -1);
    EXPECT(strstr(e.msg, "only 0 of 2 tensors were written"));
    EXPECT_EQ(stat(part, &st), 0);
    gguf_writer_free(w);
    EXPECT(stat(path, &st) < 0 && stat(part, &st) < 0);
    end_test();
}

static void excess_data_is_rejected(void)
{
    uint8_t bytes[21] = { 0 };
    struct err e = { 0 };

    begin_test();
    struct gguf_writer *w = two_tensors(0);
    EXPECT_EQ(gguf_writer_open(w, path, &e), 0);
    EXPECT_EQ(gguf_writer_data(w, bytes, sizeof(bytes), &e), -1);
    EXPECT(e.code == ERR_INVALID);
    gguf_writer_free(w);
    end_test();
}

static void impossible_shapes_are_named(void)
{
    struct err e = { 0 };
    struct buf b;

    buf_init(&b, MB);
    struct gguf_writer *w = gguf_writer_new(0);
    EXPECT_EQ(gguf_put_tensor(w, STR("x"), Q_Q4_K, 1, (uint64_t[]){ 100 }), 0ul);
    EXPECT_EQ(gguf_writer_header(w, &b, &e), -1);
    EXPECT(e.code == ERR_INVALID);
    gguf_writer_free(w);
    buf_clear(&b);
}

static void values_copy_from_file_to_file(void)
{
    static const struct str words[] = { { "x", 1 }, { "yy", 2 } };
    struct err e = { 0 };
    struct gguf *g = NULL;
    struct buf a, b;

    buf_init(&a, MB);
    buf_init(&b, MB);
    struct gguf_writer *w = gguf_writer_new(0), *v = gguf_writer_new(0);
    gguf_put_strs(w, "s", words, 2);
    gguf_put_f32(w, "f", 0.1f);
    gguf_put_i32(w, "i", -7);
    gguf_put_bool(w, "b", true);
    gguf_put_str(w, "t", STR("text"));
    EXPECT_EQ(gguf_writer_header(w, &a, &e), 0);
    EXPECT_EQ(gguf_open_bytes(&g, (uint8_t *)a.p, a.n, &e), 0);
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        gguf_put_value(v, gguf_kv_at(g, i)->key, &gguf_kv_at(g, i)->value);
    EXPECT_EQ(gguf_writer_header(v, &b, &e), 0);
    EXPECT(str_eq(buf_str(&a), buf_str(&b)));
    gguf_close(g);
    gguf_writer_free(w);
    gguf_writer_free(v);
    buf_clear(&a);
    buf_clear(&b);
}

static void unwritable_directory_is_an_error(void)
{
    struct err e = { 0 };
    struct gguf_writer *w = two_tensors(0);

    EXPECT_EQ(gguf_writer_open(w, "/nonexistent/m.gguf", &e), -1);
    EXPECT(e.code == ERR_IO);
    gguf_writer_free(w);
}

TESTS(TEST(data_may_be_written_in_any_pieces), TEST(incomplete_file_never_appears),
    TEST(excess_data_is_rejected), TEST(impossible_shapes_are_named),
    TEST(values_copy_from_file_to_file), TEST(unwritable_directory_is_an_error))
