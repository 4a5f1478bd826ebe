// SPDX-License-Identifier: GPL-2.0-only
/*
 * Recovery of channels that did not answer: their memory comes out of quarantine when it is
 * sure that they do not write to it any more.
 *
 * That is when every descriptor has been answered, late; or when the engine was told to
 * terminate, said that it has, and then does another copy. The latter because drivers say so
 * as well that only forget what they gave to the hardware: what a channel copies afterwards,
 * one after the other, cannot overtake what it hangs in.
 *
 * Until then the channel keeps its mapping, for a device that reads and writes where nothing
 * is mapped can take the machine down, and pins the module, because its callbacks may come.
 */
#define pr_fmt(fmt) "dcbm: " fmt

#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>

#include "dcbm.h"

static struct workqueue_struct *dcbm_wq;

/* --- A copy of our own --- */

static void *dcbm_probe_tag(const struct dcbm_channel *channel)
{
	u64 tag = channel->probe.number << DCBM_TAG_CHANNEL_BITS | (channel - dcbm_channels);

	return (void *)(uintptr_t)tag;
}

static void dcbm_probe_done(void *param, const struct dmaengine_result *result)
{
	u64 tag = (uintptr_t)param;
	struct dcbm_channel *channel = &dcbm_channels[tag % BIT(DCBM_TAG_CHANNEL_BITS)];
	struct dcbm_probe *probe = &channel->probe;

	WRITE_ONCE(probe->answered, tag >> DCBM_TAG_CHANNEL_BITS);
	complete(&probe->done);
	/* One that comes too late may be all that was missing. */
	if (READ_ONCE(channel->state) == DCBM_RETIRED)
		dcbm_recover_start(channel);
}

static bool dcbm_probe_map(struct dcbm_channel *channel)
{
	struct dcbm_probe *probe = &channel->probe;
	void *dst = (void *)probe->pages + PAGE_SIZE;

	if (probe->mapped)
		return true;
	probe->src = dma_map_single(channel->dev, probe->pages, PAGE_SIZE, DMA_TO_DEVICE);
	if (dma_mapping_error(channel->dev, probe->src))
		return false;
	probe->dst = dma_map_single(channel->dev, dst, PAGE_SIZE, DMA_FROM_DEVICE);
	if (dma_mapping_error(channel->dev, probe->dst)) {
		dma_unmap_single(channel->dev, probe->src, PAGE_SIZE, DMA_TO_DEVICE);
		return false;
	}
	probe->mapped = true;
	return true;
}

static void dcbm_probe_unmap(struct dcbm_channel *channel)
{
	struct dcbm_probe *probe = &channel->probe;

	if (!probe->mapped)
		return;
	dma_unmap_single(channel->dev, probe->src, PAGE_SIZE, DMA_TO_DEVICE);
	dma_unmap_single(channel->dev, probe->dst, PAGE_SIZE, DMA_FROM_DEVICE);
	probe->mapped = false;
}

/* Whether the last probe was copied, and not its number by one before it. */
static bool dcbm_probe_landed(struct dcbm_channel *channel, dma_cookie_t cookie)
{
	struct dcbm_probe *probe = &channel->probe;
	u64 *dst = probe->pages + PAGE_SIZE / sizeof(*dst);

	if (READ_ONCE(probe->answered) != probe->number &&
	    dmaengine_tx_status(channel->chan, cookie, NULL) != DMA_COMPLETE)
		return false;
	dma_sync_single_for_cpu(channel->dev, probe->dst, PAGE_SIZE, DMA_FROM_DEVICE);
	return READ_ONCE(*dst) == probe->number;
}

/* Whether the channel copies again. If not, the probe is under way like all before it. */
static bool dcbm_probe(struct dcbm_channel *channel)
{
	unsigned long left = msecs_to_jiffies(dcbm_params_timeout());
	struct dcbm_probe *probe = &channel->probe;
	struct dma_async_tx_descriptor *tx;
	dma_cookie_t cookie;

	if (!dcbm_probe_map(channel))
		return false;
	dma_sync_single_for_cpu(channel->dev, probe->src, PAGE_SIZE, DMA_TO_DEVICE);
	*probe->pages = ++probe->number;
	dma_sync_single_for_device(channel->dev, probe->src, PAGE_SIZE, DMA_TO_DEVICE);
	reinit_completion(&probe->done);
	tx = dmaengine_prep_dma_memcpy(channel->chan, probe->dst, probe->src, PAGE_SIZE,
				       DMA_CTRL_ACK | DMA_PREP_INTERRUPT);
	if (!tx)
		goto not_sent;
	tx->callback_result = dcbm_probe_done;
	tx->callback_param = dcbm_probe_tag(channel);
	cookie = dmaengine_submit(tx);
	if (dma_submit_error(cookie))
		goto not_sent;
	dma_async_issue_pending(channel->chan);
	/* Also woken by an earlier probe. */
	do
		left = wait_for_completion_timeout(&probe->done, left);
	while (left && !dcbm_probe_landed(channel, cookie));
	return dcbm_probe_landed(channel, cookie);

not_sent:
	/* The last one that may be under way is still the one before. */
	probe->number--;
	return false;
}

