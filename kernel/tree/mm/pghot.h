/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by mm/pghot*.c and mm/kmigrated*.c. The interface for sources is
 * include/linux/pghot.h.
 */
#ifndef _MM_PGHOT_H
#define _MM_PGHOT_H

#include <linux/memferry/balance.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/pghot.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>

/* How often records are swept; ferry_balance_defaults() is made for it. */
#define PGHOT_ROUND_MS		250U

/* How often kmigrated looks for work: a page waits half of it, and an empty look costs some us. */
#define PGHOT_SLEEP_MS		100U

/* Most folios that move in one batch: 2 MiB of base pages are unmapped for under a millisecond. */
#define PGHOT_BATCH_NR		512U

/*
 * Counters of debugfs pghot/status, since boot: first, by enum pghot_src, the accesses that each
 * source reported. Those of failures are base pages that were to be promoted.
 */
enum pghot_stat {
	PGHOT_EXCHANGED = PGHOT_SRC_MAX,	/* pages that changed places with others */
	PGHOT_BOUNCED,		/* pages promoted again after a wasted promotion */
	PGHOT_FAILED_PINNED,	/* pinned for DMA */
	PGHOT_FAILED_OWNER,	/* their owners may use no node of the top tier */
	PGHOT_FAILED_OFF_LRU,	/* could not be isolated */
	PGHOT_FAILED_NO_BLOCK,	/* the target has no free block of the folio's order */
	PGHOT_FAILED_BUSY,	/* referenced, locked or under writeback */
	PGHOT_SCANNED_PTES,
	PGHOT_SCAN_US,		/* CPU time of scans */
	PGHOT_WAKEUPS,		/* of kmigrated */
	PGHOT_STATS
};

/* Per CPU, so that sources add from any context. */
DECLARE_PER_CPU(unsigned long [PGHOT_STATS], pghot_stats);

static inline void pghot_stat_add(unsigned int stat, unsigned long n)
{
	this_cpu_add(pghot_stats[stat], n);
}

/*
 * The records of a section of memory. They are an allocation of their own, of exactly a power of
 * two: with a header inside they would take twice the memory. Everyone but the sweep writes single
 * records, by compare-and-exchange.
 */
struct pghot_section {
	refcount_t ref;		/* one of mem_section::pghot, one of each iteration */
	int nid;
	u64 majority;		/* upper half: owner; lower half: as ferry_hot_majority() */
	unsigned long hot;	/* the last sweep or an access since found a ready page */
	unsigned long start_pfn;
	void *records;		/* u8 each, or u32 if pghot_precise */
	u32 swept;		/* time of the last sweep, ms */
	struct rcu_head rcu;
};

/* The records that @pfn is among; NULL if its memory has none. Under RCU. */
static inline struct pghot_section *pghot_section_of(unsigned long pfn)
{
	struct mem_section *section = __pfn_to_section(pfn);

	return section ? rcu_dereference(section->pghot) : NULL;
}

/* Whether records have four bytes. */
extern bool pghot_precise;

