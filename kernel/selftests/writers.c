// SPDX-License-Identifier: GPL-2.0-only
/*
 * writers: drivers write to page-cache folios of memory files through references, with neither
 * the folio lock nor a mapping. The module unlockedwriter does so between the copy of a batch and
 * its moves. Nothing of it is lost where nobody has the folios mapped, nor, if the copy took long
 * (by the module movedelay), where somebody has.
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
#define SOFT_OFFLINE	"/sys/devices/system/memory/soft_offline_page"

/* What is taken off line does not come back. */
#define UNMAPPED_PAGES	8
#define MAPPED_BYTES	(4UL << 20)

/* The stage does without its copy of page-cache folios if that took longer than the window. */
#define WINDOW_MS	10
#define NO_WINDOW_MS	600000
#define DELAY_MS	30

static void writer_start(int fd)
{
	module_need("unlockedwriter", "function=__migrator_copy_folios fd=%d", fd);
}

/* How often the writer added 1 to the first word of a page. */
static long long writer_stop(void)
{
	long long written = file_number(WRITTEN);

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

static void test_unmapped(const char *migrator)
{
	size_t bytes = UNMAPPED_PAGES * page_bytes(), moved = 0;
	uint64_t frames[UNMAPPED_PAGES], now[UNMAPPED_PAGES];
	int fd = memfd_create("unmapped", MFD_CLOEXEC);
	long long written, sum;
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
	writer_start(fd);
	for (size_t n = 0; n < UNMAPPED_PAGES; n++)
		for (int try = 0; try < 10; try++)
			if (!file_write_number(frames[n] * page_bytes(), SOFT_OFFLINE))
				break;
	written = writer_stop();
	at = map_file(fd, bytes);
	page_frames(at, bytes, now);
	for (size_t n = 0; n < UNMAPPED_PAGES; n++)
		moved += now[n] != frames[n];
	sum = sum_of_first_words(at, bytes);
	tap_note("not mapped, %s: %zu of %d pages moved, %lld writes, %lld are there", migrator,
		 moved, UNMAPPED_PAGES, written, sum);
	tap_ok(moved == UNMAPPED_PAGES && written >= UNMAPPED_PAGES,
	       "not mapped, %s: all moved, and were written to meanwhile", migrator);
	tap_ok(sum == written, "not mapped, %s: no write is lost", migrator);
	munmap(at, bytes);
	close(fd);
}

/* Where the delay stays below the window writes are lost: what the window is for. */
static void test_mapped(const char *kind, const char *migrator, unsigned int window_ms)
{
	long long pages = MAPPED_BYTES / page_bytes(), written, sum;
	struct memory memory;
	unsigned int delays;
	size_t left;

	if (!memory_test(&memory, kind_named(kind), MAPPED_BYTES, node_at(0), 0))
		return;
	for (long long n = 0; n < pages; n++)
		memset(memory.at + n * page_bytes(), 0, sizeof(uint64_t));
	file_write_number(window_ms, FILE_WINDOW_MS);
	writer_start(memory.fd);
	delay_start(migrator, DELAY_MS);
	left = memory_move(&memory, node_at(1), 20);
	delays = delay_stop();
	written = writer_stop();
	sum = sum_of_first_words(memory.at, MAPPED_BYTES);
	tap_note("%s, %s, %u ms: %u delays, %zu pages left, %lld writes, %lld are there", kind,
		 migrator, window_ms, delays, left, written, sum);
	tap_ok(!left && delays && written >= pages,
	       "%s, %s: all moved after a delay, and were written to meanwhile", kind, migrator);
	if (window_ms < DELAY_MS)
		tap_ok(sum == written, "%s, %s: no write is lost", kind, migrator);
	else
		tap_ok(sum < written, "%s, %s: without the window writes are lost", kind, migrator);
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
		test_unmapped(name);
		test_mapped("memory file", name, WINDOW_MS);
		test_mapped("memory file", name, NO_WINDOW_MS);
		test_mapped("memory file, 2048 KiB", name, WINDOW_MS);
		test_mapped("memory file, 2048 KiB", name, NO_WINDOW_MS);
	}
	return tap_done();
}
