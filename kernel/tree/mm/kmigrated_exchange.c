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
#include <linux/random.h>
#include <linux/rmap.h>
#include <linux/sched.h>

#include "internal.h"
#include "kmigrated.h"
#include "page_alloc.h"

/*
 * Pages of a section that are looked at before all of it is: where none of those may leave, hardly
 * any other may.
 */
#define SAMPLES		64UL

/* A step moves at least a folio of the largest kind. */
#define STEP_PAGES	(PMD_SIZE >> PAGE_SHIFT)

/*
 * Whether a folio may leave the top tier: only processes use it, and they did not ask to keep it.
 * Unmapped folios have no accessed bits, only marks of read() and write().
 */
static bool kmigrated_may_leave(struct folio *folio)
{
	if (folio_test_unevictable(folio) || folio_test_mlocked(folio) ||
	    folio_test_writeback(folio) || kmigrated_is_dirty(folio) ||
	    folio_maybe_dma_pinned(folio))
		return false;
	return folio_mapped(folio) || (!folio_test_active(folio) && !folio_test_referenced(folio));
}

/*
 * Pages of which nothing is known are cold, but many of them are no pages that could move: free, of
 * the kernel, locked, the rest of a large folio. A sample tells their share.
 */
static u64 kmigrated_unknown(struct kmigrated_target *target, int nid, u64 unknown)
{
	unsigned long pfn, i;
	struct folio *folio;

	for (i = 0; i < KMIGRATED_SAMPLES; i++) {
		pfn = node_start_pfn(nid) + get_random_long() % node_spanned_pages(nid);
		if (!pfn_to_online_page(pfn) || pghot_look(pfn, pghot_now()).freq)
			continue;
		target->unknown_seen++;
		folio = kmigrated_folio(pfn, nid);
		if (!folio)
			continue;
		target->unknown_usable += kmigrated_may_leave(folio);
		folio_put(folio);
	}
	/* Half of what was seen before counts with what is seen now. */
	if (target->unknown_seen > 8 * KMIGRATED_SAMPLES) {
		target->unknown_seen /= 2;
		target->unknown_usable /= 2;
	}
	return div64_u64(unknown * target->unknown_usable, max(target->unknown_seen, 1UL));
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
		whole &= pghot_know_node(nid, due ? sweep : NULL, &k->chunk, &target->known);
		unknown = &target->known.pages[0][FERRY_HOT_AGES - 1];
		*unknown = kmigrated_unknown(target, nid, *unknown);
	}
	if (due && !whole)
		sweep->now = sweep->last;
	kmigrated_counted(&kmigrated_top.counted, began);
}

/* Records need so long to follow a change of what an access is: two walks. */
#define LOOKS_MS	(2 * PGHOT_ROUND_MS)

/*
 * Lets walks look sooner or later after they cleared the bits. The pages of this thread's node
 * stand for those of all lower nodes.
 */
void kmigrated_fit_looks(struct kmigrated *k)
{
	unsigned int halvings = pghot_looks_sooner(), fitting;
	struct ferry_hot_histogram *top;
	u64 free = kmigrated_free(), kept = kmigrated_top.balance.room;
	int nid, i, age;

	if (!IS_ENABLED(CONFIG_PGHOT_PGTSCAN) || k->now - kmigrated_top.looked < LOOKS_MS)
		return;
	top = kzalloc(sizeof(*top), GFP_KERNEL);
	if (!top)
		return;
	for_each_top_node(nid)
		for (i = 0; i < FERRY_HOT_EIGHTHS; i++)
			for (age = 0; age < FERRY_HOT_AGES; age++)
				top->pages[i][age] +=
					kmigrated_top.targets[nid].known.pages[i][age];
	fitting = ferry_balance_look(&k->hot, top, &k->lower, free - min(free, kept),
				     kmigrated_top.came, halvings);
	kfree(top);
	WRITE_ONCE(pghot_scan_halvings, fitting);
	kmigrated_top.looked = k->now;
	kmigrated_top.came = 0;
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

	/* Most of what a short look found idle is accessed until the next one, hot or not. */
	if (pghot_looks_sooner())
		return false;
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
	u32 least, heat;		/* of at least and at most these heats */
	unsigned long *from;		/* where it goes on */
	unsigned long most;		/* base pages wanted */
	unsigned long got;		/* isolated; more if the last folio is large */
	struct list_head folios;
};

