// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Tests of lanes.c: small batches exhaustively, large ones at random, each against a
 * map with one entry per byte; and every error with the result's space watched.
 *
 * cc -O2 -std=c11 -Iinclude lanes.c extents.c lanes_test.c && ./a.out
 */
#include <memferry/lanes.h>

#include "tap_test.h"

#define PAGE		4096
#define MOST_EXTENTS	600
#define MOST_LANES	64
#define MOST_PIECES	(MOST_EXTENTS + MOST_LANES)
#define SOURCE		((uint64_t)1 << 32)
#define DESTINATION	((uint64_t)1 << 40)

static struct ferry_extent batch[MOST_EXTENTS], out[MOST_PIECES];
static struct ferry_lane lanes[MOST_LANES];
static uint32_t scratch[4 * MOST_EXTENTS];
static unsigned char map[64 << 20];

static struct ferry_deal deal_of(size_t extents, uint32_t nr_lanes, uint64_t granule)
{
	return (struct ferry_deal){
		.extents = batch, .nr_extents = extents,
		.granule = granule, .nr_lanes = nr_lanes,
		.out = out, .out_space = ferry_deal_space(extents, nr_lanes),
		.lanes = lanes,
		.scratch = scratch, .scratch_space = ferry_extents_scratch(extents),
	};
}

/* Lays extents of these sizes out, with a byte between destinations now and then. */
static void lay_out(const uint64_t *sizes, size_t n)
{
	uint64_t src = SOURCE, dst = DESTINATION;
	size_t i;

	for (i = 0; i < n; i++) {
		batch[i] = (struct ferry_extent){ src, dst, sizes[i] };
		src += sizes[i] + 3 * (i % 2);
		dst += sizes[i] + i % 3;
	}
}

static uint64_t map_bytes(size_t n)
{
	return batch[n - 1].dst + batch[n - 1].bytes - DESTINATION;
}

/* Marks what the pieces write; each must continue the batch where the last one ended. */
static void check_pieces(size_t n, uint32_t pieces, uint64_t granule)
{
	unsigned char *byte, *end;
	uint64_t done = 0;
	uint32_t p;
	size_t i = 0;

	for (p = 0; p < pieces; p++) {
		CHECK(i < n && out[p].bytes > 0);
		if (tap_failed_checks)
			return;
		CHECK(out[p].src == batch[i].src + done);
		CHECK(out[p].dst == batch[i].dst + done);
		CHECK(done % granule == 0);
		CHECK(out[p].bytes <= batch[i].bytes - done);
		byte = map + (out[p].dst - DESTINATION);
		for (end = byte + out[p].bytes; byte < end; byte++)
			++*byte;
		done += out[p].bytes;
		if (done == batch[i].bytes) {
			done = 0;
			i++;
		}
	}
	CHECK(i == n && done == 0);
}

/* Every byte of every destination written once, every other byte never. */
static void check_map(size_t n)
{
	uint64_t at = 0, end;
	int bad = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		for (; at < batch[i].dst - DESTINATION; at++)
			bad |= map[at];
		for (end = at + batch[i].bytes; at < end; at++)
			bad |= map[at] ^ 1;
	}
	CHECK(!bad);
}

/*
 * No cut through an extent could move to one of the extent's ends and keep both of its
 * lanes between the least and the most that any lane carries.
 */
static void check_cuts(uint32_t nr_lanes, uint64_t least, uint64_t most)
{
	uint64_t at = 0, start = 0, down, up, left, right;
	uint32_t lane;
	size_t i = 0;

	for (lane = 1; lane < nr_lanes; lane++) {
		left = lanes[lane - 1].bytes;
		right = lanes[lane].bytes;
		at += left;
		while (start + batch[i].bytes < at)
			start += batch[i++].bytes;
		down = at - start;
		up = batch[i].bytes - down;
		if (!down || !up)
			continue;
		CHECK(left < least + down || right + down > most);
		CHECK(right < least + up || left + up > most);
	}
}

