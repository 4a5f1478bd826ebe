/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What mm/migrate.c and the files mm/migrator*.c share. The interface for migrators
 * themselves is include/linux/migrator.h.
 */
#ifndef _MM_MIGRATOR_H
#define _MM_MIGRATOR_H

#include <linux/mm_types.h>
#include <linux/migrator.h>

/*
 * Migration keeps its state of a destination folio in dst->private: the anon_vma of the
 * source plus two low bits. This third bit says that the migrator has copied the content.
 *
 * The move takes the state out before it calls what may skip the copy. That is reached by
 * others as well, with whatever their folios have there: hugetlb's flags, for example. So
 * from then on an address that nobody else can have stands for the bit, until the first
 * look at it. A second attempt must copy again, whatever came of the first, because the
 * source was not necessarily left alone in between.
 */
#define MIGRATOR_FOLIO_COPIED	(IS_ENABLED(CONFIG_MIGRATION_COPY_OFFLOAD) ? BIT(2) : 0UL)

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD

struct migrator_entry;

DECLARE_STATIC_KEY_FALSE(migrator_active_key);
extern const char migrator_mark;
extern const unsigned long migrator_quarantine_mark;

void __migrator_copy_folios(struct list_head *src_folios, struct list_head *dst_folios,
			    enum migrate_reason reason);
unsigned int __migrator_batch_pages(enum migrate_reason reason, unsigned int pages);

/*
 * Lets the active migrator copy what it can of two lists of equal length, sources and
 * destinations in the same order. Comes after the TLB flush: from then on no CPU can
 * write to an unmapped source.
 */
static inline void migrator_copy_folios(struct list_head *src_folios,
					struct list_head *dst_folios,
					enum migrate_reason reason)
{
	if (static_branch_unlikely(&migrator_active_key))
		__migrator_copy_folios(src_folios, dst_folios, reason);
}

/* How many base pages make a batch full, where @pages do without a migrator. */
static inline unsigned int migrator_batch_pages(enum migrate_reason reason, unsigned int pages)
{
	if (static_branch_unlikely(&migrator_active_key))
		return __migrator_batch_pages(reason, pages);
	return pages;
}

/* What dst->private is while the folio with this @state moves. */
static inline void *migrator_keep_mark(unsigned long state)
{
	return state & MIGRATOR_FOLIO_COPIED ? (void *)&migrator_mark : NULL;
}

/* Whether the move may skip its copy to @dst. True once only for each copy. */
static inline bool migrator_take_mark(struct folio *dst)
{
	if (dst->private != &migrator_mark)
		return false;
	dst->private = NULL;
	return true;
}

/*
 * Whether @dst cannot be moved to, because a device may still write to it. What stands for
 * that is the address of an object of ours as the mapping of @dst, which has none before
 * its move. True once only: the move then fails, and puts @dst as always. The migrator has
 * a reference of its own, so that this frees nothing.
 */
static inline bool migrator_take_quarantined(struct folio *dst)
{
	if (likely(dst->mapping != (void *)&migrator_quarantine_mark))
		return false;
	dst->mapping = NULL;
	return true;
}

/* migrator.c: the registry, and the policy that all migrators share */
int migrator_select(const char *name);
ssize_t migrator_show_names(char *buf);
unsigned int migrator_reasons(void);
void migrator_set_reasons(unsigned int mask);
size_t migrator_min_batch(void);
int migrator_set_min_batch(size_t bytes);
size_t migrator_max_batch(void);
int migrator_set_max_batch(size_t bytes);
size_t migrator_quarantined_bytes(void);

/* What is counted per migrator and reason; the names of the files are the fields'. */
struct migrator_counts {
	u64 batches;
	u64 folios;
	u64 bytes;
	u64 fallbacks;
	u64 declined;
};

struct migrator_stats {
	struct migrator_counts reason[MR_TYPES];
};

/* migrator_sysfs.c: /sys/kernel/mm/migration */
int migrator_sysfs_init(void);
struct kobject *migrator_sysfs_add(const struct migrator *migrator,
				   struct migrator_stats __percpu *stats);
void migrator_sysfs_remove(const struct migrator *migrator, struct kobject *kobj);
int migrator_parse_reasons(const char *text, unsigned int *mask);

/*
 * struct migrator_cpu - what migrator_cpus.c sorts CPUs by
 *
 * The lowest CPU of a cache and of a core stands for it. Sorting sets @key.
 */
struct migrator_cpu {
	u64 key;
	int cpu;
	int cache;
	int core;
};

#if IS_ENABLED(CONFIG_KUNIT)
extern struct kobject *migrator_stats_kobj;

bool migrator_eligible(const struct migrator *migrator, struct folio *src, struct folio *dst);
void migrator_sort_cpus(struct migrator_cpu *cpus, unsigned int nr,
			enum migrator_placement placement);
#endif

#else

/* A macro: even an empty function that is inlined lets GCC choose other registers. */
#define migrator_copy_folios(src_folios, dst_folios, reason)	\
	do {							\
		(void)(src_folios);				\
		(void)(dst_folios);				\
		(void)(reason);					\
	} while (0)

static inline unsigned int migrator_batch_pages(enum migrate_reason reason, unsigned int pages)
{
	return pages;
}

static inline void *migrator_keep_mark(unsigned long state)
{
	return NULL;
}

static inline bool migrator_take_mark(struct folio *dst)
{
	return false;
}

#define migrator_take_quarantined(dst)	((void)(dst), false)

#endif /* CONFIG_MIGRATION_COPY_OFFLOAD */

#endif /* _MM_MIGRATOR_H */
