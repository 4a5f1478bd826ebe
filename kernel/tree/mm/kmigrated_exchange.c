// SPDX-License-Identifier: GPL-2.0-only
/*
 * Demotion by hotness: idle pages of the top tier make room for new ones, and cold ones
 * change places with hot ones of a lower tier. kswapd demotes as ever; it does not know
 * which pages are hot below.
 */
#include <linux/kthread.h>
#include <linux/memory-tiers.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/rmap.h>
#include <linux/sched.h>

#include "internal.h"
#include "kmigrated.h"

/* A step moves at least a folio of the largest kind. */
#define STEP_PAGES	((unsigned long)HPAGE_PMD_NR)

/*
 * Pages of which nothing is known are cold, but many of them are no pages that could move:
 * free, of the kernel, the rest of a large folio. The search for cold pages knows their share.
 */
static u64 kmigrated_unknown(const struct kmigrated_target *target, int nid, u64 unknown)
{
	u64 free = sum_zone_node_page_state(nid, NR_FREE_PAGES);
	u64 used = unknown - min(unknown, free);

	if (target->unknown_seen <= KMIGRATED_LOOKS / 4)
		return used;
	return min(used, div64_u64(unknown * target->unknown_usable, target->unknown_seen));
}

/* Ages the records of the top tier, if that is due, and counts them. */
void kmigrated_know_top(struct kmigrated *k, bool due)
{
	struct ferry_hot_sweep *sweep = &kmigrated_top.sweep;
	struct kmigrated_target *target;
	u32 began = pghot_now();
	bool whole = true;
	u64 *unknown;
	int nid;

	if (!due && !kmigrated_may_count(&kmigrated_top.counted))
		return;
	kmigrated_know_protection();
	if (due)
		kmigrated_next_sweep(sweep, k->now);
	for_each_top_node(nid) {
		target = &kmigrated_top.targets[nid];
		whole &= pghot_know_node(nid, due ? sweep : NULL, &target->known);
		unknown = &target->known.pages[0][FERRY_HOT_AGES - 1];
		*unknown = kmigrated_unknown(target, nid, *unknown);
	}
	if (due && !whole)
		sweep->now = sweep->last;
	kmigrated_counted(&kmigrated_top.counted, began);
}

/*
 * Whether a folio may leave the top tier: only processes use it, and they did not ask to keep it.
 * Unmapped folios have no accessed bits, only marks of read() and write().
 */
static bool kmigrated_may_leave(struct folio *folio)
{
	if (folio_test_unevictable(folio) || folio_test_mlocked(folio) ||
	    folio_test_writeback(folio) || folio_test_hugetlb(folio) ||
	    folio_maybe_dma_pinned(folio))
		return false;
	if (folio_is_file_lru(folio) && folio_test_dirty(folio))
		return false;
	return folio_mapped(folio) || (!folio_test_active(folio) && !folio_test_referenced(folio));
}

static bool kmigrated_young_one(struct folio *folio, struct vm_area_struct *vma,
				unsigned long addr, void *found)
{
	DEFINE_FOLIO_VMA_WALK(walk, folio, vma, addr, 0);
	bool *young = found;

	while (page_vma_mapped_walk(&walk)) {
		*young = walk.pte ? pte_young(ptep_get(walk.pte)) : pmd_young(pmdp_get(walk.pmd));
		*young |= mmu_notifier_test_young(vma->vm_mm, walk.address);
		if (!*young)
			continue;
		page_vma_mapped_walk_done(&walk);
		break;
	}
	return !*young;
}

/*
 * Whether it was accessed since page tables were scanned; then its record says so. The bits
 * stay as they are: to clear them is the scan's work, and reclaim's.
 */
static bool kmigrated_in_use(struct folio *folio)
{
	bool young = false;
	struct rmap_walk_control walk = {
		.arg = &young,
		.rmap_one = kmigrated_young_one,
		.anon_lock = folio_lock_anon_vma_read,
	};

	if (!folio_trylock(folio))
		return true;
	if (folio_mapped(folio))
		rmap_walk(folio, &walk);
	folio_unlock(folio);
	if (young)
		pghot_record_access(folio_pfn(folio), NUMA_NO_NODE, PGHOT_PGTSCAN, pghot_now());
	return young;
}

