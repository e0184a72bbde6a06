#include "registry/pack.h"
#include "base/log.h"
#include "model/llama.h"
#include "model/packfile.h"
#include "os/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    WORTH_BYTES = 64 * 1024 * 1024, /* less is packed before anybody notices */
    UNUSED_S = 90 * 24 * 3600,
};

enum place { NOWHERE, BESIDE, CACHE };

enum pack_mode pack_mode_of(const char *name)
{
    if (!strcmp(name, "off"))
        return PACK_OFF;
    return strcmp(name, "ram") ? PACK_FILE : PACK_RAM;
}

/* The folder of a path, with its slash; "./" without one. */
static void folder_of(char *out, size_t size, const char *path)
{
    const char *slash = strrchr(path, '/');

    if (slash)
        snprintf(out, size, "%.*s", (int)(slash - path + 1), path);
    else
        snprintf(out, size, "./");
}

static bool is_there(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISREG(st.st_mode);
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool beside_path(char *out, const char *model)
{
    char folder[PACK_PATH_MAX];
    int n = snprintf(out, PACK_PATH_MAX, "%s.pack", model);

    if (n < 0 || n >= PACK_PATH_MAX || strlen(base_of(out)) + strlen(PACKFILE_NEW) > NAME_MAX)
        return false;
    folder_of(folder, sizeof(folder), model);
    return is_there(out) || !access(folder, W_OK);
}

/* Two models of the same name in two folders are two files. The name is of where the model lies,
 * not of what is in it: that is known only when all of it has been read; and a model that was
 * replaced replaces its file. Should two paths have one sum, the two take turns at being packed:
 * whose a file is, it says itself. */
static bool cache_path(char *out, const char *model)
{
    const char *home = getenv("HOME"), *xdg = getenv("XDG_CACHE_HOME");
    char full[PACK_PATH_MAX], dir[PACK_PATH_MAX - 600];
    uint8_t sum[SHA256_DIGEST_LENGTH];
    int n = 0;

    if (xdg && *xdg == '/')
        n = snprintf(dir, sizeof(dir), "%s/inferflux", xdg);
    else if (home && *home == '/')
        n = snprintf(dir, sizeof(dir), "%s/.cache/inferflux", home);
    if (n <= 0 || (size_t)n >= sizeof(dir) || !realpath(model, full))
        return false;
    SHA256((const uint8_t *)full, strlen(full), sum);
    /* So much of the name leaves room for the rest of NAME_MAX, and PACKFILE_NEW. */
    n = snprintf(out, PACK_PATH_MAX, "%s/%.200s-%02x%02x%02x%02x.pack", dir, base_of(model), sum[0],
        sum[1], sum[2], sum[3]);
    return n > 0 && n < PACK_PATH_MAX;
}

static enum place find_place(char *out, const struct model_spec *spec, uint64_t bytes)
{
    if (spec->pack == PACK_OFF || bytes < WORTH_BYTES)
        return NOWHERE;
    if (beside_path(out, spec->path))
        return BESIDE;
    return cache_path(out, spec->path) ? CACHE : NOWHERE;
}

bool pack_path(char out[PACK_PATH_MAX], const struct model_spec *spec, uint64_t bytes)
{
    return find_place(out, spec, bytes) != NOWHERE;
}

/* Twice what is written, so that a model never fills somebody's disk. */
static int check_room(const char *folder, uint64_t bytes, struct err *e)
{
    struct statvfs fs;

    if (statvfs(folder, &fs))
        return err_set(e, ERR_IO, "%s: %s", folder, strerror(errno));
    if ((uint64_t)fs.f_bavail * fs.f_frsize / 2 < bytes)
        return err_set(e, ERR_IO, "%s: %llu MB are free, half of that would be taken at most",
            folder, (unsigned long long)((uint64_t)fs.f_bavail * fs.f_frsize / MB));
    return 0;
}

/* The last folder of the cache path, and the one before it. */
static void make_folders(const char *folder)
{
    char path[PACK_PATH_MAX];

    for (const char *p = folder + 1; (p = strchr(p, '/')); p++) {
        snprintf(path, sizeof(path), "%.*s", (int)(p - folder), folder);
        (void)mkdir(path, 0700); /* what cannot be made is found missing by who writes into it */
    }
}

/* ---- the cache directory: nobody looks there, so what is left behind would stay for ever */

static bool has_end(const char *name, const char *end)
{
    size_t n = strlen(name), n_end = strlen(end);

    return n > n_end && !strcmp(name + n - n_end, end);
}

static void remove_if_unused(int dir, const char *folder, const char *name)
{
    struct stat st;

    if (!(has_end(name, ".pack") || has_end(name, ".pack" PACKFILE_NEW)) ||
        fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) ||
        clock_wall_s() - st.st_mtime <= UNUSED_S || unlinkat(dir, name, 0))
        return;
    log_info("pool", "packfile_removed", "%s%s: unused for %d days", folder, name,
        UNUSED_S / (24 * 3600));
}

/* Of models that were moved, removed or not served any more, and what killed writers have left.
 * Whoever has one mapped keeps it. */
static void remove_unused(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

    if (!d) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *f; (f = readdir(d));)
        remove_if_unused(fd, folder, f->d_name);
    closedir(d);
}

/* By the time of its last write, as times of reading are often not kept. */
static void mark_used(const char *path)
{
    if (is_there(path) && utimensat(AT_FDCWD, path, NULL, 0))
        log_warn("pool", "packfile", "%s: %s", path, strerror(errno));
}

void pack_write(const struct model *m, const _Atomic bool *stop)
{
    char path[PACK_PATH_MAX], folder[PACK_PATH_MAX];
    uint64_t began = clock_ns();
    struct err e;

    if (m->spec->backend != BACKEND_NATIVE)
        return;
    enum place place = find_place(path, m->spec, m->file_bytes);
    if (place == CACHE && !llama_wants_packfile(m->lm))
        mark_used(path);
    if (place == NOWHERE || !llama_wants_packfile(m->lm))
        return;
    folder_of(folder, sizeof(folder), path);
    make_folders(folder);
    if (place == CACHE)
        remove_unused(folder);
    if (check_room(folder, m->lm->weight_bytes, &e) ||
        llama_write_packfile(m->lm, path, stop, &e)) {
        log_warn(
            "pool", "packfile", "model=%s not kept for the next start: %s", m->spec->id, e.msg);
        return;
    }
    log_info("pool", "packfile", "model=%s path=%s mb=%zu ms=%d", m->spec->id, path,
        m->lm->weight_bytes / MB, (int)((clock_ns() - began) / 1000000));
}
