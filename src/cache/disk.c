#include "cache/disk.h"
#include "base/mem.h"
#include "os/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SEGMENTS_MAX = 4096,
    SEGMENTS_TARGET = 32
}; /* a segment has about max_bytes / SEGMENTS_TARGET */

struct disk_segment {
    uint32_t id;
    int fd, direct_fd; /* direct_fd: -1 without O_DIRECT */
    uint64_t n_bytes;
};

struct disk {
    struct disk_options o;
    int dir_fd, lock_fd;
    struct disk_segment *segments; /* [SEGMENTS_MAX], oldest first */
    uint32_t n_segments, next_id;
    uint64_t n_bytes, segment_bytes;
    char dir[]; /* copy of options.dir, which is borrowed during disk_open */
};

static void segment_name(uint32_t id, char *name, size_t size)
{
    snprintf(name, size, "kv-%016x.seg", id);
}

static uint64_t record_align(uint64_t n)
{
    return (n + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
}

/* ---- segments */

static int add_segment(struct disk *d, uint32_t id, int flags, struct err *e)
{
    char name[40];

    if (d->n_segments == SEGMENTS_MAX)
        return err_set(e, ERR_IO, "%s: more than %d segments", d->o.dir, SEGMENTS_MAX);
    segment_name(id, name, sizeof(name));
    int fd = openat(d->dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (fd < 0)
        return err_set(e, ERR_IO, "%s/%s: %s", d->o.dir, name, strerror(errno));
    int direct_fd = openat(d->dir_fd, name, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NOFOLLOW);
    d->segments[d->n_segments++] =
        (struct disk_segment){ .id = id, .fd = fd, .direct_fd = direct_fd };
    d->next_id = MAX(d->next_id, id + 1);
    return 0;
}

static void close_segment(const struct disk_segment *s)
{
    close(s->fd);
    if (s->direct_fd >= 0)
        close(s->direct_fd);
}

static void delete_oldest_segment(struct disk *d)
{
    struct disk_segment *s = &d->segments[0];
    char name[40];

    segment_name(s->id, name, sizeof(name));
    unlinkat(d->dir_fd, name, 0);
    close_segment(s);
    d->n_bytes -= s->n_bytes;
    d->n_segments--;
    memmove(s, s + 1, d->n_segments * sizeof(*s));
}

static struct disk_segment *find_segment(struct disk *d, uint32_t id)
{
    for (uint32_t i = 0; i < d->n_segments; i++)
        if (d->segments[i].id == id)
            return &d->segments[i];
    return NULL;
}

/* ---- opening */

static int compare_ids(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Ids of the existing segments, ascending; at most SEGMENTS_MAX - 1, in directory order. */
static uint32_t list_segments(struct disk *d, uint32_t *ids)
{
    int fd = openat(d->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    uint32_t n = 0;

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    for (struct dirent *f; n < SEGMENTS_MAX - 1 && (f = readdir(dir));) {
        char name[40], *end;
        if (strncmp(f->d_name, "kv-", 3) != 0)
            continue;
        unsigned long long id = strtoull(f->d_name + 3, &end, 16);
        segment_name((uint32_t)id, name, sizeof(name));
        if (id > 0 && id < UINT32_MAX && !strcmp(name, f->d_name))
            ids[n++] = (uint32_t)id;
    }
    closedir(dir);
    qsort(ids, n, sizeof(*ids), compare_ids);
    return n;
}

/* Reports each record up to the first invalid one. */
static void scan_segment(struct disk *d, struct disk_segment *s, uint8_t *front, size_t front_max)
{
    struct stat st;
    uint64_t at = 0;

    if (fstat(s->fd, &st) || st.st_size < 0)
        return;
    for (uint64_t size = (uint64_t)st.st_size; size - at >= RECORD_HEAD;) {
        struct record r;
        struct err e;
        size_t n_bytes;
        if (file_read(s->fd, front, RECORD_HEAD, at))
            break;
        size_t n_front = record_meta_bytes(front);
        if (n_front == 0 || n_front > front_max || n_front > size - at ||
            file_read(s->fd, front, n_front, at) ||
            record_read_head(&r, &d->o.kind, front, size - at, &n_bytes, &e) ||
            n_bytes > UINT32_MAX)
            break;
        d->o.found(d->o.arg, &r, (struct disk_pos){ s->id, (uint32_t)n_bytes, at });
        at = MIN(at + record_align(n_bytes), size);
    }
    s->n_bytes = (uint64_t)st.st_size; /* the size counts in any case */
    d->n_bytes += s->n_bytes;
}

static int scan_segments(struct disk *d, struct err *e)
{
    size_t front_max = record_meta_max(d->o.max_tokens);
    uint32_t *ids = try_calloc(SEGMENTS_MAX, sizeof(*ids));
    uint8_t *front = try_aligned(RECORD_ALIGN, front_max);
    uint32_t n = ids && front ? list_segments(d, ids) : 0;
    int failed = ids && front ? 0 : err_set(e, ERR_MEMORY, "no memory to scan %s", d->o.dir);

    for (uint32_t i = 0; i < n && !failed; i++) {
        failed = add_segment(d, ids[i], 0, e);
        if (!failed)
            scan_segment(d, &d->segments[d->n_segments - 1], front, front_max);
    }
    while (!failed && d->n_segments > 0 && d->n_bytes > d->o.max_bytes)
        delete_oldest_segment(d);
    mem_free(ids);
    mem_free(front);
    return failed;
}

/* The lock file contains the id of the process that holds the lock. */
static int take_lock(struct disk *d, struct err *e)
{
    char text[24] = "";
    int64_t pid = 0;

    if (flock(d->lock_fd, LOCK_EX | LOCK_NB)) {
        if (pread(d->lock_fd, text, sizeof(text) - 1, 0) > 0)
            str_to_i64(str_of(text), &pid);
        if (pid == getpid())
            return err_set(e, ERR_IO,
                "%s: another model of this server with the same file uses it; a model with several "
                "names is one entry with aliases",
                d->o.dir);
        return err_set(e, ERR_IO, "%s: another process uses it", d->o.dir);
    }
    int n = snprintf(text, sizeof(text), "%d", (int)getpid());
    if (ftruncate(d->lock_fd, 0) || pwrite(d->lock_fd, text, (size_t)n, 0) != n)
        return err_set(e, ERR_IO, "%s/lock: %s", d->o.dir, strerror(errno));
    return 0;
}

static int open_dir(struct disk *d, struct err *e)
{
    if (mkdir(d->o.dir, 0700) && errno != EEXIST)
        return err_set(e, ERR_IO, "%s: %s", d->o.dir, strerror(errno));
    d->dir_fd = open(d->o.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->dir_fd < 0)
        return err_set(e, ERR_IO, "%s: %s", d->o.dir, strerror(errno));
    d->lock_fd = openat(d->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (d->lock_fd < 0)
        return err_set(e, ERR_IO, "%s/lock: %s", d->o.dir, strerror(errno));
    return take_lock(d, e);
}

int disk_open(struct disk **out, const struct disk_options *o, struct err *e)
{
    size_t n_dir = strlen(o->dir) + 1;
    struct disk *d = xcalloc(1, sizeof(*d) + n_dir);

    d->o = *o;
    d->o.dir = memcpy(d->dir, o->dir, n_dir);
    d->dir_fd = d->lock_fd = -1;
    d->next_id = 1;
    d->segment_bytes = MAX(o->max_bytes / SEGMENTS_TARGET, 1 * MB);
    d->segments = try_calloc(SEGMENTS_MAX, sizeof(*d->segments));
    if (!d->segments) {
        disk_close(d);
        return err_set(e, ERR_MEMORY, "no memory for the segments of %s", o->dir);
    }
    if (open_dir(d, e) || scan_segments(d, e) || add_segment(d, d->next_id, O_CREAT | O_EXCL, e)) {
        disk_close(d);
        return -1;
    }
    *out = d;
    return 0;
}

void disk_close(struct disk *d)
{
    if (!d)
        return;
    for (uint32_t i = 0; i < d->n_segments; i++)
        close_segment(&d->segments[i]);
    if (d->lock_fd >= 0)
        close(d->lock_fd);
    if (d->dir_fd >= 0)
        close(d->dir_fd);
    mem_free(d->segments);
    mem_free(d);
}

/* ---- append and read */

int disk_append(struct disk *d, uint8_t *bytes, size_t n, struct disk_pos *at, struct err *e)
{
    uint64_t n_more = record_align(n);

    if (n_more > d->o.max_bytes || n > UINT32_MAX)
        return err_set(e, ERR_TOO_LARGE, "a KV record of %zu bytes is too large", n);
    if ((d->n_segments == 0 || d->segments[d->n_segments - 1].n_bytes >= d->segment_bytes) &&
        add_segment(d, d->next_id, O_CREAT | O_EXCL, e))
        return -1;
    while (d->n_bytes + n_more > d->o.max_bytes && d->n_segments > 1)
        delete_oldest_segment(d);
    struct disk_segment *s = &d->segments[d->n_segments - 1];
    if (d->n_bytes + n_more > d->o.max_bytes) { /* the only segment is too large: start a new one */
        if (add_segment(d, d->next_id, O_CREAT | O_EXCL, e))
            return -1;
        delete_oldest_segment(d);
        s = &d->segments[d->n_segments - 1];
    }
    struct aio_op op = { .fd = s->fd, .is_write = true, .p = bytes, .n = n, .offset = s->n_bytes };
    aio_submit(d->o.aio, &op);
    CHECK(aio_wait(d->o.aio) == &op);
    if (op.why) /* the next record overwrites the written part */
        return err_set(e, ERR_IO, "%s: %s", d->o.dir, strerror(op.why));
    *at = (struct disk_pos){ s->id, (uint32_t)n, s->n_bytes };
    s->n_bytes += n_more;
    d->n_bytes += n_more;
    return 0;
}

/* True if the whole record is in the page cache. Without the system call cachestat (Linux before
 * 6.5): false. RWF_NOWAIT would also answer, but could start to read the record into the page
 * cache. */
static bool is_in_page_cache(int fd, struct disk_pos at)
{
    const long cachestat = 451; /* the same number on all architectures */
    uint64_t range[2] = { at.offset, at.n_bytes };
    struct {
        uint64_t n_there, n_dirty, n_written_back, n_evicted, n_recently;
    } found = { 0 };
    uint64_t first = at.offset / FILE_ALIGN, last = (at.offset + at.n_bytes - 1) / FILE_ALIGN;

    return !syscall(cachestat, fd, range, &found, 0) && found.n_there >= last - first + 1;
}

bool disk_read_begin(struct disk *d, struct disk_pos at, struct disk_read *r)
{
    const struct disk_segment *s = find_segment(d, at.segment);
    uint64_t from = at.offset / FILE_ALIGN * FILE_ALIGN;

    if (!s)
        return false;
    r->bytes = r->space + (at.offset - from);
    r->op = (struct aio_op){ 0 };
    r->is_read = is_in_page_cache(s->fd, at);
    if (r->is_read) {
        r->op.why = file_read(s->fd, r->bytes, at.n_bytes, at.offset) ? errno : 0;
        return true;
    }
    if (s->direct_fd < 0) {
        r->op = (struct aio_op){ .fd = s->fd, .p = r->bytes, .n = at.n_bytes, .offset = at.offset };
    } else {
        size_t least = (size_t)(at.offset - from) + at.n_bytes;
        r->op = (struct aio_op){ .fd = s->direct_fd,
            .p = r->space,
            .n = (least + FILE_ALIGN - 1) / FILE_ALIGN * FILE_ALIGN,
            .least = least,
            .offset = from };
    }
    aio_submit(d->o.aio, &r->op);
    return true;
}

/* A file system with stricter O_DIRECT alignment (EINVAL) gets a buffered read. */
int disk_read_end(struct disk *d, struct disk_pos at, struct disk_read *r)
{
    struct disk_segment *s = find_segment(d, at.segment);

    if (r->op.why != EINVAL || r->op.fd != s->direct_fd)
        return r->op.why;
    close(s->direct_fd);
    s->direct_fd = -1;
    return file_read(s->fd, r->bytes, at.n_bytes, at.offset) ? errno : 0;
}

uint32_t disk_first_segment(const struct disk *d)
{
    return d->n_segments > 0 ? d->segments[0].id : d->next_id;
}

uint64_t disk_bytes(const struct disk *d)
{
    return d->n_bytes;
}
