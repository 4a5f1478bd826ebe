// SPDX-License-Identifier: GPL-2.0-only
/*
 * Migrators: the batch-copy stage of migrate_pages(), and the registry of what copies.
 *
 * One migrator or none is active. The stage takes those folios of an unmapped batch that
 * may be copied ahead of their move, hands them to the active migrator and marks the ones
 * it copied. It copies nothing itself, moves nothing, and is free to do nothing.
 *
 * Locks: migrator_mutex orders registering and choosing. Migrations never take it: they
 * read migrator_active under SRCU, so that a migrator can sleep and yet be gone, with
 * nobody inside it, once synchronize_srcu() returned.
 */
#define pr_fmt(fmt) "migrator: " fmt

#include <kunit/visibility.h>
#include <linux/bitmap.h>
#include <linux/buffer_head.h>
#include <linux/ctype.h>
#include <linux/huge_mm.h>
#include <linux/hugetlb.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/module.h>
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
 * Migrations that can have a batch with the migrator at one time. A further one copies
 * plainly. Helpers are few, and 32 batches of the default size take 2 MiB of memory.
 */
#define MIGRATOR_BATCHES	32

/*
 * Below it a second lane's start costs about what it saves: waking a worker on another CPU
 * takes 5 to 50 us, copying 256 KiB about 25 us at 10 GB/s.
 */
#define MIGRATOR_MIN_BYTES	SZ_256K

/*
 * A batch's folios are unmapped until all are copied, so this bounds how long an access can
 * wait: two 2 MiB folios are copied in 0.4 ms at 10 GB/s by one lane; 1,024 base pages are
 * unmapped, copied and mapped in 1.1 ms at the 3.7 GB/s that plain migration reaches.
 */
#define MIGRATOR_MAX_BYTES	SZ_4M

/* More than this and nobody could call the wait bounded. */
#define MIGRATOR_MAX_BYTES_LIMIT	SZ_64M

/* A batch may always be one huge page, which is up to 512 MiB with large base pages. */
#ifdef CONFIG_PGTABLE_HAS_HUGE_LEAVES
#define MIGRATOR_MAX_BYTES_LEAST	max_t(size_t, SZ_2M, HPAGE_PMD_SIZE)
#else
#define MIGRATOR_MAX_BYTES_LEAST	((size_t)SZ_2M)
#endif

