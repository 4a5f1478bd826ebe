/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Time. Each CPU has a clock that its own thread moves. A CPU that is ahead of another running one by more than skew_ps waits for
 * it, and one that reads its clock waits until no other is behind. QEMU's main thread, which fires timers, stands for a further
 * clock that lags: it sees the least of the running CPUs' clocks, and while all CPUs are halted time jumps to its next timer.
 *
 * QEMU learns the time from CLOCK_MONOTONIC (its virtual clock: timers, HPET, ACPI's timer) and from the host's rdtsc (the guest's
 * TSC). This object is loaded before the C library, answers clock_gettime() and has the host's rdtsc trap. It also stands before
 * ppoll(), where the main thread waits, write(), by which CPUs wake it, and pthread_cond_*(), where halted CPUs sleep: so that a CPU
 * counts as running from the moment it is woken, not from when the host schedules its thread.
 *
 * The rules need no host that is fast: whoever is slow is waited for.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "timed.h"

#if !defined(__x86_64__)
#error "the guest's TSC is made from the host's rdtsc, which only x86-64 has"
#endif

enum state {
	HALTED,		/* sleeps until an interrupt: its clock stands */
	RUNNING,
	BLOCKED,	/* waits for another thread of QEMU in the middle of an instruction: nobody waits for it */
};

struct clock {
	_Atomic int state;
	/* Moved by the own thread, or by whoever wakes the CPU before it counts as running. */
	_Atomic uint64_t ps;
	_Atomic(pthread_cond_t *) sleeps_at;
	/* Between the callbacks idle and resume. */
	_Atomic bool idle;
	/* When the CPU was halted, and for how long in all; booked by whoever makes it run. */
	uint64_t idle_since;
	_Atomic uint64_t halted;
	/* When the CPU last read its clock or paused, in instructions and lines from other CPUs, and how often it did so in a tight loop. */
	uint64_t spun_at, came, spins;
} __attribute__((aligned(128)));

static struct clock clocks[MAX_CPUS];

/* The main thread polls, works, or waits for a CPU's thread: POLLS, WORKS, or BLOCKED. */
enum { POLLS = HALTED, WORKS = RUNNING };
static const uint64_t NEVER = UINT64_MAX;

/* When its next timer is due, and what time it was when it began to work. */
static _Atomic int main_state = WORKS;
static _Atomic uint64_t main_due, main_since;
/* What it takes for the time: stands while it works. */
static uint64_t main_now;

static _Atomic uint64_t latest;	/* what no clock that others saw is behind */
static _Atomic uint64_t latest_tsc;
static uint64_t real_start;	/* ns */
static _Atomic bool started;
static int wake_fd = -1;

/* QEMU ends: nobody waits any more. */
static _Atomic bool ended;

static _Atomic uint64_t greatest_skew, skew_violations, greatest_lateness, given_up;

static _Thread_local int my_cpu = -1;
static _Thread_local bool is_main;

static int (*real_wait)(pthread_cond_t *, pthread_mutex_t *);
static int (*real_broadcast)(pthread_cond_t *);
static int (*real_signal)(pthread_cond_t *);

static uint64_t real_ns(void)
{
	struct timespec now;

	/* Not by the vDSO, which reads the TSC. */
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void raise_to(_Atomic uint64_t *value, uint64_t to)
{
	uint64_t seen = atomic_load(value);

	while (seen < to && !atomic_compare_exchange_weak(value, &seen, to))
		;
}

/* Threads that wait for a clock sleep here. */
static _Atomic uint32_t progress;
static _Atomic int waiters;

static void tell_waiters(void)
{
	if (atomic_load(&waiters)) {
		atomic_fetch_add(&progress, 1);
		syscall(SYS_futex, &progress, FUTEX_WAKE_PRIVATE, MAX_CPUS, NULL, NULL, 0);
	}
}

/* The least of the running CPUs' clocks; NEVER if none runs. */
static uint64_t least(void)
{
	uint64_t least = NEVER;

	for (unsigned int cpu = 0; cpu < parameters.cpus; cpu++) {
		if (atomic_load(&clocks[cpu].state) == RUNNING) {
			uint64_t ps = atomic_load(&clocks[cpu].ps);

			least = ps < least ? ps : least;
		}
	}
	return least;
}

static bool all_halted(void)
{
	for (unsigned int cpu = 0; cpu < parameters.cpus; cpu++) {
		if (atomic_load(&clocks[cpu].state) != HALTED)
			return false;
	}
	return true;
}

/* The time for whoever is no CPU. */
static uint64_t now(void)
{
	uint64_t ps = least();

	if (ps != NEVER)
		raise_to(&latest, ps);
	return atomic_load(&latest);
}

static void kick_main(void)
{
	uint64_t one = 1;

	if (syscall(SYS_write, wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		abort();
}

/* The main thread shall work, at the time `since`: it counts as working at once. */
static bool main_shall_work(uint64_t since)
{
	int polls = POLLS;

	if (atomic_load(&main_state) != POLLS)
		return false;
	/* A CPU that reads this before the state waits for nothing that it need not. */
	atomic_store(&main_since, since);
	return atomic_compare_exchange_strong(&main_state, &polls, WORKS);
}

static void wake_main_if_due(void)
{
	uint64_t due = atomic_load(&main_due);

	if (atomic_load(&main_state) == POLLS && least() >= due && main_shall_work(due))
		kick_main();
}

static bool all_reached(unsigned int own, uint64_t floor)
{
	if (atomic_load(&ended))
		return true;
	for (unsigned int cpu = 0; cpu < parameters.cpus; cpu++) {
		if (cpu != own && atomic_load(&clocks[cpu].state) == RUNNING && atomic_load(&clocks[cpu].ps) < floor)
			return false;
	}
	return atomic_load(&main_state) != WORKS || atomic_load(&main_since) >= floor;
}

/*
 * A cycle of waits that the rules above exclude. It is counted in sleeps, so that a host that stands still does not count: each lasts
 * a millisecond at least unless a clock moves.
 */
enum { PATIENCE = 60000 };

static uint64_t all_clocks(void)
{
	uint64_t sum = atomic_load(&main_since);

	for (unsigned int cpu = 0; cpu < parameters.cpus; cpu++)
		sum += atomic_load(&clocks[cpu].ps);
	return sum;
}

/* Waits until no running CPU, and not the main thread at work, is behind `floor`. */
static void wait_for_others(unsigned int own, uint64_t floor)
{
	const struct timespec soon = { .tv_nsec = 1000000 };
	uint64_t clocks_then = 0;
	int slept = 0;

	for (int spin = 0; spin < 500; spin++) {
		if (all_reached(own, floor))
			return;
		__builtin_ia32_pause();
	}
	atomic_fetch_add(&waiters, 1);
	for (;;) {
		uint32_t seen = atomic_load(&progress);
		uint64_t clocks_now = all_clocks();

		if (all_reached(own, floor))
			break;
		slept = clocks_now == clocks_then ? slept + 1 : 0;
		clocks_then = clocks_now;
		if (slept > PATIENCE) {
			atomic_fetch_add(&given_up, 1);
			break;
		}
		syscall(SYS_futex, &progress, FUTEX_WAIT_PRIVATE, seen, &soon, NULL, 0);
	}
	atomic_fetch_sub(&waiters, 1);
}

/* Firmware copies the kernel by single instructions that take milliseconds. */
static bool all_have_kernel(void)
{
	for (unsigned int cpu = 0; cpu < parameters.cpus; cpu++) {
		if (!cpus[cpu].cr3)
			return false;
	}
	return true;
}

/* A block of 512 instructions, QEMU's longest, of which each second one misses in the farthest memory. */
static const uint64_t LONGEST_BLOCK_PS = 100000000;

/* The CPU runs, if it was halted, from this time on. */
static void runs_from(struct clock *clock, uint64_t ps)
{
	int halted = HALTED;

	/* BLOCKED meanwhile: nobody waits for its clock until it is right. */
	if (!atomic_compare_exchange_strong(&clock->state, &halted, BLOCKED))
		return;
	raise_to(&clock->ps, ps);
	ps = atomic_load(&clock->ps);
	atomic_fetch_add(&clock->halted, ps - clock->idle_since);
	clock->idle_since = ps;
	atomic_store(&clock->state, RUNNING);
}

/* Moves the CPU's clock by what its code has spent. */
static uint64_t advance(unsigned int cpu)
{
	struct clock *clock = &clocks[cpu];
	struct score *score = cpus[cpu].score;
	uint64_t ps = atomic_load_explicit(&clock->ps, memory_order_relaxed) + score->spent;

	score->spent = 0;
	/* Another CPU may have taken the line meanwhile. */
	score->line = ~0ull;
	atomic_store(&clock->ps, ps);
	if (atomic_load_explicit(&clock->state, memory_order_relaxed) != RUNNING) {
		/* The first instruction of all. */
		runs_from(clock, now());
		ps = atomic_load(&clock->ps);
	}
	tell_waiters();
	wake_main_if_due();
	return ps;
}

/* How far the CPU is ahead of another before it waits; what it spends between two looks has no bound but that of one block. */
static void note_skew(uint64_t ps)
{
	uint64_t others = least();

	if (others >= ps)
		return;
	raise_to(&greatest_skew, ps - others);
	if (ps - others > parameters.skew_ps + 2 * parameters.quantum_ps + LONGEST_BLOCK_PS)
		atomic_fetch_add(&skew_violations, all_have_kernel());
}

void clock_look(unsigned int cpu, void *data)
{
	uint64_t ps = advance(cpu);

	(void)data;
	note_skew(ps);
	wait_for_others(cpu, ps > parameters.skew_ps ? ps - parameters.skew_ps : 0);
}

/*
 * A loop that does nothing but read the clock or pause passes in steps of SPIN_STEP_PS once it has done so SPINS times: the kernel's
 * delays at boot would take a minute of the host, and each step of a CPU that waits needs all the others.
 */
enum { SPINS = 1000, SPIN_INSTRUCTIONS = 64 };
static const uint64_t SPIN_STEP_PS = 500000;

void clock_exact(unsigned int cpu, void *data)
{
	struct clock *clock = &clocks[cpu];
	struct score *score = cpus[cpu].score;

	(void)data;
	/* A line of another CPU may end the wait. */
	if (score->instructions - clock->spun_at > SPIN_INSTRUCTIONS || clock->came != cpus[cpu].from_other_cpu)
		clock->spins = 0;
	else if (++clock->spins > SPINS)
		score->spent += SPIN_STEP_PS;
	clock->spun_at = score->instructions;
	clock->came = cpus[cpu].from_other_cpu;
	wait_for_others(cpu, advance(cpu));
}

static uint64_t own_ps(void)
{
	struct score *score = cpus[my_cpu].score;

	return atomic_load_explicit(&clocks[my_cpu].ps, memory_order_relaxed) + (score ? score->spent : 0);
}

void clock_end(void)
{
	atomic_store(&ended, true);
}

uint64_t clock_of(unsigned int cpu)
{
	return atomic_load(&clocks[cpu].ps);
}

uint64_t clock_halted(unsigned int cpu)
{
	return atomic_load(&clocks[cpu].halted);
}

struct clock_account clock_account(void)
{
	return (struct clock_account){ greatest_skew, skew_violations, greatest_lateness, given_up };
}

/* A halted CPU and its interrupts. */

void clock_idle(qemu_plugin_id_t id, unsigned int cpu)
{
	(void)id;
	my_cpu = cpu;
	clocks[cpu].idle_since = advance(cpu);
	atomic_store(&clocks[cpu].idle, true);
}

void clock_resume(qemu_plugin_id_t id, unsigned int cpu)
{
	struct clock *clock = &clocks[cpu];

	(void)id;
	my_cpu = cpu;
	runs_from(clock, now());
	atomic_store(&clock->idle, false);
	cpus[cpu].score->spent += parameters.wake_ps;
}

/* Whoever wakes the sleepers at `cond` makes the halted CPU there run, from the waker's time on. */
static void wake_sleeper(pthread_cond_t *cond)
{
	for (unsigned int cpu = 0; cpu < parameters.cpus; cpu++) {
		struct clock *clock = &clocks[cpu];

		if (atomic_load(&clock->sleeps_at) == cond)
			runs_from(clock, my_cpu >= 0 ? own_ps() : is_main ? main_now : now());
	}
}

EXPORT int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	struct clock *clock;
	int result;

	if (!atomic_load(&started) || (my_cpu < 0 && !is_main))
		return real_wait(cond, mutex);
	if (is_main) {
		/* For the CPUs to stop, say: none of them may wait for it. */
		atomic_store(&main_state, BLOCKED);
		tell_waiters();
		result = real_wait(cond, mutex);
		main_now = now();
		atomic_store(&main_since, main_now);
		atomic_store(&main_state, WORKS);
		return result;
	}
	clock = &clocks[my_cpu];
	if (atomic_load(&clock->idle)) {
		atomic_store(&clock->sleeps_at, cond);
		atomic_store(&clock->state, HALTED);
		tell_waiters();
		if (all_halted() && atomic_load(&main_state) == POLLS)
			kick_main();
		else
			wake_main_if_due();
		result = real_wait(cond, mutex);
		atomic_store(&clock->sleeps_at, NULL);
		return result;
	}
	advance(my_cpu);
	atomic_store(&clock->state, BLOCKED);
	tell_waiters();
	wake_main_if_due();
	result = real_wait(cond, mutex);
	raise_to(&clock->ps, now());
	atomic_store(&clock->state, RUNNING);
	return result;
}

EXPORT int pthread_cond_broadcast(pthread_cond_t *cond)
{
	if (atomic_load(&started))
		wake_sleeper(cond);
	return real_broadcast(cond);
}

EXPORT int pthread_cond_signal(pthread_cond_t *cond)
{
	if (atomic_load(&started))
		wake_sleeper(cond);
	return real_signal(cond);
}

/* The main thread. */

/* A CPU that writes to an eventfd of the main loop has work for it: a timer is due earlier, say. */
EXPORT ssize_t write(int fd, const void *from, size_t bytes)
{
	ssize_t result;
	bool woken = false;

	if (my_cpu >= 0 && bytes == sizeof(uint64_t) && atomic_load(&started))
		woken = main_shall_work(own_ps());
	result = syscall(SYS_write, fd, from, bytes);
	if (woken) {
		int error = errno;

		/* It comes back even if that was not its eventfd. */
		kick_main();
		errno = error;
	}
	return result;
}

static int real_poll(struct pollfd *fds, nfds_t count, const struct timespec *wait)
{
	struct timespec copy = wait ? *wait : (struct timespec){ 0 };

	return syscall(SYS_ppoll, fds, count, wait ? &copy : NULL, NULL, 8);
}

static const struct timespec AT_ONCE;

/* Waits in guest time: until a file is ready, or `due`. */
static int poll_until(struct pollfd *fds, nfds_t count, uint64_t due)
{
	struct pollfd all[count + 1];
	int ready = real_poll(fds, count, &AT_ONCE);

	if (ready)
		return ready;
	memcpy(all, fds, count * sizeof(*fds));
	all[count] = (struct pollfd){ .fd = wake_fd, .events = POLLIN };
	atomic_store(&main_due, due);
	for (;;) {
		uint64_t kicks;
		bool halted;

		atomic_store(&main_state, POLLS);
		tell_waiters();
		halted = all_halted();
		if ((halted || least() >= due) && due != NEVER) {
			ready = real_poll(fds, count, &AT_ONCE);
			if (ready)
				return ready;
			if (halted)
				raise_to(&latest, due);
			return 0;
		}
		ready = real_poll(all, count + 1, NULL);
		if (ready < 0)
			return ready;
		if (all[count].revents) {
			if (syscall(SYS_read, wake_fd, &kicks, sizeof(kicks)) < 0 && errno != EAGAIN)
				abort();
			ready--;
		}
		if (ready) {
			memcpy(fds, all, count * sizeof(*fds));
			return ready;
		}
	}
}

EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *wait, const sigset_t *signals)
{
	uint64_t due = NEVER, time;
	int ready, error;

	if (!is_main || !atomic_load(&started) || signals)
		return syscall(SYS_ppoll, fds, count, wait, signals, 8);
	if (wait && !wait->tv_sec && !wait->tv_nsec)
		return real_poll(fds, count, &AT_ONCE);
	/* The main thread computed the wait from the time that it sees. */
	if (wait && wait->tv_sec < 1000000)
		due = main_now + (wait->tv_sec * 1000000000ull + wait->tv_nsec) * 1000;
	ready = poll_until(fds, count, due);
	error = errno;
	time = now();
	if (due != NEVER && !ready && time > due && all_have_kernel())
		raise_to(&greatest_lateness, time - due);
	main_now = time;
	atomic_store(&main_due, NEVER);
	atomic_store(&main_since, time);
	atomic_store(&main_state, WORKS);
	errno = error;
	return ready;
}

EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *wait, const sigset_t *signals, size_t bytes)
{
	(void)bytes;
	return ppoll(fds, count, wait, signals);
}

/* What QEMU takes for the time. */

EXPORT int clock_gettime(clockid_t which, struct timespec *time)
{
	uint64_t ns;

	if (which != CLOCK_MONOTONIC || !atomic_load(&started))
		return syscall(SYS_clock_gettime, which, time);
	ns = real_start + (my_cpu >= 0 ? own_ps() : is_main ? main_now : now()) / 1000;
	time->tv_sec = ns / 1000000000;
	time->tv_nsec = ns % 1000000000;
	return 0;
}

static const unsigned char *vdso;
enum { VDSO_BYTES = 0x4000 };

static uint64_t host_tsc(void)
{
	uint32_t low, high;

	prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);
	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
	return (uint64_t)high << 32 | low;
}

