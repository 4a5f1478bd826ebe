// SPDX-License-Identifier: GPL-2.0-only
/* The time, and times. */
#include "clock.h"

#include <stdlib.h>

long long now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

long long now_ms(void)
{
	return now_ns(CLOCK_MONOTONIC) / 1000000;
}

void sleep_until(long long ns)
{
	struct timespec at = { ns / 1000000000LL, ns % 1000000000LL };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL))
		;
}

static int by_size(const void *one, const void *other)
{
	const double *a = one, *b = other;

	return (*a > *b) - (*a < *b);
}

double median_of(double *values, int count)
{
	qsort(values, count, sizeof(*values), by_size);
	return (values[(count - 1) / 2] + values[count / 2]) / 2;
}
