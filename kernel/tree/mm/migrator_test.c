// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the registry of migrators, and of the stage that gives them folios. They have
 * a registry of their own: the live one, its settings and the static key stay as they are.
 */
#include <kunit/static_stub.h>
#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/gfp.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timekeeping.h>

#include "migrator.h"

static struct migrator_registry registry;

/* What the migrator of the tests has seen, and what it is told to do. */
static struct {
	int activations;
	int batches_made;
	int fail_batch;
	int activate_error;
	int copies;
	unsigned int last_nr;
	size_t last_bytes;
	int copy_error;
	/* of every so many folios one is left out; 0 for none */
	unsigned int leave_out;
	/* the same for folios that are put into quarantine, although they are copied */
	unsigned int quarantine;
	/* and for folios that met poison */
	unsigned int poison;
} seen;

static int test_activate(void)
{
	if (!seen.activate_error)
		seen.activations++;
	return seen.activate_error;
}

static void test_deactivate(void)
{
	seen.activations--;
}

static int test_init_batch(struct migrator_batch *batch)
{
	if (seen.fail_batch && seen.batches_made + 1 == seen.fail_batch)
		return -ENOSPC;
	seen.batches_made++;
	*(unsigned int *)batch->private = batch->max_nr;
	return 0;
}

static void test_exit_batch(struct migrator_batch *batch)
{
	seen.batches_made--;
}

static int test_copy(struct migrator_batch *batch)
{
	unsigned int i;

	seen.copies++;
	seen.last_nr = batch->nr;
	seen.last_bytes = batch->bytes;
	if (seen.copy_error)
		return seen.copy_error;
	for (i = 0; i < batch->nr; i++) {
		if (seen.leave_out && i % seen.leave_out == 0)
			continue;
		folio_copy(batch->pairs[i].dst, batch->pairs[i].src);
		migrator_batch_copied(batch, i);
		if (seen.quarantine && i % seen.quarantine == 0)
			migrator_quarantine(batch, i);
		if (seen.poison && i % seen.poison == 0)
			migrator_batch_poisoned(batch, i);
	}
	return 0;
}

static const struct migrator test_migrator = {
	.name = "kunit",
	.private_size = sizeof(unsigned int),
	.activate = test_activate,
	.deactivate = test_deactivate,
	.init_batch = test_init_batch,
	.exit_batch = test_exit_batch,
	.copy = test_copy,
};

static const struct migrator other_migrator = {
	.name = "kunit-other",
	.copy = test_copy,
};

static void expect_names(struct kunit *test, const char *names)
{
	char *page = (char *)get_zeroed_page(GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, page);
	migrator_show_names(&registry, page);
	KUNIT_EXPECT_STREQ(test, page, names);
	free_page((unsigned long)page);
}

static int migrator_test_init(struct kunit *test)
{
	memset(&seen, 0, sizeof(seen));
	migrator_registry_init(&registry);
	return migrator_add(&registry, &test_migrator);
}

static void migrator_test_exit(struct kunit *test)
{
	migrator_set_reasons(&registry, "all none");
	migrator_remove(&registry, &test_migrator);
	KUNIT_EXPECT_EQ(test, seen.activations, 0);
	KUNIT_EXPECT_EQ(test, seen.batches_made, 0);
}

static void test_names(struct kunit *test)
{
	struct migrator wrong = { .name = "sixteen-letters-", .copy = test_copy };

	KUNIT_EXPECT_EQ(test, migrator_add(&registry, &wrong), -EINVAL);
	wrong.name = "none";
	KUNIT_EXPECT_EQ(test, migrator_add(&registry, &wrong), -EEXIST);
	wrong.name = "auto";
	KUNIT_EXPECT_EQ(test, migrator_add(&registry, &wrong), -EEXIST);
	wrong.name = "default";
	KUNIT_EXPECT_EQ(test, migrator_add(&registry, &wrong), -EEXIST);
	wrong.name = "kunit";
	KUNIT_EXPECT_EQ(test, migrator_add(&registry, &wrong), -EEXIST);
	expect_names(test, "[none] auto kunit\n");
}

static void test_choose(struct kunit *test)
{
	KUNIT_ASSERT_EQ(test, migrator_add(&registry, &other_migrator), 0);
	expect_names(test, "[none] auto kunit kunit-other\n");

	KUNIT_EXPECT_EQ(test, migrator_select(&registry, "kunit"), 0);
	expect_names(test, "none auto [kunit] kunit-other\n");
	KUNIT_EXPECT_EQ(test, seen.activations, 1);
	KUNIT_EXPECT_GT(test, seen.batches_made, 0);

	/* What is not there changes nothing; what is active already stays as it is. */
	KUNIT_EXPECT_EQ(test, migrator_select(&registry, "kuni"), -EINVAL);
	KUNIT_EXPECT_EQ(test, migrator_select(&registry, ""), -EINVAL);
	KUNIT_EXPECT_EQ(test, migrator_select(&registry, "kunit"), 0);
	KUNIT_EXPECT_EQ(test, seen.activations, 1);
	expect_names(test, "none auto [kunit] kunit-other\n");

	KUNIT_EXPECT_EQ(test, migrator_select(&registry, "kunit-other"), 0);
	KUNIT_EXPECT_EQ(test, seen.activations, 0);
	KUNIT_EXPECT_EQ(test, seen.batches_made, 0);

	/* The active one goes: none is active. */
	migrator_remove(&registry, &other_migrator);
	expect_names(test, "[none] auto kunit\n");
}

