/* Where packed weights are kept, and for how long. */
#include "../check.h"
#include "../support/tmpdir.h"
#include "base/mem.h"
#include "model/llama.h"
#include "registry/pack.h"
#include "tiny.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LARGE = 64 * 1024 * 1024, NOBODY = 65534, DAY_S = 24 * 3600 };

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

/* A model whose name has so many bytes: whether its packed weights are kept beside it. In either
 * place their name leaves room for what comes behind it while they are written. */
static bool is_beside(const char *cache, int n_name)
{
    char model[PACK_PATH_MAX], path[PACK_PATH_MAX];
    struct model_spec s = { .id = "m", .path = model, .pack = PACK_FILE };

    snprintf(model, sizeof(model), "%s/%0*d", cache, n_name, 7);
    int fd = open(model, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && !close(fd) && pack_path(path, &s, LARGE));
    EXPECT(strlen(strrchr(path, '/') + 1) + strlen(".new") <= NAME_MAX);
    EXPECT(!unlink(model));
    return !strncmp(path, model, strlen(model));
}

static void names_without_room_for_more(void)
{
    const char *was = getenv("XDG_CACHE_HOME");
    char cache[TMPDIR_NAME];

    tmpdir_make(cache);
    EXPECT(!setenv("XDG_CACHE_HOME", cache, 1));
    EXPECT(is_beside(cache, NAME_MAX - (int)strlen(".pack.new")));
    EXPECT(!is_beside(cache, NAME_MAX - (int)strlen(".pack.new") + 1));
    EXPECT(!is_beside(cache, NAME_MAX));
    EXPECT(!(was ? setenv("XDG_CACHE_HOME", was, 1) : unsetenv("XDG_CACHE_HOME")));
    tmpdir_remove(cache);
}

/* ---- what is left behind in the cache directory */

static void put_file(const char *folder, const char *name, int days)
{
    char path[256];
    const time_t then = time(NULL) - (time_t)days * DAY_S;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && !futimens(fd, (struct timespec[]){ { .tv_sec = then }, { .tv_sec = then } }));
    close(fd);
}

/* As a start of the server does, once the model is ready. True: it was packed anew. */
static bool start_once(const struct folder *f, const char *packfile)
{
    struct llama_options o = {
        .n_threads = 1, .n_pages = 1, .max_rows = 1, .max_logits = 1, .packfile = packfile
    };
    struct model_spec s = model_spec_of("m", f->model);
    struct gguf *g = NULL;
    struct lm *lm = NULL;
    struct err e;

    s.pack = PACK_FILE;
    CHECK(!gguf_open(&g, f->model, &e) && !lm_open_llama(&lm, g, &o, &e));
    bool is_new = llama_wants_packfile(lm);
    pack_write(&(struct model){ .spec = &s, .lm = lm, .file_bytes = LARGE }, NULL);
    lm->ops->close(lm);
    gguf_close(g);
    return is_new;
}

/* In a process of its own, see above. Exits with the line of the first thing that is wrong. */
static int fill_cache(const struct folder *f, const char *cache)
{
    char ours[128], packfile[PACK_PATH_MAX];
    struct stat st;

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x))                                                                                  \
            return __LINE__ & 0xff ? __LINE__ & 0xff : 1;                                          \
    } while (0)
    snprintf(ours, sizeof(ours), "%s/inferflux", cache);
    MUST(geteuid() != 0 || (!setgid(NOBODY) && !setuid(NOBODY)));
    MUST(!mkdir(ours, 0700) && !setenv("XDG_CACHE_HOME", cache, 1));
    put_file(ours, "moved.gguf-01234567.pack", 91);
    put_file(ours, "killed.gguf-01234567.pack.new", 91);
    put_file(ours, "used.gguf-01234567.pack", 89);
    put_file(ours, "notes.txt", 91);
    MUST(path_of(packfile, f, PACK_FILE, LARGE) && start_once(f, packfile));
    MUST(!stat(packfile, &st) && time(NULL) - st.st_mtime < DAY_S);
    int fd = open(ours, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MUST(faccessat(fd, "moved.gguf-01234567.pack", F_OK, 0));
    MUST(faccessat(fd, "killed.gguf-01234567.pack.new", F_OK, 0));
    MUST(!faccessat(fd, "used.gguf-01234567.pack", F_OK, 0));
    MUST(!faccessat(fd, "notes.txt", F_OK, 0));
    close(fd);
    put_file(ours, strrchr(packfile, '/') + 1, 91); /* the next start uses it, and says so */
    MUST(!start_once(f, packfile) && !stat(packfile, &st) && time(NULL) - st.st_mtime < DAY_S);
#undef MUST
    return 0;
}

static void what_nobody_uses_does_not_stay_in_the_cache(void)
{
    struct folder f = new_folder();
    struct buf bytes = tiny_bytes(&tiny_default);
    char cache[TMPDIR_NAME];
    int status = -1;

    tmpdir_make(cache);
    int fd = open(f.model, O_WRONLY | O_CLOEXEC);
    EXPECT(fd >= 0 && write(fd, bytes.p, bytes.n) == (ssize_t)bytes.n && !close(fd));
    EXPECT(!chmod(f.path, 0555) && !chmod(cache, 0777));
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0)
        _exit(fill_cache(&f, cache));
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    buf_clear(&bytes);
    tmpdir_remove(cache);
    remove_folder(&f);
}

TESTS(TEST(beside_the_model), TEST(nowhere_when_it_is_off_or_small),
    TEST(in_the_cache_where_the_folder_cannot_be_written), TEST(names_without_room_for_more),
    TEST(what_nobody_uses_does_not_stay_in_the_cache))
