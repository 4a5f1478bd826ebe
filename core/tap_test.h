/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the core's tests need of their host: TAP, one line per test, the first failed check of a
 * test beside it. Not part of the core. Linux has a file of this name that makes KUnit tests of
 * the same sources.
 */
#ifndef MEMFERRY_TAP_TEST_H
#define MEMFERRY_TAP_TEST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One test: what it says and does. */
struct tap_test {
	const char *name;
	void (*run)(void);
};

#define TEST(function)	{ #function, function }

static int tap_failed_checks;

/* Counts and reports a failed check; a test goes on, so that loops stay simple. */
#define CHECK(condition)							\
	do {									\
		if (!(condition) && !tap_failed_checks++)			\
			printf("# %s:%d: %s\n", __FILE__, __LINE__, #condition);\
	} while (0)

static int tap_run(const struct tap_test *tests, int nr)
{
	int i, failed = 0;

	for (i = 0; i < nr; i++) {
		tap_failed_checks = 0;
		tests[i].run();
		failed += tap_failed_checks != 0;
		printf("%s %d - %s\n", tap_failed_checks ? "not ok" : "ok", i + 1, tests[i].name);
	}
	printf("1..%d\n", nr);
	return failed != 0;
}

/* The program: all of @tests. @name is for hosts that have several suites in one program. */
#define TAP_SUITE(name, tests)							\
int main(void)									\
{										\
	return tap_run(tests, sizeof(tests) / sizeof((tests)[0]));		\
}

/* Memory that is too much for the stack, or NULL. */
static inline void *tap_allocate(size_t bytes)
{
	return malloc(bytes);
}

static inline void tap_release(void *memory)
{
	free(memory);
}

/* Numbers that look random and are the same on every run (Steele's splitmix64). */
static inline uint64_t tap_random(uint64_t below)
{
	static uint64_t state;
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (z ^ z >> 31) % below;
}

#endif /* MEMFERRY_TAP_TEST_H */
