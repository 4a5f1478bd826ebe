// SPDX-License-Identifier: GPL-2.0-only
/*
 * Channels: which there are, which are taken, and which of them a batch gets.
 *
 * All that can be used are taken when the migrator becomes active, so that a batch finds
 * them ready; a batch has those that it claims to itself.
 */
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/error-injection.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/stdarg.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "dcbm.h"

struct dcbm_channel dcbm_channels[DCBM_CHANNELS_MAX];

/*
 * For the states of channels, and for what was seen. Batches do not take it: they change
 * the state of a channel only from ready to retired, and only the one that claimed it.
 */
DEFINE_MUTEX(dcbm_channels_lock);

static bool dcbm_active;

/* struct dcbm_seen - a channel of the machine that was not taken, and why */
struct dcbm_seen {
	char channel[24];
	char device[32];
	const char *why;
};

#define DCBM_SEEN_MAX	64

static struct dcbm_seen dcbm_seen[DCBM_SEEN_MAX];
static unsigned int dcbm_nr_seen;

/* The machine has no channel, or others have all of them: then they cannot be looked at. */
static bool dcbm_none_free;

/* --- Looking for channels --- */

static bool dcbm_has_channels(void)
{
	unsigned int i;

	for (i = 0; i < DCBM_CHANNELS_MAX; i++)
		if (dcbm_channels[i].state != DCBM_EMPTY)
			return true;
	return false;
}

static bool dcbm_is_ours(const struct dma_chan *chan)
{
	unsigned int i;

	for (i = 0; i < DCBM_CHANNELS_MAX; i++)
		if (dcbm_channels[i].chan == chan)
			return true;
	return false;
}

/*
 * Drivers that say of a copy that failed, or of one that has not ended, that all is well. It
 * would be mapped. As of Linux 6.12; crypto/ccp/ccp-dmaengine.c, dma/ptdma and dma/sf-pdma.
 */
static const char * const dcbm_untrue[] = { "ccp", "ptdma", "sf-pdma" };

/* Why a channel cannot be used, or NULL. */
static const char *dcbm_objection(struct dma_chan *chan)
{
	struct device *dev = dmaengine_get_dma_device(chan);

	if (match_string(dcbm_untrue, ARRAY_SIZE(dcbm_untrue), dev_driver_string(dev)) >= 0)
		return "its driver does not tell what failed";
	if (!dma_has_cap(DMA_MEMCPY, chan->device->cap_mask))
		return "does not copy memory";
	if (chan->client_count)
		return "in use by others";
	if (chan->device->copy_align > PAGE_SHIFT)
		return "needs more alignment than a page has";
	if (dma_get_max_seg_size(dev) < PAGE_SIZE)
		return "copies less than a page at a time";
	/* Bounce buffers: CPUs would copy every byte twice to spare one copy. */
	if (dma_addressing_limited(dev))
		return "does not reach all memory";
	if (dma_max_mapping_size(dev) != SIZE_MAX)
		return "has its memory in bounce buffers";
	return NULL;
}

static void dcbm_note(struct dma_chan *chan, const char *why)
{
	struct dcbm_seen *seen = &dcbm_seen[dcbm_nr_seen];

	if (dcbm_nr_seen == DCBM_SEEN_MAX)
		return;
	strscpy(seen->channel, dma_chan_name(chan));
	strscpy(seen->device, dev_name(dmaengine_get_dma_device(chan)));
	seen->why = why;
	dcbm_nr_seen++;
}

static int dcbm_see(struct device *dev, void *unused)
{
	struct dma_chan *chan = container_of(dev, struct dma_chan_dev, device)->chan;
	const char *why;

	if (!chan || dcbm_is_ours(chan))
		return 0;
	why = dcbm_objection(chan);
	if (why)
		dcbm_note(chan, why);
	return 0;
}

/*
 * Called for every free channel of the machine, with the lock of the DMA engines held, so
 * that none of them can vanish. The class has those that are in use as well.
 */
