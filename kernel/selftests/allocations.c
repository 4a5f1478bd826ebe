// SPDX-License-Identifier: GPL-2.0-only
/*
 * allocations: a migrator allocates no memory while it copies. Every allocation of the
 * kernel is traced, slab and pages; there must be none by the migrating task between the
 * start and the end of a batch (for dcbm that is with an engine which allocates nothing either),
 * and none by a worker of mtcopy inside its work. Outside the
 * batches the same trace has to see many: the pages that the batches go to.
 */
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "tap.h"
#include "trace.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES		(8UL << 20)
#define MAX_PIDS	(1 << 16)

struct counts {
	unsigned int batches;
	unsigned int works;		/* of mtcopy, by workers */
	unsigned int inside;		/* allocations in a batch */
	unsigned int by_workers;	/* in a work of mtcopy */
	unsigned int outside;		/* of the task, elsewhere */
};

static bool allocates(const struct trace_event *event)
{
	return trace_is(event, "kmalloc") || trace_is(event, "kmem_cache_alloc") ||
	       trace_is(event, "mm_page_alloc");
}

static struct counts count(const struct trace_event *events, size_t nr)
{
	static bool working[MAX_PIDS];
	struct counts counts = { 0 };
	bool batch = false;

	memset(working, 0, sizeof(working));
	for (size_t n = 0; n < nr; n++) {
		const struct trace_event *event = &events[n];
		bool *works = &working[event->pid % MAX_PIDS];
		const char *from = "";

		if (event->pid == getpid()) {
			if (trace_is(event, "migrator_batch_start"))
				batch = true, counts.batches++;
			else if (trace_is(event, "migrator_batch_done"))
				batch = false;
			else if (allocates(event) && batch)
				counts.inside++, from = "in a batch";
			else if (allocates(event))
				counts.outside++;
		} else if (trace_is(event, "workqueue_execute_start")) {
			*works = strstr(event->fields, "mtcopy");
			counts.works += *works;
		} else if (trace_is(event, "workqueue_execute_end")) {
			*works = false;
		} else if (allocates(event) && *works) {
			counts.by_workers++, from = "by a worker";
		}
		if (from[0] && counts.inside + counts.by_workers <= 4)
			tap_note("%s: %s %s", from, event->name, event->fields);
	}
	return counts;
}

/*
 * The kernel takes single pages off their lists for a moment, for compaction, and then they do
 * not move. New memory moves then, at most so often.
 */
#define ATTEMPTS	5

/* Traces one move; false if a page stayed. */
static bool try_move(const char *kind, struct counts *counts)
{
	static const char *const names[] = {
		"migrator", "kmem/kmalloc", "kmem/kmem_cache_alloc", "kmem/mm_page_alloc",
		"workqueue/workqueue_execute_start", "workqueue/workqueue_execute_end", NULL,
	};
	struct trace_event *events;
	struct memory memory;
	size_t nr, left;

	memory_need(&memory, kind, BYTES, node_at(0), 0);
	trace_start(names);
	left = memory_move(&memory, node_at(1), 1);
	nr = trace_stop(&events);
	if (memory_wrong(&memory, kind))
		tap_bail("%s: contents are wrong", kind);
	if (left)
		tap_note("%s: %zu pages did not move", kind, left);
	else
		*counts = count(events, nr);
	free(events);
	memory_drop(&memory);
	return !left;
}

static struct counts traced_move(const char *kind)
{
	struct counts counts;

	for (int attempt = 0; attempt < ATTEMPTS; attempt++)
		if (try_move(kind, &counts))
			return counts;
	tap_bail("%s: pages did not move", kind);
}

/* Moves for one result, at most: a worker may come too late for a batch that is copied soon. */
#define TRIES		300

static void test(const char *kind, const char *migrator)
{
	bool workers = !strcmp(migrator, "mtcopy");
	struct counts counts = traced_move(kind), more;

	for (int try = 1; workers && !counts.works && try < TRIES; try++) {
		more = traced_move(kind);
		counts.batches += more.batches;
		counts.works += more.works;
		counts.inside += more.inside;
		counts.by_workers += more.by_workers;
		counts.outside += more.outside;
	}
	tap_note("%s, %s: %u batches, %u works; %u allocations inside, %u by workers, %u outside",
		 kind, migrator, counts.batches, counts.works, counts.inside, counts.by_workers,
		 counts.outside);
	tap_ok(counts.batches && counts.outside, "%s, %s: batches and allocations are seen", kind,
	       migrator);
	/* The debug kernel's checker of mappings does, for each page of them. */
	if (!strcmp(migrator, "dcbm") && file_exists("/sys/kernel/debug/dma-api"))
		tap_skip("no allocation in a batch of dcbm", "DMA_API_DEBUG allocates there");
	else
		tap_ok(!counts.inside, "%s, %s: no allocation in a batch", kind, migrator);
	if (workers)
		tap_ok(counts.works && !counts.by_workers,
		       "%s, %s: no allocation in %u works", kind, migrator, counts.works);
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
		test("anonymous", name);
		test("anonymous, 64 KiB", name);
		test("anonymous, 2048 KiB", name);
		test("memory file", name);
	}
	return tap_done();
}
