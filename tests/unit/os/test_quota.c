/* CPU quota of control groups, version 1 and 2, below a test root directory. */
#include "os/quota.h"
#include "os/thread.h"
#include "support/check.h"

#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/test-quota-XXXXXX";

/* Writes a file below the test root and creates its directories. */
static void write_file(const char *name, const char *text)
{
    char path[512];

    for (const char *p = name + 1; (p = strchr(p, '/')); p++) {
        snprintf(path, sizeof(path), "%s%.*s", root, (int)(p - name), name);
        mkdir(path, 0700);
    }
    snprintf(path, sizeof(path), "%s%s", root, name);
    FILE *f = fopen(path, "w");
    EXPECT(f != NULL);
    if (!f)
        return;
    fputs(text, f);
    fclose(f);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void remove_root(void)
{
    EXPECT_EQ(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static int cpus_of_group(const char *groups)
{
    write_file("/proc/self/cgroup", groups);
    return quota_cpus(root);
}

static void make_root(void)
{
    snprintf(root, sizeof(root), "/tmp/test-quota-XXXXXX");
    EXPECT(mkdtemp(root) != NULL);
}

static void cgroup_v2_is_read(void)
{
    static const struct {
        const char *text;
        int want;
    } cases[] = { { "200000 100000\n", 2 }, { "150000 100000\n", 2 }, { "50000 100000\n", 1 },
        { "max 100000\n", 0 }, { "100001 100000\n", 2 }, { "6400000 100000", 64 }, { "", 0 },
        { "\n", 0 }, { "100000\n", 0 }, { "-1 100000\n", 0 }, { "100000 0\n", 0 },
        { "99999999999999999999 1\n", 0 } };

    make_root();
    EXPECT_EQ(quota_cpus(root), 0); /* the root is empty */
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        write_file("/sys/fs/cgroup/a/cpu.max", cases[i].text);
        EXPECT_EQ(cpus_of_group("0::/a\n"), cases[i].want);
    }
    remove_root();
}

static void smallest_quota_of_all_parent_groups_counts(void)
{
    make_root();
    write_file("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    write_file("/sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
    EXPECT_EQ(cpus_of_group("0::/a/b/c\n"), 3);
    EXPECT_EQ(cpus_of_group("0::/a/b/c/not/there\n"), 3);
    EXPECT_EQ(cpus_of_group("0::/other\n"), 0);
    /* path at which a container finds its own group */
    write_file("/sys/fs/cgroup/cpu.max", "500000 100000\n");
    EXPECT_EQ(cpus_of_group("0::/a/b/c\n"), 3);
    EXPECT_EQ(cpus_of_group("0::/\n"), 5);
    EXPECT_EQ(cpus_of_group("0::/docker/0123\n"), 5);
    EXPECT_EQ(cpus_of_group("0::/../../a\n"), 5);
    remove_root();
}

static void cgroup_v1_is_read(void)
{
    make_root();
    write_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    write_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    write_file("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "250000\n");
    write_file("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    write_file("/sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "250000\n"); /* without a period */
    EXPECT_EQ(cpus_of_group("9:name=systemd:/\n4:cpuacct,cpu:/a\n0::/\n"), 3);
    EXPECT_EQ(cpus_of_group("4:cpu:/a/x\n"), 3);
    EXPECT_EQ(cpus_of_group("4:cpu:/b\n"), 0);
    EXPECT_EQ(cpus_of_group("4:cpu:/\n"), 0);
    EXPECT_EQ(cpus_of_group("4:cpuset,cpuacct:/a\n"), 0); /* these controllers have no quota */
    remove_root();
}

static void invalid_files_are_safe(void)
{
    static char lines[3 * 5000];

    make_root();
    write_file("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    EXPECT_EQ(cpus_of_group(""), 0);
    EXPECT_EQ(
        cpus_of_group("\n::\n:\n4\n4:cpu\n"), 4); /* no controllers, no path: the root group */
    memset(lines, 'a', sizeof(lines) - 1);
    EXPECT_EQ(cpus_of_group(lines), 0);
    memset(lines, '/', sizeof(lines) - 1);
    memcpy(lines, "0::/", 4);
    EXPECT(cpus_of_group(lines) == 0 || cpus_of_group(lines) == 4);
    remove_root();
}

static void this_process_has_a_cpu(void)
{
    EXPECT(thread_count_online() >= 1);
    EXPECT(thread_count_online() <= sysconf(_SC_NPROCESSORS_CONF));
}

TESTS(TEST(cgroup_v2_is_read), TEST(smallest_quota_of_all_parent_groups_counts),
    TEST(cgroup_v1_is_read), TEST(invalid_files_are_safe), TEST(this_process_has_a_cpu))