/* A search for cold pages. */
struct kmigrated_cold {
	int nid;
	int to;				/* where they go */
	u32 heat;			/* of at most this heat */
	unsigned long left;		/* base pages wanted; 0 after a folio that is larger */
	unsigned long got;		/* isolated */
	struct list_head *folios;
};

/*
 * Isolates a folio of the top tier if it is as cold as its record. Returns its pages, which are
 * more than cold->left if that is why it stayed.
 */
static unsigned long kmigrated_isolate_cold(struct kmigrated *k, unsigned long pfn,
					    struct kmigrated_cold *cold)
{
	struct folio *folio = kmigrated_folio(pfn, cold->nid);
	nodemask_t nodes = nodemask_of_node(cold->to);
	unsigned long pages = 0;

	if (!folio)
		return 0;
	if (!kmigrated_may_leave(folio) || kmigrated_protected(folio) || kmigrated_in_use(folio))
		goto out;
	if (folio_nr_pages(folio) > cold->left) {
		pages = folio_nr_pages(folio);
		goto out;
	}
	if (!kmigrated_allowed(folio, &nodes) || nodes_empty(nodes) || !folio_isolate_lru(folio))
		goto out;
	pages = folio_nr_pages(folio);
	list_add_tail(&folio->lru, cold->folios);
out:
	folio_put(folio);
	return pages;
}

static void kmigrated_saw_unknown(struct kmigrated_target *target, bool usable)
{
	target->unknown_seen++;
	target->unknown_usable += usable;
	/* Half of what was seen before counts with what is seen now. */
	if (target->unknown_seen > 2 * KMIGRATED_LOOKS) {
		target->unknown_seen /= 2;
		target->unknown_usable /= 2;
	}
}

/*
 * Looks at one page. Returns false if its folio is larger than what is still wanted, so that it
 * comes first the next time; one that is larger than all that was wanted is passed over.
 */
static bool kmigrated_cold_page(struct kmigrated *k, struct kmigrated_cold *cold,
				unsigned long pfn)
{
	unsigned long pages = kmigrated_isolate_cold(k, pfn, cold);

	k->looks -= k->looks > 0;
	if (pages > cold->left) {
		if (!cold->got)
			return true;
		cold->left = 0;
		return false;
	}
	cold->got += pages;
	cold->left -= pages;
	if (!pghot_look(pfn, k->now).freq)
		kmigrated_saw_unknown(&kmigrated_top.targets[cold->nid], pages);
	return true;
}

/* Looks through a section from target->cold_pfn on. */
static void kmigrated_cold_of(struct kmigrated *k, struct kmigrated_cold *cold,
			      struct pghot_section *section)
{
	struct kmigrated_target *target = &kmigrated_top.targets[section->nid];
	size_t from = target->cold_pfn - section->start_pfn, nr, i;
	u32 found[32];

	while (from < PAGES_PER_SECTION && cold->left && k->looks && !kmigrated_should_stop()) {
		nr = pghot_find(section, &from, k->now, 0, cold->heat, found, ARRAY_SIZE(found));
		for (i = 0; i < nr && cold->left; i++)
			if (!kmigrated_cold_page(k, cold, section->start_pfn + found[i]))
				break;
		/* Those that were found and not looked at come first the next time. */
		target->cold_pfn = section->start_pfn + (i < nr ? found[i] : from);
		cond_resched();
	}
}

/* Isolates pages of a node; goes on where it stopped, and once around. */
static void kmigrated_find_cold(struct kmigrated *k, struct kmigrated_cold *cold)
{
	struct kmigrated_target *target = &kmigrated_top.targets[cold->nid];
	struct pghot_section *section;
	unsigned int rounds;

	for (rounds = 0; rounds < 2 && cold->left && k->looks; rounds++) {
		for_each_pghot_section(section, cold->nid) {
			if (section->start_pfn + PAGES_PER_SECTION <= target->cold_pfn)
				continue;
			target->cold_pfn = max(target->cold_pfn, section->start_pfn);
			kmigrated_cold_of(k, cold, section);
			if (!cold->left || !k->looks) {
				pghot_put_section(section);
				return;
			}
		}
		target->cold_pfn = 0;
	}
}

/* Base pages of a list, anonymous ones and those of files. */
static void kmigrated_pages_of(struct list_head *folios, long pages[2])
{
	struct folio *folio;

	pages[0] = 0;
	pages[1] = 0;
	list_for_each_entry(folio, folios, lru)
		pages[folio_is_file_lru(folio)] += folio_nr_pages(folio);
}

