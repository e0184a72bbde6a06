#include "audit/audit_index.h"
#include "audit/index_store.h"
#include "audit/log_files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/files.h"
#include "os/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MSG_STOP = -1,
    FOLLOW_MS = 1000, /* longest delay of a line */
    SLICE_MS = 100,   /* reading time between two looks for queries */
    READ_BYTES = 1024 * 1024,
    LISTS_MAX = 3,                 /* rotations that a query follows */
    LINE_JSON_BYTES = 1024 * 1024, /* tree of one line */
    PAGE_BYTES = (AUDIT_PAGE_MAX + 1) * AUDIT_LINE_BYTES
};

struct audit_index {
    char *log_path, *path;
    struct audit *log;
    struct mailbox *mailbox;
    pthread_t thread;
    struct msg stop;
    /* members of the index thread */
    struct index_store *store; /* NULL: not open */
    uint64_t end;              /* number of the line after the last that is in the index */
    bool is_checked;           /* the files were compared with the index since it was opened */
    bool is_complete;          /* all lines before `end` are in the index */
    bool has_failed;           /* the last failure was logged */
};

/* ---- one line */

static struct str text_member(const struct json *line, const char *name)
{
    const struct json *v = json_get(line, name);

    return v && v->kind == JSON_STRING ? v->s : STR("");
}

static int64_t number_member(const struct json *line, const char *name)
{
    const struct json *v = json_get(line, name);
    int64_t n;

    return v && json_i64(v, &n) ? n : 0;
}

/* Adds a line, whose place is set in `row`. A line that is not JSON was not written by this
 * program; its number, time 0 and its place are indexed. */
static int add_line(struct audit_index *x, struct index_row *row, struct str text, struct err *e)
{
    const struct json_limits limits = { 16, 20000 };
    struct arena *a = arena_new(LINE_JSON_BYTES);
    struct json *line = NULL;
    struct err ignored;

    if (!a)
        return err_set(e, ERR_MEMORY, "no memory for a line of the audit log");
    if (!json_parse(&line, text, a, &limits, &ignored) && line->kind == JSON_OBJECT) {
        struct str action = text_member(line, "action");
        row->time_s = number_member(line, "time");
        row->status = number_member(line, "status");
        row->key = text_member(line, "key");
        row->tenant = text_member(line, "tenant");
        row->model = text_member(line, "model");
        row->action = action.n ? action : text_member(line, "event");
    }
    int rc = index_store_add(x->store, row, e);
    arena_free(a);
    return rc;
}

/* ---- one file */

struct reading {
    struct audit_index *x;
    struct index_file *file;
    uint64_t end;    /* only lines before this one are in the log for good */
    uint64_t end_ns; /* time to stop */
    bool is_over;    /* a line does not belong to the log, or is not complete yet */
    bool has_moved;  /* a file was rotated after the files were listed */
};

/* Adds the lines of the buffer; *used: their bytes. */
static int add_lines(struct reading *r, struct str text, size_t *used, struct err *e)
{
    struct audit_line line;

    for (const char *lf; !r->is_over && (lf = memchr(text.p + *used, '\n', text.n - *used));) {
        struct str s = { text.p + *used, (size_t)(lf - text.p) - *used };
        r->is_over = !audit_line_read(&line, s) || line.seq >= r->end;
        if (r->is_over)
            break;
        struct index_row row = { .seq = line.seq,
            .file = r->file->first,
            .offset = r->file->done,
            .bytes = (uint32_t)s.n + 1 };
        if (add_line(r->x, &row, s, e))
            return -1;
        *used += s.n + 1;
        r->file->done += s.n + 1;
        snprintf(r->file->mac, sizeof(r->file->mac), STR_FMT, STR_ARG(line.mac));
    }
    return 0;
}

