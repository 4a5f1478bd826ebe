/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dcbm: DMA channels copy the folios of a migration batch.
 *
 * migrator.c shares a batch among channels, lane.c copies a share with one channel, channels.c
 * takes channels from the DMA engines and gives them back.
 */
#ifndef _DCBM_H
#define _DCBM_H

#include <linux/completion.h>
#include <linux/device.h>
#include <linux/dmaengine.h>
#include <linux/migrator.h>
#include <linux/notifier.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#define DCBM_CHANNELS_MAX	64

/*
 * Entries of a scatter-gather table: 4 MiB of base pages, a batch of the default size. Tables
 * belong to channels, as one that does not answer keeps its own.
 */
#define DCBM_ENTRIES		1024

/* The two tables may be cut at different places. */
#define DCBM_DESCS		(2 * DCBM_ENTRIES)

enum dcbm_state {
	DCBM_EMPTY,		/* a slot without a channel */
	DCBM_READY,		/* batches may claim it */
	DCBM_LEAVING,		/* it is being given back */
	DCBM_RETIRED,		/* no answer yet: mapped, and its destinations in quarantine */
};

enum dcbm_result {
	DCBM_UNKNOWN,		/* not submitted, or not answered */
	DCBM_COPIED,		/* all of it */
	DCBM_FAILED,		/* copied or not, but the engine has finished with it */
};

struct dcbm_desc {
	dma_addr_t src;
	dma_addr_t dst;
	u32 len;
	dma_cookie_t cookie;
	bool interrupts;
	enum dcbm_result result;
};

/*
 * Bit 0 of @claimed locks all fields above @lock. A batch holds it while it copies with the
 * channel, and so does the task that gives the channel back.
 */
struct dcbm_channel {
	enum dcbm_state state;
	unsigned long claimed;
	struct dma_chan *chan;		/* NULL after it was given back */
	struct device *dev;		/* a reference, while there is a channel */
	struct notifier_block nb;	/* tells when the driver of dev is unbound */
	const struct bus_type *bus;	/* where nb is registered */
	struct delayed_work revive;	/* the retired channel has answered all */
	char name[80];			/* channel, device and node, for people */

	int nid;
	bool ordered;			/* completes as was submitted */
	bool reports_residue;
	u32 max_bytes;			/* of a descriptor */
	unsigned long boundary;		/* mask; no descriptor may cross it */
	unsigned int depth;		/* descriptors that filled it; 0: it never was full */
	bool gave_none;			/* no descriptor for all of a batch's time, nor since */

	/* The round: what is mapped at a time. */
	struct scatterlist *src;
	struct scatterlist *dst;
	u32 *pairs;			/* by entry of the tables, the pair of the batch */
	unsigned int nr;		/* entries */
	unsigned int nr_src;		/* segments */
	unsigned int nr_dst;
	struct dcbm_desc *descs;
	unsigned int nr_descs;
	unsigned int submitted;		/* of descs, in order */
	unsigned int asked;		/* the last of them that is to interrupt, plus one */

	spinlock_t lock;		/* protects the rest, and results in descs */
	u64 generation;			/* of the round; answers to others are ignored */
	unsigned int unanswered;	/* of those submitted */
	u64 answered_at;		/* ns; when none of the round was unanswered any more */
	bool aborted;			/* an answer was DMA_TRANS_ABORTED */
	bool late;			/* no batch waits for the rest of the answers */
	struct completion *wake;	/* of the batch that waits, or NULL */
};

/* A channel's share of a batch. */
struct dcbm_lane {
	struct dcbm_channel *channel;	/* NULL after it was retired */
	unsigned int pair;		/* first one that is not in a round yet */
	size_t offset;			/* in its folio */
	size_t left;			/* bytes that are not in a round yet */
	bool running;			/* a round has begun and not ended */
	bool no_descriptor;		/* although the engine has answered all */
	u64 answer_by;			/* ns; for what the engine was given last */
	u64 finished_at;		/* ns; it has not told since; 0: has not finished */
	size_t bytes;			/* copied */
	u64 start;			/* ns; for the tracepoint */
	u64 map_ns;			/* of the round, as the next two; for the tracepoint */
	u64 mapped_at;			/* ns; 0 if it is not traced */
	u64 issued_at;			/* ns; first descriptors given to the engine; 0: none yet */
};

/* What a batch needs besides its channels; kept from batch to batch. */
struct dcbm_batch {
	struct migrator_batch *batch;
	size_t *copied;			/* bytes, by pair */
	struct completion wake;		/* a channel has something to tell */
	u64 started;			/* ns */
	u64 answered;			/* ns; the last answer of a channel */
	u64 time;			/* ns; what its bytes may take */
	u64 deadline;			/* ns; from then on channels are given nothing */
	u64 silence;			/* ns from finished_at until an interrupt counts as lost */
	unsigned int nr_lanes;
	struct dcbm_lane lanes[DCBM_CHANNELS_MAX];
};

/* channels.c */
extern struct dcbm_channel dcbm_channels[DCBM_CHANNELS_MAX];
extern const struct attribute_group dcbm_group;

int dcbm_channels_init(void);
int dcbm_channels_start(void);
void dcbm_channels_stop(void);
void dcbm_channels_exit(void);
unsigned int dcbm_channels_free(void);
unsigned int dcbm_channels_claim(int nid, unsigned int want, struct dcbm_lane *lanes);
void dcbm_channel_unclaim(struct dcbm_channel *channel);

/* lane.c */
bool dcbm_lane_step(struct dcbm_batch *db, struct dcbm_lane *lane);
void dcbm_round_unmap(struct dcbm_channel *channel);
void dcbm_round_forget(struct dcbm_channel *channel);
bool dcbm_round_answered_late(struct dcbm_channel *channel);

#endif /* _DCBM_H */
