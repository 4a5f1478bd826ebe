/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by mm/kmigrated*.c: a thread's state, that of the top tier, and the way from a record to
 * a folio that may move.
 */
#ifndef _MM_KMIGRATED_H
#define _MM_KMIGRATED_H

#include <linux/hash.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/memferry/balance.h>
#include <linux/memferry/pace.h>
#include <linux/memory-tiers.h>
#include <linux/mm_inline.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>
#include <linux/sched.h>
#include <linux/semaphore.h>
#include <linux/spinlock.h>

#include "pghot.h"

struct folio;
struct task_struct;

/*
 * The most pages that are chosen at once: 64 MiB of base pages take longer to move than the
 * records of a terabyte take to look through, and their list is small.
 */
#define KMIGRATED_CHOSEN	16384

/*
 * How many records of the top tier are looked at in a round at most, to find cold pages: those
 * that may not move are many, and other threads wait for their turn.
 */
#define KMIGRATED_LOOKS		(4 * KMIGRATED_CHOSEN)

/* Pages of a node that are looked at, each round, for the share of those that could leave. */
#define KMIGRATED_SAMPLES	256

/*
 * The most base pages that move in one go, a gigabyte: some 100 ms, in which the records must
 * not grow old.
 */
#define KMIGRATED_PAGES		((1UL << 30) >> PAGE_SHIFT)

/* A later access is recent, whatever the pace says: records know no better. */
#define KMIGRATED_RECENT_MS	256U

/* Targets and orders that a batch is collected for at the same time. */
#define KMIGRATED_BATCHES	8

/*
 * A page that failed to move waits for a round, then for 2, 4, 8, 16: four seconds, in which
 * kcompactd makes many blocks.
 */
#define KMIGRATED_FAILED_MAX	4U

struct kmigrated_chosen {
	u64 pfn : 52, heat : 12;
};

struct kmigrated_failed {
	unsigned long pfn;	/* 0 if the page was freed or moved since */
	u32 until;		/* when it may be tried again, ms */
	u32 times;		/* how often it failed in a row, less 1 */
};

/*
 * When records were counted last, and how long it took. A thread counts for at most a quarter of
 * its time, unless the sweeps of its records would be late then.
 */
struct kmigrated_count {
	u32 at;				/* ms */
	u32 took;			/* ms */
};

/* Isolated folios that may move together. */
struct kmigrated_batch {
	struct list_head folios;	/* by their lru */
	int nid;			/* where they go */
	unsigned int order;		/* of all: without a block migration tries none behind */
	unsigned long pages;
	u64 reserved;			/* bytes of the target's pace */
};

/* The thread of a node of a lower tier. All its own but @task. */
struct kmigrated {
	int nid;
	struct task_struct *task;
	u32 now;			/* when the time was asked for last, ms */
	struct ferry_hot_params hot;	/* in this round */
	struct ferry_hot_sweep sweep;	/* the last one of the node's records */
	struct kmigrated_count counted;	/* @lower was */
	struct ferry_hot_histogram lower;	/* pages that are not idle and not in @failed */
	u64 hot_pages;			/* at the threshold, and still below */
	unsigned int nr_chosen;
	u32 failed_until;		/* when the last of them may be tried again, ms */
	unsigned int looks;		/* records of the top tier to look at in this round */
	bool sees_cold;			/* pages of the top tier have records */
	bool exchange;			/* and may leave */
	bool exchanging;		/* they leave now, for those that come */
	unsigned long went;		/* base pages that left for those */
	nodemask_t full;		/* where a page found no room */
	bool more;			/* there is more to do at once */
	bool lacks_room;		/* in the last round, and kswapd was woken */
	int room_made;			/* of kmigrated_room_made when that round began */
	unsigned long border;		/* pages of the border's heat when they were chosen last */
	unsigned long turn;		/* how many of them had their turn */
	struct pghot_chunk chunk;	/* of the records that are being swept */
	struct kmigrated_batch batches[KMIGRATED_BATCHES];
	unsigned long pages;		/* in all batches */
	struct kmigrated_chosen chosen[KMIGRATED_CHOSEN];	/* the hottest first */
	struct kmigrated_failed failed[KMIGRATED_CHOSEN];	/* kmigrated_failed_entry() */
};

/* A node of the top tier. */
struct kmigrated_target {
	/* under kmigrated_top.lock; single words are read without it */
	struct ferry_pace pace;		/* for pages there and back */
	struct ferry_pace_params params;	/* with which it was started */
	bool paced;			/* it was */
	long room;			/* base pages; below 0 so many lack already */
	u32 recent_ms;			/* how recent an access must be */
	bool bypass;			/* so much is free that neither of the two counts */
	/* in kmigrated_top.turn */
	unsigned long cold_pfn;		/* where the search for cold pages goes on */
	unsigned long unknown_pfn;	/* and that among pages of which nothing is known */
	unsigned long unknown_seen;	/* pages without a record in samples, lately */
	unsigned long unknown_usable;	/* those of them that could be demoted */
	struct ferry_hot_histogram known;	/* of its records */
	struct ferry_hot_exchange border;	/* between pages that change places and others */
	long made;			/* room that an exchange made, less what hot pages took */
};

