/* format/safetensors.c: valid files are read; a header that lies about its size, its types or the
 * place of a tensor is rejected with one line that names the tensor and the value. */
#include "support/check.h"

#include "base/buf.h"
#include "base/mem.h"
#include "format/safetensors.h"

#include <stdlib.h>

/* A file with this header and n bytes of data; the caller frees it. */
static struct str make_file(const char *header, size_t n_data)
{
    uint64_t n = strlen(header);
    size_t bytes = 8 + (size_t)n + n_data;
    char *p = malloc(bytes);

    CHECK(p);
    memcpy(p, &n, 8);
    memcpy(p + 8, header, (size_t)n);
    for (size_t i = 0; i < n_data; i++)
        p[8 + n + i] = (char)i;
    return (struct str){ p, bytes };
}

static const char *const good =
    "{\"__metadata__\": {\"format\": \"pt\"},"
    " \"b\": {\"dtype\": \"BF16\", \"shape\": [2, 3], \"data_offsets\": [4, 16]},"
    " \"a\": {\"dtype\": \"F32\", \"shape\": [], \"data_offsets\": [0, 4]},"
    " \"none\": {\"dtype\": \"U8\", \"shape\": [0, 5], \"data_offsets\": [16, 16]}}  ";

static void a_file_is_read(void)
{
    struct str file = make_file(good, 16);
    struct safetensors s;
    struct err e = { 0 };

    EXPECT_EQ(safetensors_read(&s, file, &e), 0);
    EXPECT_EQ(s.n, 3ul);
    EXPECT(str_is(s.tensors[0].name, "b") && s.tensors[0].dtype == ST_BF16);
    EXPECT_EQ(s.tensors[0].n_dims, 2);
    EXPECT(s.tensors[0].dims[0] == 2 && s.tensors[0].dims[1] == 3 && s.tensors[0].dims[2] == 1);
    EXPECT_EQ(s.tensors[0].bytes, 12ul);
    EXPECT_EQ(s.tensors[0].data[0], 4);
    EXPECT(str_is(s.tensors[1].name, "a") && s.tensors[1].n_dims == 0);
    EXPECT_EQ(s.tensors[1].data[3], 3);
    EXPECT_EQ(s.tensors[2].bytes, 0ul);
    safetensors_clear(&s);
    free((void *)(uintptr_t)file.p);
}

static void expect_error(const char *header, size_t n_data, enum errcode code, const char *message)
{
    struct str file = make_file(header, n_data);
    struct safetensors s;
    struct err e = { 0 };

    EXPECT_EQ(safetensors_read(&s, file, &e), -1);
    if (e.code != code || !strstr(e.msg, message) || strchr(e.msg, '\n'))
        fprintf(stderr, "%s\n  gives '%s', expected '%s'\n", header, e.msg, message);
    EXPECT(e.code == code && strstr(e.msg, message) && !strchr(e.msg, '\n'));
    EXPECT(!s.arena && !s.n);
    free((void *)(uintptr_t)file.p);
}

