/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Lanes: how a batch is dealt to the parallel copiers of a migrator.
 *
 * Decides only who copies which bytes. It reads no byte of the batch, starts no
 * copy and does not choose the number of lanes (that is choose.h's work).
 */
#ifndef MEMFERRY_LANES_H
#define MEMFERRY_LANES_H

#include "extents.h"

/*
 * The granule where the caller has no better one: small enough that one granule
 * more or less on a lane costs a few microseconds, and large enough that a lane's
 * pieces keep the memory's prefetchers and a DMA channel's bursts busy.
 */
#define FERRY_GRANULE_DEFAULT	((uint64_t)64 * 1024)

/* The smallest base page of Linux. A host with larger pages passes its own. */
#define FERRY_GRANULE_MIN	((uint64_t)4096)

/* The largest folio of Linux; a larger granule would balance nothing. */
#define FERRY_GRANULE_MAX	((uint64_t)1 << 30)

/* Far above any machine's copiers; below 2^16 so that 32-bit division suffices. */
#define FERRY_LANES_MAX		((uint32_t)1024)

/*
 * Flag: the caller knows that the extents are apart (see ferry_extents_apart()), for example
 * because it holds every source folio locked and has just allocated every
 * destination. The check is skipped and no scratch is needed.
 */
#define FERRY_DEAL_DISJOINT	((uint32_t)1 << 0)

/**
 * struct ferry_lane - what one lane has to copy
 * @bytes: sum of the bytes of its pieces; 0 for a lane with nothing to do
 * @first: index of its first piece in the deal's @out
 * @count: number of its pieces, which follow each other in @out
 */
struct ferry_lane {
	uint64_t bytes;
	uint32_t first;
	uint32_t count;
};

/**
 * struct ferry_deal - the arguments of ferry_deal()
 * @extents: the batch; only read; may be NULL if @nr_extents is 0
 * @nr_extents: number of @extents, up to FERRY_EXTENTS_MAX; 0 is a valid batch
 * @granule: bytes by which two lanes may differ, and the distance of the places at
 *	which an extent may be cut; a power of two from FERRY_GRANULE_MIN to
 *	FERRY_GRANULE_MAX and at least the host's base page
 * @nr_lanes: number of lanes, 1 to FERRY_LANES_MAX
 * @flags: 0 or FERRY_DEAL_DISJOINT
 * @out: receives the pieces, lane after lane: extents of the batch or parts of them;
 *	must not overlap @extents
 * @out_space: entries of @out, at least ferry_deal_space()
 * @lanes: receives @nr_lanes entries
 * @scratch: work space, left with any content even by a failed deal; may be NULL
 *	with FERRY_DEAL_DISJOINT
 * @scratch_space: entries of @scratch, at least ferry_extents_scratch()
 */
struct ferry_deal {
	const struct ferry_extent *extents;
	size_t nr_extents;
	uint64_t granule;
	uint32_t nr_lanes;
	uint32_t flags;
	struct ferry_extent *out;
	size_t out_space;
	struct ferry_lane *lanes;
	uint32_t *scratch;
	size_t scratch_space;
};

size_t ferry_deal_space(size_t nr_extents, uint32_t nr_lanes);
int ferry_deal(const struct ferry_deal *deal);

#endif /* MEMFERRY_LANES_H */