static void test_choose_fails(struct kunit *test)
{
	KUNIT_ASSERT_EQ(test, migrator_add(&registry, &other_migrator), 0);
	KUNIT_ASSERT_EQ(test, migrator_select(&registry, "kunit-other"), 0);

	seen.activate_error = -ENODEV;
	KUNIT_EXPECT_EQ(test, migrator_select(&registry, "kunit"), -ENODEV);
	expect_names(test, "none auto kunit [kunit-other]\n");

	/* Some batches were made when one could not be. */
	seen.activate_error = 0;
	seen.fail_batch = num_possible_cpus() > 1 ? 2 : 1;
	KUNIT_EXPECT_EQ(test, migrator_select(&registry, "kunit"), -ENOSPC);
	KUNIT_EXPECT_EQ(test, seen.activations, 0);
	KUNIT_EXPECT_EQ(test, seen.batches_made, 0);
	expect_names(test, "none auto kunit [kunit-other]\n");
	migrator_remove(&registry, &other_migrator);
}

static void test_limits(struct kunit *test)
{
	size_t max = registry.max_bytes;
	int made;

	KUNIT_EXPECT_EQ(test, migrator_set_max_bytes(&registry, PAGE_SIZE), -EINVAL);
	KUNIT_EXPECT_EQ(test, migrator_set_max_bytes(&registry, max + 1), -EINVAL);
	KUNIT_EXPECT_EQ(test, migrator_set_max_bytes(&registry, SIZE_MAX & PAGE_MASK), -EINVAL);
	KUNIT_EXPECT_EQ(test, registry.max_bytes, max);

	/* The active migrator's batches grow with the limit. */
	KUNIT_ASSERT_EQ(test, migrator_select(&registry, "kunit"), 0);
	made = seen.batches_made;
	KUNIT_EXPECT_EQ(test, migrator_set_max_bytes(&registry, 2 * max), 0);
	KUNIT_EXPECT_EQ(test, seen.batches_made, made);
	KUNIT_EXPECT_EQ(test, seen.activations, 1);
	KUNIT_EXPECT_EQ(test, registry.max_bytes, 2 * max);

	/* And if they cannot, the limit stays with them. */
	seen.fail_batch = made + 1;
	KUNIT_EXPECT_EQ(test, migrator_set_max_bytes(&registry, max), -ENOSPC);
	KUNIT_EXPECT_EQ(test, seen.batches_made, made);
	KUNIT_EXPECT_EQ(test, registry.max_bytes, 2 * max);
	expect_names(test, "none auto [kunit]\n");
	seen.fail_batch = 0;
	KUNIT_EXPECT_EQ(test, migrator_set_max_bytes(&registry, max), 0);
}

static void expect_reasons(struct kunit *test, const char *reasons)
{
	char *page = (char *)get_zeroed_page(GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, page);
	migrator_show_reasons(&registry, page);
	KUNIT_EXPECT_STREQ(test, page, reasons);
	/* What was read can be written back. */
	KUNIT_EXPECT_EQ(test, migrator_set_reasons(&registry, page), 0);
	free_page((unsigned long)page);
}

#define FIRST_REASONS	"memory_failure default\nmemory_hotplug default\n"	\
			"syscall_or_cpuset default\nmempolicy_mbind default\n"
#define LAST_REASONS	"contig_range default\nlongterm_pin default\n"

static void test_reasons(struct kunit *test)
{
	static const char *const bad[] = {
		"", "\n", ",", "demo", "demotion", "demotion kuni", "demotion kunit only x", "all",
		"demotion none onl", "demotion auto only", "demotion default only", "-1 none",
		"demotion kunit onl", "Demotion none", "all all", "compaction none\ndemotion",
		"compaction kunit,nothing none",
	};
	static const char changed[] =
		"all default,compaction none,demotion kunit only,damon kunit";
	unsigned int i;

	expect_reasons(test, "compaction default\n" FIRST_REASONS "numa_misplaced default\n"
		       LAST_REASONS "demotion default\ndamon default\n");
	KUNIT_EXPECT_EQ(test, registry.reasons, 0);
	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry,
						   "all none\n demotion\tkunit  only\n,\n"), 0);
	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry, "damon kunit,damon none\n"), 0);
	KUNIT_EXPECT_EQ(test, registry.reasons, BIT(MR_DEMOTION));
	KUNIT_EXPECT_EQ(test, registry.only, BIT(MR_DEMOTION));
	KUNIT_EXPECT_EQ(test, seen.activations, 1);
	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry, changed), 0);
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		KUNIT_EXPECT_EQ_MSG(test, migrator_set_reasons(&registry, bad[i]), -EINVAL, "%s",
				    bad[i]);
	expect_reasons(test, "compaction none\n" FIRST_REASONS "numa_misplaced default\n"
		       LAST_REASONS "demotion kunit only\ndamon kunit\n");
	KUNIT_EXPECT_EQ(test, registry.reasons, BIT(MR_DEMOTION) | BIT(MR_DAMON));
	KUNIT_EXPECT_EQ(test, migrator_select(&registry, "kunit"), 0);
	KUNIT_EXPECT_EQ(test, registry.reasons,
			GENMASK(MIGRATOR_REASONS - 1, 0) & ~BIT(MR_COMPACTION));
	KUNIT_EXPECT_EQ_MSG(test, seen.activations, 1, "it was active already");
}

