// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lanes: which CPU copies which pages of a batch, and when the batch is finished.
 *
 * A lane takes its own share granule by granule, and then granules of the other shares, so a
 * lane that never begins is not waited for. Nor is a lane whose CPU is wanted elsewhere: a
 * helper is not preempted between its beginning and its end, and takes no further granule once
 * its CPU needs to reschedule. The caller waits for granules that are being copied, and for
 * interrupts of these CPUs.
 *
 * When mtcopy_lanes_copy() returns, no helper touches the batch any more:
 *
 * - A helper touches the batch only in mtcopy_lane_work(), after it has turned its lane's
 *   state from MTCOPY_OFFERED to MTCOPY_TAKEN.
 * - After the caller has copied all there was to take, it turns every state that is still
 *   MTCOPY_OFFERED back to MTCOPY_NONE, and counts these lanes as finished. Their works may
 *   be about to run, on a CPU that does other things first, but look at the state alone.
 *   (If they do so when the next batch has offered the lane again, they are helpers of that
 *   one. Its own work finds the lane taken, then.)
 * - Every other helper has begun, and counts itself as finished with the last thing that it
 *   does to the batch. If it is the last of all and the caller waits already, it completes
 *   @done after that; then the caller is what waits for @done, and complete() does not
 *   touch it any more once wait_for_completion() can return.
 * - The caller goes on when all are counted. A helper's stores to the pages come before
 *   its count, which is a fully ordered atomic operation, and so before the marks that the
 *   caller sets afterwards.
 *
 * So the lanes outlive the batch: mtcopy_lanes_exit() waits for the last works.
 */
#include <linux/mm.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/smp.h>
#include <trace/events/migrator.h>

#include "mtcopy.h"

/*
 * How long the caller watches its helpers before it sleeps. All of them are in their last
 * granule then, which takes about as long; falling asleep and being woken takes some
 * microseconds, too.
 */
#define MTCOPY_WATCH_NS		20000

static struct workqueue_struct *mtcopy_wq, *mtcopy_wq_high;

/*
 * Takes a granule of a lane's share: pages @from up to, not including, @to. Everything
 * that a lane needs to know was written before it began, so the order of what it reads
 * does not matter here; only that no page is taken twice does.
 */
static bool mtcopy_lane_take(struct mtcopy_lane *lane, u32 *from, u32 *to)
{
	if ((u32)atomic_read(&lane->next) >= lane->end)
		return false;
	*from = atomic_fetch_add_relaxed(MTCOPY_GRANULE_PAGES, &lane->next);
	if (*from >= lane->end)
		return false;
	*to = min(*from + MTCOPY_GRANULE_PAGES, lane->end);
	return true;
}

