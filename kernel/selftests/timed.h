/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The timed machine (lab/timed), seen from its guest: its parameters, what its plugin counted,
 * and the call that asks for it. docs/design/timed.md describes the machine.
 */
#ifndef _TIMED_H
#define _TIMED_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TIMED_CPUS	16
#define TIMED_NODES	8
#define LINE_BYTES	64

/* Totals of one CPU since the machine was switched on. misses and written: lines, and bytes. */
struct timed_cpu {
	uint64_t time_ns, busy_ns, instructions, accesses;
	uint64_t private_hits, shared_hits, from_other_cpu, tlb_misses, tlb_flushes;
	uint64_t misses[TIMED_NODES];
	uint64_t written[TIMED_NODES];
};

struct timed_truth {
	int cpus, nodes;
	struct timed_cpu cpu[TIMED_CPUS];
	uint64_t greatest_skew_ns, skew_violations, greatest_lateness_ns, waits_given_up;
};

/**
 * struct span - what passed between timed_begin() and timed_end()
 * @ns: by the guest's CLOCK_MONOTONIC
 * @truth: by the plugin; of .cpu the differences, the rest as it is at the end
 */
struct span {
	double ns;
	struct timed_truth truth;
};

/* Bails out unless this is a timed machine whose parameters are in /lab/timed.conf. */
void timed_need(void);

/* The @nth value of a parameter. Bails out if there is none. */
long long timed_value(const char *name, int nth);

/* The same of the line whose first value is @row, which does not count. */
long long timed_row(const char *name, int row, int nth);

/* A parameter in ps, as ns. */
double timed_ns(const char *name);

/* The first CPU of a node, or -1. */
int timed_cpu_of(int node);

/* From a CPU to memory of a node. */
double timed_latency_ns(int cpu, int node);

/* MB/s that one CPU streams from or to a node at most: stream_lines are under way at a time. */
double timed_stream_mb_per_s(int cpu, int node);

void timed_totals(struct timed_truth *truth);
void timed_begin(struct span *span);
void timed_end(struct span *span);

/* Misses and bytes written back of a node, by all CPUs. */
uint64_t timed_misses(const struct timed_truth *truth, int node);
uint64_t timed_written(const struct timed_truth *truth, int node);

/* From now on misses of a range of this process are counted for each of its base pages. */
void timed_watch(const void *at, size_t bytes);

/*
 * Misses per base page since the last call or timed_watch(); one that waits counts for more than one
 * of a stream. @counts is written before.
 */
void timed_counts(const void *at, size_t pages, uint32_t *counts);

/* The time stamp counter, after all loads before it. */
static inline uint64_t timed_cycles(void)
{
	_mm_lfence();
	return __builtin_ia32_rdtsc();
}

/* For loops that wait: the CPU looks at the line anew. */
static inline void timed_pause(void)
{
	_mm_pause();
}

/* Stores that do not fetch the line. */
static inline void timed_store_past_caches(uint64_t *at, uint64_t value)
{
	_mm_stream_si64((long long *)at, value);
}

static inline void timed_store_fence(void)
{
	_mm_sfence();
}

#endif /* _TIMED_H */
