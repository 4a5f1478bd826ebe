/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A range that one of Linux's callers of page migration is about to move, and what that caller
 * needs for it.
 */
#ifndef _RANGE_H
#define _RANGE_H

#include "cma.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PER_CPU_LISTS	"/proc/sys/vm/percpu_pagelist_high_fraction"

struct range {
	unsigned char *at;
	size_t bytes;
	struct content *content;
	uint64_t *frames;		/* before; pages without one are not there and stay so */
	unsigned char *filler;
	size_t filler_bytes;
	int block;			/* for movable pages alone, or -1 */
	struct cma_area area;
	struct ring *ring;
};

/* Base or huge pages on a node; false if they are not all there. */
bool range_make(struct range *range, size_t bytes, int node, bool huge);
void range_drop_filler(struct range *range);
/* Frees all that is left. */
void range_drop(struct range *range);

/* Sets .frames. */
void range_remember(struct range *range);
/* Pages that have another frame since, and how many per cent of .frames that is. */
size_t range_moved(const struct range *range);
size_t range_moved_percent(const struct range *range);

/* Puts the task into a cpuset of the first node, and the task of any group out of that. */
void range_enter_cpuset(void);
void range_leave_group(struct range *range);

/* Unmaps the range and makes its memory block, if it has one, normal; and unpins it first. */
void range_drop_block(struct range *range);
void range_drop_pin(struct range *range);

#endif /* _RANGE_H */
