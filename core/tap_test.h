/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * TAP for the hosted tests of the core: one line per test, the first failed check of
 * a test beside it. Not part of the core.
 */
#ifndef MEMFERRY_TAP_TEST_H
#define MEMFERRY_TAP_TEST_H

#include <stdint.h>
#include <stdio.h>

static int tap_tests, tap_failed_tests, tap_failed_checks;

/* Counts and reports a failed check; a test goes on, so that loops stay simple. */
#define CHECK(condition)							\
	do {									\
		if (!(condition) && !tap_failed_checks++)			\
			printf("# %s:%d: %s\n", __FILE__, __LINE__, #condition);\
	} while (0)

#define RUN(test)								\
	do {									\
		tap_failed_checks = 0;						\
		test();								\
		tap_tests++;							\
		tap_failed_tests += tap_failed_checks != 0;			\
		printf("%s %d - %s\n", tap_failed_checks ? "not ok" : "ok",	\
		       tap_tests, #test);					\
	} while (0)

static int tap_done(void)
{
	printf("1..%d\n", tap_tests);
	return tap_failed_tests != 0;
}

/* Numbers that look random and are the same on every run (Steele's splitmix64). */
static uint64_t tap_random(uint64_t below)
{
	static uint64_t state;
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (z ^ z >> 31) % below;
}

#endif /* MEMFERRY_TAP_TEST_H */
