// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lanes: how a channel copies its share of a batch, round by round.
 *
 * A round is what is mapped at a time: one scatter-gather table of sources and one of
 * destinations. An IOMMU may merge the entries of a table, and those of the other one
 * elsewhere, so a descriptor is what is in one piece on both sides.
 *
 * What is known of a descriptor comes from its callback, which carries the result. An
 * ordered engine is asked to interrupt for the last descriptor only. When that has
 * answered, an earlier one that has not is asked for its status: the engine is past it.
 * Others are asked to interrupt for each. Status without a callback is not believed: that
 * the engine has finished says nothing about how.
 *
 * Nobody but the task that claimed the channel changes the round; callbacks change answers
 * under the lock of the channel. An answer carries the number of its round, so that one
 * which comes late cannot be taken for another's.
 */
#include <linux/dma-mapping.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/clock.h>
#include <linux/smp.h>
#include <trace/events/migrator.h>

#include "dcbm.h"

/*
 * For how long an engine may be finished and silent, before the interrupt counts as lost: a
 * quarter of timeout_ms, and some ticks at least. A busy CPU may run the callback late, and
 * one of a virtual machine may stop in the middle of it for longer than that.
 */
#define DCBM_SILENCE_MIN_MS	20
#define DCBM_SILENCE_PART	4

/* --- Answers --- */

/* What the callbacks carry: channel, descriptor, and the rest is the round. */
#define DCBM_TAG_DESC_BITS	11

static void *dcbm_tag(const struct dcbm_channel *channel, unsigned int desc)
{
	u64 tag = channel->generation;

	BUILD_BUG_ON(BIT(DCBM_TAG_CHANNEL_BITS) < DCBM_CHANNELS_MAX);
	BUILD_BUG_ON(BIT(DCBM_TAG_DESC_BITS) < DCBM_DESCS);
	tag = tag << DCBM_TAG_DESC_BITS | desc;
	tag = tag << DCBM_TAG_CHANNEL_BITS | (channel - dcbm_channels);
	return (void *)(uintptr_t)tag;
}

static u64 dcbm_tag_generation(u64 generation)
{
	return generation & GENMASK_ULL(63 - DCBM_TAG_DESC_BITS - DCBM_TAG_CHANNEL_BITS, 0);
}

static void dcbm_set_answer(struct dcbm_channel *channel, struct dcbm_desc *desc,
			    enum dcbm_answer answer)
{
	lockdep_assert_held(&channel->lock);
	if (desc->answer == DCBM_NONE) {
		desc->answer = answer;
		channel->waiting--;
	}
}

/**
 * dcbm_answered - callback of the descriptors
 * @param: made by dcbm_tag()
 * @result: what became of the descriptor
 *
 * Context: Any; of engines a tasklet as a rule.
 */
void dcbm_answered(void *param, const struct dmaengine_result *result)
{
	u64 tag = (uintptr_t)param;
	struct dcbm_channel *channel = &dcbm_channels[tag % BIT(DCBM_TAG_CHANNEL_BITS)];
	unsigned int index = (tag >> DCBM_TAG_CHANNEL_BITS) % BIT(DCBM_TAG_DESC_BITS);
	bool good = result->result == DMA_TRANS_NOERROR &&
		    !(channel->tells_residue && result->residue);
	u64 generation = tag >> (DCBM_TAG_CHANNEL_BITS + DCBM_TAG_DESC_BITS);
	unsigned long flags;

	spin_lock_irqsave(&channel->lock, flags);
	if (generation == dcbm_tag_generation(channel->generation) &&
	    index < channel->submitted) {
		struct dcbm_desc *desc = &channel->round.descs[index];
		/* An ordered engine that is to interrupt half-way wants more. */
		bool wakes = index + 1 == channel->submitted ||
			     (channel->ordered && desc->asks);

		dcbm_set_answer(channel, desc, good ? DCBM_COPIED : DCBM_FAILED);
		if (channel->wake && (wakes || !channel->waiting))
			complete(channel->wake);
		if (!channel->waiting && READ_ONCE(channel->state) == DCBM_RETIRED)
			dcbm_recover_start(channel);
	}
	spin_unlock_irqrestore(&channel->lock, flags);
}