/* rdtsc traps here. A tick is a nanosecond. */
static void tsc_trap(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	const unsigned char *at = (const unsigned char *)registers[REG_RIP];
	bool rdtsc = at[0] == 0x0f && at[1] == 0x31, rdtscp = at[0] == 0x0f && at[1] == 0x01 && at[2] == 0xf9;
	uint64_t value;

	(void)info;
	if (!rdtsc && !rdtscp) {
		struct sigaction usual = { .sa_handler = SIG_DFL };

		/* The instruction runs again, and ends QEMU. */
		sigaction(signal, &usual, NULL);
		return;
	}
	if ((vdso && at >= vdso && at < vdso + VDSO_BYTES) || !atomic_load(&started)) {
		value = host_tsc();
	} else {
		/* QEMU moves its TSC on for ever if it ever reads an earlier one. */
		raise_to(&latest_tsc, (my_cpu >= 0 ? own_ps() : now()) / 1000);
		value = atomic_load(&latest_tsc);
	}
	registers[REG_RAX] = (uint32_t)value;
	registers[REG_RDX] = value >> 32;
	if (rdtscp)
		registers[REG_RCX] = 0;
	registers[REG_RIP] += rdtsc ? 2 : 3;
}

/* Before any other code of the process: the main thread is the one that runs this. */
__attribute__((constructor)) static void loaded(void)
{
	real_wait = (int (*)(pthread_cond_t *, pthread_mutex_t *))dlvsym(RTLD_NEXT, "pthread_cond_wait", "GLIBC_2.3.2");
	real_broadcast = (int (*)(pthread_cond_t *))dlvsym(RTLD_NEXT, "pthread_cond_broadcast", "GLIBC_2.3.2");
	real_signal = (int (*)(pthread_cond_t *))dlvsym(RTLD_NEXT, "pthread_cond_signal", "GLIBC_2.3.2");
	is_main = true;
	if (!real_wait || !real_broadcast || !real_signal) {
		fputs("timed: this C library has no pthread_cond_wait of GLIBC_2.3.2\n", stderr);
		_exit(1);
	}
}

void clock_start(void)
{
	struct sigaction trap = { .sa_sigaction = tsc_trap, .sa_flags = SA_SIGINFO | SA_NODEFER };

	vdso = (const unsigned char *)getauxval(AT_SYSINFO_EHDR);
	wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (wake_fd < 0 || sigaction(SIGSEGV, &trap, NULL) || prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0)) {
		fprintf(stderr, "timed: this host does not let rdtsc trap: %s\n", strerror(errno));
		_exit(1);
	}
	atomic_store(&main_due, NEVER);
	real_start = real_ns();
	atomic_store(&started, true);
}
