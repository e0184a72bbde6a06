#include "audit/verify.h"
#include "audit/checkpoint.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

struct reader {
    struct audit_verifier *v;
    FILE *f;
    bool is_last;
    bool is_written;       /* a server has the lock of the file */
    bool is_begun, is_end; /* a line was read; the last one is the event `end` */
    /* the line that the checkpoint describes; it is part of the chain at the end of the file, or
     * its end is the start of the file */
    bool has_checkpoint, is_checkpoint_found;
    struct checkpoint checkpoint;
};

static int corrupt(struct err *e, const struct reader *r, const char *what)
{
    return err_set(e, ERR_CORRUPT, "after line %" PRIu64 ": %s", r->v->n_lines, what);
}

/* Reads one line with its newline, at most AUDIT_LINE_BYTES. Returns its length, 0 at the end. */
static size_t read_line(FILE *f, char line[AUDIT_LINE_BYTES])
{
    size_t n = 0;

    for (int c = 0; n < AUDIT_LINE_BYTES && c != '\n' && (c = getc_unlocked(f)) != EOF;)
        line[n++] = (char)c;
    return n;
}

static void compare_known(struct reader *r)
{
    struct audit_verifier *v = r->v;
    const struct audit_chain *c = &v->chain, *last = &r->checkpoint.chain;

    v->anchor.is_found |=
        v->anchor.n_lines == c->n_lines && v->anchor.mac && !strcmp(v->anchor.mac, c->mac);
    r->is_checkpoint_found |=
        r->has_checkpoint && last->n_lines == c->n_lines && !strcmp(last->mac, c->mac);
}

/* The first line of the first file may continue a chain whose start is not given. */
static int begin_file(struct reader *r, const struct audit_line *l, struct err *e)
{
    struct audit_verifier *v = r->v;

    r->is_begun = true;
    if (!audit_line_is_event(l, AUDIT_EVENT_BEGIN))
        return corrupt(e, r, "the file does not begin with an event \"begin\"");
    if (!v->has_file) {
        if (str_find(l->members, STR(AUDIT_MISSING)) >= 0)
            return corrupt(e, r, "the file before this one was removed, cut or damaged");
        v->first = v->chain.n_lines = l->seq;
        memcpy(v->chain.mac, l->prev.p, AUDIT_HEX);
    }
    v->has_file = true;
    compare_known(r);
    return 0;
}

static int check_line(struct reader *r, struct str text, struct err *e)
{
    struct audit_line line;

    if (!audit_line_read(&line, text))
        return corrupt(e, r, "the next line is not a line of an audit log");
    if ((!r->is_begun && begin_file(r, &line, e)) ||
        audit_chain_check(&r->v->chain, &line, r->v->keys, e))
        return -1;
    r->v->n_lines++;
    r->is_end = audit_line_is_event(&line, AUDIT_EVENT_END);
    compare_known(r);
    return 0;
}

static int check_lines(struct reader *r, struct err *e)
{
    char line[AUDIT_LINE_BYTES];

    for (size_t n; (n = read_line(r->f, line));) {
        if (line[n - 1] != '\n' && n < AUDIT_LINE_BYTES && r->is_written && r->is_last)
            break; /* the server has not written the whole line yet */
        if (line[n - 1] != '\n')
            return corrupt(e, r, "the next line is incomplete");
        if (check_line(r, (struct str){ line, n - 1 }, e))
            return -1;
    }
    return ferror(r->f) ? err_set(e, ERR_IO, "%s", strerror(errno)) : 0;
}

static int check_end(struct reader *r, struct err *e)
{
    char what[120];

    if (!r->is_begun)
        return corrupt(e, r, "the file has no line");
    if (r->has_checkpoint && !r->is_checkpoint_found) {
        snprintf(what, sizeof(what), "line %" PRIu64 " of the checkpoint is missing",
            r->checkpoint.chain.n_lines ? r->checkpoint.chain.n_lines - 1 : 0);
        return corrupt(e, r, what);
    }
    if (r->is_last && !r->has_checkpoint && !r->is_end)
        return corrupt(
            e, r, "the end is unknown: there is neither a checkpoint nor an event \"end\"");
    return 0;
}

/* Reads the checkpoint before the log, so that a running server can only add lines after it. */
static int read_checkpoint(struct reader *r, const char *path, struct err *e)
{
    size_t n = strlen(path) + sizeof(".checkpoint");
    char *name = xmalloc(n);

    snprintf(name, n, "%s.checkpoint", path);
    r->has_checkpoint = !access(name, F_OK);
    int rc = r->has_checkpoint ? checkpoint_read(name, r->v->keys, &r->checkpoint, e) : 0;
    mem_free(name);
    return rc;
}

int audit_verify_file(struct audit_verifier *v, const char *path, bool is_last, struct err *e)
{
    struct reader r = { .v = v, .is_last = is_last };

    if (!v->has_file)
        audit_chain_init(&v->chain);
    if (read_checkpoint(&r, path, e))
        return -1;
    r.f = fopen(path, "re");
    if (!r.f)
        return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    r.is_written = flock(fileno(r.f), LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    flock(fileno(r.f), LOCK_UN); /* a server may start while the file is read */
    int rc = check_lines(&r, e) || check_end(&r, e) ? -1 : 0;
    fclose(r.f);
    return rc ? err_wrap(e, "%s", path) : 0;
}
