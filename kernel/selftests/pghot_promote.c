// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_promote [KIND]: kmigrated promotes every kind of memory that a source can see, with every
 * migrator, while writers change it. Not one word may be lost, folios stay whole, and the
 * counters say what happened.
 */
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "pages.h"
#include "pghot.h"
#include "tap.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BYTES		(4UL << 20)
#define WRITERS		2

/* Scans for hint faults are a second apart, and begin after one more. */
#define PATIENCE_MS	40000

/* Kinds that a source does not see, though move_pages(2) moves them. */
static const struct {
	enum pghot_source source;
	const char *kind;
} unseen[] = {
	/* Linux makes no hint faults of what several processes share by copy on write, ... */
	{ PGHOT_HINTFAULT, "shared with children" },
	{ PGHOT_HINTFAULT, "merged" },
	/* ... of files that are only read, or dirty, and of those of other systems. */
	{ PGHOT_HINTFAULT, "ext4 file, read" },
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

static bool sees(enum pghot_source source, const struct kind *kind)
{
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

/* What nobody writes to has to be used all the same. */
static void read_until_moved(struct memory *memory, size_t pages)
{
	long long end = pghot_ms() + PATIENCE_MS;

	while (memory->bytes / page_bytes() -
	       pages_on(memory->at, memory->bytes, memory->node) < pages && pghot_ms() < end) {
		for (size_t offset = 0; offset < memory->bytes; offset += page_bytes())
			(void)*(volatile unsigned char *)(memory->at + offset);
		usleep(1000);
	}
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
	long long promoted, success, migrated;
	struct stats before, done;
	struct memory memory;
	char what[96];
	bool twins;

	snprintf(what, sizeof(what), "%s, by %s, %s", kind->name, pghot_sources[source], migrator);
	if (!memory_make(&memory, kind, BYTES, node_slow(), WRITERS)) {
		tap_ok(false, "%s: cannot be made", what);
		return;
	}
	pghot_settle(memory.at);
	promoted = pghot_counter("pghot_promoted");
	success = pghot_counter("pgpromote_success");
	migrated = pghot_counter("numa_pages_migrated");
	before = migrator_stats(migrator, "numa_misplaced");
	pghot_start(source);
	content_start_writers(memory.content);
	if (memory.content->nr_writers)
		pghot_wait_moved(memory.at, BYTES, memory.node, pages, PATIENCE_MS);
	else
		read_until_moved(&memory, pages);
	content_stop_writers(memory.content);
	pghot_stop();
	visits = content_visits(memory.content);
	moved = pages - pages_on(memory.at, BYTES, memory.node);
	done = migrator_since(migrator, "numa_misplaced", before);
	check_counters(what, moved, pghot_counter("pghot_promoted") - promoted,
		       pghot_counter("pgpromote_success") - success,
		       pghot_counter("numa_pages_migrated") - migrated);
	wrong = memory_wrong(&memory, what);
	folios = memory_folios(&memory);
	wanted = memory_folios_wanted(&memory);
	twins = memory_drop(&memory);
	tap_ok(moved == pages, "%s: %zu of %zu pages promoted", what, moved, pages);
	tap_ok(!wrong && twins && (visits || kind->readonly), "%s: contents, %zu pages written",
	       what, visits);
	if (stays_whole(kind))
		tap_ok(folios == wanted, "%s: %zu of %zu folios are whole", what, folios, wanted);
	if (migrator_copies(migrator) && kind->batch)
		tap_ok(done.folios > 0, "%s: %lld folios in %lld batches by the migrator", what,
		       done.folios, done.batches);
}

int main(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : NULL, *name;
	bool has[PGHOT_SOURCES];

	tap_start();
	nodes_with_memory();
	pghot_init();
	for (int source = 0; source < PGHOT_SOURCES; source++)
		has[source] = source != PGHOT_HWHINT && pghot_has(source);
	for (name = migrator_next(NULL); name; name = migrator_next(name))
		for (int source = 0; source < PGHOT_SOURCES; source++)
			for (unsigned int n = 0; has[source] && n < nr_kinds; n++)
				if (sees(source, &kinds[n]) &&
				    (!only || !strcmp(only, kinds[n].name)))
					test(&kinds[n], source, name);
	return tap_done();
}
