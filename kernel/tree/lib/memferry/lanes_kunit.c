// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of ferry_deal(): is every byte of a batch in exactly one lane, and do the
 * lanes carry the same load but for a granule?
 *
 * The addresses are numbers only; nothing is copied.
 */
#include <kunit/test.h>
#include <linux/memferry/lanes.h>
#include <linux/prandom.h>
#include <linux/sizes.h>

#define LANES_MOST	64
#define EXTENTS_MOST	2048
#define GRANULE		FERRY_GRANULE_DEFAULT

/* A seed of its own, so that a failure can be repeated. */
#define SEED		0x6d656d66

#define BYTES_2M	((u64)SZ_2M)

/* One deal with space for the largest batch of these tests. */
struct lanes_case {
	struct ferry_extent extents[EXTENTS_MOST];
	struct ferry_extent out[EXTENTS_MOST + LANES_MOST - 1];
	struct ferry_lane lanes[LANES_MOST];
	size_t nr_extents;
	u64 total;
};

static int lanes_init(struct kunit *test)
{
	test->priv = kunit_kzalloc(test, sizeof(struct lanes_case), GFP_KERNEL);
	return test->priv ? 0 : -ENOMEM;
}

/* Lets the next batch begin. */
static void lanes_begin(struct lanes_case *now)
{
	now->nr_extents = 0;
	now->total = 0;
}

/* Adds an extent; neither its source nor its destination touches its neighbours'. */
static void lanes_add(struct kunit *test, u64 bytes)
{
	struct lanes_case *now = test->priv;
	struct ferry_extent *extent = &now->extents[now->nr_extents];

	KUNIT_ASSERT_LT(test, now->nr_extents, EXTENTS_MOST);
	extent->src = SZ_1G + now->total + now->nr_extents * SZ_1M;
	extent->dst = extent->src + ((u64)1 << 40);
	extent->bytes = bytes;
	now->nr_extents++;
	now->total += bytes;
}

static int lanes_deal(struct kunit *test, u64 granule, u32 nr_lanes)
{
	struct lanes_case *now = test->priv;
	struct ferry_deal deal = {
		.extents = now->extents,
		.nr_extents = now->nr_extents,
		.granule = granule,
		.nr_lanes = nr_lanes,
		.flags = FERRY_DEAL_DISJOINT,
		.out = now->out,
		.out_space = ferry_deal_space(now->nr_extents, nr_lanes),
		.lanes = now->lanes,
	};

	memset(now->out, 0xff, sizeof(now->out));
	memset(now->lanes, 0xff, sizeof(now->lanes));
	return ferry_deal(&deal);
}

/*
 * Walks the pieces of all lanes beside the batch. Each must begin where the one before
 * ended, in the source and in the destination, and together they must reach the end: then
 * no byte is left out and none is copied twice.
 */
static void lanes_check_bytes(struct kunit *test, u64 granule, u32 nr_lanes)
{
	struct lanes_case *now = test->priv;
	u64 bytes, done = 0;
	size_t extent = 0;
	u32 lane, piece, at = 0;

	for (lane = 0; lane < nr_lanes; lane++) {
		bytes = 0;
		KUNIT_ASSERT_EQ(test, now->lanes[lane].first, at);
		for (piece = 0; piece < now->lanes[lane].count; piece++, at++) {
			KUNIT_ASSERT_LT(test, extent, now->nr_extents);
			KUNIT_ASSERT_GT(test, now->out[at].bytes, 0);
			KUNIT_ASSERT_EQ(test, now->out[at].src, now->extents[extent].src + done);
			KUNIT_ASSERT_EQ(test, now->out[at].dst, now->extents[extent].dst + done);
			KUNIT_ASSERT_EQ(test, done & (granule - 1), 0);
			bytes += now->out[at].bytes;
			done += now->out[at].bytes;
			KUNIT_ASSERT_LE(test, done, now->extents[extent].bytes);
			if (done == now->extents[extent].bytes) {
				extent++;
				done = 0;
			}
		}
		KUNIT_ASSERT_EQ(test, bytes, now->lanes[lane].bytes);
	}
	KUNIT_EXPECT_EQ(test, extent, now->nr_extents);
	KUNIT_EXPECT_EQ(test, done, 0);
}

static void lanes_check_balance(struct kunit *test, u64 granule, u32 nr_lanes)
{
	struct lanes_case *now = test->priv;
	u64 least = now->lanes[0].bytes, most = least;
	u32 lane;

	for (lane = 1; lane < nr_lanes; lane++) {
		least = min(least, now->lanes[lane].bytes);
		most = max(most, now->lanes[lane].bytes);
	}
	KUNIT_EXPECT_LE(test, most - least, granule);
}

static void lanes_check(struct kunit *test, u64 granule, u32 nr_lanes)
{
	KUNIT_ASSERT_EQ(test, lanes_deal(test, granule, nr_lanes), 0);
	lanes_check_bytes(test, granule, nr_lanes);
	lanes_check_balance(test, granule, nr_lanes);
}

/* As a batch of the page table's smallest entries: no folio is cut. */
static void lanes_of_small_folios(struct kunit *test)
{
	struct lanes_case *now = test->priv;
	u32 nr_lanes;
	size_t i;

	lanes_begin(now);
	for (i = 0; i < 1024; i++)
		lanes_add(test, SZ_4K);
	for (nr_lanes = 1; nr_lanes <= LANES_MOST; nr_lanes++) {
		lanes_check(test, GRANULE, nr_lanes);
		KUNIT_EXPECT_EQ(test, now->lanes[nr_lanes - 1].first +
				now->lanes[nr_lanes - 1].count, 1024);
	}
}

