// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page tables as a source: a thread that goes through the page tables of all processes, tests
 * and clears the accessed bits, and records what was accessed. It keeps to a number of pages
 * per second, walks less often while nothing in a lower tier is accessed, and does not exist
 * while the source is off.
 *
 * A walk finds a page accessed if it was since the last walk. It marks the folio as young, as idle
 * page tracking and DAMON do, so that these and reclaim still see the access.
 *
 * While more pages are found accessed than fit the top tier, and so none ranks above another, a
 * walk looks sooner: it clears the bits of some memory, waits for a part of the period, and looks
 * which are set again.
 */
#include <linux/delay.h>
#include <linux/freezer.h>
#include <linux/hugetlb_inline.h>
#include <linux/kthread.h>
#include <linux/memory-tiers.h>
#include <linux/mempolicy.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/nodemask.h>
#include <linux/oom.h>
#include <linux/page_idle.h>
#include <linux/pagewalk.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched/coredump.h>
#include <linux/sched/cputime.h>
#include <linux/sched/isolation.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>

#include <asm/tlbflush.h>

#include "internal.h"
#include "pghot.h"

/* The policy's numbers are made for four walks a second. */
#define PGHOT_SCAN_PERIOD_MS	250U

/*
 * Pages a second: at some 10 ns a page a walk takes at most 4% of a CPU. One that looks sooner sees
 * each page twice.
 */
#define PGHOT_SCAN_RATE		(4UL << 20)

/*
 * Under one hold of mmap_lock: 8192 small pages, some 100 us. Of a virtual machine a part of it, by
 * what its pages cost.
 */
#define PGHOT_SCAN_BYTES	(32UL << 20)

/* Cost of a piece itself, in pages: some address spaces are large and empty. */
#define PGHOT_SCAN_PIECE	32

/* Cost of a page that a virtual machine may have accessed, in other pages. */
#define PGHOT_SCAN_GUEST	16

/* How often it asks for the lock of an address space that others change. */
#define PGHOT_SCAN_TRIES	10

/* So many pieces in a row are skipped for want of the lock, then the rest of the process. */
#define PGHOT_SCAN_SKIPS	8

/*
 * After so many walks in a row that found nothing the period doubles, up to four times. Once would
 * be too early: when all that is hot came up, a program may use other memory of a lower tier soon.
 */
#define PGHOT_SCAN_IDLE		4
#define PGHOT_SCAN_PATIENCE	8

/* Threads of a process whose CPUs tell where it runs. */
#define PGHOT_SCAN_THREADS	64

/* Where the thread is. */
struct pghot_scan {
	pid_t pid;		/* being walked, in the first namespace of processes */
	unsigned long addr;	/* where to go on in it */
	unsigned long left;	/* pages that may be looked at before the next sleep */
	int nid;		/* that all threads of the process run on, or NUMA_NO_NODE */
	u32 now;		/* when the walk of the process began */
	bool clears;		/* only clears accessed bits, for a look that follows */
	bool sooner;		/* is such a look: all bits were cleared before */
	struct folio *last;	/* of the last page that was recorded */
	nodemask_t lower;	/* nodes of lower tiers */
	unsigned int skipped;	/* pieces in a row whose lock was not to be had */
	bool task_moves;	/* the policy and cpuset of the process let its pages move up */
	bool moves;		/* and so does that of the mapping */
	bool locked;		/* the mapping keeps its pages from leaving the top tier */
	u32 walk_start;		/* of all processes */
	unsigned long found;	/* pages of lower tiers that this walk found accessed */
	unsigned long cleared;	/* accessed bits of this process */
	unsigned int idle;	/* walks in a row that found nothing, until the period is longest */
	unsigned int nr;
	unsigned long pfns[MAX_PTRS_PER_PTE];	/* of the @nr accesses to record */
};

u32 pghot_scan_walk_ms;
unsigned int pghot_scan_halvings;

/* One thread, one state. Under the lock of pghot_set_sources() while it starts and stops. */
static struct task_struct *pghot_scan_task;
static struct pghot_scan pghot_scan_state;

