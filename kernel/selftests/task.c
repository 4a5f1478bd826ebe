// SPDX-License-Identifier: GPL-2.0-only
/* Threads, processes and CPUs. */
#include "task.h"
#include "clock.h"
#include "files.h"
#include "tap.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument)
{
	if (pthread_create(thread, NULL, run, argument))
		tap_bail("no thread");
}

void run_on_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		tap_bail("CPU %d cannot be used: %s", cpu, strerror(errno));
}

pid_t busy_start(int cpu, int policy, unsigned int busy_ms, unsigned int rest_us)
{
	struct sched_param priority = { .sched_priority = sched_get_priority_min(policy) };
	char byte = 0;
	int ends[2];
	pid_t pid;

	if (pipe(ends))
		tap_bail("pipe: %s", strerror(errno));
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_on_cpu(cpu);
		if (sched_setscheduler(0, policy, &priority) || write(ends[1], &byte, 1) != 1)
			_exit(1);
		for (;;) {
			long long end = now_ms() + busy_ms;

			while (!rest_us || now_ms() < end)
				;
			usleep(rest_us);
		}
	}
	close(ends[1]);
	if (read(ends[0], &byte, 1) != 1)
		tap_bail("the busy task did not start");
	close(ends[0]);
	return pid;
}

void busy_stop(pid_t pid)
{
	if (waitpid(pid, NULL, WNOHANG))
		tap_bail("the busy task ended by itself");
	child_kill(pid);
}

pid_t task_named(const char *pattern)
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	char text[32];
	pid_t pid = -1;

	while (folder && (entry = readdir(folder)))
		if (!file_read(text, sizeof(text), "/proc/%s/comm", entry->d_name) &&
		    !fnmatch(pattern, text, 0))
			pid = atoi(entry->d_name);
	if (folder)
		closedir(folder);
	return pid;
}

void child_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
