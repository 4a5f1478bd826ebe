/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files mm/pghot*.c and mm/kmigrated*.c share. The interface for sources is
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

#ifdef CONFIG_PGHOT

/* How often records are swept; ferry_balance_defaults() is made for it. */
#define PGHOT_ROUND_MS		250U

/**
 * struct pghot_section - the records of a section of memory
 * @ref: one of the map's, and one of whoever iterates
 * @nid: node of the section
 * @lower: the node is of a lower tier
 * @majority: in its lower half what ferry_hot_majority() knows of the section, in the upper one
 *	the owner of the memory that is used so
 * @hot: a page may have reached the threshold: the last sweep found one, or an access since made
 *	it ready
 * @start_pfn: first page frame
 * @bytes: the records in default mode
 * @words: the records in precision mode
 * @records: the records
 * @rcu: to free it
 *
 * The records are an allocation of their own, of exactly a power of two: with a header
 * inside they would take twice the memory. Everyone but the sweep writes single records,
 * by compare-and-exchange.
 */
struct pghot_section {
	refcount_t ref;
	int nid;
	bool lower;
	u64 majority;
	unsigned long hot;
	unsigned long start_pfn;
	union {
		u8 *bytes;
		u32 *words;
		void *records;
	};
	struct rcu_head rcu;
};

/* How often kmigrated looks for work: a page waits half of it, and an empty look costs some us. */
#define PGHOT_SLEEP_MS		100U

/* Most folios that move in one batch: 2 MiB of base pages are unmapped for under a millisecond. */
#define PGHOT_BATCH_NR		512U

/*
 * What debugfs pghot/status counts since boot. Those of failures are base pages that failed to be
 * promoted, by cause. First come the accesses that each source reported, by enum pghot_src.
 */
enum pghot_stat {
	PGHOT_EXCHANGED = PGHOT_SRC_MAX,	/* pages that changed places with others */
	PGHOT_BOUNCED,		/* pages promoted again after their promotion was wasted */
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

/* pghot.c: sources, policy, one page */
unsigned int pghot_sources(void);
unsigned int pghot_sources_supported(void);
int pghot_set_sources(unsigned int sources);
u32 pghot_format(void);
void pghot_get_params(struct ferry_hot_params *params);
int pghot_set_window(unsigned int ms);
int pghot_set_threshold(unsigned int threshold);
extern struct ferry_balance_params pghot_balance_params;
int pghot_target_nid(void);
int pghot_set_target_nid(unsigned int nid);
bool pghot_look(unsigned long pfn, u32 now, struct ferry_hot_view *view);
u32 pghot_age_ms(unsigned long pfn, u32 now);
bool pghot_claim(unsigned long pfn);
void pghot_unclaim(unsigned long pfn);
void pghot_carry(unsigned long from_pfn, unsigned long to_pfn);
int pghot_target(unsigned long pfn);
bool pghot_may_promote(struct task_struct *task);
void pghot_kick(int nid);
bool pghot_take_kick(int nid);
bool pghot_batch_ready(int nid);

/*
 * pghot_records.c: the map. A section that pghot_next_section() returned is pinned until it is
 * handed to the next call or to pghot_put_section(): its records stay readable, even if its
 * memory goes offline meanwhile. So struct pages must be looked up by pfn_to_online_page().
 */
extern struct xarray pghot_sections;
extern atomic_long_t pghot_record_memory;
int pghot_update_records(unsigned int sources);
struct pghot_section *pghot_next_section(int nid, struct pghot_section *section);
void pghot_put_section(struct pghot_section *section);
void pghot_records_init(void);

#define for_each_pghot_section(section, nid)				\
	for (section = pghot_next_section(nid, NULL); section;		\
	     section = pghot_next_section(nid, section))

static inline struct pghot_section *pghot_first_section(int nid)
{
	return pghot_next_section(nid, NULL);
}
void pghot_sweep_node(int nid, const struct ferry_hot_sweep *sweep,
		      struct ferry_hot_histogram *histogram);
size_t pghot_find(const struct pghot_section *section, size_t *from, u32 now, u32 least_heat,
		  u32 most_heat, u32 *found, size_t space);
void pghot_count_section(const struct pghot_section *section, u32 now,
			 struct ferry_hot_histogram *histogram);

/* pghot_sysfs.c */
void pghot_sysfs_init(void);

/* pghot_scan.c */
#ifdef CONFIG_PGHOT_PGTSCAN
int pghot_scan_start(void);
void pghot_scan_stop(void);
u32 pghot_scan_ms(void);
#else
static inline int pghot_scan_start(void)
{
	return -EINVAL;
}

static inline void pghot_scan_stop(void)
{
}

static inline u32 pghot_scan_ms(void)
{
	return 0;
}
#endif

/* pghot_perf.c */
#ifdef CONFIG_PGHOT_HWHINTS
int pghot_perf_start(void);
void pghot_perf_stop(void);
int pghot_perf_set_event(char *text);
int pghot_perf_show_event(char *text, size_t size);
#else
static inline int pghot_perf_start(void)
{
	return -EINVAL;
}

static inline void pghot_perf_stop(void)
{
}
#endif

/*
 * kmigrated.c: a thread per node of a lower tier, and it sleeps while all sources are off.
 * kmigrated_start() of a node that has one and kmigrated_stop() of one without do nothing.
 */
int kmigrated_start(int nid);
void kmigrated_stop(int nid);
void kmigrated_wake(void);
int kmigrated_marks_init(unsigned long pages);

#endif /* CONFIG_PGHOT */

#endif /* _MM_PGHOT_H */
