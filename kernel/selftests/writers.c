// SPDX-License-Identifier: GPL-2.0-only
/*
 * writers: drivers write to page-cache folios of memory files through short references, with
 * neither the folio lock nor a mapping. The module unlockedwriter does so all the time, while the
 * moves of a batch come long after its copy, by the module movedelay. Nothing of it is lost, whether
 * somebody has the folios mapped or not.
 */
#include "delay.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "modules.h"
#include "nodes.h"
#include "pages.h"
#include "tap.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WRITTEN		"/sys/module/unlockedwriter/parameters/written"
#define STOP		"/sys/module/unlockedwriter/parameters/stop"
#define SOFT_OFFLINE	"/sys/devices/system/memory/soft_offline_page"

/* What is taken off line does not come back. */
#define UNMAPPED_PAGES	8
#define MAPPED_BYTES	(4UL << 20)
#define TRIES		100
#define ROUNDS		8

/* Between the copy of a batch and its moves, for writes. */
#define DELAY_MS	30

static const char *const ways[] = { "as i915 and ttm do", "as udmabuf does" };

static void writer_start(int fd, unsigned int way, unsigned int pause_ms)
{
	module_need("unlockedwriter", "pins=%u fd=%d pause_ms=%u", way, fd, pause_ms);
}

/* How often the writer added 1 to the first word of a page. */
static long long writer_stop(void)
{
	long long written;

	file_need("1", STOP);
	written = file_number(WRITTEN);
	if (written < 0 || module_unload("unlockedwriter"))
		tap_bail("unlockedwriter does not answer, or cannot be unloaded");
	return written;
}

static uint64_t first_word(const unsigned char *at, size_t page)
{
	return *(const uint64_t *)(at + page * page_bytes());
}

static long long sum_of_first_words(const unsigned char *at, size_t bytes)
{
	long long sum = 0;

	for (size_t n = 0; n < bytes / page_bytes(); n++)
		sum += first_word(at, n);
	return sum;
}

static unsigned char *map_file(int fd, size_t bytes)
{
	unsigned char *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);

	if (at == MAP_FAILED)
		tap_bail("a memory file cannot be mapped");
	return at;
}

/* Folios that nobody maps are copied by the batch as well, and no write to them is lost. */
static void test_unmapped(const char *migrator, unsigned int way)
{
	size_t bytes = UNMAPPED_PAGES * page_bytes(), moved = 0;
	uint64_t frames[UNMAPPED_PAGES], now[UNMAPPED_PAGES];
	int fd = memfd_create("unmapped", MFD_CLOEXEC);
	const char *what = ways[way];
	long long written, sum;
	struct stats done;
	unsigned char *at;

	if (fd < 0 || ftruncate(fd, bytes))
		tap_bail("no memory file");
	/* Clean pages would be dropped, not moved. */
	for (size_t n = 0; n < UNMAPPED_PAGES; n++)
		if (pwrite(fd, "", 1, n * page_bytes()) != 1)
			tap_bail("a memory file cannot be written");
	at = map_file(fd, bytes);
	page_frames(at, bytes, frames);
	munmap(at, bytes);
	done = migrator_stats(migrator);
	/* A page that is looked up while it moves stays: now and then none is. */
	writer_start(fd, way, 2 * DELAY_MS);
	delay_start(migrator, DELAY_MS);
	for (size_t n = 0; n < UNMAPPED_PAGES; n++)
		for (int try = 0; try < TRIES; try++)
			if (!file_write_number(frames[n] * page_bytes(), SOFT_OFFLINE))
				break;
	delay_stop();
	written = writer_stop();
	done = migrator_since(migrator, done);
	at = map_file(fd, bytes);
	page_frames(at, bytes, now);
	for (size_t n = 0; n < UNMAPPED_PAGES; n++)
		moved += now[n] != frames[n];
	sum = sum_of_first_words(at, bytes);
	tap_note("not mapped, %s, %s: %zu of %d pages moved, %lld copied by the batch, %lld writes, %lld are there",
		 migrator, what, moved, UNMAPPED_PAGES, done.folios, written, sum);
	tap_ok(moved == UNMAPPED_PAGES && done.folios && written > UNMAPPED_PAGES,
	       "not mapped, %s, %s: all moved by the batch, and were written to", migrator, what);
	tap_ok(sum == written, "not mapped, %s, %s: no write is lost", migrator, what);
	munmap(at, bytes);
	close(fd);
}

static void test_mapped(const char *kind, const char *migrator, unsigned int way)
{
	long long pages = MAPPED_BYTES / page_bytes(), written, sum, moved = 0;
	const char *what = ways[way];
	size_t left;
	struct memory memory;
	struct stats done;
	unsigned int delays;

	if (!memory_test(&memory, kind_named(kind), MAPPED_BYTES, node_at(0), 0))
		return;
	for (long long n = 0; n < pages; n++)
		memset(memory.at + n * page_bytes(), 0, sizeof(uint64_t));
	done = migrator_stats(migrator);
	writer_start(memory.fd, way, 0);
	delay_start(migrator, DELAY_MS);
	/* A folio that is being written to stays: one of two, if they are huge. */
	for (unsigned int n = 1; n <= ROUNDS; n++) {
		left = memory_move(&memory, node_at(n % 2), 1);
		moved += pages - left;
	}
	delays = delay_stop();
	written = writer_stop();
	done = migrator_since(migrator, done);
	sum = sum_of_first_words(memory.at, MAPPED_BYTES);
	tap_note("%s, %s, %s: %u delays, %lld pages moved, %lld folios by the batch, %lld writes, %lld are there",
		 kind, migrator, what, delays, moved, done.folios, written, sum);
	tap_ok(moved >= ROUNDS * pages / 4 && delays && done.folios && written > pages,
	       "%s, %s, %s: moved by the batch, and were written to", kind, migrator, what);
	tap_ok(sum == written, "%s, %s, %s: no write is lost", kind, migrator, what);
	memory_drop(&memory);
}

int main(void)
{
	const char *name;

	tap_start();
	nodes_with_memory();
	migrator_needed();
	for (name = migrator_next(NULL); name; name = migrator_next(name)) {
		if (!migrator_copies(name))
			continue;
		for (unsigned int way = 0; way < ARRAY_SIZE(ways); way++) {
			test_unmapped(name, way);
			test_mapped("memory file", name, way);
			test_mapped("memory file, 2048 KiB", name, way);
		}
	}
	return tap_done();
}
