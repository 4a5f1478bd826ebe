// SPDX-License-Identifier: GPL-2.0-only
/*
 * channels: what dcbm does with the channels that it has. What a batch costs in mappings and
 * interrupts, and what becomes of channels that do not answer, with the
 * engine faultdma. Which channels it takes is for the test devices.
 * channels own NUMBER INTERRUPT QUEUE: batches with the machine's own channels, of which there
 * are that many, with interrupts of that name and that many descriptors each.
 * channels poll: how short batches are waited for.
 */
#include "content.h"
#include "engine.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "modules.h"
#include "nodes.h"
#include "tap.h"
#include "trace.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BATCH	(2UL << 20)	/* 512 base pages */

static void make(struct memory *memory, size_t bytes, unsigned int writers)
{
	if (!memory_make(memory, kind_named("anonymous"), bytes, node_at(0), writers))
		tap_bail("no memory");
}

static void setting(const char *file, long long value)
{
	int error = file_write_number(value, DCBM "/%s", file);

	if (error)
		tap_bail("dcbm/%s: %s", file, strerror(-error));
}

static void settings(unsigned int lanes, unsigned int timeout_ms)
{
	file_write("0", MIGRATION "/min_batch_bytes");
	setting("lanes", lanes);
	setting("timeout_ms", timeout_ms);
	setting("poll_below_bytes", 0);
}

/* --- Which channels a batch gets --- */

static unsigned int migrate_once(unsigned int lanes, struct stats *done)
{
	static const char *const names[] = { "migrator/migrator_lane_done", NULL };
	struct trace_event *events;
	struct memory memory;
	unsigned int seen = 0;
	size_t left;

	make(&memory, BATCH, 0);
	setting("lanes", lanes);
	*done = migrator_stats("dcbm", NULL);
	trace_start(names);
	left = memory_move(&memory, node_at(1), 1);
	seen = trace_stop(&events);
	free(events);
	*done = migrator_since("dcbm", NULL, *done);
	if (left || memory_wrong(&memory, "a batch"))
		seen = 0;
	memory_drop(&memory);
	return seen;
}

static void test_lanes(void)
{
	struct stats done;
	unsigned int seen;

	engine_start("channels=3");
	settings(1, 30000);
	seen = migrate_once(1, &done);
	tap_ok(seen == 1 && done.bytes == BATCH, "one lane");
	seen = migrate_once(3, &done);
	tap_ok(seen == 3 && done.bytes == BATCH, "three lanes of three channels");
	seen = migrate_once(64, &done);
	tap_ok(seen >= 3 && done.bytes == BATCH && !done.fallbacks,
	       "more lanes than channels: %u", seen);
	tap_ok(engine_stop(), "the engine can go");
}

/* --- What a batch costs --- */

struct cost {
	unsigned int maps_src, maps_dst;
	long long interrupts, bytes;
	struct stats done;
};

/* @interrupts: what the engine's are called in /proc/interrupts, NULL for faultdma. */
static long long interrupts_of(const char *interrupts)
{
	unsigned long counts[64];
	long long sum = 0;
	int lines;

	if (!interrupts)
		return engine_count("interrupts");
	lines = file_interrupts(interrupts, counts, ARRAY_SIZE(counts));
	while (lines--)
		sum += counts[lines];
	return sum;
}

static struct cost cost_of_batch(unsigned int lanes, const char *interrupts)
{
	static const char *const names[] = { "dma/dma_map_sg", NULL };
	struct cost cost = { 0 };
	struct trace_event *events;
	struct memory memory;
	size_t nr, left;

