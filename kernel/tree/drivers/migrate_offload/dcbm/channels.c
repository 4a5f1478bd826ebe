// SPDX-License-Identifier: GPL-2.0-only
/*
 * Channels: which are taken, which of them a batch gets, and how they are given back.
 *
 * dcbm_mutex serialises everything here but batches and the notifiers. Bit 0 of a channel's claimed
 * is the lock between these: a batch tries it, the task that gives the channel back waits for it.
 *
 * A channel is given back when dcbm is not chosen any more, and before its driver is unbound,
 * because the driver may free it then. The memory of a retired channel is given back in steps, as
 * the driver core takes the driver from the device (drivers/base/dd.c):
 *
 *	BUS_NOTIFY_UNBIND_DRIVER	the channel is given back
 *	remove() of the driver		stops the device
 *	devres is released		the tables are unmapped: not before, as the device may read
 *					and write; not later, as DMA ops and offsets end with it
 *	BUS_NOTIFY_UNBOUND_DRIVER	nothing of the driver is left: quarantine ends
 *
 * If all answers come before that, the quarantine ends with them: dcbm_revive().
 */
#include <linux/dma-mapping.h>
#include <linux/error-injection.h>
#include <linux/kobject.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/seq_buf.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/suspend.h>
#include <linux/sysfs.h>
#include <linux/wait_bit.h>

#include "dcbm.h"

static DEFINE_MUTEX(dcbm_mutex);
static bool dcbm_active;

/*
 * Not 0 from before drivers suspend their devices until after they resumed them: what others
 * allocate meanwhile can still migrate pages. A suspend may come while user space has begun a
 * hibernation.
 */
static atomic_t dcbm_asleep;

/* Few channels saturate the memory of a node, and others want some, too. */
static unsigned int dcbm_lanes = 4;

/* Lines for channels of the machine that cannot be taken, as of when some were taken last. */
static DECLARE_SEQ_BUF(dcbm_refused, SZ_8K);

/* Why a channel cannot be taken, or NULL. */
static const char *dcbm_objection(struct dma_chan *chan)
{
	struct device *dev = chan->device->dev;

	if (!dma_has_cap(DMA_MEMCPY, chan->device->cap_mask))
		return "does not copy memory";
	if (chan->client_count)
		return "in use by others";
	/* Peripherals ask for theirs when their drivers are bound, at any time. */
	if (dma_has_cap(DMA_SLAVE, chan->device->cap_mask))
		return "kept for peripherals";
	/* Mappings would belong to a device without a driver, whose end nobody tells. */
	if (dmaengine_get_dma_device(chan) != dev)
		return "maps memory for another device";
	/* All that is copied are whole pages. */
	if (chan->device->copy_align > PAGE_SHIFT)
		return "needs more alignment than a page has";
	if (dma_get_max_seg_size(dev) < PAGE_SIZE)
		return "copies less than a page at a time";
	/* Bounce buffers: CPUs would copy every byte twice to spare one copy. */
	if (dma_addressing_limited(dev))
		return "does not reach all memory";
	if (dma_max_mapping_size(dev) != SIZE_MAX)
		return "has its memory in bounce buffers";
	/* A failed copy that is reported as good would be mapped. */
	if (!dma_has_cap(DMA_REPORTS_ERRORS, chan->device->cap_mask))
		return "its driver does not say that it reports failed copies";
	return NULL;
}

/*
 * Leaves the device of the channel locked, so that its driver cannot be unbound, and free the
 * channel, before it is published. If that is under way, or the device is locked for another
 * reason, the channel is left alone.
 */
static bool dcbm_take_filter(struct dma_chan *chan, void *param)
{
	struct device **locked = param;

	/* The channel that was to be taken before could not be. */
	if (*locked)
		device_unlock(*locked);
	*locked = NULL;
	if (dcbm_objection(chan) || !device_trylock(chan->device->dev))
		return false;
	*locked = chan->device->dev;
	return true;
}

static int dcbm_note_refused(struct device *dev, void *unused)
{
	struct dma_chan *chan = container_of(dev, struct dma_chan_dev, device)->chan;
	const char *why = chan ? dcbm_objection(chan) : NULL;
	unsigned int i;

	for (i = 0; i < DCBM_CHANNELS_MAX; i++)
		if (dcbm_channels[i].chan == chan)
			return 0;
	if (why)
		seq_buf_printf(&dcbm_refused, "%s %s: refused, %s\n", dma_chan_name(chan),
			       dev_name(chan->device->dev), why);
	return 0;
}

