// SPDX-License-Identifier: GPL-2.0-only
/*
 * The batch-copy stage of migrate_pages(), and the registry of migrators.
 *
 * One migrator or none is active. The stage gives it those folios of an unmapped batch that may
 * be copied ahead of their move, and marks the copied ones. It copies and moves nothing itself.
 *
 * Migrations take no lock of the registry: they read the active migrator under SRCU, so that it
 * may sleep, and no task is inside it once synchronize_srcu() returned.
 */
#define pr_fmt(fmt) "migrator: " fmt

#include <kunit/visibility.h>
#include <linux/bitmap.h>
#include <linux/buffer_head.h>
#include <linux/huge_mm.h>
#include <linux/hugetlb.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/pagemap.h>
#include <linux/percpu.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/srcu.h>
#include <linux/timekeeping.h>

#include "internal.h"
#include "migrator.h"

#define CREATE_TRACE_POINTS
#include <trace/events/migrator.h>
EXPORT_TRACEPOINT_SYMBOL_GPL(migrator_lane_done);

/*
 * Batches that can be with the migrator at one time; a further one is copied plainly. Helpers
 * are few, and 32 batches of the default size take 2 MiB of memory.
 */
#define MIGRATOR_BATCHES	32

/*
 * A batch's folios are unmapped until all are copied, so this bounds how long an access waits:
 * two 2 MiB folios are copied in 0.4 ms at 10 GB/s by one lane; 1,024 base pages are
 * unmapped, copied and mapped in 1.1 ms at the 3.7 GB/s that plain migration reaches.
 */
#define MIGRATOR_MAX_BYTES	SZ_4M

/* Upper bound of max_batch_bytes: 64 MiB are away for about 17 ms at 3.7 GB/s. */
#define MIGRATOR_MAX_BYTES_LIMIT	SZ_64M

/* A batch may always be one huge page, which is up to 512 MiB with large base pages. */
#ifdef CONFIG_PGTABLE_HAS_HUGE_LEAVES
#define MIGRATOR_MAX_BYTES_LEAST	max_t(size_t, SZ_2M, HPAGE_PMD_SIZE)
#else
#define MIGRATOR_MAX_BYTES_LEAST	((size_t)SZ_2M)
#endif

/*
 * Page-cache folios can be written by holders of a reference who take neither lock nor mapping.
 * The move of one folio has the same window while it copies; beyond this time of a batch, which
 * a lane without its CPU can cost, the early copy of such a folio is not used. A parameter for
 * emulated machines, which copy slowly.
 */
static unsigned int migrator_file_window_ms = 10;
module_param_named(file_window_ms, migrator_file_window_ms, uint, 0644);

/*
 * A smaller batch is copied plainly: waking a worker on another CPU takes 5 to 50 us, copying
 * 256 KiB about 25 us at 10 GB/s. A parameter for tests alone.
 */
static unsigned long migrator_min_bytes = SZ_256K;
module_param_named(min_batch_bytes, migrator_min_bytes, ulong, 0644);

/* struct migrator_entry - a registered migrator */
struct migrator_entry {
	const struct migrator *migrator;
	struct list_head list;
	struct migrator_counts __percpu *counts;
	struct kobject *kobj;
};

/* struct migrator_active - the chosen one, and the batches that were made for it */
struct migrator_active {
	struct migrator_entry *entry;
	const struct migrator *migrator;
	unsigned int nr_batches;
	DECLARE_BITMAP(busy, MIGRATOR_BATCHES);
	struct migrator_batch batches[] __counted_by(nr_batches);
};

struct migrator_registry migrator_registry;
DEFINE_STATIC_KEY_FALSE(migrator_active_key);
DEFINE_STATIC_SRCU(migrator_srcu);
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
 * Whether the content of a page-cache folio changes only under the folio lock, which the caller
 * holds, and its move is __migrate_folio().
 *
 * Holders of private data write without the folio lock (buffer heads: the move locks the
 * buffers first), so these folios, and all mappings with a migrate_folio of their own, are left
 * to the move. So are folios that nobody had mapped: drivers that write through a reference
 * alone (i915's phys objects, SGX's backing pages, udmabuf, ttm) keep theirs unmapped, and may
 * drop the reference before the move counts it.
 */
