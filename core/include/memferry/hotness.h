/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Hotness: what is known about the accesses to a page, in one byte or four, and which
 * pages are hottest.
 *
 * Decides what one access and one sweep do to a record, how records rank, which of them
 * fit a tier, and which pages two tiers should exchange. It moves nothing, keeps no
 * clock, and does no atomics: a function turns one record into the next, and the caller
 * stores it, by compare-and-exchange where others may write. How fast pages may move is
 * pace.h's work.
 *
 * Record, default mode (uint8_t)		Record, precision mode (uint32_t)
 *   bits 0-1	frequency, 0 to 3		  bits 0-9	node of the last access
 *   bits 2-6	time, in buckets of 128 ms	  bits 10-12	frequency, 0 to 7
 *   bit  7	ready				  bits 13-26	time, in ms
 *						  bits 27-29	eighths of the frequency that
 *								cooled off
 *						  bit  30	idle
 *						  bit  31	ready
 * 0 is a page of which nothing is known.
 *
 * Time is kept modulo its field. A sweep turns a record whose last access left the window
 * into an idle one, which holds a class in place of a time: how many sweeps ago, to a power of
 * two. In default mode an idle record is one of frequency 0, and the time field holds the
 * frequency that it had (bits 5-6) and the class less 1 (bits 2-4); in precision mode it has
 * its own bit, and the class lies in the time field. So an old access cannot look recent if
 * sweeps are at most @sweep_ms apart.
 *
 * Frequency counts exactly up to the threshold and then logarithmically: the step from f to
 * f + 1 is taken with a chance of 2^-(step * (f - threshold + 1)), after Morris. What 2 or 3
 * bits tell apart is then orders of magnitude, not "once" and "twice". Each cooling takes an
 * equal part of what all of them count: a level, and where every access counts (step 0) an
 * eighth, which precision mode has bits for. So a frequency follows how often its page is
 * accessed now, and after a change nearly as fast from any height.
 */
#ifndef MEMFERRY_HOTNESS_H
#define MEMFERRY_HOTNESS_H

#include "types.h"

/* The two formats. */
#define FERRY_HOT_DEFAULT	((uint32_t)0)
#define FERRY_HOT_PRECISE	((uint32_t)1)

/* Pages of 4 KiB of one section of memory (128 MiB, as on x86-64 and arm64). */
#define FERRY_HOT_SECTION	((uint32_t)32768)

/* "No node": the source does not know who accessed the page. Nodes are below. */
#define FERRY_HOT_NO_NODE	((uint32_t)1023)

/* The ready bits: hot, and not claimed yet. */
#define FERRY_HOT8_READY	((uint8_t)0x80)
#define FERRY_HOT32_READY	((uint32_t)1 << 31)

/* Largest frequency of each format. */
#define FERRY_HOT8_FREQ_MAX	((uint32_t)3)
#define FERRY_HOT32_FREQ_MAX	((uint32_t)7)

/* Milliseconds of a time bucket in default mode, as a power of two: 128 as in pghot. */
#define FERRY_HOT8_BUCKET_SHIFT	7

/*
 * How far in the future of a sweep's or an access's time a record's time may lie, because
 * another CPU took the time later. Such a record counts as accessed now. ms.
 */
#define FERRY_HOT8_AHEAD_MS	((uint32_t)128)
#define FERRY_HOT32_AHEAD_MS	((uint32_t)1024)

/* Frequencies in eighths (0 to 7 accesses) and age classes (0 the youngest) of a histogram. */
#define FERRY_HOT_EIGHTHS	57
#define FERRY_HOT_AGES		16

/* Age classes below this one are of records that are not idle. */
#define FERRY_HOT_IDLE_AGE	4

/* Number of heats; the largest is one less. */
#define FERRY_HOT_HEATS		128

/* Largest weight of an access. */
#define FERRY_HOT_WEIGHT_MAX	((uint32_t)0xffff)

/* The fields of struct ferry_hot_params, as ferry_hot_check() names them. */
#define FERRY_HOT_OK		((uint32_t)0)
#define FERRY_HOT_WINDOW_MS	((uint32_t)1)
#define FERRY_HOT_THRESHOLD	((uint32_t)2)
#define FERRY_HOT_RECALL	((uint32_t)3)
#define FERRY_HOT_STEP		((uint32_t)4)
#define FERRY_HOT_SWEEP_MS	((uint32_t)5)
#define FERRY_HOT_COOL_SWEEPS	((uint32_t)6)
#define FERRY_HOT_FREQ_SHIFT	((uint32_t)7)
#define FERRY_HOT_COST		((uint32_t)8)
#define FERRY_HOT_DAMP		((uint32_t)9)
#define FERRY_HOT_FORMAT	((uint32_t)10)

