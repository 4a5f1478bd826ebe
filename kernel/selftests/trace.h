/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Trace events in a buffer of their own, so that nobody else's tracing is disturbed.
 */
#ifndef _TRACE_H
#define _TRACE_H

#include <stdbool.h>
#include <stddef.h>

/* One event as the kernel printed it. */
struct trace_event {
	int pid;
	int cpu;
	/* In an interrupt that came while @pid ran. */
	bool interrupt;
	double seconds;
	char name[48];
	char fields[256];
};

/*
 * Starts tracing of events "SYSTEM/EVENT" or "SYSTEM", NULL at the end, with the buffer
 * empty. Bails out if the kernel does not have them.
 */
void trace_start(const char *const *events);

/* Stops, reads what there is in the order of time, and counts it. Bails out on lost events. */
size_t trace_stop(struct trace_event **events);

/* The number after "FIELD=" of an event; -1 if it has none. */
long long trace_field(const struct trace_event *event, const char *field);

/* Whether an event is called so. */
bool trace_is(const struct trace_event *event, const char *name);

#endif /* _TRACE_H */