/* Several are open at once; one is closed when no reason uses it, and leaves all when it goes. */
static void test_several(struct kunit *test)
{
	int made;

	KUNIT_ASSERT_EQ(test, migrator_add(&registry, &other_migrator), 0);
	KUNIT_ASSERT_EQ(test, migrator_select(&registry, "kunit-other"), 0);
	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry, "demotion kunit"), 0);
	KUNIT_EXPECT_EQ(test, seen.activations, 1);
	made = seen.batches_made;
	KUNIT_EXPECT_GT(test, made, 0);
	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry, "damon kunit"), 0);
	KUNIT_EXPECT_EQ(test, seen.batches_made, made);
	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry, "demotion default"), 0);
	KUNIT_EXPECT_EQ(test, seen.activations, 1);
	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry, "damon default"), 0);
	KUNIT_EXPECT_EQ(test, seen.activations, 0);
	KUNIT_EXPECT_EQ(test, seen.batches_made, 0);

	/* All or nothing. */
	seen.activate_error = -ENODEV;
	KUNIT_EXPECT_EQ(test, migrator_set_reasons(&registry, "damon none,demotion kunit"),
			-ENODEV);
	seen.activate_error = 0;
	KUNIT_EXPECT_EQ(test, registry.reasons, GENMASK(MIGRATOR_REASONS - 1, 0));

	migrator_remove(&registry, &other_migrator);
	KUNIT_EXPECT_EQ(test, registry.reasons, 0);
	expect_names(test, "[none] auto kunit\n");
}

/* The state that unmapping leaves in a destination, which the mark must leave alone. */
#define TEST_STATE	(0xabc0UL | FOLIO_WAS_MLOCKED)

/* Folios as migrate_pages_batch() holds them: locked, off the LRU, not mapped. */
struct test_lists {
	struct list_head src;
	struct list_head dst;
	struct list_head bad_src;
	struct list_head bad_dst;
};

static void add_pair(struct kunit *test, struct test_lists *lists, unsigned int order, u8 byte)
{
	struct folio *src = folio_alloc(GFP_KERNEL, order);
	struct folio *dst = folio_alloc(GFP_KERNEL | __GFP_ZERO, order);

	KUNIT_ASSERT_NOT_NULL(test, src);
	KUNIT_ASSERT_NOT_NULL(test, dst);
	memset(folio_address(src), byte, folio_size(src));
	/* Anonymous: what was copied counts however long a busy host made it take. */
	src->mapping = (void *)FOLIO_MAPPING_ANON;
	__folio_set_locked(src);
	__folio_set_locked(dst);
	dst->private = (void *)TEST_STATE;
	list_add_tail(&src->lru, &lists->src);
	list_add_tail(&dst->lru, &lists->dst);
}

/* Whether the move of @dst would skip its copy; as __migrate_folio_extract() begins it. */
static bool test_move_skips_copy(struct kunit *test, struct folio *dst)
{
	unsigned long state = dst->migrate_info;
	bool skips;

	KUNIT_EXPECT_EQ(test, state & ~FOLIO_WAS_COPIED, TEST_STATE);
	dst->migrate_info = state & FOLIO_WAS_COPIED;
	skips = migrator_take_copied(dst);
	KUNIT_EXPECT_NULL(test, dst->private);
	KUNIT_EXPECT_FALSE_MSG(test, migrator_take_copied(dst), "once only");
	dst->private = (void *)TEST_STATE;
	return skips;
}

static bool run_stage(struct test_lists *lists, enum migrate_reason reason)
{
	return __migrator_copy_folios(&registry, &lists->src, &lists->dst, &lists->bad_src,
				      &lists->bad_dst, MIGRATE_ASYNC, reason);
}

static void init_lists(struct test_lists *lists)
{
	INIT_LIST_HEAD(&lists->src);
	INIT_LIST_HEAD(&lists->dst);
	INIT_LIST_HEAD(&lists->bad_src);
	INIT_LIST_HEAD(&lists->bad_dst);
}

static void drop_list(struct list_head *folios)
{
	struct folio *folio, *next;

	list_for_each_entry_safe(folio, next, folios, lru) {
		list_del(&folio->lru);
		folio->private = NULL;
		folio->mapping = NULL;
		__folio_clear_locked(folio);
		folio_put(folio);
	}
}

static void drop_pairs(struct test_lists *lists)
{
	drop_list(&lists->src);
	drop_list(&lists->dst);
	drop_list(&lists->bad_src);
	drop_list(&lists->bad_dst);
}

static void test_stage(struct kunit *test)
{
	struct test_lists lists;
	struct folio *src, *dst;
	unsigned int i, order = get_order(SZ_256K);

	init_lists(&lists);
	for (i = 0; i < 4; i++)
		add_pair(test, &lists, i == 3 ? 0 : order, i + 1);
	/* A reference that nobody accounts for, as of a pin: this one must wait. */
	src = list_first_entry(&lists.src, struct folio, lru);
	folio_get(src);

	run_stage(&lists, MR_SYSCALL);
	KUNIT_EXPECT_EQ_MSG(test, seen.copies, 0, "nothing is active");

	KUNIT_ASSERT_EQ(test, migrator_select(&registry, "kunit"), 0);
	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry, "all none,demotion default"), 0);
	run_stage(&lists, MR_SYSCALL);
	KUNIT_EXPECT_EQ_MSG(test, seen.copies, 0, "not for this reason");

	seen.copy_error = -EBUSY;
	run_stage(&lists, MR_DEMOTION);
	KUNIT_EXPECT_EQ(test, seen.copies, 1);
	list_for_each_entry(dst, &lists.dst, lru)
		KUNIT_EXPECT_FALSE(test, test_move_skips_copy(test, dst));

	seen.copy_error = 0;
	run_stage(&lists, MR_DEMOTION);
	KUNIT_EXPECT_EQ(test, seen.copies, 2);
	KUNIT_EXPECT_EQ(test, seen.last_nr, 3);
	KUNIT_EXPECT_EQ(test, seen.last_bytes, 2 * SZ_256K + PAGE_SIZE);
	i = 0;
	list_for_each_entry(dst, &lists.dst, lru) {
		KUNIT_EXPECT_EQ_MSG(test, test_move_skips_copy(test, dst), i > 0, "folio %u", i);
		if (i)
			KUNIT_EXPECT_NULL(test, memchr_inv(folio_address(dst), i + 1,
							   folio_size(dst)));
		i++;
	}

	/* One of three left out by the migrator. */
	seen.leave_out = 3;
	run_stage(&lists, MR_DEMOTION);
	i = 0;
	list_for_each_entry(dst, &lists.dst, lru) {
		KUNIT_EXPECT_EQ_MSG(test, test_move_skips_copy(test, dst), i > 1, "folio %u", i);
		i++;
	}

	folio_put(src);
	drop_pairs(&lists);
}

