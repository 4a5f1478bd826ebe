// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Which option copies a batch: a bandit that may not lose against its first arm.
 *
 * The constraint is that of Wu, Shariff, Lattimore and Szepesvari, Conservative Bandits (ICML
 * 2016): another option is tried only while even its worst cost leaves the total within a
 * share of the default's. They bound every prefix; here it is every 64 batches as well. An
 * option is used once its upper confidence bound lies below the lower one of the plain copy,
 * as arms are eliminated by Even-Dar, Mannor and Mansour (JMLR 2006). Mean and mean deviation
 * are kept as TCP does (Jacobson 1988), each sample clipped (Huber 1964), since one that was
 * preempted takes ten times as long.
 */
#ifdef __KERNEL__
#include <linux/memferry/choose.h>
#else
#include <memferry/choose.h>
#endif

/* log2 of the smallest size, and of the bytes that costs are given for. */
#define SIZE_SHIFT	14
#define COST_SHIFT	22

/* Half a second per 4 MiB, 8 MB/s: anything slower counts as that, so that 32 bits suffice. */
#define COST_MAX	((uint32_t)1 << 29)

/* No cost is as high. */
#define COST_NONE	(~(uint32_t)0)

/* A time that fits 64 bits beside COST_SHIFT: an hour. */
#define NS_MAX		((uint64_t)1 << 42)

/* From here on old samples fade. With noise of ±20 % two such means differ by 0.5 % by chance. */
#define SAMPLES_MAX	512

/* Fewer samples of the plain copy are no ground to leave it. */
#define SAMPLES_LEAST	8

/* The CPU lanes' part of a split, in 256ths: to begin with, and at least; at most the rest. */
#define SHARE_HALF	((uint32_t)128)
#define SHARE_LEAST	((uint32_t)8)

/*
 * So many samples in a row that are far below, or far above, are a new cost. Those of one move may
 * be dear together, where a helper's CPU was taken away.
 */
#define STREAK		4
#define STREAK_DEAR	8

/* So many first times of an option may be dearer than was assumed. */
#define ASSUMED_MOST	2

/*
 * Shares of the time: an option that looks faster is used although it may be 1/128 above plain,
 * or gains of 2 % would be lost in the noise. A trial may cost as much as leaves 64 batches
 * 5/256 above plain; 50 of them, as sizes vary, but all for a batch that cannot be divided: what
 * starts in 100 us is tried for a huge page that takes 208 us, not only from 440 us on. Trials of
 * options that may be better may cost 1/64 of all time, and those that look for changes 1/256.
 */
#define USE_SHIFT	7
#define SLACK_SHARE	5
#define SLACK_BATCHES	50
#define SLACK_WHOLE	63
#define BANK_SHIFT	6

/* A smaller part is tried if this one may take so many times what the whole takes now. */
#define TRIAL_MOST	6

/*
 * What an untried option may take at most, beside its start-up, in quarters of the plain copy's
 * time: for a part of a batch, and for one that has too few folios to be divided. Of the rows that
 * were published for idle machines the slowest takes 3.7 times as long (dcbm, base pages); of
 * those for one huge page 2.05 times, waking a helper included.
 */
#define UNTRIED_PART	32
#define UNTRIED_WHOLE	7

/* 3 standard errors in 64ths of the mean deviation, 3 * 1.25 / sqrt(n), by log2 of n. */
static const uint8_t ferry_choose_margins[] = { 240, 170, 120, 85, 60, 42, 30, 21, 15, 8 };

static uint32_t ferry_choose_log2(uint64_t value)
{
	uint32_t log = 0;

	while (value >>= 1)
		log++;
	return log;
}

/**
 * ferry_choose_size - index of the costs of a batch
 * @bytes: of the batch
 *
 * Size k is that of 2^(14 + k) bytes: from 2/3 of it to, not including, 4/3. So a batch that misses
 * a small part of a power of two has the same size.
 *
 * Return: below FERRY_CHOOSE_SIZES.
 */
