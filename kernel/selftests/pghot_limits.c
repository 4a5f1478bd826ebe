// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_limits [SECONDS | rules]: what holds promotion back, and that nothing is lost by it: the
 * pace, pins, control groups at their limit, migrators that come and go, and sources that are off.
 * "rules" has what others than those who use a page must be able to rely on.
 */
#include "cgroup.h"
#include "clock.h"
#include "content.h"
#include "emulator.h"
#include "files.h"
#include "heat.h"
#include "memory.h"
#include "migrator.h"
#include "modules.h"
#include "nodes.h"
#include "pghot.h"
#include "ring.h"
#include "tap.h"
#include "task.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES		(8UL << 20)
#define PAGES		(BYTES / page_bytes())
/* It takes seconds. But hint faults are rationed by CPU time, of which checkers leave little. */
#define PATIENCE_MS	240000
/* A level of frequency fades in half of this, so what is used so seldom never has all. */
#define SELDOM_US	800000

/* What threads look at. */
static volatile bool stop;

/* Memory on the slow node that two threads use. */
static struct content *use_slow(bool huge)
{
	return pghot_memory(node_slow(), BYTES, huge, 2);
}

static size_t promoted(const struct content *content)
{
	return pages_off(content->at, BYTES, node_slow());
}

static size_t wait_promoted(const struct content *content, size_t pages)
{
	return pghot_wait_moved(content->at, BYTES, node_slow(), pages, PATIENCE_MS);
}

static long long wait_hot(long long least, long long most)
{
	long long hot;

	wait_until((hot = heat_of_node(node_slow()).hot) >= least && hot <= most, PATIENCE_MS, 20000);
	return hot;
}

/* How often a thread went to sleep. */
static long long sleeps(int pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	return file_field(path, "voluntary_ctxt_switches:");
}

static void test_idle(void)
{
	int pid = pghot_kmigrated(node_slow());
	long long before, wakes, start, ms;

	tap_ok(pid > 0, "node %d has a thread", node_slow());
	/* One that was polling when the sources went off may wake once more. */
	usleep(1200000);
	before = sleeps(pid);
	wakes = pghot_status("wakeups");
	usleep(3000000);
	tap_ok(sleeps(pid) == before && pghot_status("wakeups") == wakes,
	       "it does not wake while all sources are off (%lld times in 3 s)",
	       sleeps(pid) - before);

	/* Without NUMA balancing nothing is reported. */
	file_write("1", PGHOT_SYSCTL "enabled_sources");
	start = now_ms();
	wakes = pghot_status("wakeups");
	usleep(3000000);
	wakes = pghot_status("wakeups") - wakes;
	ms = now_ms() - start;
	tap_ok(wakes > 0 && wakes <= ms / 100 + 1,
	       "with a source on it looks each 100 ms (%lld times in %lld ms)", wakes, ms);
	pghot_stop();
}

