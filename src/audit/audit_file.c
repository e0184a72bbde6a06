#include "audit/audit_file.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 256 * 1024, GROUP_BYTES = 16 * 1024 * 1024 };

static int io_error(struct err *e)
{
    return err_set(e, ERR_IO, "%s", strerror(errno));
}

/* ---- reading the end of the file */

/* Reads up to n bytes of the file at an offset. Returns their number; 0: end of the file, or no
 * memory (then the buffer is failed). */
static size_t read_at(const struct audit_file *f, struct buf *b, size_t n, uint64_t offset)
{
    char *to = buf_reserve(b, n);
    size_t got = (size_t)MIN((uint64_t)n, offset < f->size ? f->size - offset : 0);

    if (!to || !got || file_read(f->fd, to, got, offset))
        return 0;
    b->n += got;
    return got;
}

/* Follows the chain from `offset` to the last line that continues it. Returns the offset of its
 * end; -1: the file cannot be read. */
static int64_t follow_chain(const struct audit_file *f, struct audit_chain *c, uint64_t offset,
    bool *is_closed, struct err *e)
{
    struct audit_line line;
    struct err ignored;
    struct buf b;
    bool is_over = false;

    buf_init(&b, READ_BYTES + AUDIT_LINE_BYTES);
    while (!is_over && offset + b.n < f->size) {
        if (!read_at(f, &b, READ_BYTES, offset + b.n)) {
            buf_clear(&b);
            return io_error(e);
        }
        size_t used = 0;
        for (const char *lf; !is_over && (lf = memchr(b.p + used, '\n', b.n - used));) {
            struct str text = { b.p + used, (size_t)(lf - b.p) - used };
            is_over =
                !audit_line_read(&line, text) || audit_chain_check(c, &line, f->keys, &ignored);
            if (!is_over) {
                *is_closed = audit_line_is_event(&line, AUDIT_EVENT_END);
                used += text.n + 1;
            }
        }
        is_over |= b.n - used >= AUDIT_LINE_BYTES;
        offset += used;
        buf_drop(&b, used);
    }
    buf_clear(&b);
    return (int64_t)offset;
}

/* Whether the line of the checkpoint ends at its offset. */
static bool has_checkpoint(const struct audit_file *f, const struct checkpoint *c)
{
    char tail[AUDIT_LINE_BYTES];
    size_t n = (size_t)MIN(c->offset, (uint64_t)sizeof(tail));
    struct audit_line line;

    if (c->offset > f->size || n < 2 || file_read(f->fd, tail, n, c->offset - n) ||
        tail[n - 1] != '\n')
        return false;
    const char *before = memrchr(tail, '\n', n - 1), *start = before ? before + 1 : tail;
    struct str text = { start, (size_t)(tail + n - 1 - start) };
    return (before || c->offset == n) && audit_line_read(&line, text) &&
           str_is(line.mac, c->chain.mac) && line.seq + 1 == c->chain.n_lines;
}

/* Reads the first line of the file. */
static bool read_first(
    const struct audit_file *f, char text[AUDIT_LINE_BYTES], struct audit_line *l)
{
    size_t n = (size_t)MIN(f->size, (uint64_t)AUDIT_LINE_BYTES);

    if (!n || file_read(f->fd, text, n, 0))
        return false;
    const char *lf = memchr(text, '\n', n);
    return lf && audit_line_read(l, (struct str){ text, (size_t)(lf - text) });
}

/* Whether the file can be an audit log: it begins like one, or with the zeros that a power cut
 * leaves. *is_torn: it can be a first line that was not written completely. */
static bool is_audit_log(const struct audit_file *f, bool *is_torn)
{
    static const char head[] = "{\"prev\":\"";
    char text[AUDIT_LINE_BYTES];
    size_t n = (size_t)MIN(f->size, (uint64_t)sizeof(text)), n_zeros = 0;

    if (file_read(f->fd, text, n, 0))
        return false;
    while (n_zeros < n && !text[n_zeros])
        n_zeros++;
    *is_torn = f->size == n && !memchr(text, '\n', n);
    return n_zeros == n || !memcmp(text, head, MIN(n, sizeof(head) - 1));
}

