/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A chain: lines of memory that each hold the address of the next one, in an order that no
 * prefetcher guesses. Each load waits for the one before.
 */
#ifndef _CHAIN_H
#define _CHAIN_H

#include <stdbool.h>
#include <stddef.h>

struct chain {
	void *memory;
	size_t mapped;
	void *at;			/* the next line to load */
};

/**
 * chain_make - a chain through memory of a node
 * @bytes: a power of two times @stride
 * @stride: from a line to its neighbour in memory
 * @huge: made of folios of 2 MiB, so that TLBs do not matter; bails out if it is not
 */
void chain_make(struct chain *chain, size_t bytes, size_t stride, int node, bool huge);
void chain_drop(struct chain *chain);

/*
 * Follows the chain for @loads lines. Before each, @rest instructions that load nothing: with
 * more of them than a window of instructions holds, loads cannot overlap in any model.
 */
void chain_run(struct chain *chain, size_t loads, size_t rest);

/*
 * ns of one load as they follow each other, by the guest's clock. A chain through slow memory is
 * the cheapest way for an emulated CPU to be busy: few instructions a ns.
 */
double chain_load_ns(struct chain *chain);

/* Memory of a node, written once; of folios of 2 MiB, for which @bytes must be a multiple, if @huge. */
void *memory_on(int node, size_t bytes, bool huge);

#endif /* _CHAIN_H */
