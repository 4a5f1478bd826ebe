// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hot-page tracking: which sources are on, what one access does to the record of its page, and
 * where a hot page should go. The bits of a record are lib/memferry's matter.
 *
 * Nothing on the way from a source to a record takes a lock or a reference. The records of a
 * section exist only while its memory is online, so that under RCU they stand for its struct
 * pages as well. Of a page whose folio changes meanwhile, a neighbour's record may count: a
 * record is a hint, and kmigrated looks at the folio itself before it acts.
 */
#define pr_fmt(fmt) "pghot: " fmt

#include <linux/init.h>
#include <linux/memcontrol.h>
#include <linux/memory-tiers.h>
#include <linux/mempolicy.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>

#include "pghot.h"

#define CREATE_TRACE_POINTS
#include <trace/events/pghot.h>

struct static_key_false pghot_source_keys[PGHOT_SRC_MAX] = {
	[0 ... PGHOT_SRC_MAX - 1] = STATIC_KEY_FALSE_INIT,
};

/*
 * The sources of this kernel. A report stands for @weight accesses: a fault or a sample for many,
 * so that it reaches the threshold. Hint faults need no start: NUMA balancing takes them.
 */
static const struct {
	u32 weight;
	int (*start)(void);
	void (*stop)(void);
} pghot_source[PGHOT_SRC_MAX] = {
	[PGHOT_HINTFAULT] = { 2 },
#ifdef CONFIG_PGHOT_HWHINTS
	[PGHOT_HWHINT] = { 2, pghot_perf_start, pghot_perf_stop },
#endif
#ifdef CONFIG_PGHOT_PGTSCAN
	[PGHOT_PGTSCAN] = { 1, pghot_scan_start, pghot_scan_stop },
#endif
};

DEFINE_PER_CPU(unsigned long [PGHOT_STATS], pghot_stats);

struct ferry_balance_params pghot_balance_params;

bool pghot_precise __ro_after_init;

/* Replaced as a whole, under pghot_lock, so that recording always sees one set of numbers. */
static struct ferry_hot_params __rcu *pghot_params;
static DEFINE_MUTEX(pghot_lock);

static unsigned int pghot_enabled;
static int pghot_wanted_nid = NUMA_NO_NODE;
/* What was set by hand; 0 for what fits the sources. */
static unsigned int pghot_wanted_window;
static unsigned int pghot_wanted_threshold;
static bool pghot_initialized;
/*
 * Pages of each node that hint faults made ready since kmigrated looked; at least 1 if any source
 * saw one that is.
 */
static atomic_t pghot_ready[MAX_NUMNODES];

/**
 * pghot_now - the time of an access
 *
 * From the clock and not from jiffies: a CPU whose tick is stopped would see old ones.
 *
 * Return: milliseconds, modulo 2^32.
 */
u32 pghot_now(void)
{
	/* The fast clock reads a latch that timekeeping writes, and KCSAN does not know latches. */
	u64 ns = data_race(ktime_get_mono_fast_ns());

	return (u32)div_u64(ns, NSEC_PER_MSEC);
}

struct ferry_hot_params pghot_get_params(void)
{
	struct ferry_hot_params params;

	rcu_read_lock();
	params = *rcu_dereference(pghot_params);
	rcu_read_unlock();
	return params;
}

static u32 pghot_format(void)
{
	return pghot_precise ? FERRY_HOT_PRECISE : FERRY_HOT_DEFAULT;
}

static void pghot_defaults(unsigned int sources, struct ferry_hot_params *params)
{
	struct ferry_balance_params unused;

	ferry_balance_defaults(pghot_format(), params, &unused);
	if (sources & BIT(PGHOT_PGTSCAN))
		return;
	/* As published: faults and samples see a page once in a second or more. */
	params->window_ms = pghot_precise ? 5000 : 3000;
	params->recall = 0;
	params->cool_sweeps = 0;
}

/*
 * Takes the numbers for these sources, and those that were set by hand, if they are sound. Sweeps
 * may be as late as the window allows: whoever sweeps intends to be far more regular, but may have
 * to wait for a CPU. A window that leaves less than three rounds for that would have all records
 * forgotten every now and then.
 */
