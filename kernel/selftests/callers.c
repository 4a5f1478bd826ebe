// SPDX-License-Identifier: GPL-2.0-only
/*
 * callers NAME...: everyone in Linux who migrates pages does it, with each migrator, while
 * writers change what moves. Page frames before and after say what moved. `reasons` must let
 * the caller's batches through when it names the reason, and stop them when it does not.
 */
#include "blocks.h"
#include "cgroup.h"
#include "clock.h"
#include "content.h"
#include "damon.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "pages.h"
#include "range.h"
#include "ring.h"
#include "tap.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES		(4UL << 20)

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif

/* How long the kernel may take to come round to it. */
#define PATIENCE_MS	120000

/**
 * struct caller - who migrates
 * @least: per cent of the pages that must have moved
 * @pause_us: of the writers, for callers that take only what is not in use
 * @make: another way to make the range, or NULL; false if this machine cannot, after a note
 * @run: lets the caller migrate
 * @drop: what is more to do than to unmap, or NULL
 */
struct caller {
	const char *name;
	const char *reason;
	unsigned int least;
	unsigned int writers;
	unsigned int pause_us;
	bool (*make)(struct range *range);
	void (*run)(struct range *range);
	void (*drop)(struct range *range);
};

static bool make_on(struct range *range, int node)
{
	return range_make(range, BYTES, node, false);
}

static bool make_first(struct range *range)
{
	return make_on(range, node_at(0));
}

static bool make_slow(struct range *range)
{
	return node_slow() >= 0 && make_on(range, node_slow());
}

static void run_move_pages(struct range *range)
{
	/* With writers some pages may be busy for a moment. */
	wait_until(!move_range(range->at, range->bytes, 0, node_at(1), MPOL_MF_MOVE, 20),
		   PATIENCE_MS, 1000);
}

static void run_mbind(struct range *range)
{
	wait_until(!bind_range(range->at, range->bytes, MPOL_BIND, node_at(1),
			       MPOL_MF_MOVE | MPOL_MF_STRICT) ||
		   range_moved_percent(range) >= 90, PATIENCE_MS, 1000);
}

static void run_migrate_pages(struct range *range)
{
	wait_until(!migrate_process(0, node_at(0), node_at(1)) ||
		   range_moved_percent(range) >= 90, PATIENCE_MS, 1000);
}

static bool make_cpuset(struct range *range)
{
	range_enter_cpuset();
	return make_first(range);
}

static void run_cpuset(struct range *range)
{
	file_write_number(node_at(1), "%s/cpuset/cpuset.mems", cgroup_root());
	/* The kernel does it in the background. */
	wait_until(range_moved_percent(range) >= 90, PATIENCE_MS, 10000);
}

struct place {
	uint64_t frame;
	unsigned char *at;
};

static int by_frame(const void *one, const void *other)
{
	const struct place *a = one, *b = other;

	return (a->frame > b->frame) - (a->frame < b->frame);
}

/*
 * Compaction moves pages from a zone's start into gaps towards its end, and leaves pageblocks
 * alone that are free as a whole. So the range is made of the lowest of many pages, and the
 * highest half of them gets gaps.
 */
static bool make_low(struct range *range)
{
	size_t page = page_bytes(), wanted = range->bytes / page, count;
	long long others = node_movable_bytes(node_at(1));
	struct place *places;

	/*
	 * A quarter of the filler becomes gaps. The pages of programs and files that lie below
	 * the range go first, and may take as many as they are.
	 */
	count = 4 * ((others > 0 ? others / page : 0) + 2 * wanted);
	if ((long long)(count * page) >
	    node_free_bytes(node_at(1)) - 2 * node_reserve_bytes(node_at(1))) {
		tap_note("node %d has no room for gaps of %zu pages", node_at(1), count / 4);
		return false;
	}
	places = calloc(count, sizeof(*places));
	if (!places)
		tap_bail("no memory for %zu places", count);
	/* The gaps would stay on per-CPU lists, where compaction does not see them. */
	file_write("1000000", PER_CPU_LISTS);
	range->at = map_anonymous(range->bytes, false);
	range->filler_bytes = count * page;
	range->filler = map_anonymous(range->filler_bytes, false);
	populate_on(node_at(1), range->filler, range->filler_bytes);
	for (size_t n = 0; n < count; n++) {
		places[n].at = range->filler + n * page;
		places[n].frame = page_frame(places[n].at);
	}
	qsort(places, count, sizeof(*places), by_frame);
	for (size_t n = 0; n < count; n++) {
		if (n < wanted)
			/* A hole would be taken by the stack of a writer. */
			mremap(places[n].at, page, page,
			       MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
			       range->at + n * page);
		else if (n < count / 2 || places[n].frame / 128 % 2)
			madvise(places[n].at, page, MADV_DONTNEED);
	}
	free(places);
	return pages_on(range->at, range->bytes, node_at(1)) == wanted;
}

