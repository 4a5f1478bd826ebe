// SPDX-License-Identifier: GPL-2.0-only
/*
 * kmigrated: a thread per node of a lower tier, which moves hot pages up. Here is when it
 * works and what a round consists of; choosing and moving is kmigrated_promote.c's and
 * kmigrated_exchange.c's work, and all numbers come from the policy of lib/memferry.
 *
 * It is woken when hint faults made a batch of pages ready, and when kswapd made room that it
 * lacked. Else it polls, so that sources may report from any context. While no source is on it
 * sleeps without a timer.
 */
#include <linux/freezer.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/wait.h>

#include "internal.h"
#include "kmigrated.h"

/* No round takes longer, so what seems to be later than now is not an age ago. */
#define LATE_MS		(60 * MSEC_PER_SEC)

/* Pages that came into use within this time did so lately: a late round and the longest sleep. */
#define BORN_MS		(MSEC_PER_SEC + 2 * PGHOT_ROUND_MS)

struct kmigrated_top kmigrated_top = {
	.turn = __SEMAPHORE_INITIALIZER(kmigrated_top.turn, 1),
	.lock = __SPIN_LOCK_UNLOCKED(kmigrated_top.lock),
};

/* Where all threads sleep. */
static DECLARE_WAIT_QUEUE_HEAD(kmigrated_wait);

/* How often a kswapd ended its work. */
static atomic_t kmigrated_room_made;

/* By node, until an RCU grace period later. The lock of pghot.c serializes starts and stops. */
static struct kmigrated *kmigrated_threads[MAX_NUMNODES];

/* How long it sleeps: half of what sweeps may be late at most, so that one wake-up may fail. */
static u32 kmigrated_sleep_ms(const struct kmigrated *k)
{
	return min(PGHOT_SLEEP_MS, k->hot.sweep_ms / 2);
}

/*
 * Whether a sweep is due that the next wake-up would bring too late. Another thread may have
 * swept since @now. What takes long is due less often, but within half of what is too late: the
 * rest is for the sweep itself, the turn and the moves.
 */
static bool kmigrated_due(const struct kmigrated *k, const struct ferry_hot_sweep *last,
			  const struct kmigrated_count *counted)
{
	u32 passed = k->now - last->now, every = min(4 * counted->took, k->hot.sweep_ms / 2);

	/* Weeks may have passed without a source: as signed numbers half of them look negative. */
	return passed < U32_MAX - LATE_MS &&
	       passed + kmigrated_sleep_ms(k) / 2 >= max(every, PGHOT_ROUND_MS);
}

/* Counts the node's pages, after aging their records if @due. */
static void kmigrated_know_lower(struct kmigrated *k, bool due)
{
	u32 began = pghot_now();
	unsigned int i;

	if (!due && !kmigrated_may_count(&k->counted))
		return;
	if (due)
		kmigrated_next_sweep(&k->sweep, k->now);
	/* A sweep that ends early counts as left out: the next one is that late. */
	if (!pghot_know_node(k->nid, due ? &k->sweep : NULL, &k->chunk, &k->lower) && due)
		k->sweep.now = k->sweep.last;
	kmigrated_counted(&k->counted, began);
	/* A record from the future looks old, and counting a large node takes a while. */
	k->now = pghot_now();
	kmigrated_leave_out_failed(k);
	/* Idle pages take no place from pages in use, however hot they were. */
	for (i = 0; i < FERRY_HOT_EIGHTHS; i++)
		memset(&k->lower.pages[i][FERRY_HOT_IDLE_AGE], 0,
		       (FERRY_HOT_AGES - FERRY_HOT_IDLE_AGE) * sizeof(u64));
	k->hot_pages = pghot_hot_pages(&k->lower, k->hot.threshold);
}

/* Pages in use. Those that a CPU keeps to itself are free as well. */
static unsigned long kmigrated_used(void)
{
	unsigned long unused = global_zone_page_state(NR_FREE_PAGES);
	struct zone *zone;
	int cpu;

	for_each_populated_zone(zone)
		for_each_online_cpu(cpu)
			unused += READ_ONCE(per_cpu_ptr(zone->per_cpu_pageset, cpu)->count);
	return totalram_pages() - min(totalram_pages(), unused);
}

/* How many pages came into use since the last round, beyond those that were freed. */
static unsigned long kmigrated_born(u32 now)
{
	unsigned long used = kmigrated_used(), before = kmigrated_top.used;
	bool lately = before && now - kmigrated_top.asked <= BORN_MS;

	kmigrated_top.asked = now;
	kmigrated_top.used = used;
	return lately && used > before ? used - before : 0;
}

