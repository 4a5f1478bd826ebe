// SPDX-License-Identifier: GPL-2.0-only
/*
 * Promotion: from records to batches of folios that move up. Which pages are worth it, and
 * how many fit, was decided before (mm/kmigrated.c); which folio may not move now, is here.
 */
#include <linux/memory-tiers.h>
#include <linux/migrate.h>
#include <linux/mm.h>
/* Which is not complete by itself. */
#include <linux/compaction.h>
#include <linux/sched.h>
#include <linux/sched/sysctl.h>
#include <linux/sort.h>
#include <linux/swap.h>

#include <trace/events/pghot.h>

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

	for_each_zone_of(zone, nid) {
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

/* Counts a node's room anew: others free and take pages as well. */
void kmigrated_know_room(int nid)
{
	spin_lock(&kmigrated_top.lock);
	kmigrated_top.targets[nid].room = kmigrated_room(nid);
	spin_unlock(&kmigrated_top.lock);
}

static u64 kmigrated_watermark(int nid)
{
	struct zone *zone;
	u64 pages = 0;

	for_each_zone_of(zone, nid)
		pages += promo_wmark_pages(zone);
	return pages;
}

/*
 * Begins a node's pace, and again when its numbers were changed. What another thread reserved
 * before is given back to the new one then, which never holds more than its burst.
 */
static void kmigrated_pace(struct kmigrated *k, struct kmigrated_target *target)
{
	struct ferry_pace_params params;
	struct ferry_bad bad;

	ferry_pace_defaults(&params);
	params.rate = min((u64)READ_ONCE(sysctl_numa_balancing_promote_rate_limit) << 20,
			  FERRY_PACE_RATE_MAX);
	params.reference_ms = k->hot.window_ms;
	/* Tokens of two rounds are not lost if the second one is late. */
	params.burst_ms = 2 * PGHOT_ROUND_MS;
	if (target->paced && params.rate == target->params.rate &&
	    params.reference_ms == target->params.reference_ms)
		return;
	/* A rate of nothing is none that ferry_pace_start() takes. */
	target->paced = !ferry_pace_check(&params, &bad);
	target->params = params;
	if (target->paced)
		ferry_pace_start(&target->pace, &params, k->now);
}

/* Finds out what may go to each node of the top tier now. */
void kmigrated_open(struct kmigrated *k)
{
	struct kmigrated_target *target;
	int nid;

	for_each_top_node(nid) {
		spin_lock(&kmigrated_top.lock);
		target = &kmigrated_top.targets[nid];
		kmigrated_pace(k, target);
		target->room = kmigrated_room(nid);
		target->bypass = false;
		if (target->paced) {
			/* Asked too seldom it takes weeks for no time; bypassing does not ask. */
			ferry_pace_budget(&target->pace, k->now);
			target->recent_ms = ferry_pace_threshold(&target->pace, &target->params,
								 k->now);
			target->bypass = ferry_pace_bypass(&target->pace, &target->params,
							   max(target->room, 0L) << PAGE_SHIFT,
							   node_present_pages(nid) << PAGE_SHIFT,
							   kmigrated_watermark(nid) << PAGE_SHIFT);
		}
		spin_unlock(&kmigrated_top.lock);
	}
}

/* Room of the whole tier. */
u64 kmigrated_free(void)
{
	u64 free = 0;
	int nid;

	for_each_top_node(nid)
		free += max(kmigrated_target_room(nid), 0L);
	return free;
}

/* Pages that the paces of all nodes let go now, but at most as many as are chosen at once. */
u64 kmigrated_budget(struct kmigrated *k)
{
	struct kmigrated_target *target;
	u64 budget = 0;
	int nid;

	spin_lock(&kmigrated_top.lock);
	for_each_top_node(nid) {
		target = &kmigrated_top.targets[nid];
		if (target->bypass)
			budget += KMIGRATED_CHOSEN;
		else if (target->paced)
			budget += ferry_pace_budget(&target->pace, k->now) >> PAGE_SHIFT;
	}
	spin_unlock(&kmigrated_top.lock);
	return min_t(u64, budget, KMIGRATED_CHOSEN);
}

/* Reserves so many pages of a node's pace, to move there or away; false if it is used up. */
bool kmigrated_reserve(struct kmigrated_target *target, u32 now, unsigned long pages,
		       u64 *reserved)
{
	u64 bytes = (u64)pages << PAGE_SHIFT;
	bool ok = true;

	spin_lock(&kmigrated_top.lock);
	if (!target->bypass) {
		ok = target->paced && ferry_pace_reserve(&target->pace, now, bytes);
		*reserved += ok ? bytes : 0;
	}
	spin_unlock(&kmigrated_top.lock);
	return ok;
}

/* Gives back what was reserved and did not move. */
void kmigrated_settle(int nid, u64 reserved, unsigned long moved)
{
	struct kmigrated_target *target = &kmigrated_top.targets[nid];

	spin_lock(&kmigrated_top.lock);
	ferry_pace_settle(&target->pace, reserved, (u64)moved << PAGE_SHIFT);
	spin_unlock(&kmigrated_top.lock);
}

/* Whether it is before @until, which is at most the longest wait away. */
static bool kmigrated_before(u32 now, u32 until)
{
	return until - now - 1 < PGHOT_ROUND_MS << KMIGRATED_FAILED_MAX;
}

static void kmigrated_fail(struct kmigrated *k, struct folio *folio, enum pghot_stat cause)
{
	unsigned long pfn = folio_pfn(folio), pages = folio_nr_pages(folio);
	struct kmigrated_failed *failed = kmigrated_failed_entry(k, pfn);
	u32 now = pghot_now();

	if (READ_ONCE(failed->pfn) == pfn &&
	    now - failed->until < PGHOT_ROUND_MS << KMIGRATED_FAILED_MAX)
		failed->times = min(failed->times + 1, KMIGRATED_FAILED_MAX);
	else
		failed->times = 0;
	WRITE_ONCE(failed->pfn, pfn);
	failed->until = now + (PGHOT_ROUND_MS << failed->times);
	if (!kmigrated_before(failed->until, k->failed_until))
		k->failed_until = failed->until;
	pghot_stat_add(cause, pages);
	if (cause == PGHOT_FAILED_NO_BLOCK)
		count_vm_events(PGHOT_REFUSED_ROOM, pages);
}

static bool kmigrated_waits(struct kmigrated *k, unsigned long pfn)
{
	struct kmigrated_failed *failed = kmigrated_failed_entry(k, pfn);

	return READ_ONCE(failed->pfn) == pfn && kmigrated_before(k->now, failed->until);
}

/* Pages that wait take no place from those that may move. */
void kmigrated_leave_out_failed(struct kmigrated *k)
{
	struct ferry_hot_view view;
	unsigned long pfn;
	unsigned int i;
	u64 *pages;

	if (!kmigrated_before(k->now, k->failed_until))
		return;
	for (i = 0; i < KMIGRATED_CHOSEN && !kmigrated_should_stop(); i++) {
		cond_resched();
		pfn = READ_ONCE(k->failed[i].pfn);
		if (!pfn || !kmigrated_waits(k, pfn))
			continue;
		view = pghot_look(pfn, k->now);
		pages = &k->lower.pages[view.eighths][view.age];
		*pages -= *pages > 0;
	}
}

/* Whether a page of the border's heat is one of those whose turn it is. */
static bool kmigrated_has_turn(const struct kmigrated *k, unsigned long number, u64 room)
{
	unsigned long border = max(k->border, 1UL);

	return (number + border - k->turn % border) % border < room;
}

static int kmigrated_compare(const void *a, const void *b)
{
	const struct kmigrated_chosen *left = a, *right = b;

	/* sort() itself does not. */
	cond_resched();
	if (left->heat != right->heat)
		return left->heat > right->heat ? -1 : 1;
	return left->pfn < right->pfn ? -1 : left->pfn > right->pfn;
}

/*
 * Lists the pages of the thread's node that have more heat than @least, and @border_room of just
 * that heat. Those take turns from call to call, so that pages that cannot move keep no others
 * from it. Reads records only.
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
	least = max(least, 1U);
	for_each_pghot_section(section, k->nid) {
		if (!READ_ONCE(section->hot) || kmigrated_should_stop())
			continue;
		for (from = 0; from < PAGES_PER_SECTION; ) {
			nr = pghot_find(section, &from, &k->hot, k->now, least,
					FERRY_HOT_HEATS - 1, found, ARRAY_SIZE(found));
			for (i = 0; i < nr && k->nr_chosen < KMIGRATED_CHOSEN; i++) {
				unsigned long pfn = section->start_pfn + found[i];

				view = pghot_look(pfn, k->now);
				if (view.freq < k->hot.threshold ||
				    view.age >= FERRY_HOT_IDLE_AGE || kmigrated_waits(k, pfn))
					continue;
				heat = ferry_hot_heat(&k->hot, view.eighths, view.age);
				if (heat <= least && !kmigrated_has_turn(k, border++, border_room))
					continue;
				k->chosen[k->nr_chosen++] = (struct kmigrated_chosen){ pfn, heat };
				trace_pghot_chosen(pfn, heat);
			}
		}
		cond_resched();
	}
	k->border = border;
	k->turn += border_room;
	sort(k->chosen, k->nr_chosen, sizeof(*k->chosen), kmigrated_compare, NULL);
}

/* The folio that begins at a page frame, with a reference, if it is on an LRU list of the node. */
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
	if (folio_test_lru(folio) && folio_nid(folio) == nid)
		return folio;
	folio_put(folio);
	return NULL;
}

