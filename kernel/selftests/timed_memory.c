// SPDX-License-Identifier: GPL-2.0-only
/*
 * timed_memory: latency of the timed machine's memory and caches, by chains of dependent loads,
 * against its parameters and against what the plugin counted. Bandwidth is timed_streams.c's.
 */
#include "chain.h"
#include "clock.h"
#include "figures.h"
#include "files.h"
#include "nodes.h"
#include "task.h"
#include "timed.h"

/* Of the parameters: 30% is what rankings have to bear. */
#define TOLERANCE	0.05

/* Of loads that shall miss, and of lines that the kernel's own interrupts fetch beside. */
#define MISSES_TOLERANCE	0.02

/* Of loads that shall hit: interrupts displace a few lines of a chain. */
#define STRAY_MISSES	0.001

/* 20 ms at 100 ns: ticks of the kernel are below 1% of it. */
#define LOADS		200000

/* Fewer where some hundred instructions stand between two loads: 13 ms. */
#define LOADS_APART	50000

/* More instructions than the window holds, by the few of the loop itself. */
#define APART		64

/* A run of hits is shorter than a tick, so that at most some runs have one. */
#define HITS		100000
#define HIT_RUNS	5

#define CHAIN_BYTES	(64UL << 20)
#define CHAIN_LIMIT	(256UL << 20)

/* Memory is as many times the shared cache, so that no line is still there a round later. */
#define TIMES_CACHE	8

static size_t power_of_two(size_t limit)
{
	size_t power = 1;

	while (power * 2 <= limit)
		power *= 2;
	return power;
}

static size_t chain_bytes(void)
{
	size_t bytes = CHAIN_BYTES, wanted = TIMES_CACHE * timed_value("shared_bytes", 0);

	while (bytes < wanted)
		bytes *= 2;
	if (bytes > CHAIN_LIMIT)
		tap_bail("a shared cache of %lld bytes: the chains are too short", timed_value("shared_bytes", 0));
	return bytes;
}

/* ns of one load, without the time of instructions. */
static double load_ns(const struct span *span, int cpu, size_t loads)
{
	return (span->ns - span->truth.cpu[cpu].instructions * timed_ns("instruction_ps")) / loads;
}

/* Runs the chain once for the caches, then for @span. */
static void chain_measure(struct chain *chain, size_t loads, size_t rest, struct span *span)
{
	chain_run(chain, 2 * timed_value("shared_bytes", 0) / LINE_BYTES, 0);
	timed_begin(span);
	chain_run(chain, loads, rest);
	timed_end(span);
}

static void test_latency(struct chain *chain, int cpu, int node)
{
	bool overlap = timed_value("overlap", 0);
	size_t loads = overlap ? LOADS_APART : LOADS;
	size_t rest = overlap ? timed_value("window_instructions", 0) + APART : 0;
	struct span span;

	run_on_cpu(cpu);
	chain_measure(chain, loads, rest, &span);
	figure_near(load_ns(&span, cpu, loads), timed_latency_ns(cpu, node), TOLERANCE, "ns",
		    "CPU %d, node %d: a load", cpu, node);
	figure_near(span.truth.cpu[cpu].misses[node], loads, MISSES_TOLERANCE, "lines",
		    "CPU %d, node %d: misses", cpu, node);
	if (!overlap)
		return;
	chain_measure(chain, LOADS, 0, &span);
	figure_note(load_ns(&span, cpu, LOADS), "ns", "CPU %d, node %d: a load that overlaps others",
		    cpu, node);
}

static void note_base_pages(struct chain *chain, int cpu, int node)
{
	struct span span;

	run_on_cpu(cpu);
	chain_measure(chain, LOADS, 0, &span);
	figure_note(load_ns(&span, cpu, LOADS), "ns", "CPU %d, node %d, base pages: a load", cpu, node);
	figure_note(span.truth.cpu[cpu].tlb_misses / (double)LOADS, "per load",
		    "CPU %d, node %d, base pages: TLB misses", cpu, node);
}

