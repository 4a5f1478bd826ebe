// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the registry of migrators, and of the stage that gives them folios.
 *
 * They run at boot, before anybody could have chosen a migrator, and leave none active.
 */
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

#include "migrator.h"

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
	migrator_show_names(page);
	KUNIT_EXPECT_STREQ(test, page, names);
	free_page((unsigned long)page);
}

static int migrator_test_init(struct kunit *test)
{
	memset(&seen, 0, sizeof(seen));
	return migrator_register(&test_migrator);
}

static void migrator_test_exit(struct kunit *test)
{
	migrator_select("none");
	migrator_unregister(&test_migrator);
	KUNIT_EXPECT_EQ(test, seen.activations, 0);
	KUNIT_EXPECT_EQ(test, seen.batches_made, 0);
}

static void test_names(struct kunit *test)
{
	static const char *const bad[] = {
		"", "none", "with space", "a/b", "new\nline", "sixteen-letters-", NULL,
	};
	struct migrator wrong = { .copy = test_copy };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		wrong.name = bad[i];
		KUNIT_EXPECT_EQ_MSG(test, migrator_register(&wrong), -EINVAL, "name %s", bad[i]);
	}
	wrong.name = "kunit";
	KUNIT_EXPECT_EQ(test, migrator_register(&wrong), -EEXIST);
	wrong.name = "nocopy";
	wrong.copy = NULL;
	KUNIT_EXPECT_EQ(test, migrator_register(&wrong), -EINVAL);
	expect_names(test, "[none] kernel kunit\n");
}

static void test_choose(struct kunit *test)
{
	KUNIT_ASSERT_EQ(test, migrator_register(&other_migrator), 0);
	expect_names(test, "[none] kernel kunit kunit-other\n");
	KUNIT_EXPECT_FALSE(test, static_key_enabled(&migrator_active_key));

	KUNIT_EXPECT_EQ(test, migrator_select("kunit"), 0);
	expect_names(test, "none kernel [kunit] kunit-other\n");
	KUNIT_EXPECT_TRUE(test, static_key_enabled(&migrator_active_key));
	KUNIT_EXPECT_EQ(test, seen.activations, 1);
	KUNIT_EXPECT_GT(test, seen.batches_made, 0);

	/* What is not there changes nothing; what is active already stays as it is. */
	KUNIT_EXPECT_EQ(test, migrator_select("kuni"), -EINVAL);
	KUNIT_EXPECT_EQ(test, migrator_select(""), -EINVAL);
	KUNIT_EXPECT_EQ(test, migrator_select("kunit"), 0);
	KUNIT_EXPECT_EQ(test, seen.activations, 1);
	expect_names(test, "none kernel [kunit] kunit-other\n");

	KUNIT_EXPECT_EQ(test, migrator_select("kunit-other"), 0);
	KUNIT_EXPECT_EQ(test, seen.activations, 0);
	KUNIT_EXPECT_EQ(test, seen.batches_made, 0);
	KUNIT_EXPECT_TRUE(test, static_key_enabled(&migrator_active_key));

	/* The active one goes: none is active. */
	migrator_unregister(&other_migrator);
	expect_names(test, "[none] kernel kunit\n");
	KUNIT_EXPECT_FALSE(test, static_key_enabled(&migrator_active_key));
}

static void test_choose_fails(struct kunit *test)
{
	KUNIT_ASSERT_EQ(test, migrator_select("kernel"), 0);

	seen.activate_error = -ENODEV;
	KUNIT_EXPECT_EQ(test, migrator_select("kunit"), -ENODEV);
	expect_names(test, "none [kernel] kunit\n");

	/* Some batches were made when one could not be. */
	seen.activate_error = 0;
	seen.fail_batch = num_possible_cpus() > 1 ? 2 : 1;
	KUNIT_EXPECT_EQ(test, migrator_select("kunit"), -ENOSPC);
	KUNIT_EXPECT_EQ(test, seen.activations, 0);
	KUNIT_EXPECT_EQ(test, seen.batches_made, 0);
	expect_names(test, "none [kernel] kunit\n");
}