/* Deals the batch and checks all that ferry_deal() promises; returns the pieces. */
static uint32_t check_deal(size_t n, uint32_t nr_lanes, uint64_t granule)
{
	struct ferry_deal deal = deal_of(n, nr_lanes, granule);
	uint64_t least = UINT64_MAX, most = 0, sum;
	uint32_t lane, p, pieces = 0;

	memset(map, 0, map_bytes(n));
	CHECK(ferry_deal(&deal) == 0);
	for (lane = 0; lane < nr_lanes; lane++) {
		CHECK(lanes[lane].first == pieces);
		pieces += lanes[lane].count;
		CHECK(pieces <= deal.out_space);
		for (sum = 0, p = lanes[lane].first; p < pieces; p++)
			sum += out[p].bytes;
		CHECK(sum == lanes[lane].bytes);
		least = sum < least ? sum : least;
		most = sum > most ? sum : most;
	}
	CHECK(most - least <= granule);
	check_cuts(nr_lanes, least, most);
	check_pieces(n, pieces, granule);
	check_map(n);
	return pieces;
}

static void small_batches_exhaustively(void)
{
	static const uint64_t sizes[] = { 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 3 * PAGE + 5 };
	uint64_t chosen[4];
	uint32_t nr_lanes;
	size_t n, i, code, codes = 1;

	for (n = 1; n <= 4; n++) {
		codes *= 6;
		for (code = 0; code < codes; code++) {
			for (i = 0; i < n; i++)
				chosen[i] = sizes[code / (i ? i == 1 ? 6 : i == 2 ? 36 : 216 : 1) % 6];
			lay_out(chosen, n);
			for (nr_lanes = 1; nr_lanes <= 6; nr_lanes++) {
				check_deal(n, nr_lanes, PAGE);
				check_deal(n, nr_lanes, 2 * PAGE);
			}
		}
	}
}

static void large_batches_at_random(void)
{
	uint64_t sizes[MOST_EXTENTS], granule, bytes;
	size_t i, n;
	int round;

	for (round = 0; round < 100; round++) {
		n = 1 + tap_random(MOST_EXTENTS);
		granule = (uint64_t)PAGE << tap_random(8);
		bytes = sizeof(map) / 2 / n;
		if (bytes > 1 << 16)
			bytes = 1 << 16;
		for (i = 0; i < n; i++) {
			sizes[i] = 1 + tap_random(bytes);
			if (round % 2)
				sizes[i] = PAGE << tap_random(i % 50 ? 4 : 10);
		}
		lay_out(sizes, n);
		check_deal(n, 1 + (uint32_t)tap_random(MOST_LANES), granule);
	}
}

/* mtcopy as published gives each of 12 threads size / 12 bytes: 8 bytes stay behind. */
static void one_folio_on_twelve_lanes_keeps_its_tail(void)
{
	uint64_t size = 2 << 20;

	lay_out(&size, 1);
	CHECK(check_deal(1, 12, PAGE) == 12);
	size += 13;
	lay_out(&size, 1);
	CHECK(check_deal(1, 12, PAGE) == 12);
	CHECK(check_deal(1, 12, FERRY_GRANULE_DEFAULT) == 12);
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
	return b ? gcd(b, a % b) : a;
}

/*
 * Folios up to a granule are never cut. Of the N - 1 cuts through n equal larger ones,
 * gcd(n, N) - 1 fall on a folio's end.
 */
static void folios_stay_whole_where_there_are_enough(void)
{
	uint64_t sizes[48], folio;
	uint32_t n, nr_lanes, pieces;
	size_t i;

	for (folio = PAGE; folio <= 4 * FERRY_GRANULE_DEFAULT; folio *= 2) {
		for (n = 1; n <= 48; n += 1 + n / 4) {
			for (i = 0; i < n; i++)
				sizes[i] = folio;
			lay_out(sizes, n);
			for (nr_lanes = 1; nr_lanes <= 16; nr_lanes++) {
				pieces = check_deal(n, nr_lanes, FERRY_GRANULE_DEFAULT);
				if (folio <= FERRY_GRANULE_DEFAULT)
					CHECK(pieces == n);
				CHECK(pieces <= n + nr_lanes - gcd(n, nr_lanes));
			}
		}
	}
}

