/* backend_ini.c: backend `ini`: the policy as one encrypted file (seal.h, policy_text.h).
 *
 * A change writes a temporary file in the same directory, calls fsync, renames it and calls fsync
 * for the directory. A second server cannot open the file: a lock on PATH.lock excludes it. */
#include "base/log.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/files.h"
#include "policy/old_form.h"
#include "policy/policy_text.h"
#include "policy/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { FILE_MAX = 512 * 1024 * 1024, PATH_BYTES = 1024 };

struct backend_ini {
    struct policy_backend base;
    int dir, lock; /* descriptors; -1: not open */
    char path[PATH_BYTES];
    const char *name; /* name of the file in `dir`; in `path` */
    struct seal_key key;
    struct str text; /* decrypted content until it is loaded */
    uint64_t version;
};

static struct backend_ini *ini_of(struct policy_backend *b)
{
    return container_of(b, struct backend_ini, base);
}

/* Frees text that contains the policy. */
static void free_secret(struct str *s)
{
    if (s->p)
        OPENSSL_cleanse((char *)(uintptr_t)s->p, s->n);
    mem_free((char *)(uintptr_t)s->p);
    *s = STR_NONE;
}

static void ini_close(struct policy_backend *base)
{
    if (!base)
        return;
    struct backend_ini *b = ini_of(base);
    if (b->dir >= 0)
        close(b->dir);
    if (b->lock >= 0)
        close(b->lock);
    seal_key_clear(&b->key);
    free_secret(&b->text);
    mem_free(b);
}

static int open_dir(struct backend_ini *b, struct err *e)
{
    char dir[PATH_BYTES];
    char *slash = strrchr(b->path, '/');

    snprintf(
        dir, sizeof(dir), "%.*s", slash ? (int)MAX(slash - b->path, 1) : 1, slash ? b->path : ".");
    b->name = slash ? slash + 1 : b->path;
    if (!*b->name)
        return err_set(e, ERR_INVALID, "a directory, not a file");
    b->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return b->dir < 0 ? err_set(e, ERR_IO, "%s", strerror(errno)) : 0;
}

static int take_lock(struct backend_ini *b, struct err *e)
{
    char path[PATH_BYTES + 8];

    snprintf(path, sizeof(path), "%s.lock", b->path);
    if (file_open_regular(path, O_RDWR | O_CREAT, &b->lock, e))
        return -1;
    if (flock(b->lock, LOCK_EX | LOCK_NB))
        return err_set(e, ERR_IO, "another server uses this file");
    return 0;
}

/* Encrypts the text and replaces the file. */
static int write_text(struct backend_ini *b, struct str text, struct err *e)
{
    struct buf sealed;

    buf_init(&sealed, FILE_MAX);
    int failed = seal_write(&b->key, text, &sealed, e) ||
                 file_replace_at(b->dir, b->name, sealed.p, sealed.n, e);
    buf_clear(&sealed);
    return failed ? -1 : 0;
}

/* The present form has no guardrails: a file that has some is kept under another name. */
static int keep_old_file(struct backend_ini *b, struct str file, int n_words, struct err *e)
{
    char name[PATH_BYTES + 16];

    if (!n_words)
        return 0;
    snprintf(name, sizeof(name), "%s.old-form", b->name);
    if (file_replace_at(b->dir, name, file.p, file.n, e))
        return -1;
    log_warn("policy", "guardrail_not_imported",
        "words=%d note=\"set them again; the old file is kept as %s.old-form\"", n_words, b->path);
    return 0;
}

/* Reads a file of the old form and rewrites it, so that it is read once. */
static int import_file(
    struct backend_ini *b, struct str passphrase, struct str file, struct buf *text, struct err *e)
{
    struct policy_list list = { 0 };
    int n_words = 0;

    if (old_form_read(passphrase, file, clock_wall_s(), text, &n_words, e) ||
        policy_text_read(buf_str(text), &list, e))
        return -1;
    int n_keys = list.n;
    policy_list_clear(&list);
    if (keep_old_file(b, file, n_words, e) || seal_key_new(&b->key, passphrase, SEAL_LOG2_N, e) ||
        write_text(b, buf_str(text), e))
        return -1;
    log_info("policy", "old_form_rewritten", "path=\"%s\" keys=%d", b->path, n_keys);
    return 0;
}

