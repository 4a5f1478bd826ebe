/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What fills a node, and is then left alone.
 */
#ifndef _FILLER_H
#define _FILLER_H

#include <stddef.h>

/* Each page has its place in it as its first number. @mapped bytes are for filler_drop(). */
struct filler {
	unsigned char *at;
	size_t bytes, mapped;
};

/*
 * Leaves each of the nodes so much that nothing is reclaimed, and no more. What others freed comes
 * back late, on any of them: CPUs keep it to themselves for some seconds.
 */
void filler_make(struct filler *fillers, const int *nodes, int nr);

/* How many of its pages do not have what was written. */
size_t filler_wrong(const struct filler *filler);

void filler_drop(struct filler *filler);

#endif /* _FILLER_H */
