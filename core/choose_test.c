// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Tests of choose.c: what one call does. What many calls add up to is tested through the Rust
 * binding, against made-up and published machines.
 *
 * cc -O2 -std=c11 -Iinclude choose.c choose_test.c && ./a.out
 */
#ifdef __KERNEL__
#include <linux/memferry/choose.h>
#else
#include <memferry/choose.h>
#endif

#include "tap_test.h"

#define KIB	((uint64_t)1 << 10)
#define MIB	((uint64_t)1 << 20)

/* Plain, 2 lanes, 4 lanes, 1 channel, 4 lanes with 2 channels. */
static const struct ferry_choose_option options[] = {
	{ 0, 0, 0 }, { 10000, 1, 0 }, { 10000, 3, 0 }, { 10000, 0, 1 }, { 10000, 4, 2 },
};

static struct ferry_choose choose;
static struct ferry_choice choice;

static struct ferry_batch batch_of(uint64_t bytes)
{
	return (struct ferry_batch){
		.bytes = bytes, .folio_bytes = 4096, .cpus = 8, .channels = 8,
	};
}

/* Asks about @nr batches of which option k takes @ns[k]; returns how many were trials. */
static uint32_t run(struct ferry_batch batch, uint32_t nr, const uint64_t *ns)
{
	uint32_t trials = 0, i;

	for (i = 0; i < nr; i++) {
		ferry_choose(&choose, &batch, &choice);
		trials += choice.trial;
		CHECK(choice.bytes > 0 && choice.bytes <= batch.bytes);
		CHECK(choice.trial || choice.bytes == batch.bytes);
		ferry_choose_learn(&choose, &choice,
				   ns[choice.option] * choice.bytes / batch.bytes);
	}
	return trials;
}

static uint32_t choice_of(struct ferry_batch batch)
{
	ferry_choose(&choose, &batch, &choice);
	return choice.option;
}

static void plain_is_the_beginning(void)
{
	static const uint64_t ns[] = { 100000, 100000, 100000, 100000, 100000 };

	ferry_choose_start(&choose, options, 5);
	CHECK(choice_of(batch_of(MIB)) == FERRY_CHOOSE_PLAIN && !choice.trial);
	CHECK(choice.bytes == MIB && choice.cpu_bytes == 0);
	ferry_choose_learn(&choose, &choice, 100000);
	CHECK(run(batch_of(MIB), 62, ns) == 0);
	/* Options that are as good are no reason to leave it. */
	CHECK(run(batch_of(MIB), 64 * 1000, ns) >= 500);
	CHECK(choice.trial || choice.option == FERRY_CHOOSE_PLAIN);
}

static void what_is_faster_and_can_be_used_is_used(void)
{
	static const uint64_t ns[] = { 300000, 200000, 100000, 250000, 260000 };
	struct ferry_batch batch = batch_of(2 * MIB);

	ferry_choose_start(&choose, options, 5);
	batch.cpus = 0;
	run(batch, 64 * 200, ns);
	batch.cpus = 2;
	run(batch, 64 * 200, ns);
	batch.cpus = 3;
	run(batch, 64 * 200, ns);
	batch.urgent = true;
	CHECK(choice_of(batch) == 2 && choice.bytes == 2 * MIB);
	batch.cpus = 2;
	CHECK(choice_of(batch) == 1);
	batch.cpus = 0;
	CHECK(choice_of(batch) == 3);
	batch.channels = 0;
	CHECK(choice_of(batch) == FERRY_CHOOSE_PLAIN);
	/* A size that was never seen goes by the next smaller one. */
	batch = batch_of(8 * MIB);
	batch.urgent = true;
	CHECK(choice_of(batch) == 2);
}

static void who_waits_gets_no_trial(void)
{
	struct ferry_batch batch = batch_of(MIB);
	int i;

	ferry_choose_start(&choose, options, 5);
	batch.urgent = true;
	for (i = 0; i < 10000; i++) {
		ferry_choose(&choose, &batch, &choice);
		CHECK(!choice.trial && choice.option == FERRY_CHOOSE_PLAIN);
		ferry_choose_learn(&choose, &choice, 100000);
	}
	batch.urgent = false;
	for (i = 0; i < 65 && !choice.trial; i++)
		ferry_choose(&choose, &batch, &choice);
	CHECK(choice.trial);
}