static bool dcbm_survey_filter(struct dma_chan *chan, void *surveyed)
{
	if (*(bool *)surveyed)
		return false;
	*(bool *)surveyed = true;
	dcbm_nr_seen = 0;
	class_for_each_device(chan->dev->device.class, NULL, NULL, dcbm_see);
	return false;
}

/*
 * Writes down what cannot be taken. Where no channel is free nothing new is learnt: the
 * engines tell of free ones alone, and the class only by one of them.
 */
static void dcbm_survey(void)
{
	bool surveyed = false;
	dma_cap_mask_t any;

	dma_cap_zero(any);
	WARN_ON_ONCE(dma_request_channel(any, dcbm_survey_filter, &surveyed));
	dcbm_none_free = !surveyed && !dcbm_has_channels();
}

/* --- Taking and releasing them --- */

static void dcbm_channel_free(struct dcbm_channel *channel)
{
	kvfree(channel->round.src);
	kvfree(channel->round.dst);
	kvfree(channel->round.pairs);
	kvfree(channel->round.descs);
	free_pages((unsigned long)channel->probe.pages, 1);
	memset(&channel->round, 0, sizeof(channel->round));
	channel->probe.pages = NULL;
	/* An answer to the last probe may still come, so its number is not used again. */
	channel->probe.answered = channel->probe.number;
	channel->chan = NULL;
}

static noinline int dcbm_channel_alloc(struct dcbm_channel *channel)
{
	struct dcbm_round *round = &channel->round;

	round->src = kvcalloc(DCBM_ENTRIES, sizeof(*round->src), GFP_KERNEL);
	round->dst = kvcalloc(DCBM_ENTRIES, sizeof(*round->dst), GFP_KERNEL);
	round->pairs = kvcalloc(DCBM_ENTRIES, sizeof(*round->pairs), GFP_KERNEL);
	round->descs = kvcalloc(DCBM_DESCS, sizeof(*round->descs), GFP_KERNEL);
	channel->probe.pages = (void *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, 1);
	if (!round->src || !round->dst || !round->pairs || !round->descs ||
	    !channel->probe.pages) {
		dcbm_channel_free(channel);
		return -ENOMEM;
	}
	/* The end is marked anew in each round. */
	sg_init_table(round->src, DCBM_ENTRIES);
	sg_init_table(round->dst, DCBM_ENTRIES);
	sg_unmark_end(&round->src[DCBM_ENTRIES - 1]);
	sg_unmark_end(&round->dst[DCBM_ENTRIES - 1]);
	return 0;
}
ALLOW_ERROR_INJECTION(dcbm_channel_alloc, ERRNO);

static void dcbm_channel_describe(struct dcbm_channel *channel, struct dma_chan *chan)
{
	struct dma_device *engine = chan->device;

	channel->chan = chan;
	channel->dev = dmaengine_get_dma_device(chan);
	channel->nid = dev_to_node(channel->dev);
	channel->ordered = !dma_has_cap(DMA_COMPLETION_NO_ORDER, engine->cap_mask);
	channel->tells_residue =
		engine->residue_granularity != DMA_RESIDUE_GRANULARITY_DESCRIPTOR;
	channel->align = BIT(engine->copy_align) - 1;
	channel->max_bytes = round_down(min_t(u32, dma_get_max_seg_size(channel->dev), SZ_1G),
					PAGE_SIZE);
	channel->boundary = dma_get_seg_boundary(channel->dev);
	channel->depth = 0;
	channel->barren = false;
	channel->claimed = 0;
	channel->why = NULL;
	channel->submitted = 0;
	channel->waiting = 0;
	channel->wake = NULL;
}

static bool dcbm_take_filter(struct dma_chan *chan, void *param)
{
	return !dcbm_objection(chan);
}

/* Takes one more channel. -ENODEV if there is none. */
static int dcbm_channel_take(struct dcbm_channel *channel)
{
	struct dma_chan *chan;
	dma_cap_mask_t memcpy;
	int error;

	dma_cap_zero(memcpy);
	dma_cap_set(DMA_MEMCPY, memcpy);
	chan = dma_request_channel(memcpy, dcbm_take_filter, NULL);
	if (!chan)
		return -ENODEV;
	error = dcbm_channel_alloc(channel);
	if (error) {
		dma_release_channel(chan);
		return error;
	}
	dcbm_channel_describe(channel, chan);
	/* Batches may claim it from here on. */
	smp_store_release(&channel->state, DCBM_READY);
	return 0;
}

