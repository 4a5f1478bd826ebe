// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the order in which CPUs get lanes, on machines that are made up: two
 * last-level caches, each of two cores with two threads.
 */
#include <kunit/test.h>
#include <linux/migrator.h>

#include "migrator.h"

/* @machine's caches and cores are places in it. */
static void expect_order(struct kunit *test, const struct migrator_cpu *machine, unsigned int nr,
			 bool fill, const int *order)
{
	struct migrator_cpus *cpus = kunit_kzalloc(test, sizeof(*cpus), GFP_KERNEL);
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, cpus);
	memcpy(cpus->seen, machine, nr * sizeof(*machine));
	cpus->fill = fill;
	cpus->nr_seen = nr;
	cpus->want = nr;
	migrator_place_cpus(cpus);
	KUNIT_EXPECT_EQ(test, cpus->nr, nr);
	for (i = 0; i < nr; i++)
		KUNIT_EXPECT_EQ_MSG(test, cpus->cpus[i], order[i], "place %u", i);
}

/* First all cores' first threads are counted, then their second ones: as most PCs do. */
static void test_threads_apart(struct kunit *test)
{
	static const struct migrator_cpu machine[] = {
		{ .cpu = 0, .cache = 0, .core = 0 }, { .cpu = 1, .cache = 0, .core = 1 },
		{ .cpu = 2, .cache = 2, .core = 2 }, { .cpu = 3, .cache = 2, .core = 3 },
		{ .cpu = 4, .cache = 0, .core = 0 }, { .cpu = 5, .cache = 0, .core = 1 },
		{ .cpu = 6, .cache = 2, .core = 2 }, { .cpu = 7, .cache = 2, .core = 3 },
	};
	static const int spread[] = { 0, 2, 1, 3, 4, 6, 5, 7 };
	static const int fill[] = { 0, 1, 4, 5, 2, 3, 6, 7 };

	expect_order(test, machine, 8, false, spread);
	expect_order(test, machine, 8, true, fill);
}

/* The threads of a core follow each other. */
static void test_threads_together(struct kunit *test)
{
	static const struct migrator_cpu machine[] = {
		{ .cpu = 0, .cache = 0, .core = 0 }, { .cpu = 1, .cache = 0, .core = 0 },
		{ .cpu = 2, .cache = 0, .core = 2 }, { .cpu = 3, .cache = 0, .core = 2 },
		{ .cpu = 4, .cache = 4, .core = 4 }, { .cpu = 5, .cache = 4, .core = 4 },
		{ .cpu = 6, .cache = 4, .core = 6 }, { .cpu = 7, .cache = 4, .core = 6 },
	};
	static const int spread[] = { 0, 4, 2, 6, 1, 5, 3, 7 };
	static const int fill[] = { 0, 2, 1, 3, 4, 6, 5, 7 };

	expect_order(test, machine, 8, false, spread);
	expect_order(test, machine, 8, true, fill);
}

/* The caches have unlike numbers of CPUs, and CPU 0 is off line: 4 is alone on its core. */
static void test_holes(struct kunit *test)
{
	static const struct migrator_cpu machine[] = {
		{ .cpu = 2, .cache = 0, .core = 0 }, { .cpu = 3, .cache = 0, .core = 1 },
		{ .cpu = 4, .cache = 2, .core = 2 }, { .cpu = 6, .cache = 0, .core = 0 },
		{ .cpu = 7, .cache = 0, .core = 1 },
	};
	static const int spread[] = { 2, 4, 3, 6, 7 };
	static const int fill[] = { 2, 3, 6, 7, 4 };

	expect_order(test, machine, 5, false, spread);
	expect_order(test, machine, 5, true, fill);
}

/* A busy CPU comes after all idle ones, wherever it is. */
static void test_busy(struct kunit *test)
{
	static const struct migrator_cpu machine[] = {
		{ .cpu = 0, .cache = 0, .core = 0, .busy = true },
		{ .cpu = 1, .cache = 0, .core = 1 }, { .cpu = 2, .cache = 0, .core = 2 },
	};
	static const int order[] = { 1, 2, 0 };

	expect_order(test, machine, 3, false, order);
	expect_order(test, machine, 3, true, order);
}

/* The class of a task says whether it has helpers, and which. */
static void test_classes(struct kunit *test)
{
	static const struct {
		int policy;
		int nice;
		unsigned int flags;
		bool helpers;
		bool idle_only;
		bool high;
	} classes[] = {
		{ SCHED_NORMAL, 0, 0, true, false, false },
		{ SCHED_BATCH, 5, 0, true, false, false },
		{ SCHED_NORMAL, MAX_NICE, 0, false, false, false },
		{ SCHED_IDLE, 0, 0, false, false, false },
		{ SCHED_NORMAL, 0, PF_KSWAPD, true, true, false },
		{ SCHED_NORMAL, 0, PF_KCOMPACTD, true, true, false },
		{ SCHED_NORMAL, MIN_NICE, 0, true, false, true },
		{ SCHED_FIFO, 0, 0, true, false, true },
	};
	struct task_struct *task = kunit_kzalloc(test, sizeof(*task), GFP_KERNEL);
	struct migrator_cpus *cpus = kunit_kzalloc(test, sizeof(*cpus), GFP_KERNEL);
	unsigned int i, wanted;

	KUNIT_ASSERT_NOT_NULL(test, task);
	KUNIT_ASSERT_NOT_NULL(test, cpus);
	for (i = 0; i < ARRAY_SIZE(classes); i++) {
		task->policy = classes[i].policy;
		task->static_prio = NICE_TO_PRIO(classes[i].nice);
		task->flags = classes[i].flags;
		for (wanted = 0; wanted < 2; wanted++) {
			cpus->idle_only = wanted;
			KUNIT_EXPECT_EQ_MSG(test, migrator_may_have_helpers(task, &cpus->idle_only,
									    &cpus->high),
					    classes[i].helpers, "class %u", i);
			KUNIT_EXPECT_EQ_MSG(test, cpus->high, classes[i].high, "class %u", i);
			KUNIT_EXPECT_EQ_MSG(test, cpus->idle_only, !classes[i].high &&
					    (wanted || classes[i].idle_only), "class %u", i);
		}
	}
}

static struct kunit_case migrator_cpus_test_cases[] = {
	KUNIT_CASE(test_threads_apart),
	KUNIT_CASE(test_threads_together),
	KUNIT_CASE(test_holes),
	KUNIT_CASE(test_busy),
	KUNIT_CASE(test_classes),
	{}
};

static struct kunit_suite migrator_cpus_test_suite = {
	.name = "migrator-cpus",
	.test_cases = migrator_cpus_test_cases,
};

kunit_test_suite(migrator_cpus_test_suite);
