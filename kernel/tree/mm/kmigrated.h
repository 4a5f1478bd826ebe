/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files mm/kmigrated*.c share: a thread's state, that of the top tier, and what
 * leads from a record to a folio that may move.
 */
#ifndef _MM_KMIGRATED_H
#define _MM_KMIGRATED_H

#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/memferry/balance.h>
#include <linux/memferry/pace.h>
#include <linux/mmzone.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/sched.h>

#include "pghot.h"

struct folio;
struct mem_cgroup;
struct task_struct;

/*
 * The most pages that are chosen at once: 64 MiB of base pages take longer to move than the
 * records of a terabyte take to look through, and their list is small.
 */
#define KMIGRATED_CHOSEN	16384

/*
 * How many records of the top tier are looked at in a round at most, to find cold pages: those
 * that may not move are many, and other threads wait for the lock.
 */
#define KMIGRATED_LOOKS		(4 * KMIGRATED_CHOSEN)

/*
 * The most base pages that move in one go, a gigabyte: some 100 ms, in which the records must
 * not grow old.
 */
#define KMIGRATED_PAGES		((1UL << 30) >> PAGE_SHIFT)

/* What was accessed later than this is recent, whatever the pace says: records know no better. */
#define KMIGRATED_RECENT_MS	256U

/* A page frame has fewer bits than this on every machine of 64 bits. */
#define KMIGRATED_HEAT_SHIFT	52

/* Targets, cgroups and orders that a batch is collected for at the same time. */
#define KMIGRATED_BATCHES	8

/*
 * A page that failed to move waits for a round, then for 2, 4, 8, 16: four seconds, in which
 * kcompactd makes many blocks.
 */
#define KMIGRATED_FAILED_MAX	4U

/**
 * struct kmigrated_failed - a page that failed to move
 * @pfn: the page
 * @until: when it may be tried again, ms
 * @times: how often it failed in a row, less 1
 */
struct kmigrated_failed {
	unsigned long pfn;
	u32 until;
	u32 times;
};

/**
 * struct kmigrated_batch - isolated folios that may move together
 * @folios: linked by their lru
 * @memcg: of all of them, with a reference
 * @nid: where they go
 * @order: of all of them: without a block of it, migration does not try what is behind
 * @pages: base pages of them
 * @folios_nr: how many those are
 * @reserved: how many bytes of the target's pace are reserved for them
 */
struct kmigrated_batch {
	struct list_head folios;
	struct mem_cgroup *memcg;
	int nid;
	unsigned int order;
	unsigned long pages;
	unsigned int folios_nr;
	u64 reserved;
};

/**
 * struct kmigrated - the thread of a node of a lower tier
 * @nid: the node
 * @task: the thread
 * @now: when this round last asked for the time, ms
 * @hot: the records' numbers in this round
 * @sweep: the last sweep of the node's records
 * @lower: what is known of the node's pages that are not idle and do not wait in @failed
 * @hot_pages: how many of them reached the threshold
 * @chosen: pages by heat, the hottest first: see kmigrated_chosen_pfn()
 * @nr_chosen: how many those are
 * @next: the first that was not looked at yet
 * @failed: pages that failed to move lately, hashed by page frame; a later one replaces another
 * @failed_until: when the last of them may be tried again, ms
 * @looks: how many records of the top tier this round may still look at
 * @more: whether there is more to do at once
 * @lacks_room: pages found no room in the last round, and kswapd was woken
 * @room_made: how often a kswapd had ended its work when that round began
 * @border: how many pages had the border's heat when pages were chosen last
 * @turn: how many of them had their turn
 * @batches: what is isolated
 * @folios: how many folios those have
 * @pages: and base pages
 */
struct kmigrated {
	int nid;
	struct task_struct *task;
	u32 now;
	struct ferry_hot_params hot;
	struct ferry_hot_sweep sweep;
	struct ferry_hot_histogram lower;
	u64 hot_pages;
	u64 *chosen;
	unsigned int nr_chosen;
	unsigned int next;
	struct kmigrated_failed *failed;
	u32 failed_until;
	unsigned int looks;
	bool more;
	bool lacks_room;
	int room_made;
	unsigned long border;
	unsigned long turn;
	struct kmigrated_batch batches[KMIGRATED_BATCHES];
	unsigned int folios;
	unsigned long pages;
};

