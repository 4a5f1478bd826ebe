// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Tests of balance.c.
 *
 * cc -O2 -std=c11 -Iinclude balance.c hotness_rank.c hotness_time.c balance_test.c && ./a.out
 */
#ifdef __KERNEL__
#include <linux/memferry/balance.h>
#else
#include <memferry/balance.h>
#endif

#include "tap_test.h"

static struct ferry_hot_params hot;
static struct ferry_balance_params params;
static struct ferry_bad bad;

static void defaults_are_sound(void)
{
	uint32_t format;

	for (format = FERRY_HOT_DEFAULT; format <= FERRY_HOT_PRECISE; format++) {
		ferry_balance_defaults(format, &hot, &params);
		CHECK(ferry_hot_check(format, &hot, &bad) == 0);
		CHECK(params.fade_shift < 64 && params.most_shift < 64);
	}
}

static void room_is_for_the_new_pages_of_some_rounds(void)
{
	struct ferry_balance balance = { 0 };

	ferry_balance_defaults(FERRY_HOT_PRECISE, &hot, &params);
	CHECK(ferry_balance_room(&balance, &params, 10, 8000, 15) == 25);
	CHECK(balance.room == 40);
	/* A quarter of the tier at most. */
	CHECK(ferry_balance_room(&balance, &params, 1000, 8000, 0) == 2000);
	CHECK(ferry_balance_room(&balance, &params, 1000, 8000, 2400) == 0);
}

static void room_fades_and_asks_for_nobody_while_none_comes(void)
{
	struct ferry_balance balance = { .room = 640 };
	uint32_t rounds;

	ferry_balance_defaults(FERRY_HOT_PRECISE, &hot, &params);
	CHECK(ferry_balance_room(&balance, &params, 0, 8000, 0) == 0);
	CHECK(balance.room == 560);
	/* Who comes meanwhile finds what is left of it. */
	CHECK(ferry_balance_room(&balance, &params, 1, 8000, 0) == balance.room);
	for (rounds = 0; balance.room && rounds < 1000; rounds++)
		CHECK(ferry_balance_room(&balance, &params, 0, 8000, 0) == 0);
	CHECK(rounds > 8 && rounds < 60);
}

/* A program that takes 2 GiB, and a tier of 1 GiB: hot pages below get nearly all of it in 10 s. */
static void a_burst_keeps_no_room_for_long(void)
{
	uint64_t capacity = (uint64_t)1 << 18, born = (uint64_t)1 << 19;
	struct ferry_balance balance = { 0 };
	uint32_t rounds;

	ferry_balance_defaults(FERRY_HOT_DEFAULT, &hot, &params);
	ferry_balance_room(&balance, &params, born, capacity, 0);
	CHECK(balance.room == capacity / 4);
	for (rounds = 0; rounds < 40; rounds++)
		ferry_balance_room(&balance, &params, 0, capacity, 0);
	CHECK(balance.room < capacity / 100);
}

static void room_is_never_more_than_its_part_of_the_tier(void)
{
	struct ferry_balance balance = { 0 };
	uint64_t capacity, born, free, leave;
	uint32_t i;

	ferry_balance_defaults(FERRY_HOT_PRECISE, &hot, &params);
	for (i = 0; i < 10000; i++) {
		capacity = tap_random(5000);
		free = tap_random(capacity + 1);
		born = tap_random(3) ? 0 : tap_random(400);
		leave = ferry_balance_room(&balance, &params, born, capacity, free);
		CHECK(balance.room <= capacity / 4);
		CHECK(leave <= balance.room && leave <= capacity - free);
		CHECK(!leave || free + leave == balance.room);
	}
}

static void free_space_beyond_the_room_goes_to_the_hottest(void)
{
	struct ferry_balance balance = { .room = 30 };
	static struct ferry_hot_histogram lower;
	struct ferry_hot_cut cut;

	ferry_balance_defaults(FERRY_HOT_PRECISE, &hot, &params);
	lower.pages[40][0] = 5;
	lower.pages[9][0] = 50;
	/* Touched once: no candidates. */
	lower.pages[8][0] = 500;
	CHECK(ferry_balance_fill(&balance, &hot, &lower, 30, 99, &cut) == 0);
	CHECK(ferry_balance_fill(&balance, &hot, &lower, 50, 99, &cut) == 20);
	CHECK(cut.above == 5 && cut.room == 15 && cut.heat == ferry_hot_heat(&hot, 9, 0));
	CHECK(ferry_balance_fill(&balance, &hot, &lower, 50, 3, &cut) == 3);
	CHECK(cut.above == 0 && cut.heat == ferry_hot_heat(&hot, 40, 0));
	CHECK(ferry_balance_fill(&balance, &hot, &lower, 999, 900, &cut) == 900);
	CHECK(cut.above == 55 && cut.heat == 0);
}