/* ---- appending */

static int undo(struct audit_file *f)
{
    f->is_torn = ftruncate(f->fd, (off_t)f->size) != 0;
    return f->is_torn ? -1 : 0;
}

int audit_file_append(struct audit_file *f, const struct str *members, size_t n, struct err *e)
{
    struct audit_chain chain = f->chain;
    struct stat st;
    struct buf b;
    int rc = -1;

    buf_init(&b, GROUP_BYTES);
    for (size_t i = 0; i < n; i++)
        audit_chain_add(&chain, &b, audit_keys_current(f->keys), members[i]);
    if (!buf_ok(&b)) {
        err_set(e, ERR_MEMORY, "no memory for the lines");
    } else if ((f->is_torn && undo(f)) || fstat(f->fd, &st)) {
        io_error(e);
    } else if (f->size = (uint64_t)st.st_size, file_write(f->fd, b.p, b.n, f->size)) {
        io_error(e);
        if (undo(f))
            log_error("audit", "audit_undo_failed", "error=\"%s\"", strerror(errno));
    } else {
        f->chain = chain;
        f->size += b.n;
        f->is_synced = false;
        rc = 0;
    }
    buf_clear(&b);
    return rc;
}

static int sync_as(struct audit_file *f, bool is_closed, struct err *e)
{
    struct checkpoint c = { .chain = f->chain, .offset = f->size, .is_closed = is_closed };

    if (fdatasync(f->fd) && errno != EINVAL && errno != EROFS)
        return io_error(e);
    if (checkpoint_write(&f->checkpoint, &c, audit_keys_current(f->keys), e))
        return -1;
    f->is_synced = true;
    return 0;
}

int audit_file_sync(struct audit_file *f, struct err *e)
{
    return f->is_synced ? 0 : sync_as(f, false, e);
}

static int append_event(struct audit_file *f, const char *event, const char *reason, struct err *e)
{
    char members[256];
    int n = snprintf(members, sizeof(members), "\"time\":%" PRId64 ",%s,\"reason\":\"%s\"",
        clock_wall_s(), event, reason);

    return audit_file_append(f, &(struct str){ members, (size_t)n }, 1, e);
}

static int begin_file(struct audit_file *f, const char *reason, struct err *e)
{
    f->first = f->chain.n_lines;
    f->began_s = clock_wall_s();
    return append_event(f, AUDIT_EVENT_BEGIN, reason, e) || sync_as(f, false, e) ? -1 : 0;
}

/* ---- directory */

/* fsync of the directory of the file, so that a new name is on the disk. */
static int sync_directory(const char *path, struct err *e)
{
    char *dir = xstrdup(path), *slash = strrchr(dir, '/');

    if (slash)
        slash[slash == dir] = '\0';
    int fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 || (fsync(fd) && errno != EINVAL && errno != EROFS) ? io_error(e) : 0;
    if (fd >= 0)
        close(fd);
    mem_free(dir);
    return rc;
}

/* Renames the file to PATH.<kind><number>, or to the next number that is free. */
static int rename_to(struct audit_file *f, const char *kind, uint64_t number, struct err *e)
{
    size_t n = strlen(f->path) + 48;
    char *to = xmalloc(n);

    do
        snprintf(to, n, "%s.%s%020" PRIu64, f->path, kind, number++);
    while (!access(to, F_OK));
    int rc = rename(f->path, to) ? io_error(e) : sync_directory(f->path, e);
    if (rc)
        err_wrap(e, "rename to %s", to);
    else
        log_info("audit", "audit_renamed", "path=\"%s\" to=\"%s\"", f->path, to);
    mem_free(to);
    return rc;
}

