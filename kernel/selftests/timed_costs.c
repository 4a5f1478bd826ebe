// SPDX-License-Identifier: GPL-2.0-only
/*
 * timed_costs: what a system call, a fault, a wakeup, a shootdown, a line from another CPU and a
 * TLB miss take in the timed machine. Bounds are what was published of servers since 2018, wide:
 * a cost that is free, or ten times too high, shall fail.
 */
#include "clock.h"
#include "chain.h"
#include "figures.h"
#include "files.h"
#include "memory.h"
#include "nodes.h"
#include "task.h"
#include "timed.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* lmbench's and perf bench's null call, without and with mitigations. */
#define CALL_NS_LOW		50
#define CALL_NS_HIGH		200
#define CALLS			20000

/* will-it-scale's page_fault1 with one process: 0.4 to 0.7 million pages a second on servers, up to 1.5 on desktops. */
#define FAULT_NS_LOW		650
#define FAULT_NS_HIGH		2500
#define FAULT_PAGES		4096

/* perf bench sched pipe, which is two wakeups too, takes 3 to 10 us on two CPUs; the model is up to half above that. */
#define FUTEX_NS_LOW		3000
#define FUTEX_NS_HIGH		15000
#define FUTEX_ROUNDS		2000

/* An IPI and its answer (Amit, ATC 2017; Kumar, ASPLOS 2018). */
#define SHOOTDOWN_NS_LOW	1000
#define SHOOTDOWN_NS_HIGH	10000
#define SHOOTDOWNS		1000

/*
 * Of a line that goes to and fro: the loop that waits for it sees it a pause late at most, or before
 * the store's own cost is booked (docs/design/timed.md).
 */
#define LINE_TOLERANCE		0.50
#define LINE_ROUNDS		20000

/* Of TLB misses: the kernel's pages, and the ways of the TLB. */
#define TLB_TOLERANCE		0.05
/* Page tables of half a MiB: a walk finds them in the second level of caches. */
#define WALK_BYTES		(256UL << 20)
#define TLB_ACCESSES		200000

/* A miss of the TLB reads one line of a page table at least, and the upper levels from caches. */
#define WALK_LATENCIES		1.5

/* Of accesses to folios of 2 MiB: 128 of them fit into any TLB of today. */
#define TLB_STRAY_MISSES	0.02

static void test_call(void)
{
	double start = now_ns(CLOCK_MONOTONIC);

	for (int n = 0; n < CALLS; n++)
		syscall(SYS_getppid);
	figure_within((now_ns(CLOCK_MONOTONIC) - start) / CALLS, CALL_NS_LOW, CALL_NS_HIGH, "ns", "system call");
}

static double touch_ns(volatile unsigned char *at, struct span *span)
{
	timed_begin(span);
	for (size_t n = 0; n < FAULT_PAGES; n++)
		at[n * page_bytes()] = 1;
	timed_end(span);
	return span->ns / FAULT_PAGES;
}

static void test_faults(int cpu)
{
	size_t bytes = FAULT_PAGES * page_bytes();
	unsigned char *at = map_anonymous(bytes, false);
	struct span span;
	double start;

	/* Once for page tables and what is made at first use. */
	touch_ns(at, &span);
	madvise(at, bytes, MADV_DONTNEED);
	figure_within(touch_ns(at, &span), FAULT_NS_LOW, FAULT_NS_HIGH, "ns", "minor fault");
	/* So that a cost out of bounds can be told apart: the kernel's code, its memory, or a parameter. */
	figure_note(span.truth.cpu[cpu].instructions / (double)FAULT_PAGES, "", "minor fault: instructions");
	figure_note(timed_misses(&span.truth, timed_value("cpu_node", cpu)) / (double)FAULT_PAGES, "lines",
		    "minor fault: from memory of the CPU's node");
	figure_note(span.truth.cpu[cpu].shared_hits / (double)FAULT_PAGES, "lines", "minor fault: from the shared cache");
	figure_note(span.truth.cpu[cpu].private_hits / (double)FAULT_PAGES, "lines", "minor fault: from the private cache");
	figure_note(span.truth.cpu[cpu].tlb_misses / (double)FAULT_PAGES, "", "minor fault: TLB misses");
	figure_note(touch_ns(at, &span), "ns", "touch of a page without a fault");

	start = now_ns(CLOCK_MONOTONIC);
	mprotect(at, bytes, PROT_NONE);
	figure_note((now_ns(CLOCK_MONOTONIC) - start) / FAULT_PAGES, "ns", "mprotect to PROT_NONE, each page of many");
	start = now_ns(CLOCK_MONOTONIC);
	mprotect(at, bytes, PROT_READ | PROT_WRITE);
	figure_note((now_ns(CLOCK_MONOTONIC) - start) / FAULT_PAGES, "ns", "mprotect back, each page of many");

	start = now_ns(CLOCK_MONOTONIC);
	for (size_t n = 0; n < FAULT_PAGES; n++) {
		mprotect(at + n * page_bytes(), page_bytes(), PROT_NONE);
		mprotect(at + n * page_bytes(), page_bytes(), PROT_READ | PROT_WRITE);
		*(volatile unsigned char *)(at + n * page_bytes()) = 1;
	}
	figure_note((now_ns(CLOCK_MONOTONIC) - start) / FAULT_PAGES, "ns", "mprotect of one page, back, touch");
	munmap(at, bytes);
}

