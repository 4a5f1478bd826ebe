// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_limits [SECONDS]: what holds promotion back, and that nothing is lost by it: the pace,
 * pins, control groups at their limit, migrators that come and go, and sources that are off.
 */
#include "cgroup.h"
#include "content.h"
#include "emulator.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "pghot.h"
#include "ring.h"
#include "tap.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES		(8UL << 20)
#define PAGES		(BYTES / page_bytes())
#define PATIENCE_MS	40000

/* Memory on the slow node that two threads use. */
static struct content *use_slow(bool huge)
{
	void *at = map_anonymous(BYTES, huge);
	struct content *content;

	memory_policy(MPOL_BIND, node_slow());
	memset(at, 1, BYTES);
	memory_policy(MPOL_DEFAULT, 0);
	if (pages_on(at, BYTES, node_slow()) != PAGES)
		tap_bail("no room on node %d", node_slow());
	content = content_new(at, BYTES, 2);
	content_fill(content);
	pghot_settle(at);
	return content;
}

static void drop(struct content *content)
{
	munmap(content->at, content->bytes);
	content_free(content);
}

static size_t promoted(const struct content *content)
{
	return PAGES - pages_on(content->at, BYTES, node_slow());
}

static size_t wait_promoted(const struct content *content, size_t pages)
{
	return pghot_wait_moved(content->at, BYTES, node_slow(), pages, PATIENCE_MS);
}

/* Pages of the slow node of which something is known. */
static long long pages_known(void)
{
	FILE *file = fopen(PGHOT_DEBUGFS "/heat", "r");
	long long known, sum = 0;
	char line[256];
	int node;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%*u %d %lld", &node, &known) == 2 && node == node_slow())
			sum += known;
	if (file)
		fclose(file);
	return sum;
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
	wakes = pghot_counter("pghot_kmigrated_wakeups");
	usleep(3000000);
	tap_ok(sleeps(pid) == before && pghot_counter("pghot_kmigrated_wakeups") == wakes,
	       "it does not wake while all sources are off (%lld times in 3 s)",
	       sleeps(pid) - before);

	file_write("500", PGHOT_DEBUGFS "/kmigrated_sleep_ms");
	/* Without NUMA balancing nothing is reported. */
	file_write("1", PGHOT_SYSCTL "enabled_sources");
	start = pghot_ms();
	wakes = pghot_counter("pghot_kmigrated_wakeups");
	usleep(3000000);
	wakes = pghot_counter("pghot_kmigrated_wakeups") - wakes;
	ms = pghot_ms() - start;
	tap_ok(wakes > 0 && wakes <= ms / 500 + 1,
	       "with a source on it looks each 500 ms (%lld times in %lld ms)", wakes, ms);
	file_write("100", PGHOT_DEBUGFS "/kmigrated_sleep_ms");
	pghot_stop();
}

static void test_pace(enum pghot_source source)
{
	struct content *content = use_slow(false);
	long long refused = pghot_counter("pghot_refused_pace"), known, start, ms;
	size_t moved, most;

	file_write("1", PGHOT_SYSCTL "promote_rate_limit_MBps");
	start = pghot_ms();
	pghot_start(source);
	content_start_writers(content);
	wait_promoted(content, 1);
	usleep(2000000);
	known = pages_known();
	moved = promoted(content);
	ms = pghot_ms() - start;
	/* A tenth of a second's worth may have been saved up. */
	most = (ms + 100) * (1 << 20) / 1000 / page_bytes();
	tap_note("%s: %zu pages in %lld ms at 256 pages a second; %lld records",
		 pghot_sources[source], moved, ms, known);
	tap_ok(moved > 0 && moved < PAGES && moved <= most, "%s: promotion keeps to the pace",
	       pghot_sources[source]);
	tap_ok(pghot_counter("pghot_refused_pace") > refused, "%s: what had to wait is counted",
	       pghot_sources[source]);
	tap_ok(known >= (long long)(PAGES - moved) / 2, "%s: and keeps its record",
	       pghot_sources[source]);
	file_write("65536", PGHOT_SYSCTL "promote_rate_limit_MBps");
	moved = wait_promoted(content, PAGES);
	content_stop_writers(content);
	pghot_stop();
	tap_ok(moved == PAGES, "%s: and goes when the pace allows it", pghot_sources[source]);
	tap_ok(!content_wrong(content, "paced"), "%s: contents", pghot_sources[source]);
	drop(content);
}

