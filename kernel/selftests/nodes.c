// SPDX-License-Identifier: GPL-2.0-only
/* Memory nodes through system calls and /sys/devices/system/node. */
#include "nodes.h"
#include "files.h"
#include "tap.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NODES	"/sys/devices/system/node"

/* Pages of one question, so that its arrays stay small. */
#define CHUNK	4096

int list_read(const char *list, int *ids, int space)
{
	int count = 0;

	while (*list && count < space) {
		char *end;
		long first = strtol(list, &end, 10);
		long last = first;

		if (end == list)
			break;
		if (*end == '-')
			last = strtol(end + 1, &end, 10);
		while (first <= last && count < space)
			ids[count++] = first++;
		list = *end == ',' ? end + 1 : end;
	}
	return count;
}

static int memory_nodes(int *ids)
{
	char list[256];

	if (file_read(list, sizeof(list), NODES "/has_memory"))
		tap_bail("no " NODES "/has_memory: is sysfs mounted, is it a NUMA kernel?");
	return list_read(list, ids, MAX_NODES);
}

int nodes_with_memory(void)
{
	int ids[MAX_NODES];
	int count = memory_nodes(ids);

	if (count < 2)
		tap_bail("%d memory node(s): these tests move pages between at least two", count);
	return count;
}

int node_at(int nth)
{
	int ids[MAX_NODES];
	int count = memory_nodes(ids);

	return ids[nth % count];
}

int node_slow(void)
{
	int ids[MAX_NODES], count, n;
	char list[256];

	count = memory_nodes(ids);
	for (n = 0; n < count; n++)
		if (!file_read(list, sizeof(list), NODES "/node%d/cpulist", ids[n]) && !list[0])
			return ids[n];
	return -1;
}

static long long node_field(int node, const char *field)
{
	char path[FILE_PATH], line[256];
	long long kib = -1;
	FILE *file;

	snprintf(path, sizeof(path), NODES "/node%d/meminfo", node);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	while (kib < 0 && fgets(line, sizeof(line), file)) {
		const char *found = strstr(line, field);

		if (found)
			kib = atoll(found + strlen(field));
	}
	fclose(file);
	return kib < 0 ? kib : kib * 1024;
}

long long node_free_bytes(int node)
{
	return node_field(node, "MemFree:");
}

long long node_reserve_bytes(int node)
{
	long long pages = 0, high, reserve;
	char line[256];
	FILE *file;
	int at = -1;

	file = fopen("/proc/zoneinfo", "re");
	if (!file)
		return -errno;
	while (fgets(line, sizeof(line), file)) {
		sscanf(line, "Node %d, zone", &at);
		if (at != node)
			continue;
		if (sscanf(line, " high %lld", &high) == 1)
			pages += high;
		/* What a zone keeps from those that could have come from higher ones. */
		if (sscanf(line, " protection: (%*d, %*d, %*d, %lld", &reserve) == 1)
			pages += reserve;
	}
	fclose(file);
	return pages * page_bytes();
}

long long node_bytes(int node)
{
	return node_field(node, "MemTotal:");
}

long long node_movable_bytes(int node)
{
	/* Files of the initial file system and shared memory are among FilePages. */
	return node_field(node, "FilePages:") + node_field(node, "AnonPages:");
}

size_t page_bytes(void)
{
	static size_t bytes;

	if (!bytes)
		bytes = sysconf(_SC_PAGESIZE);
	return bytes;
}

long move_pages(pid_t pid, unsigned long count, void **pages, const int *nodes, int *status,
		int flags)
{
	long rc = syscall(SYS_move_pages, pid, count, pages, nodes, status, flags);

	return rc < 0 ? -errno : rc;
}

long migrate_process(pid_t pid, int from, int to)
{
	unsigned long old = 1UL << from, new = 1UL << to;
	long rc = syscall(SYS_migrate_pages, pid, sizeof(old) * 8 + 1, &old, &new);

	return rc < 0 ? -errno : rc;
}

int memory_policy(int mode, int node)
{
	unsigned long mask = mode == MPOL_DEFAULT ? 0 : 1UL << node;

	if (syscall(SYS_set_mempolicy, mode, mask ? &mask : NULL, mask ? sizeof(mask) * 8 + 1 : 0))
		return -errno;
	return 0;
}