uint32_t ferry_choose_size(uint64_t bytes)
{
	uint32_t log = ferry_choose_log2((bytes + bytes / 2) >> SIZE_SHIFT);

	return log < FERRY_CHOOSE_SIZES ? log : FERRY_CHOOSE_SIZES - 1;
}

static uint64_t ferry_choose_ns(uint32_t cost, uint64_t bytes)
{
	return cost * (bytes >> 12) >> (COST_SHIFT - 12);
}

/* @ns * 2^22 / @bytes: by the first 16 bits of @bytes, in digits, as pace.c divides. */
static uint32_t ferry_choose_cost(uint64_t ns, uint64_t bytes)
{
	uint32_t exponent = ferry_choose_log2(bytes), divisor, left = 0;
	uint64_t quotient = 0;
	int shift;

	ns = (ns < NS_MAX ? ns : NS_MAX - 1) << COST_SHIFT;
	exponent = exponent > 15 ? exponent - 15 : 0;
	divisor = (uint32_t)(bytes >> exponent);
	for (shift = 48; shift >= 0; shift -= 16) {
		left = left << 16 | ((uint32_t)(ns >> shift) & 0xffff);
		quotient = quotient << 16 | left / divisor;
		left %= divisor;
	}
	quotient >>= exponent;
	return quotient < 1 ? 1 : quotient < COST_MAX ? (uint32_t)quotient : COST_MAX;
}

/*
 * What is known of @option at @size: if nothing, then at the next smaller size, down to @low,
 * where it takes no less per byte; NULL if no cost has @least samples.
 */
static const struct ferry_choose_cost *ferry_choose_known(const struct ferry_choose *choose,
							  uint32_t option, uint32_t size,
							  uint32_t low, uint32_t least)
{
	const struct ferry_choose_cost *cost = &choose->costs[option][size];

	while (cost->samples < least) {
		if (size-- == low)
			return NULL;
		cost--;
	}
	return cost;
}

static bool ferry_choose_usable(const struct ferry_choose_option *option,
				const struct ferry_batch *batch)
{
	return option->cpus <= batch->cpus && option->channels <= batch->channels;
}

/* The usable option with the lowest upper bound, if that is about below plain's lower bound. */
static uint32_t ferry_choose_best(const struct ferry_choose *choose,
				  const struct ferry_batch *batch, uint32_t size)
{
	const struct ferry_choose_cost *cost;
	uint32_t best = FERRY_CHOOSE_PLAIN, low = size > 2 ? size - 2 : 0, plain, least, k;

	cost = ferry_choose_known(choose, best, size, low, SAMPLES_LEAST);
	if (!cost)
		return best;
	plain = cost->mean;
	least = plain + (plain >> USE_SHIFT);
	least = least > cost->margin ? least - cost->margin : 0;
	for (k = 1; k < choose->nr_options; k++) {
		cost = ferry_choose_known(choose, k, size, low, 1);
		/* Few pass the first test, which keeps a decision short. */
		if (cost && cost->mean + cost->margin < least && cost->mean < plain &&
		    ferry_choose_usable(&choose->options[k], batch)) {
			least = cost->mean + cost->margin;
			best = k;
		}
	}
	return best;
}

/*
 * The least that @option may cost at @size, by what is known of it there and of smaller sizes:
 * more bytes take no less time, and per byte no less than there without the start-up. Old
 * samples do not outweigh the next larger size, of which this one takes at most twice.
 */
static uint32_t ferry_choose_least(const struct ferry_choose *choose, uint32_t option,
				   uint32_t size)
{
	const struct ferry_choose_cost *cost = choose->costs[option];
	uint64_t start = choose->options[option].start_ns;
	uint32_t least = 0, low, i;

	start <<= COST_SHIFT - SIZE_SHIFT + 1;
	for (i = 0; i <= size; i++, cost++, start >>= 1) {
		if (!cost->samples || cost->mean <= cost->margin)
			continue;
		low = cost->mean - cost->margin;
		if (i < size)
			low = low > start && low - start > low >> (size - i) ?
				low - (uint32_t)start : low >> (size - i);
		if (low > least)
			least = low;
	}
	if (size + 1 < FERRY_CHOOSE_SIZES && cost->samples && 2 * cost->mean < least)
		least = 2 * cost->mean;
	return least;
}

