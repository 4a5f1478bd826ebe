// SPDX-License-Identifier: GPL-2.0-only
/*
 * The migrator "mtcopy": what mm/ calls, and the module.
 *
 * A batch is seen as one line of pages, pair after pair. ferry_deal() cuts it into as
 * many shares as there are lanes; the calling task is one of the lanes, idle CPUs are the
 * others. All space is made by init_batch, so copy() cannot fail for want of memory.
 */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "mtcopy.h"

static void mtcopy_exit_batch(struct migrator_batch *batch)
{
	struct mtcopy_batch *mt = batch->private;

	if (mt->lanes)
		mtcopy_lanes_exit(mt);
	kvfree(mt->lanes);
	kvfree(mt->shares);
	kvfree(mt->pieces);
	kvfree(mt->extents);
	kvfree(mt->failed);
	kvfree(mt->begins);
}

static int mtcopy_init_batch(struct migrator_batch *batch)
{
	size_t nr_pieces = ferry_deal_space(batch->max_nr, MTCOPY_LANES_MAX);
	struct mtcopy_batch *mt = batch->private;

	mt->batch = batch;
	mt->begins = kvcalloc(batch->max_nr + 1, sizeof(*mt->begins), GFP_KERNEL);
	mt->failed = kvcalloc(BITS_TO_LONGS(batch->max_nr), sizeof(*mt->failed), GFP_KERNEL);
	mt->extents = kvcalloc(batch->max_nr, sizeof(*mt->extents), GFP_KERNEL);
	mt->pieces = kvcalloc(nr_pieces, sizeof(*mt->pieces), GFP_KERNEL);
	mt->shares = kvcalloc(MTCOPY_LANES_MAX, sizeof(*mt->shares), GFP_KERNEL);
	mt->lanes = kvcalloc(MTCOPY_LANES_MAX, sizeof(*mt->lanes), GFP_KERNEL);
	if (mt->lanes)
		mtcopy_lanes_init(mt);
	if (!mt->begins || !mt->failed || !mt->extents || !mt->pieces || !mt->shares ||
	    !mt->lanes) {
		mtcopy_exit_batch(batch);
		return -ENOMEM;
	}
	return 0;
}

/* Writes down where each pair begins. */
static void mtcopy_measure(struct mtcopy_batch *mt)
{
	struct migrator_batch *batch = mt->batch;
	struct migrator_pair *pair = batch->pairs;
	u32 pages = 0, nr_pages;
	unsigned int i;

	for (i = 0; i < batch->nr; i++, pair++) {
		nr_pages = folio_nr_pages(pair->src);
		mt->begins[i] = pages;
		mt->extents[i].src = (unsigned long)folio_address(pair->src);
		mt->extents[i].dst = (unsigned long)folio_address(pair->dst);
		mt->extents[i].bytes = (u64)nr_pages << PAGE_SHIFT;
		pages += nr_pages;
	}
	mt->begins[batch->nr] = pages;
}

/*
 * Gives each lane its share. The lanes' pieces follow each other as the batch does, so
 * the sums of their bytes say all.
 */
static int mtcopy_deal(struct mtcopy_batch *mt)
{
	struct ferry_deal deal = {
		.extents = mt->extents,
		.nr_extents = mt->batch->nr,
		.granule = MTCOPY_GRANULE,
		.nr_lanes = mt->nr_lanes,
		/* Locked folios and new folios have no page in common. */
		.flags = FERRY_DEAL_DISJOINT,
		.out = mt->pieces,
		.out_space = ferry_deal_space(mt->batch->max_nr, MTCOPY_LANES_MAX),
		.lanes = mt->shares,
	};
	u32 page = 0;
	unsigned int i;
	int error;

	error = ferry_deal(&deal);
	if (WARN_ON_ONCE(error))
		return error;
	for (i = 0; i < mt->nr_lanes; i++) {
		atomic_set(&mt->lanes[i].next, page);
		page += mt->shares[i].bytes >> PAGE_SHIFT;
		mt->lanes[i].end = page;
	}
	return 0;
}

/*
 * If more lanes are wanted and no CPU is free to be one, the batch is declined: one lane
 * is no faster than the plain copy, which maps the first folio before it copies the second
 * and leaves what it copied last in the cache. A batch too small to be shared is copied
 * all the same: how small a batch may be is for min_batch_bytes to say.
 */
static int mtcopy_copy(struct migrator_batch *batch)
{
	struct mtcopy_batch *mt = batch->private;
	struct mtcopy_params params;
	unsigned int lanes, helpers = 0, i;
	int error;

	mtcopy_params_read(&params);
	lanes = min_t(u64, params.lanes, batch->bytes / MTCOPY_GRANULE);
	if (lanes > 1) {
		helpers = mtcopy_cpus_choose(mt, &params, lanes - 1);
		if (!helpers)
			return -EBUSY;
	}
	mt->nr_lanes = 1 + helpers;
	mt->nontemporal = params.nontemporal;
	bitmap_zero(mt->failed, batch->nr);
	mtcopy_measure(mt);
	error = mtcopy_deal(mt);
	if (error)
		return error;

	mtcopy_lanes_copy(mt, params.high);

	for_each_clear_bit(i, mt->failed, batch->nr)
		migrator_batch_copied(batch, i);
	return 0;
}

static int mtcopy_activate(void)
{
	int error;

	error = mtcopy_lanes_start();
	if (error)
		return error;
	error = mtcopy_cpus_start();
	if (error)
		mtcopy_lanes_stop();
	return error;
}

static void mtcopy_deactivate(void)
{
	mtcopy_cpus_stop();
	mtcopy_lanes_stop();
}

static const struct migrator mtcopy_migrator = {
	.name = "mtcopy",
	.owner = THIS_MODULE,
	.group = &mtcopy_group,
	/* copy_highpage() does; the one copy that does not is x86's, which has no tags. */
	.flags = MIGRATOR_COPIES_TAGS,
	.private_size = sizeof(struct mtcopy_batch),
	.activate = mtcopy_activate,
	.deactivate = mtcopy_deactivate,
	.init_batch = mtcopy_init_batch,
	.exit_batch = mtcopy_exit_batch,
	.copy = mtcopy_copy,
};

static int __init mtcopy_init(void)
{
	mtcopy_params_init();
	return migrator_register(&mtcopy_migrator);
}
module_init(mtcopy_init);

static void __exit mtcopy_exit(void)
{
	migrator_unregister(&mtcopy_migrator);
}
module_exit(mtcopy_exit);

MODULE_DESCRIPTION("Migrator that copies with several CPUs");
MODULE_LICENSE("GPL");
