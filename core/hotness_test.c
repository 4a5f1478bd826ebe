// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Tests of hotness: records at every age and sweep, sweeps over many against one by one, and
 * borders against lists of single pages.
 *
 * cc -O2 -std=c11 -Iinclude hotness*.c && ./a.out
 */
#ifdef __KERNEL__
#include <linux/memferry/hotness.h>
#else
#include <memferry/hotness.h>
#endif

#include "tap_test.h"

#define MANY		2500
#define NEVER		UINT32_MAX

static struct ferry_hot_params params;
static struct ferry_bad bad;
static struct ferry_hot_histogram histogram, other;
static uint8_t bytes[MANY], bytes_before[MANY];
static uint32_t words[MANY], words_before[MANY];

static uint32_t random32(void)
{
	return (uint32_t)tap_random((uint64_t)1 << 32);
}

static void defaults_are_sound(void)
{
	ferry_hot_defaults(FERRY_HOT_DEFAULT, &params);
	CHECK(ferry_hot_check(FERRY_HOT_DEFAULT, &params, &bad) == 0);
	CHECK(bad.field == FERRY_HOT_OK);
	ferry_hot_defaults(FERRY_HOT_PRECISE, &params);
	CHECK(ferry_hot_check(FERRY_HOT_PRECISE, &params, &bad) == 0);
}

/* A field and the values around its range. */
static void check_range(uint32_t format, uint32_t field, uint32_t *value, uint32_t least,
			uint32_t most)
{
	uint32_t kept = *value;

	*value = least;
	CHECK(ferry_hot_check(format, &params, &bad) == 0 || bad.field != field);
	*value = most;
	CHECK(ferry_hot_check(format, &params, &bad) == 0 || bad.field != field);
	*value = most + 1;
	CHECK(ferry_hot_check(format, &params, &bad) == -FERRY_EINVAL);
	CHECK(bad.field == field && bad.least == least && bad.most == most);
	if (least) {
		*value = least - 1;
		CHECK(ferry_hot_check(format, &params, &bad) == -FERRY_EINVAL);
		CHECK(bad.field == field && bad.least == least && bad.most == most);
	}
	*value = kept;
}

static void numbers_out_of_range_are_named(void)
{
	uint32_t format;

	for (format = FERRY_HOT_DEFAULT; format <= FERRY_HOT_PRECISE; format++) {
		bool precise = format == FERRY_HOT_PRECISE;

		ferry_hot_defaults(format, &params);
		check_range(format, FERRY_HOT_WINDOW_MS, &params.window_ms, precise ? 16 : 256,
			    precise ? 15000 : 3712);
		check_range(format, FERRY_HOT_THRESHOLD, &params.threshold, 1, precise ? 7 : 3);
		check_range(format, FERRY_HOT_RECALL, &params.recall, 0, precise ? 7 : 3);
		check_range(format, FERRY_HOT_STEP, &params.step, 0, 8);
		check_range(format, FERRY_HOT_SWEEP_MS, &params.sweep_ms, 1,
			    precise ? 10359 : 1024);
		check_range(format, FERRY_HOT_COOL_SWEEPS, &params.cool_sweeps, 0, 65535);
		check_range(format, FERRY_HOT_FREQ_SHIFT, &params.freq_shift, 0, 4);
		check_range(format, FERRY_HOT_COST, &params.cost, 0, 1 << 30);
		check_range(format, FERRY_HOT_DAMP, &params.damp, 0, 127);
	}
	CHECK(ferry_hot_check(2, &params, &bad) == -FERRY_EINVAL && bad.field == FERRY_HOT_FORMAT);
}

/* With these numbers an access does what it does in pghot. */
static void as_published(uint32_t format, uint32_t threshold)
{
	ferry_hot_defaults(format, &params);
	params.recall = 0;
	params.step = 0;
	params.cool_sweeps = 0;
	params.threshold = threshold;
}

