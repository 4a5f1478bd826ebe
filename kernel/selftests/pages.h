/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel says about the physical page behind an address: /proc/self/pagemap,
 * /proc/kpageflags.
 */
#ifndef _PAGES_H
#define _PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of /proc/kpageflags, from include/uapi/linux/kernel-page-flags.h. */
#define PAGE_SWAPCACHE		(1ULL << 13)
#define PAGE_COMPOUND_HEAD	(1ULL << 15)
#define PAGE_COMPOUND_TAIL	(1ULL << 16)
#define PAGE_PRIVATE		(1ULL << 35)

/* On a board whose memory begins at address 0, the frame 0 is one like any other. */
#define NO_FRAME		UINT64_MAX

/* Page frame of an address, NO_FRAME if nothing is there. */
uint64_t page_frame(const void *at);

/* Frames of a whole range. */
void page_frames(const void *at, size_t bytes, uint64_t *frames);

/* How many pages of a range have all of these flags. */
size_t pages_flagged(const void *at, size_t bytes, uint64_t flags);

/* How many folios of exactly @folio bytes lie whole and aligned in a range. */
size_t folios_of_size(const void *at, size_t bytes, size_t folio);

#endif /* _PAGES_H */
