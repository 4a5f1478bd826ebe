// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPUs: who helps with a batch.
 *
 * Which CPUs to ask, and in which order, changes only with the CPUs that there are: it is
 * worked out when the migrator becomes active and a little after a CPU came or went. A
 * batch asks CPU after CPU whether it is idle.
 */
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/rcupdate.h>
#include <linux/sched/isolation.h>
#include <linux/slab.h>
#include <linux/smp.h>

#include "mtcopy.h"

/*
 * When a CPU comes or goes, the scheduler learns its caches only afterwards, and often
 * others follow it (suspend, hotplug of a socket). Until then nobody misses it.
 */
#define MTCOPY_SETTLE		HZ

/**
 * struct mtcopy_order - the CPUs to ask for a batch to one node
 * @rcu: frees it when no batch reads it any more
 * @nr: number of @cpus
 * @far: where to go on among those not asked by every batch; any value will do, and
 *	batches change it without a lock
 * @cpus: those near the node first, see migrator_order_cpus()
 */
struct mtcopy_order {
	struct rcu_head rcu;
	unsigned int nr;
	unsigned int far;
	u16 cpus[] __counted_by(nr);
};

static struct mtcopy_order __rcu *mtcopy_orders[MIGRATOR_FILL + 1][MAX_NUMNODES];
static DEFINE_MUTEX(mtcopy_orders_lock);	/* for changes of mtcopy_orders */
static enum cpuhp_state mtcopy_cpuhp;

static struct mtcopy_order *mtcopy_order_alloc(int nid, enum migrator_placement placement)
{
	struct mtcopy_order *order;

	order = kzalloc(struct_size(order, cpus, nr_cpu_ids), GFP_KERNEL);
	if (!order)
		return NULL;
	order->nr = nr_cpu_ids;
	order->nr = migrator_order_cpus(nid, placement, order->cpus, nr_cpu_ids);
	if (!order->nr) {
		kfree(order);
		return NULL;
	}
	return order;
}

/*
 * Puts new orders in place. Where memory is short the old one stays: no CPU is chosen that
 * is not online, and one that has come is not missed.
 */
static int mtcopy_orders_update(void)
{
	struct mtcopy_order *order;
	int nid, placement, error = 0;

	mutex_lock(&mtcopy_orders_lock);
	for (placement = 0; placement <= MIGRATOR_FILL; placement++) {
		for_each_node(nid) {
			order = mtcopy_order_alloc(nid, placement);
			if (!order) {
				error = -ENOMEM;
				continue;
			}
			order = rcu_replace_pointer(mtcopy_orders[placement][nid], order,
						    lockdep_is_held(&mtcopy_orders_lock));
			if (order)
				kfree_rcu(order, rcu);
		}
	}
	mutex_unlock(&mtcopy_orders_lock);
	return error;
}

static void mtcopy_orders_work(struct work_struct *work)
{
	mtcopy_orders_update();
}

static DECLARE_DELAYED_WORK(mtcopy_orders_later, mtcopy_orders_work);

static int mtcopy_cpu_changed(unsigned int cpu)
{
	/* Not put off by further changes, or it might never come. */
	schedule_delayed_work(&mtcopy_orders_later, MTCOPY_SETTLE);
	return 0;
}

/* What a batch learns from the CPUs that it asks. */
struct mtcopy_choice {
	u16 *cpus;		/* idle */
	unsigned int nr;	/* of them */
	unsigned int want;	/* of them at most */
	const struct cpumask *allowed;
	int own;		/* the caller's, when it began to ask: it may move meanwhile */
	unsigned int nr_busy;
	u16 busy[MTCOPY_LANES_MAX - 1];
};

static void mtcopy_ask(int cpu, struct mtcopy_choice *choice)
{
	if (cpu == choice->own || !cpu_online(cpu) || cpu_is_isolated(cpu))
		return;
	if (!cpumask_test_cpu(cpu, choice->allowed))
		return;
	if (migrator_cpu_idle(cpu))
		choice->cpus[choice->nr++] = cpu;
	else if (choice->nr_busy < choice->want)
		choice->busy[choice->nr_busy++] = cpu;
}

