// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * How fast promotion to one target may go: a bucket of bytes that fills with time, and the
 * threshold in time that NUMA balancing adjusts by how much asks.
 *
 * Times are milliseconds modulo 2^32. A time that lies up to half of that before the last
 * one counts as the last one: another CPU took it earlier.
 */
#ifdef __KERNEL__
#include <linux/memferry/pace.h>
#else
#include <memferry/pace.h>
#endif

#define MS_PER_S	((uint32_t)1000)

/* A minute of unused time is the most that is of use; its bytes then fit 64 bits. */
#define BURST_MAX	((uint32_t)60000)

/* Twice the reference, and two windows, stay below half of the clock's range. */
#define WINDOW_MAX	((uint32_t)1 << 29)
#define REFERENCE_MIN	((uint32_t)8)
#define REFERENCE_MAX	((uint32_t)1 << 29)

/* The threshold moves by eighths of the reference. */
#define STEP_SHIFT	3

/* NUMA balancing promotes freely above max(1 GiB, a 16th of the node) of free memory. */
#define FREE_BYTES	((uint64_t)1 << 30)
#define FREE_SHIFT	4

/* Milliseconds from @then to @now; 0 if that is backwards. */
static uint32_t ferry_pace_elapsed(uint32_t now, uint32_t then)
{
	uint32_t elapsed = now - then;

	return elapsed >> 31 ? 0 : elapsed;
}

/*
 * @bytes / 1000, in four digits of 16 bits, as no host may need a 64-bit division routine;
 * *@rest is what remains.
 */
static uint64_t ferry_pace_per_ms(uint64_t bytes, uint32_t *rest)
{
	uint64_t quotient = 0;
	uint32_t left = 0;
	int shift;

	for (shift = 48; shift >= 0; shift -= 16) {
		left = left << 16 | ((uint32_t)(bytes >> shift) & 0xffff);
		quotient = quotient << 16 | left / MS_PER_S;
		left %= MS_PER_S;
	}
	*rest = left;
	return quotient;
}

/**
 * ferry_pace_defaults - numbers to begin with
 * @params: receives them
 *
 * NUMA balancing's, but for its rate of 64 GiB/s, which limits nothing: 256 MiB/s is what its
 * own scanner can report at most (256 MB per scan, a scan per second). A tenth of a second
 * may be saved up: a burst of one batch of 2 MiB folios.
 */
void ferry_pace_defaults(struct ferry_pace_params *params)
{
	*params = (struct ferry_pace_params){
		.rate = (uint64_t)256 << 20,
		.burst_ms = 100,
		.window_ms = 60000,
		.reference_ms = 1000,
	};
}

/**
 * ferry_pace_check - are these numbers sound?
 * @params: the numbers; only read
 * @bad: receives the first one that is not, and its range; FERRY_PACE_OK if all are
 *
 * The ranges: rate 1 to FERRY_PACE_RATE_MAX; burst_ms 1 to 60000; window_ms 1 to 2^29;
 * reference_ms 8 to 2^29.
 *
 * Return: 0 or -FERRY_EINVAL.
 */
int ferry_pace_check(const struct ferry_pace_params *params, struct ferry_bad *bad)
{
	if (!ferry_within(bad, FERRY_PACE_RATE, params->rate, 1, FERRY_PACE_RATE_MAX) ||
	    !ferry_within(bad, FERRY_PACE_BURST_MS, params->burst_ms, 1, BURST_MAX) ||
	    !ferry_within(bad, FERRY_PACE_WINDOW_MS, params->window_ms, 1, WINDOW_MAX) ||
	    !ferry_within(bad, FERRY_PACE_REFERENCE_MS, params->reference_ms,
			       REFERENCE_MIN, REFERENCE_MAX))
		return -FERRY_EINVAL;
	*bad = (struct ferry_bad){ .field = FERRY_PACE_OK };
	return 0;
}

/**
 * ferry_pace_start - begin, with a full bucket and the threshold at its reference
 * @pace: receives the state
 * @params: as ferry_pace_check() accepts them
 * @now: time in ms, modulo 2^32
 *
 * Also after the rate or the burst changed; what is reserved then must be settled before.
 */
void ferry_pace_start(struct ferry_pace *pace, const struct ferry_pace_params *params,
		      uint32_t now)
{
	uint64_t per_ms;
	uint32_t rest;

	per_ms = ferry_pace_per_ms(params->rate, &rest);
	*pace = (struct ferry_pace){
		.per_ms = per_ms,
		.per_ms_rest = rest,
		.refilled = now,
		.window_start = now,
		.threshold_ms = params->reference_ms,
	};
	pace->depth = pace->per_ms * params->burst_ms + rest * params->burst_ms / MS_PER_S;
	pace->tokens = (int64_t)pace->depth;
}

static void ferry_pace_refill(struct ferry_pace *pace, uint32_t now)
{
	uint32_t elapsed = ferry_pace_elapsed(now, pace->refilled), part;
	uint32_t left = elapsed, thousandths;

	if (!elapsed)
		return;
	pace->refilled = now;
	/* By the minute, so that nothing overflows; until the bucket is full. */
	for (; left && pace->tokens < (int64_t)pace->depth; left -= part) {
		part = left < BURST_MAX ? left : BURST_MAX;
		thousandths = pace->per_ms_rest * part + pace->carry;
		pace->tokens += (int64_t)(pace->per_ms * part + thousandths / MS_PER_S);
		pace->carry = thousandths % MS_PER_S;
	}
	if (pace->tokens >= (int64_t)pace->depth) {
		pace->tokens = (int64_t)pace->depth;
		pace->carry = 0;
	}
}

