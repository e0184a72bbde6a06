/* slot_files.c: GET /slots and POST /slots/{id}?action=save|restore|erase, compatible with
 * llama-server.
 *
 * A file is a KV record (cache/record.h) in a directory that the operator configures. Each key has
 * its own subdirectory, so that no key can read or overwrite files of another key. All file I/O and
 * all calls that wait for the engine run on the worker thread. Owner: the io thread, except the
 * functions of the worker job. */
#include "api/common/body.h"
#include "api/llama/llama.h"
#include "base/log.h"
#include "base/mem.h"
#include "cache/record.h"
#include "engine/kv_export.h"
#include "os/clock.h"
#include "os/files.h"
#include "registry/digest.h"
#include "serve/async.h"
#include "serve/io.h"
#include "generate/prompt.h"
#include "serve/slots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 100000, BODY_ARENA = 4 * MB };
#define KEY_DIR "key-" /* name of a key's directory, before its number */

/* ---- GET /slots */

static void put_params(struct jw *w, const struct slot_params *p)
{
    jw_key(w, "params");
    jw_object(w);
    jw_member_i64(w, "n_predict", p->n_predict);
    jw_member_i64(w, "max_tokens", p->n_predict);
    llama_put_sample_params(w, &p->sample);
    jw_member_bool(w, "ignore_eos", p->ignore_eos);
    jw_member_bool(w, "stream", p->stream);
    jw_end_object(w);
}

static void put_slot(
    struct jw *w, const struct model *m, int id, const struct slot_view *v, bool is_own)
{
    jw_object(w);
    jw_member_i64(w, "id", id);
    jw_member_i64(w, "n_ctx", m->n_ctx);
    jw_member_bool(w, "speculative", m->spec->engine.spec.max > 0);
    jw_member_bool(w, "is_processing", v->is_busy);
    if (v->task > 0 && is_own) { /* other keys' parameters are not shown */
        jw_member_i64(w, "id_task", (int64_t)v->task - 1);
        put_params(w, &v->params);
        jw_key(w, "next_token");
        jw_object(w);
        jw_member_bool(w, "has_next_token", v->is_busy);
        jw_member_i64(w, "n_remain", v->n_max - v->n_generated);
        jw_member_i64(w, "n_decoded", v->n_generated);
        jw_end_object(w);
    }
    jw_end_object(w);
}

/* The caller owns a reference. */
static struct model *model_of(
    struct io *io, struct http_exchange *x, const struct route_call *c, struct err *e)
{
    struct str name = STR("");

    return query_get(x, "model", &name, e) ? NULL : take_ready_model(io, c->key, name, e);
}

void slots_show(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct str must_have_idle = STR("");
    struct slot_view v;
    struct buf b;
    struct err e;
    struct jw w;
    int n_idle = 0;
    struct model *m = model_of(io, x, c, &e);
    bool has_failed = !m || query_get(x, "fail_on_no_slot", &must_have_idle, &e);

    if (!has_failed && !io->o->slots)
        has_failed = err_set(&e, ERR_DISABLED, "This server does not support slots endpoint.");
    if (has_failed) {
        reply_error(x, c, &e, NULL);
        model_release(m);
        return;
    }
    buf_init(&b, 4 * MB);
    jw_init(&w, &b);
    jw_array(&w);
    for (int i = 0; i < slots_count(io->o->slots, m); i++) {
        slots_view(io->o->slots, m, i, &v);
        n_idle += !v.is_busy;
        put_slot(&w, m, i, &v, v.tenant == scope_tenant(io->o, &c->caller));
    }
    jw_end_array(&w);
    if (n_idle > 0 || !must_have_idle.n) {
        reply_json(x, c, 200, &b);
    } else {
        err_set(&e, ERR_OVERLOADED, "no slot available");
        reply_error(x, c, &e, NULL);
    }
    model_release(m);
    buf_clear(&b);
}

/* ---- POST /slots/{id}?action= */

