// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of single folios: which of them may be copied ahead of their move, and that a
 * move which failed copies when it is tried again.
 */
#include <kunit/test.h>
#include <linux/buffer_head.h>
#include <linux/gfp.h>
#include <linux/memcontrol.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/pagemap.h>

#include "internal.h"
#include "migrator.h"

static const struct migrator plain;

/* Two folios as migrate_pages_batch() holds them: locked, off the LRU, not mapped. */
struct test_pair {
	struct folio *src;
	struct folio *dst;
};

static void make_pair(struct kunit *test, struct test_pair *pair, unsigned int order)
{
	pair->src = folio_alloc(GFP_KERNEL, order);
	pair->dst = folio_alloc(GFP_KERNEL, order);
	KUNIT_ASSERT_NOT_NULL(test, pair->src);
	KUNIT_ASSERT_NOT_NULL(test, pair->dst);
	__folio_set_locked(pair->src);
	__folio_set_locked(pair->dst);
}

static void drop_pair(struct test_pair *pair)
{
	__folio_clear_locked(pair->src);
	__folio_clear_locked(pair->dst);
	pair->dst->private = NULL;
	folio_put(pair->src);
	folio_put(pair->dst);
}

static bool eligible(struct test_pair *pair)
{
	return migrator_eligible(&plain, pair->src, pair->dst);
}

static int own_migrate_folio(struct address_space *mapping, struct folio *dst,
			     struct folio *src, enum migrate_mode mode)
{
	return -EAGAIN;
}

static ssize_t read_nothing(struct kiocb *kiocb, struct iov_iter *to)
{
	return 0;
}

static const struct file_operations readable = { .read_iter = read_nothing };
static const struct file_operations not_opened = { };

/* A file that users open. */
static struct inode test_file = { .i_mode = S_IFREG, .i_fop = &readable };

/* Whether a folio may be copied that is in @mapping. */
static bool mapping_eligible(struct test_pair *pair, struct address_space *mapping)
{
	bool good;

	pair->src->mapping = mapping;
	folio_ref_add(pair->src, folio_nr_pages(pair->src));
	good = eligible(pair);
	folio_ref_sub(pair->src, folio_nr_pages(pair->src));
	pair->src->mapping = NULL;
	return good;
}

/* Whether a folio of a file may be copied whose mapping migrates by @migrate. */
static bool file_eligible(struct test_pair *pair,
			  int (*migrate)(struct address_space *, struct folio *,
					 struct folio *, enum migrate_mode))
{
	const struct address_space_operations operations = { .migrate_folio = migrate };
	struct address_space mapping = { .host = &test_file, .a_ops = &operations };

	return mapping_eligible(pair, &mapping);
}

static void test_mappings(struct kunit *test)
{
	unsigned int order;

	for (order = 0; order <= 4; order += 4) {
		struct test_pair pair;

		make_pair(test, &pair, order);
		KUNIT_EXPECT_TRUE(test, eligible(&pair));
		KUNIT_EXPECT_TRUE(test, file_eligible(&pair, migrate_folio));
		KUNIT_EXPECT_TRUE(test, file_eligible(&pair, filemap_migrate_folio));
		KUNIT_EXPECT_FALSE(test, file_eligible(&pair, own_migrate_folio));
		KUNIT_EXPECT_FALSE(test, file_eligible(&pair, NULL));
#ifdef CONFIG_BUFFER_HEAD
		KUNIT_EXPECT_TRUE(test, file_eligible(&pair, buffer_migrate_folio));
		KUNIT_EXPECT_FALSE(test, file_eligible(&pair, buffer_migrate_folio_norefs));
#endif
		drop_pair(&pair);
	}
}

/* Only of regular files that users can open, mapped by some or not. The swap cache has no inode. */
static void test_owners(struct kunit *test)
{
	const struct address_space_operations operations = { .migrate_folio = migrate_folio };
	static struct inode folder = { .i_mode = S_IFDIR, .i_fop = &readable };
	static struct inode device = { .i_mode = S_IFBLK, .i_fop = &readable };
	static struct inode tree = { .i_mode = S_IFREG, .i_fop = &not_opened };
	struct inode *const others[] = { NULL, &folder, &device, &tree };
	struct address_space mapping = { .host = &test_file, .a_ops = &operations };
	struct test_pair pair;
	unsigned int i;

	make_pair(test, &pair, 0);
	KUNIT_EXPECT_TRUE(test, mapping_eligible(&pair, &mapping));
	pair.dst->migrate_info = FOLIO_WAS_MAPPED;
	KUNIT_EXPECT_TRUE(test, mapping_eligible(&pair, &mapping));
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		mapping.host = others[i];
		KUNIT_EXPECT_FALSE_MSG(test, mapping_eligible(&pair, &mapping), "%u", i);
	}
	drop_pair(&pair);
}

/* Memory that the kernel itself must not read. */
static void test_inaccessible(struct kunit *test)
{
	const struct address_space_operations operations = { .migrate_folio = migrate_folio };
	struct address_space mapping = { .host = &test_file, .a_ops = &operations };
	struct test_pair pair;

	make_pair(test, &pair, 0);
	KUNIT_EXPECT_TRUE(test, mapping_eligible(&pair, &mapping));
	mapping_set_inaccessible(&mapping);
	KUNIT_EXPECT_FALSE(test, mapping_eligible(&pair, &mapping));
	drop_pair(&pair);
}

