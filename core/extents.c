// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Checks a batch before anything is decided about it: are its numbers sound, and may
 * its extents be copied in any order and at the same time?
 */
#ifdef __KERNEL__
#include <linux/memferry/extents.h>
#else
#include <memferry/extents.h>
#endif

/*
 * The ranges of a batch of n extents, numbered: range i < n is what extent i writes,
 * range n + i is what extent i reads.
 */
struct ferry_ranges {
	const struct ferry_extent *extents;
	uint32_t nr_extents;
	uint32_t nr_ranges;
};

static bool ferry_range_written(const struct ferry_ranges *ranges, uint32_t range)
{
	return range < ranges->nr_extents;
}

static uint64_t ferry_range_start(const struct ferry_ranges *ranges, uint32_t range)
{
	if (ferry_range_written(ranges, range))
		return ranges->extents[range].dst;
	return ranges->extents[range - ranges->nr_extents].src;
}

static uint64_t ferry_range_end(const struct ferry_ranges *ranges, uint32_t range)
{
	if (ferry_range_written(ranges, range))
		return ranges->extents[range].dst + ranges->extents[range].bytes;
	range -= ranges->nr_extents;
	return ranges->extents[range].src + ranges->extents[range].bytes;
}

/**
 * ferry_extents_sum - check the numbers of a batch and sum up its bytes
 * @extents: the batch; only read
 * @nr_extents: number of @extents, up to FERRY_EXTENTS_MAX
 * @total: receives the bytes of the batch; written only on success
 *
 * An extent of no bytes is refused, not skipped: no folio is empty, so it tells of a
 * mistake where the batch was made.
 *
 * Context: Any. Touches only its arguments, which the caller keeps unchanged.
 * Return: 0; -FERRY_EINVAL for an extent of 0 bytes; -FERRY_EOVERFLOW if there are too
 * many extents, if an extent's first address plus its bytes exceeds 64 bits, or if the
 * batch has more than FERRY_BYTES_MAX bytes.
 */
int ferry_extents_sum(const struct ferry_extent *extents, size_t nr_extents,
		      uint64_t *total)
{
	uint64_t sum = 0, bytes;
	size_t i;

	if (nr_extents > FERRY_EXTENTS_MAX)
		return -FERRY_EOVERFLOW;
	for (i = 0; i < nr_extents; i++) {
		bytes = extents[i].bytes;
		if (!bytes)
			return -FERRY_EINVAL;
		if (extents[i].src + bytes < bytes || extents[i].dst + bytes < bytes)
			return -FERRY_EOVERFLOW;
		if (bytes > FERRY_BYTES_MAX - sum)
			return -FERRY_EOVERFLOW;
		sum += bytes;
	}
	*total = sum;
	return 0;
}

/*
 * True if the answer is already clear from one look at each extent: what is written
 * ascends, and all of it lies on one side of all that is read. Most batches are like
 * this: staging and destination are two ranges, or two nodes.
 */
static bool ferry_apart_at_sight(const struct ferry_extent *extents, size_t nr_extents,
				 bool *mixed)
{
	uint64_t read_low = ~(uint64_t)0, read_high = 0;
	uint64_t write_low = ~(uint64_t)0, write_high = 0;
	uint64_t start, end;
	bool ascends = true;
	size_t i;

	for (i = 0; i < nr_extents; i++) {
		start = extents[i].src;
		end = start + extents[i].bytes;
		read_low = start < read_low ? start : read_low;
		read_high = end > read_high ? end : read_high;
		start = extents[i].dst;
		end = start + extents[i].bytes;
		ascends &= start >= write_high;
		write_low = start < write_low ? start : write_low;
		write_high = end > write_high ? end : write_high;
	}
	*mixed = read_low < write_high && write_low < read_high;
	return ascends && !*mixed;
}

/* Where the ascending run that begins at @at ends. */
static uint32_t ferry_run_end(const struct ferry_ranges *ranges, const uint32_t *order,
			      uint32_t at)
{
	uint64_t start, last = ferry_range_start(ranges, order[at]);

	for (at++; at < ranges->nr_ranges; at++) {
		start = ferry_range_start(ranges, order[at]);
		if (start < last)
			break;
		last = start;
	}
	return at;
}

