/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * faultdma: a DMA engine made of kernel threads, which fails on demand, to test dcbm.
 *
 * engine.c is what clients of DMA see, copy.c copies and fails, iommu.c is an IOMMU for it. Each
 * channel has a folder in /sys/kernel/debug/faultdma, from "0" on, with a file for each field of
 * struct faultdma_control. These stay when the driver is unbound and bound again.
 */
#ifndef _FAULTDMA_H
#define _FAULTDMA_H

#include <linux/dmaengine.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>

/* Threads that copy for a channel of an engine whose descriptors may complete in any order. */
#define FAULTDMA_THREADS	2

/* What becomes of a descriptor that hung, after late_ms. */
#define FAULTDMA_LATE_NEVER	0	/* it is not answered */
#define FAULTDMA_LATE_ABORT	1	/* it is reported as aborted */
#define FAULTDMA_LATE_COPY	2	/* it is copied, not written with garbage, and reported so */

struct faultdma_control {
	/* Faults. Of those that come every so many descriptors, 0 is never. */
	u32 delay_us;		/* before each descriptor */
	u32 shuffle;		/* takes any descriptor; of an unordered engine only */
	u32 error_every;	/* half is written with garbage, and reported as failed */
	u32 false_every;	/* all is written with garbage, and reported as copied */
	u32 half_every;		/* half is copied, half is garbage, and reported as copied */
	u32 abort_every;	/* is reported as aborted; writes after late_ms */
	u32 hang_every;		/* is not answered; writes after late_ms */
	u32 late_ms;		/* until it writes garbage to what it was given; 0 for never */
	u32 late_answer;	/* the channel goes on then: of FAULTDMA_LATE_* */
	u32 silent_every;	/* interrupts that do not come */
	u32 tell_after_us;	/* until the interrupt comes; the status tells at once */
	u32 prep_every;		/* requests for a descriptor that are refused */
	u32 prep_ms;		/* of each: its client loses the CPU so long */
	u32 submit_every;	/* descriptors that are not accepted */
	u32 depth;		/* descriptors that it has, if fewer than the parameter says */
	u32 give_back_ms;	/* for which a descriptor that was answered cannot be had */

	/* Counts, in files count_NAME. */
	u64 descriptors;	/* begun */
	u64 bytes;		/* copied */
	u64 interrupts;
	u64 errors;
	u64 lies;		/* of false_every and half_every */
	u64 aborted;
	u64 hung;
	u64 late;		/* writes of those that were aborted or hung */
	u64 silent;
	u64 told_late;
	u64 prep;
	u64 submit;
	u64 spent;		/* times that all descriptors waited to be given back */
	u64 asleep;		/* submitted while the device was suspended */
};

/* What becomes of a descriptor. */
enum faultdma_fault {
	FAULTDMA_COPY,
	FAULTDMA_ERROR,
	FAULTDMA_FALSE,
	FAULTDMA_HALF,
	FAULTDMA_ABORT,
	FAULTDMA_HANG,
};

struct faultdma_desc {
	struct dma_async_tx_descriptor tx;
	struct list_head node;
	dma_addr_t src;
	dma_addr_t dst;
	size_t len;
	enum faultdma_fault fault;
	struct dmaengine_result result;
	unsigned long answered;		/* jiffies */
};

/* A descriptor is in one of the lists, or with the thread that copies or answers it. */
struct faultdma_channel {
	struct dma_chan chan;
	struct faultdma_control *control;
	struct task_struct *threads[FAULTDMA_THREADS];
	wait_queue_head_t wait;		/* of the threads */
	spinlock_t lock;		/* protects what follows, and the counts */
	struct list_head free;
	struct list_head submitted;	/* and not issued */
	struct list_head active;
	struct list_head finished;	/* wait for an interrupt */
	struct list_head spent;		/* answered, and not given back yet */
	u64 preps;
	u64 submits;
	struct faultdma_desc *descs;
};

extern bool faultdma_unordered;
extern bool faultdma_iommu;
extern bool faultdma_bounces;
extern u64 faultdma_iommu_faults;

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

/* Cookies are assigned and completed under the lock of the channel. */
static inline dma_cookie_t faultdma_cookie_assign(struct dma_async_tx_descriptor *tx)
{
	struct dma_chan *chan = tx->chan;

	chan->cookie = chan->cookie < INT_MAX ? chan->cookie + 1 : DMA_MIN_COOKIE;
	tx->cookie = chan->cookie;
	return tx->cookie;
}

static inline void faultdma_cookie_complete(struct dma_async_tx_descriptor *tx)
{
	tx->chan->completed_cookie = tx->cookie;
	tx->cookie = 0;
}

static inline enum dma_status faultdma_cookie_status(struct dma_chan *chan, dma_cookie_t cookie,
						     struct dma_tx_state *state)
{
	dma_cookie_t used = READ_ONCE(chan->cookie), last = READ_ONCE(chan->completed_cookie);

	dma_set_tx_state(state, last, used, 0);
	return dma_async_is_complete(cookie, last, used);
}

static inline void faultdma_call_back(const struct faultdma_desc *desc)
{
	const struct dma_async_tx_descriptor *tx = &desc->tx;

	if (tx->callback_result)
		tx->callback_result(tx->callback_param, &desc->result);
	else if (tx->callback)
		tx->callback(tx->callback_param);
}

/* engine.c */
void faultdma_spend(struct faultdma_channel *channel, struct faultdma_desc *desc);

/* copy.c */
int faultdma_thread(void *channel);

/* iommu.c */
#ifdef CONFIG_ARCH_HAS_DMA_OPS
int faultdma_iommu_start(struct device *dev);
void *faultdma_iommu_address(dma_addr_t addr);
#else
static inline int faultdma_iommu_start(struct device *dev)
{
	return faultdma_iommu ? -EOPNOTSUPP : 0;
}

static inline void *faultdma_iommu_address(dma_addr_t addr)
{
	return NULL;
}
#endif

#endif /* _FAULTDMA_H */
