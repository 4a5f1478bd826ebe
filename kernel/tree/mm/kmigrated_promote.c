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

/*
 * Free pages of a node that promotion may take without waking its kswapd, as
 * migrate_misplaced_folio_prepare() counts them. If there are none, what its highest zone
 * lacks, as a negative number: pages come there first. Lower zones keep more from such pages
 * than they have.
 */
long kmigrated_room(int nid)
{
	long room = 0, lack = 0, pages;
	struct zone *zone;
	int z;

	for (z = 0; z < MAX_NR_ZONES; z++) {
		zone = &NODE_DATA(nid)->node_zones[z];
		if (!managed_zone(zone))
			continue;
		pages = (long)zone_page_state(zone, NR_FREE_PAGES) -
			(long)READ_ONCE(zone->nr_free_highatomic) -
			(long)high_wmark_pages(zone) - zone->lowmem_reserve[ZONE_MOVABLE] - 1;
		room += max(pages, 0L);
		lack = min(pages, 0L);
	}
	return room ?: lack;
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
	/* What came together between two rounds is not lost if the second one is late. */
	params.burst_ms = 2 * max(READ_ONCE(pghot_tunables.sleep_ms), PGHOT_ROUND_MS);
	if (target->paced && params.rate == target->params.rate &&
	    params.burst_ms == target->params.burst_ms &&
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
	u64 free;
	int nid;

	for_each_top_node(nid) {
		target = &kmigrated_top.targets[nid];
		kmigrated_pace(k, target);
		target->room = kmigrated_room(nid);
		free = max(target->room, 0L);
		target->full = false;
		target->closed = !target->paced;
		if (!target->paced)
			continue;
		/* Asked too seldom, it takes weeks for no time; and bypassing does not ask. */
		ferry_pace_budget(&target->pace, k->now);
		target->recent_ms = max(KMIGRATED_RECENT_MS,
					ferry_pace_threshold(&target->pace, &target->params,
							     k->now));
		target->bypass = ferry_pace_bypass(&target->pace, &target->params,
						   free << PAGE_SHIFT,
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

	/* A record from the future looks old, and the round may have taken a while. */
	k->now = pghot_now();
	k->nr_chosen = 0;
	k->next = 0;
	least = max(least, 1U);
	for_each_pghot_section(section, k->nid) {
		if (!READ_ONCE(section->hot))
			continue;
		for (from = 0; from < PAGES_PER_SECTION; ) {
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
	/* What was put back waits on this CPU for its LRU list, where no source sees it. */
	if (moved < batch->pages)
		lru_add_drain();
	ferry_pace_settle(&target->pace, batch->reserved, (u64)moved << PAGE_SHIFT);
	target->room += batch->pages - moved;
	pghot_count(PGHOT_PROMOTED, moved);
	pghot_count(PGHOT_REFUSED_ISOLATION, batch->pages - moved);
	k->pages -= batch->pages;
	k->folios -= batch->folios_nr;
	batch->pages = 0;
	batch->folios_nr = 0;
	batch->reserved = 0;
	cond_resched();
	return moved;
}

static unsigned long kmigrated_flush(struct kmigrated *k)
{
	unsigned long moved = 0;
	unsigned int i;

	for (i = 0; i < KMIGRATED_BATCHES; i++)
		if (k->batches[i].pages)
			moved += kmigrated_flush_batch(k, &k->batches[i]);
	return moved;
}

/* Makes a batch empty: the one from which the migrator gains most. */
static unsigned long kmigrated_flush_fullest(struct kmigrated *k)
{
	struct kmigrated_batch *batch, *fullest = k->batches;

	for (batch = k->batches; batch < k->batches + KMIGRATED_BATCHES; batch++)
		if (batch->pages > fullest->pages)
			fullest = batch;
	return kmigrated_flush_batch(k, fullest);
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
		moved = kmigrated_flush_fullest(k);
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
	batch->folios_nr++;
	k->pages += pages;
	k->folios++;
	return moved;
}

/* Whether the last access to a page is recent enough, and its target has time for it. */
static bool kmigrated_admits(const struct kmigrated_target *target, unsigned long pfn)
{
	if (target->bypass)
		return true;
	if (target->closed) {
		pghot_count(PGHOT_REFUSED_PACE, 1);
		return false;
	}
	/* Not since the round began: sources go on meanwhile. */
	if (pghot_age_ms(pfn, pghot_now()) >= target->recent_ms) {
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
		/* Others allocate as well; what they left is for all that come after this one. */
		target->room = min(target->room, kmigrated_room(nid));
		return false;
	}
	target->room -= pages;
	return true;
}

/*
 * Takes one chosen page. Returns its pages if it is in a batch now, and more than @most if it
 * has more; *@moved grows by what had to move before.
 */
static unsigned long kmigrated_take(struct kmigrated *k, unsigned long pfn, int nid, u32 heat,
				    u32 bar, unsigned long most, unsigned long *moved)
{
	struct kmigrated_target *target = &kmigrated_top.targets[nid];
	unsigned long pages = 0;
	struct folio *folio;
	u64 reserved = 0;

	if (!kmigrated_admits(target, pfn))
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
	if (folio_nr_pages(folio) > most) {
		pages = folio_nr_pages(folio);
		goto out;
	}
	/* Migration would unmap it before it finds that it may not move. */
	if (folio_maybe_dma_pinned(folio)) {
		pghot_count(PGHOT_REFUSED_ISOLATION, folio_nr_pages(folio));
		goto out;
	}
	if (!kmigrated_isolate(k, folio, nid, &reserved))
		goto out;
	pages = folio_nr_pages(folio);
	*moved += kmigrated_collect(k, folio, nid, reserved);
out:
	folio_put(folio);
	return pages;
}

/* The node itself if it has room; else the nearest one of the top tier that has some. */
static int kmigrated_with_room(int nid)
{
	int other, best = nid;

	if (kmigrated_top.targets[nid].room > 0)
		return nid;
	for_each_top_node(other)
		if (kmigrated_top.targets[other].room > 0 &&
		    (best == nid || node_distance(nid, other) < node_distance(nid, best)))
			best = other;
	return best;
}

/**
 * kmigrated_promote - move chosen pages up, the hottest first
 * @k: the thread; goes on where it stopped
 * @most: most base pages
 * @nid: only to this node; NUMA_NO_NODE for all, and then to another one if a page's own is full
 * @bar: least heat of pages that did not bounce; 0 for any
 *
 * Return: how many base pages moved.
 */
unsigned long kmigrated_promote(struct kmigrated *k, unsigned long most, int nid, u32 bar)
{
	unsigned int batch_nr = READ_ONCE(pghot_tunables.batch_nr);
	unsigned long moved = 0, taken = 0, pages, pfn;
	int target;
	u32 heat;

	while (k->next < k->nr_chosen && taken < most && !kmigrated_should_stop()) {
		pfn = kmigrated_chosen_pfn(k, k->next);
		heat = kmigrated_chosen_heat(k, k->next);
		k->next++;
		target = pghot_target(pfn);
		if (nid == NUMA_NO_NODE)
			target = kmigrated_with_room(target);
		else if (target != nid)
			continue;
		pages = kmigrated_take(k, pfn, target, heat, bar, most - taken, &moved);
		if (pages > most - taken) {
			/* It comes first the next time; one larger than @most never fits. */
			if (!taken)
				continue;
			k->next--;
			break;
		}
		taken += pages;
		if (k->folios >= batch_nr || k->pages >= KMIGRATED_CHOSEN)
			moved += kmigrated_flush(k);
	}
	return moved + kmigrated_flush(k);
}