/* Merges the runs [at, middle) and [middle, stop) of @from into @to. */
static void ferry_merge(const struct ferry_ranges *ranges, const uint32_t *from,
			uint32_t *to, uint32_t at, uint32_t middle, uint32_t stop)
{
	uint32_t left = at, right = middle;

	for (; at < stop; at++) {
		if (right == stop || (left < middle &&
				      ferry_range_start(ranges, from[left]) <=
				      ferry_range_start(ranges, from[right])))
			to[at] = from[left++];
		else
			to[at] = from[right++];
	}
}

/*
 * Sorts the ranges by their start. A merge sort of the runs that are there, because
 * batches come nearly sorted: a few runs cost a few passes over the batch, and no
 * order costs more than n log n.
 */
static const uint32_t *ferry_sort(const struct ferry_ranges *ranges, uint32_t *scratch)
{
	uint32_t *from = scratch, *to = scratch + ranges->nr_ranges, *swap;
	uint32_t at, middle, stop, runs;

	for (at = 0; at < ranges->nr_ranges; at++)
		from[at] = at;
	do {
		runs = 0;
		for (at = 0; at < ranges->nr_ranges; at = stop, runs++) {
			middle = ferry_run_end(ranges, from, at);
			stop = middle;
			if (middle < ranges->nr_ranges)
				stop = ferry_run_end(ranges, from, middle);
			ferry_merge(ranges, from, to, at, middle, stop);
		}
		swap = from;
		from = to;
		to = swap;
	} while (runs > 1);
	return from;
}

/**
 * ferry_extents_scratch - the work space of ferry_extents_apart()
 * @nr_extents: number of extents of the batch
 *
 * Two orders (before and after a merge) of two ranges per extent.
 *
 * Context: Any.
 * Return: the number of entries of uint32_t; 0 if @nr_extents is 0 or more than
 * FERRY_EXTENTS_MAX, which no call accepts.
 */
size_t ferry_extents_scratch(size_t nr_extents)
{
	return nr_extents > FERRY_EXTENTS_MAX ? 0 : 4 * nr_extents;
}

/**
 * ferry_extents_apart - may the extents be copied in any order, and at once?
 * @extents: a batch that ferry_extents_sum() has accepted; only read
 * @nr_extents: number of @extents
 * @scratch: ferry_extents_scratch() entries, left with any content
 *
 * No byte may be written twice, and none may be both written and read, by the same
 * extent or by two. A byte may be read twice: that copies right (a page replicated to
 * two nodes), even if it is rarely meant.
 *
 * Takes one pass if the destinations ascend and all lie on one side of the sources,
 * else n log(runs), where runs counts the ascending runs of the batch.
 *
 * Context: Any. Touches only its arguments, which the caller keeps unchanged.
 * Return: 0 if so, else -FERRY_EEXIST, as mmap(2) says of a place that is taken.
 */
int ferry_extents_apart(const struct ferry_extent *extents, size_t nr_extents,
			uint32_t *scratch)
{
	struct ferry_ranges ranges = { .extents = extents };
	uint64_t written = 0, touched = 0, end;
	const uint32_t *order;
	bool mixed, writes;
	uint32_t i;

	if (ferry_apart_at_sight(extents, nr_extents, &mixed))
		return 0;
	ranges.nr_extents = (uint32_t)nr_extents;
	/* What is read matters only if it may meet what is written. */
	ranges.nr_ranges = mixed ? 2 * ranges.nr_extents : ranges.nr_extents;
	order = ferry_sort(&ranges, scratch);
	for (i = 0; i < ranges.nr_ranges; i++) {
		writes = ferry_range_written(&ranges, order[i]);
		if (ferry_range_start(&ranges, order[i]) < (writes ? touched : written))
			return -FERRY_EEXIST;
		end = ferry_range_end(&ranges, order[i]);
		touched = end > touched ? end : touched;
		if (writes)
			written = end > written ? end : written;
	}
	return 0;
}