/* Isolates a folio of the top tier if it is as cold as its record. Returns its base pages, or 0. */
static unsigned long kmigrated_isolate_cold(unsigned long pfn, struct kmigrated_cold *cold)
{
	struct folio *folio = kmigrated_folio(pfn, cold->nid);
	nodemask_t nodes = nodemask_of_node(cold->to);
	unsigned long pages = 0;

	if (!folio)
		return 0;
	if (kmigrated_may_leave(folio) && !kmigrated_protected(folio) &&
	    !kmigrated_in_use(folio) && kmigrated_allowed(folio, &nodes) &&
	    !nodes_empty(nodes) && folio_isolate_lru(folio)) {
		pages = folio_nr_pages(folio);
		list_add_tail(&folio->lru, &cold->folios);
	}
	folio_put(folio);
	return pages;
}

/* The first page frame of the compound page that @pfn is of, and the one behind it: a hint. */
static void kmigrated_compound(unsigned long pfn, unsigned long *begin, unsigned long *end)
{
	struct page *page;

	*begin = pfn;
	*end = pfn + 1;
	/* Memory that goes offline keeps its struct pages until RCU readers are through. */
	rcu_read_lock();
	page = pfn_to_online_page(pfn);
	if (page) {
		page = compound_head(page);
		*begin = page_to_pfn(page);
		*end = max(*end, *begin + min(compound_nr(page), PAGES_PER_SECTION));
	}
	rcu_read_unlock();
}

/* Whether pages of a section of which nothing is known may leave: takes some of them. */
static bool kmigrated_sample_cold(struct kmigrated *k, struct kmigrated_cold *cold,
				  const struct pghot_section *section)
{
	unsigned long step = PAGES_PER_SECTION / SAMPLES, begin, end, got = cold->got, i;
	/* Others each time. */
	unsigned long first = section->start_pfn + k->now % step;

	for (i = 0; i < SAMPLES && cold->got < cold->most && k->looks; i++, k->looks--) {
		kmigrated_compound(first + i * step, &begin, &end);
		if (!pghot_look(begin, k->now).freq)
			cold->got += kmigrated_isolate_cold(begin, cold);
	}
	return cold->got > got;
}

/* Looks through a section from *cold->from on. */
static void kmigrated_cold_of(struct kmigrated *k, struct kmigrated_cold *cold,
			      struct pghot_section *section)
{
	unsigned long pfn, begin, end = *cold->from;
	size_t from = *cold->from - section->start_pfn, nr, i;
	u32 found[32];

	if (!cold->heat && !from && !kmigrated_sample_cold(k, cold, section)) {
		if (k->looks)
			*cold->from += PAGES_PER_SECTION;
		return;
	}
	while (from < PAGES_PER_SECTION && cold->got < cold->most && k->looks &&
	       !kmigrated_should_stop()) {
		nr = pghot_find(section, &from, &k->hot, k->now, cold->least, cold->heat, found,
				ARRAY_SIZE(found));
		for (i = 0; i < nr && cold->got < cold->most; i++) {
			pfn = section->start_pfn + found[i];
			/* One look for a compound page, whether it is a folio that moves or not. */
			if (pfn < end)
				continue;
			kmigrated_compound(pfn, &begin, &end);
			cold->got += kmigrated_isolate_cold(pfn, cold);
			k->looks -= k->looks > 0;
		}
		/* Those that were found and not looked at come first the next time. */
		pfn = section->start_pfn + (i < nr ? found[i] : from);
		from = min(max(pfn, end) - section->start_pfn, PAGES_PER_SECTION);
		*cold->from = section->start_pfn + from;
		cond_resched();
	}
}

