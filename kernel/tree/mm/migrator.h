/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What mm/migrate.c, other callers of migration and mm/migrator*.c share. Migrators
 * themselves include <linux/migrator.h>.
 */
#ifndef _MM_MIGRATOR_H
#define _MM_MIGRATOR_H

#include <linux/migrator.h>
#include <linux/mm_types.h>
#include <linux/mutex.h>
#include <linux/page-flags.h>
#include <linux/srcu.h>

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

/* Reasons that migrate_pages() is called for; later Linux has MR_NEVER behind them. */
#define MIGRATOR_REASONS	(MR_DAMON + 1)
static_assert(MR_TYPES - MIGRATOR_REASONS <= 1);

struct kobject;
struct seq_file;

/* Batches of one migrator that can be copied at one time; a further one is copied plainly. */
#define MIGRATOR_BATCHES	32

/* What is counted per migrator; the names of the files are the fields'. */
struct migrator_counts {
	u64 folios;
	u64 bytes;
	u64 fallbacks;
	u64 declined;
	u64 refused;
};

/**
 * struct migrator_entry - a registered migrator
 * @migrator: it
 * @list: in &migrator_registry.entries
 * @counts: its statistics
 * @kobj: their directory
 * @pool: its batches, while a reason uses it
 * @next: @pool of the policy that is being made
 * @leaves: it is being withdrawn
 *
 * All under the registry's lock, but @counts.
 */
struct migrator_entry {
	const struct migrator *migrator;
	struct list_head list;
	struct migrator_counts __percpu *counts;
	struct kobject *kobj;
	struct migrator_pool *pool;
	struct migrator_pool *next;
	bool leaves;
};

/* struct migrator_pool - the batches that were made for a migrator that is in use */
struct migrator_pool {
	struct migrator_entry *entry;
	const struct migrator *migrator;
	unsigned int max_nr;
	unsigned int nr_batches;
	DECLARE_BITMAP(busy, MIGRATOR_BATCHES);
	struct migrator_batch batches[] __counted_by(nr_batches);
};

enum migrator_kind {
	MIGRATOR_DEFAULT,	/* as the default says */
	MIGRATOR_NONE,
	MIGRATOR_AUTO,
	MIGRATOR_NAMED,
};

/*
 * struct migrator_choice - what was written for a reason; @only: nobody else may copy, and with
 * MIGRATOR_NONE nobody at all, so that nothing migrates for it
 */
struct migrator_choice {
	enum migrator_kind kind;
	bool only;
	struct migrator_entry *entry;
};

struct migrator_auto;

/* CPU lanes, the caller's included, and channels that copy a batch of "auto"; none: plainly. */
struct migrator_lanes {
	u8 cpus;
	u8 channels;
};

/**
 * struct migrator_policy - what copies the folios of each reason
 * @pools: by reason: its migrator; NULL for none, and for "auto"
 * @auto_reasons: mask of &enum migrate_reason: "auto" chooses
 * @only: mask: what the migrator does not copy stays where it is
 * @automatic: what "auto" has learnt, if @auto_reasons is not 0
 * @plain: migrators of "auto", by kind; @cpus or @channels may be NULL
 * @cpus: see @plain
 * @channels: see @plain
 *
 * Never changed once it is published.
 */
struct migrator_policy {
	struct migrator_pool *pools[MIGRATOR_REASONS];
	unsigned int auto_reasons;
	unsigned int only;
	struct migrator_auto *automatic;
	struct migrator_pool *plain;
	struct migrator_pool *cpus;
	struct migrator_pool *channels;
};

/**
 * struct migrator_registry - migrators, and which of them copies for which reason
 * @lock: orders registering, choosing and changes of limits
 * @entries: registered migrators; under @lock
 * @choices: by reason, and behind them the default; under @lock
 * @policy: made of @choices, NULL if nothing copies and nothing is refused; written under @lock,
 *	read under migrator_srcu
 * @automatic: the state of "auto" while a reason has it; under @lock
 * @reasons: mask of those for which something may copy by @policy
 * @only: &migrator_policy.only
 * @max_bytes: largest batch; written under @lock
 *
 * KUnit has one of its own.
 */
struct migrator_registry {
	struct mutex lock;
	struct list_head entries;
	struct migrator_choice choices[MIGRATOR_REASONS + 1];
	struct migrator_policy __rcu *policy;
	struct migrator_auto *automatic;
	unsigned int reasons;
	unsigned int only;
	size_t max_bytes;
};

extern struct srcu_struct migrator_srcu;
extern struct migrator_registry migrator_registry;

DECLARE_STATIC_KEY_FALSE(migrator_active_key);

bool __migrator_copy_folios(struct migrator_registry *registry, struct list_head *src_folios,
			    struct list_head *dst_folios, struct list_head *bad_src,
			    struct list_head *bad_dst, enum migrate_mode mode,
			    enum migrate_reason reason);
bool __migrator_refuses_hugetlb(struct migrator_registry *registry, enum migrate_reason reason);
unsigned int __migrator_batch_pages(struct migrator_registry *registry,
				    enum migrate_reason reason, unsigned int pages);

