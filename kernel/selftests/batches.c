// SPDX-License-Identifier: GPL-2.0-only
/* The batches of one move, told by the trace events. */
#include "batches.h"
#include "trace.h"

#include <stdlib.h>
#include <unistd.h>

/* An event of the task itself. */
static void add_own(struct batches *seen, const struct trace_event *event)
{
	long long part = trace_field(event, "bytes"), ns = trace_field(event, "ns");

	if (trace_is(event, "migrator_batch_start")) {
		seen->started++;
		if (part > seen->largest)
			seen->largest = part;
		if (part < seen->smallest || seen->smallest < 0)
			seen->smallest = part;
	}
	if (trace_is(event, "migrator_batch_done") && !trace_field(event, "error")) {
		seen->finished++;
		seen->bytes += part;
		seen->folios += trace_field(event, "folios");
		if (ns > seen->longest_ns)
			seen->longest_ns = ns;
	}
}

void batches_start(void)
{
	static const char *const names[] = { "migrator", NULL };

	trace_start(names);
}

struct batches batches_stop(void)
{
	struct batches seen = { .smallest = -1 };
	struct trace_event *events;
	unsigned long lanes = 0;
	size_t count;

	count = trace_stop(&events);
	for (size_t n = 0; n < count; n++) {
		long long part = trace_field(&events[n], "bytes");

		if (trace_is(&events[n], "migrator_lane_done")) {
			seen.lane_bytes += part;
			if (part)
				lanes |= 1UL << trace_field(&events[n], "lane");
		}
		if (events[n].pid == getpid())
			add_own(&seen, &events[n]);
	}
	free(events);
	seen.lanes = __builtin_popcountl(lanes);
	return seen;
}

size_t batches_move(struct memory *memory, int node, struct batches *seen)
{
	size_t left;

	batches_start();
	left = memory_move(memory, node, 1);
	*seen = batches_stop();
	return left;
}
