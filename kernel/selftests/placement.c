// SPDX-License-Identifier: GPL-2.0-only
/*
 * placement [single]: eight CPUs in two nodes, two last-level caches each. mtcopy's helpers run
 * where fill says, on the destination's node first, in the caller's cpuset, never on an isolated
 * CPU or a busy one with idle_only, and at the priority that was asked for; one to eight lanes
 * share a batch and a single folio. Each helper's CPU is what the trace event of its lane says.
 *
 * single: more lanes take no longer for a folio of 2 MiB. For a clock that counts instructions: it
 * adds up those of all CPUs, so what lanes gain does not count, and what they cost does.
 */
#include "cgroup.h"
#include "clock.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "tap.h"
#include "task.h"
#include "trace.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CPUS		8
#define OWN		0	/* the CPU of this task */
#define ROUND		20	/* moves that are traced together: to switch a trace point patches code */
#define ROUNDS		60	/* at most, until all that shall be seen was */
#define PAIRS		20	/* of helpers in one batch, for fill and for spread */
#define HIGH_NICE	-20
#define PRIORITY_ROUNDS	4
#define SINGLE_MOVES	10
#define SINGLE_ROUNDS	5
#define SINGLE_PERCENT	105

static int cache_of[CPUS], node_of_cpu[CPUS];
static pid_t busy[CPUS];

/* What the lanes of one batch did; .cpu is -1 for a lane that did not begin. */
struct lanes {
	int node;
	int cpu[CPUS];
	pid_t pid[CPUS];
	long long bytes[CPUS];
	long long total;
};

static int first_of(const char *format, int cpu)
{
	char path[FILE_PATH], list[256];
	int ids[CPUS];

	snprintf(path, sizeof(path), format, cpu);
	if (file_read(list, sizeof(list), "%s", path) || !list_read(list, ids, CPUS))
		tap_bail("%s cannot be read", path);
	return ids[0];
}

/* Two nodes of two caches of two CPUs, numbered in this order. */
static void know_machine(void)
{
	if (sysconf(_SC_NPROCESSORS_ONLN) != CPUS)
		tap_bail("this test knows a machine with %d CPUs only", CPUS);
	for (int cpu = 0; cpu < CPUS; cpu++) {
		cache_of[cpu] = first_of("/sys/devices/system/cpu/cpu%d/cache/index3/"
					 "shared_cpu_list", cpu);
		node_of_cpu[cpu] = !file_exists("/sys/devices/system/node/node%d/cpu%d",
						node_at(0), cpu);
		if (cache_of[cpu] != cpu / 2 * 2 || node_of_cpu[cpu] != cpu / 4)
			tap_bail("CPU %d has the cache of CPU %d, on node %d", cpu,
				 cache_of[cpu], node_of_cpu[cpu]);
	}
}

/* SCHED_IDLE gives way to everybody at once. */
static void start_busy(int cpu, int policy)
{
	busy[cpu] = busy_start(cpu, policy, 0, 0);
}

static void start_all_busy(int policy)
{
	for (int cpu = 0; cpu < CPUS; cpu++)
		if (cpu != OWN)
			start_busy(cpu, policy);
}

static void stop_busy(void)
{
	for (int cpu = 0; cpu < CPUS; cpu++) {
		if (busy[cpu])
			busy_stop(busy[cpu]);
		busy[cpu] = 0;
	}
}

static void drop(struct memory *memory, const char *what)
{
	tap_ok(!memory_wrong(memory, what), "%s: contents", what);
	memory_drop(memory);
}

static bool add_lane(struct lanes *lanes, const struct trace_event *event)
{
	long long lane = trace_field(event, "lane");

	if (lane < 0 || lane >= CPUS)
		tap_bail("there is a lane %lld", lane);
	/* Another task migrates, too. */
	if (lanes->cpu[lane] >= 0)
		return false;
	lanes->cpu[lane] = trace_field(event, "cpu");
	lanes->pid[lane] = event->pid;
	lanes->bytes[lane] = trace_field(event, "bytes");
	lanes->total += lanes->bytes[lane];
	return true;
}

/*
 * Moves memory of one batch to node 1 and back, ROUND moves in all. Returns how many whole batches
 * mtcopy copied; pages that the kernel takes off their lists for a moment make other ones.
 */