static bool migrator_file_eligible(struct address_space *mapping, struct folio *src,
				   struct folio *dst)
{
	if (!(dst->migrate_info & FOLIO_WAS_MAPPED))
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
 * expected here as well. New references come through the mapping, whose users lock the folio
 * to write; see migrator_file_eligible() for those who do not.
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
	return !mapping || folio_test_anon(src) || migrator_file_eligible(mapping, src, dst);
}

static struct migrator_batch *migrator_claim_batch(struct migrator_active *active)
{
	unsigned int i;

	for_each_clear_bit(i, active->busy, active->nr_batches)
		if (!test_and_set_bit_lock(i, active->busy))
			return &active->batches[i];
	return NULL;
}

static void migrator_release_batch(struct migrator_active *active, struct migrator_batch *batch)
{
	clear_bit_unlock(batch - active->batches, active->busy);
}

/* Whether eligible folios of the batch have @min bytes. */
static bool migrator_worthwhile(const struct migrator *migrator, struct list_head *src_folios,
				struct list_head *dst_folios, size_t min)
{
	struct folio *src, *dst = list_first_entry(dst_folios, struct folio, lru);
	size_t bytes = 0;

	list_for_each_entry(src, src_folios, lru) {
		if (migrator_eligible(migrator, src, dst)) {
			bytes += folio_size(src);
			if (bytes >= min)
				return true;
		}
		dst = list_next_entry(dst, lru);
	}
	return false;
}

static void migrator_fill_batch(const struct migrator *migrator, struct migrator_batch *batch,
				struct list_head *src_folios, struct list_head *dst_folios)
{
	struct folio *src, *dst = list_first_entry(dst_folios, struct folio, lru);

	batch->nr = 0;
	batch->bytes = 0;
	batch->dst_nid = folio_nid(dst);
	list_for_each_entry(src, src_folios, lru) {
		if (batch->nr == batch->max_nr)
			break;
		if (migrator_eligible(migrator, src, dst)) {
			batch->pairs[batch->nr++] = (struct migrator_pair) {
				.src = src,
				.dst = dst,
			};
			batch->bytes += folio_size(src);
		}
		dst = list_next_entry(dst, lru);
	}
}

/*
 * Marks what was copied, adds it to @bytes, and takes out what cannot move. Returns the number of
 * marked folios.
 */
static unsigned int migrator_mark_batch(struct migrator_batch *batch, bool late, size_t *bytes,
					struct list_head *bad_src, struct list_head *bad_dst)
{
	unsigned int i, copied = 0;

	for (i = 0; i < batch->nr; i++) {
		struct folio *src = batch->pairs[i].src, *dst = batch->pairs[i].dst;
		unsigned long state = batch->pairs[i].state;

		if (state & (BIT(MIGRATOR_PAIR_QUARANTINED) | BIT(MIGRATOR_PAIR_POISONED))) {
			list_move_tail(&src->lru, bad_src);
			list_move_tail(&dst->lru, bad_dst);
		} else if (state & BIT(MIGRATOR_PAIR_COPIED) && (!late || folio_test_anon(src))) {
			dst->migrate_info |= FOLIO_WAS_COPIED;
			*bytes += folio_size(dst);
			copied++;
		}
	}
	return copied;
}

static void migrator_run_batch(struct migrator_active *active, struct migrator_batch *batch,
			       struct list_head *bad_src, struct list_head *bad_dst)
{
	struct migrator_counts __percpu *counts = active->entry->counts;
	const char *name = active->migrator->name;
	enum migrate_reason reason = batch->reason;
	u64 start = ktime_get_ns(), ns;
	unsigned int copied = 0;
	size_t bytes = 0;
	bool late;
	int error;