/*
 * As kswapd demotes: from free memory, or not at all. alloc_migration_target() would reclaim and
 * compact for large folios, even under PF_MEMALLOC; but these are split if there is no block.
 */
static struct folio *kmigrated_alloc_lower(struct folio *src, unsigned long private)
{
	struct migration_target_control *mtc = (struct migration_target_control *)private;
	gfp_t gfp = mtc->gfp_mask;

	/* kswapd would reclaim until there is a block. */
	if (folio_test_large(src))
		gfp &= ~__GFP_KSWAPD_RECLAIM;
	return __folio_alloc(gfp, folio_order(src), mtc->nid, mtc->nmask);
}

/*
 * Moves folios to a lower tier; returns how many base pages went. CPUs keep what they free,
 * where watermarks do not see it, but another node's pages come for it: so drain this CPU,
 * which freed most of it.
 */
static unsigned long kmigrated_move_down(int nid, struct list_head *folios,
					 struct migration_target_control *mtc)
{
	struct pglist_data *pgdat = NODE_DATA(nid);
	long taken[2], left[2];
	unsigned int moved = 0;
	int i, z;

	kmigrated_pages_of(folios, taken);
	for (i = 0; i < 2; i++)
		mod_node_page_state(pgdat, NR_ISOLATED_ANON + i, taken[i]);
	migrate_pages(folios, kmigrated_alloc_lower, NULL, (unsigned long)mtc, MIGRATE_ASYNC,
		      MR_DEMOTION, &moved);
	/* Of what migrate_pages() demotes it leaves this to its caller; putback does the rest. */
	kmigrated_pages_of(folios, left);
	for (i = 0; i < 2; i++)
		mod_node_page_state(pgdat, NR_ISOLATED_ANON + i, left[i] - taken[i]);
	putback_movable_pages(folios);
	migrate_disable();
	for (z = 0; z < MAX_NR_ZONES; z++)
		if (managed_zone(&pgdat->node_zones[z]))
			drain_local_pages(&pgdat->node_zones[z]);
	migrate_enable();
	return moved;
}

/*
 * Counts a node's room before pages leave for want of it: what all CPUs keep is free, too,
 * thousands of pages each on large nodes. They fill up again, so this is for now and then.
 */
static void kmigrated_gather_free(struct kmigrated *k, int nid)
{
	struct kmigrated_target *target = &kmigrated_top.targets[nid];
	int z;

	if (k->now - target->gathered < MSEC_PER_SEC)
		return;
	target->gathered = k->now;
	for (z = 0; z < MAX_NR_ZONES; z++)
		if (managed_zone(&NODE_DATA(nid)->node_zones[z]))
			drain_all_pages(&NODE_DATA(nid)->node_zones[z]);
	kmigrated_know_room(nid);
}

/* Demotes pages of at most @heat; returns how many base pages went. */
static unsigned long kmigrated_demote(struct kmigrated *k, int nid, unsigned long most, u32 heat)
{
	struct kmigrated_target *target = &kmigrated_top.targets[nid];
	int to = next_demotion_node(nid);
	nodemask_t allowed;
	struct migration_target_control mtc = {
		.gfp_mask = (GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM) | __GFP_NOWARN |
			__GFP_NOMEMALLOC | GFP_NOWAIT,
		.nid = to,
		.nmask = &allowed,
		.reason = MR_DEMOTION,
	};
	LIST_HEAD(folios);
	struct kmigrated_cold cold = {
		.nid = nid, .to = to, .heat = heat, .left = most, .folios = &folios,
	};
	unsigned long moved = 0;
	u64 reserved = 0;

	if (to == NUMA_NO_NODE || !kmigrated_reserve(target, k->now, most, &reserved))
		return 0;
	k->now = pghot_now();
	allowed = nodemask_of_node(to);
	kmigrated_find_cold(k, &cold);
	if (cold.got)
		moved = kmigrated_move_down(nid, &folios, &mtc);
	kmigrated_settle(nid, reserved, moved);
	count_vm_events(PGHOT_DEMOTED, moved);
	/* Others free and take pages as well. */
	kmigrated_know_room(nid);
	return moved;
}