static int pghot_fit_params(unsigned int sources)
{
	struct ferry_hot_params *params = kmalloc(sizeof(*params), GFP_KERNEL), *old;
	struct ferry_bad bad;

	lockdep_assert_held(&pghot_lock);
	if (!params)
		return -ENOMEM;
	pghot_defaults(sources, params);
	if (pghot_wanted_window)
		params->window_ms = pghot_wanted_window;
	if (pghot_wanted_threshold)
		params->threshold = pghot_wanted_threshold;
	params->sweep_ms = U32_MAX;
	ferry_hot_check(pghot_format(), params, &bad);
	params->sweep_ms = bad.most;
	if (ferry_hot_check(pghot_format(), params, &bad) ||
	    params->sweep_ms < 3 * PGHOT_ROUND_MS) {
		kfree(params);
		return -EINVAL;
	}
	old = rcu_replace_pointer(pghot_params, params, lockdep_is_held(&pghot_lock));
	kvfree_rcu_mightsleep(old);
	return 0;
}

static int pghot_set_wanted(unsigned int *wanted, unsigned int value, unsigned int fitting)
{
	unsigned int before;
	int error;

	if (!value)
		return -EINVAL;
	mutex_lock(&pghot_lock);
	before = *wanted;
	*wanted = value == fitting ? 0 : value;
	error = pghot_fit_params(pghot_enabled);
	if (error)
		*wanted = before;
	mutex_unlock(&pghot_lock);
	return error;
}

int pghot_set_window(unsigned int ms)
{
	struct ferry_hot_params fitting;

	pghot_defaults(pghot_sources(), &fitting);
	return pghot_set_wanted(&pghot_wanted_window, ms, fitting.window_ms);
}

int pghot_set_threshold(unsigned int threshold)
{
	return pghot_set_wanted(&pghot_wanted_threshold, threshold, 0);
}

/*
 * Which page has the record of @pfn: the first one of its folio. False for what never moves:
 * pages of devices, and what no LRU list has. The folio may change at any time.
 */
static bool pghot_record_pfn(unsigned long *pfn)
{
	struct page *page = compound_head(pfn_to_page(*pfn));

	if (!PageLRU(page))
		return false;
	*pfn = page_to_pfn(page);
	return true;
}

static void *pghot_record_in(const struct pghot_section *section, unsigned long pfn)
{
	return section->records + (pfn - section->start_pfn) * pghot_record_size();
}

/* The record of @pfn itself, if it has one. Under RCU. */
static void *pghot_record_at(unsigned long pfn)
{
	struct pghot_section *section = pghot_section_of(pfn);

	return section ? pghot_record_in(section, pfn) : NULL;
}

static bool pghot_is_ready(u32 record)
{
	return record & (pghot_precise ? FERRY_HOT32_READY : FERRY_HOT8_READY);
}

/*
 * A number that no other memory cgroup had lately, for the one that a page is charged to. By the
 * first page of its folio, under RCU.
 */
static u32 pghot_owner(unsigned long pfn)
{
	struct mem_cgroup *memcg = page_memcg_check(pfn_to_page(pfn));

	return memcg ? memcg->css.serial_nr : 0;
}

/*
 * Counts an access for the node that uses the section, and whose memory it uses. Accesses to
 * other owners' memory count against it, wherever they come from. Not atomic: lost updates do no
 * harm, and most change nothing.
 */
static void pghot_vote(struct pghot_section *section, unsigned long pfn, u32 node)
{
	u64 old = READ_ONCE(section->majority), new;
	u32 owner = old >> 32, other;

	if (node == FERRY_HOT_NO_NODE)
		return;
	other = ferry_hot_majority_node((u16)old);
	if (other == FERRY_HOT_NO_NODE)
		owner = pghot_owner(pfn);
	else if (owner != pghot_owner(pfn))
		node = !other;
	new = (u64)owner << 32 | ferry_hot_majority((u16)old, node);
	if (new != old)
		WRITE_ONCE(section->majority, new);
}

