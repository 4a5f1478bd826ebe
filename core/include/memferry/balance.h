/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Balance: what one round of tiering does. It says whether page tables are worth a walk, and
 * after each sweep of the records how many idle pages leave the top tier so that new ones find
 * room, which pages of the lower tier take what is free beyond that, and which exchange places.
 *
 * Decides only by numbers: the caller finds the pages by their heat, moves them, and keeps
 * to the pace (pace.h). The order is: walk, age the records (hotness.h), room, fill, exchange.
 */
#ifndef MEMFERRY_BALANCE_H
#define MEMFERRY_BALANCE_H

#include "hotness.h"

/**
 * struct ferry_balance_params - how much room is kept for new pages, and when a walk pays
 * @rounds: room for the new pages of so many rounds is kept
 * @fade_shift: it shrinks by 1/2^fade_shift a round once fewer pages come; below 64
 * @most_shift: it is at most 1/2^most_shift of the tier; below 64
 * @bounce_rounds: each how many rounds ferry_hot_bounce_aged() is due
 * @walk_rounds: of so many rounds at least one has a walk
 * @credit_shift: losses count until they are worth 2^credit_shift walks; below 64
 * @born_shift: a round in which more than 1/2^born_shift of the tier's pages are new has a walk;
 *	below 64
 */
struct ferry_balance_params {
	uint32_t rounds;
	uint32_t fade_shift;
	uint32_t most_shift;
	uint32_t bounce_rounds;
	uint32_t walk_rounds;
	uint32_t credit_shift;
	uint32_t born_shift;
};

/**
 * struct ferry_balance - the state of one top tier; the caller zeroes and keeps it
 * @room: pages that are kept free for new ones
 * @credit: what was lost and has not been spent on walks
 * @unwalked: rounds since the last walk
 */
struct ferry_balance {
	uint64_t room;
	uint64_t credit;
	uint32_t unwalked;
};

void ferry_balance_defaults(uint32_t format, struct ferry_hot_params *hot,
			    struct ferry_balance_params *params);
bool ferry_balance_walk(struct ferry_balance *balance,
			const struct ferry_balance_params *params, uint64_t born,
			uint64_t capacity, uint64_t lost, uint64_t cost);
uint64_t ferry_balance_room(struct ferry_balance *balance,
			    const struct ferry_balance_params *params, uint64_t born,
			    uint64_t capacity, uint64_t free);
uint32_t ferry_balance_idle(const struct ferry_hot_params *hot);
uint64_t ferry_balance_fill(const struct ferry_balance *balance,
			    const struct ferry_hot_params *hot,
			    const struct ferry_hot_histogram *lower, uint64_t free,
			    uint64_t budget, struct ferry_hot_cut *cut);
uint32_t ferry_balance_bar(const struct ferry_hot_params *hot, uint32_t heat, uint32_t bounces);

#endif /* MEMFERRY_BALANCE_H */
