// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_promote [all | KIND]: kmigrated promotes every kind of memory that a source can see, with
 * every migrator in turn, or each kind with each, while writers change it. Not one word may be
 * lost, folios stay whole, and the counters say what happened. Without a name: pages go to the
 * node of the top tier that uses them, as far as that is known, else to the configured one.
 */
#include "clock.h"
#include "content.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "pages.h"
#include "pghot.h"
#include "tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES		(4UL << 20)
#define WRITERS		2
#define MIGRATORS	4

/*
 * Scans for hint faults are a second apart, and begin after one more. But they are rationed by
 * CPU time, of which checkers leave little.
 */
#define PATIENCE_MS	240000

/* With all sources off nothing is promoted, but a page that Linux compacts is nowhere for a moment. */
#define SETTLE_MS	1000

/* Kinds that a source does not see, though move_pages(2) moves them. */
static const struct {
	enum pghot_source source;
	const char *kind;
} unseen[] = {
	/* Linux makes no hint faults of what several processes share by copy on write, ... */
	{ PGHOT_HINTFAULT, "shared with children" },
	{ PGHOT_HINTFAULT, "merged" },
	/* ... and of dirty files, and those of other systems. */
	{ PGHOT_HINTFAULT, "ext4 file, written" },
	{ PGHOT_HINTFAULT, "ext4 file, 1 KiB blocks" },
	{ PGHOT_HINTFAULT, "block device" },
	{ PGHOT_HINTFAULT, "hugetlb" },
	{ PGHOT_HINTFAULT, "hugetlb, temporary" },
	/* Dirty files stay where they are, and no LRU list has what hugetlb has. */
	{ PGHOT_PGTSCAN, "ext4 file, written" },
	{ PGHOT_PGTSCAN, "ext4 file, 1 KiB blocks" },
	{ PGHOT_PGTSCAN, "block device" },
	{ PGHOT_PGTSCAN, "hugetlb" },
	{ PGHOT_PGTSCAN, "hugetlb, temporary" },
};

/*
 * Faults are the samples that every machine has. These stay where they are while they are not
 * mapped, and each store to what is not mapped is a fault.
 */
static const char *const sampled[] = {
	"shared anonymous", "memory file", "memory file, 2048 KiB", "tmpfs file",
};

static bool is_sampled(const struct kind *kind)
{
	for (unsigned int n = 0; n < ARRAY_SIZE(sampled); n++)
		if (!strcmp(sampled[n], kind->name))
			return true;
	return false;
}

static bool sees(enum pghot_source source, const struct kind *kind)
{
	if (source == PGHOT_HWHINT)
		return is_sampled(kind);
	for (unsigned int n = 0; n < ARRAY_SIZE(unseen); n++)
		if (unseen[n].source == source && !strcmp(unseen[n].kind, kind->name))
			return false;
	return kind->moves;
}

/*
 * Linux splits folios of other sizes if they were half unmapped when it tries again, as
 * unmapping them page by page may leave them.
 */
static bool stays_whole(const struct kind *kind)
{
	return !kind->folio || kind->folio == HUGE_BYTES;
}

/*
 * What nobody writes to has to be used all the same. Faults take it out of its place in turns; it
 * stays mapped elsewhere, since the copies of a file's folio that nobody has mapped are not early.
 */
static void use_until_moved(const struct memory *memory, size_t pages, enum pghot_source source)
{
	long long end = now_ms() + PATIENCE_MS;
	void *other = NULL;

	if (source == PGHOT_HWHINT) {
		other = mremap(memory->at, 0, memory->bytes, MREMAP_MAYMOVE);
		if (other == MAP_FAILED)
			tap_bail("no second place for what is shared: %s", strerror(errno));
		read_pages(other, memory->bytes);
	}
	while (pages_off(memory->at, memory->bytes, memory->node) < pages && now_ms() < end) {
		if (other) {
			madvise(memory->at, memory->bytes, MADV_DONTNEED);
			rewrite_pages(memory->at, memory->bytes);
		} else {
			read_pages(memory->at, memory->bytes);
		}
		usleep(1000);
	}
	if (other)
		munmap(other, memory->bytes);
}

static void check_counters(const char *what, size_t moved, long long promoted, long long success,
			   long long migrated)
{
	tap_note("%s: %zu pages moved; promoted %lld, pgpromote_success %lld, migrated %lld", what,
		 moved, promoted, success, migrated);
	/* Others on this machine may have hot pages, too. */
	tap_ok(promoted >= (long long)moved && success == promoted && migrated >= promoted,
	       "%s: counted as promotions", what);
}