/* Moves a batch, and gives the rest back. Returns how many base pages moved, as do all below. */
static unsigned long kmigrated_flush_batch(struct kmigrated *k, struct kmigrated_batch *batch)
{
	struct kmigrated_target *target = &kmigrated_top.targets[batch->nid];
	unsigned int moved;
	struct folio *folio;
	bool no_block;

	no_block = migrate_misplaced_folios_batch(&batch->folios, batch->nid, &moved) == -ENOMEM;
	list_for_each_entry(folio, &batch->folios, lru) {
		pghot_set_ready(folio_pfn(folio), true);
		kmigrated_fail(k, folio, no_block ? PGHOT_FAILED_NO_BLOCK : PGHOT_FAILED_BUSY);
	}
	putback_movable_pages(&batch->folios);
	if (no_block)
		wakeup_kcompactd(NODE_DATA(batch->nid), batch->order, MAX_NR_ZONES - 1);

	moved = min_t(unsigned long, moved, batch->pages);
	k->hot_pages -= min_t(u64, k->hot_pages, moved >> batch->order);
	kmigrated_settle(batch->nid, batch->reserved, moved);
	if (moved < batch->pages) {
		if (k->exchanging)
			target->made += batch->pages - moved;
		spin_lock(&kmigrated_top.lock);
		target->room += batch->pages - moved;
		spin_unlock(&kmigrated_top.lock);
		/* Drain this CPU's LRU cache: the sources do not see folios there. */
		lru_add_drain();
	}
	k->pages -= batch->pages;
	batch->pages = 0;
	batch->reserved = 0;
	cond_resched();
	return moved;
}

