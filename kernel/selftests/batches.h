/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the trace events say of the batches of one move.
 */
#ifndef _BATCHES_H
#define _BATCHES_H

#include <stddef.h>

#include "memory.h"

struct batches {
	unsigned int started;
	unsigned int finished;
	long long bytes;
	long long folios;
	long long largest;
	long long smallest;
	long long longest_ns;
	unsigned int lanes;		/* that copied something */
	long long lane_bytes;
};

/* Counts all batches between the two. */
void batches_start(void);
struct batches batches_stop(void);

/* Moves memory once; returns how many base pages lie elsewhere. */
size_t batches_move(struct memory *memory, int node, struct batches *seen);

#endif /* _BATCHES_H */
