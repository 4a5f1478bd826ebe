/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Choose: what copies a batch: the plain copy, one of the caller's options (a migrator with so
 * many lanes), or CPU lanes and DMA channels together.
 *
 * One struct ferry_choose serves one class of work: folios of about one size, pages that are
 * warm or cold. Each batch tells its time, and the class keeps an estimate of it per option and
 * size. It begins with the plain copy. Reasons may share a class: their large batches pay for
 * trials that small ones cannot afford.
 *
 * Estimates are kept by size (log2 of the bytes), in time per byte, and not as start-up time
 * plus time per folio and per byte: a batch tells one number, so a fit of three needs sizes that
 * vary, while a size needs one moving mean and follows any shape of cost (caches, bursts).
 * Folios count through the class. Two facts join the sizes: more bytes take no less time, and
 * no more per byte. So a part of a batch may be tried first, what a larger size may cost is
 * known before it is tried, and for up to four times the bytes a decision holds until then.
 *
 * The caller keeps two calls for one class from running at the same time, or lets them race with
 * plain loads and stores: that costs a sample or a trial, never a wrong index.
 */
#ifndef MEMFERRY_CHOOSE_H
#define MEMFERRY_CHOOSE_H

#include "types.h"

/* The plain copy, six counts of CPU lanes and five of channels by doubling, a few splits. */
#define FERRY_CHOOSE_OPTIONS	16

/* 16 KiB to 64 MiB; what is smaller or larger belongs to the first or the last. */
#define FERRY_CHOOSE_SIZES	13

/* The plain copy: the option that is always there. */
#define FERRY_CHOOSE_PLAIN	0

/* Batches from one trial to the next, at least. */
#define FERRY_CHOOSE_TRIAL	64

/**
 * struct ferry_choose_option - one way to copy
 * @start_ns: the most that its start-up may take: measured or assumed. If that is longer than
 *	a typical batch takes, the class cannot afford to try the option.
 * @cpus: idle CPUs that it needs beside the caller's own
 * @channels: DMA channels that it needs; an option that needs both splits its batches
 */
struct ferry_choose_option {
	uint32_t start_ns;
	uint16_t cpus;
	uint16_t channels;
};

/**
 * struct ferry_choose_cost - what an option was measured to cost at one size
 * @mean: moving mean in ns per 4 MiB
 * @spread: moving mean of the distance from @mean
 * @margin: three standard errors of @mean
 * @samples: how many, up to a limit; 0 if nothing is known
 * @streak: samples in a row that lay far above (or, if negative, below) @mean; above 0 with one
 *	sample, so many times that were dearer than assumed, and @mean is what was assumed
 * @cpu_share: part of the CPU lanes in a split, in 256ths; 0 if never measured
 */
struct ferry_choose_cost {
	uint32_t mean;
	uint32_t spread;
	uint32_t margin;
	uint16_t samples;
	int8_t streak;
	uint8_t cpu_share;
};

/**
 * struct ferry_choose - the state of one class; the caller only keeps it
 * @slack: how much a batch may last longer before the class is 2 % above plain; moving mean, ns
 * @bank: what trials may still cost against the option in use, in ns, for each kind
 * @nr_options: entries of @options, at least 1
 * @since: batches since the last trial
 * @turn: kind of the last trial: 0 of the option that may be better, 1 of one after the other
 * @next: option of the next trial of kind 1
 * @options: the first one is the plain copy
 * @costs: by option and size
 */
struct ferry_choose {
	uint64_t slack;
	uint64_t bank[2];
	uint32_t nr_options;
	uint32_t since;
	uint32_t turn;
	uint32_t next;
	struct ferry_choose_option options[FERRY_CHOOSE_OPTIONS];
	struct ferry_choose_cost costs[FERRY_CHOOSE_OPTIONS][FERRY_CHOOSE_SIZES];
};

/**
 * struct ferry_batch - what is to be copied, and by what it could be
 * @bytes: of all its folios, at least 1
 * @folio_bytes: of one folio, a power of two; parts of a batch are multiples of it
 * @cpus: idle CPUs that could help
 * @channels: DMA channels that are free
 * @urgent: somebody waits for this batch: no trial
 */
struct ferry_batch {
	uint64_t bytes;
	uint64_t folio_bytes;
	uint16_t cpus;
	uint16_t channels;
	bool urgent;
};

/**
 * struct ferry_choice - the answer
 * @bytes: the first so many bytes of the batch; the caller asks again for the rest
 * @cpu_bytes: how many of these CPU lanes copy in a split, while channels copy the others
 * @most_ns: what a trial takes at most, as far as is known or assumed
 * @option: by which
 * @trial: another option is better as far as is known
 */
struct ferry_choice {
	uint64_t bytes;
	uint64_t cpu_bytes;
	uint64_t most_ns;
	uint32_t option;
	bool trial;
};

void ferry_choose_start(struct ferry_choose *choose, const struct ferry_choose_option *options,
			uint32_t nr_options);
void ferry_choose(struct ferry_choose *choose, const struct ferry_batch *batch,
		  struct ferry_choice *choice);
uint32_t ferry_choose_size(uint64_t bytes);
void ferry_choose_pass(struct ferry_choose *choose, uint64_t bytes);
void ferry_choose_learn(struct ferry_choose *choose, const struct ferry_choice *choice,
			uint64_t ns);
void ferry_choose_learn_split(struct ferry_choose *choose, const struct ferry_choice *choice,
			      uint64_t cpu_ns, uint64_t channel_ns);

#endif /* MEMFERRY_CHOOSE_H */