/* ferry_hot32_@call() or ferry_hot8_@call(), by the format of records. */
#define pghot_by_format(call, ...)						\
	(pghot_precise ? ferry_hot32_##call(__VA_ARGS__) : ferry_hot8_##call(__VA_ARGS__))

static inline size_t pghot_record_size(void)
{
	return pghot_precise ? sizeof(u32) : sizeof(u8);
}

static inline u32 pghot_record_read(const void *record)
{
	return pghot_precise ? READ_ONCE(*(u32 *)record) : READ_ONCE(*(u8 *)record);
}

/* Replaces a record that still is *@old, or receives what it is. */
static inline bool pghot_record_replace(void *record, u32 *old, u32 new)
{
	u8 byte = *old;
	bool replaced;

	if (pghot_precise)
		return try_cmpxchg((u32 *)record, old, new);
	replaced = try_cmpxchg((u8 *)record, &byte, (u8)new);
	*old = byte;
	return replaced;
}

/*
 * Makes @new, an expression of @old, of a record, against other writers; @old receives what it was
 * before. Returns what it is.
 */
#define pghot_record_change(record, old, new)					\
({										\
	void *__record = (record);						\
	u32 __new;								\
										\
	(old) = pghot_record_read(__record);					\
	do {									\
		__new = (new);							\
	} while (__new != (old) && !pghot_record_replace(__record, &(old), __new)); \
	__new;									\
})

/* Records are swept in copies of this size, as sources write them at any time. */
#define PGHOT_CHUNK_BYTES	(PAGES_PER_SECTION < 4096 ? PAGES_PER_SECTION : 4096UL)
#define PGHOT_CHUNK_WORDS	(PGHOT_CHUNK_BYTES / sizeof(u64))

/* Records as they were, and as they are after the sweep. */
struct pghot_chunk {
	u64 before[PGHOT_CHUNK_WORDS];
	u64 after[PGHOT_CHUNK_WORDS];
};

/* pghot.c: sources, policy, one page */
extern struct ferry_balance_params pghot_balance_params;
unsigned int pghot_sources(void);
int pghot_set_sources(unsigned int sources);
struct ferry_hot_params pghot_get_params(void);
int pghot_set_window(unsigned int ms);
int pghot_set_threshold(unsigned int threshold);
unsigned int pghot_target_nid(void);
int pghot_set_target_nid(unsigned int nid);
struct ferry_hot_view pghot_look(unsigned long pfn, u32 now);
u32 pghot_age_ms(unsigned long pfn, u32 now);
bool pghot_set_ready(unsigned long pfn, bool ready);
void pghot_carry(unsigned long from_pfn, unsigned long to_pfn);
int pghot_target(unsigned long pfn);
bool pghot_may_promote(struct task_struct *task);
bool pghot_take_kick(int nid);
bool pghot_batch_ready(int nid);

/*
 * pghot_records.c: which memory has records, and many records. A section that pghot_next_section()
 * returned is pinned until it is handed to the next call or to pghot_put_section(): its records
 * stay readable, even if its memory goes offline meanwhile. So struct pages must be looked up by
 * pfn_to_online_page().
 */
extern atomic_long_t pghot_record_memory;
int pghot_update_records(unsigned int sources);
struct pghot_section *pghot_next_section(int nid, struct pghot_section *section);
void pghot_put_section(struct pghot_section *section);
u64 pghot_hot_pages(const struct ferry_hot_histogram *histogram, u32 threshold);
bool pghot_know_node(int nid, const struct ferry_hot_sweep *sweep,
		     struct pghot_chunk *chunk, struct ferry_hot_histogram *histogram);
size_t pghot_find(const struct pghot_section *section, size_t *from,
		  const struct ferry_hot_params *params, u32 now, u32 least_heat, u32 most_heat,
		  u32 *found, size_t space);
void pghot_count_section(const struct pghot_section *section, u32 now,
			 struct ferry_hot_histogram *histogram);
void pghot_records_init(void);

#define for_each_pghot_section(section, nid)				\
	for (section = pghot_next_section(nid, NULL); section;		\
	     section = pghot_next_section(nid, section))

/* pghot_sysfs.c */
void pghot_sysfs_init(void);

/*
 * pghot_scan.c. @pghot_scan_walk_ms: how long the last walk of all page tables took, or the one
 * under way takes if that is longer; 0 at first. If it is longer than the window, a page that was
 * not seen lately need not be idle.
 */
extern u32 pghot_scan_walk_ms;
/* How often the time is halved after which a walk looks at bits that it cleared. */
extern unsigned int pghot_scan_halvings;

static inline unsigned int pghot_looks_sooner(void)
{
	return IS_ENABLED(CONFIG_PGHOT_PGTSCAN) ? READ_ONCE(pghot_scan_halvings) : 0;
}

int pghot_scan_start(void);
void pghot_scan_stop(void);

/* pghot_perf.c */
int pghot_perf_start(void);
void pghot_perf_stop(void);
int pghot_perf_set_event(char *text);
int pghot_perf_show_event(struct seq_file *file, void *unused);

/*
 * kmigrated.c: a thread per node of a lower tier, which sleeps while all sources are off.
 * kmigrated_start() of a node that has one and kmigrated_stop() of one without do nothing.
 */
int kmigrated_start(int nid);
void kmigrated_stop(int nid);
void kmigrated_wake(void);
void kmigrated_forget_failed(int nid, unsigned long pfn);
int kmigrated_marks_init(void);

#endif /* _MM_PGHOT_H */