/**
 * struct kmigrated_target - a node of the top tier
 * @pace: how fast pages may move there and back
 * @params: what @pace was started with
 * @paced: whether it was
 * @room: base pages that may go there in this round; below 0 so many lack already
 * @recent_ms: how recent an access must be
 * @bypass: so much is free that neither pace nor @recent_ms count
 * @closed: the pace is used up in this round
 * @full: a page found no room in this round
 * @gathered: when what CPUs keep of its pages was given back last, ms
 * @cold_pfn: where the search for cold pages goes on
 * @unknown_seen: pages without a record that the search looked at lately
 * @unknown_usable: those of them that could be demoted
 * @known: what the records of its pages say, if &kmigrated_top.exchange
 */
struct kmigrated_target {
	struct ferry_pace pace;
	struct ferry_pace_params params;
	bool paced;
	long room;
	u32 recent_ms;
	bool bypass;
	bool closed;
	bool full;
	u32 gathered;
	unsigned long cold_pfn;
	unsigned long unknown_seen;
	unsigned long unknown_usable;
	struct ferry_hot_histogram known;
};

/**
 * struct kmigrated_top - the top tier, which all threads fill
 * @lock: who has it moves pages, and may touch the rest: free space is spent once
 * @nodes: of the top tier, in this round
 * @targets: by node
 * @balance: how much room is kept for new pages
 * @sweep: the last sweep of the records of the top tier
 * @exchange: whether pages of the top tier have records, and may leave
 * @used: pages that were in use on all nodes in the last round; 0 if nobody looked
 * @born: pages that came into use since the last time that room was made
 * @asked: when that was, ms
 * @marks_aged: when the marks of pages that bounced were aged last, ms
 */
struct kmigrated_top {
	struct mutex lock;	/* all fields */
	nodemask_t nodes;
	struct kmigrated_target *targets;
	struct ferry_balance balance;
	struct ferry_hot_sweep sweep;
	bool exchange;
	unsigned long used;
	unsigned long born;
	u32 asked;
	u32 marks_aged;
};

extern struct kmigrated_top kmigrated_top;

/* Nothing may move any more: the thread ends, or nobody tracks hot pages. */
static inline bool kmigrated_should_stop(void)
{
	return kthread_should_stop() || !pghot_on();
}

/* The function of all threads. */
int kmigrated(void *data);

static inline bool is_kmigrated(struct task_struct *task)
{
	return task->flags & PF_KTHREAD && kthread_func(task) == kmigrated;
}

#define for_each_top_node(nid) for_each_node_mask(nid, kmigrated_top.nodes)

/* A chosen page in one number, which is smaller for the hotter page. */
static inline u64 kmigrated_entry(unsigned long pfn, u32 heat)
{
	return (u64)(FERRY_HOT_HEATS - 1 - heat) << KMIGRATED_HEAT_SHIFT | pfn;
}

static inline unsigned long kmigrated_chosen_pfn(const struct kmigrated *k, unsigned int i)
{
	return k->chosen[i] & (BIT_ULL(KMIGRATED_HEAT_SHIFT) - 1);
}

static inline u32 kmigrated_chosen_heat(const struct kmigrated *k, unsigned int i)
{
	return FERRY_HOT_HEATS - 1 - (k->chosen[i] >> KMIGRATED_HEAT_SHIFT);
}

/* kmigrated_promote.c */
void kmigrated_open(struct kmigrated *k);
long kmigrated_room(int nid);
u64 kmigrated_budget(struct kmigrated *k);
bool kmigrated_reserve(struct kmigrated_target *target, u32 now, unsigned long pages,
		       u64 *reserved);
void kmigrated_leave_out_failed(struct kmigrated *k);
void kmigrated_choose(struct kmigrated *k, u32 least, u64 border_room);
unsigned long kmigrated_promote(struct kmigrated *k, unsigned long most, int nid, u32 bar);
struct folio *kmigrated_folio(unsigned long pfn, int nid);
int kmigrated_target_nid(struct folio *folio, bool room);

/* kmigrated_owner.c */
void kmigrated_allowed(struct folio *folio, nodemask_t *nodes);
#ifdef CONFIG_MEMCG
void kmigrated_know_protection(void);
bool kmigrated_protected(struct folio *folio);
#else
static inline void kmigrated_know_protection(void)
{
}

static inline bool kmigrated_protected(struct folio *folio)
{
	return false;
}
#endif

/* kmigrated_exchange.c */
void kmigrated_count(int nid, u32 now, struct ferry_hot_histogram *histogram);
void kmigrated_know_top(struct kmigrated *k, bool due);
void kmigrated_make_room(struct kmigrated *k, unsigned long born);
unsigned long kmigrated_exchange(struct kmigrated *k);

/* kmigrated_marks.c */
unsigned int kmigrated_bounces(struct folio *folio);
void kmigrated_age_marks(void);

#endif /* _MM_KMIGRATED_H */
