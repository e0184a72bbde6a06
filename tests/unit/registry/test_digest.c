/* Digest of a model file, and its cached digest, which is valid while the file is unchanged. */
#include "base/fault.h"
#include "os/files.h"
#include "registry/digest.h"
#include "support/check.h"
#include "support/tmpdir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[TMPDIR_NAME];

/* SHA-256 of "abc", FIPS 180-2 */
static const uint8_t abc[32] = { 0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
    0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff,
    0x61, 0xf2, 0x00, 0x15, 0xad };

static char file[TMPDIR_NAME + 16], notes[TMPDIR_NAME + 16];

/* Digest of one file. */
static int digest_of(uint8_t out[32], char *path, const char *cache, struct err *e)
{
    struct opened_file f = { .path = path };

    return digest_of_model(out, &f, 1, cache, e);
}

static int open_dir(const char *text)
{
    struct err e;

    tmpdir_make(dir);
    snprintf(file, sizeof(file), "%s/model", dir);
    snprintf(notes, sizeof(notes), "%s/notes", dir);
    int at = open(dir, O_RDONLY | O_DIRECTORY);
    EXPECT_EQ(file_replace_at(at, "model", text, strlen(text), &e), 0);
    return at;
}

static void close_dir(int at)
{
    close(at);
    tmpdir_remove(dir);
}

static void digest_is_sha256_of_the_bytes(void)
{
    int at = open_dir("abc");
    uint8_t d[32];
    struct err e;

    EXPECT_EQ(digest_of(d, file, NULL, &e), 0);
    EXPECT(!memcmp(d, abc, 32));
    EXPECT_EQ(digest_of(d, (char[]){ "/nowhere/at/all" }, "", &e), -1);
    EXPECT(e.code == ERR_IO);
    EXPECT_EQ(digest_of(d, dir, NULL, &e), -1);
    close_dir(at);
}

/* Changes the last digit of all cached digests, which no code verifies: the digit shows whether
 * a result came from the cache. */
static void change_cached_digests(char to)
{
    int at = open(notes, O_RDONLY | O_DIRECTORY);
    struct buf b;
    struct err e;

    buf_init(&b, 4096);
    EXPECT_EQ(file_read_at(at, ".digests", &b, &e), 0);
    b.p[b.n - 2] = to;
    EXPECT_EQ(file_replace_at(at, ".digests", b.p, b.n, &e), 0);
    buf_clear(&b);
    close(at);
}

static void cached_digest_is_valid_until_the_file_changes(void)
{
    int at = open_dir("abc");
    uint8_t d[32];
    struct err e;

    EXPECT_EQ(digest_of(d, file, notes, &e), 0);
    change_cached_digests('e');
    EXPECT_EQ(digest_of(d, file, notes, &e), 0);
    EXPECT_EQ(d[31], 0xae); /* from the cache */
    EXPECT_EQ(file_replace_at(at, "model", "abc", 3, &e), 0);
    EXPECT_EQ(digest_of(d, file, notes, &e), 0);
    EXPECT(!memcmp(d, abc, 32));
    change_cached_digests('x'); /* not a hexadecimal digit */
    EXPECT_EQ(digest_of(d, file, notes, &e), 0);
    EXPECT(!memcmp(d, abc, 32));
    close_dir(at);
}

static void full_digest_cache_is_restarted(void)
{
    int at = open_dir("abc");
    uint8_t d[32];
    struct err e;
    struct stat st;
    char path[sizeof(notes) + 16];

    snprintf(path, sizeof(path), "%s/.digests", notes);
    for (int i = 0; i < 700; i++) {
        EXPECT_EQ(file_replace_at(at, "model", "abc", 3, &e), 0);
        EXPECT_EQ(digest_of(d, file, notes, &e), 0);
        EXPECT(!stat(path, &st) && st.st_size <= 64 * 1024);
    }
    EXPECT(!memcmp(d, abc, 32));
    close_dir(at);
}

static void put_part(int at, int i, const char *text)
{
    char name[32];
    struct err e;

    snprintf(name, sizeof(name), "m-%05d-of-00003.gguf", i);
    EXPECT_EQ(file_replace_at(at, name, text, strlen(text), &e), 0);
}

/* Digest of a model in three parts, using the digests cached before. */
static int digest_of_parts(uint8_t out[32], struct err *e)
{
    char paths[3][TMPDIR_NAME + 32];
    struct opened_file files[3];

    for (int i = 0; i < 3; i++) {
        snprintf(paths[i], sizeof(paths[i]), "%s/m-%05d-of-00003.gguf", dir, i + 1);
        files[i] = (struct opened_file){ .path = paths[i] };
    }
    return digest_of_model(out, files, 3, notes, e);
}

static void every_part_counts(void)
{
    int at = open_dir("abc");
    uint8_t before[32], after[32];
    struct err e;

    for (int i = 1; i <= 3; i++)
        put_part(at, i, i == 2 ? "abc" : "abd");
    EXPECT_EQ(digest_of_parts(before, &e), 0);
    for (int i = 1; i <= 3; i++) {
        put_part(at, i, "other");
        EXPECT_EQ(digest_of_parts(after, &e), 0);
        EXPECT(memcmp(after, before, sizeof(after)) != 0);
        put_part(at, i, i == 2 ? "abc" : "abd");
        EXPECT_EQ(digest_of_parts(after, &e), 0);
        EXPECT(!memcmp(after, before, sizeof(after)));
    }
    put_part(at, 1, "abc"); /* the same bytes, in another order */
    put_part(at, 2, "abd");
    EXPECT_EQ(digest_of_parts(after, &e), 0);
    EXPECT(memcmp(after, before, sizeof(after)) != 0);
    EXPECT(!unlinkat(at, "m-00003-of-00003.gguf", 0));
    EXPECT_EQ(digest_of_parts(after, &e), -1);
    EXPECT(e.code == ERR_IO && strstr(e.msg, "00003-of"));
    close_dir(at);
}

TESTS(TEST(digest_is_sha256_of_the_bytes), TEST(cached_digest_is_valid_until_the_file_changes),
    TEST(full_digest_cache_is_restarted), TEST(every_part_counts))
