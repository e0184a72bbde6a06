/* quota.h: CPU quota of the control group.
 *
 * Version 2: cpu.max contains "quota period" or "max period", in microseconds. Version 1:
 * cpu.cfs_quota_us (-1: none) and cpu.cfs_period_us. The limits of all parent groups also apply.
 * Source: Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst of the kernel.
 *
 * Any thread; reads files on each call. */
#pragma once

/* Number of CPUs, rounded up, at least 1; 0 = no limit. `root` is prepended to /proc/self/cgroup
 * and /sys/fs/cgroup; "" except in tests. */
int quota_cpus(const char *root);
