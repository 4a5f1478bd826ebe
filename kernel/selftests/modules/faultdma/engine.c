// SPDX-License-Identifier: GPL-2.0-only
/*
 * The engine as clients of DMA see it, and the module.
 */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/mod_devicetable.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <linux/stringify.h>

#include "faultdma.h"

static unsigned int faultdma_nr = 4;
module_param_named(channels, faultdma_nr, uint, 0444);
MODULE_PARM_DESC(channels, "Number of channels (1 to 64)");

static unsigned int faultdma_depth = 1024;
module_param_named(depth, faultdma_depth, uint, 0444);
MODULE_PARM_DESC(depth, "Descriptors that a channel takes");

bool faultdma_unordered;
module_param_named(unordered, faultdma_unordered, bool, 0444);
MODULE_PARM_DESC(unordered, "Descriptors may complete in any order, on two threads");

static unsigned int faultdma_mask_bits = 64;
module_param_named(mask_bits, faultdma_mask_bits, uint, 0444);
MODULE_PARM_DESC(mask_bits, "Bits of the addresses that it reaches");

static unsigned int faultdma_align;
module_param_named(align, faultdma_align, uint, 0444);
MODULE_PARM_DESC(align, "Alignment that it needs, as a power of two");

static bool faultdma_memcpy = true;
module_param_named(memcpy, faultdma_memcpy, bool, 0444);
MODULE_PARM_DESC(memcpy, "It copies memory");

static bool faultdma_slave;
module_param_named(slave, faultdma_slave, bool, 0444);
MODULE_PARM_DESC(slave, "Peripherals use it, too");

static unsigned int faultdma_segment;
module_param_named(segment, faultdma_segment, uint, 0444);
MODULE_PARM_DESC(segment, "Bytes that it copies at a time, at most; 0 for Linux's default");

static bool faultdma_reports = true;
module_param_named(reports_errors, faultdma_reports, bool, 0444);
MODULE_PARM_DESC(reports_errors, "It says that it reports failed copies");

bool faultdma_iommu;
module_param_named(iommu, faultdma_iommu, bool, 0444);
MODULE_PARM_DESC(iommu, "It is behind an IOMMU, which merges and notices");

bool faultdma_bounces;
module_param_named(bounces, faultdma_bounces, bool, 0444);
MODULE_PARM_DESC(bounces, "Its IOMMU has bounce buffers; needs iommu");

u64 faultdma_iommu_faults;

/* From when the driver is bound until it is unbound and no client has a channel. */
struct faultdma_engine {
	struct dma_device device;
	struct faultdma_channel channels[];
};

static struct faultdma_control *faultdma_controls;	/* by channel */
static struct dentry *faultdma_dir;
static u32 faultdma_suspend_bytes;
static bool faultdma_asleep;
static struct platform_device *faultdma_pdev;

static dma_cookie_t faultdma_submit(struct dma_async_tx_descriptor *tx)
{
	struct faultdma_channel *channel = faultdma_channel_of(tx->chan);
	struct faultdma_desc *desc = container_of(tx, struct faultdma_desc, tx);
	dma_cookie_t cookie = -EIO;
	unsigned long flags;

	spin_lock_irqsave(&channel->lock, flags);
	channel->control->asleep += READ_ONCE(faultdma_asleep);
	if (faultdma_now(&channel->control->submit_every, ++channel->submits)) {
		channel->control->submit++;
		list_add_tail(&desc->node, &channel->free);
	} else {
		cookie = faultdma_cookie_assign(tx);
		list_add_tail(&desc->node, &channel->submitted);
	}
	spin_unlock_irqrestore(&channel->lock, flags);
	return cookie;
}

/**
 * faultdma_spend - a descriptor was answered
 * @channel: of it, whose lock is held
 * @desc: is in no list
 *
 * Drivers make it free later, as in a tasklet that a busy CPU does not come to run.
 */
void faultdma_spend(struct faultdma_channel *channel, struct faultdma_desc *desc)
{
	desc->answered = jiffies;
	list_add_tail(&desc->node, &channel->spent);
}

