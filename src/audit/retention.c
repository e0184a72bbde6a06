#include "audit/retention.h"
#include "audit/log_files.h"
#include "base/mem.h"
#include "os/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NUMBER_DIGITS = 20 };

/* A file that was closed by rotation, or moved aside because it was damaged (audit_file.h). */
static bool is_former_file(const char *name, const char *log_name)
{
    char damaged[NAME_MAX + 16];

    snprintf(damaged, sizeof(damaged), "%s.damaged-", log_name);
    size_t n = strlen(damaged);
    bool is_damaged = !strncmp(name, damaged, n) && strlen(name + n) == NUMBER_DIGITS &&
                      strspn(name + n, "0123456789") == NUMBER_DIGITS;
    return is_damaged || log_file_is_rotated(name, log_name);
}

static bool is_old(int dir, const char *name, int64_t age_s)
{
    struct stat st;

    return !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
           clock_wall_s() - st.st_mtime >= age_s;
}

int audit_remove_old(const char *path, int64_t age_s, void (*removed)(void *ctx, struct str name),
    void *ctx, struct err *e)
{
    const char *slash = strrchr(path, '/'), *log_name = slash ? slash + 1 : path;
    char *dir_path = xstrdup(slash ? path : ".");
    int rc = 0;

    if (slash)
        dir_path[slash == path ? 1 : slash - path] = '\0';
    DIR *d = opendir(dir_path);
    if (!d)
        rc = err_set(e, ERR_IO, "%s: %s", dir_path, strerror(errno));
    for (struct dirent *f; d && (f = readdir(d));) {
        if (!is_former_file(f->d_name, log_name) || !is_old(dirfd(d), f->d_name, age_s))
            continue;
        if (unlinkat(dirfd(d), f->d_name, 0))
            rc = err_set(e, ERR_IO, "%s/%s: %s", dir_path, f->d_name, strerror(errno));
        else
            removed(ctx, str_of(f->d_name));
    }
    if (d)
        closedir(d);
    mem_free(dir_path);
    return rc;
}