/* What a device may still write to is taken out, and not freed when it is put. */
static void test_quarantine(struct kunit *test)
{
	size_t before = migrator_quarantined_bytes();
	unsigned int i, order = get_order(SZ_256K);
	struct folio *src, *dst, *kept[2];
	struct test_lists lists;

	init_lists(&lists);
	for (i = 0; i < 4; i++)
		add_pair(test, &lists, order, i + 1);
	KUNIT_ASSERT_EQ(test, migrator_select(&registry, "kunit"), 0);
	seen.quarantine = 2;
	run_stage(&lists, MR_DEMOTION);
	KUNIT_EXPECT_EQ(test, migrator_quarantined_bytes(), before + 2 * SZ_256K);
	KUNIT_EXPECT_EQ(test, list_count_nodes(&lists.src), 2);
	KUNIT_EXPECT_EQ(test, list_count_nodes(&lists.bad_src), 2);
	list_for_each_entry(dst, &lists.dst, lru)
		KUNIT_EXPECT_TRUE(test, test_move_skips_copy(test, dst));
	i = 0;
	list_for_each_entry(dst, &lists.bad_dst, lru) {
		KUNIT_EXPECT_FALSE(test, test_move_skips_copy(test, dst));
		KUNIT_EXPECT_EQ(test, folio_ref_count(dst), 2);
		kept[i++] = dst;
	}
	i = 1;
	list_for_each_entry(src, &lists.bad_src, lru) {
		KUNIT_EXPECT_EQ(test, *(u8 *)folio_address(src), i);
		i += 2;
	}
	migrator_select(&registry, "none");
	drop_pairs(&lists);
	for (i = 0; i < 2; i++) {
		KUNIT_EXPECT_EQ(test, folio_ref_count(kept[i]), 1);
		migrator_quarantine_release(kept[i]);
	}
	KUNIT_EXPECT_EQ(test, migrator_quarantined_bytes(), before);
}

/* A folio that met poison is taken out, although its copy was said to be whole. */
static void test_poison(struct kunit *test)
{
	struct test_lists lists;
	unsigned int i;

	init_lists(&lists);
	for (i = 0; i < 3; i++)
		add_pair(test, &lists, get_order(SZ_256K), i + 1);
	KUNIT_ASSERT_EQ(test, migrator_select(&registry, "kunit"), 0);
	seen.poison = 3;
	run_stage(&lists, MR_SYSCALL);
	KUNIT_EXPECT_EQ(test, list_count_nodes(&lists.src), 2);
	KUNIT_EXPECT_EQ(test, list_count_nodes(&lists.bad_src), 1);
	KUNIT_EXPECT_EQ(test, list_count_nodes(&lists.bad_dst), 1);
	drop_pairs(&lists);
}

/* The flags that hugetlb keeps in the private word are not taken for a state. */
static void test_hugetlb_private(struct kunit *test)
{
#ifdef CONFIG_HUGETLB_PAGE
	struct folio *dst = folio_alloc(GFP_KERNEL | __GFP_COMP, 2);

	KUNIT_ASSERT_NOT_NULL(test, dst);
	dst->migrate_info = FOLIO_WAS_COPIED;
	__folio_set_hugetlb(dst);
	KUNIT_EXPECT_FALSE(test, migrator_take_copied(dst));
	KUNIT_EXPECT_PTR_EQ(test, dst->private, (void *)FOLIO_WAS_COPIED);
	__folio_clear_hugetlb(dst);
	dst->private = NULL;
	folio_put(dst);
#else
	kunit_skip(test, "no CONFIG_HUGETLB_PAGE");
#endif
}

static void test_small_batches(struct kunit *test)
{
	struct test_lists lists;

	init_lists(&lists);
	KUNIT_ASSERT_EQ(test, migrator_select(&registry, "kunit"), 0);
	run_stage(&lists, MR_SYSCALL);
	add_pair(test, &lists, 0, 1);
	run_stage(&lists, MR_SYSCALL);
	add_pair(test, &lists, 0, 2);
	run_stage(&lists, MR_SYSCALL);
	KUNIT_EXPECT_EQ(test, seen.copies, 0);
	add_pair(test, &lists, get_order(SZ_256K), 3);
	run_stage(&lists, MR_SYSCALL);
	KUNIT_EXPECT_EQ(test, seen.copies, 1);
	drop_pairs(&lists);
}

static bool others_are_ready;

static bool other_is_ready(void)
{
	return others_are_ready;
}

