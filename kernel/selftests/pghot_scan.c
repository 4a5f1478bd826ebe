// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_scan [refaults]: who asked for it by prctl(2) is not scanned for hot pages. "refaults"
 * compares what the scan does to reclaim, which reads the accessed bits that it clears: under
 * memory pressure a group at its limit reads back about as many pages as without the scan, with
 * the classic and with the multi-generational LRU.
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
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PR_SET_PGHOT_SCAN
#define PR_SET_PGHOT_SCAN	0x70676873
#define PR_GET_PGHOT_SCAN	0x70676867
#endif

#define PATIENCE_MS	120000
#define BYTES		(4UL << 20)

#define LRU_GEN	"/sys/kernel/mm/lru_gen/enabled"
#define GROUP	"refaults"

/* What is used all the time, what streams by, a piece of it, and what fits of both. */
#define HOT_BYTES	(16UL << 20)
#define COLD_BYTES	(48UL << 20)
#define PIECE_BYTES	(1UL << 20)
#define LIMIT_BYTES	(32UL << 20)

#define PASSES	4
/*
 * One of each in turn, since what was reclaimed before changes what comes next. Three rounds
 * differ by 6% from three others.
 */
#define ROUNDS	12

static void touch(volatile unsigned char *at, size_t bytes)
{
	for (size_t offset = 0; offset < bytes; offset += page_bytes())
		at[offset]++;
}

/* In the group. What is bound to its node stays there, and only the LRU lists see the scan. */
static void use(void)
{
	unsigned char *hot, *cold;

	cgroup_enter(GROUP);
	memory_policy(MPOL_BIND, node_slow());
	hot = map_anonymous(HOT_BYTES, false);
	cold = map_anonymous(COLD_BYTES, false);
	for (int pass = 0; pass < PASSES; pass++)
		for (size_t at = 0; at < COLD_BYTES; at += PIECE_BYTES) {
			touch(cold + at, PIECE_BYTES);
			touch(hot, HOT_BYTES);
			/* Between two pieces, as between two requests, the scan has a turn. */
			usleep(20000);
		}
	_exit(0);
}

/* Pages that the group read back in one run. */
static long long refaults(void)
{
	long long before = cgroup_stat(GROUP, "memory.stat", "workingset_refault_anon"), after;
	int status = -1;
	pid_t pid;

	pid = fork();
	if (!pid)
		use();
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		tap_bail("the user of memory ended with status %d", status);
	/* Reading it brings what its CPUs counted together. */
	after = cgroup_stat(GROUP, "memory.stat", "workingset_refault_anon");
	if (before < 0 || after < before)
		tap_bail("the group has no count of refaults");
	return after - before;
}

static void test(const char *lru, const char *enabled)
{
	long long sums[2] = { 0 }, scanned = 0;

	if (file_write(enabled, LRU_GEN))
		tap_bail("%s: this kernel has no choice of LRUs", lru);
	for (int round = 0; round < ROUNDS; round++)
		for (int on = 0; on < 2; on++) {
			scanned -= pghot_status("scanned_ptes");
			if (on)
				pghot_start(PGHOT_PGTSCAN);
			sums[on] += refaults();
			pghot_stop();
			scanned += pghot_status("scanned_ptes");
		}
	tap_note("%s: %lld pages read back without the scan, %lld with it, which looked at %lld entries",
		 lru, sums[0], sums[1], scanned);
	tap_ok(sums[0] > (long long)(ROUNDS * COLD_BYTES / page_bytes()) &&
	       scanned > (long long)(ROUNDS * (HOT_BYTES + COLD_BYTES) / page_bytes()),
	       "%s: memory is short, and scanned", lru);
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
	tap_ok(!content_wrong(content, "scanned"), "contents");
	pghot_memory_drop(content);
	munmap(shared, sizeof(*shared));
}

int main(int argc, char **argv)
{
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
	file_restore_at_exit(LRU_GEN);
	cgroup_make(GROUP);
	if (file_write_number(LIMIT_BYTES, "%s/%s/memory.max", cgroup_root(), GROUP))
		tap_bail("the group gets no limit");
	test("classic LRU", "0");
	test("multi-generational LRU", "7");
	return tap_done();
}