/*
 * The top tier. All threads fill it at the same time; one at a time, whose turn it is, ages its
 * records and makes pages leave. The lock is for counters, and inside the turn.
 */
struct kmigrated_top {
	struct semaphore turn;		/* is waited for with a timeout, as no mutex is */
	spinlock_t lock;
	struct kmigrated_target *targets;	/* by node */
	/* in the turn, but for balance.room, which all read */
	struct ferry_balance balance;	/* how much room is kept for new pages */
	struct ferry_hot_sweep sweep;	/* the last one of its records */
	struct kmigrated_count counted;	/* all targets' @known were */
	unsigned long used;		/* pages of all nodes in the last round; 0: not known */
	unsigned long born;		/* came into use since room was made last */
	u32 asked;			/* when @used was counted, ms */
	u32 marks_aged;			/* when marks were aged last, ms */
	u32 gathered;			/* when what CPUs keep was given back last, ms */
	u32 looked;			/* when the time of looks was judged last, ms */
	unsigned long came;		/* base pages that an exchange brought up since */
};

extern struct kmigrated_top kmigrated_top;

#define for_each_zone_of(zone, nid)						\
	for (zone = NODE_DATA(nid)->node_zones;					\
	     zone < NODE_DATA(nid)->node_zones + MAX_NR_ZONES; zone++)

/* No folio may move any more: the thread ends, or no source is on. */
static inline bool kmigrated_should_stop(void)
{
	return kthread_should_stop() || !pghot_on();
}

static inline long kmigrated_target_room(int nid)
{
	return READ_ONCE(kmigrated_top.targets[nid].room);
}

/* Of a page frame and those that have the same hash: a later one takes the place of another. */
static inline struct kmigrated_failed *kmigrated_failed_entry(struct kmigrated *k,
							      unsigned long pfn)
{
	return &k->failed[hash_long(pfn, ilog2(KMIGRATED_CHOSEN))];
}

/* The function of all threads. */
int kmigrated(void *data);

static inline bool is_kmigrated(struct task_struct *task)
{
	return task->flags & PF_KTHREAD && kthread_func(task) == kmigrated;
}

static inline void kmigrated_next_sweep(struct ferry_hot_sweep *sweep, u32 now)
{
	sweep->last = sweep->now;
	sweep->now = now;
	sweep->number++;
}

static inline int kmigrated_next_top_node(int nid)
{
	do
		nid = next_node(nid, node_states[N_MEMORY]);
	while (nid < MAX_NUMNODES && !node_is_toptier(nid));
	return nid;
}

#define for_each_top_node(nid)							\
	for (nid = kmigrated_next_top_node(NUMA_NO_NODE); nid < MAX_NUMNODES;	\
	     nid = kmigrated_next_top_node(nid))

static inline bool kmigrated_may_count(const struct kmigrated_count *counted)
{
	return pghot_now() - counted->at >= 3 * counted->took;
}

static inline void kmigrated_counted(struct kmigrated_count *counted, u32 began)
{
	counted->at = pghot_now();
	counted->took = counted->at - began;
}

/* kmigrated_promote.c */
void kmigrated_open(struct kmigrated *k);
void kmigrated_know_room(int nid);
u64 kmigrated_free(void);
long kmigrated_room(int nid);
u64 kmigrated_budget(struct kmigrated *k);
bool kmigrated_reserve(struct kmigrated_target *target, u32 now, unsigned long pages,
		       u64 *reserved);
void kmigrated_settle(int nid, u64 reserved, unsigned long moved);
void kmigrated_leave_out_failed(struct kmigrated *k);
void kmigrated_choose(struct kmigrated *k, u32 least, u64 border_room);
unsigned long kmigrated_flush(struct kmigrated *k);
unsigned long kmigrated_promote(struct kmigrated *k, unsigned long most);
struct folio *kmigrated_folio(unsigned long pfn, int nid);

/* Page cache that is yet to be written moves neither way: NUMA balancing leaves it, too. */
static inline bool kmigrated_is_dirty(struct folio *folio)
{
	return folio_is_file_lru(folio) && folio_test_dirty(folio);
}

/* kmigrated_owner.c */
bool kmigrated_allowed(struct folio *folio, nodemask_t *nodes);
void kmigrated_know_protection(void);
bool kmigrated_protected(struct folio *folio);

/* kmigrated_exchange.c */
bool kmigrated_has_free(void);
void kmigrated_know_top(struct kmigrated *k, bool due);
void kmigrated_fit_looks(struct kmigrated *k);
void kmigrated_make_room(struct kmigrated *k, unsigned long born);
bool kmigrated_exchange_room(struct kmigrated *k, int nid, long pages, unsigned long *moved);
bool kmigrated_exchange_ended(const struct kmigrated *k);
unsigned long kmigrated_exchange(struct kmigrated *k);

/* kmigrated_marks.c */
unsigned int kmigrated_bounces(struct folio *folio);
void kmigrated_age_marks(void);

#endif /* _MM_KMIGRATED_H */
