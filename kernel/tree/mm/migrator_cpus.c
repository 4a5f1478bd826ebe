// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a migrator with threads needs to know about CPUs, and modules are not told: which
 * ones share a cache, which are idle, and how to let the one who asked pay.
 */
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

/* How many CPUs before @cpu in @mask share its last-level cache; those of one core last. */
static unsigned int migrator_cpu_rank(int cpu, const struct cpumask *mask)
{
	bool first = cpumask_first(topology_sibling_cpumask(cpu)) == cpu;
	unsigned int rank = 0;
	int other;

	for_each_cpu_and(other, mask, cpu_online_mask) {
		bool other_first = cpumask_first(topology_sibling_cpumask(other)) == other;

		if (other == cpu || !cpus_share_cache(cpu, other))
			continue;
		if (other_first > first || (other_first == first && other < cpu))
			rank++;
	}
	return rank;
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

/* Where @cpu stands among those of its node; lower numbers get a lane sooner. */
static u64 migrator_cpu_key(int cpu, const struct cpumask *mask,
			    enum migrator_placement placement)
{
	u64 rank = migrator_cpu_rank(cpu, mask), cache = migrator_cpu_cache(cpu, mask);

	if (placement == MIGRATOR_FILL)
		return cache << 32 | rank;
	return rank << 32 | cache;
}

struct migrator_cpu {
	u64 key;
	int cpu;
};

static int migrator_compare_cpus(const void *a, const void *b)
{
	const struct migrator_cpu *left = a, *right = b;

	return left->key < right->key ? -1 : left->key > right->key;
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
		sorted[found].key = migrator_cpu_key(cpu, mask, placement);
		sorted[found++].cpu = cpu;
	}
	sort(sorted, found, sizeof(*sorted), migrator_compare_cpus, NULL);
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
