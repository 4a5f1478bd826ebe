// SPDX-License-Identifier: GPL-2.0-only
/*
 * The threads that copy, and how they fail. They are stopped before the driver is unbound, and
 * write to nobody's memory afterwards.
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

#include "faultdma.h"

#define FAULTDMA_GARBAGE	0xdb

static void *faultdma_address(struct faultdma_channel *channel, dma_addr_t addr)
{
	if (faultdma_iommu)
		return faultdma_iommu_address(addr);
	return phys_to_virt(dma_to_phys(channel->chan.device->dev, addr));
}

/*
 * KASAN checks what is written, and not what is read: once a client has given a descriptor up, the
 * source may be free, and a device reads it all the same.
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

/* Copies the bytes [@done, @end), or writes garbage over them; behind an IOMMU page by page. */
static void faultdma_copy(struct faultdma_channel *channel, const struct faultdma_desc *desc,
			  size_t done, size_t end, bool garbage)
{
	size_t len;
	void *src, *dst;

	for (; done < end; done += len) {
		len = end - done;
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

/* As in the interrupt handler of a driver. Several threads may call back at the same time. */
static void faultdma_interrupt(struct faultdma_channel *channel)
{
	struct faultdma_desc *desc;

	spin_lock_irq(&channel->lock);
	channel->control->interrupts++;
	while ((desc = list_first_entry_or_null(&channel->finished, struct faultdma_desc, node))) {
		list_del(&desc->node);
		spin_unlock_irq(&channel->lock);
		local_bh_disable();
		faultdma_call_back(desc);
		local_bh_enable();
		spin_lock_irq(&channel->lock);
		faultdma_spend(channel, desc);
	}
	spin_unlock_irq(&channel->lock);
}

static void faultdma_finish(struct faultdma_channel *channel, struct faultdma_desc *desc,
			    enum dmaengine_tx_result result)
{
	struct faultdma_control *control = channel->control;
	bool interrupts = result != DMA_TRANS_NOERROR || (desc->tx.flags & DMA_PREP_INTERRUPT);
	u32 late = READ_ONCE(control->tell_after_us);

	desc->result.result = result;
	spin_lock_irq(&channel->lock);
	if (desc->fault == FAULTDMA_COPY)
		control->bytes += desc->len;
	faultdma_cookie_complete(&desc->tx);
	list_add_tail(&desc->node, &channel->finished);
	if (interrupts && faultdma_now(&control->silent_every,
				       control->interrupts + control->silent + 1)) {
		control->silent++;
		interrupts = false;
	}
	control->told_late += interrupts && late;
	spin_unlock_irq(&channel->lock);
	if (!interrupts)
		return;
	if (late)
		usleep_range(late, late + late / 4 + 1);
	faultdma_interrupt(channel);
}

/* A driver tells of it where it aborts, not in an interrupt that may be lost, and then in the status. */
static void faultdma_abort(struct faultdma_channel *channel, struct faultdma_desc *desc)
{
	dma_cookie_t cookie = desc->tx.cookie;

	desc->result.result = DMA_TRANS_ABORTED;
	spin_lock_irq(&channel->lock);
	list_add_tail(&desc->node, &channel->finished);
	spin_unlock_irq(&channel->lock);
	faultdma_interrupt(channel);
	channel->chan.completed_cookie = cookie;
}

static void faultdma_write_late(struct faultdma_channel *channel, const struct faultdma_desc *desc)
{
	faultdma_copy(channel, desc, 0, desc->len, true);
	spin_lock_irq(&channel->lock);
	channel->control->late++;
	spin_unlock_irq(&channel->lock);
}

/* Waits for @ms, or for ever if it is 0. Returns false when the driver is being unbound. */
static bool faultdma_wait(struct faultdma_channel *channel, u32 ms)
{
	long timeout = ms ? msecs_to_jiffies(ms) : MAX_SCHEDULE_TIMEOUT;

	return !wait_event_idle_timeout(channel->wait, kthread_should_stop(), timeout);
}

/* Without an answer the engine does not go on, as the status of what is behind would tell one. */
static void faultdma_hang(struct faultdma_channel *channel, struct faultdma_desc *desc)
{
	if (faultdma_wait(channel, READ_ONCE(channel->control->late_ms))) {
		u32 answer = READ_ONCE(channel->control->late_answer);

		if (answer == FAULTDMA_LATE_COPY) {
			faultdma_copy(channel, desc, 0, desc->len, false);
			faultdma_finish(channel, desc, DMA_TRANS_NOERROR);
			return;
		}
		faultdma_write_late(channel, desc);
		if (answer == FAULTDMA_LATE_ABORT) {
			faultdma_abort(channel, desc);
			return;
		}
	}
	faultdma_wait(channel, 0);
}

/* @aborted: what the thread still writes to is kept there */
static void faultdma_run(struct faultdma_channel *channel, struct faultdma_desc *desc,
			 struct faultdma_desc *aborted)
{
	u32 delay = READ_ONCE(channel->control->delay_us);

	if (delay)
		usleep_range(delay, delay + delay / 4 + 1);
	switch (desc->fault) {
	case FAULTDMA_COPY:
		faultdma_copy(channel, desc, 0, desc->len, false);
		faultdma_finish(channel, desc, DMA_TRANS_NOERROR);
		break;
	case FAULTDMA_ERROR:
		faultdma_copy(channel, desc, 0, desc->len / 2, true);
		faultdma_finish(channel, desc, DMA_TRANS_WRITE_FAILED);
		break;
	case FAULTDMA_FALSE:
		faultdma_copy(channel, desc, 0, desc->len, true);
		faultdma_finish(channel, desc, DMA_TRANS_NOERROR);
		break;
	case FAULTDMA_HALF:
		faultdma_copy(channel, desc, 0, desc->len / 2, false);
		faultdma_copy(channel, desc, desc->len / 2, desc->len, true);
		faultdma_finish(channel, desc, DMA_TRANS_NOERROR);
		break;
	case FAULTDMA_ABORT:
		if (aborted->len)
			faultdma_write_late(channel, aborted);
		*aborted = *desc;
		aborted->answered = jiffies;
		faultdma_abort(channel, desc);
		break;
	case FAULTDMA_HANG:
		faultdma_hang(channel, desc);
		break;
	}
}

static enum faultdma_fault faultdma_choose(struct faultdma_control *control)
{
	u64 nth = ++control->descriptors;

	if (faultdma_now(&control->hang_every, nth)) {
		control->hung++;
		return FAULTDMA_HANG;
	}
	if (faultdma_now(&control->abort_every, nth)) {
		control->aborted++;
		return FAULTDMA_ABORT;
	}
	if (faultdma_now(&control->error_every, nth)) {
		control->errors++;
		return FAULTDMA_ERROR;
	}
	if (faultdma_now(&control->false_every, nth)) {
		control->lies++;
		return FAULTDMA_FALSE;
	}
	if (faultdma_now(&control->half_every, nth)) {
		control->lies++;
		return FAULTDMA_HALF;
	}
	return FAULTDMA_COPY;
}

static struct faultdma_desc *faultdma_next(struct faultdma_channel *channel)
{
	struct faultdma_control *control = channel->control;
	struct faultdma_desc *desc;

	spin_lock_irq(&channel->lock);
	desc = list_first_entry_or_null(&channel->active, struct faultdma_desc, node);
	if (desc) {
		if (faultdma_unordered && READ_ONCE(control->shuffle) && get_random_u32() % 2)
			desc = list_last_entry(&channel->active, struct faultdma_desc, node);
		list_del(&desc->node);
		desc->fault = faultdma_choose(control);
	}
	spin_unlock_irq(&channel->lock);
	return desc;
}

/**
 * faultdma_thread - a thread of a channel
 * @data: the channel
 *
 * Return: 0
 */
int faultdma_thread(void *data)
{
	struct faultdma_channel *channel = data;
	struct faultdma_desc *desc, aborted = {};
	long left;

	for (;;) {
		left = MAX_SCHEDULE_TIMEOUT;
		if (aborted.len)
			left = max_t(long, 1, aborted.answered - jiffies +
				     msecs_to_jiffies(READ_ONCE(channel->control->late_ms)));
		left = wait_event_idle_timeout(channel->wait, kthread_should_stop() ||
					       !list_empty_careful(&channel->active), left);
		if (kthread_should_stop())
			return 0;
		if (!left) {
			faultdma_write_late(channel, &aborted);
			aborted.len = 0;
		}
		while (!kthread_should_stop() && (desc = faultdma_next(channel))) {
			faultdma_run(channel, desc, &aborted);
			cond_resched();
		}
	}
}