static void test_limits(struct kunit *test)
{
	size_t min = migrator_min_batch(), max = migrator_max_batch();
	int made;

	KUNIT_EXPECT_EQ(test, migrator_set_min_batch(max + 1), -EINVAL);
	KUNIT_EXPECT_EQ(test, migrator_set_max_batch(PAGE_SIZE), -EINVAL);
	KUNIT_EXPECT_EQ(test, migrator_set_max_batch(max + 1), -EINVAL);
	KUNIT_EXPECT_EQ(test, migrator_set_max_batch(SIZE_MAX & PAGE_MASK), -EINVAL);
	KUNIT_EXPECT_EQ(test, migrator_min_batch(), min);
	KUNIT_EXPECT_EQ(test, migrator_max_batch(), max);

	/* The active migrator's batches grow with the limit. */
	KUNIT_ASSERT_EQ(test, migrator_select("kunit"), 0);
	made = seen.batches_made;
	KUNIT_EXPECT_EQ(test, migrator_set_max_batch(2 * max), 0);
	KUNIT_EXPECT_EQ(test, seen.batches_made, made);
	KUNIT_EXPECT_EQ(test, seen.activations, 1);
	KUNIT_EXPECT_EQ(test, migrator_max_batch(), 2 * max);

	/* And if they cannot, the limit stays with them. */
	seen.fail_batch = made + 1;
	KUNIT_EXPECT_EQ(test, migrator_set_max_batch(max), -ENOSPC);
	KUNIT_EXPECT_EQ(test, seen.batches_made, made);
	KUNIT_EXPECT_EQ(test, migrator_max_batch(), 2 * max);
	expect_names(test, "none kernel [kunit]\n");
	seen.fail_batch = 0;
	/* What it is at first can be written back, whatever the size of huge pages. */
	KUNIT_EXPECT_EQ(test, migrator_set_max_batch(max), 0);
}

static void test_reasons(struct kunit *test)
{
	static const struct {
		const char *text;
		unsigned int mask;
	} good[] = {
		{ "all", GENMASK(MR_TYPES - 1, 0) },
		{ "none\n", 0 },
		{ "demotion", BIT(MR_DEMOTION) },
		{ " compaction  numa_misplaced\n", BIT(MR_COMPACTION) | BIT(MR_NUMA_MISPLACED) },
		{ "damon damon", BIT(MR_DAMON) },
	};
	static const char *const bad[] = {
		"", "\n", "demo", "demotion,damon", "all none", "demotion all", "-1", "Demotion",
	};
	unsigned int i, mask;

	for (i = 0; i < ARRAY_SIZE(good); i++) {
		mask = 0xdead;
		KUNIT_EXPECT_EQ(test, migrator_parse_reasons(good[i].text, &mask), 0);
		KUNIT_EXPECT_EQ_MSG(test, mask, good[i].mask, "%s", good[i].text);
	}
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		mask = 0xdead;
		KUNIT_EXPECT_EQ_MSG(test, migrator_parse_reasons(bad[i], &mask), -EINVAL, "%s",
				    bad[i]);
		KUNIT_EXPECT_EQ(test, mask, 0xdead);
	}
}

/* The state that unmapping leaves in a destination, which the mark must leave alone. */
#define TEST_STATE	(0xabc0UL | 1)

/* Folios as migrate_pages_batch() holds them: locked, off the LRU, not mapped. */
struct test_lists {
	struct list_head src;
	struct list_head dst;
};

static void add_pair(struct kunit *test, struct test_lists *lists, unsigned int order, u8 byte)
{
	struct folio *src = folio_alloc(GFP_KERNEL, order);
	struct folio *dst = folio_alloc(GFP_KERNEL | __GFP_ZERO, order);

	KUNIT_ASSERT_NOT_NULL(test, src);
	KUNIT_ASSERT_NOT_NULL(test, dst);
	memset(folio_address(src), byte, folio_size(src));
	__folio_set_locked(src);
	__folio_set_locked(dst);
	dst->private = (void *)TEST_STATE;
	list_add_tail(&src->lru, &lists->src);
	list_add_tail(&dst->lru, &lists->dst);
}

/* Whether the move of @dst would skip its copy; as __migrate_folio_extract() begins it. */
static bool test_move_skips_copy(struct kunit *test, struct folio *dst)
{
	unsigned long state = (unsigned long)dst->private;
	bool skips;

	KUNIT_EXPECT_EQ(test, state & ~MIGRATOR_FOLIO_COPIED, TEST_STATE);
	dst->private = migrator_keep_mark(state);
	skips = migrator_take_mark(dst);
	KUNIT_EXPECT_NULL(test, dst->private);
	KUNIT_EXPECT_FALSE_MSG(test, migrator_take_mark(dst), "once only");
	dst->private = (void *)TEST_STATE;
	return skips;
}

static void drop_pairs(struct list_head *folios)
{
	struct folio *folio, *next;

	list_for_each_entry_safe(folio, next, folios, lru) {
		list_del(&folio->lru);
		folio->private = NULL;
		__folio_clear_locked(folio);
		folio_put(folio);
	}
}