/*
 * Called for free channels, with the lock of the DMA engines, so that none of the class can
 * vanish, which has the channels of others as well.
 */
static bool dcbm_survey_filter(struct dma_chan *chan, void *surveyed)
{
	if (!*(bool *)surveyed) {
		seq_buf_clear(&dcbm_refused);
		class_for_each_device(chan->dev->device.class, NULL, NULL, dcbm_note_refused);
	}
	*(bool *)surveyed = true;
	return false;
}

/* Where no channel is free nothing new is learnt. @held: channels that dcbm has. */
static void dcbm_survey(unsigned int held)
{
	bool surveyed = false;
	dma_cap_mask_t any;

	dma_cap_zero(any);
	WARN_ON_ONCE(dma_request_channel(any, dcbm_survey_filter, &surveyed));
	if (surveyed || held)
		return;
	seq_buf_clear(&dcbm_refused);
	seq_buf_puts(&dcbm_refused, "no DMA channel of this machine is free\n");
}

static void dcbm_channel_free(struct dcbm_channel *channel)
{
	kvfree(channel->src);
	kvfree(channel->dst);
	kvfree(channel->pairs);
	kvfree(channel->descs);
	channel->src = NULL;
	channel->dst = NULL;
	channel->pairs = NULL;
	channel->descs = NULL;
	put_device(channel->dev);
	channel->dev = NULL;
	/* Pairs with dcbm_channels_adjust(), after which the slot is used again. */
	smp_store_release(&channel->state, DCBM_EMPTY);
}

static noinline int dcbm_channel_alloc(struct dcbm_channel *channel)
{
	channel->src = kvcalloc(DCBM_ENTRIES, sizeof(*channel->src), GFP_KERNEL);
	channel->dst = kvcalloc(DCBM_ENTRIES, sizeof(*channel->dst), GFP_KERNEL);
	channel->pairs = kvcalloc(DCBM_ENTRIES, sizeof(*channel->pairs), GFP_KERNEL);
	channel->descs = kvcalloc(DCBM_DESCS, sizeof(*channel->descs), GFP_KERNEL);
	if (!channel->src || !channel->dst || !channel->pairs || !channel->descs)
		return -ENOMEM;
	sg_init_table(channel->src, DCBM_ENTRIES);
	sg_init_table(channel->dst, DCBM_ENTRIES);
	return 0;
}
ALLOW_ERROR_INJECTION(dcbm_channel_alloc, ERRNO);

static void dcbm_channel_describe(struct dcbm_channel *channel)
{
	struct dma_device *engine = channel->chan->device;
	struct device *dev = get_device(engine->dev);

	channel->dev = dev;
	channel->nid = dev_to_node(dev);
	snprintf(channel->name, sizeof(channel->name), "%s %s node %d",
		 dma_chan_name(channel->chan), dev_name(dev), channel->nid);
	channel->ordered = !dma_has_cap(DMA_COMPLETION_NO_ORDER, engine->cap_mask);
	channel->reports_residue =
		engine->residue_granularity != DMA_RESIDUE_GRANULARITY_DESCRIPTOR;
	channel->max_bytes = round_down(min_t(u32, dma_get_max_seg_size(dev), SZ_1G), PAGE_SIZE);
	channel->boundary = dma_get_seg_boundary(dev);
	channel->depth = 0;
	channel->gave_none = false;
}

static int dcbm_channel_publish(struct dcbm_channel *channel)
{
	const struct bus_type *bus = channel->dev->bus;
	int error = bus_register_notifier(bus, &channel->nb);

	if (!error) {
		channel->bus = bus;
		/* Pairs with the barrier in dcbm_channel_claim(). */
		smp_store_release(&channel->state, DCBM_READY);
	}
	return error;
}

/* Takes one more channel. -ENODEV if there is none. */
static int dcbm_channel_take(struct dcbm_channel *channel)
{
	struct device *locked = NULL;
	dma_cap_mask_t memcpy;
	int error = -ENODEV;

	dma_cap_zero(memcpy);
	dma_cap_set(DMA_MEMCPY, memcpy);
	channel->chan = dma_request_channel(memcpy, dcbm_take_filter, &locked);
	if (channel->chan) {
		dcbm_channel_describe(channel);
		error = dcbm_channel_alloc(channel);
		if (!error)
			error = dcbm_channel_publish(channel);
		if (error) {
			dma_release_channel(channel->chan);
			channel->chan = NULL;
			dcbm_channel_free(channel);
		}
	}
	if (locked)
		device_unlock(locked);
	return error;
}

