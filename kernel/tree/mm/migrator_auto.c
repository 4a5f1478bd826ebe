// SPDX-License-Identifier: GPL-2.0-only
/*
 * "auto": each batch is copied by what was fastest for its kind and size, as lib/memferry/choose.c
 * finds out: the plain copy, so many CPUs, so many DMA channels, or CPUs and channels together.
 *
 * Classes are kinds of folios. Reasons share them, since small batches of compaction alone could
 * afford no trial. The lock of a class is held while it decides and learns, not while a batch is
 * copied.
 */
#include <kunit/static_stub.h>
#include <kunit/visibility.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/memferry/choose.h>
#include <linux/memferry/share.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>

#include "migrator.h"

/* One CPU is looked at for each of these: looking takes a hundredth of copying it. */
#define AUTO_LOOK_BYTES		SZ_64K

/* Waking a worker on another CPU takes 5 to 50 us; setting up an engine, and its interrupt, 100. */
#define AUTO_CPU_START_NS	(50 * NSEC_PER_USEC)
#define AUTO_CHANNEL_START_NS	(100 * NSEC_PER_USEC)

/*
 * Plain batches of a size that the stage copies itself, to measure them: the first ones, and then
 * one of so many. The move copies the others.
 */
#define AUTO_PLAIN_FIRST	512
#define AUTO_PLAIN_EVERY	8

/* Callers that wait for the batch itself, unless they are kernel threads. No trials for them. */
#define AUTO_URGENT_REASONS	(BIT(MR_NUMA_MISPLACED) | BIT(MR_COMPACTION) |		\
				 BIT(MR_CONTIG_RANGE) | BIT(MR_LONGTERM_PIN) |		\
				 BIT(MR_MEMORY_FAILURE))

/* If not 0: lanes that copy all, 100 times CPUs plus channels. A parameter for tests alone. */
static unsigned int auto_forced;
module_param_named(lanes, auto_forced, uint, 0644);

enum { AUTO_BASE, AUTO_LARGE, AUTO_HUGE, AUTO_CLASSES };

/**
 * struct auto_class - what was learnt of folios of one kind
 * @lock: protects all fields
 * @choose: costs of the options
 * @lanes: by option
 * @max: the most lanes that were met; more begin anew
 * @used: by size, the option that was used last and was no trial
 * @plain: by size, batches for which that was the plain copy
 * @seen: by reason and size, batches
 * @seen_plain: those that were copied plainly
 */
struct auto_class {
	spinlock_t lock;
	struct ferry_choose choose;
	struct migrator_lanes lanes[FERRY_CHOOSE_OPTIONS];
	struct migrator_lanes max;
	u8 used[FERRY_CHOOSE_SIZES];
	u32 plain[FERRY_CHOOSE_SIZES];
	u64 seen[MIGRATOR_REASONS][FERRY_CHOOSE_SIZES];
	u64 seen_plain[MIGRATOR_REASONS][FERRY_CHOOSE_SIZES];
};

struct migrator_auto {
	struct auto_class classes[AUTO_CLASSES];
};

/* struct auto_decision - of one batch, or of a part of it */
struct auto_decision {
	struct ferry_batch batch;
	struct ferry_choice choice;
	struct migrator_lanes lanes;
	bool measured;
};

VISIBLE_IF_KUNIT u64 migrator_auto_clock(void)
{
	KUNIT_STATIC_STUB_REDIRECT(migrator_auto_clock);
	return ktime_get_ns();
}

VISIBLE_IF_KUNIT bool migrator_auto_in_kthread(void)
{
	KUNIT_STATIC_STUB_REDIRECT(migrator_auto_in_kthread);
	return current->flags & PF_KTHREAD;
}

static unsigned int auto_add(struct ferry_choose_option *options, struct migrator_lanes *lanes,
			     unsigned int nr, unsigned int cpus, unsigned int channels)
{
	if (nr == FERRY_CHOOSE_OPTIONS)
		return nr;
	lanes[nr] = (struct migrator_lanes) { .cpus = cpus, .channels = channels };
	options[nr] = (struct ferry_choose_option) {
		.start_ns = (cpus ? AUTO_CPU_START_NS : 0) +
			    (channels ? AUTO_CHANNEL_START_NS : 0),
		.cpus = cpus ? cpus - 1 : 0,
		.channels = channels,
	};
	return nr + 1;
}