static int open_locked(const char *path, int *fd, struct err *e)
{
    if (file_open_regular(path, O_RDWR | O_CREAT, fd, e))
        return -1;
    if (!flock(*fd, LOCK_EX | LOCK_NB))
        return 0;
    if (errno == EWOULDBLOCK)
        err_set(e, ERR_INVALID, "another process writes to it");
    else
        io_error(e);
    close(*fd);
    *fd = -1;
    return -1;
}

/* ---- opening */

/* Replaces the open file, which was renamed, by a new one at the path. */
static int open_next(struct audit_file *f, const char *reason, struct err *e)
{
    struct audit_file old = *f;
    int fd;

    if (open_locked(f->path, &fd, e))
        return -1;
    f->fd = fd;
    f->size = (uint64_t)lseek(fd, 0, SEEK_END);
    f->is_torn = false;
    bool is_empty = !f->size;
    if (!is_empty) {
        err_set(e, ERR_INVALID, "another program has created a file at the path of the log");
    } else if (!begin_file(f, reason, e) && !sync_directory(f->path, e)) {
        close(old.fd);
        return 0;
    }
    struct checkpoint_file checkpoint = f->checkpoint;
    *f = old; /* the log continues in the old file */
    f->checkpoint = checkpoint;
    f->is_synced = false;
    if (is_empty)
        unlink(f->path); /* else the next start would take it for the log */
    close(fd);
    return -1;
}

static int move_damaged(struct audit_file *f, struct err *e)
{
    log_error("audit", "audit_file_damaged",
        "path=\"%s\" error=\"the line of the checkpoint is missing\"", f->path);
    if (rename_to(f, "damaged-", (uint64_t)clock_wall_s(), e))
        return -1;
    return open_next(f, "missing", e);
}

/* Removes the bytes after `end` and returns them. */
static int cut_torn(
    struct audit_file *f, uint64_t end, struct buf *torn, uint64_t *n_torn, struct err *e)
{
    *n_torn = f->size - end;
    if (!*n_torn)
        return 0;
    if (!read_at(f, torn, (size_t)MIN(*n_torn, (uint64_t)torn->max), end))
        return io_error(e);
    f->size = end;
    return undo(f) ? io_error(e) : 0;
}

/* The file begins after the checkpoint: a rotation was interrupted before its last step. */
static bool follows_checkpoint(struct audit_file *f, const struct checkpoint *c)
{
    char text[AUDIT_LINE_BYTES];
    struct audit_line line;

    return read_first(f, text, &line) && line.seq == c->chain.n_lines &&
           str_is(line.prev, c->chain.mac) && audit_line_is_event(&line, AUDIT_EVENT_BEGIN);
}

static void read_begin(struct audit_file *f)
{
    char text[AUDIT_LINE_BYTES];
    struct audit_line line;
    struct str time;

    f->began_s = clock_wall_s();
    if (!read_first(f, text, &line))
        return;
    f->first = line.seq;
    time = str_skip(line.members, sizeof("\"time\":") - 1);
    const char *comma = memchr(time.p, ',', time.n);
    if (comma)
        str_to_i64((struct str){ time.p, (size_t)(comma - time.p) }, &f->began_s);
}

static int continue_file(struct audit_file *f, const struct checkpoint *c, bool has_line,
    struct buf *torn, uint64_t *n_torn, struct err *e)
{
    bool is_closed = has_line && c->is_closed;
    int64_t end = follow_chain(f, &f->chain, has_line ? c->offset : 0, &is_closed, e);

    if (end < 0 || cut_torn(f, (uint64_t)end, torn, n_torn, e))
        return -1;
    if (!end)
        return begin_file(f, c->chain.n_lines ? "rotated" : "new", e);
    read_begin(f);
    return is_closed ? audit_file_rotate(f, e) : 0;
}

static int continue_log(struct audit_file *f, const struct checkpoint *c,
    enum checkpoint_state state, struct buf *torn, uint64_t *n_torn, struct err *e)
{
    bool has_line = state == CHECKPOINT_VALID && has_checkpoint(f, c), is_torn = true;

