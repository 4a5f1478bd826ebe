// SPDX-License-Identifier: GPL-2.0-only
/*
 * defaults [CALLER...]: with a migrator chosen and nothing else set, the migrator copies nearly
 * all that Linux's own callers of page migration move, and no byte of it changes.
 *
 * The trace says how many bytes were migrated for the caller's reason, how many of them were
 * offered to the migrator, and how many it copied. What is offered depends on the callers alone.
 * mtcopy takes no batch when no other CPU is idle, and its callers isolate no large ones then. A
 * guest of two CPUs often has no idle one. There the share is that of the calls which were large
 * all the same, and what it declined counts as if it had copied it. What dcbm declined because other tasks had all its channels, which they have only while others migrate
 * for the same reason, counts as if it had copied it.
 *
 * defaults time ROUNDS: what demotion costs with each migrator, round by round.
 */
#include "blocks.h"
#include "cgroup.h"
#include "clock.h"
#include "damon.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "pages.h"
#include "pghot.h"
#include "range.h"
#include "ring.h"
#include "tap.h"
#include "task.h"
#include "trace.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MIB		(1UL << 20)
#define ROUNDS		12
#define PIDS		4096
#define DEMOTION	"/sys/kernel/mm/numa/demotion_enabled"
#define LRU_GEN		"/sys/kernel/mm/lru_gen/enabled"

/* How long the kernel may take to come round to it. */
#define PATIENCE_MS	60000

/**
 * struct caller - who migrates
 * @share: per cent of the migrated bytes that a migrator copies
 * @least: MiB that must have been migrated, in as many rounds as it takes
 * @task: count what this kernel thread migrates, NULL: what all do. Of two CPUs none is idle
 *	  then, and all batches may be declined
 * @make: sets .at and .bytes; false if this machine cannot, after a note
 * @run: lets the caller migrate
 * @drop: what is more to do than to unmap, or NULL
 */
struct caller {
	const char *name;
	const char *reason;
	unsigned int share;
	unsigned int least;
	const char *task;
	bool (*make)(struct range *range);
	void (*run)(struct range *range);
	void (*drop)(struct range *range);
};

/* Bytes of one reason. */
struct bytes {
	/* Large: in calls of a batch that is not too small for a migrator. */
	long long migrated, large, offered, copied, declined;
};

static uint64_t word(size_t page, size_t n)
{
	return (page << 20 | n) * 0x9e3779b97f4a7c15;
}

static void fill(const struct range *range)
{
	for (size_t n = 0; n < range->bytes / page_bytes(); n++) {
		uint64_t *words = (uint64_t *)(range->at + n * page_bytes());

		for (size_t i = 0; range->frames[n] != NO_FRAME && i < page_bytes() / 8; i++)
			words[i] = word(n, i);
	}
}

static size_t wrong(const struct range *range)
{
	size_t found = 0;

	for (size_t n = 0; n < range->bytes / page_bytes(); n++) {
		const uint64_t *words = (const uint64_t *)(range->at + n * page_bytes());

		for (size_t i = 0; range->frames[n] != NO_FRAME && i < page_bytes() / 8; i++)
			found += words[i] != word(n, i);
	}
	return found;
}

static bool make_first(struct range *range)
{
	return range_make(range, 64 * MIB, node_at(0), false);
}

static bool make_huge(struct range *range)
{
	return range_make(range, 16 * MIB, node_at(0), true) &&
	       folios_of_size(range->at, range->bytes, HUGE_BYTES) == range->bytes / HUGE_BYTES;
}

/* 2 MiB a call. */
static void run_move_pages(struct range *range)
{
	for (size_t n = 0; n < range->bytes; n += HUGE_BYTES)
		move_range(range->at + n, HUGE_BYTES, 0, node_at(1), MPOL_MF_MOVE, 1);
}

static void run_move_huge(struct range *range)
{
	for (size_t n = 0; n < range->bytes; n += HUGE_BYTES)
		move_range(range->at + n, HUGE_BYTES, HUGE_BYTES, node_at(1), MPOL_MF_MOVE, 1);
}

static void run_migrate_pages(struct range *range)
{
	(void)range;
	migrate_process(0, node_at(0), node_at(1));
}

static void run_mbind(struct range *range)
{
	bind_range(range->at, range->bytes, MPOL_BIND, node_at(1), MPOL_MF_MOVE);
}

static bool make_cpuset(struct range *range)
{
	range_enter_cpuset();
	return make_first(range);
}