static int read_lines(struct reading *r, int fd, uint64_t size, struct err *e)
{
    struct buf b;
    int rc = 0;

    buf_init(&b, READ_BYTES + AUDIT_LINE_BYTES);
    while (!rc && !r->is_over && r->file->done + b.n < size && clock_ns() < r->end_ns) {
        size_t n = (size_t)MIN((uint64_t)READ_BYTES, size - r->file->done - b.n), used = 0;
        char *to = buf_reserve(&b, n);
        if (!to || file_read(fd, to, n, r->file->done + b.n)) {
            rc = err_set(e, ERR_IO, "audit log: %s", to ? strerror(errno) : "no memory");
            break;
        }
        b.n += n;
        rc = add_lines(r, buf_str(&b), &used, e);
        buf_drop(&b, used);
        r->is_over |= b.n >= AUDIT_LINE_BYTES;
    }
    buf_clear(&b);
    return rc;
}

/* Whether the file still contains the last line of it that is in the index. */
static bool is_same_file(int fd, const struct index_file *f)
{
    char *tail = xmalloc(AUDIT_LINE_BYTES);
    size_t n = (size_t)MIN(f->done, (uint64_t)AUDIT_LINE_BYTES);
    struct audit_line line;
    bool is_same = false;

    if (n > 1 && !file_read(fd, tail, n, f->done - n) && tail[n - 1] == '\n') {
        const char *before = memrchr(tail, '\n', n - 1), *start = before ? before + 1 : tail;
        struct str text = { start, (size_t)(tail + n - 1 - start) };
        is_same = audit_line_read(&line, text) && str_is(line.mac, f->mac);
    }
    mem_free(tail);
    return is_same;
}

/* Adds the new lines of one file. `known`: its state in the index, or NULL. */
static int follow_file(
    struct reading *r, const struct log_file *f, const struct index_file *known, struct err *e)
{
    struct index_file state = { .first = f->first };
    struct stat st;
    int fd;

    if (file_open_regular(f->path, O_RDONLY, &fd, e))
        return e->code == ERR_NOT_FOUND ? 0 : -1; /* removed by retention */
    if (known)
        state = *known;
    int rc = fstat(fd, &st) ? err_set(e, ERR_IO, "%s: %s", f->path, strerror(errno)) : 0;
    if (!rc && st.st_ino != f->inode) {
        close(fd);
        r->has_moved = true;
        return 0;
    }
    if (!rc && known && !r->x->is_checked && !is_same_file(fd, known)) {
        rc = index_store_drop_file(r->x->store, f->first, e);
        state = (struct index_file){ .first = f->first };
    }
    uint64_t done = state.done;
    r->file = &state;
    r->is_over = false;
    if (!rc)
        rc = read_lines(r, fd, (uint64_t)st.st_size, e);
    if (!rc && (state.done != done || !known))
        rc = index_store_put_file(r->x->store, &state, e);
    close(fd);
    return rc;
}

/* ---- all files */

static const struct index_file *find_known(const struct index_file *known, int n, uint64_t first)
{
    for (int i = 0; i < n; i++)
        if (known[i].first == first)
            return &known[i];
    return NULL;
}

static bool is_listed(const struct log_files *l, uint64_t first)
{
    for (int i = 0; i < l->n; i++)
        if (l->files[i].first == first)
            return true;
    return false;
}

static int follow_files(struct reading *r, const struct log_files *l, struct err *e)
{
    struct index_file *known;
    int n_known;

    if (index_store_files(r->x->store, &known, &n_known, e))
        return -1;
    int rc = 0;
    for (int i = 0; !rc && i < n_known; i++)
        if (!is_listed(l, known[i].first))
            rc = index_store_drop_file(r->x->store, known[i].first, e);
    for (int i = 0; !rc && i < l->n; i++)
        rc = follow_file(r, &l->files[i], find_known(known, n_known, l->files[i].first), e);
    mem_free(known);
    return rc;
}

