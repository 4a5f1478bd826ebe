/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An io_uring with registered buffers: pages that stay pinned for as long as they are
 * registered, and reads that write into them without the page tables.
 */
#ifndef _RING_H
#define _RING_H

#include <stddef.h>
#include <sys/types.h>

struct ring;

/* Bails out if the kernel has none. */
struct ring *ring_new(void);
void ring_free(struct ring *ring);

/* Pins a range as the ring's buffer; 0 or -errno. */
int ring_pin(struct ring *ring, void *at, size_t bytes);
int ring_unpin(struct ring *ring);

/* Reads from a file into a part of the pinned range; bytes read, or -errno. */
ssize_t ring_read(struct ring *ring, int fd, void *into, size_t bytes, off_t offset);

#endif /* _RING_H */