/* The pair that page @page of the batch belongs to. */
static unsigned int mtcopy_find_pair(const struct mtcopy_batch *mt, u32 page)
{
	unsigned int low = 0, high = mt->batch->nr, middle;

	while (high - low > 1) {
		middle = low + (high - low) / 2;
		if (mt->begins[middle] <= page)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Copies the pages @from to @to of the batch, but no more of a pair that met poison. */
static void mtcopy_lane_copy_pages(struct mtcopy_lane *lane, u32 from, u32 to)
{
	struct mtcopy_batch *mt = lane->mt;
	unsigned int i = mtcopy_find_pair(mt, from);
	struct migrator_pair *pair = &mt->batch->pairs[i];
	unsigned int first, nr;

	for (; from < to; i++, pair++, from += nr) {
		first = from - mt->begins[i];
		nr = min(to, mt->begins[i + 1]) - from;
		if (test_bit(MIGRATOR_PAIR_POISONED, &pair->state))
			continue;
		if (mtcopy_copy_pages(folio_page(pair->dst, first), folio_page(pair->src, first),
				      nr, mt->nontemporal))
			migrator_batch_poisoned(mt->batch, i);
		else
			lane->bytes += (u64)nr << PAGE_SHIFT;
	}
}

/* Between two granules: the caller lets others run, a helper leaves the rest to others. */
static bool mtcopy_lane_goes_on(const struct mtcopy_lane *lane)
{
	/* A task that was woken asks lazily, and the tick that insists is milliseconds away. */
	if (lane->index)
		return !need_resched() && !test_thread_flag(TIF_NEED_RESCHED_LAZY);
	cond_resched();
	return true;
}

/* Copies this lane's share, and then what is left of the others. */
static void mtcopy_lane_run(struct mtcopy_lane *lane)
{
	struct mtcopy_batch *mt = lane->mt;
	u64 start = migrator_cpu_time();
	unsigned int i, victim = lane->index;
	u32 from, to;

	for (i = 0; i < mt->nr_lanes; i++) {
		while (mtcopy_lane_goes_on(lane) &&
		       mtcopy_lane_take(&mt->lanes[victim], &from, &to))
			mtcopy_lane_copy_pages(lane, from, to);
		victim = victim + 1 < mt->nr_lanes ? victim + 1 : 0;
	}
	mtcopy_copy_finish(mt->nontemporal);
	lane->ns = migrator_cpu_time() - start;
	trace_migrator_lane_done(lane->index, raw_smp_processor_id(), lane->bytes, lane->ns);
}

static void mtcopy_lane_work(struct work_struct *work)
{
	struct mtcopy_lane *lane = container_of(work, struct mtcopy_lane, work);
	struct mtcopy_batch *mt = lane->mt;

	/* From here to the end somebody waits, so nobody else may have the CPU. */
	preempt_disable();
	if (atomic_cmpxchg(&lane->state, MTCOPY_OFFERED, MTCOPY_TAKEN) == MTCOPY_OFFERED) {
		mtcopy_lane_run(lane);
		/* If it is not the last, the batch may be gone after this line. */
		if (atomic_dec_and_test(&mt->unfinished))
			complete(&mt->done);
	}
	preempt_enable();
}

/* Lets a helper begin, whenever its CPU comes to it. */
static void mtcopy_lane_offer(struct mtcopy_lane *lane, struct workqueue_struct *wq, int cpu)
{
	/* A helper sees all that it needs once it sees this. */
	atomic_set_release(&lane->state, MTCOPY_OFFERED);
	queue_work_on(cpu, wq, &lane->work);
}

/* Nothing is left to copy. A helper that has not begun need not do so. */
static void mtcopy_lane_withdraw(struct mtcopy_lane *lane)
{
	if (atomic_cmpxchg(&lane->state, MTCOPY_OFFERED, MTCOPY_NONE) != MTCOPY_OFFERED)
		return;
	atomic_dec(&lane->mt->unfinished);
	/* Saves its CPU the trouble. */
	cancel_work(&lane->work);
}

/* Waits for the helpers that have begun; none of the others will. */
static void mtcopy_lanes_wait(struct mtcopy_batch *mt)
{
	u64 start = local_clock();

	while (atomic_read(&mt->unfinished) > 1 && !need_resched()) {
		if (local_clock() - start > MTCOPY_WATCH_NS)
			break;
		cpu_relax();
	}
	if (!atomic_dec_and_test(&mt->unfinished))
		wait_for_completion(&mt->done);
}

/**
 * mtcopy_lanes_copy - copy a batch
 * @mt: the batch; its lanes have their shares, and all helpers have a CPU
 * @high: whether the helpers run at high priority
 *
 * Sleeps, allocates nothing, and charges the helpers' CPU time to the caller's cgroup. Works on
 * a CPU that goes off line meanwhile run elsewhere.
 */
void mtcopy_lanes_copy(struct mtcopy_batch *mt, bool high)
{
	struct workqueue_struct *wq = high ? mtcopy_wq_high : mtcopy_wq;
	unsigned int i;
	u64 ns = 0;

	for (i = 0; i < mt->nr_lanes; i++) {
		mt->lanes[i].bytes = 0;
		mt->lanes[i].ns = 0;
	}
	atomic_set(&mt->unfinished, mt->nr_lanes);
	reinit_completion(&mt->done);

	for (i = 1; i < mt->nr_lanes; i++)
		mtcopy_lane_offer(&mt->lanes[i], wq, mt->batch->cpus->cpus[i - 1]);
	mtcopy_lane_run(&mt->lanes[0]);
	for (i = 1; i < mt->nr_lanes; i++)
		mtcopy_lane_withdraw(&mt->lanes[i]);
	mtcopy_lanes_wait(mt);

	for (i = 1; i < mt->nr_lanes; i++)
		ns += mt->lanes[i].ns;
	if (ns)
		migrator_charge(ns);
}

void mtcopy_lanes_init(struct mtcopy_batch *mt)
{
	unsigned int i;

	init_completion(&mt->done);
	for (i = 0; i < MTCOPY_LANES_MAX; i++) {
		INIT_WORK(&mt->lanes[i].work, mtcopy_lane_work);
		mt->lanes[i].mt = mt;
		mt->lanes[i].index = i;
	}
}

/*
 * Waits until no work looks at the lanes of a batch that is not copied any more. One that found its
 * lane taken may still run on a workqueue while the lane was offered on the other one since, which
 * is the only one that cancel_work_sync() would wait for.
 */
void mtcopy_lanes_exit(void)
{
	flush_workqueue(mtcopy_wq);
	flush_workqueue(mtcopy_wq_high);
}

/*
 * Bound workqueues, since the CPUs are chosen with care. WQ_CPU_INTENSIVE: a share may take
 * milliseconds, and other works of its CPU need not wait for it. WQ_MEM_RECLAIM is the rule for
 * what reclaim waits for, and demotion does; but a lane that cannot begin for want of a worker
 * is withdrawn, so progress does not depend on the rescuer.
 */
int mtcopy_lanes_start(void)
{
	unsigned int flags = WQ_PERCPU | WQ_MEM_RECLAIM | WQ_CPU_INTENSIVE;

	mtcopy_wq = alloc_workqueue("mtcopy", flags, 0);
	if (!mtcopy_wq)
		return -ENOMEM;
	mtcopy_wq_high = alloc_workqueue("mtcopy_high", flags | WQ_HIGHPRI, 0);
	if (!mtcopy_wq_high) {
		destroy_workqueue(mtcopy_wq);
		return -ENOMEM;
	}
	return 0;
}

/* No batch is copied any more. Waits for the last works, so that the module's text may go. */
void mtcopy_lanes_stop(void)
{
	destroy_workqueue(mtcopy_wq_high);
	destroy_workqueue(mtcopy_wq);
}