static uint64_t log_end(const struct audit_index *x)
{
    struct audit_stats s;

    audit_stats(x->log, &s);
    return s.end;
}

/* Reads what the log has more than the index, for at most SLICE_MS. */
static int follow_log(struct audit_index *x, struct err *e)
{
    struct reading r = { .x = x, .end = log_end(x), .end_ns = clock_ns() + SLICE_MS * NS_PER_MS };
    struct log_files l;

    if (x->is_complete && r.end == x->end)
        return 0;
    if (log_files_list(&l, x->log_path, e))
        return -1;
    int rc = index_store_begin(x->store, e);
    if (!rc && (follow_files(&r, &l, e) || index_store_commit(x->store, e))) {
        index_store_rollback(x->store);
        rc = -1;
    }
    log_files_clear(&l);
    if (rc)
        return rc;
    x->is_checked = true;
    x->is_complete = clock_ns() < r.end_ns && !r.has_moved;
    x->end = r.end;
    return 0;
}

static void close_store(struct audit_index *x)
{
    index_store_close(x->store);
    x->store = NULL;
    x->is_checked = x->is_complete = false;
}

/* Follows the log; a damaged index is deleted and made again. */
static int follow(struct audit_index *x, struct err *e)
{
    int rc = x->store ? 0 : index_store_open(&x->store, x->path, e);

    if (!rc)
        rc = follow_log(x, e);
    if (rc && e->code == ERR_CORRUPT) {
        log_warn("audit", "index_rebuilt", "error=\"%s\"", e->msg);
        close_store(x);
        index_store_remove(x->path);
        rc = index_store_open(&x->store, x->path, e) || follow_log(x, e) ? -1 : 0;
    }
    if (rc && !x->has_failed)
        log_error("audit", "index_failed", "error=\"%s\"", e->msg);
    x->has_failed = rc != 0;
    return rc;
}

/* ---- queries */

struct log_list { /* files of one query */
    const char *log_path;
    struct log_files files;
    int n_times; /* listed again because a file was not under its path */
};

/* Opens the file whose first line has this number; lists the files again if it was rotated since.
 * Returns 1 if there is none. */
static int open_listed(struct log_list *l, uint64_t first, int *fd, struct err *e)
{
    struct err ignored;
    struct stat st;

    for (;;) {
        int i = 0;
        while (i < l->files.n && l->files.files[i].first != first)
            i++;
        if (i < l->files.n && !file_open_regular(l->files.files[i].path, O_RDONLY, fd, &ignored)) {
            if (!fstat(*fd, &st) && st.st_ino == l->files.files[i].inode)
                return 0;
            close(*fd);
        }
        if (l->n_times == LISTS_MAX)
            return 1; /* removed by retention */
        l->n_times++;
        log_files_clear(&l->files);
        if (log_files_list(&l->files, l->log_path, e))
            return -1;
    }
}

/* Appends the line at its place in the log. ERR_CORRUPT: the file has another line there.
 * Returns 1 if the file was removed. */
static int read_line(
    struct log_list *l, const struct index_row *row, struct buf *out, struct err *e)
{
    const struct json_limits limits = { 16, 20000 };
    struct audit_line line;
    struct err ignored;
    struct json *root;
    int fd, rc = open_listed(l, row->file, &fd, e);

    if (rc)
        return rc;
    rc = -1;
    char *to = buf_reserve(out, row->bytes);
    struct arena *a = arena_new(LINE_JSON_BYTES);
    if (!to || !a)
        err_set(e, ERR_MEMORY, "no memory for a page of the audit log");
    else if (row->bytes < 2 || row->bytes > AUDIT_LINE_BYTES ||
             file_read(fd, to, row->bytes, row->offset) || to[row->bytes - 1] != '\n' ||
             !audit_line_read(&line, (struct str){ to, row->bytes - 1 }) || line.seq != row->seq ||
             json_parse(&root, (struct str){ to, row->bytes - 1 }, a, &limits, &ignored))
        err_set(e, ERR_CORRUPT, "line %llu is not at its place", (unsigned long long)row->seq);
    else
        rc = 0;
    if (!rc)
        out->n += row->bytes - 1;
    arena_free(a);
    close(fd);
    return rc;
}

