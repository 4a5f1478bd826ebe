// SPDX-License-Identifier: GPL-2.0-only
/*
 * Samples of a hardware counter as a source: on each CPU a counter of perf whose samples have the
 * address of the data, such as AMD's IBS or Intel's PEBS. Any event that perf can count is named
 * by its type, its config and its period, so that this works with counters that it has not
 * heard of, and with an event of software where a machine has none.
 */
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/irq_work.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/perf_event.h>
#include <linux/percpu.h>
#include <linux/ptrace.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <linux/topology.h>
#include <linux/workqueue.h>

#include "pghot.h"

/* As precise as perf has it: a counter that skids says where some other access went. */
#define PGHOT_PRECISE_MAX	3

/* A counter. */
struct pghot_event {
	u32 type;	/* perf's, or a PMU's as its file "type" in sysfs says */
	u64 config;	/* which event of that type */
	u64 period;	/* one of how many is a sample; 0 if no event is chosen */
};

/* For all of this. */
static DEFINE_MUTEX(pghot_perf_lock);
static struct pghot_event pghot_event;
static bool pghot_perf_on;
static enum cpuhp_state pghot_perf_state;
static DEFINE_PER_CPU(struct perf_event *, pghot_counter);

/* A sample of an NMI whose page is looked up once that is over. */
struct pghot_perf_later {
	struct irq_work work;
	struct mm_struct *mm;	/* whose address it is; NULL if there is none */
	unsigned long addr;
};

static void pghot_perf_look_up_later(struct irq_work *work);
static DEFINE_PER_CPU(struct pghot_perf_later, pghot_perf_later) = {
	.work = IRQ_WORK_INIT_HARD(pghot_perf_look_up_later),
};

/*
 * Finds the page in the page tables that the CPU uses: where it is not mapped, or only just being
 * mapped, there is nothing to record.
 */
static void pghot_perf_look_up(unsigned long addr)
{
	struct page *page;
	unsigned long pfn;

	pagefault_disable();
	if (get_user_page_fast_only(addr, 0, &page)) {
		pfn = page_to_pfn(page);
		put_page(page);
		pghot_record_access(pfn, numa_node_id(), PGHOT_HWHINT, pghot_now());
	}
	pagefault_enable();
}

static void pghot_perf_look_up_later(struct irq_work *work)
{
	struct pghot_perf_later *later = container_of(work, struct pghot_perf_later, work);

	if (later->mm == current->mm)
		pghot_perf_look_up(later->addr);
	WRITE_ONCE(later->mm, NULL);
}

/* A sample, often in an NMI. */
static void pghot_perf_sample(struct perf_event *counter, struct perf_sample_data *data,
			      struct pt_regs *regs)
{
	struct pghot_perf_later *later = this_cpu_ptr(&pghot_perf_later);

	if (!user_mode(regs) || !current->mm || !pghot_may_promote(current))
		return;
	if (data->sample_flags & PERF_SAMPLE_PHYS_ADDR) {
		if (data->phys_addr)
			pghot_record_access(PHYS_PFN(data->phys_addr), numa_node_id(),
					    PGHOT_HWHINT, pghot_now());
		return;
	}
	if (!(data->sample_flags & PERF_SAMPLE_ADDR) || !data->addr || data->addr >= TASK_SIZE)
		return;
	if (!in_nmi()) {
		pghot_perf_look_up(data->addr);
	} else if (!READ_ONCE(later->mm)) {
		/* The one before, if there still is one, goes first; samples are many. */
		later->addr = data->addr;
		WRITE_ONCE(later->mm, current->mm);
		irq_work_queue(&later->work);
	}
}

/*
 * A counter on @cpu, or an error pointer. Some counters, such as IBS, cannot leave the kernel
 * out, whose samples are then ignored.
 */
static struct perf_event *pghot_perf_create(int cpu, const struct pghot_event *event)
{
	struct perf_event_attr attr = {
		.type = event->type,
		.config = event->config,
		.size = sizeof(attr),
		.sample_period = event->period,
		.sample_type = PERF_SAMPLE_ADDR | PERF_SAMPLE_PHYS_ADDR,
	};
	struct perf_event *counter = ERR_PTR(-EINVAL);
	int try;