/* A descriptor for a client, in no list, or NULL. */
static struct faultdma_desc *faultdma_take(struct faultdma_channel *channel)
{
	struct faultdma_control *control = channel->control;
	unsigned long late = msecs_to_jiffies(READ_ONCE(control->give_back_ms));
	u32 depth = READ_ONCE(control->depth);
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
		control->spent++;
	if (faultdma_now(&control->prep_every, ++channel->preps)) {
		control->prep++;
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
	u32 ms = READ_ONCE(channel->control->prep_ms);
	unsigned long flags;

	if (ms)
		msleep(ms);
	spin_lock_irqsave(&channel->lock, flags);
	desc = faultdma_take(channel);
	spin_unlock_irqrestore(&channel->lock, flags);
	if (!desc)
		return NULL;
	memset(&desc->tx, 0, sizeof(desc->tx));
	dma_async_tx_descriptor_init(&desc->tx, chan);
	desc->tx.tx_submit = faultdma_submit;
	desc->tx.flags = prep_flags;
	desc->src = src;
	desc->dst = dst;
	desc->len = len;
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

/* Some drivers call back for descriptors that asked for no interrupt when their status is read. */
static enum dma_status faultdma_tx_status(struct dma_chan *chan, dma_cookie_t cookie,
					  struct dma_tx_state *state)
{
	struct faultdma_channel *channel = faultdma_channel_of(chan);
	enum dma_status status = faultdma_cookie_status(chan, cookie, state);
	struct faultdma_desc *desc, *next;
	LIST_HEAD(told);

	if (faultdma_unordered)
		return DMA_OUT_OF_ORDER;
	if (status != DMA_COMPLETE)
		return status;
	spin_lock_irq(&channel->lock);
	list_for_each_entry_safe(desc, next, &channel->finished, node)
		if (!(desc->tx.flags & DMA_PREP_INTERRUPT) &&
		    desc->result.result == DMA_TRANS_NOERROR)
			list_move_tail(&desc->node, &told);
	spin_unlock_irq(&channel->lock);
	list_for_each_entry_safe(desc, next, &told, node) {
		faultdma_call_back(desc);
		spin_lock_irq(&channel->lock);
		list_del(&desc->node);
		faultdma_spend(channel, desc);
		spin_unlock_irq(&channel->lock);
	}
	return status;
}

/* Forgets what it was told to do, and what runs goes on: only unbinding the driver stops it. */
static int faultdma_terminate_all(struct dma_chan *chan)
{
	struct faultdma_channel *channel = faultdma_channel_of(chan);
	unsigned long flags;

	spin_lock_irqsave(&channel->lock, flags);
	list_splice_tail_init(&channel->submitted, &channel->free);
	list_splice_tail_init(&channel->active, &channel->free);
	list_splice_tail_init(&channel->finished, &channel->free);
	list_splice_tail_init(&channel->spent, &channel->free);
	spin_unlock_irqrestore(&channel->lock, flags);
	return 0;
}

static int faultdma_alloc(struct dma_chan *chan)
{
	return faultdma_depth;
}

static void faultdma_free(struct dma_chan *chan)
{
	faultdma_terminate_all(chan);
}

static void faultdma_release(struct dma_device *device)
{
	struct faultdma_engine *engine = container_of(device, struct faultdma_engine, device);
	unsigned int i;

	for (i = 0; i < faultdma_nr; i++)
		kvfree(engine->channels[i].descs);
	kvfree(engine);
}

/* No thread copies or calls back any more. */
static void faultdma_stop(struct faultdma_engine *engine)
{
	unsigned int i, t;

	for (i = 0; i < faultdma_nr; i++)
		for (t = 0; t < FAULTDMA_THREADS; t++)
			if (!IS_ERR_OR_NULL(engine->channels[i].threads[t]))
				kthread_stop(engine->channels[i].threads[t]);
}

static int faultdma_channel_init(struct faultdma_engine *engine, unsigned int index)
{
	struct faultdma_channel *channel = &engine->channels[index];
	unsigned int i, t;

	channel->control = &faultdma_controls[index];
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
	channel->chan.device = &engine->device;
	channel->chan.cookie = DMA_MIN_COOKIE;
	channel->chan.completed_cookie = DMA_MIN_COOKIE;
	list_add_tail(&channel->chan.device_node, &engine->device.channels);
	for (t = 0; t < (faultdma_unordered ? FAULTDMA_THREADS : 1); t++) {
		channel->threads[t] = kthread_run(faultdma_thread, channel, "faultdma/%u", index);
		if (IS_ERR(channel->threads[t]))
			return PTR_ERR(channel->threads[t]);
	}
	return 0;
}

static void faultdma_describe(struct dma_device *device, struct device *dev)
{
	if (faultdma_memcpy)
		dma_cap_set(DMA_MEMCPY, device->cap_mask);
	if (faultdma_slave)
		dma_cap_set(DMA_SLAVE, device->cap_mask);
#ifdef FAULTDMA_REPORTS_ERRORS
	if (faultdma_reports)
		dma_cap_set(DMA_REPORTS_ERRORS, device->cap_mask);
#endif
	if (faultdma_unordered)
		dma_cap_set(DMA_COMPLETION_NO_ORDER, device->cap_mask);
	device->dev = dev;
	device->copy_align = faultdma_align;
	device->device_alloc_chan_resources = faultdma_alloc;
	device->device_free_chan_resources = faultdma_free;
	device->device_prep_dma_memcpy = faultdma_prep;
	device->device_issue_pending = faultdma_issue_pending;
	device->device_tx_status = faultdma_tx_status;
	device->device_terminate_all = faultdma_terminate_all;
	device->device_release = faultdma_release;
	INIT_LIST_HEAD(&device->channels);
}

static int faultdma_probe(struct platform_device *pdev)
{
	struct faultdma_engine *engine;
	unsigned int i;
	int error;

	error = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(faultdma_mask_bits));
	if (!error)
		error = faultdma_iommu_start(&pdev->dev);
	if (error)
		return error;
	if (faultdma_segment)
		dma_set_max_seg_size(&pdev->dev, faultdma_segment);
	engine = kvzalloc(struct_size(engine, channels, faultdma_nr), GFP_KERNEL);
	if (!engine)
		return -ENOMEM;
	faultdma_describe(&engine->device, &pdev->dev);
	for (i = 0; i < faultdma_nr && !error; i++)
		error = faultdma_channel_init(engine, i);
	if (!error)
		error = dma_async_device_register(&engine->device);
	if (error) {
		faultdma_stop(engine);
		faultdma_release(&engine->device);
		return error;
	}
	platform_set_drvdata(pdev, engine);
	return 0;
}

static void faultdma_remove(struct platform_device *pdev)
{
	struct faultdma_engine *engine = platform_get_drvdata(pdev);

	faultdma_stop(engine);
	dma_async_device_unregister(&engine->device);
}

/* A driver that has to save something allocates as it suspends its device. */
static int faultdma_suspend(struct device *dev)
{
	size_t bytes = READ_ONCE(faultdma_suspend_bytes);
	dma_addr_t addr;
	void *at;

	WRITE_ONCE(faultdma_asleep, true);
	if (!bytes)
		return 0;
	at = dma_alloc_coherent(dev, bytes, &addr, GFP_KERNEL | __GFP_NOWARN);
	if (!at) {
		WRITE_ONCE(faultdma_asleep, false);
		return -ENOMEM;
	}
	dma_free_coherent(dev, bytes, at, addr);
	return 0;
}

static int faultdma_resume(struct device *dev)
{
	WRITE_ONCE(faultdma_asleep, false);
	return 0;
}

static DEFINE_SIMPLE_DEV_PM_OPS(faultdma_pm, faultdma_suspend, faultdma_resume);

static const struct platform_device_id faultdma_ids[] = {
	{ .name = "faultdma" },
	{ }
};

static struct platform_driver faultdma_driver = {
	.id_table = faultdma_ids,
	.probe = faultdma_probe,
	.remove = faultdma_remove,
	.driver = {
		.name = "faultdma",
		.pm = pm_sleep_ptr(&faultdma_pm),
	},
};

#define FAULTDMA_FAULT(name) \
	debugfs_create_u32(__stringify(name), 0600, dir, &control->name)
#define FAULTDMA_COUNT(name) \
	debugfs_create_u64("count_" __stringify(name), 0400, dir, &control->name)

static void faultdma_files(struct faultdma_control *control, struct dentry *dir)
{
	FAULTDMA_FAULT(delay_us);
	FAULTDMA_FAULT(shuffle);
	FAULTDMA_FAULT(error_every);
	FAULTDMA_FAULT(false_every);
	FAULTDMA_FAULT(half_every);
	FAULTDMA_FAULT(abort_every);
	FAULTDMA_FAULT(hang_every);
	FAULTDMA_FAULT(late_ms);
	FAULTDMA_FAULT(late_answer);
	FAULTDMA_FAULT(silent_every);
	FAULTDMA_FAULT(tell_after_us);
	FAULTDMA_FAULT(prep_every);
	FAULTDMA_FAULT(prep_ms);
	FAULTDMA_FAULT(submit_every);
	FAULTDMA_FAULT(depth);
	FAULTDMA_FAULT(give_back_ms);
	FAULTDMA_COUNT(descriptors);
	FAULTDMA_COUNT(bytes);
	FAULTDMA_COUNT(interrupts);
	FAULTDMA_COUNT(errors);
	FAULTDMA_COUNT(lies);
	FAULTDMA_COUNT(aborted);
	FAULTDMA_COUNT(hung);
	FAULTDMA_COUNT(late);
	FAULTDMA_COUNT(silent);
	FAULTDMA_COUNT(told_late);
	FAULTDMA_COUNT(prep);
	FAULTDMA_COUNT(submit);
	FAULTDMA_COUNT(spent);
	FAULTDMA_COUNT(asleep);
}

static void faultdma_exit(void)
{
	platform_device_unregister(faultdma_pdev);
	platform_driver_unregister(&faultdma_driver);
	debugfs_remove(faultdma_dir);
	kvfree(faultdma_controls);
}
module_exit(faultdma_exit);

static int __init faultdma_init(void)
{
	unsigned int i;
	char name[8];
	int error;

	if (!faultdma_nr || faultdma_nr > 64 || !faultdma_depth || faultdma_mask_bits > 64 ||
	    faultdma_mask_bits < 16 || (faultdma_bounces && !faultdma_iommu))
		return -EINVAL;
	faultdma_controls = kvcalloc(faultdma_nr, sizeof(*faultdma_controls), GFP_KERNEL);
	if (!faultdma_controls)
		return -ENOMEM;
	error = platform_driver_register(&faultdma_driver);
	if (error) {
		kvfree(faultdma_controls);
		return error;
	}
	faultdma_pdev = platform_device_register_simple("faultdma", PLATFORM_DEVID_NONE, NULL, 0);
	/* Without a device there is no engine, nor if the driver refused it. */
	error = PTR_ERR_OR_ZERO(faultdma_pdev);
	if (!error && !platform_get_drvdata(faultdma_pdev))
		error = -ENODEV;
	if (error) {
		faultdma_exit();
		return error;
	}
	faultdma_dir = debugfs_create_dir("faultdma", NULL);
	for (i = 0; i < faultdma_nr; i++) {
		snprintf(name, sizeof(name), "%u", i);
		faultdma_files(&faultdma_controls[i], debugfs_create_dir(name, faultdma_dir));
	}
	debugfs_create_u32("suspend_bytes", 0600, faultdma_dir, &faultdma_suspend_bytes);
	debugfs_create_u64("iommu_faults", 0400, faultdma_dir, &faultdma_iommu_faults);
	return 0;
}
module_init(faultdma_init);

MODULE_DESCRIPTION("DMA engine that fails on demand");
MODULE_LICENSE("GPL");
