// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which memory has records, and where they lie: a map from sections of memory to their
 * records that follows memory hotplug, the tiers of nodes and the sources that are on. And what
 * is done with many records at once: aging and counting those of a node, and finding pages by
 * their heat, with no look at a struct page.
 *
 * Whoever reads the map under RCU may use the records until the end of that critical section;
 * whoever needs them longer takes a reference. Memory that goes offline waits for the former
 * and not for the latter.
 */
#include <linux/kcsan-checks.h>
#include <linux/memory.h>
#include <linux/memory-tiers.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/xarray.h>

#include "pghot.h"

/* By section number. Changed under pghot_map_lock, inside of the lock of memory hotplug. */
DEFINE_XARRAY(pghot_sections);

/* Bytes of all records. */
atomic_long_t pghot_record_memory;
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
		atomic_long_sub(pghot_record_bytes() + sizeof(*section), &pghot_record_memory);
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
	atomic_long_add(pghot_record_bytes() + sizeof(*section), &pghot_record_memory);
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

/* Records are swept in copies of this size, as sources write them at any time. */
#define PGHOT_CHUNK_BYTES	(PAGES_PER_SECTION < 4096 ? PAGES_PER_SECTION : 4096UL)

/* struct pghot_chunk - records as they were, and as they are after the sweep */
struct pghot_chunk {
	union {
		u8 old8[PGHOT_CHUNK_BYTES];
		u32 old32[PGHOT_CHUNK_BYTES / sizeof(u32)];
		u64 old64[PGHOT_CHUNK_BYTES / sizeof(u64)];
	};
	union {
		u8 new8[PGHOT_CHUNK_BYTES];
		u32 new32[PGHOT_CHUNK_BYTES / sizeof(u32)];
		u64 new64[PGHOT_CHUNK_BYTES / sizeof(u64)];
	};
};

/* What a sweep makes of eight bytes of records, of which it may be the only writer or not. */
static void pghot_age_word(void *at, u64 old, u64 new, const struct ferry_hot_params *params,
			   const struct ferry_hot_sweep *sweep)
{
	u32 *words = at;
	u8 *bytes = at;
	unsigned int i;

	if (try_cmpxchg64((u64 *)at, &old, new))
		return;
	if (pghot_format() == FERRY_HOT_PRECISE) {
		for (i = 0; i < sizeof(u64) / sizeof(u32); i++) {
			u32 record = READ_ONCE(words[i]), aged;

			do {
				aged = ferry_hot32_aged(record, params, sweep);
			} while (aged != record && !try_cmpxchg(&words[i], &record, aged));
		}
		return;
	}
	for (i = 0; i < sizeof(u64); i++) {
		u8 record = READ_ONCE(bytes[i]), aged;

		do {
			aged = ferry_hot8_aged(record, params, sweep);
		} while (aged != record && !try_cmpxchg(&bytes[i], &record, aged));
	}
}

static void pghot_sweep_chunk(void *records, struct pghot_chunk *chunk,
			      const struct ferry_hot_params *params,
			      const struct ferry_hot_sweep *sweep,
			      struct ferry_hot_histogram *histogram)
{
	size_t changed, i;

	/* Whatever a racing access makes of a record, either before or after it is right. */
	data_race(memcpy(chunk->old8, records, PGHOT_CHUNK_BYTES));
	memcpy(chunk->new8, chunk->old8, PGHOT_CHUNK_BYTES);
	if (pghot_format() == FERRY_HOT_PRECISE)
		changed = ferry_hot32_sweep(chunk->new32, ARRAY_SIZE(chunk->new32), params, sweep,
					    histogram);
	else
		changed = ferry_hot8_sweep(chunk->new8, ARRAY_SIZE(chunk->new8), params, sweep,
					   histogram);
	for (i = 0; changed && i < ARRAY_SIZE(chunk->old64); i++)
		if (chunk->old64[i] != chunk->new64[i])
			pghot_age_word((u64 *)records + i, chunk->old64[i], chunk->new64[i],
				       params, sweep);
}

/* Pages that reached the threshold, whenever that was. */
static u64 pghot_hot_pages(const struct ferry_hot_histogram *histogram, u32 threshold)
{
	unsigned int i, age;
	u64 pages = 0;

	for (i = 8 * threshold - 7; i < FERRY_HOT_EIGHTHS; i++)
		for (age = 0; age < FERRY_HOT_AGES; age++)
			pages += histogram->pages[i][age];
	return pages;
}

