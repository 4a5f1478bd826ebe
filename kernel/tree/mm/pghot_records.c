// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which memory has records, and where they lie: sections of memory point to their records, which
 * follow memory hotplug, the tiers of nodes and the sources that are on. And many records at
 * once: aging and counting those of a node, and finding pages by their heat.
 *
 * Readers under RCU may use the records until the end of that critical section; longer ones take
 * a reference. Memory that goes offline waits for the former and not for the latter.
 */
#include <linux/kcsan-checks.h>
#include <linux/kthread.h>
#include <linux/memory.h>
#include <linux/memory-tiers.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "pghot.h"

/* Changes of mem_section::pghot. Inside of the lock of memory hotplug. */
static DEFINE_MUTEX(pghot_map_lock);

/* Bytes of all records. */
atomic_long_t pghot_record_memory;

static size_t pghot_section_bytes(void)
{
	return PAGES_PER_SECTION * pghot_record_size();
}

void pghot_put_section(struct pghot_section *section)
{
	if (!refcount_dec_and_test(&section->ref))
		return;
	atomic_long_sub(pghot_section_bytes() + sizeof(*section), &pghot_record_memory);
	/* Readers under RCU have no reference. */
	kvfree_rcu_mightsleep(section->records);
	kfree_rcu(section, rcu);
}

/* The node of a section: that of its first page that is there; NUMA_NO_NODE if none is. */
static int pghot_section_nid(unsigned long start_pfn)
{
	unsigned long pfn;

	for (pfn = start_pfn; pfn < start_pfn + PAGES_PER_SECTION; pfn++) {
		struct page *page = pfn_to_online_page(pfn);

		if (page)
			return page_to_nid(page);
	}
	return NUMA_NO_NODE;
}

static int pghot_add_section(unsigned long nr, int nid)
{
	struct pghot_section *section = kzalloc(sizeof(*section), GFP_KERNEL);

	if (!section)
		return -ENOMEM;
	refcount_set(&section->ref, 1);
	section->nid = nid;
	section->start_pfn = section_nr_to_pfn(nr);
	section->swept = pghot_now();
	/* Records are read for every access: better not on the node that is slow. */
	section->records = kvzalloc_node(pghot_section_bytes(), GFP_KERNEL, pghot_target_nid());
	if (!section->records) {
		kfree(section);
		return -ENOMEM;
	}
	atomic_long_add(pghot_section_bytes() + sizeof(*section), &pghot_record_memory);
	rcu_assign_pointer(__nr_to_section(nr)->pghot, section);
	return 0;
}

static void pghot_drop_section(unsigned long nr)
{
	struct pghot_section *section = rcu_replace_pointer(__nr_to_section(nr)->pghot, NULL,
							    lockdep_is_held(&pghot_map_lock));

	if (section)
		pghot_put_section(section);
}

/*
 * The nodes whose memory has records: those of lower tiers. The top tier has some only while page
 * tables are scanned: other sources see the pages of lower tiers alone, and would say that all
 * others are cold.
 */
static nodemask_t pghot_recorded_nodes(unsigned int sources)
{
	nodemask_t lower = NODE_MASK_NONE;
	int nid;

	for_each_node_state(nid, N_MEMORY)
		if (sources && !node_is_toptier(nid))
			node_set(nid, lower);
	return nodes_empty(lower) || !(sources & BIT(PGHOT_PGTSCAN)) ? lower :
								       node_states[N_MEMORY];
}

/*
 * Makes the map what it should be for these sources; -ENOMEM if some memory has no records. Takes
 * the lock of memory hotplug.
 */
