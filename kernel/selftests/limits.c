// SPDX-License-Identifier: GPL-2.0-only
/*
 * limits: how large a batch gets, told by the trace events. Below min_batch_bytes nothing
 * goes to a migrator, no batch is above max_batch_bytes, and without gather none is above what
 * Linux hands over; mtcopy shares one 2 MiB folio among its lanes, and events, statistics and
 * what moved agree.
 */
#include "batches.h"
#include "engine.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "tap.h"

#include <errno.h>
#include <string.h>

/*
 * The kernel takes single pages off their lists for a moment, for compaction, and then they do
 * not move. New memory moves then, at most so often.
 */
#define ATTEMPTS	5

#define MAX_BATCH_BYTES	MIGRATION "/max_batch_bytes"

/* What the events and the statistics of @migrator say of one move. */
static struct batches counted_move(const char *migrator, const char *kind, size_t bytes,
				   struct stats *done)
{
	struct stats before;
	struct batches seen;
	struct memory memory;
	size_t left, wrong;

	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		memory_need(&memory, kind, bytes, node_at(0), 0);
		before = migrator_stats(migrator);
		left = batches_move(&memory, node_at(1), &seen);
		*done = migrator_since(migrator, before);
		wrong = memory_wrong(&memory, kind);
		memory_drop(&memory);
		if (wrong)
			tap_bail("%s: %zu words are wrong", kind, wrong);
		if (!left)
			return seen;
		tap_note("%s: %zu pages did not move", kind, left);
	}
	tap_bail("%s: pages did not move", kind);
}

static struct batches traced_move(const char *kind, size_t bytes)
{
	struct stats done;

	return counted_move("none", kind, bytes, &done);
}

static void test_min(const char *migrator)
{
	struct batches seen;

	file_need_number(1 << 20, MIN_BATCH_BYTES);
	seen = traced_move("anonymous", (1 << 20) - page_bytes());
	tap_ok(!seen.started && !seen.finished,
	       "%s: a page less than min_batch_bytes is no batch", migrator);
	seen = traced_move("anonymous", 1 << 20);
	tap_ok(seen.started == 1 && seen.bytes == 1 << 20,
	       "%s: exactly min_batch_bytes is a batch", migrator);
	seen = traced_move("ext4 file, written", 2 << 20);
	tap_ok(!seen.started, "%s: what may not be copied does not count", migrator);

	file_need_number(MIN_BATCH, MIN_BATCH_BYTES);
	seen = traced_move("anonymous", page_bytes());
	tap_ok(!seen.started, "%s: by default a single page is no batch", migrator);
	seen = traced_move("anonymous, 64 KiB", 64 << 10);
	tap_ok(!seen.started, "%s: nor is a single folio of 64 KiB", migrator);
	seen = traced_move("anonymous, 2048 KiB", HUGE_BYTES);
	tap_ok(seen.started == 1 && seen.folios == 1 && seen.bytes == (long long)HUGE_BYTES,
	       "%s: a single folio of 2 MiB is one", migrator);
	file_need_number(0, MIN_BATCH_BYTES);
	seen = traced_move("anonymous", page_bytes());
	tap_ok(seen.started == 1 && seen.folios == 1, "%s: with 0 a single page is one", migrator);
}

static void test_max(const char *migrator, const char *kind, long long max, size_t bytes)
{
	struct batches seen;
	struct stats done;
	unsigned int least = (bytes + max - 1) / max;

	file_need_number(max, MAX_BATCH_BYTES);
	seen = counted_move(migrator, kind, bytes, &done);
	tap_note("%s, %s, max %lld: %u batches, largest %lld, smallest %lld, %u lanes", migrator,
		 kind, max, seen.started, seen.largest, seen.smallest, seen.lanes);
	tap_ok(seen.largest <= max && seen.started == least,
	       "%s, %s: %zu bytes in %u batches of %lld bytes at most", migrator, kind, bytes,
	       least, max);
	tap_ok(seen.bytes == (long long)bytes && seen.finished == seen.started,
	       "%s, %s: all of it is copied", migrator, kind);
	tap_ok(done.folios == seen.folios &&
	       done.bytes == seen.bytes && !done.declined && !done.fallbacks,
	       "%s, %s: events and statistics agree", migrator, kind);
	if (!strcmp(migrator, "mtcopy"))
		tap_ok(seen.lane_bytes == seen.bytes, "%s, %s: the lanes' bytes add up", migrator,
		       kind);
	file_need_number(MAX_BATCH, MAX_BATCH_BYTES);
}

