// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPUs for migrators with threads, as far as modules are not told: which of them are idle, which
 * share a cache, and how their time is charged.
 */
#include <kunit/visibility.h>
#include <linux/cgroup.h>
#include <linux/cpumask.h>
#include <linux/cpuset.h>
#include <linux/export.h>
#include <linux/kernel_stat.h>
#include <linux/migrator.h>
#include <linux/nodemask.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/cputime.h>
#include <linux/sched/isolation.h>
#include <linux/sched/prio.h>
#include <linux/sched/rt.h>
#include <linux/sched/topology.h>
#include <linux/topology.h>

#include "migrator.h"

/* CPUs that are asked before a batch is isolated: each may be a cache line of another CPU. */
#define MIGRATOR_READY_LOOKS	16

/*
 * Whether @task may have helpers at all, and which, by its class: a task that gives way to
 * everybody has none; kswapd and kcompactd, which work ahead of need, take idle CPUs alone; and a
 * task that outranks others may have busy CPUs, with helpers that outrank others as well.
 */
VISIBLE_IF_KUNIT bool migrator_may_have_helpers(struct task_struct *task, bool *idle_only,
						bool *high)
{
	*high = false;
	if (rt_or_dl_task_policy(task) || task_nice(task) == MIN_NICE) {
		*high = true;
		*idle_only = false;
	} else if (task->flags & (PF_KSWAPD | PF_KCOMPACTD)) {
		*idle_only = true;
	}
	return task->policy != SCHED_IDLE && task_nice(task) != MAX_NICE;
}

/* The seen CPU that is to be taken next, or NULL. */
static struct migrator_cpu *migrator_next_cpu(struct migrator_cpus *cpus)
{
	struct migrator_cpu *best = NULL, *cpu;
	unsigned int key, best_key = 0;

	for (cpu = cpus->seen; cpu < cpus->seen + cpus->nr_seen; cpu++) {
		unsigned int load = cpus->seen[cpu->cache].load;

		if (cpu->taken)
			continue;
		if (cpus->fill)
			load = MIGRATOR_CPUS_MAX - load;
		/* Idle ones first, then by cache; one thread of each core before the others. */
		key = cpu->busy << 16 | load << 8 | cpus->seen[cpu->core].threads;
		if (!best || key < best_key) {
			best = cpu;
			best_key = key;
		}
	}
	return best;
}

/* Orders the CPUs that were seen. Looks at nothing else. */
VISIBLE_IF_KUNIT void migrator_place_cpus(struct migrator_cpus *cpus)
{
	struct migrator_cpu *cpu;

	cpus->nr = 0;
	while (cpus->nr < cpus->want && (cpu = migrator_next_cpu(cpus))) {
		cpu->taken = true;
		cpus->seen[cpu->cache].load++;
		cpus->seen[cpu->core].threads++;
		cpus->cpus[cpus->nr++] = cpu->cpu;
	}
}

/* The first CPU seen of a cache and of a core stands for it. */
static void migrator_see_cpu(struct migrator_cpus *cpus, int number)
{
	struct migrator_cpu *cpu = &cpus->seen[cpus->nr_seen];
	unsigned int i;

	*cpu = (struct migrator_cpu) {
		.cpu = number,
		.cache = cpus->nr_seen,
		.core = cpus->nr_seen,
		.busy = !idle_cpu(number),
	};
	if (cpu->busy && cpus->idle_only)
		return;
	for (i = 0; i < cpus->nr_seen && cpu->cache == cpus->nr_seen; i++)
		if (cpus_share_cache(cpus->seen[i].cpu, number))
			cpu->cache = i;
	for (i = 0; i < cpus->nr_seen && cpu->core == cpus->nr_seen; i++)
		if (cpumask_test_cpu(cpus->seen[i].cpu, topology_sibling_cpumask(number)))
			cpu->core = i;
	cpus->nr_seen++;
}

/**
 * migrator_choose_cpus - find CPUs to help the current task with a batch
 * @cpus: &migrator_cpus.nr and &migrator_cpus.cpus are the answer
 * @nid: node of the destinations: its CPUs come first, then those of the nearest nodes
 *
 * The caller's CPU and isolated ones are never among them, nor those outside the caller's
 * cpuset: they belong to others. There is none for a task of SCHED_IDLE or of nice 19, and one of
 * nice -20 or of a real-time class may have busy ones. (Kernel threads work for everybody.) The
 * caller's affinity does not count: a task that stays on one CPU for the sake of its caches may
 * have helpers. CPUs that were idle may be busy, and off line, when this returns.
 */
