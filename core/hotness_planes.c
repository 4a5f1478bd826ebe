// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Sweeps over the records of default mode: ages and counts 64 of them and more at a time.
 *
 * The work is done on bit planes (planes.h): plane i holds bit i of each of 64 records or
 * more. On planes an addition costs a few operations per bit for all records at once, and so
 * does a count: records of a class are the ones of a mask.
 */
#ifdef __KERNEL__
#include <linux/memferry/hotness_format.h>
#include <linux/memferry/planes.h>
#else
#include <memferry/hotness_format.h>
#include <memferry/planes.h>
#endif

#define AGES		8			/* of default mode, 4 of them idle */
#define FREQS		3			/* frequencies above 0 */

/* Bits of all records: all ones or all zeros. */
#define ALL(bit)	((bit) ? ~(uint64_t)0 : 0)

/**
 * struct ferry_hot8_rule - a sweep, as masks for planes
 * @now: bits of the bucket that it is now
 * @recent: bits of the most buckets since an access in the window
 * @patience: bits of the highest idle class less 1 that is left at this sweep
 * @ages: does time pass at all? else records are only counted
 * @late: is every record older than the window?
 * @cools: do frequencies fall?
 */
struct ferry_hot8_rule {
	uint64_t now[5];
	uint64_t recent[5];
	uint64_t patience[3];
	uint64_t ages;
	uint64_t late;
	uint64_t cools;
};

/* The records of a block by age class and by frequency, and those that changed, as masks. */
struct ferry_hot8_masks {
	ferry_plane age[AGES];
	ferry_plane freq[FREQS];
	ferry_plane seen[2];	/* not idle, and idle */
	ferry_plane changed;
};

/* Counts in planes: bit i of the digits of one class is a count of its own. */
struct ferry_hot8_counts {
	ferry_plane digit[FREQS][AGES][DIGITS];
	ferry_plane changed[DIGITS];
};

/* Records of which anything is known, and those that changed. */
struct ferry_hot8_sums {
	uint64_t known;
	uint64_t changed;
};

/* 1 where the number of @bits planes exceeds @limit. */
static inline ferry_plane ferry_exceeds(const ferry_plane *number, const uint64_t *limit,
					int bits)
{
	ferry_plane exceeds = number[0] & ~limit[0];
	int i;

	for (i = 1; i < bits; i++)
		exceeds = ferry_majority(number[i], exceeds, ferry_repeat(~limit[i]));
	return exceeds;
}

/*
 * Ages the records of eight planes, as ferry_hot8_aged() does one, and fills in the masks.
 */
static inline void ferry_hot8_block(ferry_plane *planes, const struct ferry_hot8_rule *rule,
				    struct ferry_hot8_masks *masks)
{
	ferry_plane *freq = planes, *time = planes + 2, *ready = planes + 7;
	ferry_plane buckets[5], fresh, idle, expired, ahead, leaves, carry, differs;
	ferry_plane low, high, age_low, age_high, borrow;
	int i;

	/* Buckets since the last access, modulo 32. */
	buckets[0] = time[0] ^ rule->now[0];
	borrow = time[0] & ~rule->now[0];
	for (i = 1; i < 5; i++) {
		buckets[i] = time[i] ^ borrow ^ rule->now[i];
		borrow = ferry_majority(time[i], borrow, ferry_repeat(~rule->now[i]));
	}
	ahead = buckets[0] & buckets[1] & buckets[2] & buckets[3] & buckets[4];
	expired = ferry_exceeds(buckets, rule->recent, 5) & ~ahead;
	expired = (expired | rule->late) & rule->ages;

	fresh = freq[0] | freq[1];
	idle = (time[3] | time[4]) & ~fresh;
	low = (freq[0] & fresh) | (time[3] & idle);
	high = (freq[1] & fresh) | (time[4] & idle);
	/* No record is ready and idle, or has a class but no frequency; if made, it goes. */
	differs = (*ready & ~fresh) | ((time[0] | time[1] | time[2]) & ~fresh & ~idle);
	carry = high & rule->cools;
	differs |= carry;
	high &= low | ~rule->cools;
	low ^= carry;

