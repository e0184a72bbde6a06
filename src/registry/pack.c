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
    MIN_MODEL_BYTES = 64 * 1024 * 1024, /* smaller models are packed in negligible time */
    UNUSED_S = 90 * 24 * 3600,
};

enum pack_place { NO_FILE, NEXT_TO_MODEL, IN_CACHE_DIR };

enum pack_mode pack_mode_of(const char *name)
{
    if (!strcmp(name, "off"))
        return PACK_OFF;
    return strcmp(name, "ram") ? PACK_FILE : PACK_RAM;
}

/* Folder of a path, with a trailing slash; "./" if there is none. */
static void folder_of(char *out, size_t size, const char *path)
{
    const char *slash = strrchr(path, '/');

    if (slash)
        snprintf(out, size, "%.*s", (int)(slash - path + 1), path);
    else
        snprintf(out, size, "./");
}

static bool file_exists(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISREG(st.st_mode);
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* In a cache of the Hugging Face hub, which belongs to other programs. */
static bool is_in_hub_cache(const char *model)
{
    char full[PATH_MAX];

    return realpath(model, full) && strstr(full, "/models--");
}

/* The packfile of a directory is next to it, too. */
static bool path_next_to_model(char *out, const char *model)
{
    char folder[PACK_PATH_MAX];
    size_t n_model = strlen(model);

    while (n_model > 1 && model[n_model - 1] == '/')
        n_model--;
    int n = snprintf(out, PACK_PATH_MAX, "%.*s.pack", (int)n_model, model);
    if (is_in_hub_cache(model))
        return false;
    if (n < 0 || n >= PACK_PATH_MAX || strlen(base_of(out)) + strlen(PACKFILE_NEW) > NAME_MAX)
        return false;
    folder_of(folder, sizeof(folder), out);
    return file_exists(out) || !access(folder, W_OK);
}

/* The name contains a hash of the model's path, so that two models of the same name in two folders
 * have two files. It is not a hash of the content, because that is known only after all of it was
 * read, and because the file of a replaced model should be replaced too. If the hashes of two paths
 * collide, the two models overwrite each other's file; the file itself names its model. */
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
    /* 200 characters of the name leave room for the rest of NAME_MAX and for PACKFILE_NEW. */
    n = snprintf(out, PACK_PATH_MAX, "%s/%.200s-%02x%02x%02x%02x.pack", dir, base_of(full), sum[0],
        sum[1], sum[2], sum[3]);
    return n > 0 && n < PACK_PATH_MAX;
}

static enum pack_place find_place(char *out, const struct model_spec *spec, uint64_t bytes)
{
    if (spec->pack == PACK_OFF || bytes < MIN_MODEL_BYTES)
        return NO_FILE;
    if (path_next_to_model(out, spec->path))
        return NEXT_TO_MODEL;
    return cache_path(out, spec->path) ? IN_CACHE_DIR : NO_FILE;
}

bool pack_path(char out[PACK_PATH_MAX], const struct model_spec *spec, uint64_t bytes)
{
    return find_place(out, spec, bytes) != NO_FILE;
}

/* Requires twice the bytes to be free, so that a model never fills a disk. */
static int check_room(const char *folder, uint64_t bytes, struct err *e)
{
    struct statvfs fs;

    if (statvfs(folder, &fs))
        return err_set(e, ERR_IO, "%s: %s", folder, strerror(errno));
    if ((uint64_t)fs.f_bavail * fs.f_frsize / 2 < bytes)
        return err_set(e, ERR_IO,
            "%s: %llu MB are free, and a packfile may use at most half of that", folder,
            (unsigned long long)((uint64_t)fs.f_bavail * fs.f_frsize / MB));
    return 0;
}

/* Creates the missing folders of the cache path. */
static void make_folders(const char *folder)
{
    char path[PACK_PATH_MAX];

    for (const char *p = folder + 1; (p = strchr(p, '/')); p++) {
        snprintf(path, sizeof(path), "%.*s", (int)(p - folder), folder);
        (void)mkdir(path, 0700); /* on failure the later write reports the error */
    }
}

/* ---- cache directory: users rarely look there, so unused files are deleted here */

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
    log_info("registry", "packfile_removed", "path=\"%s%s\" unused_days=%d", folder, name,
        UNUSED_S / (24 * 3600));
}

/* Deletes files of models that were moved, removed or are not served any more, and temporary files
 * of killed writers. A process that has mapped a file keeps it. */
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

/* The modification time is the time of last use, because access times are often disabled. */
static void mark_used(const char *path)
{
    if (file_exists(path) && utimensat(AT_FDCWD, path, NULL, 0))
        log_warn(
            "registry", "packfile_touch_failed", "path=\"%s\" error=\"%s\"", path, strerror(errno));
}

void pack_write(const struct model *m, const _Atomic bool *stop)
{
    char path[PACK_PATH_MAX], folder[PACK_PATH_MAX];
    uint64_t began = clock_ns();
    struct err e;

    if (m->spec->backend != BACKEND_NATIVE)
        return;
    enum pack_place pack_place = find_place(path, m->spec, m->file_bytes);
    if (pack_place == IN_CACHE_DIR && !llama_wants_packfile(m->lm))
        mark_used(path);
    if (pack_place == NO_FILE || !llama_wants_packfile(m->lm))
        return;
    folder_of(folder, sizeof(folder), path);
    make_folders(folder);
    if (pack_place == IN_CACHE_DIR)
        remove_unused(folder);
    if (check_room(folder, m->lm->weight_bytes, &e) ||
        llama_write_packfile(m->lm, path, stop, &e)) {
        log_warn("registry", "packfile_failed", "model=%s error=\"%s\"", m->spec->id, e.msg);
        return;
    }
    log_info("registry", "packfile_written", "model=%s path=\"%s\" mb=%zu ms=%d", m->spec->id, path,
        m->lm->weight_bytes / MB, (int)((clock_ns() - began) / NS_PER_MS));
}