	trace_migrator_batch_start(name, reason, batch->nr, batch->bytes, batch->dst_nid);
	error = active->migrator->copy(batch);
	ns = ktime_get_ns() - start;
	if (error) {
		this_cpu_inc(counts->declined);
	} else {
		late = ns > (u64)READ_ONCE(migrator_file_window_ms) * NSEC_PER_MSEC;
		copied = migrator_mark_batch(batch, late, &bytes, bad_src, bad_dst);
		this_cpu_add(counts->folios, copied);
		this_cpu_add(counts->bytes, bytes);
		this_cpu_add(counts->fallbacks, batch->nr - copied);
	}
	trace_migrator_batch_done(name, reason, copied, bytes, ns, error);
}

/* Everything here is allowed to give up: the move then copies, as it does without a migrator. */
void __migrator_copy_folios(struct migrator_registry *registry, struct list_head *src_folios,
			    struct list_head *dst_folios, struct list_head *bad_src,
			    struct list_head *bad_dst, enum migrate_mode mode,
			    enum migrate_reason reason)
{
	size_t min_bytes = READ_ONCE(migrator_min_bytes);
	struct migrator_active *active;
	struct migrator_batch *batch;
	struct folio *first;
	int srcu;

	if (!(READ_ONCE(registry->reasons) & BIT(reason)) || list_empty(src_folios))
		return;
	/* The most frequent call by far: one small folio, of a fault or a retry. */
	first = list_first_entry(src_folios, struct folio, lru);
	if (list_is_singular(src_folios) && folio_size(first) < min_bytes)
		return;

	srcu = srcu_read_lock(&migrator_srcu);
	active = srcu_dereference(registry->active, &migrator_srcu);
	if (!active || !migrator_worthwhile(active->migrator, src_folios, dst_folios, min_bytes))
		goto out;
	batch = migrator_claim_batch(active);
	if (!batch) {
		this_cpu_inc(active->entry->counts->declined);
		goto out;
	}
	batch->mode = mode;
	batch->reason = reason;
	migrator_fill_batch(active->migrator, batch, src_folios, dst_folios);
	/* References may have come since. */
	if (batch->nr)
		migrator_run_batch(active, batch, bad_src, bad_dst);
	migrator_release_batch(active, batch);
out:
	srcu_read_unlock(&migrator_srcu, srcu);
}

unsigned int __migrator_batch_pages(struct migrator_registry *registry,
				    enum migrate_reason reason, unsigned int pages)
{
	if (!(READ_ONCE(registry->reasons) & BIT(reason)))
		return pages;
	return READ_ONCE(registry->max_bytes) >> PAGE_SHIFT;
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
	.flags = MIGRATOR_COPIES_TAGS,
	.copy = migrator_kernel_copy,
};

static void migrator_free_batch(struct migrator_batch *batch)
{
	kvfree(batch->private);
	kvfree(batch->pairs);
}

static void migrator_free_batches(struct migrator_active *active)
{
	unsigned int i;

	for (i = 0; i < active->nr_batches; i++) {
		if (active->migrator->exit_batch)
			active->migrator->exit_batch(&active->batches[i]);
		migrator_free_batch(&active->batches[i]);
	}
	kfree(active);
}

static int migrator_make_batch(const struct migrator *migrator, struct migrator_batch *batch,
			       unsigned int max_nr)
{
	int error = -ENOMEM;

	batch->max_nr = max_nr;
	batch->pairs = kvcalloc(max_nr, sizeof(*batch->pairs), GFP_KERNEL);
	if (migrator->private_size)
		batch->private = kvzalloc(migrator->private_size, GFP_KERNEL);
	if (batch->pairs && (!migrator->private_size || batch->private))
		error = migrator->init_batch ? migrator->init_batch(batch) : 0;
	if (error)
		migrator_free_batch(batch);
	return error;
}

