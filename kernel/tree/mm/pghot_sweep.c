// SPDX-License-Identifier: GPL-2.0-only
/*
 * Many records at once: aging those of a node, counting them, and finding pages by their heat.
 * No struct page is looked at.
 */
#include <linux/kcsan-checks.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "pghot.h"

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

static size_t pghot_section_bytes(void)
{
	return PAGES_PER_SECTION * (pghot_format() == FERRY_HOT_PRECISE ? sizeof(u32) : sizeof(u8));
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
	for (at = 0; at < pghot_section_bytes(); at += PGHOT_CHUNK_BYTES) {
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
	for (at = 0; at < pghot_section_bytes(); at += PGHOT_CHUNK_BYTES) {
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