#define ONE(name, dtype, shape, offsets)                                                           \
    "\"" name "\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void hostile_headers_are_rejected(void)
{
    static const struct {
        const char *header;
        size_t n_data;
        enum errcode code;
        const char *message;
    } rows[] = {
        { "{", 0, ERR_SYNTAX, "header" },
        { "[]", 0, ERR_CORRUPT, "not an object" },
        { "{\"a\":1}", 0, ERR_CORRUPT, "tensor a is not an object" },
        { "{\"\":{}}", 0, ERR_CORRUPT, "name of a tensor" },
        { "{\"a\\u0000\":{}}", 0, ERR_CORRUPT, "name of a tensor" },
        { "{" ONE("a", "\"F7\"", "[1]", "[0,4]") "}", 4, ERR_UNSUPPORTED, "unknown type \"F7\"" },
        { "{" ONE("a", "7", "[1]", "[0,4]") "}", 4, ERR_CORRUPT, "dtype" },
        { "{" ONE("a", "\"F32\"", "1", "[0,4]") "}", 4, ERR_CORRUPT, "shape" },
        { "{" ONE("a", "\"F32\"", "[-1]", "[0,4]") "}", 4, ERR_CORRUPT, "dimension -1" },
        { "{" ONE("a", "\"F32\"", "[1.5]", "[0,4]") "}", 4, ERR_CORRUPT, "dimension 1.5" },
        { "{" ONE("a", "\"F32\"", "[[\n]]", "[0,4]") "}", 4, ERR_CORRUPT, "dimension" },
        { "{" ONE("a", "\"F32\"", "[4611686018427387904,4]", "[0,0]") "}", 0, ERR_CORRUPT,
            "dimension" },
        { "{" ONE("a", "\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, ERR_UNSUPPORTED,
            "9 dimensions" },
        { "{" ONE("a", "\"F32\"", "[1]", "[0]") "}", 4, ERR_CORRUPT, "data_offsets" },
        { "{" ONE("a", "\"F32\"", "[1]", "[4,0]") "}", 4, ERR_CORRUPT, "bytes 4 to 0" },
        { "{" ONE("a", "\"F32\"", "[2]", "[0,8]") "}", 4, ERR_CORRUPT, "4 bytes of data" },
        { "{" ONE("a", "\"F32\"", "[1]", "[18446744073709551612,0]") "}", 4, ERR_CORRUPT,
            "not in the file" },
        { "{" ONE("a", "\"F32\"", "[2]", "[0,4]") "}", 4, ERR_CORRUPT, "require 8" },
        { "{" ONE("a", "\"F32\"", "[1]", "[4,8]") "}", 8, ERR_CORRUPT, "after a gap from 0" },
        { "{" ONE("a", "\"F32\"", "[1]", "[0,4]") "}", 8, ERR_CORRUPT, "end at byte 4" },
        { "{" ONE("a", "\"F32\"", "[1]", "[0,4]") "," ONE("b", "\"F16\"", "[2]", "[2,6]") "}", 6,
            ERR_CORRUPT, "tensor b begins at byte 2, inside a tensor" },
        { "{" ONE("a", "\"F32\"", "[1]", "[0,4]") "," ONE("a", "\"F32\"", "[1]", "[4,8]") "}", 8,
            ERR_CORRUPT, "tensor a is duplicated" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        expect_error(rows[i].header, rows[i].n_data, rows[i].code, rows[i].message);
}

static void wrong_sizes_are_rejected(void)
{
    static const struct {
        uint64_t n;
        size_t bytes;
        enum errcode code;
        const char *message;
    } rows[] = {
        { 2, 7, ERR_CORRUPT, "7 bytes" },
        { 3, 10, ERR_CORRUPT, "a header of 3 bytes in a file of 10" },
        { UINT64_MAX, 10, ERR_TOO_LARGE, "18446744073709551615" },
        { 100000001, 10, ERR_TOO_LARGE, "100000001" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char bytes[10] = { 0 };
        struct safetensors s;
        struct err e = { 0 };
        memcpy(bytes, &rows[i].n, 8);
        memcpy(bytes + 8, "{}", 2);
        EXPECT_EQ(safetensors_read(&s, (struct str){ bytes, rows[i].bytes }, &e), -1);
        EXPECT(e.code == rows[i].code && strstr(e.msg, rows[i].message));
    }
}

static void every_truncation_is_rejected(void)
{
    struct str file = make_file(good, 16);

    for (size_t n = 0; n < file.n; n++) {
        char *copy = malloc(MAX(n, 1u)); /* exact size, for the address sanitizer */
        struct safetensors s;
        struct err e = { 0 };
        CHECK(copy);
        memcpy(copy, file.p, n);
        EXPECT_EQ(safetensors_read(&s, (struct str){ copy, n }, &e), -1);
        EXPECT(e.msg[0] && !strchr(e.msg, '\n'));
        free(copy);
    }
    free((void *)(uintptr_t)file.p);
}

static void every_allocation_may_fail(void)
{
    struct str file = make_file(good, 16);
    uint64_t nth = 1;

    for (;; nth++) {
        struct safetensors s;
        struct err e = { 0 };
        uint64_t before = mem_failures();
        mem_fail_after(nth);
        int rc = safetensors_read(&s, file, &e);
        mem_fail_after(0);
        if (mem_failures() == before) {
            EXPECT_EQ(rc, 0);
            safetensors_clear(&s);
            break;
        }
        EXPECT(rc == -1 && e.code == ERR_MEMORY && !s.arena);
    }
#ifdef TESTING
    EXPECT(nth > 3);
#endif
    free((void *)(uintptr_t)file.p);
}

TESTS(TEST(a_file_is_read), TEST(hostile_headers_are_rejected), TEST(wrong_sizes_are_rejected),
    TEST(every_truncation_is_rejected), TEST(every_allocation_may_fail))