int bind_range(void *at, size_t bytes, int mode, int node, unsigned int flags)
{
	return bind_range_to(at, bytes, mode, mode == MPOL_DEFAULT ? 0 : 1UL << node, flags);
}

int bind_range_to(void *at, size_t bytes, int mode, unsigned long mask, unsigned int flags)
{
	if (syscall(SYS_mbind, at, bytes, mode, mask ? &mask : NULL,
		    mask ? sizeof(mask) * 8 + 1 : 0, flags))
		return -errno;
	return 0;
}

int node_of(const void *at)
{
	int node;

	nodes_of(at, 1, &node);
	return node;
}

void nodes_of(const void *at, size_t bytes, int *nodes)
{
	size_t page = page_bytes(), count = (bytes + page - 1) / page, done, n;
	void *pages[CHUNK];

	for (done = 0; done < count; done += n) {
		long rc;

		n = count - done < CHUNK ? count - done : CHUNK;
		for (size_t i = 0; i < n; i++)
			pages[i] = (char *)at + (done + i) * page;
		rc = move_pages(0, n, pages, NULL, nodes + done, 0);
		if (rc)
			tap_bail("move_pages(2) does not say where pages are: %s", strerror(-rc));
	}
}

static size_t count_pages(const void *at, size_t bytes, int node, bool on)
{
	size_t page = page_bytes(), found = 0;
	int nodes[CHUNK];

	while (bytes) {
		size_t part = bytes < CHUNK * page ? bytes : CHUNK * page;

		nodes_of(at, part, nodes);
		for (size_t i = 0; i < (part + page - 1) / page; i++)
			found += nodes[i] >= 0 && (nodes[i] == node) == on;
		at = (char *)at + part;
		bytes -= part;
	}
	return found;
}

size_t pages_on(const void *at, size_t bytes, int node)
{
	return count_pages(at, bytes, node, true);
}

size_t pages_off(const void *at, size_t bytes, int node)
{
	return count_pages(at, bytes, node, false);
}

void pages_settle(void *at)
{
	int node = node_of(at), status;

	/* Moves nothing, but comes to all CPUs before. */
	if (node < 0 || move_pages(0, 1, &at, &node, &status, MPOL_MF_MOVE) || status != node)
		tap_bail("move_pages(2) did not look at a page");
}

size_t move_range_counting(void *at, size_t bytes, size_t folio, int node, int flags, int tries,
			   size_t *moved)
{
	size_t page = page_bytes(), count = bytes / page, left = count;
	int *before = malloc(count * sizeof(*before));
	int *where = malloc(count * sizeof(*where));
	void **pages = malloc(count * sizeof(*pages));
	int *nodes = malloc(count * sizeof(*nodes));
	int *status = malloc(count * sizeof(*status));

	if (!before || !where || !pages || !nodes || !status)
		tap_bail("no memory for the arrays of move_pages(2)");
	if (folio < page)
		folio = page;
	for (int try = 0; ; try++) {
		size_t asked = 0;

		nodes_of(at, bytes, where);
		if (!try)
			memcpy(before, where, count * sizeof(*before));
		left = 0;
		for (size_t i = 0; i < count; i++) {
			if (where[i] == node)
				continue;
			left++;
			/* One address per folio, and none that is gone: it would end the list. */
			if (i % (folio / page) || where[i] < 0)
				continue;
			pages[asked] = (char *)at + i * page;
			nodes[asked++] = node;
		}
		if (!left || try == tries)
			break;
		/* Whatever a folio of another size left behind is asked for page by page. */
		if (!asked)
			folio = page;
		else
			move_pages(0, asked, pages, nodes, status, flags);
		if (try)
			sched_yield();
	}
	for (size_t i = 0; i < count; i++)
		*moved += before[i] >= 0 && before[i] != node && where[i] == node;
	free(before);
	free(where);
	free(pages);
	free(nodes);
	free(status);
	return left;
}

size_t move_range(void *at, size_t bytes, size_t folio, int node, int flags, int tries)
{
	size_t moved = 0;

	return move_range_counting(at, bytes, folio, node, flags, tries, &moved);
}
