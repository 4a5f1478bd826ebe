// SPDX-License-Identifier: GPL-2.0-only
/*
 * contents [MILLISECONDS] [KIND]: every kind of memory moves from node to node while a writer for
 * each CPU changes it. Not one word may be lost, late or torn.
 */
#include "clock.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES		(4UL << 20)
#define TRIES		20

/* How long a page may be busy, and a writer without a CPU, on a machine that stands still. */
#define PATIENCE_MS	60000

static unsigned int nr_writers(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return cpus < 2 ? 2 : cpus < CONTENT_WRITERS ? cpus : CONTENT_WRITERS;
}

/* Returns whether every page moved; counts those that went to another node. */
static bool move_all(struct memory *memory, int node, size_t *moved)
{
	long long end = now_ms() + PATIENCE_MS;
	size_t left;

	do {
		left = memory_move_counting(memory, node, TRIES, moved);
	} while (left && now_ms() < end);
	return !left;
}

/* Whether every writer wrote, and as many pages moved as go there and back. */
static bool enough(const struct memory *memory, size_t visits, size_t moved)
{
	const struct content *content = memory->content;

	return (!content->nr_writers || content_visits(content) > visits) &&
	       moved >= 2 * memory->bytes / page_bytes();
}

/* Returns whether all of it went there and back; counts pages that went to another node. */
static bool move_about(struct memory *memory, long long ms, size_t *moved)
{
	size_t visits = content_visits(memory->content);
	long long end = now_ms() + ms, patience;
	bool all = true;

	for (int n = 1; n <= 2; n++)
		all &= move_all(memory, node_at(n), moved);
	/*
	 * A writer's own copy of a page that was shared may already lie where it should go. Patience
	 * begins here: on a slow machine there and back alone may take longer.
	 */
	patience = now_ms() + PATIENCE_MS;
	for (int n = 3; now_ms() < end || (!enough(memory, visits, *moved) && now_ms() < patience); n++)
		memory_move_counting(memory, node_at(n), TRIES, moved);
	return all;
}

/*
 * Linux splits folios of these sizes when it has to try again, because unmapping them page
 * by page leaves them partially mapped. `eligible` sees that they stay whole in peace.
 */
static bool stays_whole(const struct kind *kind)
{
	/* What one entry of a page table's next level maps: 2 MiB with base pages of 4 KiB alone. */
	return !kind->folio || (kind->folio == HUGE_BYTES && page_bytes() == 4096);
}

static void test(const struct kind *kind, enum content_way way, const char *migrator, long long ms)
{
	size_t wrong, moved = 0, visits, folios, wanted;
	struct stats before, done;
	struct memory memory;
	static const char *const ways[] = { "", ", by write(2)", ", through pins" };
	char what[96];
	bool twins, all;

	snprintf(what, sizeof(what), "%s%s, %s", kind->name, ways[way], migrator);
	if (!memory_test(&memory, kind, BYTES, node_at(0), nr_writers()))
		return;
	memory.content->way = way;
	memory.content->fd = memory.fd;
	before = migrator_stats(migrator);
	content_start_writers(memory.content);
	visits = content_visits(memory.content);
	all = move_about(&memory, ms, &moved);
	visits = content_visits(memory.content) - visits;
	content_stop_writers(memory.content);
	done = migrator_since(migrator, before);
	wrong = memory_wrong(&memory, what);
	folios = memory_folios(&memory);
	wanted = memory_folios_wanted(&memory);
	tap_note("%s: %zu pages moved, %zu written; folios %lld, fallbacks %lld",
		 what, moved, visits, done.folios, done.fallbacks);
	twins = memory_drop(&memory);
	tap_ok(!wrong && twins && (visits || kind->readonly), "%s: contents", what);
	tap_ok(all && moved >= 2 * BYTES / page_bytes(), "%s: every page moved", what);
	if (stays_whole(kind))
		tap_ok(folios == wanted, "%s: %zu of %zu folios are whole", what, folios, wanted);
	if (!migrator_copies(migrator))
		return;
	if (kind->batch && kind->folio > page_bytes())
		tap_ok(done.bytes > done.folios * (long long)page_bytes(),
		       "%s: whole folios copied by the migrator", what);
	if (kind->batch && way == CONTENT_MAPPING)
		tap_ok(done.folios > 0, "%s: copied by the migrator", what);
	else if (!kind->batch)
		tap_ok(!done.folios, "%s: not copied by the migrator", what);
}

int main(int argc, char **argv)
{
	long long ms = argc > 1 ? atoll(argv[1]) : 100;
	const char *only = argc > 2 ? argv[2] : NULL, *name;

	tap_start();
	nodes_with_memory();
	for (name = migrator_next(NULL); name; name = migrator_next(name))
		for (unsigned int n = 0; n < nr_kinds; n++) {
			if (!kinds[n].moves || !kind_possible(&kinds[n]) || (only && strcmp(only, kinds[n].name)))
				continue;
			test(&kinds[n], CONTENT_MAPPING, name, ms);
			/* The page cache, written by the kernel itself. */
			if (!strcmp(kinds[n].name, "tmpfs file") ||
			    !strcmp(kinds[n].name, "ext4 file, written"))
				test(&kinds[n], CONTENT_FILE, name, ms);
			/*
			 * A pin that is taken before the unmapping and dropped before the
			 * move: what was written through it must be there afterwards.
			 */
			if (!strcmp(kinds[n].name, "anonymous") ||
			    !strcmp(kinds[n].name, "memory file") ||
			    !strcmp(kinds[n].name, "memory file, 2048 KiB"))
				test(&kinds[n], CONTENT_PINS, name, ms);
		}
	return tap_done();
}
