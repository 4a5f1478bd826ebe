// SPDX-License-Identifier: GPL-2.0-only
/*
 * When a folio moves, by any caller of migration: its record goes along, and pages that go up and
 * down are counted.
 */
#include <linux/hash.h>
#include <linux/log2.h>
#include <linux/memcontrol.h>
#include <linux/memory-tiers.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include <trace/events/pghot.h>

#include "kmigrated.h"

/*
 * Only pages that moved lately have a mark, and two that meet in one do little harm: one for
 * 64 pages of memory is enough, in 4 MiB at most.
 */
#define MARKS_BITS_MIN	12
#define MARKS_BITS_MAX	20
#define MARKS_SHARE	6

/* A promotion was wasted if its page went down again within this time. */
#define WASTED_S	16

/* A mark: an entry of ferry_hot_promoted(), and above it the second of the promotion. */
#define MARK_SHIFT	16

/* There from the moment that tracking is switched on first. */
static u32 *kmigrated_marks;
static unsigned int kmigrated_marks_bits;

/*
 * A folio's place in its file or its process: its page frame changes with each move, and this
 * does not. Folios of processes that forked may share one; they also share their fate.
 */
static u32 *kmigrated_mark(const struct folio *folio, u32 *tag)
{
	u32 hash = hash_64((unsigned long)folio->mapping + ((u64)folio->index << 16), 32);

	/* Of a product, the upper bits are the ones that depend on all of it. */
	*tag = hash >> (32 - kmigrated_marks_bits - 8);
	return &kmigrated_marks[hash >> (32 - kmigrated_marks_bits)];
}

/* Makes the table unless it is there; 0 or -ENOMEM. */
int kmigrated_marks_init(void)
{
	if (kmigrated_marks)
		return 0;
	kmigrated_marks_bits = clamp(ilog2((totalram_pages() >> MARKS_SHARE) + 1), MARKS_BITS_MIN,
				     MARKS_BITS_MAX);
	kmigrated_marks = kvcalloc(1UL << kmigrated_marks_bits, sizeof(*kmigrated_marks),
				   GFP_KERNEL);
	return kmigrated_marks ? 0 : -ENOMEM;
}

/* How often a page was promoted and demoted lately. */
unsigned int kmigrated_bounces(struct folio *folio)
{
	u32 tag, *mark = kmigrated_mark(folio, &tag);

	return ferry_hot_bounces((u16)READ_ONCE(*mark), tag);
}

void kmigrated_age_marks(void)
{
	u32 i, old, new;

	for (i = 0; i < 1U << kmigrated_marks_bits && !kmigrated_should_stop(); i++) {
		cond_resched();
		old = READ_ONCE(kmigrated_marks[i]);
		do {
			new = ferry_hot_bounce_aged((u16)old);
			if (new)
				new |= old & ~(u32)U16_MAX;
		} while (!try_cmpxchg(&kmigrated_marks[i], &old, new));
	}
}

static void kmigrated_mark_promoted(const struct folio *folio, u32 now_s)
{
	u32 tag, bounced, *mark = kmigrated_mark(folio, &tag), old = READ_ONCE(*mark), new;

	do {
		new = ferry_hot_promoted((u16)old, tag, &bounced) | now_s << MARK_SHIFT;
	} while (!try_cmpxchg(mark, &old, new));
	if (bounced)
		pghot_stat_add(PGHOT_BOUNCED, folio_nr_pages(folio));
}

static void kmigrated_mark_demoted(const struct folio *folio, u32 now_s)
{
	u32 tag, *mark = kmigrated_mark(folio, &tag), old = READ_ONCE(*mark), new;

	do {
		new = ferry_hot_demoted((u16)old, tag) | (old & ~(u32)U16_MAX);
		/* Not promoted lately, or demoted before. */
		if (new == old)
			return;
	} while (!try_cmpxchg(mark, &old, new));
	if ((u16)(now_s - (old >> MARK_SHIFT)) <= WASTED_S)
		count_vm_events(PGHOT_WASTED, folio_nr_pages(folio));
}

/* Both are locked, and @dst has the mapping and the index; @src still is its cgroup's. */
void __pghot_folio_moved(struct folio *dst, struct folio *src)
{
	bool from_top = node_is_toptier(folio_nid(src)), to_top = node_is_toptier(folio_nid(dst));
	long pages = folio_nr_pages(src);

	if (folio_test_hugetlb(src))
		return;
	trace_pghot_moved(folio_pfn(src), folio_pfn(dst), folio_nid(dst));
	pghot_carry(folio_pfn(src), folio_pfn(dst));
	if (from_top == to_top)
		return;
	if (to_top)
		kmigrated_mark_promoted(dst, pghot_now() / MSEC_PER_SEC);
	else
		kmigrated_mark_demoted(dst, pghot_now() / MSEC_PER_SEC);
	/* Reclaim and compaction that an allocation of kmigrated's starts count their own. */
	if (!is_kmigrated(current) || current->flags & PF_MEMALLOC)
		return;
	/* As NUMA balancing counts what it promotes, and reclaim what it demotes. */
	count_vm_events(to_top ? PGHOT_PROMOTED : PGHOT_DEMOTED, pages);
	rcu_read_lock();
	if (to_top) {
		mod_lruvec_state(mem_cgroup_lruvec(folio_memcg(src), folio_pgdat(dst)),
				 PGPROMOTE_SUCCESS, pages);
		count_memcg_folio_events(src, NUMA_PAGE_MIGRATE, pages);
	} else {
		mod_lruvec_state(folio_lruvec(src), PGDEMOTE_KSWAPD, pages);
	}
	rcu_read_unlock();
}