/* Counts and paces from before all sources went off say nothing of now. */
static void kmigrated_forget(struct kmigrated *k)
{
	int nid;

	k->now = pghot_now();
	k->sweep.now = k->now - PGHOT_ROUND_MS;
	down(&kmigrated_top.turn);
	kmigrated_top.sweep.now = k->sweep.now;
	kmigrated_top.used = 0;
	kmigrated_top.born = 0;
	WRITE_ONCE(kmigrated_top.balance.room, 0);
	spin_lock(&kmigrated_top.lock);
	/* A pace that was not asked for weeks cannot tell them from none. */
	for_each_node(nid)
		kmigrated_top.targets[nid].paced = false;
	spin_unlock(&kmigrated_top.lock);
	up(&kmigrated_top.turn);
}

/*
 * Lets kswapd demote where hot pages found no room, if no source sees what is cold. Not in place of
 * an exchange that may not be: pages would leave by second chance, and come again.
 */
static void kmigrated_wake_kswapd(struct kmigrated *k)
{
	struct zone *zone;
	int nid;

	if (k->sees_cold)
		return;
	k->lacks_room |= !nodes_empty(k->full);
	for_each_node_mask(nid, k->full)
		for_each_zone_of(zone, nid)
			wakeup_kswapd(zone, 0, 0, ZONE_MOVABLE);
}

/*
 * The hottest pages take what is free. Where kswapd makes room, the first one that finds none
 * shows which node needs some.
 */
static unsigned long kmigrated_fill(struct kmigrated *k)
{
	struct ferry_balance balance = { .room = READ_ONCE(kmigrated_top.balance.room) };
	u64 budget = kmigrated_budget(k), free = kmigrated_free(), wanted;
	struct ferry_hot_cut cut;

	wanted = min3(k->hot_pages, free, (u64)KMIGRATED_CHOSEN);
	if (budget < wanted)
		count_vm_events(PGHOT_REFUSED_PACE, wanted - budget);
	if (!k->sees_cold)
		free = U64_MAX;
	if (!ferry_balance_fill(&balance, &k->hot, &k->lower, free, budget, &cut))
		return 0;
	kmigrated_choose(k, cut.heat, cut.room);
	return kmigrated_promote(k, min(free - balance.room, KMIGRATED_PAGES));
}

/* What one thread does for all, after some rounds or when memory came into use. */
static void kmigrated_keep_top(struct kmigrated *k)
{
	bool due = kmigrated_due(k, &kmigrated_top.sweep, &kmigrated_top.counted);

	kmigrated_top.born += kmigrated_born(k->now);
	if (k->now - kmigrated_top.marks_aged >=
	    pghot_balance_params.bounce_rounds * PGHOT_ROUND_MS) {
		kmigrated_top.marks_aged = k->now;
		kmigrated_age_marks();
	}
	if (!k->exchange) {
		WRITE_ONCE(kmigrated_top.balance.room, 0);
		return;
	}
	kmigrated_know_top(k, due);
	/* Once a sweep: its numbers are made for that. */
	if (due) {
		kmigrated_make_room(k, kmigrated_top.born);
		kmigrated_top.born = 0;
		kmigrated_fit_looks(k);
	}
}

/* Returns how many pages moved up. */
static unsigned long kmigrated_move(struct kmigrated *k)
{
	bool turn = !down_trylock(&kmigrated_top.turn), known = turn;
	unsigned long moved;

	k->now = pghot_now();
	k->looks = KMIGRATED_LOOKS;
	k->sees_cold = IS_ENABLED(CONFIG_PGHOT_PGTSCAN) && pghot_source_on(PGHOT_PGTSCAN);
	/* While a walk takes longer than the window, what is in use looks idle between two. */
	k->exchange = k->sees_cold && numa_demotion_enabled &&
		      READ_ONCE(pghot_scan_walk_ms) <= k->hot.window_ms;
	nodes_clear(k->full);
	kmigrated_open(k);
	if (turn)
		kmigrated_keep_top(k);
	moved = kmigrated_fill(k);
	if (!k->exchange) {
		kmigrated_wake_kswapd(k);
	/* Where all that is hot came up, nothing is left to be exchanged. */
	} else if (k->hot_pages) {
		/* Not for long: a node whose records are swept late forgets them. */
		turn = turn || !down_timeout(&kmigrated_top.turn, msecs_to_jiffies(PGHOT_ROUND_MS));
		if (turn && (moved || !known)) {
			k->now = pghot_now();
			kmigrated_know_top(k, false);
			kmigrated_know_lower(k, false);
		}
		if (turn)
			moved += kmigrated_exchange(k);
	}
	if (turn)
		up(&kmigrated_top.turn);
	return moved;
}

