/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files mm/pghot*.c and mm/kmigrated*.c share. The interface for sources is
 * include/linux/pghot.h.
 */
#ifndef _MM_PGHOT_H
#define _MM_PGHOT_H

#include <linux/memferry/balance.h>
#include <linux/mm.h>
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

/**
 * struct pghot_tunables - what the files of sysctl and debugfs set; read with READ_ONCE()
 * @sleep_ms: how often kmigrated looks for work
 * @batch_nr: most folios that it moves at once
 * @exchange: whether hot pages change places with cold ones
 * @scan_period_ms: how often page tables are scanned
 * @scan_rate: most pages that are scanned per second
 * @weights: for how many accesses a report of each source stands
 */
struct pghot_tunables {
	unsigned int sleep_ms;
	unsigned int batch_nr;
	unsigned int exchange;
	unsigned int scan_period_ms;
	unsigned int scan_rate;
	unsigned int weights[PGHOT_SRC_MAX];
};

extern struct pghot_tunables pghot_tunables;

/* Counters of /proc/vmstat. */
static inline void pghot_count(enum vm_event_item item, unsigned long n)
{
	count_vm_events(item, n);
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

/* pghot_sweep.c: many records */
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

/* Why a page failed to move; debugfs pghot/status says how many did, in base pages. */
enum kmigrated_cause {
	KMIGRATED_PINNED,	/* pinned for DMA */
	KMIGRATED_OFF_LRU,	/* could not be isolated */
	KMIGRATED_NO_BLOCK,	/* the target has no free block of the folio's order */
	KMIGRATED_BUSY,		/* referenced, locked or under writeback */
	KMIGRATED_CAUSES
};

extern unsigned long kmigrated_failures[KMIGRATED_CAUSES];

/*
 * kmigrated.c: a thread per node of a lower tier, and it sleeps while all sources are off.
 * kmigrated_start() of a node that has one and kmigrated_stop() of one without do nothing.
 */
#ifdef CONFIG_PGHOT_KMIGRATED
int kmigrated_start(int nid);
void kmigrated_stop(int nid);
void kmigrated_wake(void);
int kmigrated_marks_init(unsigned long pages);
#else
static inline int kmigrated_start(int nid)
{
	return 0;
}

static inline void kmigrated_stop(int nid)
{
}

static inline void kmigrated_wake(void)
{
}

static inline int kmigrated_marks_init(unsigned long pages)
{
	return 0;
}
#endif

#endif /* CONFIG_PGHOT */

#endif /* _MM_PGHOT_H */
