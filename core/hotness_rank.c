// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * How pages rank: the policy's numbers, which pages fit a capacity, which two tiers should
 * exchange, which have some heat, and which go up and down.
 */
#ifdef __KERNEL__
#include <linux/memferry/hotness.h>
#else
#include <memferry/hotness.h>
#endif

/* A window of one bucket could not tell an access from the last one of the bucket before. */
#define WINDOW8_MIN	(2 * FERRY_HOT8_BUCKET_MS)
/* Leaves two buckets between the window and the future, so that a sweep can come in time. */
#define WINDOW8_MAX	((FERRY_HOT8_AHEAD - 2) * FERRY_HOT8_BUCKET_MS)
#define WINDOW32_MIN	((uint32_t)16)
/* Leaves sweeps at least a third of a second. */
#define WINDOW32_MAX	((uint32_t)15000)

/* Each level then counts for 256 of the one below: more no counter of a few levels needs. */
#define STEP_MAX	((uint32_t)8)
#define COOL_MAX	((uint32_t)0xffff)
#define FREQ_SHIFT_MAX	((uint32_t)4)
#define COST_MAX	((uint32_t)1 << 30)

/* Worth is counted in 1/256 accesses, so that heats below one access differ. */
#define WORTH_SHIFT	8

static uint32_t ferry_hot_freq_max(uint32_t format)
{
	return format == FERRY_HOT_PRECISE ? FERRY_HOT32_FREQ_MAX : FERRY_HOT8_FREQ_MAX;
}

/**
 * ferry_hot_defaults - numbers to begin with
 * @format: FERRY_HOT_DEFAULT or FERRY_HOT_PRECISE
 * @params: receives them
 *
 * Windows and threshold are pghot's. A level is worth 8 accesses in default mode, which has
 * one level above the threshold, and 4 in precision mode, which has five and so reaches 1,366
 * accesses per cooling. Cooling takes a level off every 8 and 10 seconds, as hot sets that move
 * do so in seconds, and slower sources must not lose what they reported a minute ago.
 */
void ferry_hot_defaults(uint32_t format, struct ferry_hot_params *params)
{
	bool precise = format == FERRY_HOT_PRECISE;

	*params = (struct ferry_hot_params){
		.window_ms = precise ? 5000 : 3000,
		.threshold = 2,
		.recall = ferry_hot_freq_max(format),
		.step = precise ? 2 : 3,
		.sweep_ms = precise ? 5000 : 1000,
		.cool_sweeps = precise ? 2 : 8,
		.freq_shift = 3,
		.cost = 8,
		.damp = 8,
	};
}

/**
 * ferry_hot_check - are these numbers sound?
 * @format: FERRY_HOT_DEFAULT or FERRY_HOT_PRECISE
 * @params: the numbers; only read
 * @bad: receives the first one that is not, and its range; FERRY_HOT_OK if all are
 *
 * The ranges, of default and precision mode: window_ms 256 to 3712 and 16 to 15000;
 * threshold 1 to 3 and 1 to 7; recall 0 to 3 and 0 to 7; step 0 to 8; sweep_ms from 1 to
 * what the window leaves of the time field (1024 of a window of 3000; 10359 of one of 5000);
 * cool_sweeps 0 to 65535; freq_shift 0 to 4; cost 0 to 2^30; damp 0 to 127.
 *
 * Return: 0 or -FERRY_EINVAL.
 */
int ferry_hot_check(uint32_t format, const struct ferry_hot_params *params,
		    struct ferry_bad *bad)
{
	uint32_t freq_max = ferry_hot_freq_max(format), sweep_max;
	bool precise = format == FERRY_HOT_PRECISE;

