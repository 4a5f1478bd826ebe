// SPDX-License-Identifier: GPL-2.0-only
/*
 * timed_clocks: the clocks of the timed machine's CPUs never go back from one to the other, and
 * a thread that sleeps wakes in time, whatever else runs. Run times are timed_runtime.c's.
 */
#include "chain.h"
#include "clock.h"
#include "figures.h"
#include "files.h"
#include "memory.h"
#include "nodes.h"
#include "task.h"
#include "timed.h"

#include <string.h>
#include <sys/prctl.h>

#define CLOCK_SOURCE	"/sys/devices/system/clocksource/clocksource0/current_clocksource"

#define EXCHANGES	100000

/* Linux takes the TSC as it is: what is left is the rounding of two reads. */
#define RATE_TOLERANCE	100e-6

/* Linux measures the TSC's rate at boot, against a timer. */
#define CALIBRATION_TOLERANCE	1e-3

#define SECOND_NS	1000000000LL

/* A hrtimer, an interrupt and a wakeup are some microseconds on any machine. */
#define LATE_NS		1000000LL

/* With its CPU taken by another thread: the slice that EEVDF gives that, and a tick of 4 ms. */
#define LATE_BUSY_NS	10000000LL

#define WAKES		1000
#define WAKE_NS		1000000LL
#define WAKE_P99_NS	100000.0

/* What a CPU may spend between two looks at the others' clocks: clock.c of the model says why. */
#define LONGEST_BLOCK_NS	100000.0

/* The busy thread looks that often whether it shall end: each 250 us at 250 ns a load. */
#define BUSY_LOADS	1000

/* What two threads hand to each other: whose turn, and what its clocks said. */
static struct {
	volatile unsigned long turn;
	volatile long long ns;
	volatile uint64_t cycles;
} line __attribute__((aligned(64)));

struct side {
	int cpu;
	unsigned int parity;
	unsigned long clock_back, cycles_back;
	long long worst_ns;
};