static void test_stage(struct kunit *test)
{
	struct test_lists lists;
	struct folio *src, *dst;
	unsigned int i, order = get_order(SZ_256K);

	INIT_LIST_HEAD(&lists.src);
	INIT_LIST_HEAD(&lists.dst);
	for (i = 0; i < 4; i++)
		add_pair(test, &lists, i == 3 ? 0 : order, i + 1);
	/* A reference that nobody accounts for, as of a pin: this one must wait. */
	src = list_first_entry(&lists.src, struct folio, lru);
	folio_get(src);

	migrator_copy_folios(&lists.src, &lists.dst, MR_SYSCALL);
	KUNIT_EXPECT_EQ_MSG(test, seen.copies, 0, "nothing is active");

	KUNIT_ASSERT_EQ(test, migrator_select("kunit"), 0);
	migrator_set_reasons(BIT(MR_DEMOTION));
	migrator_copy_folios(&lists.src, &lists.dst, MR_SYSCALL);
	KUNIT_EXPECT_EQ_MSG(test, seen.copies, 0, "not for this reason");

	seen.copy_error = -EBUSY;
	migrator_copy_folios(&lists.src, &lists.dst, MR_DEMOTION);
	KUNIT_EXPECT_EQ(test, seen.copies, 1);
	list_for_each_entry(dst, &lists.dst, lru)
		KUNIT_EXPECT_FALSE(test, test_move_skips_copy(test, dst));

	seen.copy_error = 0;
	migrator_copy_folios(&lists.src, &lists.dst, MR_DEMOTION);
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
	migrator_copy_folios(&lists.src, &lists.dst, MR_DEMOTION);
	i = 0;
	list_for_each_entry(dst, &lists.dst, lru) {
		KUNIT_EXPECT_EQ_MSG(test, test_move_skips_copy(test, dst), i > 1, "folio %u", i);
		i++;
	}

	migrator_set_reasons(GENMASK(MR_TYPES - 1, 0));
	folio_put(src);
	drop_pairs(&lists.src);
	drop_pairs(&lists.dst);
}

/* What a device may still write to is not moved to, and not freed when its move puts it. */
static void test_quarantine(struct kunit *test)
{
	size_t before = migrator_quarantined_bytes();
	unsigned int i, order = get_order(SZ_256K);
	struct test_lists lists;
	struct folio *dst, *kept[4];

	INIT_LIST_HEAD(&lists.src);
	INIT_LIST_HEAD(&lists.dst);
	for (i = 0; i < 4; i++)
		add_pair(test, &lists, order, i + 1);
	KUNIT_ASSERT_EQ(test, migrator_select("kunit"), 0);
	seen.quarantine = 2;
	migrator_copy_folios(&lists.src, &lists.dst, MR_DEMOTION);
	KUNIT_EXPECT_EQ(test, migrator_quarantined_bytes(), before + 2 * SZ_256K);

	i = 0;
	list_for_each_entry(dst, &lists.dst, lru) {
		KUNIT_EXPECT_EQ_MSG(test, test_move_skips_copy(test, dst), i % 2, "folio %u", i);
		KUNIT_EXPECT_EQ_MSG(test, migrator_take_quarantined(dst), !(i % 2), "folio %u", i);
		KUNIT_EXPECT_NULL(test, dst->mapping);
		KUNIT_EXPECT_FALSE_MSG(test, migrator_take_quarantined(dst), "once only");
		KUNIT_EXPECT_EQ(test, folio_ref_count(dst), i % 2 ? 1 : 2);
		kept[i++] = dst;
	}
	migrator_select("none");
	drop_pairs(&lists.src);
	drop_pairs(&lists.dst);
	for (i = 0; i < 4; i += 2) {
		KUNIT_EXPECT_EQ(test, folio_ref_count(kept[i]), 1);
		migrator_quarantine_release(kept[i]);
	}
	KUNIT_EXPECT_EQ(test, migrator_quarantined_bytes(), before);
}

/* What others keep in the private word is not taken for a mark: hugetlb's flags are bits. */
static void test_foreign_private(struct kunit *test)
{
	struct folio *dst = folio_alloc(GFP_KERNEL, 0);
	unsigned long value;

	KUNIT_ASSERT_NOT_NULL(test, dst);
	for (value = 1; value; value <<= 1) {
		dst->private = (void *)value;
		KUNIT_EXPECT_FALSE_MSG(test, migrator_take_mark(dst), "private %lx", value);
		KUNIT_EXPECT_PTR_EQ(test, dst->private, (void *)value);
	}
	dst->private = NULL;
	folio_put(dst);
}

static void test_small_batches(struct kunit *test)
{
	struct test_lists lists;

	INIT_LIST_HEAD(&lists.src);
	INIT_LIST_HEAD(&lists.dst);
	KUNIT_ASSERT_EQ(test, migrator_select("kunit"), 0);
	migrator_copy_folios(&lists.src, &lists.dst, MR_SYSCALL);
	add_pair(test, &lists, 0, 1);
	migrator_copy_folios(&lists.src, &lists.dst, MR_SYSCALL);
	add_pair(test, &lists, 0, 2);
	migrator_copy_folios(&lists.src, &lists.dst, MR_SYSCALL);
	KUNIT_EXPECT_EQ(test, seen.copies, 0);
	add_pair(test, &lists, get_order(SZ_256K), 3);
	migrator_copy_folios(&lists.src, &lists.dst, MR_SYSCALL);
	KUNIT_EXPECT_EQ(test, seen.copies, 1);
	drop_pairs(&lists.src);
	drop_pairs(&lists.dst);
}

