// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What time does: a sweep to one record and to many, and what a record says at some time.
 */
#ifdef __KERNEL__
#include <linux/memferry/hotness.h>
#else
#include <memferry/hotness.h>
#endif

/* Class of an idle record, which it has in place of a time. A class of none counts as the first. */
static uint32_t ferry_hot32_class(uint32_t record)
{
	uint32_t idle = record >> FERRY_HOT32_TIME_SHIFT & FERRY_HOT32_IDLE_MAX;

	return idle ? idle : 1;
}

/* True if the sweep comes later than promised: no record's time can be trusted. */
static bool ferry_hot_late(const struct ferry_hot_params *params,
			   const struct ferry_hot_sweep *sweep)
{
	return sweep->now - sweep->last > params->sweep_ms;
}

/* True if records cool at this sweep. */
static bool ferry_hot_cools(const struct ferry_hot_params *params,
			    const struct ferry_hot_sweep *sweep)
{
	return params->cool_sweeps && sweep->number % params->cool_sweeps == 0;
}

/*
 * What cooling leaves of a frequency in eighths: a part of what it counts. Where levels are
 * powers that is a level, and where each is an access, an eighth, rounded up.
 */
static uint32_t ferry_hot32_cooled(const struct ferry_hot_params *params, uint32_t eighths)
{
	if (params->step)
		return eighths > 8 ? eighths - 8 : eighths;
	return eighths > 1 ? eighths - ((eighths + 7) >> 3) : eighths;
}

/* A frequency in eighths: less what cooled off. */
static uint32_t ferry_hot32_eighths(uint32_t record)
{
	return (record >> FERRY_HOT32_FREQ_SHIFT & FERRY_HOT32_FREQ) * 8 -
	       (record >> FERRY_HOT32_COOLED_SHIFT & FERRY_HOT32_COOLED);
}

/*
 * What a sweep makes of an idle class: class k is left at sweeps whose number 2^(k-1)
 * divides. So each class is reached twice as many sweeps after the first as the one before.
 */
static uint32_t ferry_hot_idler(const struct ferry_hot_sweep *sweep, uint32_t idle)
{
	return idle + !(sweep->number & (((uint32_t)1 << (idle - 1)) - 1));
}

static uint8_t ferry_hot8_swept(uint8_t record, const struct ferry_hot_params *params,
				const struct ferry_hot_sweep *sweep)
{
	uint32_t time = record >> FERRY_HOT8_TIME_SHIFT & FERRY_HOT8_TIME;
	uint32_t freq = record & FERRY_HOT8_FREQ;
	uint32_t idle = 0;

	if (!freq) {
		freq = time >> 3;
		if (!freq)
			return 0;
		idle = ferry_hot_idler(sweep, (time & 7) + 1);
	} else if (ferry_hot_late(params, sweep) ||
		   ferry_hot8_buckets(time, sweep->now) > ferry_hot8_recent(params)) {
		idle = 1;
	}
	if (freq > 1 && ferry_hot_cools(params, sweep))
		freq--;
	if (idle > FERRY_HOT8_IDLE_MAX)
		return 0;
	if (idle)
		return (uint8_t)((freq << 3 | (idle - 1)) << FERRY_HOT8_TIME_SHIFT);
	return (uint8_t)((record & ~FERRY_HOT8_FREQ) | freq);
}

static uint32_t ferry_hot32_swept(uint32_t record, const struct ferry_hot_params *params,
				  const struct ferry_hot_sweep *sweep)
{
	uint32_t freq = record >> FERRY_HOT32_FREQ_SHIFT & FERRY_HOT32_FREQ, eighths;
	uint32_t idle = 0, kept = record & FERRY_HOT32_NODE;

	if (!freq)
		return 0;
	if (record & FERRY_HOT32_IDLE)
		idle = ferry_hot_idler(sweep, ferry_hot32_class(record));
	else if (ferry_hot_late(params, sweep) ||
		 ferry_hot32_elapsed(record, sweep->now) > params->window_ms)
		idle = 1;
	if (idle > FERRY_HOT32_IDLE_MAX)
		return 0;
	if (idle)
		kept |= FERRY_HOT32_IDLE | idle << FERRY_HOT32_TIME_SHIFT;
	else
		kept |= record & (FERRY_HOT32_READY | FERRY_HOT32_TIME << FERRY_HOT32_TIME_SHIFT);
	eighths = ferry_hot32_eighths(record);
	if (ferry_hot_cools(params, sweep))
		eighths = ferry_hot32_cooled(params, eighths);
	freq = (eighths + 7) >> 3;
	return kept | (8 * freq - eighths) << FERRY_HOT32_COOLED_SHIFT |
	       freq << FERRY_HOT32_FREQ_SHIFT;
}

static struct ferry_hot_view ferry_hot8_shown(uint8_t record, uint32_t now)
{
	uint32_t time = record >> FERRY_HOT8_TIME_SHIFT & FERRY_HOT8_TIME;
	uint32_t freq = record & FERRY_HOT8_FREQ;
	struct ferry_hot_view view = { .freq = freq, .node = FERRY_HOT_NO_NODE };

	if (freq) {
		view.age = ferry_hot8_buckets(time, now) >> 3;
		view.ready = record >> 7;
	} else {
		view.freq = time >> 3;
		view.age = view.freq ? FERRY_HOT_IDLE_AGE + (time & 6) : FERRY_HOT_AGES - 1;
	}
	view.eighths = 8 * view.freq;
	return view;
}

