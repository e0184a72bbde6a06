#include "model/packfile.h"
#include "base/crc.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    VERSION = 2,           /* version of the file format */
    ALIGN_BYTES = 4096,    /* alignment of head, CRC table and block */
    CHUNK_BYTES = 1 << 20, /* bytes per CRC */
    SOURCE_OFFSET = 512,   /* not in the sector of the head */
    SETTLED_S = 2,
};

static const char magic[8] = "IFXPACK\n";

struct pack_header { /* little-endian, like all supported machines */
    char magic[8];
    uint32_t version, packing;
    uint8_t content[CONTENT_BYTES];
    uint64_t bytes; /* size of the block */
    uint32_t sums_crc, head_crc;
};

struct source_record { /* source digest; a wrong CRC means that there is none */
    uint8_t source[32];
    uint32_t crc;
};

_Static_assert(sizeof(struct pack_header) == 64 && sizeof(struct source_record) == 36, "no holes");

static size_t align_up(size_t n)
{
    return (n + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static size_t n_chunks(size_t bytes)
{
    return (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
}

static size_t header_bytes(size_t bytes)
{
    return ALIGN_BYTES + align_up(n_chunks(bytes) * sizeof(uint32_t));
}

static uint32_t head_crc(const struct pack_header *h)
{
    return crc32c(0, h, offsetof(struct pack_header, head_crc));
}

/* ---- the key */

void packfile_source_of(struct packfile_key *out, const struct gguf *g)
{
    EVP_MD_CTX *sum = EVP_MD_CTX_new();

    CHECK(sum && EVP_DigestInit_ex(sum, EVP_sha256(), NULL));
    out->has_source = true;
    for (size_t i = 0; i < gguf_n_parts(g) && out->has_source; i++) {
        const struct file_id *id = gguf_part_id(g, i);
        out->has_source = id && clock_wall_s() - id->ctime_ns / (int64_t)NS_PER_S > SETTLED_S;
        if (id)
            CHECK(EVP_DigestUpdate(sum, id, sizeof(*id)));
    }
    CHECK(EVP_DigestFinal_ex(sum, out->source, NULL));
    EVP_MD_CTX_free(sum);
}

static struct source_record source_record_of(const struct packfile_key *key)
{
    struct source_record s = { .crc = crc32c(0, key->source, sizeof(s.source)) };

    memcpy(s.source, key->source, sizeof(s.source));
    return s;
}

/* ---- reading */

struct check_job {
    struct thread_pool *thread_pool;
    const uint8_t *block;
    size_t bytes;
    const uint32_t *sums;
    _Atomic size_t n_wrong;
};

static uint32_t chunk_crc(const uint8_t *block, size_t bytes, size_t chunk)
{
    size_t from = chunk * CHUNK_BYTES;

    return crc32c(0, block + from, MIN(bytes - from, (size_t)CHUNK_BYTES));
}

static void check_chunks(void *arg, int thread, int n_threads)
{
    struct check_job *j = arg;
    (void)thread;
    (void)n_threads;
    for (;;) {
        size_t i = (size_t)thread_pool_next_task(j->thread_pool);
        if (i >= n_chunks(j->bytes))
            return;
        if (chunk_crc(j->block, j->bytes, i) != j->sums[i])
            atomic_fetch_add(&j->n_wrong, 1);
    }
}

static int check_head(const struct mapfile *m, size_t bytes, struct err *e)
{
    struct pack_header h;

    if (m->n < ALIGN_BYTES)
        return err_set(e, ERR_CORRUPT, "the file is too short: %zu bytes", m->n);
    memcpy(&h, m->p, sizeof(h));
    if (memcmp(h.magic, magic, sizeof(magic)) != 0 || h.head_crc != head_crc(&h))
        return err_set(e, ERR_CORRUPT, "the header is damaged");
    if (h.version != VERSION || h.packing != PACKFILE_LAYOUT)
        return err_set(e, ERR_UNSUPPORTED, "written by another version");
    if (h.bytes != bytes)
        return err_set(e, ERR_UNSUPPORTED, "packed from another model");
    if (m->n != header_bytes(bytes) + bytes)
        return err_set(e, ERR_CORRUPT, "the file has %zu bytes, expected %zu", m->n,
            header_bytes(bytes) + bytes);
    if (h.sums_crc != crc32c(0, m->p + ALIGN_BYTES, n_chunks(bytes) * sizeof(uint32_t)))
        return err_set(e, ERR_CORRUPT, "the checksum table is damaged");
    return 0;
}

static struct packfile_key read_key(const struct mapfile *m)
{
    struct packfile_key key;
    struct pack_header h;
    struct source_record s;

    memcpy(&h, m->p, sizeof(h));
    memcpy(&s, m->p + SOURCE_OFFSET, sizeof(s));
    memcpy(key.content, h.content, sizeof(key.content));
    memcpy(key.source, s.source, sizeof(key.source));
    key.has_source = s.crc == crc32c(0, s.source, sizeof(s.source));
    return key;
}

int packfile_open(struct packfile *f, const char *path, size_t bytes, struct err *e)
{
    *f = (struct packfile){ 0 };
    if (mapfile_open(&f->map, path, e))
        return -1;
    if (check_head(&f->map, bytes, e)) {
        packfile_close(f);
        return err_wrap(e, "%s", path);
    }
    f->block = f->map.p + header_bytes(bytes);
    f->key = read_key(&f->map);
    return 0;
}

bool packfile_source_matches(const struct packfile *f, const struct packfile_key *key)
{
    return f->key.has_source && key->has_source &&
           !memcmp(f->key.source, key->source, sizeof(key->source));
}

int packfile_check(
    const struct packfile *f, size_t bytes, struct thread_pool *thread_pool, struct err *e)
{
    struct check_job job = { .thread_pool = thread_pool,
        .block = f->block,
        .bytes = bytes,
        .sums = (const uint32_t *)(const void *)(f->map.p + ALIGN_BYTES) };

    thread_pool_run(thread_pool, check_chunks, &job);
    if (!job.n_wrong)
        return 0;
    return err_set(e, ERR_CORRUPT, "packed weights: %zu of %zu chunks are damaged", job.n_wrong,
        n_chunks(bytes));
}

void packfile_update_source(
    const struct packfile *f, const char *path, const struct packfile_key *key)
{
    struct source_record s = source_record_of(key);
    struct stat st;

    if (!key->has_source)
        return;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return; /* no permission to write: the content digest is computed at each start */
    if (!fstat(fd, &st) && st.st_dev == f->map.id.dev && st.st_ino == f->map.id.ino &&
        pwrite(fd, &s, sizeof(s), SOURCE_OFFSET) != (ssize_t)sizeof(s))
        log_warn(
            "model", "packfile_update_failed", "path=\"%s\" error=\"%s\"", path, strerror(errno));
    close(fd);
}

void packfile_close(struct packfile *f)
{
    mapfile_close(&f->map);
    *f = (struct packfile){ 0 };
}

/* ---- writing */

static int write_all(int fd, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    while (n > 0) {
        ssize_t done = fault_hit(FAULT_WRITE) ? (errno = ENOSPC, -1) : write(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return -1;
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

static bool is_stopped(const _Atomic bool *stop)
{
    return stop && atomic_load_explicit(stop, memory_order_relaxed);
}

/* The CRCs are computed from the memory that is written. They detect changes of the file, not an
 * error in that memory. */
static int fill_header(uint8_t *header, const struct packfile_key *key, const uint8_t *block,
    size_t bytes, const _Atomic bool *stop)
{
    uint32_t *sums = (uint32_t *)(void *)(header + ALIGN_BYTES);
    struct pack_header h = { .version = VERSION, .packing = PACKFILE_LAYOUT, .bytes = bytes };

    for (size_t i = 0; i < n_chunks(bytes) && !is_stopped(stop); i++)
        sums[i] = chunk_crc(block, bytes, i);
    memcpy(h.magic, magic, sizeof(magic));
    memcpy(h.content, key->content, sizeof(h.content));
    h.sums_crc = crc32c(0, sums, n_chunks(bytes) * sizeof(*sums));
    h.head_crc = head_crc(&h);
    memcpy(header, &h, sizeof(h));
    if (key->has_source) {
        struct source_record s = source_record_of(key);
        memcpy(header + SOURCE_OFFSET, &s, sizeof(s));
    }
    return is_stopped(stop) ? -1 : 0;
}

static int write_block(int fd, const uint8_t *block, size_t bytes, const _Atomic bool *stop)
{
    for (size_t i = 0; i < n_chunks(bytes); i++) {
        size_t from = i * CHUNK_BYTES;
        if (is_stopped(stop) || write_all(fd, block + from, MIN(bytes - from, (size_t)CHUNK_BYTES)))
            return -1;
    }
    return fsync(fd);
}

/* Opens a file that no other process writes: locked, and still linked under its name. A file that a
 * killed process left is used again. */
static int open_exclusive(const char *path, struct err *e)
{
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    struct stat opened, named;
    int fd = fault_hit(FAULT_OPEN) ? (errno = EIO, -1) : open(path, flags, 0644);

    if (fd < 0)
        return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) || fstat(fd, &opened) || stat(path, &named) ||
        opened.st_ino != named.st_ino || opened.st_dev != named.st_dev) {
        close(fd);
        return err_set(e, ERR_IO, "%s: another process is writing the file", path);
    }
    if (!S_ISREG(opened.st_mode) || ftruncate(fd, 0)) {
        err_set(e, ERR_IO, "%s: %s", path,
            S_ISREG(opened.st_mode) ? strerror(errno) : "not a regular file");
        close(fd);
        return -1;
    }
    return fd;
}

/* Syncs the directory, so that the new name is on the disk. */
static int sync_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    char directory[4096] = ".";

    if (slash)
        snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path + 1), path);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* EINVAL: the file system does not support fsync of directories */
    int rc = fd < 0 || (fsync(fd) && errno != EINVAL) ? -1 : 0;
    int why = errno;
    if (fd >= 0)
        close(fd);
    errno = why;
    return rc;
}

int packfile_write(const char *path, const struct packfile_key *key, const uint8_t *block,
    size_t bytes, const _Atomic bool *stop, struct err *e)
{
    char temp[4096];
    int n = snprintf(temp, sizeof(temp), "%s%s", path, PACKFILE_NEW);
    uint8_t *header = try_calloc(1, header_bytes(bytes));
    int fd = -1, rc = -1;

    if (!header || n >= (int)sizeof(temp)) {
        err_set(e, ERR_MEMORY, "%.80s: no memory for the header", path);
        goto out;
    }
    fd = open_exclusive(temp, e);
    if (fd < 0)
        goto out;
    errno = 0;
    if (fill_header(header, key, block, bytes, stop) ||
        write_all(fd, header, header_bytes(bytes)) || write_block(fd, block, bytes, stop) ||
        rename(temp, path) || sync_directory(path)) {
        if (is_stopped(stop))
            err_set(e, ERR_CANCELLED, "%s: write cancelled", path);
        else
            err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
        unlink(temp);
        goto out;
    }
    rc = 0;

out:
    if (fd >= 0)
        close(fd);
    mem_free(header);
    return rc;
}