static void test_pace(enum pghot_source source)
{
	struct content *content = use_slow(false);
	long long refused = pghot_counter("pghot_refused_pace"), known, start, ms, began;
	size_t moved, most, first;
	cpu_set_t all;

	/* Each node of the top tier has a pace of its own. */
	sched_getaffinity(0, sizeof(all), &all);
	pghot_run_on(node_at(1));
	file_write("1", PGHOT_RATE);
	start = now_ms();
	pghot_start(source);
	content_start_writers(content);
	first = wait_promoted(content, 1);
	began = now_ms();
	usleep(3000000);
	known = heat_of_node(node_slow()).known;
	moved = promoted(content);
	ms = now_ms() - start;
	/* Two rounds' worth may have been saved up. */
	most = (ms + 500) * (1 << 20) / 1000 / page_bytes();
	tap_note("%s: %zu pages in %lld ms at 256 pages a second; %lld records",
		 pghot_sources[source], moved, ms, known);
	tap_ok(moved > 0 && moved < PAGES && moved <= most, "%s: promotion keeps to the pace",
	       pghot_sources[source]);
	ms = now_ms() - began;
	/* A hint fault tells of a page once in a second or more; who waits longer is not recent. */
	if (source != PGHOT_HINTFAULT)
		tap_ok(moved - first >= (size_t)ms * (1 << 20) / 1000 / page_bytes() / 2,
		       "%s: and makes use of it: %zu pages in %lld ms", pghot_sources[source],
		       moved - first, ms);
	tap_ok(pghot_counter("pghot_refused_pace") > refused, "%s: what had to wait is counted",
	       pghot_sources[source]);
	tap_ok(known >= (long long)(PAGES - moved) / 2, "%s: and keeps its record",
	       pghot_sources[source]);
	file_write("65536", PGHOT_RATE);
	moved = wait_promoted(content, PAGES);
	content_stop_writers(content);
	pghot_stop();
	tap_ok(moved == PAGES, "%s: and goes when the pace allows it", pghot_sources[source]);
	tap_ok(!content_wrong(content, "paced"), "%s: contents", pghot_sources[source]);
	pghot_memory_drop(content);
	sched_setaffinity(0, sizeof(all), &all);
}

/* More is hot than the pace lets go: what is used most goes first. Pins hold all until it is known. */
static void test_hottest(enum pghot_source source)
{
	struct content *warm = pghot_memory(node_slow(), BYTES, false, 1), *hot = use_slow(false);
	struct ring *rings[2] = { ring_new(), ring_new() };
	size_t pinned, went, warm_went;
	long long known;
	cpu_set_t all;

	if (ring_pin(rings[0], warm->at, BYTES) || ring_pin(rings[1], hot->at, BYTES))
		tap_bail("no pins");
	warm_went = promoted(warm);
	went = promoted(hot);
	pinned = 2 * PAGES - went - warm_went;
	sched_getaffinity(0, sizeof(all), &all);
	pghot_run_on(node_at(1));
	warm->pause_us = SELDOM_US;
	content_start_writers(warm);
	content_start_writers(hot);
	pghot_start(source);
	known = wait_hot(pinned * 9 / 10, LLONG_MAX);
	file_write("1", PGHOT_RATE);
	/* A round that was chosen from before is over. */
	usleep(500000);
	ring_unpin(rings[1]);
	ring_unpin(rings[0]);
	wait_promoted(hot, PAGES - (PAGES - went) / 10);
	went = promoted(hot) - went;
	warm_went = promoted(warm) - warm_went;
	file_write("65536", PGHOT_RATE);
	wait_promoted(warm, PAGES);
	content_stop_writers(warm);
	content_stop_writers(hot);
	pghot_stop();
	tap_note("%s: %lld of %zu pages were hot; %zu of the hottest went, and %zu others",
		 pghot_sources[source], known, pinned, went, warm_went);
	tap_ok(known >= (long long)pinned * 9 / 10, "%s: two kinds of memory are hot",
	       pghot_sources[source]);
	tap_ok(went && went >= 4 * warm_went, "%s: what is used most goes first",
	       pghot_sources[source]);
	tap_ok(promoted(warm) == PAGES, "%s: and the rest when the pace allows it",
	       pghot_sources[source]);
	tap_ok(!content_wrong(hot, "hottest") && !content_wrong(warm, "less hot"),
	       "%s: contents of both", pghot_sources[source]);
	for (int n = 0; n < 2; n++)
		ring_free(rings[n]);
	pghot_memory_drop(hot);
	pghot_memory_drop(warm);
	sched_setaffinity(0, sizeof(all), &all);
}