/* Takes note of a folio whose accessed bit was set, and now is not, unless the look came sooner. */
static void pghot_scan_young(struct pghot_scan *scan, struct folio *folio)
{
	if (!scan->sooner) {
		scan->cleared++;
		/* Reclaim and idle page tracking must not take it for idle. */
		folio_clear_idle(folio);
		folio_set_young(folio);
	}
	if (scan->clears)
		return;
	/* The pages of a large folio have one record, and are one access of this walk. */
	if (folio == scan->last)
		return;
	scan->last = folio;
	/* What cannot move would fill the ranking: neither a candidate nor a place for one. */
	if (!scan->moves)
		return;
	if (node_isset(folio_nid(folio), scan->lower))
		scan->found++;
	else if (scan->locked)
		return;
	scan->pfns[scan->nr++] = folio_pfn(folio);
}

static void pghot_scan_pte(struct pghot_scan *scan, struct vm_area_struct *vma,
			   unsigned long addr, pte_t *pte)
{
	pte_t entry = ptep_get(pte);
	struct folio *folio;

	if (!pte_present(entry) || (!pte_young(entry) && !mm_has_notifiers(vma->vm_mm)))
		return;
	folio = vm_normal_folio(vma, addr, entry);
	if (!folio || folio_is_zone_device(folio))
		return;
	if (scan->sooner ? pte_young(entry) || mmu_notifier_test_young(vma->vm_mm, addr) :
			   test_and_clear_young_ptes_notify(vma, addr, pte, 1))
		pghot_scan_young(scan, folio);
}

static void pghot_scan_huge(struct pghot_scan *scan, struct vm_area_struct *vma,
			    unsigned long addr, pmd_t *pmd)
{
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	pmd_t entry = pmdp_get(pmd);
	struct folio *folio;

	if (!pmd_present(entry) || (!pmd_young(entry) && !mm_has_notifiers(vma->vm_mm)))
		return;
	folio = vm_normal_folio_pmd(vma, addr, entry);
	if (!folio || folio_is_zone_device(folio))
		return;
	if (scan->sooner ? pmd_young(entry) || mmu_notifier_test_young(vma->vm_mm, addr) :
			   pmdp_test_and_clear_young_notify(vma, addr, pmd))
		pghot_scan_young(scan, folio);
#endif
}

static int pghot_scan_pmd(pmd_t *pmd, unsigned long addr, unsigned long end,
			  struct mm_walk *walk)
{
	struct pghot_scan *scan = walk->private;
	unsigned long pages;
	spinlock_t *lock;
	pte_t *ptes, *pte;

	lock = pmd_trans_huge_lock(pmd, walk->vma);
	if (lock) {
		/* Sparse does not know that it is held, here and below. */
		__acquire(lock);
		pghot_scan_huge(scan, walk->vma, addr & PMD_MASK, pmd);
		spin_unlock(lock);
		pages = 1;
	} else {
		ptes = pte_offset_map_lock(walk->mm, pmd, addr, &lock);
		if (!ptes)
			return 0;
		__acquire(lock);
		pages = (end - addr) >> PAGE_SHIFT;
		for (pte = ptes; addr < end; pte++, addr += PAGE_SIZE)
			pghot_scan_pte(scan, walk->vma, addr, pte);
		pte_unmap_unlock(ptes, lock);
	}
	pghot_stat_add(PGHOT_SCANNED_PTES, pages);
	pghot_record_accesses(scan->pfns, scan->nr, scan->nid, PGHOT_PGTSCAN, scan->now);
	scan->nr = 0;
	if (mm_has_notifiers(walk->mm))
		pages *= PGHOT_SCAN_GUEST;
	/* Not across the lock: what follows there may be another folio at the same place. */
	scan->last = NULL;
	scan->left -= min(scan->left, pages);
	cond_resched();
	return 0;
}

static const struct mm_walk_ops pghot_scan_ops = {
	.pmd_entry = pghot_scan_pmd,
	.walk_lock = PGWALK_RDLOCK,
};

/* Tasks that change the address space go first, and may take a while. */
static bool pghot_scan_lock(struct mm_struct *mm)
{
	unsigned int tries;

	for (tries = 0; tries < PGHOT_SCAN_TRIES; tries++) {
		if (mmap_read_trylock(mm))
			return true;
		usleep_range(100, 200);
	}
	return false;
}

/* The end of the piece that an address lies in. */
static unsigned long pghot_scan_end(struct mm_struct *mm, unsigned long addr)
{
	unsigned long bytes = PGHOT_SCAN_BYTES;

	if (mm_has_notifiers(mm))
		bytes /= PGHOT_SCAN_GUEST;
	return ALIGN_DOWN(addr, bytes) + bytes;
}

