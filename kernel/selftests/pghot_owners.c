// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_owners: with every source, hot pages go only to nodes that their owners may use: the
 * cgroup that is charged, the processes that map them, and the policies of mappings and files.
 */
#include "cgroup.h"
#include "clock.h"
#include "files.h"
#include "memory.h"
#include "nodes.h"
#include "pghot.h"
#include "tap.h"
#include "task.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES		(2UL << 20)
#define PAGES		(BYTES / page_bytes())
#define PATIENCE_MS	120000
#define GROUP		"owner"
/* To change the protection of so much takes a while, with the lock of the address space held. */
#define CHANGED_BYTES	(16UL << 20)

#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC	(1 << 15)
#endif

enum nodes { NEAR, OTHER, SLOW };

static int node_number[3];

static unsigned long mask(unsigned int nodes)
{
	unsigned long bits = 0;

	for (int n = 0; n < 3; n++)
		if (nodes & 1 << n)
			bits |= 1UL << node_number[n];
	return bits;
}

/* Whose owner may use which nodes, and by what. */
struct rule {
	const char *name;
	bool anonymous;
	/* of the mapping */
	int mode;
	/* the process that makes and uses it: of the task, or of its cgroup */
	int task_mode;
	bool cpuset;
	/* Only the process that made it is bound. It sleeps, and another one uses its memory. */
	bool lent;
	unsigned int nodes;
	/* Sources that see it: what they do not report stays. */
	unsigned int sources;
};

#define EVERY	(1 << PGHOT_HINTFAULT | 1 << PGHOT_HWHINT | 1 << PGHOT_PGTSCAN)

static const struct rule rules[] = {
	{ "free", .nodes = 7, .sources = EVERY },
	{ "free, anonymous", .anonymous = true, .nodes = 7, .sources = EVERY },
	{ "bound file", .mode = MPOL_BIND, .nodes = 1 << SLOW, .sources = 0 },
	{ "bound mapping", .anonymous = true, .mode = MPOL_BIND, .nodes = 1 << SLOW },
	/* It is bound to be on both: what lies here stays. */
	{ "interleaved file", .mode = MPOL_INTERLEAVE, .nodes = 1 << SLOW },
	{ "interleaved mapping", .anonymous = true, .mode = MPOL_INTERLEAVE, .nodes = 1 << SLOW },
	{ "balanced between two nodes", .mode = MPOL_BIND | MPOL_F_NUMA_BALANCING,
	  .nodes = 1 << OTHER | 1 << SLOW, .sources = EVERY & ~(1 << PGHOT_HINTFAULT) },
	{ "bound process", .task_mode = MPOL_BIND, .nodes = 1 << SLOW },
	{ "cpuset of the other node", .cpuset = true, .nodes = 1 << OTHER | 1 << SLOW,
	  .sources = EVERY },
	{ "lent from a cpuset", .cpuset = true, .lent = true, .nodes = 1 << SLOW },
};

#define RULES	ARRAY_SIZE(rules)

/* In memory that all processes share. */
struct region {
	volatile size_t on[3];
	volatile unsigned long uses;
	volatile bool made;
	pid_t maker;
	int fd;
	int faults;
	unsigned char *at;
};

/* Lets the next write to each page of anonymous memory be a fault, which changes nothing else. */
static void expect_writes(struct region *region)
{
	struct uffdio_writeprotect range = {
		.range = { .start = (unsigned long)region->at, .len = BYTES },
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};

	if (ioctl(region->faults, UFFDIO_WRITEPROTECT, &range))
		tap_bail("memory cannot be protected: %s", strerror(errno));
}

static void register_faults(struct region *region)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_WP_ASYNC };
	struct uffdio_register range = {
		.range = { .start = (unsigned long)region->at, .len = BYTES },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	region->faults = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (region->faults < 0 || ioctl(region->faults, UFFDIO_API, &api) ||
	    ioctl(region->faults, UFFDIO_REGISTER, &range))
		tap_bail("no userfaultfd: %s", strerror(errno));
}

