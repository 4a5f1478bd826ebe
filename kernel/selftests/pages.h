/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel says about the physical page behind an address: /proc/self/pagemap,
 * /proc/kpageflags, /proc/kpagecount.
 */
#ifndef _PAGES_H
#define _PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of /proc/kpageflags, from include/uapi/linux/kernel-page-flags.h. */
#define PAGE_LOCKED		(1ULL << 0)
#define PAGE_DIRTY		(1ULL << 4)
#define PAGE_LRU		(1ULL << 5)
#define PAGE_WRITEBACK		(1ULL << 8)
#define PAGE_ANON		(1ULL << 12)
#define PAGE_SWAPCACHE		(1ULL << 13)
#define PAGE_SWAPBACKED		(1ULL << 14)
#define PAGE_COMPOUND_HEAD	(1ULL << 15)
#define PAGE_COMPOUND_TAIL	(1ULL << 16)
#define PAGE_HUGE		(1ULL << 17)
#define PAGE_UNEVICTABLE	(1ULL << 18)
#define PAGE_HWPOISON		(1ULL << 19)
#define PAGE_THP		(1ULL << 22)
#define PAGE_MLOCKED		(1ULL << 33)
#define PAGE_PRIVATE		(1ULL << 35)

/* On a board whose memory begins at address 0, the frame 0 is one like any other. */
#define NO_FRAME		UINT64_MAX

/* Page frame of an address, NO_FRAME if nothing is there. */
uint64_t page_frame(const void *at);

/* Frames of a whole range. */
void page_frames(const void *at, size_t bytes, uint64_t *frames);

/* Flags of the page behind an address; 0 if there is none. */
uint64_t page_flags(const void *at);

/* How often the page behind an address is mapped; -1 if unknown. */
int page_mappings(const void *at);

/* How many pages of a range have all of these flags. */
size_t pages_flagged(const void *at, size_t bytes, uint64_t flags);

/* How many folios of exactly @folio bytes lie whole and aligned in a range. */
size_t folios_of_size(const void *at, size_t bytes, size_t folio);

#endif /* _PAGES_H */
