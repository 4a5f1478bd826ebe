/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Control groups, version 2, through a mount of our own.
 */
#ifndef _CGROUP_H
#define _CGROUP_H

/* Where they are mounted, with the controllers cpu, cpuset and memory on. */
const char *cgroup_root(void);

/* Makes a group, "a" or "a/b", unless it is there. Bails out if it cannot. */
void cgroup_make(const char *name);

/* Moves the calling process into a group, or with NULL back to the root. */
void cgroup_enter(const char *name);

/* Number of a line of cpu.stat and the like, or -errno. */
long long cgroup_stat(const char *name, const char *file, const char *field);

#endif /* _CGROUP_H */
