// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_stalls: a hot huge page that finds no free block, or that somebody has a reference to,
 * stays where it is, and nothing behind it does. Nor does kmigrated reclaim or compact memory
 * itself while it has folios isolated: it wakes kcompactd. And the scan of page tables does not
 * interrupt a CPU that is isolated.
 */
#include "cgroup.h"
#include "clock.h"
#include "content.h"
#include "files.h"
#include "memory.h"
#include "nodes.h"
#include "pages.h"
#include "pghot.h"
#include "ring.h"
#include "tap.h"
#include "task.h"
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define BASE_BYTES	(8UL << 20)
#define ALONE_BYTES	(4UL << 20)
#define MIXED_BYTES	(32UL << 20)
#define FRESH_BYTES	(64UL << 20)
#define FRESH_STEP	(1UL << 20)
/* It takes seconds; minutes are for kernels with checkers. */
#define PATIENCE_MS	120000
/* Of each of these a page stays: blocks of 2 MiB and pages of a virtual range need not coincide. */
#define HOLD_BYTES	(512UL << 10)
/* More blocks than what a node keeps free can have. */
#define REST		64
/* Areas of CMA hold part of what is free, and not everybody can use it. */
#define SPARE		(16LL << 20)
/* A level of frequency fades in half of this, so what is used so seldom never has all. */
#define SELDOM_US	800000
/* After a failure a folio is left alone for a round, then twice as long, up to so many times. */
#define ROUND_MS	250
#define ROUNDS_MAX	16
#define WAITS		5
/* A wait ends with a round, and the try comes late in it. All of them together. */
#define LATE_MS		(2 * ROUND_MS)
#define HELD_MS		(31 * ROUND_MS + WAITS * LATE_MS)

#define KEPT		"/proc/sys/vm/percpu_pagelist_high_fraction"
#define PROACTIVE	"/proc/sys/vm/compaction_proactiveness"
#define DEMOTION	"/sys/kernel/mm/numa/demotion_enabled"
#define DEFRAG		"/sys/kernel/mm/transparent_hugepage/defrag"

static const char *const events[] = {
	"compaction/mm_compaction_begin",
	"compaction/mm_compaction_wakeup_kcompactd",
	"vmscan/mm_vmscan_direct_reclaim_begin",
	NULL,
};

static const char *const isolations[] = { "pghot/pghot_isolated", NULL };

static size_t up(const struct content *content)
{
	return pages_off(content->at, content->bytes, node_slow());
}

/* References to one page of each @stride bytes, held by a pipe: nobody can move these pages. */
static int hold(unsigned char *at, size_t bytes, size_t stride)
{
	size_t nr = bytes / stride, done = 0;
	int pipes[2];

	if (pipe2(pipes, O_CLOEXEC) ||
	    fcntl(pipes[1], F_SETPIPE_SZ, nr * page_bytes()) < (int)(nr * page_bytes()))
		tap_bail("no pipe for %zu pages: %s", nr, strerror(errno));
	for (; done < nr; done++) {
		struct iovec page = { at + done * stride, page_bytes() };

		if (vmsplice(pipes[1], &page, 1, SPLICE_F_NONBLOCK) != (ssize_t)page_bytes())
			tap_bail("the pipe took %zu pages: %s", done, strerror(errno));
	}
	close(pipes[1]);
	return pipes[0];
}

/* Leaves a node what it keeps free, and @spare bytes. */
static unsigned char *fill(int node, bool huge, long long spare, size_t *bytes)
{
	unsigned char *at = map_anonymous(node_bytes(node), huge);
	int quiet = 0;

	*bytes = 0;
	/* Not the task's policy, which page tables have as well. */
	bind_range(at, node_bytes(node), MPOL_BIND, node, 0);
	while (quiet < 3) {
		long long free = node_free_bytes(node) - node_reserve_bytes(node) - spare;
		size_t end = *bytes + (free > 0 ? free / page_bytes() * page_bytes() : 0);

		quiet = end - *bytes < HUGE_BYTES ? quiet + 1 : 0;
		for (; *bytes < end; *bytes += page_bytes())
			at[*bytes] = 1;
		/* CPUs keep to themselves what others freed, for a while. */
		usleep(200000);
	}
	/* What stays bound may not be demoted. */
	bind_range(at, node_bytes(node), MPOL_DEFAULT, 0, 0);
	pages_settle(at);
	return at;
}