/* The kernel does it in the background. */
static void run_cpuset(struct range *range)
{
	file_write_number(node_at(1), "%s/cpuset/cpuset.mems", cgroup_root());
	wait_until(range_moved_percent(range) == 100, PATIENCE_MS, 10000);
}

/*
 * A node of which every other page is free. The slow one: the guest's files lie on the others,
 * and some of them have buffer heads.
 */
static bool make_half_empty(struct range *range)
{
	int node = node_slow();
	uint64_t *frames;
	size_t nr;

	/* The gaps would stay on per-CPU lists, where compaction does not see them. */
	file_write("1000000", PER_CPU_LISTS);
	/* Page tables come from there as well, but not from its CMA areas. */
	if (node < 0 || !range_make(range, node_free_bytes(node) / 4 * 3 & -HUGE_BYTES, node, false))
		return false;
	nr = range->bytes / page_bytes();
	frames = calloc(nr, sizeof(*frames));
	if (!frames)
		tap_bail("no memory for %zu frames", nr);
	page_frames(range->at, range->bytes, frames);
	for (size_t n = 0; n < nr; n++)
		if (frames[n] % 2)
			madvise(range->at + n * page_bytes(), page_bytes(), MADV_DONTNEED);
	free(frames);
	return true;
}

static void run_compaction(struct range *range)
{
	long long end = now_ms() + PATIENCE_MS;

	do {
		file_write("1", "/sys/devices/system/node/node%d/compact", node_slow());
	} while (range_moved_percent(range) < 5 && now_ms() < end);
}

static void drop_half_empty(struct range *range)
{
	(void)range;
	file_write("0", PER_CPU_LISTS);
}

static bool make_demotable(struct range *range, const char *lru_gen, size_t bytes)
{
	if (node_slow() < 0 || file_write("1", DEMOTION) || file_write(lru_gen, LRU_GEN))
		return false;
	cgroup_make("demotion");
	cgroup_enter("demotion");
	return range_make(range, bytes, node_at(0), false);
}

static bool make_demotable_mglru(struct range *range)
{
	return make_demotable(range, "y", 128 * MIB);
}

static bool make_demotable_classic(struct range *range)
{
	return make_demotable(range, "n", 128 * MIB);
}

static void run_demotion(struct range *range)
{
	long long end = now_ms() + PATIENCE_MS;
	size_t done;

	while ((done = range_moved_percent(range)) < 70 && now_ms() < end)
		file_write_number(range->bytes / 100 * (75 - done),
				  "%s/demotion/memory.reclaim", cgroup_root());
}

/* More memory goes to a full node, and kswapd makes room. */
static bool make_full(struct range *range, const char *lru_gen)
{
	if (node_slow() < 0 || file_write("1", DEMOTION) || file_write(lru_gen, LRU_GEN))
		return false;
	return range_make(range, (node_free_bytes(node_at(0)) - node_reserve_bytes(node_at(0))) &
			  -HUGE_BYTES, node_at(0), false);
}