/* A folio of the section became ready, or was accessed while it was. */
static void pghot_kick(struct pghot_section *section, unsigned long pfn, enum pghot_src src,
		       bool became)
{
	atomic_t *pages = &pghot_ready[section->nid];
	unsigned int nr;

	if (!READ_ONCE(section->hot))
		WRITE_ONCE(section->hot, 1);
	/* Not from NMIs, which must not wake a thread: hint faults never are. */
	if (src == PGHOT_HINTFAULT && became) {
		/* A folio that is split meanwhile may tell any number. */
		nr = clamp_t(unsigned int, compound_nr(pfn_to_page(pfn)), 1, PGHOT_BATCH_NR);
		if (atomic_fetch_add(nr, pages) < PGHOT_BATCH_NR && pghot_batch_ready(section->nid))
			kmigrated_wake();
	} else if (!atomic_read(pages)) {
		atomic_cmpxchg(pages, 0, 1);
	}
}

/* Returns whether there is a record. Under RCU. */
static bool pghot_record(unsigned long pfn, u32 node, enum pghot_src src, u32 now)
{
	const struct ferry_hot_params *params = rcu_dereference(pghot_params);
	struct pghot_section *section = pghot_section_of(pfn);
	u32 weight = pghot_source[src].weight, old, new;
	void *record;
	bool ready;

	if (!section || !pghot_record_pfn(&pfn))
		return false;
	/* Of a gigantic page, which no LRU list has, it could be another section's. */
	if (pfn - section->start_pfn >= PAGES_PER_SECTION)
		return false;
	record = pghot_record_in(section, pfn);
	/* Before the page is ready: kmigrated may take it at once. */
	pghot_vote(section, pfn, node);
	/* Each access counts (params->step is 0), so no random number is drawn. */
	new = pghot_record_change(record, old, pghot_precise ?
				  ferry_hot32_access(old, params, now, weight, 0, node) :
				  ferry_hot8_access(old, params, now, weight, 0));
	ready = pghot_is_ready(new);
	trace_pghot_reported(pfn, node, src, ready);
	if (ready && !node_is_toptier(section->nid))
		pghot_kick(section, pfn, src, !pghot_is_ready(old));
	return true;
}

/* pghot_record_access() for @nr pages, one of each folio. */
void pghot_record_accesses(const unsigned long *pfns, unsigned int nr, int nid,
			   enum pghot_src src, u32 now_ms)
{
	u32 node = nid < 0 || nid >= FERRY_HOT_NO_NODE ? FERRY_HOT_NO_NODE : nid;
	unsigned int recorded = 0, i;

	if (!static_key_enabled(&pghot_source_keys[src]))
		return;
	rcu_read_lock();
	for (i = 0; i < nr; i++)
		recorded += pghot_record(pfns[i], node, src, now_ms);
	rcu_read_unlock();
	if (recorded) {
		count_vm_events(PGHOT_RECORDED_ACCESSES, recorded);
		pghot_stat_add(src, recorded);
	}
}

/**
 * pghot_record_access - record an access to a page
 * @pfn: the page, or any page of its folio
 * @nid: node whose CPU accessed it, or NUMA_NO_NODE
 * @src: who saw it
 * @now_ms: when, as pghot_now() says
 *
 * Does nothing if the source is off, or if the page has no record: only the memory of lower
 * tiers has them, and while page tables are scanned that of all tiers. Takes no lock, and may be
 * called from NMIs.
 */
void pghot_record_access(unsigned long pfn, int nid, enum pghot_src src, u32 now_ms)
{
	pghot_record_accesses(&pfn, 1, nid, src, now_ms);
}

/* 0 if it has none: nothing is known. */
static u32 pghot_get_record(unsigned long pfn)
{
	u32 value = 0;
	void *record;

	rcu_read_lock();
	record = pghot_record_at(pfn);
	if (record)
		value = pghot_record_read(record);
	rcu_read_unlock();
	return value;
}

/* What is known of a folio. */
struct ferry_hot_view pghot_look(unsigned long pfn, u32 now)
{
	u32 record = pghot_get_record(pfn);

	return pghot_by_format(view, record, now);
}

/* Milliseconds since a folio was accessed; U32_MAX if that is not known, or too long ago. */
u32 pghot_age_ms(unsigned long pfn, u32 now)
{
	u32 record = pghot_get_record(pfn);

	return pghot_by_format(age_ms, record, now);
}