/*
 * Walks the next piece of an address space, or skips it if the lock is not to be had. Returns
 * false at the end, and if others keep the lock: the next walk comes soon.
 */
static bool pghot_scan_piece(struct pghot_scan *scan, struct mm_struct *mm)
{
	struct vm_area_struct *vma;
	unsigned long end;

	if (!pghot_scan_lock(mm)) {
		scan->left -= min(scan->left, PGHOT_SCAN_PIECE);
		scan->addr = pghot_scan_end(mm, scan->addr);
		return ++scan->skipped < PGHOT_SCAN_SKIPS;
	}
	scan->skipped = 0;
	vma = find_vma(mm, scan->addr);
	if (!vma) {
		mmap_read_unlock(mm);
		return false;
	}
	scan->left -= min(scan->left, PGHOT_SCAN_PIECE);
	end = vma->vm_end;
	/* Not what cannot move anyway; of devices' memory, a walk would split the mapping. */
	if (vma_migratable(vma) && !is_vm_hugetlb_page(vma)) {
		scan->moves = scan->task_moves && vma_policy_mof(vma);
		scan->locked = vma->vm_flags & VM_LOCKED;
		scan->addr = max(scan->addr, vma->vm_start);
		end = min(end, pghot_scan_end(mm, scan->addr));
		walk_page_range(mm, scan->addr, end, &pghot_scan_ops, scan);
	}
	scan->addr = end;
	mmap_read_unlock(mm);
	return true;
}

/* The node of all CPUs that the process's threads ran on last. */
static int pghot_scan_nid(struct task_struct *leader)
{
	int nid = cpu_to_node(task_cpu(leader)), nr = 0;
	struct task_struct *thread;

	rcu_read_lock();
	for_each_thread(leader, thread) {
		if (cpu_to_node(task_cpu(thread)) != nid)
			nid = NUMA_NO_NODE;
		if (nid == NUMA_NO_NODE || ++nr == PGHOT_SCAN_THREADS)
			break;
	}
	rcu_read_unlock();
	return nid;
}

/* Whether a flush interrupts no CPU that is to be left alone. */
static bool pghot_scan_may_flush(struct mm_struct *mm)
{
	int cpu;

	/* A change of cpuset partitions frees the mask of isolated CPUs after a grace period. */
	guard(rcu)();
	for_each_cpu(cpu, mm_cpumask(mm))
		if (cpu_is_isolated(cpu))
			return false;
	return true;
}

/* Walks as much of a process as it may. Returns whether it reached its end. */
static bool pghot_scan_process(struct pghot_scan *scan, struct task_struct *leader)
{
	struct task_struct *thread;
	struct mm_struct *mm;
	bool more = true;

	scan->nid = pghot_scan_nid(leader);
	thread = find_lock_task_mm(leader);
	if (!thread)
		return true;
	__acquire(&thread->alloc_lock);
	mm = thread->mm;
	if (mm_flags_test(MMF_PGHOT_NO_SCAN, mm) || !pghot_scan_may_flush(mm)) {
		task_unlock(thread);
		return true;
	}
	mmget(mm);
	scan->task_moves = pghot_may_promote(thread);
	task_unlock(thread);

	scan->now = pghot_now();
	scan->cleared = 0;
	scan->skipped = 0;
	while (more && scan->left && !kthread_should_stop()) {
		more = pghot_scan_piece(scan, mm);
		cond_resched();
	}
	/*
	 * A CPU that has the translation does not set the bit again. Of all pages it would be
	 * the hottest ones that then look idle.
	 */
	if (scan->cleared)
		flush_tlb_mm(mm);
	/* The last user's exit is not ours to do. */
	mmput_async(mm);
	return !more;
}

/* Goes on with the walk. Returns true if it came to the last process. */
static bool pghot_scan_go_on(struct pghot_scan *scan)
{
	struct task_struct *leader;
	struct pid *pid;
	bool done;

	while (scan->left && !kthread_should_stop()) {
		rcu_read_lock();
		pid = find_ge_pid(scan->pid, &init_pid_ns);
		/* scan->addr is of the process that is gone. */
		if (pid && pid_nr(pid) != scan->pid) {
			scan->pid = pid_nr(pid);
			scan->addr = 0;
		}
		leader = pid ? get_pid_task(pid, PIDTYPE_TGID) : NULL;
		rcu_read_unlock();
		if (!pid)
			return true;
		/* A process may have a hundred thousand threads. */
		scan->left--;
		done = !leader || leader->flags & PF_KTHREAD || pghot_scan_process(scan, leader);
		if (leader)
			put_task_struct(leader);
		if (done) {
			scan->pid++;
			scan->addr = 0;
		}
		cond_resched();
	}
	return false;
}

