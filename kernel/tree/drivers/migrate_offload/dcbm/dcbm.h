/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dcbm: DMA channels copy the folios of a migration batch.
 *
 * What the files of the module share. The way of a batch is: migrator.c (deals it to
 * channels), channels.c (which channels there are), lane.c (what a channel copies), and
 * if a channel does not answer, recover.c.
 */
#ifndef _DCBM_H
#define _DCBM_H

#include <linux/completion.h>
#include <linux/dmaengine.h>
#include <linux/memferry/lanes.h>
#include <linux/migrator.h>
#include <linux/minmax.h>
#include <linux/mm_types.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#define DCBM_CHANNELS_MAX	64

/* What callbacks carry: the number of the channel, and above it what is known there. */
#define DCBM_TAG_CHANNEL_BITS	6

/* The least that is worth a channel: descriptors cost about as much as copying this. */
#define DCBM_GRANULE		max_t(u64, FERRY_GRANULE_DEFAULT, PAGE_SIZE)

/*
 * What a channel copies between one mapping and the next: 4 MiB of base pages, a batch of
 * the default size. Channels have these tables, not batches, because a channel that does
 * not answer keeps them.
 */
#define DCBM_ENTRIES		1024

/* Both sides may be cut at different places. */
#define DCBM_DESCS		(2 * DCBM_ENTRIES)

/**
 * enum dcbm_state - what is with a channel
 * @DCBM_EMPTY: no channel
 * @DCBM_READY: it copies
 * @DCBM_RETIRED: it did not answer in time; what it may still write to is in quarantine
 * @DCBM_STOPPED: it was retired, and has been seen to have stopped; it may be used again
 *	when the user says so
 */
enum dcbm_state {
	DCBM_EMPTY,
	DCBM_READY,
	DCBM_RETIRED,
	DCBM_STOPPED,
};

/**
 * enum dcbm_answer - what is known of a descriptor
 * @DCBM_NONE: it was not submitted, or the engine has not answered
 * @DCBM_COPIED: all of it was copied
 * @DCBM_FAILED: it may be copied or not, but the engine has finished with it
 */
enum dcbm_answer {
	DCBM_NONE,
	DCBM_COPIED,
	DCBM_FAILED,
};

/**
 * struct dcbm_desc - a copy that the engine makes at once
 * @src: where from
 * @dst: where to
 * @len: bytes
 * @cookie: by which its driver knows it
 * @asks: it is to interrupt
 * @answer: what is known of it
 */
struct dcbm_desc {
	dma_addr_t src;
	dma_addr_t dst;
	u32 len;
	dma_cookie_t cookie;
	bool asks;
	enum dcbm_answer answer;
};

/**
 * struct dcbm_round - what a channel copies under one mapping
 * @src: folios, or parts of them, to read
 * @dst: the same to write
 * @pairs: for each entry, of which pair of the batch it is
 * @nr: entries of the three
 * @nr_src: segments that @src was mapped to
 * @nr_dst: segments that @dst was mapped to
 * @descs: the descriptors for them
 * @nr_descs: number of them
 * @bytes: sum of all
 */
struct dcbm_round {
	struct scatterlist *src;
	struct scatterlist *dst;
	u32 *pairs;
	unsigned int nr;
	unsigned int nr_src;
	unsigned int nr_dst;
	struct dcbm_desc *descs;
	unsigned int nr_descs;
	size_t bytes;
};

/**
 * struct dcbm_probe - a copy of our own, to see whether a channel goes on
 * @pages: two pages; allocated with the channel
 * @src: the first, mapped
 * @dst: the second, mapped
 * @mapped: whether they are
 * @number: of the last probe, and what it copies
 * @answered: number of the last one that was answered
 * @done: by the engine
 */
struct dcbm_probe {
	u64 *pages;
	dma_addr_t src;
	dma_addr_t dst;
	bool mapped;
	u64 number;
	u64 answered;
	struct completion done;
};

/**
 * struct dcbm_channel - a channel that was taken, or space for one
 * @chan: the channel
 * @dev: that does DMA for it
 * @nid: node of it
 * @ordered: descriptors complete in the order in which they were submitted
 * @tells_residue: what it says of bytes that are left means something
 * @align: of addresses and lengths, as a mask
 * @max_bytes: of one descriptor
 * @boundary: that no descriptor may cross, as a mask
 * @depth: how many descriptors it took at a time when it was full; 0 if that never was
 * @barren: it gave no descriptor for all of a round's time, and none since
 * @state: changes under dcbm_channels_lock, but for the step from ready to retired
 * @claimed: bit 0: a batch uses it
 * @round: what it copies, or copied last; only of whoever has claimed it
 * @submitted: descriptors of @round that the engine was given, in order
 * @asked: of them the last one that was to interrupt, plus one
 * @lock: for the fields below and for the answers in @round
 * @generation: number of the round: an answer to an earlier one is ignored
 * @waiting: descriptors that have been submitted and not answered
 * @wake: of the batch that waits, or NULL
 * @recover: stops a retired channel
 * @insist: the user wants it to be asked once more
 * @probe: for @recover
 * @why: what is wrong with it, for people; NULL if nothing is
 */