/* A node whose free memory is in pieces of less than 2 MiB. */
struct fragments {
	unsigned char *rest;	/* blocks of 2 MiB that were left over */
	int pipe;
};

static struct fragments fragment(int node)
{
	struct fragments fragments = { .rest = map_anonymous(node_bytes(node), true) };
	size_t bytes;
	unsigned char *at = fill(node, false, SPARE, &bytes);

	fragments.pipe = hold(at, bytes, HOLD_BYTES);
	munmap(at, node_bytes(node));
	file_set("never", DEFRAG);
	bind_range(fragments.rest, node_bytes(node), MPOL_BIND, node, 0);
	/* What a CPU keeps to itself it gives to nobody else. */
	for (int cpu = 0; cpu < 2; cpu++) {
		pghot_run_on(node_at(cpu));
		for (size_t n = 0; n < REST; n++)
			fragments.rest[(cpu * REST + n) * HUGE_BYTES] = 1;
	}
	return fragments;
}

static void defragment(const struct fragments *fragments, int node)
{
	munmap(fragments->rest, node_bytes(node));
	close(fragments->pipe);
}

static bool is_huge_piece(size_t offset)
{
	return offset / HUGE_BYTES % 2;
}

/* Base pages and huge pages in turn, 2 MiB of each, on the slow node. */
static struct content *mixed_memory(void)
{
	unsigned char *at = map_anonymous(MIXED_BYTES, false);

	for (size_t offset = HUGE_BYTES; offset < MIXED_BYTES; offset += 2 * HUGE_BYTES)
		madvise(at + offset, HUGE_BYTES, MADV_HUGEPAGE);
	return pghot_content(node_slow(), at, MIXED_BYTES, 2);
}

/* Base pages of mixed memory that came up, and those of huge pieces. */
static size_t mixed_up(const struct content *content, bool huge)
{
	size_t pages = 0;

	for (size_t offset = 0; offset < MIXED_BYTES; offset += HUGE_BYTES)
		if (is_huge_piece(offset) == huge)
			pages += pages_off(content->at + offset, HUGE_BYTES, node_slow());
	return pages;
}

static size_t wait_mixed_up(const struct content *content, bool huge)
{
	size_t moved;

	wait_until((moved = mixed_up(content, huge)) == MIXED_BYTES / 2 / page_bytes(), PATIENCE_MS,
		   50000);
	return moved;
}

/* How often kmigrated woke kcompactd for huge pages. Checks that it did not do its work. */
static size_t check_trace(const char *what)
{
	int pid = pghot_kmigrated(node_slow());
	size_t woken = 0, compacted = 0, reclaimed = 0;
	struct trace_event *trace;
	size_t nr = trace_stop(&trace);

	for (size_t n = 0; n < nr; n++) {
		if (trace[n].pid != pid)
			continue;
		woken += trace_is(&trace[n], "mm_compaction_wakeup_kcompactd") &&
			 trace_field(&trace[n], "order") == 9;
		compacted += trace_is(&trace[n], "mm_compaction_begin");
		reclaimed += trace_is(&trace[n], "mm_vmscan_direct_reclaim_begin");
	}
	free(trace);
	tap_ok(!compacted && !reclaimed,
	       "%s: kmigrated neither compacts nor reclaims itself (%zu, %zu times)", what,
	       compacted, reclaimed);
	return woken;
}

