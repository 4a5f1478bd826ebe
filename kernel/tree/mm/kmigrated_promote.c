// SPDX-License-Identifier: GPL-2.0-only
/*
 * Promotion: from records to batches of folios that move up. Which pages are worth it, and
 * how many fit, was decided before (mm/kmigrated.c); which folio may not move now, is here.
 */
#include <linux/memcontrol.h>
#include <linux/memory-tiers.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/kthread.h>
#include <linux/sort.h>
#include <linux/swap.h>

#include "internal.h"
#include "kmigrated.h"

/* Free pages of a node that promotion may take without waking its kswapd. */
static unsigned long kmigrated_free(int nid)
{
	unsigned long free = 0, kept, pages;
	struct zone *zone;
	int z;

	for (z = 0; z < MAX_NR_ZONES; z++) {
		zone = &NODE_DATA(nid)->node_zones[z];
		if (!managed_zone(zone))
			continue;
		kept = high_wmark_pages(zone) + zone->lowmem_reserve[ZONE_MOVABLE];
		pages = zone_page_state(zone, NR_FREE_PAGES);
		free += pages > kept ? pages - kept : 0;
	}
	return free;
}

static u64 kmigrated_watermark(int nid)
{
	u64 pages = 0;
	int z;

	for (z = 0; z < MAX_NR_ZONES; z++)
		if (managed_zone(&NODE_DATA(nid)->node_zones[z]))
			pages += promo_wmark_pages(&NODE_DATA(nid)->node_zones[z]);
	return pages;
}

/* Begins a node's pace, and again when its numbers were changed. */
static void kmigrated_pace(struct kmigrated *k, struct kmigrated_target *target)
{
	struct ferry_pace_params params;
	struct ferry_bad bad;

	ferry_pace_defaults(&params);
	params.rate = min((u64)READ_ONCE(pghot_tunables.rate_limit_mbps) << 20,
			  FERRY_PACE_RATE_MAX);
	params.reference_ms = k->hot.window_ms;
	if (target->paced && params.rate == target->params.rate &&
	    params.reference_ms == target->params.reference_ms)
		return;
	/* A rate of nothing is none that ferry_pace_start() takes. */
	target->paced = !ferry_pace_check(&params, &bad);
	target->params = params;
	if (target->paced)
		ferry_pace_start(&target->pace, &params, k->now);
}

/* Finds out what may go to each node of the top tier in this round. */
void kmigrated_open(struct kmigrated *k)
{
	struct kmigrated_target *target;
	unsigned long free;
	int nid;

	for_each_top_node(nid) {
		target = &kmigrated_top.targets[nid];
		kmigrated_pace(k, target);
		free = kmigrated_free(nid);
		target->room = free;
		target->full = false;
		target->closed = !target->paced;
		if (!target->paced)
			continue;
		target->recent_ms = ferry_pace_threshold(&target->pace, &target->params, k->now);
		target->bypass = ferry_pace_bypass(&target->pace, &target->params,
						   (u64)free << PAGE_SHIFT,
						   (u64)node_present_pages(nid) << PAGE_SHIFT,
						   kmigrated_watermark(nid) << PAGE_SHIFT);
	}
}

/* Pages that the paces of all nodes let go now, but at most as many as are chosen at once. */
u64 kmigrated_budget(struct kmigrated *k)
{
	struct kmigrated_target *target;
	u64 budget = 0;
	int nid;

	for_each_top_node(nid) {
		target = &kmigrated_top.targets[nid];
		if (target->closed)
			continue;
		budget += target->bypass ? KMIGRATED_CHOSEN :
			  ferry_pace_budget(&target->pace, k->now) >> PAGE_SHIFT;
	}
	return min_t(u64, budget, KMIGRATED_CHOSEN);
}

/* May so many pages move to this node, or away from it, now? If so they are reserved. */
bool kmigrated_reserve(struct kmigrated_target *target, u32 now, unsigned long pages,
		       u64 *reserved)
{
	u64 bytes = (u64)pages << PAGE_SHIFT;

	if (target->bypass)
		return true;
	if (target->closed || !ferry_pace_reserve(&target->pace, now, bytes)) {
		target->closed = true;
		return false;
	}
	*reserved += bytes;
	return true;
}

/* Whether a page of the border's heat is one of those whose turn it is. */
static bool kmigrated_has_turn(const struct kmigrated *k, unsigned long number, u64 room)
{
	unsigned long border = max(k->border, 1UL);

	return (number + border - k->turn % border) % border < room;
}

static int kmigrated_compare(const void *a, const void *b)
{
	u64 left = *(const u64 *)a, right = *(const u64 *)b;

	return left < right ? -1 : left > right;
}

