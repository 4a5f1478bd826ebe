// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Tests of share.c. */
#include <memferry/share.h>

#include "tap_test.h"

/* The shares of one batch: each byte once, cuts on granules, less than two granules between them. */
static void check_shares(size_t total, size_t lanes, size_t granule)
{
	size_t begin, end = 0, least = SIZE_MAX, most = 0, lane;

	CHECK(ferry_share_begin(total, lanes, granule, 0) == 0);
	for (lane = 0; lane < lanes; lane++) {
		begin = end;
		end = ferry_share_begin(total, lanes, granule, lane + 1);
		CHECK(end >= begin && end <= total);
		CHECK(end == total || end % granule == 0);
		CHECK(end > begin || begin == total);
		least = end - begin < least ? end - begin : least;
		most = end - begin > most ? end - begin : most;
	}
	CHECK(end == total);
	CHECK((most - least) / 2 < granule);
}

static void small_batches_are_shared(void)
{
	size_t total, lanes, granule;

	for (total = 0; total <= 100; total++)
		for (lanes = 1; lanes <= 12; lanes++)
			for (granule = 1; granule <= 12; granule++)
				check_shares(total, lanes, granule);
}

static void any_batch_is_shared(void)
{
	int i;

	for (i = 0; i < 100000; i++)
		check_shares((size_t)tap_random(UINT64_MAX) >> tap_random(sizeof(size_t) * 8),
			     1 + (size_t)tap_random(64),
			     1 + ((size_t)tap_random(UINT64_MAX) >> tap_random(sizeof(size_t) * 8)));
}

static void the_largest_numbers_do_not_wrap(void)
{
	static const size_t large[] = { SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2 + 1, SIZE_MAX / 2 };
	size_t i, j;

	for (i = 0; i < 4; i++) {
		for (j = 0; j < 4; j++)
			check_shares(large[i], 3, large[j]);
		check_shares(large[i], 1024, 1);
		check_shares(large[i], 1023, FERRY_SHARE_GRANULE);
		for (j = 0; j < 4; j++) {
			CHECK(ferry_share_begin(large[i], large[j], 1, large[j]) == large[i]);
			CHECK(ferry_share_begin(large[i], large[j], 1, 1) <= large[i] / large[j] + 1);
			CHECK(ferry_share_begin(large[i], large[j], SIZE_MAX, 1) == large[i]);
		}
	}
}

static const struct tap_test tests[] = {
	TEST(small_batches_are_shared),
	TEST(any_batch_is_shared),
	TEST(the_largest_numbers_do_not_wrap),
};

TAP_SUITE("memferry-share", tests)
