/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A thread that leaves a call: by siglongjmp() out of a signal handler, and by pthread_cancel(). The pages must be in place, and
 * the mover must work on. Prints TAP.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <memferry.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES ((size_t)8 << 20)
#define SMALL ((size_t)64 << 10)
#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define JUMPS 20
#define PATIENCE_S 300

static int tests, failures;

#define CHECK(condition) check((condition), #condition, __LINE__)

static void check(int holds, const char *what, int line)
{
	failures += !holds;
	printf("%s %d - line %d: %s\n", holds ? "ok" : "not ok", ++tests, line, what);
	if (!holds)
		printf("# last error: %s\n", memferry_last_error());
}

static memferry_mover *mover;
static unsigned char *memory;
static memferry_move_options how = { .size = sizeof how, .flags = MEMFERRY_RELOCATE };

static int intact(void)
{
	for (size_t i = 0; i < BYTES; i++)
		if (memory[i] != (unsigned char)(i / 4093))
			return 0;
	return 1;
}

static int moves(void)
{
	memferry_result result = { .size = sizeof result };

	return memferry_move(mover, memory, BYTES, 0, &how, &result) == 0 && result.moved.bytes == BYTES;
}

static int move_large(void)
{
	return memferry_move(mover, memory, BYTES, 0, &how, NULL);
}

static int move_small(void)
{
	return memferry_move(mover, memory + SMALL, SMALL, 0, &how, NULL);
}

static int move_by_kernel(void)
{
	return memferry_move_pid(mover, 0, (uintptr_t)memory, BYTES, 0, &how, NULL);
}

static int prefill(void)
{
	int refused = memferry_prefill(mover, 0, PAGE, BYTES, NULL);

	return refused ? refused : memferry_trim(mover, 0);
}

static memferry_pending *begun;
static memferry_result account;

/* A move that a handler left while it was waited for is finished; one that has its account is released. */
static int start_and_finish(void)
{
	if (!begun || account.elapsed_ns) {
		begun = NULL;
		atomic_signal_fence(memory_order_seq_cst);
		account = (memferry_result){ .size = sizeof account };
		atomic_signal_fence(memory_order_seq_cst);
		if (memferry_move_start(mover, memory, BYTES, 0, &how, &begun))
			return -1;
	}
	return memferry_pending_finish(begun, &account);
}

static int make(void)
{
	memferry_options options = { .size = sizeof options, .backend = MEMFERRY_USERFAULTFD };
	memferry_mover *another;

	/* Who leaves it at its end has lost the mover; that is a few threads and mappings. */
	return memferry_new(&options, &another);
}

/* Descriptors of this process, but for the one that this takes. */
static int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = -1;

	if (!folder)
		return -1;
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static const struct { const char *name; int (*call)(void); } calls[] = {
	{ "a move of 8 MiB", move_large },
	{ "a move of 64 KiB", move_small },
	{ "memferry_move_pid()", move_by_kernel },
	{ "memferry_prefill()", prefill },
	{ "memferry_pending_finish()", start_and_finish },
	{ "memferry_new()", make },
};
#define CALLS (sizeof(calls) / sizeof(*calls))

static int (*real_sigmask)(int, const sigset_t *, sigset_t *);
static atomic_int exposed;

/*
 * The library's calls come here. A handler may leave by longjmp until signals are blocked, so cancellation must be on until then.
 */
int pthread_sigmask(int change, const sigset_t *set, sigset_t *before)
{
	sigset_t blocked;
	int state;

	/* The first call comes before any signal: nobody may leave dlsym() by longjmp. */
	if (!real_sigmask)
		*(void **)&real_sigmask = dlsym(RTLD_NEXT, "pthread_sigmask");
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
	real_sigmask(SIG_BLOCK, NULL, &blocked);
	exposed += change == SIG_BLOCK && !sigismember(&blocked, SIGUSR1) && state != PTHREAD_CANCEL_ENABLE;
	pthread_setcancelstate(state, NULL);
	return real_sigmask(change, set, before);
}