/* Reads and decrypts the file. ERR_NOT_FOUND: there is none. */
static int read_file(struct backend_ini *b, struct str passphrase, struct err *e)
{
    struct buf file, text;

    buf_init(&file, FILE_MAX);
    buf_init(&text, FILE_MAX);
    int failed = file_read_at(b->dir, b->name, &file, e);
    if (!failed)
        failed = old_form_is(buf_str(&file))
                     ? import_file(b, passphrase, buf_str(&file), &text, e)
                     : seal_read(&b->key, passphrase, buf_str(&file), &text, e);
    buf_clear(&file);
    b->text = buf_steal(&text);
    if (failed)
        free_secret(&b->text);
    return failed ? -1 : 0;
}

static int write_file(struct backend_ini *b, const struct policy_snapshot *s, struct err *e)
{
    struct buf text;

    buf_init(&text, FILE_MAX);
    policy_text_write(s, &text);
    int failed = buf_ok(&text) ? write_text(b, buf_str(&text), e)
                               : err_set(e, ERR_MEMORY, "no memory to write the policy");
    struct str secret = buf_steal(&text);
    free_secret(&secret);
    return failed ? err_wrap(e, "policy") : 0;
}

static int create_file(struct backend_ini *b, struct str passphrase, struct err *e)
{
    struct policy_snapshot *empty;

    if (policy_snapshot_new(&empty, NULL, 0, 0, e))
        return -1;
    int failed =
        seal_key_new(&b->key, passphrase, SEAL_LOG2_N, e) || write_file(b, empty, e) ? -1 : 0;
    policy_snapshot_unref(empty);
    return failed;
}

static int open_file(struct backend_ini *b, struct str passphrase, struct err *e)
{
    struct err why;

    if (open_dir(b, e) || take_lock(b, e))
        return -1;
    int n_stale = file_remove_stale_at(b->dir);
    if (n_stale)
        log_info("policy", "stale_files_removed", "n=%d", n_stale);
    if (!read_file(b, passphrase, &why))
        return 0;
    if (why.code == ERR_NOT_FOUND)
        return create_file(b, passphrase, e);
    *e = why;
    return -1;
}

static int ini_open(
    struct policy_backend **out, const struct policy_backend_options *o, struct err *e)
{
    if (!o->passphrase.n)
        return err_set(e, ERR_INVALID,
            "the policy backend ini needs a passphrase: set INFERFLUX_POLICY_PASSPHRASE or "
            "INFERFLUX_POLICY_PASSPHRASE_FILE");
    if (strlen(o->path) >= PATH_BYTES)
        return err_set(e, ERR_INVALID, "policy.path is longer than %d bytes", PATH_BYTES - 1);
    struct backend_ini *b = xcalloc(1, sizeof(*b));
    b->base.ops = &policy_backend_ini;
    b->dir = b->lock = -1;
    snprintf(b->path, sizeof(b->path), "%s", o->path);
    if (open_file(b, o->passphrase, e)) {
        ini_close(&b->base);
        return err_wrap(e, "policy: %s", o->path);
    }
    *out = &b->base;
    return 0;
}

/* The text was decrypted by open; this process is the only one that changes the file. */
static int ini_load(struct policy_backend *base, struct policy_list *out, struct err *e)
{
    struct backend_ini *b = ini_of(base);
    int failed = policy_text_read(b->text, out, e);

    if (failed)
        return err_wrap(e, "policy: %s", b->path);
    b->version = out->version;
    free_secret(&b->text);
    return 0;
}

static int ini_change(struct policy_backend *base, const struct policy_key *key,
    const struct policy_snapshot *next, struct err *e)
{
    struct backend_ini *b = ini_of(base);

    if (write_file(b, next, e))
        return -1;
    b->version = policy_snapshot_version(next);
    return 0;
}

static int ini_put_limits(
    struct policy_backend *base, const struct policy_snapshot *next, struct err *e)
{
    return ini_change(base, NULL, next, e);
}

static int ini_change_object(struct policy_backend *base, const struct policy_object *object,
    const struct policy_snapshot *next, struct err *e)
{
    return ini_change(base, NULL, next, e);
}

static int ini_version(struct policy_backend *base, uint64_t *out, struct err *e)
{
    *out = ini_of(base)->version;
    return 0;
}

const struct policy_backend_ops policy_backend_ini = { .name = "ini",
    .open = ini_open,
    .load = ini_load,
    .put = ini_change,
    .delete = ini_change,
    .put_limits = ini_put_limits,
    .put_object = ini_change_object,
    .delete_object = ini_change_object,
    .version = ini_version,
    .close = ini_close };