static void dcbm_channel_give_back(struct dcbm_channel *channel)
{
	dma_release_channel(channel->chan);
	channel->chan = NULL;
	dcbm_channel_free(channel);
}

/* Waits for the batch that has the channel, which may retire it, and for another release of it. */
static void dcbm_channel_release(struct dcbm_channel *channel)
{
	/* Keeps further batches out. */
	cmpxchg(&channel->state, DCBM_READY, DCBM_LEAVING);
	wait_on_bit_lock(&channel->claimed, 0, TASK_UNINTERRUPTIBLE);
	if (channel->state == DCBM_LEAVING)
		dcbm_channel_give_back(channel);
	dcbm_channel_unclaim(channel);
}

static void dcbm_unmap_retired(void *channel)
{
	dcbm_round_unmap(channel);
}

/* Waits as dcbm_channel_release() does. A retired channel may have been revived meanwhile. */
static void dcbm_driver_leaves(struct dcbm_channel *channel)
{
	cmpxchg(&channel->state, DCBM_READY, DCBM_LEAVING);
	wait_on_bit_lock(&channel->claimed, 0, TASK_UNINTERRUPTIBLE);
	cmpxchg(&channel->state, DCBM_READY, DCBM_LEAVING);
	if (channel->state == DCBM_LEAVING) {
		dcbm_channel_give_back(channel);
	} else if (channel->state == DCBM_RETIRED) {
		dcbm_round_forget(channel);
		/* Without memory for it the unmapping is early, which an IOMMU may report. */
		devm_add_action_or_reset(channel->dev, dcbm_unmap_retired, channel);
		dmaengine_terminate_async(channel->chan);
		dma_release_channel(channel->chan);
		channel->chan = NULL;
	}
	dcbm_channel_unclaim(channel);
}

static void dcbm_end_quarantine(struct dcbm_channel *channel)
{
	unsigned int i;

	for (i = 0; i < channel->nr; i++)
		if (!i || channel->pairs[i] != channel->pairs[i - 1])
			migrator_quarantine_release(page_folio(sg_page(&channel->dst[i])));
}

static void dcbm_driver_left(struct dcbm_channel *channel)
{
	if (channel->state != DCBM_RETIRED)
		return;
	dcbm_end_quarantine(channel);
	dev_info(channel->dev, "dcbm: %s is unbound, its quarantine ends\n", channel->name);
	dcbm_channel_free(channel);
	/* Removal of the module waits for this notifier to return. */
	module_put(THIS_MODULE);
}

static int dcbm_notify(struct notifier_block *nb, unsigned long event, void *dev)
{
	struct dcbm_channel *channel = container_of(nb, struct dcbm_channel, nb);

	if (dev != READ_ONCE(channel->dev))
		return NOTIFY_DONE;
	if (event == BUS_NOTIFY_UNBIND_DRIVER)
		dcbm_driver_leaves(channel);
	else if (event == BUS_NOTIFY_UNBOUND_DRIVER)
		dcbm_driver_left(channel);
	return NOTIFY_DONE;
}

/* Static, as late answers and the notifiers look at slots whose channel has gone. */
struct dcbm_channel dcbm_channels[DCBM_CHANNELS_MAX] = {
	[0 ... DCBM_CHANNELS_MAX - 1] = {
		.nb.notifier_call = dcbm_notify,
		.lock = __SPIN_LOCK_UNLOCKED(dcbm_channels.lock),
	},
};

/*
 * Gives back what is more than @want, or takes what is missing, as far as there is some. Returns
 * how many there are, or -ENOMEM.
 */
static int dcbm_channels_adjust(unsigned int want)
{
	struct dcbm_channel *channel, *end = dcbm_channels + DCBM_CHANNELS_MAX;
	unsigned int nr = 0;
	int error = 0;

	for (channel = dcbm_channels; channel < end; channel++) {
		if (READ_ONCE(channel->state) == DCBM_READY && nr++ >= want)
			dcbm_channel_release(channel);
		/* A notifier cannot take itself off when it has released the channel. */
		if (channel->bus && smp_load_acquire(&channel->state) == DCBM_EMPTY) {
			bus_unregister_notifier(channel->bus, &channel->nb);
			channel->bus = NULL;
		}
	}
	if (nr >= want)
		return want;
	dcbm_survey(nr);
	for (channel = dcbm_channels; channel < end && nr < want && !error; channel++)
		if (!channel->bus) {
			error = dcbm_channel_take(channel);
			nr += !error;
		}
	return error == -ENOMEM ? error : nr;
}