/* Private data of a file's folio: its owner wants to be told before the copy. */
static void test_private(struct kunit *test)
{
	struct test_pair pair;

	make_pair(test, &pair, 0);
	folio_attach_private(pair.src, &pair);
	KUNIT_EXPECT_FALSE(test, file_eligible(&pair, filemap_migrate_folio));
	KUNIT_EXPECT_FALSE(test, file_eligible(&pair, migrate_folio));
	folio_detach_private(pair.src);
	KUNIT_EXPECT_TRUE(test, file_eligible(&pair, filemap_migrate_folio));
	folio_set_private_2(pair.src);
	KUNIT_EXPECT_FALSE(test, file_eligible(&pair, filemap_migrate_folio));
	folio_clear_private_2(pair.src);
	drop_pair(&pair);
}

/* Pages of drivers move by their owner's rules; so the batch must not touch them. */
static void test_movable_ops(struct kunit *test)
{
	struct test_pair pair;

	make_pair(test, &pair, 0);
	__SetPageOffline(&pair.src->page);
	SetPageMovableOps(&pair.src->page);
	KUNIT_EXPECT_FALSE(test, eligible(&pair));
	__ClearPageOffline(&pair.src->page);
	pair.src->mapping = NULL;
	drop_pair(&pair);
}

static void test_poisoned(struct kunit *test)
{
#ifdef CONFIG_MEMORY_FAILURE
	struct test_pair pair;

	make_pair(test, &pair, 0);
	SetPageHWPoison(&pair.src->page);
	KUNIT_EXPECT_FALSE(test, eligible(&pair));
	ClearPageHWPoison(&pair.src->page);
	KUNIT_EXPECT_TRUE(test, eligible(&pair));
	drop_pair(&pair);

	make_pair(test, &pair, 4);
	folio_set_has_hwpoisoned(pair.src);
	KUNIT_EXPECT_FALSE(test, eligible(&pair));
	folio_clear_has_hwpoisoned(pair.src);
	KUNIT_EXPECT_TRUE(test, eligible(&pair));
	drop_pair(&pair);
#else
	kunit_skip(test, "no CONFIG_MEMORY_FAILURE");
#endif
}

static void expect_content(struct kunit *test, struct folio *folio, u8 byte)
{
	KUNIT_EXPECT_NULL(test, memchr_inv(folio_address(folio), byte, folio_size(folio)));
}

/* What was copied early may be old when the move is tried again. */
static void test_second_attempt(struct kunit *test)
{
	struct test_pair pair;

	make_pair(test, &pair, 0);
	KUNIT_ASSERT_EQ(test, mem_cgroup_charge(pair.src, NULL, GFP_KERNEL), 0);
	memset(folio_address(pair.src), 1, PAGE_SIZE);
	memset(folio_address(pair.dst), 2, PAGE_SIZE);
	pair.dst->migrate_info = FOLIO_WAS_COPIED;

	folio_get(pair.src);
	KUNIT_EXPECT_EQ(test, migrate_folio(NULL, pair.dst, pair.src, MIGRATE_SYNC), -EAGAIN);
	KUNIT_EXPECT_NULL(test, pair.dst->private);
	folio_put(pair.src);
	KUNIT_EXPECT_EQ(test, migrate_folio(NULL, pair.dst, pair.src, MIGRATE_SYNC), 0);
	expect_content(test, pair.dst, 1);
	drop_pair(&pair);
}

/* And the first attempt does not copy again. */
static void test_first_attempt(struct kunit *test)
{
	struct test_pair pair;

	make_pair(test, &pair, 0);
	KUNIT_ASSERT_EQ(test, mem_cgroup_charge(pair.src, NULL, GFP_KERNEL), 0);
	memset(folio_address(pair.src), 1, PAGE_SIZE);
	memset(folio_address(pair.dst), 2, PAGE_SIZE);
	pair.dst->migrate_info = FOLIO_WAS_COPIED;
	KUNIT_EXPECT_EQ(test, migrate_folio(NULL, pair.dst, pair.src, MIGRATE_SYNC), 0);
	expect_content(test, pair.dst, 2);
	KUNIT_EXPECT_NULL(test, pair.dst->private);
	drop_pair(&pair);
}

static struct kunit_case migrator_folios_test_cases[] = {
	KUNIT_CASE(test_mappings),
	KUNIT_CASE(test_owners),
	KUNIT_CASE(test_inaccessible),
	KUNIT_CASE(test_private),
	KUNIT_CASE(test_movable_ops),
	KUNIT_CASE(test_poisoned),
	KUNIT_CASE(test_first_attempt),
	KUNIT_CASE(test_second_attempt),
	{}
};

static struct kunit_suite migrator_folios_test_suite = {
	.name = "migrator-folios",
	.test_cases = migrator_folios_test_cases,
};

kunit_test_suite(migrator_folios_test_suite);