static sigjmp_buf out;
static volatile sig_atomic_t in_move;
static atomic_int over, unanswered;

static void jump(int number)
{
	uint64_t all;

	(void)number;
	if (in_move) {
		if (begun && !account.elapsed_ns)
			unanswered += memferry_pending_progress(begun, NULL, &all) != 0 || all != BYTES;
		in_move = 0;
		siglongjmp(out, 1);
	}
}

static void *keep_signalling(void *thread)
{
	while (!atomic_load(&over)) {
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
		sched_yield();
	}
	return NULL;
}

/*
 * A handler finds the caller asleep while a move of 8 MiB goes on, or at the end of a call, with nothing in hand. It runs with no
 * signal blocked but its own.
 */
static void longjmp_out(int (*call)(void))
{
	static volatile int jumps, failed, uncancellable;
	int before = descriptors(), state;
	struct sigaction action = { .sa_handler = jump };
	pthread_t self = pthread_self(), signaller;

	jumps = failed = uncancellable = 0;
	atomic_store(&over, 0);
	sigaction(SIGUSR1, &action, NULL);
	CHECK(pthread_create(&signaller, NULL, keep_signalling, &self) == 0);
	while (jumps < JUMPS) {
		if (sigsetjmp(out, 1)) {
			jumps++;
			pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
			uncancellable += state != PTHREAD_CANCEL_ENABLE;
			continue;
		}
		in_move = 1;
		failed += call() != 0;
		in_move = 0;
	}
	atomic_store(&over, 1);
	CHECK(pthread_join(signaller, NULL) == 0);
	signal(SIGUSR1, SIG_IGN);
	/* The last jump may have left a move under way, which is finished. */
	failed += call() != 0;
	CHECK(failed == 0);
	CHECK(uncancellable == 0);
	CHECK(intact());
	CHECK(moves());
	CHECK(intact());
	/* What was left goes on to its end, or the alarm comes. */
	while (call != make && descriptors() > before)
		sched_yield();
}

static atomic_int called;

static void *keep_calling(void *number)
{
	for (;;) {
		if (calls[(uintptr_t)number].call())
			return NULL;
		atomic_fetch_add(&called, 1);
		pthread_testcancel();
	}
}

static void cancelled(uintptr_t number)
{
	void *end;
	pthread_t thread;

	for (int i = 0; i < 5; i++) {
		atomic_store(&called, 0);
		CHECK(pthread_create(&thread, NULL, keep_calling, (void *)number) == 0);
		while (!atomic_load(&called))
			sched_yield();
		CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &end) == 0);
		CHECK(end == PTHREAD_CANCELED);
		CHECK(intact());
	}
	CHECK(moves());
	CHECK(intact());
}

static void stuck(int number)
{
	static const char text[] = "Bail out! a call waits for one that was left\n";

	(void)number;
	_exit(write(STDOUT_FILENO, text, sizeof(text) - 1) < 0 ? 2 : 1);
}

int main(void)
{
	memferry_options options = { .size = sizeof options, .backend = MEMFERRY_USERFAULTFD };

	if (memferry_new(&options, &mover)) {
		printf("# %s\n", memferry_last_error());
		return 77;
	}
	memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	madvise(memory, BYTES, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < BYTES; i++)
		memory[i] = (unsigned char)(i / 4093);
	signal(SIGALRM, stuck);
	alarm(PATIENCE_S);
	for (uintptr_t n = 0; n < CALLS; n++) {
		printf("# %s\n", calls[n].name);
		longjmp_out(calls[n].call);
		/* It makes a mover each time, which nobody frees. */
		if (calls[n].call != make)
			cancelled(n);
	}
	memferry_free(mover);
	CHECK(exposed == 0);
	CHECK(unanswered == 0);
	printf("1..%d\n", tests);
	return failures ? 1 : 0;
}