static void test(const struct kind *kind, enum pghot_source source, const char *migrator)
{
	size_t pages = BYTES / page_bytes(), moved, visits, wrong, folios, wanted;
	/* Who writes to what others share gets a page of its own, and that is no promotion. */
	unsigned int writers = kind->shared || source == PGHOT_HWHINT ? 0 : WRITERS;
	long long promoted, success, migrated;
	struct stats before, done;
	struct memory memory;
	char what[96];
	bool twins;

	snprintf(what, sizeof(what), "%s, by %s, %s", kind->name, pghot_sources[source], migrator);
	if (!memory_test(&memory, kind, BYTES, node_slow(), writers))
		return;
	pages_settle(memory.at);
	promoted = pghot_counter("pghot_promoted");
	success = pghot_counter("pgpromote_success");
	migrated = pghot_counter("numa_pages_migrated");
	before = migrator_stats(migrator);
	pghot_start(source);
	content_start_writers(memory.content);
	if (memory.content->nr_writers)
		pghot_wait_moved(memory.at, BYTES, memory.node, pages, PATIENCE_MS);
	else
		use_until_moved(&memory, pages, source);
	content_stop_writers(memory.content);
	pghot_stop();
	visits = content_visits(memory.content);
	moved = pghot_wait_moved(memory.at, BYTES, memory.node, pages, SETTLE_MS);
	done = migrator_since(migrator, before);
	check_counters(what, moved / memory_views(&memory), pghot_counter("pghot_promoted") - promoted,
		       pghot_counter("pgpromote_success") - success,
		       pghot_counter("numa_pages_migrated") - migrated);
	wrong = memory_wrong(&memory, what);
	folios = memory_folios(&memory);
	wanted = memory_folios_wanted(&memory);
	twins = memory_drop(&memory);
	tap_ok(moved == pages, "%s: %zu of %zu pages promoted", what, moved, pages);
	tap_ok(!wrong && twins && (visits || !memory.writers), "%s: contents, %zu pages written",
	       what, visits);
	if (stays_whole(kind))
		tap_ok(folios == wanted, "%s: %zu of %zu folios are whole", what, folios, wanted);
	if (migrator_copies(migrator) && kind->batch)
		tap_ok(done.folios > 0, "%s: %lld folios by the migrator", what, done.folios);
}

/* One page of so many is used from elsewhere: too few for the section, even several times. */
#define FEW_EVERY	128
#define FEW		(BYTES / page_bytes() / FEW_EVERY)
#define FEW_TRIES	6

/* No section of memory is smaller. */
#define SECTION		(128UL << 20)

/*
 * Marks the pages of sections that have enough others to outvote whoever used the section before;
 * all where records know their node. Now and then a page comes from a section of its own.
 */
static void find_among_many(const unsigned char *at, bool *among)
{
	size_t pages = BYTES / page_bytes(), n, other, beside;
	uint64_t frames[BYTES / 4096];
	bool precise = pghot_precise();

	page_frames(at, BYTES, frames);
	for (n = 0; n < pages; n++)
		frames[n] /= SECTION / page_bytes();
	for (n = 0; n < pages; n++) {
		for (other = 0, beside = 0; other < pages; other++)
			beside += frames[other] == frames[n];
		among[n] = precise || beside >= pages / 8;
	}
}

/* How many of the pages that many or few use lie on a node, or anywhere. */
static size_t arrived(const unsigned char *at, const bool *among, bool few, int node)
{
	size_t pages = BYTES / page_bytes(), found = 0;
	int nodes[BYTES / 4096];

	nodes_of(at, BYTES, nodes);
	for (size_t n = 0; n < pages; n++)
		found += among[n] && (n % FEW_EVERY == 0) == few && (node < 0 || nodes[n] == node);
	return found;
}

static void fault_from(int node, unsigned char *at, bool few)
{
	pghot_run_on(node);
	for (size_t n = 0; n < BYTES / page_bytes(); n++)
		if ((n % FEW_EVERY == 0) == few)
			__atomic_fetch_or(at + n * page_bytes(), 0, __ATOMIC_RELAXED);
}

/* Samples say whose CPU it was. Most come from one node, few from the configured one. */
static void test_sampled_target(int user, int configured)
{
	size_t pages = BYTES / page_bytes(), moved = 0, many, few, all_many, all_few;
	bool precise = pghot_precise(), among[BYTES / 4096];
	struct memory memory;
	char what[96];

	snprintf(what, sizeof(what), "used on node %d, %s, few on node %d, which is configured",
		 user, precise ? "precise" : "default", configured);
	file_write_number(configured, PGHOT_SYSCTL "target_nid");
	memory_need(&memory, "memory file", BYTES, node_slow(), 0);
	pages_settle(memory.at);
	find_among_many(memory.at, among);
	all_many = arrived(memory.at, among, false, -1);
	all_few = arrived(memory.at, among, true, -1);
	madvise(memory.at, BYTES, MADV_DONTNEED);
	pghot_start(PGHOT_HWHINT);
	for (int tries = 0; tries < FEW_TRIES && moved < pages; tries++) {
		madvise(memory.at, BYTES, MADV_DONTNEED);
		fault_from(user, memory.at, false);
		fault_from(configured, memory.at, true);
		moved = pghot_wait_moved(memory.at, BYTES, node_slow(), pages, 3000);
	}
	pghot_stop();
	tap_ok(moved == pages && all_few >= FEW / 4, "%s: %zu of %zu pages move, %zu among many",
	       what, moved, pages, all_many + all_few);
	pghot_wait_moved(memory.at, BYTES, node_slow(), pages, SETTLE_MS);
	many = arrived(memory.at, among, false, user);
	few = arrived(memory.at, among, true, precise ? configured : user);
	tap_ok(many == all_many, "%s: %zu of %zu pages go to whoever uses them", what, many,
	       all_many);
	tap_ok(few == all_few, "%s: %zu of %zu go to %s", what, few, all_few,
	       precise ? "their own users" : "most of their section");
	memory_drop(&memory);
}