static void frequency_counts_up_to_its_maximum(void)
{
	uint32_t threshold, i, word;
	uint8_t byte;

	for (threshold = 1; threshold <= 3; threshold++) {
		as_published(FERRY_HOT_DEFAULT, threshold);
		for (byte = 0, i = 1; i < 10; i++) {
			byte = ferry_hot8_access(byte, &params, 5000 + 100 * i, 1, random32());
			CHECK(ferry_hot8_view(byte, 5000 + 100 * i).freq == (i < 3 ? i : 3));
			CHECK(!!(byte & FERRY_HOT8_READY) == (i >= threshold));
		}
	}
	for (threshold = 1; threshold <= 7; threshold++) {
		as_published(FERRY_HOT_PRECISE, threshold);
		for (word = 0, i = 1; i < 20; i++) {
			word = ferry_hot32_access(word, &params, 5000 + 100 * i, 1, random32(), 2);
			CHECK(ferry_hot32_view(word, 5000 + 100 * i).freq == (i < 7 ? i : 7));
			CHECK(!!(word & FERRY_HOT32_READY) == (i >= threshold));
			CHECK((word >> 13 & 16383) == 5000 + 100 * i);
		}
	}
}

static void an_access_after_the_window_starts_anew(void)
{
	uint32_t gap, word;
	uint8_t byte;

	for (gap = 0; gap < 3840; gap++) {
		as_published(FERRY_HOT_DEFAULT, 2);
		byte = ferry_hot8_access(0, &params, 1000, 2, 0);
		byte = ferry_hot8_access(byte, &params, 1000 + gap, 1, 0);
		/* Buckets make it up to 255 ms sooner, never later. */
		if (gap <= params.window_ms - 255)
			CHECK((byte & 3) == 3 && byte & FERRY_HOT8_READY);
		if (gap > params.window_ms)
			CHECK((byte & 3) == 1 && !(byte & FERRY_HOT8_READY));
	}
	for (gap = 0; gap < 15000; gap++) {
		as_published(FERRY_HOT_PRECISE, 2);
		word = ferry_hot32_access(0, &params, 1000, 2, 0, 1);
		word = ferry_hot32_access(word, &params, 1000 + gap, 1, 0, FERRY_HOT_NO_NODE);
		CHECK((word >> 10 & 7) == (gap <= params.window_ms ? 3 : 1));
		CHECK((word & 1023) == 1);
	}
}

static void levels_above_the_threshold_take_their_share_of_accesses(void)
{
	uint32_t freq, i, ups, word, exponent;

	ferry_hot_defaults(FERRY_HOT_PRECISE, &params);
	for (freq = 2; freq < 7; freq++) {
		exponent = 2 * (freq - 1);
		for (ups = 0, i = 0; i < 1 << 16; i++) {
			word = ferry_hot32_access(freq << 10, &params, 0, 1, i << 16, 0);
			ups += (word >> 10 & 7) == freq + 1;
		}
		CHECK(ups == (uint32_t)1 << (16 - exponent));
		/* A weight of a whole level takes it for sure. */
		word = ferry_hot32_access(freq << 10, &params, 0, 1 << exponent, NEVER, 0);
		CHECK((word >> 10 & 7) == freq + 1);
	}
	CHECK(ferry_hot_accesses(&params, 2) == 2);
	CHECK(ferry_hot_accesses(&params, 7) == 2 + 4 + 16 + 64 + 256 + 1024);
	CHECK(ferry_hot32_access(0, &params, 0, 0, 0, 0) == 0);
	CHECK((ferry_hot32_access(0, &params, 0, NEVER, 0, 0) >> 10 & 7) == 7);
}

/*
 * A page is accessed once and never again, and sweeps come as late as they may, or sooner.
 * At no age at all may the record tell of less.
 */
static void check_ages(uint32_t format, uint32_t start, uint32_t window, bool jitter, uint32_t last)
{
	struct ferry_hot_sweep sweep = { .now = start, .number = random32() % 300 + 1 };
	uint32_t age, next, told, word;
	uint8_t byte;

	ferry_hot_defaults(format, &params);
	params.window_ms = window;
	params.sweep_ms = NEVER;
	CHECK(ferry_hot_check(format, &params, &bad) == -FERRY_EINVAL);
	params.sweep_ms = bad.most;
	CHECK(ferry_hot_check(format, &params, &bad) == 0);
	byte = ferry_hot8_access(0, &params, start, 1, 0);
	word = ferry_hot32_access(0, &params, start, 1, 0, 0);
	next = tap_random(params.sweep_ms) + 1;
	for (age = 0; age < last; age++) {
		if (age == next) {
			sweep.last = sweep.now;
			sweep.now = start + age;
			sweep.number++;
			byte = ferry_hot8_aged(byte, &params, &sweep);
			word = ferry_hot32_aged(word, &params, &sweep);
			next += jitter ? tap_random(params.sweep_ms) + 1 : params.sweep_ms;
		}
		if (format == FERRY_HOT_DEFAULT)
			told = ferry_hot8_age_ms(byte, start + age);
		else
			told = ferry_hot32_age_ms(word, start + age);
		CHECK(told >= age);
		CHECK(told == NEVER || told <= age + 254);
		CHECK(told != NEVER || age + 255 >= window);
	}
}