static void map_region(struct region *region, const struct rule *rule)
{
	region->at = rule->anonymous ? map_anonymous(BYTES, false) : reserve(BYTES);
	if (!rule->anonymous && mmap(region->at, BYTES, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_FIXED, region->fd, 0) == MAP_FAILED)
		tap_bail("%s cannot be mapped: %s", rule->name, strerror(errno));
	/* Or the next write copies what a child shares, to where the policy says. */
	madvise(region->at, BYTES, MADV_DONTFORK);
}

static void make_region(struct region *region, const struct rule *rule)
{
	unsigned long bits = mask(rule->mode == MPOL_INTERLEAVE ? 7 : rule->nodes);

	map_region(region, rule);
	memory_policy(MPOL_BIND, node_number[SLOW]);
	memset(region->at, 1, BYTES);
	memory_policy(rule->task_mode, node_number[SLOW]);
	if (rule->mode && syscall(SYS_mbind, region->at, BYTES, rule->mode, &bits, 64, 0))
		tap_bail("%s: mbind: %s", rule->name, strerror(errno));
	pages_settle(region->at);
	if (pages_on(region->at, BYTES, node_number[SLOW]) != PAGES)
		tap_bail("%s is not on the slow node", rule->name);
	if (rule->anonymous)
		register_faults(region);
	region->made = true;
}

static void use_region(struct region *region, enum pghot_source source)
{
	/* Samples are those of faults; anonymous memory that is mapped again is other memory. */
	if (source == PGHOT_HWHINT && region->faults > 0)
		expect_writes(region);
	else if (source == PGHOT_HWHINT)
		madvise(region->at, BYTES, MADV_DONTNEED);
	rewrite_pages(region->at, BYTES);
	if (region->uses++ % 8)
		return;
	for (int n = 0; n < 3; n++)
		region->on[n] = pages_on(region->at, BYTES, node_number[n]);
}

static void wait_made(const struct region *region, const struct rule *rule)
{
	if (!wait_until(region->made, PATIENCE_MS, 1000))
		tap_bail("%s was not made", rule->name);
}

