// SPDX-License-Identifier: GPL-2.0-only
/*
 * The batch-copy stage of migrate_pages().
 *
 * The policy of the registry says which migrator copies for which reason. The stage gives it
 * those folios of an unmapped batch that may be copied ahead of their move, and marks the copied
 * ones. It copies and moves nothing itself.
 *
 * Migrations take no lock of the registry: they read the policy under SRCU, so that migrators may
 * sleep, and no task is inside one that is not in it once synchronize_srcu() returned.
 */
#define pr_fmt(fmt) "migrator: " fmt

#include <kunit/visibility.h>
#include <linux/buffer_head.h>
#include <linux/fs.h>
#include <linux/huge_mm.h>
#include <linux/hugetlb.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/pagemap.h>
#include <linux/percpu.h>
#include <linux/sizes.h>
#include <linux/srcu.h>
#include <linux/timekeeping.h>

#include "internal.h"
#include "migrator.h"

#define CREATE_TRACE_POINTS
#include <trace/events/migrator.h>
EXPORT_TRACEPOINT_SYMBOL_GPL(migrator_lane_done);
EXPORT_TRACEPOINT_SYMBOL_GPL(migrator_channel_round);

/*
 * A smaller batch is copied plainly: waking a worker on another CPU takes 5 to 50 us, copying
 * 256 KiB about 25 us at 10 GB/s. A parameter for tests alone.
 */
static unsigned long migrator_min_bytes = SZ_256K;
module_param_named(min_batch_bytes, migrator_min_bytes, ulong, 0644);

/* 0: batches have no more pages than without a migrator. A parameter for experiments. */
static bool migrator_gather = true;
module_param_named(gather, migrator_gather, bool, 0644);

/* 1: max_batch_bytes takes up to 1 GiB. A parameter for experiments. */
bool migrator_large_batches;
module_param_named(large_batches, migrator_large_batches, bool, 0644);

struct migrator_registry migrator_registry;
DEFINE_STATIC_KEY_FALSE(migrator_active_key);
DEFINE_SRCU(migrator_srcu);
static atomic_long_t migrator_quarantine_sum;

#ifdef CONFIG_ARM64_MTE
static bool migrator_folio_has_tags(struct folio *folio)
{
	long i;

	if (!system_supports_mte())
		return false;
	for (i = 0; i < folio_nr_pages(folio); i++)
		if (page_mte_tagged(folio_page(folio, i)))
			return true;
	return false;
}
#else
static bool migrator_folio_has_tags(struct folio *folio)
{
	return false;
}
#endif

/*
 * Whether nobody writes to a page-cache folio unseen while the caller has it locked and unmapped,
 * and its move is __migrate_folio().
 *
 * Those who write without the folio lock, as drivers do to memory files, look the folio up with it
 * (shmem_read_mapping_page(), memfd_pin_folios()): so their reference is counted before the copy,
 * or they wait. The kernel's own files, which nobody opens, are looked up without it: the B-trees
 * of hfs and hfsplus. Holders of private data write without the folio lock (buffer heads: the move
 * locks the buffers first), so these folios, and all mappings with a migrate_folio of their own,
 * are left to the move.
 */
static bool migrator_file_eligible(struct address_space *mapping, struct folio *src)
{
	/* The swap cache has none. */
	struct inode *inode = mapping->host;

	if (!inode || !S_ISREG(inode->i_mode) || !inode->i_fop->read_iter)
		return false;
	if (mapping_inaccessible(mapping))
		return false;
	if (folio_test_private(src) || folio_test_private_2(src))
		return false;
	if (mapping->a_ops->migrate_folio == migrate_folio ||
	    mapping->a_ops->migrate_folio == filemap_migrate_folio)
		return true;
#ifdef CONFIG_BUFFER_HEAD
	/* Without buffers this is migrate_folio(); attaching some takes the folio lock. */
	return mapping->a_ops->migrate_folio == buffer_migrate_folio;
#else
	return false;
#endif
}

/*
 * Whether @src may be copied now, before its move checks it again.
 *
 * It is locked and unmapped, and in no TLB. Holders of a reference (a pin, direct I/O) can still
 * write to it, and may drop it before the move counts references, so the count must be as
 * expected here as well. New references come through the mapping; see migrator_file_eligible().
 */
VISIBLE_IF_KUNIT bool migrator_eligible(const struct migrator *migrator, struct folio *src,
					struct folio *dst)
{
	struct address_space *mapping;