/* Numbers of lanes by doubling; and both kinds together, as many of each or all channels. */
static void auto_start(struct auto_class *class)
{
	struct ferry_choose_option options[FERRY_CHOOSE_OPTIONS];
	unsigned int nr, cpus, channels;

	nr = auto_add(options, class->lanes, 0, 0, 0);
	for (cpus = 2; cpus <= class->max.cpus; cpus *= 2)
		nr = auto_add(options, class->lanes, nr, cpus, 0);
	for (channels = 1; channels <= class->max.channels; channels *= 2)
		nr = auto_add(options, class->lanes, nr, 0, channels);
	for (cpus = 2; class->max.channels && cpus <= class->max.cpus; cpus *= 2)
		nr = auto_add(options, class->lanes, nr, cpus,
			      rounddown_pow_of_two(class->max.channels));
	ferry_choose_start(&class->choose, options, nr);
	memset(class->used, FERRY_CHOOSE_PLAIN, sizeof(class->used));
	memset(class->plain, 0, sizeof(class->plain));
}

struct migrator_auto *migrator_auto_new(void)
{
	struct migrator_auto *automatic = kvzalloc(sizeof(*automatic), GFP_KERNEL);
	unsigned int i;

	for (i = 0; automatic && i < AUTO_CLASSES; i++) {
		spin_lock_init(&automatic->classes[i].lock);
		auto_start(&automatic->classes[i]);
	}
	return automatic;
}

void migrator_auto_free(struct migrator_auto *automatic)
{
	kvfree(automatic);
}

static unsigned int auto_class_of(size_t folio_bytes)
{
	if (folio_bytes < 2 * PAGE_SIZE)
		return AUTO_BASE;
	return folio_bytes < SZ_1M ? AUTO_LARGE : AUTO_HUGE;
}

/* Finds CPUs for a batch of @bytes and returns how many lanes it can have with the caller's. */
static unsigned int auto_find_cpus(struct migrator_cpus *cpus, size_t bytes, unsigned int lanes,
				   int nid)
{
	cpus->fill = false;
	cpus->idle_only = true;
	cpus->want = lanes - 1;
	cpus->looks = bytes / AUTO_LOOK_BYTES;
	migrator_choose_cpus(cpus, nid);
	return 1 + cpus->nr;
}

static void auto_decide(struct auto_class *class, enum migrate_reason reason,
			struct migrator_lanes most, struct auto_decision *decision)
{
	struct ferry_choice *choice = &decision->choice;
	unsigned int size;

	spin_lock(&class->lock);
	if (most.cpus > class->max.cpus || most.channels > class->max.channels) {
		class->max.cpus = max(class->max.cpus, most.cpus);
		class->max.channels = max(class->max.channels, most.channels);
		auto_start(class);
	}
	ferry_choose(&class->choose, &decision->batch, choice);
	size = ferry_choose_size(decision->batch.bytes);
	if (!choice->trial)
		class->used[size] = choice->option;
	decision->lanes = class->lanes[choice->option];
	decision->measured = true;
	class->seen[reason][size]++;
	if (choice->option == FERRY_CHOOSE_PLAIN) {
		class->seen_plain[reason][size]++;
		class->plain[size]++;
		decision->measured = choice->trial || class->plain[size] <= AUTO_PLAIN_FIRST ||
				     !(class->plain[size] % AUTO_PLAIN_EVERY);
		if (!decision->measured)
			ferry_choose_pass(&class->choose, decision->batch.bytes);
	}
	spin_unlock(&class->lock);
}

static void auto_force(unsigned int lanes, struct migrator_lanes most,
		       struct auto_decision *decision)
{
	size_t bytes = decision->batch.bytes;

	decision->lanes = (struct migrator_lanes) {
		.cpus = min_t(unsigned int, lanes / 100, most.cpus),
		.channels = min_t(unsigned int, lanes % 100, most.channels),
	};
	decision->choice = (struct ferry_choice) { .bytes = bytes, .cpu_bytes = bytes / 2 };
	decision->measured = true;
}

/* Learns that @bytes took @ns, and of a split what each side took. */
static void auto_learn(struct auto_class *class, struct auto_decision *decision, size_t bytes,
		       u64 ns, const u64 times[2])
{
	struct ferry_choice *choice = &decision->choice;
	const struct migrator_lanes *lanes = &class->lanes[choice->option];

	spin_lock(&class->lock);
	/* It may have begun anew, with other options. */
	if (choice->option < class->choose.nr_options &&
	    lanes->cpus == decision->lanes.cpus && lanes->channels == decision->lanes.channels) {
		choice->bytes = bytes;
		ferry_choose_learn(&class->choose, choice, ns);
		if (times[0] && times[1])
			ferry_choose_learn_split(&class->choose, choice, times[0], times[1]);
	}
	spin_unlock(&class->lock);
}