static void test_fragmented(void)
{
	struct content *content = mixed_memory();
	struct fragments fragments[2];
	size_t base, huge, woken;
	long long refused, no_block;

	for (int n = 0; n < 2; n++)
		fragments[n] = fragment(node_at(n));
	refused = pghot_counter("pghot_refused_room");
	no_block = pghot_status("failed_no_block");
	trace_start(events);
	pghot_start(PGHOT_PGTSCAN);
	content_start_writers(content);
	base = wait_mixed_up(content, false);
	huge = mixed_up(content, true);
	content_rest_writers(content);
	pghot_stop();
	woken = check_trace("fragmented");
	tap_note("fragmented: up %zu base pages, and %zu of huge ones; kcompactd woken %zu times",
		 base, huge, woken);
	tap_ok(base == MIXED_BYTES / 2 / page_bytes(), "fragmented: all base pages come up");
	tap_ok(woken > 0, "fragmented: kcompactd is woken for a huge page");
	refused = pghot_counter("pghot_refused_room") - refused;
	no_block = pghot_status("failed_no_block") - no_block;
	tap_ok(no_block >= (long long)(HUGE_BYTES / page_bytes()) && refused >= no_block,
	       "fragmented: %lld pages found no block, which are among %lld without room", no_block,
	       refused);
	for (int n = 0; n < 2; n++)
		defragment(&fragments[n], node_at(n));
	pghot_start(PGHOT_PGTSCAN);
	content_resume_writers(content);
	huge = wait_mixed_up(content, true);
	content_stop_writers(content);
	pghot_stop();
	tap_ok(huge == MIXED_BYTES / 2 / page_bytes(),
	       "fragmented: huge pages come up once there are blocks (%zu pages)", huge);
	tap_ok(!content_wrong(content, "mixed"), "fragmented: contents");
	pghot_memory_drop(content);
}

/* The folio of a page frame fails whenever it is tried, and waits for 1, 2, 4, 8 and 16 rounds. */
static void check_waits(uint64_t frame)
{
	struct trace_event *trace;
	size_t nr = trace_stop(&trace), tries = 0;
	long long ms, least = ROUND_MS;
	bool good = true;
	double last = 0;

	for (size_t n = 0; n < nr && tries <= WAITS; n++) {
		if ((uint64_t)trace_field(&trace[n], "pfn") != frame)
			continue;
		if (tries++) {
			ms = (trace[n].seconds - last) * 1000;
			tap_note("waits: tried again after %lld ms", ms);
			/* The kernel counts whole milliseconds from the failure on. */
			good &= ms >= least - 1 && ms < least + LATE_MS;
			least *= 2;
		}
		last = trace[n].seconds;
	}
	free(trace);
	tap_ok(good && tries > WAITS,
	       "waits: a huge page that failed waits, each time for twice as long");
}

/* A hot huge page fails until the pipe lets it go, and comes up at its next try. */
static void test_waits(void)
{
	struct content *held = pghot_memory(node_slow(), HUGE_BYTES, true, 1);
	int pipe = hold(held->at, held->bytes, HUGE_BYTES);
	size_t pages = held->bytes / page_bytes(), moved;
	uint64_t frame = page_frame(held->at);
	long long start;

	content_start_writers(held);
	trace_start(isolations);
	pghot_start(PGHOT_PGTSCAN);
	usleep(HELD_MS * 1000);
	check_waits(frame);
	close(pipe);
	start = now_ms();
	moved = pghot_wait_moved(held->at, held->bytes, node_slow(), pages, PATIENCE_MS);
	start = now_ms() - start;
	content_stop_writers(held);
	pghot_stop();
	tap_ok(moved == pages && start <= ROUNDS_MAX * ROUND_MS + LATE_MS,
	       "waits: it comes up %lld ms after it was let go (%zu pages)", start, moved);
	tap_ok(!content_wrong(held, "waits"), "waits: contents");
	pghot_memory_drop(held);
}

/* Memory for a writer whose huge page has a page frame that was freed just now. */
static struct content *memory_in_frame(uint64_t frame)
{
	struct content *all[REST], *found = NULL;
	size_t nr = 0;

	while (!found && nr < REST) {
		all[nr] = pghot_memory(node_slow(), HUGE_BYTES, true, 1);
		if (page_frame(all[nr]->at) == frame)
			found = all[nr];
		else
			nr++;
	}
	while (nr)
		pghot_memory_drop(all[--nr]);
	return found;
}

