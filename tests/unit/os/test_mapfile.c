/* Mapped files: bytes that are missing since the file was truncated are zero, and the mapping is
 * marked, instead of a signal that ends the process. */
#include "os/mapfile.h"
#include "os/thread.h"
#include "support/check.h"
#include "support/tmpdir.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { SIZE = 64 * 1024, KEPT = 10 * 1024, READERS = 4 };

static char dir[TMPDIR_NAME], path[TMPDIR_NAME + 8];

static void make_file(struct mapfile *m)
{
    static uint8_t bytes[SIZE];
    struct err e;

    memset(bytes, 7, sizeof(bytes));
    snprintf(path, sizeof(path), "%s/f", dir);
    FILE *f = fopen(path, "w");
    EXPECT(f && fwrite(bytes, 1, SIZE, f) == SIZE);
    fclose(f);
    EXPECT_EQ(mapfile_open(m, path, &e), 0);
}

static void *read_all(void *arg)
{
    const struct mapfile *m = arg;
    size_t n = 0;

    for (size_t i = 0; i < m->n; i++)
        n += m->p[m->n - 1 - i] == 7;
    EXPECT(n >= KEPT);
    return NULL;
}

static void truncated_file_reads_as_zeros_and_is_marked(void)
{
    struct mapfile m, other;
    pthread_t readers[READERS];
    struct err e;

    tmpdir_make(dir);
    mapfile_catch_faults();
    make_file(&other);
    EXPECT_EQ(unlink(path), 0);
    make_file(&m);
    EXPECT(!mapfile_is_lost(&m));
    EXPECT_EQ(truncate(path, KEPT), 0);
    for (int i = 0; i < READERS; i++)
        EXPECT_EQ(thread_start(&readers[i], "reader", read_all, &m, &e), 0);
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    EXPECT(mapfile_is_lost(&m));
    EXPECT_EQ(m.p[KEPT - 1], 7);
    EXPECT_EQ(m.p[SIZE - 1], 0);
    EXPECT(!mapfile_is_lost(&other));
    EXPECT_EQ(other.p[SIZE - 1], 7);
    mapfile_close(&m);
    mapfile_close(&other);
    EXPECT(!mapfile_is_lost(&m));
    tmpdir_remove(dir);
}

/* A fault outside of all mappings still ends the process. */
static void fault_outside_of_a_mapping_ends_the_process(void)
{
    struct mapfile m;
    int status;

    tmpdir_make(dir);
    make_file(&m);
    pid_t child = fork();
    if (!child) {
        const volatile uint8_t *p = m.p;
        mapfile_catch_faults();
        mapfile_close(&m);
        int fd = open(path, O_RDONLY);
        p = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
        (void)!truncate(path, 0);
        _exit(p[0]);
    }
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
    mapfile_close(&m);
    tmpdir_remove(dir);
}

/* A mapping whose faults could not be caught is refused. */
static void mappings_of_a_process_are_limited(void)
{
    static struct mapfile all[MAPFILES_MAX];
    struct mapfile more;
    struct err e;

    tmpdir_make(dir);
    make_file(&all[0]);
    for (int i = 1; i < MAPFILES_MAX; i++)
        CHECK(!mapfile_open(&all[i], path, &e));
    EXPECT_EQ(mapfile_open(&more, path, &e), -1);
    EXPECT(e.code == ERR_TOO_LARGE);
    mapfile_close(&more);
    mapfile_close(&all[7]);
    EXPECT_EQ(mapfile_open(&all[7], path, &e), 0);
    for (int i = 0; i < MAPFILES_MAX; i++)
        mapfile_close(&all[i]);
    tmpdir_remove(dir);
}

TESTS(TEST(truncated_file_reads_as_zeros_and_is_marked), TEST(mappings_of_a_process_are_limited),
    TEST(fault_outside_of_a_mapping_ends_the_process))