	if (!ferry_within(bad, FERRY_HOT_FORMAT, format, FERRY_HOT_DEFAULT,
			  FERRY_HOT_PRECISE) ||
	    !ferry_within(bad, FERRY_HOT_WINDOW_MS, params->window_ms,
			      precise ? WINDOW32_MIN : WINDOW8_MIN,
			      precise ? WINDOW32_MAX : WINDOW8_MAX))
		return -FERRY_EINVAL;
	/*
	 * A record may be as old as the window at one sweep and not be made idle; at the next
	 * one it must still be younger than where the future begins.
	 */
	if (precise)
		sweep_max = FERRY_HOT32_AHEAD - 1 - params->window_ms;
	else
		sweep_max = (FERRY_HOT8_AHEAD - 1 - ferry_hot8_recent(params)) *
			    FERRY_HOT8_BUCKET_MS;
	if (!ferry_within(bad, FERRY_HOT_THRESHOLD, params->threshold, 1, freq_max) ||
	    !ferry_within(bad, FERRY_HOT_RECALL, params->recall, 0, freq_max) ||
	    !ferry_within(bad, FERRY_HOT_STEP, params->step, 0, STEP_MAX) ||
	    !ferry_within(bad, FERRY_HOT_SWEEP_MS, params->sweep_ms, 1, sweep_max) ||
	    !ferry_within(bad, FERRY_HOT_COOL_SWEEPS, params->cool_sweeps, 0, COOL_MAX) ||
	    !ferry_within(bad, FERRY_HOT_FREQ_SHIFT, params->freq_shift, 0,
			      FREQ_SHIFT_MAX) ||
	    !ferry_within(bad, FERRY_HOT_COST, params->cost, 0, COST_MAX) ||
	    !ferry_within(bad, FERRY_HOT_DAMP, params->damp, 0, FERRY_HOT_HEATS - 1))
		return -FERRY_EINVAL;
	*bad = (struct ferry_bad){ .field = FERRY_HOT_OK };
	return 0;
}

/**
 * ferry_hot_accesses - how many accesses a frequency stands for
 * @params: as ferry_hot_check() accepts them
 * @freq: the frequency; more than the largest of precision mode is taken as that
 *
 * Return: the accesses that it takes on average to get there from 0.
 */
uint64_t ferry_hot_accesses(const struct ferry_hot_params *params, uint32_t freq)
{
	uint64_t accesses = 0;
	uint32_t level;

	freq = ferry_hot_least(freq, FERRY_HOT32_FREQ_MAX);
	for (level = 0; level < freq; level++) {
		if (level < params->threshold)
			accesses++;
		else
			accesses += (uint64_t)1 << ferry_hot_exponent(params, level);
	}
	return accesses;
}

/**
 * ferry_hot_heat - how hot a frequency and an age class are together
 * @params: as ferry_hot_check() accepts them
 * @eighths: frequency, in eighths, up to FERRY_HOT_EIGHTHS - 1
 * @age: age class, up to FERRY_HOT_AGES - 1
 *
 * A level of frequency outweighs 2^freq_shift classes of age.
 *
 * Return: 0 for frequency 0, else 1 to FERRY_HOT_HEATS - 1.
 */
uint32_t ferry_hot_heat(const struct ferry_hot_params *params, uint32_t eighths, uint32_t age)
{
	if (!eighths)
		return 0;
	return (((eighths << params->freq_shift) + 7) >> 3) + FERRY_HOT_AGES - 1 - age;
}

/**
 * ferry_hot_worth - what the top tier gains by a page of this heat
 * @params: as ferry_hot_check() accepts them
 * @heat: the heat; more than FERRY_HOT_HEATS - 1 is taken as so much
 *
 * Between the heats of two frequencies accessed just now it interpolates.
 *
 * Return: accesses per window, in 1/256; never less for more heat.
 */
uint64_t ferry_hot_worth(const struct ferry_hot_params *params, uint32_t heat)
{
	uint32_t level = (uint32_t)1 << params->freq_shift, first = FERRY_HOT_AGES - 1 + level;
	uint64_t here, next;
	uint32_t freq, rest;

	heat = ferry_hot_least(heat, FERRY_HOT_HEATS - 1);
	if (heat < first)
		return (heat << WORTH_SHIFT) / first;
	freq = ((heat - first) >> params->freq_shift) + 1;
	rest = (heat - first) & (level - 1);
	here = ferry_hot_accesses(params, freq);
	next = ferry_hot_accesses(params, freq + 1);
	return (here << WORTH_SHIFT) +
	       (((next - here) * rest << WORTH_SHIFT) >> params->freq_shift);
}

/* Pages of just this heat and at least this frequency. */
static uint64_t ferry_hot_of_heat(const struct ferry_hot_params *params,
				  const struct ferry_hot_histogram *histogram,
				  uint32_t least_freq, uint32_t heat)
{
	uint32_t eighths = least_freq ? 8 * least_freq - 7 : 1, age;
	uint64_t pages = 0;

	if (!heat) {
		for (age = 0; !least_freq && age < FERRY_HOT_AGES; age++)
			pages += histogram->pages[0][age];
		return pages;
	}
	for (; eighths < FERRY_HOT_EIGHTHS; eighths++) {
		age = ferry_hot_heat(params, eighths, 0) - heat;
		if (age < FERRY_HOT_AGES)
			pages += histogram->pages[eighths][age];
	}
	return pages;
}

