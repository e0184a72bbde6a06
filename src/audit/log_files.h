/* log_files.h: lists the files of an audit log that this program has named: those that rotation has
 * closed, and the current one (audit_file.h). Any thread; the calls block. */
#pragma once

#include "audit/audit_line.h"

#include <sys/types.h>

struct log_file {
    char *path;
    uint64_t first; /* number of its first line */
    ino_t inode;    /* a rotation may give the path to another file */
};

struct log_files { /* in the order of their first lines */
    struct log_file *files;
    int n;
};

/* A file without a readable first line is left out. ERR_IO: the directory cannot be read; the list
 * is then empty. A rotation at the same time does not hide a file. */
int log_files_list(struct log_files *out, const char *path, struct err *e) MUST_CHECK;
void log_files_clear(struct log_files *l);

/* Whether `name` is PATH.<20 digits>; log_name: PATH without its directory. */
bool log_file_is_rotated(const char *name, const char *log_name);