/* --- Mapping --- */

/* Fills the tables with as much of the lane's share as there is space for. */
static void dcbm_round_fill(struct dcbm_batch *db, struct dcbm_lane *lane)
{
	struct dcbm_channel *channel = lane->channel;
	struct dcbm_round *round = &channel->round;

	round->bytes = 0;
	for (round->nr = 0; lane->left && round->nr < DCBM_ENTRIES; round->nr++) {
		struct migrator_pair *pair = &db->batch->pairs[lane->pair];
		size_t size = folio_size(pair->src);
		size_t len = min3(size - lane->offset, lane->left, (size_t)channel->max_bytes);
		unsigned long page = lane->offset >> PAGE_SHIFT;

		sg_set_page(&round->src[round->nr], folio_page(pair->src, page), len, 0);
		sg_set_page(&round->dst[round->nr], folio_page(pair->dst, page), len, 0);
		round->pairs[round->nr] = lane->pair;
		round->bytes += len;
		lane->left -= len;
		lane->offset += len;
		if (lane->offset == size) {
			lane->offset = 0;
			lane->pair++;
		}
	}
	sg_mark_end(&round->src[round->nr - 1]);
	sg_mark_end(&round->dst[round->nr - 1]);
}

static void dcbm_round_empty(struct dcbm_round *round)
{
	sg_unmark_end(&round->src[round->nr - 1]);
	sg_unmark_end(&round->dst[round->nr - 1]);
}

static bool dcbm_round_map(struct dcbm_channel *channel)
{
	struct dcbm_round *round = &channel->round;

	round->nr_src = dma_map_sg(channel->dev, round->src, round->nr, DMA_TO_DEVICE);
	if (!round->nr_src)
		return false;
	round->nr_dst = dma_map_sg(channel->dev, round->dst, round->nr, DMA_FROM_DEVICE);
	if (round->nr_dst)
		return true;
	dma_unmap_sg(channel->dev, round->src, round->nr, DMA_TO_DEVICE);
	return false;
}

/**
 * dcbm_round_unmap - give the memory of the channel's round back to the CPUs
 * @channel: which does not touch it any more
 */
void dcbm_round_unmap(struct dcbm_channel *channel)
{
	struct dcbm_round *round = &channel->round;

	dma_unmap_sg(channel->dev, round->src, round->nr, DMA_TO_DEVICE);
	dma_unmap_sg(channel->dev, round->dst, round->nr, DMA_FROM_DEVICE);
	dcbm_round_empty(round);
}

/* --- Descriptors --- */

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
	struct dcbm_round *round = &channel->round;
	struct dcbm_desc *desc = &round->descs[round->nr_descs];

	if (round->nr_descs && dcbm_may_merge(channel, desc - 1, src, dst, len)) {
		desc[-1].len += len;
		return;
	}
	desc->src = src;
	desc->dst = dst;
	desc->len = len;
	desc->answer = DCBM_NONE;
	round->nr_descs++;
}