/* Isolates pages of a node; goes on where it stopped, and once around. */
static void kmigrated_find_cold_from(struct kmigrated *k, struct kmigrated_cold *cold,
				     unsigned long *from)
{
	struct pghot_section *section;
	unsigned int rounds;

	cold->from = from;
	for (rounds = 0; rounds < 2 && cold->got < cold->most && k->looks; rounds++) {
		for_each_pghot_section(section, cold->nid) {
			if (section->start_pfn + PAGES_PER_SECTION <= *from)
				continue;
			*from = max(*from, section->start_pfn);
			kmigrated_cold_of(k, cold, section);
			if (cold->got >= cold->most || !k->looks) {
				pghot_put_section(section);
				return;
			}
		}
		*from = 0;
	}
}

/*
 * Isolates pages of a node: such that were in use and are idle now; then such of which nothing is
 * known, many of which may never move.
 */
static void kmigrated_find_cold(struct kmigrated *k, struct kmigrated_cold *cold)
{
	struct kmigrated_target *target = &kmigrated_top.targets[cold->nid];
	u32 heat = cold->heat;

	cold->least = 1;
	if (heat)
		kmigrated_find_cold_from(k, cold, &target->cold_pfn);
	cold->least = 0;
	cold->heat = 0;
	kmigrated_find_cold_from(k, cold, &target->unknown_pfn);
	cold->heat = heat;
}

/*
 * As kswapd demotes: from free memory, or not at all. alloc_migration_target() would reclaim and
 * compact for large folios, even under PF_MEMALLOC; but these are split if there is no block.
 */
static struct folio *kmigrated_alloc_lower(struct folio *src, unsigned long nid)
{
	gfp_t gfp = (GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM) | __GFP_NOWARN | __GFP_NOMEMALLOC;
	nodemask_t nodes = nodemask_of_node(nid);

	/* For a block kswapd would reclaim until there is one. */
	if (!folio_test_large(src))
		gfp |= __GFP_KSWAPD_RECLAIM;
	return __folio_alloc(gfp, folio_order(src), nid, &nodes);
}

/*
 * The node that cold pages are demoted to: the next demotion target, as for kswapd. An exchange
 * takes the node that the hot pages leave, if that has room: with one target for all lower nodes,
 * exchanges would fill that target.
 */
static int kmigrated_lower_node(const struct kmigrated *k, int nid)
{
	if (k->exchanging && kmigrated_room(k->nid) >= (long)STEP_PAGES)
		return k->nid;
	return next_demotion_node(nid, &node_states[N_MEMORY]);
}

/* Whether the tier has free memory for hot pages, beyond what is kept for new ones. */
bool kmigrated_has_free(void)
{
	return kmigrated_free() >= kmigrated_top.balance.room + STEP_PAGES;
}

/* Counts the room of the top tier anew: others free and take pages as well. */
static void kmigrated_know_rooms(void)
{
	int nid;

	for_each_top_node(nid)
		kmigrated_know_room(nid);
}

/*
 * Counts room before pages leave for want of it: what all CPUs keep is free, too, thousands of
 * pages each on large nodes. They fill up again, so this is for now and then.
 */
static void kmigrated_gather_free(struct kmigrated *k)
{
	if (k->now - kmigrated_top.gathered < MSEC_PER_SEC)
		return;
	kmigrated_top.gathered = k->now;
	drain_all_pages(NULL);
	kmigrated_know_rooms();
}

/*
 * Demotes pages of at most @heat, @most or what the last folio has on top; returns how many base
 * pages went. CPUs keep what they free, where watermarks do not see it, but another node's pages
 * come for it: so drain this CPU, which freed most of it.
 */