static unsigned int move_round(struct memory *memory, struct lanes *batches)
{
	static const char *const names[] = { "migrator", NULL };
	unsigned int nr = 0;
	struct trace_event *events;
	struct lanes *lanes = NULL;
	size_t count;

	trace_start(names);
	for (int n = 1; n <= ROUND; n++)
		memory_move(memory, node_at(n % 2), 1);
	count = trace_stop(&events);
	for (size_t n = 0; n < count; n++) {
		const struct trace_event *event = &events[n];
		bool own = event->pid == getpid();

		if (own && trace_is(event, "migrator_batch_start") && nr < ROUND) {
			lanes = &batches[nr];
			memset(lanes, 0, sizeof(*lanes));
			memset(lanes->cpu, -1, sizeof(lanes->cpu));
			lanes->node = trace_field(event, "dst_nid");
		} else if (lanes && trace_is(event, "migrator_lane_done") &&
			   !add_lane(lanes, event)) {
			lanes = NULL;
		} else if (lanes && own && trace_is(event, "migrator_batch_done")) {
			nr += !trace_field(event, "error") &&
			      trace_field(event, "bytes") == (long long)memory->bytes;
			lanes = NULL;
		}
	}
	free(events);
	return nr;
}

/*
 * As many helpers as the destination's node has CPUs. All other CPUs are equally busy, so that what
 * each was doing makes no difference.
 */
static void test_order(bool fill)
{
	const char *what = fill ? "fill" : "spread";
	unsigned int pairs = 0, same = 0, near = 0, helpers = 0;
	struct lanes batches[ROUND];
	struct memory memory;

	file_need(fill ? "1" : "0", MTCOPY_PARAMS "/fill");
	file_need_number(5, MIGRATION "/mtcopy/lanes");
	memory_need(&memory, "anonymous", 4 << 20, node_at(0), 0);
	for (int round = 0; round < ROUNDS && pairs < PAIRS; round++) {
		unsigned int nr = move_round(&memory, batches);

		for (struct lanes *lanes = batches; lanes < batches + nr; lanes++) {
			const int *cpu = lanes->cpu;

			if (lanes->node != node_at(1))
				continue;
			for (int lane = 1; lane < CPUS; lane++) {
				helpers += cpu[lane] >= 0;
				near += cpu[lane] >= 0 && node_of_cpu[cpu[lane]] == 1;
			}
			for (int lane = 1; lane <= 3; lane += 2) {
				if (cpu[lane] < 0 || cpu[lane + 1] < 0)
					continue;
				pairs++;
				same += cache_of[cpu[lane]] == cache_of[cpu[lane + 1]];
			}
		}
	}
	tap_note("%s: %u of %u pairs on one cache; %u of %u helpers on the destination's node",
		 what, same, pairs, near, helpers);
	tap_ok(helpers && near == helpers, "%s: helpers are on the destination's node", what);
	tap_ok(pairs >= PAIRS && same == (fill ? pairs : 0), "%s: a helper and the next have %s",
	       what, fill ? "one cache" : "a cache each");
	drop(&memory, what);
	file_need("0", MTCOPY_PARAMS "/fill");
}

/* Each of so many lanes has a part in a batch, and all parts are the batch. */
static void test_lanes(const char *kind, size_t bytes, unsigned int lanes)
{
	unsigned int all = (1U << lanes) - 1, seen = 0, nr, most = 0;
	struct lanes batches[ROUND];
	struct memory memory;
	char what[64];
	bool whole = true, apart = true;

	snprintf(what, sizeof(what), "%s, %u lanes", kind, lanes);
	file_need_number(lanes, MIGRATION "/mtcopy/lanes");
	memory_need(&memory, kind, bytes, node_at(0), 0);
	for (int round = 0; round < ROUNDS && seen != all; round++) {
		nr = move_round(&memory, batches);
		for (struct lanes *done = batches; done < batches + nr; done++) {
			unsigned int cpus = 0, copied = 0;

			whole &= done->total == (long long)bytes;
			for (int lane = 0; lane < CPUS; lane++) {
				if (done->cpu[lane] < 0)
					continue;
				apart &= !(cpus & 1U << done->cpu[lane]);
				cpus |= 1U << done->cpu[lane];
				if (!done->bytes[lane])
					continue;
				seen |= 1U << lane;
				copied++;
			}
			most = copied > most ? copied : most;
		}
	}
	tap_note("%s: %u at most in one batch", what, most);
	tap_ok(seen == all && whole && apart, "%s: each copies, on a CPU of its own, and no more",
	       what);
	drop(&memory, what);
}

