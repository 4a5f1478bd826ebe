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
#include <linux/page_idle.h>
#include <linux/rmap.h>
#include <linux/sched.h>

#include "internal.h"
#include "kmigrated.h"

/* How many records are looked at for one step at most: pages that may not move are many. */
#define COLD_LOOKS	(4 * KMIGRATED_CHOSEN)

/* A step moves at least a folio of the largest kind. */
#define STEP_PAGES	((unsigned long)HPAGE_PMD_NR)

/* Counts the records of a node. */
void kmigrated_count(int nid, u32 now, struct ferry_hot_histogram *histogram)
{
	struct pghot_section *section;

	memset(histogram, 0, sizeof(*histogram));
	for_each_pghot_section(section, nid) {
		pghot_count_section(section, now, histogram);
		cond_resched();
	}
}

/*
 * Pages of which nothing is known are cold, but many of them are no pages that could move:
 * free, of the kernel, the rest of a large folio. The search for cold pages knows their share.
 */
static void kmigrated_add(struct ferry_hot_histogram *sum, struct ferry_hot_histogram *part,
			  const struct kmigrated_target *target)
{
	u64 *unknown = &part->pages[0][FERRY_HOT_AGES - 1];
	unsigned int i, age;

	if (target->unknown_seen > COLD_LOOKS / 4)
		*unknown = div64_u64(*unknown * target->unknown_usable, target->unknown_seen);
	for (i = 0; i < FERRY_HOT_EIGHTHS; i++)
		for (age = 0; age < FERRY_HOT_AGES; age++)
			sum->pages[i][age] += part->pages[i][age];
}

/* Ages the records of the top tier, if that is due, and counts them. */
void kmigrated_know_top(struct kmigrated *k, bool due)
{
	struct ferry_hot_sweep sweep = {
		.now = k->now,
		.last = kmigrated_top.sweep.now,
		.number = kmigrated_top.sweep.number + 1,
	};
	struct ferry_hot_histogram *part = &kmigrated_top.part;
	int nid;

	memset(&kmigrated_top.known, 0, sizeof(kmigrated_top.known));
	for_each_top_node(nid) {
		if (due) {
			memset(part, 0, sizeof(*part));
			pghot_sweep_node(nid, &sweep, part);
		} else {
			kmigrated_count(nid, k->now, part);
		}
		kmigrated_add(&kmigrated_top.known, part, &kmigrated_top.targets[nid]);
	}
	if (due)
		kmigrated_top.sweep = sweep;
}

/*
 * Whether a folio may leave the top tier: nobody but processes uses it, and they did not ask
 * to keep it. What is not mapped has no accessed bits, only marks of read() and write().
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

/* Whether it was accessed since page tables were scanned; then its record says so. */
static bool kmigrated_in_use(struct kmigrated *k, struct folio *folio)
{
	unsigned long vm_flags;
	int referenced;
	bool young;

	if (!folio_trylock(folio))
		return true;
	/* That the scan found it accessed at some time is a note for others. */
	young = folio_test_clear_young(folio);
	referenced = folio_referenced(folio, 1, NULL, &vm_flags);
	if (young || referenced)
		folio_set_young(folio);
	folio_unlock(folio);
	if (referenced > 0)
		pghot_record_access(folio_pfn(folio), NUMA_NO_NODE, PGHOT_PGTSCAN, k->now);
	return referenced;
}

/* Isolates a folio of the top tier if it is as cold as its record; returns its pages. */
static unsigned long kmigrated_isolate_cold(struct kmigrated *k, unsigned long pfn, int nid,
					    unsigned long most, struct list_head *folios)
{
	struct folio *folio = kmigrated_folio(pfn, nid);
	unsigned long pages = 0;

	if (!folio)
		return 0;
	if (folio_nr_pages(folio) > most || !kmigrated_may_leave(folio) ||
	    kmigrated_in_use(k, folio) || !folio_isolate_lru(folio))
		goto out;
	pages = folio_nr_pages(folio);
	node_stat_mod_folio(folio, NR_ISOLATED_ANON + folio_is_file_lru(folio), pages);
	list_add_tail(&folio->lru, folios);
out:
	folio_put(folio);
	return pages;
}

static void kmigrated_saw_unknown(struct kmigrated_target *target, bool usable)
{
	target->unknown_seen++;
	target->unknown_usable += usable;
	/* Half of what was seen before counts with what is seen now. */
	if (target->unknown_seen > 2 * COLD_LOOKS) {
		target->unknown_seen /= 2;
		target->unknown_usable /= 2;
	}
}

/* Looks through a section from target->cold_pfn on; returns the pages that it isolated. */
static unsigned long kmigrated_cold_of(struct kmigrated *k, struct pghot_section *section,
				       unsigned long most, u32 heat, unsigned int *looks,
				       struct list_head *folios)
{
	struct kmigrated_target *target = &kmigrated_top.targets[section->nid];
	size_t from = target->cold_pfn - section->start_pfn, nr, i;
	unsigned long got = 0, pages, pfn;
	struct ferry_hot_view view;
	u32 found[32];

	while (from < FERRY_HOT_SECTION && got < most && *looks) {
		nr = pghot_find(section, &from, k->now, 0, heat, found, ARRAY_SIZE(found));
		for (i = 0; i < nr && got < most; i++) {
			pfn = section->start_pfn + found[i];
			pages = kmigrated_isolate_cold(k, pfn, section->nid, most - got, folios);
			got += pages;
			if (pghot_look(pfn, k->now, &view) && !view.freq)
				kmigrated_saw_unknown(target, pages);
			*looks -= *looks > 0;
		}
		/* Those that were found and not looked at come first the next time. */
		target->cold_pfn = section->start_pfn + (i < nr ? found[i] : from);
		cond_resched();
	}
	return got;
}

