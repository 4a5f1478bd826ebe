/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hot-page tracking: how sources report accesses to memory.
 *
 * A source sees accesses and reports them by page frame; which pages are hot then, and when
 * they move, is decided elsewhere (mm/kmigrated.c). A large folio has one record, that of its
 * first page. Nothing here takes a lock, so that it can be called from any context, NMIs too.
 */
#ifndef _LINUX_PGHOT_H
#define _LINUX_PGHOT_H

#include <linux/jump_label.h>
#include <linux/types.h>

struct folio;
struct page;

/* The bits of vm.pghot_enabled_sources. */
enum pghot_src {
	PGHOT_HINTFAULT,	/* hint faults of NUMA balancing */
	PGHOT_HWHINT,		/* samples of a hardware counter */
	PGHOT_PGTSCAN,		/* accessed bits of page tables */
	PGHOT_SRC_MAX
};

#ifdef CONFIG_PGHOT

extern struct static_key_false pghot_source_keys[PGHOT_SRC_MAX];

void pghot_record_access(unsigned long pfn, int nid, enum pghot_src src, u32 now_ms);
void pghot_record_accesses(const unsigned long *pfns, unsigned int nr, int nid,
			   enum pghot_src src, u32 now_ms);
u32 pghot_now(void);
void pghot_tiers_changed(void);
void __pghot_forget(const struct page *page);
void __pghot_folio_moved(struct folio *dst, struct folio *src);
void __pghot_room_made(void);

/* Whether @src, a constant, is on. */
static __always_inline bool pghot_source_on(enum pghot_src src)
{
	return static_branch_unlikely(&pghot_source_keys[src]);
}

/* Whether any source is on. */
static __always_inline bool pghot_on(void)
{
	return pghot_source_on(PGHOT_HINTFAULT) || pghot_source_on(PGHOT_HWHINT) ||
	       pghot_source_on(PGHOT_PGTSCAN);
}

#else

static inline void pghot_record_access(unsigned long pfn, int nid, enum pghot_src src, u32 now_ms)
{
}

static inline u32 pghot_now(void) { return 0; }
static inline void pghot_tiers_changed(void) { }
static inline bool pghot_source_on(enum pghot_src src) { return false; }
static inline bool pghot_on(void) { return false; }
static inline void __pghot_forget(const struct page *page) { }
static inline void __pghot_folio_moved(struct folio *dst, struct folio *src) { }
static inline void __pghot_room_made(void) { }

#endif /* CONFIG_PGHOT */

/* A page is being freed: its next owner does not inherit its record. */
static __always_inline void pghot_forget(const struct page *page)
{
	if (pghot_on())
		__pghot_forget(page);
}

/* A folio was replaced by its copy; both are locked. */
static __always_inline void pghot_folio_moved(struct folio *dst, struct folio *src)
{
	if (pghot_on())
		__pghot_folio_moved(dst, src);
}

/* kswapd ended its work on a node. */
static __always_inline void pghot_room_made(void)
{
	if (pghot_on())
		__pghot_room_made();
}

#endif /* _LINUX_PGHOT_H */
