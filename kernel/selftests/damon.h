/* SPDX-License-Identifier: GPL-2.0-only */
/* DAMON that moves pages by itself. */
#ifndef _DAMON_H
#define _DAMON_H

#include <stddef.h>
#include <stdint.h>

/* Lets DAMON migrate all frames from @first to @last to @nid. Bails out if it cannot. */
void damon_start(uint64_t first, uint64_t last, int nid);

/* Waits for its thread: what that migrates later would not be in all counts. */
void damon_stop(void);

#endif /* _DAMON_H */
