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
    VERSION = 2,       /* of this file's form */
    UNIT = 4096,       /* head, table and block begin at multiples */
    STRETCH = 1 << 20, /* bytes per sum */
    STAMP_AT = 512,    /* another sector than the head's */
    SETTLED_S = 2,
};

static const char magic[8] = "IFXPACK\n";

struct head { /* little-endian, as all machines that this runs on */
    char magic[8];
    uint32_t version, packing;
    uint8_t content[CONTENT_BYTES];
    uint64_t bytes; /* of the block */
    uint32_t sums_crc, head_crc;
};

struct stamp { /* a wrong sum: there is none */
    uint8_t source[32];
    uint32_t crc;
};

_Static_assert(sizeof(struct head) == 64 && sizeof(struct stamp) == 36, "no holes");

static size_t unit_up(size_t n)
{
    return (n + UNIT - 1) / UNIT * UNIT;
}

static size_t n_stretches(size_t bytes)
{
    return (bytes + STRETCH - 1) / STRETCH;
}

static size_t front_bytes(size_t bytes)
{
    return UNIT + unit_up(n_stretches(bytes) * sizeof(uint32_t));
}

static uint32_t head_crc(const struct head *h)
{
    return crc32c(0, h, offsetof(struct head, head_crc));
}

/* ---- the key */

static bool is_settled(const struct file_id *id)
{
    return clock_wall_s() - id->ctime_ns / 1000000000 > SETTLED_S;
}

void packfile_source_of(struct packfile_key *out, const struct gguf *g)
{
    EVP_MD_CTX *sum = EVP_MD_CTX_new();

    CHECK(sum && EVP_DigestInit_ex(sum, EVP_sha256(), NULL));
    out->has_source = true;
    for (size_t i = 0; i < gguf_n_parts(g) && out->has_source; i++) {
        const struct file_id *id = gguf_part_id(g, i);
        out->has_source = id && is_settled(id);
        if (id)
            CHECK(EVP_DigestUpdate(sum, id, sizeof(*id)));
    }
    CHECK(EVP_DigestFinal_ex(sum, out->source, NULL));
    EVP_MD_CTX_free(sum);
}

static struct stamp stamp_of(const struct packfile_key *key)
{
    struct stamp s = { .crc = crc32c(0, key->source, sizeof(s.source)) };

    memcpy(s.source, key->source, sizeof(s.source));
    return s;
}

/* ---- reading */

struct sum_job {
    struct team *team;
    const uint8_t *block;
    size_t bytes;
    const uint32_t *sums;
    _Atomic size_t n_wrong;
};

static uint32_t sum_of(const uint8_t *block, size_t bytes, size_t stretch)
{
    size_t from = stretch * STRETCH;

    return crc32c(0, block + from, MIN(bytes - from, (size_t)STRETCH));
}

static void sum_some(void *arg, int member, int n_members)
{
    struct sum_job *j = arg;
    (void)member;
    (void)n_members;
    for (;;) {
        size_t i = (size_t)team_next(j->team);
        if (i >= n_stretches(j->bytes))
            return;
        if (sum_of(j->block, j->bytes, i) != j->sums[i])
            atomic_fetch_add(&j->n_wrong, 1);
    }
}

static int check_head(const struct mapfile *m, size_t bytes, struct err *e)
{
    struct head h;

    if (m->n < UNIT)
        return err_set(e, ERR_CORRUPT, "a file of %zu bytes", m->n);
    memcpy(&h, m->p, sizeof(h));
    if (memcmp(h.magic, magic, sizeof(magic)) != 0 || h.head_crc != head_crc(&h))
        return err_set(e, ERR_CORRUPT, "the head is damaged");
    if (h.version != VERSION || h.packing != PACKFILE_LAYOUT)
        return err_set(e, ERR_UNSUPPORTED, "another version wrote it");
    if (h.bytes != bytes)
        return err_set(e, ERR_UNSUPPORTED, "it is of another model");
    if (m->n != front_bytes(bytes) + bytes)
        return err_set(
            e, ERR_CORRUPT, "%zu bytes instead of %zu", m->n, front_bytes(bytes) + bytes);
    if (h.sums_crc != crc32c(0, m->p + UNIT, n_stretches(bytes) * sizeof(uint32_t)))
        return err_set(e, ERR_CORRUPT, "the table of sums is damaged");
    return 0;
}

static struct packfile_key read_key(const struct mapfile *m)
{
    struct packfile_key key;
    struct head h;
    struct stamp s;

    memcpy(&h, m->p, sizeof(h));
    memcpy(&s, m->p + STAMP_AT, sizeof(s));
    memcpy(key.content, h.content, sizeof(key.content));
    memcpy(key.source, s.source, sizeof(key.source));
    key.has_source = s.crc == crc32c(0, s.source, sizeof(s.source));
    return key;
}

int packfile_open(struct packfile *f, const char *path, size_t bytes, struct err *e)
{
    *f = (struct packfile){ 0 };
    if (mapfile_open_found(&f->map, path, e))
        return -1;
    if (check_head(&f->map, bytes, e)) {
        packfile_close(f);
        return err_wrap(e, "%s", path);
    }
    f->block = f->map.p + front_bytes(bytes);
    f->key = read_key(&f->map);
    return 0;
}

