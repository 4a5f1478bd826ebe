/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Extents: what a batch consists of, and whether a batch may be copied in any order.
 *
 * Only numbers: nothing here reads or writes what an extent points to.
 */
#ifndef MEMFERRY_EXTENTS_H
#define MEMFERRY_EXTENTS_H

#include "types.h"

/* Indices of ranges, two per extent, and of scratch entries then fit 31 bits. */
#define FERRY_EXTENTS_MAX	((size_t)1 << 28)

/* Two positions in a batch and a granule can then be added in 64 bits. */
#define FERRY_BYTES_MAX		((uint64_t)1 << 62)

/**
 * struct ferry_extent - bytes to copy from one place to another
 * @src: address of the first byte to read
 * @dst: address of the first byte to write, in the same address space as @src
 * @bytes: length of both, at least 1
 *
 * In a batch an extent is one folio, or a run of bytes that may be cut like one.
 */
struct ferry_extent {
	uint64_t src;
	uint64_t dst;
	uint64_t bytes;
};

size_t ferry_extents_scratch(size_t nr_extents);
int ferry_extents_sum(const struct ferry_extent *extents, size_t nr_extents,
		      uint64_t *total);
int ferry_extents_apart(const struct ferry_extent *extents, size_t nr_extents,
			uint32_t *scratch);

#endif /* MEMFERRY_EXTENTS_H */