static void kmigrated_round(struct kmigrated *k)
{
	bool due, kicked = pghot_take_kick(k->nid);
	unsigned long moved;

	k->now = pghot_now();
	k->hot = pghot_get_params();
	due = kmigrated_due(k, &k->sweep, &k->counted);
	if (!due && !kicked && !k->more && !k->lacks_room)
		return;
	kmigrated_know_lower(k, due);
	k->lacks_room = false;
	k->room_made = atomic_read(&kmigrated_room_made);

	moved = kmigrated_move(k);
	/* Half of what an exchange brings at most: the pace is for both directions. */
	k->more = moved >= KMIGRATED_CHOSEN / 4;
}

static bool kmigrated_has_work(const struct kmigrated *k)
{
	return pghot_batch_ready(k->nid) ||
	       (k->lacks_room && atomic_read(&kmigrated_room_made) != k->room_made);
}

static void kmigrated_sleep(struct kmigrated *k)
{
	wait_event_freezable_timeout(kmigrated_wait,
				     kmigrated_should_stop() || kmigrated_has_work(k),
				     msecs_to_jiffies(kmigrated_sleep_ms(k)));
	pghot_stat_add(PGHOT_WAKEUPS, 1);
}

int kmigrated(void *data)
{
	struct kmigrated *k = data;

	/* Nothing moves while the image of a hibernation is written. */
	set_freezable();
	k->hot = pghot_get_params();
	while (!kthread_should_stop()) {
		if (!pghot_on()) {
			wait_event_freezable(kmigrated_wait, pghot_on() || kthread_should_stop());
			kmigrated_forget(k);
			k->more = true;
		}
		if (!k->more)
			kmigrated_sleep(k);
		k->more &= !kmigrated_should_stop();
		if (!kmigrated_should_stop())
			kmigrated_round(k);
		cond_resched();
		try_to_freeze();
	}
	return 0;
}

/* Starts the thread of a node of a lower tier, unless it runs; 0 or -ENOMEM. */
int kmigrated_start(int nid)
{
	struct kmigrated *k;

	if (!kmigrated_top.targets)
		kmigrated_top.targets = kcalloc(nr_node_ids, sizeof(*kmigrated_top.targets),
						GFP_KERNEL);
	if (!kmigrated_top.targets)
		return -ENOMEM;
	if (kmigrated_threads[nid])
		return 0;
	k = kvzalloc(sizeof(*k), GFP_KERNEL);
	if (!k)
		return -ENOMEM;
	k->nid = nid;
	k->task = kthread_create(kmigrated, k, "kmigrated%d", nid);
	if (IS_ERR(k->task)) {
		kvfree(k);
		return -ENOMEM;
	}
	WRITE_ONCE(kmigrated_threads[nid], k);
	wake_up_process(k->task);
	return 0;
}

/* Stops the thread of a node, if there is one. When this returns it holds no folio. */
void kmigrated_stop(int nid)
{
	struct kmigrated *k = kmigrated_threads[nid];

	if (!k)
		return;
	WRITE_ONCE(kmigrated_threads[nid], NULL);
	kthread_stop(k->task);
	/* kmigrated_forget_failed() may be using it. */
	synchronize_rcu();
	kvfree(k);
}

/* Sources were switched on or off, or there may be something to do. */
void kmigrated_wake(void)
{
	wake_up_all(&kmigrated_wait);
}

/* A page frame gets another owner, which does not wait for the one before. Under RCU. */
void kmigrated_forget_failed(int nid, unsigned long pfn)
{
	struct kmigrated *k = READ_ONCE(kmigrated_threads[nid]);
	struct kmigrated_failed *failed = k ? kmigrated_failed_entry(k, pfn) : NULL;

	/* The thread may be giving the entry to another page. */
	if (failed && READ_ONCE(failed->pfn) == pfn)
		cmpxchg(&failed->pfn, pfn, 0);
}

/* kswapd ended its work on some node. */
void __pghot_room_made(void)
{
	atomic_inc(&kmigrated_room_made);
	kmigrated_wake();
}