static void test_pins(enum pghot_source source)
{
	struct content *content = use_slow(false);
	long long refused = pghot_counter("pghot_refused_isolation");
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
	refused = pghot_counter("pghot_refused_isolation") - refused;
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
	drop(content);
}

static long long group_number(const char *name, const char *file)
{
	return file_number("%s/%s/%s", cgroup_root(), name, file);
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
		long long success = cgroup_stat(groups[n], "memory.stat", "pgpromote_success");
		long long now = group_number(groups[n], "memory.current");

		tap_ok(promoted(contents[n]) == PAGES && success - before[n] == (long long)PAGES,
		       "%s: group %s: %zu promoted, %lld counted", pghot_sources[source], groups[n],
		       promoted(contents[n]), success - before[n]);
		tap_ok(llabs(now - used[n]) < (long long)BYTES / 8,
		       "%s: group %s: uses what it used", pghot_sources[source], groups[n]);
		tap_ok(!content_wrong(contents[n], groups[n]), "%s: group %s: contents",
		       pghot_sources[source], groups[n]);
		drop(contents[n]);
	}
	tap_ok(cgroup_stat("full", "memory.events", "max") == ooms,
	       "%s: the group at its limit did not run into it", pghot_sources[source]);
	file_write("max", "%s/full/memory.max", cgroup_root());
}

static volatile bool stop;

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
	unsigned int chosen = 0, refused = 0;
	const char *name = NULL;
	long long end, start;
	size_t wrong = 0;

	for (int n = 0; n < 3; n++) {
		static const char *const names[] = { "mtcopy", "dcbm", "kernel" };

		if (migrator_choose(names[n]))
			tap_bail("migrator %s cannot be chosen", names[n]);
	}
	migrator_eager();
	pghot_start(source);
	for (int n = 0; n < 2; n++) {
		content_start_writers(movers[n].content);
		if (pthread_create(&movers[n].thread, NULL, take_down, &movers[n]))
			tap_bail("no thread");
	}
	start = pghot_ms();
	end = start + seconds * 1000;
	while (pghot_ms() < end || ((!movers[0].moved || !movers[1].moved) &&
				    pghot_ms() < start + PATIENCE_MS)) {
		name = other_migrator(name);
		refused += !!migrator_choose(name);
		chosen++;
		usleep(rand() % 200000);
		if (strcmp(name, "mtcopy"))
			mtcopy_unload();
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
	tap_note("%s: %u migrators chosen, %zu and %zu pages were up", pghot_sources[source], chosen,
		 movers[0].moved, movers[1].moved);
	tap_ok(!wrong, "%s: contents while migrators change", pghot_sources[source]);
	tap_ok(movers[0].moved && movers[1].moved, "%s: pages were promoted meanwhile", pghot_sources[source]);
	tap_ok(chosen > 1 && !refused, "%s: every migrator could be chosen", pghot_sources[source]);
	for (int n = 0; n < 2; n++)
		drop(movers[n].content);
	stop = false;
}

int main(int argc, char **argv)
{
	long long seconds = argc > 1 ? atoll(argv[1]) : 8;
	bool has[PGHOT_SOURCES];

	tap_start();
	nodes_with_memory();
	pghot_init();
	atexit(migrator_defaults);
	test_idle();
	for (int source = 0; source < PGHOT_SOURCES; source++)
		has[source] = source != PGHOT_HWHINT && pghot_has(source);
	for (int source = 0; source < PGHOT_SOURCES; source++) {
		if (!has[source])
			continue;
		test_pace(source);
		/* Linux makes no hint faults of pinned pages. */
		if (source != PGHOT_HINTFAULT)
			test_pins(source);
		test_groups(source);
		test_switch(source, seconds);
	}
	return tap_done();
}
