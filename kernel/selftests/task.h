/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads and processes of a test, and the CPUs that they run on.
 */
#ifndef _TASK_H
#define _TASK_H

#include <pthread.h>
#include <sys/types.h>

/* Bails out if there is no thread. */
void thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

/* From now on this thread and those that it makes run on one CPU alone. Bails out if they cannot. */
void run_on_cpu(int cpu);

/**
 * busy_start - a process that keeps a CPU busy from when this returns
 * @policy: of sched(7), with the lowest priority that it has
 * @rest_us: how long it rests after each @busy_ms; 0 for never
 *
 * Memory is made afterwards, because pages that two processes have do not move.
 */
pid_t busy_start(int cpu, int policy, unsigned int busy_ms, unsigned int rest_us);

/* Bails out if it ended by itself. */
void busy_stop(pid_t pid);

/* A process with such a name, or -1; @pattern is one of glob(7). */
pid_t task_named(const char *pattern);

/* Kills a child and waits for its end. */
void child_kill(pid_t pid);

#endif /* _TASK_H */
