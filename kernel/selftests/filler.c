// SPDX-License-Identifier: GPL-2.0-only
#include "filler.h"

#include "memory.h"
#include "nodes.h"
#include "pages.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

/* Takes what a node has above its reserve. Returns whether that was little. */
static bool fill_more(struct filler *filler, int node)
{
	long long free = node_free_bytes(node) - node_reserve_bytes(node);
	size_t begin = filler->bytes, end = begin;

	if (free > 0)
		end += free / page_bytes() * page_bytes();
	memory_policy(MPOL_BIND, node);
	for (; filler->bytes < end; filler->bytes += page_bytes())
		*(size_t *)(filler->at + filler->bytes) = filler->bytes;
	memory_policy(MPOL_DEFAULT, 0);
	return end - begin < HUGE_BYTES / 4;
}

void filler_make(struct filler *fillers, const int *nodes, int nr)
{
	int quiet = 0;

	for (int n = 0; n < nr; n++) {
		size_t bytes = node_bytes(nodes[n]);

		fillers[n] = (struct filler) { map_anonymous(bytes, false), 0, bytes };
	}
	while (quiet < 4) {
		quiet++;
		for (int n = 0; n < nr; n++)
			if (!fill_more(&fillers[n], nodes[n]))
				quiet = 0;
		usleep(500000);
	}
	for (int n = 0; n < nr; n++)
		pages_settle(fillers[n].at);
}

size_t filler_wrong(const struct filler *filler)
{
	size_t wrong = 0;

	for (size_t offset = 0; offset < filler->bytes; offset += page_bytes())
		wrong += *(size_t *)(filler->at + offset) != offset;
	return wrong;
}

void filler_drop(struct filler *filler)
{
	munmap(filler->at, filler->mapped);
}