/**
 * ferry_hot_cut - the threshold that fits a budget
 * @params: as ferry_hot_check() accepts them
 * @histogram: the pages that want to fit
 * @least_freq: leave pages of less frequency out; 0 for none
 * @budget: pages that there is room for
 * @cut: receives the border
 *
 * The hottest pages fit, as many as @budget. If all do, the border is heat 0 and its room is
 * what is left.
 */
void ferry_hot_cut(const struct ferry_hot_params *params,
		   const struct ferry_hot_histogram *histogram, uint32_t least_freq,
		   uint64_t budget, struct ferry_hot_cut *cut)
{
	uint64_t above = 0, pages;
	uint32_t heat;

	for (heat = FERRY_HOT_HEATS - 1; heat; heat--) {
		pages = ferry_hot_of_heat(params, histogram, least_freq, heat);
		if (pages > budget - above)
			break;
		above += pages;
	}
	*cut = (struct ferry_hot_cut){ .heat = heat, .above = above, .room = budget - above };
}

/**
 * ferry_hot_exchange - which pages two tiers should exchange
 * @params: as ferry_hot_check() accepts them
 * @top: the pages of the top tier that may move
 * @lower: the pages of the lower tier that may move
 * @budget: pages to move each way at most
 * @exchange: receives the two borders
 *
 * Pairs the hottest page of the lower tier that reached the threshold with the coldest of
 * the top tier, then the next, as long as the difference of their worths exceeds the cost.
 */
void ferry_hot_exchange(const struct ferry_hot_params *params,
			const struct ferry_hot_histogram *top,
			const struct ferry_hot_histogram *lower, uint64_t budget,
			struct ferry_hot_exchange *exchange)
{
	uint64_t cost = (uint64_t)params->cost << WORTH_SHIFT, hots, colds, pages;
	uint64_t hots_left, colds_left;
	uint32_t hot = FERRY_HOT_HEATS - 1, cold = 0;

	*exchange = (struct ferry_hot_exchange){ 0 };
	hots = hots_left = ferry_hot_of_heat(params, lower, params->threshold, hot);
	colds = colds_left = ferry_hot_of_heat(params, top, 0, cold);
	while (exchange->pages < budget) {
		if (hot <= cold ||
		    ferry_hot_worth(params, hot) - ferry_hot_worth(params, cold) <= cost)
			return;
		if (!hots_left) {
			hots = hots_left = ferry_hot_of_heat(params, lower, params->threshold,
							     --hot);
			continue;
		}
		if (!colds_left) {
			colds = colds_left = ferry_hot_of_heat(params, top, 0, ++cold);
			continue;
		}
		pages = hots_left < colds_left ? hots_left : colds_left;
		if (pages > budget - exchange->pages)
			pages = budget - exchange->pages;
		hots_left -= pages;
		colds_left -= pages;
		*exchange = (struct ferry_hot_exchange){
			.pages = exchange->pages + pages,
			.hot = hot,
			.hot_room = hots - hots_left,
			.cold = cold,
			.cold_room = colds - colds_left,
		};
	}
}

/**
 * ferry_hot_coldest - how hot a page may be to leave for a hotter one
 * @params: as ferry_hot_check() accepts them
 * @hot: the heat of that one
 *
 * struct ferry_hot_exchange says how hot the coldest pages are, as many as are exchanged. Where
 * some of those cannot be moved, others up to this heat are as good a bargain.
 *
 * Return: the most heat whose worth is less by more than the cost; 0 if none is.
 */
uint32_t ferry_hot_coldest(const struct ferry_hot_params *params, uint32_t hot)
{
	uint64_t cost = (uint64_t)params->cost << WORTH_SHIFT, worth = ferry_hot_worth(params, hot);
	uint32_t cold = ferry_hot_least(hot, FERRY_HOT_HEATS - 1);

	while (cold && worth <= ferry_hot_worth(params, cold) + cost)
		cold--;
	return cold;
}