static void test_pins(enum pghot_source source)
{
	struct content *content = use_slow(false);
	long long refused = pghot_status("failed_pinned");
	struct ring *ring = ring_new();
	size_t moved, pinned;

	if (ring_pin(ring, content->at, BYTES / 2))
		tap_bail("no pins");
	/* Pages of CMA, where long-lived pins are not allowed, went elsewhere for it. */
	pinned = pages_on(content->at, BYTES / 2, node_slow());
	pghot_start(source);
	content_start_writers(content);
	wait_promoted(content, PAGES - pinned);
	usleep(1000000);
	moved = promoted(content);
	refused = pghot_status("failed_pinned") - refused;
	tap_note("%s: %zu pages are pinned there, %zu went, %lld refused", pghot_sources[source],
		 pinned, moved, refused);
	tap_ok(pinned && moved == PAGES - pinned &&
	       pages_on(content->at, BYTES / 2, node_slow()) == pinned,
	       "%s: pinned pages stay, others go", pghot_sources[source]);
	tap_ok(refused >= (long long)pinned, "%s: they are counted", pghot_sources[source]);
	ring_unpin(ring);
	moved = wait_promoted(content, PAGES);
	content_stop_writers(content);
	pghot_stop();
	tap_ok(moved == PAGES, "%s: they go when nobody pins them", pghot_sources[source]);
	tap_ok(!content_wrong(content, "pinned"), "%s: contents", pghot_sources[source]);
	ring_free(ring);
	pghot_memory_drop(content);
}

/* Reads every page again and again, for some time. */
static void use(const unsigned char *at, size_t bytes, long long ms)
{
	for (long long end = now_ms() + ms; now_ms() < end; usleep(10000))
		read_pages(at, bytes);
}

/*
 * Pinned pages stay where their records are seen to age. Others, of which the pace lets few go,
 * are too old and not idle yet in a round between two sweeps. There is one if a walk finds
 * something hot after the sweep, so it takes some tries.
 */
static void test_age(enum pghot_source source)
{
	struct content *content = use_slow(false), *paced = use_slow(false);
	long long refused = pghot_counter("pghot_refused_latency"), hot, cold, pinned;
	long long end = now_ms() + PATIENCE_MS;
	struct ring *ring = ring_new();

	if (ring_pin(ring, content->at, BYTES))
		tap_bail("no pins");
	pinned = pages_on(content->at, BYTES, node_slow());
	file_write("1", PGHOT_RATE);
	pghot_start(source);
	content_start_writers(content);
	hot = wait_hot(pinned / 2, LLONG_MAX);
	content_stop_writers(content);
	do {
		move_range(paced->at, BYTES, 0, node_slow(), MPOL_MF_MOVE, 1);
		use(paced->at, BYTES, 1000);
		use(content->at, BYTES / 4, 1500);
	} while (pghot_counter("pghot_refused_latency") == refused && now_ms() < end);
	refused = pghot_counter("pghot_refused_latency") - refused;
	cold = wait_hot(0, pinned / 8);
	tap_note("%s: %lld pinned, %lld hot, then %lld; refused %lld", pghot_sources[source],
		 pinned, hot, cold, refused);
	tap_ok(pinned && hot >= pinned / 2, "%s: pinned pages are hot while they are used",
	       pghot_sources[source]);
	tap_ok(refused > 0, "%s: what was used too long ago is counted", pghot_sources[source]);
	tap_ok(cold <= pinned / 8, "%s: what nobody uses any more is not hot",
	       pghot_sources[source]);
	pghot_stop();
	ring_unpin(ring);
	ring_free(ring);
	file_write("65536", PGHOT_RATE);
	tap_ok(!content_wrong(content, "aged") && !content_wrong(paced, "paced"), "%s: contents",
	       pghot_sources[source]);
	pghot_memory_drop(content);
	pghot_memory_drop(paced);
}