/*
 * The engine has told of each descriptor of a retired channel that it has finished with it: so it
 * writes nothing any more, its quarantine ends, and it is used again. The task that retired it may
 * hold it still.
 */
static void dcbm_revive(struct work_struct *work)
{
	struct dcbm_channel *channel = container_of(to_delayed_work(work), struct dcbm_channel,
						    revive);
	bool revived;

	mutex_lock(&dcbm_mutex);
	wait_on_bit_lock(&channel->claimed, 0, TASK_UNINTERRUPTIBLE);
	/* The work may be that of a channel which had the slot before. */
	revived = channel->state == DCBM_RETIRED && dcbm_round_answered_late(channel);
	if (revived) {
		dcbm_round_forget(channel);
		dcbm_round_unmap(channel);
		dcbm_end_quarantine(channel);
		dev_info_ratelimited(channel->dev,
				     "dcbm: %s has answered late, its quarantine ends\n",
				     channel->name);
		/* Pairs with the barrier in dcbm_channel_claim(). */
		smp_store_release(&channel->state, DCBM_READY);
	}
	dcbm_channel_unclaim(channel);
	if (revived) {
		/* Others may have been taken in its place, or nobody wants any. */
		dcbm_channels_adjust(dcbm_active ? dcbm_lanes : 0);
		/* dcbm_channels_exit() waits for this to return. */
		module_put(THIS_MODULE);
	}
	mutex_unlock(&dcbm_mutex);
}

/* Returns when no batch has a channel any more, nor gets one until the machine is awake again. */
static int dcbm_pm_notify(struct notifier_block *nb, unsigned long event, void *unused)
{
	struct dcbm_channel *channel, *end = dcbm_channels + DCBM_CHANNELS_MAX;

	switch (event) {
	case PM_HIBERNATION_PREPARE:
	case PM_SUSPEND_PREPARE:
	case PM_RESTORE_PREPARE:
		atomic_inc(&dcbm_asleep);
		/* Pairs with the barrier in dcbm_channel_claim(). */
		smp_mb__after_atomic();
		for (channel = dcbm_channels; channel < end; channel++)
			wait_on_bit(&channel->claimed, 0, TASK_UNINTERRUPTIBLE);
		break;
	case PM_POST_HIBERNATION:
	case PM_POST_SUSPEND:
	case PM_POST_RESTORE:
		/* One that had begun before the module came is not counted. */
		atomic_dec_if_positive(&dcbm_asleep);
		break;
	}
	return NOTIFY_DONE;
}

static struct notifier_block dcbm_pm = { .notifier_call = dcbm_pm_notify };

int dcbm_channels_init(void)
{
	unsigned int i, flags;
	int error;

	for (i = 0; i < DCBM_CHANNELS_MAX; i++)
		INIT_DELAYED_WORK(&dcbm_channels[i].revive, dcbm_revive);
	/*
	 * Not between the call of the notifiers and the suspend of the devices, but for a
	 * hibernation that user space has begun.
	 */
	flags = lock_system_sleep();
	error = register_pm_notifier(&dcbm_pm);
	unlock_system_sleep(flags);
	return error;
}

/* Takes channels. 0; -ENODEV if there is none that can copy; -ENOMEM, and none was taken. */
int dcbm_channels_start(void)
{
	int nr;

	mutex_lock(&dcbm_mutex);
	nr = dcbm_channels_adjust(dcbm_lanes);
	dcbm_active = nr > 0;
	if (nr < 0)
		dcbm_channels_adjust(0);
	mutex_unlock(&dcbm_mutex);
	return nr < 0 ? nr : nr ? 0 : -ENODEV;
}

/* Gives back all channels but retired ones. */
void dcbm_channels_stop(void)
{
	mutex_lock(&dcbm_mutex);
	dcbm_active = false;
	dcbm_channels_adjust(0);
	mutex_unlock(&dcbm_mutex);
}

/* Waits for what revived channels, and for notifiers that run. Retired channels pin the module. */
void dcbm_channels_exit(void)
{
	unsigned int i;

	unregister_pm_notifier(&dcbm_pm);
	for (i = 0; i < DCBM_CHANNELS_MAX; i++) {
		cancel_delayed_work_sync(&dcbm_channels[i].revive);
		if (dcbm_channels[i].bus)
			bus_unregister_notifier(dcbm_channels[i].bus, &dcbm_channels[i].nb);
	}
}

static bool dcbm_channel_is_ready(const struct dcbm_channel *channel)
{
	return READ_ONCE(channel->state) == DCBM_READY && !atomic_read(&dcbm_asleep);
}

