// SPDX-License-Identifier: GPL-2.0-only
/* Chains of dependent loads. */
#include "chain.h"
#include "clock.h"
#include "files.h"
#include "memory.h"
#include "nodes.h"
#include "tap.h"

#include <string.h>
#include <sys/mman.h>

/* From Numerical Recipes; modulo a power of two it comes to every number once. */
#define FACTOR		1664525UL
#define ADDEND		1013904223UL

/* Each 1 to 3 ms: at most some of them have a tick. */
#define CALIBRATION_LOADS	10000
#define CALIBRATIONS		9

void *memory_on(int node, size_t bytes, bool huge)
{
	long long before = file_field("/proc/self/smaps_rollup", "AnonHugePages"), after;
	unsigned char *at = map_anonymous(bytes, huge);
	int rc = bind_range(at, bytes, MPOL_BIND, node, 0);

	if (rc)
		tap_bail("mbind(2) to node %d: %s", node, strerror(-rc));
	for (size_t offset = 0; offset < bytes; offset += page_bytes())
		at[offset] = 1;
	after = file_field("/proc/self/smaps_rollup", "AnonHugePages");
	if (after - before != (huge ? (long long)bytes >> 10 : 0))
		tap_bail("%lld of %zu KiB on node %d are folios of 2 MiB: is its memory fragmented?",
			 after - before, bytes >> 10, node);
	return at;
}

void chain_make(struct chain *chain, size_t bytes, size_t stride, int node, bool huge)
{
	size_t lines = bytes / stride;
	char *at;

	chain->mapped = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
	chain->memory = chain->at = at = memory_on(node, chain->mapped, huge);
	for (size_t n = 0; n < lines; n++)
		*(void **)(at + n * stride) = at + (n * FACTOR + ADDEND) % lines * stride;
}

void chain_drop(struct chain *chain)
{
	munmap(chain->memory, chain->mapped);
}

void chain_run(struct chain *chain, size_t loads, size_t rest)
{
	void *at = chain->at;

	while (loads--) {
		/* Two instructions a turn. */
		for (size_t turn = rest / 2; turn; turn--)
			asm volatile("");
		at = *(void *volatile *)at;
	}
	chain->at = at;
}

double chain_load_ns(struct chain *chain)
{
	double ns[CALIBRATIONS];

	chain_run(chain, CALIBRATION_LOADS, 0);
	for (int n = 0; n < CALIBRATIONS; n++) {
		double start = now_ns(CLOCK_MONOTONIC);

		chain_run(chain, CALIBRATION_LOADS, 0);
		ns[n] = (now_ns(CLOCK_MONOTONIC) - start) / CALIBRATION_LOADS;
	}
	return median_of(ns, CALIBRATIONS);
}