	make(&memory, BATCH, 0);
	setting("lanes", lanes);
	cost.interrupts = interrupts_of(interrupts);
	cost.bytes = interrupts ? 0 : engine_count("bytes");
	cost.done = migrator_stats("dcbm", NULL);
	trace_start(names);
	left = memory_move(&memory, node_at(1), 1);
	nr = trace_stop(&events);
	for (size_t n = 0; n < nr; n++) {
		if (!interrupts && !strstr(events[n].fields, "faultdma"))
			continue;
		cost.maps_src += !!strstr(events[n].fields, "dir=TO_DEVICE");
		cost.maps_dst += !!strstr(events[n].fields, "dir=FROM_DEVICE");
	}
	free(events);
	cost.interrupts = interrupts_of(interrupts) - cost.interrupts;
	cost.bytes = interrupts ? 0 : engine_count("bytes") - cost.bytes;
	cost.done = migrator_since("dcbm", NULL, cost.done);
	if (left || memory_wrong(&memory, "cost"))
		tap_ok(false, "a batch moves");
	memory_drop(&memory);
	return cost;
}

static void test_cost(unsigned int lanes)
{
	struct cost cost = cost_of_batch(lanes, NULL);

	tap_note("%u lanes: %lld batches; mappings %u and %u, interrupts %lld, bytes %lld", lanes,
		 cost.done.batches, cost.maps_src, cost.maps_dst, cost.interrupts, cost.bytes);
	tap_ok(cost.done.batches == 1 && cost.maps_src == lanes && cost.maps_dst == lanes,
	       "%u lanes: one mapping per channel and side", lanes);
	tap_ok(cost.interrupts == lanes, "%u lanes: one interrupt per channel", lanes);
	tap_ok(cost.bytes == (long long)BATCH && cost.done.bytes == (long long)BATCH &&
	       !cost.done.fallbacks && !cost.done.declined,
	       "%u lanes: no byte is copied by the CPU", lanes);
}

static void test_costs(void)
{
	engine_start("channels=4");
	settings(1, 30000);
	test_cost(1);
	test_cost(2);
	test_cost(4);
	tap_ok(engine_stop(), "the engine can go");
}

/*
 * A real engine's queue is shorter than a batch: then it interrupts more than once, for each
 * half of it.
 */
static void test_own_engine(unsigned int channels, const char *interrupts, unsigned int queue)
{
	int error = module_load("dcbm", "");

	if (!error)
		error = file_write("dcbm", MIGRATION "/migrator");
	if (error)
		tap_bail("dcbm with the machine's own channels: %s", strerror(-error));
	settings(channels, 30000);
	tap_ok(dcbm_devices(": taken") == channels, "own engine: %u of %u channels are taken",
	       dcbm_devices(": taken"), channels);
	for (unsigned int lanes = 1; lanes <= channels; lanes *= 2) {
		struct cost cost = cost_of_batch(lanes, interrupts);
		unsigned int descs = BATCH / page_bytes() / lanes;

		tap_note("own engine, %u lanes: mappings %u and %u, interrupts %lld", lanes,
			 cost.maps_src, cost.maps_dst, cost.interrupts);
		tap_ok(cost.done.batches == 1 && cost.maps_src == lanes && cost.maps_dst == lanes,
		       "own engine, %u lanes: one mapping per channel and side", lanes);
		tap_ok(cost.interrupts >= lanes &&
		       cost.interrupts <= lanes * (descs / (queue / 2) + 1),
		       "own engine, %u lanes: each interrupts, for half a queue at most", lanes);
		tap_ok(cost.done.bytes == (long long)BATCH && !cost.done.fallbacks,
		       "own engine, %u lanes: no byte is copied by the CPU", lanes);
	}
	tap_ok(engine_stop(), "the engine can be left");
}

/* A queue that is shorter than a batch: full again and again, and nothing is left out. */
static void test_short_queue(bool unordered)
{
	char parameters[64];
	struct cost cost;

	snprintf(parameters, sizeof(parameters), "channels=2 depth=8 unordered=%d", unordered);
	engine_start(parameters);
	settings(2, 30000);
	for (int try = 0; try < 3; try++) {
		cost = cost_of_batch(2, NULL);
		tap_ok(cost.bytes == (long long)BATCH && cost.done.bytes == (long long)BATCH &&
		       !cost.done.fallbacks, "%s: all is copied", parameters);
	}
	tap_ok(engine_stop(), "the engine can go");
}

/* --- Waiting --- */

#define POLL_DELAY_US	1000
#define POLL_HALF_NS	100000	/* of the 200 us for which it polls */
#define POLL_QUICK	10
#define POLL_MOST	2000