static void drop_low(struct range *range)
{
	range_drop_filler(range);
	file_write("0", PER_CPU_LISTS);
}

/*
 * The gaps reach the zone when the per-CPU lists are drained, which the kernel does for an idle
 * CPU within some seconds: until then compaction may find nowhere to move to.
 */
static void run_compaction(struct range *range)
{
	wait_until((file_write("1", "/sys/devices/system/node/node%d/compact", node_at(1)),
		    range_moved_percent(range) >= 90), PATIENCE_MS, 100000);
}

static bool make_demotable(struct range *range)
{
	if (node_slow() < 0 || file_set("1", "/sys/kernel/mm/numa/demotion_enabled"))
		return false;
	cgroup_make("demotion");
	cgroup_enter("demotion");
	return make_first(range);
}

static void run_demotion(struct range *range)
{
	size_t visits = content_visits(range->content);
	long long end = now_ms() + PATIENCE_MS;

	/* Pages can be quicker than the writer, who pauses. */
	while (now_ms() < end &&
	       (range_moved_percent(range) < 60 || content_visits(range->content) == visits))
		file_write_number(range->bytes / 4, "%s/demotion/memory.reclaim", cgroup_root());
}

/* From slower memory to its users; where all memory is as fast, from the node where they are not. */
static bool make_misplaced(struct range *range)
{
	return node_slow() >= 0 ? make_slow(range) : make_on(range, node_at(1));
}

static void run_misplaced(struct range *range)
{
	file_set(node_slow() >= 0 ? "2" : "1", "/proc/sys/kernel/numa_balancing");
	wait_until(range_moved_percent(range) >= 60, PATIENCE_MS, 20000);
	file_write("0", "/proc/sys/kernel/numa_balancing");
}

static size_t in_block(const struct range *range, int block)
{
	size_t found = 0;

	for (size_t n = 0; n < range->bytes / page_bytes(); n++)
		found += block_has(block, page_frame(range->at + n * page_bytes()));
	return found;
}

static bool make_block(struct range *range)
{
	int node;

	if (!block_make_movable(&range->block, &node) || !make_on(range, node))
		return false;
	tap_note("%zu of %zu pages lie in memory block %d of node %d",
		 in_block(range, range->block), range->bytes / page_bytes(), range->block, node);
	return in_block(range, range->block) == range->bytes / page_bytes();
}

static void run_offline(struct range *range)
{
	int error = -EBUSY;

	for (int try = 0; try < 5 && error; try++)
		error = block_state(range->block, "offline");
	tap_ok(!error, "memory block %d is offline", range->block);
	tap_ok(!in_block(range, range->block), "nothing is left in memory block %d",
	       range->block);
}

static void run_pin(struct range *range)
{
	int error;

	range->ring = ring_new();
	/* With a writer a page may be busy for a moment, and the kernel then pins none. */
	wait_until(!(error = ring_pin(range->ring, range->at, range->bytes)), PATIENCE_MS, 100000);
	tap_ok(!error, "pages in movable memory can be pinned for long");
}

static size_t in_cma(const struct range *range)
{
	return cma_pages(&range->area, range->at, range->bytes);
}

#define TRIES	8

/*
 * Each CPU has a list of its own, from before: what is got from there first is kept until enough
 * comes from the area.
 */
