// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Tests of pace.c.
 *
 * cc -O2 -std=c11 -Iinclude pace.c pace_test.c && ./a.out
 */
#ifdef __KERNEL__
#include <linux/memferry/pace.h>
#else
#include <memferry/pace.h>
#endif

#include "tap_test.h"

#define MIB	((uint64_t)1 << 20)
#define GIB	((uint64_t)1 << 30)

static struct ferry_pace_params params;
static struct ferry_bad bad;
static struct ferry_pace pace;

static void numbers_out_of_range_are_named(void)
{
	ferry_pace_defaults(&params);
	CHECK(ferry_pace_check(&params, &bad) == 0 && bad.field == FERRY_PACE_OK);
	params.rate = 0;
	CHECK(ferry_pace_check(&params, &bad) == -FERRY_EINVAL && bad.field == FERRY_PACE_RATE);
	params.rate = FERRY_PACE_RATE_MAX + 1;
	CHECK(ferry_pace_check(&params, &bad) == -FERRY_EINVAL && bad.field == FERRY_PACE_RATE);
	CHECK(bad.least == 1 && bad.most == FERRY_PACE_RATE_MAX);
	ferry_pace_defaults(&params);
	params.burst_ms = 60001;
	CHECK(ferry_pace_check(&params, &bad) == -FERRY_EINVAL);
	CHECK(bad.field == FERRY_PACE_BURST_MS && bad.least == 1 && bad.most == 60000);
	ferry_pace_defaults(&params);
	params.window_ms = 0;
	CHECK(ferry_pace_check(&params, &bad) == -FERRY_EINVAL);
	CHECK(bad.field == FERRY_PACE_WINDOW_MS);
	ferry_pace_defaults(&params);
	params.reference_ms = 7;
	CHECK(ferry_pace_check(&params, &bad) == -FERRY_EINVAL);
	CHECK(bad.field == FERRY_PACE_REFERENCE_MS && bad.least == 8);
}

/* Over any time no more passes than the burst and what the rate allows, and nearly that. */
static void the_rate_holds(void)
{
	static const uint64_t rates[] = { 1, 999, 12345, 100 * MIB, FERRY_PACE_RATE_MAX };
	uint64_t passed, size, most;
	uint32_t now, start, r, ask;

	for (r = 0; r < 5; r++) {
		ferry_pace_defaults(&params);
		params.rate = rates[r];
		start = now = UINT32_MAX - 5000;
		ferry_pace_start(&pace, &params, now);
		size = rates[r] / 2000 + 1;
		for (passed = 0; now - start < 20000; now += tap_random(20)) {
			for (ask = 0; ask < 100; ask++)
				if (ferry_pace_reserve(&pace, now, size))
					passed += size;
			/* One more than the bucket holds may pass when it is full. */
			most = rates[r] / 1000 * (now - start + params.burst_ms) +
			       rates[r] % 1000 * (now - start + params.burst_ms) / 1000;
			CHECK(passed <= most + size);
		}
		CHECK(passed + 2 * size >= rates[r] * 20);
	}
}

static void unused_time_is_saved_up_to_the_burst(void)
{
	ferry_pace_defaults(&params);
	params.rate = 1000 * 1000;
	ferry_pace_start(&pace, &params, 5);
	CHECK(ferry_pace_budget(&pace, 5) == 100 * 1000);
	CHECK(ferry_pace_reserve(&pace, 5, 100 * 1000));
	CHECK(!ferry_pace_reserve(&pace, 5, 1));
	CHECK(ferry_pace_reserve(&pace, 6, 1000) && !ferry_pace_reserve(&pace, 6, 1));
	CHECK(ferry_pace_budget(&pace, 5 + ((uint32_t)1 << 30)) == 100 * 1000);
	/* Another CPU's time of a moment ago is no reason to fill or to stop. */
	CHECK(ferry_pace_budget(&pace, 4) == 100 * 1000);
	CHECK(ferry_pace_reserve(&pace, 4, 100 * 1000) && ferry_pace_budget(&pace, 3) == 0);
}