/* Batches are not smaller than without a migrator, and larger only if it would take them now. */
static void test_batch_pages(struct kunit *test)
{
	const unsigned int more = 2 * (registry.max_bytes >> PAGE_SHIFT);
	static const struct migrator may_decline = {
		.name = "kunit-ready",
		.copy = test_copy,
		.ready = other_is_ready,
	};

	KUNIT_ASSERT_EQ(test, migrator_select(&registry, "kunit"), 0);
	KUNIT_EXPECT_EQ(test, __migrator_batch_pages(&registry, MR_SYSCALL, 32),
			registry.max_bytes >> PAGE_SHIFT);
	KUNIT_EXPECT_EQ(test, __migrator_batch_pages(&registry, MR_SYSCALL, more), more);
	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry, "syscall_or_cpuset none"), 0);
	KUNIT_EXPECT_EQ(test, __migrator_batch_pages(&registry, MR_SYSCALL, 32), 32);

	KUNIT_ASSERT_EQ(test, migrator_add(&registry, &may_decline), 0);
	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry, "syscall_or_cpuset kunit-ready"), 0);
	others_are_ready = false;
	KUNIT_EXPECT_EQ(test, __migrator_batch_pages(&registry, MR_SYSCALL, 32), 32);
	others_are_ready = true;
	KUNIT_EXPECT_EQ(test, __migrator_batch_pages(&registry, MR_SYSCALL, 32),
			registry.max_bytes >> PAGE_SHIFT);
	migrator_remove(&registry, &may_decline);
}

static u64 refused(const struct migrator *migrator)
{
	struct migrator_entry *entry;
	u64 sum = 0;
	int cpu;

	list_for_each_entry(entry, &registry.entries, list)
		if (entry->migrator == migrator)
			for_each_possible_cpu(cpu)
				sum += per_cpu_ptr(entry->counts, cpu)->refused;
	return sum;
}

/* With "only" whatever the migrator did not copy is taken out, for each of its reasons. */
static void test_only(struct kunit *test)
{
	struct test_lists lists;
	struct folio *src, *dst;
	unsigned int i;

	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry, "demotion kunit only"), 0);
	for (i = 0; i < 3; i++) {
		init_lists(&lists);
		add_pair(test, &lists, 0, 1);
		add_pair(test, &lists, get_order(SZ_256K), 2);
		add_pair(test, &lists, 0, 3);
		src = list_first_entry(&lists.src, struct folio, lru);
		/* Not eligible; left out by the migrator (the second of two); declined. */
		if (i == 0)
			folio_get(src);
		seen.leave_out = i == 1 ? 2 : 0;
		seen.copy_error = i == 2 ? -EBUSY : 0;
		KUNIT_EXPECT_TRUE(test, run_stage(&lists, MR_DEMOTION));
		KUNIT_EXPECT_EQ(test, list_count_nodes(&lists.src), i == 0 ? 2 : i == 1 ? 1 : 0);
		KUNIT_EXPECT_EQ(test, list_count_nodes(&lists.bad_src), i + 1);
		KUNIT_EXPECT_EQ(test, list_count_nodes(&lists.bad_dst), i + 1);
		list_for_each_entry(dst, &lists.dst, lru)
			KUNIT_EXPECT_TRUE(test, test_move_skips_copy(test, dst));
		list_for_each_entry(dst, &lists.bad_dst, lru)
			KUNIT_EXPECT_FALSE(test, test_move_skips_copy(test, dst));
		if (i == 0)
			folio_put(src);
		drop_pairs(&lists);
	}
	KUNIT_EXPECT_EQ(test, refused(&test_migrator), 1 + 2 + 3);
	seen.copy_error = 0;

	/* No batch is too small, as nobody else may copy it. */
	init_lists(&lists);
	add_pair(test, &lists, 0, 1);
	KUNIT_EXPECT_TRUE(test, run_stage(&lists, MR_DEMOTION));
	dst = list_first_entry(&lists.dst, struct folio, lru);
	KUNIT_EXPECT_TRUE(test, test_move_skips_copy(test, dst));
	drop_pairs(&lists);

	KUNIT_EXPECT_TRUE(test, __migrator_refuses_hugetlb(&registry, MR_DEMOTION));
	KUNIT_EXPECT_FALSE(test, __migrator_refuses_hugetlb(&registry, MR_SYSCALL));
	KUNIT_EXPECT_EQ(test, refused(&test_migrator), 1 + 2 + 3 + 1);
	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry, "demotion kunit"), 0);
	KUNIT_EXPECT_FALSE(test, __migrator_refuses_hugetlb(&registry, MR_DEMOTION));
}

static void expect_all_is_refused(struct kunit *test)
{
	struct test_lists lists;

	init_lists(&lists);
	add_pair(test, &lists, get_order(SZ_256K), 1);
	add_pair(test, &lists, 0, 2);
	KUNIT_EXPECT_TRUE(test, run_stage(&lists, MR_DEMOTION));
	KUNIT_EXPECT_EQ(test, list_count_nodes(&lists.bad_src), 2);
	KUNIT_EXPECT_TRUE(test, list_empty(&lists.src));
	drop_pairs(&lists);
	KUNIT_EXPECT_TRUE(test, __migrator_refuses_hugetlb(&registry, MR_DEMOTION));
	KUNIT_EXPECT_EQ_MSG(test, __migrator_batch_pages(&registry, MR_DEMOTION, 32), 32,
			    "nothing more is isolated for it");
}