/* struct migrator_entry - a registered migrator */
struct migrator_entry {
	const struct migrator *migrator;
	struct list_head list;
	struct migrator_stats __percpu *stats;
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

/* Only their addresses matter. The low bits of a mapping's address have meanings. */
const char migrator_mark;
const unsigned long migrator_quarantine_mark;

DEFINE_STATIC_KEY_FALSE(migrator_active_key);
DEFINE_STATIC_SRCU(migrator_srcu);
static DEFINE_MUTEX(migrator_mutex);
static LIST_HEAD(migrator_entries);
static struct migrator_active __rcu *migrator_active;

static unsigned int migrator_reason_mask = GENMASK(MR_TYPES - 1, 0);
static size_t migrator_min_bytes = MIGRATOR_MIN_BYTES;
static size_t migrator_max_bytes;	/* set by migrator_init() */
static atomic_long_t migrator_quarantine_sum;
static bool migrator_declined;		/* the last batch; see __migrator_batch_pages() */

/* --- The stage --- */

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
 * Whether the content of a file folio changes only under the folio lock, which we hold, and
 * its move is __migrate_folio(), which knows the mark.
 *
 * Private data is the owner's way to be told before a copy. Holders of buffer heads write
 * without the folio lock, for example, and the move therefore locks the buffers first: so
 * these folios, and all mappings with a migrate_folio of their own, are left to the move.
 */
static bool migrator_mapping_eligible(struct address_space *mapping, struct folio *src)
{
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
 * It is locked and unmapped and no TLB knows it any more. What could still write to it is
 * who holds a reference (a pin, direct I/O), and who drops that before the move counts
 * references would not be noticed there. So they must be as expected here as well: a new
 * reference to unmapped memory comes through the mapping, and nearly all of its users lock
 * the folio to write.
 *
 * Those who do not (memfd_pin_folios() for udmabuf, ttm_tt_swapout()) can take a reference,
 * write, and drop it between this check and the move's. The move itself has the same gap
 * while it copies one folio; here it lasts for the copy of the batch. Nothing closes it: such
 * a writer need not make the folio dirty, and with frozen references every lookup would spin
 * for that long.
 */
VISIBLE_IF_KUNIT bool migrator_eligible(const struct migrator *migrator, struct folio *src,
					struct folio *dst)
{
	struct address_space *mapping;

	if (__folio_test_movable(src) || folio_test_hugetlb(src))
		return false;
	if (folio_is_zone_device(src) || folio_is_zone_device(dst))
		return false;
	if (folio_nr_pages(dst) != folio_nr_pages(src))
		return false;
	/* The plain copy knows how to report it. */
	if (folio_contain_hwpoisoned_page(src))
		return false;
	if (folio_ref_count(src) != folio_expected_ref_count(src) + 1)
		return false;
	if (!(migrator->flags & MIGRATOR_COPIES_TAGS) && migrator_folio_has_tags(src))
		return false;
	mapping = folio_mapping(src);
	return !mapping || migrator_mapping_eligible(mapping, src);
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

static void migrator_fill_batch(const struct migrator *migrator, struct migrator_batch *batch,
				struct list_head *src_folios, struct list_head *dst_folios,
				enum migrate_reason reason)
{
	struct folio *src, *dst = list_first_entry(dst_folios, struct folio, lru);

	batch->nr = 0;
	batch->bytes = 0;
	batch->reason = reason;
	batch->dst_nid = folio_nid(dst);
	list_for_each_entry(src, src_folios, lru) {
		if (batch->nr == batch->max_nr)
			break;
		if (migrator_eligible(migrator, src, dst)) {
			batch->pairs[batch->nr].src = src;
			batch->pairs[batch->nr].dst = dst;
			batch->nr++;
			batch->bytes += folio_size(src);
		}
		dst = list_next_entry(dst, lru);
	}
}

/* Marks what was copied and can be moved to. Returns the bytes of it. */
static size_t migrator_mark_copied(struct migrator_batch *batch)
{
	size_t bytes = 0;
	unsigned int i;

	bitmap_andnot(batch->copied, batch->copied, batch->quarantined, batch->nr);
	for_each_set_bit(i, batch->copied, batch->nr) {
		struct folio *dst = batch->pairs[i].dst;

		dst->private = (void *)((unsigned long)dst->private | MIGRATOR_FOLIO_COPIED);
		bytes += folio_size(dst);
	}
	return bytes;
}

static void migrator_run_batch(struct migrator_active *active, struct migrator_batch *batch)
{
	const struct migrator *migrator = active->migrator;
	enum migrate_reason reason = batch->reason;
	struct migrator_counts __percpu *counts = &active->entry->stats->reason[reason];
	unsigned int copied;
	size_t bytes;
	u64 start = 0;
	int error;

	bitmap_zero(batch->copied, batch->nr);
	bitmap_zero(batch->quarantined, batch->nr);
	trace_migrator_batch_start(migrator->name, reason, batch->nr, batch->bytes,
				   batch->dst_nid);
	if (trace_migrator_batch_done_enabled())
		start = ktime_get_ns();

	error = migrator->copy(batch);
	/* Seldom written, since every migration reads it. */
	if (READ_ONCE(migrator_declined) != !!error)
		WRITE_ONCE(migrator_declined, !!error);
	if (error) {
		this_cpu_inc(counts->declined);
		trace_migrator_fallback(migrator->name, reason, batch->nr, error);
		return;
	}

	bytes = migrator_mark_copied(batch);
	copied = bitmap_weight(batch->copied, batch->nr);
	if (trace_migrator_batch_done_enabled())
		trace_migrator_batch_done(migrator->name, reason, copied, bytes,
					  start ? ktime_get_ns() - start : 0);
	if (copied) {
		this_cpu_inc(counts->batches);
		this_cpu_add(counts->folios, copied);
		this_cpu_add(counts->bytes, bytes);
	}
	if (copied < batch->nr) {
		this_cpu_add(counts->fallbacks, batch->nr - copied);
		trace_migrator_fallback(migrator->name, reason, batch->nr - copied, 0);
	}
}

/*
 * The lists are walked, not changed. Everything here is allowed to give up: the move then
 * copies, as it does without a migrator.
 */
void __migrator_copy_folios(struct list_head *src_folios, struct list_head *dst_folios,
			    enum migrate_reason reason)
{
	size_t min_bytes = READ_ONCE(migrator_min_bytes);
	struct migrator_active *active;
	struct migrator_batch *batch;
	struct folio *first;
	int srcu;

	if (!(READ_ONCE(migrator_reason_mask) & BIT(reason)) || list_empty(src_folios))
		return;
	/* The most frequent call by far: one small folio, of a fault or a retry. */
	first = list_first_entry(src_folios, struct folio, lru);
	if (list_is_singular(src_folios) && folio_size(first) < min_bytes)
		return;

	srcu = srcu_read_lock(&migrator_srcu);
	active = srcu_dereference(migrator_active, &migrator_srcu);
	if (!active)
		goto out;
	batch = migrator_claim_batch(active);
	if (!batch) {
		this_cpu_inc(active->entry->stats->reason[reason].declined);
		goto out;
	}
	migrator_fill_batch(active->migrator, batch, src_folios, dst_folios, reason);
	if (batch->nr && batch->bytes >= min_bytes)
		migrator_run_batch(active, batch);
	migrator_release_batch(active, batch);
out:
	srcu_read_unlock(&migrator_srcu, srcu);
}

/*
 * Pages of a larger batch are unmapped for longer, which pays if several lanes copy them. So
 * after a batch that the migrator declined, the next one is as large as without a migrator,
 * until one of these finds it ready again.
 */
unsigned int __migrator_batch_pages(enum migrate_reason reason, unsigned int pages)
{
	if (READ_ONCE(migrator_declined))
		return pages;
	if (READ_ONCE(migrator_reason_mask) & BIT(reason))
		return READ_ONCE(migrator_max_bytes) >> PAGE_SHIFT;
	return pages;
}

/* --- Quarantine --- */

/**
 * migrator_quarantine - keep the destination of a pair from being used
 * @batch: the batch that &migrator.copy was called with
 * @index: of the pair
 *
 * For migrators that cannot tell whether something still writes to the destination: a
 * device that does not answer. The move of this folio fails. Its source stays where it
 * is, to be tried again with another destination, at once if the caller of
 * migrate_pages() is one that waits. The destination is neither mapped nor freed before
 * migrator_quarantine_release(), to which the migrator owes one call per call of this.
 *
 * Context: &migrator.copy. Takes a reference to the destination.
 */
void migrator_quarantine(struct migrator_batch *batch, unsigned int index)
{
	struct folio *dst = batch->pairs[index].dst;

	folio_get(dst);
	atomic_long_add(folio_size(dst), &migrator_quarantine_sum);
	if (!__test_and_set_bit(index, batch->quarantined))
		dst->mapping = (void *)&migrator_quarantine_mark;
}
EXPORT_SYMBOL_GPL(migrator_quarantine);

/**
 * migrator_quarantine_release - give back a folio of which it is sure that nothing writes to it
 * @dst: was the destination of a pair given to migrator_quarantine()
 *
 * Context: Any but interrupts. Possibly frees the folio.
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

/* --- The migrator "kernel": the plain copy, but of a whole batch at a time --- */

static int migrator_kernel_copy(struct migrator_batch *batch)
{
	unsigned int i;

	for (i = 0; i < batch->nr; i++) {
		if (!folio_mc_copy(batch->pairs[i].dst, batch->pairs[i].src))
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

/* --- Making a migrator active --- */

static void migrator_free_batches(struct migrator_active *active)
{
	unsigned int i;

	for (i = 0; i < active->nr_batches; i++) {
		struct migrator_batch *batch = &active->batches[i];

		if (active->migrator->exit_batch)
			active->migrator->exit_batch(batch);
		kvfree(batch->private);
		bitmap_free(batch->quarantined);
		bitmap_free(batch->copied);
		kvfree(batch->pairs);
	}
	kfree(active);
}

static int migrator_make_batch(const struct migrator *migrator, struct migrator_batch *batch,
			       unsigned int max_nr)
{
	int error = -ENOMEM;

	batch->max_nr = max_nr;
	batch->pairs = kvcalloc(max_nr, sizeof(*batch->pairs), GFP_KERNEL);
	batch->copied = bitmap_zalloc(max_nr, GFP_KERNEL);
	batch->quarantined = bitmap_zalloc(max_nr, GFP_KERNEL);
	if (migrator->private_size)
		batch->private = kvzalloc(migrator->private_size, GFP_KERNEL);
	if (!batch->pairs || !batch->copied || !batch->quarantined ||
	    (migrator->private_size && !batch->private))
		goto fail;
	error = migrator->init_batch ? migrator->init_batch(batch) : 0;
	if (!error)
		return 0;
fail:
	kvfree(batch->private);
	bitmap_free(batch->quarantined);
	bitmap_free(batch->copied);
	kvfree(batch->pairs);
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

static struct migrator_active *migrator_get_active(void)
{
	return rcu_dereference_protected(migrator_active, lockdep_is_held(&migrator_mutex));
}

/* Publishes @new, or none; afterwards no migration uses what was there before. */
static void migrator_publish(struct migrator_active *new)
{
	struct migrator_active *old = migrator_get_active();

	rcu_assign_pointer(migrator_active, new);
	WRITE_ONCE(migrator_declined, false);
	if (new && !old)
		static_branch_enable(&migrator_active_key);
	if (!new && old)
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
static int migrator_switch(struct migrator_entry *entry)
{
	struct migrator_active *old = migrator_get_active(), *new = NULL;
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
		new = migrator_make_batches(entry, migrator_max_bytes);
		if (IS_ERR(new)) {
			migrator_put(migrator);
			return PTR_ERR(new);
		}
	}
	migrator_publish(new);
	if (before)
		migrator_put(before);
	return 0;
}

static struct migrator_entry *migrator_find(const char *name)
{
	struct migrator_entry *entry;

	list_for_each_entry(entry, &migrator_entries, list)
		if (!strcmp(entry->migrator->name, name))
			return entry;
	return NULL;
}

/* Chooses by name; "none" for none. -EINVAL if there is no migrator of this name. */
int migrator_select(const char *name)
{
	struct migrator_entry *entry = NULL;
	int error = -EINVAL;

	mutex_lock(&migrator_mutex);
	if (strcmp(name, "none"))
		entry = migrator_find(name);
	if (entry || !strcmp(name, "none"))
		error = migrator_switch(entry);
	mutex_unlock(&migrator_mutex);
	return error;
}

ssize_t migrator_show_names(char *buf)
{
	struct migrator_entry *entry;
	struct migrator_active *active;
	ssize_t len;

	mutex_lock(&migrator_mutex);
	active = migrator_get_active();
	len = sysfs_emit(buf, active ? "none" : "[none]");
	list_for_each_entry(entry, &migrator_entries, list)
		len += sysfs_emit_at(buf, len, active && active->entry == entry ?
				     " [%s]" : " %s", entry->migrator->name);
	len += sysfs_emit_at(buf, len, "\n");
	mutex_unlock(&migrator_mutex);
	return len;
}

unsigned int migrator_reasons(void)
{
	return READ_ONCE(migrator_reason_mask);
}

void migrator_set_reasons(unsigned int mask)
{
	WRITE_ONCE(migrator_reason_mask, mask);
}

size_t migrator_min_batch(void)
{
	return READ_ONCE(migrator_min_bytes);
}

int migrator_set_min_batch(size_t bytes)
{
	int error = -EINVAL;

	mutex_lock(&migrator_mutex);
	if (bytes <= migrator_max_bytes) {
		WRITE_ONCE(migrator_min_bytes, bytes);
		error = 0;
	}
	mutex_unlock(&migrator_mutex);
	return error;
}

size_t migrator_max_batch(void)
{
	return READ_ONCE(migrator_max_bytes);
}

/* The active migrator gets new batches of the new size, and keeps its own if it cannot. */
int migrator_set_max_batch(size_t bytes)
{
	struct migrator_active *active, *new;
	int error = 0;

	if (!PAGE_ALIGNED(bytes) || bytes < MIGRATOR_MAX_BYTES_LEAST ||
	    bytes > max_t(size_t, MIGRATOR_MAX_BYTES_LIMIT, MIGRATOR_MAX_BYTES_LEAST))
		return -EINVAL;
	mutex_lock(&migrator_mutex);
	active = migrator_get_active();
	if (bytes < migrator_min_bytes) {
		error = -EINVAL;
	} else if (active && bytes != migrator_max_bytes) {
		new = migrator_make_batches(active->entry, bytes);
		if (IS_ERR(new))
			error = PTR_ERR(new);
		else
			migrator_publish(new);
	}
	if (!error)
		WRITE_ONCE(migrator_max_bytes, bytes);
	mutex_unlock(&migrator_mutex);
	return error;
}

/* --- Registering --- */

static bool migrator_name_valid(const char *name)
{
	size_t i, len = name ? strnlen(name, MIGRATOR_NAME_LEN) : 0;

	if (!len || len == MIGRATOR_NAME_LEN || !strcmp(name, "none"))
		return false;
	for (i = 0; i < len; i++)
		if (!isalnum(name[i]) && name[i] != '-' && name[i] != '_')
			return false;
	return true;
}

static int migrator_add(const struct migrator *migrator)
{
	struct migrator_entry *entry;

	if (migrator_find(migrator->name))
		return -EEXIST;
	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry)
		return -ENOMEM;
	entry->migrator = migrator;
	entry->stats = alloc_percpu(struct migrator_stats);
	if (!entry->stats) {
		kfree(entry);
		return -ENOMEM;
	}
	entry->kobj = migrator_sysfs_add(migrator, entry->stats);
	if (IS_ERR(entry->kobj)) {
		int error = PTR_ERR(entry->kobj);

		free_percpu(entry->stats);
		kfree(entry);
		return error;
	}
	list_add_tail(&entry->list, &migrator_entries);
	return 0;
}

/**
 * migrator_register - offer a migrator
 * @migrator: stays the caller's, unchanged and in place, until migrator_unregister()
 *
 * It appears in /sys/kernel/mm/migration/migrator, with its statistics and attributes, and
 * is not active before somebody writes its name there. Several can be registered.
 *
 * Context: Process context; sleeps. Not from a callback of a migrator.
 * Return: 0, or
 * * -EINVAL - the name is not as &migrator.name wants it, or there is no &migrator.copy
 * * -EEXIST - the name is taken
 * * -ENODEV - /sys/kernel/mm/migration could not be made at boot
 * * -ENOMEM, or what sysfs says
 */
int migrator_register(const struct migrator *migrator)
{
	int error;

	if (!migrator_name_valid(migrator->name) || !migrator->copy)
		return -EINVAL;
	mutex_lock(&migrator_mutex);
	error = migrator_add(migrator);
	mutex_unlock(&migrator_mutex);
	return error;
}
EXPORT_SYMBOL_GPL(migrator_register);

/**
 * migrator_unregister - withdraw a migrator
 * @migrator: that was registered
 *
 * If it is active, none is afterwards. (The module of an active migrator is pinned, so
 * only a migrator that leaves for another reason, like a device that is unplugged, comes
 * here while active.) When this returns no migration is in a callback and none will be.
 * Migrations in flight copy plainly what was not copied yet.
 *
 * Context: Process context; sleeps until migrations have left the migrator. Not from a
 * callback of a migrator.
 */
void migrator_unregister(const struct migrator *migrator)
{
	struct migrator_active *active;
	struct migrator_entry *entry;

	mutex_lock(&migrator_mutex);
	entry = migrator_find(migrator->name);
	if (WARN_ON_ONCE(!entry || entry->migrator != migrator))
		goto out;
	active = migrator_get_active();
	if (active && active->entry == entry)
		migrator_switch(NULL);
	list_del(&entry->list);
	migrator_sysfs_remove(migrator, entry->kobj);
	free_percpu(entry->stats);
	kfree(entry);
out:
	mutex_unlock(&migrator_mutex);
}
EXPORT_SYMBOL_GPL(migrator_unregister);

static int __init migrator_init(void)
{
	int error;

	/* Two low bits of an anon_vma's address hold the state of old; the third is ours. */
	BUILD_BUG_ON(__alignof__(struct anon_vma) < 8);

	migrator_max_bytes = max_t(size_t, MIGRATOR_MAX_BYTES, MIGRATOR_MAX_BYTES_LEAST);
	error = migrator_sysfs_init();
	if (!error)
		error = migrator_register(&migrator_kernel);
	if (error)
		pr_err("not available: %d\n", error);
	return error;
}
subsys_initcall(migrator_init);