/**
 * struct ferry_hot_params - the policy's numbers
 * @window_ms: a record whose last access is older than this has left the window: the next
 *	access starts from @recall, and the next sweep makes it idle. In default mode, where
 *	time has buckets, up to 255 ms sooner, never later
 * @threshold: frequency at which a page is ready
 * @recall: the most of a frequency that outlives the window: 0 starts anew, as pghot does;
 *	the format's largest frequency leaves forgetting to the cooling
 * @step: log2 of how many accesses more each level above the threshold takes; 0 counts
 *	every access, as pghot does
 * @sweep_ms: the longest time between two sweeps
 * @cool_sweeps: each how many sweeps the records cool; 0 for never. In default mode by a
 *	level; in precision mode by an eighth if @step is 0, else by a level
 * @freq_shift: log2 of how many age classes a level of frequency outweighs in the ranking;
 *	4 ranks by frequency first and by age within
 * @cost: what an exchange must win to be worth it, in accesses per window
 * @damp: by how many heats each bounce of a page raises the bar for its promotion
 *
 * The same for all pages of a machine. ferry_hot_check() tells the allowed ranges.
 */
struct ferry_hot_params {
	uint32_t window_ms;
	uint32_t threshold;
	uint32_t recall;
	uint32_t step;
	uint32_t sweep_ms;
	uint32_t cool_sweeps;
	uint32_t freq_shift;
	uint32_t cost;
	uint32_t damp;
};

/**
 * struct ferry_hot_view - what a record says at some time
 * @freq: frequency, 0 if nothing is known
 * @eighths: the same less what cooled off, in eighths: more than 8 * @freq - 8
 * @age: age class, 0 to FERRY_HOT_AGES - 1; the last one if nothing is known
 * @ready: 1 if the page is ready, else 0
 * @node: node of the last access, or FERRY_HOT_NO_NODE
 *
 * Age classes 0 to 3 are quarters of the time field's range; 4 to 15 are of idle records: in
 * precision mode each of twice as many sweeps as the one before, in default mode, which has
 * 4, 6, 8 and 10, of four times as many.
 */
struct ferry_hot_view {
	uint32_t freq;
	uint32_t eighths;
	uint32_t age;
	uint32_t ready;
	uint32_t node;
};

/**
 * struct ferry_hot_sweep - one sweep over the records
 * @now: time in ms, modulo 2^32
 * @last: time of the sweep before it
 * @number: counts the sweeps from 1 on; 0 is no sweep's number
 *
 * A sweep that comes later than @sweep_ms after the last one cannot tell old from new and
 * makes every record idle.
 */
struct ferry_hot_sweep {
	uint32_t now;
	uint32_t last;
	uint32_t number;
};

/**
 * struct ferry_hot_histogram - pages by frequency, in eighths, and age class
 * @pages: how many there are of each; pages of which nothing is known are in the last
 *	age class of frequency 0
 */
struct ferry_hot_histogram {
	uint64_t pages[FERRY_HOT_EIGHTHS][FERRY_HOT_AGES];
};

/**
 * struct ferry_hot_cut - the border between what fits and what does not
 * @heat: pages of more heat fit
 * @above: how many those are
 * @room: of the pages of just @heat, how many fit as well
 */
struct ferry_hot_cut {
	uint32_t heat;
	uint64_t above;
	uint64_t room;
};

/**
 * struct ferry_hot_exchange - what two tiers should exchange
 * @pages: pages to move each way; if 0 the other fields are 0
 * @hot: least heat of those of the lower tier
 * @hot_room: how many of just that heat; of more heat, all
 * @cold: most heat of those of the top tier
 * @cold_room: how many of just that heat; of less heat, all
 */
struct ferry_hot_exchange {
	uint64_t pages;
	uint32_t hot;
	uint64_t hot_room;
	uint32_t cold;
	uint64_t cold_room;
};

/* Parameters */
void ferry_hot_defaults(uint32_t format, struct ferry_hot_params *params);
int ferry_hot_check(uint32_t format, const struct ferry_hot_params *params,
		    struct ferry_bad *bad);
uint64_t ferry_hot_accesses(const struct ferry_hot_params *params, uint32_t freq);

/* One record */
uint8_t ferry_hot8_access(uint8_t record, const struct ferry_hot_params *params,
			  uint32_t now, uint32_t weight, uint32_t random);