static void no_age_looks_less_in_default_mode(void)
{
	static const uint32_t windows[] = { 256, 1000, 3000, 3712 };
	uint32_t phase, w;

	for (w = 0; w < 4; w++)
		for (phase = 0; phase < 256; phase++)
			check_ages(FERRY_HOT_DEFAULT, 0u - 70000 + 517 * phase, windows[w],
				   phase & 1, 40000);
}

static void no_age_looks_less_in_precision_mode(void)
{
	static const uint32_t windows[] = { 16, 1000, 5000, 15000 };
	uint32_t phase, w;

	for (w = 0; w < 4; w++)
		for (phase = 0; phase < 32; phase++)
			check_ages(FERRY_HOT_PRECISE, 0u - 70000 + 4111 * phase, windows[w],
				   phase & 1, 160000);
}

static void a_late_sweep_trusts_no_time(void)
{
	struct ferry_hot_sweep sweep = { .now = 10000, .last = 10000 - 1001, .number = 1 };
	uint8_t byte;

	ferry_hot_defaults(FERRY_HOT_DEFAULT, &params);
	byte = ferry_hot8_access(0, &params, sweep.now, 5, 0);
	CHECK(ferry_hot8_age_ms(ferry_hot8_aged(byte, &params, &sweep), sweep.now) == NEVER);
	sweep.last++;
	CHECK(ferry_hot8_aged(byte, &params, &sweep) == byte);
}

static void a_time_ahead_counts_as_now(void)
{
	struct ferry_hot_sweep sweep = { .now = 20000, .last = 19500, .number = 1 };
	uint32_t ahead, word;
	uint8_t byte;

	for (ahead = 0; ahead <= FERRY_HOT8_AHEAD_MS; ahead++) {
		ferry_hot_defaults(FERRY_HOT_DEFAULT, &params);
		byte = ferry_hot8_access(0, &params, sweep.now + ahead, 1, 0);
		CHECK(ferry_hot8_aged(byte, &params, &sweep) == byte);
		CHECK(ferry_hot8_view(byte, sweep.now).age == 0);
		CHECK((ferry_hot8_access(byte, &params, sweep.now, 1, 0) & 3) == 2);
	}
	for (ahead = 0; ahead <= FERRY_HOT32_AHEAD_MS; ahead++) {
		ferry_hot_defaults(FERRY_HOT_PRECISE, &params);
		word = ferry_hot32_access(0, &params, sweep.now + ahead, 1, 0, 0);
		CHECK(ferry_hot32_aged(word, &params, &sweep) == word);
		CHECK(ferry_hot32_age_ms(word, sweep.now) == 0);
	}
}

/* Idle records reach class k at twice as many sweeps as class k - 1, and are forgotten last. */
static void idle_records_age_by_powers_of_two(void)
{
	struct ferry_hot_sweep sweep;
	uint32_t start, sweeps, idle, was, word;
	uint8_t byte;

	as_published(FERRY_HOT_PRECISE, 2);
	for (start = 1; start < 2000; start += 37) {
		word = ferry_hot32_access(0, &params, 0, 3, 0, 0);
		byte = ferry_hot8_access(0, &params, 0, 3, 0);
		for (sweeps = 0, was = 1; sweeps < 3000; sweeps++) {
			sweep = (struct ferry_hot_sweep){ .now = 7000, .last = 6000,
							  .number = start + sweeps };
			word = ferry_hot32_aged(word, &params, &sweep);
			CHECK(word >> 30 == 1);
			idle = word >> 13 & 16383;
			CHECK(idle == was || idle == was + 1);
			if (idle >= 2) {
				CHECK(sweeps >= (uint32_t)1 << (idle - 2));
				CHECK(sweeps < (uint32_t)1 << idle);
			}
			CHECK((word >> 10 & 7) == 3);
			was = idle;
		}
		ferry_hot_defaults(FERRY_HOT_DEFAULT, &params);
		params.cool_sweeps = 0;
		for (sweeps = 0; byte; sweeps++) {
			sweep = (struct ferry_hot_sweep){ .now = 3500, .last = 3000,
							  .number = start + sweeps };
			byte = ferry_hot8_aged(byte, &params, &sweep);
			CHECK(!byte || ferry_hot8_view(byte, 0).freq == 3);
		}
		CHECK(sweeps > 64 && sweeps <= 256);
		as_published(FERRY_HOT_PRECISE, 2);
	}
}