    f->chain = c->chain;
    if (has_line || (state == CHECKPOINT_VALID && follows_checkpoint(f, c)))
        return continue_file(f, c, has_line, torn, n_torn, e);
    /* Nothing is missing if the log ended with the file before, or has not begun. */
    bool is_start = c->is_closed || (state != CHECKPOINT_DAMAGED && !c->chain.n_lines);
    if (f->size && !(is_start && is_audit_log(f, &is_torn) && is_torn))
        return move_damaged(f, e);
    if (is_start)
        return continue_file(f, c, false, torn, n_torn, e);
    log_error("audit", "audit_file_missing",
        "path=\"%s\" error=\"the file that ends with line %" PRIu64 " is missing\"", f->path,
        c->chain.n_lines - 1);
    return begin_file(f, "missing", e);
}

int audit_file_open(struct audit_file *f, const char *path, struct audit_keys *keys,
    struct buf *torn, uint64_t *n_torn, struct err *e)
{
    size_t n_path = strlen(path) + sizeof(".checkpoint");
    char *checkpoint_path = xmalloc(n_path);
    enum checkpoint_state state;
    struct checkpoint c;
    bool is_torn;

    *f = (struct audit_file){ .path = xstrdup(path), .fd = -1, .keys = keys };
    f->checkpoint.fd = -1;
    *n_torn = 0;
    snprintf(checkpoint_path, n_path, "%s.checkpoint", path);
    if (open_locked(path, &f->fd, e))
        goto fail;
    f->size = (uint64_t)lseek(f->fd, 0, SEEK_END);
    /* An existing file of another kind is refused before a checkpoint is created. */
    if (f->size && access(checkpoint_path, F_OK) && !is_audit_log(f, &is_torn)) {
        err_set(e, ERR_CORRUPT, "not an audit log");
        goto fail;
    }
    if (checkpoint_open(&f->checkpoint, checkpoint_path, keys, &c, &state, e) ||
        (state == CHECKPOINT_NEW && !f->size &&
            (checkpoint_write(&f->checkpoint, &c, audit_keys_current(keys), e) ||
                sync_directory(path, e))) ||
        continue_log(f, &c, state, torn, n_torn, e) || audit_file_sync(f, e))
        goto fail;
    mem_free(checkpoint_path);
    return 0;

fail:
    err_wrap(e, "audit log %s", path);
    mem_free(checkpoint_path);
    if (f->fd >= 0)
        close(f->fd);
    checkpoint_close(&f->checkpoint);
    mem_free(f->path);
    *f = (struct audit_file){ .fd = -1, .checkpoint = { .fd = -1 } };
    return -1;
}

void audit_file_close(struct audit_file *f)
{
    struct err e;

    if (f->fd < 0)
        return;
    if (audit_file_sync(f, &e))
        log_error("audit", "audit_sync_failed", "error=\"%s\"", e.msg);
    close(f->fd);
    checkpoint_close(&f->checkpoint);
    mem_free(f->path);
    *f = (struct audit_file){ .fd = -1, .checkpoint = { .fd = -1 } };
}

/* ---- rotation */

static int end_file(struct audit_file *f, const char *reason, struct err *e)
{
    return append_event(f, AUDIT_EVENT_END, reason, e) || sync_as(f, true, e) ? -1 : 0;
}

static bool was_renamed(const struct audit_file *f)
{
    struct stat at_path, open_file;

    return stat(f->path, &at_path) || fstat(f->fd, &open_file) ||
           at_path.st_dev != open_file.st_dev || at_path.st_ino != open_file.st_ino;
}

int audit_file_rotate(struct audit_file *f, struct err *e)
{
    if (end_file(f, "rotated", e) || (!was_renamed(f) && rename_to(f, "", f->first, e)))
        return -1;
    return open_next(f, "rotated", e);
}

int audit_file_reopen(struct audit_file *f, bool *was_moved, struct err *e)
{
    *was_moved = was_renamed(f);
    if (!*was_moved)
        return 0;
    return end_file(f, "reopened", e) || open_next(f, "reopened", e) ? -1 : 0;
}