static unsigned long kmigrated_demote(struct kmigrated *k, int nid, unsigned long most, u32 heat)
{
	struct kmigrated_cold cold = {
		.nid = nid, .to = kmigrated_lower_node(k, nid), .heat = heat, .most = most,
		.folios = LIST_HEAD_INIT(cold.folios),
	};
	unsigned int moved = 0;
	struct folio *folio;
	u64 reserved = 0;

	if (cold.to == NUMA_NO_NODE ||
	    !kmigrated_reserve(&kmigrated_top.targets[nid], k->now, most, &reserved))
		return 0;
	k->now = pghot_now();
	kmigrated_find_cold(k, &cold);
	/* As reclaim: migration does not count what it demotes as isolated. */
	if (cold.got)
		migrate_pages(&cold.folios, kmigrated_alloc_lower, NULL, cold.to, MIGRATE_ASYNC,
			      MR_DEMOTION, &moved);
	while ((folio = list_first_entry_or_null(&cold.folios, struct folio, lru))) {
		list_del(&folio->lru);
		folio_putback_lru(folio);
	}
	migrate_disable();
	drain_local_pages(NULL);
	migrate_enable();
	kmigrated_settle(nid, reserved, moved);
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
	kmigrated_gather_free(k);
	/* balance.room is what is kept: demote until so much is free. */
	wanted = kmigrated_top.balance.room - min(kmigrated_top.balance.room, kmigrated_free());
	wanted = min(wanted, KMIGRATED_PAGES);
	share = DIV_ROUND_UP(wanted, max(nodes, 1));
	for_each_top_node(nid) {
		for (wanted = share; wanted && !kmigrated_should_stop();
		     wanted -= min(wanted, moved)) {
			/* More than wanted if the last folio is large. */
			moved = kmigrated_demote(k, nid, min(wanted, STEP_PAGES),
						 ferry_balance_idle(&k->hot));
			if (!moved)
				break;
		}
	}
}

/*
 * Room of a node for hot pages: what is not kept for new ones, which may come to any node; or
 * what was made for hot ones, as far as others left it.
 */
static long kmigrated_spare(int nid)
{
	long room = kmigrated_target_room(nid), kept = kmigrated_top.balance.room;
	int other;

	for_each_top_node(other)
		if (other != nid)
			kept -= max(kmigrated_target_room(other), 0L);
	return max(room - max(kept, 0L),
		   min(room, kmigrated_top.targets[nid].made));
}

/*
 * Whether a node has room for a hot folio, which cold pages make. They go in steps, and a step goes
 * after the last one's room was used, so that neither tier needs more room than for one. *@moved
 * grows by what had to move before.
 */
bool kmigrated_exchange_room(struct kmigrated *k, int nid, long pages, unsigned long *moved)
{
	struct kmigrated_target *target = &kmigrated_top.targets[nid];
	unsigned long went;

	if (kmigrated_spare(nid) < pages)
		*moved += kmigrated_flush(k);
	while (kmigrated_spare(nid) < pages && !node_isset(nid, k->full)) {
		went = target->made < (long)STEP_PAGES ?
		       kmigrated_demote(k, nid, STEP_PAGES,
					ferry_hot_coldest(&k->hot, target->border.hot)) : 0;
		target->made += went;
		k->went += went;
		if (!went || kmigrated_should_stop())
			node_set(nid, k->full);
	}
	return kmigrated_spare(nid) >= pages;
}

/* Whether no node has room for a hot folio any more, nor makes some in this round. */
bool kmigrated_exchange_ended(const struct kmigrated *k)
{
	int nid;

	for_each_top_node(nid)
		if (!node_isset(nid, k->full) || kmigrated_spare(nid) > 0)
			return false;
	return true;
}

/*
 * Lets the hottest pages below change places with the coldest above. Each node for itself: that
 * another one has cold pages makes no room on this one. While the tier has free memory, nothing
 * goes down unless a hot page found none on the nodes that it may use (k->full). Pages are chosen
 * once, for the node with the lowest border; each has its own as the bar. Returns how many base
 * pages came up.
 */
unsigned long kmigrated_exchange(struct kmigrated *k)
{
	struct ferry_hot_exchange *border, *lowest = NULL;
	struct kmigrated_target *target;
	unsigned long most, came;
	int nid;

	if (nodes_empty(k->full) && kmigrated_has_free())
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
	for_each_top_node(nid) {
		if (kmigrated_target_room(nid) < 0)
			kmigrated_gather_free(k);
		/* What others had taken before comes first. */
		kmigrated_top.targets[nid].made = min(kmigrated_target_room(nid), 0L);
	}
	kmigrated_choose(k, lowest->hot, lowest->hot_room);
	k->exchanging = true;
	k->went = 0;
	came = kmigrated_promote(k, most);
	k->exchanging = false;
	pghot_stat_add(PGHOT_EXCHANGED, min(came, k->went));
	kmigrated_top.came += came;
	return came;
}