	for (try = 2 * PGHOT_PRECISE_MAX + 1; try >= 0 && IS_ERR(counter); try--) {
		attr.precise_ip = try / 2;
		attr.exclude_kernel = try % 2;
		attr.exclude_hv = try % 2;
		counter = perf_event_create_kernel_counter(&attr, cpu, NULL, pghot_perf_sample,
							   NULL);
	}
	return counter;
}

/* Gives the CPUs that are online new counters, or none if there is nothing to count. */
static void pghot_perf_update(void)
{
	struct perf_event **counter;
	int cpu;

	lockdep_assert_held(&pghot_perf_lock);
	for_each_possible_cpu(cpu) {
		counter = per_cpu_ptr(&pghot_counter, cpu);
		if (!IS_ERR_OR_NULL(*counter))
			perf_event_release_kernel(*counter);
		*counter = NULL;
		if (pghot_perf_on && pghot_event.period && cpu_online(cpu))
			*counter = pghot_perf_create(cpu, &pghot_event);
	}
}

static void pghot_perf_switch(bool on)
{
	mutex_lock(&pghot_perf_lock);
	pghot_perf_on = on;
	pghot_perf_update();
	mutex_unlock(&pghot_perf_lock);
}

static void pghot_perf_follow(struct work_struct *work)
{
	pghot_perf_switch(true);
}

static DECLARE_WORK(pghot_perf_work, pghot_perf_follow);

/* Not here, but in a work: to make a counter of software takes the lock of CPU hotplug. */
static int pghot_perf_cpu_changed(unsigned int cpu)
{
	schedule_work(&pghot_perf_work);
	return 0;
}

/* Counts on all CPUs from now on; nothing before an event is chosen. */
int pghot_perf_start(void)
{
	int state;

	state = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN, "mm/pghot:online",
					  pghot_perf_cpu_changed, pghot_perf_cpu_changed);
	if (state < 0)
		return state;
	pghot_perf_state = state;
	pghot_perf_switch(true);
	return 0;
}

/* No sample is being recorded when this returns. */
void pghot_perf_stop(void)
{
	cpuhp_remove_state_nocalls(pghot_perf_state);
	cancel_work_sync(&pghot_perf_work);
	pghot_perf_switch(false);
}

static int pghot_perf_parse(char *text, struct pghot_event *event)
{
	char *type = strsep(&text, " "), *config = strsep(&text, " "), *period = strsep(&text, " ");

	*event = (struct pghot_event){ 0 };
	if (!*type && !config)
		return 0;
	if (text || !config || !period || kstrtou32(type, 0, &event->type) ||
	    kstrtou64(config, 0, &event->config) || kstrtou64(period, 0, &event->period) ||
	    !event->period || event->period > S64_MAX)
		return -EINVAL;
	return 0;
}

/*
 * Counts "TYPE CONFIG PERIOD", each as perf_event_open(2) has them; "" for nothing. Changes @text.
 * Returns 0, -EINVAL for another text, or what perf says where no counter takes such samples.
 */
int pghot_perf_set_event(char *text)
{
	struct pghot_event event;
	struct perf_event *counter;
	int error;

	error = pghot_perf_parse(text, &event);
	if (error)
		return error;
	if (event.period) {
		counter = pghot_perf_create(cpumask_any(cpu_online_mask), &event);
		if (IS_ERR(counter))
			return PTR_ERR(counter);
		perf_event_release_kernel(counter);
	}
	mutex_lock(&pghot_perf_lock);
	pghot_event = event;
	pghot_perf_update();
	mutex_unlock(&pghot_perf_lock);
	return 0;
}

/* Shows the event as it can be written again. */
int pghot_perf_show_event(struct seq_file *file, void *unused)
{
	mutex_lock(&pghot_perf_lock);
	if (pghot_event.period)
		seq_printf(file, "%u %llu %llu", pghot_event.type, pghot_event.config,
			   pghot_event.period);
	seq_putc(file, '\n');
	mutex_unlock(&pghot_perf_lock);
	return 0;
}
