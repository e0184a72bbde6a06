#include "audit/audit_file.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/files.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char head[] = "{\"prev\":\"";
enum { HEAD = sizeof(head) - 1 };

void audit_to_hex(const unsigned char hash[AUDIT_HASH], char hex[AUDIT_HEX + 1])
{
    for (int i = 0; i < AUDIT_HASH; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
}

void audit_hash(struct str bytes, char hex[AUDIT_HEX + 1])
{
    unsigned char hash[AUDIT_HASH];
    unsigned n = AUDIT_HASH;

    CHECK(EVP_Digest(bytes.p, bytes.n, hash, &n, EVP_sha256(), NULL) == 1);
    audit_to_hex(hash, hex);
}

static void set_zeros(char hex[AUDIT_HEX + 1])
{
    memset(hex, '0', AUDIT_HEX);
    hex[AUDIT_HEX] = '\0';
}

/* The form of a complete line without its newline; the hash is not compared. */
static bool is_line(struct str s)
{
    return s.n > HEAD + AUDIT_HEX && s.n < AUDIT_LINE_BYTES && !memcmp(s.p, head, HEAD) &&
           s.p[HEAD + AUDIT_HEX] == '"' && s.p[s.n - 1] == '}';
}

/* ---- open */

/* Finds the last complete line in the tail of a file. Returns the number of bytes up to its end; 0:
 * there is none. */
static size_t find_last_line(struct str tail, bool is_whole_file, struct str *line)
{
    for (size_t end = tail.n; end > 0;) {
        const char *lf = memrchr(tail.p, '\n', end);
        if (!lf)
            return 0;
        end = (size_t)(lf - tail.p);
        const char *before = end ? memrchr(tail.p, '\n', end) : NULL;
        if (!before && !is_whole_file)
            return 0; /* the line begins before the tail */
        const char *start = before ? before + 1 : tail.p;
        *line = (struct str){ start, (size_t)(lf - start) };
        if (is_line(*line))
            return end + 1;
    }
    return 0;
}

/* Whether a file without a complete line is the start of an audit log: an incomplete first line, or
 * the zeros that a power cut leaves. */
static bool is_torn_start(struct str s)
{
    size_t n = MIN(s.n, (size_t)HEAD);

    if (!memcmp(s.p, head, n))
        return true;
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i])
            return false;
    return true;
}

/* Reads the tail, sets f->last, and moves a torn end to `torn`. */
static int read_tail(struct audit_file *f, struct buf *torn, struct err *e)
{
    struct buf tail;
    struct str line;
    int rc = 0;
    size_t n = (size_t)MIN(f->size, (uint64_t)AUDIT_TAIL_BYTES);

    set_zeros(f->last);
    if (!n)
        return 0;
    buf_init(&tail, n);
    char *to = buf_reserve(&tail, n);
    if (!to)
        return err_set(e, ERR_MEMORY, "no memory");
    if (file_read(f->fd, to, n, f->size - n)) {
        rc = err_set(e, ERR_IO, "%s", strerror(errno));
        goto out;
    }
    struct str all = { to, n };
    size_t good = find_last_line(all, n == f->size, &line);
    struct str rest = str_skip(all, good);
    if (good)
        audit_hash(line, f->last);
    else if (n < f->size || !is_torn_start(all))
        rc = err_set(e, ERR_CORRUPT, "no line of an audit log in the last %zu bytes", n);
    if (rc || !rest.n)
        goto out;
    buf_puts(torn, rest);
    f->size -= rest.n;
    if (ftruncate(f->fd, (off_t)f->size))
        rc = err_set(e, ERR_IO, "%s", strerror(errno));

out:
    buf_clear(&tail);
    return rc;
}

int audit_file_open(struct audit_file *f, const char *path, struct buf *torn, struct err *e)
{
    struct stat st;
    /* O_NONBLOCK: the open of a FIFO must not wait for a reader. */
    int flags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

    *f = (struct audit_file){ .path = xstrdup(path) };
    f->fd = fault_hit(FAULT_OPEN) ? (errno = EIO, -1) : open(path, flags, 0600);
    if (f->fd < 0 || fstat(f->fd, &st)) {
        err_set(e, ERR_IO, "%s", strerror(errno));
        goto fail;
    }
    f->size = (uint64_t)st.st_size;
    if (!S_ISREG(st.st_mode)) {
        err_set(e, ERR_INVALID, "not a regular file");
        goto fail;
    }
    if (flock(f->fd, LOCK_EX | LOCK_NB)) {
        if (errno == EWOULDBLOCK)
            err_set(e, ERR_INVALID, "another process writes to it");
        else
            err_set(e, ERR_IO, "lock: %s", strerror(errno));
        goto fail;
    }
    if (!read_tail(f, torn, e))
        return 0;

fail:
    err_wrap(e, "audit log %s", path);
    if (f->fd >= 0)
        close(f->fd);
    mem_free(f->path);
    *f = (struct audit_file){ .fd = -1 };
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
    mem_free(f->path);
    *f = (struct audit_file){ .fd = -1 };
}