static void pghot_scan_begin(struct pghot_scan *scan)
{
	int nid;

	scan->pid = 1;
	scan->addr = 0;
	scan->found = 0;
	scan->walk_start = pghot_now();
	nodes_clear(scan->lower);
	for_each_node_state(nid, N_MEMORY)
		if (!node_is_toptier(nid))
			node_set(nid, scan->lower);
}

static void pghot_scan_sleep(unsigned int ms)
{
	DECLARE_WAIT_QUEUE_HEAD_ONSTACK(stop);

	wait_event_freezable_timeout(stop, kthread_should_stop(), msecs_to_jiffies(ms));
	try_to_freeze();
}

/*
 * Clears the bits of the memory that comes next, so much that it takes a small part of the time
 * until the look, and goes back to where it began.
 */
static void pghot_scan_clear(struct pghot_scan *scan, unsigned int look_ms)
{
	unsigned long addr = scan->addr;
	pid_t pid = scan->pid;

	scan->clears = true;
	pghot_scan_go_on(scan);
	scan->clears = false;
	scan->pid = pid;
	scan->addr = addr;
	pghot_scan_sleep(look_ms);
	scan->sooner = true;
}

static int pghot_scan_run(void *data)
{
	struct pghot_scan *scan = data;
	unsigned int period, spent, halvings, look_ms;
	u64 cpu;
	unsigned long pages;
	u32 start, took, began = pghot_now();
	bool done;

	set_freezable();
	pghot_scan_begin(scan);
	while (!kthread_should_stop()) {
		/* Without a lower tier there is nothing to find. */
		if (nodes_empty(scan->lower)) {
			pghot_scan_sleep(PGHOT_SCAN_PERIOD_MS << PGHOT_SCAN_IDLE);
			pghot_scan_begin(scan);
			continue;
		}
		halvings = READ_ONCE(pghot_scan_halvings);
		look_ms = PGHOT_SCAN_PERIOD_MS >> halvings;
		pages = PGHOT_SCAN_RATE / MSEC_PER_SEC * look_ms >> !!halvings;
		start = pghot_now();
		cpu = task_sched_runtime(current);
		scan->left = pages;
		scan->sooner = false;
		if (halvings)
			pghot_scan_clear(scan, look_ms);
		scan->left = pages;
		done = pghot_scan_go_on(scan);
		took = pghot_now() - scan->walk_start;
		/* A walk that is longer than the last one is so before its end. */
		if (done || took > READ_ONCE(pghot_scan_walk_ms))
			WRITE_ONCE(pghot_scan_walk_ms, took);
		if (done) {
			scan->idle = scan->found ? 0 : min(scan->idle + 1, PGHOT_SCAN_IDLE *
									   PGHOT_SCAN_PATIENCE);
			pghot_scan_begin(scan);
		}
		pghot_stat_add(PGHOT_SCAN_US,
			       div_u64(task_sched_runtime(current) - cpu, NSEC_PER_USEC));
		/* The rest of a walk that looks sooner comes at once: it has slept. */
		if (halvings && !done)
			continue;
		spent = pghot_now() - (halvings ? began : start);
		period = PGHOT_SCAN_PERIOD_MS << scan->idle / PGHOT_SCAN_PATIENCE;
		pghot_scan_sleep(spent < period ? period - spent : 1);
		began = pghot_now();
	}
	return 0;
}

int pghot_scan_start(void)
{
	struct task_struct *task;

	memset(&pghot_scan_state, 0, sizeof(pghot_scan_state));
	WRITE_ONCE(pghot_scan_walk_ms, 0);
	WRITE_ONCE(pghot_scan_halvings, 0);
	task = kthread_run(pghot_scan_run, &pghot_scan_state, "pghot_scan");
	if (IS_ERR(task))
		return PTR_ERR(task);
	pghot_scan_task = task;
	return 0;
}

/* Nothing is being scanned when this returns. */
void pghot_scan_stop(void)
{
	kthread_stop(pghot_scan_task);
	pghot_scan_task = NULL;
}
