/* Location of packed weights, and their removal after a time. */
#include "support/check.h"
#include "support/tmpdir.h"
#include "base/mem.h"
#include "model/llama.h"
#include "registry/pack.h"
#include "support/tiny.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LARGE = 64 * 1024 * 1024, NOBODY = 65534, DAY_S = 24 * 3600 };

struct model_dir {
    char path[64], model[96], pack[128];
};

/* A directory with an empty model file; tests pass its size as a parameter. */
static struct model_dir new_model_dir(void)
{
    struct model_dir f = { .path = "/tmp/ifx-pack-XXXXXX" };

    EXPECT(mkdtemp(f.path));
    snprintf(f.model, sizeof(f.model), "%s/m.gguf", f.path);
    snprintf(f.pack, sizeof(f.pack), "%s.pack", f.model);
    int fd = open(f.model, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    EXPECT(fd >= 0);
    close(fd);
    return f;
}

static void remove_model_dir(const struct model_dir *f)
{
    EXPECT(!chmod(f->path, 0755));
    unlink(f->pack);
    EXPECT(!unlink(f->model) && !rmdir(f->path));
}

static bool path_of(char *out, const struct model_dir *f, enum pack_mode mode, uint64_t bytes)
{
    struct model_spec s = { .id = "m", .path = f->model, .pack = mode };

    return pack_path(out, &s, bytes);
}

static void pack_is_next_to_the_model(void)
{
    struct model_dir f = new_model_dir();
    char path[PACK_PATH_MAX];

    EXPECT(path_of(path, &f, PACK_FILE, LARGE));
    EXPECT(!strcmp(path, f.pack));
    EXPECT(path_of(path, &f, PACK_RAM, LARGE));
    EXPECT(!strcmp(path, f.pack));
    remove_model_dir(&f);
}

static void no_pack_if_disabled_or_small(void)
{
    struct model_dir f = new_model_dir();
    char path[PACK_PATH_MAX];

    EXPECT(!path_of(path, &f, PACK_OFF, LARGE));
    EXPECT(!path_of(path, &f, PACK_FILE, LARGE - 1));
    remove_model_dir(&f);
}

/* Runs in a child process without write permission (root could write). 0: result as expected. */
static int run_unprivileged(const struct model_dir *f, const char *cache, const char *home)
{
    char path[PACK_PATH_MAX], want[128];
    struct stat st;

    if (geteuid() == 0 && (setgid(NOBODY) || setuid(NOBODY)))
        return 1;
    if (cache ? setenv("XDG_CACHE_HOME", cache, 1) : unsetenv("XDG_CACHE_HOME"))
        return 2;
    if (home ? setenv("HOME", home, 1) : unsetenv("HOME"))
        return 3;
    if (!stat(f->pack, &st)) /* another user has written the pack there */
        return path_of(path, f, PACK_FILE, LARGE) && !strcmp(path, f->pack) ? 0 : 4;
    if (!cache && !home)
        return path_of(path, f, PACK_FILE, LARGE) ? 5 : 0;
    snprintf(want, sizeof(want), "%s/inferflux/m.gguf-", cache ? cache : "/home/x/.cache");
    if (!path_of(path, f, PACK_FILE, LARGE) || strncmp(path, want, strlen(want)) != 0)
        return 6;
    return strlen(path) == strlen(want) + strlen("01234567.pack") ? 0 : 7;
}

static int pack_path_unprivileged(const struct model_dir *f, const char *cache, const char *home)
{
    int status = -1;
    pid_t child = fork();

    EXPECT(child >= 0);
    if (child == 0)
        _exit(run_unprivileged(f, cache, home));
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void pack_is_in_the_cache_if_the_directory_is_read_only(void)
{
    struct model_dir f = new_model_dir();

    EXPECT(!chmod(f.path, 0555));
    EXPECT_EQ(pack_path_unprivileged(&f, "/var/tmp/cache", "/home/x"), 0);
    EXPECT_EQ(pack_path_unprivileged(&f, NULL, "/home/x"), 0);
    EXPECT_EQ(pack_path_unprivileged(&f, NULL, NULL), 0);
    EXPECT(!chmod(f.path, 0755));
    int fd = open(f.pack, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    EXPECT(fd >= 0);
    close(fd);
    EXPECT(!chmod(f.path, 0555));
    EXPECT_EQ(pack_path_unprivileged(&f, "/var/tmp/cache", "/home/x"), 0);
    remove_model_dir(&f);
}

/* Whether the pack of a model with a file name of this length is stored next to the model. In
 * both places its name leaves room for the suffix of a file in progress. */
static bool is_next_to_the_model(const char *cache, int n_name)
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

static void long_names_move_the_pack_to_the_cache(void)
{
    const char *was = getenv("XDG_CACHE_HOME");
    char cache[TMPDIR_NAME];

    tmpdir_make(cache);
    EXPECT(!setenv("XDG_CACHE_HOME", cache, 1));
    EXPECT(is_next_to_the_model(cache, NAME_MAX - (int)strlen(".pack.new")));
    EXPECT(!is_next_to_the_model(cache, NAME_MAX - (int)strlen(".pack.new") + 1));
    EXPECT(!is_next_to_the_model(cache, NAME_MAX));
    EXPECT(!(was ? setenv("XDG_CACHE_HOME", was, 1) : unsetenv("XDG_CACHE_HOME")));
    tmpdir_remove(cache);
}

/* ---- old packs in the cache directory */

static void write_old_file(const char *model_dir, const char *name, int days)
{
    char path[256];
    const time_t then = time(NULL) - (time_t)days * DAY_S;

    snprintf(path, sizeof(path), "%s/%s", model_dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && !futimens(fd, (struct timespec[]){ { .tv_sec = then }, { .tv_sec = then } }));
    close(fd);
}

/* One start of the server, after the model is loaded. Returns true if the weights were packed
 * anew. */
static bool start_once(const struct model_dir *f, const char *packfile)
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

/* Runs in a child process, see run_unprivileged; exits with the line of the first failure. */
static int fill_cache(const struct model_dir *f, const char *cache)
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
    write_old_file(ours, "moved.gguf-01234567.pack", 91);
    write_old_file(ours, "killed.gguf-01234567.pack.new", 91);
    write_old_file(ours, "used.gguf-01234567.pack", 89);
    write_old_file(ours, "notes.txt", 91);
    MUST(path_of(packfile, f, PACK_FILE, LARGE) && start_once(f, packfile));
    MUST(!stat(packfile, &st) && time(NULL) - st.st_mtime < DAY_S);
    int fd = open(ours, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MUST(faccessat(fd, "moved.gguf-01234567.pack", F_OK, 0));
    MUST(faccessat(fd, "killed.gguf-01234567.pack.new", F_OK, 0));
    MUST(!faccessat(fd, "used.gguf-01234567.pack", F_OK, 0));
    MUST(!faccessat(fd, "notes.txt", F_OK, 0));
    close(fd);
    /* the next start uses it and updates its time */
    write_old_file(ours, strrchr(packfile, '/') + 1, 91);
    MUST(!start_once(f, packfile) && !stat(packfile, &st) && time(NULL) - st.st_mtime < DAY_S);
#undef MUST
    return 0;
}

static void unused_packs_are_removed_from_the_cache(void)
{
    struct model_dir f = new_model_dir();
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
    remove_model_dir(&f);
}

TESTS(TEST(pack_is_next_to_the_model), TEST(no_pack_if_disabled_or_small),
    TEST(pack_is_in_the_cache_if_the_directory_is_read_only),
    TEST(long_names_move_the_pack_to_the_cache), TEST(unused_packs_are_removed_from_the_cache))
