/* quota.h: how many processors' time the control group lets us have. Any thread; reads files.
 *
 * Version 2: cpu.max has "quota period" or "max period", in microseconds. Version 1:
 * cpu.cfs_quota_us (-1: none) and cpu.cfs_period_us. The limits of all groups above hold too.
 * Source: the kernel's Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst. */
#pragma once

/* Processors, rounded up, at least 1; 0 = there is no limit. `root` stands before
 * /proc/self/cgroup and /sys/fs/cgroup: "" but in tests. */
int quota_cpus(const char *root);
