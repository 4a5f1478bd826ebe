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

/* Of CLOCK_MONOTONIC. */
void sleep_until(long long ns);

/* Looks each @us whether @condition holds, for @ms at most. Whether it did at last. */
#define wait_until(condition, ms, us)						\
({										\
	long long wait_end = now_ms() + (ms);					\
	bool wait_holds;							\
										\
	while (!(wait_holds = (condition)) && now_ms() < wait_end)		\
		usleep(us);							\
	wait_holds;								\
})

/* Sorts the values. */
double median_of(double *values, int count);

#endif /* _CLOCK_H */
