// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lanes: a channel copies its share of a batch, round by round. A round is what is mapped at a
 * time; a descriptor is what is in one piece on both sides, as an IOMMU may merge either.
 *
 * The result of a descriptor comes with its callback alone. An ordered engine is asked to
 * interrupt for the last one, and its driver then calls back for all; an unordered one interrupts
 * for each. A status does not say how a descriptor ended, as drivers drop some in a reset and
 * complete later ones, so without a callback nothing counts as copied. DMA_TRANS_ABORTED is no
 * answer: drivers give it for what they forget and the device still works on.
 */
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/clock.h>
#include <linux/smp.h>
#include <linux/timekeeping.h>
#include <trace/events/migrator.h>

#include "dcbm.h"

/*
 * From the last late answer until the channel is used again. A channel that is always late costs
 * a batch its deadline once in this time: 44 ms in a second with the default size of batches.
 */
#define DCBM_REVIVE_DELAY	HZ

/* Parameter of a callback: channel, descriptor, and above them the generation of the round. */
#define DCBM_CHANNEL_BITS	6
#define DCBM_DESC_BITS		11
#define DCBM_GENERATION_MASK	GENMASK_ULL(63 - DCBM_CHANNEL_BITS - DCBM_DESC_BITS, 0)

static void *dcbm_tag(const struct dcbm_channel *channel, unsigned int desc)
{
	u64 tag = channel->generation << DCBM_DESC_BITS | desc;

	BUILD_BUG_ON(BIT(DCBM_CHANNEL_BITS) < DCBM_CHANNELS_MAX);
	BUILD_BUG_ON(BIT(DCBM_DESC_BITS) < DCBM_DESCS);
	return (void *)(uintptr_t)(tag << DCBM_CHANNEL_BITS | (channel - dcbm_channels));
}

static void dcbm_set_result(struct dcbm_channel *channel, struct dcbm_desc *desc,
			    enum dcbm_result result)
{
	lockdep_assert_held(&channel->lock);
	if (desc->result == DCBM_UNKNOWN) {
		desc->result = result;
		channel->unanswered--;
	}
}

static void dcbm_settle(struct dcbm_channel *channel, struct dcbm_desc *desc,
			enum dcbm_result result)
{
	spin_lock_irq(&channel->lock);
	dcbm_set_result(channel, desc, result);
	spin_unlock_irq(&channel->lock);
}

/* Callback of the descriptors, from a tasklet as a rule; possibly after the round has ended. */
static void dcbm_answered(void *param, const struct dmaengine_result *result)
{
	u64 tag = (uintptr_t)param;
	struct dcbm_channel *channel = &dcbm_channels[tag % BIT(DCBM_CHANNEL_BITS)];
	unsigned int index = (tag >>= DCBM_CHANNEL_BITS) % BIT(DCBM_DESC_BITS);
	struct dcbm_desc *desc;
	unsigned long flags;
	bool copied;

	spin_lock_irqsave(&channel->lock, flags);
	if (tag >> DCBM_DESC_BITS == (channel->generation & DCBM_GENERATION_MASK) &&
	    index < channel->submitted) {
		desc = &channel->descs[index];
		copied = result->result == DMA_TRANS_NOERROR &&
			 !(channel->reports_residue && result->residue);
		if (result->result == DMA_TRANS_ABORTED)
			channel->aborted = true;
		else
			dcbm_set_result(channel, desc, copied ? DCBM_COPIED : DCBM_FAILED);
		if (!channel->unanswered)
			channel->answered_at = ktime_get_ns();
		if (channel->late && !channel->unanswered && !channel->aborted)
			queue_delayed_work(system_freezable_wq, &channel->revive,
					   DCBM_REVIVE_DELAY);
		/* An ordered engine that interrupts half-way has room for more. */
		if (channel->wake && (!channel->unanswered || index + 1 == channel->submitted ||
				      (channel->ordered && desc->interrupts))) {
			/* The answer is written before done. Pairs with smp_mb() in dcbm_run(). */
			smp_mb();
			complete(channel->wake);
		}
	}
	spin_unlock_irqrestore(&channel->lock, flags);
}