struct dcbm_channel {
	struct dma_chan *chan;
	struct device *dev;
	int nid;
	bool ordered;
	bool tells_residue;
	u32 align;
	u32 max_bytes;
	unsigned long boundary;
	unsigned int depth;
	bool barren;
	enum dcbm_state state;
	unsigned long claimed;
	struct dcbm_round round;
	unsigned int submitted;
	unsigned int asked;
	spinlock_t lock;	/* for the next three, and for answers */
	u64 generation;
	unsigned int waiting;
	struct completion *wake;
	struct work_struct recover;
	bool insist;
	struct dcbm_probe probe;
	const char *why;
};

/**
 * struct dcbm_lane - a channel's share of a batch
 * @channel: that copies it; NULL when it was retired
 * @pair: that comes next
 * @offset: in its folio
 * @left: bytes that are not in a round yet
 * @running: there is a round that has not ended
 * @hungry: the engine gave no descriptor although it has answered all
 * @deadline: of the round, in jiffies
 * @silence: for how long it may be silent, in jiffies
 * @silent: since when the engine has been finished without having told, in jiffies; 0: it is
 *	not
 * @bytes: that it copied
 * @start: when it began, for the tracepoint
 */
struct dcbm_lane {
	struct dcbm_channel *channel;
	unsigned int pair;
	size_t offset;
	size_t left;
	bool running;
	bool hungry;
	unsigned long deadline;
	unsigned long silence;
	unsigned long silent;
	size_t bytes;
	u64 start;
};

/**
 * struct dcbm_params - the settings, as they were when a batch began
 * @lanes: channels per batch, 1 to DCBM_CHANNELS_MAX
 * @timeout_ms: for which a channel may work on one round
 * @poll_below_bytes: smaller batches are waited for without sleeping
 */
struct dcbm_params {
	unsigned int lanes;
	unsigned int timeout_ms;
	size_t poll_below_bytes;
};

/**
 * struct dcbm_batch - what a batch needs besides its channels; kept from batch to batch
 * @batch: the batch
 * @params: the settings
 * @extents: the folios for ferry_deal()
 * @pieces: its space; only the sums that it writes to @shares are used
 * @shares: of the lanes
 * @copied: for each pair, how many bytes of it have been copied
 * @wake: completed when a channel has something to tell
 * @nr_lanes: number of @lanes
 * @lanes: the shares
 */
struct dcbm_batch {
	struct migrator_batch *batch;
	struct dcbm_params params;
	struct ferry_extent *extents;
	struct ferry_extent *pieces;
	struct ferry_lane *shares;
	size_t *copied;
	struct completion wake;
	unsigned int nr_lanes;
	struct dcbm_lane lanes[DCBM_CHANNELS_MAX];
};

/* channels.c */
extern struct dcbm_channel dcbm_channels[DCBM_CHANNELS_MAX];
extern struct mutex dcbm_channels_lock;

void dcbm_channels_init(void);
int dcbm_channels_start(void);
void dcbm_channels_stop(void);
int dcbm_channels_retry(void);
int dcbm_channels_show(char *page);
unsigned int dcbm_channels_claim(int nid, unsigned int want, struct dcbm_lane *lanes);
void dcbm_channel_unclaim(struct dcbm_channel *channel);
void dcbm_channel_release(struct dcbm_channel *channel);
bool dcbm_channels_active(void);

/* recover.c */
int dcbm_recover_init(void);
void dcbm_recover_exit(void);
void dcbm_recover_start(struct dcbm_channel *channel);
void dcbm_recover_work(struct work_struct *work);

/* lane.c */
bool dcbm_lane_step(struct dcbm_batch *db, struct dcbm_lane *lane);
void dcbm_round_unmap(struct dcbm_channel *channel);
void dcbm_answered(void *param, const struct dmaengine_result *result);

/* params.c */
extern const struct attribute_group dcbm_group;

void dcbm_params_read(struct dcbm_params *params);
unsigned int dcbm_params_timeout(void);

#endif /* _DCBM_H */
