// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * One record: what an access, a sweep and a claim make of it, and what it says.
 *
 * Everything here is a pure function of its arguments. Sweeps over many records are in
 * hotness_sweep.c, ranking is in hotness_rank.c.
 */
#ifdef __KERNEL__
#include <linux/memferry/hotness_format.h>
#else
#include <memferry/hotness_format.h>
#endif

/**
 * ferry_hot8_access - what an access makes of a record of default mode
 * @record: the record before it
 * @params: as ferry_hot_check() accepts them
 * @now: time of the access in ms, modulo 2^32
 * @weight: for how many accesses it stands, up to FERRY_HOT_WEIGHT_MAX; what is more counts
 *	as so many, and 0 changes nothing
 * @random: any 32 bits, evenly spread; only counting beyond the threshold uses them
 *
 * The frequency starts from at most the recall if the last access left the window, and grows by
 * the weight, up to its maximum. The page is ready if its frequency reaches the threshold, and
 * stays so until it is claimed or leaves the window.
 *
 * The caller stores the result, by compare-and-exchange where others write.
 * Return: the record after it.
 */
uint8_t ferry_hot8_access(uint8_t record, const struct ferry_hot_params *params,
			  uint32_t now, uint32_t weight, uint32_t random)
{
	if (!weight)
		return record;
	return ferry_hot8_next(record, params, now >> FERRY_HOT8_BUCKET_SHIFT & FERRY_HOT8_TIME,
			       ferry_hot_least(weight, FERRY_HOT_WEIGHT_MAX), random);
}

/*
 * ferry_hot8_access() of precision mode. @node: whose CPU accessed the page; FERRY_HOT_NO_NODE or
 * more keeps the node that is known.
 */
uint32_t ferry_hot32_access(uint32_t record, const struct ferry_hot_params *params,
			    uint32_t now, uint32_t weight, uint32_t random, uint32_t node)
{
	if (!weight)
		return record;
	return ferry_hot32_next(record, params, now,
				ferry_hot_least(weight, FERRY_HOT_WEIGHT_MAX), random, node);
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

/**
 * ferry_hot8_claim - take a ready page out of the queue, and keep what is known of it
 * @record: the record
 *
 * For a page whose move begins. One that is refused, by the pace or because it cannot be
 * isolated, is given back with ferry_hot8_unclaim() or was never claimed; both ways it
 * keeps its rank. To forget a page (it was freed) store 0.
 *
 * Return: the record, not ready.
 */
uint8_t ferry_hot8_claim(uint8_t record)
{
	return record & (0xff ^ FERRY_HOT8_READY);
}

/* ferry_hot8_claim() of precision mode. */
uint32_t ferry_hot32_claim(uint32_t record)
{
	return record & ~FERRY_HOT32_READY;
}

/**
 * ferry_hot8_unclaim - give a page back to the queue
 * @record: the record as it is now
 *
 * Return: the record, ready; unchanged if it became idle meanwhile, or was cleared.
 */
uint8_t ferry_hot8_unclaim(uint8_t record)
{
	return record & FERRY_HOT8_FREQ ? record | FERRY_HOT8_READY : record;
}

/* ferry_hot8_unclaim() of precision mode. */
uint32_t ferry_hot32_unclaim(uint32_t record)
{
	bool fresh = (record >> FERRY_HOT32_FREQ_SHIFT & FERRY_HOT32_FREQ) &&
		     !(record & FERRY_HOT32_IDLE);

	return fresh ? record | FERRY_HOT32_READY : record;
}
