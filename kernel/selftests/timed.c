// SPDX-License-Identifier: GPL-2.0-only
/* The parameters and the counts of the timed machine. Its own tests are timed_*.c. */
#include "timed.h"
#include "clock.h"
#include "files.h"
#include "nodes.h"
#include "tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PARAMETERS	"/lab/timed.conf"

enum { HELLO = 1, WATCH, COUNTS, TRUTH };

/* Numbers of the truth: in front, of a CPU without its nodes, at the end. */
#define TRUTH_HEAD	3
#define TRUTH_CPU	9
#define TRUTH_TAIL	4

static char parameters[16384];

/* nopl 0x4d54464d(%rax) does nothing on any other machine: then the answer is 0. */
static uint64_t call(uint64_t command, uint64_t first, uint64_t second, uint64_t third)
{
	uint64_t block[8] __attribute__((aligned(64))) = { command, first, second, third };

	asm volatile(".byte 0x0f, 0x1f, 0x80, 0x4d, 0x46, 0x54, 0x4d" : : "D"(block) : "memory");
	return ((volatile uint64_t *)block)[7];
}

void timed_need(void)
{
	int error;

	if (!call(HELLO, 0, 0, 0))
		tap_bail("not a timed machine, its call is not answered: try cargo xtask lab --machine timed");
	error = file_read(parameters, sizeof(parameters), PARAMETERS);
	if (error)
		tap_bail("%s: %s: the lab puts the machine's parameters there", PARAMETERS, strerror(-error));
	if (timed_value("cpus", 0) > TIMED_CPUS)
		tap_bail("%lld CPUs: raise TIMED_CPUS in timed.h", timed_value("cpus", 0));
}

/* The values of the line after @from that begins with @name, or NULL. */
static const char *line_of(const char *from, const char *name)
{
	size_t length = strlen(name);

	for (; from; from = strchr(from, '\n')) {
		from += strspn(from, " \t\n");
		if (!strncmp(from, name, length) && (from[length] == ' ' || from[length] == '\t'))
			return from + length;
	}
	return NULL;
}

/* The @nth number before the end of the line. */
static bool number_at(const char *line, int nth, long long *number)
{
	do {
		char *end;

		line += strspn(line, " \t");
		*number = strtoll(line, &end, 10);
		if (*line == '\n' || end == line)
			return false;
		line = end;
	} while (nth--);
	return true;
}

long long timed_value(const char *name, int nth)
{
	const char *line = line_of(parameters, name);
	long long number;

	if (!line || !number_at(line, nth, &number))
		tap_bail("%s: no value %d of %s", PARAMETERS, nth, name);
	return number;
}

long long timed_row(const char *name, int row, int nth)
{
	long long number;

	for (const char *line = line_of(parameters, name); line; line = line_of(line, name))
		if (number_at(line, 0, &number) && number == row && number_at(line, nth + 1, &number))
			return number;
	tap_bail("%s: no value %d of %s %d", PARAMETERS, nth, name, row);
}

double timed_ns(const char *name)
{
	return timed_value(name, 0) / 1000.0;
}

int timed_cpu_of(int node)
{
	for (int cpu = 0; cpu < timed_value("cpus", 0); cpu++)
		if (timed_value("cpu_node", cpu) == node)
			return cpu;
	return -1;
}

double timed_latency_ns(int cpu, int node)
{
	return timed_row("latency_ps", timed_value("cpu_node", cpu), node) / 1000.0;
}

double timed_stream_mb_per_s(int cpu, int node)
{
	return timed_value("stream_lines", 0) * LINE_BYTES * 1000 / timed_latency_ns(cpu, node);
}

void timed_totals(struct timed_truth *truth)
{
	/* In one page, and resident: the plugin writes it as it lies. */
	static __thread uint64_t numbers[512] __attribute__((aligned(4096)));
	const uint64_t *at = numbers + TRUTH_HEAD;
	uint64_t bytes, wanted;

	memset(numbers, 0, sizeof(numbers));
	bytes = call(TRUTH, (uintptr_t)numbers, sizeof(numbers), 0);
	truth->cpus = numbers[1];
	truth->nodes = numbers[2];
	wanted = (TRUTH_HEAD + truth->cpus * (TRUTH_CPU + 2 * truth->nodes) + TRUTH_TAIL) * sizeof(*at);
	if (numbers[0] != 1 || truth->cpus > TIMED_CPUS || truth->nodes > TIMED_NODES || bytes != wanted)
		tap_bail("truth of version %llu, %d CPUs, %d nodes, %llu bytes; expected version 1 and %llu bytes",
			 (unsigned long long)numbers[0], truth->cpus, truth->nodes,
			 (unsigned long long)bytes, (unsigned long long)wanted);
	for (int cpu = 0; cpu < truth->cpus; cpu++) {
		struct timed_cpu *one = &truth->cpu[cpu];

		memcpy(one, at, TRUTH_CPU * sizeof(*at));
		at += TRUTH_CPU;
		memcpy(one->misses, at, truth->nodes * sizeof(*at));
		at += truth->nodes;
		memcpy(one->written, at, truth->nodes * sizeof(*at));
		at += truth->nodes;
	}
	memcpy(&truth->greatest_skew_ns, at, TRUTH_TAIL * sizeof(*at));
}

void timed_begin(struct span *span)
{
	timed_totals(&span->truth);
	span->ns = now_ns(CLOCK_MONOTONIC);
}

void timed_end(struct span *span)
{
	double end = now_ns(CLOCK_MONOTONIC);
	struct timed_truth before = span->truth;

	span->ns = end - span->ns;
	timed_totals(&span->truth);
	for (int cpu = 0; cpu < before.cpus; cpu++) {
		uint64_t *after = (uint64_t *)&span->truth.cpu[cpu];
		const uint64_t *then = (uint64_t *)&before.cpu[cpu];

		/* What lies behind the last node is 0 or not looked at. */
		for (int n = 0; n < TRUTH_CPU; n++)
			after[n] -= then[n];
		for (int node = 0; node < before.nodes; node++) {
			span->truth.cpu[cpu].misses[node] -= before.cpu[cpu].misses[node];
			span->truth.cpu[cpu].written[node] -= before.cpu[cpu].written[node];
		}
	}
}

uint64_t timed_misses(const struct timed_truth *truth, int node)
{
	uint64_t sum = 0;

	for (int cpu = 0; cpu < truth->cpus; cpu++)
		sum += truth->cpu[cpu].misses[node];
	return sum;
}

uint64_t timed_written(const struct timed_truth *truth, int node)
{
	uint64_t sum = 0;

	for (int cpu = 0; cpu < truth->cpus; cpu++)
		sum += truth->cpu[cpu].written[node];
	return sum;
}

void timed_watch(const void *at, size_t bytes)
{
	if (!call(WATCH, (uintptr_t)at, bytes, 0))
		tap_bail("the machine does not count misses per page");
}

void timed_counts(const void *at, size_t pages, uint32_t *counts)
{
	if (!call(COUNTS, (uintptr_t)at, pages, (uintptr_t)counts))
		tap_bail("the machine does not tell misses per page");
}