/*
 * The most that @option takes for @bytes: no more per byte than a smaller size takes, and
 * @untried_ns beside its start-up if no such size is known.
 */
static uint64_t ferry_choose_worst(const struct ferry_choose *choose, uint32_t option,
				   uint64_t bytes, uint64_t untried_ns)
{
	const struct ferry_choose_cost *cost = choose->costs[option];
	uint32_t size = ferry_choose_size(bytes), least = COST_NONE, i;

	for (i = 0; i <= size; i++)
		if (cost[i].samples && cost[i].mean + cost[i].spread < least)
			least = cost[i].mean + cost[i].spread;
	if (least == COST_NONE)
		return choose->options[option].start_ns + untried_ns;
	return ferry_choose_ns(least, bytes);
}

/*
 * Makes @trial one of @option in place of @used: by the whole batch or, if 64 batches cannot afford
 * that, by a part; of no bytes if there is none. Returns how much longer it may take.
 */
static uint64_t ferry_choose_price(const struct ferry_choose *choose,
				   const struct ferry_batch *batch, uint32_t size, uint32_t used,
				   uint32_t option, struct ferry_choice *trial)
{
	uint32_t plain = choose->costs[FERRY_CHOOSE_PLAIN][size].mean;
	uint32_t mean = choose->costs[used][size].mean;
	uint32_t untried = batch->folio_bytes > batch->bytes / 8 ? UNTRIED_WHOLE : UNTRIED_PART;
	uint64_t most = TRIAL_MOST * ferry_choose_ns(mean, batch->bytes);
	uint32_t shift, batches = untried == UNTRIED_WHOLE ? SLACK_WHOLE : SLACK_BATCHES;
	uint64_t part = batch->bytes, smaller, worst, plain_ns, used_ns;

	*trial = (struct ferry_choice){ .option = option, .trial = true };
	/* The rest of three quarters or more still has the size of the whole, and its option. */
	for (shift = used ? 2 : 1; part >> SIZE_SHIFT; shift++, part = smaller) {
		smaller = batch->bytes >> shift & ~(batch->folio_bytes - 1);
		plain_ns = ferry_choose_ns(plain, part);
		worst = ferry_choose_worst(choose, option, part, plain_ns * untried / 4);
		/* What was too dear waits for its whole price, or it would never be seen again. */
		if (worst <= plain_ns + choose->slack * batches ||
		    (!trial->bytes && !(smaller >> SIZE_SHIFT) &&
		     choose->costs[option][ferry_choose_size(part)].samples)) {
			trial->bytes = part;
			trial->most_ns = worst;
			if (worst <= most)
				break;
		}
	}
	used_ns = ferry_choose_ns(mean, trial->bytes);
	return trial->most_ns > used_ns ? trial->most_ns - used_ns : 0;
}

/*
 * Makes @choice a trial if one can be afforded: in turns of the option that may be better, which is
 * the one with the lowest lower bound if that is below what is used, and of one after the other, so
 * that changes are found. Each kind saves up for itself. Of the first kind an option that waits for
 * its price keeps no other one from being tried.
 */
static void ferry_choose_try(struct ferry_choose *choose, const struct ferry_batch *batch,
			     uint32_t size, struct ferry_choice *choice)
{
	uint32_t kind = choose->turn = !choose->turn, option = kind ? choose->next : 0;
	uint32_t used = choice->option, least = choose->costs[used][size].mean, low, k;
	struct ferry_choice trial;
	uint64_t extra, price = 0;

	/* If none can be afforded the other kind is asked 16 batches later. */
	choose->since = FERRY_CHOOSE_TRIAL - 16;
	for (k = 0; k < choose->nr_options; k++, option++) {
		option = option < choose->nr_options ? option : 0;
		if (option == used || !ferry_choose_usable(&choose->options[option], batch))
			continue;
		low = kind ? 0 : ferry_choose_least(choose, option, size);
		if (low >= least)
			continue;
		extra = ferry_choose_price(choose, batch, size, used, option, &trial);
		if (trial.bytes && extra <= choose->bank[kind]) {
			least = low;
			price = extra;
			*choice = trial;
			choose->since = 0;
		}
		if (kind) {
			choose->next = option + (extra <= choose->bank[kind]);
			break;
		}
	}
	choose->bank[kind] -= price;
}