/* One huge page is shared by all lanes. */
static void lanes_of_one_big_folio(struct kunit *test)
{
	struct lanes_case *now = test->priv;
	u32 nr_lanes, lane;

	lanes_begin(now);
	lanes_add(test, BYTES_2M);
	for (nr_lanes = 1; nr_lanes <= BYTES_2M / GRANULE; nr_lanes++) {
		lanes_check(test, GRANULE, nr_lanes);
		for (lane = 0; lane < nr_lanes; lane++)
			KUNIT_EXPECT_EQ(test, now->lanes[lane].count, 1);
	}
}

/*
 * Twelve lanes and fewer folios than lanes: a share rounded down leaves the last bytes of
 * a folio to nobody, as no lane's share divides it.
 */
static void lanes_of_fewer_folios(struct kunit *test)
{
	struct lanes_case *now = test->priv;
	size_t nr, i;

	for (nr = 1; nr < 12; nr++) {
		lanes_begin(now);
		for (i = 0; i < nr; i++)
			lanes_add(test, BYTES_2M);
		lanes_check(test, GRANULE, 12);
		lanes_check(test, FERRY_GRANULE_MIN, 12);
	}
	for (nr = 1; nr < 12; nr++) {
		lanes_begin(now);
		for (i = 0; i < nr; i++)
			lanes_add(test, BYTES_2M + SZ_4K * i + i);
		lanes_check(test, GRANULE, 12);
	}
}

/* Fewer granules than lanes: some lanes get nothing, none gets a byte twice. */
static void lanes_of_few_bytes(struct kunit *test)
{
	struct lanes_case *now = test->priv;
	u32 nr_lanes;

	for (nr_lanes = 1; nr_lanes <= LANES_MOST; nr_lanes++) {
		lanes_begin(now);
		lanes_add(test, 1);
		lanes_check(test, GRANULE, nr_lanes);
		lanes_add(test, SZ_4K);
		lanes_check(test, GRANULE, nr_lanes);
		lanes_add(test, GRANULE + 1);
		lanes_check(test, GRANULE, nr_lanes);
	}
}

static void lanes_of_nothing(struct kunit *test)
{
	struct lanes_case *now = test->priv;

	lanes_begin(now);
	lanes_check(test, GRANULE, 12);
	KUNIT_EXPECT_EQ(test, now->lanes[11].count, 0);
}

/* Batches as migrations bring them, folios of every order, and odd sizes in between. */
static void lanes_of_random_batches(struct kunit *test)
{
	struct lanes_case *now = test->priv;
	u64 granule, bytes;
	struct rnd_state rnd;
	u32 nr_lanes;
	int batch, nr;

	prandom_seed_state(&rnd, SEED);
	for (batch = 0; batch < 500; batch++) {
		lanes_begin(now);
		for (nr = prandom_u32_state(&rnd) % 256; nr >= 0; nr--) {
			bytes = (u64)SZ_4K << prandom_u32_state(&rnd) % 10;
			if (prandom_u32_state(&rnd) % 16 == 0)
				bytes += prandom_u32_state(&rnd) % SZ_64K;
			lanes_add(test, bytes);
		}
		granule = FERRY_GRANULE_MIN << prandom_u32_state(&rnd) % 10;
		nr_lanes = 1 + prandom_u32_state(&rnd) % LANES_MOST;
		lanes_check(test, granule, nr_lanes);
	}
}

/* What cannot be dealt is refused, and the caller's space is left alone. */
static void lanes_refuse(struct kunit *test)
{
	struct lanes_case *now = test->priv;

	lanes_begin(now);
	lanes_add(test, BYTES_2M);
	KUNIT_EXPECT_EQ(test, lanes_deal(test, GRANULE, 0), -FERRY_EINVAL);
	KUNIT_EXPECT_EQ(test, lanes_deal(test, GRANULE + 1, 4), -FERRY_EINVAL);
	KUNIT_EXPECT_EQ(test, lanes_deal(test, FERRY_GRANULE_MIN / 2, 4), -FERRY_EINVAL);
	KUNIT_EXPECT_EQ(test, lanes_deal(test, GRANULE, FERRY_LANES_MAX + 1), -FERRY_EINVAL);
	lanes_add(test, 0);
	KUNIT_EXPECT_EQ(test, lanes_deal(test, GRANULE, 4), -FERRY_EINVAL);
	KUNIT_EXPECT_EQ(test, now->lanes[0].count, U32_MAX);
	KUNIT_EXPECT_EQ(test, now->out[0].bytes, U64_MAX);
}

static struct kunit_case lanes_cases[] = {
	KUNIT_CASE(lanes_of_small_folios),
	KUNIT_CASE(lanes_of_one_big_folio),
	KUNIT_CASE(lanes_of_fewer_folios),
	KUNIT_CASE(lanes_of_few_bytes),
	KUNIT_CASE(lanes_of_nothing),
	KUNIT_CASE_SLOW(lanes_of_random_batches),
	KUNIT_CASE(lanes_refuse),
	{}
};

static struct kunit_suite lanes_suite = {
	.name = "memferry-lanes",
	.init = lanes_init,
	.test_cases = lanes_cases,
};

kunit_test_suite(lanes_suite);

MODULE_DESCRIPTION("KUnit tests of ferry_deal()");
MODULE_LICENSE("GPL");
