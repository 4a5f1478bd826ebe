// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a migrator with threads needs to know about CPUs, and modules are not told: which
 * ones share a cache, which are idle, and how to let the one who asked pay.
 */
#include <kunit/visibility.h>
#include <linux/bitmap.h>
#include <linux/cpumask.h>
#include <linux/cpuset.h>
#include <linux/export.h>
#include <linux/migrator.h>
#include <linux/nodemask.h>
#include <linux/sched.h>
#include <linux/sched/cputime.h>
#include <linux/sched/topology.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/topology.h>

#include "migrator.h"

/* How many of @nr CPUs with the same cache come before @cpu; of each core one comes first. */
static unsigned int migrator_cpu_rank(const struct migrator_cpu *cpu,
				      const struct migrator_cpu *cpus, unsigned int nr)
{
	bool first = cpu->core == cpu->cpu;
	unsigned int i, rank = 0;

	for (i = 0; i < nr; i++) {
		bool other_first = cpus[i].core == cpus[i].cpu;

		if (cpus[i].cache != cpu->cache)
			continue;
		if (other_first > first || (other_first == first && cpus[i].cpu < cpu->cpu))
			rank++;
	}
	return rank;
}

static int migrator_compare_cpus(const void *a, const void *b)
{
	const struct migrator_cpu *left = a, *right = b;

	return left->key < right->key ? -1 : left->key > right->key;
}

/*
 * Puts the CPUs of a node into the order in which they get lanes. Looks at nothing but the
 * numbers it is given.
 */
VISIBLE_IF_KUNIT void migrator_sort_cpus(struct migrator_cpu *cpus, unsigned int nr,
					 enum migrator_placement placement)
{
	unsigned int i;

	for (i = 0; i < nr; i++) {
		u64 rank = migrator_cpu_rank(&cpus[i], cpus, nr), cache = cpus[i].cache;

		cpus[i].key = placement == MIGRATOR_FILL ? cache << 32 | rank : rank << 32 | cache;
	}
	sort(cpus, nr, sizeof(*cpus), migrator_compare_cpus, NULL);
}

/* The lowest CPU of the last-level cache stands for it. */
static int migrator_cpu_cache(int cpu, const struct cpumask *mask)
{
	int other;

	for_each_cpu_and(other, mask, cpu_online_mask)
		if (cpus_share_cache(cpu, other))
			return other;
	return cpu;
}

/* Appends the CPUs of a node. @sorted is work space for all CPUs that there can be. */
static unsigned int migrator_order_node(int nid, enum migrator_placement placement,
					struct migrator_cpu *sorted, u16 *cpus,
					unsigned int nr, unsigned int space)
{
	const struct cpumask *mask = cpumask_of_node(nid);
	unsigned int i, found = 0;
	int cpu;

	for_each_cpu_and(cpu, mask, cpu_online_mask) {
		sorted[found].cpu = cpu;
		sorted[found].cache = migrator_cpu_cache(cpu, mask);
		sorted[found++].core = cpumask_first(topology_sibling_cpumask(cpu));
	}
	migrator_sort_cpus(sorted, found, placement);
	for (i = 0; i < found && nr < space; i++)
		cpus[nr++] = sorted[i].cpu;
	return nr;
}

/**
 * migrator_order_cpus - in which order lanes should get CPUs
 * @nid: node of the destination
 * @placement: the order among the CPUs of one node
 * @cpus: receives the numbers of CPUs that are online, the best one first
 * @space: entries of @cpus; further CPUs are left out
 *
 * CPUs of @nid come first, then those of the nearest node, and so on. Among CPUs with the
 * same last-level cache, one thread of every core comes before the second threads.
 *
 * Context: Process context; sleeps. CPUs that come and go meanwhile may be missing or too
 * many: the caller either holds the CPU hotplug lock or can live with that.
 * Return: the number of CPUs written; 0 if there is no memory to sort them.
 */
unsigned int migrator_order_cpus(int nid, enum migrator_placement placement, u16 *cpus,
				 unsigned int space)
{
	nodemask_t left = node_states[N_CPU];
	struct migrator_cpu *sorted;
	unsigned int nr = 0;

	sorted = kcalloc(nr_cpu_ids, sizeof(*sorted), GFP_KERNEL);
	if (!sorted)
		return 0;
	while (!nodes_empty(left) && nr < space) {
		int node, nearest = NUMA_NO_NODE;

		for_each_node_mask(node, left)
			if (nearest == NUMA_NO_NODE ||
			    node_distance(nid, node) < node_distance(nid, nearest))
				nearest = node;
		nr = migrator_order_node(nearest, placement, sorted, cpus, nr, space);
		node_clear(nearest, left);
	}
	kfree(sorted);
	return nr;
}
EXPORT_SYMBOL_GPL(migrator_order_cpus);

/**
 * migrator_cpu_idle - whether a CPU has nothing to run
 * @cpu: its number
 *
 * Context: Any. The answer can be old when it arrives.
 * Return: true if it is online and idle.
 */
bool migrator_cpu_idle(int cpu)
{
	return cpu_online(cpu) && idle_cpu(cpu);
}
EXPORT_SYMBOL_GPL(migrator_cpu_idle);

/**
 * migrator_allowed_cpus - on which CPUs helpers of the current task may run
 * @mask: receives them; some may be offline
 *
 * Those of its cpuset, which keeps containers apart. Kernel threads work for everybody and
 * may have helpers everywhere.
 *
 * Context: Any but interrupts.
 */
void migrator_allowed_cpus(struct cpumask *mask)
{
	if (current->flags & PF_KTHREAD)
		cpumask_copy(mask, cpu_possible_mask);
	else
		cpuset_cpus_allowed(current, mask);
}
EXPORT_SYMBOL_GPL(migrator_allowed_cpus);

/**
 * migrator_cpu_time - the CPU time that the current task has had
 *
 * What a lane took is the difference of two of these: unlike a clock's it leaves out the
 * time in which something else ran.
 *
 * Context: Process context.
 * Return: nanoseconds.
 */
u64 migrator_cpu_time(void)
{
	return task_sched_runtime(current);
}
EXPORT_SYMBOL_GPL(migrator_cpu_time);

/**
 * migrator_charge - charge the current task for what lanes did on its behalf
 * @ns: CPU time of all lanes but the task itself
 *
 * It is system time of the task and of its cgroups from then on.
 *
 * Context: Process context, in the task whose migration it was.
 */
void migrator_charge(u64 ns)
{
	account_helper_time(ns);
}
EXPORT_SYMBOL_GPL(migrator_charge);
