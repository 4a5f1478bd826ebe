/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An area of the contiguous memory allocator: movable pages borrow its memory, and move out
 * when it is allocated, as /sys/kernel/debug/cma can be told to do.
 */
#ifndef _CMA_H
#define _CMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cma_area {
	char name[64];
	long long base, count;		/* frames */
	int node;
};

/* False after a note if there is none. */
bool cma_find(struct cma_area *area);

/* How many pages of a range lie in the area. */
size_t cma_pages(const struct cma_area *area, const unsigned char *at, size_t bytes);

/**
 * cma_fill - map memory on the area's node until movable pages are taken from the area as well
 * @percent: of all areas' free memory that is in use then
 * @bytes: of what was mapped
 * @small: where its base pages begin; before are huge ones, which never lie in the area, and
 *	   not all of the rest needs to be there
 *
 * The node's movable pages come from CMA when that has more free pages than the rest: from
 * then on every other batch of the CPU's list.
 */
unsigned char *cma_fill(const struct cma_area *area, unsigned int percent, size_t *bytes,
			size_t *small);

/* Allocates the whole area; false if some of it could not be had. cma_give() frees it. */
bool cma_take(const struct cma_area *area);
void cma_give(const struct cma_area *area);

#endif /* _CMA_H */