/* How poll_below_bytes is set, for a batch of one page. */
enum { POLL_NEVER, POLL_EQUAL, POLL_BELOW, POLL_WAYS };

static long long poll_took[POLL_WAYS][POLL_MOST];

static long long cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* How many of so many moves took no more CPU time than one that sleeps, and some. */
static unsigned int poll_quick(int way, unsigned int times)
{
	long long least = poll_took[POLL_NEVER][0];
	unsigned int quick = 0;

	for (unsigned int n = 0; n < times; n++)
		if (poll_took[POLL_NEVER][n] < least)
			least = poll_took[POLL_NEVER][n];
	for (unsigned int n = 0; n < times; n++)
		quick += poll_took[way][n] < least + POLL_HALF_NS;
	return quick;
}

/*
 * Whoever polls spends the time that the engine takes on a CPU. On a busy host most moves seem to
 * take far longer, so it takes as many as it needs for some that nobody disturbed. With checkers
 * a move takes so much that 0.2 ms are not seen.
 */
static void test_poll(void)
{
	const long long below[POLL_WAYS] = { 0, page_bytes(), page_bytes() + 1 };
	unsigned int times = 0, quick[POLL_WAYS];
	struct memory memory;
	struct stats done;
	size_t left = 0;

	engine_start("channels=1");
	settings(1, 30000);
	engine_set("delay_us", POLL_DELAY_US);
	make(&memory, page_bytes(), 0);
	done = migrator_stats("dcbm", NULL);
	do {
		for (int way = 0; way < POLL_WAYS; way++) {
			long long start;

			setting("poll_below_bytes", below[way]);
			start = cpu_ns();
			/* Each setting goes to each node, and never to where the memory is. */
			left += memory_move(&memory, node_at(way + times + 1), 1);
			poll_took[way][times] = cpu_ns() - start;
		}
		times++;
		for (int way = 0; way < POLL_WAYS; way++)
			quick[way] = poll_quick(way, times);
	} while ((quick[POLL_NEVER] < POLL_QUICK || quick[POLL_EQUAL] < POLL_QUICK) &&
		 times < POLL_MOST);
	done = migrator_since("dcbm", NULL, done);
	tap_ok(!left && done.batches == POLL_WAYS * times && !memory_wrong(&memory, "polled"),
	       "short batches are copied by the channel");
	tap_note("of %u moves each, quick: never polled %u, as long as the limit %u, shorter %u",
		 times, quick[POLL_NEVER], quick[POLL_EQUAL], quick[POLL_BELOW]);
	tap_ok(quick[POLL_NEVER] >= POLL_QUICK && quick[POLL_BELOW] <= quick[POLL_NEVER] / 4,
	       "a batch below poll_below_bytes is waited for without sleeping");
	tap_ok(quick[POLL_EQUAL] >= POLL_QUICK, "one of as many bytes is slept for");
	memory_drop(&memory);
	tap_ok(engine_stop(), "the engine can go");
}

/* --- Channels that do not answer --- */