static void pghot_sweep_section(struct pghot_section *section, struct pghot_chunk *chunk,
				const struct ferry_hot_params *params,
				const struct ferry_hot_sweep *sweep,
				struct ferry_hot_histogram *histogram)
{
	size_t record = pghot_format() == FERRY_HOT_PRECISE ? sizeof(u32) : sizeof(u8), at;
	u64 before = pghot_hot_pages(histogram, params->threshold);
	bool unknown;

	WRITE_ONCE(section->hot, 0);
	/* Whoever makes a page ready from here on says so again: before records are read. */
	smp_mb();
	for (at = 0; at < pghot_record_bytes(); at += PGHOT_CHUNK_BYTES) {
		/* An access that comes now is seen by the next sweep. */
		unknown = !data_race(memchr_inv(section->records + at, 0, PGHOT_CHUNK_BYTES));
		if (unknown)
			histogram->pages[0][FERRY_HOT_AGES - 1] += PGHOT_CHUNK_BYTES / record;
		else
			pghot_sweep_chunk(section->records + at, chunk, params, sweep, histogram);
	}
	if (pghot_hot_pages(histogram, params->threshold) > before)
		WRITE_ONCE(section->hot, 1);
}

/**
 * pghot_sweep_node - age all records of a node, and count them
 * @nid: the node
 * @sweep: the sweep; no node may be swept twice with the same number. Its @now is when the sweep
 *	began; of a large node the last records are swept later
 * @histogram: gains the records as they are afterwards; not cleared before
 *
 * Accesses that are recorded meanwhile are not lost. Only one sweep of a node at a time.
 *
 * Context: Process context; sleeps.
 */
void pghot_sweep_node(int nid, const struct ferry_hot_sweep *sweep,
		      struct ferry_hot_histogram *histogram)
{
	struct ferry_hot_sweep later = *sweep;
	struct pghot_section *section;
	struct ferry_hot_params params;
	struct pghot_chunk *chunk;

	/* A sweep that is left out makes the next one late, which then trusts no record. */
	chunk = kmalloc(sizeof(*chunk), GFP_KERNEL | __GFP_NOFAIL);
	pghot_get_params(&params);
	for_each_pghot_section(section, nid) {
		later.now = pghot_now();
		pghot_sweep_section(section, chunk, &params, &later, histogram);
		cond_resched();
	}
	kfree(chunk);
}

/**
 * pghot_find - which pages of a section have some heat
 * @section: the section; only its records are read
 * @from: where to begin, 0 at first; receives where to go on, PAGES_PER_SECTION at the end
 * @now: time in ms
 * @least_heat: smallest heat
 * @most_heat: largest heat
 * @found: receives the pages, counted from the section's first one, ascending
 * @space: entries of @found
 *
 * Context: Any that may take the time to read the records.
 * Return: how many it found; fewer than @space at the end only.
 */
size_t pghot_find(const struct pghot_section *section, size_t *from, u32 now, u32 least_heat,
		  u32 most_heat, u32 *found, size_t space)
{
	struct ferry_hot_params params;
	size_t nr;

	pghot_get_params(&params);
	/* Records that change meanwhile may be found or not. */
	kcsan_disable_current();
	if (pghot_format() == FERRY_HOT_PRECISE)
		nr = ferry_hot32_find(section->words, PAGES_PER_SECTION, from, &params, now,
				      least_heat, most_heat, found, space);
	else
		nr = ferry_hot8_find(section->bytes, PAGES_PER_SECTION, from, &params, now,
				     least_heat, most_heat, found, space);
	kcsan_enable_current();
	return nr;
}

/* Counts the pages of a section, as they are now. */
void pghot_count_section(const struct pghot_section *section, u32 now,
			 struct ferry_hot_histogram *histogram)
{
	size_t record = pghot_format() == FERRY_HOT_PRECISE ? sizeof(u32) : sizeof(u8), at;
	size_t nr = PGHOT_CHUNK_BYTES / record;
	void *records;

	kcsan_disable_current();
	for (at = 0; at < pghot_record_bytes(); at += PGHOT_CHUNK_BYTES) {
		records = section->records + at;
		if (!memchr_inv(records, 0, PGHOT_CHUNK_BYTES))
			histogram->pages[0][FERRY_HOT_AGES - 1] += nr;
		else if (pghot_format() == FERRY_HOT_PRECISE)
			ferry_hot32_count(records, nr, now, histogram);
		else
			ferry_hot8_count(records, nr, now, histogram);
	}
	kcsan_enable_current();
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