static bool make_in_cma(struct range *range, int node)
{
	void *kept[TRIES];
	unsigned int nr = 0;
	bool good, enough;

	do {
		good = make_on(range, node);
		enough = in_cma(range) * page_bytes() >= range->bytes / 4;
		tap_note("%zu of %zu pages lie in CMA area '%s'", in_cma(range),
			 range->bytes / page_bytes(), range->area.name);
		if (good && !enough)
			kept[nr++] = range->at;
	} while (good && !enough && nr < TRIES);
	/* The last one is the range, and unmapped as such. */
	for (unsigned int n = 0; n < nr; n++)
		if (kept[n] != range->at)
			munmap(kept[n], range->bytes);
	return good && enough;
}

/* Keeps the task on the CPU where it is; @before is where it may run. */
static void stay_here(cpu_set_t *before)
{
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	if (sched_getaffinity(0, sizeof(*before), before) ||
	    sched_setaffinity(0, sizeof(here), &here))
		tap_bail("the task cannot stay on its CPU: %s", strerror(errno));
}

static bool make_cma(struct range *range)
{
	cpu_set_t before;
	size_t small;
	bool good;

	if (!cma_find(&range->area))
		return false;
	/* Else what one pass gave back would be on per-CPU lists in the next. */
	file_write("1000000", PER_CPU_LISTS);
	/* The range has to come from the list that filling turned to the area. */
	stay_here(&before);
	range->filler = cma_fill(&range->area, 25, &range->filler_bytes, &small);
	good = make_in_cma(range, range->area.node);
	sched_setaffinity(0, sizeof(before), &before);
	return good;
}

static void run_cma(struct range *range)
{
	bool taken;

	range_drop_filler(range);
	taken = cma_take(&range->area);
	tap_ok(taken && !in_cma(range), "nothing is left in CMA area '%s'", range->area.name);
}

static void drop_cma(struct range *range)
{
	drop_low(range);
	cma_give(&range->area);
}

/* The kernel lends CMA's pages to nobody for long. */
static void run_pin_cma(struct range *range)
{
	range_drop_filler(range);
	run_pin(range);
	tap_ok(!in_cma(range), "nothing pinned is left in CMA area '%s'", range->area.name);
}

static void drop_pin_cma(struct range *range)
{
	if (range->ring)
		ring_free(range->ring);
	drop_low(range);
}

static void run_soft_offline(struct range *range)
{
	/* One page: what is taken off line does not come back. */
	wait_until((madvise(range->at, page_bytes(), MADV_SOFT_OFFLINE), range_moved(range)),
		   PATIENCE_MS, 1000);
}

static void run_damon(struct range *range)
{
	damon_start(range->frames, range->bytes / page_bytes(), node_at(1));
	wait_until(range_moved_percent(range) >= 60, PATIENCE_MS, 20000);
	damon_stop();
}

static const struct caller callers[] = {
	{ "move_pages", "syscall_or_cpuset", .least = 100, .writers = 2, .run = run_move_pages },
	{ "migrate_pages", "syscall_or_cpuset", .least = 90, .writers = 2,
	  .run = run_migrate_pages },
	{ "cpuset", "syscall_or_cpuset", .least = 80, .writers = 2, .make = make_cpuset,
	  .run = run_cpuset, .drop = range_leave_group },
	{ "mbind", "mempolicy_mbind", .least = 90, .writers = 2, .run = run_mbind },
	{ "compaction", "compaction", .least = 50, .writers = 2, .make = make_low,
	  .run = run_compaction, .drop = drop_low },
	{ "soft-offline", "memory_failure", .writers = 2, .run = run_soft_offline },
	{ "hotplug", "memory_hotplug", .least = 100, .writers = 2, .make = make_block,
	  .run = run_offline, .drop = range_drop_block },
	{ "pin", "longterm_pin", .least = 100, .writers = 1, .pause_us = 1000,
	  .make = make_block, .run = run_pin, .drop = range_drop_pin },
	{ "cma", "contig_range", .least = 25, .writers = 2, .make = make_cma, .run = run_cma,
	  .drop = drop_cma },
	{ "pin-cma", "longterm_pin", .least = 25, .writers = 1, .pause_us = 1000,
	  .make = make_cma, .run = run_pin_cma, .drop = drop_pin_cma },
	{ "demotion", "demotion", .least = 50, .writers = 1, .pause_us = 100000,
	  .make = make_demotable, .run = run_demotion, .drop = range_leave_group },
	{ "promotion", "numa_misplaced", .least = 50, .writers = 2, .make = make_misplaced,
	  .run = run_misplaced },
	{ "damon", "damon", .least = 50, .writers = 1, .pause_us = 1000, .run = run_damon },
};