/* As the kernel does: of the plain batches one of eight is measured. */
static void what_is_not_measured_pays_for_trials_too(void)
{
	static const uint64_t ns[] = { 1000000, 1300000, 1300000, 1300000, 1300000 };
	struct ferry_batch batch = batch_of(4 * MIB);
	uint32_t trials = 0, i;

	ferry_choose_start(&choose, options, 5);
	batch.folio_bytes = 2 * MIB;
	for (i = 0; i < 64 * 450; i++) {
		ferry_choose(&choose, &batch, &choice);
		trials += choice.trial;
		if (choice.option == FERRY_CHOOSE_PLAIN && i >= 512 && i % 8)
			ferry_choose_pass(&choose, batch.bytes);
		else
			ferry_choose_learn(&choose, &choice,
					   ns[choice.option] * choice.bytes / batch.bytes);
	}
	CHECK(trials >= 200);
}

/*
 * Batches of one folio, of which no part can be tried. The first @dear times of an option take ten
 * times as long.
 */
static void learn_where_first_times_are_dear(uint32_t dear, uint32_t batches)
{
	static const uint64_t ns[] = { 1000000, 700000, 1200000, 1200000, 1200000 };
	struct ferry_batch batch = batch_of(2 * MIB);
	uint32_t seen[5] = { dear }, i;

	ferry_choose_start(&choose, options, 5);
	batch.folio_bytes = 2 * MIB;
	for (i = 0; i < batches; i++) {
		ferry_choose(&choose, &batch, &choice);
		ferry_choose_learn(&choose, &choice,
				   ns[choice.option] * (seen[choice.option] < dear ? 10 : 1));
		seen[choice.option]++;
	}
	batch.urgent = true;
	CHECK(choice_of(batch) == 1);
}

static void a_first_time_that_is_dear_is_not_the_last(void)
{
	learn_where_first_times_are_dear(1, 64 * 200);
}

static void what_was_dear_twice_is_tried_again(void)
{
	learn_where_first_times_are_dear(2, 64 * 20);
	learn_where_first_times_are_dear(3, 64 * 40);
}

/* A choice that a smaller size made is no better founded here than there: other options are tried. */
static void what_a_smaller_size_chose_is_questioned(void)
{
	static const uint64_t small[] = { 1000000, 2000000, 2000000, 800000, 2000000 };
	static const uint64_t large[] = { 2000000, 1200000, 4000000, 2200000, 4000000 };
	struct ferry_batch batch = batch_of(2 * MIB);

	ferry_choose_start(&choose, options, 5);
	batch.folio_bytes = 2 * MIB;
	run(batch, 64 * 100, small);
	batch.bytes = 4 * MIB;
	batch.urgent = true;
	CHECK(choice_of(batch) == 3);
	batch.urgent = false;
	run(batch, 64 * 100, large);
	batch.urgent = true;
	CHECK(choice_of(batch) == 1);
}

/*
 * The start-up that option 1 states is longer than any batch. Times are up to 0.4 times longer or
 * shorter, so that option 2 must be tried often; the others cost more than a turn of all has.
 */
static void what_cannot_be_afforded_keeps_nothing_else_from_its_turn(void)
{
	static const struct ferry_choose_option dear[] = {
		{ 0, 0, 0 }, { 1000000000, 1, 0 }, { 10000, 3, 0 }, { 10000, 0, 1 },
		{ 10000, 0, 2 },
	};
	static const uint64_t ns[] = { 1000000, 900000, 800000, 3000000, 3000000 };
	struct ferry_batch batch = batch_of(2 * MIB);
	uint32_t found = 0, seed, i;

	batch.folio_bytes = 2 * MIB;
	for (seed = 0; seed < 40; seed++) {
		ferry_choose_start(&choose, dear, 5);
		batch.urgent = false;
		for (i = 0; i < 64 * 150; i++) {
			ferry_choose(&choose, &batch, &choice);
			ferry_choose_learn(&choose, &choice,
					   ns[choice.option] * (600 + tap_random(801)) / 1000);
		}
		batch.urgent = true;
		found += choice_of(batch) == 2;
	}
	CHECK(found >= 38);
}

