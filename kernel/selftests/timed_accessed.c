// SPDX-License-Identifier: GPL-2.0-only
/*
 * timed_accessed: accessed bits against what was really touched. A thread touches pages of known
 * heats; another CPU clears their accessed bits (idle page tracking) and looks a while later. An
 * emulator whose own TLB is larger than a CPU's sets the bits too rarely: then trackers that read
 * them, the scan and DAMON, would look worse than they are.
 *
 * What was touched is known from the thread itself. The plugin's misses per page are compared
 * with it beside: a page that missed must have been touched.
 */
#include "clock.h"
#include "chain.h"
#include "figures.h"
#include "files.h"
#include "memory.h"
#include "nodes.h"
#include "pages.h"
#include "task.h"
#include "timed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BITMAP		"/sys/kernel/mm/page_idle/bitmap"

#define PAGES		65536UL		/* 256 MiB */
#define TICK_NS		1000000LL
#define TICKS		1000		/* a second */

/* A scan that misses more than one touched page in twenty here would be judged by the machine. */
#define RECALL		0.95

/* Of pages that nobody touches: the walk itself sets no bit. */
#define FALSE_PART	0.001

/* A touch and its miss are not one step for the looker: pages at the edge of an interval. */
#define EDGE_PART	0.001

/* Pages that are touched so rarely find their lines in no cache: each touch misses. */
#define COLD_PER_SECOND	10

/*
 * QEMU's own TLB doubles when it is flushed while full: from 256 entries to more than the region
 * has pages. Linux flushes all when it unmaps more than 33 pages.
 */
#define FLUSHES		12
#define FLUSH_PAGES	64

/* An odd number scatters the heats over the region. */
#define SCATTER		40503UL

/*
 * Sets of pages by touches of each page a second. Those of 50 come all at once, twice as many as
 * a TLB holds: a page that stays in the TLB between two touches is not marked again on a real
 * CPU either, since Linux clears bits without a flush.
 */
static struct heat {
	unsigned int per_second, pages;
	bool sweep;
	unsigned int first, next;
} heats[] = {
	{ .per_second = 1000, .pages = 256 },
	{ .per_second = 100, .pages = 1024 },
	{ .per_second = 50, .sweep = true },
	{ .per_second = 10, .pages = 8192 },
	{ .per_second = 1, .pages = 16384 },
	{ .per_second = 0 },
};

#define NR_HEATS	ARRAY_SIZE(heats)
#define NEVER		(&heats[NR_HEATS - 1])

/* Touches count for the interval in which they come. */
enum { CLEARING, BETWEEN, READING, NR_INTERVALS };

static volatile unsigned char touched[NR_INTERVALS][PAGES];
static volatile int interval = READING;
static volatile bool stop, runs;
static unsigned char *region;

/* Page frames of the region's pages, and how many words of the bitmap hold them. */
static uint64_t frames[PAGES];
static uint64_t first_word, words;
static uint64_t *mine, *seen;
static uint32_t misses[PAGES];

static unsigned int place(unsigned int nth)
{
	return nth * SCATTER % PAGES;
}

static void touch(struct heat *heat, unsigned int count, unsigned int tick)
{
	while (count--) {
		unsigned int page = place(heat->first + heat->next++ % heat->pages);
		int now = interval;

		/* Another line each time, so that it mostly misses. */
		(void)*(volatile unsigned char *)(region + page * page_bytes() + tick % 64 * LINE_BYTES);
		touched[now][page] = 1;
	}
}

/* Afterwards QEMU finds each page of the region in its TLB for good, and sets no accessed bit. */
static void grow_tlb(void)
{
	size_t bytes = FLUSH_PAGES * page_bytes();

	for (int n = 0; n < FLUSHES; n++) {
		unsigned char *extra = map_anonymous(bytes, false);

		memset(extra, 1, bytes);
		read_pages(region, PAGES * page_bytes());
		munmap(extra, bytes);
	}
}

static void *touch_all(void *argument)
{
	long long next;

	run_on_cpu(*(int *)argument);
	grow_tlb();
	next = now_ns(CLOCK_MONOTONIC);
	for (unsigned long tick = 0; !stop; tick++) {
		for (struct heat *heat = heats; heat < NEVER; heat++) {
			unsigned long each = heat->per_second * (unsigned long)heat->pages;

			if (!heat->sweep)
				touch(heat, (tick + 1) * each / TICKS - tick * each / TICKS, tick);
			else if (tick % (TICKS / heat->per_second) == 0)
				touch(heat, heat->pages, tick);
		}
		runs = tick > TICKS;
		next += TICK_NS;
		sleep_until(next);
	}
	return NULL;
}

/*
 * Reads or writes those words of the bitmap that hold bits of ours: others cost time. sysfs takes
 * a page at a time.
 */
static void bitmap(int flags, uint64_t *bits)
{
	int fd = open(BITMAP, flags | O_CLOEXEC);
	size_t most = page_bytes() / sizeof(*bits);

	if (fd < 0)
		tap_bail("%s: %s: the kernel needs CONFIG_IDLE_PAGE_TRACKING", BITMAP, strerror(errno));
	for (uint64_t word = 0, end; word < words; word = end) {
		off_t at = (first_word + word) * sizeof(*bits);
		size_t bytes;
		ssize_t done;

		for (end = word; end < words && end < word + most && mine[end]; end++)
			;
		bytes = (end - word) * sizeof(*bits);
		if (!bytes) {
			end = word + 1;
			continue;
		}
		done = flags == O_RDONLY ? pread(fd, bits + word, bytes, at) : pwrite(fd, bits + word, bytes, at);
		if (done != (ssize_t)bytes)
			tap_bail("%s: %zd of %zu bytes at %lld", BITMAP, done, bytes, (long long)at);
	}
	close(fd);
}