/* On two lanes there is one cut, so it is easy to say when a folio must be cut. */
static void two_lanes_cut_only_if_they_must(void)
{
	uint64_t sizes[12], before, total, apart;
	int round, whole[2] = { 0, 0 };
	bool possible;
	size_t i, n;

	for (round = 0; round < 2000; round++) {
		n = 1 + tap_random(12);
		for (total = i = 0; i < n; i++)
			total += sizes[i] = 1 + tap_random(5 * FERRY_GRANULE_DEFAULT);
		lay_out(sizes, n);
		possible = false;
		for (before = i = 0; i <= n; i++) {
			apart = 2 * before > total ? 2 * before - total : total - 2 * before;
			possible |= apart <= FERRY_GRANULE_DEFAULT;
			before += i < n ? sizes[i] : 0;
		}
		whole[possible]++;
		CHECK((check_deal(n, 2, FERRY_GRANULE_DEFAULT) == n) == possible);
	}
	CHECK(whole[0] > 200 && whole[1] > 200);
}

static void space_is_exactly_what_is_needed(void)
{
	uint64_t size = 0;
	uint32_t nr_lanes;

	for (nr_lanes = 1; nr_lanes <= MOST_LANES; nr_lanes++) {
		size += PAGE;
		lay_out(&size, 1);
		CHECK(check_deal(1, nr_lanes, PAGE) == ferry_deal_space(1, nr_lanes));
	}
	CHECK(ferry_deal_space(512, 16) == 527);
	CHECK(ferry_deal_space(0, 16) == 0 && ferry_deal_space(512, 0) == 0);
	CHECK(ferry_deal_space(512, FERRY_LANES_MAX + 1) == 0);
	CHECK(ferry_deal_space(FERRY_EXTENTS_MAX + 1, 16) == 0);
	CHECK(ferry_extents_scratch(512) == 2048);
	CHECK(ferry_extents_scratch(FERRY_EXTENTS_MAX + 1) == 0);
}

static void an_empty_batch_leaves_all_lanes_empty(void)
{
	struct ferry_deal deal = { .nr_lanes = 3, .granule = PAGE, .lanes = lanes };

	memset(lanes, 0xa5, sizeof(lanes));
	deal.flags = FERRY_DEAL_DISJOINT;
	CHECK(ferry_deal(&deal) == 0);
	CHECK(!lanes[2].bytes && !lanes[2].first && !lanes[2].count);
	deal.flags = 0;
	CHECK(ferry_deal(&deal) == 0);
}

/* The largest numbers that are accepted: sums and products must still fit. */
static void huge_extents_do_not_overflow(void)
{
	struct ferry_deal deal;
	uint32_t lane;
	uint64_t sum = 0, least = UINT64_MAX, most = 0;

	batch[0] = (struct ferry_extent){ 0, (uint64_t)1 << 63, FERRY_BYTES_MAX - 5 };
	batch[1] = (struct ferry_extent){ FERRY_BYTES_MAX, ((uint64_t)1 << 63) - 5, 5 };
	deal = deal_of(2, MOST_LANES - 1, FERRY_GRANULE_MAX);
	CHECK(ferry_deal(&deal) == 0);
	for (lane = 0; lane < deal.nr_lanes; lane++) {
		sum += lanes[lane].bytes;
		least = lanes[lane].bytes < least ? lanes[lane].bytes : least;
		most = lanes[lane].bytes > most ? lanes[lane].bytes : most;
	}
	CHECK(sum == FERRY_BYTES_MAX && most - least <= FERRY_GRANULE_MAX);
}

/* Deals, expects this error and that not a byte of the result's space changed. */
static void check_refused(const struct ferry_deal *deal, int error)
{
	static struct ferry_extent out_before[MOST_PIECES];
	static struct ferry_lane lanes_before[MOST_LANES];

	memset(out, 0xa5, sizeof(out));
	memset(lanes, 0x5a, sizeof(lanes));
	memcpy(out_before, out, sizeof(out));
	memcpy(lanes_before, lanes, sizeof(lanes));
	CHECK(ferry_deal(deal) == error);
	CHECK(!memcmp(out_before, out, sizeof(out)));
	CHECK(!memcmp(lanes_before, lanes, sizeof(lanes)));
}

