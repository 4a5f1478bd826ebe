/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Migrators copy the folios of a migration batch.
 *
 * migrate_pages() unmaps a batch of folios, flushes the TLBs once, lets an active migrator
 * copy the batch, and then moves folio by folio as without one. A folio that the migrator
 * copied skips its own copy there, every other folio is copied there. So a migrator may copy
 * as much or as little of a batch as it likes, and may fail.
 *
 * See Documentation/mm/migrate_copy_offload.rst.
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
struct migrator_cpus;
struct module;

/* Length of a name in sysfs and in the tracepoints, with its final NUL. */
#define MIGRATOR_NAME_LEN	16

/* Bits of &migrator_pair.state. */
enum {
	MIGRATOR_PAIR_COPIED,
	MIGRATOR_PAIR_POISONED,
	MIGRATOR_PAIR_QUARANTINED,
};

/**
 * struct migrator_pair - one folio to copy
 * @src: read; locked, unmapped, flushed from every TLB, and without references that could
 *	write to it
 * @dst: written; of the same order, locked, not yet visible to anyone
 * @state: clear before each call of &migrator.copy; see migrator_batch_copied(),
 *	migrator_batch_poisoned() and migrator_quarantine()
 */
struct migrator_pair {
	struct folio *src;
	struct folio *dst;
	unsigned long state;
};

/**
 * struct migrator_batch - folios that one call of &migrator.copy has to copy
 * @pairs: the folios
 * @private: the migrator's own space of &migrator.private_size bytes, zeroed before
 *	&migrator.init_batch and kept from batch to batch
 * @bytes: sum over @pairs
 * @nr: number of @pairs, at least 1
 * @max_nr: largest @nr that this batch will ever have; set before &migrator.init_batch
 * @lanes: how many lanes shall copy it, within the migrator's own setting; 0 leaves it to that. The
 *	migrator writes how many it used.
 * @cpus: space for migrator_choose_cpus(), of migrators with %MIGRATOR_CPUS; holds an answer
 *	already if @lanes is not 0
 * @channel_ns: after &migrator.finish: how long the channels worked
 * @dst_nid: node of the first destination
 * @mode: how long this attempt to migrate may wait
 * @reason: why the folios migrate
 *
 * A batch is used by one task at a time.
 */
struct migrator_batch {
	struct migrator_pair *pairs;
	void *private;
	size_t bytes;
	unsigned int nr;
	unsigned int max_nr;
	unsigned int lanes;
	struct migrator_cpus *cpus;
	u64 channel_ns;
	int dst_nid;
	enum migrate_mode mode;
	enum migrate_reason reason;
};

/* The whole folio of pair @index was copied. Lanes may call it at the same time. */
static inline void migrator_batch_copied(struct migrator_batch *batch, unsigned int index)
{
	set_bit(MIGRATOR_PAIR_COPIED, &batch->pairs[index].state);
}

/*
 * The source of pair @index met poison, which memory_failure_queue() was told: this attempt to
 * move it fails, so that nobody reads it again. Lanes may call it at the same time.
 */
static inline void migrator_batch_poisoned(struct migrator_batch *batch, unsigned int index)
{
	set_bit(MIGRATOR_PAIR_POISONED, &batch->pairs[index].state);
}

/**
 * enum migrator_flags - what a migrator can do
 * @MIGRATOR_COPIES_TAGS: it copies what the architecture keeps beside the bytes of a page
 *	(memory tags of arm64), as copy_highpage() does. Without this flag such folios are
 *	never in its batches.
 * @MIGRATOR_PLAIN: it is the plain copy, to which "auto" compares others
 * @MIGRATOR_CPUS: its lanes are the migrating task and CPUs of &migrator_batch.cpus
 * @MIGRATOR_CHANNELS: its lanes are others than CPUs; it has &migrator.start
 *
 * "auto" uses one migrator of each of the last three kinds, the one that was registered first.
 */
enum migrator_flags {
	MIGRATOR_COPIES_TAGS = BIT(0),
	MIGRATOR_PLAIN = BIT(1),
	MIGRATOR_CPUS = BIT(2),
	MIGRATOR_CHANNELS = BIT(3),
};

/**
 * struct migrator - copies batches
 * @name: under which it is chosen; one word, shorter than MIGRATOR_NAME_LEN, not "none", "auto",
 *	"default"
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
 *	must not touch a folio after it returned, those in quarantine excepted. Runs in
 *	many tasks at a time, each with a batch of its own. Returns 0, or a negative error
 *	if it declined the batch without having copied anything (-EBUSY: no lane was free).
 * @start: the first half of @copy: lets the lanes begin. An error declines the batch.
 * @finish: the second half: waits for the lanes and marks the folios. Between the two the task
 *	may copy other folios, and does not sleep for long.
 * @lanes: how many lanes a batch can have now
 * @ready: whether @copy would take a batch now, or NULL: it always does. A guess, asked before
 *	callers isolate more folios than without a migrator. Does not sleep, and may be called with
 *	a spinlock held.
 *
 * @start and @finish belong to %MIGRATOR_CHANNELS, @lanes to them and to %MIGRATOR_CPUS.
 * All callbacks but @copy, @start, @finish, @lanes and @ready are called with the registry's lock
 * held, so they must not register or choose migrators.
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
	int (*start)(struct migrator_batch *batch);
	void (*finish)(struct migrator_batch *batch);
	unsigned int (*lanes)(void);
	bool (*ready)(void);
};

/* Seen CPUs at most, and chosen ones. */
#define MIGRATOR_CPUS_MAX	64

/* A CPU, and how much of its cache and core is taken; see mm/migrator_cpus.c. */
struct migrator_cpu {
	u16 cpu;
	u8 cache;
	u8 core;
	u8 load;
	u8 threads;
	bool busy;
	bool taken;
};

/**
 * struct migrator_cpus - which CPUs shall help, and the answer
 * @fill: all CPUs of one last-level cache before the next one, so that few caches are disturbed;
 *	else one lane per cache, then a second one on each, and so on: most bandwidth
 * @idle_only: take no busy CPU, even if there are too few idle ones; migrator_choose_cpus() changes
 *	it as the class of the task demands
 * @high: the task outranks others: so should its helpers
 * @want: at most so many, up to MIGRATOR_CPUS_MAX
 * @looks: CPUs to ask at most; asking a busy one is fetching a cache line from it
 * @nr: number of @cpus
 * @cpus: the best one first
 */
struct migrator_cpus {
	bool fill;
	bool idle_only;
	bool high;
	unsigned int want;
	unsigned int looks;
	unsigned int nr;
	u16 cpus[MIGRATOR_CPUS_MAX];
	/* private: work space of migrator_choose_cpus() */
	unsigned int nr_seen;
	struct migrator_cpu seen[MIGRATOR_CPUS_MAX];
	struct cpumask allowed;
};

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD

int migrator_register(const struct migrator *migrator);
void migrator_unregister(const struct migrator *migrator);

void migrator_quarantine(struct migrator_batch *batch, unsigned int index);
void migrator_quarantine_release(struct folio *dst);

void migrator_choose_cpus(struct migrator_cpus *cpus, int nid);
bool migrator_may_find_cpus(bool idle_only);
u64 migrator_cpu_time(void);
void migrator_charge(u64 ns);

#endif /* CONFIG_MIGRATION_COPY_OFFLOAD */

#endif /* _LINUX_MIGRATOR_H */
