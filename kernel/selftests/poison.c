// SPDX-License-Identifier: GPL-2.0-only
/*
 * poison: a page whose memory failed is in the middle of what moves. The others move, it
 * stays a SIGBUS. And copies of mtcopy that fail, injected with fail_function: those folios
 * are left to the plain copy, nothing is lost, and the statistics say so.
 */
#include "content.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "tap.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES	(4UL << 20)
#define INJECT	"/sys/kernel/debug/fail_function"
#define COPY	"mtcopy_copy_pages"

#ifndef MADV_HWPOISON
#define MADV_HWPOISON 100
#endif

static sigjmp_buf escape;

static void on_bus_error(int number)
{
	(void)number;
	siglongjmp(escape, 1);
}

static void catch_bus_errors(void)
{
	struct sigaction action = { .sa_handler = on_bus_error };

	sigaction(SIGBUS, &action, NULL);
}

/* Whoever has the page is told by a SIGBUS as well. */
static int poison(void *at)
{
	if (sigsetjmp(escape, 1))
		return 0;
	return madvise(at, page_bytes(), MADV_HWPOISON) ? -errno : 0;
}

static bool gives_bus_error(const volatile unsigned char *at)
{
	if (sigsetjmp(escape, 1))
		return true;
	(void)*at;
	return false;
}

static void test_poison(const char *name, const char *migrator)
{
	size_t page = page_bytes(), middle = BYTES / 2 / page * page;
	struct content *before, *after;
	struct stats stats, done;
	struct memory memory;
	size_t wrong;
	int error;

	if (!memory_make(&memory, kind_named(name), BYTES, node_at(0), 0)) {
		tap_ok(false, "%s, %s: cannot be made", name, migrator);
		return;
	}
	before = content_new(memory.at, middle, 1);
	after = content_new(memory.at + middle + page, BYTES - middle - page, 1);
	content_fill(before);
	content_fill(after);
	error = poison(memory.at + middle);
	if (!tap_ok(!error, "%s, %s: a page is poisoned", name, migrator))
		tap_note("MADV_HWPOISON: %s", strerror(-error));
	stats = migrator_stats(migrator, NULL);
	content_start_writers(before);
	content_start_writers(after);
	memory_move(&memory, node_at(1), 20);
	content_stop_writers(before);
	content_stop_writers(after);
	done = migrator_since(migrator, NULL, stats);
	tap_ok(pages_on(memory.at, middle, node_at(1)) == middle / page &&
	       pages_on(memory.at + middle + page, BYTES - middle - page, node_at(1)) ==
	       (BYTES - middle) / page - 1, "%s, %s: the others moved", name, migrator);
	tap_ok(gives_bus_error(memory.at + middle), "%s, %s: the poisoned one is a SIGBUS", name,
	       migrator);
	wrong = content_wrong(before, name) + content_wrong(after, name);
	tap_ok(!wrong, "%s, %s: contents of the others", name, migrator);
	if (migrator_copies(migrator))
		tap_ok(done.folios > 0, "%s, %s: copied by the migrator", name, migrator);
	content_free(before);
	content_free(after);
	/* The file behind it cannot be read at that page. */
	munmap(memory.at, memory.bytes);
	if (memory.fd >= 0)
		close(memory.fd);
	content_free(memory.content);
}

/* So many copies fail at most, -1: no limit. */
static int inject(int per_cent, int times)
{
	static const char *const settings[][2] = {
		{ "1", "interval" },
		{ "0", "space" },
		{ "0", "verbose" },
		{ "N", "task-filter" },
	};
	char failure[32];
	int error;

	for (unsigned int n = 0; n < ARRAY_SIZE(settings); n++)
		file_write(settings[n][0], INJECT "/%s", settings[n][1]);
	file_write_number(times, INJECT "/times");
	error = file_write_number(per_cent, INJECT "/probability");
	if (!error)
		error = file_write(COPY, INJECT "/inject");
	if (error)
		return error;
	snprintf(failure, sizeof(failure), "%#lx", -(unsigned long)EHWPOISON);
	return file_write(failure, INJECT "/" COPY "/retval");
}

/* Whether what the statistics say can come of failures like these. */
static bool right_stats(struct stats done, int per_cent, int times, long long folios)
{
	if (times == 1)
		return done.fallbacks == 1 && done.folios == folios - 1;
	if (per_cent == 100)
		return !done.folios && !done.batches && done.fallbacks == folios;
	return done.folios > 0 && done.fallbacks > 0 && done.folios + done.fallbacks == folios;
}

static void test_injected(const char *name, int per_cent, int times)
{
	struct stats before, done;
	struct memory memory;
	size_t left, wrong, folios;
	char what[96];
	int error;

	snprintf(what, sizeof(what), "%s, %d%% of copies fail%s", name, per_cent,
		 times == 1 ? " once" : "");
	if (!memory_make(&memory, kind_named(name), BYTES, node_at(0), 0)) {
		tap_ok(false, "%s: cannot be made", what);
		return;
	}
	folios = memory_folios_wanted(&memory);
	/* fail_function counts down without a lock: two lanes at once could both be the one. */
	if (times == 1)
		file_write("1", MIGRATION "/mtcopy/lanes");
	error = inject(per_cent, times);
	if (error)
		tap_note("fail_function does not take " COPY ": %s", strerror(-error));
	before = migrator_stats("mtcopy", NULL);
	left = memory_move(&memory, node_at(1), 20);
	done = migrator_since("mtcopy", NULL, before);
	file_write("", INJECT "/inject");
	if (times == 1)
		file_write("2", MIGRATION "/mtcopy/lanes");
	wrong = memory_wrong(&memory, name);
	tap_note("%s: folios %lld, fallbacks %lld, declined %lld", what, done.folios,
		 done.fallbacks, done.declined);
	tap_ok(!error && !left, "%s: every page moved", what);
	tap_ok(!wrong && memory_folios(&memory) == folios, "%s: contents, whole folios", what);
	tap_ok(right_stats(done, per_cent, times, folios),
	       "%s: these folios are left to the plain copy", what);
	memory_drop(&memory);
}

int main(void)
{
	static const char *const names[] = { "anonymous", "memory file" };
	const char *name;

	tap_start();
	nodes_with_memory();
	mount_once("debugfs", "/sys/kernel/debug");
	catch_bus_errors();
	for (name = migrator_next(NULL); name; name = migrator_next(name)) {
		for (int n = 0; n < 2; n++)
			test_poison(names[n], name);
		if (strcmp(name, "mtcopy"))
			continue;
		test_injected("anonymous", 30, -1);
		test_injected("memory file", 30, -1);
		test_injected("anonymous, 64 KiB", 100, -1);
		test_injected("anonymous, 2048 KiB", 100, -1);
		/* 2 MiB are copied in many parts; one that fails fails the folio. */
		test_injected("anonymous, 2048 KiB", 100, 1);
	}
	return tap_done();
}