/**
 * dcbm_channel_release - give a channel back to the DMA engines
 * @channel: nothing of it is under way
 *
 * Context: dcbm_channels_lock is held.
 */
void dcbm_channel_release(struct dcbm_channel *channel)
{
	WRITE_ONCE(channel->state, DCBM_EMPTY);
	dma_release_channel(channel->chan);
	dcbm_channel_free(channel);
}

/* Takes all that can be taken. -ENOMEM if memory was short. */
static int dcbm_take_all(void)
{
	unsigned int i;
	int error = 0;

	dcbm_survey();
	for (i = 0; i < DCBM_CHANNELS_MAX && !error; i++)
		if (dcbm_channels[i].state == DCBM_EMPTY)
			error = dcbm_channel_take(&dcbm_channels[i]);
	return error == -ENOMEM ? error : 0;
}

static unsigned int dcbm_nr_ready(void)
{
	unsigned int i, nr = 0;

	for (i = 0; i < DCBM_CHANNELS_MAX; i++)
		nr += dcbm_channels[i].state == DCBM_READY;
	return nr;
}

static void dcbm_release_all(void)
{
	unsigned int i;

	for (i = 0; i < DCBM_CHANNELS_MAX; i++)
		if (dcbm_channels[i].state == DCBM_READY ||
		    dcbm_channels[i].state == DCBM_STOPPED)
			dcbm_channel_release(&dcbm_channels[i]);
}

/* Channels that were retired get another chance. */
static void dcbm_retry_all(void)
{
	unsigned int i;

	for (i = 0; i < DCBM_CHANNELS_MAX; i++) {
		struct dcbm_channel *channel = &dcbm_channels[i];

		if (channel->state == DCBM_STOPPED) {
			channel->why = NULL;
			channel->depth = 0;
			channel->barren = false;
			channel->claimed = 0;
			/* Batches may claim it from here on. */
			smp_store_release(&channel->state, DCBM_READY);
		} else if (channel->state == DCBM_RETIRED) {
			WRITE_ONCE(channel->insist, true);
			dcbm_recover_start(channel);
		}
	}
}

/**
 * dcbm_channels_start - take the channels
 *
 * Return: 0, -ENODEV if there is no channel that can copy, or -ENOMEM.
 */
int dcbm_channels_start(void)
{
	int error;

	mutex_lock(&dcbm_channels_lock);
	dcbm_retry_all();
	error = dcbm_take_all();
	if (!error && !dcbm_nr_ready())
		error = -ENODEV;
	if (error)
		dcbm_release_all();
	else
		dcbm_active = true;
	mutex_unlock(&dcbm_channels_lock);
	return error;
}

/**
 * dcbm_channels_stop - give the channels back
 *
 * No batch uses them any more. Those that do not answer stay; they have their memory and
 * the module until they do.
 */
void dcbm_channels_stop(void)
{
	mutex_lock(&dcbm_channels_lock);
	dcbm_active = false;
	dcbm_release_all();
	mutex_unlock(&dcbm_channels_lock);
}

/**
 * dcbm_channels_active - whether channels are kept for batches
 *
 * Context: dcbm_channels_lock is held.
 *
 * Return: true while dcbm is the migrator.
 */
bool dcbm_channels_active(void)
{
	return dcbm_active;
}

/**
 * dcbm_channels_retry - use channels again that were retired, and take new ones
 *
 * What does not answer yet is asked once more, which this does not wait for.
 *
 * Return: 0 or -ENOMEM.
 */
int dcbm_channels_retry(void)
{
	int error = 0;

	mutex_lock(&dcbm_channels_lock);
	dcbm_retry_all();
	if (dcbm_active)
		error = dcbm_take_all();
	mutex_unlock(&dcbm_channels_lock);
	return error;
}

