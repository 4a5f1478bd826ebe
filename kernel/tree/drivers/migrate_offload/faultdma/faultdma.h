/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * faultdma: a DMA engine made of kernel threads, which fails on demand.
 *
 * engine.c is what DMA clients see, thread.c copies and fails, iommu.c is an IOMMU for it,
 * files.c is its files in debugfs.
 */
#ifndef _FAULTDMA_H
#define _FAULTDMA_H

#include <linux/dmaengine.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>

struct dentry;
struct task_struct;

/**
 * enum faultdma_terminate - what becomes of a request to terminate
 * @FAULTDMA_STOPS: it is honoured
 * @FAULTDMA_REFUSES: it is refused
 * @FAULTDMA_PRETENDS: it is said to be honoured, but what runs goes on
 * @FAULTDMA_STICKS: whoever asks waits until something else is chosen
 */
enum faultdma_terminate {
	FAULTDMA_STOPS,
	FAULTDMA_REFUSES,
	FAULTDMA_PRETENDS,
	FAULTDMA_STICKS,
};

/**
 * struct faultdma_faults - what a channel shall do wrong; "every" counts its descriptors
 * @delay_us: before each descriptor
 * @shuffle: take descriptors in another order; of an unordered engine only
 * @error_every: descriptors that write half of what they shall, and report an error
 * @silent_every: interrupts that do not come
 * @tell_after_us: from when the status says that a descriptor has finished until it is told
 * @hang_every: descriptors that hang
 * @late_ms: after which one that hangs writes garbage and goes on; 0 for never
 * @late_answer: whether it is answered then
 * @prep_every: descriptors that the channel has no space for
 * @submit_every: descriptors that it does not accept
 * @depth: descriptors that it has, if less than the module was told; 0 for as many
 * @give_back_ms: for which a descriptor that was answered is still not to be had
 * @terminate: of enum faultdma_terminate
 */
struct faultdma_faults {
	u32 delay_us;
	u32 shuffle;
	u32 error_every;
	u32 silent_every;
	u32 tell_after_us;
	u32 hang_every;
	u32 late_ms;
	u32 late_answer;
	u32 prep_every;
	u32 submit_every;
	u32 depth;
	u32 give_back_ms;
	u32 terminate;
};

/* struct faultdma_counts - what it did */
struct faultdma_counts {
	u64 descriptors;
	u64 bytes;
	u64 interrupts;
	u64 errors;
	u64 silent;
	u64 told_late;
	u64 hung;
	u64 late;		/* writes of those that hung */
	u64 prep;
	u64 submit;
	u64 spent;		/* times that it had none, as they were not given back */
};

struct faultdma_desc {
	struct dma_async_tx_descriptor tx;
	struct list_head node;
	dma_addr_t src;
	dma_addr_t dst;
	size_t len;
	struct dmaengine_result result;
	unsigned long answered;		/* in jiffies */
};

/**
 * struct faultdma_channel - a channel
 * @chan: what clients see
 * @index: of it
 * @thread: that copies
 * @wait: where it waits
 * @lock: for all that follows
 * @free: descriptors
 * @submitted: of which the client has not said that they may begin
 * @active: that may
 * @finished: that wait for an interrupt
 * @spent: that are answered, and were not given back yet
 * @running: the thread works on one
 * @cancel: and shall give up
 * @forgotten: the client has terminated, and expects no answer for what the thread works on
 * @faults: to make
 * @counts: what was done
 * @preps: descriptors that were asked for
 * @submits: that were handed in
 * @descs: all descriptors
 */
struct faultdma_channel {
	struct dma_chan chan;
	unsigned int index;
	struct task_struct *thread;
	wait_queue_head_t wait;
	spinlock_t lock;	/* for all below */
	struct list_head free;
	struct list_head submitted;
	struct list_head active;
	struct list_head finished;
	struct list_head spent;
	bool running;
	bool cancel;
	bool forgotten;
	struct faultdma_faults faults;
	struct faultdma_counts counts;
	u64 preps;
	u64 submits;
	struct faultdma_desc *descs;
};

extern bool faultdma_unordered;
extern bool faultdma_iommu;
extern bool faultdma_bounces;

static inline struct faultdma_channel *faultdma_channel_of(struct dma_chan *chan)
{
	return container_of(chan, struct faultdma_channel, chan);
}

/* Whether a fault that comes every so many times comes this time. */
static inline bool faultdma_now(const u32 *every, u64 nth)
{
	u32 n = READ_ONCE(*every);

	return n && nth % n == 0;
}

/* engine.c */
void faultdma_spend(struct faultdma_channel *channel, struct faultdma_desc *desc);

/* thread.c */
int faultdma_thread(void *channel);

/* files.c */
struct dentry *faultdma_files(struct faultdma_channel *channels, unsigned int nr);

extern u64 faultdma_iommu_faults;

/* iommu.c */
#ifdef CONFIG_ARCH_HAS_DMA_OPS
int faultdma_iommu_start(struct device *dev);
void faultdma_iommu_stop(struct device *dev);
void *faultdma_iommu_address(dma_addr_t addr);
#else
static inline int faultdma_iommu_start(struct device *dev)
{
	return faultdma_iommu ? -EOPNOTSUPP : 0;
}

static inline void faultdma_iommu_stop(struct device *dev)
{
}

static inline void *faultdma_iommu_address(dma_addr_t addr)
{
	return NULL;
}
#endif

#endif /* _FAULTDMA_H */