/* A page that every walk sees, one that every second sees, and one of which nobody sees more. */
static void cooling_follows_how_often_a_page_is_accessed(void)
{
	struct ferry_hot_sweep sweep = { .now = 1000, .number = 0 };
	uint32_t always = 0, half = 0, once = 0, sum = 0, i;

	as_published(FERRY_HOT_PRECISE, 2);
	params.recall = 7;
	params.cool_sweeps = 1;
	once = ferry_hot32_access(once, &params, sweep.now, 1, 0, 0);
	CHECK(ferry_hot32_view(once, sweep.now).eighths == 8);
	for (i = 0; i < 100; i++) {
		always = ferry_hot32_access(always, &params, sweep.now, 1, 0, 0);
		if (i % 2)
			half = ferry_hot32_access(half, &params, sweep.now, 1, 0, 0);
		sweep.last = sweep.now;
		sweep.now += 250;
		sweep.number++;
		always = ferry_hot32_aged(always, &params, &sweep);
		half = ferry_hot32_aged(half, &params, &sweep);
		once = ferry_hot32_aged(once, &params, &sweep);
		if (i >= 20) {
			CHECK(ferry_hot32_view(always, sweep.now).eighths == 49);
			sum += ferry_hot32_view(half, sweep.now).eighths;
		}
		if (i == 0)
			CHECK(ferry_hot32_view(once, sweep.now).eighths == 7);
	}
	CHECK(sum > 80 * 20 && sum < 80 * 32);
	/* Cooling alone forgets nothing. */
	CHECK(ferry_hot32_view(once, sweep.now).eighths == 1);
	CHECK(ferry_hot32_view(once, sweep.now).freq == 1);
	/* Where levels are powers, it takes a level. */
	params.step = 2;
	sweep.number++;
	always = ferry_hot32_aged(always, &params, &sweep);
	CHECK(ferry_hot32_view(always, sweep.now).eighths == 41);
}

/* Any records, neighbours of which are alike for a while: eight of them are counted at once. */
static void fill_with_runs(uint8_t *records, size_t nr)
{
	size_t i;

	for (i = 0; i < nr; i++)
		records[i] = i && tap_random(12) ? records[i - 1] :
			     random32() % 3 ? random32() : 0;
}

static void sweeps_equal_aging_one_by_one(void)
{
	struct ferry_hot_sweep sweep;
	struct ferry_hot_view view;
	size_t n, i, changed;
	int round;

	for (round = 0; round < 1500; round++) {
		ferry_hot_defaults(FERRY_HOT_DEFAULT, &params);
		params.window_ms = 256 + random32() % 3400;
		params.cool_sweeps = random32() % 4;
		n = round % 5 ? tap_random(MANY) : MANY;
		sweep.now = random32();
		sweep.last = sweep.now - tap_random(params.sweep_ms + 50);
		sweep.number = random32() % 600 + 1;
		if (round % 3)
			sweep.number &= ~(((uint32_t)1 << round % 9) - 1);
		memset(&histogram, 0, sizeof(histogram));
		memset(&other, 0, sizeof(other));
		for (i = 0; i < n; i++)
			bytes[i] = random32();
		if (round % 3)
			fill_with_runs(bytes, n);
		memcpy(bytes_before, bytes, n);
		changed = ferry_hot8_sweep(bytes, n, &params, &sweep, &histogram);
		for (i = 0; i < n; i++) {
			CHECK(bytes[i] == ferry_hot8_aged(bytes_before[i], &params, &sweep));
			changed -= bytes[i] != bytes_before[i];
			view = ferry_hot8_view(bytes[i], sweep.now);
			other.pages[view.eighths][view.age]++;
		}
		CHECK(changed == 0);
		CHECK(!memcmp(&histogram, &other, sizeof(other)));
		memset(&histogram, 0, sizeof(histogram));
		memcpy(bytes_before, bytes, n);
		ferry_hot8_count(bytes, n, sweep.now, &histogram);
		CHECK(!memcmp(bytes, bytes_before, n));
		CHECK(!memcmp(&histogram, &other, sizeof(other)));

		memset(&histogram, 0, sizeof(histogram));
		memset(&other, 0, sizeof(other));
		for (i = 0; i < n; i++)
			words[i] = words_before[i] = random32() % 3 ? random32() : 0;
		changed = ferry_hot32_sweep(words, n, &params, &sweep, &histogram);
		for (i = 0; i < n; i++) {
			CHECK(words[i] == ferry_hot32_aged(words_before[i], &params, &sweep));
			changed -= words[i] != words_before[i];
		}
		CHECK(changed == 0);
		ferry_hot32_count(words, n, sweep.now, &other);
		CHECK(!memcmp(&histogram, &other, sizeof(other)));
	}
}