/* What was hot, and would be for minutes, is freed: whoever gets its pages begins with nothing. */
static void test_freed(enum pghot_source source)
{
	struct content *content = use_slow(false);
	struct ring *ring = ring_new();
	long long before, hot, after, pinned;

	if (ring_pin(ring, content->at, BYTES))
		tap_bail("no pins");
	pinned = pages_on(content->at, BYTES, node_slow());
	before = heat_of_node(node_slow()).known;
	pghot_start(source);
	content_start_writers(content);
	hot = wait_hot(pinned * 9 / 10, LLONG_MAX);
	content_stop_writers(content);
	/* Pinned to the end, they are freed and not promoted. */
	pghot_memory_drop(content);
	ring_unpin(ring);
	ring_free(ring);
	wait_until((after = heat_of_node(node_slow()).known) <= before + pinned / 8, 5000, 20000);
	pghot_stop();
	tap_ok(hot >= pinned * 9 / 10 && after <= before + pinned / 8,
	       "%s: nothing is known of freed pages: %lld were, then %lld hot, then %lld",
	       pghot_sources[source], before, hot, after);
}

static long long group_number(const char *name, const char *file)
{
	return file_number("%s/%s/%s", cgroup_root(), name, file);
}

/* What a group counted. Its CPUs bring it together every two seconds, or sooner if it is much. */
static long long group_promoted(const char *name, long long expected)
{
	long long count;

	wait_until((count = cgroup_stat(name, "memory.stat", "pgpromote_success")) >= expected, 5000,
		   100000);
	return count;
}

static void test_groups(enum pghot_source source)
{
	static const char *const groups[] = { "first", "full" };
	long long before[2], used[2], ooms;
	struct content *contents[2];

	for (int n = 0; n < 2; n++) {
		cgroup_make(groups[n]);
		cgroup_enter(groups[n]);
		contents[n] = use_slow(false);
		cgroup_enter(NULL);
		before[n] = cgroup_stat(groups[n], "memory.stat", "pgpromote_success");
		used[n] = group_number(groups[n], "memory.current");
	}
	file_write_number(used[1], "%s/full/memory.max", cgroup_root());
	ooms = cgroup_stat("full", "memory.events", "max");
	pghot_start(source);
	for (int n = 0; n < 2; n++)
		content_start_writers(contents[n]);
	for (int n = 0; n < 2; n++)
		wait_promoted(contents[n], PAGES);
	for (int n = 0; n < 2; n++)
		content_stop_writers(contents[n]);
	pghot_stop();
	for (int n = 0; n < 2; n++) {
		long long success = group_promoted(groups[n], before[n] + (long long)PAGES);
		long long now = group_number(groups[n], "memory.current");

		tap_ok(promoted(contents[n]) == PAGES && success - before[n] == (long long)PAGES,
		       "%s: group %s: %zu promoted, %lld counted", pghot_sources[source], groups[n],
		       promoted(contents[n]), success - before[n]);
		tap_ok(llabs(now - used[n]) < (long long)BYTES / 8,
		       "%s: group %s: uses what it used", pghot_sources[source], groups[n]);
		tap_ok(!content_wrong(contents[n], groups[n]), "%s: group %s: contents",
		       pghot_sources[source], groups[n]);
		pghot_memory_drop(contents[n]);
	}
	tap_ok(cgroup_stat("full", "memory.events", "max") == ooms,
	       "%s: the group at its limit did not run into it", pghot_sources[source]);
	file_write("max", "%s/full/memory.max", cgroup_root());
}

struct mover {
	struct content *content;
	volatile size_t moved;
	pthread_t thread;
};

/* Takes what was promoted down again. */
static void *take_down(void *argument)
{
	struct mover *mover = argument;

	while (!stop) {
		mover->moved += promoted(mover->content);
		move_range(mover->content->at, BYTES, 0, node_slow(), MPOL_MF_MOVE, 1);
		usleep(300000);
	}
	return NULL;
}

static const char *other_migrator(const char *now)
{
	static const char *const names[] = { "kernel", "mtcopy", "dcbm", "none" };
	/* See emulator.h: nobody may migrate while there is none or first one. */
	int nr = emulator_patches_badly() ? 3 : 4;
	const char *name;

	do
		name = names[rand() % nr];
	while (now && !strcmp(name, now));
	return name;
}

