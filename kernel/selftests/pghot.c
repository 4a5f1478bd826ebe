// SPDX-License-Identifier: GPL-2.0-only
/* Hot-page tracking. */
#include "pghot.h"
#include "files.h"
#include "nodes.h"
#include "tap.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BALANCING	"/proc/sys/kernel/numa_balancing"

const char *const pghot_sources[PGHOT_SOURCES] = { "hint faults", "hardware", "page tables" };

static const char *const settings[] = {
	BALANCING,
	PGHOT_SYSCTL "target_nid",
	PGHOT_SYSCTL "freq_threshold",
	PGHOT_SYSCTL "promote_freq_window_ms",
	PGHOT_SYSCTL "promote_rate_limit_MBps",
	PGHOT_DEBUGFS "/kmigrated_sleep_ms",
	PGHOT_DEBUGFS "/kmigrated_batch_nr",
	PGHOT_DEBUGFS "/exchange",
	PGHOT_DEBUGFS "/weights",
	PGHOT_DEBUGFS "/scan_period_ms",
	/* Last to be remembered, so first to be put back: nothing runs while the rest changes. */
	PGHOT_SYSCTL "enabled_sources",
};

long long pghot_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

void pghot_init(void)
{
	mount_once("debugfs", "/sys/kernel/debug");
	if (!file_exists(PGHOT_SYSCTL "enabled_sources"))
		tap_bail("this kernel tracks no hot pages");
	if (node_slow() < 0)
		tap_bail("this machine has no slower memory");
	pghot_stop();
	for (unsigned int n = 0; n < ARRAY_SIZE(settings); n++)
		if (file_exists("%s", settings[n]))
			file_restore_at_exit("%s", settings[n]);
}

bool pghot_has(enum pghot_source source)
{
	int error = file_write_number(1 << source, PGHOT_SYSCTL "enabled_sources");

	if (error && error != -EINVAL)
		tap_bail("source %s: %s", pghot_sources[source], strerror(-error));
	pghot_stop();
	return !error;
}

void pghot_start(enum pghot_source source)
{
	int error = file_write_number(1 << source, PGHOT_SYSCTL "enabled_sources");

	if (!error && source == PGHOT_HINTFAULT)
		error = file_write("2", BALANCING);
	if (error)
		tap_bail("source %s: %s", pghot_sources[source], strerror(-error));
}

void pghot_stop(void)
{
	int error = file_write("0", BALANCING);

	if (!error)
		error = file_write("0", PGHOT_SYSCTL "enabled_sources");
	if (error)
		tap_bail("sources cannot be turned off: %s", strerror(-error));
}

long long pghot_counter(const char *name)
{
	long long count = file_field("/proc/vmstat", name);

	if (count < 0)
		tap_bail("no counter %s", name);
	return count;
}

void pghot_settle(void *at)
{
	int node = node_of(at), status;

	/* Moves nothing, but comes to all CPUs before. */
	if (node < 0 || move_pages(0, 1, &at, &node, &status, MPOL_MF_MOVE) || status != node)
		tap_bail("move_pages(2) did not look at a page");
}

size_t pghot_wait_moved(const void *at, size_t bytes, int node, size_t pages, long long ms)
{
	size_t all = bytes / page_bytes(), moved;
	long long end = pghot_ms() + ms;

	while ((moved = all - pages_on(at, bytes, node)) < pages && pghot_ms() < end)
		usleep(20000);
	return moved;
}

int pghot_kmigrated(int node)
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	char name[32], text[32];
	int pid = -1;

	snprintf(name, sizeof(name), "kmigrated%d", node);
	while (folder && (entry = readdir(folder)))
		if (!file_read(text, sizeof(text), "/proc/%s/comm", entry->d_name) &&
		    !strcmp(text, name))
			pid = atoi(entry->d_name);
	if (folder)
		closedir(folder);
	return pid;
}