/* Makes descriptors of two tables whose segments may differ. False if their sums do. */
static bool dcbm_round_cut(struct dcbm_channel *channel)
{
	struct dcbm_round *round = &channel->round;
	struct scatterlist *src = round->src, *dst = round->dst;
	unsigned int nr_src = round->nr_src, nr_dst = round->nr_dst;
	u32 src_done = 0, dst_done = 0, len;

	round->nr_descs = 0;
	while (nr_src && nr_dst && round->nr_descs < DCBM_DESCS) {
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

static bool dcbm_aligned(const struct dcbm_channel *channel, const struct dcbm_desc *desc)
{
	return !((desc->src | desc->dst | desc->len) & channel->align);
}

/*
 * An ordered engine interrupts when it has done all; if it cannot take all at once, when
 * it has done half of what it can take, so that it gets more before it has nothing to do.
 */
static bool dcbm_asks(const struct dcbm_channel *channel, unsigned int desc)
{
	if (!channel->ordered || desc + 1 == channel->round.nr_descs)
		return true;
	return channel->depth && desc + 1 - channel->asked >= DIV_ROUND_UP(channel->depth, 2);
}

static void dcbm_fail(struct dcbm_channel *channel, struct dcbm_desc *desc)
{
	spin_lock_irq(&channel->lock);
	dcbm_set_answer(channel, desc, DCBM_FAILED);
	spin_unlock_irq(&channel->lock);
}

/*
 * Gives the engine one descriptor. False if it takes none now: it is full, or what it has
 * answered its driver has not made free yet, as in a tasklet that has not come to run.
 */
static bool dcbm_submit_one(struct dcbm_lane *lane)
{
	struct dcbm_channel *channel = lane->channel;
	unsigned int index = channel->submitted;
	struct dcbm_desc *desc = &channel->round.descs[index];
	struct dma_async_tx_descriptor *tx = NULL;
	bool aligned = dcbm_aligned(channel, desc), asks = dcbm_asks(channel, index);
	unsigned long flags = DMA_CTRL_ACK | (asks ? DMA_PREP_INTERRUPT : 0);
	/* Before it is asked: afterwards all may be answered. */
	unsigned int waiting = READ_ONCE(channel->waiting);

	if (aligned)
		tx = dmaengine_prep_dma_memcpy(channel->chan, desc->dst, desc->src, desc->len,
					       flags);
	if (!tx && aligned) {
		if (waiting)
			channel->depth = waiting;
		lane->hungry = !waiting;
		return false;
	}
	lane->hungry = false;
	desc->asks = asks;
	/* The answer may come before the cookie. */
	spin_lock_irq(&channel->lock);
	channel->submitted++;
	channel->waiting++;
	spin_unlock_irq(&channel->lock);
	if (!tx) {
		dcbm_fail(channel, desc);
		return true;
	}
	channel->barren = false;
	tx->callback_result = dcbm_answered;
	tx->callback_param = dcbm_tag(channel, index);
	desc->cookie = dmaengine_submit(tx);
	if (dma_submit_error(desc->cookie))
		dcbm_fail(channel, desc);
	else if (asks)
		channel->asked = index + 1;
	return true;
}

static void dcbm_submit(struct dcbm_lane *lane)
{
	struct dcbm_channel *channel = lane->channel;
	unsigned int before = channel->submitted;

	while (channel->submitted < channel->round.nr_descs && dcbm_submit_one(lane))
		;
	if (channel->submitted == before)
		return;
	dma_async_issue_pending(channel->chan);
	lane->silent = 0;
}

/* --- Looking --- */

static enum dma_status dcbm_status(struct dcbm_channel *channel, struct dcbm_desc *desc)
{
	return dmaengine_tx_status(channel->chan, desc->cookie, NULL);
}

/* The last that asked has answered, so the engine has passed all before. */
static void dcbm_settle_passed(struct dcbm_channel *channel)
{
	struct dcbm_round *round = &channel->round;
	enum dma_status status;
	unsigned int i;

	for (i = 0; i < channel->asked; i++) {
		struct dcbm_desc *desc = &round->descs[i];

		if (READ_ONCE(desc->answer) != DCBM_NONE)
			continue;
		status = dcbm_status(channel, desc);
		if (status != DMA_COMPLETE && status != DMA_ERROR)
			continue;
		spin_lock_irq(&channel->lock);
		dcbm_set_answer(channel, desc,
				status == DMA_COMPLETE ? DCBM_COPIED : DCBM_FAILED);
		spin_unlock_irq(&channel->lock);
	}
}

/*
 * Whether the engine has finished with all that it was given, whatever it has told. Not if it
 * says that something is wrong: some say so of a channel that still holds all it was given.
 */
static bool dcbm_finished(struct dcbm_channel *channel)
{
	struct dcbm_desc *last = &channel->round.descs[channel->submitted - 1];

	if (!channel->ordered)
		return false;
	/* Those at the end may have been refused. */
	while (READ_ONCE(last->answer) != DCBM_NONE && last > channel->round.descs)
		last--;
	return dcbm_status(channel, last) == DMA_COMPLETE;
}

/* What was not told is not known. */
static void dcbm_settle_silent(struct dcbm_channel *channel)
{
	unsigned int i;

	spin_lock_irq(&channel->lock);
	for (i = 0; i < channel->submitted; i++)
		dcbm_set_answer(channel, &channel->round.descs[i], DCBM_FAILED);
	spin_unlock_irq(&channel->lock);
}

static bool dcbm_last_asked_answered(struct dcbm_channel *channel)
{
	return channel->asked &&
	       READ_ONCE(channel->round.descs[channel->asked - 1].answer) != DCBM_NONE;
}

/*
 * Whether there is something to hear of an engine that has finished. If it took less at a
 * time than expected, none of that may have been asked to interrupt: then it is silent by
 * right until it takes more.
 */
static bool dcbm_is_due(struct dcbm_channel *channel)
{
	if (channel->submitted == channel->round.nr_descs)
		return true;
	return channel->asked && !dcbm_last_asked_answered(channel);
}

static void dcbm_look(struct dcbm_lane *lane)
{
	struct dcbm_channel *channel = lane->channel;

	if (!READ_ONCE(channel->waiting))
		return;
	if (channel->ordered && dcbm_last_asked_answered(channel))
		dcbm_settle_passed(channel);
	if (!READ_ONCE(channel->waiting))
		return;
	if (!dcbm_finished(channel)) {
		lane->silent = 0;
		return;
	}
	/* It may be that it frees descriptors only when it is looked at, as here. */
	if (!lane->silent)
		lane->silent = jiffies ?: 1;
	if (time_after(jiffies, dcbm_is_due(channel) ?
		       lane->silent + lane->silence : lane->deadline))
		dcbm_settle_silent(channel);
}

/* --- Rounds --- */

static void dcbm_round_start(struct dcbm_batch *db, struct dcbm_lane *lane)
{
	struct dcbm_channel *channel = lane->channel;

	dcbm_round_fill(db, lane);
	if (!dcbm_round_map(channel)) {
		dcbm_round_empty(&channel->round);
		return;
	}
	if (WARN_ON_ONCE(!dcbm_round_cut(channel))) {
		dcbm_round_unmap(channel);
		return;
	}
	spin_lock_irq(&channel->lock);
	channel->generation++;
	channel->submitted = 0;
	channel->waiting = 0;
	channel->wake = &db->wake;
	spin_unlock_irq(&channel->lock);
	channel->asked = 0;
	lane->running = true;
	lane->hungry = false;
	lane->silent = 0;
	lane->silence = msecs_to_jiffies(max(db->params.timeout_ms / DCBM_SILENCE_PART,
					     DCBM_SILENCE_MIN_MS));
	lane->deadline = jiffies + msecs_to_jiffies(db->params.timeout_ms) + 1;
}

/* Counts for each pair what was copied of it. Entries and descriptors are cut anyhow. */
static void dcbm_round_count(struct dcbm_batch *db, struct dcbm_lane *lane)
{
	struct dcbm_round *round = &lane->channel->round;
	struct dcbm_desc *desc = round->descs;
	u32 desc_left = desc->len, entry_left, len;
	unsigned int i;

	for (i = 0; i < round->nr; i++) {
		for (entry_left = round->src[i].length; entry_left; entry_left -= len) {
			if (!desc_left)
				desc_left = (++desc)->len;
			len = min(entry_left, desc_left);
			desc_left -= len;
			if (desc->answer == DCBM_COPIED) {
				db->copied[round->pairs[i]] += len;
				lane->bytes += len;
			}
		}
	}
}

static void dcbm_round_end(struct dcbm_batch *db, struct dcbm_lane *lane)
{
	struct dcbm_channel *channel = lane->channel;

	spin_lock_irq(&channel->lock);
	channel->wake = NULL;
	/* From here on an answer is to nobody's question. */
	channel->generation++;
	spin_unlock_irq(&channel->lock);
	dcbm_round_unmap(channel);
	dcbm_round_count(db, lane);
	lane->running = false;
}

static void dcbm_lane_done(struct dcbm_batch *db, struct dcbm_lane *lane)
{
	if (lane->start)
		trace_migrator_lane_done(lane - db->lanes, raw_smp_processor_id(), lane->bytes,
					 local_clock() - lane->start);
	lane->start = 0;
}

/*
 * The channel has not answered in time. Destinations of all of its round go into
 * quarantine, those that were copied too: to unmap them for use by the CPU, while others of
 * the same table stay mapped, is not possible. Sources go back to their owners: that the
 * device may read them later does no harm as long as they stay mapped.
 */
static bool dcbm_retire(struct dcbm_batch *db, struct dcbm_lane *lane)
{
	struct dcbm_channel *channel = lane->channel;
	struct dcbm_round *round = &channel->round;
	unsigned int i;

	spin_lock_irq(&channel->lock);
	if (!channel->waiting) {
		spin_unlock_irq(&channel->lock);
		return false;
	}
	channel->wake = NULL;
	channel->why = "no answer within timeout_ms";
	/* Now, as a late answer looks at the state, and the folios are still ours. */
	for (i = 0; i < round->nr; i++)
		if (!i || round->pairs[i] != round->pairs[i - 1])
			migrator_quarantine(db->batch, round->pairs[i]);
	__module_get(THIS_MODULE);
	WRITE_ONCE(channel->state, DCBM_RETIRED);
	dcbm_recover_start(channel);
	spin_unlock_irq(&channel->lock);
	/*
	 * What no round had yet is left to the CPU. The channel may be in other hands from
	 * here on: it has been stopped, and the user wants it to be used.
	 */
	dcbm_lane_done(db, lane);
	lane->channel = NULL;
	return true;
}

/*
 * The engine has nothing to do, and gives no descriptor all the same. That ends by itself as
 * a rule, so it is waited for as long as for an answer. If it does not, what is left of the
 * round is the CPU's, and that of the next rounds at once, until it gives one again: else
 * an engine that never does would hold up every batch. It is not retired, as it cannot
 * write to anything.
 */
static bool dcbm_gives_up(const struct dcbm_lane *lane)
{
	return lane->hungry && (lane->channel->barren || time_after(jiffies, lane->deadline));
}

/**
 * dcbm_lane_step - do for a lane what can be done without waiting
 * @db: its batch
 * @lane: the lane
 *
 * Context: The task that claimed the channel. Allocates nothing, but what the engine's
 * driver may allocate for a descriptor.
 * Return: whether it has not finished.
 */
bool dcbm_lane_step(struct dcbm_batch *db, struct dcbm_lane *lane)
{
	struct dcbm_channel *channel = lane->channel;

	while (lane->channel) {
		if (!lane->running) {
			if (!lane->left) {
				dcbm_lane_done(db, lane);
				return false;
			}
			dcbm_round_start(db, lane);
			continue;
		}
		dcbm_submit(lane);
		dcbm_look(lane);
		if (!READ_ONCE(channel->waiting)) {
			if (dcbm_gives_up(lane)) {
				channel->barren = true;
				lane->hungry = false;
			} else if (lane->hungry) {
				return true;
			} else if (channel->submitted < channel->round.nr_descs) {
				continue;
			}
			dcbm_round_end(db, lane);
		} else if (!time_after(jiffies, lane->deadline) || !dcbm_retire(db, lane)) {
			return true;
		}
	}
	return false;
}
