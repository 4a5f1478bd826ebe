// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Many records: lists of accesses, sweeps in precision mode, and the search for pages of some
 * heat. Sweeps in default mode are in hotness_planes.c.
 */
#ifdef __KERNEL__
#include <linux/memferry/hotness_format.h>
#else
#include <memferry/hotness_format.h>
#endif

/* Random numbers for a batch, from one (Marsaglia's xorshift; 0 is replaced). */
static uint32_t ferry_hot_random(uint32_t random)
{
	random ^= random << 13;
	random ^= random >> 17;
	random ^= random << 5;
	return random ? random : 1;
}

/**
 * ferry_hot8_access_all - ferry_hot8_access() for a list of accesses
 * @records: the records of a section; nobody else writes them
 * @pages: the record of each access
 * @nr_pages: number of @pages
 * @params: as ferry_hot_check() accepts them
 * @now: time of the accesses in ms, modulo 2^32
 * @weight: weight of each of them
 * @random: any 32 bits; numbers for each access are derived from them
 *
 * For a source that reports samples by the buffer.
 *
 * Context: Any, with @records locked by the caller.
 */
void ferry_hot8_access_all(uint8_t *records, const uint32_t *pages, size_t nr_pages,
			   const struct ferry_hot_params *params, uint32_t now,
			   uint32_t weight, uint32_t random)
{
	uint32_t bucket = now >> FERRY_HOT8_BUCKET_SHIFT & FERRY_HOT8_TIME;
	struct ferry_hot_params copy = *params;
	size_t i;

	weight = ferry_hot_least(weight, FERRY_HOT_WEIGHT_MAX);
	for (i = 0; weight && i < nr_pages; i++) {
		random = ferry_hot_random(random);
		records[pages[i]] = ferry_hot8_next(records[pages[i]], &copy, bucket, weight,
						    random);
	}
}

/**
 * ferry_hot32_access_all - ferry_hot32_access() for a list of accesses
 * @records: the records of a section; nobody else writes them
 * @pages: the record of each access
 * @nr_pages: number of @pages
 * @params: as ferry_hot_check() accepts them
 * @now: time of the accesses in ms, modulo 2^32
 * @weight: weight of each of them
 * @random: any 32 bits; numbers for each access are derived from them
 * @node: node of all of them
 *
 * Context: Any, with @records locked by the caller.
 */
void ferry_hot32_access_all(uint32_t *records, const uint32_t *pages, size_t nr_pages,
			    const struct ferry_hot_params *params, uint32_t now,
			    uint32_t weight, uint32_t random, uint32_t node)
{
	struct ferry_hot_params copy = *params;
	size_t i;

	weight = ferry_hot_least(weight, FERRY_HOT_WEIGHT_MAX);
	for (i = 0; weight && i < nr_pages; i++) {
		random = ferry_hot_random(random);
		records[pages[i]] = ferry_hot32_next(records[pages[i]], &copy, now, weight,
						     random, node);
	}
}

/**
 * ferry_hot32_sweep - age and count the records of precision mode
 * @records: the records, which nobody else writes meanwhile; of a part of memory or all
 * @nr_records: number of @records
 * @params: as ferry_hot_check() accepts them
 * @sweep: the sweep
 * @histogram: gains the records as they are afterwards; not cleared before
 *
 * As ferry_hot32_aged() for each.
 *
 * Context: Any.
 * Return: how many records changed.
 */
size_t ferry_hot32_sweep(uint32_t *records, size_t nr_records,
			 const struct ferry_hot_params *params,
			 const struct ferry_hot_sweep *sweep,
			 struct ferry_hot_histogram *histogram)
{
	struct ferry_hot_params copy = *params;
	struct ferry_hot_view view;
	size_t changed = 0, i;
	uint32_t record;