static void test_switch(enum pghot_source source, long long seconds)
{
	struct mover movers[2] = { { .content = use_slow(false) }, { .content = use_slow(true) } };
	long long wasted = pghot_counter("pghot_wasted");
	long long bounced = pghot_status("bounced");
	long long came = pghot_counter("pghot_promoted");
	unsigned int chosen = 0, refused = 0;
	const char *name = NULL;
	long long end, start;
	size_t wrong = 0;

	for (int n = 0; n < 3; n++) {
		static const char *const names[] = { "mtcopy", "dcbm", "kernel" };

		migrator_need(names[n]);
	}
	migrator_eager();
	pghot_start(source);
	for (int n = 0; n < 2; n++) {
		content_start_writers(movers[n].content);
		thread_start(&movers[n].thread, take_down, &movers[n]);
	}
	start = now_ms();
	end = start + seconds * 1000;
	while (now_ms() < end || ((!movers[0].moved || !movers[1].moved ||
				     pghot_status("bounced") == bounced) &&
				    now_ms() < start + PATIENCE_MS)) {
		name = other_migrator(name);
		refused += !!migrator_choose(name);
		chosen++;
		usleep(rand() % 200000);
		if (strcmp(name, "mtcopy"))
			module_unload("mtcopy");
	}
	stop = true;
	for (int n = 0; n < 2; n++) {
		pthread_join(movers[n].thread, NULL);
		content_stop_writers(movers[n].content);
	}
	pghot_stop();
	migrator_defaults();
	for (int n = 0; n < 2; n++)
		wrong += content_wrong(movers[n].content, "while migrators change");
	wasted = pghot_counter("pghot_wasted") - wasted;
	bounced = pghot_status("bounced") - bounced;
	came = pghot_counter("pghot_promoted") - came;
	tap_note("%s: %u migrators chosen, %zu and %zu pages were up; of %lld wasted %lld, bounced %lld",
		 pghot_sources[source], chosen, movers[0].moved, movers[1].moved, came, wasted,
		 bounced);
	tap_ok(!wrong, "%s: contents while migrators change", pghot_sources[source]);
	tap_ok(movers[0].moved && movers[1].moved, "%s: pages were promoted meanwhile", pghot_sources[source]);
	tap_ok(wasted > 0 && wasted <= came,
	       "%s: what went down again soon was wasted", pghot_sources[source]);
	tap_ok(bounced > 0 && bounced <= came, "%s: what came up again after that bounced",
	       pghot_sources[source]);
	tap_ok(chosen > 1 && !refused, "%s: every migrator could be chosen", pghot_sources[source]);
	for (int n = 0; n < 2; n++)
		pghot_memory_drop(movers[n].content);
	stop = false;
}

int main(int argc, char **argv)
{
	long long seconds = argc > 1 ? atoll(argv[1]) : 8;
	bool has[PGHOT_SOURCES];

	tap_start();
	nodes_with_memory();
	pghot_init();
	for (int source = 0; source < PGHOT_SOURCES; source++)
		has[source] = source != PGHOT_HWHINT && pghot_has(source);
	if (argc > 1 && !strcmp(argv[1], "rules")) {
		if (has[PGHOT_PGTSCAN])
			test_freed(PGHOT_PGTSCAN);
		for (int source = 0; source < PGHOT_SOURCES; source++)
			if (has[source])
				test_groups(source);
		return tap_done();
	}
	atexit(migrator_defaults);
	test_idle();
	for (int source = 0; source < PGHOT_SOURCES; source++) {
		if (!has[source])
			continue;
		test_pace(source);
		/* Hint faults do not tell how often a page is used. */
		if (source != PGHOT_HINTFAULT)
			test_hottest(source);
		/* Linux makes no hint faults of pinned pages. */
		if (source != PGHOT_HINTFAULT) {
			test_pins(source);
			test_age(source);
			test_freed(source);
		}
		test_groups(source);
		test_switch(source, seconds);
	}
	return tap_done();
}