/*
 * Takes a folio out of those that are ready, or gives one back that could not be moved now. Returns
 * whether it was ready before: of two callers that take it, one is told so.
 */
bool pghot_set_ready(unsigned long pfn, bool ready)
{
	void *record;
	u32 old = 0;

	rcu_read_lock();
	record = pghot_record_at(pfn);
	if (record)
		pghot_record_change(record, old, ready ? pghot_by_format(unclaim, old) :
							 pghot_by_format(claim, old));
	rcu_read_unlock();
	return pghot_is_ready(old);
}

/* Takes what is known of a page from its frame, which is about to have another owner. Under RCU. */
static u32 pghot_take(unsigned long pfn)
{
	struct pghot_section *section = pghot_section_of(pfn);
	u32 old;

	if (!section)
		return 0;
	pghot_record_change(pghot_record_in(section, pfn), old, 0);
	if (old)
		kmigrated_forget_failed(section->nid, pfn);
	return old;
}

/*
 * Lets a record follow its folio. If the target's memory has no records, what is known of the
 * folio is forgotten. It is not ready at its new place before the next access.
 */
void pghot_carry(unsigned long from_pfn, unsigned long to_pfn)
{
	u32 record, old;
	void *to;

	rcu_read_lock();
	record = pghot_take(from_pfn);
	to = pghot_record_at(to_pfn);
	if (to)
		pghot_record_change(to, old, pghot_by_format(claim, record));
	rcu_read_unlock();
}

void __pghot_forget(const struct page *page)
{
	rcu_read_lock();
	pghot_take(page_to_pfn(page));
	rcu_read_unlock();
}

static bool pghot_is_target(int nid)
{
	/* A record that names the largest node number there is says that it knows none. */
	return nid >= 0 && nid < min_t(int, MAX_NUMNODES, FERRY_HOT_NO_NODE) &&
	       node_state(nid, N_MEMORY) && node_is_toptier(nid);
}

/* The node that is configured; else the first one of the top tier. */
unsigned int pghot_target_nid(void)
{
	int nid = READ_ONCE(pghot_wanted_nid);

	if (pghot_is_target(nid))
		return nid;
	for_each_node_state(nid, N_MEMORY)
		if (node_is_toptier(nid))
			return nid;
	return first_memory_node;
}

int pghot_set_target_nid(unsigned int nid)
{
	if (nid >= MAX_NUMNODES || !pghot_is_target(nid))
		return -EINVAL;
	WRITE_ONCE(pghot_wanted_nid, nid);
	return 0;
}

/*
 * To which node a hot folio should go: whose CPU accessed it, if the record says so; else whose
 * CPUs access the section most, if that is for the same owner; else the configured one.
 */
int pghot_target(unsigned long pfn)
{
	struct pghot_section *section;
	int nid = pghot_look(pfn, pghot_now()).node;
	u64 majority;

	if (pghot_is_target(nid))
		return nid;
	rcu_read_lock();
	section = pghot_section_of(pfn);
	majority = section ? READ_ONCE(section->majority) : 0;
	if (majority && majority >> 32 == pghot_owner(pfn))
		nid = ferry_hot_majority_node((u16)majority);
	rcu_read_unlock();
	return pghot_is_target(nid) ? nid : pghot_target_nid();
}

/*
 * Whether set_mempolicy(2) and the cpuset of a task let its memory move up. Of current also in
 * NMIs; of another task with its alloc_lock. Policies of mappings are left to the caller.
 */
bool pghot_may_promote(struct task_struct *task)
{
	struct mempolicy *policy = task->mempolicy;
	int nid;

	if (policy && !(policy->flags & MPOL_F_MOF))
		return false;
	for_each_node_mask(nid, task->mems_allowed)
		if (pghot_is_target(nid))
			return true;
	return false;
}

/* Whether hint faults made a batch of a node's pages ready since pghot_take_kick(). */
bool pghot_batch_ready(int nid)
{
	return atomic_read(&pghot_ready[nid]) >= PGHOT_BATCH_NR;
}