/**
 * dcbm_channels_init - prepare what outlives the channels themselves
 *
 * Their drivers may call back, and works may run, when a channel was given back.
 */
void dcbm_channels_init(void)
{
	unsigned int i;

	for (i = 0; i < DCBM_CHANNELS_MAX; i++) {
		spin_lock_init(&dcbm_channels[i].lock);
		init_completion(&dcbm_channels[i].probe.done);
		INIT_WORK(&dcbm_channels[i].recover, dcbm_recover_work);
	}
}

/* --- Batches --- */

static bool dcbm_channel_claim(struct dcbm_channel *channel)
{
	/* Pairs with dcbm_retry_all() and dcbm_channel_take(). */
	return smp_load_acquire(&channel->state) == DCBM_READY &&
	       !test_and_set_bit_lock(0, &channel->claimed);
}

/**
 * dcbm_channels_claim - get channels for a batch
 * @nid: node of the destinations: its channels come first
 * @want: number of channels
 * @lanes: receive them
 *
 * Return: number of channels, 0 to @want.
 */
unsigned int dcbm_channels_claim(int nid, unsigned int want, struct dcbm_lane *lanes)
{
	unsigned int i, nr = 0;
	bool near = true;

	do {
		for (i = 0; i < DCBM_CHANNELS_MAX && nr < want; i++) {
			struct dcbm_channel *channel = &dcbm_channels[i];
			bool is_near = channel->nid == nid;

			if (is_near == near && dcbm_channel_claim(channel))
				lanes[nr++].channel = channel;
		}
		near = !near;
	} while (!near);
	return nr;
}

/**
 * dcbm_channel_unclaim - let others have a channel
 * @channel: that was claimed, and not retired since: such a one stays claimed until it is
 *	used again
 */
void dcbm_channel_unclaim(struct dcbm_channel *channel)
{
	clear_bit_unlock(0, &channel->claimed);
}

/* --- What people can read --- */

static const char * const dcbm_states[] = {
	[DCBM_READY] = "taken",
	[DCBM_RETIRED] = "retired",
	[DCBM_STOPPED] = "stopped",
};

/* struct dcbm_list - lines of text in a page, never half a line */
struct dcbm_list {
	char *page;
	int len;
	unsigned int lines;
	unsigned int left_out;
};

/* Space for the last line, which tells how many were left out. */
#define DCBM_LIST_END	32

static __printf(2, 3) void dcbm_list_add(struct dcbm_list *list, const char *format, ...)
{
	int space = PAGE_SIZE - DCBM_LIST_END - list->len;
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(list->page + list->len, space, format, args);
	va_end(args);
	list->lines++;
	if (list->left_out || len >= space)
		list->left_out++;
	else
		list->len += len;
}

/**
 * dcbm_channels_show - write down which channels there are
 * @page: for the text
 *
 * Return: length of it.
 */
int dcbm_channels_show(char *page)
{
	struct dcbm_list list = { .page = page };
	unsigned int i;

	mutex_lock(&dcbm_channels_lock);
	for (i = 0; i < DCBM_CHANNELS_MAX; i++) {
		struct dcbm_channel *channel = &dcbm_channels[i];
		const char *why = READ_ONCE(channel->why);

		if (channel->state == DCBM_EMPTY)
			continue;
		dcbm_list_add(&list, "%s %s node %d: %s%s%s\n", dma_chan_name(channel->chan),
			      dev_name(channel->dev), channel->nid, dcbm_states[channel->state],
			      why ? ", " : "", why ?: "");
	}
	if (dcbm_none_free && !list.lines)
		dcbm_list_add(&list, "no DMA channel of this machine is free\n");
	for (i = 0; i < dcbm_nr_seen; i++)
		dcbm_list_add(&list, "%s %s: refused, %s\n", dcbm_seen[i].channel,
			      dcbm_seen[i].device, dcbm_seen[i].why);
	mutex_unlock(&dcbm_channels_lock);
	if (list.left_out)
		list.len += sysfs_emit_at(page, list.len, "and %u more\n", list.left_out);
	return list.len;
}
