// SPDX-License-Identifier: GPL-2.0-only
/*
 * What copies, and how it fails.
 */
#include <linux/delay.h>
#include <linux/dma-direct.h>
#include <linux/jiffies.h>
#include <linux/kasan-checks.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "../../dma/dmaengine.h"
#include "faultdma.h"

/* What a descriptor writes that should not write any more. */
#define FAULTDMA_GARBAGE	0xdb

static void *faultdma_address(struct faultdma_channel *channel, dma_addr_t addr)
{
	if (faultdma_iommu)
		return faultdma_iommu_address(addr);
	return phys_to_virt(dma_to_phys(channel->chan.device->dev, addr));
}

/*
 * What it writes is checked as any other write is. What it reads is not: once its client has
 * given a descriptor up, the source may be free, and a device reads it all the same. Where
 * nobody checks, it takes as much work as where the kernel copies a folio.
 */
static void faultdma_copy_part(void *dst, const void *src, size_t len)
{
	unsigned long left;

	if (IS_ENABLED(CONFIG_KASAN) || IS_ENABLED(CONFIG_DEBUG_PAGEALLOC)) {
		kasan_check_write(dst, len);
		left = copy_from_kernel_nofault(dst, src, len) ? len : 0;
	} else {
		left = copy_mc_to_kernel(dst, src, len);
	}
	memset(dst + len - left, FAULTDMA_GARBAGE, left);
}

/* Behind an IOMMU page by page. @garbage: write that instead. */
static void faultdma_copy(struct faultdma_channel *channel, struct faultdma_desc *desc,
			  size_t bytes, bool garbage)
{
	size_t done, len;
	void *src, *dst;

	for (done = 0; done < bytes; done += len) {
		len = bytes - done;
		if (faultdma_iommu)
			len = min3(len, PAGE_SIZE - offset_in_page(desc->src + done),
				   PAGE_SIZE - offset_in_page(desc->dst + done));
		src = faultdma_address(channel, desc->src + done);
		dst = faultdma_address(channel, desc->dst + done);
		if (dst && garbage)
			memset(dst, FAULTDMA_GARBAGE, len);
		else if (dst && src)
			faultdma_copy_part(dst, src, len);
	}
}

/* --- Interrupts --- */

/* What an interrupt handler of a driver does. */
static void faultdma_interrupt(struct faultdma_channel *channel)
{
	struct dmaengine_desc_callback callback;
	struct faultdma_desc *desc;

	spin_lock_irq(&channel->lock);
	channel->counts.interrupts++;
	while ((desc = list_first_entry_or_null(&channel->finished, struct faultdma_desc, node))) {
		list_del(&desc->node);
		spin_unlock_irq(&channel->lock);
		dmaengine_desc_get_callback(&desc->tx, &callback);
		local_bh_disable();
		dmaengine_desc_callback_invoke(&callback, &desc->result);
		local_bh_enable();
		spin_lock_irq(&channel->lock);
		faultdma_spend(channel, desc);
	}
	spin_unlock_irq(&channel->lock);
}

static void faultdma_finish(struct faultdma_channel *channel, struct faultdma_desc *desc)
{
	bool failed = desc->result.result != DMA_TRANS_NOERROR;
	bool interrupts = failed || (desc->tx.flags & DMA_PREP_INTERRUPT);
	u32 late = READ_ONCE(channel->faults.tell_after_us);

	spin_lock_irq(&channel->lock);
	dma_cookie_complete(&desc->tx);
	list_add_tail(&desc->node, &channel->finished);
	if (interrupts && faultdma_now(&channel->faults.silent_every,
				       channel->counts.interrupts + channel->counts.silent + 1)) {
		channel->counts.silent++;
		interrupts = false;
	}
	spin_unlock_irq(&channel->lock);
	if (!interrupts)
		return;
	if (late) {
		channel->counts.told_late++;
		usleep_range(late, late + late / 4 + 1);
	}
	faultdma_interrupt(channel);
}

/* --- Faults --- */

/* Returns whether the descriptor is to be finished as others are. */
static bool faultdma_hang(struct faultdma_channel *channel, struct faultdma_desc *desc)
{
	u32 late_ms = READ_ONCE(channel->faults.late_ms);
	bool late = false;

	if (late_ms)
		late = !wait_event_timeout(channel->wait, READ_ONCE(channel->cancel) ||
					   kthread_should_stop(), msecs_to_jiffies(late_ms));
	else
		wait_event(channel->wait, READ_ONCE(channel->cancel) || kthread_should_stop() ||
			   !READ_ONCE(channel->faults.hang_every));
	if (late) {
		faultdma_copy(channel, desc, desc->len, true);
		channel->counts.late++;
	}
	/*
	 * An engine does not go on as if nothing had been behind what it has not answered:
	 * status by cookie would tell that it was copied.
	 */
	if (late && !READ_ONCE(channel->faults.late_answer))
		wait_event(channel->wait, READ_ONCE(channel->forgotten) ||
			   kthread_should_stop() || !READ_ONCE(channel->faults.hang_every));
	desc->result.result = DMA_TRANS_ABORTED;
	return !READ_ONCE(channel->cancel) && READ_ONCE(channel->faults.late_answer);
}

static void faultdma_drop(struct faultdma_channel *channel, struct faultdma_desc *desc)
{
	spin_lock_irq(&channel->lock);
	list_add_tail(&desc->node, &channel->free);
	spin_unlock_irq(&channel->lock);
}

static void faultdma_run(struct faultdma_channel *channel, struct faultdma_desc *desc)
{
	struct faultdma_faults *faults = &channel->faults;
	u64 nth = ++channel->counts.descriptors;
	u32 delay = READ_ONCE(faults->delay_us);

	if (delay)
		usleep_range(delay, delay + delay / 4 + 1);
	if (faultdma_now(&faults->hang_every, nth)) {
		channel->counts.hung++;
		if (!faultdma_hang(channel, desc)) {
			faultdma_drop(channel, desc);
			return;
		}
	} else if (faultdma_now(&faults->error_every, nth)) {
		channel->counts.errors++;
		faultdma_copy(channel, desc, desc->len / 2, true);
		desc->result.result = DMA_TRANS_WRITE_FAILED;
	} else {
		faultdma_copy(channel, desc, desc->len, false);
		channel->counts.bytes += desc->len;
	}
	faultdma_finish(channel, desc);
}

/* --- The thread --- */

static struct faultdma_desc *faultdma_next(struct faultdma_channel *channel)
{
	struct faultdma_desc *desc;

	spin_lock_irq(&channel->lock);
	if (faultdma_unordered && READ_ONCE(channel->faults.shuffle) && get_random_u32() % 2)
		desc = list_last_entry(&channel->active, struct faultdma_desc, node);
	else
		desc = list_first_entry(&channel->active, struct faultdma_desc, node);
	if (list_empty(&channel->active))
		desc = NULL;
	else
		list_del(&desc->node);
	channel->running = desc;
	channel->cancel = false;
	channel->forgotten = false;
	spin_unlock_irq(&channel->lock);
	return desc;
}

/**
 * faultdma_thread - the engine behind a channel
 * @data: the channel
 *
 * Return: 0
 */
int faultdma_thread(void *data)
{
	struct faultdma_channel *channel = data;
	struct faultdma_desc *desc;

	while (!kthread_should_stop()) {
		wait_event_interruptible(channel->wait, kthread_should_stop() ||
					 !list_empty_careful(&channel->active));
		while ((desc = faultdma_next(channel))) {
			faultdma_run(channel, desc);
			cond_resched();
		}
		wake_up_all(&channel->wait);
	}
	return 0;
}