/* Whose turn it is, on a line of its own. */
static struct {
	unsigned int turn;
} __attribute__((aligned(64))) pipe_line, spin_line;

static void turn_wait(unsigned int wanted)
{
	unsigned int turn;

	while ((turn = __atomic_load_n(&pipe_line.turn, __ATOMIC_SEQ_CST)) != wanted)
		syscall(SYS_futex, &pipe_line.turn, FUTEX_WAIT_PRIVATE, turn, NULL);
}

static void turn_pass(void)
{
	__atomic_add_fetch(&pipe_line.turn, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &pipe_line.turn, FUTEX_WAKE_PRIVATE, 1);
}

static void *answer_futex(void *argument)
{
	run_on_cpu(*(int *)argument);
	for (unsigned int n = 1; n < 2 * FUTEX_ROUNDS; n += 2) {
		turn_wait(n);
		turn_pass();
	}
	return NULL;
}

static void test_futex(int other)
{
	pthread_t thread;
	double start;

	thread_start(&thread, answer_futex, &other);
	start = now_ns(CLOCK_MONOTONIC);
	for (unsigned int n = 0; n < 2 * FUTEX_ROUNDS; n += 2) {
		turn_wait(n);
		turn_pass();
	}
	turn_wait(2 * FUTEX_ROUNDS);
	figure_within((now_ns(CLOCK_MONOTONIC) - start) / FUTEX_ROUNDS, FUTEX_NS_LOW, FUTEX_NS_HIGH, "ns",
		      "futex to a sleeping thread of another CPU and back");
	pthread_join(thread, NULL);
}

static void spin_until(unsigned int turn)
{
	while (__atomic_load_n(&spin_line.turn, __ATOMIC_ACQUIRE) != turn)
		timed_pause();
}

