// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * One round of tiering, in numbers: room for new pages, free space for hot ones, and how much
 * hotter than the border a page must be that went up and down before.
 */
#ifdef __KERNEL__
#include <linux/memferry/balance.h>
#else
#include <memferry/balance.h>
#endif

/**
 * ferry_balance_defaults - numbers for a source that walks page tables four times a second
 * @format: FERRY_HOT_DEFAULT or FERRY_HOT_PRECISE
 * @hot: receives those of the records
 * @params: receives those of the rounds, of 250 ms
 *
 * Chosen by replays of six traces; docs/design/replay.md has what others gave. An access then is
 * "touched within a quarter of a second", and a touch at every walk holds a record at its largest
 * frequency against the cooling of every round. A gain of more than two touches is what a
 * page that two walks in a row saw, as the end of a scan may be, does not have.
 */
void ferry_balance_defaults(uint32_t format, struct ferry_hot_params *hot,
			    struct ferry_balance_params *params)
{
	bool precise = format == FERRY_HOT_PRECISE;

	*hot = (struct ferry_hot_params){
		/* Four walks without a touch, and a page is idle. */
		.window_ms = 1000,
		.threshold = 2,
		.recall = precise ? FERRY_HOT32_FREQ_MAX : FERRY_HOT8_FREQ_MAX,
		.step = 0,
		.sweep_ms = 250,
		/* Without eighths a level each half second: what every second walk saw stays. */
		.cool_sweeps = precise ? 1 : 2,
		.freq_shift = 4,
		.cost = 2,
		.damp = 16,
	};
	*params = (struct ferry_balance_params){
		/* A second's new pages. */
		.rounds = 4,
		/* A half in 1.3 s: a burst of 2 GiB is not kept from hot pages for long. */
		.fade_shift = 3,
		.most_shift = 2,
		/* 16 s, a multiple of the time in which a page's frequency is forgotten. */
		.bounce_rounds = 64,
	};
}

/**
 * ferry_balance_room - how many pages of the top tier make room
 * @balance: the tier's state
 * @params: the numbers
 * @born: pages that were touched first since the last round, wherever they lie
 * @capacity: pages of the tier
 * @free: pages of it that are free
 *
 * New pages are hot, and the only ones whose move up costs nothing.
 *
 * Context: One call per tier and round.
 * Return: pages to demote, the coldest ones of at most ferry_balance_idle() heat.
 */
uint64_t ferry_balance_room(struct ferry_balance *balance,
			    const struct ferry_balance_params *params, uint64_t born,
			    uint64_t capacity, uint64_t free)
{
	uint64_t wanted = born * params->rounds;
	uint64_t most = capacity >> params->most_shift, rest;

	/* Rounded up, so that it ends. */
	rest = ((uint64_t)1 << params->fade_shift) - 1;
	balance->room -= (balance->room + rest) >> params->fade_shift;
	if (balance->room < wanted)
		balance->room = wanted;
	if (balance->room > most)
		balance->room = most;
	/* While nobody comes, room that shrinks asks for no page to leave. */
	return born && balance->room > free ? balance->room - free : 0;
}

/**
 * ferry_balance_idle - up to which heat a page makes room for a new one
 * @hot: the records' numbers
 *
 * Return: the heat of a page that just became idle with one access left.
 */
uint32_t ferry_balance_idle(const struct ferry_hot_params *hot)
{
	return ferry_hot_heat(hot, 8, FERRY_HOT_IDLE_AGE);
}

/**
 * ferry_balance_fill - which pages take the free space
 * @balance: the tier's state, after ferry_balance_room()
 * @hot: the records' numbers
 * @lower: the pages of the lower tier
 * @free: pages of the top tier that are free
 * @budget: pages that the pace lets go
 * @cut: receives the border: hotter ones go, and of its own heat as many as there is room for
 *
 * Only pages that reached the threshold are candidates.
 *
 * Return: pages that may go at most.
 */
uint64_t ferry_balance_fill(const struct ferry_balance *balance,
			    const struct ferry_hot_params *hot,
			    const struct ferry_hot_histogram *lower, uint64_t free,
			    uint64_t budget, struct ferry_hot_cut *cut)
{
	uint64_t room = free > balance->room ? free - balance->room : 0;

	if (room > budget)
		room = budget;
	ferry_hot_cut(hot, lower, hot->threshold, room, cut);
	return room;
}

/**
 * ferry_balance_bar - how hot a page must be to take part in an exchange
 * @hot: the records' numbers
 * @heat: the border, the hot one of struct ferry_hot_exchange
 * @bounces: ferry_hot_bounces() of the page
 *
 * Return: the least heat: each bounce raises the bar.
 */
uint32_t ferry_balance_bar(const struct ferry_hot_params *hot, uint32_t heat, uint32_t bounces)
{
	return heat + hot->damp * bounces;
}

/* Pages in use that reached the threshold. */
static uint64_t ferry_balance_hot(const struct ferry_hot_params *hot,
				  const struct ferry_hot_histogram *histogram)
{
	uint32_t eighths, age;
	uint64_t pages = 0;

	for (eighths = 8 * hot->threshold - 7; eighths < FERRY_HOT_EIGHTHS; eighths++)
		for (age = 0; age < FERRY_HOT_IDLE_AGE; age++)
			pages += histogram->pages[eighths][age];
	return pages;
}

/* Pages that were found accessed, and then no longer. */
static uint64_t ferry_balance_cooled(const struct ferry_hot_histogram *histogram)
{
	uint32_t eighths, age;
	uint64_t pages = 0;

	for (eighths = 1; eighths < FERRY_HOT_EIGHTHS; eighths++)
		for (age = FERRY_HOT_IDLE_AGE; age < FERRY_HOT_AGES; age++)
			pages += histogram->pages[eighths][age];
	return pages;
}

/**
 * ferry_balance_look - after what time accessed bits should be looked at
 * @hot: the records' numbers
 * @top: the pages of the top tier
 * @lower: the pages of the lower tier that may move
 * @free: pages of the top tier that are free for them
 * @came: pages that came up since it was judged last
 * @halvings: how often the time is halved now, up to FERRY_BALANCE_HALVINGS_MAX
 *
 * A page accessed r times a second is found accessed with a chance of 1 - exp(-r t) after the
 * time t. Where all are found, none ranks above another; so the time is right when it tells
 * apart what fits the top tier from what does not: when about as many hot pages wait below as
 * there are places for them above. Halving it changes their ratio tenfold and more, hence the wide
 * band. Pages of the top tier that never were found accessed
 * are no places: those that could leave show in @came.
 *
 * Context: not before records had time to follow the last change: two walks.
 * Return: how often it should be halved: one more or less than now, or the same.
 */
uint32_t ferry_balance_look(const struct ferry_hot_params *hot,
			    const struct ferry_hot_histogram *top,
			    const struct ferry_hot_histogram *lower, uint64_t free, uint64_t came,
			    uint32_t halvings)
{
	uint64_t waiting = ferry_balance_hot(hot, lower);
	uint64_t places = free + ferry_balance_cooled(top);

	if (waiting > 4 * (places + came) && waiting > ferry_balance_hot(hot, top) / 32)
		return ferry_hot_least(halvings + 1, FERRY_BALANCE_HALVINGS_MAX);
	if (halvings && 4 * waiting < places)
		return halvings - 1;
	return halvings;
}