/* The frame of a huge page whose last wait is the longest one gets another owner. */
static void test_reused(void)
{
	struct content *held = pghot_memory(node_slow(), HUGE_BYTES, true, 1);
	int pipe = hold(held->at, held->bytes, HUGE_BYTES);
	size_t pages = held->bytes / page_bytes(), moved;
	long long failed = pghot_status("failed_busy") + WAITS * (long long)pages, start;
	uint64_t frame = page_frame(held->at);

	content_start_writers(held);
	pghot_start(PGHOT_PGTSCAN);
	while (pghot_status("failed_busy") < failed)
		usleep(20000);
	start = now_ms();
	content_stop_writers(held);
	pghot_memory_drop(held);
	close(pipe);
	held = memory_in_frame(frame);
	if (!held)
		tap_bail("the frame of a huge page was not used again");
	content_start_writers(held);
	moved = pghot_wait_moved(held->at, held->bytes, node_slow(), pages, PATIENCE_MS);
	start = now_ms() - start;
	content_stop_writers(held);
	pghot_stop();
	tap_ok(moved == pages && start < ROUNDS_MAX * ROUND_MS,
	       "reused: a page in the frame of one that waits comes up after %lld ms", start);
	pghot_memory_drop(held);
}

/* A second's pace is two huge pages, and the hottest ones cannot move. */
static void test_held(void)
{
	struct content *held = pghot_memory(node_slow(), 8 * HUGE_BYTES, true, 2);
	struct content *base = pghot_memory(node_slow(), BASE_BYTES, false, 1);
	int pipe = hold(held->at, held->bytes, HUGE_BYTES);
	size_t pages = held->bytes / page_bytes(), moved;

	file_write("4", PGHOT_RATE);
	base->pause_us = SELDOM_US;
	content_start_writers(base);
	content_start_writers(held);
	pghot_start(PGHOT_PGTSCAN);
	moved = pghot_wait_moved(base->at, BASE_BYTES, node_slow(), BASE_BYTES / page_bytes(),
				 PATIENCE_MS);
	tap_ok(!up(held), "held: huge pages that a pipe holds stay (%zu pages moved)", up(held));
	tap_ok(moved == BASE_BYTES / page_bytes(),
	       "held: less hot base pages come up (%zu of them)", moved);
	close(pipe);
	file_write("65536", PGHOT_RATE);
	moved = pghot_wait_moved(held->at, held->bytes, node_slow(), pages, PATIENCE_MS);
	content_stop_writers(base);
	content_stop_writers(held);
	pghot_stop();
	tap_ok(moved == pages, "held: and huge ones once they are let go (%zu pages)", moved);
	tap_ok(!content_wrong(held, "held") && !content_wrong(base, "base"), "held: contents");
	pghot_memory_drop(held);
	pghot_memory_drop(base);
}

/*
 * Idle huge pages of a full tier make room for new memory: four rounds of it, and the rest of a
 * huge page in each round and node.
 */
static void test_room(void)
{
	unsigned char *fresh = map_anonymous(FRESH_BYTES, false);
	long long before = pghot_counter("pghot_demoted"), demoted, end = now_ms() + PATIENCE_MS;
	size_t at = 0, touched;

	pghot_start(PGHOT_PGTSCAN);
	while (pghot_counter("pghot_demoted") == before && at < FRESH_BYTES && now_ms() < end) {
		for (size_t step = 0; step < FRESH_STEP; step += page_bytes())
			fresh[at + step] = 1;
		at += FRESH_STEP;
		usleep(ROUND_MS * 1000 / 5);
	}
	/* What had begun ends. */
	do {
		demoted = pghot_counter("pghot_demoted");
		usleep(4 * ROUND_MS * 1000);
	} while (pghot_counter("pghot_demoted") != demoted);
	pghot_stop();
	demoted -= before;
	touched = at / page_bytes();
	tap_ok(demoted > 0 && demoted <= 8 * (long long)touched + 16 * 512,
	       "room: %zu new pages let %lld idle ones go", touched, demoted);
	munmap(fresh, FRESH_BYTES);
}