static void *exchange(void *argument)
{
	struct side *side = argument;

	run_on_cpu(side->cpu);
	for (unsigned long turn = side->parity; turn < EXCHANGES; turn += 2) {
		uint64_t cycles;
		long long ns;

		while (__atomic_load_n(&line.turn, __ATOMIC_ACQUIRE) != turn)
			;
		ns = now_ns(CLOCK_MONOTONIC);
		cycles = timed_cycles();
		side->clock_back += ns < line.ns;
		side->cycles_back += cycles < line.cycles;
		if (line.ns - ns > side->worst_ns)
			side->worst_ns = line.ns - ns;
		line.ns = ns;
		line.cycles = cycles;
		__atomic_store_n(&line.turn, turn + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* Each side reads its clocks after it got what the other's said. */
static void test_order(void)
{
	struct side sides[] = { { .cpu = 0 }, { .cpu = timed_value("cpus", 0) - 1, .parity = 1 } };
	pthread_t threads[2];

	for (int n = 0; n < 2; n++)
		thread_start(&threads[n], exchange, &sides[n]);
	for (int n = 0; n < 2; n++)
		pthread_join(threads[n], NULL);
	figure_within(sides[0].clock_back + sides[1].clock_back, 0, 0, "times",
		      "clock_gettime behind the other CPU's in %d exchanges", EXCHANGES);
	figure_within(sides[0].cycles_back + sides[1].cycles_back, 0, 0, "times",
		      "rdtsc behind the other CPU's in %d exchanges", EXCHANGES);
	figure_note(sides[0].worst_ns > sides[1].worst_ns ? sides[0].worst_ns : sides[1].worst_ns, "ns",
		    "clock_gettime behind the other CPU's at most");
}

static void test_skew(void)
{
	struct timed_truth truth;

	timed_totals(&truth);
	figure_note(truth.greatest_skew_ns, "ns", "CPUs' clocks apart at most before one waited, since boot");
	figure_within(truth.skew_violations, 0, 0, "times", "CPUs' clocks further apart than the bound");
	figure_within(truth.waits_given_up, 0, 0, "times", "a CPU gave up waiting for another");
	figure_within(truth.greatest_lateness_ns, 0, timed_ns("skew_ps") + LONGEST_BLOCK_NS, "ns", "timers late at most");
}

/* The guest's clock, its TSC and the plugin's time count the same seconds. */
static void test_rate(void)
{
	struct timed_truth truth[3];
	uint64_t cycles[3];
	long long ns[3];
	char source[32];

	run_on_cpu(0);
	if (file_read(source, sizeof(source), CLOCK_SOURCE))
		tap_bail("%s cannot be read", CLOCK_SOURCE);
	/* "tsc-early" until the kernel has measured it for a second. */
	tap_ok(!strncmp(source, "tsc", 3), "clock source: found %s, expected tsc", source);
	for (int n = 0; n < 3; n++) {
		ns[n] = now_ns(CLOCK_MONOTONIC);
		cycles[n] = timed_cycles();
		timed_totals(&truth[n]);
		sleep_until(ns[n] + SECOND_NS / 2);
	}
	figure_near((cycles[2] - cycles[1]) / (double)(ns[2] - ns[1]),
		    (cycles[1] - cycles[0]) / (double)(ns[1] - ns[0]), RATE_TOLERANCE, "GHz", "TSC by clock_gettime");
	figure_near(ns[2] - ns[0], truth[2].cpu[0].time_ns - truth[0].cpu[0].time_ns, CALIBRATION_TOLERANCE, "ns",
		    "clock_gettime against the plugin's time");
}

static struct busy {
	pthread_t thread;
	struct chain chain;
	int cpu;
	volatile bool runs, stop;
} busy;

static void *busy_run(void *argument)
{
	struct busy *one = argument;

	run_on_cpu(one->cpu);
	one->runs = true;
	while (!one->stop)
		chain_run(&one->chain, BUSY_LOADS, 0);
	return NULL;
}

static void busy_begin(int cpu)
{
	busy.cpu = cpu;
	busy.stop = busy.runs = false;
	thread_start(&busy.thread, busy_run, &busy);
	if (!wait_until(busy.runs, 10000, 1000))
		tap_bail("the busy thread does not run on CPU %d", cpu);
}

static void busy_end(void)
{
	busy.stop = true;
	pthread_join(busy.thread, NULL);
}

/* A line for each power of two of microseconds. */
static void note_histogram(const double *late, const char *when)
{
	int n = 0;

	for (long long limit = 1000; n < WAKES; limit *= 2) {
		int count = 0;

		for (; n < WAKES && late[n] < limit; n++)
			count++;
		if (count)
			tap_note("%s: %4d wakes less than %lld us late", when, count, limit / 1000);
	}
}

static void test_wakes(const char *when, double p99_ns)
{
	static double late[WAKES];
	double median;

	for (int n = 0; n < WAKES; n++) {
		long long next = now_ns(CLOCK_MONOTONIC) + WAKE_NS;

		sleep_until(next);
		late[n] = now_ns(CLOCK_MONOTONIC) - next;
	}
	median = median_of(late, WAKES);
	note_histogram(late, when);
	figure_within(late[WAKES / 100 * 99 - 1], 0, p99_ns, "ns", "%s: lateness of a timer of 1 ms, 99 of 100", when);
	figure_note(median, "ns", "%s: lateness of a timer of 1 ms, median", when);
	figure_note(late[WAKES - 1], "ns", "%s: lateness of a timer of 1 ms, most", when);
}

static void test_sleep(const char *when, long long late_ns)
{
	long long start = now_ns(CLOCK_MONOTONIC);
	struct timespec second = { .tv_sec = 1 };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &second, NULL);
	figure_within(now_ns(CLOCK_MONOTONIC) - start, SECOND_NS, SECOND_NS + late_ns, "ns", "%s: a sleep of 1 s", when);
}

static void test_timers(void)
{
	int cpu = 0, other = timed_value("cpus", 0) - 1, slow = node_slow();

	/* The default, 50 us, saves power. */
	prctl(PR_SET_TIMERSLACK, 1);
	chain_make(&busy.chain, 64UL << 20, LINE_BYTES, slow >= 0 ? slow : 0, true);
	run_on_cpu(cpu);
	test_sleep("all CPUs idle", LATE_NS);
	test_wakes("all CPUs idle", WAKE_P99_NS);
	busy_begin(other);
	test_sleep("another CPU busy", LATE_NS);
	test_wakes("another CPU busy", WAKE_P99_NS);
	busy_end();
	busy_begin(cpu);
	test_sleep("its CPU busy", LATE_BUSY_NS);
	test_wakes("its CPU busy", LATE_BUSY_NS);
	busy_end();
	chain_drop(&busy.chain);
}

int main(void)
{
	tap_start();
	timed_need();
	if (timed_value("cpus", 0) < 2)
		tap_bail("one CPU: nothing to compare its clock with");
	figures_start("timed_clocks");
	file_set("madvise", "/sys/kernel/mm/transparent_hugepage/enabled");
	file_set("0", "/proc/sys/kernel/numa_balancing");
	test_rate();
	test_order();
	test_timers();
	test_skew();
	return tap_done();
}
