/* Files: whole reads and writes, atomic replacement, and names that cannot leave their
 * directory. */
#include "base/fault.h"
#include "os/files.h"
#include "support/check.h"
#include "support/tmpdir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[TMPDIR_NAME];

static int open_dir(void)
{
    tmpdir_make(dir);
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    EXPECT(fd >= 0);
    return fd;
}

static void close_dir(int fd)
{
    close(fd);
    tmpdir_remove(dir);
}

static void expect_text(int at, const char *name, const char *want)
{
    struct buf b;
    struct err e;

    buf_init(&b, 100);
    EXPECT_EQ(file_read_at(at, name, &b, &e), 0);
    EXPECT(str_is(buf_str(&b), want));
    buf_clear(&b);
}

static void names_cannot_leave_the_directory(void)
{
    static const char *const good[] = { "a", "slot_save_file.bin", "Gr\xc3\xb6\xc3\x9f e 1", "a..b",
        "a-b~", "%2e%2e", "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d" };
    static const char *const bad[] = { "", ".", "..", ".hidden", "../up", "a/b", "/etc/passwd",
        "a\\b", "c:d", "a*", "a?", "a\"", "a<", "a>", "a|", "line\nfeed", "\x7f", "end.", "end ",
        " begin", "\xff\xfe", "\xed\xa0\x80", "-rf", "--", "~", "~root",
        "a\xe2\x80\xae"
        "b",
        "a\xe2\x81\xa6"
        "b",
        "a\xd8\x9c", "\xc2\x85",
        "\xef\xbb\xbf"
        "a",
        "a\xe2\x80\x8b" };
    char longest[202];

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        EXPECT(file_name_is_plain(str_of(good[i])));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        EXPECT(!file_name_is_plain(str_of(bad[i])));
    EXPECT(!file_name_is_plain((struct str){ "a\0b", 3 }));
    memset(longest, 'x', sizeof(longest));
    EXPECT(file_name_is_plain((struct str){ longest, 200 }));
    EXPECT(!file_name_is_plain((struct str){ longest, 201 }));
}

static void a_file_is_replaced_as_a_whole(void)
{
    int at = open_dir();
    struct err e;

    EXPECT_EQ(file_replace_at(at, "x", "one", 3, &e), 0);
    expect_text(at, "x", "one");
    EXPECT_EQ(file_replace_at(at, "x", "another", 7, &e), 0);
    expect_text(at, "x", "another");
    EXPECT_EQ(file_replace_at(at, "x", "", 0, &e), 0);
    expect_text(at, "x", "");
    close_dir(at);
}

static void links_and_pipes_are_not_followed(void)
{
    int at = open_dir();
    struct buf b;
    struct err e;

    buf_init(&b, 4);
    EXPECT_EQ(file_replace_at(at, "x", "12345", 5, &e), 0);
    EXPECT_EQ(symlinkat("x", at, "link"), 0);
    EXPECT_EQ(mkfifoat(at, "pipe", 0600), 0);
    EXPECT(file_read_at(at, "link", &b, &e) && e.code == ERR_IO);
    EXPECT(file_read_at(at, "pipe", &b, &e) && e.code == ERR_IO);
    EXPECT(file_read_at(at, "none", &b, &e) && e.code == ERR_NOT_FOUND);
    EXPECT(file_read_at(at, "x", &b, &e) && e.code == ERR_TOO_LARGE);
    buf_clear(&b);
    /* The link is replaced, not its target. */
    EXPECT_EQ(file_replace_at(at, "link", "new", 3, &e), 0);
    expect_text(at, "link", "new");
    expect_text(at, "x", "12345");
    close_dir(at);
}

static void short_reads_continue_and_errors_keep_the_old_file(void)
{
#ifdef TESTING
    int at = open_dir();
    struct buf b;
    struct err e;

    buf_init(&b, 100);
    EXPECT_EQ(file_replace_at(at, "x", "before", 6, &e), 0);
    fault_arm(FAULT_DISK_WRITE, 1);
    EXPECT(file_replace_at(at, "x", "after", 5, &e) && e.code == ERR_IO);
    expect_text(at, "x", "before");
    fault_arm(FAULT_DISK_SHORT, 1);
    EXPECT_EQ(file_replace_at(at, "x", "after", 5, &e), 0);
    fault_arm(FAULT_DISK_SHORT, 1);
    expect_text(at, "x", "after");
    fault_arm(FAULT_DISK_READ, 1);
    EXPECT(file_read_at(at, "x", &b, &e) && e.code == ERR_IO);
    fault_arm(FAULT_DISK_READ, 0);
    EXPECT_EQ(b.n, 0u);
    buf_clear(&b);
    close_dir(at);
#endif
}

static void only_regular_files_are_opened_by_path(void)
{
    char path[TMPDIR_NAME + 16];
    int at = open_dir(), fd;
    struct err e;

    EXPECT_EQ(mkfifoat(at, "fifo", 0600), 0);
    EXPECT_EQ(mkdirat(at, "dir", 0700), 0);
    for (int flags = O_RDONLY; flags <= O_RDWR; flags++) {
        snprintf(path, sizeof(path), "%s/fifo", dir);
        EXPECT(file_open_regular(path, flags, &fd, &e) && e.code == ERR_INVALID);
        snprintf(path, sizeof(path), "%s/dir", dir);
        EXPECT(file_open_regular(path, flags, &fd, &e));
        snprintf(path, sizeof(path), "%s/no", dir);
        EXPECT(file_open_regular(path, flags, &fd, &e) && e.code == ERR_NOT_FOUND);
    }
    EXPECT_EQ(file_open_regular(path, O_RDWR | O_CREAT, &fd, &e), 0);
    close(fd);
    EXPECT(dir_check(path, true, &e) && e.code == ERR_IO); /* a file */
    snprintf(path, sizeof(path), "%s/new", dir);
    EXPECT(dir_check(path, false, &e) && e.code == ERR_IO);
    EXPECT_EQ(dir_check(path, true, &e), 0);
    EXPECT_EQ(dir_check(path, false, &e), 0);
    close_dir(at);
}

static void make_file(int at, const char *name)
{
    int fd = openat(at, name, O_WRONLY | O_CREAT, 0600);

    EXPECT(fd >= 0);
    close(fd);
}

static void unfinished_files_are_removed_unless_they_are_written(void)
{
    int at = open_dir();

    make_file(at, ".part-0123456789abcdef");
    make_file(at, ".part-00000000000000ff");
    make_file(at, ".part-0123456789ABCDEF");
    make_file(at, ".part-012345");
    int fd = openat(at, ".part-00000000000000ff", O_RDONLY);
    EXPECT_EQ(flock(fd, LOCK_EX), 0);
    EXPECT_EQ(file_remove_stale_at(at), 1);
    EXPECT(faccessat(at, ".part-0123456789abcdef", F_OK, 0));
    close(fd);
    EXPECT_EQ(file_remove_stale_at(at), 1);
    EXPECT_EQ(faccessat(at, ".part-0123456789ABCDEF", F_OK, 0), 0);
    EXPECT_EQ(faccessat(at, ".part-012345", F_OK, 0), 0);
    close_dir(at);
}

TESTS(TEST(only_regular_files_are_opened_by_path),
    TEST(unfinished_files_are_removed_unless_they_are_written),
    TEST(names_cannot_leave_the_directory), TEST(a_file_is_replaced_as_a_whole),
    TEST(links_and_pipes_are_not_followed), TEST(short_reads_continue_and_errors_keep_the_old_file))