int pghot_update_records(unsigned int sources)
{
	unsigned long nr;
	nodemask_t nodes;
	int error = 0, nid;

	get_online_mems();
	mutex_lock(&pghot_map_lock);
	nodes = pghot_recorded_nodes(sources);
	for (nr = 0; nr <= __highest_present_section_nr && !error; nr++) {
		if (!online_section_nr(nr))
			continue;
		nid = pghot_section_nid(section_nr_to_pfn(nr));
		if (nid == NUMA_NO_NODE || !node_isset(nid, nodes))
			pghot_drop_section(nr);
		else if (!rcu_access_pointer(__nr_to_section(nr)->pghot))
			error = pghot_add_section(nr, nid);
		cond_resched();
	}
	mutex_unlock(&pghot_map_lock);
	put_online_mems();
	return error;
}

/*
 * The first section of a node that has records, or the next one after @section, which is put.
 * With a reference; NULL at the end. Sections that come and go meanwhile may be missed.
 */
struct pghot_section *pghot_next_section(int nid, struct pghot_section *section)
{
	unsigned long pfn = SECTION_ALIGN_DOWN(node_start_pfn(nid));
	struct pghot_section *next = NULL;

	if (section) {
		pfn = section->start_pfn + PAGES_PER_SECTION;
		pghot_put_section(section);
	}
	rcu_read_lock();
	for (; pfn < node_end_pfn(nid); pfn += PAGES_PER_SECTION) {
		next = pghot_section_of(pfn);
		if (next && next->nid == nid && refcount_inc_not_zero(&next->ref))
			break;
		next = NULL;
	}
	rcu_read_unlock();
	return next;
}

/* Counts records, after aging them if the sweep has a number. */
struct pghot_sweep {
	struct ferry_hot_params params;
	struct ferry_hot_sweep sweep;
	struct ferry_hot_histogram *histogram;
	struct pghot_chunk *chunk;
};

/* Stores what the sweep made of eight bytes of records, or ages one by one if others wrote some. */
static void pghot_store_aged(void *at, u64 before, u64 after, const struct pghot_sweep *of)
{
	void *end = at + sizeof(u64);
	u32 old;

	if (try_cmpxchg64((u64 *)at, &before, after))
		return;
	for (; at < end; at += pghot_record_size())
		pghot_record_change(at, old, pghot_by_format(aged, old, &of->params, &of->sweep));
}

static void pghot_count_chunk(void *records, const struct pghot_sweep *of)
{
	size_t nr = PGHOT_CHUNK_BYTES / pghot_record_size(), changed, i;
	struct pghot_chunk *chunk = of->chunk;

	/* An access that comes now is seen the next time. */
	if (!memchr_inv(records, 0, PGHOT_CHUNK_BYTES)) {
		of->histogram->pages[0][FERRY_HOT_AGES - 1] += nr;
		return;
	}
	if (!of->sweep.number) {
		pghot_by_format(count, records, nr, of->sweep.now, of->histogram);
		return;
	}
	/* Whatever a racing access makes of a record, either before or after it is right. */
	memcpy(chunk->before, records, PGHOT_CHUNK_BYTES);
	memcpy(chunk->after, chunk->before, PGHOT_CHUNK_BYTES);
	changed = pghot_by_format(sweep, (void *)chunk->after, nr, &of->params, &of->sweep,
				  of->histogram);
	for (i = 0; changed && i < PGHOT_CHUNK_WORDS; i++)
		if (chunk->before[i] != chunk->after[i])
			pghot_store_aged((u64 *)records + i, chunk->before[i], chunk->after[i], of);
}

/* Pages that reached the threshold, whenever that was. */
u64 pghot_hot_pages(const struct ferry_hot_histogram *histogram, u32 threshold)
{
	unsigned int i, age;
	u64 pages = 0;

	for (i = 8 * threshold - 7; i < FERRY_HOT_EIGHTHS; i++)
		for (age = 0; age < FERRY_HOT_AGES; age++)
			pages += histogram->pages[i][age];
	return pages;
}