void migrator_choose_cpus(struct migrator_cpus *cpus, int nid)
{
	/* Batches begin at different places, so that those on a large machine see all of it. */
	static unsigned int turn;
	unsigned int looks = cpus->looks, start = READ_ONCE(turn);
	int cpu, node, nearest, own = raw_smp_processor_id();
	nodemask_t left = node_states[N_CPU];

	cpus->nr = 0;
	if (!migrator_may_have_helpers(current, &cpus->idle_only, &cpus->high))
		return;
	WRITE_ONCE(turn, start + looks);
	if (current->flags & PF_KTHREAD)
		cpumask_copy(&cpus->allowed, cpu_possible_mask);
	else
		cpuset_cpus_allowed(current, &cpus->allowed);
	cpumask_and(&cpus->allowed, &cpus->allowed, cpu_online_mask);
	cpus->nr_seen = 0;
	/* A change of cpuset partitions frees the mask of isolated CPUs after a grace period. */
	rcu_read_lock();
	while (!nodes_empty(left)) {
		nearest = NUMA_NO_NODE;
		for_each_node_mask(node, left)
			if (nearest == NUMA_NO_NODE ||
			    node_distance(nid, node) < node_distance(nid, nearest))
				nearest = node;
		node_clear(nearest, left);
		for_each_cpu_wrap(cpu, cpumask_of_node(nearest), start % nr_cpu_ids) {
			if (cpu == own || !cpumask_test_cpu(cpu, &cpus->allowed) ||
			    cpu_is_isolated(cpu))
				continue;
			if (!looks-- || cpus->nr_seen == MIGRATOR_CPUS_MAX)
				goto place;
			migrator_see_cpu(cpus, cpu);
			/* Its number must not be seen again: a CPU can belong to two nodes. */
			cpumask_clear_cpu(cpu, &cpus->allowed);
		}
		if (cpus->nr_seen >= cpus->want)
			break;
	}
place:
	rcu_read_unlock();
	migrator_place_cpus(cpus);
}
EXPORT_SYMBOL_GPL(migrator_choose_cpus);

/**
 * migrator_may_find_cpus - guess whether migrator_choose_cpus() finds CPUs for the current task
 * @idle_only: see &migrator_cpus.idle_only
 *
 * Looks at a few CPUs next to the caller's, and at no cpuset. Does not sleep.
 *
 * Return: whether it might.
 */
bool migrator_may_find_cpus(bool idle_only)
{
	unsigned int looks = MIGRATOR_READY_LOOKS;
	int cpu, own = raw_smp_processor_id();
	bool high;

	if (!migrator_may_have_helpers(current, &idle_only, &high))
		return false;
	if (!idle_only)
		return true;
	for_each_cpu_wrap(cpu, cpu_online_mask, own + 1) {
		if (cpu != own && idle_cpu(cpu))
			return true;
		if (!--looks)
			break;
	}
	return false;
}
EXPORT_SYMBOL_GPL(migrator_may_find_cpus);

/* CPU time of the current task, in nanoseconds; unlike a clock it leaves out preemption. */
u64 migrator_cpu_time(void)
{
	return task_sched_runtime(current);
}
EXPORT_SYMBOL_GPL(migrator_cpu_time);

/*
 * Charge @ns of CPU time, spent by helpers, to the cgroup of the current task and its parents: as
 * system time in cpu.stat, and to cpu.max. The task's own clocks must not run ahead of wall time.
 */
void migrator_charge(u64 ns)
{
#ifdef CONFIG_CGROUPS
	struct cgroup *cgrp;

	rcu_read_lock();
	cgrp = task_dfl_cgroup(current);
	/* The root's cpu.stat is made of the statistics of CPUs, which have the time already. */
	if (cgroup_parent(cgrp)) {
		__cgroup_account_cputime(cgrp, ns);
		__cgroup_account_cputime_field(cgrp, CPUTIME_SYSTEM, ns);
	}
	rcu_read_unlock();
#endif
	sched_charge_quota(ns);
}
EXPORT_SYMBOL_GPL(migrator_charge);