static bool is_idle(unsigned int page)
{
	return seen[frames[page] / 64 - first_word] >> frames[page] % 64 & 1;
}

static void find_frames(void)
{
	uint64_t low = UINT64_MAX, high = 0;

	page_frames(region, PAGES * page_bytes(), frames);
	for (unsigned int page = 0; page < PAGES; page++) {
		if (frames[page] == NO_FRAME || !frames[page])
			tap_bail("page %u of the region has no frame", page);
		low = frames[page] < low ? frames[page] : low;
		high = frames[page] > high ? frames[page] : high;
	}
	first_word = low / 64;
	words = high / 64 - first_word + 1;
	mine = calloc(words, sizeof(*mine));
	seen = calloc(words, sizeof(*seen));
	if (!mine || !seen)
		tap_bail("no memory for the bitmap");
	for (unsigned int page = 0; page < PAGES; page++)
		mine[frames[page] / 64 - first_word] |= 1ULL << frames[page] % 64;
}

static void judge(const struct heat *heat, unsigned int ms)
{
	unsigned int known = 0, marked = 0, never = 0, falsely = 0, missed = 0, untouched_missed = 0;

	for (unsigned int n = heat->first; n < heat->first + heat->pages; n++) {
		unsigned int page = place(n);
		bool any = touched[CLEARING][page] || touched[BETWEEN][page] || touched[READING][page];

		known += touched[BETWEEN][page];
		marked += touched[BETWEEN][page] && !is_idle(page);
		never += !any;
		falsely += !any && !is_idle(page);
		missed += !!misses[page];
		untouched_missed += misses[page] && !any;
	}
	tap_note("%u ms, %4u touches/s: %5u pages, %5u touched, %5u of them marked, %5u with misses",
		 ms, heat->per_second, heat->pages, known, marked, missed);
	figure_within(untouched_missed, 0, EDGE_PART * heat->pages, "pages",
		      "%u ms, %u touches/s: misses of pages that were not touched", ms, heat->per_second);
	if (known)
		figure_within(marked / (double)known, RECALL, 1, "of pages touched", "%u ms, %u touches/s: recall",
			      ms, heat->per_second);
	else if (heat != NEVER)
		tap_ok(false, "%u ms, %u touches/s: no page was touched", ms, heat->per_second);
	if (known && heat->per_second <= COLD_PER_SECOND)
		figure_near(missed / (double)known, 1, 1 - RECALL, "of pages touched", "%u ms, %u touches/s: misses in the plugin's counts",
			    ms, heat->per_second);
	if (never)
		figure_within(falsely / (double)never, 0, FALSE_PART, "of pages not touched",
			      "%u ms, %u touches/s: marked falsely", ms, heat->per_second);
}

static void look(unsigned int ms)
{
	long long start = now_ns(CLOCK_MONOTONIC);

	memset((void *)touched, 0, sizeof(touched));
	interval = CLEARING;
	bitmap(O_WRONLY, mine);
	figure_note((now_ns(CLOCK_MONOTONIC) - start) / 1e6, "ms", "%u ms: clearing took", ms);
	timed_watch(region, PAGES * page_bytes());
	interval = BETWEEN;
	sleep_until(now_ns(CLOCK_MONOTONIC) + ms * 1000000LL);
	timed_counts(region, PAGES, misses);
	interval = READING;
	bitmap(O_RDONLY, seen);
	timed_watch(region, 0);
	for (unsigned int n = 0; n < NR_HEATS; n++)
		judge(&heats[n], ms);
}

/* Which pages a heat has, one heat after the other, before they are scattered. */
static void share_pages(void)
{
	unsigned int first = 0;

	for (unsigned int n = 0; n < NR_HEATS; n++) {
		if (heats[n].sweep)
			heats[n].pages = 2 * timed_value("tlb_entries", 0);
		if (&heats[n] == NEVER && first < PAGES)
			heats[n].pages = PAGES - first;
		heats[n].first = first;
		first += heats[n].pages;
	}
	if (first > PAGES)
		tap_bail("a TLB of %lld entries: the region is too small", timed_value("tlb_entries", 0));
}

int main(void)
{
	int slow = node_slow(), other;
	pthread_t thread;

	tap_start();
	timed_need();
	figures_start("timed_accessed");
	other = timed_value("cpus", 0) - 1;
	file_set("0", "/proc/sys/kernel/numa_balancing");
	share_pages();
	run_on_cpu(0);
	region = memory_on(slow >= 0 ? slow : 0, PAGES * page_bytes(), false);
	/* The kernel looks at pages of an LRU list only. */
	pages_settle(region);
	find_frames();
	memset(misses, 0, sizeof(misses));
	if (mlock(misses, sizeof(misses)))
		tap_bail("mlock: %s", strerror(errno));
	thread_start(&thread, touch_all, &other);
	if (!wait_until(runs, 30000, 10000))
		tap_bail("the touching thread does not run");
	look(100);
	look(500);
	stop = true;
	pthread_join(thread, NULL);
	return tap_done();
}