/* Counts a batch that costs @plain_ns or, by the option in use, @used_ns. */
static void ferry_choose_account(struct ferry_choose *choose, uint64_t plain_ns, uint64_t used_ns)
{
	uint64_t most = plain_ns + (plain_ns >> 8) * SLACK_SHARE;
	uint64_t slack = most > used_ns ? most - used_ns : 0;

	choose->bank[0] += used_ns >> BANK_SHIFT;
	choose->bank[1] += used_ns >> BANK_SHIFT >> 2;
	/* A rare large batch says little about the next 64. */
	if (slack > 2 * choose->slack + 64)
		slack = 2 * choose->slack + 64;
	choose->slack += slack >> 6;
	choose->slack -= choose->slack >> 6;
}

/**
 * ferry_choose_start - begin, with nothing known
 * @choose: receives the state
 * @options: the caller's options; the first one is the plain copy
 * @nr_options: how many, 1 to FERRY_CHOOSE_OPTIONS
 */
void ferry_choose_start(struct ferry_choose *choose, const struct ferry_choose_option *options,
			uint32_t nr_options)
{
	uint32_t k;

	*choose = (struct ferry_choose){ .nr_options = nr_options };
	for (k = 0; k < nr_options; k++)
		choose->options[k] = options[k];
}

/**
 * ferry_choose - what copies this batch
 * @choose: the class of the batch
 * @batch: the batch
 * @choice: receives the answer; ferry_choose_learn() should follow
 *
 * 90 instructions and 20 per option, on x86-64 at -O2, trials included.
 */
void ferry_choose(struct ferry_choose *choose, const struct ferry_batch *batch,
		  struct ferry_choice *choice)
{
	uint32_t size = ferry_choose_size(batch->bytes), share;
	const struct ferry_choose_option *option;

	*choice = (struct ferry_choice){
		.bytes = batch->bytes, .option = ferry_choose_best(choose, batch, size),
	};
	choose->since++;
	/* One more, as the rest of a batch that was tried in part counts, too. */
	if (choose->since > FERRY_CHOOSE_TRIAL && !batch->urgent) {
		if (choose->costs[FERRY_CHOOSE_PLAIN][size].samples >= SAMPLES_LEAST) {
			ferry_choose_try(choose, batch, size, choice);
		} else if (choice->option != FERRY_CHOOSE_PLAIN) {
			/* A smaller size chose: plain, which prices trials, was not used. */
			choose->since = 0;
			choice->option = FERRY_CHOOSE_PLAIN;
			choice->most_ns = NS_MAX;
			choice->trial = true;
		}
	}
	option = &choose->options[choice->option];
	if (option->cpus && option->channels) {
		share = choose->costs[choice->option][ferry_choose_size(choice->bytes)].cpu_share;
		share = share ? share : SHARE_HALF;
		choice->cpu_bytes = (choice->bytes * share >> 8) & ~(batch->folio_bytes - 1);
	}
}

/**
 * ferry_choose_pass - the plain copy carries a batch, and its time is not taken
 * @choose: its class
 * @bytes: of the batch
 *
 * It took what such batches take, and pays for trials as one that is measured does.
 */
void ferry_choose_pass(struct ferry_choose *choose, uint64_t bytes)
{
	const struct ferry_choose_cost *plain =
		&choose->costs[FERRY_CHOOSE_PLAIN][ferry_choose_size(bytes)];
	uint64_t ns = ferry_choose_ns(plain->mean, bytes);

	if (plain->samples >= SAMPLES_LEAST)
		ferry_choose_account(choose, ns, ns);
}

/**
 * ferry_choose_learn - how long a batch took
 * @choose: its class
 * @choice: the answer that was followed; not if the option declined or failed
 * @ns: time of copying @choice->bytes
 *
 * About 300 instructions.
 */
