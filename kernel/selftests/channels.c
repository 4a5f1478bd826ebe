// SPDX-License-Identifier: GPL-2.0-only
/*
 * channels: what dcbm does with the channels that it has. What a batch costs in mappings and
 * interrupts, and what becomes of channels that do not answer, with the
 * engine faultdma. Which channels it takes is for the test devices.
 * channels own NUMBER INTERRUPT QUEUE: batches with the machine's own channels, of which there
 * are that many, with interrupts of that name and that many descriptors each.
 */
#include "clock.h"
#include "content.h"
#include "engine.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "modules.h"
#include "nodes.h"
#include "tap.h"
#include "task.h"
#include "trace.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BATCH	(2UL << 20)	/* 512 base pages */
#define TAKEN	"faultdma node -1: taken"
#define RETIRED	"faultdma node -1: retired"

static unsigned int migrate_once(unsigned int lanes, struct stats *done)
{
	static const char *const names[] = { "migrator/migrator_lane_done", NULL };
	struct trace_event *events;
	struct memory memory;
	unsigned int seen = 0;
	size_t left;

	memory_need(&memory, "anonymous", BATCH, node_at(0), 0);
	file_need_number(lanes, DCBM "/lanes");
	*done = migrator_stats("dcbm");
	trace_start(names);
	left = memory_move(&memory, node_at(1), 1);
	seen = trace_stop(&events);
	free(events);
	*done = migrator_since("dcbm", *done);
	if (left || memory_wrong(&memory, "a batch"))
		seen = 0;
	memory_drop(&memory);
	return seen;
}

static void test_lanes(void)
{
	static const unsigned int lanes[] = { 1, 3, 2, 64 };

	engine_start("channels=3");
	for (unsigned int n = 0; n < ARRAY_SIZE(lanes); n++) {
		unsigned int most = lanes[n] < 3 ? lanes[n] : 3;
		struct stats done;

		tap_ok(migrate_once(lanes[n], &done) == most && done.bytes == BATCH &&
		       !done.fallbacks, "%u lanes: %u channels copy", lanes[n], most);
		tap_ok(dcbm_devices(TAKEN) == most, "%u lanes: as many channels are taken", lanes[n]);
	}
	tap_ok(engine_stop(), "the engine can go");
}

struct cost {
	unsigned int maps_src, maps_dst;
	/* Of all rounds. */
	unsigned int rounds;
	long long mappings, descriptors, round_bytes;
	bool timed;
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

static void add_round(struct cost *cost, const struct trace_event *round)
{
	static const char *const times[] = { "map_ns", "submit_ns", "copy_ns", "unmap_ns" };

	cost->rounds++;
	cost->mappings += trace_field(round, "mappings");
	cost->descriptors += trace_field(round, "descriptors");
	cost->round_bytes += trace_field(round, "bytes");
	for (unsigned int n = 0; n < ARRAY_SIZE(times); n++) {
		long long ns = trace_field(round, times[n]);

		cost->timed &= ns >= 0 && ns < SLACK_MS * 1000000LL;
	}
	cost->timed &= trace_field(round, "copy_ns") > 0;
}

static struct cost cost_of_batch(unsigned int lanes, const char *interrupts)
{
	static const char *const names[] = {
		"dma/dma_map_sg", "migrator/migrator_channel_round", NULL,
	};
	struct cost cost = { .timed = true };
	struct trace_event *events;
	struct memory memory;
	size_t nr, left;

