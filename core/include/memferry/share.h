/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Shares: which bytes of a batch each lane of a migrator copies.
 */
#ifndef MEMFERRY_SHARE_H
#define MEMFERRY_SHARE_H

#include "types.h"

/*
 * Bytes between two cuts where the caller has no better number: one granule more or less
 * costs a lane a few microseconds, and a share is long enough for prefetchers and bursts.
 */
#define FERRY_SHARE_GRANULE	((size_t)64 * 1024)

size_t ferry_share_begin(size_t total, size_t lanes, size_t granule, size_t lane);

#endif /* MEMFERRY_SHARE_H */
