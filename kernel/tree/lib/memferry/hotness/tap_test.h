/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the policy core's tests need of their host: here they are KUnit tests. The sources
 * *_test.c are the same as in userspace, which has a file of this name of its own.
 */
#ifndef _MEMFERRY_TAP_TEST_H
#define _MEMFERRY_TAP_TEST_H

#include <kunit/test-bug.h>
#include <kunit/test.h>
#include <linux/limits.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/string.h>

#define INT32_MAX	S32_MAX
#define UINT32_MAX	U32_MAX
#define UINT64_MAX	U64_MAX

/* One test: what it says and does. */
struct tap_test {
	const char *name;
	void (*run)(void);
};

#define TEST(function)	{ #function, function }

static int tap_failed_checks;

/* Reports the first failed check of a test, which goes on. */
#define CHECK(condition)							\
	do {									\
		if (!(condition) && !tap_failed_checks++)			\
			KUNIT_FAIL(kunit_get_current_test(), "%s", #condition);	\
	} while (0)

/* A suite of KUnit whose one case has @tests, an array, as its parameters. */
#define TAP_SUITE(suite, tests)							\
KUNIT_ARRAY_PARAM_DESC(tap, tests, name);					\
										\
static void suite##_case(struct kunit *test)					\
{										\
	const struct tap_test *one = test->param_value;				\
										\
	tap_failed_checks = 0;							\
	one->run();								\
}										\
										\
static struct kunit_case tap_cases[] = {					\
	KUNIT_CASE_PARAM_ATTR(suite##_case, tap_gen_params,			\
			      { .speed = KUNIT_SPEED_SLOW }),			\
	{}									\
};										\
										\
static struct kunit_suite tap_suite = {						\
	.name = "memferry-" #suite,						\
	.test_cases = tap_cases,						\
};										\
										\
kunit_test_suite(tap_suite);

/* Memory that is too much for the stack, or NULL. */
static inline void *tap_allocate(size_t bytes)
{
	return kvmalloc(bytes, GFP_KERNEL);
}

static inline void tap_release(void *memory)
{
	kvfree(memory);
}

/*
 * Numbers that look random and are the same on every run (Steele's splitmix64). Every test that
 * takes long asks for some in its outer loop, and so lets others run.
 */
static inline u64 tap_random(u64 below)
{
	static u64 state;
	u64 z = state += 0x9e3779b97f4a7c15u;

	cond_resched();

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (z ^ z >> 31) % below;
}

#endif /* _MEMFERRY_TAP_TEST_H */
