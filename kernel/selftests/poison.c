// SPDX-License-Identifier: GPL-2.0-only
/*
 * poison: a page whose memory failed is in the middle of what moves. The others move, it
 * stays a SIGBUS. A page that fails while a batch is copied is reported, and not read again in
 * this attempt. And copies of mtcopy that fail, injected with fail_function: those folios do not
 * move in this attempt, nothing is lost, and the statistics say so.
 */
#include "content.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "modules.h"
#include "nodes.h"
#include "pages.h"
#include "tap.h"

#include <errno.h>
#include <inttypes.h>
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

	if (!memory_test(&memory, kind_named(name), BYTES, node_at(0), 0))
		return;
	before = content_new(memory.at, middle, 1);
	after = content_new(memory.at + middle + page, BYTES - middle - page, 1);
	content_fill(before);
	content_fill(after);
	error = poison(memory.at + middle);
	if (!tap_ok(!error, "%s, %s: a page is poisoned", name, migrator))
		tap_note("MADV_HWPOISON: %s", strerror(-error));
	stats = migrator_stats(migrator);
	content_start_writers(before);
	content_start_writers(after);
	memory_move(&memory, node_at(1), 20);
	content_stop_writers(before);
	content_stop_writers(after);
	done = migrator_since(migrator, stats);
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
	memory_drop(&memory);
}

#define BADPAGE		"/sys/module/badpage/parameters"

#ifdef __x86_64__
#define COPIES_SURVIVE	true
#else
#define COPIES_SURVIVE	false
#endif

/*
 * One call of move_pages(2) is two attempts at most: with the batch, and by itself, which is too
 * small for the migrator. An attempt reads and reports the page once, with any migrator and none.
 */
#define ATTEMPTS	2

static void test_machine_check(const char *name, const char *migrator)
{
	size_t page = page_bytes(), bad = BYTES / 2 + 5 * page, folio, wrong;
	struct content *before, *after;
	struct stats stats, done;
	long long reads, reports;
	struct memory memory;
	int error;

	if (!COPIES_SURVIVE) {
		tap_skip(name, "no copy of this architecture survives a machine check");
		return;
	}
	if (!memory_test(&memory, kind_named(name), BYTES, node_at(0), 0))
		return;
	folio = bad / memory.folio * memory.folio;
	before = content_new(memory.at, folio, 0);
	after = content_new(memory.at + folio + memory.folio, BYTES - folio - memory.folio, 0);
	content_fill(before);
	content_fill(after);
	module_need("badpage", "pfn=%" PRIu64, page_frame(memory.at + bad));
	if (migrator_copies(migrator))
		file_write_number(MIN_BATCH, MIN_BATCH_BYTES);
	stats = migrator_stats(migrator);
	memory_move(&memory, node_at(1), 1);
	done = migrator_since(migrator, stats);
	reads = file_number(BADPAGE "/reads");
	reports = file_number(BADPAGE "/reports");
	error = module_unload("badpage");
	if (migrator_copies(migrator))
		file_write_number(0, MIN_BATCH_BYTES);
	wrong = content_wrong(before, name) + content_wrong(after, name);
	tap_note("%s, %s: the bad page was read %lld times and reported %lld times; folios %lld, fallbacks %lld",
		 name, migrator, reads, reports, done.folios, done.fallbacks);
	tap_ok(!error && reads > 0 && reads <= ATTEMPTS && reports == reads,
	       "%s, %s: an attempt reads and reports the page once", name, migrator);
	tap_ok(!wrong && pages_on(memory.at, folio, node_at(1)) == folio / page,
	       "%s, %s: the others moved, with their contents", name, migrator);
	if (migrator_copies(migrator))
		tap_ok(done.fallbacks == 1, "%s, %s: it is counted once", name, migrator);
	content_free(before);
	content_free(after);
	memory_drop(&memory);
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

/*
 * Whether the statistics fit: an attempt that met poison fails, so the folio is not read again by
 * its move, and the next attempt brings it to the migrator anew.
 */
static bool right_stats(struct stats done, int per_cent, int times, long long folios)
{
	if (times == 1)
		return done.fallbacks == 1 && done.folios == folios;
	if (per_cent == 100)
		return !done.folios && done.fallbacks >= folios;
	return done.folios == folios && done.fallbacks > 0;
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
	if (!memory_test(&memory, kind_named(name), BYTES, node_at(0), 0))
		return;
	folios = memory_folios_wanted(&memory);
	/* fail_function counts down without a lock: two lanes at once could both be the one. */
	if (times == 1)
		file_write("1", MIGRATION "/mtcopy/lanes");
	error = inject(per_cent, times);
	if (error)
		tap_note("fail_function does not take " COPY ": %s", strerror(-error));
	before = migrator_stats("mtcopy");
	left = memory_move(&memory, node_at(1), 20);
	done = migrator_since("mtcopy", before);
	file_write("", INJECT "/inject");
	if (times == 1)
		file_write("2", MIGRATION "/mtcopy/lanes");
	wrong = memory_wrong(&memory, name);
	tap_note("%s: folios %lld, fallbacks %lld, declined %lld", what, done.folios,
		 done.fallbacks, done.declined);
	if (per_cent == 100 && times < 0)
		tap_ok(!error && left == BYTES / page_bytes(), "%s: no page moved", what);
	else
		tap_ok(!error && !left, "%s: every page moved", what);
	/* Linux splits folios of 64 KiB that were unmapped, also if they then stay. */
	tap_ok(!wrong && (left || memory_folios(&memory) == folios), "%s: contents, whole folios",
	       what);
	tap_ok(right_stats(done, per_cent, times, folios),
	       "%s: these attempts fail, no plain copy reads the folio again", what);
	memory_drop(&memory);
}

int main(void)
{
	static const char *const names[] = { "anonymous", "memory file" };
	const char *name;

	tap_start();
	nodes_with_memory();
	catch_bus_errors();
	for (name = migrator_next(NULL); name; name = migrator_next(name)) {
		for (int n = 0; n < 2; n++)
			test_poison(names[n], name);
		/* A DMA engine does not see it. */
		if (strcmp(name, "dcbm")) {
			test_machine_check("anonymous", name);
			test_machine_check("anonymous, 64 KiB", name);
			test_machine_check("memory file", name);
		}
		if (strcmp(name, "mtcopy"))
			continue;
		test_injected("anonymous", 30, -1);
		test_injected("memory file", 30, -1);
		test_injected("anonymous, 64 KiB", 100, -1);
		test_injected("anonymous, 2048 KiB", 100, -1);
		/* 2 MiB are copied in many parts; one that fails fails the folio. */
		if (page_bytes() == 4096)
			test_injected("anonymous, 2048 KiB", 100, 1);
		else
			tap_skip("a copy fails once",
				 "Linux 6.12 splits 2 MiB that no single entry maps before it tries again");
	}
	return tap_done();
}