/* Fills the tables with as much of the lane's share as there is space for. */
static void dcbm_round_fill(struct dcbm_batch *db, struct dcbm_lane *lane)
{
	struct dcbm_channel *channel = lane->channel;
	unsigned int nr;

	for (nr = 0; lane->left && nr < DCBM_ENTRIES; nr++) {
		struct migrator_pair *pair = &db->batch->pairs[lane->pair];
		size_t size = folio_size(pair->src);
		size_t len = min3(size - lane->offset, lane->left, (size_t)channel->max_bytes);
		unsigned long page = lane->offset >> PAGE_SHIFT;

		sg_set_page(&channel->src[nr], folio_page(pair->src, page), len, 0);
		sg_set_page(&channel->dst[nr], folio_page(pair->dst, page), len, 0);
		channel->pairs[nr] = lane->pair;
		lane->left -= len;
		lane->offset += len;
		if (lane->offset == size) {
			lane->offset = 0;
			lane->pair++;
		}
	}
	channel->nr = nr;
}

static bool dcbm_round_map(struct dcbm_channel *channel)
{
	channel->nr_src = dma_map_sg(channel->dev, channel->src, channel->nr, DMA_TO_DEVICE);
	if (!channel->nr_src)
		return false;
	channel->nr_dst = dma_map_sg(channel->dev, channel->dst, channel->nr, DMA_FROM_DEVICE);
	if (!channel->nr_dst)
		dma_unmap_sg(channel->dev, channel->src, channel->nr, DMA_TO_DEVICE);
	return channel->nr_dst;
}

/* The device has finished with the memory of the channel's round. */
void dcbm_round_unmap(struct dcbm_channel *channel)
{
	dma_unmap_sg(channel->dev, channel->src, channel->nr, DMA_TO_DEVICE);
	dma_unmap_sg(channel->dev, channel->dst, channel->nr, DMA_FROM_DEVICE);
}

static bool dcbm_may_merge(const struct dcbm_channel *channel, const struct dcbm_desc *desc,
			   dma_addr_t src, dma_addr_t dst, u32 len)
{
	u32 sum = desc->len + len;

	return desc->src + desc->len == src && desc->dst + desc->len == dst &&
	       sum <= channel->max_bytes &&
	       !((desc->src ^ (desc->src + sum - 1)) & ~channel->boundary) &&
	       !((desc->dst ^ (desc->dst + sum - 1)) & ~channel->boundary);
}

static void dcbm_add_desc(struct dcbm_channel *channel, dma_addr_t src, dma_addr_t dst, u32 len)
{
	struct dcbm_desc *desc = &channel->descs[channel->nr_descs];

	if (channel->nr_descs && dcbm_may_merge(channel, desc - 1, src, dst, len)) {
		desc[-1].len += len;
		return;
	}
	*desc = (struct dcbm_desc) { .src = src, .dst = dst, .len = len };
	channel->nr_descs++;
}

/* Makes descriptors of two tables whose segments may differ. False if their sums do. */
static bool dcbm_round_cut(struct dcbm_channel *channel)
{
	struct scatterlist *src = channel->src, *dst = channel->dst;
	unsigned int nr_src = channel->nr_src, nr_dst = channel->nr_dst;
	u32 src_done = 0, dst_done = 0, len;

	channel->nr_descs = 0;
	while (nr_src && nr_dst && channel->nr_descs < DCBM_DESCS) {
		len = min3(sg_dma_len(src) - src_done, sg_dma_len(dst) - dst_done,
			   channel->max_bytes);
		dcbm_add_desc(channel, sg_dma_address(src) + src_done,
			      sg_dma_address(dst) + dst_done, len);
		src_done += len;
		if (src_done == sg_dma_len(src)) {
			src = sg_next(src);
			src_done = 0;
			nr_src--;
		}
		dst_done += len;
		if (dst_done == sg_dma_len(dst)) {
			dst = sg_next(dst);
			dst_done = 0;
			nr_dst--;
		}
	}
	return !nr_src && !nr_dst;
}

