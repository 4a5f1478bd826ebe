// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_scan [refaults [ROUNDS]]: who asked for it by prctl(2) is not scanned for hot pages.
 * "refaults" compares what the scan does to reclaim, which reads the accessed bits that it clears:
 * under memory pressure a group at its limit reads back about as many pages as without the scan,
 * with the classic and with the multi-generational LRU. ROUNDS is how many there are at least.
 */
#include "cgroup.h"
#include "content.h"
#include "disk.h"
#include "files.h"
#include "memory.h"
#include "nodes.h"
#include "pghot.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PR_SET_PGHOT_SCAN
#define PR_SET_PGHOT_SCAN	0x70676873
#define PR_GET_PGHOT_SCAN	0x70676867
#endif

#define PATIENCE_MS	120000
#define BYTES		(4UL << 20)

#define LRU_GEN		"/sys/kernel/mm/lru_gen/enabled"
#define PAGE_CLUSTER	"/proc/sys/vm/page-cluster"
#define GROUP		"refaults"

/* Of anonymous memory and of a file, each; a quarter of both is hot, and half fits. */
#define USED_BYTES	(12UL << 20)
#define LIMIT_BYTES	USED_BYTES
#define PAGES		((long long)(2 * USED_BYTES / page_bytes()))

/* A run: so often some pages are used, and the rest of the time is the scan's. */
#define STEPS		640
#define STEP_PAGES	65
#define STEP_US		15000

/* Others are hot after so many steps. */
#define HOT_STEPS	160

/* A run takes longer than its pauses, with four walks a second: three quarters of these at least. */
#define WALKS		((long long)STEPS * STEP_US * 3 / 1000000)

/* Rounds at most; and where the numbers of the first one begin. */
#define ROUNDS		24
#define SEED		88172645463325252ULL