static void pghot_count_records(const struct pghot_section *section, const struct pghot_sweep *of)
{
	size_t at;

	/* Records that change meanwhile count as they were or as they are. */
	kcsan_disable_current();
	for (at = 0; at < pghot_section_bytes(); at += PGHOT_CHUNK_BYTES)
		pghot_count_chunk(section->records + at, of);
	kcsan_enable_current();
}

static void pghot_sweep_section(struct pghot_section *section, const struct pghot_sweep *of)
{
	u64 before = pghot_hot_pages(of->histogram, of->params.threshold);

	WRITE_ONCE(section->hot, 0);
	/* Pairs with pghot_kick(): an access after this sets it again, one before is swept. */
	smp_mb();
	pghot_count_records(section, of);
	if (pghot_hot_pages(of->histogram, of->params.threshold) > before)
		WRITE_ONCE(section->hot, 1);
}

/*
 * Finds pages of a section with a heat from @least_heat to @most_heat, counted from its first
 * page, ascending: at most @space, from *@from on, which receives where to go on.
 */
size_t pghot_find(const struct pghot_section *section, size_t *from,
		  const struct ferry_hot_params *params, u32 now, u32 least_heat, u32 most_heat,
		  u32 *found, size_t space)
{
	size_t nr;

	/* Records that change meanwhile may be found or not. */
	kcsan_disable_current();
	nr = pghot_by_format(find, section->records, PAGES_PER_SECTION, from, params, now,
			     least_heat, most_heat, found, space);
	kcsan_enable_current();
	return nr;
}

/* Adds the pages of a section to @histogram, as they are now. */
void pghot_count_section(const struct pghot_section *section, u32 now,
			 struct ferry_hot_histogram *histogram)
{
	struct pghot_sweep of = { .sweep.now = now, .histogram = histogram };

	pghot_count_records(section, &of);
}

/*
 * Counts the pages of a node, after @sweep aged them if there is one. No node may be swept twice
 * with the same number, nor by two at a time. Accesses that are recorded meanwhile are not lost.
 * @chunk is the caller's, for as long as this takes: a sweep that is left out for want of memory
 * makes the next one late, which then trusts no record. Returns false if the thread has to stop
 * before it is through.
 */
bool pghot_know_node(int nid, const struct ferry_hot_sweep *sweep,
		     struct pghot_chunk *chunk, struct ferry_hot_histogram *histogram)
{
	struct pghot_sweep of = { .chunk = chunk, .histogram = histogram };
	struct pghot_section *section;

	memset(histogram, 0, sizeof(*histogram));
	of.params = pghot_get_params();
	if (sweep)
		of.sweep = *sweep;
	for_each_pghot_section(section, nid) {
		if (kthread_should_stop()) {
			pghot_put_section(section);
			break;
		}
		/* A sweep of a large node takes a while: each section has its own times. */
		of.sweep.now = pghot_now();
		of.sweep.last = section->swept;
		if (sweep) {
			section->swept = of.sweep.now;
			pghot_sweep_section(section, &of);
		} else {
			pghot_count_records(section, &of);
		}
		cond_resched();
	}
	return !section;
}

/* Memory that is gone has no records; memory that came may want some. */
static int pghot_memory_changed(struct notifier_block *self, unsigned long action, void *data)
{
	struct memory_notify *memory = data;
	unsigned long nr, last;

	if (action == MEM_ONLINE)
		pghot_tiers_changed();
	if (action != MEM_OFFLINE)
		return NOTIFY_OK;
	last = pfn_to_section_nr(memory->start_pfn + memory->nr_pages - 1);
	mutex_lock(&pghot_map_lock);
	for (nr = pfn_to_section_nr(memory->start_pfn); nr <= last; nr++)
		pghot_drop_section(nr);
	mutex_unlock(&pghot_map_lock);
	/* Readers under RCU may be reading the struct pages, which go next. */
	synchronize_rcu();
	return NOTIFY_OK;
}

void __init pghot_records_init(void)
{
	hotplug_memory_notifier(pghot_memory_changed, DEFAULT_CALLBACK_PRI);
}