unsigned long kmigrated_flush(struct kmigrated *k)
{
	unsigned long moved = 0;
	unsigned int i;

	for (i = 0; i < KMIGRATED_BATCHES; i++)
		if (k->batches[i].pages)
			moved += kmigrated_flush_batch(k, &k->batches[i]);
	return moved;
}

/* The batch of a node and an order; else an empty one; else the fullest. */
static struct kmigrated_batch *kmigrated_batch(struct kmigrated *k, int nid, unsigned int order)
{
	struct kmigrated_batch *batch, *empty = NULL, *fullest = k->batches;

	for (batch = k->batches; batch < k->batches + KMIGRATED_BATCHES; batch++) {
		if (!batch->pages)
			empty = batch;
		else if (batch->nid == nid && batch->order == order)
			return batch;
		if (batch->pages > fullest->pages)
			fullest = batch;
	}
	return empty ?: fullest;
}

/*
 * Puts an isolated folio into a batch, for which a full one or the fullest may have to move before.
 * The caller's reference would keep the folio itself from moving.
 */
static unsigned long kmigrated_collect(struct kmigrated *k, struct folio *folio, int nid,
				       u64 reserved)
{
	unsigned long moved = 0, pages = folio_nr_pages(folio);
	unsigned int order = folio_order(folio);
	struct kmigrated_batch *batch = kmigrated_batch(k, nid, order);

	if (batch->pages && (batch->nid != nid || batch->order != order ||
			     batch->pages >> order >= PGHOT_BATCH_NR))
		moved = kmigrated_flush_batch(k, batch);
	if (!batch->pages) {
		INIT_LIST_HEAD(&batch->folios);
		batch->nid = nid;
		batch->order = order;
	}
	list_add_tail(&folio->lru, &batch->folios);
	batch->pages += pages;
	batch->reserved += reserved;
	k->pages += pages;
	return moved;
}

