// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_exchange [once | scan | rules]: while another node of the top tier has room, hot pages whose
 * own is full go there. When the top tier is full of memory that nobody uses, they change places with
 * it, and what is in use up there stays. What is bound to where it is stays there, and what is
 * protected too. Without a source that knows what is cold, kswapd makes the room; "scan" leaves that
 * out, "once" does it for what is touched once alone, and "rules" has what must not be broken.
 */
#include "cgroup.h"
#include "clock.h"
#include "content.h"
#include "files.h"
#include "memory.h"
#include "nodes.h"
#include "pghot.h"
#include "tap.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HOT_BYTES	(16UL << 20)
#define BUSY_BYTES	HOT_BYTES
#define PAGES		(HOT_BYTES / page_bytes())
/* It takes seconds. But hint faults are rationed by CPU time, of which checkers leave little. */
#define PATIENCE_MS	240000

/* So many go at once, since one of them may be a huge page. */
#define STEP_PAGES	512

#define KEPT		"/proc/sys/vm/percpu_pagelist_high_fraction"
#define DEMOTION	"/sys/kernel/mm/numa/demotion_enabled"
#define LRU_GEN		"/sys/kernel/mm/lru_gen/enabled"
/* The scan looks at four million entries of page tables a second, and a walk may take one. */
#define LATE_PAGES	(6UL << 20)
/* The cgroup of what fills the top tier. */
#define NEIGHBOUR	"neighbour"

/* The node whose CPU the tests keep busy comes first: it is the last one, see pghot_run_on(). */
static int top_node(int n)
{
	return node_at(1 - n);
}

/* What fills a node and is then left alone: each page has its number in it. */
struct filler {
	unsigned char *at;
	size_t bytes;
};

/* Takes what a node has above its reserve. Returns whether that was little. */
static bool fill_more(struct filler *filler, int node)
{
	long long free = node_free_bytes(node) - node_reserve_bytes(node);
	size_t begin = filler->bytes, end = begin;

	if (free > 0)
		end += free / page_bytes() * page_bytes();
	memory_policy(MPOL_BIND, node);
	for (; filler->bytes < end; filler->bytes += page_bytes())
		*(size_t *)(filler->at + filler->bytes) = filler->bytes;
	memory_policy(MPOL_DEFAULT, 0);
	return end - begin < HUGE_BYTES / 4;
}

/*
 * Leaves the first nodes so much that nothing is reclaimed, and no more. What others freed comes back
 * late, on either node: CPUs keep it to themselves for some seconds.
 */
static void fill(struct filler *fillers, int nodes)
{
	int quiet = 0;

	for (int n = 0; n < nodes; n++)
		fillers[n] = (struct filler) { map_anonymous(node_bytes(top_node(n)), false), 0 };
	while (quiet < 4) {
		quiet++;
		for (int n = 0; n < nodes; n++)
			if (!fill_more(&fillers[n], top_node(n)))
				quiet = 0;
		usleep(500000);
	}
	for (int n = 0; n < nodes; n++)
		pages_settle(fillers[n].at);
}

static size_t filler_wrong(const struct filler *filler)
{
	size_t wrong = 0;

	for (size_t offset = 0; offset < filler->bytes; offset += page_bytes())
		wrong += *(size_t *)(filler->at + offset) != offset;
	return wrong;
}

static size_t on(const struct content *content, int node)
{
	return pages_on(content->at, content->bytes, node);
}

static size_t up(const struct content *content)
{
	return content->bytes / page_bytes() - on(content, node_slow());
}

/* A sample is a fault, which shared memory has again and again. */
static struct content *hot_memory(enum pghot_source source)
{
	void *at;

