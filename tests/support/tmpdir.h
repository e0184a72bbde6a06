/* tmpdir.h: makes and removes a temporary directory for a test. */
#pragma once

#include "support/check.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TMPDIR_NAME = 64 };

static inline void tmpdir_make(char name[TMPDIR_NAME])
{
    snprintf(name, TMPDIR_NAME, "/tmp/inferflux-test.XXXXXX");
    EXPECT(mkdtemp(name));
}

static inline int tmpdir_unlink(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    return remove(path);
}

static inline void tmpdir_remove(const char *name)
{
    EXPECT_EQ(nftw(name, tmpdir_unlink, 16, FTW_DEPTH | FTW_PHYS), 0);
}