/**
 * ferry_pace_budget - how many bytes may be reserved now
 * @pace: the target's state
 * @now: time in ms, modulo 2^32
 *
 * Context: One call per target at a time.
 * Return: bytes; 0 if a larger move is still being paid for.
 */
uint64_t ferry_pace_budget(struct ferry_pace *pace, uint32_t now)
{
	ferry_pace_refill(pace, now);
	return pace->tokens < 0 ? 0 : (uint64_t)pace->tokens;
}

/**
 * ferry_pace_reserve - may a page be promoted now?
 * @pace: the target's state
 * @now: time in ms, modulo 2^32
 * @bytes: bytes of the page or the batch, up to FERRY_PACE_BYTES_MAX
 *
 * If so its bytes are reserved, and ferry_pace_settle() must follow, whatever becomes of it.
 * A batch larger than the bucket goes when the bucket is full, and the next one waits until
 * it is paid for: over a long time the rate holds. If not, nothing changes: the page keeps
 * its record and asks again.
 *
 * Context: One call per target at a time.
 * Return: true to promote, false to defer.
 */
bool ferry_pace_reserve(struct ferry_pace *pace, uint32_t now, uint64_t bytes)
{
	ferry_pace_refill(pace, now);
	if (bytes > FERRY_PACE_BYTES_MAX)
		return false;
	if (pace->tokens < (int64_t)(bytes < pace->depth ? bytes : pace->depth))
		return false;
	pace->tokens -= (int64_t)bytes;
	return true;
}

/**
 * ferry_pace_settle - give back what did not move
 * @pace: the target's state
 * @reserved: bytes that were reserved
 * @moved: how many of them really moved; more than @reserved counts as all
 *
 * Context: One call per target at a time.
 */
void ferry_pace_settle(struct ferry_pace *pace, uint64_t reserved, uint64_t moved)
{
	uint64_t back = moved < reserved ? reserved - moved : 0;

	pace->tokens += (int64_t)(back < FERRY_PACE_BYTES_MAX ? back : FERRY_PACE_BYTES_MAX);
	if (pace->tokens > (int64_t)pace->depth)
		pace->tokens = (int64_t)pace->depth;
}

/**
 * ferry_pace_candidate - count a page that asks for promotion
 * @pace: the target's state
 * @bytes: its bytes
 *
 * Once per page and hot spell, not again each time it is deferred: the count decides
 * whether the threshold lets too many pages ask.
 *
 * Context: One call per target at a time.
 */
void ferry_pace_candidate(struct ferry_pace *pace, uint64_t bytes)
{
	if (bytes > FERRY_PACE_BYTES_MAX - pace->candidates)
		pace->candidates = FERRY_PACE_BYTES_MAX;
	else
		pace->candidates += bytes;
}

/**
 * ferry_pace_threshold - how recent an access must be for its page to ask
 * @pace: the target's state
 * @params: as given to ferry_pace_start()
 * @now: time in ms, modulo 2^32
 *
 * Once a window it compares what asked with what the rate allows in the time that passed,
 * and moves by an eighth of the reference: down if more than 110 % asked, up if less than
 * 90 %. It stays between an eighth of the reference and its double.
 *
 * Context: One call per target at a time.
 * Return: milliseconds.
 */
uint32_t ferry_pace_threshold(struct ferry_pace *pace,
			      const struct ferry_pace_params *params, uint32_t now)
{
	uint32_t elapsed = ferry_pace_elapsed(now, pace->window_start);
	uint32_t step = params->reference_ms >> STEP_SHIFT;
	uint64_t allowed, asked = pace->candidates;
	uint32_t rest;

	if (elapsed < params->window_ms)
		return pace->threshold_ms;
	/* The rate is at most 2^42 bytes in 1000 ms, so this fits 64 bits. */
	allowed = pace->per_ms * elapsed +
		  ferry_pace_per_ms((uint64_t)pace->per_ms_rest * elapsed, &rest);
	if (allowed > FERRY_PACE_BYTES_MAX)
		allowed = FERRY_PACE_BYTES_MAX;
	if (asked > allowed && (asked - allowed) * 10 > allowed) {
		pace->threshold_ms -= step;
		if (pace->threshold_ms < step)
			pace->threshold_ms = step;
	} else if (asked < allowed && (allowed - asked) * 10 > allowed) {
		pace->threshold_ms += step;
		if (pace->threshold_ms > 2 * params->reference_ms)
			pace->threshold_ms = 2 * params->reference_ms;
	}
	pace->candidates = 0;
	pace->window_start = now;
	return pace->threshold_ms;
}

/**
 * ferry_pace_bypass - is so much of the target free that promotion needs no pace?
 * @pace: the target's state; its threshold returns to the reference if so
 * @params: as given to ferry_pace_start()
 * @free: free bytes of the target
 * @node: all bytes of the target
 * @watermark: bytes that reclaim keeps free there for promotions
 *
 * As NUMA balancing: if more is free than the watermark and the larger of 1 GiB and a 16th of
 * the node. Such a page is neither a candidate nor charged.
 *
 * Context: One call per target at a time.
 * Return: true to promote at once.
 */
bool ferry_pace_bypass(struct ferry_pace *pace, const struct ferry_pace_params *params,
		       uint64_t free, uint64_t node, uint64_t watermark)
{
	uint64_t keep = node >> FREE_SHIFT > FREE_BYTES ? node >> FREE_SHIFT : FREE_BYTES;

	if (free <= watermark || free - watermark <= keep)
		return false;
	pace->threshold_ms = params->reference_ms;
	return true;
}