	if (page_has_movable_ops(&src->page) || folio_test_hugetlb(src))
		return false;
	if (folio_is_zone_device(src) || folio_is_zone_device(dst))
		return false;
	if (folio_nr_pages(dst) != folio_nr_pages(src))
		return false;
	/* The plain copy reports it. */
	if (folio_contain_hwpoisoned_page(src))
		return false;
	if (folio_ref_count(src) != folio_expected_ref_count(src) + 1)
		return false;
	if (!(migrator->flags & MIGRATOR_COPIES_TAGS) && migrator_folio_has_tags(src))
		return false;
	mapping = folio_mapping(src);
	return !mapping || folio_test_anon(src) || migrator_file_eligible(mapping, src);
}

static bool migrator_stage_ended(const struct migrator_stage *stage)
{
	return list_entry_is_head(stage->src, stage->src_folios, lru);
}

/* Whether @least bytes are left in eligible folios; if that is 0, whether one folio is. */
bool migrator_stage_has(const struct migrator_stage *stage, const struct migrator *migrator,
			size_t least)
{
	struct folio *src = stage->src, *dst = stage->dst;
	size_t bytes = 0;

	list_for_each_entry_from(src, stage->src_folios, lru) {
		if (migrator_eligible(migrator, src, dst)) {
			bytes += folio_size(src);
			if (bytes >= least)
				return true;
		}
		dst = list_next_entry(dst, lru);
	}
	return false;
}

/* Takes the next eligible folios into @batch: as many as it holds, or until @bytes are reached. */
void migrator_stage_fill(struct migrator_stage *stage, const struct migrator *migrator,
			 struct migrator_batch *batch, size_t bytes)
{
	batch->mode = stage->mode;
	batch->reason = stage->reason;
	batch->lanes = 0;
	batch->nr = 0;
	batch->bytes = 0;
	while (!migrator_stage_ended(stage) && batch->nr < batch->max_nr && batch->bytes < bytes) {
		struct folio *src = stage->src, *dst = stage->dst;

		if (migrator_eligible(migrator, src, dst)) {
			batch->pairs[batch->nr++] = (struct migrator_pair) {
				.src = src,
				.dst = dst,
			};
			batch->bytes += folio_size(src);
		}
		stage->src = list_next_entry(src, lru);
		stage->dst = list_next_entry(dst, lru);
		cond_resched();
	}
	/* What was written before a reference was dropped is read. Pairs with folio_put(). */
	smp_rmb();
	if (batch->nr)
		batch->dst_nid = folio_nid(batch->pairs[0].dst);
}

void migrator_stage_begin(struct migrator_pool *pool, struct migrator_batch *batch)
{
	trace_migrator_batch_start(pool->migrator->name, batch->reason, batch->nr, batch->bytes,
				   batch->dst_nid);
}

/* Marks what was copied, and takes out what cannot move. */
void migrator_stage_end(struct migrator_stage *stage, struct migrator_pool *pool,
			struct migrator_batch *batch, u64 ns, int error)
{
	struct migrator_counts __percpu *counts = pool->entry->counts;
	unsigned int i, copied = 0;
	size_t bytes = 0;

	for (i = 0; i < batch->nr && !error; i++) {
		struct folio *src = batch->pairs[i].src, *dst = batch->pairs[i].dst;
		unsigned long state = batch->pairs[i].state;

		if (state & (BIT(MIGRATOR_PAIR_QUARANTINED) | BIT(MIGRATOR_PAIR_POISONED))) {
			list_move_tail(&src->lru, stage->bad_src);
			list_move_tail(&dst->lru, stage->bad_dst);
		} else if (state & BIT(MIGRATOR_PAIR_COPIED)) {
			dst->migrate_info |= FOLIO_WAS_COPIED;
			bytes += folio_size(dst);
			copied++;
		}
	}
	if (error) {
		this_cpu_inc(counts->declined);
	} else {
		this_cpu_add(counts->folios, copied);
		this_cpu_add(counts->bytes, bytes);
		this_cpu_add(counts->fallbacks, batch->nr - copied);
	}
	stage->ns = ns;
	stage->copied = copied;
	trace_migrator_batch_done(pool->migrator->name, batch->reason, copied, bytes, ns, error);
}

/* Copies a filled batch; an error of the migrator says that it declined. */
int migrator_stage_copy(struct migrator_stage *stage, struct migrator_pool *pool,
			struct migrator_batch *batch)
{
	u64 start = ktime_get_ns();
	int error;