static struct migrator_batch *auto_claim(struct migrator_pool *pool)
{
	struct migrator_batch *batch = migrator_claim_batch(pool);

	if (!batch)
		this_cpu_inc(pool->entry->counts->declined);
	return batch;
}

/* Returns the bytes if all went as decided, so that the time tells of the option; else 0. */
static size_t auto_copy(struct migrator_stage *stage, struct migrator_pool *pool,
			struct migrator_batch *batch, size_t bytes, unsigned int lanes)
{
	u64 granules;

	migrator_stage_fill(stage, pool->migrator, batch, bytes);
	if (!batch->nr)
		return 0;
	batch->lanes = lanes;
	if (migrator_stage_copy(stage, pool, batch) || stage->copied < batch->nr)
		return 0;
	/* No lane has less than a granule. */
	granules = div_u64(batch->bytes, max_t(u32, FERRY_SHARE_GRANULE, PAGE_SIZE));
	return batch->lanes == min_t(u64, lanes, max_t(u64, granules, 1)) ? batch->bytes : 0;
}

/*
 * Channels copy the end of a part, and CPUs, with @batch, the first @cpu_bytes meanwhile. Returns
 * the bytes if all were copied, else 0; @times are those of the CPUs and of the channels.
 */
VISIBLE_IF_KUNIT size_t migrator_auto_split(struct migrator_stage *stage,
					    const struct migrator_policy *policy,
					    struct migrator_batch *batch, size_t cpu_bytes,
					    size_t bytes, const struct migrator_lanes *lanes,
					    u64 times[2])
{
	struct migrator_pool *channels = policy->channels;
	struct migrator_batch *other = auto_claim(channels);
	bool good = true;
	int error;

	if (!other)
		return 0;
	migrator_stage_fill(stage, policy->cpus->migrator, batch, cpu_bytes);
	migrator_stage_fill(stage, channels->migrator, other,
			    bytes > batch->bytes ? bytes - batch->bytes : 0);
	error = -ENODATA;
	if (other->nr) {
		other->lanes = lanes->channels;
		migrator_stage_begin(channels, other);
		error = channels->migrator->start(other);
	}
	if (batch->nr) {
		batch->lanes = lanes->cpus;
		good = !migrator_stage_copy(stage, policy->cpus, batch) &&
		       stage->copied == batch->nr;
		times[0] = stage->ns;
	}
	if (!error) {
		channels->migrator->finish(other);
		times[1] = other->channel_ns;
	}
	if (other->nr) {
		migrator_stage_end(stage, channels, other, times[1], error);
		good &= stage->copied == other->nr;
	}
	bytes = good ? batch->bytes + other->bytes : 0;
	migrator_release_batch(channels, other);
	return bytes;
}

/*
 * Copies what was decided, with what it needs: @cpus, or a batch of another migrator. Returns the
 * bytes that tell what the option takes, 0 if they do not.
 */
static size_t auto_run(struct migrator_stage *stage, const struct migrator_policy *policy,
		       struct migrator_batch *cpus, struct auto_decision *decision, u64 times[2])
{
	struct migrator_pool *pool = decision->lanes.channels ? policy->channels : policy->plain;
	struct ferry_choice *choice = &decision->choice;
	struct migrator_batch *batch;
	size_t bytes;

	if (decision->lanes.cpus && decision->lanes.channels)
		return migrator_auto_split(stage, policy, cpus, choice->cpu_bytes, choice->bytes,
					   &decision->lanes, times);
	if (decision->lanes.cpus)
		return auto_copy(stage, policy->cpus, cpus, choice->bytes, decision->lanes.cpus);
	batch = auto_claim(pool);
	if (!batch)
		return 0;
	bytes = auto_copy(stage, pool, batch, choice->bytes, decision->lanes.channels);
	migrator_release_batch(pool, batch);
	return bytes;
}

/*
 * Bytes and number of the folios that are left, up to @max_nr, eligible or not: to look at each
 * takes a hundredth of moving it, and only batches that are copied here need it.
 */
static size_t auto_left(const struct migrator_stage *stage, unsigned int max_nr, unsigned int *nr)
{
	struct folio *src = stage->src;
	size_t bytes = 0;

	*nr = 0;
	list_for_each_entry_from(src, stage->src_folios, lru) {
		bytes += folio_size(src);
		if (++*nr == max_nr)
			break;
	}
	return bytes;
}

