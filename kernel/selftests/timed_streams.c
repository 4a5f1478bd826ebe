// SPDX-License-Identifier: GPL-2.0-only
/*
 * timed_streams: MB/s of loads, stores, non-temporal stores and copies, by one CPU and by all,
 * on each node, against the parameters of the timed machine; and the bytes that the plugin saw
 * go to and from memory against those that were touched.
 */
#include "chain.h"
#include "figures.h"
#include "files.h"
#include "nodes.h"
#include "task.h"
#include "timed.h"

#include <stdio.h>
#include <sys/mman.h>

/* Of the parameters: 30% is what rankings have to bear. */
#define TOLERANCE	0.05

/* Interrupts and waiting at the gates fetch lines, too. */
#define BYTES_TOLERANCE	0.02

/* 3 ms at 10 GB/s: some ticks of the kernel are below 1% of it. */
#define BYTES		(32UL << 20)
#define BYTES_LIMIT	(64UL << 20)

/* Memory is as many times the shared cache: nothing is still there a round later. */
#define TIMES_CACHE	4

/* A CPU that is not the first to end stops after it: below 1% of BYTES. */
#define PART_BYTES	(128UL << 10)

static void load_words(uint64_t *to, const uint64_t *from, size_t lines)
{
	const volatile uint64_t *at = from;

	(void)to;
	for (; lines--; at += 8) {
		(void)at[0]; (void)at[1]; (void)at[2]; (void)at[3];
		(void)at[4]; (void)at[5]; (void)at[6]; (void)at[7];
	}
}

static void load_lines(uint64_t *to, const uint64_t *from, size_t lines)
{
	const volatile uint64_t *at = from;

	(void)to;
	for (; lines--; at += 8)
		(void)at[0];
}

static void store_words(uint64_t *to, const uint64_t *from, size_t lines)
{
	volatile uint64_t *at = to;

	(void)from;
	for (; lines--; at += 8)
		at[0] = at[1] = at[2] = at[3] = at[4] = at[5] = at[6] = at[7] = 1;
}

static void store_past_caches(uint64_t *to, const uint64_t *from, size_t lines)
{
	(void)from;
	for (; lines--; to += 8)
#pragma GCC unroll 8
		for (int n = 0; n < 8; n++)
			timed_store_past_caches(to + n, 1);
	timed_store_fence();
}

static void copy_words(uint64_t *to, const uint64_t *from, size_t lines)
{
	volatile uint64_t *at = to;

	for (; lines--; at += 8, from += 8)
#pragma GCC unroll 8
		for (int n = 0; n < 8; n++)
			at[n] = from[n];
}

static void copy_past_caches(uint64_t *to, const uint64_t *from, size_t lines)
{
	for (; lines--; to += 8, from += 8)
#pragma GCC unroll 8
		for (int n = 0; n < 8; n++)
			timed_store_past_caches(to + n, from[n]);
	timed_store_fence();
}

/* For each line: lines that the CPU fetches, that its caches write back, that it writes past them. */
static const struct stream {
	const char *name;
	void (*run)(uint64_t *to, const uint64_t *from, size_t lines);
	int fetched, written_back, past_caches;
} streams[] = {
	{ "loads of 8 bytes", load_words, 1, 0, 0 },
	{ "loads of a line", load_lines, 1, 0, 0 },
	{ "stores", store_words, 1, 1, 0 },
	{ "non-temporal stores", store_past_caches, 0, 0, 1 },
	{ "copy", copy_words, 2, 1, 0 },
	{ "non-temporal copy", copy_past_caches, 1, 0, 1 },
};

/* What the CPUs of one measurement share. first ends it for all. */
static struct round {
	const struct stream *stream;
	int cpus;
	size_t bytes;
	volatile bool first;
	int arrived;
	struct span span;
} the_round;

static struct worker {
	int cpu;
	char *from, *to;
	size_t done;			/* bytes */
	double instructions;
} workers[TIMED_CPUS];

/* The @nth gate of a round opens when all CPUs have come. No sleep: a CPU that idles is late. */
static void gate(int nth)
{
	__atomic_add_fetch(&the_round.arrived, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&the_round.arrived, __ATOMIC_SEQ_CST) < nth * the_round.cpus)
		;
}