/* What only a migrator might copy nobody does when it has left, until something else is written. */
static void test_only_stays(struct kunit *test)
{
	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry, "demotion none only"), 0);
	KUNIT_EXPECT_EQ(test, registry.reasons, 0);
	expect_all_is_refused(test);

	KUNIT_ASSERT_EQ(test, migrator_add(&registry, &other_migrator), 0);
	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry,
						   "demotion kunit-other only,damon kunit"), 0);
	migrator_remove(&registry, &other_migrator);
	expect_reasons(test, "compaction default\n" FIRST_REASONS "numa_misplaced default\n"
		       LAST_REASONS "demotion none only\ndamon kunit\n");
	KUNIT_EXPECT_EQ(test, registry.reasons, BIT(MR_DAMON));
	expect_all_is_refused(test);
	KUNIT_ASSERT_EQ(test, migrator_select(&registry, "kunit"), 0);
	expect_all_is_refused(test);

	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry, "all none"), 0);
	KUNIT_EXPECT_EQ(test, registry.only, 0);
	KUNIT_EXPECT_FALSE(test, __migrator_refuses_hugetlb(&registry, MR_DEMOTION));
}

/* Migrators of the three kinds that "auto" uses, and how long each takes by the test's clock. */
static struct {
	u64 now, plain_ns, cpus_ns, channels_ns;
	unsigned int plain, cpus, channels;
	unsigned int started;
	bool fail_start;
} kinds;

static u64 kinds_clock(void)
{
	return kinds.now;
}

static void kinds_copy(struct migrator_batch *batch, u64 ns)
{
	unsigned int i;

	for (i = 0; i < batch->nr; i++) {
		folio_copy(batch->pairs[i].dst, batch->pairs[i].src);
		migrator_batch_copied(batch, i);
	}
	kinds.now += ns;
}

static int plain_copy(struct migrator_batch *batch)
{
	kinds.plain++;
	kinds_copy(batch, kinds.plain_ns);
	return 0;
}

static int cpus_copy(struct migrator_batch *batch)
{
	kinds.cpus++;
	kinds_copy(batch, kinds.cpus_ns);
	return 0;
}

static int channels_start(struct migrator_batch *batch)
{
	if (kinds.fail_start)
		return -EBUSY;
	kinds.started++;
	return 0;
}

static void channels_finish(struct migrator_batch *batch)
{
	kinds.started--;
	kinds.channels++;
	kinds_copy(batch, kinds.channels_ns);
	batch->channel_ns = kinds.channels_ns;
}

static int channels_copy(struct migrator_batch *batch)
{
	int error = channels_start(batch);

	if (!error)
		channels_finish(batch);
	return error;
}

static unsigned int kinds_lanes(void)
{
	return 2;
}

static const struct migrator plain_migrator = {
	.name = "kunit-plain",
	.flags = MIGRATOR_PLAIN,
	.copy = plain_copy,
};

static const struct migrator cpus_migrator = {
	.name = "kunit-cpus",
	.flags = MIGRATOR_CPUS,
	.copy = cpus_copy,
	.lanes = kinds_lanes,
};

static const struct migrator channels_migrator = {
	.name = "kunit-channels",
	.flags = MIGRATOR_CHANNELS,
	.copy = channels_copy,
	.start = channels_start,
	.finish = channels_finish,
	.lanes = kinds_lanes,
};

/* Copies @nr folios of 256 KiB and sees that each is whole, whoever copied it. */
static unsigned int auto_stage(struct kunit *test, unsigned int nr, enum migrate_reason reason)
{
	struct test_lists lists;
	unsigned int i, copied = 0;
	struct folio *dst;

	init_lists(&lists);
	for (i = 0; i < nr; i++)
		add_pair(test, &lists, get_order(SZ_256K), i + 1);
	KUNIT_EXPECT_FALSE(test, run_stage(&lists, reason));
	KUNIT_EXPECT_EQ(test, list_count_nodes(&lists.src), nr);
	i = 0;
	list_for_each_entry(dst, &lists.dst, lru) {
		i++;
		if (!test_move_skips_copy(test, dst))
			continue;
		KUNIT_EXPECT_NULL(test, memchr_inv(folio_address(dst), i, folio_size(dst)));
		copied++;
	}
	drop_pairs(&lists);
	return copied;
}

static void auto_begin(struct kunit *test)
{
	memset(&kinds, 0, sizeof(kinds));
	kunit_activate_static_stub(test, migrator_auto_clock, kinds_clock);
	KUNIT_ASSERT_EQ(test, migrator_add(&registry, &plain_migrator), 0);
	KUNIT_ASSERT_EQ(test, migrator_add(&registry, &channels_migrator), 0);
	KUNIT_ASSERT_EQ(test, migrator_select(&registry, "auto"), 0);
}

static void auto_end(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, kinds.started, 0);
	migrator_remove(&registry, &plain_migrator);
	migrator_remove(&registry, &channels_migrator);
}