/* A scan knows the node of a process that runs on one; else the configured one is the target. */
static void test_used_target(enum pghot_source source, int user, int main_thread, int configured)
{
	struct content *content = pghot_memory(node_slow(), BYTES, false, WRITERS);
	int wanted = user == main_thread ? user : configured;
	size_t pages = BYTES / page_bytes(), there;

	file_write_number(configured, PGHOT_SYSCTL "target_nid");
	pghot_run_on(user);
	content_start_writers(content);
	pghot_run_on(main_thread);
	pghot_start(source);
	pghot_wait_moved(content->at, BYTES, node_slow(), pages, PATIENCE_MS);
	content_stop_writers(content);
	pghot_stop();
	wait_until((there = pages_on(content->at, BYTES, wanted)) == pages, SETTLE_MS, 20000);
	if (there != pages)
		tap_note("%zu pages are still on the slow node, %zu on others",
			 pages_on(content->at, BYTES, node_slow()),
			 pages_off(content->at, BYTES, node_slow()));
	tap_ok(there == pages,
	       "%s: threads on nodes %d and %d, node %d is configured: %zu of %zu pages on node %d",
	       pghot_sources[source], user, main_thread, configured, there, pages, wanted);
	pghot_memory_drop(content);
}

static void test_targets(const bool *has)
{
	int top[2] = { node_at(0), node_at(1) };

	if (top[1] == node_slow())
		tap_bail("one node of the top tier is no choice");
	for (int n = 0; n < 2; n++) {
		int user = top[n], other = top[!n];

		if (has[PGHOT_HWHINT])
			test_sampled_target(user, other);
		test_used_target(PGHOT_HINTFAULT, user, user, other);
		if (has[PGHOT_PGTSCAN]) {
			test_used_target(PGHOT_PGTSCAN, user, user, other);
			test_used_target(PGHOT_PGTSCAN, user, other, user);
			test_used_target(PGHOT_PGTSCAN, user, other, other);
		}
	}
}

/*
 * Dirty pages of files stay. To isolate one first would fail, and end the batches of all pages before
 * it. Some are clean for a moment, and dirty again once they are chosen.
 */
static void test_dirty(void)
{
	long long busy = pghot_status("failed_busy"), tried = pghot_status("failed_off_lru");
	long long pages = BYTES / page_bytes();
	struct memory memory;

	memory_need(&memory, "ext4 file, written", BYTES, node_slow(), WRITERS);
	pages_settle(memory.at);
	pghot_start(PGHOT_PGTSCAN);
	content_start_writers(memory.content);
	wait_until(pghot_status("failed_busy") - busy >= pages / 2, PATIENCE_MS, 10000);
	content_stop_writers(memory.content);
	pghot_stop();
	busy = pghot_status("failed_busy") - busy;
	tried = pghot_status("failed_off_lru") - tried;
	tap_ok(busy >= pages / 2 && tried <= pages / 16,
	       "dirty file: %lld of %lld pages left alone, %lld tried to isolate", busy, pages, tried);
	memory_drop(&memory);
}

int main(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : NULL, *name;
	unsigned int first = 0, turn;
	bool has[PGHOT_SOURCES];

	tap_start();
	nodes_with_memory();
	pghot_init();
	for (int source = 0; source < PGHOT_SOURCES; source++)
		has[source] = pghot_has(source);
	for (name = migrator_next(NULL); name; name = migrator_next(name)) {
		turn = first++;
		for (int source = 0; source < PGHOT_SOURCES; source++)
			for (unsigned int n = 0; has[source] && n < nr_kinds; n++)
				if (sees(source, &kinds[n]) &&
				    (only ? !strcmp(only, "all") || !strcmp(only, kinds[n].name) :
				     turn++ % MIGRATORS == 0))
					test(&kinds[n], source, name);
	}
	if (!only) {
		test_targets(has);
		if (has[PGHOT_PGTSCAN])
			test_dirty();
	}
	return tap_done();
}