static void a_claimed_page_keeps_its_rank(void)
{
	uint8_t byte;
	uint32_t word;

	ferry_hot_defaults(FERRY_HOT_DEFAULT, &params);
	byte = ferry_hot8_access(0, &params, 700, 2, 0);
	CHECK(byte & FERRY_HOT8_READY);
	CHECK(ferry_hot8_claim(byte) == (byte & 0x7f));
	CHECK(ferry_hot8_unclaim(ferry_hot8_claim(byte)) == byte);
	CHECK(ferry_hot8_unclaim(0) == 0 && ferry_hot8_unclaim(0x7c) == 0x7c);
	word = ferry_hot32_access(0, &params, 700, 2, 0, 3);
	CHECK(ferry_hot32_unclaim(ferry_hot32_claim(word)) == word);
	CHECK(ferry_hot32_unclaim(0) == 0);
	CHECK(ferry_hot32_unclaim(1 << 30 | 1 << 13 | 1 << 10) >> 31 == 0);
}

static void finding_finds_the_heats_asked_for(void)
{
	uint32_t found[8], n, i, expected = 0, least, most, heat;
	struct ferry_hot_view view;
	size_t from = 0;

	ferry_hot_defaults(FERRY_HOT_DEFAULT, &params);
	for (i = 0; i < MANY; i++)
		words[i] = random32();
	for (least = 0; least < 40; least += 3) {
		most = least + 4;
		for (i = 0; i < MANY; i++)
			bytes[i] = random32();
		if (least % 2)
			fill_with_runs(bytes, MANY);
		for (from = 0, expected = 0; from < MANY; ) {
			n = ferry_hot8_find(bytes, MANY, &from, &params, 77, least, most, found, 8);
			CHECK(n == 8 || from == MANY);
			for (i = 0; i < n; i++, expected++) {
				for (; expected < found[i]; expected++) {
					view = ferry_hot8_view(bytes[expected], 77);
					heat = ferry_hot_heat(&params, view.eighths, view.age);
					CHECK(heat < least || heat > most);
				}
				view = ferry_hot8_view(bytes[found[i]], 77);
				heat = ferry_hot_heat(&params, view.eighths, view.age);
				CHECK(heat >= least && heat <= most);
			}
		}
		for (; expected < MANY; expected++) {
			view = ferry_hot8_view(bytes[expected], 77);
			heat = ferry_hot_heat(&params, view.eighths, view.age);
			CHECK(heat < least || heat > most);
		}
		for (from = 0, expected = 0; from < MANY; )
			expected += ferry_hot32_find(words, MANY, &from, &params, 77, least, most,
						     found, 8);
		for (i = 0; i < MANY; i++) {
			view = ferry_hot32_view(words[i], 77);
			heat = ferry_hot_heat(&params, view.eighths, view.age);
			expected -= heat >= least && heat <= most;
		}
		CHECK(expected == 0);
	}
}