static struct migrator_active *migrator_make_batches(struct migrator_entry *entry,
						     size_t max_bytes)
{
	unsigned int nr = min_t(unsigned int, num_possible_cpus(), MIGRATOR_BATCHES);
	struct migrator_active *active;
	int error;

	active = kzalloc(struct_size(active, batches, nr), GFP_KERNEL);
	if (!active)
		return ERR_PTR(-ENOMEM);
	active->entry = entry;
	active->migrator = entry->migrator;
	while (active->nr_batches < nr) {
		/* __counted_by: the count covers the element before it is used. */
		active->nr_batches++;
		error = migrator_make_batch(active->migrator,
					    &active->batches[active->nr_batches - 1],
					    max_bytes >> PAGE_SHIFT);
		if (error) {
			active->nr_batches--;
			migrator_free_batches(active);
			return ERR_PTR(error);
		}
	}
	return active;
}

static struct migrator_active *migrator_get_active(struct migrator_registry *registry)
{
	return rcu_dereference_protected(registry->active, lockdep_is_held(&registry->lock));
}

/* Publishes @new, or none; afterwards no migration uses what was there before. */
static void migrator_publish(struct migrator_registry *registry, struct migrator_active *new)
{
	struct migrator_active *old = migrator_get_active(registry);

	rcu_assign_pointer(registry->active, new);
	if (registry == &migrator_registry && new && !old)
		static_branch_enable(&migrator_active_key);
	if (registry == &migrator_registry && !new && old)
		static_branch_disable(&migrator_active_key);
	if (old) {
		synchronize_srcu(&migrator_srcu);
		migrator_free_batches(old);
	}
}

static void migrator_put(const struct migrator *migrator)
{
	if (migrator->deactivate)
		migrator->deactivate();
	module_put(migrator->owner);
}

/* Makes @entry active instead of what is; NULL for none. All or nothing. */
static int migrator_switch(struct migrator_registry *registry, struct migrator_entry *entry)
{
	struct migrator_active *old = migrator_get_active(registry), *new = NULL;
	const struct migrator *before = old ? old->migrator : NULL;
	int error;

	if (before == (entry ? entry->migrator : NULL))
		return 0;
	if (entry) {
		const struct migrator *migrator = entry->migrator;

		if (!try_module_get(migrator->owner))
			return -ENODEV;
		error = migrator->activate ? migrator->activate() : 0;
		if (error) {
			module_put(migrator->owner);
			return error;
		}
		new = migrator_make_batches(entry, registry->max_bytes);
		if (IS_ERR(new)) {
			migrator_put(migrator);
			return PTR_ERR(new);
		}
	}
	migrator_publish(registry, new);
	if (before)
		migrator_put(before);
	return 0;
}

static struct migrator_entry *migrator_find(struct migrator_registry *registry, const char *name)
{
	struct migrator_entry *entry;

	list_for_each_entry(entry, &registry->entries, list)
		if (!strcmp(entry->migrator->name, name))
			return entry;
	return NULL;
}

/* Chooses by name; "none" for none. -EINVAL if there is no migrator of this name. */
int migrator_select(struct migrator_registry *registry, const char *name)
{
	struct migrator_entry *entry;
	int error = -EINVAL;

	mutex_lock(&registry->lock);
	entry = migrator_find(registry, name);
	if (entry || !strcmp(name, "none"))
		error = migrator_switch(registry, entry);
	mutex_unlock(&registry->lock);
	return error;
}

ssize_t migrator_show_names(struct migrator_registry *registry, char *buf)
{
	struct migrator_entry *entry;
	struct migrator_active *active;
	ssize_t len;

	mutex_lock(&registry->lock);
	active = migrator_get_active(registry);
	len = sysfs_emit(buf, active ? "none" : "[none]");
	list_for_each_entry(entry, &registry->entries, list)
		len += sysfs_emit_at(buf, len, active && active->entry == entry ?
				     " [%s]" : " %s", entry->migrator->name);
	len += sysfs_emit_at(buf, len, "\n");
	mutex_unlock(&registry->lock);
	return len;
}

