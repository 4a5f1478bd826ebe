// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Tests of extents.c: the sum against its limits, and the check for ranges that are
 * apart against a comparison of each with each.
 *
 * cc -O2 -std=c11 -Iinclude extents.c extents_test.c && ./a.out
 */
#include <memferry/extents.h>

#include "tap_test.h"

#define MOST 24

static uint32_t scratch[4 * MOST];

static bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

static int apart_by_pairs(const struct ferry_extent *e, size_t n)
{
	size_t i, j;

	for (i = 0; i < n; i++) {
		for (j = 0; j < n; j++) {
			if (overlap(e[i].dst, e[i].bytes, e[j].src, e[j].bytes))
				return -FERRY_EEXIST;
			if (i != j && overlap(e[i].dst, e[i].bytes, e[j].dst, e[j].bytes))
				return -FERRY_EEXIST;
		}
	}
	return 0;
}

static void sum_adds_all_bytes(void)
{
	struct ferry_extent e[] = { { 0, 100, 1 }, { 5, 200, 4095 }, { 9, 4300, 4097 } };
	uint64_t total = 7;

	CHECK(ferry_extents_sum(e, 3, &total) == 0 && total == 8193);
	CHECK(ferry_extents_sum(NULL, 0, &total) == 0 && total == 0);
}

static void sum_refuses_an_extent_of_no_bytes(void)
{
	struct ferry_extent e[] = { { 0, 100, 1 }, { 5, 200, 0 } };
	uint64_t total = 7;

	CHECK(ferry_extents_sum(e, 2, &total) == -FERRY_EINVAL && total == 7);
}

static void sum_refuses_what_does_not_fit(void)
{
	struct ferry_extent e[] = { { 0, 1, FERRY_BYTES_MAX }, { 0, 1, 1 } };
	uint64_t total = 7, top = UINT64_MAX;

	CHECK(ferry_extents_sum(e, 2, &total) == -FERRY_EOVERFLOW);
	CHECK(ferry_extents_sum(e, FERRY_EXTENTS_MAX + 1, &total) == -FERRY_EOVERFLOW);
	e[1] = (struct ferry_extent){ top, 0, 1 };
	CHECK(ferry_extents_sum(e + 1, 1, &total) == -FERRY_EOVERFLOW);
	e[1] = (struct ferry_extent){ 0, top, 1 };
	CHECK(ferry_extents_sum(e + 1, 1, &total) == -FERRY_EOVERFLOW);
	e[1] = (struct ferry_extent){ 0, 1, top };
	CHECK(ferry_extents_sum(e + 1, 1, &total) == -FERRY_EOVERFLOW);
	CHECK(total == 7);
	e[1] = (struct ferry_extent){ top - 1, 0, 1 };
	CHECK(ferry_extents_sum(e + 1, 1, &total) == 0 && total == 1);
	CHECK(ferry_extents_sum(e, 1, &total) == 0 && total == FERRY_BYTES_MAX);
}

static void apart_knows_the_plain_cases(void)
{
	struct ferry_extent e[] = { { 0, 100, 10 }, { 10, 110, 10 } };

	CHECK(ferry_extents_apart(e, 2, scratch) == 0);
	CHECK(ferry_extents_apart(NULL, 0, scratch) == 0);
	e[1].dst = 109;
	CHECK(ferry_extents_apart(e, 2, scratch) == -FERRY_EEXIST);
	e[1].dst = 91;
	CHECK(ferry_extents_apart(e, 2, scratch) == -FERRY_EEXIST);
	e[1].dst = 90;
	CHECK(ferry_extents_apart(e, 2, scratch) == 0);
	/* read twice: fine */
	e[1].src = 5;
	CHECK(ferry_extents_apart(e, 2, scratch) == 0);
	/* one extent onto itself, whole and in part */
	e[0].dst = e[0].src;
	CHECK(ferry_extents_apart(e, 1, scratch) == -FERRY_EEXIST);
	e[0].dst = e[0].src + 9;
	CHECK(ferry_extents_apart(e, 1, scratch) == -FERRY_EEXIST);
	e[0].dst = e[0].src + 10;
	CHECK(ferry_extents_apart(e, 1, scratch) == 0);
}

/* Crowded and roomy address spaces, so that both answers are common. */
static void apart_agrees_with_all_pairs(void)
{
	struct ferry_extent e[MOST];
	int round, expected, seen[2] = { 0, 0 };
	uint64_t room;
	size_t i, n;

	for (round = 0; round < 200000; round++) {
		n = 1 + tap_random(round % 8 ? 6 : MOST);
		room = 4 << tap_random(12);
		for (i = 0; i < n; i++) {
			e[i].src = tap_random(room);
			e[i].dst = tap_random(room) + (round & 1 ? room + 6 : 0);
			e[i].bytes = 1 + tap_random(6);
		}
		expected = apart_by_pairs(e, n);
		seen[!expected]++;
		CHECK(ferry_extents_apart(e, n, scratch) == expected);
	}
	CHECK(seen[0] > 20000 && seen[1] > 20000);
}

static const struct tap_test tests[] = {
	TEST(sum_adds_all_bytes),
	TEST(sum_refuses_an_extent_of_no_bytes),
	TEST(sum_refuses_what_does_not_fit),
	TEST(apart_knows_the_plain_cases),
	TEST(apart_agrees_with_all_pairs),
};

TAP_SUITE(extents, tests)
