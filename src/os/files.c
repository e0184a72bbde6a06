#include "os/files.h"
#include "base/fault.h"
#include "base/limits.h"
#include "base/rng.h"
#include "base/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 200 };
#define TEMP_PREFIX ".part-"

size_t file_call_size(size_t n)
{
    if (!fault_hit(FAULT_DISK_SHORT))
        return n;
    return n > 2 * FILE_ALIGN ? n / 2 / FILE_ALIGN * FILE_ALIGN : (n + 1) / 2;
}

int file_read_least(int fd, void *out, size_t n, size_t least, uint64_t offset)
{
    size_t done = 0;

    while (done < least) {
        if (fault_hit(FAULT_DISK_READ)) {
            errno = EIO;
            return -1;
        }
        ssize_t got =
            pread(fd, (uint8_t *)out + done, file_call_size(n - done), (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            errno = EIO;
        if (got <= 0)
            return -1;
        done += (size_t)got;
    }
    return 0;
}

int file_read(int fd, void *out, size_t n, uint64_t offset)
{
    return file_read_least(fd, out, n, n, offset);
}

int file_write(int fd, const void *from, size_t n, uint64_t offset)
{
    const uint8_t *p = from;

    while (n > 0) {
        if (fault_hit(FAULT_DISK_WRITE)) {
            errno = ENOSPC;
            return -1;
        }
        ssize_t done = pwrite(fd, p, file_call_size(n), (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done == 0)
            errno = ENOSPC;
        if (done <= 0)
            return -1;
        p += done;
        offset += (uint64_t)done;
        n -= (size_t)done;
    }
    return 0;
}

int file_open_regular(const char *path, int flags, int *out, struct err *e)
{
    struct stat st;
    /* O_NONBLOCK has no effect on the reads and writes of a regular file. */
    int fd = fault_hit(FAULT_OPEN) ? (errno = EIO, -1)
                                   : open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    int why = errno;

    if (fd < 0 && why == ENXIO) /* a FIFO without a reader, or a socket */
        return err_set(e, ERR_INVALID, "%s: not a regular file", path);
    if (fd < 0)
        return err_set(e, why == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path, strerror(why));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(e, ERR_INVALID, "%s: not a regular file", path);
    }
    *out = fd;
    return 0;
}

int dir_check(const char *path, bool create, struct err *e)
{
    if (create && mkdir(path, 0700) && errno != EEXIST)
        return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    int failed = fd < 0 || faccessat(fd, ".", R_OK | W_OK | X_OK, AT_EACCESS)
                     ? err_set(e, ERR_IO, "%s: %s", path, strerror(errno))
                     : 0;
    if (fd >= 0)
        close(fd);
    return failed;
}

/* Characters that are not shown, or that change how others are shown. */
static bool is_invisible(uint32_t cp)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = { { 0, 0x1f }, { 0x7f, 0x9f }, { 0xad, 0xad }, { 0x61c, 0x61c },
        { 0x180e, 0x180e }, { 0x200b, 0x200f }, { 0x2028, 0x202e }, { 0x2060, 0x206f },
        { 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0xe0000, 0xe007f } };

    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        if (cp >= ranges[i].first && cp <= ranges[i].last)
            return true;
    return false;
}

bool file_name_is_plain(struct str name)
{
    static const char forbidden[] = "/\\:*?\"<>|";

    if (name.n < 1 || name.n > NAME_MAX_BYTES || !utf8_valid(name))
        return false;
    if (strchr(". -~", name.p[0]) || str_ends(name, STR(".")) || str_ends(name, STR(" ")))
        return false;
    for (struct str rest = name; rest.n;) {
        uint32_t cp;
        int n = utf8_decode(rest, &cp);
        if (is_invisible(cp) || memchr(forbidden, rest.p[0], sizeof(forbidden) - 1))
            return false;
        rest = str_skip(rest, (size_t)n);
    }
    return true;
}

int file_open_at(int dir, const char *name, int *out, uint64_t *n_bytes, struct err *e)
{
    struct stat st;
    /* O_NONBLOCK: the open of a FIFO must not wait for a writer. */
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return err_set(
            e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", name, strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(e, ERR_IO, "%s: not a regular file", name);
    }
    *out = fd;
    *n_bytes = (uint64_t)st.st_size;
    return 0;
}

int file_read_at(int dir, const char *name, struct buf *out, struct err *e)
{
    uint64_t n;
    int fd, failed = 0;

    if (file_open_at(dir, name, &fd, &n, e))
        return -1;
    char *to = n > out->max - MIN(out->n, out->max) ? NULL : buf_reserve(out, n);
    if (!to)
        failed = err_set(e, ERR_TOO_LARGE, "%s: larger than %zu bytes", name, out->max);
    else if (file_read(fd, to, n, 0))
        failed = err_set(e, ERR_IO, "%s: %s", name, strerror(errno));
    else
        out->n += n;
    close(fd);
    return failed;
}

/* ".part-" and 16 hexadecimal digits. */
static bool is_temp_name(const char *name)
{
    size_t n = strlen(TEMP_PREFIX);

    return !strncmp(name, TEMP_PREFIX, n) && strlen(name) == n + 16 &&
           strspn(name + n, "0123456789abcdef") == 16;
}

/* A process that writes the file holds a lock on it; the system releases it when the process
 * ends. */
static bool is_stale_at(int dir, const char *name)
{
    struct stat st;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool is_stale =
        fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && !flock(fd, LOCK_EX | LOCK_NB);

    if (fd >= 0)
        close(fd);
    return is_stale;
}

int file_remove_stale_at(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = 0;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

    if (!d) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    for (struct dirent *f; (f = readdir(d));)
        if (is_temp_name(f->d_name) && is_stale_at(dir, f->d_name))
            n += !unlinkat(dir, f->d_name, 0);
    closedir(d);
    return n;
}

/* Writes a temporary file in the same directory and renames it. */
int file_replace_at(int dir, const char *name, const void *p, size_t n, struct err *e)
{
    char temp_name[40];

    snprintf(
        temp_name, sizeof(temp_name), TEMP_PREFIX "%016llx", (unsigned long long)rng_entropy());
    int fd = openat(dir, temp_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(e, ERR_IO, "%s: %s", name, strerror(errno));
    /* Without the lock, file_remove_stale_at of another process could remove the file. */
    bool is_written = !flock(fd, LOCK_EX) && !file_write(fd, p, n, 0) && !fsync(fd);
    bool is_renamed = is_written && !renameat(dir, temp_name, dir, name);
    int why = errno;
    if (!is_renamed)
        unlinkat(dir, temp_name, 0);
    close(fd); /* releases the lock; fsync has reported the errors of writing */
    if (!is_renamed)
        return err_set(e, ERR_IO, "%s: %s", name, strerror(why));
    return fsync(dir) ? err_set(e, ERR_IO, "%s: %s", name, strerror(errno)) : 0;
}