static void heat_and_worth_rise_together(void)
{
	uint32_t eighths, age, heat, next;

	ferry_hot_defaults(FERRY_HOT_PRECISE, &params);
	for (params.freq_shift = 0; params.freq_shift <= 4; params.freq_shift++) {
		CHECK(ferry_hot_worth(&params, 0) == 0);
		for (heat = 1; heat < FERRY_HOT_HEATS; heat++)
			CHECK(ferry_hot_worth(&params, heat) >= ferry_hot_worth(&params, heat - 1));
		for (eighths = 1; eighths < FERRY_HOT_EIGHTHS; eighths++) {
			heat = ferry_hot_heat(&params, eighths, 0);
			next = ferry_hot_heat(&params, eighths + 1, 0);
			CHECK(heat < FERRY_HOT_HEATS && next >= heat);
			CHECK(params.freq_shift < 3 || next > heat);
			if (eighths % 8 == 0)
				CHECK(ferry_hot_worth(&params, heat) ==
				      256 * ferry_hot_accesses(&params, eighths / 8));
			for (age = 1; age < FERRY_HOT_AGES; age++)
				CHECK(ferry_hot_heat(&params, eighths, age) == heat - age);
			CHECK(ferry_hot_heat(&params, eighths, FERRY_HOT_AGES - 1) >= 1);
		}
	}
}

/* The pages of a histogram one by one: how many have each heat. */
static void heats_of(const struct ferry_hot_histogram *of, uint32_t least_freq, uint64_t *pages)
{
	uint32_t eighths, age;

	memset(pages, 0, FERRY_HOT_HEATS * sizeof(*pages));
	for (eighths = least_freq ? 8 * least_freq - 7 : 0; eighths < FERRY_HOT_EIGHTHS; eighths++)
		for (age = 0; age < FERRY_HOT_AGES; age++)
			pages[ferry_hot_heat(&params, eighths, age)] += of->pages[eighths][age];
}

static void fill(struct ferry_hot_histogram *of)
{
	uint32_t eighths, age;

	memset(of, 0, sizeof(*of));
	of->pages[0][FERRY_HOT_AGES - 1] = tap_random(50);
	for (eighths = 1; eighths < FERRY_HOT_EIGHTHS; eighths++)
		for (age = 0; age < FERRY_HOT_AGES; age++)
			of->pages[eighths][age] = tap_random(9) ? 0 : tap_random(20);
}

static void the_cut_fills_the_budget_with_the_hottest(void)
{
	static uint64_t heats[FERRY_HOT_HEATS];
	uint64_t budget, above;
	struct ferry_hot_cut cut;
	uint32_t heat, least, round;

	for (round = 0; round < 3000; round++) {
		ferry_hot_defaults(FERRY_HOT_PRECISE, &params);
		params.freq_shift = round % 5;
		fill(&histogram);
		least = round % 4;
		budget = tap_random(600);
		heats_of(&histogram, least, heats);
		ferry_hot_cut(&params, &histogram, least, budget, &cut);
		for (above = 0, heat = cut.heat + 1; heat < FERRY_HOT_HEATS; heat++)
			above += heats[heat];
		CHECK(cut.above == above && above + cut.room == budget);
		CHECK(cut.heat == 0 || cut.room < heats[cut.heat]);
	}
}

static void an_exchange_is_as_good_as_pairing_pages(void)
{
	static uint64_t hots[FERRY_HOT_HEATS], colds[FERRY_HOT_HEATS];
	uint64_t budget, pairs;
	struct ferry_hot_exchange exchange;
	uint32_t hot, cold, round;

	for (round = 0; round < 3000; round++) {
		ferry_hot_defaults(FERRY_HOT_PRECISE, &params);
		params.cost = tap_random(40);
		params.freq_shift = round % 5;
		fill(&histogram);
		fill(&other);
		budget = tap_random(400);
		heats_of(&histogram, 0, colds);
		heats_of(&other, params.threshold, hots);
		ferry_hot_exchange(&params, &histogram, &other, budget, &exchange);
		hot = FERRY_HOT_HEATS - 1;
		cold = 0;
		for (pairs = 0; pairs < budget; pairs++) {
			while (hot && !hots[hot])
				hot--;
			while (cold < hot && !colds[cold])
				cold++;
			if (hot <= cold || ferry_hot_worth(&params, hot) <=
			    ferry_hot_worth(&params, cold) + 256 * (uint64_t)params.cost)
				break;
			hots[hot]--;
			colds[cold]--;
		}
		CHECK(exchange.pages == pairs);
		if (!pairs)
			continue;
		/* The next hotter one would be no bargain for the least hot one that comes. */
		cold = ferry_hot_coldest(&params, exchange.hot);
		CHECK(cold >= exchange.cold && cold < exchange.hot);
		CHECK(ferry_hot_worth(&params, exchange.hot) >
		      ferry_hot_worth(&params, cold) + 256 * (uint64_t)params.cost);
		CHECK(ferry_hot_worth(&params, exchange.hot) <=
		      ferry_hot_worth(&params, cold + 1) + 256 * (uint64_t)params.cost);
		heats_of(&histogram, 0, colds);
		heats_of(&other, params.threshold, hots);
		pairs = exchange.hot_room;
		for (hot = exchange.hot + 1; hot < FERRY_HOT_HEATS; hot++)
			pairs += hots[hot];
		CHECK(pairs == exchange.pages && exchange.hot_room <= hots[exchange.hot]);
		for (pairs = exchange.cold_room, cold = 0; cold < exchange.cold; cold++)
			pairs += colds[cold];
		CHECK(pairs == exchange.pages && exchange.cold_room <= colds[exchange.cold]);
	}
}