/* Copies the next part. False if the move copies all that is left. */
static bool auto_step(struct migrator_stage *stage, const struct migrator_policy *policy,
		      struct migrator_batch *cpus, size_t min_bytes)
{
	unsigned int forced = READ_ONCE(auto_forced);
	struct auto_decision decision = { };
	struct migrator_lanes most = { };
	struct auto_class *class;
	u64 start, times[2] = { };
	unsigned int nr;
	size_t bytes;

	bytes = auto_left(stage, policy->plain->max_nr, &nr);
	if (bytes < min_bytes)
		return false;
	if (cpus)
		most.cpus = min3(policy->cpus->migrator->lanes(), num_online_cpus(),
				 (unsigned int)MIGRATOR_CPUS_MAX);
	if (policy->channels)
		most.channels = min(policy->channels->migrator->lanes(), (unsigned int)U8_MAX);
	class = &policy->automatic->classes[auto_class_of(bytes / nr)];
	decision.batch = (struct ferry_batch) {
		.bytes = bytes,
		.folio_bytes = rounddown_pow_of_two(bytes / nr),
		.channels = most.channels,
		.urgent = BIT(stage->reason) & AUTO_URGENT_REASONS &&
			  !migrator_auto_in_kthread(),
	};
	if (most.cpus > 1)
		decision.batch.cpus = auto_find_cpus(cpus->cpus, bytes, most.cpus,
						     folio_nid(stage->dst)) - 1;
	if (forced)
		auto_force(forced, most, &decision);
	else
		auto_decide(class, stage->reason, most, &decision);
	/* Only trials are of a part. */
	if (!decision.measured || !migrator_stage_has(stage, policy->plain->migrator, min_bytes))
		return false;
	start = migrator_auto_clock();
	bytes = auto_run(stage, policy, cpus, &decision, times);
	if (bytes && !forced)
		auto_learn(class, &decision, bytes, migrator_auto_clock() - start, times);
	return bytes;
}

void migrator_auto_copy(struct migrator_stage *stage, const struct migrator_policy *policy,
			size_t min_bytes)
{
	struct migrator_batch *cpus = NULL;

	if (policy->cpus)
		cpus = migrator_claim_batch(policy->cpus);
	while (!list_entry_is_head(stage->src, stage->src_folios, lru) &&
	       auto_step(stage, policy, cpus, min_bytes))
		;
	if (cpus)
		migrator_release_batch(policy->cpus, cpus);
}

/* One that was withdrawn may have been used last. */
static const char *auto_name(const struct migrator_pool *pool)
{
	return pool ? pool->migrator->name : "withdrawn";
}

static void auto_show_line(struct seq_file *seq, const struct migrator_policy *policy,
			   unsigned int reason, unsigned int kind, unsigned int size)
{
	static const char *const folios[AUTO_CLASSES] = { "base", "large", "huge" };
	struct auto_class *class = &policy->automatic->classes[kind];
	unsigned int option, plain, mean;
	struct migrator_lanes lanes;
	u64 seen, seen_plain;

	spin_lock(&class->lock);
	seen = class->seen[reason][size];
	seen_plain = class->seen_plain[reason][size];
	option = class->used[size];
	lanes = class->lanes[option];
	plain = class->choose.costs[FERRY_CHOOSE_PLAIN][size].mean;
	mean = class->choose.costs[option][size].mean;
	spin_unlock(&class->lock);
	if (!seen)
		return;
	seq_printf(seq, "%s %s %u %llu %llu ", migrate_reason_names[reason], folios[kind],
		   SZ_16K << size, seen, seen_plain);
	if (lanes.cpus)
		seq_printf(seq, "%s:%u%s", auto_name(policy->cpus), lanes.cpus,
			   lanes.channels ? "+" : "");
	if (lanes.channels)
		seq_printf(seq, "%s:%u", auto_name(policy->channels), lanes.channels);
	seq_printf(seq, "%s %llu\n", option == FERRY_CHOOSE_PLAIN ? "plain" : "",
		   plain && mean ? div_u64(plain * 1000ULL, mean) : 1000);
}

/* @policy may be NULL. */
void migrator_auto_show(const struct migrator_policy *policy, struct seq_file *seq)
{
	unsigned int reason, kind, size;

	seq_puts(seq, "reason folio bytes batches plain choice gain\n");
	for (reason = 0; policy && policy->auto_reasons && reason < MIGRATOR_REASONS; reason++)
		for (kind = 0; kind < AUTO_CLASSES; kind++)
			for (size = 0; size < FERRY_CHOOSE_SIZES; size++)
				auto_show_line(seq, policy, reason, kind, size);
}