static bool dcbm_channel_claim(struct dcbm_channel *channel)
{
	if (!dcbm_channel_is_ready(channel))
		return false;
	/*
	 * A full barrier: dcbm_channel_release() changes state, and dcbm_pm_notify() dcbm_asleep,
	 * and then they look at claimed.
	 */
	if (test_and_set_bit(0, &channel->claimed))
		return false;
	if (dcbm_channel_is_ready(channel))
		return true;
	dcbm_channel_unclaim(channel);
	return false;
}

/* How many a batch would get now. */
unsigned int dcbm_channels_free(void)
{
	struct dcbm_channel *channel, *end = dcbm_channels + DCBM_CHANNELS_MAX;
	unsigned int nr = 0;

	for (channel = dcbm_channels; channel < end; channel++)
		nr += dcbm_channel_is_ready(channel) && !test_bit(0, &channel->claimed);
	return nr;
}

/* Gets up to @want channels for a batch, those of node @nid first. Returns how many. */
unsigned int dcbm_channels_claim(int nid, unsigned int want, struct dcbm_lane *lanes)
{
	unsigned int i, nr = 0;
	bool near = true;

	do {
		for (i = 0; i < DCBM_CHANNELS_MAX && nr < want; i++) {
			struct dcbm_channel *channel = &dcbm_channels[i];
			bool here = channel->nid == nid;

			if (here == near && dcbm_channel_claim(channel))
				lanes[nr++].channel = channel;
		}
		near = !near;
	} while (!near);
	return nr;
}

/* Lets others have a channel that was claimed. */
void dcbm_channel_unclaim(struct dcbm_channel *channel)
{
	clear_and_wake_up_bit(0, &channel->claimed);
}

static ssize_t lanes_show(struct kobject *kobj, struct kobj_attribute *attr, char *page)
{
	return sysfs_emit(page, "%u\n", READ_ONCE(dcbm_lanes));
}

static ssize_t lanes_store(struct kobject *kobj, struct kobj_attribute *attr, const char *text,
			   size_t count)
{
	unsigned int lanes;
	int nr = 0;

	/* kstrtouint() ends at a zero byte, but what is behind it was written, too. */
	if (strlen(text) != count || kstrtouint(text, 0, &lanes) || !lanes ||
	    lanes > DCBM_CHANNELS_MAX)
		return -EINVAL;
	mutex_lock(&dcbm_mutex);
	WRITE_ONCE(dcbm_lanes, lanes);
	if (dcbm_active)
		nr = dcbm_channels_adjust(lanes);
	mutex_unlock(&dcbm_mutex);
	return nr < 0 ? nr : count;
}

/* Whole lines, up to 4 KiB whatever a page has, and how many more there are. */
static int dcbm_cut(char *text, size_t len)
{
	const size_t space = SZ_4K - 32;
	unsigned int lines = 0;

	while (len > space) {
		while (text[--len - 1] != '\n')
			;
		lines++;
	}
	return lines ? len + sprintf(text + len, "and %u more\n", lines) : len;
}

static ssize_t devices_show(struct kobject *kobj, struct kobj_attribute *attr, char *page)
{
	struct dcbm_channel *channel, *end = dcbm_channels + DCBM_CHANNELS_MAX;
	char *text = kvmalloc(SZ_16K, GFP_KERNEL);
	struct seq_buf buf;
	int len;

	if (!text)
		return -ENOMEM;
	seq_buf_init(&buf, text, SZ_16K);
	mutex_lock(&dcbm_mutex);
	for (channel = dcbm_channels; channel < end; channel++) {
		enum dcbm_state state = READ_ONCE(channel->state);

		if (state != DCBM_EMPTY)
			seq_buf_printf(&buf, "%s: %s\n", channel->name, state == DCBM_RETIRED ?
				       "retired, no answer in time" : "taken");
	}
	seq_buf_puts(&buf, seq_buf_str(&dcbm_refused));
	mutex_unlock(&dcbm_mutex);
	len = dcbm_cut(text, seq_buf_used(&buf));
	memcpy(page, text, len);
	kvfree(text);
	return len;
}

static struct kobj_attribute lanes_attr = __ATTR_RW(lanes);
static struct kobj_attribute devices_attr = __ATTR_RO(devices);

static struct attribute *dcbm_attrs[] = {
	&lanes_attr.attr,
	&devices_attr.attr,
	NULL
};

const struct attribute_group dcbm_group = {
	.name = "dcbm",
	.attrs = dcbm_attrs,
};
