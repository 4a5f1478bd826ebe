// SPDX-License-Identifier: GPL-2.0-only
/*
 * The migrator "mtcopy": the module, its settings, and how a batch is prepared.
 *
 * A batch is seen as one line of pages, pair after pair, and cut into as many shares as there
 * are lanes: the calling task is one, idle CPUs are the others. All space is made by
 * init_batch, so copy() cannot fail for want of memory.
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "mtcopy.h"

/* Few CPUs saturate the memory of a node, and a batch is not worth more of them. */
#define MTCOPY_LANES_DEFAULT	4

/* One CPU is asked for each of these: looking takes a hundredth of copying it. */
#define MTCOPY_LOOK_BYTES	SZ_64K

static unsigned int mtcopy_lanes;

static ssize_t lanes_show(struct kobject *kobj, struct kobj_attribute *attr, char *page)
{
	return sysfs_emit(page, "%u\n", READ_ONCE(mtcopy_lanes));
}

static ssize_t lanes_store(struct kobject *kobj, struct kobj_attribute *attr, const char *text,
			   size_t count)
{
	unsigned int lanes;

	if (strlen(text) != count || kstrtouint(text, 0, &lanes) || !lanes ||
	    lanes > MTCOPY_LANES_MAX)
		return -EINVAL;
	WRITE_ONCE(mtcopy_lanes, lanes);
	return count;
}

static struct kobj_attribute lanes_attr = __ATTR_RW(lanes);

static struct attribute *mtcopy_attrs[] = {
	&lanes_attr.attr,
	NULL
};

static const struct attribute_group mtcopy_group = {
	.name = "mtcopy",
	.attrs = mtcopy_attrs,
};

/* For experiments, as are the next three. */
static bool mtcopy_fill;
module_param_named(fill, mtcopy_fill, bool, 0644);
MODULE_PARM_DESC(fill, "fill one last-level cache with lanes before the next");

static bool mtcopy_high_priority;
module_param_named(high_priority, mtcopy_high_priority, bool, 0644);
MODULE_PARM_DESC(high_priority, "give helpers the priority of nice -20");

static bool mtcopy_idle_only = true;
module_param_named(idle_only, mtcopy_idle_only, bool, 0644);
MODULE_PARM_DESC(idle_only, "take only idle CPUs as helpers");

#ifdef CONFIG_X86_64
static bool mtcopy_nontemporal;
module_param_named(nontemporal, mtcopy_nontemporal, bool, 0644);
MODULE_PARM_DESC(nontemporal, "write past the caches");
#else
#define mtcopy_nontemporal false
#endif

static void mtcopy_exit_batch(struct migrator_batch *batch)
{
	struct mtcopy_batch *mt = batch->private;

	mtcopy_lanes_exit();
	kvfree(mt->lanes);
	kvfree(mt->begins);
}

static int mtcopy_init_batch(struct migrator_batch *batch)
{
	struct mtcopy_batch *mt = batch->private;

	mt->batch = batch;
	mt->begins = kvcalloc(batch->max_nr + 1, sizeof(*mt->begins), GFP_KERNEL);
	mt->lanes = kvcalloc(MTCOPY_LANES_MAX, sizeof(*mt->lanes), GFP_KERNEL);
	if (mt->lanes)
		mtcopy_lanes_init(mt);
	if (!mt->begins || !mt->lanes) {
		mtcopy_exit_batch(batch);
		return -ENOMEM;
	}
	return 0;
}

static void mtcopy_cut_shares(struct mtcopy_batch *mt)
{
	struct migrator_batch *batch = mt->batch;
	u64 begin, end = 0;
	u32 pages = 0;
	unsigned int i;

	for (i = 0; i < batch->nr; i++) {
		mt->begins[i] = pages;
		pages += folio_nr_pages(batch->pairs[i].src);
	}
	mt->begins[batch->nr] = pages;
	for (i = 0; i < mt->nr_lanes; i++) {
		begin = end;
		end = ferry_share_begin(batch->bytes, mt->nr_lanes, MTCOPY_GRANULE, i + 1);
		atomic_set(&mt->lanes[i].next, begin >> PAGE_SHIFT);
		mt->lanes[i].end = end >> PAGE_SHIFT;
	}
}

/*
 * If more lanes are wanted and no CPU is free to be one, the batch is declined: one lane is no
 * faster than the plain copy, which maps the first folio before it copies the second and leaves
 * what it copied last in the cache. A batch too small to be shared is copied all the same.
 */
static int mtcopy_copy(struct migrator_batch *batch)
{
	struct mtcopy_batch *mt = batch->private;
	struct migrator_cpus *cpus = batch->cpus;
	unsigned int lanes, i;

	lanes = min_t(u64, READ_ONCE(mtcopy_lanes), batch->bytes / MTCOPY_GRANULE);
	if (batch->lanes) {
		lanes = min(lanes, batch->lanes);
	} else if (lanes > 1) {
		cpus->fill = READ_ONCE(mtcopy_fill);
		cpus->idle_only = READ_ONCE(mtcopy_idle_only);
		cpus->want = lanes - 1;
		cpus->looks = batch->bytes / MTCOPY_LOOK_BYTES;
		migrator_choose_cpus(cpus, batch->dst_nid);
	}
	if (lanes > 1 && !cpus->nr)
		return -EBUSY;
	mt->nr_lanes = lanes > 1 ? min(lanes, 1 + cpus->nr) : 1;
	batch->lanes = mt->nr_lanes;
	mt->nontemporal = mtcopy_nontemporal;
	mtcopy_cut_shares(mt);
	mtcopy_lanes_copy(mt, READ_ONCE(mtcopy_high_priority) || (lanes > 1 && cpus->high));
	for (i = 0; i < batch->nr; i++)
		if (!test_bit(MIGRATOR_PAIR_POISONED, &batch->pairs[i].state))
			migrator_batch_copied(batch, i);
	return 0;
}

static unsigned int mtcopy_lanes_now(void)
{
	return READ_ONCE(mtcopy_lanes);
}

static bool mtcopy_ready(void)
{
	return READ_ONCE(mtcopy_lanes) == 1 ||
	       migrator_may_find_cpus(READ_ONCE(mtcopy_idle_only));
}

static const struct migrator mtcopy_migrator = {
	.name = "mtcopy",
	.owner = THIS_MODULE,
	.group = &mtcopy_group,
	/* copy_highpage() does; the one copy that does not is x86's, which has no tags. */
	.flags = MIGRATOR_COPIES_TAGS | MIGRATOR_CPUS,
	.private_size = sizeof(struct mtcopy_batch),
	.activate = mtcopy_lanes_start,
	.deactivate = mtcopy_lanes_stop,
	.init_batch = mtcopy_init_batch,
	.exit_batch = mtcopy_exit_batch,
	.copy = mtcopy_copy,
	.lanes = mtcopy_lanes_now,
	.ready = mtcopy_ready,
};

static int __init mtcopy_init(void)
{
	mtcopy_lanes = min_t(unsigned int, MTCOPY_LANES_DEFAULT, num_online_cpus());
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