/* Idle huge pages fill the top tier, and the slow node has no block for one. */
static void test_demotion(void)
{
	struct content *hot = pghot_memory(node_slow(), 2 * BASE_BYTES, false, 1);
	struct fragments fragments = fragment(node_slow());
	unsigned char *fillers[2];
	long long demoted;
	size_t bytes, moved;

	for (int n = 0; n < 2; n++)
		fillers[n] = fill(node_at(n), true, 0, &bytes);
	file_set("1", DEMOTION);
	demoted = pghot_counter("pghot_demoted");
	trace_start(events);
	pghot_start(PGHOT_PGTSCAN);
	content_start_writers(hot);
	moved = pghot_wait_moved(hot->at, hot->bytes, node_slow(),
				 hot->bytes / page_bytes() * 9 / 10, PATIENCE_MS);
	content_stop_writers(hot);
	pghot_stop();
	demoted = pghot_counter("pghot_demoted") - demoted;
	check_trace("demotion");
	tap_ok(demoted > 0 && moved >= hot->bytes / page_bytes() * 9 / 10,
	       "demotion: idle huge pages make room (%lld demoted, %zu came)", demoted, moved);
	tap_ok(!content_wrong(hot, "hot"), "demotion: contents");
	defragment(&fragments, node_slow());
	test_room();
	pghot_memory_drop(hot);
	for (int n = 0; n < 2; n++)
		munmap(fillers[n], node_bytes(node_at(n)));
}

/* Uses memory on the last node's CPU until it is killed. */
static pid_t use_alone(void)
{
	pid_t pid = fork();
	unsigned char *at;

	if (pid)
		return pid;
	cgroup_enter("alone");
	at = map_anonymous(ALONE_BYTES, false);
	for (;;)
		for (size_t offset = 0; offset < ALONE_BYTES; offset += page_bytes())
			at[offset]++;
}

/* TLB shootdowns while page tables are scanned some times. */
static unsigned long shootdowns(void)
{
	long long end = pghot_status("scanned_ptes") + 32 * ALONE_BYTES / page_bytes();
	unsigned long before = 0, after = 0;

	file_interrupts("TLB", &before, 1);
	while (pghot_status("scanned_ptes") < end)
		usleep(20000);
	file_interrupts("TLB", &after, 1);
	return after - before;
}

/* A CPU on its own is not interrupted for a scan of what it uses. */
static void test_isolated(void)
{
	struct content *pinned = pghot_memory(node_slow(), ALONE_BYTES, false, 1);
	struct ring *ring = ring_new();
	unsigned long shared, isolated;
	char text[32] = "";
	pid_t pid;

	/* Walks are rare while slow memory rests, and this stays there. */
	if (ring_pin(ring, pinned->at, ALONE_BYTES))
		tap_bail("no pins");

	cgroup_make("alone");
	file_read(text, sizeof(text), "/sys/devices/system/node/node%d/cpulist", node_at(1));
	file_need(text, "%s/alone/cpuset.cpus", cgroup_root());
	pid = use_alone();
	content_start_writers(pinned);
	pghot_start(PGHOT_PGTSCAN);
	shared = shootdowns();
	if (file_write("isolated", "%s/alone/cpuset.cpus.partition", cgroup_root()) ||
	    file_read(text, sizeof(text), "%s/alone/cpuset.cpus.partition", cgroup_root()) ||
	    strcmp(text, "isolated"))
		tap_bail("no isolated CPU: %s", text);
	isolated = shootdowns();
	content_stop_writers(pinned);
	pghot_stop();
	ring_unpin(ring);
	ring_free(ring);
	pghot_memory_drop(pinned);
	file_write("member", "%s/alone/cpuset.cpus.partition", cgroup_root());
	child_kill(pid);
	tap_ok(shared > 0 && isolated <= shared / 4,
	       "a scan leaves an isolated CPU alone: %lu TLB shootdowns, of another %lu", isolated,
	       shared);
}

int main(void)
{
	tap_start();
	nodes_with_memory();
	pghot_init();
	/* CPUs are to keep little of what is freed to themselves, huge pages neither. */
	file_set("1000000", KEPT);
	/* Blocks are not to come back by themselves. */
	file_set("0", PROACTIVE);
	if (!pghot_has(PGHOT_PGTSCAN))
		tap_bail("this kernel does not scan page tables");
	/* So that hot pages belong to the second node. */
	pghot_run_on(node_at(1));
	file_write_number(node_at(1), PGHOT_SYSCTL "target_nid");
	test_waits();
	test_reused();
	test_isolated();
	test_held();
	test_fragmented();
	test_demotion();
	return tap_done();
}
