// SPDX-License-Identifier: GPL-2.0-only
/*
 * The migrator "dcbm". A batch is shared among all channels that are free. The migrating task
 * gives them their work and waits for them; it copies nothing itself.
 */
#include <linux/delay.h>
#include <linux/error-injection.h>
#include <linux/memferry/share.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <trace/events/migrator.h>

#include "dcbm.h"

/* A descriptor takes about as long to set up as a granule to copy. */
#define DCBM_GRANULE		max_t(size_t, FERRY_SHARE_GRANULE, PAGE_SIZE)

/*
 * 100 MB/s and 2 ms: a CPU copies ten times as much, so nobody would choose a slower engine, and
 * an interrupt of a busy machine needs less to be served. A batch of 4 MiB has 44 ms. The mode of
 * the batch does not matter: migrate_pages() first tries all of them in MIGRATE_ASYNC.
 */
#define DCBM_NS_PER_BYTE	10
#define DCBM_LATENCY_NS		(2 * NSEC_PER_MSEC)

/* Part of that after which the interrupt of an engine that has finished counts as lost. */
#define DCBM_SILENCE_PART	4

/*
 * Half a MiB is copied in 50 us at 10 GB/s, which falling asleep and waking up can take as well.
 * Polling ends after the time that a share of 2 MiB takes.
 */
#define DCBM_POLL_BYTES		SZ_512K
#define DCBM_POLL_NS		(200 * NSEC_PER_USEC)

/*
 * Sleeps for an engine that gives no descriptor: the first suffices where the tasklet that frees
 * them is not held up, and each is twice as long as the one before.
 */
#define DCBM_NAP_US		50
#define DCBM_NAP_MAX_US		1000

/* Of a sleep: engines whose interrupt was lost are asked again after it. */
#define DCBM_SLICE_MS		4

static unsigned int dcbm_slack_ms;
module_param_named(slack_ms, dcbm_slack_ms, uint, 0644);
MODULE_PARM_DESC(slack_ms, "Added to the deadline of a batch, for emulated machines");

static void dcbm_exit_batch(struct migrator_batch *batch)
{
	struct dcbm_batch *db = batch->private;

	kvfree(db->copied);
}

static noinline int dcbm_init_batch(struct migrator_batch *batch)
{
	struct dcbm_batch *db = batch->private;

	db->batch = batch;
	init_completion(&db->wake);
	db->copied = kvcalloc(batch->max_nr, sizeof(*db->copied), GFP_KERNEL);
	return db->copied ? 0 : -ENOMEM;
}
ALLOW_ERROR_INJECTION(dcbm_init_batch, ERRNO);

/* The batch is one line of bytes, pair after pair; each lane gets a part of the line. */
static void dcbm_share(struct dcbm_batch *db)
{
	struct migrator_batch *batch = db->batch;
	size_t begin, end, pair_begin = 0;
	unsigned int i, pair = 0;

	for (i = 0; i < db->nr_lanes; i++) {
		begin = ferry_share_begin(batch->bytes, db->nr_lanes, DCBM_GRANULE, i);
		end = ferry_share_begin(batch->bytes, db->nr_lanes, DCBM_GRANULE, i + 1);
		while (pair < batch->nr && pair_begin + folio_size(batch->pairs[pair].src) <= begin)
			pair_begin += folio_size(batch->pairs[pair++].src);
		db->lanes[i] = (struct dcbm_lane) {
			.channel = db->lanes[i].channel,
			.pair = pair,
			.offset = begin - pair_begin,
			.left = end - begin,
			.start = trace_migrator_lane_done_enabled() ? local_clock() : 0,
		};
	}
}

static void dcbm_set_deadline(struct dcbm_batch *db)
{
	db->time = db->batch->bytes * DCBM_NS_PER_BYTE + DCBM_LATENCY_NS +
		   READ_ONCE(dcbm_slack_ms) * (u64)NSEC_PER_MSEC;
	db->deadline = ktime_get_ns() + db->time;
	db->silence = db->time / DCBM_SILENCE_PART;
}