/*
 * Let a migrator copy what it can of two lists of equal length, sources and destinations in the
 * same order, after the TLB flush: no CPU can write to an unmapped source from then on. Pairs that
 * cannot be moved this time (poison met, or a device may still write to the destination) go to
 * @bad_src and @bad_dst. Returns whether nothing else may copy for this reason: all that is left on
 * the lists is copied then.
 */
static inline bool migrator_copy_folios(struct list_head *src_folios, struct list_head *dst_folios,
					struct list_head *bad_src, struct list_head *bad_dst,
					enum migrate_mode mode, enum migrate_reason reason)
{
	if (static_branch_unlikely(&migrator_active_key))
		return __migrator_copy_folios(&migrator_registry, src_folios, dst_folios, bad_src,
					      bad_dst, mode, reason);
	return false;
}

/* Whether a folio of hugetlb, which no migrator copies, must stay where it is. */
static inline bool migrator_refuses_hugetlb(enum migrate_reason reason)
{
	return static_branch_unlikely(&migrator_active_key) &&
	       __migrator_refuses_hugetlb(&migrator_registry, reason);
}

/*
 * How many base pages make a batch full that has @pages without a migrator: not fewer, and more
 * only if a migrator would take them now.
 */
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

/**
 * struct migrator_stage - the copies between one flush and the moves after it
 * @src_folios: of migrate_pages_batch(), as are the next three
 * @dst_folios: in the order of @src_folios
 * @bad_src: receives sources that cannot move this time
 * @bad_dst: and their destinations
 * @src: the first one that was not looked at yet, or the head of the list
 * @dst: of @src
 * @mode: see &struct migrator_batch
 * @reason: see &struct migrator_batch
 * @ns: time of the last batch
 * @copied: folios of the last batch that were copied
 */
struct migrator_stage {
	struct list_head *src_folios;
	struct list_head *dst_folios;
	struct list_head *bad_src;
	struct list_head *bad_dst;
	struct folio *src;
	struct folio *dst;
	enum migrate_mode mode;
	enum migrate_reason reason;
	u64 ns;
	unsigned int copied;
};

/* migrator.c: the stage */
bool migrator_stage_has(const struct migrator_stage *stage, const struct migrator *migrator,
			size_t least);
void migrator_stage_fill(struct migrator_stage *stage, const struct migrator *migrator,
			 struct migrator_batch *batch, size_t bytes);
void migrator_stage_begin(struct migrator_pool *pool, struct migrator_batch *batch);
void migrator_stage_end(struct migrator_stage *stage, struct migrator_pool *pool,
			struct migrator_batch *batch, u64 ns, int error);
int migrator_stage_copy(struct migrator_stage *stage, struct migrator_pool *pool,
			struct migrator_batch *batch);
size_t migrator_quarantined_bytes(void);

/* migrator_policy.c: who is registered, chosen, open */
void migrator_registry_init(struct migrator_registry *registry);
int migrator_add(struct migrator_registry *registry, const struct migrator *migrator);
void migrator_remove(struct migrator_registry *registry, const struct migrator *migrator);
int migrator_select(struct migrator_registry *registry, const char *name);
int migrator_set_reasons(struct migrator_registry *registry, const char *text);
ssize_t migrator_show_names(struct migrator_registry *registry, char *buf);
ssize_t migrator_show_reasons(struct migrator_registry *registry, char *buf);
extern bool migrator_large_batches;
int migrator_set_max_bytes(struct migrator_registry *registry, size_t bytes);
struct migrator_batch *migrator_claim_batch(struct migrator_pool *pool);
void migrator_release_batch(struct migrator_pool *pool, struct migrator_batch *batch);

/* migrator_auto.c: the choice by what was measured */
struct migrator_auto *migrator_auto_new(void);
void migrator_auto_free(struct migrator_auto *automatic);
void migrator_auto_copy(struct migrator_stage *stage, const struct migrator_policy *policy,
			size_t min_bytes);
void migrator_auto_show(const struct migrator_policy *policy, struct seq_file *seq);

/* migrator_sysfs.c: /sys/kernel/mm/migration, and debugfs */
int migrator_sysfs_init(void);
struct kobject *migrator_sysfs_add(const struct migrator *migrator,
				   struct migrator_counts __percpu *counts);
void migrator_sysfs_remove(const struct migrator *migrator, struct kobject *kobj);

#if IS_ENABLED(CONFIG_KUNIT)
bool migrator_eligible(const struct migrator *migrator, struct folio *src, struct folio *dst);
void migrator_place_cpus(struct migrator_cpus *cpus);
bool migrator_may_have_helpers(struct task_struct *task, bool *idle_only, bool *high);
u64 migrator_auto_clock(void);
bool migrator_auto_in_kthread(void);
size_t migrator_auto_split(struct migrator_stage *stage, const struct migrator_policy *policy,
			   struct migrator_batch *batch, size_t cpu_bytes, size_t bytes,
			   const struct migrator_lanes *lanes, u64 times[2]);
#endif

#else

static inline bool migrator_copy_folios(struct list_head *src_folios, struct list_head *dst_folios,
					struct list_head *bad_src, struct list_head *bad_dst,
					enum migrate_mode mode, enum migrate_reason reason)
{
	return false;
}

static inline bool migrator_refuses_hugetlb(enum migrate_reason reason)
{
	return false;
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
