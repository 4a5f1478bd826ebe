/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Pace: how fast promotion to one target may go, and how recent an access must be for a
 * page to be worth asking for.
 *
 * Decides only by numbers: it keeps no clock, sleeps never, knows no page and so loses
 * none. Who is told to wait asks again later; which pages ask first is hotness.h's work.
 * The caller keeps two calls for one target from running at the same time.
 *
 * Bytes are reserved before a move and settled after it: only what really moved stays paid.
 */
#ifndef MEMFERRY_PACE_H
#define MEMFERRY_PACE_H

#include "types.h"

/* Four terabytes per second; twice its bytes in 24 days of milliseconds fit 64 bits. */
#define FERRY_PACE_RATE_MAX	((uint64_t)1 << 42)

/* What one call can ask for at most, in bytes. */
#define FERRY_PACE_BYTES_MAX	((uint64_t)1 << 59)

/* The fields of struct ferry_pace_params, as ferry_pace_check() names them. */
#define FERRY_PACE_OK		((uint32_t)0)
#define FERRY_PACE_RATE		((uint32_t)1)
#define FERRY_PACE_BURST_MS	((uint32_t)2)
#define FERRY_PACE_WINDOW_MS	((uint32_t)3)
#define FERRY_PACE_REFERENCE_MS	((uint32_t)4)

/**
 * struct ferry_pace_params - the pace of one target
 * @rate: bytes per second, 1 to FERRY_PACE_RATE_MAX
 * @burst_ms: how much unused time is saved up, in ms
 * @window_ms: how often the threshold is adjusted, in ms; NUMA balancing's is 60,000
 * @reference_ms: the threshold to begin with, in ms; it stays between an eighth of it
 *	and its double; NUMA balancing's is 1000, pghot's the window of its records
 */
struct ferry_pace_params {
	uint64_t rate;
	uint32_t burst_ms;
	uint32_t window_ms;
	uint32_t reference_ms;
};

/**
 * struct ferry_pace - the state of one target; the caller only keeps it
 * @tokens: bytes that may be reserved now; below 0 what a move larger than the bucket owes
 * @depth: the most that @tokens saves up
 * @per_ms: bytes per millisecond, rounded down
 * @candidates: bytes that asked for the first time in this window
 * @per_ms_rest: thousandths of a byte per millisecond on top of @per_ms
 * @carry: thousandths of a byte that are not in @tokens yet
 * @refilled: time of the last refill, in ms
 * @window_start: time when this window began, in ms
 * @threshold_ms: how recent an access must be
 */
struct ferry_pace {
	int64_t tokens;
	uint64_t depth;
	uint64_t per_ms;
	uint64_t candidates;
	uint32_t per_ms_rest;
	uint32_t carry;
	uint32_t refilled;
	uint32_t window_start;
	uint32_t threshold_ms;
};

void ferry_pace_defaults(struct ferry_pace_params *params);
int ferry_pace_check(const struct ferry_pace_params *params, struct ferry_bad *bad);
void ferry_pace_start(struct ferry_pace *pace, const struct ferry_pace_params *params,
		      uint32_t now);
bool ferry_pace_reserve(struct ferry_pace *pace, uint32_t now, uint64_t bytes);
void ferry_pace_settle(struct ferry_pace *pace, uint64_t reserved, uint64_t moved);
uint64_t ferry_pace_budget(struct ferry_pace *pace, uint32_t now);
void ferry_pace_candidate(struct ferry_pace *pace, uint64_t bytes);
uint32_t ferry_pace_threshold(struct ferry_pace *pace,
			      const struct ferry_pace_params *params, uint32_t now);
bool ferry_pace_bypass(struct ferry_pace *pace, const struct ferry_pace_params *params,
		       uint64_t free, uint64_t node, uint64_t watermark);

#endif /* MEMFERRY_PACE_H */
