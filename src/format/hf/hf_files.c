#include "format/hf/hf_files.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "os/files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 4096, REVISION_MAX = 200 };

static bool is_directory(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* A repository of a hub cache: continues with the snapshot of refs/main. */
static int enter_snapshot(struct hf_files *f, struct err *e)
{
    char path[GGUF_PATH_MAX + 16];
    struct mapfile ref;

    snprintf(path, sizeof(path), "%s/snapshots", f->dir);
    if (!is_directory(path))
        return 0;
    snprintf(path, sizeof(path), "%s/refs/main", f->dir);
    if (mapfile_open(&ref, path, e))
        return err_wrap(e, "a hub cache without a revision");
    struct str revision = str_trim((struct str){ (const char *)ref.p, ref.n });
    int n = -1;
    if (revision.n <= REVISION_MAX && file_name_is_plain(revision))
        n = snprintf(path, sizeof(path), "%s/snapshots/" STR_FMT, f->dir, STR_ARG(revision));
    mapfile_close(&ref);
    if (n < 0 || n >= GGUF_PATH_MAX - NAME_MAX - 1)
        return err_set(e, ERR_CORRUPT, "%.120s/refs/main is not the name of a snapshot", f->dir);
    memcpy(f->dir, path, (size_t)n + 1);
    return 0;
}

/* "models--OWNER--NAME" -> "OWNER/NAME" */
static void set_hub_name(struct hf_files *f, struct str repo)
{
    size_t n = 0;

    for (size_t i = strlen("models--"); i < repo.n && n + 1 < sizeof(f->name); i++) {
        bool is_slash = str_starts(str_skip(repo, i), STR("--")) && !memchr(f->name, '/', n);
        f->name[n++] = is_slash ? '/' : repo.p[i];
        i += is_slash;
    }
    f->name[n] = '\0';
}

static struct str last_component(struct str path)
{
    size_t n = path.n;

    while (n > 0 && path.p[n - 1] != '/')
        n--;
    return str_skip(path, n);
}

/* Drops the last component and its slash. */
static struct str parent_of(struct str path)
{
    size_t n = path.n - last_component(path).n;

    return (struct str){ path.p, n ? n - 1 : 0 };
}

/* Finds out whether the directory is a snapshot of a hub cache, and names the model. */
static void look_at_parents(struct hf_files *f)
{
    char real[PATH_MAX];

    if (!realpath(f->dir, real))
        return;
    struct str dir = str_of(real), above = parent_of(dir), repo = parent_of(above);
    struct str base = last_component(dir);
    snprintf(f->name, sizeof(f->name), STR_FMT, STR_ARG(base));
    if (!str_is(last_component(above), "snapshots") ||
        !str_starts(last_component(repo), STR("models--")))
        return;
    int n = snprintf(f->blobs, sizeof(f->blobs), STR_FMT "/blobs/", STR_ARG(repo));
    if (n >= (int)sizeof(f->blobs))
        f->blobs[0] = '\0';
    set_hub_name(f, last_component(repo));
}

int hf_files_init(struct hf_files *f, const char *dir, struct err *e)
{
    size_t n = strlen(dir);

    *f = (struct hf_files){ 0 };
    while (n > 1 && dir[n - 1] == '/')
        n--;
    if (n >= sizeof(f->dir) - NAME_MAX - 1)
        return err_set(e, ERR_INVALID, "%.120s...: the path is too long", dir);
    memcpy(f->dir, dir, n);
    if (enter_snapshot(f, e))
        return -1;
    look_at_parents(f);
    return 0;
}

void hf_files_clear(struct hf_files *f)
{
    for (size_t i = 0; i < f->n; i++) {
        mem_free(f->files[i].path);
        mapfile_close(&f->files[i].map);
    }
    mem_free(f->files);
    f->files = NULL;
    f->n = 0;
}

static bool is_plain_name(struct str name)
{
    return name.n > 0 && name.n <= NAME_MAX && name.p[0] != '.' && !memchr(name.p, '/', name.n) &&
           utf8_is_printable(name);
}

/* Replaces a link of a snapshot by the blob to which it leads. */
static int follow_link(const struct hf_files *f, char path[PATH_MAX], struct err *e)
{
    char real[PATH_MAX];
    struct stat st;

    if (lstat(path, &st))
        return err_set(
            e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISLNK(st.st_mode))
        return 0;
    if (!f->blobs[0])
        return err_set(
            e, ERR_INVALID, "%s is a symbolic link, which is followed in a hub cache only", path);
    if (!realpath(path, real))
        return err_set(
            e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path, strerror(errno));
    if (!str_starts(str_of(real), str_of(f->blobs)))
        return err_set(
            e, ERR_INVALID, "%s is a link to %.200s, which is not in %s", path, real, f->blobs);
    memcpy(path, real, sizeof(real));
    return 0;
}

/* A place for one more file. */
static struct gguf_file *add_file(struct hf_files *f, const char *path, struct err *e)
{
    struct gguf_file *more;

    if (f->n == FILES_MAX) {
        err_set(e, ERR_TOO_LARGE, "%s: more than %d files", f->dir, FILES_MAX);
        return NULL;
    }
    more = try_realloc(f->files, (f->n + 1) * sizeof(*more));
    if (!more) {
        err_set(e, ERR_MEMORY, "no memory for %zu files", f->n + 1);
        return NULL;
    }
    f->files = more;
    more += f->n;
    *more = (struct gguf_file){ .path = try_malloc(strlen(path) + 1) };
    if (!more->path) {
        err_set(e, ERR_MEMORY, "no memory for %zu files", f->n + 1);
        return NULL;
    }
    memcpy(more->path, path, strlen(path) + 1);
    return more;
}

int hf_files_map(struct hf_files *f, struct str name, uint64_t max, struct str *out, struct err *e)
{
    char path[PATH_MAX];
    struct gguf_file *file;

    if (!is_plain_name(name))
        return err_set(e, ERR_INVALID, "'%.*s' is not the name of a file in the directory",
            (int)MIN(name.n, (size_t)80), utf8_is_printable(name) ? name.p : "?");
    int n = snprintf(path, sizeof(path), "%s/" STR_FMT, f->dir, STR_ARG(name));
    CHECK(n < (int)sizeof(path)); /* see hf_files_init */
    if (follow_link(f, path, e))
        return -1;
    file = add_file(f, path, e);
    if (!file)
        return -1;
    if (mapfile_open(&file->map, path, e)) {
        mem_free(file->path);
        return -1;
    }
    f->n++;
    if (file->map.n > max)
        return err_set(e, ERR_TOO_LARGE, "%s has %zu bytes, supported are up to %llu", path,
            file->map.n, (unsigned long long)max);
    *out = (struct str){ (const char *)file->map.p, file->map.n };
    return 0;
}

int hf_files_map_optional(
    struct hf_files *f, const char *name, uint64_t max, struct str *out, struct err *e)
{
    struct err why = { 0 };

    *out = STR_NONE;
    if (!hf_files_map(f, str_of(name), max, out, &why) || why.code == ERR_NOT_FOUND)
        return 0;
    *e = why;
    return -1;
}