/* Isolates pages of at most @heat of a node; goes on where it stopped, and once around. */
static unsigned long kmigrated_find_cold(struct kmigrated *k, int nid, unsigned long most,
					 u32 heat, struct list_head *folios)
{
	struct kmigrated_target *target = &kmigrated_top.targets[nid];
	unsigned int looks = COLD_LOOKS, rounds;
	struct pghot_section *section;
	unsigned long got = 0;

	for (rounds = 0; rounds < 2 && got < most && looks; rounds++) {
		for_each_pghot_section(section, nid) {
			if (section->start_pfn + FERRY_HOT_SECTION <= target->cold_pfn)
				continue;
			target->cold_pfn = max(target->cold_pfn, section->start_pfn);
			got += kmigrated_cold_of(k, section, most - got, heat, &looks, folios);
			if (got >= most || !looks) {
				pghot_put_section(section);
				return got;
			}
		}
		target->cold_pfn = 0;
	}
	return got;
}

/* Demotes pages of at most @heat; returns how many base pages went. */
static unsigned long kmigrated_demote(struct kmigrated *k, int nid, unsigned long most, u32 heat)
{
	struct kmigrated_target *target = &kmigrated_top.targets[nid];
	nodemask_t allowed;
	struct migration_target_control mtc = {
		/* As kswapd demotes: from free memory, or not at all. */
		.gfp_mask = (GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM) | __GFP_NOWARN |
			__GFP_NOMEMALLOC | GFP_NOWAIT,
		.nid = next_demotion_node(nid),
		.nmask = &allowed,
		.reason = MR_DEMOTION,
	};
	unsigned int moved = 0;
	LIST_HEAD(folios);
	u64 reserved = 0;

	if (mtc.nid == NUMA_NO_NODE || !kmigrated_reserve(target, k->now, most, &reserved))
		return 0;
	node_get_allowed_targets(NODE_DATA(nid), &allowed);
	if (kmigrated_find_cold(k, nid, most, heat, &folios)) {
		migrate_pages(&folios, alloc_migrate_folio, NULL, (unsigned long)&mtc,
			      MIGRATE_ASYNC, MR_DEMOTION, &moved);
		putback_movable_pages(&folios);
	}
	ferry_pace_settle(&target->pace, reserved, (u64)moved << PAGE_SHIFT);
	pghot_count(PGHOT_DEMOTED, moved);
	target->room += moved;
	return moved;
}

/**
 * kmigrated_make_room - demote idle pages where new ones will need their place
 * @k: the thread
 * @born: how many pages came into use since the last round
 */
void kmigrated_make_room(struct kmigrated *k, unsigned long born)
{
	unsigned long capacity = 0, free = 0, wanted, share, moved;
	int nid;

	for_each_top_node(nid) {
		capacity += node_present_pages(nid);
		free += max(kmigrated_top.targets[nid].room, 0L);
	}
	wanted = ferry_balance_room(&kmigrated_top.balance, &pghot_balance_params, born,
				    capacity, free);
	share = DIV_ROUND_UP(wanted, max(nodes_weight(kmigrated_top.nodes), 1));
	for_each_top_node(nid) {
		for (wanted = share; wanted && !kthread_should_stop(); wanted -= moved) {
			moved = kmigrated_demote(k, nid, min(wanted, STEP_PAGES),
						 ferry_balance_idle(&k->hot));
			if (!moved)
				break;
		}
	}
}

/* Base pages of the chosen pages that go to a node. */
static unsigned long kmigrated_wanted(struct kmigrated *k, int nid)
{
	unsigned long pages = 0, pfn;
	struct folio *folio;
	unsigned int i;

	for (i = 0; i < k->nr_chosen; i++) {
		pfn = kmigrated_chosen_pfn(k, i);
		if (pghot_target(pfn) != nid)
			continue;
		folio = kmigrated_folio(pfn, k->nid);
		if (!folio)
			continue;
		pages += folio_nr_pages(folio);
		folio_put(folio);
	}
	return pages;
}

/* One step after the other, so that neither tier needs more room than for one. */
static unsigned long kmigrated_exchange_with(struct kmigrated *k, int nid, unsigned long most,
					     const struct ferry_hot_exchange *border)
{
	unsigned long step = max_t(unsigned long, READ_ONCE(pghot_tunables.batch_nr), STEP_PAGES);
	unsigned long down, up = 1, pairs = 0;

	k->next = 0;
	while (pairs < most && up && k->next < k->nr_chosen && !kthread_should_stop()) {
		down = kmigrated_demote(k, nid, min(most - pairs, step), border->cold);
		if (!down)
			break;
		up = kmigrated_promote(k, down, nid, border->hot);
		pairs += min(up, down);
	}
	return pairs;
}

/**
 * kmigrated_exchange - let the hottest pages below change places with the coldest above
 * @k: the thread
 *
 * As long as that wins more than it costs, see ferry_hot_exchange().
 */
void kmigrated_exchange(struct kmigrated *k)
{
	struct ferry_hot_exchange border;
	unsigned long pairs = 0, most;
	int nid;

	/* The pace counts both directions. */
	most = kmigrated_budget(k) / 2;
	ferry_hot_exchange(&k->hot, &kmigrated_top.known, &k->lower, most, &border);
	if (!border.pages)
		return;
	kmigrated_choose(k, border.hot, border.hot_room);
	for_each_top_node(nid)
		pairs += kmigrated_exchange_with(k, nid,
						 min(most - pairs, kmigrated_wanted(k, nid)),
						 &border);
	pghot_count(PGHOT_EXCHANGED, pairs);
}