static void a_page_in_use_makes_no_room(void)
{
	uint32_t format;

	for (format = FERRY_HOT_DEFAULT; format <= FERRY_HOT_PRECISE; format++) {
		ferry_balance_defaults(format, &hot, &params);
		CHECK(ferry_hot_heat(&hot, 8, 0) > ferry_balance_idle(&hot));
		CHECK(ferry_hot_heat(&hot, 8, FERRY_HOT_IDLE_AGE) <= ferry_balance_idle(&hot));
		CHECK(ferry_hot_heat(&hot, 24, FERRY_HOT_IDLE_AGE) > ferry_balance_idle(&hot));
	}
}

static void each_bounce_raises_the_bar(void)
{
	ferry_balance_defaults(FERRY_HOT_PRECISE, &hot, &params);
	CHECK(ferry_balance_bar(&hot, 50, 0) == 50);
	CHECK(ferry_balance_bar(&hot, 50, 3) == 50 + 3 * hot.damp && hot.damp > 0);
}

static void looks_come_sooner_while_more_pages_wait_than_find_a_place(void)
{
	static struct ferry_hot_histogram top, lower;

	ferry_balance_defaults(FERRY_HOT_DEFAULT, &hot, &params);
	/* All that is seen is accessed, above and below; what is not seen above may be locked. */
	top.pages[24][0] = 1000;
	top.pages[0][FERRY_HOT_AGES - 1] = 100000;
	lower.pages[24][0] = 2000;
	CHECK(ferry_balance_look(&hot, &top, &lower, 0, 0, 0) == 1);
	CHECK(ferry_balance_look(&hot, &top, &lower, 0, 0, FERRY_BALANCE_HALVINGS_MAX) ==
	      FERRY_BALANCE_HALVINGS_MAX);
	/* What is free takes them, or they come up, or idle pages make room. */
	CHECK(ferry_balance_look(&hot, &top, &lower, 500, 0, 2) == 2);
	CHECK(ferry_balance_look(&hot, &top, &lower, 0, 500, 2) == 2);
	top.pages[8][FERRY_HOT_IDLE_AGE] = 500;
	CHECK(ferry_balance_look(&hot, &top, &lower, 0, 0, 2) == 2);
	/* More places than pages that want one: also cooler ones shall be seen. */
	top.pages[8][FERRY_HOT_IDLE_AGE] = 8001;
	CHECK(ferry_balance_look(&hot, &top, &lower, 0, 0, 2) == 1);
	CHECK(ferry_balance_look(&hot, &top, &lower, 0, 0, 0) == 0);
	/* A few are not worth it. */
	lower.pages[24][0] = 20;
	top.pages[8][FERRY_HOT_IDLE_AGE] = 0;
	CHECK(ferry_balance_look(&hot, &top, &lower, 0, 0, 1) == 1);
	/* Idle pages wait for nothing, however hot they were. */
	lower.pages[24][0] = 0;
	lower.pages[24][FERRY_HOT_IDLE_AGE] = 2000;
	CHECK(ferry_balance_look(&hot, &top, &lower, 0, 0, 1) == 1);
}

static const struct tap_test tests[] = {
	TEST(defaults_are_sound),
	TEST(room_is_for_the_new_pages_of_some_rounds),
	TEST(room_fades_and_asks_for_nobody_while_none_comes),
	TEST(a_burst_keeps_no_room_for_long),
	TEST(room_is_never_more_than_its_part_of_the_tier),
	TEST(free_space_beyond_the_room_goes_to_the_hottest),
	TEST(a_page_in_use_makes_no_room),
	TEST(each_bounce_raises_the_bar),
	TEST(looks_come_sooner_while_more_pages_wait_than_find_a_place),
};

TAP_SUITE(balance, tests)