void ferry_choose_learn(struct ferry_choose *choose, const struct ferry_choice *choice,
			uint64_t ns)
{
	uint32_t size = ferry_choose_size(choice->bytes);
	const struct ferry_choose_cost *plain = &choose->costs[FERRY_CHOOSE_PLAIN][size];
	struct ferry_choose_cost *known = &choose->costs[choice->option][size];
	/* A copy: two calls that race store two sound costs, of which one is lost. */
	struct ferry_choose_cost cost = *known;
	int32_t now = (int32_t)ferry_choose_cost(ns, choice->bytes);
	int32_t error = now - (int32_t)cost.mean, distance;
	int32_t far = (int32_t)(2 * cost.spread + cost.mean / 16);
	/* Times that counted as assumed; a measured cost of one sample has no streak. */
	int32_t assumed = cost.samples ? cost.streak : 0;
	bool is_new = !cost.samples || (cost.samples == 1 && assumed > 0);

	if (error > far) {
		cost.streak = cost.streak > 0 ? cost.streak + 1 : 1;
		error = far;
	} else if (error < -far) {
		cost.streak = cost.streak < 0 ? cost.streak - 1 : -1;
		error = -far;
	} else {
		cost.streak = 0;
	}
	if (is_new && assumed < ASSUMED_MOST && choice->trial && ns > choice->most_ns) {
		/*
		 * The first times of an option wake threads and fill caches. They count as what was
		 * assumed, which can be afforded again; the next one counts as it is.
		 */
		cost.mean = ferry_choose_cost(choice->most_ns, choice->bytes) / 5 * 4;
		cost.spread = cost.mean / 4;
		cost.samples = 1;
		cost.streak = (int8_t)(assumed + 1);
	} else if (is_new || cost.streak >= STREAK_DEAR || cost.streak <= -STREAK ||
		   (cost.streak < 0 && cost.samples < STREAK)) {
		/* Of few samples the dear ones were preempted, or woke what had slept. */
		cost.mean = (uint32_t)now;
		cost.spread = cost.mean / 4;
		cost.samples = 1;
		cost.streak = 0;
	} else {
		if (cost.samples < SAMPLES_MAX)
			cost.samples++;
		cost.mean += (uint32_t)(error / cost.samples);
		distance = (error < 0 ? -error : error) - (int32_t)cost.spread;
		cost.spread += (uint32_t)(distance / (cost.samples < 16 ? cost.samples : 16));
	}
	cost.margin = (uint32_t)((uint64_t)cost.spread *
				 ferry_choose_margins[ferry_choose_log2(cost.samples)] >> 6);
	*known = cost;
	if (!choice->trial && plain->samples >= SAMPLES_LEAST)
		ferry_choose_account(choose, ferry_choose_ns(plain->mean, choice->bytes),
				     ferry_choose_ns(cost.mean, choice->bytes));
}

/**
 * ferry_choose_learn_split - how long both parts of a split took
 * @choose: its class
 * @choice: the answer that was followed
 * @cpu_ns: time of the CPU lanes
 * @channel_ns: time of the channels
 *
 * The next split of this size ends sooner on the side that was later; this goes half the way.
 */
void ferry_choose_learn_split(struct ferry_choose *choose, const struct ferry_choice *choice,
			      uint64_t cpu_ns, uint64_t channel_ns)
{
	uint8_t *share = &choose->costs[choice->option][ferry_choose_size(choice->bytes)].cpu_share;
	uint32_t now = *share ? *share : SHARE_HALF, cpu, channel;

	while ((cpu_ns | channel_ns) >> 16) {
		cpu_ns >>= 1;
		channel_ns >>= 1;
	}
	/* Each side's bytes per time. */
	cpu = now * (uint32_t)channel_ns;
	channel = (256 - now) * (uint32_t)cpu_ns;
	now = (now + cpu / (((cpu + channel) >> 8) + 1) + 1) / 2;
	now = now > SHARE_LEAST ? now : SHARE_LEAST;
	*share = (uint8_t)(now < 256 - SHARE_LEAST ? now : 256 - SHARE_LEAST);
}