	/* Idle records that leave their class; those that leave the last one are forgotten. */
	leaves = idle & rule->ages & ~ferry_exceeds(time, rule->patience, 3);
	differs |= leaves;
	idle &= ~(time[0] & time[1] & time[2] & leaves);
	carry = leaves;
	for (i = 0; i < 3; i++) {
		ferry_plane next = time[i] & carry;

		time[i] ^= carry;
		carry = next;
	}
	expired &= fresh;
	differs |= expired;
	fresh &= ~expired;
	for (i = 0; i < 3; i++)
		time[i] &= fresh | idle;
	idle |= expired;
	time[3] = (time[3] & fresh) | (low & idle);
	time[4] = (time[4] & fresh) | (high & idle);
	freq[0] = low & fresh;
	freq[1] = high & fresh;
	*ready &= fresh;

	age_low = (buckets[3] & ~ahead & fresh) | (time[1] & idle);
	age_high = (buckets[4] & ~ahead & fresh) | (time[2] & idle);
	masks->age[0] = fresh & ~age_high & ~age_low;
	masks->age[1] = fresh & ~age_high & age_low;
	masks->age[2] = fresh & age_high & ~age_low;
	masks->age[3] = fresh & age_high & age_low;
	masks->age[4] = idle & ~age_high & ~age_low;
	masks->age[5] = idle & ~age_high & age_low;
	masks->age[6] = idle & age_high & ~age_low;
	masks->age[7] = idle & age_high & age_low;
	masks->freq[0] = low & ~high;
	masks->freq[1] = high & ~low;
	masks->freq[2] = high & low;
	masks->seen[0] = fresh;
	masks->seen[1] = idle;
	masks->changed = differs;
}

/* Adds the records of a group to the counts of their classes. */
static inline void ferry_hot8_add(struct ferry_hot8_counts *counts,
				  const struct ferry_hot8_masks *masks)
{
	ferry_plane ones[GROUP], any;
	int freq, age, half, i;

	/* Memory that is in use now, and memory that is not, mostly lie apart. */
	for (half = 0; half < AGES; half += AGES / 2) {
		any = masks[0].seen[half != 0];
		for (i = 1; i < GROUP; i++)
			any |= masks[i].seen[half != 0];
		if (ferry_zero(any))
			continue;
		for (age = half; age < half + AGES / 2; age++) {
			for (freq = 0; freq < FREQS; freq++) {
				for (i = 0; i < GROUP; i++)
					ones[i] = masks[i].freq[freq] & masks[i].age[age];
				ferry_count(counts->digit[freq][age], ones);
			}
		}
	}
	for (i = 0; i < GROUP; i++)
		ones[i] = masks[i].changed;
	ferry_count(counts->changed, ones);
}

/* Moves the counts to the histogram and the sums. */
static void ferry_hot8_flush(struct ferry_hot8_counts *counts, struct ferry_hot8_sums *sums,
			     struct ferry_hot_histogram *histogram)
{
	uint64_t pages;
	int freq, age;

	for (freq = 0; freq < FREQS; freq++) {
		for (age = 0; age < AGES; age++) {
			pages = ferry_counted(counts->digit[freq][age]);
			histogram->pages[8 * freq + 8][age < AGES / 2 ? age : 2 * age - 4] += pages;
			sums->known += pages;
		}
	}
	sums->changed += ferry_counted(counts->changed);
}

/*
 * Does one group, and writes changed blocks back if @write. Returns false if it has only zeros.
 */
static inline bool ferry_hot8_group(uint8_t *records, const struct ferry_hot8_rule *rule,
				    struct ferry_hot8_counts *counts, bool write)
{
	struct ferry_plane_memory *memory = (struct ferry_plane_memory *)records;
	struct ferry_hot8_masks masks[GROUP];
	ferry_plane planes[8], any = memory[0].plane;
	int block, i;

	for (i = 1; i < GROUP * 8; i++)
		any |= memory[i].plane;
	if (ferry_zero(any))
		return false;
	for (block = 0; block < GROUP; block++, memory += 8) {
		for (i = 0; i < 8; i++)
			planes[i] = memory[i].plane;
		ferry_transpose(planes);
		ferry_hot8_block(planes, rule, &masks[block]);
		if (!write || ferry_zero(masks[block].changed))
			continue;
		ferry_transpose(planes);
		for (i = 0; i < 8; i++)
			memory[i].plane = planes[i];
	}
	ferry_hot8_add(counts, masks);
	return true;
}

static size_t ferry_hot8_pass(uint8_t *records, size_t nr_records,
			      const struct ferry_hot8_rule *rule, bool write,
			      struct ferry_hot8_sums *sums,
			      struct ferry_hot_histogram *histogram)
{
	struct ferry_hot8_counts counts;
	int groups = 0, freq, age, i;
	size_t at;

