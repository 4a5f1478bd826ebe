/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory blocks: parts of a node's memory that go off line and come back, as
 * /sys/devices/system/memory offers it.
 */
#ifndef _BLOCKS_H
#define _BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a block; 0 if the kernel has none. */
uint64_t block_bytes(void);

/* Whether a page frame lies in a block. */
bool block_has(int block, uint64_t frame);

/* Node of a page frame, from its block; -1 if unknown. */
int block_node(uint64_t frame);

/*
 * "offline", "online", "online_movable": 0 or -errno; -EINTR if the block could not be emptied
 * in a minute.
 */
int block_state(int block, const char *state);

/*
 * Finds a block, slow nodes first, that can go off line, and brings it back as memory for
 * movable pages alone. False after a note if there is none.
 */
bool block_make_movable(int *block, int *node);

/* Undoes it; nothing of it may be in use that does not move. */
void block_make_normal(int block);

#endif /* _BLOCKS_H */
