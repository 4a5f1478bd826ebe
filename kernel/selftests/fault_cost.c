// SPDX-License-Identifier: GPL-2.0-only
/*
 * fault_cost FILE: how long a page fault takes that gives a process new memory, by the size of
 * the folio: the median of some rounds, in the form of the benchmark's file. Of use where time
 * is counted in instructions, to compare kernels.
 */
#include "clock.h"
#include "files.h"
#include "memory.h"
#include "nodes.h"
#include "pages.h"
#include "tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROUNDS	9
#define BYTES	(32UL << 20)

/* Touches each folio of new memory once; ns for one of them. */
static double round_ns(size_t folio)
{
	volatile unsigned char *at = map_anonymous(BYTES, folio == HUGE_BYTES);
	double start = now_ns(CLOCK_MONOTONIC), end;

	for (size_t offset = 0; offset < BYTES; offset += folio)
		at[offset] = 1;
	end = now_ns(CLOCK_MONOTONIC);
	if (folios_of_size((void *)at, BYTES, folio) != BYTES / folio)
		tap_bail("no folios of %zu bytes", folio);
	munmap((void *)at, BYTES);
	return (end - start) / (BYTES / folio);
}

static double median_ns(size_t folio)
{
	double ns[ROUNDS];

	/* Once for what is made at first use. */
	round_ns(folio);
	for (int n = 0; n < ROUNDS; n++)
		ns[n] = round_ns(folio);
	return median_of(ns, ROUNDS);
}

int main(int argc, char **argv)
{
	const size_t folios[] = { page_bytes(), HUGE_BYTES };
	FILE *file = argc > 1 ? fopen(argv[1], "we") : NULL;

	tap_start();
	if (!file)
		tap_bail("%s: %s", argc > 1 ? argv[1] : "no file", strerror(argc > 1 ? errno : EINVAL));
	file_set("madvise", "/sys/kernel/mm/transparent_hugepage/enabled");
	fprintf(file, "{\"rows\": [");
	for (unsigned int n = 0; n < ARRAY_SIZE(folios); n++) {
		double ns = median_ns(folios[n]);

		fprintf(file, "%s{\"migrator\": \"page fault\", \"lanes\": 1, \"folio_bytes\": %zu, "
			"\"folios\": 1, \"call_ns\": %.1f}", n ? ", " : "", folios[n], ns);
		tap_ok(ns > 0, "%zu KiB: %.0f ns", folios[n] >> 10, ns);
	}
	fprintf(file, "]}\n");
	if (fclose(file))
		tap_bail("%s: %s", argv[1], strerror(errno));
	return tap_done();
}
