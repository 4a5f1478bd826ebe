/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Hotness: the records bit by bit, and what an access and a sweep do to one. For the core's
 * own files, which want these inlined; others call the functions of hotness.h.
 */
#ifndef MEMFERRY_HOTNESS_FORMAT_H
#define MEMFERRY_HOTNESS_FORMAT_H

#include "hotness.h"

#define FERRY_HOT8_BUCKET_MS	((uint32_t)1 << FERRY_HOT8_BUCKET_SHIFT)

/* Ages, in buckets or ms, from this one on are of records of the future. */
#define FERRY_HOT8_AHEAD	(32 - FERRY_HOT8_AHEAD_MS / FERRY_HOT8_BUCKET_MS)
#define FERRY_HOT32_AHEAD	(16384 - FERRY_HOT32_AHEAD_MS)

/* Largest idle class. A sweep that would exceed it forgets the record. */
#define FERRY_HOT8_IDLE_MAX	((uint32_t)8)
#define FERRY_HOT32_IDLE_MAX	((uint32_t)15)

/* Where the fields of a record lie. */
#define FERRY_HOT8_FREQ		((uint32_t)3)
#define FERRY_HOT8_TIME		((uint32_t)31)
#define FERRY_HOT8_TIME_SHIFT	2
#define FERRY_HOT32_NODE	((uint32_t)1023)
#define FERRY_HOT32_FREQ	((uint32_t)7)
#define FERRY_HOT32_FREQ_SHIFT	10
#define FERRY_HOT32_TIME	((uint32_t)16383)
#define FERRY_HOT32_TIME_SHIFT	13
#define FERRY_HOT32_COOLED	((uint32_t)7)
#define FERRY_HOT32_COOLED_SHIFT	27
#define FERRY_HOT32_IDLE	((uint32_t)1 << 30)

/* Larger exponents than this no 32-bit random number can tell from "never". */
#define FERRY_HOT_CHANCE_MAX	((uint32_t)31)

static inline uint32_t ferry_hot_least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/*
 * The most buckets between two times that are surely at most a window apart: n buckets
 * are up to (n + 1) * FERRY_HOT8_BUCKET_MS - 1 ms.
 */
static inline uint32_t ferry_hot8_recent(const struct ferry_hot_params *params)
{
	return ((params->window_ms + 1) >> FERRY_HOT8_BUCKET_SHIFT) - 1;
}

/* Buckets since the record's time; 0 if that lies ahead. */
static inline uint32_t ferry_hot8_buckets(uint32_t time, uint32_t now)
{
	uint32_t age = ((now >> FERRY_HOT8_BUCKET_SHIFT) - time) & FERRY_HOT8_TIME;

	return age >= FERRY_HOT8_AHEAD ? 0 : age;
}

/* Milliseconds since the record's time; 0 if that lies ahead. */
static inline uint32_t ferry_hot32_elapsed(uint32_t record, uint32_t now)
{
	uint32_t age = (now - (record >> FERRY_HOT32_TIME_SHIFT)) & FERRY_HOT32_TIME;

	return age >= FERRY_HOT32_AHEAD ? 0 : age;
}

/* log2 of how many accesses the step from @freq to the next takes; only from the threshold on. */
static inline uint32_t ferry_hot_exponent(const struct ferry_hot_params *params, uint32_t freq)
{
	return ferry_hot_least(params->step * (freq - params->threshold + 1), FERRY_HOT_CHANCE_MAX);
}

/* Counts @weight accesses on top of @freq. */
static inline uint32_t ferry_hot_counted(const struct ferry_hot_params *params, uint32_t freq,
				  uint32_t most, uint32_t weight, uint32_t random)
{
	uint32_t exponent;

	while (freq < most && weight) {
		exponent = freq < params->threshold ? 0 : ferry_hot_exponent(params, freq);
		if (weight >> exponent) {
			weight -= (uint32_t)1 << exponent;
			freq++;
			continue;
		}
		/* The rest is less than a level: it takes one with a chance of its share. */
		return freq + (random >> (32 - exponent) < weight);
	}
	return freq;
}

/* Class of an idle record, which it has in place of a time. A class of none counts as the first. */
static inline uint32_t ferry_hot32_class(uint32_t record)
{
	uint32_t idle = record >> FERRY_HOT32_TIME_SHIFT & FERRY_HOT32_IDLE_MAX;

	return idle ? idle : 1;
}

