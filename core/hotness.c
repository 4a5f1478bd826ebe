// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What an access does: to a record, and to what is known of its section; and what a claim does.
 */
#ifdef __KERNEL__
#include <linux/memferry/hotness.h>
#else
#include <memferry/hotness.h>
#endif

/* Counts @weight accesses on top of @freq. */
static uint32_t ferry_hot_counted(const struct ferry_hot_params *params, uint32_t freq,
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

static uint8_t ferry_hot8_next(uint8_t record, const struct ferry_hot_params *params,
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

static uint32_t ferry_hot32_next(uint32_t record, const struct ferry_hot_params *params,
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

#define MAJORITY_NODE	((uint32_t)1023)
#define MAJORITY_SHIFT	10
#define MAJORITY_MAX	((uint32_t)63)

/**
 * ferry_hot_majority - count the node of one access to a section
 * @majority: what was known before it; 0 if nothing
 * @node: the node; FERRY_HOT_NO_NODE or more counts for none
 *
 * Boyer's and Moore's vote: a node's own accesses count up, others' down, and at 0 the next
 * one takes over. A node from which more than half of the accesses come prevails; the count
 * ends at 63, so that a section whose user moved follows after as many accesses.
 *
 * The caller stores the result.
 * Return: what is known after it: bits 0-9 the node, 10-15 the count.
 */
uint16_t ferry_hot_majority(uint16_t majority, uint32_t node)
{
	uint32_t known = majority & MAJORITY_NODE, count = majority >> MAJORITY_SHIFT;

	if (node >= FERRY_HOT_NO_NODE)
		return majority;
	if (!count)
		known = node;
	if (known != node)
		count--;
	else if (count < MAJORITY_MAX)
		count++;
	return (uint16_t)(count << MAJORITY_SHIFT | known);
}

/**
 * ferry_hot_majority_node - the node that a section is used from
 * @majority: what is known
 *
 * Return: the node, or FERRY_HOT_NO_NODE if none prevails.
 */
uint32_t ferry_hot_majority_node(uint16_t majority)
{
	return majority >> MAJORITY_SHIFT ? majority & MAJORITY_NODE : FERRY_HOT_NO_NODE;
}