static struct ferry_hot_view ferry_hot32_shown(uint32_t record, uint32_t now)
{
	struct ferry_hot_view view = {
		.eighths = ferry_hot32_eighths(record),
		.freq = record >> FERRY_HOT32_FREQ_SHIFT & FERRY_HOT32_FREQ,
		.ready = record >> 31,
		.node = record & FERRY_HOT32_NODE,
	};

	if (!view.freq)
		return (struct ferry_hot_view){ .age = FERRY_HOT_AGES - 1,
						.node = FERRY_HOT_NO_NODE };
	if (record & FERRY_HOT32_IDLE)
		view.age = ferry_hot_least(FERRY_HOT_IDLE_AGE - 1 + ferry_hot32_class(record),
					   FERRY_HOT_AGES - 1);
	else
		view.age = ferry_hot32_elapsed(record, now) >> 12;
	return view;
}

/**
 * ferry_hot8_aged - what a sweep makes of a record of default mode
 * @record: the record before it
 * @params: as ferry_hot_check() accepts them
 * @sweep: the sweep
 *
 * A record that left the window becomes idle and is ready no more; an idle one moves to the
 * next class in its time, and is forgotten after the last; a cooling takes a level off all
 * frequencies above 1.
 *
 * The caller stores the result, by compare-and-exchange where others write.
 * Return: the record after it.
 */
uint8_t ferry_hot8_aged(uint8_t record, const struct ferry_hot_params *params,
			const struct ferry_hot_sweep *sweep)
{
	return ferry_hot8_swept(record, params, sweep);
}

/* ferry_hot8_aged() of precision mode. Where every access counts, cooling takes an eighth off. */
uint32_t ferry_hot32_aged(uint32_t record, const struct ferry_hot_params *params,
			  const struct ferry_hot_sweep *sweep)
{
	return ferry_hot32_swept(record, params, sweep);
}

/**
 * ferry_hot8_view - what a record of default mode says
 * @record: the record
 * @now: time in ms, modulo 2^32, at most the longest time between sweeps after the last one
 *
 * Return: its frequency and age class, and whether it is ready.
 */
struct ferry_hot_view ferry_hot8_view(uint8_t record, uint32_t now)
{
	return ferry_hot8_shown(record, now);
}

/* ferry_hot8_view() of precision mode, and the node. */
struct ferry_hot_view ferry_hot32_view(uint32_t record, uint32_t now)
{
	return ferry_hot32_shown(record, now);
}

/**
 * ferry_hot8_age_ms - how long ago the last access was at most, in default mode
 * @record: the record
 * @now: time in ms, modulo 2^32, at most the longest time between sweeps after the last one
 *
 * Never less than the truth: this is what may be compared with a threshold in time.
 *
 * Return: milliseconds; all bits set for an idle record or none.
 */
uint32_t ferry_hot8_age_ms(uint8_t record, uint32_t now)
{
	if (!(record & FERRY_HOT8_FREQ))
		return ~(uint32_t)0;
	return (ferry_hot8_buckets(record >> FERRY_HOT8_TIME_SHIFT, now) + 1) *
	       FERRY_HOT8_BUCKET_MS - 1;
}

/* ferry_hot8_age_ms() of precision mode, where it is exact. */
uint32_t ferry_hot32_age_ms(uint32_t record, uint32_t now)
{
	if (!(record >> FERRY_HOT32_FREQ_SHIFT & FERRY_HOT32_FREQ) || (record & FERRY_HOT32_IDLE))
		return ~(uint32_t)0;
	return ferry_hot32_elapsed(record, now);
}

/* Adds @pages records of default mode that are all the same to the histogram. */
static void ferry_hot8_add(struct ferry_hot_histogram *histogram, uint8_t record, uint32_t now,
			   uint64_t pages)
{
	struct ferry_hot_view view = ferry_hot8_shown(record, now);

	histogram->pages[view.eighths][view.age] += pages;
}

/* Counts @nr records of default mode by their bytes; each becomes what @aged has for it. */
static inline void ferry_hot8_take(uint8_t *records, size_t nr, const uint8_t *aged,
				   uint32_t *pages)
{
	size_t i;

	for (i = 0; i < nr; i++) {
		pages[records[i]]++;
		records[i] = aged[records[i]];
	}
}

static inline void ferry_hot8_take_alike(uint8_t *records, const uint8_t *aged, uint32_t *pages)
{
	uint8_t record = records[0];
	unsigned int i;

	pages[record] += 8;
	if (aged[record] == record)
		return;
	for (i = 0; i < 8; i++)
		records[i] = aged[record];
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
	for (i = 0; i + 8 <= nr_records; i += 8) {
		if (ferry_hot8_alike(records + i))
			ferry_hot8_take_alike(records + i, aged, pages);
		else
			ferry_hot8_take(records + i, 8, aged, pages);
	}
	ferry_hot8_take(records + i, nr_records - i, aged, pages);
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
	uint32_t pages[256] = { 0 }, record, n;
	size_t i;

	for (i = 0; i + 8 <= nr_records; i += 8) {
		if (ferry_hot8_alike(records + i))
			pages[records[i]] += 8;
		else
			for (n = 0; n < 8; n++)
				pages[records[i + n]]++;
	}
	for (; i < nr_records; i++)
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
