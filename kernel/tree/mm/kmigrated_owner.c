// SPDX-License-Identifier: GPL-2.0-only
/*
 * The owners of a folio: to which nodes their cpusets and memory policies let it go, and
 * what memory.low and memory.min keep in the top tier.
 */
#include <linux/cpuset.h>
#include <linux/memcontrol.h>
#include <linux/mempolicy.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/rmap.h>
#include <linux/sched/task.h>
#include <linux/shmem_fs.h>

#include "internal.h"
#include "kmigrated.h"

/* As mpol_misplaced(): memory with a policy stays, unless MPOL_F_NUMA_BALANCING lets it move. */
static void kmigrated_follow_policy(nodemask_t *nodes, const struct mempolicy *policy)
{
	if (policy->flags & MPOL_F_MOF)
		nodes_and(*nodes, *nodes, policy->nodes);
	else
		nodes_clear(*nodes);
}

/* The cpuset of a process, and its memory policy where the mapping has none. */
static void kmigrated_follow_mm(nodemask_t *nodes, struct mm_struct *mm, bool policy)
{
	struct task_struct *owner;

	rcu_read_lock();
	owner = rcu_dereference(mm->owner);
	if (owner) {
		task_lock(owner);
		nodes_and(*nodes, *nodes, owner->mems_allowed);
		if (policy && owner->mempolicy)
			kmigrated_follow_policy(nodes, owner->mempolicy);
		task_unlock(owner);
	}
	rcu_read_unlock();
}

/* What a walk over the mappings of a folio knows. */
struct kmigrated_owners {
	nodemask_t *nodes;
	bool policy;	/* the folio is of shmem, whose own policy was asked already */
	bool busy;	/* others change a policy */
};

static bool kmigrated_follow_vma(struct folio *folio, struct vm_area_struct *vma,
				 unsigned long addr, void *arg)
{
	DEFINE_FOLIO_VMA_WALK(walk, folio, vma, addr, 0);
	struct kmigrated_owners *owners = arg;
	bool mapped = page_vma_mapped_walk(&walk);
	bool policy = owners->policy;

	if (mapped)
		page_vma_mapped_walk_done(&walk);
	/* A child that copied the page on write still has it among its anonymous mappings. */
	else if (folio_test_anon(folio))
		return true;
	if (!(vma->vm_ops && vma->vm_ops->get_policy) && READ_ONCE(vma->vm_policy)) {
		/* mmap_lock keeps it, and is taken before the rmap locks elsewhere. */
		if (!mmap_read_trylock(vma->vm_mm)) {
			owners->busy = true;
			return false;
		}
		if (vma->vm_policy)
			kmigrated_follow_policy(owners->nodes, vma->vm_policy);
		policy = true;
		mmap_read_unlock(vma->vm_mm);
	}
	/* A process that maps a file which others use as well does not own it. */
	if (folio_test_anon(folio) || (mapped && !folio_maybe_mapped_shared(folio)))
		kmigrated_follow_mm(owners->nodes, vma->vm_mm, !policy);
	return !nodes_empty(*owners->nodes);
}

static bool kmigrated_follow_shmem(nodemask_t *nodes, struct folio *folio)
{
	struct mempolicy *policy;

	if (folio_test_anon(folio) || !folio->mapping || !shmem_mapping(folio->mapping))
		return false;
	policy = mpol_shared_policy_lookup(&SHMEM_I(folio->mapping->host)->policy, folio->index);
	if (!policy)
		return false;
	kmigrated_follow_policy(nodes, policy);
	mpol_put(policy);
	return true;
}

/*
 * Removes from @nodes those to which a folio must not go. Owners are the memory cgroup that is
 * charged, all processes that map an anonymous folio, and the only one that maps one of a file.
 * Policies count of all mappings, also if the folio is not in their page tables. Returns false if
 * that cannot be told now: others have the folio locked, or change a policy.
 */
bool kmigrated_allowed(struct folio *folio, nodemask_t *nodes)
{
	struct kmigrated_owners owners = { .nodes = nodes };
	struct rmap_walk_control walk = {
		.arg = &owners,
		.rmap_one = kmigrated_follow_vma,
		.anon_lock = folio_lock_anon_vma_read,
	};
	struct mem_cgroup *memcg;
	nodemask_t mems;

	if (!folio_trylock(folio))
		return false;
	/* The lock of the folio does not keep its memcg from being released. */
	rcu_read_lock();
	memcg = mem_cgroup_disabled() ? NULL : folio_memcg(folio);
	if (memcg) {
		cpuset_nodes_allowed(memcg->css.cgroup, &mems);
		nodes_and(*nodes, *nodes, mems);
	}
	rcu_read_unlock();
	owners.policy = kmigrated_follow_shmem(nodes, folio);
	if (!nodes_empty(*nodes) && (folio_mapped(folio) || !folio_test_anon(folio)))
		rmap_walk(folio, &walk);
	folio_unlock(folio);
	return !owners.busy;
}

/* Effective protection depends on what all cgroups use; as kswapd, from the root down. */
void kmigrated_know_protection(void)
{
	struct mem_cgroup *memcg;

	for (memcg = mem_cgroup_iter(NULL, NULL, NULL); memcg;
	     memcg = mem_cgroup_iter(NULL, memcg, NULL)) {
		if (kmigrated_should_stop()) {
			mem_cgroup_iter_break(NULL, memcg);
			break;
		}
		mem_cgroup_calculate_protection(NULL, memcg);
		cond_resched();
	}
}

/* Pages that a memory cgroup has on LRU lists of the top tier. */
static unsigned long kmigrated_top_pages(struct mem_cgroup *memcg)
{
	unsigned long pages = 0;
	struct lruvec *lruvec;
	enum lru_list lru;
	int nid, z;

	for_each_top_node(nid) {
		lruvec = mem_cgroup_lruvec(memcg, NODE_DATA(nid));
		for (z = 0; z < MAX_NR_ZONES; z++)
			for_each_evictable_lru(lru)
				pages += mem_cgroup_get_zone_lru_size(lruvec, lru, z);
	}
	return pages;
}

/*
 * Whether memory.low or memory.min keep a folio in the top tier. Demotion takes nothing from what a
 * cgroup uses. So what lies in lower tiers counts as gone: else one page more than is protected
 * would let all of them go.
 */
bool kmigrated_protected(struct folio *folio)
{
	struct mem_cgroup *memcg;
	unsigned long kept = 0;

	rcu_read_lock();
	memcg = folio_memcg_check(folio);
	if (memcg && !mem_cgroup_is_root(memcg))
		kept = max(READ_ONCE(memcg->memory.emin), READ_ONCE(memcg->memory.elow));
	kept = kept && kmigrated_top_pages(memcg) <= kept;
	rcu_read_unlock();
	return kept;
}
