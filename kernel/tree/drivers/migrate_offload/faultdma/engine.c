// SPDX-License-Identifier: GPL-2.0-only
/*
 * The engine as clients of DMA see it, and the module.
 */
#include <linux/debugfs.h>
#include <linux/dma-mapping.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/mod_devicetable.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/slab.h>

#include "../../dma/dmaengine.h"
#include "faultdma.h"

static unsigned int faultdma_nr = 4;
module_param_named(channels, faultdma_nr, uint, 0444);
MODULE_PARM_DESC(channels, "Number of channels (1 to 64)");

static unsigned int faultdma_depth = 1024;
module_param_named(depth, faultdma_depth, uint, 0444);
MODULE_PARM_DESC(depth, "Descriptors that a channel takes");

bool faultdma_unordered;
module_param_named(unordered, faultdma_unordered, bool, 0444);
MODULE_PARM_DESC(unordered, "Descriptors may complete in any order");

static unsigned int faultdma_mask_bits = 64;
module_param_named(mask_bits, faultdma_mask_bits, uint, 0444);
MODULE_PARM_DESC(mask_bits, "Bits of the addresses that it reaches");

static unsigned int faultdma_align;
module_param_named(align, faultdma_align, uint, 0444);
MODULE_PARM_DESC(align, "Alignment that it needs, as a power of two");

static bool faultdma_memcpy = true;
module_param_named(memcpy, faultdma_memcpy, bool, 0444);
MODULE_PARM_DESC(memcpy, "It copies memory");

static unsigned int faultdma_segment;
module_param_named(segment, faultdma_segment, uint, 0444);
MODULE_PARM_DESC(segment, "Bytes that it copies at a time, at most; 0 for Linux's default");

static char *faultdma_name = "faultdma";
module_param_named(driver, faultdma_name, charp, 0444);
MODULE_PARM_DESC(driver, "Name of its driver, to pass for another one");

bool faultdma_iommu;
module_param_named(iommu, faultdma_iommu, bool, 0444);
MODULE_PARM_DESC(iommu, "It is behind an IOMMU, which merges and notices");

bool faultdma_bounces;
module_param_named(bounces, faultdma_bounces, bool, 0444);
MODULE_PARM_DESC(bounces, "Its IOMMU has bounce buffers; needs iommu");

u64 faultdma_iommu_faults;

static struct dma_device faultdma_device;
static struct faultdma_channel *faultdma_channels;
static struct dentry *faultdma_dir;

static struct faultdma_desc *faultdma_desc_of(struct dma_async_tx_descriptor *tx)
{
	return container_of(tx, struct faultdma_desc, tx);
}

static dma_cookie_t faultdma_submit(struct dma_async_tx_descriptor *tx)
{
	struct faultdma_channel *channel = faultdma_channel_of(tx->chan);
	struct faultdma_desc *desc = faultdma_desc_of(tx);
	dma_cookie_t cookie = -EIO;
	unsigned long flags;

	spin_lock_irqsave(&channel->lock, flags);
	if (faultdma_now(&channel->faults.submit_every, ++channel->submits)) {
		channel->counts.submit++;
		list_add_tail(&desc->node, &channel->free);
	} else {
		cookie = dma_cookie_assign(tx);
		list_add_tail(&desc->node, &channel->submitted);
	}
	spin_unlock_irqrestore(&channel->lock, flags);
	return cookie;
}

/**
 * faultdma_spend - a descriptor was answered
 * @channel: of it
 * @desc: is in no list
 *
 * Drivers make it free later, as in a tasklet that a busy CPU does not come to run.
 *
 * Context: The lock of the channel is held.
 */
void faultdma_spend(struct faultdma_channel *channel, struct faultdma_desc *desc)
{
	desc->answered = jiffies;
	list_add_tail(&desc->node, &channel->spent);
}

/* A descriptor for a client, in no list, or NULL. */
static struct faultdma_desc *faultdma_take(struct faultdma_channel *channel)
{
	unsigned long late = msecs_to_jiffies(READ_ONCE(channel->faults.give_back_ms));
	u32 depth = READ_ONCE(channel->faults.depth);
	struct faultdma_desc *desc, *next;

	list_for_each_entry_safe(desc, next, &channel->spent, node) {
		if (late && time_before_eq(jiffies, desc->answered + late))
			break;
		list_move_tail(&desc->node, &channel->free);
	}
	desc = list_first_entry_or_null(&channel->free, struct faultdma_desc, node);
	if (depth && faultdma_depth - list_count_nodes(&channel->free) >= depth)
		desc = NULL;
	if (!desc && !list_empty(&channel->spent))
		channel->counts.spent++;
	if (faultdma_now(&channel->faults.prep_every, ++channel->preps)) {
		channel->counts.prep++;
		desc = NULL;
	}
	if (desc)
		list_del(&desc->node);
	return desc;
}

