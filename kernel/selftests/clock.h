/* SPDX-License-Identifier: GPL-2.0-only */
/* The time, and times. */
#ifndef _CLOCK_H
#define _CLOCK_H

#include <stdbool.h>
#include <time.h>
#include <unistd.h>

/* Of CLOCK_MONOTONIC, which never goes back, or of a task's CPU time, in nanoseconds. */
long long now_ns(clockid_t clock);

/* Of CLOCK_MONOTONIC, in milliseconds. */
long long now_ms(void);

static inline long long min_of(long long one, long long other)
{
	return one < other ? one : other;
}

/* Of CLOCK_MONOTONIC. */
void sleep_until(long long ns);

/*
 * Looks each @us whether @condition holds, for @ms at most. Whether it did at last. A look counts
 * for half a second and @us at most, as what the host takes from all of the guest is nobody's time;
 * but looks that take longer themselves end after three times @ms.
 */
#define wait_until(condition, ms, us)						\
({										\
	long long wait_left = (ms) * 1000LL, wait_now = now_ms(), wait_last;	\
	long long wait_end = wait_now + 3LL * (ms);				\
	bool wait_holds;							\
										\
	while (!(wait_holds = (condition)) && wait_left > 0 && wait_now < wait_end) { \
		usleep(us);							\
		wait_last = wait_now;						\
		wait_now = now_ms();						\
		wait_left -= min_of((wait_now - wait_last) * 1000, (us) + 500000LL); \
	}									\
	wait_holds;								\
})

/* Sorts the values. */
double median_of(double *values, int count);

#endif /* _CLOCK_H */
