// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Many records: sweeps, counts, and the search for pages of some heat.
 */
#ifdef __KERNEL__
#include <linux/memferry/hotness_format.h>
#else
#include <memferry/hotness_format.h>
#endif

/* Adds @pages records of default mode that are all the same to the histogram. */
static void ferry_hot8_add(struct ferry_hot_histogram *histogram, uint8_t record, uint32_t now,
			   uint64_t pages)
{
	struct ferry_hot_view view = ferry_hot8_shown(record, now);

	histogram->pages[view.eighths][view.age] += pages;
}

/**
 * ferry_hot8_sweep - age and count the records of default mode
 * @records: the records, which nobody else writes meanwhile; of a part of memory or all
 * @nr_records: number of @records, up to UINT32_MAX
 * @params: as ferry_hot_check() accepts them
 * @sweep: the sweep
 * @histogram: gains the records as they are afterwards; not cleared before
 *
 * As ferry_hot8_aged() for each. Where others write, sweep a copy, and store what changed by
 * compare-and-exchange. Needs 1.3 KiB of stack.
 *
 * Return: how many records changed.
 */
size_t ferry_hot8_sweep(uint8_t *records, size_t nr_records,
			const struct ferry_hot_params *params,
			const struct ferry_hot_sweep *sweep,
			struct ferry_hot_histogram *histogram)
{
	uint32_t pages[256] = { 0 }, record;
	size_t changed = 0, i;
	uint8_t aged[256];

	/* What a sweep makes of a record depends on its byte alone. */
	for (record = 0; record < 256; record++)
		aged[record] = ferry_hot8_swept((uint8_t)record, params, sweep);
	for (i = 0; i < nr_records; i++) {
		pages[records[i]]++;
		records[i] = aged[records[i]];
	}
	for (record = 0; record < 256; record++) {
		if (aged[record] != record)
			changed += pages[record];
		ferry_hot8_add(histogram, aged[record], sweep->now, pages[record]);
	}
	return changed;
}

/* ferry_hot8_sweep() of precision mode, for any number of records. */
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
 * ferry_hot8_count - count the records of default mode
 * @records: the records; only read
 * @nr_records: number of @records, up to UINT32_MAX
 * @now: time in ms, modulo 2^32, at most the longest time between sweeps after the last one
 * @histogram: gains the records; not cleared before
 */
void ferry_hot8_count(const uint8_t *records, size_t nr_records, uint32_t now,
		      struct ferry_hot_histogram *histogram)
{
	uint32_t pages[256] = { 0 }, record;
	size_t i;

	for (i = 0; i < nr_records; i++)
		pages[records[i]]++;
	for (record = 0; record < 256; record++)
		ferry_hot8_add(histogram, (uint8_t)record, now, pages[record]);
}

/* ferry_hot8_count() of precision mode, for any number of records. */
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

/* ferry_hot8_find() of precision mode. */
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