/*
 * To ask a busy CPU is to fetch a cache line from it, and a large machine may be busy
 * all over. So a batch may ask one CPU for each granule that it copies, which takes a
 * hundred times as long. Half of these are the nearest ones; with the other half the
 * batches go round the rest of the machine.
 */
static void mtcopy_ask_all(struct mtcopy_order *order, unsigned int looks,
			   struct mtcopy_choice *choice)
{
	unsigned int i, near, rest, far = READ_ONCE(order->far);

	looks = min(looks, order->nr);
	near = min(looks, max(looks / 2, choice->want + 1));
	for (i = 0; i < near && choice->nr < choice->want; i++)
		mtcopy_ask(order->cpus[i], choice);

	rest = order->nr - near;
	for (; i < looks && choice->nr < choice->want; i++)
		mtcopy_ask(order->cpus[near + far++ % rest], choice);
	if (i > near)
		WRITE_ONCE(order->far, far);
}

/**
 * mtcopy_cpus_choose - find CPUs to help with a batch
 * @mt: the batch; its @cpus receive them
 * @params: the settings
 * @want: number of CPUs, less than MTCOPY_LANES_MAX
 *
 * Neither the caller's CPU nor an isolated one is among them, nor one that is not in the
 * caller's cpuset: those belong to others. The caller's own affinity does not count: a task
 * that stays on one CPU for the sake of its caches is still one that idle CPUs may help.
 *
 * Busy CPUs are taken only if params->idle_only is not set and there are not enough idle
 * ones.
 *
 * Context: Any. What was idle may be busy when this returns, and offline, too.
 * Return: number of CPUs, 0 to @want.
 */
unsigned int mtcopy_cpus_choose(struct mtcopy_batch *mt, const struct mtcopy_params *params,
				unsigned int want)
{
	struct mtcopy_choice choice = {
		.cpus = mt->cpus,
		.want = want,
		.allowed = &mt->allowed,
		.own = raw_smp_processor_id(),
	};
	const struct migrator_batch *batch = mt->batch;
	struct mtcopy_order *order;
	unsigned int i;

	migrator_allowed_cpus(&mt->allowed);
	rcu_read_lock();
	order = rcu_dereference(mtcopy_orders[params->placement][batch->dst_nid]);
	if (order)
		mtcopy_ask_all(order, batch->bytes / MTCOPY_GRANULE, &choice);
	rcu_read_unlock();

	if (!params->idle_only) {
		for (i = 0; i < choice.nr_busy && choice.nr < want; i++)
			mt->cpus[choice.nr++] = choice.busy[i];
	}
	return choice.nr;
}

/**
 * mtcopy_cpus_stop - forget the CPUs
 *
 * No batch asks any more.
 */
void mtcopy_cpus_stop(void)
{
	struct mtcopy_order *order;
	int nid, placement;

	cpuhp_remove_state_nocalls(mtcopy_cpuhp);
	cancel_delayed_work_sync(&mtcopy_orders_later);
	mutex_lock(&mtcopy_orders_lock);
	for (placement = 0; placement <= MIGRATOR_FILL; placement++) {
		for_each_node(nid) {
			order = rcu_replace_pointer(mtcopy_orders[placement][nid], NULL,
						    lockdep_is_held(&mtcopy_orders_lock));
			kfree(order);
		}
	}
	mutex_unlock(&mtcopy_orders_lock);
}

/**
 * mtcopy_cpus_start - learn which CPUs there are
 *
 * Return: 0 or a negative error.
 */
int mtcopy_cpus_start(void)
{
	int error;

	/* First this: a CPU that comes or goes from now on is noticed. */
	error = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN, "mm/mtcopy:online",
					  mtcopy_cpu_changed, mtcopy_cpu_changed);
	if (error < 0)
		return error;
	mtcopy_cpuhp = error;
	error = mtcopy_orders_update();
	if (error)
		mtcopy_cpus_stop();
	return error;
}