static void *answer_line(void *argument)
{
	run_on_cpu(*(int *)argument);
	for (unsigned int n = 1; n < 2 * LINE_ROUNDS; n += 2) {
		spin_until(n);
		__atomic_store_n(&spin_line.turn, n + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* Each turn is one line that another CPU wrote, or two where a store asks for it once more. */
static void test_line(int cpu, int other)
{
	double fetched;
	struct span span;
	pthread_t thread;

	thread_start(&thread, answer_line, &other);
	__atomic_store_n(&spin_line.turn, 1, __ATOMIC_RELEASE);
	spin_until(2);
	timed_begin(&span);
	for (unsigned int n = 2; n < 2 * LINE_ROUNDS; n += 2) {
		__atomic_store_n(&spin_line.turn, n + 1, __ATOMIC_RELEASE);
		spin_until(n + 2);
	}
	timed_end(&span);
	pthread_join(thread, NULL);
	fetched = span.truth.cpu[cpu].from_other_cpu + span.truth.cpu[other].from_other_cpu;
	figure_note(span.ns / (2 * (LINE_ROUNDS - 1)), "ns", "a line to another CPU, one way");
	figure_within(fetched / (2 * (LINE_ROUNDS - 1)), 1 - LINE_TOLERANCE, 2 + LINE_TOLERANCE, "times",
		      "a line to another CPU, one way: fetched");
	figure_near(span.ns / fetched, timed_ns("from_other_cpu_ps"), LINE_TOLERANCE, "ns", "a line from another CPU");
}

static volatile bool stop, runs;

static void *spin(void *argument)
{
	run_on_cpu(*(int *)argument);
	runs = true;
	while (!stop)
		;
	return NULL;
}

/* munmap(2) of a page that was written. */
static double munmap_ns(void)
{
	double sum = 0;

	for (int n = 0; n < SHOOTDOWNS; n++) {
		unsigned char *at = map_anonymous(page_bytes(), false);
		double start;

		*(volatile unsigned char *)at = 1;
		start = now_ns(CLOCK_MONOTONIC);
		munmap(at, page_bytes());
		sum += now_ns(CLOCK_MONOTONIC) - start;
	}
	return sum / SHOOTDOWNS;
}

static void test_shootdown(int other)
{
	double alone = munmap_ns(), together;
	pthread_t thread;

	thread_start(&thread, spin, &other);
	if (!wait_until(runs, 10000, 1000))
		tap_bail("the thread on CPU %d does not run", other);
	together = munmap_ns();
	stop = true;
	pthread_join(thread, NULL);
	figure_note(alone, "ns", "munmap of a page, alone");
	figure_within(together - alone, SHOOTDOWN_NS_LOW, SHOOTDOWN_NS_HIGH, "ns",
		      "munmap of a page: more with another CPU to flush");
}

/* Loads of random pages; Marsaglia's xorshift, so that each page is independent of the last. */
static double random_ns(const char *at, size_t bytes, int cpu, double *tlb_misses)
{
	uint64_t state = 88172645463325252ULL;
	struct span span;

	/* The first half fills the TLB. */
	for (int n = 0; n < 2 * TLB_ACCESSES; n++) {
		if (n == TLB_ACCESSES)
			timed_begin(&span);
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		(void)*(const volatile char *)(at + state % bytes / LINE_BYTES * LINE_BYTES);
	}
	timed_end(&span);
	*tlb_misses = span.truth.cpu[cpu].tlb_misses / (double)TLB_ACCESSES;
	return span.ns / TLB_ACCESSES;
}

/* ns of a load, and TLB misses of one, by the size of folios. */
static double loads_ns(int cpu, size_t bytes, bool huge, double *tlb_misses)
{
	char *at = memory_on(timed_value("cpu_node", cpu), bytes, huge);
	double ns = random_ns(at, bytes, cpu, tlb_misses);

	munmap(at, bytes);
	figure_note(ns, "ns", "random loads of %zu MiB, %s", bytes >> 20, huge ? "folios of 2 MiB" : "base pages");
	return ns;
}

static void test_tlb(int cpu)
{
	double reach = timed_value("tlb_entries", 0) * (double)page_bytes();
	double misses, huge_misses, ns, huge_ns;

	huge_ns = loads_ns(cpu, WALK_BYTES, true, &huge_misses);
	figure_within(huge_misses, 0, TLB_STRAY_MISSES, "per load", "folios of 2 MiB: TLB misses");
	ns = loads_ns(cpu, WALK_BYTES, false, &misses);
	/* Where misses overlap, a walk takes the place of a line that would have been free. */
	if (!timed_value("overlap", 0))
		figure_within((ns - huge_ns) / misses, timed_ns("private_hit_ps"),
			      WALK_LATENCIES * timed_latency_ns(cpu, timed_value("cpu_node", cpu)), "ns", "a TLB miss");
	/* Of half of the loads the page is in the TLB. */
	loads_ns(cpu, 2 * reach, false, &misses);
	figure_near(misses, 0.5, TLB_TOLERANCE, "per load", "base pages, twice the TLB's reach: TLB misses");
}

int main(void)
{
	int cpu = 0, other;

	tap_start();
	timed_need();
	other = timed_value("cpus", 0) - 1;
	if (other < 1)
		tap_bail("one CPU: nothing to wake or to flush");
	figures_start("timed_costs");
	file_set("madvise", "/sys/kernel/mm/transparent_hugepage/enabled");
	file_set("0", "/proc/sys/kernel/numa_balancing");
	run_on_cpu(cpu);
	test_call();
	test_faults(cpu);
	test_futex(other);
	test_line(cpu, other);
	test_shootdown(other);
	test_tlb(cpu);
	return tap_done();
}