static void child_dies_with_us(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* A process of its own makes it, and uses it unless it is lent. */
static void start_region(struct region *region, const struct rule *rule, enum pghot_source source)
{
	char mems[32];

	memset(region, 0, sizeof(*region));
	region->fd = memfd_create("region", 0);
	if (region->fd < 0 || ftruncate(region->fd, BYTES))
		tap_bail("no memory file: %s", strerror(errno));
	if (!rule->cpuset && !rule->task_mode) {
		make_region(region, rule);
		return;
	}
	region->maker = fork();
	if (!region->maker) {
		child_dies_with_us();
		if (rule->cpuset) {
			snprintf(mems, sizeof(mems), rule->nodes & 1 << OTHER ? "%d,%d" : "%d",
				 node_number[SLOW], node_number[OTHER]);
			cgroup_make(rule->lent ? GROUP "-lends" : GROUP);
			file_write(mems, "%s/%s/cpuset.mems", cgroup_root(),
				   rule->lent ? GROUP "-lends" : GROUP);
			cgroup_enter(rule->lent ? GROUP "-lends" : GROUP);
		}
		make_region(region, rule);
		while (!rule->lent)
			use_region(region, source);
		for (;;)
			pause();
	}
	wait_made(region, rule);
	if (rule->lent)
		map_region(region, rule);
}

static bool is_ours(const struct rule *rule)
{
	return rule->lent || (!rule->cpuset && !rule->task_mode);
}

static void end_region(struct region *region, const struct rule *rule)
{
	if (region->maker > 0)
		child_kill(region->maker);
	if (is_ours(rule))
		munmap(region->at, BYTES);
	if (region->faults > 0)
		close(region->faults);
	close(region->fd);
}

/* Uses everything until what may move has left the slow node. */
static bool use_until_moved(struct region *regions, enum pghot_source source)
{
	long long end = now_ms() + PATIENCE_MS;
	bool all;

	do {
		all = true;
		for (unsigned int r = 0; r < RULES; r++) {
			if (is_ours(&rules[r]))
				use_region(&regions[r], source);
			all &= !(rules[r].sources & 1 << source) || !regions[r].on[SLOW];
			all &= regions[r].uses > 8;
		}
	} while (!all && now_ms() < end);
	return all;
}

static void test(enum pghot_source source)
{
	struct region *regions = mmap(NULL, sizeof(*regions) * RULES, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	long long failed;

	for (unsigned int r = 0; r < RULES; r++)
		start_region(&regions[r], &rules[r], source);
	failed = pghot_status("failed_owner");
	pghot_start(source);
	use_until_moved(regions, source);
	/* What is bound has been used for as long as it takes the rest to move once more. */
	for (unsigned int r = 0; r < 2; r++) {
		end_region(&regions[r], &rules[r]);
		start_region(&regions[r], &rules[r], source);
	}
	use_until_moved(regions, source);
	pghot_stop();
	failed = pghot_status("failed_owner") - failed;
	/* What is lent is used by a process that may use all nodes, and so is reported. */
	tap_ok(failed >= (long long)PAGES, "%s: %lld times the owners of a page refused",
	       pghot_sources[source], failed);
	for (unsigned int r = 0; r < RULES; r++) {
		const volatile size_t *on = regions[r].on;
		bool moves = rules[r].sources & 1 << source;

		if (is_ours(&rules[r])) {
			regions[r].uses = 0;
			use_region(&regions[r], PGHOT_PGTSCAN);
		}
		tap_ok(moves ? !on[SLOW] && (rules[r].nodes & 1 || !on[NEAR]) : on[SLOW] == PAGES,
		       "%s, %s: %zu, %zu and %zu pages on nodes %d, %d and %d", pghot_sources[source],
		       rules[r].name, on[0], on[1], on[2], node_number[0], node_number[1],
		       node_number[2]);
		end_region(&regions[r], &rules[r]);
	}
	munmap(regions, sizeof(*regions) * RULES);
}

/* One page of so many is ours, among a neighbour's that are used from the other node. */
#define OURS_EVERY	32

/* Where a section's pages go is what its owner's accesses say, not what a neighbour's do. */
static void test_neighbour(void)
{
	const struct rule rule = { .name = "shared with a neighbour" };
	struct region *region = mmap(NULL, sizeof(*region), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	long long end = now_ms() + PATIENCE_MS;
	size_t moved = 0, there = 0, ours = PAGES / OURS_EVERY;
	int on[BYTES / 4096];

	region->fd = memfd_create("region", 0);
	if (region->fd < 0 || ftruncate(region->fd, BYTES))
		tap_bail("no memory file: %s", strerror(errno));
	map_region(region, &rule);
	madvise(region->at, BYTES, MADV_DOFORK);
	memory_policy(MPOL_BIND, node_number[SLOW]);
	for (size_t n = 0; n < PAGES; n += OURS_EVERY)
		region->at[n * page_bytes()] = 1;
	memory_policy(MPOL_DEFAULT, 0);
	region->maker = fork();
	if (!region->maker) {
		child_dies_with_us();
		cgroup_make(GROUP "-neighbour");
		cgroup_enter(GROUP "-neighbour");
		pghot_run_on(node_number[OTHER]);
		populate_on(node_number[SLOW], region->at, BYTES);
		region->made = true;
		for (;;) {
			madvise(region->at, BYTES, MADV_DONTNEED);
			for (size_t n = 0; n < PAGES; n++)
				if (n % OURS_EVERY)
					__atomic_fetch_or(region->at + n * page_bytes(), 0,
							  __ATOMIC_RELAXED);
			region->uses++;
		}
	}
	wait_made(region, &rule);
	/* Folios that a CPU has not put on an LRU list yet stay. */
	pages_settle(region->at);
	pghot_start(PGHOT_HWHINT);
	/* Its accesses come first. */
	wait_until(region->uses >= 4, PATIENCE_MS, 1000);
	while (moved < ours && now_ms() < end) {
		madvise(region->at, BYTES, MADV_DONTNEED);
		for (size_t n = 0; n < PAGES; n += OURS_EVERY)
			__atomic_fetch_or(region->at + n * page_bytes(), 0, __ATOMIC_RELAXED);
		nodes_of(region->at, BYTES, on);
		moved = 0;
		there = 0;
		for (size_t n = 0; n < PAGES; n += OURS_EVERY) {
			moved += on[n] >= 0 && on[n] != node_number[SLOW];
			there += on[n] == node_number[NEAR];
		}
	}
	pghot_stop();
	tap_ok(there == ours, "among a neighbour's pages: %zu of %zu go to node %d, used from there",
	       there, ours, node_number[NEAR]);
	end_region(region, &rule);
	munmap(region, sizeof(*region));
}

static volatile bool stop;

/* Holds the lock of the address space half of the time. */
static void *change_mappings(void *argument)
{
	unsigned char *at = argument;

	for (int access = PROT_READ; !stop; access ^= PROT_WRITE) {
		long long start = now_ms();

		mprotect(at, CHANGED_BYTES, access);
		usleep(1000 * (now_ms() - start) + 200);
	}
	return NULL;
}

/* A policy that cannot be read now is not one that forbids. */
static void test_changing(void)
{
	const struct rule rule = { "changing mappings", .anonymous = true,
				   .mode = MPOL_BIND | MPOL_F_NUMA_BALANCING,
				   .nodes = 1 << OTHER | 1 << SLOW };
	long long owner = pghot_status("failed_owner"), busy = pghot_status("failed_busy");
	long long end = now_ms() + PATIENCE_MS;
	struct region region;
	void *changed = map_anonymous(CHANGED_BYTES, false);
	pthread_t thread;

	memset(changed, 1, CHANGED_BYTES);
	start_region(&region, &rule, PGHOT_PGTSCAN);
	thread_start(&thread, change_mappings, changed);
	pghot_start(PGHOT_PGTSCAN);
	region.on[SLOW] = PAGES;
	while (now_ms() < end) {
		use_region(&region, PGHOT_PGTSCAN);
		if (region.on[SLOW])
			continue;
		if (pghot_status("failed_busy") - busy > pghot_status("failed_owner") - owner)
			break;
		move_range(region.at, BYTES, 0, node_number[SLOW], MPOL_MF_MOVE, 1);
		region.on[SLOW] = PAGES;
	}
	stop = true;
	pthread_join(thread, NULL);
	pghot_stop();
	owner = pghot_status("failed_owner") - owner;
	busy = pghot_status("failed_busy") - busy;
	tap_ok(!region.on[SLOW] && !region.on[NEAR],
	       "while mappings change: %zu pages on node %d, %zu on node %d", region.on[OTHER],
	       node_number[OTHER], region.on[SLOW], node_number[SLOW]);
	/* Another page that is hot may be somebody's who keeps it. */
	tap_ok(busy > owner,
	       "and a page whose policy is being changed is busy: %lld times, refused %lld times",
	       busy, owner);
	end_region(&region, &rule);
	munmap(changed, CHANGED_BYTES);
}

int main(void)
{
	tap_start();
	nodes_with_memory();
	pghot_init();
	node_number[NEAR] = node_at(0);
	node_number[OTHER] = node_at(1);
	node_number[SLOW] = node_slow();
	/* All accesses come from the first node. */
	pghot_run_on(node_number[NEAR]);
	file_write_number(node_number[NEAR], PGHOT_SYSCTL "target_nid");
	pghot_scan_often();
	for (int source = 0; source < PGHOT_SOURCES; source++)
		if (pghot_has(source))
			test(source);
	if (pghot_has(PGHOT_HWHINT))
		test_neighbour();
	if (pghot_has(PGHOT_PGTSCAN))
		test_changing();
	return tap_done();
}