static void test_batch_pages(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, migrator_batch_pages(MR_SYSCALL, 512), 512);
	KUNIT_ASSERT_EQ(test, migrator_select("kunit"), 0);
	KUNIT_EXPECT_EQ(test, migrator_batch_pages(MR_SYSCALL, 512),
			migrator_max_batch() >> PAGE_SHIFT);
	migrator_set_reasons(BIT(MR_DEMOTION));
	KUNIT_EXPECT_EQ(test, migrator_batch_pages(MR_SYSCALL, 512), 512);
	migrator_set_reasons(GENMASK(MR_TYPES - 1, 0));
}

/* A batch that was declined gained nothing from its size; the next one tries without. */
static void test_declined_batch_pages(struct kunit *test)
{
	unsigned int pages = migrator_max_batch() >> PAGE_SHIFT;
	struct test_lists lists;

	INIT_LIST_HEAD(&lists.src);
	INIT_LIST_HEAD(&lists.dst);
	KUNIT_ASSERT_EQ(test, migrator_select("kunit"), 0);
	add_pair(test, &lists, get_order(SZ_256K), 1);
	seen.copy_error = -EBUSY;
	migrator_copy_folios(&lists.src, &lists.dst, MR_SYSCALL);
	KUNIT_EXPECT_EQ(test, migrator_batch_pages(MR_SYSCALL, 16), 16);

	seen.copy_error = 0;
	migrator_copy_folios(&lists.src, &lists.dst, MR_SYSCALL);
	KUNIT_EXPECT_EQ(test, seen.copies, 2);
	KUNIT_EXPECT_EQ(test, migrator_batch_pages(MR_SYSCALL, 16), pages);

	/* What one migrator could not do says nothing about another. */
	seen.copy_error = -EBUSY;
	migrator_copy_folios(&lists.src, &lists.dst, MR_SYSCALL);
	KUNIT_ASSERT_EQ(test, migrator_select("kernel"), 0);
	KUNIT_EXPECT_EQ(test, migrator_batch_pages(MR_SYSCALL, 16), pages);
	drop_pairs(&lists.src);
	drop_pairs(&lists.dst);
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
	migrator_copy_folios(&slow.lists.src, &slow.lists.dst, MR_SYSCALL);
	complete(&slow.copied);
	return 0;
}

static int slow_leave(void *unused)
{
	complete(&slow.leaving);
	migrator_unregister(&slow_migrator);
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
	INIT_LIST_HEAD(&slow.lists.src);
	INIT_LIST_HEAD(&slow.lists.dst);
	add_pair(test, &slow.lists, get_order(SZ_256K), 1);
	KUNIT_ASSERT_EQ(test, migrator_register(&slow_migrator), 0);
	KUNIT_ASSERT_EQ(test, migrator_select("kunit-slow"), 0);

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
	expect_names(test, "[none] kernel kunit\n");
	drop_pairs(&slow.lists.src);
	drop_pairs(&slow.lists.dst);
}

/* Without its directory in sysfs nobody could choose a migrator. */
static void test_no_sysfs(struct kunit *test)
{
	struct kobject *kobj = migrator_stats_kobj;
	int error;

	migrator_stats_kobj = NULL;
	error = migrator_register(&other_migrator);
	migrator_stats_kobj = kobj;
	KUNIT_EXPECT_EQ(test, error, -ENODEV);
	if (!error)
		migrator_unregister(&other_migrator);
	expect_names(test, "[none] kernel kunit\n");
}

static struct kunit_case migrator_test_cases[] = {
	KUNIT_CASE(test_names),
	KUNIT_CASE(test_choose),
	KUNIT_CASE(test_choose_fails),
	KUNIT_CASE(test_limits),
	KUNIT_CASE(test_reasons),
	KUNIT_CASE(test_stage),
	KUNIT_CASE(test_quarantine),
	KUNIT_CASE(test_foreign_private),
	KUNIT_CASE(test_small_batches),
	KUNIT_CASE(test_batch_pages),
	KUNIT_CASE(test_declined_batch_pages),
	KUNIT_CASE(test_leave_in_flight),
	KUNIT_CASE(test_no_sysfs),
	{}
};

static struct kunit_suite migrator_test_suite = {
	.name = "migrator",
	.init = migrator_test_init,
	.exit = migrator_test_exit,
	.test_cases = migrator_test_cases,
};

kunit_test_suite(migrator_test_suite);
