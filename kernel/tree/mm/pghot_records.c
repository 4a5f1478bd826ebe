// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which memory has records, and where they lie: a map from sections of memory to their
 * records that follows memory hotplug, the tiers of nodes and the sources that are on.
 *
 * Whoever reads the map under RCU may use the records until the end of that critical section;
 * whoever needs them longer takes a reference. Memory that goes offline waits for the former
 * and not for the latter.
 */
#include <linux/memory.h>
#include <linux/memory-tiers.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "pghot.h"

/* By section number. Changed under pghot_map_lock, inside of the lock of memory hotplug. */
DEFINE_XARRAY(pghot_sections);
static DEFINE_MUTEX(pghot_map_lock);

static size_t pghot_record_bytes(void)
{
	return PAGES_PER_SECTION * (pghot_format() == FERRY_HOT_PRECISE ? sizeof(u32) : sizeof(u8));
}

static void pghot_free_section(struct rcu_head *rcu)
{
	struct pghot_section *section = container_of(rcu, struct pghot_section, rcu);

	kvfree(section->records);
	kfree(section);
}

void pghot_put_section(struct pghot_section *section)
{
	/* Readers under RCU have no reference. */
	if (refcount_dec_and_test(&section->ref)) {
		pghot_count(PGHOT_RECORD_BYTES, -(pghot_record_bytes() + sizeof(*section)));
		call_rcu(&section->rcu, pghot_free_section);
	}
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

static int pghot_add_section(unsigned long nr, int nid, bool lower)
{
	struct pghot_section *section;
	int error;

	section = kzalloc(sizeof(*section), GFP_KERNEL);
	if (!section)
		return -ENOMEM;
	/* Records are read for every access: better not on the node that is slow. */
	section->records = kvzalloc_node(pghot_record_bytes(), GFP_KERNEL, pghot_target_nid());
	if (!section->records) {
		kfree(section);
		return -ENOMEM;
	}
	refcount_set(&section->ref, 1);
	section->nid = nid;
	section->lower = lower;
	section->start_pfn = section_nr_to_pfn(nr);
	error = xa_err(xa_store(&pghot_sections, nr, section, GFP_KERNEL));
	if (error) {
		kvfree(section->records);
		kfree(section);
		return error;
	}
	pghot_count(PGHOT_RECORD_BYTES, pghot_record_bytes() + sizeof(*section));
	return 0;
}

static void pghot_drop_section(unsigned long nr)
{
	struct pghot_section *section = xa_erase(&pghot_sections, nr);

	if (section)
		pghot_put_section(section);
}

/*
 * The top tier has records only while page tables are scanned: other sources see the pages of
 * lower tiers alone, and would say that all others are cold.
 */
static bool pghot_wants_records(int nid, unsigned int sources, bool tiered)
{
	if (!sources || !tiered || !node_state(nid, N_MEMORY))
		return false;
	return !node_is_toptier(nid) || sources & BIT(PGHOT_PGTSCAN);
}

static bool pghot_has_tiers(void)
{
	int nid;

	for_each_node_state(nid, N_MEMORY)
		if (!node_is_toptier(nid))
			return true;
	return false;
}

static int pghot_update_section(unsigned long nr, unsigned int sources, bool tiered)
{
	struct pghot_section *section = xa_load(&pghot_sections, nr);
	int nid = pghot_section_nid(section_nr_to_pfn(nr));

	if (nid == NUMA_NO_NODE || !pghot_wants_records(nid, sources, tiered)) {
		pghot_drop_section(nr);
		return 0;
	}
	if (!section)
		return pghot_add_section(nr, nid, !node_is_toptier(nid));
	WRITE_ONCE(section->lower, !node_is_toptier(nid));
	return 0;
}

/**
 * pghot_update_records - make the map what it should be
 * @sources: bits of the sources that are on
 *
 * Context: Process context; takes the lock of memory hotplug.
 * Return: 0, or -ENOMEM if some memory has no records.
 */
int pghot_update_records(unsigned int sources)
{
	unsigned long nr, last;
	int error = 0, nid;
	bool tiered;

	get_online_mems();
	mutex_lock(&pghot_map_lock);
	tiered = pghot_has_tiers();
	for_each_online_node(nid) {
		if (!node_spanned_pages(nid))
			continue;
		last = pfn_to_section_nr(node_end_pfn(nid) - 1);
		for (nr = pfn_to_section_nr(node_start_pfn(nid)); nr <= last && !error; nr++)
			if (online_section_nr(nr)) {
				error = pghot_update_section(nr, sources, tiered);
				cond_resched();
			}
	}
	mutex_unlock(&pghot_map_lock);
	put_online_mems();
	return error;
}

/**
 * pghot_next_section - goes through the sections of a node that have records
 * @nid: the node
 * @section: the last one, which is put; NULL to begin
 *
 * Sections that come and go meanwhile may be missed.
 *
 * Context: Any that pghot_put_section() may be called in.
 * Return: the next one, with a reference; NULL at the end.
 */
struct pghot_section *pghot_next_section(int nid, struct pghot_section *section)
{
	unsigned long nr = pfn_to_section_nr(node_start_pfn(nid));
	struct pghot_section *next;

	if (section) {
		nr = pfn_to_section_nr(section->start_pfn) + 1;
		pghot_put_section(section);
	}
	if (!node_spanned_pages(nid))
		return NULL;
	rcu_read_lock();
	for (next = xa_find(&pghot_sections, &nr, ULONG_MAX, XA_PRESENT); next;
	     next = xa_find_after(&pghot_sections, &nr, ULONG_MAX, XA_PRESENT)) {
		if (next->start_pfn >= node_end_pfn(nid)) {
			next = NULL;
			break;
		}
		if (next->nid == nid && refcount_inc_not_zero(&next->ref))
			break;
	}
	rcu_read_unlock();
	return next;
}

/* Memory that is gone has no records; memory that came may want some. */
static int pghot_memory_changed(struct notifier_block *self, unsigned long action, void *data)
{
	struct memory_notify *memory = data;
	unsigned long nr, last;

	switch (action) {
	case MEM_ONLINE:
		pghot_tiers_changed();
		break;
	case MEM_OFFLINE:
		last = pfn_to_section_nr(memory->start_pfn + memory->nr_pages - 1);
		mutex_lock(&pghot_map_lock);
		for (nr = pfn_to_section_nr(memory->start_pfn); nr <= last; nr++)
			pghot_drop_section(nr);
		mutex_unlock(&pghot_map_lock);
		/* Who found records there may be reading the struct pages, which go next. */
		synchronize_rcu();
		break;
	}
	return NOTIFY_OK;
}

void __init pghot_records_init(void)
{
	hotplug_memory_notifier(pghot_memory_changed, DEFAULT_CALLBACK_PRI);
}
