// SPDX-License-Identifier: GPL-2.0-only
/*
 * lanes: which CPUs help mtcopy with a batch, and what becomes of the batch when they are
 * wanted elsewhere. Idle CPUs alone help by default, never one outside the task's cpuset; a
 * helper that loses its CPU keeps nobody waiting; and non-temporal copies are right.
 */
#include "batches.h"
#include "cgroup.h"
#include "clock.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "tap.h"
#include "task.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define TRIES		20
/* Under emulation on a busy machine a helper's CPU may be late again and again. */
#define PATIENT_TRIES	200
#define GROUP		"lanes"

/* How long the greedy task keeps its CPU, and what a batch must not have waited for it. */
#define HOG_MS		900
#define STALL_NS	(HOG_MS * 1000000LL * 2 / 3)
#define HOG_SECONDS	15
/* A host that is busy itself may keep a batch waiting as long as the hog would, now and then. */
#define HOG_ROUNDS	10

/*
 * The kernel takes single pages off their lists for a moment, for compaction, and then they do
 * not move. New memory moves then, at most so often.
 */
#define ATTEMPTS	5

enum { HERE, THERE };			/* CPUs: the task's, and the only other one */

static void run_anywhere(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(HERE, &set);
	CPU_SET(THERE, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		tap_bail("CPUs cannot be used: %s", strerror(errno));
}

static pid_t start_busy(void)
{
	return busy_start(THERE, SCHED_OTHER, 0, 0);
}

/*
 * Moves new memory to and fro, as often as said, and tells of the last move alone. Returns wrong
 * words.
 */
static size_t move_new(const char *kind, size_t bytes, int moves, struct batches *seen)
{
	struct memory memory;
	size_t left, wrong = 0;

	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		left = 0;
		memory_need(&memory, kind, bytes, node_at(0), 0);
		for (int n = 1; !left && n <= moves; n++)
			left = batches_move(&memory, node_at(n % 2), seen);
		wrong += memory_wrong(&memory, "moved");
		memory_drop(&memory);
		if (!left)
			return wrong;
		tap_note("%s: %zu pages did not move", kind, left);
	}
	tap_bail("pages did not move");
}

/*
 * Moves some memory until two lanes had a part in it; false if a page stayed. Always new memory:
 * with large base pages Linux 6.12 splits folios of 2 MiB when they move a second time.
 */
static bool try_lanes(int tries, unsigned int *best, struct stats *done)
{
	struct stats before = migrator_stats("mtcopy");
	struct memory memory;
	struct batches seen;
	size_t left = 0;

	*best = 0;
	for (int try = 1; !left && try <= tries && *best < 2; try++) {
		memory_need(&memory, "anonymous, 2048 KiB", HUGE_BYTES, node_at(0), 0);
		left = batches_move(&memory, node_at(1), &seen);
		if (seen.lanes > *best)
			*best = seen.lanes;
		if (memory_wrong(&memory, "moved"))
			tap_bail("contents are wrong");
		memory_drop(&memory);
	}
	*done = migrator_since("mtcopy", before);
	tap_note("%u lanes; %lld folios, %lld declined%s", *best, done->folios, done->declined,
		 left ? "; not all moved" : "");
	return !left;
}

static unsigned int most_lanes(int tries, struct stats *done)
{
	unsigned int best;

	for (int attempt = 0; attempt < ATTEMPTS; attempt++)
		if (try_lanes(tries, &best, done))
			return best;
	tap_bail("pages did not move");
}

static void test_idle_only(void)
{
	struct stats done;
	pid_t busy;

	file_write("1", MTCOPY_PARAMS "/idle_only");
	tap_ok(most_lanes(PATIENT_TRIES, &done) == 2, "idle_only: an idle CPU helps");
	busy = start_busy();
	tap_ok(!most_lanes(TRIES, &done) && done.declined == TRIES && !done.folios,
	       "idle_only: without one every batch is declined");
	file_write("0", MTCOPY_PARAMS "/idle_only");
	tap_ok(most_lanes(TRIES, &done) && !done.declined,
	       "not idle_only: a busy CPU is asked, and no batch is declined");
	busy_stop(busy);
}

static void set_class(int policy, int nice)
{
	struct sched_param priority = { .sched_priority = policy == SCHED_FIFO };

	if (sched_setscheduler(0, policy, &priority) || setpriority(PRIO_PROCESS, 0, nice))
		tap_bail("class %d, nice %d: %s", policy, nice, strerror(errno));
}