/* The active migrator gets new batches of the new size, and keeps its own if it cannot. */
int migrator_set_max_bytes(struct migrator_registry *registry, size_t bytes)
{
	struct migrator_active *active, *new;
	int error = 0;

	if (!PAGE_ALIGNED(bytes) || bytes < MIGRATOR_MAX_BYTES_LEAST ||
	    bytes > max_t(size_t, MIGRATOR_MAX_BYTES_LIMIT, MIGRATOR_MAX_BYTES_LEAST))
		return -EINVAL;
	mutex_lock(&registry->lock);
	active = migrator_get_active(registry);
	if (active && bytes != registry->max_bytes) {
		new = migrator_make_batches(active->entry, bytes);
		if (IS_ERR(new))
			error = PTR_ERR(new);
		else
			migrator_publish(registry, new);
	}
	if (!error)
		WRITE_ONCE(registry->max_bytes, bytes);
	mutex_unlock(&registry->lock);
	return error;
}

int migrator_add(struct migrator_registry *registry, const struct migrator *migrator)
{
	struct migrator_entry *entry;
	int error = -EEXIST;

	if (strlen(migrator->name) >= MIGRATOR_NAME_LEN)
		return -EINVAL;
	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry)
		return -ENOMEM;
	entry->migrator = migrator;
	mutex_lock(&registry->lock);
	if (!strcmp(migrator->name, "none") || migrator_find(registry, migrator->name))
		goto fail;
	error = -ENOMEM;
	entry->counts = alloc_percpu(struct migrator_counts);
	if (!entry->counts)
		goto fail;
	if (registry == &migrator_registry) {
		entry->kobj = migrator_sysfs_add(migrator, entry->counts);
		error = PTR_ERR_OR_ZERO(entry->kobj);
		if (error)
			goto fail;
	}
	list_add_tail(&entry->list, &registry->entries);
	mutex_unlock(&registry->lock);
	return 0;
fail:
	mutex_unlock(&registry->lock);
	free_percpu(entry->counts);
	kfree(entry);
	return error;
}

void migrator_remove(struct migrator_registry *registry, const struct migrator *migrator)
{
	struct migrator_active *active;
	struct migrator_entry *entry;

	mutex_lock(&registry->lock);
	entry = migrator_find(registry, migrator->name);
	if (WARN_ON_ONCE(!entry || entry->migrator != migrator))
		goto out;
	active = migrator_get_active(registry);
	if (active && active->entry == entry)
		migrator_switch(registry, NULL);
	list_del(&entry->list);
	if (entry->kobj)
		migrator_sysfs_remove(migrator, entry->kobj);
	free_percpu(entry->counts);
	kfree(entry);
out:
	mutex_unlock(&registry->lock);
}

/**
 * migrator_register - offer a migrator
 * @migrator: stays the caller's, unchanged and in place, until migrator_unregister()
 *
 * It appears in /sys/kernel/mm/migration/migrator, with its statistics and attributes, and
 * is not active before somebody writes its name there. Sleeps; not from a callback.
 *
 * Return: 0; -EINVAL if the name is too long, -EEXIST if it is taken, -ENODEV if
 * /sys/kernel/mm/migration could not be made at boot, -ENOMEM, or an error of sysfs.
 */
int migrator_register(const struct migrator *migrator)
{
	return migrator_add(&migrator_registry, migrator);
}
EXPORT_SYMBOL_GPL(migrator_register);

/**
 * migrator_unregister - withdraw a migrator
 * @migrator: that was registered
 *
 * If it is active, none is afterwards. (The module of an active migrator is pinned, so only a
 * migrator that leaves for another reason, like a device that is unplugged, comes here while
 * active.) When this returns no migration is in a callback and none will be; migrations in
 * flight copy plainly what was not copied yet. Sleeps. Not from a callback of a migrator.
 */
void migrator_unregister(const struct migrator *migrator)
{
	migrator_remove(&migrator_registry, migrator);
}
EXPORT_SYMBOL_GPL(migrator_unregister);

void migrator_registry_init(struct migrator_registry *registry)
{
	mutex_init(&registry->lock);
	INIT_LIST_HEAD(&registry->entries);
	RCU_INIT_POINTER(registry->active, NULL);
	registry->reasons = GENMASK(MR_TYPES - 1, 0);
	registry->max_bytes = max_t(size_t, MIGRATOR_MAX_BYTES, MIGRATOR_MAX_BYTES_LEAST);
}

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