static void the_majority_prevails(void)
{
	uint16_t majority = 0;
	uint32_t i, node;

	CHECK(ferry_hot_majority_node(majority) == FERRY_HOT_NO_NODE);
	for (i = 0; i < 100000; i++) {
		node = tap_random(100) < 65 ? 1022 : tap_random(1022);
		majority = ferry_hot_majority(majority, node);
		CHECK(i < 1000 || ferry_hot_majority_node(majority) == 1022);
	}
	CHECK(ferry_hot_majority(majority, FERRY_HOT_NO_NODE) == majority);
	/* Another user takes over, after no more accesses than the count can hold. */
	for (i = 0; ferry_hot_majority_node(majority) != 5; i++)
		majority = ferry_hot_majority(majority, 5);
	CHECK(i <= 64);
}

static void pages_that_go_up_and_down_are_counted(void)
{
	uint32_t bounced, total = 0, i;
	uint16_t entry = 0;

	entry = ferry_hot_demoted(entry, 9);
	CHECK(entry == 0);
	for (i = 0; i < 20; i++) {
		entry = ferry_hot_promoted(entry, 0x309, &bounced);
		total += bounced;
		CHECK(ferry_hot_bounces(entry, 9) == (i < 7 ? i : 7));
		CHECK(ferry_hot_bounces(entry, 10) == 0);
		CHECK(ferry_hot_promoted(entry, 9, &bounced) == entry && !bounced);
		entry = ferry_hot_demoted(entry, 9);
		CHECK(ferry_hot_demoted(entry, 9) == entry);
	}
	CHECK(total == 19);
	for (i = 0; i < 7; i++) {
		CHECK(ferry_hot_bounces(entry, 9) == 7 - i);
		entry = ferry_hot_bounce_aged(entry);
	}
	CHECK(entry && ferry_hot_bounces(entry, 9) == 0);
	CHECK(ferry_hot_bounce_aged(entry) == 0);
	/* Another page in the same entry begins without bounces. */
	entry = ferry_hot_promoted(ferry_hot_demoted(ferry_hot_promoted(0, 1, &bounced), 1), 2,
				   &bounced);
	CHECK(!bounced && ferry_hot_bounces(entry, 2) == 0);
}

static const struct tap_test tests[] = {
	TEST(defaults_are_sound),
	TEST(numbers_out_of_range_are_named),
	TEST(frequency_counts_up_to_its_maximum),
	TEST(an_access_after_the_window_starts_anew),
	TEST(levels_above_the_threshold_take_their_share_of_accesses),
	TEST(no_age_looks_less_in_default_mode),
	TEST(no_age_looks_less_in_precision_mode),
	TEST(a_late_sweep_trusts_no_time),
	TEST(a_time_ahead_counts_as_now),
	TEST(idle_records_age_by_powers_of_two),
	TEST(cooling_follows_how_often_a_page_is_accessed),
	TEST(sweeps_equal_aging_one_by_one),
	TEST(a_claimed_page_keeps_its_rank),
	TEST(finding_finds_the_heats_asked_for),
	TEST(heat_and_worth_rise_together),
	TEST(the_cut_fills_the_budget_with_the_hottest),
	TEST(an_exchange_is_as_good_as_pairing_pages),
	TEST(the_majority_prevails),
	TEST(pages_that_go_up_and_down_are_counted),
};

TAP_SUITE(hotness, tests)