/*
 * An ordered engine interrupts when it has done all; if it cannot take all at once, when it has
 * done half of what it can take, so that it gets more before it has nothing to do.
 */
static bool dcbm_interrupts(const struct dcbm_channel *channel, unsigned int desc)
{
	if (!channel->ordered || desc + 1 == channel->nr_descs)
		return true;
	return channel->depth && desc + 1 - channel->asked >= DIV_ROUND_UP(channel->depth, 2);
}

/* Gives the engine one descriptor. False if it takes none now. */
static bool dcbm_submit_one(struct dcbm_lane *lane)
{
	struct dcbm_channel *channel = lane->channel;
	unsigned int index = channel->submitted;
	struct dcbm_desc *desc = &channel->descs[index];
	/* Before it is asked: afterwards all may be answered. */
	unsigned int unanswered = READ_ONCE(channel->unanswered);
	struct dma_async_tx_descriptor *tx;

	desc->interrupts = dcbm_interrupts(channel, index);
	tx = dmaengine_prep_dma_memcpy(channel->chan, desc->dst, desc->src, desc->len,
				       DMA_CTRL_ACK | (desc->interrupts ? DMA_PREP_INTERRUPT : 0));
	/* Full; or the driver has yet to free what is answered, as in a tasklet. */
	lane->no_descriptor = !tx && !unanswered;
	if (!tx) {
		channel->depth = unanswered ?: channel->depth;
		return false;
	}
	channel->gave_none = false;
	/* The answer may come before the cookie. */
	spin_lock_irq(&channel->lock);
	channel->submitted++;
	channel->unanswered++;
	spin_unlock_irq(&channel->lock);
	tx->callback_result = dcbm_answered;
	tx->callback_param = dcbm_tag(channel, index);
	desc->cookie = dmaengine_submit(tx);
	if (dma_submit_error(desc->cookie))
		dcbm_settle(channel, desc, DCBM_FAILED);
	else if (desc->interrupts)
		channel->asked = index + 1;
	return true;
}

static void dcbm_submit(struct dcbm_batch *db, struct dcbm_lane *lane)
{
	struct dcbm_channel *channel = lane->channel;
	unsigned int before = channel->submitted;

	while (channel->submitted < channel->nr_descs && dcbm_submit_one(lane))
		;
	if (channel->submitted != before) {
		/* Read first: an engine may have answered when the call returns. */
		if (lane->mapped_at && !lane->issued_at)
			lane->issued_at = ktime_get_ns();
		dma_async_issue_pending(channel->chan);
		/* Not the deadline: this task may have lost its CPU before the engine began. */
		lane->answer_by = ktime_get_ns() + db->time;
		lane->finished_at = 0;
	}
}

/*
 * Whether the engine has finished with all that it was given, whatever it has told. Not if it says
 * DMA_ERROR: some drivers say so of a channel that still holds all it was given.
 */
static bool dcbm_finished(struct dcbm_channel *channel)
{
	struct dcbm_desc *last = &channel->descs[channel->submitted - 1];

	if (!channel->ordered)
		return false;
	/* Those at the end may have been refused. */
	while (READ_ONCE(last->result) != DCBM_UNKNOWN && last > channel->descs)
		last--;
	return dmaengine_tx_status(channel->chan, last->cookie, NULL) == DMA_COMPLETE;
}