/* What others are there, "auto" uses, from when they come. Without them there is no policy. */
static void test_auto_opens(struct kunit *test)
{
	memset(&kinds, 0, sizeof(kinds));
	KUNIT_ASSERT_EQ(test, migrator_select(&registry, "auto"), 0);
	expect_names(test, "none [auto] kunit\n");
	KUNIT_EXPECT_EQ_MSG(test, seen.activations, 0, "kunit is of no kind");
	KUNIT_EXPECT_EQ(test, registry.reasons, 0);
	KUNIT_ASSERT_EQ(test, migrator_add(&registry, &plain_migrator), 0);
	KUNIT_EXPECT_EQ(test, registry.reasons, 0);
	KUNIT_ASSERT_EQ(test, migrator_add(&registry, &channels_migrator), 0);
	KUNIT_EXPECT_EQ(test, registry.reasons, GENMASK(MIGRATOR_REASONS - 1, 0));
	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry, "damon kunit,demotion none"), 0);
	KUNIT_EXPECT_EQ(test, registry.reasons,
			GENMASK(MIGRATOR_REASONS - 1, 0) & ~BIT(MR_DEMOTION));
	KUNIT_EXPECT_EQ(test, seen.activations, 1);
	migrator_remove(&registry, &channels_migrator);
	KUNIT_EXPECT_EQ(test, registry.reasons, BIT(MR_DAMON));
	expect_names(test, "none [auto] kunit kunit-plain\n");
	KUNIT_ASSERT_EQ(test, migrator_set_reasons(&registry, "all default"), 0);
	KUNIT_ASSERT_EQ(test, migrator_select(&registry, "none"), 0);
	KUNIT_EXPECT_NULL(test, registry.automatic);
	migrator_remove(&registry, &plain_migrator);
}

/* It begins plainly, stays so while nothing is faster, and takes what is. */
static void test_auto_learns(struct kunit *test)
{
	unsigned int n, before;

	auto_begin(test);
	kinds.plain_ns = 3 * NSEC_PER_MSEC;
	kinds.channels_ns = 50 * NSEC_PER_MSEC;
	for (n = 0; n < 64; n++)
		KUNIT_EXPECT_EQ(test, auto_stage(test, 1, MR_SYSCALL), 1);
	KUNIT_EXPECT_EQ(test, kinds.plain, 64);
	KUNIT_EXPECT_EQ_MSG(test, kinds.channels, 0, "no trial in the first 64");

	kinds.channels_ns = 10 * NSEC_PER_USEC;
	for (n = 0; n < 20000 && kinds.channels < 200; n++)
		auto_stage(test, 1, MR_SYSCALL);
	before = kinds.plain;
	KUNIT_EXPECT_GE(test, kinds.channels, 200);
	kunit_info(test, "200 batches by channels after %u, %u plain", n, before);
	for (n = 0; n < 128; n++)
		auto_stage(test, 1, MR_SYSCALL);
	KUNIT_EXPECT_LE_MSG(test, kinds.plain - before, 16, "trials alone are plain now");

	/* They are given back: the move copies, and nothing is learnt of them. */
	kinds.fail_start = true;
	before = kinds.channels;
	KUNIT_EXPECT_EQ(test, auto_stage(test, 1, MR_SYSCALL), 0);
	KUNIT_EXPECT_EQ(test, kinds.channels, before);
	auto_end(test);
}

/* Small is what may be copied, not what is there: such a batch is left to the move. */
static void test_auto_small(struct kunit *test)
{
	struct test_lists lists;
	struct folio *held;

	auto_begin(test);
	init_lists(&lists);
	add_pair(test, &lists, get_order(SZ_256K), 1);
	add_pair(test, &lists, 0, 2);
	held = list_first_entry(&lists.src, struct folio, lru);
	folio_get(held);
	KUNIT_EXPECT_FALSE(test, run_stage(&lists, MR_SYSCALL));
	KUNIT_EXPECT_EQ(test, kinds.plain, 0);
	folio_put(held);
	KUNIT_EXPECT_FALSE(test, run_stage(&lists, MR_SYSCALL));
	KUNIT_EXPECT_EQ(test, kinds.plain, 1);
	drop_pairs(&lists);
	auto_end(test);
}

static bool in_a_task(void)
{
	return false;
}

/* A task does not wait for a trial of the batch that it needs; a kernel thread may. */
static void test_auto_urgent(struct kunit *test)
{
	static const enum migrate_reason urgent[] = {
		MR_NUMA_MISPLACED, MR_COMPACTION, MR_CONTIG_RANGE, MR_LONGTERM_PIN,
		MR_MEMORY_FAILURE,
	};
	unsigned int n;

	auto_begin(test);
	kinds.plain_ns = 3 * NSEC_PER_MSEC;
	kinds.channels_ns = 10 * NSEC_PER_USEC;
	kunit_activate_static_stub(test, migrator_auto_in_kthread, in_a_task);
	for (n = 0; n < 1000; n++)
		auto_stage(test, 1, urgent[n % ARRAY_SIZE(urgent)]);
	KUNIT_EXPECT_EQ(test, kinds.channels, 0);
	for (n = 0; n < 200 && !kinds.channels; n++)
		auto_stage(test, 1, MR_SYSCALL);
	KUNIT_EXPECT_GT_MSG(test, kinds.channels, 0, "the same class tries for others");

	kunit_deactivate_static_stub(test, migrator_auto_in_kthread);
	KUNIT_ASSERT_EQ(test, migrator_select(&registry, "none"), 0);
	KUNIT_ASSERT_EQ(test, migrator_select(&registry, "auto"), 0);
	kinds.channels = 0;
	for (n = 0; n < 1000 && !kinds.channels; n++)
		auto_stage(test, 1, MR_COMPACTION);
	KUNIT_EXPECT_GT_MSG(test, kinds.channels, 0, "this test is a kernel thread");
	auto_end(test);
}

