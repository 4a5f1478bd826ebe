/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What mm/migrate.c, other callers of migration and mm/migrator*.c share. Migrators
 * themselves include <linux/migrator.h>.
 */
#ifndef _MM_MIGRATOR_H
#define _MM_MIGRATOR_H

#include <linux/mm_types.h>
#include <linux/migrator.h>
#include <linux/page-flags.h>

/* State of a destination folio in dst->migrate_info, in low bits of the source's anon_vma. */
enum {
	FOLIO_WAS_MAPPED = BIT(0),
	FOLIO_WAS_MLOCKED = BIT(1),
	FOLIO_OLD_STATES = FOLIO_WAS_MAPPED | FOLIO_WAS_MLOCKED,
	/*
	 * The migrator copied the content. migrate_folio_move() leaves this bit alone in
	 * dst->migrate_info for __migrate_folio(), which takes it: a second attempt must copy,
	 * since the source was not left alone in between.
	 */
	FOLIO_WAS_COPIED = BIT(2),
};

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD

struct migrator_active;

/**
 * struct migrator_registry - migrators, and which of them is active
 * @lock: orders registering, choosing and changes of limits
 * @entries: registered migrators; under @lock
 * @active: the chosen one or NULL; written under @lock, read under SRCU
 * @reasons: mask of &enum migrate_reason that it serves
 * @max_bytes: largest batch; written under @lock
 *
 * KUnit has one of its own.
 */
struct migrator_registry {
	struct mutex lock;
	struct list_head entries;
	struct migrator_active __rcu *active;
	unsigned int reasons;
	size_t max_bytes;
};

extern struct migrator_registry migrator_registry;

DECLARE_STATIC_KEY_FALSE(migrator_active_key);

void __migrator_copy_folios(struct migrator_registry *registry, struct list_head *src_folios,
			    struct list_head *dst_folios, struct list_head *bad_src,
			    struct list_head *bad_dst, enum migrate_mode mode,
			    enum migrate_reason reason);
unsigned int __migrator_batch_pages(struct migrator_registry *registry,
				    enum migrate_reason reason, unsigned int pages);

/*
 * Let the active migrator copy what it can of two lists of equal length, sources and
 * destinations in the same order, after the TLB flush: no CPU can write to an unmapped source
 * from then on. Pairs that cannot be moved this time (poison met, or a device may still write
 * to the destination) go to @bad_src and @bad_dst.
 */
static inline void migrator_copy_folios(struct list_head *src_folios,
		struct list_head *dst_folios, struct list_head *bad_src,
		struct list_head *bad_dst, enum migrate_mode mode, enum migrate_reason reason)
{
	if (static_branch_unlikely(&migrator_active_key))
		__migrator_copy_folios(&migrator_registry, src_folios, dst_folios, bad_src,
				       bad_dst, mode, reason);
}

/* How many base pages make a batch full that has @pages without a migrator. */
static inline unsigned int migrator_batch_pages(enum migrate_reason reason, unsigned int pages)
{
	if (static_branch_unlikely(&migrator_active_key))
		return __migrator_batch_pages(&migrator_registry, reason, pages);
	return pages;
}

/*
 * Whether the move may skip its copy to @dst. hugetlb keeps flags of its own in the private
 * word, and its folios come through __migrate_folio() as well.
 */
static inline bool migrator_take_copied(struct folio *dst)
{
	if (!(dst->migrate_info & FOLIO_WAS_COPIED) || folio_test_hugetlb(dst))
		return false;
	dst->migrate_info = 0;
	return true;
}

/* What is counted per migrator; the names of the files are the fields'. */
struct migrator_counts {
	u64 folios;
	u64 bytes;
	u64 fallbacks;
	u64 declined;
};

/* migrator.c */
void migrator_registry_init(struct migrator_registry *registry);
int migrator_add(struct migrator_registry *registry, const struct migrator *migrator);
void migrator_remove(struct migrator_registry *registry, const struct migrator *migrator);
int migrator_select(struct migrator_registry *registry, const char *name);
ssize_t migrator_show_names(struct migrator_registry *registry, char *buf);
int migrator_set_max_bytes(struct migrator_registry *registry, size_t bytes);
size_t migrator_quarantined_bytes(void);

/* migrator_sysfs.c: /sys/kernel/mm/migration */
int migrator_sysfs_init(void);
struct kobject *migrator_sysfs_add(const struct migrator *migrator,
				   struct migrator_counts __percpu *counts);
void migrator_sysfs_remove(const struct migrator *migrator, struct kobject *kobj);
int migrator_parse_reasons(const char *text, unsigned int *mask);

#if IS_ENABLED(CONFIG_KUNIT)
bool migrator_eligible(const struct migrator *migrator, struct folio *src, struct folio *dst);
void migrator_place_cpus(struct migrator_cpus *cpus);
#endif

#else

static inline void migrator_copy_folios(struct list_head *src_folios,
		struct list_head *dst_folios, struct list_head *bad_src,
		struct list_head *bad_dst, enum migrate_mode mode, enum migrate_reason reason)
{
}

static inline unsigned int migrator_batch_pages(enum migrate_reason reason, unsigned int pages)
{
	return pages;
}

static inline bool migrator_take_copied(struct folio *dst)
{
	return false;
}

#endif /* CONFIG_MIGRATION_COPY_OFFLOAD */

#endif /* _MM_MIGRATOR_H */
