/* SPDX-License-Identifier: GPL-2.0-only */
/* DAMON that moves pages by itself. */
#ifndef _DAMON_H
#define _DAMON_H

#include <stddef.h>
#include <stdint.h>

/*
 * Lets DAMON migrate to @nid all memory from the lowest to the highest of @nr frames, NO_FRAME
 * left out. Bails out if it cannot.
 */
void damon_start(const uint64_t *frames, size_t nr, int nid);

/* Waits for its thread: what that migrates later would not be in all counts. */
void damon_stop(void);

#endif /* _DAMON_H */