static void test_retired(void)
{
	struct memory memory;
	struct stats done;
	size_t left, wrong;

	engine_start("channels=2");
	/* For the other channel, too, which is to answer. */
	settings(2, 5000);
	make(&memory, BATCH, 1);
	/* One hangs, and cannot be terminated. */
	engine_set_one(0, "terminate", 1);
	engine_set_one(0, "hang_every", 1);
	content_start_writers(memory.content);
	done = migrator_stats("dcbm", NULL);
	left = memory_move(&memory, node_at(1), 1);
	done = migrator_since("dcbm", NULL, done);
	tap_note("%zu pages did not move, fallbacks %lld, quarantined %lld", left, done.fallbacks,
		 quarantined_bytes());
	tap_ok(!left, "its folios get other destinations");
	tap_ok(dcbm_devices("faultdma node -1: retired") == 1 &&
	       dcbm_devices("faultdma node -1: taken") == 1, "the channel is retired");
	tap_ok(quarantined_bytes() == BATCH / 2, "its share is in quarantine: %lld bytes",
	       quarantined_bytes());
	sleep(1);
	tap_ok(dcbm_devices("cannot be terminated") == 1, "devices tells why it stays");
	tap_ok(quarantined_bytes() == BATCH / 2, "and stays there");

	done = migrator_stats("dcbm", NULL);
	left = memory_move(&memory, node_at(0), 1);
	done = migrator_since("dcbm", NULL, done);
	tap_ok(!left && done.bytes == (long long)BATCH, "the other channel goes on");

	/* Not active any more, and not to be unloaded either. */
	file_write("none", MIGRATION "/migrator");
	tap_ok(module_unload("dcbm") < 0 && module_unload("faultdma") < 0,
	       "the modules stay while it may write");
	tap_ok(quarantined_bytes() == BATCH / 2, "its memory, too");
	tap_ok(!file_write("dcbm", MIGRATION "/migrator") &&
	       dcbm_devices("faultdma node -1: retired") == 1, "active again: still retired");
	engine_set_one(0, "terminate", 0);
	engine_set_one(0, "hang_every", 0);
	tap_ok(dcbm_recovers() && dcbm_devices("faultdma node -1: taken") == 2,
	       "it is used again when it has stopped");
	left = memory_move(&memory, node_at(1), 1);
	content_stop_writers(memory.content);
	wrong = memory_wrong(&memory, "a retired channel");
	tap_ok(memory_drop(&memory) && !wrong && !left, "contents");
	tap_ok(engine_stop(), "the engine can go");
}

static bool wait_late(long long copies)
{
	for (int try = 0; try < 500; try++) {
		if (engine_count("late") >= copies)
			return true;
		usleep(20000);
	}
	return false;
}

/*
 * Each copy takes far longer than timeout_ms, and terminate only says that it has ended them.
 * When the batch's copy has come, the one that was to show whether the channel goes on is still
 * under way, and writes to memory, too.
 */
static void test_late_probe(void)
{
	struct memory memory;
	long long late;

	engine_start("channels=1");
	settings(1, 300);
	make(&memory, page_bytes(), 0);
	engine_set("terminate", 2);
	engine_set("late_answer", 1);
	engine_set("late_ms", 3000);
	engine_set("hang_every", 1);
	late = engine_count("late");
	tap_ok(!memory_move(&memory, node_at(1), 1), "a copy that hangs is left to the CPU");
	tap_ok(wait_late(late + 1), "and ends late");
	usleep(500000);
	tap_ok(engine_count("late") == late + 1 && dcbm_devices("retired") == 1,
	       "its channel has not stopped while another copy is under way");
	tap_ok(wait_late(late + 2), "which ends late, too");
	for (int try = 0; try < 100 && (quarantined_bytes() || !dcbm_devices("stopped")); try++)
		usleep(20000);
	tap_ok(!quarantined_bytes() && dcbm_devices("stopped") == 1, "then it has stopped");
	tap_ok(!memory_wrong(&memory, "late"), "late copies: contents");
	engine_heal();
	memory_drop(&memory);
	tap_ok(engine_stop(), "the engine can go");
}

/* Terminate itself does not return: batches, settings and the user do not wait for it. */
static void test_stuck_terminate(void)
{
	struct memory memory;
	size_t left;

	engine_start("channels=2");
	settings(2, 50);
	make(&memory, BATCH, 0);
	engine_set("terminate", 3);
	engine_set("hang_every", 1);
	left = memory_move(&memory, node_at(1), 1);
	tap_ok(!left, "no channel answers: the CPU copies");
	tap_ok(quarantined_bytes() == BATCH, "%lld bytes are in quarantine", quarantined_bytes());
	tap_ok(!memory_move(&memory, node_at(0), 1), "none is left: the CPU copies");
	tap_ok(!file_write("kernel", MIGRATION "/migrator"), "another migrator can be chosen");
	tap_ok(!memory_move(&memory, node_at(1), 1) && !memory_wrong(&memory, "stuck"),
	       "and copies");
	engine_heal();
	for (int try = 0; try < 100 && quarantined_bytes(); try++)
		usleep(100000);
	tap_ok(!quarantined_bytes(), "when it returns the memory comes back");
	memory_drop(&memory);
	tap_ok(engine_stop(), "the engine can go");
}

