/* Record files: appended records are read back by this process and by later ones; an incomplete
 * record is not listed. */
#include "base/fault.h"
#include "base/mem.h"
#include "cache/disk.h"
#include "support/check.h"
#include "support/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { PAGE_BYTES = 3000, MAX_TOKENS = 4 * PAGE_TOKENS, LIST = 4096 };

static char dir[TMPDIR_NAME];
static const struct record_kind kind = { "a model", 7, PAGE_BYTES };
static struct aio *aio;
static uint8_t *bytes;

static int found_tokens[LIST];
static struct disk_pos found_at[LIST];
static int n_found;

static void note_record(void *arg, const struct record *r, struct disk_pos at)
{
    EXPECT(n_found < LIST && r->n_pages == 1);
    found_tokens[n_found] = r->tokens[0];
    found_at[n_found++] = at;
}

static struct disk *open_disk(uint64_t max_bytes)
{
    struct disk_options o = { .dir = dir,
        .max_bytes = max_bytes,
        .kind = kind,
        .aio = aio,
        .max_tokens = MAX_TOKENS,
        .found = note_record };
    struct disk *d;
    struct err e;

    n_found = 0;
    EXPECT_EQ(disk_open(&d, &o, &e), 0);
    return d;
}

/* Makes the KV record of a page whose prefix begins with this token. */
static size_t make_record(int32_t first)
{
    int32_t tokens[PAGE_TOKENS] = { first };
    struct record r = { .tokens = tokens, .n_tokens = PAGE_TOKENS };

    record_begin(bytes, &kind, &r);
    memset(r.pages, first, PAGE_BYTES);
    record_seal(bytes);
    return record_bytes(&kind, &r);
}

static int append(struct disk *d, int32_t first, struct disk_pos *at, struct err *e)
{
    return disk_append(d, bytes, make_record(first), at, e);
}

static void expect_there(struct disk *d, struct disk_pos at, int32_t first)
{
    struct disk_read in = { .space = bytes };
    struct record r;
    struct err e;

    EXPECT(disk_read_begin(d, at, &in));
    EXPECT(in.is_read || aio_wait(aio) == &in.op);
    EXPECT_EQ(disk_read_end(d, at, &in), 0);
    EXPECT_EQ(record_read(&r, &kind, in.bytes, at.n_bytes, &e), 0);
    EXPECT_EQ(r.tokens[0], first);
    for (int i = 0; i < PAGE_BYTES; i++)
        EXPECT(r.pages[i] == (uint8_t)first);
}

static void begin_test(void)
{
    struct err e;

    tmpdir_make(dir);
    EXPECT_EQ(aio_open(&aio, AIO_AUTO, &e), 0);
    bytes = try_aligned(
        FILE_ALIGN, disk_space(record_bytes(&kind, &(struct record){ .n_tokens = MAX_TOKENS })));
    EXPECT(bytes);
}

static void end_test(void)
{
    mem_free(bytes);
    aio_close(aio);
    tmpdir_remove(dir);
}

static void records_persist(void)
{
    struct disk_pos at[20];
    struct err e;

    begin_test();
    struct disk *d = open_disk(1 << 20);
    EXPECT_EQ(n_found, 0);
    for (int i = 0; i < 20; i++)
        EXPECT_EQ(append(d, i, &at[i], &e), 0);
    for (int i = 19; i >= 0; i--)
        expect_there(d, at[i], i);
    disk_close(d);
    d = open_disk(1 << 20);
    EXPECT_EQ(n_found, 20);
    for (int i = 0; i < 20; i++) {
        EXPECT_EQ(found_tokens[i], i);
        expect_there(d, found_at[i], i);
    }
    disk_close(d);
    end_test();
}

static void oldest_records_are_removed_at_the_limit(void)
{
    const uint64_t most = 3 * MB; /* segments of one record */
    struct disk_pos first, at = { 0 };
    struct disk_read in = { .space = bytes };
    struct err e;

    begin_test();
    struct disk *d = open_disk(most);
    EXPECT_EQ(append(d, -1, &first, &e), 0);
    for (int i = 0; i < 1500; i++) {
        EXPECT_EQ(append(d, i, &at, &e), 0);
        EXPECT(disk_bytes(d) <= most);
        expect_there(d, at, i);
    }
    EXPECT(disk_first_segment(d) > first.segment);
    EXPECT(!disk_read_begin(d, first, &in)); /* a removed record is not an error */
    EXPECT(!aio_wait(aio));
    uint64_t before = disk_bytes(d);
    disk_close(d);
    d = open_disk(most / 2); /* a smaller limit takes effect at once */
    EXPECT(n_found > 100 && disk_bytes(d) <= most / 2 && before > most / 2);
    disk_close(d);
    end_test();
}