static struct dma_async_tx_descriptor *faultdma_prep(struct dma_chan *chan, dma_addr_t dst,
						     dma_addr_t src, size_t len,
						     unsigned long prep_flags)
{
	struct faultdma_channel *channel = faultdma_channel_of(chan);
	struct faultdma_desc *desc;
	unsigned long flags;

	spin_lock_irqsave(&channel->lock, flags);
	desc = faultdma_take(channel);
	spin_unlock_irqrestore(&channel->lock, flags);
	if (!desc)
		return NULL;
	dma_async_tx_descriptor_init(&desc->tx, chan);
	desc->tx.tx_submit = faultdma_submit;
	desc->tx.flags = prep_flags;
	desc->tx.callback = NULL;
	desc->tx.callback_result = NULL;
	desc->tx.callback_param = NULL;
	desc->src = src;
	desc->dst = dst;
	desc->len = len;
	desc->result.result = DMA_TRANS_NOERROR;
	desc->result.residue = 0;
	return &desc->tx;
}

static void faultdma_issue_pending(struct dma_chan *chan)
{
	struct faultdma_channel *channel = faultdma_channel_of(chan);
	unsigned long flags;

	spin_lock_irqsave(&channel->lock, flags);
	list_splice_tail_init(&channel->submitted, &channel->active);
	spin_unlock_irqrestore(&channel->lock, flags);
	wake_up_all(&channel->wait);
}

/* Whoever polls needs no callback of what did not ask for an interrupt. */
static void faultdma_clean_up(struct faultdma_channel *channel)
{
	struct faultdma_desc *desc, *next;
	unsigned long flags;

	spin_lock_irqsave(&channel->lock, flags);
	list_for_each_entry_safe(desc, next, &channel->finished, node)
		if (!(desc->tx.flags & DMA_PREP_INTERRUPT) &&
		    desc->result.result == DMA_TRANS_NOERROR) {
			list_del(&desc->node);
			faultdma_spend(channel, desc);
		}
	spin_unlock_irqrestore(&channel->lock, flags);
}

static enum dma_status faultdma_tx_status(struct dma_chan *chan, dma_cookie_t cookie,
					  struct dma_tx_state *state)
{
	enum dma_status status = dma_cookie_status(chan, cookie, state);

	if (faultdma_unordered)
		return DMA_OUT_OF_ORDER;
	if (status == DMA_COMPLETE)
		faultdma_clean_up(faultdma_channel_of(chan));
	return status;
}

static int faultdma_terminate_all(struct dma_chan *chan)
{
	struct faultdma_channel *channel = faultdma_channel_of(chan);
	u32 mode = READ_ONCE(channel->faults.terminate);
	unsigned long flags;

	if (mode == FAULTDMA_REFUSES)
		return -EIO;
	spin_lock_irqsave(&channel->lock, flags);
	list_splice_tail_init(&channel->submitted, &channel->free);
	list_splice_tail_init(&channel->active, &channel->free);
	list_splice_tail_init(&channel->finished, &channel->free);
	list_splice_tail_init(&channel->spent, &channel->free);
	channel->forgotten = true;
	channel->cancel = channel->running && mode != FAULTDMA_PRETENDS;
	spin_unlock_irqrestore(&channel->lock, flags);
	wake_up_all(&channel->wait);
	return 0;
}

static void faultdma_synchronize(struct dma_chan *chan)
{
	struct faultdma_channel *channel = faultdma_channel_of(chan);

	wait_event(channel->wait, READ_ONCE(channel->faults.terminate) != FAULTDMA_STICKS);
	if (READ_ONCE(channel->faults.terminate) == FAULTDMA_STOPS)
		wait_event(channel->wait, !READ_ONCE(channel->running));
}

static int faultdma_alloc(struct dma_chan *chan)
{
	return faultdma_depth;
}

static void faultdma_free(struct dma_chan *chan)
{
	struct faultdma_channel *channel = faultdma_channel_of(chan);
	unsigned long flags;

	spin_lock_irqsave(&channel->lock, flags);
	list_splice_tail_init(&channel->submitted, &channel->free);
	list_splice_tail_init(&channel->finished, &channel->free);
	list_splice_tail_init(&channel->spent, &channel->free);
	spin_unlock_irqrestore(&channel->lock, flags);
}

static int faultdma_channel_init(struct faultdma_channel *channel, unsigned int index)
{
	unsigned int i;

	channel->index = index;
	spin_lock_init(&channel->lock);
	init_waitqueue_head(&channel->wait);
	INIT_LIST_HEAD(&channel->free);
	INIT_LIST_HEAD(&channel->submitted);
	INIT_LIST_HEAD(&channel->active);
	INIT_LIST_HEAD(&channel->finished);
	INIT_LIST_HEAD(&channel->spent);
	channel->descs = kvcalloc(faultdma_depth, sizeof(*channel->descs), GFP_KERNEL);
	if (!channel->descs)
		return -ENOMEM;
	for (i = 0; i < faultdma_depth; i++)
		list_add_tail(&channel->descs[i].node, &channel->free);
	channel->chan.device = &faultdma_device;
	dma_cookie_init(&channel->chan);
	list_add_tail(&channel->chan.device_node, &faultdma_device.channels);
	channel->thread = kthread_run(faultdma_thread, channel, "faultdma/%u", index);
	if (IS_ERR(channel->thread)) {
		kvfree(channel->descs);
		return PTR_ERR(channel->thread);
	}
	return 0;
}

