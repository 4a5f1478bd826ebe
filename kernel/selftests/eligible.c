// SPDX-License-Identifier: GPL-2.0-only
/*
 * eligible [KIND]: which kinds of memory the batch copies, told by the migrator's statistics, and
 * that those which it must not touch move all the same, or stay if nothing moves them.
 */
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "tap.h"

#include <stdio.h>
#include <string.h>

#define BYTES	(4UL << 20)
#define TRIES	20

static void check_stats(const struct kind *kind, const char *what, struct stats done,
			size_t folios, size_t bytes)
{
	if (kind->batch)
		tap_ok(done.folios == (long long)folios && done.bytes == (long long)bytes &&
		       !done.fallbacks && !done.declined,
		       "%s: %zu folios, %zu bytes copied by the batch", what, folios, bytes);
	else
		tap_ok(!done.folios && !done.bytes,
		       "%s: nothing copied by the batch", what);
}

static void test(const struct kind *kind, const char *migrator)
{
	size_t elsewhere, wrong, folios, wanted, views, left, again;
	struct stats before, done;
	struct memory memory;
	char what[96];
	bool twins;

	snprintf(what, sizeof(what), "%s, %s", kind->name, migrator);
	if (!memory_test(&memory, kind, BYTES, node_at(0), 0))
		return;
	wanted = memory_folios_wanted(&memory);
	views = BYTES / memory.content->bytes;
	before = migrator_stats(migrator);
	elsewhere = memory_move(&memory, node_at(1), TRIES);
	done = migrator_since(migrator, before);
	folios = memory_folios(&memory);
	left = memory_move(&memory, node_at(0), TRIES);
	again = memory_folios(&memory);
	wrong = memory_wrong(&memory, what);
	twins = memory_drop(&memory);
	if (kind->moves)
		tap_ok(!elsewhere && folios == wanted,
		       "%s: %zu pages not moved, %zu of %zu folios whole", what, elsewhere,
		       folios, wanted);
	else
		tap_ok(elsewhere == BYTES / page_bytes(), "%s: stays", what);
	tap_ok(!wrong && twins, "%s: contents", what);
	/* Linux itself splits folios below 2 MiB when they move a second time. */
	if (kind->moves && kind->folio)
		tap_ok(!left && (again == wanted || kind->folio < HUGE_BYTES),
		       "%s: moves again, %zu of %zu folios whole", what, again, wanted);
	if (migrator_copies(migrator)) {
		tap_note("%s: folios %lld, bytes %lld, fallbacks %lld, declined %lld",
			 what, done.folios, done.bytes, done.fallbacks, done.declined);
		/* KSM made one page of every two. */
		check_stats(kind, what, done, wanted / views, BYTES / views);
	}
}

int main(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : NULL, *name;

	tap_start();
	nodes_with_memory();
	for (name = migrator_next(NULL); name; name = migrator_next(name))
		for (unsigned int n = 0; n < nr_kinds; n++)
			if (kind_possible(&kinds[n]) && (!only || !strcmp(only, kinds[n].name)))
				test(&kinds[n], name);
	return tap_done();
}