	if (source != PGHOT_HWHINT)
		return pghot_memory(node_slow(), HOT_BYTES, false, 1);
	at = mmap(NULL, HOT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return pghot_content(node_slow(), at, HOT_BYTES, 0);
}

static void fault_until_up(struct content *hot, size_t pages)
{
	long long end = now_ms() + PATIENCE_MS;

	while (up(hot) < pages && now_ms() < end) {
		madvise(hot->at, hot->bytes, MADV_DONTNEED);
		rewrite_pages(hot->at, hot->bytes);
	}
}

static void use(struct content *hot, struct content *busy, size_t pages)
{
	content_start_writers(hot);
	content_start_writers(busy);
	if (hot->nr_writers)
		pghot_wait_moved(hot->at, hot->bytes, node_slow(), pages, PATIENCE_MS);
	else
		fault_until_up(hot, pages);
	content_stop_writers(hot);
	content_stop_writers(busy);
}

/*
 * Its own node is full, the other one is not. Of the lowest zone, which has less than 16 MiB, the
 * filler gets little: there is more that is hot than could find room there. For huge pages there is
 * room on the full node for some base pages, and not for one of them.
 */
static void test_other_node(bool huge)
{
	size_t pages = 2 * PAGES;
	struct content *hot = pghot_memory(node_slow(), 2 * HOT_BYTES, huge, 1);
	struct content *busy = pghot_memory(top_node(0), BUSY_BYTES, false, 1);
	long long demoted = pghot_counter("pghot_demoted");
	struct filler filler;

	fill(&filler, 1);
	if (huge) {
		filler.bytes -= 320 * page_bytes();
		madvise(filler.at + filler.bytes, 320 * page_bytes(), MADV_DONTNEED);
	}
	pghot_start(PGHOT_PGTSCAN);
	use(hot, busy, pages);
	pghot_stop();
	demoted = pghot_counter("pghot_demoted") - demoted;
	tap_note("other node, %s pages: %zu of %zu hot ones there, %zu up, demoted %lld",
		 huge ? "huge" : "base", on(hot, top_node(1)), pages, up(hot), demoted);
	tap_ok(up(hot) == pages && on(hot, top_node(1)) >= pages / 2,
	       "what finds its node full goes to one of the same tier");
	tap_ok(!demoted, "and nothing is demoted for it");
	tap_ok(!content_wrong(hot, "hot") && !content_wrong(busy, "busy") && !filler_wrong(&filler),
	       "other node: contents");
	pghot_memory_drop(hot);
	pghot_memory_drop(busy);
	munmap(filler.at, node_bytes(top_node(0)));
}

/* The hot pages may use one node of the top tier, which is full, while the other one is free. */
static void test_one_node(void)
{
	struct content *hot = pghot_memory(node_slow(), HOT_BYTES, false, 1);
	struct content *busy = pghot_memory(top_node(0), BUSY_BYTES, false, 1);
	unsigned long nodes = 1UL << top_node(0) | 1UL << node_slow();
	struct filler filler;

	fill(&filler, 1);
	if (bind_range_to(hot->at, HOT_BYTES, MPOL_BIND | MPOL_F_NUMA_BALANCING, nodes, 0))
		tap_bail("no policy that lets pages move between two nodes");
	pghot_start(PGHOT_PGTSCAN);
	use(hot, busy, PAGES);
	pghot_stop();
	tap_ok(on(hot, top_node(0)) == PAGES,
	       "what may use a full node alone changes places there: %zu of %zu pages",
	       on(hot, top_node(0)), PAGES);
	tap_ok(on(busy, top_node(0)) == PAGES, "and what is in use there stays: %zu pages",
	       on(busy, top_node(0)));
	tap_ok(!content_wrong(hot, "hot") && !content_wrong(busy, "busy") && !filler_wrong(&filler),
	       "one node: contents");
	pghot_memory_drop(hot);
	pghot_memory_drop(busy);
	munmap(filler.at, node_bytes(top_node(0)));
}

static void test_bound(void)
{
	struct content *hot = pghot_memory(node_slow(), HOT_BYTES, false, 1);
	struct content *busy = pghot_memory(node_slow(), BUSY_BYTES, false, 1);

	bind_range(hot->at, HOT_BYTES, MPOL_BIND, node_slow(), 0);
	pghot_start(PGHOT_PGTSCAN);
	/* As long as what is not bound takes, and then some. */
	content_start_writers(hot);
	content_start_writers(busy);
	pghot_wait_moved(busy->at, BUSY_BYTES, node_slow(), PAGES, PATIENCE_MS);
	usleep(1500000);
	content_stop_writers(hot);
	content_stop_writers(busy);
	pghot_stop();
	tap_ok(up(busy) == PAGES && !up(hot), "what is bound stays: %zu of it up, %zu of the rest",
	       up(hot), up(busy));
	pghot_memory_drop(hot);
	pghot_memory_drop(busy);
}

static size_t went(const struct filler fillers[2])
{
	return pages_on(fillers[0].at, fillers[0].bytes, node_slow()) +
	       pages_on(fillers[1].at, fillers[1].bytes, node_slow());
}

/* Many rounds in which hot pages want to come up; returns how many filler pages went. */
static size_t flood(struct content *hot, struct content *busy, const struct filler fillers[2])
{
	long long rounds = pghot_status("wakeups") + 30;
	long long seen = pghot_counter("pghot_recorded_accesses") + 10 * (long long)PAGES;
	bool hot_found;

	content_start_writers(hot);
	content_start_writers(busy);
	hot_found = wait_until(pghot_status("wakeups") >= rounds &&
			       pghot_counter("pghot_recorded_accesses") >= seen, PATIENCE_MS, 20000);
	content_stop_writers(hot);
	content_stop_writers(busy);
	if (!hot_found)
		tap_bail("no page is found hot");
	return went(fillers);
}

/* Page tables that take longer to walk than the window, with a page in each. */
static void *make_walks_late(void)
{
	size_t bytes = LATE_PAGES * page_bytes();
	unsigned char *at = mmap(NULL, bytes, PROT_READ,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		tap_bail("no address space of %zu bytes", bytes);
	madvise(at, bytes, MADV_NOHUGEPAGE);
	for (size_t offset = 0; offset < bytes; offset += STEP_PAGES * page_bytes())
		(void)*(volatile unsigned char *)(at + offset);
	/* The walk under way ends, and the next one is known to be late. */
	usleep(3500000);
	return at;
}

/* Nothing is demoted that must not be, however hot what lies below is. */
static void test_kept(struct content *hot, struct content *busy, const struct filler fillers[2])
{
	long long demoted = pghot_counter("pghot_demoted"), woken = pghot_counter("pageoutrun");
	void *late;
	size_t gone;

	file_write("0", DEMOTION);
	gone = flood(hot, busy, fillers);
	woken = pghot_counter("pageoutrun") - woken;
	tap_ok(!gone && pghot_counter("pghot_demoted") == demoted,
	       "while demotion is off nothing is demoted: %zu pages", gone);
	/* Whatever else allocates may wake it now and then; there were 30 rounds. */
	tap_ok(woken < 5, "and kswapd is not woken for it: %lld times", woken);
	late = make_walks_late();
	file_write("1", DEMOTION);
	demoted = pghot_counter("pghot_demoted");
	woken = pghot_counter("pageoutrun");
	gone = flood(hot, busy, fillers);
	woken = pghot_counter("pageoutrun") - woken;
	tap_ok(!gone && pghot_counter("pghot_demoted") == demoted,
	       "nor while walks are late: %zu pages", gone);
	tap_ok(woken < 5, "and kswapd is not woken for that: %lld times", woken);
	file_write("max", "%s/" NEIGHBOUR "/memory.low", cgroup_root());
	munmap(late, LATE_PAGES * page_bytes());
	gone = flood(hot, busy, fillers);
	tap_ok(!gone, "what memory.low protects is not demoted: %zu pages", gone);
	file_write("0", "%s/" NEIGHBOUR "/memory.low", cgroup_root());
	file_write("max", "%s/" NEIGHBOUR "/memory.min", cgroup_root());
	gone = flood(hot, busy, fillers);
	tap_ok(!gone, "nor what memory.min does: %zu pages", gone);
	file_write("0", "%s/" NEIGHBOUR "/memory.min", cgroup_root());
	for (int n = 0; n < 2; n++)
		bind_range(fillers[n].at, fillers[n].bytes, MPOL_BIND, top_node(n), 0);
	gone = flood(hot, busy, fillers);
	tap_ok(!gone, "nor what its mapping's policy keeps here: %zu pages", gone);
	for (int n = 0; n < 2; n++)
		bind_range(fillers[n].at, fillers[n].bytes, MPOL_DEFAULT, top_node(n), 0);
}

/* Pages demoted by whomever, of all and of the neighbour's cgroup. */
static long long demotions(long long *charged)
{
	static const char *const names[] = { "pgdemote_kswapd", "pgdemote_direct",
					     "pgdemote_khugepaged" };
	long long all = 0;

	*charged = 0;
	for (int n = 0; n < 3; n++) {
		all += pghot_counter(names[n]);
		*charged += cgroup_stat(NEIGHBOUR, "memory.stat", names[n]);
	}
	return all;
}

/*
 * All of the top tier is protected but the kernel's memory and the guest's files, and what hint
 * faults find is more than these: kswapd, which is woken for it, takes nothing else.
 */
static void test_protected(const char *lru, const char *enabled)
{
	struct content *hot = pghot_memory(node_slow(), 8 * HOT_BYTES, false, 1), *busy;
	long long refused = pghot_counter("pghot_refused_room"), rounds, woken, before, demoted;
	struct filler fillers[2];
	bool hot_found;
	size_t gone;

	file_need(enabled, LRU_GEN);
	cgroup_make(NEIGHBOUR);
	cgroup_enter(NEIGHBOUR);
	busy = pghot_memory(top_node(0), BUSY_BYTES, false, 1);
	fill(fillers, 2);
	cgroup_enter(NULL);
	file_write("max", "%s/" NEIGHBOUR "/memory.low", cgroup_root());
	demotions(&before);
	woken = pghot_counter("pageoutrun");
	pghot_start(PGHOT_HINTFAULT);
	content_start_writers(hot);
	content_start_writers(busy);
	hot_found = wait_until(pghot_counter("pghot_refused_room") > refused, PATIENCE_MS, 20000);
	rounds = pghot_status("wakeups") + 30;
	hot_found &= wait_until(pghot_status("wakeups") >= rounds, PATIENCE_MS, 20000);
	content_stop_writers(hot);
	content_stop_writers(busy);
	pghot_stop();
	if (!hot_found)
		tap_bail("%s: no page is found hot", lru);
	woken = pghot_counter("pageoutrun") - woken;
	demotions(&demoted);
	demoted -= before;
	gone = went(fillers) + PAGES - on(busy, top_node(0));
	file_write("0", "%s/" NEIGHBOUR "/memory.low", cgroup_root());
	tap_note("%s: %zu of %zu hot pages came, kswapd was woken %lld times", lru, up(hot),
		 8 * PAGES, woken);
	tap_ok(up(hot) < 8 * PAGES, "%s: there is not room for all", lru);
	tap_ok(!gone && !demoted,
	       "%s: kswapd demotes nothing that memory.low protects: %zu pages went, %lld counted",
	       lru, gone, demoted);
	tap_ok(!content_wrong(hot, "hot") && !content_wrong(busy, "busy"), "%s: contents", lru);
	/* Whatever is demoted revives a kswapd that gave up. */
	file_write("1M", "%s/" NEIGHBOUR "/memory.reclaim", cgroup_root());
	pghot_memory_drop(hot);
	pghot_memory_drop(busy);
	for (int n = 0; n < 2; n++)
		munmap(fillers[n].at, node_bytes(top_node(n)));
}

/* Pages of a node that neither programs nor files have: the kernel's own. */
static long long kernel_pages(int node)
{
	return (node_bytes(node) - node_free_bytes(node) - node_movable_bytes(node)) /
	       (long long)page_bytes();
}

/*
 * KASAN keeps a part of memory's size in freed objects before their memory is used again. Until it
 * has, whatever runs takes free pages of the top tier, and kswapd demotes for it what it likes.
 */
static void fill_quarantine(void)
{
	long long before, pages = 0;
	int ends[2];

	if (pipe(ends))
		tap_bail("no pipe");
	do {
		before = pages;
		/* Two arrays of several KiB, to and fro. */
		for (int n = 0; n < 2000; n++)
			if (fcntl(ends[0], F_SETPIPE_SZ, (n % 2 ? 64 : 128) * page_bytes()) < 0)
				tap_bail("no pipe of that size");
		pages = kernel_pages(top_node(0)) + kernel_pages(top_node(1));
		tap_note("the kernel has %lld pages of the top tier", pages);
	} while (pages > before + 64);
	close(ends[0]);
	close(ends[1]);
}

static void test_full(enum pghot_source source)
{
	long long exchanged, demoted, wasted, woken, isolated, reclaimed, charged, of_group, lacked = 0;
	long long refused = pghot_counter("pghot_refused_room");
	/* The scan of page tables alone knows what is cold. */
	bool exchange = source == PGHOT_PGTSCAN;
	struct filler fillers[2];
	struct content *hot, *busy;
	size_t stayed, left, wrong;
	char what[64];

	snprintf(what, sizeof(what), "by %s%s", pghot_sources[source],
		 exchange ? "" : ", by kswapd");
	hot = hot_memory(source);
	busy = pghot_memory(top_node(0), BUSY_BYTES, false, 1);
	cgroup_make(NEIGHBOUR);
	cgroup_enter(NEIGHBOUR);
	fill(fillers, 2);
	cgroup_enter(NULL);
	if (up(hot) || on(busy, top_node(0)) != PAGES)
		tap_bail("%s: memory is not where it should be", what);
	exchanged = pghot_status("exchanged");
	reclaimed = demotions(&charged);
	demoted = pghot_counter("pghot_demoted");
	wasted = pghot_counter("pghot_wasted");
	woken = pghot_counter("pageoutrun");
	for (int n = 0; n < 2; n++) {
		long long unused = node_free_bytes(top_node(n)) / (long long)page_bytes(),
			  kept = node_reserve_bytes(top_node(n)) / (long long)page_bytes();

		tap_note("%s: node %d has %lld free pages, of which %lld are kept", what,
			 top_node(n), unused, kept);
		lacked += kept > unused ? kept - unused : 0;
	}
	pghot_start(source);
	if (exchange)
		test_kept(hot, busy, fillers);
	use(hot, busy, PAGES * 9 / 10);
	stayed = on(busy, top_node(0));
	left = went(fillers);
	pghot_stop();
	exchanged = pghot_status("exchanged") - exchanged;
	reclaimed = demotions(&of_group) - reclaimed;
	of_group -= charged;
	demoted = pghot_counter("pghot_demoted") - demoted;
	wasted = pghot_counter("pghot_wasted") - wasted;
	wrong = content_wrong(hot, "hot") + content_wrong(busy, "busy") +
		filler_wrong(&fillers[0]) + filler_wrong(&fillers[1]);
	tap_note("%s: %zu of %zu hot pages up, %zu busy ones stayed, %zu idle ones went; "
		 "exchanged %lld, demoted %lld, wasted %lld", what, up(hot), PAGES, stayed, left,
		 exchanged, demoted, wasted);
	tap_ok(up(hot) >= PAGES * 9 / 10, "%s: what is hot comes up", what);
	woken = pghot_counter("pageoutrun") - woken;
	tap_note("%s: kswapd was woken %lld times", what, woken);
	tap_ok(!wrong, "%s: contents", what);
	if (exchange) {
		tap_ok(left > 0, "%s: what is idle makes room", what);
		tap_ok(stayed >= PAGES * 9 / 10, "%s: what is in use stays up", what);
		tap_ok(exchanged > 0 && demoted >= exchanged, "%s: exchanges are counted", what);
		tap_ok(reclaimed >= demoted && of_group >= (long long)left && of_group <= reclaimed,
		       "%s: %lld demotions of %lld pages are counted, %lld in the cgroup of %zu",
		       what, reclaimed, demoted, of_group, left);
		tap_ok(demoted <= (long long)up(hot) + lacked + 2 * STEP_PAGES,
		       "%s: no more goes than what comes and what lacked", what);
		tap_ok(wasted <= (long long)PAGES / 10, "%s: few promotions are wasted", what);
		/* Whatever is demoted revives a kswapd that gave up while it must not demote. */
		file_write("1M", "%s/" NEIGHBOUR "/memory.reclaim", cgroup_root());
	} else {
		refused = pghot_counter("pghot_refused_room") - refused;
		tap_ok(refused > 0, "%s: %lld pages found no room", what, refused);
		tap_ok(woken > 0, "%s: kswapd is woken", what);
		tap_ok(!exchanged && !demoted, "%s: nothing is exchanged", what);
	}
	/* Reclaim and compaction wait for what they believe to be in somebody's hands. */
	/* For a moment some are. */
	wait_until(!(isolated = pghot_counter("nr_isolated_anon") +
				pghot_counter("nr_isolated_file")), 10000, 100000);
	tap_ok(!isolated, "%s: no page still counts as isolated (%lld do)", what, isolated);
	pghot_memory_drop(hot);
	pghot_memory_drop(busy);
	for (int n = 0; n < 2; n++)
		munmap(fillers[n].at, node_bytes(top_node(n)));
}

/*
 * Whether pages come up after one touch of each, and no fault later, though the tier is full; and
 * soon: looks at a clock alone, half a second apart, took two seconds.
 */
static bool touched_once(void)
{
	struct content *hot = pghot_memory(node_slow(), HOT_BYTES, false, 0);
	long long end = now_ms() + PATIENCE_MS, marked, ms;
	struct filler fillers[2];
	size_t came;

	fill(fillers, 2);
	marked = pghot_counter("numa_pte_updates") + PAGES;
	pghot_start(PGHOT_HINTFAULT);
	/* Scans come by the CPU time that this takes. */
	while (pghot_counter("numa_pte_updates") < marked && now_ms() < end)
		;
	read_pages(hot->at, HOT_BYTES);
	ms = now_ms();
	came = pghot_wait_moved(hot->at, HOT_BYTES, node_slow(), PAGES * 9 / 10, 6000);
	ms = now_ms() - ms;
	tap_note("touched once: %zu of %zu pages came in %lld ms", came, PAGES, ms);
	pghot_stop();
	tap_ok(!content_wrong(hot, "hot") && !filler_wrong(&fillers[0]) && !filler_wrong(&fillers[1]),
	       "touched once: contents");
	pghot_memory_drop(hot);
	for (int n = 0; n < 2; n++)
		munmap(fillers[n].at, node_bytes(top_node(n)));
	return came >= PAGES * 9 / 10 && ms < 1000;
}

/* On a host that stands still records may grow old before there is room. */
static void test_touched_once(void)
{
	bool came = false;

	for (int try = 0; try < 5 && !came; try++)
		came = touched_once();
	tap_ok(came, "what is touched once finds room as soon as it is made");
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	tap_start();
	nodes_with_memory();
	pghot_init();
	/* CPUs are to keep little of what is freed to themselves: it would come back as room. */
	file_set("1000000", KEPT);
	/* So that hot pages belong to the node that comes first here. */
	pghot_run_on(top_node(0));
	file_write_number(top_node(0), PGHOT_SYSCTL "target_nid");
	/*
	 * First, because Linux gives a node up where kswapd found nothing 16 times, as it may
	 * below while it must not demote.
	 */
	file_set("1", DEMOTION);
	file_restore_at_exit(LRU_GEN);
	pghot_scan_often();
	fill_quarantine();
	if (!strcmp(what, "once") || !strcmp(what, "rules"))
		test_touched_once();
	if (!strcmp(what, "rules")) {
		test_protected("multi-generational LRU", "7");
		test_full(PGHOT_PGTSCAN);
	}
	if (!strcmp(what, "once") || !strcmp(what, "rules"))
		return tap_done();
	if (strcmp(what, "scan")) {
		test_protected("classic LRU", "0");
		test_protected("multi-generational LRU", "7");
		test_full(PGHOT_HINTFAULT);
		/* Without NUMA balancing, which hint faults need, kswapd has other goals. */
		if (pghot_has(PGHOT_HWHINT))
			test_full(PGHOT_HWHINT);
	}
	if (pghot_has(PGHOT_PGTSCAN)) {
		test_bound();
		test_other_node(false);
		test_other_node(true);
		test_one_node();
		test_full(PGHOT_PGTSCAN);
	}
	return tap_done();
}