static size_t pass(const struct worker *worker)
{
	size_t done;

	for (done = 0; done < the_round.bytes && !the_round.first; done += PART_BYTES)
		the_round.stream->run((void *)(worker->to + done), (void *)(worker->from + done),
				      PART_BYTES / LINE_BYTES);
	return done;
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	struct timed_truth before, after;

	run_on_cpu(worker->cpu);
	/* So that the caches hold what a long stream leaves in them. */
	pass(worker);
	gate(1);
	timed_totals(&before);
	if (worker == workers)
		timed_begin(&the_round.span);
	gate(2);
	worker->done = pass(worker);
	the_round.first = true;
	timed_totals(&after);
	gate(3);
	if (worker == workers)
		timed_end(&the_round.span);
	worker->instructions = after.cpu[worker->cpu].instructions - before.cpu[worker->cpu].instructions;
	return NULL;
}

/* MB/s that one CPU streams through. Its instructions and its lines take turns in the model. */
static double expected_of(const struct worker *worker, int node)
{
	const struct stream *stream = the_round.stream;
	double lines = (stream->fetched + stream->past_caches) / timed_stream_mb_per_s(worker->cpu, node);
	double instructions = worker->instructions * timed_ns("instruction_ps") / (worker->done * 1000.0);

	return 1 / (lines + instructions);
}

/* Bytes to or from memory for each byte that passed. Where there shall be none, a tolerance of one. */
static void test_bytes(double found, double expected, const char *where, const char *who, int node)
{
	double tolerance = BYTES_TOLERANCE * (expected > 0 ? expected : 1);

	figure_within(found, expected > 0 ? expected - tolerance : 0, expected + tolerance, "per byte",
		      "%s, node %d, %s: %s", who, node, the_round.stream->name, where);
}

static void test_stream(const struct stream *stream, int node, const char *who)
{
	int traffic = stream->fetched + stream->written_back + stream->past_caches;
	double by_node = timed_value("node_mb_per_s", node) / (double)traffic, by_cpus = 0, done = 0;
	const struct timed_truth *truth = &the_round.span.truth;
	pthread_t threads[TIMED_CPUS];

	the_round.stream = stream;
	the_round.first = false;
	the_round.arrived = 0;
	for (int n = 0; n < the_round.cpus; n++)
		thread_start(&threads[n], work, &workers[n]);
	for (int n = 0; n < the_round.cpus; n++)
		pthread_join(threads[n], NULL);
	for (int n = 0; n < the_round.cpus; n++) {
		by_cpus += expected_of(&workers[n], node);
		done += workers[n].done;
	}
	figure_near(done * 1000 / the_round.span.ns, by_cpus < by_node ? by_cpus : by_node, TOLERANCE, "MB/s",
		    "%s, node %d, %s", who, node, stream->name);
	test_bytes(timed_misses(truth, node) * LINE_BYTES / done, stream->fetched, "fetched", who, node);
	test_bytes(timed_written(truth, node) / done, stream->written_back + stream->past_caches, "written back", who, node);
}

static void test_streams(int node, int cpus, const char *who)
{
	the_round.cpus = cpus;
	for (unsigned int n = 0; n < ARRAY_SIZE(streams); n++)
		test_stream(&streams[n], node, who);
}

/* The CPUs @from and after, @cpus of them, become the workers on a node. */
static void test_cpus(int node, int from, int cpus, const char *who)
{
	for (int n = 0; n < cpus; n++) {
		workers[n].cpu = from + n;
		workers[n].from = memory_on(node, the_round.bytes, true);
		workers[n].to = memory_on(node, the_round.bytes, true);
	}
	test_streams(node, cpus, who);
	for (int n = 0; n < cpus; n++) {
		munmap(workers[n].from, the_round.bytes);
		munmap(workers[n].to, the_round.bytes);
	}
}

int main(void)
{
	size_t shared;
	char who[32];
	int nodes;

	tap_start();
	timed_need();
	nodes = nodes_with_memory();
	figures_start("timed_streams");
	file_set("madvise", "/sys/kernel/mm/transparent_hugepage/enabled");
	file_set("0", "/proc/sys/kernel/numa_balancing");
	shared = timed_value("shared_bytes", 0);
	for (the_round.bytes = BYTES; the_round.bytes < TIMES_CACHE * shared;)
		the_round.bytes *= 2;
	if (the_round.bytes > BYTES_LIMIT)
		tap_bail("a shared cache of %zu bytes: the streams are too short", shared);
	for (int node = 0; node < nodes; node++) {
		for (int from = 0; from < nodes; from++)
			if (timed_cpu_of(from) >= 0) {
				snprintf(who, sizeof(who), "CPU %d", timed_cpu_of(from));
				test_cpus(node, timed_cpu_of(from), 1, who);
			}
		test_cpus(node, 0, timed_value("cpus", 0), "all CPUs");
	}
	return tap_done();
}