/* Returns when no channel works for the batch any more. */
static void dcbm_run(struct dcbm_batch *db)
{
	bool no_descriptor, polls = db->batch->bytes < DCBM_POLL_BYTES;
	unsigned int i, running, nap_us = DCBM_NAP_US;
	u64 poll_end = 0;

	for (;;) {
		reinit_completion(&db->wake);
		/*
		 * An answer that comes from here on is seen below, or ends the sleep at once: done
		 * is cleared before unanswered is read. Pairs with smp_mb() in dcbm_answered().
		 */
		smp_mb();
		no_descriptor = false;
		for (i = 0, running = 0; i < db->nr_lanes; i++) {
			running += dcbm_lane_step(db, &db->lanes[i]);
			no_descriptor |= db->lanes[i].no_descriptor;
		}
		if (!running)
			return;
		if (!no_descriptor)
			nap_us = DCBM_NAP_US;
		/* From when all channels had their work. */
		if (polls && !poll_end)
			poll_end = local_clock() + DCBM_POLL_NS;
		if (polls && local_clock() < poll_end && !need_resched()) {
			cpu_relax();
		} else if (no_descriptor && nap_us < DCBM_NAP_MAX_US) {
			usleep_range(nap_us, 2 * nap_us);
			nap_us *= 2;
		} else {
			wait_for_completion_timeout(&db->wake, msecs_to_jiffies(DCBM_SLICE_MS));
		}
	}
}

/* All channels have their first round when this returns. */
static int dcbm_start(struct migrator_batch *batch)
{
	struct dcbm_batch *db = batch->private;
	unsigned int i, lanes;

	lanes = clamp_t(size_t, batch->bytes / DCBM_GRANULE, 1, batch->lanes ?: DCBM_CHANNELS_MAX);
	db->nr_lanes = dcbm_channels_claim(batch->dst_nid, lanes, db->lanes);
	if (!db->nr_lanes)
		return -EBUSY;
	batch->lanes = db->nr_lanes;
	memset(db->copied, 0, batch->nr * sizeof(*db->copied));
	dcbm_share(db);
	dcbm_set_deadline(db);
	db->started = ktime_get_ns();
	db->answered = db->started;
	for (i = 0; i < db->nr_lanes; i++)
		dcbm_lane_step(db, &db->lanes[i]);
	return 0;
}

static void dcbm_finish(struct migrator_batch *batch)
{
	struct dcbm_batch *db = batch->private;
	unsigned int i;

	dcbm_run(db);
	batch->channel_ns = db->answered - db->started;
	for (i = 0; i < db->nr_lanes; i++)
		if (db->lanes[i].channel)
			dcbm_channel_unclaim(db->lanes[i].channel);
	for (i = 0; i < batch->nr; i++)
		if (db->copied[i] == folio_size(batch->pairs[i].src))
			migrator_batch_copied(batch, i);
}

static int dcbm_copy(struct migrator_batch *batch)
{
	int error = dcbm_start(batch);

	if (!error)
		dcbm_finish(batch);
	return error;
}

static bool dcbm_ready(void)
{
	return dcbm_channels_free();
}

static const struct migrator dcbm_migrator = {
	.name = "dcbm",
	.owner = THIS_MODULE,
	.group = &dcbm_group,
	.flags = MIGRATOR_CHANNELS,
	.private_size = sizeof(struct dcbm_batch),
	.activate = dcbm_channels_start,
	.deactivate = dcbm_channels_stop,
	.init_batch = dcbm_init_batch,
	.exit_batch = dcbm_exit_batch,
	.copy = dcbm_copy,
	.start = dcbm_start,
	.finish = dcbm_finish,
	.lanes = dcbm_channels_free,
	.ready = dcbm_ready,
};

static int __init dcbm_init(void)
{
	int error = dcbm_channels_init();

	if (error)
		return error;
	error = migrator_register(&dcbm_migrator);
	if (error)
		dcbm_channels_exit();
	return error;
}
module_init(dcbm_init);

static void __exit dcbm_exit(void)
{
	migrator_unregister(&dcbm_migrator);
	dcbm_channels_exit();
}
module_exit(dcbm_exit);

MODULE_DESCRIPTION("Migrator that copies with DMA channels");
MODULE_LICENSE("GPL");