/* An engine that has finished and does not tell has lost an interrupt: the CPU copies the rest. */
static void dcbm_look(struct dcbm_batch *db, struct dcbm_lane *lane, u64 now)
{
	struct dcbm_channel *channel = lane->channel;
	unsigned int i;

	if (READ_ONCE(channel->aborted) || !READ_ONCE(channel->unanswered))
		return;
	/* Some drivers call back only when they are asked for a status, as here. */
	if (!dcbm_finished(channel)) {
		lane->finished_at = 0;
		return;
	}
	if (!lane->finished_at)
		lane->finished_at = now;
	if (now <= lane->answer_by && now - lane->finished_at <= db->silence)
		return;
	for (i = 0; i < channel->submitted; i++)
		dcbm_settle(channel, &channel->descs[i], DCBM_FAILED);
}

static void dcbm_round_start(struct dcbm_batch *db, struct dcbm_lane *lane)
{
	u64 start = trace_migrator_channel_round_enabled() ? ktime_get_ns() : 0;
	struct dcbm_channel *channel = lane->channel;

	dcbm_round_fill(db, lane);
	if (!dcbm_round_map(channel))
		return;
	if (WARN_ON_ONCE(!dcbm_round_cut(channel))) {
		dcbm_round_unmap(channel);
		return;
	}
	spin_lock_irq(&channel->lock);
	channel->generation++;
	channel->submitted = 0;
	channel->unanswered = 0;
	channel->answered_at = 0;
	channel->aborted = false;
	channel->late = false;
	channel->wake = &db->wake;
	spin_unlock_irq(&channel->lock);
	channel->asked = 0;
	lane->running = true;
	lane->finished_at = 0;
	lane->issued_at = 0;
	lane->mapped_at = start ? ktime_get_ns() : 0;
	lane->map_ns = lane->mapped_at - start;
}

static bool dcbm_unanswered(struct dcbm_channel *channel)
{
	return READ_ONCE(channel->unanswered) || READ_ONCE(channel->aborted);
}

/* From now on answers are ignored. */
void dcbm_round_forget(struct dcbm_channel *channel)
{
	spin_lock_irq(&channel->lock);
	channel->wake = NULL;
	channel->late = false;
	channel->generation++;
	spin_unlock_irq(&channel->lock);
}

/* From now on no batch waits for answers, which come late. False if there are all. */
static bool dcbm_round_leave(struct dcbm_channel *channel)
{
	bool late;

	spin_lock_irq(&channel->lock);
	late = dcbm_unanswered(channel);
	if (late)
		channel->wake = NULL;
	channel->late = late;
	spin_unlock_irq(&channel->lock);
	return late;
}

/* Whether the engine has finished with all it was given of a round that was left. */
bool dcbm_round_answered_late(struct dcbm_channel *channel)
{
	bool answered;

	spin_lock_irq(&channel->lock);
	answered = channel->late && !dcbm_unanswered(channel);
	spin_unlock_irq(&channel->lock);
	return answered;
}

/* @bytes: what the lane had copied before the round. */
static void dcbm_round_trace(struct dcbm_batch *db, struct dcbm_lane *lane, u64 unmap_ns,
			     size_t bytes)
{
	struct dcbm_channel *channel = lane->channel;
	/* 0 if the engine has not answered, or took no descriptor. */
	u64 copy_ns = max(channel->answered_at, lane->issued_at) - lane->issued_at;

	trace_migrator_channel_round(lane - db->lanes, channel->nr, channel->nr_descs,
				     lane->bytes - bytes, lane->map_ns,
				     lane->issued_at - lane->mapped_at, copy_ns, unmap_ns);
}

