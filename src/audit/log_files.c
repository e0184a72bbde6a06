#include "audit/log_files.h"
#include "base/mem.h"
#include "os/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NUMBER_DIGITS = 20 };

bool log_file_is_rotated(const char *name, const char *log_name)
{
    size_t n = strlen(log_name);

    return !strncmp(name, log_name, n) && name[n] == '.' && strlen(name + n + 1) == NUMBER_DIGITS &&
           strspn(name + n + 1, "0123456789") == NUMBER_DIGITS;
}

static bool read_first(const char *path, struct log_file *f)
{
    struct audit_line line;
    struct stat st;
    struct err e;
    int fd;

    if (file_open_regular(path, O_RDONLY, &fd, &e))
        return false;
    char *text = xmalloc(AUDIT_LINE_BYTES);
    size_t n = (size_t)MAX(pread(fd, text, AUDIT_LINE_BYTES, 0), (ssize_t)0);
    const char *lf = memchr(text, '\n', n);
    bool is_read =
        lf && !fstat(fd, &st) && audit_line_read(&line, (struct str){ text, (size_t)(lf - text) });
    if (is_read) {
        f->first = line.seq;
        f->inode = st.st_ino;
    }
    mem_free(text);
    close(fd);
    return is_read;
}

/* Adds the file unless it is in the list under another name. */
static void add(struct log_files *l, char *take_path)
{
    struct log_file f = { .path = take_path };
    bool is_new = read_first(take_path, &f);

    for (int i = 0; i < l->n && is_new; i++)
        is_new = l->files[i].first != f.first;
    if (!is_new) {
        mem_free(take_path);
        return;
    }
    l->files = xrealloc(l->files, (size_t)(l->n + 1) * sizeof(*l->files));
    l->files[l->n++] = f;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = ((const struct log_file *)a)->first, y = ((const struct log_file *)b)->first;

    return x < y ? -1 : x > y;
}

/* The current file is read before the directory: if it is rotated in between, the directory
 * contains it. */
int log_files_list(struct log_files *out, const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/'), *log_name = slash ? slash + 1 : path;
    size_t n_dir = slash ? (size_t)(slash - path) + 1 : 0;
    char *dir = slash ? xstrdup(path) : xstrdup("./");

    dir[slash ? n_dir : 2] = '\0';
    *out = (struct log_files){ 0 };
    add(out, xstrdup(path));
    DIR *d = opendir(dir);
    int rc = d ? 0 : err_set(e, ERR_IO, "%s: %s", dir, strerror(errno));
    mem_free(dir);
    if (rc) {
        log_files_clear(out);
        return -1;
    }
    for (struct dirent *f; (f = readdir(d));) {
        if (!log_file_is_rotated(f->d_name, log_name))
            continue;
        size_t n = n_dir + strlen(f->d_name) + 1;
        char *name = xmalloc(n);
        snprintf(name, n, "%.*s%s", (int)n_dir, path, f->d_name);
        add(out, name);
    }
    closedir(d);
    if (out->n)
        qsort(out->files, (size_t)out->n, sizeof(*out->files), compare);
    return 0;
}

void log_files_clear(struct log_files *l)
{
    for (int i = 0; i < l->n; i++)
        mem_free(l->files[i].path);
    mem_free(l->files);
    *l = (struct log_files){ 0 };
}