bool audit_file_was_moved(const struct audit_file *f)
{
    struct stat at_path, open_file;

    return stat(f->path, &at_path) || fstat(f->fd, &open_file) ||
           at_path.st_dev != open_file.st_dev || at_path.st_ino != open_file.st_ino;
}

/* ---- append */

/* Removes what a failed write has left. */
static int undo(struct audit_file *f)
{
    f->is_torn = ftruncate(f->fd, (off_t)f->size) != 0;
    return f->is_torn ? -1 : 0;
}

int audit_file_append(struct audit_file *f, struct str rest, struct err *e)
{
    struct stat st;
    char line[AUDIT_LINE_BYTES];
    size_t n = HEAD + AUDIT_HEX + 2 + rest.n;

    CHECK(n < sizeof(line));
    memcpy(line, head, HEAD);
    memcpy(line + HEAD, f->last, AUDIT_HEX);
    memcpy(line + HEAD + AUDIT_HEX, "\",", 2);
    memcpy(line + HEAD + AUDIT_HEX + 2, rest.p, rest.n);
    line[n] = '\n';
    if ((f->is_torn && undo(f)) || fstat(f->fd, &st))
        return err_set(e, ERR_IO, "%s", strerror(errno));
    f->size = (uint64_t)st.st_size;
    if (file_write(f->fd, line, n + 1, f->size)) {
        err_set(e, ERR_IO, "%s", strerror(errno));
        if (undo(f))
            log_error("audit", "audit_undo_failed", "error=\"%s\"", strerror(errno));
        return -1;
    }
    audit_hash((struct str){ line, n }, f->last);
    return 0;
}

int audit_file_sync(struct audit_file *f, struct err *e)
{
    if (fdatasync(f->fd) && errno != EINVAL && errno != EROFS)
        return err_set(e, ERR_IO, "%s", strerror(errno));
    return 0;
}

/* ---- verify */

/* Reads one line with its newline, at most AUDIT_LINE_BYTES. Returns its length, 0 at the end. */
static size_t read_line(FILE *f, char line[AUDIT_LINE_BYTES])
{
    size_t n = 0;

    for (int c = 0; n < AUDIT_LINE_BYTES && c != '\n' && (c = getc_unlocked(f)) != EOF;)
        line[n++] = (char)c;
    return n;
}

static int check_chain(FILE *f, char last[AUDIT_HEX + 1], int64_t *n_lines, struct err *e)
{
    char line[AUDIT_LINE_BYTES], follows[AUDIT_HEX + 32];
    bool has_link = !*last;
    size_t n;

    snprintf(follows, sizeof(follows), "\"follows\":\"%s\"", last);
    set_zeros(last);
    for (*n_lines = 0; (n = read_line(f, line)); ++*n_lines) {
        struct str text = { line, n - 1 };
        if (line[n - 1] != '\n' || !is_line(text) || memcmp(line + HEAD, last, AUDIT_HEX))
            return err_set(e, ERR_CORRUPT, "line %lld does not match the hash of the previous line",
                (long long)*n_lines + 1);
        has_link |= str_find(text, str_of(follows)) >= 0;
        audit_hash(text, last);
    }
    if (ferror(f))
        return err_set(e, ERR_IO, "%s", strerror(errno));
    if (!has_link)
        return err_set(e, ERR_CORRUPT, "no line refers to the end of the file before it");
    return 0;
}

int audit_file_verify(const char *path, char last[AUDIT_HEX + 1], int64_t *n_lines, struct err *e)
{
    FILE *f = fopen(path, "re");

    if (!f)
        return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    int rc = check_chain(f, last, n_lines, e);
    fclose(f);
    return rc ? err_wrap(e, "%s", path) : 0;
}