static void a_full_disk_costs_one_record(void)
{
#ifdef TESTING
    struct disk_pos at[3];
    struct err e;

    begin_test();
    struct disk *d = open_disk(1 << 20);
    EXPECT_EQ(append(d, 1, &at[0], &e), 0);
    for (int i = 0; i < 5; i++) {
        fault_arm(FAULT_DISK_WRITE, 1);
        EXPECT_EQ(append(d, 2, &at[1], &e), -1);
        EXPECT(e.code == ERR_IO && strstr(e.msg, strerror(ENOSPC)) && strstr(e.msg, dir));
    }
    fault_arm(FAULT_DISK_SHORT, 1); /* the first write transfers half of it */
    EXPECT_EQ(append(d, 3, &at[2], &e), 0);
    expect_there(d, at[0], 1);
    expect_there(d, at[2], 3);
    disk_close(d);
    d = open_disk(1 << 20);
    EXPECT_EQ(n_found, 2);
    fault_arm(FAULT_DISK_SHORT, 0);
    disk_close(d);
    end_test();
#endif
}

/* Drops the file from the page cache where the system supports that, so that reads use the disk:
 * records at any offset, the last one up to the end of the file. */
static void records_outside_the_page_cache_are_read(void)
{
    static const enum aio_kind kinds[] = { AIO_AUTO, AIO_THREADS };
    struct disk_pos at[8];
    char path[TMPDIR_NAME + 40];
    struct err e;

    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        begin_test();
        aio_close(aio);
        EXPECT_EQ(aio_open(&aio, kinds[k], &e), 0);
        struct disk *d = open_disk(1 << 20);
        for (int i = 0; i < 8; i++)
            EXPECT_EQ(append(d, i, &at[i], &e), 0);
        snprintf(path, sizeof(path), "%s/kv-%016x.seg", dir, at[0].segment);
        int fd = open(path, O_RDONLY);
        for (int i = 0; i < 8; i++) {
            EXPECT(!fsync(fd) && !posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
            expect_there(d, at[i], i);
#ifdef TESTING
            EXPECT(!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
            fault_arm(FAULT_DISK_SHORT, 1);
            expect_there(d, at[i], i);
            fault_arm(FAULT_DISK_SHORT, 0);
#endif
        }
        close(fd);
        EXPECT_EQ(truncate(path, (off_t)(at[7].offset + at[7].n_bytes - 1)), 0);
        struct disk_read in = { .space = bytes };
        EXPECT(disk_read_begin(d, at[7], &in));
        EXPECT(in.is_read || aio_wait(aio) == &in.op);
        EXPECT_EQ(disk_read_end(d, at[7], &in), EIO);
        disk_close(d);
        end_test();
    }
}

/* A partial record at the end of a file, as after kill -9, does not invalidate the records
 * before it. */
static void partial_record_ends_the_file(void)
{
    struct disk_pos at;
    struct err e;
    char path[TMPDIR_NAME + 40];

    begin_test();
    for (int cut = 1; cut < 3000; cut += 97) {
        struct disk *d = open_disk(1 << 20);
        for (int i = 0; i < 5; i++)
            EXPECT_EQ(append(d, i, &at, &e), 0);
        disk_close(d);
        snprintf(path, sizeof(path), "%s/kv-%016x.seg", dir, at.segment);
        EXPECT_EQ(truncate(path, (off_t)(at.offset + at.n_bytes) - cut), 0);
        d = open_disk(1 << 20);
        EXPECT_EQ(n_found, 4);
        EXPECT_EQ(append(d, 100, &at, &e), 0); /* in another file */
        expect_there(d, at, 100);
        disk_close(d);
        tmpdir_remove(dir);
        EXPECT_EQ(mkdir(dir, 0700), 0);
    }
    end_test();
}

static void foreign_files_are_left_alone(void)
{
    static const char *const names[] = { "kv-1.seg", "kv-000000000000000g.seg", "notes.txt",
        "kv-0000000000000002.seg.old", "kv-", "kv-ffffffffffffffff.seg" };
    char path[TMPDIR_NAME + 40];
    struct disk_pos at;
    struct err e;

    begin_test();
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    struct disk *d = open_disk(1 << 20);
    EXPECT_EQ(n_found, 0);
    for (int i = 0; i < 1000; i++)
        EXPECT_EQ(append(d, i, &at, &e), 0);
    disk_close(d);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct stat st;
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        EXPECT(!stat(path, &st) && st.st_size == 0);
    }
    end_test();
}

static void second_model_with_the_same_file_gets_a_clear_error(void)
{
    struct disk_options o = { .dir = dir,
        .max_bytes = 16 * MB,
        .kind = kind,
        .aio = aio,
        .max_tokens = MAX_TOKENS,
        .found = note_record };
    struct disk *d = open_disk(16 * MB), *second;
    struct err e;

    EXPECT_EQ(disk_open(&second, &o, &e), -1);
    EXPECT(strstr(e.msg, dir) && strstr(e.msg, "another model of this server"));
    disk_close(d);
    d = open_disk(16 * MB);
    disk_close(d);
}

TESTS(TEST(records_persist), TEST(oldest_records_are_removed_at_the_limit),
    TEST(a_full_disk_costs_one_record), TEST(records_outside_the_page_cache_are_read),
    TEST(partial_record_ends_the_file), TEST(foreign_files_are_left_alone),
    TEST(second_model_with_the_same_file_gets_a_clear_error))
