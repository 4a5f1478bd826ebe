// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Shares a batch, seen as one line of bytes, among lanes.
 */
#ifdef __KERNEL__
#include <linux/export.h>
#include <linux/memferry/share.h>
#else
#include <memferry/share.h>
#endif

/**
 * ferry_share_begin - where a lane's share of a batch begins
 * @total: bytes of the batch, 0 to SIZE_MAX
 * @lanes: number of lanes, at least 1
 * @granule: bytes that stay together, at least 1
 * @lane: 0 to @lanes; the share of @lane ends where that of @lane + 1 begins
 *
 * Two shares differ by less than two granules. The longer ones come first, so that lane 0 has
 * something to copy whenever any lane has.
 *
 * Return: the position of the first byte: a multiple of @granule, or @total for @lanes and for
 * lanes that have nothing to copy.
 */
size_t ferry_share_begin(size_t total, size_t lanes, size_t granule, size_t lane)
{
	/* The last granule may be a part of one. */
	size_t granules = total / granule + (total % granule != 0);
	size_t longer = granules % lanes;
	size_t begin = granules / lanes * lane + (lane < longer ? lane : longer);

	return begin < granules ? begin * granule : total;
}

#ifdef __KERNEL__
EXPORT_SYMBOL_GPL(ferry_share_begin);
#endif