	for (freq = 0; freq < FREQS; freq++)
		for (age = 0; age < AGES; age++)
			for (i = 0; i < DIGITS; i++)
				counts.digit[freq][age][i] = (ferry_plane){ 0 };
	for (i = 0; i < DIGITS; i++)
		counts.changed[i] = (ferry_plane){ 0 };
	for (at = 0; nr_records - at >= GROUP * BLOCK; at += GROUP * BLOCK) {
		groups += ferry_hot8_group(records + at, rule, &counts, write);
		if (groups == GROUPS_MAX) {
			ferry_hot8_flush(&counts, sums, histogram);
			groups = 0;
		}
	}
	if (groups)
		ferry_hot8_flush(&counts, sums, histogram);
	return at;
}

static void ferry_hot8_count_one(uint8_t record, uint32_t now, struct ferry_hot8_sums *sums,
				 struct ferry_hot_histogram *histogram)
{
	struct ferry_hot_view view = ferry_hot8_shown(record, now);

	sums->known += view.freq != 0;
	histogram->pages[view.eighths][view.age] += view.freq != 0;
}

/**
 * ferry_hot8_sweep - age and count the records of default mode
 * @records: the records, which nobody else writes meanwhile; of a part of memory or all
 * @nr_records: number of @records
 * @params: as ferry_hot_check() accepts them
 * @sweep: the sweep
 * @histogram: gains the records as they are afterwards; not cleared before
 *
 * As ferry_hot8_aged() for each. Where others write, sweep a copy, and store what changed by
 * compare-and-exchange. Fastest where nothing is known of the pages.
 *
 * Context: Any. Needs 2 KiB of stack, or 2 KiB for each word of a wider plane.
 * Return: how many records changed.
 */
size_t ferry_hot8_sweep(uint8_t *records, size_t nr_records,
			const struct ferry_hot_params *params,
			const struct ferry_hot_sweep *sweep,
			struct ferry_hot_histogram *histogram)
{
	uint32_t bucket = sweep->now >> FERRY_HOT8_BUCKET_SHIFT, patience = 0, i;
	struct ferry_hot8_rule rule = {
		.ages = ALL(1),
		.late = ALL(ferry_hot_late(params, sweep)),
		.cools = ALL(ferry_hot_cools(params, sweep)),
	};
	struct ferry_hot8_sums sums = { 0 };
	uint8_t record;
	size_t at;

	while (patience < 7 && !(sweep->number >> patience & 1))
		patience++;
	for (i = 0; i < 5; i++) {
		rule.now[i] = ALL(bucket >> i & 1);
		rule.recent[i] = ALL(ferry_hot8_recent(params) >> i & 1);
	}
	for (i = 0; i < 3; i++)
		rule.patience[i] = ALL(patience >> i & 1);
	at = ferry_hot8_pass(records, nr_records, &rule, true, &sums, histogram);
	for (; at < nr_records; at++) {
		record = ferry_hot8_swept(records[at], params, sweep);
		sums.changed += record != records[at];
		records[at] = record;
		ferry_hot8_count_one(record, sweep->now, &sums, histogram);
	}
	histogram->pages[0][FERRY_HOT_AGES - 1] += nr_records - sums.known;
	return (size_t)sums.changed;
}

/**
 * ferry_hot8_count - count the records of default mode
 * @records: the records; only read
 * @nr_records: number of @records
 * @now: time in ms, modulo 2^32, at most the longest time between sweeps after the last one
 * @histogram: gains the records; not cleared before
 *
 * Context: Any. Needs 2 KiB of stack, or 2 KiB for each word of a wider plane.
 */
void ferry_hot8_count(const uint8_t *records, size_t nr_records, uint32_t now,
		      struct ferry_hot_histogram *histogram)
{
	struct ferry_hot8_rule rule = { .ages = 0 };
	struct ferry_hot8_sums sums = { 0 };
	size_t at;
	int i;

	for (i = 0; i < 5; i++)
		rule.now[i] = ALL(now >> (FERRY_HOT8_BUCKET_SHIFT + i) & 1);
	at = ferry_hot8_pass((uint8_t *)records, nr_records, &rule, false, &sums, histogram);
	for (; at < nr_records; at++)
		ferry_hot8_count_one(records[at], now, &sums, histogram);
	histogram->pages[0][FERRY_HOT_AGES - 1] += nr_records - sums.known;
}