static unsigned long long draw(unsigned long long *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/*
 * Which page of either kind is used next: one of the hot ones, which fit and are used less often
 * than there are walks, or one of those that stream by. The hot ones are others after a while, so
 * that reclaim has to see which.
 */
static size_t next(unsigned long long *state, int step, size_t *stream)
{
	size_t pages = USED_BYTES / page_bytes(), hot = pages / 4;

	if (draw(state) % 10 < 7)
		return (hot * step / HOT_STEPS + draw(state) % hot) % pages;
	return *stream = (*stream + 1) % pages;
}

/* In the group. What is bound to its node stays there, and only the LRU lists see the scan. */
static void use(const char *disk, unsigned long long state)
{
	int fd = open(disk, O_RDONLY | O_CLOEXEC);
	volatile unsigned char *anon, *file;
	size_t stream = 0;

	cgroup_enter(GROUP);
	memory_policy(MPOL_BIND, node_slow());
	anon = map_anonymous(USED_BYTES, false);
	file = mmap(NULL, USED_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	if (fd < 0 || file == MAP_FAILED || madvise((void *)file, USED_BYTES, MADV_RANDOM))
		_exit(1);
	for (int step = 0; step < STEPS; step++) {
		for (int n = 0; n < STEP_PAGES; n++) {
			size_t at = next(&state, step, &stream) * page_bytes();

			if (draw(&state) & 1)
				anon[at]++;
			else
				(void)file[at];
		}
		usleep(STEP_US);
	}
	_exit(0);
}

static long long refaults_so_far(void)
{
	return cgroup_stat(GROUP, "memory.stat", "workingset_refault_anon") +
	       cgroup_stat(GROUP, "memory.stat", "workingset_refault_file");
}

/* Pages that the group read back in one run. */
static long long refaults(const char *disk, unsigned long long seed)
{
	long long before = refaults_so_far();
	int status = -1, fd;
	pid_t pid;

	pid = fork();
	if (!pid)
		use(disk, seed);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		tap_bail("the user of memory ended with status %d", status);
	before = refaults_so_far() - before;
	/* The next run begins without a page of the file, too. */
	fd = open(disk, O_RDONLY | O_CLOEXEC);
	if (posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		tap_bail("pages of a disk cannot be dropped");
	close(fd);
	return before;
}

/*
 * A page that may move up for all that the scan knows, is always in use, and never moves: while
 * it finds nothing the scan walks less often.
 */
static struct content *attract(void)
{
	struct content *content = pghot_memory(node_slow(), page_bytes(), false, 1);
	struct iovec page = { content->at, page_bytes() };
	int pipes[2];

	if (pipe2(pipes, O_CLOEXEC) || vmsplice(pipes[1], &page, 1, 0) != (ssize_t)page_bytes() ||
	    madvise(content->at, page_bytes(), MADV_DONTFORK))
		tap_bail("no page is held: %s", strerror(errno));
	content->pause_us = 20000;
	content_start_writers(content);
	return content;
}

/*
 * A round is a run without the scan and one with it, in turn: what was reclaimed before changes what
 * comes next. Runs of the same kind differ by a tenth, so rounds go on while the sums say too much.
 */
static void test(const char *lru, const char *enabled, const char *disk, int least)
{
	long long sums[2] = { 0 }, counts[2], scanned, walks = LLONG_MAX;
	int round;

	file_need(enabled, LRU_GEN);
	for (round = 0; round < least || (round < ROUNDS && sums[1] > sums[0] + sums[0] / 20);
	     round++) {
		for (int turn = 0; turn < 2; turn++) {
			int on = (round + turn) & 1;

			scanned = pghot_status("scanned_ptes");
			if (on)
				pghot_start(PGHOT_PGTSCAN);
			counts[on] = refaults(disk, SEED + round);
			pghot_stop();
			sums[on] += counts[on];
			scanned = pghot_status("scanned_ptes") - scanned;
			if (on && scanned / PAGES < walks)
				walks = scanned / PAGES;
		}
		tap_note("%s, round %d: %lld pages read back without the scan, %lld with it",
			 lru, round, counts[0], counts[1]);
	}
	tap_note("%s: %lld pages read back without the scan, %lld with it, at least %lld walks",
		 lru, sums[0], sums[1], walks);
	tap_ok(sums[0] > round * PAGES / 2 && walks >= WALKS,
	       "%s: memory is short, and scanned all the time", lru);
	tap_ok(sums[1] <= sums[0] + sums[0] / 20, "%s: the scan adds at most 5%% refaults", lru);
}

/* In a child: memory in use that is not scanned until @go. Ends with what is wrong. */
static void use_unscanned(volatile bool *go, volatile size_t *moved)
{
	struct content *content = pghot_memory(node_slow(), BYTES, false, 1);
	size_t pages = BYTES / page_bytes();

	content_start_writers(content);
	while (!*go)
		*moved = pages_off(content->at, BYTES, node_slow());
	*moved = pages_off(content->at, BYTES, node_slow());
	if (prctl(PR_SET_PGHOT_SCAN, 1, 0, 0, 0))
		_exit(1);
	*moved += pghot_wait_moved(content->at, BYTES, node_slow(), pages, PATIENCE_MS);
	content_stop_writers(content);
	_exit(*moved != pages || content_wrong(content, "left out"));
}

static void test_left_out(void)
{
	struct content *content = pghot_memory(node_slow(), BYTES, false, 1);
	size_t pages = BYTES / page_bytes(), moved, before;
	struct shared {
		volatile bool go;
		volatile size_t moved;
	} *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = -1;
	pid_t pid;

	tap_ok(prctl(PR_GET_PGHOT_SCAN, 0, 0, 0, 0) == 1 &&
	       prctl(PR_SET_PGHOT_SCAN, 2, 0, 0, 0) && errno == EINVAL &&
	       prctl(PR_SET_PGHOT_SCAN, 0, 1, 0, 0) && errno == EINVAL &&
	       prctl(PR_GET_PGHOT_SCAN, 1, 0, 0, 0) && errno == EINVAL,
	       "who asks for nothing is scanned; nonsense is refused");
	/* The child inherits it. */
	prctl(PR_SET_PGHOT_SCAN, 0, 0, 0, 0);
	pid = fork();
	if (!pid)
		use_unscanned(&shared->go, &shared->moved);
	prctl(PR_SET_PGHOT_SCAN, 1, 0, 0, 0);
	pghot_start(PGHOT_PGTSCAN);
	content_start_writers(content);
	moved = pghot_wait_moved(content->at, BYTES, node_slow(), pages, PATIENCE_MS);
	content_stop_writers(content);
	before = shared->moved;
	shared->go = true;
	waitpid(pid, &status, 0);
	pghot_stop();
	tap_ok(moved == pages && !before,
	       "who asked not to be scanned is left out: %zu pages went up, and %zu of theirs",
	       moved, before);
	tap_ok(!status, "and is not any more when it asks again");
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PGHOT_SCAN, 0, 0, 0, 0);
		execl("/proc/self/exe", "pghot_scan", "is-scanned", NULL);
		_exit(2);
	}
	waitpid(pid, &status, 0);
	tap_ok(!status, "the program that it executes is left out, too");
	tap_ok(!content_wrong(content, "scanned"), "contents");
	pghot_memory_drop(content);
	munmap(shared, sizeof(*shared));
}

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[2]) : 12;
	struct content *content;
	const char *disk;

	if (argc > 1 && !strcmp(argv[1], "is-scanned"))
		return prctl(PR_GET_PGHOT_SCAN, 0, 0, 0, 0);
	tap_start();
	nodes_with_memory();
	pghot_init();
	if (!pghot_has(PGHOT_PGTSCAN))
		tap_bail("this kernel does not scan page tables");
	if (argc < 2 || strcmp(argv[1], "refaults")) {
		test_left_out();
		return tap_done();
	}
	disk_swap(128UL << 20);
	disk = disk_new(USED_BYTES);
	file_restore_at_exit(LRU_GEN);
	cgroup_make(GROUP);
	/* A page that is read back is one that was used. */
	file_set("0", PAGE_CLUSTER);
	file_need_number(LIMIT_BYTES, "%s/%s/memory.max", cgroup_root(), GROUP);
	content = attract();
	test("classic LRU", "0", disk, rounds);
	test("multi-generational LRU", "7", disk, rounds);
	content_stop_writers(content);
	return tap_done();
}