/* Linux itself hands over the pages of a THP at most. */
static void test_gather(const char *migrator)
{
	const long long most = file_number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
	struct batches seen;

	if (4 * most > node_bytes(node_at(0))) {
		tap_skip("gather", "a batch of Linux itself has %lld MiB", most >> 20);
		return;
	}
	file_write("1", LARGE_BATCHES);
	file_need_number(2 * most, MAX_BATCH_BYTES);
	file_write("0", LARGE_BATCHES);
	file_write("0", GATHER);
	seen = traced_move("anonymous", 2 * most);
	tap_ok(seen.started == 2 && seen.largest == most && seen.bytes == 2 * most,
	       "%s: without gather no batch is larger than without a migrator", migrator);
	file_write("1", GATHER);
	seen = traced_move("anonymous", 2 * most);
	tap_ok(seen.started == 1 && seen.largest == 2 * most, "%s: with gather it is", migrator);
	file_need_number(MAX_BATCH, MAX_BATCH_BYTES);
}

/* What a batch does not hold is copied in turns. */
static void test_turns(const char *migrator)
{
	const size_t bytes = 72UL << 20, most = 64UL << 20;
	struct batches seen;
	struct stats done;

	tap_ok(file_write_number(1 << 30, MAX_BATCH_BYTES) == -EINVAL,
	       "%s: 1 GiB is no batch", migrator);
	file_write("1", LARGE_BATCHES);
	tap_ok(file_write_number((1 << 30) + (2 << 20), MAX_BATCH_BYTES) == -EINVAL,
	       "%s: nor is more, with large_batches", migrator);
	file_need_number(1 << 30, MAX_BATCH_BYTES);
	seen = counted_move(migrator, "anonymous", bytes, &done);
	tap_note("%s, in turns: %lld bytes in events, %lld in statistics, %lld fallbacks", migrator,
		 seen.bytes, done.bytes, done.fallbacks);
	tap_ok(seen.started == 2 && seen.largest == (long long)most && seen.finished == 2,
	       "%s: the batch of %zu bytes is copied in two turns", migrator, bytes);
	tap_ok(seen.bytes == (long long)bytes && done.bytes == seen.bytes && !done.fallbacks,
	       "%s: in turns, all of it is copied", migrator);
	file_write("0", LARGE_BATCHES);
	file_need_number(MAX_BATCH, MAX_BATCH_BYTES);
}

static void test_lanes(void)
{
	struct batches seen;
	unsigned int best = 0;

	file_write("2", MIGRATION "/mtcopy/lanes");
	/* A helper that is late finds nothing left; so some attempts. */
	for (int try = 0; try < 200 && best < 2; try++) {
		seen = traced_move("anonymous, 2048 KiB", HUGE_BYTES);
		if (seen.lanes > best)
			best = seen.lanes;
	}
	tap_ok(best == 2 && seen.lane_bytes == (long long)HUGE_BYTES && seen.folios == 1,
	       "mtcopy: two lanes copy one folio");
	file_write("1", MIGRATION "/mtcopy/lanes");
	seen = traced_move("anonymous, 2048 KiB", HUGE_BYTES);
	tap_ok(seen.lanes == 1 && seen.lane_bytes == (long long)HUGE_BYTES,
	       "mtcopy: one lane copies it alone");
}

int main(void)
{
	const char *name;

	tap_start();
	nodes_with_memory();
	migrator_needed();
	for (name = migrator_next(NULL); name; name = migrator_next(name)) {
		if (!migrator_copies(name)) {
			struct batches seen = traced_move("anonymous", HUGE_BYTES);

			tap_ok(!seen.started && !seen.finished, "none: no batch");
			continue;
		}
		/* No engine fails here, so however slow the machine is, dcbm waits for it. */
		if (!strcmp(name, "dcbm"))
			dcbm_slack(600000);
		test_min(name);
		test_max(name, "anonymous", 2 << 20, 8 << 20);
		test_max(name, "anonymous", 4 << 20, 8 << 20);
		test_max(name, "anonymous", 8 << 20, 8 << 20);
		test_max(name, "anonymous, 64 KiB", 4 << 20, 8 << 20);
		test_max(name, "anonymous, 2048 KiB", 2 << 20, 8 << 20);
		test_max(name, "anonymous, 2048 KiB", 4 << 20, 8 << 20);
		test_max(name, "anonymous, 2048 KiB", 32 << 20, 16 << 20);
		test_gather(name);
		test_turns(name);
		if (!strcmp(name, "mtcopy"))
			test_lanes();
	}
	return tap_done();
}