/* A chain in memory alone: what this CPU wrote last would come from its caches. */
static void chain_make_cold(struct chain *chain, int node, bool huge)
{
	chain_make(chain, chain_bytes(), LINE_BYTES, node, huge);
	chain_run(chain, 2 * timed_value("shared_bytes", 0) / LINE_BYTES, 0);
}

/* One CPU of each node that has some, to memory of each node. */
static void test_memory(void)
{
	int nodes = nodes_with_memory();
	struct chain chain;

	for (int node = 0; node < nodes; node++) {
		chain_make_cold(&chain, node, true);
		for (int from = 0; from < nodes; from++)
			if (timed_cpu_of(from) >= 0)
				test_latency(&chain, timed_cpu_of(from), node);
		chain_drop(&chain);

		chain_make_cold(&chain, node, false);
		for (int from = 0; from < nodes; from++)
			if (timed_cpu_of(from) >= 0)
				note_base_pages(&chain, timed_cpu_of(from), node);
		chain_drop(&chain);
	}
}

/*
 * A chain that fits into a cache: what a hit takes, and that memory is not asked. The first-level TLB
 * does not hold its pages, but the second does: tlb_hit_ps at most.
 */
static void test_hits(const char *cache, size_t bytes, double expected_ns)
{
	int cpu = timed_cpu_of(timed_value("cpu_node", 0));
	/* Its latency is the furthest from that of a hit. */
	int node = node_slow() >= 0 ? node_slow() : 0;
	uint64_t misses = 0, private_hits = 0, shared_hits = 0;
	double ns[HIT_RUNS];
	struct chain chain;
	struct span span;

	run_on_cpu(cpu);
	chain_make(&chain, bytes, LINE_BYTES, node, true);
	chain_run(&chain, 2 * bytes / LINE_BYTES, 0);
	for (int n = 0; n < HIT_RUNS; n++) {
		timed_begin(&span);
		chain_run(&chain, HITS, 0);
		timed_end(&span);
		ns[n] = load_ns(&span, cpu, HITS);
		misses += span.truth.cpu[cpu].misses[node];
		private_hits += span.truth.cpu[cpu].private_hits;
		shared_hits += span.truth.cpu[cpu].shared_hits;
	}
	figure_within(median_of(ns, HIT_RUNS), expected_ns * (1 - TOLERANCE),
		      (expected_ns + timed_ns("tlb_hit_ps")) * (1 + TOLERANCE), "ns", "%s cache, %zu KiB: a load", cache,
		      bytes >> 10);
	figure_within(misses, 0, STRAY_MISSES * HIT_RUNS * HITS, "lines", "%s cache: misses of %d loads", cache,
		      HIT_RUNS * HITS);
	figure_note(private_hits, "hits", "%s cache: in the private cache", cache);
	figure_note(shared_hits, "hits", "%s cache: in the shared cache", cache);
	chain_drop(&chain);
}

static void test_caches(void)
{
	size_t private = power_of_two(timed_value("private_bytes", 0)), shared = timed_value("shared_bytes", 0);

	/* Half, since the kernel wants room, too. */
	test_hits("private", private / 2, timed_ns("private_hit_ps"));
	/* Twice: in its order, the chain displaces each line before its turn comes again. */
	if (2 * private > shared / 2)
		tap_bail("a chain twice the private cache, %zu bytes, is more than half the shared one, %zu", 2 * private, shared);
	test_hits("shared", 2 * private, timed_ns("shared_hit_ps"));
}

int main(void)
{
	tap_start();
	timed_need();
	figures_start("timed_memory");
	file_set("madvise", "/sys/kernel/mm/transparent_hugepage/enabled");
	file_set("0", "/proc/sys/kernel/numa_balancing");
	test_memory();
	test_caches();
	return tap_done();
}