/*
 * Reserves what a folio takes, and isolates it. A page asks as a candidate once for each time
 * that it became ready, which claiming it says; all else of its record stays as it is.
 */
static bool kmigrated_isolate(struct kmigrated *k, struct folio *folio, int nid, u64 *reserved)
{
	struct kmigrated_target *target = &kmigrated_top.targets[nid];
	unsigned long pages = folio_nr_pages(folio);
	bool isolated;

	if (!READ_ONCE(target->bypass) && pghot_set_ready(folio_pfn(folio), false)) {
		spin_lock(&kmigrated_top.lock);
		ferry_pace_candidate(&target->pace, (u64)pages << PAGE_SHIFT);
		spin_unlock(&kmigrated_top.lock);
		mod_node_page_state(NODE_DATA(nid), PGPROMOTE_CANDIDATE, pages);
	}
	if (!kmigrated_reserve(target, k->now, pages, reserved)) {
		count_vm_events(PGHOT_REFUSED_PACE, pages);
		return false;
	}
	isolated = !migrate_misplaced_folio_prepare(folio, NULL, nid);
	if (!isolated) {
		kmigrated_settle(nid, *reserved, 0);
		pghot_set_ready(folio_pfn(folio), true);
	}
	spin_lock(&kmigrated_top.lock);
	/* Others allocate as well; what they left is for all that come after this one. */
	target->room = isolated ? target->room - (long)pages :
				  min(target->room, kmigrated_room(nid));
	spin_unlock(&kmigrated_top.lock);
	if (isolated && k->exchanging)
		target->made -= pages;
	if (isolated)
		trace_pghot_isolated(folio_pfn(folio), nid);
	else if (kmigrated_target_room(nid) >= (long)pages)
		kmigrated_fail(k, folio, PGHOT_FAILED_OFF_LRU);
	return isolated;
}

/*
 * To which node of the top tier a folio should go: the one that uses it, or the nearest one that
 * its owners may use; rather one that has room, unless that is to be made. NUMA_NO_NODE if it
 * failed: they may use none, or that cannot be told now.
 */
static int kmigrated_target_nid(struct kmigrated *k, struct folio *folio)
{
	int user = pghot_target(folio_pfn(folio)), best = NUMA_NO_NODE, nid, cost, least = INT_MAX;
	bool room_first = !k->exchanging || kmigrated_has_free();
	nodemask_t nodes = NODE_MASK_NONE;

	for_each_top_node(nid)
		node_set(nid, nodes);
	if (!kmigrated_allowed(folio, &nodes)) {
		kmigrated_fail(k, folio, PGHOT_FAILED_BUSY);
		return NUMA_NO_NODE;
	}
	if (nodes_empty(nodes))
		kmigrated_fail(k, folio, PGHOT_FAILED_OWNER);
	for_each_node_mask(nid, nodes) {
		cost = node_distance(user, nid);
		if (room_first && kmigrated_target_room(nid) < (long)folio_nr_pages(folio))
			cost += U8_MAX;
		if (cost < least) {
			least = cost;
			best = nid;
		}
	}
	return best;
}

/*
 * Whether the last access to a folio is as recent as the pace of a node asks for: a later one than
 * the begin of the round, as sources go on meanwhile.
 */