static void faultdma_channels_exit(unsigned int nr)
{
	while (nr--) {
		kthread_stop(faultdma_channels[nr].thread);
		kvfree(faultdma_channels[nr].descs);
	}
	kvfree(faultdma_channels);
}

static void faultdma_describe(struct device *dev)
{
	dma_cap_zero(faultdma_device.cap_mask);
	if (faultdma_memcpy)
		dma_cap_set(DMA_MEMCPY, faultdma_device.cap_mask);
	if (faultdma_unordered)
		dma_cap_set(DMA_COMPLETION_NO_ORDER, faultdma_device.cap_mask);
	faultdma_device.dev = dev;
	faultdma_device.copy_align = faultdma_align;
	faultdma_device.device_alloc_chan_resources = faultdma_alloc;
	faultdma_device.device_free_chan_resources = faultdma_free;
	faultdma_device.device_prep_dma_memcpy = faultdma_prep;
	faultdma_device.device_issue_pending = faultdma_issue_pending;
	faultdma_device.device_tx_status = faultdma_tx_status;
	faultdma_device.device_terminate_all = faultdma_terminate_all;
	faultdma_device.device_synchronize = faultdma_synchronize;
	INIT_LIST_HEAD(&faultdma_device.channels);
}

static int faultdma_probe(struct platform_device *pdev)
{
	unsigned int nr;
	int error;

	error = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(faultdma_mask_bits));
	if (error)
		return error;
	error = faultdma_iommu_start(&pdev->dev);
	if (error)
		return error;
	if (faultdma_segment)
		dma_set_max_seg_size(&pdev->dev, faultdma_segment);
	faultdma_channels = kvcalloc(faultdma_nr, sizeof(*faultdma_channels), GFP_KERNEL);
	if (!faultdma_channels) {
		faultdma_iommu_stop(&pdev->dev);
		return -ENOMEM;
	}
	faultdma_describe(&pdev->dev);
	for (nr = 0; nr < faultdma_nr && !error; nr++)
		error = faultdma_channel_init(&faultdma_channels[nr], nr);
	if (!error)
		error = dma_async_device_register(&faultdma_device);
	else
		nr--;
	if (error) {
		faultdma_channels_exit(nr);
		faultdma_iommu_stop(&pdev->dev);
		return error;
	}
	faultdma_dir = faultdma_files(faultdma_channels, faultdma_nr);
	/* Says that it is there. */
	platform_set_drvdata(pdev, faultdma_channels);
	return 0;
}

/* No client has a channel: they would pin the module. */
static void faultdma_remove(struct platform_device *pdev)
{
	debugfs_remove_recursive(faultdma_dir);
	dma_async_device_unregister(&faultdma_device);
	faultdma_channels_exit(faultdma_nr);
	faultdma_iommu_stop(&pdev->dev);
}

static const struct platform_device_id faultdma_ids[] = {
	{ .name = "faultdma" },
	{ }
};

static struct platform_driver faultdma_driver = {
	.id_table = faultdma_ids,
	.probe = faultdma_probe,
	.remove = faultdma_remove,
};

static struct platform_device *faultdma_pdev;

static int __init faultdma_init(void)
{
	int error;

	if (!faultdma_nr || faultdma_nr > 64 || !faultdma_depth || faultdma_mask_bits > 64 ||
	    faultdma_mask_bits < 16 || (faultdma_bounces && !faultdma_iommu))
		return -EINVAL;
	faultdma_driver.driver.name = faultdma_name;
	error = platform_driver_register(&faultdma_driver);
	if (error)
		return error;
	faultdma_pdev = platform_device_register_simple("faultdma", PLATFORM_DEVID_NONE, NULL, 0);
	if (!IS_ERR(faultdma_pdev) && platform_get_drvdata(faultdma_pdev))
		return 0;
	error = IS_ERR(faultdma_pdev) ? PTR_ERR(faultdma_pdev) : -ENODEV;
	if (!IS_ERR(faultdma_pdev))
		platform_device_unregister(faultdma_pdev);
	platform_driver_unregister(&faultdma_driver);
	return error;
}
module_init(faultdma_init);

static void __exit faultdma_exit(void)
{
	platform_device_unregister(faultdma_pdev);
	platform_driver_unregister(&faultdma_driver);
}
module_exit(faultdma_exit);

MODULE_DESCRIPTION("DMA engine that fails on demand");
MODULE_LICENSE("GPL");
