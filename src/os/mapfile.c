#include "os/mapfile.h"
#include "base/fault.h"
#include "os/files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t timespec_ns(struct timespec t)
{
    return (int64_t)t.tv_sec * (int64_t)NS_PER_S + t.tv_nsec;
}

static struct file_id file_id_of(const struct stat *st)
{
    return (struct file_id){ st->st_dev, st->st_ino, (uint64_t)st->st_size,
        timespec_ns(st->st_mtim), timespec_ns(st->st_ctim) };
}

int mapfile_open(struct mapfile *m, const char *path, struct err *e)
{
    struct stat st;
    void *p = MAP_FAILED;
    int fd;

    *m = (struct mapfile){ 0 };
    if (file_open_regular(path, O_RDONLY, &fd, e))
        return -1;
    if (fstat(fd, &st) < 0) {
        err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
        goto fail;
    }
    if (st.st_size == 0) {
        err_set(e, ERR_CORRUPT, "%s: the file is empty", path);
        goto fail;
    }
    if (!fault_hit(FAULT_MMAP))
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
        err_set(
            e, ERR_IO, "%s: mmap of %lld bytes: %s", path, (long long)st.st_size, strerror(errno));
        goto fail;
    }
    close(fd); /* the mapping keeps the file open */
    m->p = p;
    m->n = (size_t)st.st_size;
    m->id = file_id_of(&st);
    return 0;

fail:
    close(fd);
    return -1;
}

void mapfile_close(struct mapfile *m)
{
    if (m->p)
        munmap((void *)(uintptr_t)m->p, m->n);
    *m = (struct mapfile){ 0 };
}

bool file_id_is(const struct file_id *id, const char *path)
{
    struct stat st;

    if (stat(path, &st))
        return false;
    struct file_id now = file_id_of(&st);
    return !memcmp(&now, id, sizeof(now)); /* five 64-bit fields: no padding */
}

bool mapfile_is_unchanged(const struct mapfile *m, const char *path)
{
    return file_id_is(&m->id, path);
}

void mapfile_dontneed(const struct mapfile *m, size_t off, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t from = (off + page - 1) & ~(page - 1), to = (off + n) & ~(page - 1);

    CHECK(off <= m->n && n <= m->n - off);
    if (from < to) /* advice: a failure costs memory only */
        (void)madvise((void *)(uintptr_t)(m->p + from), to - from, MADV_DONTNEED);
}