static void bad_arguments_write_nothing(void)
{
	const uint64_t sizes[] = { PAGE, 3 * PAGE, 1 };
	const struct ferry_deal good = (lay_out(sizes, 3), deal_of(3, 2, PAGE));
	struct ferry_deal deal;

#define REFUSED(field, value, error)						\
	do {									\
		deal = good;							\
		deal.field = (value);						\
		check_refused(&deal, -(error));					\
	} while (0)

	CHECK(ferry_deal(&good) == 0);
	REFUSED(nr_lanes, 0, FERRY_EINVAL);
	REFUSED(nr_lanes, FERRY_LANES_MAX + 1, FERRY_EINVAL);
	REFUSED(granule, 0, FERRY_EINVAL);
	REFUSED(granule, PAGE / 2, FERRY_EINVAL);
	REFUSED(granule, 3 * PAGE, FERRY_EINVAL);
	REFUSED(granule, 2 * FERRY_GRANULE_MAX, FERRY_EINVAL);
	REFUSED(flags, 2, FERRY_EINVAL);
	REFUSED(extents, NULL, FERRY_EINVAL);
	REFUSED(out, NULL, FERRY_EINVAL);
	REFUSED(lanes, NULL, FERRY_EINVAL);
	REFUSED(scratch, NULL, FERRY_EINVAL);
	REFUSED(nr_extents, FERRY_EXTENTS_MAX + 1, FERRY_EOVERFLOW);
	REFUSED(out_space, good.out_space - 1, FERRY_ENOSPC);
	REFUSED(scratch_space, good.scratch_space - 1, FERRY_ENOSPC);
#undef REFUSED
}

static void bad_batches_write_nothing(void)
{
	static const struct { struct ferry_extent last; int error; } bad[] = {
		{ { SOURCE, DESTINATION + 4 * PAGE, 0 }, FERRY_EINVAL },
		{ { SOURCE, DESTINATION + PAGE - 1, 1 }, FERRY_EEXIST },
		{ { SOURCE, DESTINATION, 4 * PAGE }, FERRY_EEXIST },
		{ { DESTINATION, SOURCE + 5 * PAGE, 1 }, FERRY_EEXIST },
		{ { 0, SOURCE + PAGE, 1 }, FERRY_EEXIST },
		{ { 0, PAGE - 1, PAGE }, FERRY_EEXIST },
		{ { UINT64_MAX, 0, 1 }, FERRY_EOVERFLOW },
		{ { 0, UINT64_MAX - PAGE + 1, PAGE }, FERRY_EOVERFLOW },
		{ { 0, 1, FERRY_BYTES_MAX }, FERRY_EOVERFLOW },
	};
	const uint64_t sizes[] = { PAGE, 3 * PAGE };
	struct ferry_deal deal = deal_of(3, 2, PAGE);
	size_t i;

	lay_out(sizes, 2);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		batch[2] = bad[i].last;
		check_refused(&deal, -bad[i].error);
	}
	/* the caller's word replaces the check, and only that check */
	deal.flags = FERRY_DEAL_DISJOINT;
	deal.scratch = NULL;
	deal.scratch_space = 0;
	batch[2] = bad[1].last;
	CHECK(ferry_deal(&deal) == 0);
	batch[2] = bad[0].last;
	check_refused(&deal, -FERRY_EINVAL);
}

static const struct tap_test tests[] = {
	TEST(small_batches_exhaustively),
	TEST(large_batches_at_random),
	TEST(one_folio_on_twelve_lanes_keeps_its_tail),
	TEST(folios_stay_whole_where_there_are_enough),
	TEST(two_lanes_cut_only_if_they_must),
	TEST(space_is_exactly_what_is_needed),
	TEST(an_empty_batch_leaves_all_lanes_empty),
	TEST(huge_extents_do_not_overflow),
	TEST(bad_arguments_write_nothing),
	TEST(bad_batches_write_nothing),
};

TAP_SUITE(lanes, tests)
