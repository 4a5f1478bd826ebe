// SPDX-License-Identifier: GPL-2.0-only
/*
 * charge: the CPU time of mtcopy's helpers is in cpu.stat of the cgroup of the task that asked
 * for the copy, and in no clock of the task: those must not run ahead of wall time. The clocks of
 * the kernel's workers, of which the helpers are some, say how much it was. It counts against
 * cpu.max as well.
 */
#include "cgroup.h"
#include "clock.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "tap.h"
#include "task.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES	(32UL << 20)
#define ROUNDS	8
#define RUNS	120

/* The clock tick, and what other tasks and interrupts take. */
#define SLACK_US	20000

/* Of helpers, in all: enough for the clock tick, and what else workers do, to be little of it. */
#define ENOUGH_US	1000000

#define GROUP	"charge/inner"
#define OTHER	"charge/other"
#define LIMITED	"charge/limited"

/* The quota of LIMITED in each period, and how long it is watched. */
#define QUOTA_US	20000
#define PERIOD_US	100000
#define WATCHED_US	10000000

/* All in microseconds. */
struct times {
	long long wall;
	long long helpers;
	long long task;
	long long thread;
	long long group;
	long long parent;
	long long other;
};

static long long usage_us(int who)
{
	struct rusage usage;

	getrusage(who, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL +
	       usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

static long long group_us(const char *name)
{
	return cgroup_stat(name, "cpu.stat", "usage_usec");
}

/* Of a process, or 0 if its line in /proc does not have @name. */
static long long process_us(const char *pid, const char *name)
{
	unsigned long user, system;
	char text[512], *rest;

	if (file_read(text, sizeof(text), "/proc/%s/stat", pid))
		return 0;
	rest = strrchr(text, ')');
	if (!strstr(text, name) || !rest ||
	    sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
		   &system) != 2)
		return 0;
	return (user + system) * 1000000LL / sysconf(_SC_CLK_TCK);
}

/* Of all workers of the kernel together. */
static long long workers_us(void)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	long long us = 0;

	while (processes && (entry = readdir(processes)))
		us += process_us(entry->d_name, "(kworker/");
	if (processes)
		closedir(processes);
	return us;
}

static void read_times(struct times *times, int sign)
{
	times->wall += sign * now_ns(CLOCK_MONOTONIC) / 1000;
	times->task += sign * usage_us(RUSAGE_SELF);
	times->thread += sign * usage_us(RUSAGE_THREAD);
	times->group += sign * group_us(GROUP);
	times->parent += sign * group_us("charge");
	times->other += sign * group_us(OTHER);
	times->helpers += sign * workers_us();
}

/* In the group: moves memory and tells what it took. */
static void measure(struct times *times)
{
	unsigned char *at = map_anonymous(BYTES, true);

	/* What keeps a CPU busy does so on the last one: see lab/README.md, --steady-clock. */
	run_on_cpu(sysconf(_SC_NPROCESSORS_ONLN) - 1);
	cgroup_enter(GROUP);
	populate_on(node_at(0), at, BYTES);
	read_times(times, -1);
	for (int n = 1; n <= ROUNDS; n++)
		if (move_range(at, BYTES, HUGE_BYTES, node_at(n % 2), MPOL_MF_MOVE, 5))
			_exit(1);
	read_times(times, 1);
	_exit(0);
}

/* Adds one run to @sum. */
static bool run(unsigned int lanes, struct times *sum)
{
	struct times *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = -1;
	pid_t pid;

	file_write_number(lanes, MIGRATION "/mtcopy/lanes");
	*shared = *sum;
	pid = fork();
	if (!pid)
		measure(shared);
	waitpid(pid, &status, 0);
	*sum = *shared;
	munmap(shared, sizeof(*shared));
	return !status;
}

static void tell(const char *what, const struct times *times)
{
	tap_note("%s: %lld us pass, helpers %lld; task %lld, thread %lld, group %lld, its parent %lld, its neighbour %lld",
		 what, times->wall, times->helpers, times->task, times->thread, times->group,
		 times->parent, times->other);
}

/* Whether @used, less what the task used by itself, is the CPU time of the helpers, +-10%. */
static bool has_helpers(long long used, const struct times *times)
{
	return llabs(used - times->task - times->helpers) <= times->helpers / 10;
}

/* In LIMITED: moves memory to and fro until it is killed. */
static void move_for_ever(void)
{
	unsigned char *at = map_anonymous(BYTES, true);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	run_on_cpu(sysconf(_SC_NPROCESSORS_ONLN) - 1);
	populate_on(node_at(0), at, BYTES);
	cgroup_enter(LIMITED);
	for (unsigned int n = 1;; n++)
		move_range(at, BYTES, HUGE_BYTES, node_at(n % 2), MPOL_MF_MOVE, 5);
}

static void test_quota(void)
{
	long long used, own, passed, allowed;
	char text[32];
	pid_t pid;

	cgroup_make(LIMITED);
	snprintf(text, sizeof(text), "%d %d", QUOTA_US, PERIOD_US);
	file_need(text, "%s/" LIMITED "/cpu.max", cgroup_root());
	pid = fork();
	if (!pid)
		move_for_ever();
	/* It is in the group, and moves. */
	if (!wait_until(group_us(LIMITED) > 2 * QUOTA_US, 60000, 10000))
		tap_bail("nothing moves in a group with a quota");
	passed = -now_ns(CLOCK_MONOTONIC) / 1000;
	used = -group_us(LIMITED);
	snprintf(text, sizeof(text), "%d", pid);
	own = -process_us(text, "");
	usleep(WATCHED_US);
	passed += now_ns(CLOCK_MONOTONIC) / 1000;
	used += group_us(LIMITED);
	own += process_us(text, "");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	allowed = passed * QUOTA_US / PERIOD_US;
	tap_note("a quota: %lld us pass, %lld are allowed, %lld were used, %lld by the task", passed,
		 allowed, used, own);
	tap_ok(used >= allowed / 2 && used - own > used / 10, "a quota: the task works, and a helper");
	tap_ok(used <= allowed + allowed / 10, "a quota: it holds with helpers");
}

int main(void)
{
	struct times one = { 0 }, two = { 0 };
	bool good = true;

	tap_start();
	nodes_with_memory();
	migrator_needed();
	atexit(migrator_defaults);
	cgroup_make(GROUP);
	cgroup_make(OTHER);
	migrator_need("mtcopy");
	migrator_eager();
	/* A helper that is slow to come, as in a debug kernel, finds something left to do. */
	file_write_number(BYTES, MIGRATION "/max_batch_bytes");

	good = run(1, &one);
	for (int n = 0; good && n < RUNS && two.helpers < ENOUGH_US; n++)
		good = run(2, &two);
	tell("one lane", &one);
	tell("two lanes", &two);
	tap_ok(good && one.helpers < SLACK_US, "one lane: no helper");
	tap_ok(one.task < one.wall + SLACK_US && one.group < one.wall + SLACK_US,
	       "one lane: no more CPU time than passes");
	tap_ok(good && two.helpers >= ENOUGH_US, "two lanes: a helper works");
	tap_ok(two.task <= two.wall + SLACK_US && two.thread <= two.wall + SLACK_US,
	       "two lanes: the clocks of process and thread do not run ahead of wall time");
	tap_ok(has_helpers(two.group, &two), "two lanes: its cgroup has it");
	tap_ok(has_helpers(two.parent, &two),
	       "two lanes: the cgroup above has it");
	tap_ok(two.other < SLACK_US, "two lanes: another cgroup has nothing of it");
	test_quota();
	return tap_done();
}