static bool kmigrated_is_recent(struct folio *folio, int nid)
{
	struct kmigrated_target *target = &kmigrated_top.targets[nid];

	return READ_ONCE(target->bypass) || pghot_age_ms(folio_pfn(folio), pghot_now()) <
					    max(READ_ONCE(target->recent_ms), KMIGRATED_RECENT_MS);
}

static bool kmigrated_is_recent_anywhere(struct folio *folio)
{
	int nid;

	for_each_top_node(nid)
		if (kmigrated_is_recent(folio, nid))
			return true;
	return false;
}

/* Whether what costs little to see keeps a chosen folio from moving now. */
static bool kmigrated_must_wait(struct kmigrated *k, struct folio *folio, unsigned long most)
{
	if (folio_nr_pages(folio) > most)
		return true;
	/* Migration would unmap it before it finds that it may not move. */
	if (folio_maybe_dma_pinned(folio)) {
		kmigrated_fail(k, folio, PGHOT_FAILED_PINNED);
		return true;
	}
	if (kmigrated_is_dirty(folio)) {
		kmigrated_fail(k, folio, PGHOT_FAILED_BUSY);
		return true;
	}
	if (!kmigrated_is_recent_anywhere(folio)) {
		count_vm_events(PGHOT_REFUSED_LATENCY, 1);
		return true;
	}
	return false;
}

/*
 * Puts a chosen folio into a batch if it may move now, and has no more than @most base pages.
 * Returns how many had to move before.
 */
static unsigned long kmigrated_take(struct kmigrated *k, struct folio *folio, u32 heat,
				    unsigned long most)
{
	unsigned long moved = 0, pages = folio_nr_pages(folio);
	struct kmigrated_target *target;
	u64 reserved = 0;
	int nid;

	if (kmigrated_must_wait(k, folio, most))
		return 0;
	/* Its owners are looked up by all mappings: last. */
	nid = kmigrated_target_nid(k, folio);
	if (nid == NUMA_NO_NODE)
		return 0;
	target = &kmigrated_top.targets[nid];
	/* Pages that went up and down before have to be that much hotter. */
	if (k->exchanging &&
	    (!target->border.pages || heat < ferry_balance_bar(&k->hot, target->border.hot,
							       kmigrated_bounces(folio))))
		return 0;
	if (!kmigrated_is_recent(folio, nid)) {
		count_vm_events(PGHOT_REFUSED_LATENCY, 1);
		return 0;
	}
	if (k->exchanging) {
		if (!kmigrated_exchange_room(k, nid, pages, &moved))
			return moved;
	} else if ((long)pages > kmigrated_target_room(nid)) {
		node_set(nid, k->full);
		count_vm_events(PGHOT_REFUSED_ROOM, pages);
		return 0;
	}
	if (k->pages >= KMIGRATED_CHOSEN)
		moved += kmigrated_flush(k);
	if (kmigrated_isolate(k, folio, nid, &reserved))
		return moved + kmigrated_collect(k, folio, nid, reserved);
	/* What fails in a batch leaves its share of room and pace to pages behind. */
	return moved + kmigrated_flush(k);
}

/* Moves chosen pages up, the hottest first, @most base pages. */
unsigned long kmigrated_promote(struct kmigrated *k, unsigned long most)
{
	unsigned long moved = 0;
	struct folio *folio;
	unsigned int i;

	nodes_clear(k->full);
	/* Pages that did not move leave their share to those behind. */
	for (i = 0; i < k->nr_chosen && moved + k->pages < most && !kmigrated_should_stop(); i++) {
		cond_resched();
		folio = kmigrated_folio(k->chosen[i].pfn, k->nid);
		if (!folio)
			continue;
		moved += kmigrated_take(k, folio, k->chosen[i].heat, most - moved - k->pages);
		folio_put(folio);
		/* One full node is enough to wake kswapd. */
		if (!k->exchanging && !nodes_empty(k->full) && !kmigrated_free())
			break;
		/* Each page behind would only have its owners looked up. */
		if (k->exchanging && kmigrated_exchange_ended(k))
			break;
	}
	return moved + kmigrated_flush(k);
}
