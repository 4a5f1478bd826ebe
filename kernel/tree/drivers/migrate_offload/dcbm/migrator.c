// SPDX-License-Identifier: GPL-2.0-only
/*
 * The migrator "dcbm": what mm/ calls, and the module.
 *
 * A batch is dealt to as many channels as are free, at most as many as the user wants. The
 * calling task gives all of them their work and waits for all. It copies nothing itself:
 * what the channels do not copy, the move of the folio copies.
 */
#include <linux/delay.h>
#include <linux/error-injection.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include <trace/events/migrator.h>

#include "dcbm.h"

/* How long a batch is waited for without sleeping, at most. */
#define DCBM_SPIN_NS		(200 * NSEC_PER_USEC)

/*
 * The first sleep for an engine that gives no descriptor yet, in microseconds: where the
 * tasklet that frees them is not held up it takes less. The next are longer.
 */
#define DCBM_NAP_US		50
#define DCBM_NAP_MAX_US		1000

/* How long it is slept for at a time: an interrupt that is lost costs no more. */
#define DCBM_SLICE_MS		4

static void dcbm_exit_batch(struct migrator_batch *batch)
{
	struct dcbm_batch *db = batch->private;

	kvfree(db->copied);
	kvfree(db->shares);
	kvfree(db->pieces);
	kvfree(db->extents);
}

static noinline int dcbm_init_batch(struct migrator_batch *batch)
{
	size_t nr_pieces = ferry_deal_space(batch->max_nr, DCBM_CHANNELS_MAX);
	struct dcbm_batch *db = batch->private;

	db->batch = batch;
	init_completion(&db->wake);
	db->extents = kvcalloc(batch->max_nr, sizeof(*db->extents), GFP_KERNEL);
	db->pieces = kvcalloc(nr_pieces, sizeof(*db->pieces), GFP_KERNEL);
	db->shares = kvcalloc(DCBM_CHANNELS_MAX, sizeof(*db->shares), GFP_KERNEL);
	db->copied = kvcalloc(batch->max_nr, sizeof(*db->copied), GFP_KERNEL);
	if (!db->extents || !db->pieces || !db->shares || !db->copied) {
		dcbm_exit_batch(batch);
		return -ENOMEM;
	}
	return 0;
}
ALLOW_ERROR_INJECTION(dcbm_init_batch, ERRNO);

/* Moves a place in the batch on by @bytes. */
static void dcbm_advance(const struct migrator_batch *batch, unsigned int *pair, size_t *offset,
			 size_t bytes)
{
	size_t rest;

	while (bytes) {
		rest = folio_size(batch->pairs[*pair].src) - *offset;
		if (bytes < rest) {
			*offset += bytes;
			return;
		}
		bytes -= rest;
		*offset = 0;
		++*pair;
	}
}

/*
 * Gives each lane its share. The lanes' pieces follow each other as the batch does, so
 * the sums of their bytes say all.
 */
static int dcbm_deal(struct dcbm_batch *db)
{
	struct migrator_batch *batch = db->batch;
	struct ferry_deal deal = {
		.extents = db->extents,
		.nr_extents = batch->nr,
		.granule = DCBM_GRANULE,
		.nr_lanes = db->nr_lanes,
		/* Locked folios and new folios have no page in common. */
		.flags = FERRY_DEAL_DISJOINT,
		.out = db->pieces,
		.out_space = ferry_deal_space(batch->max_nr, DCBM_CHANNELS_MAX),
		.lanes = db->shares,
	};
	unsigned int i, pair = 0;
	size_t offset = 0;
	int error;

	for (i = 0; i < batch->nr; i++) {
		db->extents[i].src = (unsigned long)folio_address(batch->pairs[i].src);
		db->extents[i].dst = (unsigned long)folio_address(batch->pairs[i].dst);
		db->extents[i].bytes = folio_size(batch->pairs[i].src);
		db->copied[i] = 0;
	}
	error = ferry_deal(&deal);
	if (WARN_ON_ONCE(error))
		return error;
	for (i = 0; i < db->nr_lanes; i++) {
		struct dcbm_lane *lane = &db->lanes[i];

		lane->pair = pair;
		lane->offset = offset;
		lane->left = db->shares[i].bytes;
		lane->running = false;
		lane->hungry = false;
		lane->bytes = 0;
		lane->start = trace_migrator_lane_done_enabled() ? local_clock() : 0;
		dcbm_advance(batch, &pair, &offset, lane->left);
	}
	return 0;
}

static void dcbm_nap(unsigned int *us)
{
	usleep_range(*us, 2 * *us);
	*us *= 2;
}

/* Returns when nothing of the batch is under way any more. */
static void dcbm_drive(struct dcbm_batch *db)
{
	bool spins = db->batch->bytes < db->params.poll_below_bytes;
	u64 start = 0;
	unsigned int i, running, nap_us = DCBM_NAP_US;
	bool hungry;

	for (;;) {
		/* What completes it from here on is seen below, or ends the sleep at once. */
		reinit_completion(&db->wake);
		hungry = false;
		for (i = 0, running = 0; i < db->nr_lanes; i++) {
			running += dcbm_lane_step(db, &db->lanes[i]);
			hungry |= db->lanes[i].hungry;
		}
		if (!running)
			return;
		if (!hungry)
			nap_us = DCBM_NAP_US;
		/* From when the channels had their work: until then there was no waiting. */
		if (spins && !start)
			start = local_clock();
		if (spins && local_clock() - start < DCBM_SPIN_NS && !need_resched())
			cpu_relax();
		else if (hungry && nap_us < DCBM_NAP_MAX_US)
			dcbm_nap(&nap_us);
		else
			wait_for_completion_timeout(&db->wake, msecs_to_jiffies(DCBM_SLICE_MS));
	}
}

static int dcbm_copy(struct migrator_batch *batch)
{
	struct dcbm_batch *db = batch->private;
	unsigned int i, lanes;
	int error;

	dcbm_params_read(&db->params);
	lanes = clamp_t(u64, batch->bytes / DCBM_GRANULE, 1, db->params.lanes);
	db->nr_lanes = dcbm_channels_claim(batch->dst_nid, lanes, db->lanes);
	if (!db->nr_lanes)
		return -EBUSY;
	error = dcbm_deal(db);
	if (!error)
		dcbm_drive(db);
	for (i = 0; i < db->nr_lanes; i++)
		if (db->lanes[i].channel)
			dcbm_channel_unclaim(db->lanes[i].channel);
	if (error)
		return error;
	for (i = 0; i < batch->nr; i++)
		if (db->copied[i] == folio_size(batch->pairs[i].src))
			migrator_batch_copied(batch, i);
	return 0;
}

static const struct migrator dcbm_migrator = {
	.name = "dcbm",
	.owner = THIS_MODULE,
	.group = &dcbm_group,
	.private_size = sizeof(struct dcbm_batch),
	.activate = dcbm_channels_start,
	.deactivate = dcbm_channels_stop,
	.init_batch = dcbm_init_batch,
	.exit_batch = dcbm_exit_batch,
	.copy = dcbm_copy,
};

static int __init dcbm_init(void)
{
	int error = dcbm_recover_init();

	if (error)
		return error;
	dcbm_channels_init();
	error = migrator_register(&dcbm_migrator);
	if (error)
		dcbm_recover_exit();
	return error;
}
module_init(dcbm_init);

static void __exit dcbm_exit(void)
{
	migrator_unregister(&dcbm_migrator);
	dcbm_recover_exit();
}
module_exit(dcbm_exit);

MODULE_DESCRIPTION("Migrator that copies with DMA channels");
MODULE_LICENSE("GPL");
