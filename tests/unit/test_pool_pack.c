/* Where packed weights are kept. */
#include "../check.h"
#include "base/mem.h"
#include "pool/pack.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 64 * 1024 * 1024, NOBODY = 65534 };

struct folder {
    char path[64], model[96], pack[128];
};

/* A folder with a model in it, of no bytes: how many it has is told. */
static struct folder new_folder(void)
{
    struct folder f = { .path = "/tmp/ifx-pack-XXXXXX" };

    EXPECT(mkdtemp(f.path));
    snprintf(f.model, sizeof(f.model), "%s/m.gguf", f.path);
    snprintf(f.pack, sizeof(f.pack), "%s.pack", f.model);
    int fd = open(f.model, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    EXPECT(fd >= 0);
    close(fd);
    return f;
}

static void remove_folder(const struct folder *f)
{
    EXPECT(!chmod(f->path, 0755));
    unlink(f->pack);
    EXPECT(!unlink(f->model) && !rmdir(f->path));
}

static bool path_of(char *out, const struct folder *f, enum pack_mode mode, uint64_t bytes)
{
    struct model_spec s = { .id = "m", .path = f->model, .pack = mode };

    return pack_path(out, &s, bytes);
}

static void beside_the_model(void)
{
    struct folder f = new_folder();
    char path[PACK_PATH_MAX];

    EXPECT(path_of(path, &f, PACK_FILE, LARGE));
    EXPECT(!strcmp(path, f.pack));
    EXPECT(path_of(path, &f, PACK_RAM, LARGE));
    EXPECT(!strcmp(path, f.pack));
    remove_folder(&f);
}

static void nowhere_when_it_is_off_or_small(void)
{
    struct folder f = new_folder();
    char path[PACK_PATH_MAX];

    EXPECT(!path_of(path, &f, PACK_OFF, LARGE));
    EXPECT(!path_of(path, &f, PACK_FILE, LARGE - 1));
    remove_folder(&f);
}

/* In a process of its own, as somebody who may not write there: root may. 0: what was expected. */
static int as_a_stranger(const struct folder *f, const char *cache, const char *home)
{
    char path[PACK_PATH_MAX], want[128];
    struct stat st;

    if (geteuid() == 0 && (setgid(NOBODY) || setuid(NOBODY)))
        return 1;
    if (cache ? setenv("XDG_CACHE_HOME", cache, 1) : unsetenv("XDG_CACHE_HOME"))
        return 2;
    if (home ? setenv("HOME", home, 1) : unsetenv("HOME"))
        return 3;
    if (!stat(f->pack, &st)) /* somebody else has written it there */
        return path_of(path, f, PACK_FILE, LARGE) && !strcmp(path, f->pack) ? 0 : 4;
    if (!cache && !home)
        return path_of(path, f, PACK_FILE, LARGE) ? 5 : 0;
    snprintf(want, sizeof(want), "%s/inferflux/m.gguf-", cache ? cache : "/home/x/.cache");
    if (!path_of(path, f, PACK_FILE, LARGE) || strncmp(path, want, strlen(want)) != 0)
        return 6;
    return strlen(path) == strlen(want) + strlen("01234567.pack") ? 0 : 7;
}

static int ask(const struct folder *f, const char *cache, const char *home)
{
    int status = -1;
    pid_t child = fork();

    EXPECT(child >= 0);
    if (child == 0)
        _exit(as_a_stranger(f, cache, home));
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void in_the_cache_where_the_folder_cannot_be_written(void)
{
    struct folder f = new_folder();

    EXPECT(!chmod(f.path, 0555));
    EXPECT_EQ(ask(&f, "/var/tmp/cache", "/home/x"), 0);
    EXPECT_EQ(ask(&f, NULL, "/home/x"), 0);
    EXPECT_EQ(ask(&f, NULL, NULL), 0);
    EXPECT(!chmod(f.path, 0755));
    int fd = open(f.pack, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    EXPECT(fd >= 0);
    close(fd);
    EXPECT(!chmod(f.path, 0555));
    EXPECT_EQ(ask(&f, "/var/tmp/cache", "/home/x"), 0);
    remove_folder(&f);
}

TESTS(TEST(beside_the_model), TEST(nowhere_when_it_is_off_or_small),
    TEST(in_the_cache_where_the_folder_cannot_be_written))
