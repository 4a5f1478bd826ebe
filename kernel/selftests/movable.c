// SPDX-License-Identifier: GPL-2.0-only
/*
 * movable: pages that no address space knows, and that move by their owner's rules: those of
 * zsmalloc, behind zram. They go when their memory block goes off line; the batch leaves them
 * alone, and zram reads back what was written.
 */
#include "blocks.h"
#include "content.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES	(4UL << 20)
#define DISK	"/dev/zram0"
#define SYSTEM	"/sys/block/zram0"

/* A count of a node's zone for movable pages, by its name in /proc/zoneinfo. */
static long long zone_pages(int node, const char *name)
{
	long long pages = -1, count;
	bool here = false;
	char line[256], zone[32], word[64];
	FILE *file;
	int which;

	file = fopen("/proc/zoneinfo", "re");
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Node %d, zone %31s", &which, zone) == 2)
			here = which == node && !strcmp(zone, "Movable");
		if (here && sscanf(line, " %63s %lld", word, &count) == 2 && !strcmp(word, name))
			pages = count;
	}
	if (file)
		fclose(file);
	return pages;
}

/* Pages there that the batch may copy: those that are on LRU lists. */
static long long lru_pages(int node)
{
	static const char *const names[] = {
		"nr_zone_inactive_anon", "nr_zone_active_anon", "nr_zone_inactive_file",
		"nr_zone_active_file", "nr_zone_unevictable",
	};
	long long sum = 0;

	for (unsigned int n = 0; n < ARRAY_SIZE(names); n++)
		sum += zone_pages(node, names[n]);
	return sum;
}

/* Nothing that compresses, so that every page is one of zsmalloc's. */
static struct content *fill_disk(int fd, void **at)
{
	struct content *content;

	*at = map_anonymous(BYTES, false);
	content = content_new(*at, BYTES, 0);
	if (content_fill_file(content, fd) || fsync(fd))
		tap_bail(DISK ": %s", strerror(errno));
	return content;
}

static void test(const char *migrator)
{
	struct stats before, done;
	struct content *content;
	long long pages, left, lru;
	int block, node, fd, error = -EBUSY;
	void *at;

	if (!block_make_movable(&block, &node)) {
		tap_ok(false, "%s: no block can be made movable", migrator);
		return;
	}
	file_write("1", SYSTEM "/reset");
	file_write_number(4 * BYTES, SYSTEM "/disksize");
	/* zram is written by the task that syncs, so its pages come from here. */
	memory_policy(MPOL_BIND, node);
	fd = open(DISK, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		tap_bail(DISK ": %s", strerror(errno));
	content = fill_disk(fd, &at);
	memory_policy(MPOL_DEFAULT, 0);
	/* The page cache of the disk is another matter. */
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	pages = zone_pages(node, "nr_zspages");

	lru = lru_pages(node);
	before = migrator_stats(migrator);
	for (int try = 0; try < 5 && error; try++)
		error = block_state(block, "offline");
	done = migrator_since(migrator, before);
	left = zone_pages(node, "nr_zspages");
	tap_note("%s: %lld pages of zsmalloc and %lld of others in block %d of node %d, %lld afterwards; %lld folios copied",
		 migrator, pages, lru, block, node, left, done.folios);
	tap_ok(pages >= (long long)(BYTES / page_bytes() / 2), "%s: zsmalloc has pages there",
	       migrator);
	tap_ok(!error && left <= 0, "%s: they moved when the block went off line", migrator);
	tap_ok(!content_wrong_in_file(content, fd, "zram"), "%s: contents of zram", migrator);
	if (migrator_copies(migrator))
		/* Others come and go while it goes off line, but never as many. */
		tap_ok(done.folios <= lru + pages / 16, "%s: the batch did not copy them", migrator);
	close(fd);
	file_write("1", SYSTEM "/reset");
	munmap(at, BYTES);
	content_free(content);
	block_state(block, "online");
}

int main(void)
{
	const char *name;

	tap_start();
	nodes_with_memory();
	if (!file_exists(SYSTEM "/disksize"))
		tap_bail("no " DISK ": a kernel without zram");
	for (name = migrator_next(NULL); name; name = migrator_next(name))
		test(name);
	return tap_done();
}