static void what_is_larger_than_the_bucket_waits_for_its_price(void)
{
	uint32_t now = 1000;

	ferry_pace_defaults(&params);
	params.rate = 1000 * 1000;
	ferry_pace_start(&pace, &params, now);
	CHECK(ferry_pace_reserve(&pace, now, 600 * 1000));
	CHECK(!ferry_pace_reserve(&pace, now + 499, 1));
	CHECK(ferry_pace_budget(&pace, now + 499) == 0);
	CHECK(ferry_pace_budget(&pace, now + 501) == 1000);
	CHECK(!ferry_pace_reserve(&pace, now + 599, 600 * 1000));
	CHECK(!ferry_pace_reserve(&pace, now + 600, FERRY_PACE_BYTES_MAX + 1));
	CHECK(ferry_pace_reserve(&pace, now + 600, 600 * 1000));
}

static void only_what_moved_is_charged(void)
{
	ferry_pace_defaults(&params);
	params.rate = 1000 * 1000;
	ferry_pace_start(&pace, &params, 0);
	CHECK(ferry_pace_reserve(&pace, 0, 90 * 1000));
	ferry_pace_settle(&pace, 90 * 1000, 30 * 1000);
	CHECK(ferry_pace_budget(&pace, 0) == 70 * 1000);
	ferry_pace_settle(&pace, 10, 11);
	CHECK(ferry_pace_budget(&pace, 0) == 70 * 1000);
	ferry_pace_settle(&pace, UINT64_MAX, 0);
	CHECK(ferry_pace_budget(&pace, 0) == 100 * 1000);
}

/* A window in which so many thousandths of the allowed bytes ask. */
static uint32_t window_of(uint32_t *now, uint64_t thousandths)
{
	ferry_pace_candidate(&pace, params.rate / 1000 * params.window_ms / 1000 * thousandths);
	CHECK(ferry_pace_threshold(&pace, &params, *now + params.window_ms - 1) ==
	      pace.threshold_ms);
	*now += params.window_ms;
	return ferry_pace_threshold(&pace, &params, *now);
}

static void the_threshold_follows_what_asks(void)
{
	uint32_t now = UINT32_MAX - 100000, i;

	ferry_pace_defaults(&params);
	params.rate = 100 * 1000 * 1000;
	ferry_pace_start(&pace, &params, now);
	CHECK(window_of(&now, 1100) == 1000 && window_of(&now, 900) == 1000);
	CHECK(window_of(&now, 1101) == 875 && window_of(&now, 899) == 1000);
	for (i = 0; i < 20; i++)
		window_of(&now, 5000);
	CHECK(pace.threshold_ms == 125);
	for (i = 0; i < 30; i++)
		window_of(&now, 0);
	CHECK(pace.threshold_ms == 2000);
	/* Sums and idle times that do not fit end at their limits. */
	ferry_pace_candidate(&pace, UINT64_MAX);
	ferry_pace_candidate(&pace, UINT64_MAX);
	now += params.window_ms;
	CHECK(ferry_pace_threshold(&pace, &params, now) == 1875);
	CHECK(ferry_pace_threshold(&pace, &params, now + INT32_MAX) == 2000);
	CHECK(ferry_pace_threshold(&pace, &params, now) == 2000);
}

static void free_space_needs_no_pace(void)
{
	ferry_pace_defaults(&params);
	ferry_pace_start(&pace, &params, 0);
	pace.threshold_ms = 250;
	CHECK(!ferry_pace_bypass(&pace, &params, GIB + MIB, 8 * GIB, MIB));
	CHECK(pace.threshold_ms == 250);
	CHECK(ferry_pace_bypass(&pace, &params, GIB + MIB + 1, 8 * GIB, MIB));
	CHECK(pace.threshold_ms == 1000);
	CHECK(!ferry_pace_bypass(&pace, &params, 4 * GIB, 64 * GIB, 0));
	CHECK(ferry_pace_bypass(&pace, &params, 4 * GIB + 1, 64 * GIB, 0));
	CHECK(!ferry_pace_bypass(&pace, &params, 0, 0, UINT64_MAX));
}

static const struct tap_test tests[] = {
	TEST(numbers_out_of_range_are_named),
	TEST(the_rate_holds),
	TEST(unused_time_is_saved_up_to_the_burst),
	TEST(what_is_larger_than_the_bucket_waits_for_its_price),
	TEST(only_what_moved_is_charged),
	TEST(the_threshold_follows_what_asks),
	TEST(free_space_needs_no_pace),
};

TAP_SUITE(pace, tests)