/* CPUs and channels share a batch, between them every folio is copied, whole. */
static void test_auto_split(struct kunit *test)
{
	const struct migrator_policy *policy;
	struct migrator_batch *batch;
	struct test_lists lists;
	struct folio *dst;
	unsigned int i;

	auto_begin(test);
	KUNIT_ASSERT_EQ(test, migrator_add(&registry, &cpus_migrator), 0);
	policy = rcu_dereference_protected(registry.policy, true);
	KUNIT_ASSERT_NOT_NULL(test, policy);
	KUNIT_ASSERT_NOT_NULL(test, policy->cpus);
	for (i = 0; i < 4; i++) {
		struct migrator_stage stage = {
			.src_folios = &lists.src, .dst_folios = &lists.dst,
			.bad_src = &lists.bad_src, .bad_dst = &lists.bad_dst,
			.reason = MR_SYSCALL,
		};
		const struct migrator_lanes lanes = { .cpus = 2, .channels = 2 };
		unsigned int copied = 0, n;
		size_t bytes;
		u64 times[2] = { };

		init_lists(&lists);
		for (n = 0; n < 3; n++)
			add_pair(test, &lists, get_order(SZ_256K), n + 1);
		stage.src = list_first_entry(&lists.src, struct folio, lru);
		stage.dst = list_first_entry(&lists.dst, struct folio, lru);
		kinds.fail_start = i == 3;
		batch = migrator_claim_batch(policy->cpus);
		bytes = migrator_auto_split(&stage, policy, batch, i < 3 ? i * SZ_256K : SZ_256K,
					    3 * SZ_256K, &lanes, times);
		KUNIT_EXPECT_EQ(test, bytes, i < 3 ? 3 * SZ_256K : 0);
		migrator_release_batch(policy->cpus, batch);
		n = 0;
		list_for_each_entry(dst, &lists.dst, lru) {
			n++;
			if (!test_move_skips_copy(test, dst))
				continue;
			KUNIT_EXPECT_NULL(test, memchr_inv(folio_address(dst), n, folio_size(dst)));
			copied++;
		}
		KUNIT_EXPECT_EQ(test, copied, i < 3 ? 3 : 1);
		drop_pairs(&lists);
	}
	KUNIT_EXPECT_EQ(test, kinds.channels, 3);
	KUNIT_EXPECT_EQ(test, kinds.cpus, 3);
	migrator_remove(&registry, &cpus_migrator);
	auto_end(test);
}

/* A migrator whose copy lasts as long as the test wants, and who uses it and withdraws it. */
static struct {
	struct test_lists lists;
	struct completion copying, release, copied, leaving, left;
} slow;

static int slow_copy(struct migrator_batch *batch)
{
	complete(&slow.copying);
	wait_for_completion(&slow.release);
	return -EBUSY;
}

static const struct migrator slow_migrator = {
	.name = "kunit-slow",
	.copy = slow_copy,
};

static int slow_migrate(void *unused)
{
	run_stage(&slow.lists, MR_SYSCALL);
	complete(&slow.copied);
	return 0;
}

static int slow_leave(void *unused)
{
	complete(&slow.leaving);
	migrator_remove(&registry, &slow_migrator);
	complete_all(&slow.left);
	return 0;
}

/* Whoever withdraws a migrator may free it afterwards: nobody may be inside. */
static void test_leave_in_flight(struct kunit *test)
{
	init_completion(&slow.copying);
	init_completion(&slow.release);
	init_completion(&slow.copied);
	init_completion(&slow.leaving);
	init_completion(&slow.left);
	init_lists(&slow.lists);
	add_pair(test, &slow.lists, get_order(SZ_256K), 1);
	KUNIT_ASSERT_EQ(test, migrator_add(&registry, &slow_migrator), 0);
	KUNIT_ASSERT_EQ(test, migrator_select(&registry, "kunit-slow"), 0);

	KUNIT_ASSERT_FALSE(test, IS_ERR(kthread_run(slow_migrate, NULL, "kunit-migrate")));
	wait_for_completion(&slow.copying);
	KUNIT_ASSERT_FALSE(test, IS_ERR(kthread_run(slow_leave, NULL, "kunit-leave")));
	wait_for_completion(&slow.leaving);
	KUNIT_EXPECT_FALSE_MSG(test, wait_for_completion_timeout(&slow.left, HZ),
			       "withdrawn while it copies");
	KUNIT_EXPECT_FALSE(test, completion_done(&slow.copied));

	complete(&slow.release);
	wait_for_completion(&slow.copied);
	wait_for_completion(&slow.left);
	expect_names(test, "[none] auto kunit\n");
	drop_pairs(&slow.lists);
}

static struct kunit_case migrator_test_cases[] = {
	KUNIT_CASE(test_names),
	KUNIT_CASE(test_choose),
	KUNIT_CASE(test_choose_fails),
	KUNIT_CASE(test_limits),
	KUNIT_CASE(test_reasons),
	KUNIT_CASE(test_several),
	KUNIT_CASE(test_stage),
	KUNIT_CASE(test_quarantine),
	KUNIT_CASE(test_poison),
	KUNIT_CASE(test_hugetlb_private),
	KUNIT_CASE(test_small_batches),
	KUNIT_CASE(test_batch_pages),
	KUNIT_CASE(test_only),
	KUNIT_CASE(test_only_stays),
	KUNIT_CASE(test_auto_opens),
	KUNIT_CASE(test_auto_learns),
	KUNIT_CASE(test_auto_small),
	KUNIT_CASE(test_auto_urgent),
	KUNIT_CASE(test_auto_split),
	KUNIT_CASE(test_leave_in_flight),
	{}
};

static struct kunit_suite migrator_test_suite = {
	.name = "migrator",
	.init = migrator_test_init,
	.exit = migrator_test_exit,
	.test_cases = migrator_test_cases,
};

kunit_test_suite(migrator_test_suite);