	migrator_stage_begin(pool, batch);
	error = pool->migrator->copy(batch);
	migrator_stage_end(stage, pool, batch, ktime_get_ns() - start, error);
	return error;
}

/* Takes out all that was not copied. @pool: NULL if nothing may copy */
static void migrator_stage_refuse(struct migrator_stage *stage, struct migrator_pool *pool)
{
	struct folio *src, *next, *next_dst;
	struct folio *dst = list_first_entry(stage->dst_folios, struct folio, lru);

	list_for_each_entry_safe(src, next, stage->src_folios, lru) {
		next_dst = list_next_entry(dst, lru);
		if (!(dst->migrate_info & FOLIO_WAS_COPIED)) {
			list_move_tail(&src->lru, stage->bad_src);
			list_move_tail(&dst->lru, stage->bad_dst);
			if (pool)
				this_cpu_inc(pool->entry->counts->refused);
		}
		dst = next_dst;
		cond_resched();
	}
}

/* The migrator of the reason copies all that is eligible, if that is @min_bytes. */
static void migrator_stage_copy_all(struct migrator_stage *stage, struct migrator_pool *pool,
				    size_t min_bytes)
{
	const struct migrator *migrator = pool->migrator;
	struct migrator_batch *batch;

	if (!migrator_stage_has(stage, migrator, min_bytes))
		return;
	batch = migrator_claim_batch(pool);
	if (!batch) {
		this_cpu_inc(pool->entry->counts->declined);
		return;
	}
	/* References may have come since, so that nothing is eligible. */
	do {
		migrator_stage_fill(stage, migrator, batch, SIZE_MAX);
	} while (batch->nr && !migrator_stage_copy(stage, pool, batch));
	migrator_release_batch(pool, batch);
}

static bool migrator_stage_run(struct migrator_stage *stage, const struct migrator_policy *policy,
			       size_t min_bytes)
{
	struct migrator_pool *pool = policy->pools[stage->reason];
	bool only = policy->only & BIT(stage->reason);

	stage->src = list_first_entry(stage->src_folios, struct folio, lru);
	stage->dst = list_first_entry(stage->dst_folios, struct folio, lru);
	if (pool)
		migrator_stage_copy_all(stage, pool, only ? 0 : min_bytes);
	else if (policy->auto_reasons & BIT(stage->reason))
		migrator_auto_copy(stage, policy, min_bytes);
	if (only)
		migrator_stage_refuse(stage, pool);
	return only;
}

static bool migrator_list_is_small(struct list_head *folios, size_t min_bytes)
{
	struct folio *folio;
	size_t bytes = 0;

	list_for_each_entry(folio, folios, lru) {
		bytes += folio_size(folio);
		if (bytes >= min_bytes)
			return false;
	}
	return true;
}

/*
 * Everything here is allowed to give up: the move then copies, as it does without a migrator. But
 * if true is returned, no folio without a copy is left on the lists.
 */
bool __migrator_copy_folios(struct migrator_registry *registry, struct list_head *src_folios,
			    struct list_head *dst_folios, struct list_head *bad_src,
			    struct list_head *bad_dst, enum migrate_mode mode,
			    enum migrate_reason reason)
{
	size_t min_bytes = READ_ONCE(migrator_min_bytes);
	bool only = READ_ONCE(registry->only) & BIT(reason);
	const struct migrator_policy *policy;
	int srcu;

	if (!(only || READ_ONCE(registry->reasons) & BIT(reason)) || list_empty(src_folios))
		return false;
	/* The most frequent call by far: one small folio, of a fault or a retry, or a few. */
	if (!only && migrator_list_is_small(src_folios, min_bytes))
		return false;

	srcu = srcu_read_lock(&migrator_srcu);
	policy = srcu_dereference(registry->policy, &migrator_srcu);
	only = false;
	if (policy) {
		struct migrator_stage stage = {
			.src_folios = src_folios,
			.dst_folios = dst_folios,
			.bad_src = bad_src,
			.bad_dst = bad_dst,
			.mode = mode,
			.reason = reason,
		};

		only = migrator_stage_run(&stage, policy, min_bytes);
	}
	srcu_read_unlock(&migrator_srcu, srcu);
	return only;
}