static int find_lines(struct audit_index *x, struct audit_query *q, struct err *e)
{
    struct index_row *rows = xcalloc(AUDIT_PAGE_MAX + 1, sizeof(*rows));
    struct log_list l = { .log_path = x->log_path };
    int n = 0;
    int rc = index_store_find(x->store, &q->filter, rows, &n, e) ||
                     log_files_list(&l.files, x->log_path, e)
                 ? -1
                 : 0;

    q->has_more = n > q->filter.limit;
    for (int i = 0; !rc && i < MIN(n, q->filter.limit); i++) {
        size_t before = q->lines.n;
        if (q->n_lines)
            buf_putc(&q->lines, ',');
        int failed = read_line(&l, &rows[i], &q->lines, e);
        if (failed)
            q->lines.n = before;
        q->n_lines += !failed;
        q->last = rows[i].seq;
        rc = failed < 0 ? -1 : 0;
    }
    log_files_clear(&l.files);
    mem_free(rows);
    return rc;
}

static void answer(struct audit_index *x, struct audit_query *q)
{
    buf_init(&q->lines, PAGE_BYTES);
    q->n_lines = 0;
    q->err.code = ERR_NONE;
    int rc = follow(x, &q->err) || find_lines(x, q, &q->err) ? -1 : 0;
    if (rc && x->store && q->err.code == ERR_CORRUPT) { /* a file was replaced */
        log_warn("audit", "index_rebuilt", "error=\"%s\"", q->err.msg);
        close_store(x);
        index_store_remove(x->path);
        err_set(&q->err, ERR_NOT_READY, "The index of the audit log is being made again.");
    }
    if (!rc)
        q->err.code = ERR_NONE;
    q->is_complete = x->is_complete;
    mailbox_post(q->reply_to, &q->msg);
}

static void *run(void *arg)
{
    struct audit_index *x = arg;
    bool is_stopping = false;
    struct err e;

    while (!is_stopping) {
        struct msg *next;
        bool is_behind = !follow(x, &e) && !x->is_complete;
        mailbox_wait(x->mailbox, clock_ns() + (is_behind ? 0 : FOLLOW_MS * NS_PER_MS));
        for (struct msg *m = mailbox_drain(x->mailbox); m; m = next) {
            next = m->next;
            if (m == &x->stop)
                is_stopping = true;
            else
                answer(x, container_of(m, struct audit_query, msg));
        }
    }
    close_store(x);
    return NULL;
}

/* ---- life */

static void free_index(struct audit_index *x)
{
    if (x->mailbox)
        mailbox_close(x->mailbox);
    mem_free(x->path);
    mem_free(x->log_path);
    mem_free(x);
}

int audit_index_open(struct audit_index **out, const char *path, struct audit *log, struct err *e)
{
    struct audit_index *x = xcalloc(1, sizeof(*x));
    size_t n = strlen(path) + sizeof(".index");

    x->log = log;
    x->log_path = xstrdup(path);
    x->path = xmalloc(n);
    snprintf(x->path, n, "%s.index", path);
    x->stop.kind = MSG_STOP;
    if (mailbox_open(&x->mailbox, e) || thread_start(&x->thread, "audit-index", run, x, e)) {
        free_index(x);
        return -1;
    }
    *out = x;
    return 0;
}

void audit_index_close(struct audit_index *x)
{
    if (!x)
        return;
    mailbox_post(x->mailbox, &x->stop);
    pthread_join(x->thread, NULL);
    free_index(x);
}

void audit_index_post(struct audit_index *x, struct audit_query *take)
{
    mailbox_post(x->mailbox, &take->msg);
}