enum slot_action { SAVE, RESTORE, ERASE };

struct slot_job { /* while the job is at the worker thread, that thread owns all fields */
    struct async async;
    enum slot_action slot_action;
    int id;
    uint64_t tenant;
    char name[256];
};

/* Opens the directory of the caller's files: the configured one, or the key's subdirectory. */
static int open_dir(const struct slot_job *j, struct err *e)
{
    char name[32];
    int base = open(j->async.io->o->slot_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = base;

    if (base < 0)
        return err_set(e, ERR_IO, "the directory of the slot files: %s", strerror(errno));
    if (!j->tenant)
        return base;
    snprintf(name, sizeof(name), KEY_DIR "%016llx", (unsigned long long)j->tenant);
    if (mkdirat(base, name, 0700) && errno != EEXIST)
        err_set(e, ERR_IO, "the slot directory of this key: %s", strerror(errno));
    fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        err_set(e, ERR_IO, "the slot directory of this key: %s", strerror(errno));
    close(base);
    return fd;
}

void slots_remove_stale_files(const char *path)
{
    int base = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = base >= 0 ? openat(base, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    int n = base >= 0 ? file_remove_stale_at(base) : 0;

    for (struct dirent *f; d && (f = readdir(d));) {
        if (strncmp(f->d_name, KEY_DIR, strlen(KEY_DIR)) != 0)
            continue;
        int dir = openat(base, f->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0)
            continue;
        n += file_remove_stale_at(dir);
        close(dir);
    }
    if (n)
        log_info("serve", "slot_files_removed", "unfinished=%d", n);
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    if (base >= 0)
        close(base);
}

/* Bytes of all files in the directory except the one that is overwritten. */
static int64_t bytes_in(int dir, const char *but)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n_seen = 0;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    int64_t n = 0;
    struct stat st;

    if (!d) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    for (struct dirent *f; (f = readdir(d)) && n_seen++ < FILES_MAX;)
        if (strcmp(f->d_name, but) != 0 && !fstatat(dir, f->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
            S_ISREG(st.st_mode))
            n += st.st_size;
    closedir(d);
    return n_seen >= FILES_MAX ? INT64_MAX : n;
}

static int find_digest(struct slot_job *j, uint8_t digest[32], struct err *e)
{
    struct slots *s = j->async.io->o->slots;

    if (slots_digest(s, j->async.model, digest))
        return 0;
    if (digest_of_model(
            digest, j->async.model->files, j->async.model->n_parts, j->async.io->o->slot_dir, e))
        return -1;
    if (!model_has_its_files(
            j->async.model)) /* the digest must belong to the files that were loaded */
        return err_set(e, ERR_IO, "the model files changed after the model was loaded");
    slots_set_digest(s, j->async.model, digest);
    return 0;
}

static void begin_reply(struct slot_job *j, struct jw *w)
{
    jw_init(w, &j->async.out);
    jw_object(w);
    jw_member_i64(w, "id_slot", j->id);
}

static void write_file_reply(struct slot_job *j, const char *tokens, const char *bytes,
    const char *ms, const struct kv_record *r, uint64_t began_ns)
{
    struct jw w;

    begin_reply(j, &w);
    jw_key(&w, "filename");
    jw_z(&w, j->name);
    jw_member_i64(&w, tokens, r->n_tokens);
    jw_member_i64(&w, bytes, (int64_t)r->n_bytes);
    jw_key(&w, "timings");
    jw_object(&w);
    jw_member_f32(&w, ms, (float)((double)(clock_ns() - began_ns) * 1e-6));
    jw_end_object(&w);
    jw_end_object(&w);
}

static int write_file(struct slot_job *j, const struct kv_record *r, struct err *e)
{
    int dir = open_dir(j, e), failed;

    if (dir < 0)
        return -1;
    int64_t there = bytes_in(dir, j->name);
    if (there > j->async.io->o->slot_bytes - (int64_t)MIN(r->n_bytes, (size_t)INT64_MAX))
        failed =
            err_set(e, ERR_TOO_LARGE, "%zu bytes exceed the space for slot files.", r->n_bytes);
    else
        failed = file_replace_at(dir, j->name, r->bytes, r->n_bytes, e);
    close(dir);
    return failed;
}

static int save_slot(struct slot_job *j, struct err *e)
{
    uint64_t began = clock_ns();
    struct kv_record r = { 0 };
    struct slot_conversation talk;
    uint8_t digest[32];

    if (slots_copy_conversation(j->async.io->o->slots, j->async.model, j->id, j->tenant, &talk, e))
        return -1;
    if (!talk.n)
        return err_set(e, ERR_INVALID, "Slot %d has no conversation.", j->id);
    struct kv_prefix p = { digest, talk.scope, { talk.tokens, talk.n } };
    int failed = find_digest(j, digest, e) || engine_kv_export(j->async.model->engine, &p, &r, e) ||
                 write_file(j, &r, e);
    if (!failed)
        write_file_reply(j, "n_saved", "n_written", "save_ms", &r, began);
    mem_free(talk.tokens);
    mem_free(r.bytes);
    return failed ? -1 : 0;
}

/* The file may not be larger than a record of a full context, so a corrupt count cannot cause a
 * large allocation. */
static int read_file(struct slot_job *j, struct kv_record *r, struct err *e)
{
    int dir = open_dir(j, e), fd = -1, failed = 0;
    uint64_t n = 0;

    if (dir < 0)
        return -1;
    if (file_open_at(dir, j->name, &fd, &n, e)) {
        failed = -1;
    } else if (n > engine_kv_record_bytes(j->async.model->engine, j->async.model->n_ctx)) {
        failed = err_set(e, ERR_TOO_LARGE, "%s is larger than the largest conversation.", j->name);
    } else {
        r->n_bytes = n;
        r->bytes = try_aligned(RECORD_ALIGN, MAX(n, (uint64_t)RECORD_ALIGN));
        if (!r->bytes)
            failed = err_set(e, ERR_MEMORY, "no memory for %s", j->name);
        else if (file_read(fd, r->bytes, n, 0))
            failed = err_set(e, ERR_IO, "%s: %s", j->name, strerror(errno));
    }
    if (fd >= 0)
        close(fd);
    close(dir);
    return failed;
}

static int set_restored(struct slot_job *j, const struct kv_prefix *p, struct err *e)
{
    struct slot_conversation talk = { p->scope, NULL, p->list.n };
    size_t n_bytes = (size_t)p->list.n * sizeof(*talk.tokens);

    talk.tokens = try_malloc(n_bytes);
    if (!talk.tokens)
        return err_set(e, ERR_MEMORY, "no memory for a conversation of %d tokens", talk.n);
    memcpy(talk.tokens, p->list.tokens, n_bytes);
    slots_set_conversation(j->async.io->o->slots, j->async.model, j->id, &talk);
    return 0;
}

static int restore_slot(struct slot_job *j, struct err *e)
{
    uint64_t began = clock_ns();
    struct kv_record r = { 0 };
    uint8_t digest[32];
    struct kv_prefix p = { digest, { .tenant = j->tenant }, { NULL, 0 } };
    int failed = find_digest(j, digest, e) || read_file(j, &r, e);

    if (!failed && engine_kv_import(j->async.model->engine, &p, &r, e)) {
        bool is_bad = e->code == ERR_CORRUPT || e->code == ERR_UNSUPPORTED;
        /* the client chose the file, so the error is the client's */
        e->code = is_bad ? ERR_INVALID : e->code;
        failed = err_wrap(e, "Unable to restore slot");
    }
    failed = failed || set_restored(j, &p, e);
    if (!failed)
        write_file_reply(j, "n_restored", "n_read", "restore_ms", &r, began);
    mem_free(r.bytes);
    return failed ? -1 : 0;
}

static int erase_slot(struct slot_job *j, struct err *e)
{
    struct slot_conversation talk, none = { 0 };
    struct jw w;
    int n = 0;

    if (slots_copy_conversation(j->async.io->o->slots, j->async.model, j->id, j->tenant, &talk, e))
        return -1;
    struct kv_prefix p = { NULL, talk.scope, { talk.tokens, talk.n } };
    int failed = talk.n > 0 && engine_kv_erase(j->async.model->engine, &p, &n, e);
    mem_free(talk.tokens);
    if (failed)
        return -1;
    slots_set_conversation(j->async.io->o->slots, j->async.model, j->id, &none);
    begin_reply(j, &w);
    jw_member_i64(&w, "n_erased", n);
    jw_end_object(&w);
    return 0;
}

static int run_action(struct async *a)
{
    static int (*const actions[])(struct slot_job * j,
        struct err * e) = { [SAVE] = save_slot, [RESTORE] = restore_slot, [ERASE] = erase_slot };
    struct slot_job *j = container_of(a, struct slot_job, async);

    return actions[j->slot_action](j, &a->err);
}

/* ---- parsing the request */

static int read_id(struct slot_job *j, struct err *e)
{
    struct str text = str_skip(j->async.x->req->path, strlen("/slots/"));
    uint64_t id;

    if (!str_to_u64(text, &id) ||
        id >= (uint64_t)slots_count(j->async.io->o->slots, j->async.model))
        return err_param(e, ERR_RANGE, "id_slot", "Invalid slot ID");
    j->id = (int)id;
    return 0;
}

static int read_action(struct slot_job *j, struct err *e)
{
    static const char *const names[] = {
        [SAVE] = "save", [RESTORE] = "restore", [ERASE] = "erase"
    };
    struct str name = STR("");

    if (query_get(j->async.x, "action", &name, e))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_is(name, names[i])) {
            j->slot_action = (enum slot_action)i;
            return 0;
        }
    return err_param(e, ERR_INVALID, "action", "Invalid action");
}

static int read_name(struct slot_job *j, struct err *e)
{
    /* The trees of all bodies within these limits fit into BODY_ARENA. */
    static const struct json_limits limits = { .max_depth = 128, .max_nodes = 10000 };
    struct arena *a = arena_new(BODY_ARENA);
    struct str name = STR_NONE;
    struct json *body;
    int failed = a ? 0 : err_set(e, ERR_MEMORY, "no memory for the request");

    failed = failed || body_object(&body, j->async.body, &limits, a, e) ||
             body_text(body, "filename", &name, e);
    if (!failed && !file_name_is_plain(name))
        failed = err_param(e, ERR_INVALID, "filename", "Invalid filename");
    else if (!failed)
        snprintf(j->name, sizeof(j->name), STR_FMT, STR_ARG(name));
    arena_free(a);
    return failed ? -1 : 0;
}

static int read_request(struct slot_job *j, struct err *e)
{
    const struct serve_options *o = j->async.io->o;

    if (!o->slots || !*o->slot_dir)
        return err_set(e, ERR_DISABLED,
            "This server does not support slots action. Start it with `--slot-save-path`");
    j->async.model = model_of(j->async.io, j->async.x, j->async.call, e);
    if (!j->async.model || read_id(j, e) || read_action(j, e))
        return -1;
    return j->slot_action == ERASE ? 0 : read_name(j, e);
}

void slots_post_action(struct io *io, struct http_exchange *x, struct route_call *c)
{
    static const struct async_ops ops = { .run = run_action, .must_run = true };
    struct slot_job *j = async_new(sizeof(*j), &ops, io, x, c);

    if (!j)
        return;
    j->tenant = scope_tenant(io->o, &c->caller);
    struct err *e = &j->async.err;
    if (io->is_draining ? err_set(e, ERR_DRAINING, "The server is shutting down.")
                        : read_request(j, e))
        async_reply(&j->async);
    else
        async_start(&j->async, true);
}