bool __migrator_refuses_hugetlb(struct migrator_registry *registry, enum migrate_reason reason)
{
	const struct migrator_policy *policy;
	bool refuses;
	int srcu;

	if (!(READ_ONCE(registry->only) & BIT(reason)))
		return false;
	srcu = srcu_read_lock(&migrator_srcu);
	policy = srcu_dereference(registry->policy, &migrator_srcu);
	refuses = policy && policy->only & BIT(reason);
	if (refuses && policy->pools[reason])
		this_cpu_inc(policy->pools[reason]->entry->counts->refused);
	srcu_read_unlock(&migrator_srcu, srcu);
	return refuses;
}

static bool migrator_pool_is_ready(const struct migrator_pool *pool)
{
	return pool && (!pool->migrator->ready || pool->migrator->ready());
}

/* Whether a migrator would take a batch now. The plain copy of "auto" needs no large ones. */
static bool migrator_policy_is_ready(const struct migrator_policy *policy,
				     enum migrate_reason reason)
{
	if (policy->auto_reasons & BIT(reason))
		return migrator_pool_is_ready(policy->cpus) ||
		       migrator_pool_is_ready(policy->channels);
	return migrator_pool_is_ready(policy->pools[reason]);
}

/* Callers may hold spinlocks. */
unsigned int __migrator_batch_pages(struct migrator_registry *registry,
				    enum migrate_reason reason, unsigned int pages)
{
	const struct migrator_policy *policy;
	bool ready;
	int srcu;

	if (!READ_ONCE(migrator_gather) || !(READ_ONCE(registry->reasons) & BIT(reason)))
		return pages;
	srcu = srcu_read_lock(&migrator_srcu);
	policy = srcu_dereference(registry->policy, &migrator_srcu);
	ready = policy && migrator_policy_is_ready(policy, reason);
	srcu_read_unlock(&migrator_srcu, srcu);
	return ready ? max(pages, READ_ONCE(registry->max_bytes) >> PAGE_SHIFT) : pages;
}

/**
 * migrator_quarantine - keep the destination of a pair from being used
 * @batch: the batch that &migrator.copy was called with
 * @index: of the pair
 *
 * For migrators that cannot tell whether something still writes to the destination: a
 * device that does not answer. This attempt to move the folio fails, and its source stays,
 * to be tried again with another destination. The destination is neither mapped nor freed
 * before migrator_quarantine_release(), to which the migrator owes one call per call of this.
 * Only from &migrator.copy.
 */
void migrator_quarantine(struct migrator_batch *batch, unsigned int index)
{
	struct folio *dst = batch->pairs[index].dst;

	folio_get(dst);
	atomic_long_add(folio_size(dst), &migrator_quarantine_sum);
	set_bit(MIGRATOR_PAIR_QUARANTINED, &batch->pairs[index].state);
}
EXPORT_SYMBOL_GPL(migrator_quarantine);

/**
 * migrator_quarantine_release - give back a folio that nothing writes to any more
 * @dst: was the destination of a pair given to migrator_quarantine()
 *
 * May free the folio. Not from interrupts.
 */
void migrator_quarantine_release(struct folio *dst)
{
	atomic_long_sub(folio_size(dst), &migrator_quarantine_sum);
	folio_put(dst);
}
EXPORT_SYMBOL_GPL(migrator_quarantine_release);

size_t migrator_quarantined_bytes(void)
{
	return atomic_long_read(&migrator_quarantine_sum);
}

/* The migrator "kernel": the plain copy, but of a whole batch at a time. */
static int migrator_kernel_copy(struct migrator_batch *batch)
{
	unsigned int i;

	for (i = 0; i < batch->nr; i++) {
		if (folio_mc_copy(batch->pairs[i].dst, batch->pairs[i].src))
			migrator_batch_poisoned(batch, i);
		else
			migrator_batch_copied(batch, i);
		cond_resched();
	}
	return 0;
}

static const struct migrator migrator_kernel = {
	.name = "kernel",
	.flags = MIGRATOR_COPIES_TAGS | MIGRATOR_PLAIN,
	.copy = migrator_kernel_copy,
};

static int __init migrator_init(void)
{
	int error;

	/* An anon_vma's address has three low bits to spare. */
	BUILD_BUG_ON(__alignof__(struct anon_vma) < 8);

	migrator_registry_init(&migrator_registry);
	error = migrator_sysfs_init();
	if (!error)
		error = migrator_register(&migrator_kernel);
	if (error)
		pr_err("not available: %d\n", error);
	return error;
}
subsys_initcall(migrator_init);
