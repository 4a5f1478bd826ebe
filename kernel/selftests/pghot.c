// SPDX-License-Identifier: GPL-2.0-only
/* Hot-page tracking. */
#include "clock.h"
#include "pghot.h"
#include "content.h"
#include "emulator.h"
#include "files.h"
#include "memory.h"
#include "nodes.h"
#include "tap.h"
#include "task.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A round takes milliseconds; minutes are for kernels with checkers on a busy host. */
#define ROUND_MS	120000
/* While sources are on there may always be one more. */
#define GAP_MS		2000

const char *const pghot_sources[PGHOT_SOURCES] = { "hint faults", "hardware", "page tables" };

static const char *const settings[] = {
	NUMA_BALANCING,
	PGHOT_SYSCTL "target_nid",
	PGHOT_RATE,
	PGHOT_THRESHOLD,
	PGHOT_WINDOW,
	/* Last to be remembered, so first to be put back: nothing runs while the rest changes. */
	PGHOT_SYSCTL "enabled_sources",
};

void pghot_init(void)
{
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
	file_need_number(1 << source, PGHOT_SYSCTL "enabled_sources");
	if (source == PGHOT_HINTFAULT)
		file_need("2", NUMA_BALANCING);
	else if (source == PGHOT_HWHINT)
		file_need(PGHOT_FAULTS, PGHOT_EVENT);
}

void pghot_scan_often(void)
{
	file_set("100", PGHOT_SCANS "scan_delay_ms");
	file_set("100", PGHOT_SCANS "scan_period_min_ms");
}

/* Whether a thread waits as kmigrated does between its rounds, and nowhere else. */
static bool waits(int pid)
{
	char text[256] = "";

	file_read(text, sizeof(text), "/proc/%d/stat", pid);
	/* PID (NAME) STATE ... */
	return strstr(text, ") S ");
}

/* Waits until no node is in a round; returns whether that came to be in time. */
static bool rounds_end(long long ms)
{
	long long end = now_ms() + ms;

	for (int n = 0; n < nodes_with_memory(); n++) {
		int pid = pghot_kmigrated(node_at(n));

		while (pid > 0 && !waits(pid)) {
			if (now_ms() > end)
				return false;
			usleep(1000);
		}
	}
	return true;
}

void pghot_stop(void)
{
	/* See emulator.h: what folios pass when they move is patched. */
	if (emulator_patches_badly())
		rounds_end(GAP_MS);
	file_need("0", NUMA_BALANCING);
	file_need("0", PGHOT_SYSCTL "enabled_sources");
	if (file_exists(PGHOT_EVENT))
		file_need("\n", PGHOT_EVENT);
	/* A page is where it goes a moment before it is counted. */
	if (!rounds_end(ROUND_MS))
		tap_bail("kmigrated does not end its round");
}

long long pghot_counter(const char *name)
{
	long long count;

	/* CPUs keep what they counted of nodes to themselves for a while. */
	file_need("1", "/proc/sys/vm/stat_refresh");
	count = file_field("/proc/vmstat", name);
	if (count < 0)
		tap_bail("no counter %s", name);
	return count;
}

long long pghot_status(const char *name)
{
	long long count = file_field(PGHOT_DEBUGFS "/status", name);

	if (count < 0)
		tap_bail("pghot/status has no %s", name);
	return count;
}

bool pghot_precise(void)
{
	char text[1024] = "";

	if (file_read(text, sizeof(text), PGHOT_DEBUGFS "/status"))
		tap_bail("no " PGHOT_DEBUGFS "/status");
	return strstr(text, "format precise");
}

void pghot_run_on(int node)
{
	char text[64] = "";
	int cpus[64], nr;
	cpu_set_t set;

	file_read(text, sizeof(text), "/sys/devices/system/node/node%d/cpulist", node);
	nr = list_read(text, cpus, 64);
	CPU_ZERO(&set);
	for (int n = 0; n < nr; n++)
		CPU_SET(cpus[n], &set);
	if (!nr || sched_setaffinity(0, sizeof(set), &set))
		tap_bail("node %d has no CPU for us", node);
}

struct content *pghot_content(int node, void *at, size_t bytes, unsigned int writers)
{
	struct content *content;

	if (!populate_on(node, at, bytes))
		tap_bail("no room on node %d", node);
	content = content_new(at, bytes, writers);
	content_fill(content);
	pages_settle(at);
	return content;
}

struct content *pghot_memory(int node, size_t bytes, bool huge, unsigned int writers)
{
	return pghot_content(node, map_anonymous(bytes, huge), bytes, writers);
}

void pghot_memory_drop(struct content *content)
{
	munmap(content->at, content->bytes);
	content_free(content);
}

size_t pghot_wait_moved(const void *at, size_t bytes, int node, size_t pages, long long ms)
{
	size_t moved;

	wait_until((moved = pages_off(at, bytes, node)) >= pages, ms, 20000);
	return moved;
}

int pghot_kmigrated(int node)
{
	char name[32];

	snprintf(name, sizeof(name), "kmigrated%d", node);
	return task_named(name);
}