/* Moves memory until the CPUs of a mask have helped, and no other, or ROUNDS. Returns which did. */
static unsigned int helping_cpus(struct memory *memory, unsigned int expected)
{
	unsigned int seen = 0, rounds = 0, nr;
	struct lanes batches[ROUND];

	do {
		nr = move_round(memory, batches);
		for (struct lanes *lanes = batches; lanes < batches + nr; lanes++)
			for (int lane = 1; lane < CPUS; lane++)
				if (lanes->cpu[lane] >= 0)
					seen |= 1U << lanes->cpu[lane];
	} while (seen != expected && ++rounds < ROUNDS);
	return seen;
}

static void test_idle_only(unsigned int nr_busy)
{
	struct stats before = migrator_stats("mtcopy"), done;
	unsigned int idle = 0, seen;
	struct memory memory;
	char what[64];

	snprintf(what, sizeof(what), "idle_only, %u busy CPUs", nr_busy);
	for (int cpu = 0; cpu < CPUS; cpu++)
		if (cpu != OWN && !busy[cpu])
			idle |= 1U << cpu;
	memory_need(&memory, "anonymous", 4 << 20, node_at(0), 0);
	seen = helping_cpus(&memory, idle);
	done = migrator_since("mtcopy", before);
	tap_note("%s: CPUs %#x of %#x helped, %lld folios copied, %lld batches declined", what, seen,
		 idle, done.folios, done.declined);
	tap_ok(seen == idle, "%s: all others help, and no busy one", what);
	if (!idle)
		tap_ok(!done.folios && done.declined >= ROUND, "%s: every batch is declined", what);
	drop(&memory, what);
}

/* A task in a cpuset has helpers on its CPUs, and none once they are isolated. */
static void test_isolated(void)
{
	unsigned int seen, expected;
	struct memory memory;

	file_need_number(CPUS, MIGRATION "/mtcopy/lanes");
	memory_need(&memory, "anonymous", 4 << 20, node_at(0), 0);
	cgroup_make("few");
	file_need("0,4-5", "%s/few/cpuset.cpus", cgroup_root());
	cgroup_enter("few");
	for (int isolated = 0; isolated < 2; isolated++) {
		const char *partition = isolated ? "isolated" : "root";

		file_need(partition, "%s/few/cpuset.cpus.partition", cgroup_root());
		expected = isolated ? 0 : 1U << 4 | 1U << 5;
		seen = helping_cpus(&memory, expected);
		tap_ok(seen == expected, "cpuset partition %s: CPUs %#x help", partition, seen);
	}
	file_need("member", "%s/few/cpuset.cpus.partition", cgroup_root());
	cgroup_enter(NULL);
	drop(&memory, "isolated");
}

static int nice_of(pid_t pid)
{
	char stat[512], *at;
	int nice = 99;

	if (!file_read(stat, sizeof(stat), "/proc/%d/stat", pid)) {
		/* Behind the name the state is the 3rd field, nice the 19th. */
		at = strrchr(stat, ')');
		for (int field = 2; at && field < 19; field++)
			at = strchr(at + 1, ' ');
		if (at)
			nice = atoi(at + 1);
	}
	return nice;
}

/* What helpers do of the batches of some rounds, and how many have another nice value than asked. */
struct help {
	long long bytes, total;
	unsigned int helpers, others;
};

static void add_round(struct memory *memory, bool high, struct help *help)
{
	struct lanes batches[ROUND];
	unsigned int nr;

	file_need(high ? "1" : "0", MTCOPY_PARAMS "/high_priority");
	nr = move_round(memory, batches);
	for (struct lanes *lanes = batches; lanes < batches + nr; lanes++) {
		help->total += lanes->total;
		for (int lane = 1; lane < CPUS; lane++) {
			if (lanes->cpu[lane] < 0)
				continue;
			help->bytes += lanes->bytes[lane];
			help->helpers++;
			help->others += nice_of(lanes->pid[lane]) != (high ? HIGH_NICE : 0);
		}
	}
}

