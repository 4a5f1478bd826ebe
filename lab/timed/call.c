/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a program of the guest may ask the model: a no-op instruction that the model knows, with the address of a block in rdi. On
 * other machines it does nothing, and the answer stays 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timed.h"

enum command { HELLO = 1, WATCH, COUNTS, TRUTH };
enum { INTERFACE = 1, ANSWER = 7 };

/*
 * The pages whose misses are counted: virtual ones of one process, which is known by its page tables, or physical ones, whoever
 * accesses them.
 */
static struct {
	_Atomic uint64_t start, bytes;
	uint64_t cr3;
	bool physical;
	_Atomic uint32_t *counts;
} watched;
static const uint64_t MOST_WATCHED = 1ull << 40;

void call_missed(struct cpu *cpu, uint64_t address, uint64_t physical, uint32_t weight)
{
	uint64_t bytes = atomic_load_explicit(&watched.bytes, memory_order_acquire);
	uint64_t at = (watched.physical ? physical : address) - atomic_load_explicit(&watched.start, memory_order_relaxed);

	if (at < bytes && (watched.physical || cpu->cr3 == watched.cr3))
		atomic_fetch_add_explicit(&watched.counts[at >> PAGE_SHIFT], weight, memory_order_relaxed);
}

/* Old counts are not freed: another CPU may be counting in them. They are as large as a thousandth of the memory. */
static uint64_t watch(struct cpu *cpu, uint64_t start, uint64_t bytes, bool physical)
{
	_Atomic uint32_t *counts;

	atomic_store(&watched.bytes, 0);
	if (!bytes)
		return 1;
	if (start % 4096 || bytes > MOST_WATCHED)
		return 0;
	counts = calloc((bytes >> PAGE_SHIFT) + 1, sizeof(*counts));
	if (!counts)
		return 0;
	watched.cr3 = cpu->cr3;
	watched.physical = physical;
	watched.counts = counts;
	atomic_store(&watched.start, start);
	atomic_store(&watched.bytes, bytes);
	return 1;
}

/* Copies to the guest, page by page. Returns how many bytes arrived. */
static uint64_t give(struct cpu *cpu, uint64_t to, const void *from, uint64_t bytes)
{
	uint64_t done = 0;

	while (done < bytes) {
		uint64_t part = 4096 - (to + done) % 4096;
		void *at = memory_at(cpu, to + done);

		if (!at)
			break;
		part = part < bytes - done ? part : bytes - done;
		memcpy(at, (const char *)from + done, part);
		done += part;
	}
	return done;
}

static uint64_t counts(struct cpu *cpu, uint64_t start, uint64_t pages, uint64_t to)
{
	uint64_t first = (start - watched.start) >> PAGE_SHIFT;

	if (start < watched.start || first > watched.bytes >> PAGE_SHIFT || pages > (watched.bytes >> PAGE_SHIFT) - first)
		return 0;
	for (uint64_t page = 0; page < pages; page++) {
		uint32_t count = atomic_exchange(&watched.counts[first + page], 0);

		if (give(cpu, to + page * sizeof(count), &count, sizeof(count)) != sizeof(count))
			return 0;
	}
	return 1;
}

/* The totals as numbers, in the order of names in call_write_truth(). Returns how many. */
enum { TRUTH_MOST = 8 + MAX_CPUS * (9 + 2 * MAX_NODES) };
static unsigned int totals(uint64_t *to)
{
	struct clock_account account = clock_account();
	unsigned int count = 0;

	to[count++] = INTERFACE;
	to[count++] = parameters.cpus;
	to[count++] = parameters.nodes;
	for (unsigned int at = 0; at < parameters.cpus; at++) {
		const struct cpu *cpu = &cpus[at];
		uint64_t ps = clock_of(at);

		to[count++] = ps / 1000;
		to[count++] = (ps - clock_halted(at)) / 1000;
		to[count++] = cpu->score ? cpu->score->instructions : 0;
		to[count++] = cpu->accesses;
		to[count++] = cpu->private_hits;
		to[count++] = cpu->shared_hits;
		to[count++] = cpu->from_other_cpu;
		to[count++] = cpu->tlb_misses;
		to[count++] = cpu->tlb_flushes;
		for (unsigned int node = 0; node < parameters.nodes; node++)
			to[count++] = cpu->misses[node];
		for (unsigned int node = 0; node < parameters.nodes; node++)
			to[count++] = cpu->written[node] << LINE_SHIFT;
	}
	to[count++] = account.greatest_skew / 1000;
	to[count++] = account.skew_violations;
	to[count++] = account.greatest_lateness / 1000;
	to[count++] = account.given_up;
	return count;
}

static uint64_t truth(struct cpu *cpu, uint64_t to, uint64_t bytes)
{
	uint64_t all[TRUTH_MOST], have;

	/* The own clock stands at the last look. */
	clock_look(cpu->index, NULL);
	have = totals(all) * sizeof(*all);
	return give(cpu, to, all, have < bytes ? have : bytes);
}

void call(unsigned int index, void *data)
{
	struct cpu *cpu = &cpus[index];
	uint64_t *block = memory_at(cpu, register_value(cpu, 7));

	(void)data;
	if (!block || (uintptr_t)block % 64)
		return;
	switch (block[0]) {
	case HELLO:
		block[ANSWER] = INTERFACE;
		break;
	case WATCH:
		block[ANSWER] = watch(cpu, block[1], block[2], block[3]);
		break;
	case COUNTS:
		block[ANSWER] = counts(cpu, block[1], block[2], block[3]);
		break;
	case TRUTH:
		block[ANSWER] = truth(cpu, block[1], block[2]);
		break;
	}
}

void call_write_truth(void)
{
	static const char *const OF_CPU[] = {
		"time_ns", "busy_ns", "instructions", "accesses", "private_hits", "shared_hits", "from_other_cpu", "tlb_misses",
		"tlb_flushes",
	};
	uint64_t all[TRUTH_MOST];
	const uint64_t *next = all + 3;
	FILE *file;

	if (!*parameters.truth)
		return;
	totals(all);
	file = fopen(parameters.truth, "w");
	if (!file) {
		perror(parameters.truth);
		return;
	}
	fputs("{\"modelled\": true, \"cpus\": [\n", file);
	for (unsigned int cpu = 0; cpu < parameters.cpus; cpu++) {
		fputs(cpu ? ",\n {" : " {", file);
		for (unsigned int at = 0; at < sizeof(OF_CPU) / sizeof(OF_CPU[0]); at++)
			fprintf(file, "\"%s\": %lu, ", OF_CPU[at], *next++);
		for (unsigned int kind = 0; kind < 2; kind++) {
			fputs(kind ? "], \"written_bytes\": [" : "\"misses\": [", file);
			for (unsigned int node = 0; node < parameters.nodes; node++)
				fprintf(file, "%s%lu", node ? ", " : "", *next++);
		}
		fprintf(file, "], \"walk_failures\": %lu}", cpus[cpu].walk_failures);
	}
	fprintf(file, "\n], \"greatest_skew_ns\": %lu, \"skew_violations\": %lu, \"greatest_lateness_ns\": %lu, \"waits_given_up\": %lu}\n",
		next[0], next[1], next[2], next[3]);
	fclose(file);
}
