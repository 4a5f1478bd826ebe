/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Migrators: what copies the folios of a migration batch.
 *
 * migrate_pages() unmaps a batch of folios, flushes the TLBs once, lets the active
 * migrator copy the batch, and then moves folio by folio as it always did. A folio that
 * the migrator copied skips its own copy there; every other folio is copied there. So a
 * migrator may copy as much or as little of a batch as it likes, and may fail.
 *
 * Documentation/mm/migrate_copy_offload.rst tells the whole story.
 */
#ifndef _LINUX_MIGRATOR_H
#define _LINUX_MIGRATOR_H

#include <linux/bitops.h>
#include <linux/cpumask.h>
#include <linux/jump_label.h>
#include <linux/list.h>
#include <linux/migrate_mode.h>
#include <linux/types.h>

struct attribute_group;
struct folio;
struct module;

/* Bounds a name in sysfs and in the tracepoints, with its final NUL. */
#define MIGRATOR_NAME_LEN	16

/**
 * struct migrator_pair - one folio to copy
 * @src: read; locked, unmapped, flushed from every TLB, and without references that could
 *	write to it
 * @dst: written; of the same order, locked, not yet visible to anyone
 */
struct migrator_pair {
	struct folio *src;
	struct folio *dst;
};

/**
 * struct migrator_batch - what one call of &migrator.copy has to copy
 * @pairs: the folios
 * @copied: one bit per pair, all clear before the call; see migrator_batch_copied()
 * @quarantined: one bit per pair, all clear before the call; see migrator_quarantine()
 * @private: the migrator's own space of &migrator.private_size bytes, zeroed before
 *	&migrator.init_batch and kept from batch to batch
 * @bytes: sum over @pairs
 * @nr: number of @pairs, at least 1
 * @max_nr: the most pairs that a batch in this structure will ever have; set before
 *	&migrator.init_batch
 * @dst_nid: node of the first destination
 * @reason: why these folios migrate
 *
 * There are a few of them, made when the migrator becomes active. One is used by one
 * task at a time, so nothing in it needs a lock against other batches.
 */
struct migrator_batch {
	struct migrator_pair *pairs;
	unsigned long *copied;
	unsigned long *quarantined;
	void *private;
	size_t bytes;
	unsigned int nr;
	unsigned int max_nr;
	int dst_nid;
	enum migrate_reason reason;
};

/**
 * migrator_batch_copied - say that the folio of a pair was copied, all of it
 * @batch: the batch
 * @index: of the pair
 *
 * Context: Any. Several lanes may call it for one batch at the same time; all must have
 * done so before &migrator.copy returns.
 */
static inline void migrator_batch_copied(struct migrator_batch *batch, unsigned int index)
{
	set_bit(index, batch->copied);
}

/**
 * enum migrator_flags - what a migrator can do
 * @MIGRATOR_COPIES_TAGS: it copies what the architecture keeps beside the bytes of a page
 *	(memory tags of arm64), as copy_highpage() does. Without this flag such folios are
 *	never in its batches.
 */
enum migrator_flags {
	MIGRATOR_COPIES_TAGS = BIT(0),
};

/**
 * struct migrator - what can copy a batch
 * @name: under which it is chosen; shorter than MIGRATOR_NAME_LEN, letters, digits, '-'
 *	and '_'; not "none"
 * @owner: module to pin while the migrator is active; NULL if built in
 * @group: its attributes, or NULL; they appear under /sys/kernel/mm/migration/ in a
 *	directory of the group's name as long as the migrator is registered
 * @flags: of &enum migrator_flags
 * @private_size: bytes of &migrator_batch.private
 * @activate: called before the first batch is made, or NULL. May sleep. An error
 *	leaves the migrator inactive and is what the write to sysfs returns.
 * @deactivate: called after the last batch was released, or NULL
 * @init_batch: prepares &migrator_batch.private, or NULL. May sleep and allocate, which
 *	@copy must not. Returns 0 or a negative error.
 * @exit_batch: undoes @init_batch, or NULL
 * @copy: copies folios of the batch and marks those it copied whole. May sleep; must not
 *	allocate memory, because it can run inside reclaim with the whole batch locked;
 *	must not touch a folio after it returned, those that it put into quarantine
 *	excepted. Runs in many tasks at a time, each with a batch of its own. Returns 0, or
 *	a negative error if it declined the batch without having copied anything (-EBUSY: no
 *	lane was free).
 *
 * All callbacks but @copy are called with the registry's lock held, so they must not
 * register or choose migrators.
 */
struct migrator {
	const char *name;
	struct module *owner;
	const struct attribute_group *group;
	unsigned int flags;
	size_t private_size;
	int (*activate)(void);
	void (*deactivate)(void);
	int (*init_batch)(struct migrator_batch *batch);
	void (*exit_batch)(struct migrator_batch *batch);
	int (*copy)(struct migrator_batch *batch);
};

/**
 * enum migrator_placement - in which order lanes get the CPUs of a node
 * @MIGRATOR_SPREAD: one lane per last-level cache, then a second one on each, and so on:
 *	most bandwidth
 * @MIGRATOR_FILL: all CPUs of one last-level cache, then the next one: fewest caches
 *	disturbed
 */
enum migrator_placement {
	MIGRATOR_SPREAD,
	MIGRATOR_FILL,
};

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD

int migrator_register(const struct migrator *migrator);
void migrator_unregister(const struct migrator *migrator);

void migrator_quarantine(struct migrator_batch *batch, unsigned int index);
void migrator_quarantine_release(struct folio *dst);

unsigned int migrator_order_cpus(int nid, enum migrator_placement placement,
				 u16 *cpus, unsigned int space);
bool migrator_cpu_idle(int cpu);
void migrator_allowed_cpus(struct cpumask *mask);
u64 migrator_cpu_time(void);
void migrator_charge(u64 ns);

#endif /* CONFIG_MIGRATION_COPY_OFFLOAD */

#endif /* _LINUX_MIGRATOR_H */
