// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_free: what a page of the slow node costs from its fault to its free, without a source of
 * hot-page tracking and with one. Of use where time is counted in instructions.
 */
#include "clock.h"
#include "files.h"
#include "memory.h"
#include "nodes.h"
#include "pages.h"
#include "pghot.h"
#include "tap.h"

#include <sys/mman.h>

#define ROUNDS	15
#define BYTES	(16UL << 20)
#define LIMIT	1.01

/* Faults each page of new memory of the slow node, and frees all; ns of a page. */
static double round_ns(void)
{
	volatile unsigned char *at = map_anonymous(BYTES, false);
	double start, end;

	if (bind_range((void *)at, BYTES, MPOL_BIND, node_slow(), 0))
		tap_bail("cannot bind memory to the slow node");
	start = now_ns(CLOCK_MONOTONIC);
	for (size_t offset = 0; offset < BYTES; offset += page_bytes())
		at[offset] = 1;
	munmap((void *)at, BYTES);
	end = now_ns(CLOCK_MONOTONIC);
	return (end - start) / (BYTES / page_bytes());
}

int main(void)
{
	double off[ROUNDS], on[ROUNDS], without, with;

	tap_start();
	pghot_init();
	file_set("never", "/sys/kernel/mm/transparent_hugepage/enabled");
	round_ns();
	for (int n = 0; n < ROUNDS; n++) {
		off[n] = round_ns();
		/* Samples of an event that never comes: nothing runs beside the faults. */
		file_write("1 6 1000000", PGHOT_EVENT);
		file_write("2", PGHOT_SYSCTL "enabled_sources");
		round_ns();
		on[n] = round_ns();
		file_write("0", PGHOT_SYSCTL "enabled_sources");
	}
	without = median_of(off, ROUNDS);
	with = median_of(on, ROUNDS);
	tap_note("off: %.0f ns a page (%.0f to %.0f), on: %.0f ns (%.0f to %.0f)", without, off[0],
		 off[ROUNDS - 1], with, on[0], on[ROUNDS - 1]);
	tap_ok(with <= LIMIT * without, "%.4f of the instructions with no source", with / without);
	return tap_done();
}