	memory_need(&memory, "anonymous", BATCH, node_at(0), 0);
	file_need_number(lanes, DCBM "/lanes");
	cost.interrupts = interrupts_of(interrupts);
	cost.bytes = interrupts ? 0 : engine_count("bytes");
	cost.done = migrator_stats("dcbm");
	trace_start(names);
	left = memory_move(&memory, node_at(1), 1);
	nr = trace_stop(&events);
	for (size_t n = 0; n < nr; n++) {
		if (trace_is(&events[n], "migrator_channel_round")) {
			add_round(&cost, &events[n]);
			continue;
		}
		if (!interrupts && !strstr(events[n].fields, "faultdma"))
			continue;
		cost.maps_src += !!strstr(events[n].fields, "dir=TO_DEVICE");
		cost.maps_dst += !!strstr(events[n].fields, "dir=FROM_DEVICE");
	}
	free(events);
	cost.interrupts = interrupts_of(interrupts) - cost.interrupts;
	cost.bytes = interrupts ? 0 : engine_count("bytes") - cost.bytes;
	cost.done = migrator_since("dcbm", cost.done);
	if (left || memory_wrong(&memory, "cost"))
		tap_ok(false, "a batch moves");
	memory_drop(&memory);
	return cost;
}

static void test_cost(unsigned int lanes)
{
	struct cost cost = cost_of_batch(lanes, NULL);

	tap_note("%u lanes: %lld folios; mappings %u and %u, interrupts %lld, bytes %lld", lanes,
		 cost.done.folios, cost.maps_src, cost.maps_dst, cost.interrupts, cost.bytes);
	tap_ok(cost.done.folios && cost.maps_src == lanes && cost.maps_dst == lanes,
	       "%u lanes: one mapping per channel and side", lanes);
	tap_ok(cost.interrupts == lanes, "%u lanes: one interrupt per channel", lanes);
	tap_note("%u lanes: %u rounds, %lld mappings, %lld descriptors", lanes, cost.rounds,
		 cost.mappings, cost.descriptors);
	tap_ok(cost.rounds == lanes && cost.timed && cost.round_bytes == (long long)BATCH &&
	       cost.mappings == (long long)(BATCH / page_bytes()) &&
	       cost.descriptors >= lanes && cost.descriptors <= cost.mappings,
	       "%u lanes: the round of each channel is traced", lanes);
	tap_ok(cost.bytes == (long long)BATCH && cost.done.bytes == (long long)BATCH &&
	       !cost.done.fallbacks && !cost.done.declined,
	       "%u lanes: no byte is copied by the CPU", lanes);
}

static void test_costs(void)
{
	engine_start("channels=4");
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
	module_need("dcbm", "%s", "");
	file_need("dcbm", MIGRATION "/migrator");
	dcbm_slack(SLACK_MS);
	file_need_number(channels, DCBM "/lanes");
	tap_ok(dcbm_devices(": taken") == channels, "own engine: %u of %u channels are taken",
	       dcbm_devices(": taken"), channels);
	for (unsigned int lanes = 1; lanes <= channels; lanes *= 2) {
		struct cost cost = cost_of_batch(lanes, interrupts);
		unsigned int descs = BATCH / page_bytes() / lanes;

		tap_note("own engine, %u lanes: mappings %u and %u, interrupts %lld", lanes,
			 cost.maps_src, cost.maps_dst, cost.interrupts);
		tap_ok(cost.done.folios && cost.maps_src == lanes && cost.maps_dst == lanes,
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
	for (int try = 0; try < 3; try++) {
		cost = cost_of_batch(2, NULL);
		tap_ok(cost.bytes == (long long)BATCH && cost.done.bytes == (long long)BATCH &&
		       !cost.done.fallbacks, "%s: all is copied", parameters);
	}
	tap_ok(engine_stop(), "the engine can go");
}

static bool wait_late(long long copies)
{
	return wait_until(engine_count("late") >= copies, 10000, 20000);
}

/* @fault: what one of two channels does with its share, to which it writes afterwards. */
static void test_retired(const char *fault)
{
	struct memory memory;
	struct stats done;
	size_t left, wrong;

	engine_start("channels=2");
	memory_need(&memory, "anonymous", BATCH, node_at(0), 1);
	/* Enough for the other channel. */
	dcbm_slack(2000);
	engine_set_one(0, "late_ms", 6000);
	engine_set_one(0, fault, 1);
	content_start_writers(memory.content);
	done = migrator_stats("dcbm");
	left = memory_move(&memory, node_at(1), 1);
	done = migrator_since("dcbm", done);
	tap_note("%zu pages did not move, fallbacks %lld, quarantined %lld", left, done.fallbacks,
		 quarantined_bytes());
	tap_ok(!left, "%s: its folios get other destinations", fault);
	tap_ok(dcbm_devices(RETIRED) == 1 && dcbm_devices(TAKEN) == 1, "%s: the channel is retired",
	       fault);
	tap_ok(quarantined_bytes() == BATCH / 2, "%s: its share is in quarantine: %lld bytes", fault,
	       quarantined_bytes());
	tap_ok(wait_late(1) && quarantined_bytes() == BATCH / 2,
	       "%s: it writes late, which ends no quarantine", fault);
	done = migrator_stats("dcbm");
	left = memory_move(&memory, node_at(0), 1);
	done = migrator_since("dcbm", done);
	tap_ok(!left && done.bytes == (long long)BATCH, "%s: the other channel goes on", fault);

	/* Not active any more, and not to be unloaded either. */
	file_write("none", MIGRATION "/migrator");
	tap_ok(module_unload("dcbm") < 0 && module_unload("faultdma") < 0,
	       "%s: the modules stay while it may write", fault);
	engine_heal();
	tap_ok(!file_write("dcbm", MIGRATION "/migrator") && dcbm_devices(RETIRED) == 1 &&
	       quarantined_bytes() == BATCH / 2, "%s: active again: still retired", fault);
	tap_ok(engine_rebind() && dcbm_devices(TAKEN) == 2,
	       "%s: unbinding the driver ends the quarantine", fault);
	dcbm_slack(SLACK_MS);
	done = migrator_stats("dcbm");
	left = memory_move(&memory, node_at(1), 1);
	done = migrator_since("dcbm", done);
	tap_ok(!left && done.bytes == (long long)BATCH, "%s: bound again, both copy", fault);
	content_stop_writers(memory.content);
	wrong = memory_wrong(&memory, fault);
	tap_ok(memory_drop(&memory) && !wrong, "%s: contents", fault);
	tap_ok(engine_stop(), "the engine can go");
}

/* What hung is copied and answered after late_ms: FAULTDMA_LATE_COPY of the engine. */
#define LATE_COPY	2

/* The only channel answers after the deadline, by which the page has another destination. */
static void be_late(struct memory *memory, const char *what)
{
	dcbm_slack(1000);
	engine_set("late_ms", 6000);
	engine_set("late_answer", LATE_COPY);
	engine_set("hang_every", 1);
	tap_ok(!memory_move(memory, node_at(1), 1) && !memory_wrong(memory, what),
	       "%s: the page moves", what);
	tap_ok(dcbm_devices(RETIRED) == 1 && quarantined_bytes() == (long long)page_bytes(),
	       "%s: the channel is retired", what);
}

static bool quarantine_ends(void)
{
	return wait_until(!quarantined_bytes(), 30000, 20000);
}

/* A channel that answers after the deadline, as if its interrupt had waited for a busy CPU. */
static void test_late_answer(bool unordered)
{
	const char *what = unordered ? "late, unordered" : "late";
	struct memory memory;
	struct stats done;
	char parameters[64];

	snprintf(parameters, sizeof(parameters), "channels=1 unordered=%d", unordered);
	engine_start(parameters);
	memory_need(&memory, "anonymous", page_bytes(), node_at(0), 0);
	be_late(&memory, what);
	tap_ok(quarantine_ends() && dcbm_devices(TAKEN) == 1 && !dcbm_devices(RETIRED),
	       "%s: all is answered, and the channel is used again", what);
	engine_heal();
	dcbm_slack(SLACK_MS);
	done = migrator_stats("dcbm");
	tap_ok(!memory_move(&memory, node_at(0), 1) &&
	       migrator_since("dcbm", done).bytes == (long long)page_bytes() &&
	       !memory_wrong(&memory, what), "%s: it copies", what);

	/* It is not taken back where nobody wants it, and then nothing holds the modules. */
	be_late(&memory, what);
	file_write("none", MIGRATION "/migrator");
	tap_ok(quarantine_ends() && !dcbm_devices("faultdma"),
	       "%s: all is answered, and the channel is given back", what);
	tap_ok(!memory_wrong(&memory, what) && memory_drop(&memory), "%s: contents", what);
	dcbm_slack(SLACK_MS);
	tap_ok(engine_stop(), "the engine can go");
}

/* Batches go on while channels come and go. */
static void test_no_channel(void)
{
	struct memory memory;
	struct stats done;

	engine_start("channels=2");
	memory_need(&memory, "anonymous", BATCH, node_at(0), 0);
	/* Time for both channels to be given their shares. */
	dcbm_slack(2000);
	engine_set("hang_every", 1);
	tap_ok(!memory_move(&memory, node_at(1), 1) && quarantined_bytes() == BATCH,
	       "no channel answers: the CPU copies");
	done = migrator_stats("dcbm");
	tap_ok(!memory_move(&memory, node_at(0), 1), "none is left: the CPU copies");
	done = migrator_since("dcbm", done);
	tap_ok(done.declined > 0 && !done.bytes && !done.fallbacks, "which is declined");
	tap_ok(!file_write("kernel", MIGRATION "/migrator"), "another migrator can be chosen");
	tap_ok(!memory_move(&memory, node_at(1), 1) && !memory_wrong(&memory, "no channel"),
	       "and copies");
	engine_heal();
	tap_ok(engine_rebind(), "unbinding the driver ends the quarantine");
	memory_drop(&memory);
	tap_ok(engine_stop(), "the engine can go");
}

/*
 * The real deadline: 100 MB/s and 2 ms. An upper bound of the time is that of a busy host, and
 * less than any slack of the tests.
 */
static void test_deadline(void)
{
	struct memory memory;
	long long start, took;
	size_t left;

	engine_start("channels=2");
	memory_need(&memory, "anonymous", BATCH, node_at(0), 0);
	dcbm_slack(0);
	engine_set("hang_every", 1);
	start = now_ms();
	/* Somebody else may hold a page for a moment. */
	left = memory_move(&memory, node_at(1), 3);
	took = now_ms() - start;
	tap_ok(!left && !memory_wrong(&memory, "deadline"), "no answer: the batch moves all the same");
	tap_note("%lld ms", took);
	tap_ok(took >= (long long)(BATCH / 100000) + 2 && took < SLACK_MS / 2,
	       "and waits as long as its bytes take at 100 MB/s");
	dcbm_slack(SLACK_MS);
	engine_heal();
	tap_ok(engine_rebind(), "unbinding the driver ends the quarantine");
	memory_drop(&memory);
	tap_ok(engine_stop(), "the engine can go");
}

/* A task that loses its CPU while it gives the engine a batch leaves no time until the deadline. */
static void test_late_task(void)
{
	char parameters[64];
	struct memory memory;
	struct stats done;
	size_t left;

	/* A descriptor for each page. */
	snprintf(parameters, sizeof(parameters), "channels=1 segment=%zu", page_bytes());
	engine_start(parameters);
	memory_need(&memory, "anonymous", 64 * page_bytes(), node_at(0), 0);
	/* Less than the task takes for 64 descriptors, and more than the engine. */
	dcbm_slack(1000);
	engine_set("prep_ms", 40);
	engine_set("delay_us", 200);
	done = migrator_stats("dcbm");
	left = memory_move(&memory, node_at(1), 1);
	done = migrator_since("dcbm", done);
	tap_ok(dcbm_devices(TAKEN) == 1 && !quarantined_bytes(),
	       "a late task: its channel is not retired");
	tap_ok(!left && done.bytes == (long long)memory.bytes && !done.fallbacks &&
	       !memory_wrong(&memory, "late task"), "a late task: the engine copies all");
	dcbm_slack(SLACK_MS);
	engine_heal();
	tap_ok(engine_rebind(), "a late task: nothing is in quarantine");
	memory_drop(&memory);
	tap_ok(engine_stop(), "the engine can go");
}

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
	memory_need(&memory, "anonymous", BATCH, node_at(0), 1);
	content_start_writers(memory.content);
	thread_start(&mover, move_about, &memory);
	for (int n = 0; n < 30; n++) {
		engine_start("");
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
	memory_need(&memory, "anonymous", BATCH, node_at(0), 0);
	done = migrator_stats("dcbm");
	left = memory_move(&memory, node_at(1), 1);
	done = migrator_since("dcbm", done);
	tap_ok(!left && done.bytes == (long long)BATCH && !memory_wrong(&memory, "IOMMU"),
	       "behind an IOMMU all is copied");
	/* A write long after the batch, where mappings must have been kept. */
	dcbm_slack(50);
	engine_set("late_ms", 300);
	engine_set("hang_every", 1);
	memory_move(&memory, node_at(0), 1);
	tap_ok(wait_late(2), "late writes came");
	engine_heal();
	tap_ok(engine_rebind() && !memory_wrong(&memory, "IOMMU"), "and hit nobody");
	tap_ok(!file_number("/sys/kernel/debug/faultdma/iommu_faults"),
	       "to where they were allowed to write");
	memory_drop(&memory);
	tap_ok(engine_stop(), "the engine can go");
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "own")) {
		tap_start();
		nodes_with_memory();
		migrator_needed();
		atexit(migrator_defaults);
		test_own_engine(atoi(argv[2]), argv[3], atoi(argv[4]));
		return tap_done();
	}
	engine_test();
	test_lanes();
	test_costs();
	test_short_queue(false);
	test_short_queue(true);
	test_late_answer(false);
	test_late_answer(true);
	test_retired("hang_every");
	test_retired("abort_every");
	test_no_channel();
	test_deadline();
	test_late_task();
	test_unload();
	test_iommu();
	return tap_done();
}