static inline uint8_t ferry_hot8_next(uint8_t record, const struct ferry_hot_params *params,
				      uint32_t bucket, uint32_t weight, uint32_t random)
{
	uint32_t freq = record & FERRY_HOT8_FREQ, ready = record & FERRY_HOT8_READY;
	uint32_t time = record >> FERRY_HOT8_TIME_SHIFT & FERRY_HOT8_TIME;
	uint32_t age = (bucket - time) & FERRY_HOT8_TIME;

	/* Most accesses to a page that is in use change nothing. */
	if (!age && freq == FERRY_HOT8_FREQ_MAX && ready)
		return record;
	if (!freq) {
		freq = ferry_hot_least(time >> 3, params->recall);
	} else if (age > ferry_hot8_recent(params) && age < FERRY_HOT8_AHEAD) {
		freq = ferry_hot_least(freq, params->recall);
		ready = 0;
	}
	freq = ferry_hot_counted(params, freq, FERRY_HOT8_FREQ_MAX, weight, random);
	if (freq >= params->threshold)
		ready = FERRY_HOT8_READY;
	return (uint8_t)(ready | bucket << FERRY_HOT8_TIME_SHIFT | freq);
}

static inline uint32_t ferry_hot32_next(uint32_t record, const struct ferry_hot_params *params,
					uint32_t now, uint32_t weight, uint32_t random,
					uint32_t node)
{
	uint32_t freq = record >> FERRY_HOT32_FREQ_SHIFT & FERRY_HOT32_FREQ;
	uint32_t cooled = record >> FERRY_HOT32_COOLED_SHIFT & FERRY_HOT32_COOLED;
	uint32_t ready = record & FERRY_HOT32_READY;
	uint32_t known = freq ? record & FERRY_HOT32_NODE : FERRY_HOT_NO_NODE;

	if ((record & FERRY_HOT32_IDLE) || ferry_hot32_elapsed(record, now) > params->window_ms) {
		if (freq > params->recall) {
			freq = params->recall;
			cooled = 0;
		}
		ready = 0;
	}
	/* What cannot count further makes up for what cooled off. */
	if (freq == FERRY_HOT32_FREQ_MAX)
		cooled = 0;
	freq = ferry_hot_counted(params, freq, FERRY_HOT32_FREQ_MAX, weight, random);
	if (freq >= params->threshold)
		ready = FERRY_HOT32_READY;
	if (node >= FERRY_HOT_NO_NODE)
		node = known;
	return ready | cooled << FERRY_HOT32_COOLED_SHIFT |
	       (now & FERRY_HOT32_TIME) << FERRY_HOT32_TIME_SHIFT |
	       freq << FERRY_HOT32_FREQ_SHIFT | node;
}

/* True if the sweep comes later than promised: no record's time can be trusted. */
static inline bool ferry_hot_late(const struct ferry_hot_params *params,
			   const struct ferry_hot_sweep *sweep)
{
	return sweep->now - sweep->last > params->sweep_ms;
}

/* True if records cool at this sweep. */
static inline bool ferry_hot_cools(const struct ferry_hot_params *params,
				   const struct ferry_hot_sweep *sweep)
{
	return params->cool_sweeps && sweep->number % params->cool_sweeps == 0;
}

/*
 * What cooling leaves of a frequency in eighths: a part of what it counts. Where levels are
 * powers that is a level, and where each is an access, an eighth, rounded up.
 */
static inline uint32_t ferry_hot32_cooled(const struct ferry_hot_params *params, uint32_t eighths)
{
	if (params->step)
		return eighths > 8 ? eighths - 8 : eighths;
	return eighths > 1 ? eighths - ((eighths + 7) >> 3) : eighths;
}

/* A frequency in eighths: less what cooled off. */
static inline uint32_t ferry_hot32_eighths(uint32_t record)
{
	return (record >> FERRY_HOT32_FREQ_SHIFT & FERRY_HOT32_FREQ) * 8 -
	       (record >> FERRY_HOT32_COOLED_SHIFT & FERRY_HOT32_COOLED);
}

/*
 * What a sweep makes of an idle class: class k is left at sweeps whose number 2^(k-1)
 * divides. So each class is reached twice as many sweeps after the first as the one before.
 */
static inline uint32_t ferry_hot_idler(const struct ferry_hot_sweep *sweep, uint32_t idle)
{
	return idle + !(sweep->number & (((uint32_t)1 << (idle - 1)) - 1));
}

static inline uint8_t ferry_hot8_swept(uint8_t record, const struct ferry_hot_params *params,
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

static inline uint32_t ferry_hot32_swept(uint32_t record, const struct ferry_hot_params *params,
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

static inline struct ferry_hot_view ferry_hot8_shown(uint8_t record, uint32_t now)
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

static inline struct ferry_hot_view ferry_hot32_shown(uint32_t record, uint32_t now)
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

#endif /* MEMFERRY_HOTNESS_FORMAT_H */