bool packfile_is_from(const struct packfile *f, const struct packfile_key *key)
{
    return f->key.has_source && key->has_source &&
           !memcmp(f->key.source, key->source, sizeof(key->source));
}

int packfile_check(const struct packfile *f, size_t bytes, struct team *team, struct err *e)
{
    struct sum_job job = { .team = team,
        .block = f->block,
        .bytes = bytes,
        .sums = (const uint32_t *)(const void *)(f->map.p + UNIT) };

    team_run(team, sum_some, &job);
    if (!job.n_wrong)
        return 0;
    return err_set(e, ERR_CORRUPT, "packed weights: %zu of %zu stretches are damaged", job.n_wrong,
        n_stretches(bytes));
}

void packfile_renew(const struct packfile *f, const char *path, const struct packfile_key *key)
{
    struct stamp s = stamp_of(key);
    struct stat st;

    if (!key->has_source)
        return;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return; /* somebody else's: summed up at each start */
    if (!fstat(fd, &st) && st.st_dev == f->map.id.dev && st.st_ino == f->map.id.ino &&
        pwrite(fd, &s, sizeof(s), STAMP_AT) != (ssize_t)sizeof(s))
        log_warn("model", "packfile", "%s: %s", path, strerror(errno));
    close(fd);
}

void packfile_close(struct packfile *f)
{
    mapfile_close(&f->map);
    *f = (struct packfile){ 0 };
}

/* ---- writing */

static int put_all(int fd, const void *bytes, size_t n)
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

/* The sums are taken of the memory that is written: what was wrong there would be found wrong in
 * the file only if it changed on the way. */
static int fill_front(uint8_t *front, const struct packfile_key *key, const uint8_t *block,
    size_t bytes, const _Atomic bool *stop)
{
    uint32_t *sums = (uint32_t *)(void *)(front + UNIT);
    struct head h = { .version = VERSION, .packing = PACKFILE_LAYOUT, .bytes = bytes };

    for (size_t i = 0; i < n_stretches(bytes) && !is_stopped(stop); i++)
        sums[i] = sum_of(block, bytes, i);
    memcpy(h.magic, magic, sizeof(magic));
    memcpy(h.content, key->content, sizeof(h.content));
    h.sums_crc = crc32c(0, sums, n_stretches(bytes) * sizeof(*sums));
    h.head_crc = head_crc(&h);
    memcpy(front, &h, sizeof(h));
    if (key->has_source) {
        struct stamp s = stamp_of(key);
        memcpy(front + STAMP_AT, &s, sizeof(s));
    }
    return is_stopped(stop) ? -1 : 0;
}

static int put_block(int fd, const uint8_t *block, size_t bytes, const _Atomic bool *stop)
{
    for (size_t i = 0; i < n_stretches(bytes); i++) {
        size_t from = i * STRETCH;
        if (is_stopped(stop) || put_all(fd, block + from, MIN(bytes - from, (size_t)STRETCH)))
            return -1;
    }
    return fsync(fd);
}

/* A file that nobody else writes: locked, and still there under its name. What a process that was
 * killed has left is used again. */
static int open_alone(const char *path, struct err *e)
{
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    struct stat mine, named;
    int fd = fault_hit(FAULT_OPEN) ? (errno = EIO, -1) : open(path, flags, 0644);

    if (fd < 0)
        return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) || fstat(fd, &mine) || stat(path, &named) ||
        mine.st_ino != named.st_ino || mine.st_dev != named.st_dev) {
        close(fd);
        return err_set(e, ERR_IO, "%s: another process writes it", path);
    }
    if (!S_ISREG(mine.st_mode) || ftruncate(fd, 0)) {
        err_set(e, ERR_IO, "%s: %s", path,
            S_ISREG(mine.st_mode) ? strerror(errno) : "not a regular file");
        close(fd);
        return -1;
    }
    return fd;
}

/* The new name is on the disk, too. */
static int sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[4096] = ".";

    if (slash)
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path + 1), path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 || (fsync(fd) && errno != EINVAL) ? -1 : 0; /* which some cannot do */
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
    uint8_t *front = try_calloc(1, front_bytes(bytes));
    int fd = -1, rc = -1;

    if (!front || n >= (int)sizeof(temp)) {
        err_set(e, ERR_MEMORY, "%.80s: no memory for its head", path);
        goto out;
    }
    fd = open_alone(temp, e);
    if (fd < 0)
        goto out;
    errno = 0;
    if (fill_front(front, key, block, bytes, stop) || put_all(fd, front, front_bytes(bytes)) ||
        put_block(fd, block, bytes, stop) || rename(temp, path) || sync_folder(path)) {
        if (is_stopped(stop))
            err_set(e, ERR_CANCELLED, "%s: not written to its end", path);
        else
            err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
        unlink(temp);
        goto out;
    }
    rc = 0;

out:
    if (fd >= 0)
        close(fd);
    mem_free(front);
    return rc;
}