	for (i = 0; i < nr_records; i++) {
		if (!records[i]) {
			histogram->pages[0][FERRY_HOT_AGES - 1]++;
			continue;
		}
		record = ferry_hot32_swept(records[i], &copy, sweep);
		if (record != records[i]) {
			records[i] = record;
			changed++;
		}
		view = ferry_hot32_shown(record, sweep->now);
		histogram->pages[view.eighths][view.age]++;
	}
	return changed;
}

/**
 * ferry_hot32_count - count the records of precision mode
 * @records: the records; only read
 * @nr_records: number of @records
 * @now: time in ms, modulo 2^32, at most the longest time between sweeps after the last one
 * @histogram: gains the records; not cleared before
 *
 * Context: Any.
 */
void ferry_hot32_count(const uint32_t *records, size_t nr_records, uint32_t now,
		       struct ferry_hot_histogram *histogram)
{
	struct ferry_hot_view view;
	size_t i;

	for (i = 0; i < nr_records; i++) {
		if (!records[i]) {
			histogram->pages[0][FERRY_HOT_AGES - 1]++;
			continue;
		}
		view = ferry_hot32_shown(records[i], now);
		histogram->pages[view.eighths][view.age]++;
	}
}

/**
 * ferry_hot8_find - the records of some heats, in default mode
 * @records: the records; only read
 * @nr_records: number of @records
 * @from: where to begin; receives where to go on, @nr_records at the end
 * @params: as ferry_hot_check() accepts them
 * @now: time in ms, modulo 2^32, at most the longest time between sweeps after the last one
 * @least: smallest heat that is looked for
 * @most: largest heat that is looked for
 * @found: receives the places of the records, ascending
 * @space: entries of @found
 *
 * Hottest first means to ask for the hottest heats first, or to sort what was found.
 *
 * Context: Any.
 * Return: how many it found; fewer than @space at the end only.
 */
size_t ferry_hot8_find(const uint8_t *records, size_t nr_records, size_t *from,
		       const struct ferry_hot_params *params, uint32_t now,
		       uint32_t least, uint32_t most, uint32_t *found, size_t space)
{
	uint32_t wanted[8] = { 0 }, record, heat;
	struct ferry_hot_view view;
	size_t at = *from, n = 0;

	/* What a record says depends on its byte alone. */
	for (record = 0; record < 256; record++) {
		view = ferry_hot8_shown((uint8_t)record, now);
		heat = ferry_hot_heat(params, view.eighths, view.age);
		if (heat >= least && heat <= most)
			wanted[record >> 5] |= (uint32_t)1 << (record & 31);
	}
	for (; at < nr_records && n < space; at++)
		if (wanted[records[at] >> 5] >> (records[at] & 31) & 1)
			found[n++] = (uint32_t)at;
	*from = at;
	return n;
}

/**
 * ferry_hot32_find - the records of some heats, in precision mode
 * @records: the records; only read
 * @nr_records: number of @records
 * @from: where to begin; receives where to go on, @nr_records at the end
 * @params: as ferry_hot_check() accepts them
 * @now: time in ms, modulo 2^32, at most the longest time between sweeps after the last one
 * @least: smallest heat that is looked for
 * @most: largest heat that is looked for
 * @found: receives the places of the records, ascending
 * @space: entries of @found
 *
 * Context: Any.
 * Return: how many it found; fewer than @space at the end only.
 */
size_t ferry_hot32_find(const uint32_t *records, size_t nr_records, size_t *from,
			const struct ferry_hot_params *params, uint32_t now,
			uint32_t least, uint32_t most, uint32_t *found, size_t space)
{
	struct ferry_hot_view view;
	size_t at = *from, n = 0;
	uint32_t heat;

	for (; at < nr_records && n < space; at++) {
		view = ferry_hot32_shown(records[at], now);
		heat = ferry_hot_heat(params, view.eighths, view.age);
		if (heat >= least && heat <= most)
			found[n++] = (uint32_t)at;
	}
	*from = at;
	return n;
}
