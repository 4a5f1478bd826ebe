// SPDX-License-Identifier: GPL-2.0-only
/*
 * timed_runtime: what Linux books as the run time of a thread that is busy for 1, 6, 60 and 100%
 * of each 10 ms is what the plugin saw of its CPU: else scanners, quotas and pressure that depend
 * on run time would not do in the timed machine what they do elsewhere.
 */
#include "chain.h"
#include "clock.h"
#include "figures.h"
#include "files.h"
#include "nodes.h"
#include "task.h"
#include "timed.h"

#include <sys/resource.h>
#include <sys/syscall.h>

/* Beyond it a quota or a scanner's share would be off by more than their own steps. */
#define TOLERANCE	0.02

#define PERIOD_NS	10000000LL
#define PERIODS		300

struct times {
	double busy, total;		/* ns, by the plugin */
	double thread_clock, usage;
};

static struct chain chain;
static double load_ns;

/* Busy without sleeping at @percent = 100, only sleeping at 0. */
struct job {
	int cpu, percent;
	struct times times;
};

static double usage_ns(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e9 +
	       (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e3;
}

/*
 * What is read around the plugin's counts holds the reading, too: some 20 us of 30 ms at 1%.
 */
static void *job_run(void *argument)
{
	struct job *job = argument;
	struct times *times = &job->times;
	size_t loads = PERIOD_NS * job->percent / 100 / load_ns;
	long long next;
	struct span span;

	run_on_cpu(job->cpu);
	/* A period that does not count: the CPU's idle state settles. */
	sleep_until(now_ns(CLOCK_MONOTONIC) + PERIOD_NS);
	times->usage = -usage_ns();
	timed_begin(&span);
	times->thread_clock = -now_ns(CLOCK_THREAD_CPUTIME_ID);
	next = now_ns(CLOCK_MONOTONIC);
	for (int n = 0; n < PERIODS; n++) {
		chain_run(&chain, loads, 0);
		next += PERIOD_NS;
		if (job->percent < 100)
			sleep_until(next);
	}
	times->thread_clock += now_ns(CLOCK_THREAD_CPUTIME_ID);
	timed_end(&span);
	times->usage += usage_ns();
	times->busy = span.truth.cpu[job->cpu].busy_ns;
	times->total = span.truth.cpu[job->cpu].time_ns;
	return NULL;
}

static struct times run(int percent)
{
	struct job job = { .cpu = timed_value("cpus", 0) - 1, .percent = percent };
	pthread_t thread;

	thread_start(&thread, job_run, &job);
	pthread_join(thread, NULL);
	return job.times;
}

static void test(int percent, double kernel_ns)
{
	struct times times = run(percent);
	double busy = times.busy - (percent < 100 ? kernel_ns : 0);

	figure_note(times.busy / times.total * 100, "%", "busy %d%%: of its CPU, by the plugin", percent);
	figure_near(times.thread_clock, busy, TOLERANCE, "ns", "busy %d%%: CLOCK_THREAD_CPUTIME_ID", percent);
	figure_near(times.usage, busy, TOLERANCE, "ns", "busy %d%%: getrusage", percent);
}

int main(void)
{
	static const int percents[] = { 1, 6, 60, 100 };
	int slow = node_slow();
	struct times asleep;
	double kernel_ns;

	tap_start();
	timed_need();
	figures_start("timed_runtime");
	file_set("madvise", "/sys/kernel/mm/transparent_hugepage/enabled");
	file_set("0", "/proc/sys/kernel/numa_balancing");
	run_on_cpu(timed_value("cpus", 0) - 1);
	chain_make(&chain, 64UL << 20, LINE_BYTES, slow >= 0 ? slow : 0, true);
	load_ns = chain_load_ns(&chain);
	run_on_cpu(0);

	/*
	 * Interrupts and the idle loop around each sleep are busy time of no thread. They are the
	 * same for a thread that only sleeps, and are subtracted.
	 */
	asleep = run(0);
	kernel_ns = asleep.busy - asleep.thread_clock;
	figure_note(kernel_ns / PERIODS, "ns", "busy time of no thread, each sleep (subtracted)");
	for (unsigned int n = 0; n < ARRAY_SIZE(percents); n++)
		test(percents[n], kernel_ns);
	return tap_done();
}