#define NR_CALLERS	ARRAY_SIZE(callers)

/* One reason alone has the migrator, or all but it. */
static void choose_reasons(const char *reason, bool allowed)
{
	char text[128];

	if (!migrator_kernel())
		return;
	snprintf(text, sizeof(text), "all %s\n%s %s\n", allowed ? "none" : "default", reason,
		 allowed ? "default" : "none");
	file_need(text, MIGRATION "/reasons");
}

static void test(const struct caller *caller, const char *migrator, bool allowed)
{
	struct range range = { .bytes = BYTES, .block = -1 };
	struct stats done;
	size_t pages = BYTES / page_bytes(), changed, wrong, visits;
	char what[96];

	snprintf(what, sizeof(what), "%s, %s%s", caller->name, migrator,
		 allowed ? "" : ", other reasons only");
	if (!(caller->make ? caller->make : make_first)(&range)) {
		tap_ok(false, "%s: this machine cannot", what);
		goto drop;
	}
	range.content = content_new(range.at, range.bytes, caller->writers);
	range.content->pause_us = caller->pause_us;
	content_fill(range.content);
	range_remember(&range);
	choose_reasons(caller->reason, allowed);
	done = migrator_stats(migrator);
	content_start_writers(range.content);
	/* All of it is in use from the beginning. */
	while (content_visits(range.content) < pages)
		usleep(1000);
	visits = content_visits(range.content);
	caller->run(&range);
	/* Who met a page that was moving waits until that is over, and goes on. */
	wait_until(content_visits(range.content) > visits, PATIENCE_MS, 1000);
	visits = content_visits(range.content) - visits;
	content_stop_writers(range.content);
	changed = range_moved(&range);
	done = migrator_since(migrator, done);
	wrong = content_wrong(range.content, what);
	tap_note("%s: %zu of %zu pages moved; folios %lld, fallbacks %lld, declined %lld",
		 what, changed, pages, done.folios, done.fallbacks, done.declined);
	tap_ok(changed && changed * 100 >= pages * caller->least, "%s: pages moved", what);
	tap_ok(!wrong && visits, "%s: contents, %zu pages written", what, visits);
	/* `reasons` lets no other reason through, or all but this one. */
	if (migrator_copies(migrator))
		tap_ok(!done.folios != allowed, "%s: %scopied by the migrator", what,
		       allowed ? "" : "not ");
	content_free(range.content);
drop:
	if (caller->drop)
		caller->drop(&range);
	range_drop(&range);
}

static void test_all(const struct caller *caller)
{
	const char *name;

	for (name = migrator_next(NULL); name; name = migrator_next(name)) {
		test(caller, name, true);
		/* Who is asked after the reason does not depend on the migrator. */
		if (!strcmp(name, "kernel"))
			test(caller, name, false);
	}
	if (!migrator_kernel())
		return;
	/* "auto", made to use CPUs and channels together: else so few batches are all plain. */
	migrator_need("auto");
	migrator_eager();
	file_need("204", AUTO_LANES);
	test(caller, "auto", true);
	migrator_defaults();
}

int main(int argc, char **argv)
{
	tap_start();
	nodes_with_memory();
	if (argc < 2)
		tap_bail("say which callers");
	for (int n = 1; n < argc; n++) {
		unsigned int i = 0;

		while (i < NR_CALLERS && strcmp(argv[n], callers[i].name))
			i++;
		if (i == NR_CALLERS)
			tap_bail("nobody is called '%s'", argv[n]);
		test_all(&callers[i]);
	}
	return tap_done();
}
