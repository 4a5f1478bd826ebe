/* SPDX-License-Identifier: GPL-2.0-only */
/* The time, and times. */
#ifndef _CLOCK_H
#define _CLOCK_H

#include <time.h>

/* Of CLOCK_MONOTONIC, which never goes back, or of a task's CPU time, in nanoseconds. */
long long now_ns(clockid_t clock);

/* Of CLOCK_MONOTONIC, in milliseconds. */
long long now_ms(void);

/* Sorts the values. */
double median_of(double *values, int count);

#endif /* _CLOCK_H */