/* Whether pages of a node were ready since the last call. */
bool pghot_take_kick(int nid)
{
	return atomic_xchg(&pghot_ready[nid], 0);
}

unsigned int pghot_sources(void)
{
	return READ_ONCE(pghot_enabled);
}

static int pghot_start_source(enum pghot_src src)
{
	int error = 0;

	/* Before the thread or the counters, which record from their first moment on. */
	static_branch_enable(&pghot_source_keys[src]);
	if (pghot_source[src].start)
		error = pghot_source[src].start();
	if (error)
		static_branch_disable(&pghot_source_keys[src]);
	return error;
}

static void pghot_stop_source(enum pghot_src src)
{
	if (pghot_source[src].stop)
		pghot_source[src].stop();
	static_branch_disable(&pghot_source_keys[src]);
}

/* Makes exactly @sources run. On failure some more may be off than before. */
static int pghot_switch_sources(unsigned int sources)
{
	unsigned int src, on = pghot_enabled;
	int error = 0;

	for (src = 0; src < PGHOT_SRC_MAX && !error; src++) {
		if (!((on ^ sources) & BIT(src)))
			continue;
		if (on & BIT(src))
			pghot_stop_source(src);
		else
			error = pghot_start_source(src);
		if (!error)
			on ^= BIT(src);
	}
	WRITE_ONCE(pghot_enabled, on);
	return error;
}

/* Turns exactly these sources on. Returns 0 or an error, and then nothing changed. */
int pghot_set_sources(unsigned int sources)
{
	unsigned int before, src;
	int error;

	for (src = 0; src < BITS_PER_TYPE(sources); src++)
		if (sources & BIT(src) && (src >= PGHOT_SRC_MAX || !pghot_source[src].weight))
			return -EINVAL;
	mutex_lock(&pghot_lock);
	before = pghot_enabled;
	error = sources ? kmigrated_marks_init() : 0;
	if (!error)
		error = pghot_fit_params(sources);
	/* Records come before the first access, and go after the last one. */
	if (!error)
		error = pghot_update_records(before | sources);
	if (!error)
		error = pghot_switch_sources(sources);
	if (error) {
		pghot_switch_sources(before);
		pghot_fit_params(pghot_enabled);
	}
	pghot_update_records(pghot_enabled);
	if (pghot_enabled != before)
		kmigrated_wake();
	mutex_unlock(&pghot_lock);
	return error;
}

static void pghot_follow_tiers(struct work_struct *work)
{
	int nid;

	mutex_lock(&pghot_lock);
	if (pghot_update_records(pghot_enabled))
		pr_warn_once("no memory for the records of some memory\n");
	for_each_node(nid) {
		if (node_state(nid, N_MEMORY) && !node_is_toptier(nid)) {
			if (kmigrated_start(nid))
				pr_warn_once("no thread for node %d\n", nid);
		} else {
			kmigrated_stop(nid);
		}
	}
	mutex_unlock(&pghot_lock);
}

static DECLARE_WORK(pghot_tiers_work, pghot_follow_tiers);

/**
 * pghot_tiers_changed - nodes may have another tier now, or another memory
 *
 * A node's tier is not known yet when its first memory comes online. So records follow later, by a
 * work.
 */
void pghot_tiers_changed(void)
{
	if (READ_ONCE(pghot_initialized))
		schedule_work(&pghot_tiers_work);
}

static int __init pghot_setup(char *text)
{
	if (!strcmp(text, "precise"))
		pghot_precise = true;
	else if (strcmp(text, "default"))
		pr_warn("pghot=%s is neither default nor precise\n", text);
	return 1;
}
__setup("pghot=", pghot_setup);

static int __init pghot_init(void)
{
	struct ferry_hot_params params;
	int error;

	ferry_balance_defaults(pghot_format(), &params, &pghot_balance_params);
	mutex_lock(&pghot_lock);
	error = pghot_fit_params(0);
	mutex_unlock(&pghot_lock);
	if (error)
		return error;
	pghot_records_init();
	pghot_sysfs_init();
	WRITE_ONCE(pghot_initialized, true);
	pghot_tiers_changed();
	return 0;
}
late_initcall(pghot_init);