/* --- Recovery --- */

/* A probe writes as well, and nothing has come of the last one. */
static bool dcbm_probe_waits(struct dcbm_channel *channel)
{
	struct dcbm_probe *probe = &channel->probe;

	return probe->mapped && READ_ONCE(probe->answered) != probe->number;
}

/* No copy of a batch is under way. */
static bool dcbm_copies_answered(struct dcbm_channel *channel)
{
	bool all;


	spin_lock_irq(&channel->lock);
	all = !channel->waiting;
	spin_unlock_irq(&channel->lock);
	return all;
}

static bool dcbm_all_answered(struct dcbm_channel *channel)
{
	return dcbm_copies_answered(channel) && !dcbm_probe_waits(channel);
}

/* Why nobody can be sure that the channel has stopped, or NULL. */
static const char *dcbm_stop(struct dcbm_channel *channel)
{
	bool insist = xchg(&channel->insist, false);

	if (dcbm_all_answered(channel))
		return NULL;
	/* A slow engine would have one more to answer each time. */
	if (dcbm_copies_answered(channel) && !insist)
		return "late, and not through with a copy that shows whether it goes on";
	if (dmaengine_terminate_sync(channel->chan))
		return dcbm_all_answered(channel) ? NULL : "cannot be terminated";
	if (!dcbm_probe(channel))
		return dcbm_all_answered(channel) ? NULL : "terminated, but copies nothing";
	return NULL;
}

/* Lets the memory of the last round go. */
static void dcbm_give_back(struct dcbm_channel *channel)
{
	struct dcbm_round *round = &channel->round;
	unsigned int i;

	spin_lock_irq(&channel->lock);
	channel->generation++;
	channel->submitted = 0;
	channel->waiting = 0;
	spin_unlock_irq(&channel->lock);
	dcbm_probe_unmap(channel);
	dcbm_round_unmap(channel);
	for (i = 0; i < round->nr; i++)
		if (!i || round->pairs[i] != round->pairs[i - 1])
			migrator_quarantine_release(page_folio(sg_page(&round->dst[i])));
}

/**
 * dcbm_recover_work - try to stop a retired channel
 * @work: of the channel
 *
 * Context: A kernel thread; the engine's driver may keep it for ever.
 */
void dcbm_recover_work(struct work_struct *work)
{
	struct dcbm_channel *channel = container_of(work, struct dcbm_channel, recover);
	const char *why;

	/* It may have been queued for an answer that an earlier run has seen. */
	if (READ_ONCE(channel->state) != DCBM_RETIRED)
		return;
	why = dcbm_stop(channel);
	if (why) {
		pr_warn("%s: no answer, %s: its memory stays in quarantine\n",
			dma_chan_name(channel->chan), why);
		WRITE_ONCE(channel->why, why);
		return;
	}
	dcbm_give_back(channel);
	mutex_lock(&dcbm_channels_lock);
	if (dcbm_channels_active())
		channel->state = DCBM_STOPPED;
	else
		dcbm_channel_release(channel);
	mutex_unlock(&dcbm_channels_lock);
	module_put(THIS_MODULE);
}

/**
 * dcbm_recover_start - try to stop a channel, soon
 * @channel: is retired, or is being retired
 */
void dcbm_recover_start(struct dcbm_channel *channel)
{
	queue_work(dcbm_wq, &channel->recover);
}

/**
 * dcbm_recover_init - make the workqueue
 *
 * Unbound, as a driver may wait in terminate; each channel has a work of its own, so that
 * none waits for another's. Nobody waits for them.
 *
 * Return: 0 or -ENOMEM.
 */
int dcbm_recover_init(void)
{
	dcbm_wq = alloc_workqueue("dcbm", WQ_UNBOUND, 0);
	return dcbm_wq ? 0 : -ENOMEM;
}

/**
 * dcbm_recover_exit - release the workqueue
 *
 * No channel is retired, because those pin the module. The last work may not have returned.
 */
void dcbm_recover_exit(void)
{
	destroy_workqueue(dcbm_wq);
}