static bool ferry_hot8_is_wanted(const uint32_t wanted[8], uint8_t record)
{
	return wanted[record >> 5] >> (record & 31) & 1;
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
		view = ferry_hot8_view((uint8_t)record, now);
		heat = ferry_hot_heat(params, view.eighths, view.age);
		if (heat >= least && heat <= most)
			wanted[record >> 5] |= (uint32_t)1 << (record & 31);
	}
	while (at < nr_records && n < space) {
		if (at + 8 <= nr_records && !ferry_hot8_is_wanted(wanted, records[at]) &&
		    ferry_hot8_alike(records + at)) {
			at += 8;
			continue;
		}
		if (ferry_hot8_is_wanted(wanted, records[at]))
			found[n++] = (uint32_t)at;
		at++;
	}
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
		view = ferry_hot32_view(records[at], now);
		heat = ferry_hot_heat(params, view.eighths, view.age);
		if (heat >= least && heat <= most)
			found[n++] = (uint32_t)at;
	}
	*from = at;
	return n;
}

/*
 * An entry for pages that go up and down: bits 0-2 bounces, 3-5 agings without one, 6 the
 * page went down again, 7 in use, 8-15 tag.
 */
#define BOUNCES		((uint32_t)7)
#define BOUNCE_AGE	((uint32_t)7 << 3)
#define BOUNCE_AGE_ONE	((uint32_t)1 << 3)
#define BOUNCE_DOWN	((uint32_t)1 << 6)
#define BOUNCE_USED	((uint32_t)1 << 7)
#define BOUNCE_TAG	((uint32_t)0xff)
#define BOUNCE_SHIFT	8

static bool ferry_hot_tagged(uint16_t entry, uint32_t tag)
{
	return (entry & BOUNCE_USED) && entry >> BOUNCE_SHIFT == (tag & BOUNCE_TAG);
}

/**
 * ferry_hot_promoted - note that a page was promoted
 * @entry: the page's entry: the caller keeps a table of some thousands, all 0 at first, and
 *	takes the one that a hash of the page's number selects
 * @tag: other bits of that hash; the lowest 8 are used
 * @bounced: receives 1 if the page had been promoted and demoted before, else 0
 *
 * Only pages that move have entries, so a small table is enough. Where two pages meet in
 * one, the later replaces the earlier, and a bounce is overlooked; with 8 bits of tag one in
 * 256 such meetings is taken for the same page instead.
 *
 * The caller stores the result, and adds up @bounced.
 * Return: the entry after it.
 */
uint16_t ferry_hot_promoted(uint16_t entry, uint32_t tag, uint32_t *bounced)
{
	uint32_t bounces = 0;

	*bounced = 0;
	if (ferry_hot_tagged(entry, tag)) {
		bounces = entry & BOUNCES;
		if (!(entry & BOUNCE_DOWN))
			return entry;
		*bounced = 1;
		bounces = ferry_hot_least(bounces + 1, BOUNCES);
	}
	return (uint16_t)((tag & BOUNCE_TAG) << BOUNCE_SHIFT | BOUNCE_USED | bounces);
}

/**
 * ferry_hot_demoted - note that a page was demoted
 * @entry: the page's entry
 * @tag: the page's tag
 *
 * The caller stores the result.
 * Return: the entry after it; unchanged if the page's promotion is not known.
 */
uint16_t ferry_hot_demoted(uint16_t entry, uint32_t tag)
{
	return ferry_hot_tagged(entry, tag) ? entry | (uint16_t)BOUNCE_DOWN : entry;
}

/**
 * ferry_hot_bounce_aged - what a cooling makes of an entry
 * @entry: the entry before it
 *
 * Call it for the whole table as often as the records cool. It takes a bounce off, and
 * forgets the page after 8 times without one.
 *
 * The caller stores the result.
 * Return: the entry after it.
 */
uint16_t ferry_hot_bounce_aged(uint16_t entry)
{
	if (!(entry & BOUNCE_USED) || (entry & BOUNCE_AGE) == BOUNCE_AGE)
		return 0;
	if (entry & BOUNCES)
		entry--;
	return (uint16_t)(entry + BOUNCE_AGE_ONE);
}

/**
 * ferry_hot_bounces - how often a page bounced lately
 * @entry: the page's entry
 * @tag: the page's tag
 *
 * A page is worth promoting only if its heat exceeds the border by so many times the damp
 * of struct ferry_hot_params.
 *
 * Return: 0 to 7.
 */
uint32_t ferry_hot_bounces(uint16_t entry, uint32_t tag)
{
	return ferry_hot_tagged(entry, tag) ? entry & BOUNCES : 0;
}
