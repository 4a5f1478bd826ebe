// SPDX-License-Identifier: GPL-2.0-only
/* The time. */
#include "clock.h"

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