/* Counts for each pair what was copied of it. Entries and descriptors are cut anyhow. */
static void dcbm_round_end(struct dcbm_batch *db, struct dcbm_lane *lane)
{
	struct dcbm_channel *channel = lane->channel;
	struct dcbm_desc *desc = channel->descs;
	u32 desc_left = desc->len, entry_left, len;
	u64 unmap_ns = lane->issued_at ? ktime_get_ns() : 0;
	size_t bytes = lane->bytes;
	unsigned int i;

	dcbm_round_forget(channel);
	db->answered = max(db->answered, channel->answered_at);
	dcbm_round_unmap(channel);
	if (lane->issued_at)
		unmap_ns = ktime_get_ns() - unmap_ns;
	for (i = 0; i < channel->nr; i++) {
		for (entry_left = channel->src[i].length; entry_left; entry_left -= len) {
			if (!desc_left)
				desc_left = (++desc)->len;
			len = min(entry_left, desc_left);
			desc_left -= len;
			if (desc->result == DCBM_COPIED) {
				db->copied[channel->pairs[i]] += len;
				lane->bytes += len;
			}
		}
	}
	if (lane->issued_at)
		dcbm_round_trace(db, lane, unmap_ns, bytes);
	lane->running = false;
	lane->no_descriptor = false;
}

static void dcbm_lane_done(struct dcbm_batch *db, struct dcbm_lane *lane)
{
	if (lane->start)
		trace_migrator_lane_done(lane - db->lanes, raw_smp_processor_id(), lane->bytes,
					 local_clock() - lane->start);
	lane->start = 0;
}

/*
 * The channel has not answered in time, or not as it should. All destinations of its round go into
 * quarantine, copied ones too: a table is unmapped as a whole or not at all. Sources go back to
 * their owners: they stay mapped as well, and what the device may read of them reaches quarantine
 * only. A channel that answers all of it late is used again: see dcbm_revive().
 */
static void dcbm_retire(struct dcbm_batch *db, struct dcbm_lane *lane)
{
	struct dcbm_channel *channel = lane->channel;
	unsigned int i;

	if (!dcbm_round_leave(channel))
		return;
	for (i = 0; i < channel->nr; i++)
		if (!i || channel->pairs[i] != channel->pairs[i - 1])
			migrator_quarantine(db->batch, channel->pairs[i]);
	dev_warn_ratelimited(channel->dev, "dcbm: no answer of %s; not used, its destinations are in quarantine until it has answered all, or the driver is unbound\n",
			     channel->name);
	__module_get(THIS_MODULE);
	WRITE_ONCE(channel->state, DCBM_RETIRED);
	dcbm_lane_done(db, lane);
	lane->channel = NULL;
	dcbm_channel_unclaim(channel);
}

/*
 * The engine has nothing to do and gives no descriptor, which ends by itself as a rule. If not in
 * time, the rest is the CPU's, and that of the next rounds at once until it gives one again, lest
 * it holds up every batch. It is not retired, as it writes nothing.
 */
static bool dcbm_gives_up(struct dcbm_lane *lane, bool late)
{
	if (lane->no_descriptor && late)
		lane->channel->gave_none = true;
	return lane->no_descriptor && lane->channel->gave_none;
}

/* Does for a lane what can be done without waiting. Returns whether the lane has not finished. */
bool dcbm_lane_step(struct dcbm_batch *db, struct dcbm_lane *lane)
{
	struct dcbm_channel *channel = lane->channel;

	while (lane->channel) {
		u64 now = ktime_get_ns();
		bool late = now > db->deadline;

		if (!lane->running) {
			if (!lane->left || late) {
				dcbm_lane_done(db, lane);
				return false;
			}
			dcbm_round_start(db, lane);
			continue;
		}
		if (!late)
			dcbm_submit(db, lane);
		dcbm_look(db, lane, now);
		if (dcbm_unanswered(channel)) {
			if (now <= lane->answer_by && !READ_ONCE(channel->aborted))
				return true;
			/* Unless all answers have come just now. */
			dcbm_retire(db, lane);
		} else if (dcbm_gives_up(lane, late) || late ||
			   channel->submitted == channel->nr_descs) {
			dcbm_round_end(db, lane);
		} else if (lane->no_descriptor) {
			return true;
		}
	}
	return false;
}