/* On CPUs that others want, too, helpers of high priority begin sooner. */
static void test_priority(void)
{
	struct help help[2] = { 0 };
	struct memory memory;

	file_need_number(CPUS, MIGRATION "/mtcopy/lanes");
	memory_need(&memory, "anonymous", 4 << 20, node_at(0), 0);
	for (int round = 0; round < PRIORITY_ROUNDS; round++)
		for (int high = 0; high < 2; high++)
			add_round(&memory, high, &help[high]);
	file_need("0", MTCOPY_PARAMS "/high_priority");
	for (int high = 0; high < 2; high++) {
		tap_note("%s priority: helpers copied %lld of %lld MiB",
			 high ? "high" : "normal", help[high].bytes >> 20, help[high].total >> 20);
		tap_ok(help[high].helpers && !help[high].others, "%s priority: helpers are nice %d",
		       high ? "high" : "normal", high ? HIGH_NICE : 0);
	}
	tap_ok(help[1].bytes * help[0].total > help[0].bytes * help[1].total,
	       "high priority: helpers on busy CPUs copy more");
	drop(&memory, "priority");
}

static void test_busy(void)
{
	start_all_busy(SCHED_IDLE);
	test_order(false);
	test_order(true);
	stop_busy();

	start_all_busy(SCHED_OTHER);
	test_priority();
	stop_busy();
}

static void test_idle(void)
{
	file_need("1", MTCOPY_PARAMS "/idle_only");
	file_need_number(CPUS, MIGRATION "/mtcopy/lanes");
	for (unsigned int nr = 0; nr <= CPUS; nr++) {
		/* From the last CPU to the first, so that this task's own is the last. */
		if (nr)
			start_busy(CPUS - nr, SCHED_OTHER);
		test_idle_only(nr);
	}
	stop_busy();
	file_need("0", MTCOPY_PARAMS "/idle_only");
}

static long long single_ns(struct memory *memory, unsigned int lanes)
{
	long long start;

	file_need_number(lanes, MIGRATION "/mtcopy/lanes");
	start = now_ns(CLOCK_MONOTONIC);
	for (int n = 1; n <= SINGLE_MOVES; n++)
		if (memory_move(memory, node_at(n % 2), 1))
			tap_bail("a folio of 2 MiB did not move");
	return now_ns(CLOCK_MONOTONIC) - start;
}

static void test_single(void)
{
	static const unsigned int lanes[] = { 1, 2, 4, 8 };
	long long ns[ARRAY_SIZE(lanes)] = { 0 };
	struct stats before = migrator_stats("mtcopy"), done;
	struct memory memory;

	memory_need(&memory, "anonymous, 2048 KiB", HUGE_BYTES, node_at(0), 0);
	for (int round = 0; round < SINGLE_ROUNDS; round++)
		for (unsigned int n = 0; n < ARRAY_SIZE(lanes); n++)
			ns[n] += single_ns(&memory, lanes[n]);
	done = migrator_since("mtcopy", before);
	tap_ok(done.folios == SINGLE_MOVES * SINGLE_ROUNDS * (long long)ARRAY_SIZE(lanes) &&
	       !done.declined, "every folio is copied by mtcopy");
	for (unsigned int n = 1; n < ARRAY_SIZE(lanes); n++) {
		tap_note("%u lanes: %lld ns a folio, one lane: %lld", lanes[n],
			 ns[n] / SINGLE_MOVES / SINGLE_ROUNDS, ns[0] / SINGLE_MOVES / SINGLE_ROUNDS);
		tap_ok(ns[n] * 100 <= ns[0] * SINGLE_PERCENT,
		       "a single folio takes no longer with %u lanes than with one", lanes[n]);
	}
	drop(&memory, "single");
}

int main(int argc, char **argv)
{
	bool single = argc > 1 && !strcmp(argv[1], "single");

	tap_start();
	nodes_with_memory();
	migrator_needed();
	know_machine();
	atexit(migrator_defaults);
	migrator_need("mtcopy");
	migrator_eager();
	run_on_cpu(OWN);
	if (single) {
		test_single();
		return tap_done();
	}
	for (unsigned int lanes = 1; lanes <= CPUS; lanes++) {
		test_lanes("anonymous", 4 << 20, lanes);
		test_lanes("anonymous, 2048 KiB", HUGE_BYTES, lanes);
	}
	test_isolated();
	test_busy();
	test_idle();
	return tap_done();
}