/**
 * kmigrated_choose - list the pages of the thread's node that may be worth promoting
 * @k: the thread; its list of chosen pages is made anew
 * @least: least heat
 * @border_room: how many pages of just that heat; of more heat, all
 *
 * Reads records only. Those of the least heat take turns from call to call, so that pages
 * that cannot move keep nobody else from it.
 */
void kmigrated_choose(struct kmigrated *k, u32 least, u64 border_room)
{
	unsigned long border = 0;
	struct pghot_section *section;
	struct ferry_hot_view view;
	u32 found[128], heat;
	size_t from, nr, i;

	k->nr_chosen = 0;
	k->next = 0;
	least = max(least, 1U);
	for_each_pghot_section(section, k->nid) {
		for (from = 0; from < FERRY_HOT_SECTION; ) {
			nr = pghot_find(section, &from, k->now, least, FERRY_HOT_HEATS - 1,
					found, ARRAY_SIZE(found));
			for (i = 0; i < nr && k->nr_chosen < KMIGRATED_CHOSEN; i++) {
				unsigned long pfn = section->start_pfn + found[i];

				if (!pghot_look(pfn, k->now, &view) ||
				    view.freq < k->hot.threshold ||
				    view.age >= FERRY_HOT_IDLE_AGE)
					continue;
				heat = ferry_hot_heat(&k->hot, view.eighths, view.age);
				if (heat <= least && !kmigrated_has_turn(k, border++, border_room))
					continue;
				k->chosen[k->nr_chosen++] = kmigrated_entry(pfn, heat);
			}
		}
		cond_resched();
	}
	k->border = border;
	k->turn += border_room;
	sort(k->chosen, k->nr_chosen, sizeof(*k->chosen), kmigrated_compare, NULL);
}

/**
 * kmigrated_folio - the folio that begins at a page frame
 * @pfn: the frame
 * @nid: node on which it has to be
 *
 * Return: the folio with a reference, if it is on an LRU list; else NULL.
 */
struct folio *kmigrated_folio(unsigned long pfn, int nid)
{
	struct folio *folio = NULL;
	struct page *page;

	/* Memory that goes offline keeps its struct pages until RCU readers are through. */
	rcu_read_lock();
	page = pfn_to_online_page(pfn);
	if (page)
		folio = folio_get_nontail_page(page);
	rcu_read_unlock();
	if (!folio)
		return NULL;
	if (folio_test_lru(folio) && folio_nid(folio) == nid && !folio_is_zone_device(folio))
		return folio;
	folio_put(folio);
	return NULL;
}

/* Gives back what did not move. */
static unsigned long kmigrated_flush_batch(struct kmigrated *k, struct kmigrated_batch *batch)
{
	struct kmigrated_target *target = &kmigrated_top.targets[batch->nid];
	unsigned long moved = migrate_misplaced_folios_batch(&batch->folios, batch->nid);
	struct folio *folio;

	list_for_each_entry(folio, &batch->folios, lru)
		pghot_unclaim(folio_pfn(folio));
	putback_movable_pages(&batch->folios);
	mem_cgroup_put(batch->memcg);

	moved = min(moved, batch->pages);
	ferry_pace_settle(&target->pace, batch->reserved, (u64)moved << PAGE_SHIFT);
	target->room += batch->pages - moved;
	pghot_count(PGHOT_PROMOTED, moved);
	pghot_count(PGHOT_REFUSED_ISOLATION, batch->pages - moved);
	batch->pages = 0;
	batch->reserved = 0;
	return moved;
}

static unsigned long kmigrated_flush(struct kmigrated *k)
{
	unsigned long moved = 0;
	unsigned int i;

	for (i = 0; i < KMIGRATED_BATCHES; i++)
		if (k->batches[i].pages)
			moved += kmigrated_flush_batch(k, &k->batches[i]);
	/* What was put back waits on this CPU for its LRU list, where no source sees it. */
	if (moved < k->pages)
		lru_add_drain();
	k->folios = 0;
	k->pages = 0;
	cond_resched();
	return moved;
}

/* A batch that a folio can join, or NULL if all are taken. */
static struct kmigrated_batch *kmigrated_batch(struct kmigrated *k, struct mem_cgroup *memcg,
					       int nid)
{
	struct kmigrated_batch *batch, *empty = NULL;

	for (batch = k->batches; batch < k->batches + KMIGRATED_BATCHES; batch++) {
		if (!batch->pages)
			empty = batch;
		else if (batch->memcg == memcg && batch->nid == nid)
			return batch;
	}
	return empty;
}