uint32_t ferry_hot32_access(uint32_t record, const struct ferry_hot_params *params,
			    uint32_t now, uint32_t weight, uint32_t random, uint32_t node);
uint8_t ferry_hot8_aged(uint8_t record, const struct ferry_hot_params *params,
			const struct ferry_hot_sweep *sweep);
uint32_t ferry_hot32_aged(uint32_t record, const struct ferry_hot_params *params,
			  const struct ferry_hot_sweep *sweep);
struct ferry_hot_view ferry_hot8_view(uint8_t record, uint32_t now);
struct ferry_hot_view ferry_hot32_view(uint32_t record, uint32_t now);
uint32_t ferry_hot8_age_ms(uint8_t record, uint32_t now);
uint32_t ferry_hot32_age_ms(uint32_t record, uint32_t now);
uint8_t ferry_hot8_claim(uint8_t record);
uint32_t ferry_hot32_claim(uint32_t record);
uint8_t ferry_hot8_unclaim(uint8_t record);
uint32_t ferry_hot32_unclaim(uint32_t record);

/* Many records, that nobody else writes */
size_t ferry_hot8_sweep(uint8_t *records, size_t nr_records,
			const struct ferry_hot_params *params,
			const struct ferry_hot_sweep *sweep,
			struct ferry_hot_histogram *histogram);
size_t ferry_hot32_sweep(uint32_t *records, size_t nr_records,
			 const struct ferry_hot_params *params,
			 const struct ferry_hot_sweep *sweep,
			 struct ferry_hot_histogram *histogram);
void ferry_hot8_count(const uint8_t *records, size_t nr_records, uint32_t now,
		      struct ferry_hot_histogram *histogram);
void ferry_hot32_count(const uint32_t *records, size_t nr_records, uint32_t now,
		       struct ferry_hot_histogram *histogram);
size_t ferry_hot8_find(const uint8_t *records, size_t nr_records, size_t *from,
		       const struct ferry_hot_params *params, uint32_t now,
		       uint32_t least, uint32_t most, uint32_t *found, size_t space);
size_t ferry_hot32_find(const uint32_t *records, size_t nr_records, size_t *from,
			const struct ferry_hot_params *params, uint32_t now,
			uint32_t least, uint32_t most, uint32_t *found, size_t space);

/* Ranking */
uint32_t ferry_hot_heat(const struct ferry_hot_params *params, uint32_t eighths, uint32_t age);
uint64_t ferry_hot_worth(const struct ferry_hot_params *params, uint32_t heat);
void ferry_hot_cut(const struct ferry_hot_params *params,
		   const struct ferry_hot_histogram *histogram, uint32_t least_freq,
		   uint64_t budget, struct ferry_hot_cut *cut);
void ferry_hot_exchange(const struct ferry_hot_params *params,
			const struct ferry_hot_histogram *top,
			const struct ferry_hot_histogram *lower, uint64_t budget,
			struct ferry_hot_exchange *exchange);
uint32_t ferry_hot_coldest(const struct ferry_hot_params *params, uint32_t hot);

/* The node that most accesses of a section come from: 10 bits of node, 6 of count */
uint16_t ferry_hot_majority(uint16_t majority, uint32_t node);
uint32_t ferry_hot_majority_node(uint16_t majority);

/* Pages that go up and down: one entry of a small table of the caller's, by page */
uint16_t ferry_hot_promoted(uint16_t entry, uint32_t tag, uint32_t *bounced);
uint16_t ferry_hot_demoted(uint16_t entry, uint32_t tag);
uint16_t ferry_hot_bounce_aged(uint16_t entry);
uint32_t ferry_hot_bounces(uint16_t entry, uint32_t tag);

/* For the core's own files: where the fields of a record lie, and its time. */

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

static inline uint32_t ferry_hot_least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/*
 * Whether eight records are all like the first. Neighbours are, as a rule, and one by one they
 * would all wait for the same counter.
 */
static inline bool ferry_hot8_alike(const uint8_t *records)
{
	uint64_t eight;

	__builtin_memcpy(&eight, records, sizeof(eight));
	return eight == records[0] * (uint64_t)0x0101010101010101;
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

/* Larger exponents than this no 32-bit random number can tell from "never". */
#define FERRY_HOT_CHANCE_MAX	((uint32_t)31)

/* log2 of how many accesses the step from @freq to the next takes; only from the threshold on. */
static inline uint32_t ferry_hot_exponent(const struct ferry_hot_params *params, uint32_t freq)
{
	return ferry_hot_least(params->step * (freq - params->threshold + 1), FERRY_HOT_CHANCE_MAX);
}

#endif /* MEMFERRY_HOTNESS_H */