/* --- Others --- */

static volatile bool stop;

static void *move_about(void *argument)
{
	struct memory *memory = argument;

	for (int n = 1; !stop; n++)
		memory_move(memory, node_at(n), 1);
	return NULL;
}

/* The migrator goes while copies are under way, which slow channels make sure of. */
static void test_unload(void)
{
	unsigned int unloads = 0, refused = 0;
	struct memory memory;
	pthread_t mover;
	size_t wrong;

	engine_start("channels=2");
	make(&memory, BATCH, 1);
	content_start_writers(memory.content);
	if (pthread_create(&mover, NULL, move_about, &memory))
		tap_bail("no thread");
	for (int n = 0; n < 30; n++) {
		int error = module_load("dcbm", "");

		/* Before it is active: a channel that is late by what it begins with is retired. */
		if (!error)
			settings(2, 30000);
		if (!error)
			error = migrator_choose("dcbm");
		if (error)
			tap_bail("dcbm: %s", strerror(-error));
		engine_set("delay_us", 300);
		usleep(30000);
		refused += module_unload("dcbm") < 0;
		if (!file_write("kernel", MIGRATION "/migrator"))
			unloads += !module_unload("dcbm");
	}
	stop = true;
	pthread_join(mover, NULL);
	content_stop_writers(memory.content);
	wrong = memory_wrong(&memory, "unloads");
	tap_ok(refused == 30, "an active dcbm cannot be unloaded");
	tap_ok(unloads == 30, "one that is not active can: %u times", unloads);
	tap_ok(memory_drop(&memory) && !wrong, "contents");
	tap_ok(!quarantined_bytes() && engine_stop(), "the engine can go");
}

/* What an IOMMU merges is cut differently on both sides; what is not mapped is noticed. */
static void test_iommu(void)
{
	struct memory memory;
	struct stats done;
	size_t left;
	int error = module_load("faultdma", "channels=2 iommu=1");

	if (error) {
		tap_skip("an engine behind an IOMMU", "this kernel has no DMA operations by device");
		return;
	}
	engine_start("");
	settings(2, 30000);
	make(&memory, BATCH, 0);
	done = migrator_stats("dcbm", NULL);
	left = memory_move(&memory, node_at(1), 1);
	done = migrator_since("dcbm", NULL, done);
	tap_ok(!left && done.bytes == (long long)BATCH && !memory_wrong(&memory, "IOMMU"),
	       "behind an IOMMU all is copied");
	/* A write long after the batch, where mappings must have been kept. */
	settings(2, 50);
	engine_set("terminate", 2);
	engine_set("late_ms", 300);
	engine_set("hang_every", 1);
	memory_move(&memory, node_at(0), 1);
	engine_set("hang_every", 0);
	tap_ok(wait_late(2), "late writes came");
	tap_ok(!file_number("/sys/kernel/debug/faultdma/iommu_faults"),
	       "to where they were allowed to write");
	engine_heal();
	tap_ok(dcbm_recovers() && !memory_wrong(&memory, "IOMMU"), "and hit nobody");
	memory_drop(&memory);
	tap_ok(engine_stop(), "the engine can go");
}

int main(int argc, char **argv)
{
	tap_start();
	nodes_with_memory();
	if (!migrator_kernel())
		tap_bail("no " MIGRATION ": this kernel is without migrators");
	if (argc == 5 && !strcmp(argv[1], "own")) {
		atexit(migrator_defaults);
		test_own_engine(atoi(argv[2]), argv[3], atoi(argv[4]));
		return tap_done();
	}
	engine_alone();
	atexit(migrator_defaults);
	if (argc == 2 && !strcmp(argv[1], "poll")) {
		test_poll();
		return tap_done();
	}
	test_lanes();
	test_costs();
	test_short_queue(false);
	test_short_queue(true);
	test_retired();
	test_stuck_terminate();
	test_late_probe();
	test_unload();
	test_iommu();
	return tap_done();
}
