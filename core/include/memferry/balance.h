/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Balance: what one round of tiering does. It says after each sweep of the records how many
 * idle pages leave the top tier so that new ones find room, which pages of the lower tier take
 * what is free beyond that, and which exchange places.
 *
 * For a source that tests accessed bits it also says after what time it should look at them.
 *
 * Decides only by numbers: the caller finds the pages by their heat, moves them, and keeps
 * to the pace (pace.h). The order is: age the records (hotness.h), room, fill, exchange.
 */
#ifndef MEMFERRY_BALANCE_H
#define MEMFERRY_BALANCE_H

#include "hotness.h"

/* How often the time between clearing an accessed bit and looking at it is halved at most. */
#define FERRY_BALANCE_HALVINGS_MAX	((uint32_t)5)

/**
 * struct ferry_balance_params - how much room is kept for new pages
 * @rounds: room for the new pages of so many rounds is kept
 * @fade_shift: it shrinks by 1/2^fade_shift a round once fewer pages come; below 64
 * @most_shift: it is at most 1/2^most_shift of the tier; below 64
 * @bounce_rounds: each how many rounds ferry_hot_bounce_aged() is due
 */
struct ferry_balance_params {
	uint32_t rounds;
	uint32_t fade_shift;
	uint32_t most_shift;
	uint32_t bounce_rounds;
};

/**
 * struct ferry_balance - the state of one top tier; the caller zeroes and keeps it
 * @room: pages that are kept free for new ones
 */
struct ferry_balance {
	uint64_t room;
};

void ferry_balance_defaults(uint32_t format, struct ferry_hot_params *hot,
			    struct ferry_balance_params *params);
uint64_t ferry_balance_room(struct ferry_balance *balance,
			    const struct ferry_balance_params *params, uint64_t born,
			    uint64_t capacity, uint64_t free);
uint32_t ferry_balance_idle(const struct ferry_hot_params *hot);
uint64_t ferry_balance_fill(const struct ferry_balance *balance,
			    const struct ferry_hot_params *hot,
			    const struct ferry_hot_histogram *lower, uint64_t free,
			    uint64_t budget, struct ferry_hot_cut *cut);
uint32_t ferry_balance_bar(const struct ferry_hot_params *hot, uint32_t heat, uint32_t bounces);
uint32_t ferry_balance_look(const struct ferry_hot_params *hot,
			    const struct ferry_hot_histogram *top,
			    const struct ferry_hot_histogram *lower, uint64_t free, uint64_t came,
			    uint32_t halvings);

#endif /* MEMFERRY_BALANCE_H */