/* Puts an isolated folio into a batch; returns what had to move before. */
static unsigned long kmigrated_collect(struct kmigrated *k, struct folio *folio, int nid,
				       u64 reserved)
{
	struct mem_cgroup *memcg = get_mem_cgroup_from_folio(folio);
	struct kmigrated_batch *batch = kmigrated_batch(k, memcg, nid);
	unsigned long moved = 0, pages = folio_nr_pages(folio);

	if (!batch) {
		moved = kmigrated_flush(k);
		batch = kmigrated_batch(k, memcg, nid);
	}
	if (batch->pages) {
		mem_cgroup_put(memcg);
	} else {
		INIT_LIST_HEAD(&batch->folios);
		batch->memcg = memcg;
		batch->nid = nid;
	}
	list_add_tail(&folio->lru, &batch->folios);
	batch->pages += pages;
	batch->reserved += reserved;
	k->pages += pages;
	k->folios++;
	return moved;
}

/* Whether the last access to a page is recent enough, and its target has time for it. */
static bool kmigrated_admits(struct kmigrated *k, struct kmigrated_target *target,
			     unsigned long pfn)
{
	if (target->bypass)
		return true;
	if (target->closed) {
		pghot_count(PGHOT_REFUSED_PACE, 1);
		return false;
	}
	if (pghot_age_ms(pfn, k->now) >= target->recent_ms) {
		pghot_count(PGHOT_REFUSED_LATENCY, 1);
		return false;
	}
	return true;
}

/*
 * Reserves what a folio takes, and isolates it. A page asks as a candidate once for each time
 * that it became ready, which claiming it says; all else of its record stays as it is.
 */
static bool kmigrated_isolate(struct kmigrated *k, struct folio *folio, int nid, u64 *reserved)
{
	struct kmigrated_target *target = &kmigrated_top.targets[nid];
	unsigned long pages = folio_nr_pages(folio);

	if (!target->bypass && pghot_claim(folio_pfn(folio))) {
		ferry_pace_candidate(&target->pace, (u64)pages << PAGE_SHIFT);
		mod_node_page_state(NODE_DATA(nid), PGPROMOTE_CANDIDATE, pages);
	}
	if (!kmigrated_reserve(target, k->now, pages, reserved)) {
		pghot_count(PGHOT_REFUSED_PACE, pages);
		return false;
	}
	if (migrate_misplaced_folio_prepare(folio, NULL, nid)) {
		ferry_pace_settle(&target->pace, *reserved, 0);
		pghot_unclaim(folio_pfn(folio));
		pghot_count(PGHOT_REFUSED_ISOLATION, pages);
		return false;
	}
	target->room -= pages;
	return true;
}

/*
 * Takes one chosen page. Returns its pages if it is in a batch now; *@moved grows by what had
 * to move before.
 */
static unsigned long kmigrated_take(struct kmigrated *k, unsigned long pfn, int nid, u32 heat,
				    u32 bar, unsigned long most, unsigned long *moved)
{
	struct kmigrated_target *target = &kmigrated_top.targets[nid];
	unsigned long pages = 0;
	struct folio *folio;
	u64 reserved = 0;

	if (!kmigrated_admits(k, target, pfn))
		return 0;
	folio = kmigrated_folio(pfn, k->nid);
	if (!folio)
		return 0;
	/* What went up and down before has to be that much hotter. */
	if (bar && heat < ferry_balance_bar(&k->hot, bar, kmigrated_bounces(folio)))
		goto out;
	if ((long)folio_nr_pages(folio) > target->room) {
		target->full = true;
		goto out;
	}
	if (folio_nr_pages(folio) > most || !kmigrated_isolate(k, folio, nid, &reserved))
		goto out;
	pages = folio_nr_pages(folio);
	*moved += kmigrated_collect(k, folio, nid, reserved);
out:
	folio_put(folio);
	return pages;
}

/**
 * kmigrated_promote - move chosen pages up, the hottest first
 * @k: the thread; goes on where it stopped
 * @most: most base pages
 * @nid: only to this node; NUMA_NO_NODE for all
 * @bar: least heat of pages that did not bounce; 0 for any
 *
 * Return: how many base pages moved.
 */
unsigned long kmigrated_promote(struct kmigrated *k, unsigned long most, int nid, u32 bar)
{
	unsigned int batch_nr = READ_ONCE(pghot_tunables.batch_nr);
	unsigned long moved = 0, taken = 0, pfn;
	int target;
	u32 heat;

	while (k->next < k->nr_chosen && taken < most && !kthread_should_stop()) {
		pfn = kmigrated_chosen_pfn(k, k->next);
		heat = kmigrated_chosen_heat(k, k->next);
		k->next++;
		target = pghot_target(pfn);
		if (target == NUMA_NO_NODE || (nid != NUMA_NO_NODE && target != nid))
			continue;
		taken += kmigrated_take(k, pfn, target, heat, bar, most - taken, &moved);
		if (k->folios >= batch_nr || k->pages >= KMIGRATED_CHOSEN)
			moved += kmigrated_flush(k);
	}
	return moved + kmigrated_flush(k);
}
