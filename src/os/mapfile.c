#include "os/mapfile.h"
#include "base/fault.h"
#include "os/files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* State of one mapping for the signal handler. A guard is free if n is 0. */
struct mapfile_guard {
    _Atomic uintptr_t from;
    _Atomic size_t n;
    _Atomic bool is_taken, is_lost;
};

static struct mapfile_guard guards[MAPFILES_MAX];
static size_t page_bytes;

static struct mapfile_guard *guard_take(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < MAPFILES_MAX; i++) {
        if (atomic_exchange(&guards[i].is_taken, true))
            continue;
        guards[i].is_lost = false;
        guards[i].from = (uintptr_t)p;
        guards[i].n = n;
        return &guards[i];
    }
    return NULL;
}

static void guard_release(struct mapfile_guard *g)
{
    g->n = 0;
    g->is_taken = false;
}

/* Runs in the thread that has read the page. mmap is called as a system call: a function of the C
 * library or of a sanitizer need not be safe in a signal handler. A fault outside of all mappings
 * ends the process. */
static void on_bus_error(int sig, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr & ~(page_bytes - 1);
    int saved = errno;

    for (size_t i = 0; i < MAPFILES_MAX; i++) {
        struct mapfile_guard *g = &guards[i];
        uintptr_t end = g->from + g->n;
        if (!g->n || at < g->from || at >= end)
            continue;
        long zeros = syscall(SYS_mmap, at, end - at, PROT_READ,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
        if (zeros == -1)
            break;
        g->is_lost = true;
        errno = saved;
        return;
    }
    signal(sig, SIG_DFL); /* the access is repeated after the return */
}

void mapfile_catch_faults(void)
{
    struct sigaction act = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };

    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    sigfillset(&act.sa_mask);
    sigaction(SIGBUS, &act, NULL);
}

bool mapfile_is_lost(const struct mapfile *m)
{
    return m->p && m->guard->is_lost;
}

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
    m->guard = guard_take(p, (size_t)st.st_size);
    if (!m->guard) {
        munmap(p, (size_t)st.st_size);
        return err_set(e, ERR_TOO_LARGE, "%s: %d files are mapped, the limit of a process", path,
            MAPFILES_MAX);
    }
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
    if (m->p) {
        guard_release(m->guard);
        munmap((void *)(uintptr_t)m->p, m->n);
    }
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