static void parts_consist_of_folios(void)
{
	static const uint64_t ns[] = { 1000000, 9000000, 9000000, 9000000, 9000000 };
	struct ferry_batch batch = batch_of(18 * MIB);
	uint64_t least = batch.bytes;
	int i, trials = 0;

	ferry_choose_start(&choose, options, 4);
	batch.folio_bytes = MIB;
	for (i = 0; i < 64 * 200; i++) {
		ferry_choose(&choose, &batch, &choice);
		trials += choice.trial;
		CHECK(choice.bytes % MIB == 0);
		least = choice.bytes < least ? choice.bytes : least;
		ferry_choose_learn(&choose, &choice, ns[choice.option] * choice.bytes / batch.bytes);
	}
	CHECK(trials >= 10 && least == MIB);
	/* A part that would be less than a folio is not tried. */
	batch.folio_bytes = 32 * MIB;
	for (i = 0; i < 64 * 20; i++) {
		ferry_choose(&choose, &batch, &choice);
		CHECK(choice.bytes == batch.bytes);
		ferry_choose_learn(&choose, &choice, ns[choice.option]);
	}
}

static void both_sides_of_a_split_end_together(void)
{
	struct ferry_batch batch = batch_of(4 * MIB);
	uint64_t cpu, channel, most;
	int i, splits = 0;

	ferry_choose_start(&choose, (struct ferry_choose_option[]){ options[0], options[4] }, 2);
	for (i = 0; i < 64 * 100; i++) {
		ferry_choose(&choose, &batch, &choice);
		CHECK(choice.cpu_bytes <= choice.bytes && choice.cpu_bytes % 4096 == 0);
		CHECK(choice.option || !choice.cpu_bytes);
		/* CPU lanes 3 times as fast, channels that take 20 us to begin. */
		cpu = choice.cpu_bytes / 15;
		channel = 20000 + (choice.bytes - choice.cpu_bytes) / 5;
		most = cpu > channel ? cpu : channel;
		ferry_choose_learn(&choose, &choice, choice.option ? most : choice.bytes / 5);
		if (!choice.option)
			continue;
		ferry_choose_learn_split(&choose, &choice, cpu, channel);
		if (++splits > 30 && !choice.trial)
			CHECK((cpu > channel ? cpu - channel : channel - cpu) < most / 24);
	}
	CHECK(splits > 1000);
	/* Times that are nothing, or do not fit, move the cut no further than to an end. */
	ferry_choose_learn_split(&choose, &choice, 0, 0);
	for (i = 0; i < 100; i++)
		ferry_choose_learn_split(&choose, &choice, UINT64_MAX, 1);
	ferry_choose(&choose, &batch, &choice);
	CHECK(choice.cpu_bytes <= choice.bytes);
}

static void any_numbers_are_taken(void)
{
	static struct ferry_choose_option extreme[FERRY_CHOOSE_OPTIONS];
	struct ferry_batch batch;
	uint32_t i;

	for (i = 1; i < FERRY_CHOOSE_OPTIONS; i++)
		extreme[i] = (struct ferry_choose_option){ UINT32_MAX >> i * 2, (uint16_t)i,
							  (uint16_t)(i & 1) };
	ferry_choose_start(&choose, extreme, FERRY_CHOOSE_OPTIONS);
	for (i = 0; i < 300000; i++) {
		batch = batch_of(1 + (tap_random(UINT64_MAX) >> (24 + tap_random(40))));
		batch.folio_bytes = (uint64_t)1 << tap_random(30);
		batch.cpus = (uint16_t)tap_random(UINT16_MAX);
		batch.channels = (uint16_t)tap_random(3);
		ferry_choose(&choose, &batch, &choice);
		CHECK(choice.option < FERRY_CHOOSE_OPTIONS);
		CHECK(choice.bytes > 0 && choice.bytes <= batch.bytes);
		CHECK(choice.cpu_bytes <= choice.bytes);
		ferry_choose_learn(&choose, &choice, tap_random(UINT64_MAX) >> tap_random(64));
		if (choice.cpu_bytes)
			ferry_choose_learn_split(&choose, &choice,
						 tap_random(UINT64_MAX) >> tap_random(64),
						 tap_random(UINT64_MAX) >> tap_random(64));
	}
}

static const struct tap_test tests[] = {
	TEST(plain_is_the_beginning),
	TEST(what_is_faster_and_can_be_used_is_used),
	TEST(who_waits_gets_no_trial),
	TEST(what_is_not_measured_pays_for_trials_too),
	TEST(a_first_time_that_is_dear_is_not_the_last),
	TEST(what_was_dear_twice_is_tried_again),
	TEST(what_a_smaller_size_chose_is_questioned),
	TEST(what_cannot_be_afforded_keeps_nothing_else_from_its_turn),
	TEST(parts_consist_of_folios),
	TEST(both_sides_of_a_split_end_together),
	TEST(any_numbers_are_taken),
};

TAP_SUITE(choose, tests)