/* Demotes idle pages where new ones will need their place, @born of which came lately. */
void kmigrated_make_room(struct kmigrated *k, unsigned long born)
{
	unsigned long capacity = 0, wanted, share, moved;
	unsigned int nodes = 0;
	int nid;

	for_each_top_node(nid) {
		capacity += node_present_pages(nid);
		nodes++;
	}
	wanted = ferry_balance_room(&kmigrated_top.balance, &pghot_balance_params, born,
				    capacity, kmigrated_free());
	if (!wanted)
		return;
	for_each_top_node(nid)
		kmigrated_gather_free(k, nid);
	/* balance.room is what is kept: demote until so much is free. */
	wanted = kmigrated_top.balance.room - min(kmigrated_top.balance.room, kmigrated_free());
	wanted = min(wanted, KMIGRATED_PAGES);
	share = DIV_ROUND_UP(wanted, max(nodes, 1));
	for_each_top_node(nid) {
		for (wanted = share; wanted && !kmigrated_should_stop(); wanted -= moved) {
			moved = kmigrated_demote(k, nid, min(wanted, STEP_PAGES),
						 ferry_balance_idle(&k->hot));
			if (!moved)
				break;
		}
	}
}

/*
 * Room of a node for hot pages: what is not kept for new ones, which may come to any node; or
 * what @made of it was made for hot ones, as far as others left it.
 */
static long kmigrated_spare(int nid, long made)
{
	long room = kmigrated_target_room(nid), kept = kmigrated_top.balance.room;
	int other;

	for_each_top_node(other)
		if (other != nid)
			kept -= max(kmigrated_target_room(other), 0L);
	return max(room - max(kept, 0L), min(room, made));
}

/*
 * One step after the other, so that neither tier needs more room than for one. Room that is
 * there already, as the last step's if nothing came for it, is used before more is made; and
 * what others took meanwhile comes first. Returns how many pages came.
 */
static unsigned long kmigrated_exchange_with(struct kmigrated *k, int nid, unsigned long most,
					     const struct ferry_hot_exchange *border)
{
	long step = max_t(long, PGHOT_BATCH_NR, STEP_PAGES), wanted;
	unsigned long came = 0, went = 0, lack, down, up;
	long spare;

	if (most && kmigrated_target_room(nid) < 0)
		kmigrated_gather_free(k, nid);
	lack = max(-kmigrated_target_room(nid), 0L);
	k->next = 0;
	while (came < most && k->next < k->nr_chosen && !kmigrated_should_stop()) {
		wanted = min_t(long, most - came, step);
		down = 0;
		spare = kmigrated_spare(nid, went - lack - came);
		if (spare < wanted && went < most + lack)
			down = kmigrated_demote(k, nid, step, border->cold);
		went += down;
		spare = min(kmigrated_spare(nid, went - lack - came), wanted);
		up = spare > 0 ? kmigrated_promote(k, spare, nid, border->hot) : 0;
		if (!up && (!down || spare > 0))
			break;
		came += up;
		pghot_stat_add(PGHOT_EXCHANGED, min(up, down));
	}
	return came;
}

/*
 * Lets the hottest pages below change places with the coldest above, as long as that wins more than
 * it costs. Each node for itself: that another one has cold pages makes no room on this one. But
 * what is free anywhere in the tier is for the next hot pages, whatever their node, and nothing
 * goes down meanwhile. Pages are chosen once, for the node with the lowest border; each has its own
 * as the bar. Returns how many base pages came up.
 */
unsigned long kmigrated_exchange(struct kmigrated *k)
{
	struct ferry_hot_exchange *border, *lowest = NULL;
	struct kmigrated_target *target;
	unsigned long most, came = 0;
	int nid;

	if (kmigrated_free() >= kmigrated_top.balance.room + STEP_PAGES)
		return 0;
	/* The pace counts both directions. */
	most = kmigrated_budget(k) / 2;
	for_each_top_node(nid) {
		target = &kmigrated_top.targets[nid];
		border = &target->border;
		ferry_hot_exchange(&k->hot, &target->known, &k->lower, most, border);
		if (border->pages && (!lowest || border->hot < lowest->hot ||
				      (border->hot == lowest->hot &&
				       border->hot_room > lowest->hot_room)))
			lowest = border;
	}
	if (!lowest)
		return 0;
	kmigrated_choose(k, lowest->hot, lowest->hot_room);
	kmigrated_ask_targets(k);
	for_each_top_node(nid) {
		target = &kmigrated_top.targets[nid];
		most = min(kmigrated_budget(k) / 2, target->wanted);
		came += kmigrated_exchange_with(k, nid, most, &target->border);
	}
	return came;
}