/* Who gives way to everybody has no helper, and who outranks others has a busy CPU, too. */
static void test_classes(void)
{
	struct stats done;
	pid_t busy;

	file_write("1", MTCOPY_PARAMS "/idle_only");
	set_class(SCHED_OTHER, 19);
	tap_ok(!most_lanes(TRIES, &done) && done.declined == TRIES, "nice 19: no helper");
	set_class(SCHED_IDLE, 0);
	tap_ok(!most_lanes(TRIES, &done) && done.declined == TRIES, "SCHED_IDLE: no helper");
	set_class(SCHED_OTHER, 0);
	busy = start_busy();
	set_class(SCHED_OTHER, -20);
	tap_ok(most_lanes(PATIENT_TRIES, &done) == 2 && !done.declined,
	       "nice -20: a busy CPU helps");
	set_class(SCHED_FIFO, 0);
	tap_ok(most_lanes(PATIENT_TRIES, &done) == 2 && !done.declined,
	       "a real-time task: a busy CPU helps");
	set_class(SCHED_OTHER, 0);
	busy_stop(busy);
	file_write("0", MTCOPY_PARAMS "/idle_only");
}

static void test_cpuset(void)
{
	struct stats done;
	unsigned int lanes;

	tap_ok(most_lanes(PATIENT_TRIES, &done) == 2, "affinity: a task bound to one CPU has a helper");
	run_anywhere();
	cgroup_make(GROUP);
	file_need_number(HERE, "%s/" GROUP "/cpuset.cpus", cgroup_root());
	cgroup_enter(GROUP);
	lanes = most_lanes(TRIES, &done);
	tap_ok(!lanes && done.declined == TRIES, "cpuset: no CPU outside of it helps");
	cgroup_enter(NULL);
	run_on_cpu(HERE);
}

/* Whether all batches of a round ended in time, with a helper in some of them. */
static bool hog_round(struct memory *memory)
{
	long long end = now_ms() + HOG_SECONDS * 1000;
	struct batches seen;
	unsigned int moves;

	batches_start();
	for (moves = 0; now_ms() < end; moves++)
		memory_move(memory, node_at((moves + 1) % 2), 1);
	seen = batches_stop();
	tap_note("%u moves, %u batches, the longest took %lld us", moves, seen.finished,
		 seen.longest_ns / 1000);
	return seen.finished && seen.lanes == 2 && seen.longest_ns < STALL_NS;
}

static void test_hog(void)
{
	struct memory memory;
	bool clean = false;
	pid_t hog;

	file_write_number(16 << 20, MIGRATION "/max_batch_bytes");
	hog = busy_start(THERE, SCHED_FIFO, HOG_MS, 3000);
	memory_need(&memory, "anonymous, 2048 KiB", 16 << 20, node_at(0), 0);
	for (int round = 0; !clean && round < HOG_ROUNDS; round++)
		clean = hog_round(&memory);
	busy_stop(hog);
	tap_ok(clean, "no batch waits for a helper that lost its CPU");
	tap_ok(!memory_wrong(&memory, "moved"), "contents when helpers lose their CPU");
	memory_drop(&memory);
	file_write_number(MAX_BATCH, MIGRATION "/max_batch_bytes");
}

static void test_nontemporal(const char *kind, size_t bytes)
{
	unsigned int best = 0;
	struct batches seen;
	bool whole = true;
	size_t wrong = 0;

	for (int try = 0; try < PATIENT_TRIES && best < 2; try++) {
		/* New memory: Linux splits folios of 64 KiB when they move a second time. */
		wrong += move_new(kind, bytes, 1, &seen);
		whole &= seen.lane_bytes == (long long)bytes;
		if (seen.lanes > best)
			best = seen.lanes;
	}
	tap_ok(best == 2 && whole, "non-temporal, %s: two lanes copy all of it", kind);
	tap_ok(!wrong, "non-temporal, %s: contents", kind);
}

static void test_nontemporal_all(void)
{
	int error = file_write("1", MTCOPY_PARAMS "/nontemporal");

	if (error == -ENOENT) {
		tap_skip("non-temporal", "this architecture has no such copy");
		return;
	}
	tap_ok(!error, "non-temporal copies are on");
	test_nontemporal("anonymous", 4 << 20);
	test_nontemporal("anonymous, 64 KiB", 4 << 20);
	test_nontemporal("anonymous, 2048 KiB", 4 << 20);
	file_write("0", MTCOPY_PARAMS "/nontemporal");
}

int main(void)
{
	tap_start();
	nodes_with_memory();
	migrator_needed();
	if (sysconf(_SC_NPROCESSORS_ONLN) != 2)
		tap_bail("this test knows machines with two CPUs only");
	atexit(migrator_defaults);
	migrator_need("mtcopy");
	migrator_eager();
	run_on_cpu(HERE);
	test_idle_only();
	test_classes();
	test_cpuset();
	test_nontemporal_all();
	test_hog();
	return tap_done();
}