static int lock_file(const char *path, const struct stat *stat, int type, struct FTW *place)
{
	void *at;
	int fd;

	(void)place;
	if (type != FTW_F || !S_ISREG(stat->st_mode) || !stat->st_size)
		return 0;
	fd = open(path, O_RDONLY);
	at = mmap(NULL, stat->st_size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	return at == MAP_FAILED || mlock(at, stat->st_size);
}

/*
 * Another process locks the guest's files, or kswapd would demote them, too: page cache that
 * nobody maps is left to the plain copy.
 */
static pid_t locker;

static bool lock_files(void)
{
	int ends[2];
	bool locked;
	char byte = 0;

	if (pipe(ends))
		return false;
	locker = fork();
	if (!locker) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (nftw("/", lock_file, 16, FTW_PHYS | FTW_MOUNT) || write(ends[1], &byte, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ends[1]);
	locked = read(ends[0], &byte, 1) == 1;
	close(ends[0]);
	return locked;
}

static void unlock_files(struct range *range)
{
	(void)range;
	if (locker > 0)
		child_kill(locker);
	locker = 0;
}

static bool make_full_mglru(struct range *range)
{
	return lock_files() && make_full(range, "y");
}

static bool make_full_classic(struct range *range)
{
	return lock_files() && make_full(range, "n");
}

static void push(struct range *range, size_t bytes)
{
	memory_policy(MPOL_BIND, node_at(0));
	range->filler_bytes = bytes;
	range->filler = map_anonymous(range->filler_bytes, false);
	for (size_t n = 0; n < bytes; n += MIB)
		madvise(range->filler + n, MIB, MADV_POPULATE_WRITE);
	memory_policy(MPOL_DEFAULT, 0);
}

static void run_pressure(struct range *range)
{
	/* Of memory that was all used lately Linux frees none in time, with a migrator or without. */
	madvise(range->at, range->bytes, MADV_COLD);
	push(range, 256 * MIB);
}

static bool make_block(struct range *range)
{
	int node;

	return block_make_movable(&range->block, &node) &&
	       range_make(range, block_bytes() / 2, node, false);
}

static void run_offline(struct range *range)
{
	for (int try = 0; try < 5 && block_state(range->block, "offline"); try++)
		;
}

static void run_pin(struct range *range)
{
	range->ring = ring_new();
	ring_pin(range->ring, range->at, 32 * MIB);
}

static bool make_cma(struct range *range)
{
	size_t small;

	if (!cma_find(&range->area))
		return false;
	/* Else the area's pages would be on per-CPU lists in the next round. */
	file_write("1000000", PER_CPU_LISTS);
	range->filler = cma_fill(&range->area, 60, &range->filler_bytes, &small);
	range->at = range->filler + small;
	range->bytes = range->filler_bytes - small;
	return cma_pages(&range->area, range->at, range->bytes) > 0;
}

static void run_cma(struct range *range)
{
	tap_ok(cma_take(&range->area) && !cma_pages(&range->area, range->at, range->bytes),
	       "nothing is left in CMA area '%s'", range->area.name);
}

static void drop_cma(struct range *range)
{
	cma_give(&range->area);
	file_write("0", PER_CPU_LISTS);
	range->at = NULL;		/* part of the filler */
}

static void run_damon(struct range *range)
{
	long long least = file_field("/proc/vmstat", "pgmigrate_success") +
			  (long long)(range->bytes / page_bytes()) * 7 / 10;

	damon_start(range->frames, range->bytes / page_bytes(), node_at(1));
	/* With all checkers a look at all pages takes seconds, and a helper needs that CPU. */
	wait_until(file_field("/proc/vmstat", "pgmigrate_success") >= least &&
		   range_moved_percent(range) >= 70, PATIENCE_MS, 20000);
	damon_stop();
}

/* Where no files of the guest lie among the pages. */
static bool make_slow(struct range *range)
{
	if (node_slow() < 0 || !range_make(range, 64 * MIB, node_slow(), false))
		return false;
	pages_settle(range->at);
	return true;
}

static void run_promotion(struct range *range)
{
	long long end = now_ms() + PATIENCE_MS;

	pghot_start(PGHOT_PGTSCAN);
	while (range_moved_percent(range) < 70 && now_ms() < end)
		read_pages(range->at, range->bytes);
	pghot_stop();
}

static const struct caller callers[] = {
	{ "move_pages", "syscall_or_cpuset", .share = 95, .least = 16, .make = make_first,
	  .run = run_move_pages },
	{ "move_pages-huge", "syscall_or_cpuset", .share = 95, .least = 16, .make = make_huge,
	  .run = run_move_huge },
	{ "migrate_pages", "syscall_or_cpuset", .share = 95, .least = 16, .make = make_first,
	  .run = run_migrate_pages },
	{ "cpuset", "syscall_or_cpuset", .share = 95, .least = 16, .make = make_cpuset,
	  .run = run_cpuset, .drop = range_leave_group },
	{ "mbind", "mempolicy_mbind", .share = 95, .least = 16, .make = make_first,
	  .run = run_mbind },
	{ "compaction", "compaction", .share = 95, .least = 8, .make = make_half_empty,
	  .run = run_compaction, .drop = drop_half_empty },
	{ "offline", "memory_hotplug", .share = 95, .least = 32, .make = make_block,
	  .run = run_offline, .drop = range_drop_block },
	{ "pin", "longterm_pin", .share = 95, .least = 8, .make = make_block, .run = run_pin,
	  .drop = range_drop_pin },
	{ "cma", "contig_range", .share = 95, .least = 8, .make = make_cma, .run = run_cma,
	  .drop = drop_cma },
	{ "demotion", "demotion", .share = 90, .least = 80, .make = make_demotable_mglru,
	  .run = run_demotion, .drop = range_leave_group },
	{ "demotion-classic", "demotion", .share = 90, .least = 80,
	  .make = make_demotable_classic, .run = run_demotion, .drop = range_leave_group },
	{ "kswapd", "demotion", .share = 90, .least = 8, .task = "kswapd0",
	  .make = make_full_mglru, .run = run_pressure, .drop = unlock_files },
	{ "kswapd-classic", "demotion", .share = 90, .least = 8, .task = "kswapd0",
	  .make = make_full_classic, .run = run_pressure, .drop = unlock_files },
	{ "damon", "damon", .share = 95, .least = 16, .make = make_slow, .run = run_damon },
	{ "promotion", "numa_misplaced", .share = 90, .least = 16, .task = "kmigrated2",
	  .make = make_slow, .run = run_promotion },
};

static void drop(const struct caller *caller, struct range *range)
{
	if (caller->drop)
		caller->drop(range);
	range_drop(range);
}

static bool make(const struct caller *caller, struct range *range)
{
	if (!caller->make(range))
		return false;
	range_remember(range);
	fill(range);
	return true;
}

static void count_start(void)
{
	static const char *const events[] = {
		"migrate/mm_migrate_pages", "migrator/migrator_batch_start",
		"migrator/migrator_batch_done", "vmscan/mm_vmscan_direct_reclaim_begin",
		"vmscan/mm_vmscan_direct_reclaim_end", NULL
	};

	trace_start(events);
}

/* A batch that was started is declined until it is done. */
static void add_event(struct bytes *bytes, const struct trace_event *event)
{
	static long long started[PIDS];
	long long *own = &started[event->pid % PIDS];

	if (trace_is(event, "mm_migrate_pages")) {
		long long moved = trace_field(event, "nr_succeeded") * page_bytes();

		bytes->migrated += moved;
		bytes->large += moved >= MIN_BATCH ? moved : 0;
	}
	if (trace_is(event, "migrator_batch_start")) {
		*own = trace_field(event, "bytes");
		bytes->offered += *own;
		bytes->declined += *own;
	}
	if (trace_is(event, "migrator_batch_done") && !trace_field(event, "error")) {
		bytes->copied += trace_field(event, "bytes");
		bytes->declined -= *own;
	}
}

static struct bytes count_stop(const char *reason, int pid, double *longest_stall)
{
	struct bytes bytes = { 0 };
	double began = 0;
	struct trace_event *events;
	char text[64];
	size_t count;

	snprintf(text, sizeof(text), "reason=%s", reason);
	count = trace_stop(&events);
	for (size_t n = 0; n < count; n++) {
		const char *at = strstr(events[n].fields, text);

		if (at && (!at[strlen(text)] || at[strlen(text)] == ' ') &&
		    (!pid || events[n].pid == pid))
			add_event(&bytes, &events[n]);
		if (events[n].pid != getpid())
			continue;
		if (trace_is(&events[n], "mm_vmscan_direct_reclaim_begin"))
			began = events[n].seconds;
		if (trace_is(&events[n], "mm_vmscan_direct_reclaim_end") && began > 0 &&
		    events[n].seconds - began > *longest_stall)
			*longest_stall = events[n].seconds - began;
	}
	free(events);
	return bytes;
}

static double share(long long part, long long whole)
{
	return whole ? (double)part / whole : 0;
}

/* One round. False, after a failed test, if the memory is not there. */
static bool migrate(const struct caller *caller, const char *what, struct bytes *sum)
{
	struct range range = { .block = -1 };
	pid_t pid = caller->task ? task_named(caller->task) : 0;
	struct bytes bytes;
	double stall = 0;

	if (pid < 0)
		tap_bail("there is no %s", caller->task);
	if (!make(caller, &range)) {
		tap_ok(false, "%s: the memory is not there", what);
		drop(caller, &range);
		return false;
	}
	count_start();
	caller->run(&range);
	bytes = count_stop(caller->reason, pid, &stall);
	tap_note("%s: %lld KiB migrated, %lld in large calls, offered %.3f, declined %.3f, copied %.3f",
		 what, bytes.migrated >> 10, bytes.large >> 10, share(bytes.offered, bytes.migrated),
		 share(bytes.declined, bytes.migrated), share(bytes.copied, bytes.migrated));
	if (wrong(&range))
		tap_ok(false, "%s: contents", what);
	drop(caller, &range);
	sum->migrated += bytes.migrated;
	sum->large += bytes.large;
	sum->declined += bytes.declined;
	sum->copied += bytes.copied;
	return true;
}

static void test(const struct caller *caller, const char *migrator)
{
	bool spare = sysconf(_SC_NPROCESSORS_ONLN) > 2;
	bool crowd = caller->task && !strcmp(migrator, "dcbm");
	bool may_decline = !spare && caller->task && strcmp(migrator, "kernel");
	bool small = !spare && !strcmp(migrator, "mtcopy");
	long long least = caller->least * MIB;
	struct bytes sum = { 0 };
	char what[64];

	snprintf(what, sizeof(what), "%s, %s", caller->name, migrator);
	for (int round = 0; round < ROUNDS && (sum.migrated < least ||
					       (!sum.copied && !may_decline)); round++)
		if (!migrate(caller, what, &sum))
			return;
	tap_ok(sum.migrated >= least && (sum.copied || may_decline) &&
	       (sum.copied + (spare && !crowd ? 0 : sum.declined)) * 100 >=
	       (small ? sum.large : sum.migrated) * caller->share,
	       "%s: copied by the migrator%s", what, spare && !crowd ? "" : " unless it declined");
}

#define MAX_ROUNDS	32

static const char *const timed[] = { "none", "kernel", "mtcopy", "dcbm" };
static const char *const figures[] = { "memory.reclaim", "full node", "longest stall" };

/* In ms: by LRU, figure and migrator. */
static double took[2][ARRAY_SIZE(figures)][ARRAY_SIZE(timed)][MAX_ROUNDS];

static double since_ms(long long start)
{
	return (now_ns(CLOCK_MONOTONIC) - start) / 1e6;
}

/* 256 MiB: by memory.reclaim, and by more memory for a full node. */
static void time_demotion(int lru, unsigned int migrator, int round)
{
	struct range range = { 0 };
	double stall = 0;
	long long start;

	if (!make_demotable(&range, lru ? "n" : "y", 384 * MIB))
		tap_bail("no memory to demote");
	start = now_ns(CLOCK_MONOTONIC);
	file_write_number(256 * MIB, "%s/demotion/memory.reclaim", cgroup_root());
	took[lru][0][migrator][round] = since_ms(start);
	cgroup_enter(NULL);
	munmap(range.at, range.bytes);

	memset(&range, 0, sizeof(range));
	if (!make_full(&range, lru ? "n" : "y"))
		tap_bail("no memory to fill a node");
	count_start();
	start = now_ns(CLOCK_MONOTONIC);
	push(&range, 256 * MIB);
	took[lru][1][migrator][round] = since_ms(start);
	count_stop("demotion", 0, &stall);
	took[lru][2][migrator][round] = stall * 1e3;
	munmap(range.at, range.bytes);
	munmap(range.filler, range.filler_bytes);
}

static void time_all(int rounds)
{
	if (rounds < 1 || rounds > MAX_ROUNDS)
		tap_bail("1 to %d rounds", MAX_ROUNDS);
	for (int round = 0; round < rounds; round++)
		for (int lru = 0; lru < 2; lru++)
			for (unsigned int n = 0; n < ARRAY_SIZE(timed); n++) {
				migrator_need(timed[n]);
				time_demotion(lru, n, round);
			}
	for (int lru = 0; lru < 2; lru++)
		for (unsigned int f = 0; f < ARRAY_SIZE(figures); f++) {
			double none = median_of(took[lru][f][0], rounds);

			for (unsigned int n = 0; n < ARRAY_SIZE(timed); n++) {
				double *all = took[lru][f][n], middle = median_of(all, rounds);

				tap_note("%s LRU, %s, %s: %.1f ms (%.1f to %.1f), ratio %.2f",
					 lru ? "classic" : "multi-generational", figures[f],
					 timed[n], middle, all[0], all[rounds - 1], middle / none);
			}
		}
}

int main(int argc, char **argv)
{
	static const char *const migrators[] = { "kernel", "mtcopy", "dcbm" };

	tap_start();
	migrator_needed();
	nodes_with_memory();
	pghot_init();
	atexit(migrator_defaults);
	file_restore_at_exit(DEMOTION);
	file_restore_at_exit(LRU_GEN);
	if (argc == 3 && !strcmp(argv[1], "time")) {
		time_all(atoi(argv[2]));
		tap_ok(true, "timed");
		return tap_done();
	}
	for (unsigned int n = 0; n < ARRAY_SIZE(migrators); n++) {
		if (migrator_choose(migrators[n])) {
			tap_ok(false, "migrator %s cannot be chosen", migrators[n]);
			continue;
		}
		for (unsigned int i = 0; i < ARRAY_SIZE(callers); i++)
			if (argc < 2 || !strcmp(argv[1], callers[i].name))
				test(&callers[i], migrators[n]);
	}
	return tap_done();
}
