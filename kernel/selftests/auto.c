// SPDX-License-Identifier: GPL-2.0-only
/*
 * auto [measure ROUNDS [LEARNING KIB [huge]]]: several migrators at once. Each reason has its own, their
 * modules stay while they are chosen, "auto" tries what there is and tells what it learnt, and
 * with "only" no page is moved by another copy.
 *
 * measure: what "auto" takes against the others, as ratios of times that are taken in turn. Of
 * base pages of KIB, or of THPs, alone after 4 * LEARNING moves.
 */
#include "clock.h"
#include "content.h"
#include "engine.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "modules.h"
#include "nodes.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LEARNT		"/sys/kernel/debug/migration/auto"
#define BYTES		(4UL << 20)
#define PATIENCE_MS	180000
#define LEARNING		2500
#define MAX_ROUNDS	99

static void choose(const char *migrator, const char *reasons)
{
	file_need(reasons, MIGRATION "/reasons");
	file_need(migrator, MIGRATION "/migrator");
}

static void test_pinned(void)
{
	choose("auto", "all default");
	tap_ok(module_unload("mtcopy") < 0 && mtcopy_loaded(), "auto: mtcopy cannot be unloaded");
	tap_ok(module_unload("dcbm") < 0 && module_loaded("dcbm"), "auto: nor can dcbm");
	choose("none", "demotion mtcopy");
	tap_ok(module_unload("mtcopy") < 0 && mtcopy_loaded(), "for one reason: mtcopy cannot be unloaded");
	choose("none", "all default");
	tap_ok(!module_unload("mtcopy") && !mtcopy_loaded(), "for none it can");
	choose("auto", "all default");
	tap_ok(!module_load("mtcopy", "") && module_unload("mtcopy") < 0, "auto takes on what comes");
}

/* Moves by move_pages(2) and by mbind(2); what each migrator copied of it. */
static void test_reasons(void)
{
	struct stats dcbm, mtcopy;
	struct memory memory;
	size_t left;

	choose("none", "syscall_or_cpuset dcbm\nmempolicy_mbind mtcopy");
	/* Without an idle CPU mtcopy would decline. */
	file_write("0", MTCOPY_PARAMS "/idle_only");
	memory_need(&memory, "anonymous", BYTES, node_at(0), 0);
	dcbm = migrator_stats("dcbm");
	mtcopy = migrator_stats("mtcopy");
	left = memory_move(&memory, node_at(1), 3);
	dcbm = migrator_since("dcbm", dcbm);
	mtcopy = migrator_since("mtcopy", mtcopy);
	tap_ok(!left && dcbm.bytes >= (long long)memory.bytes && !mtcopy.bytes,
	       "move_pages has dcbm alone");
	dcbm = migrator_stats("dcbm");
	mtcopy = migrator_stats("mtcopy");
	if (bind_range(memory.at, memory.bytes, MPOL_BIND, node_at(0),
		       MPOL_MF_MOVE | MPOL_MF_STRICT))
		tap_note("mbind did not move all");
	dcbm = migrator_since("dcbm", dcbm);
	mtcopy = migrator_since("mtcopy", mtcopy);
	file_write("1", MTCOPY_PARAMS "/idle_only");
	tap_ok(mtcopy.bytes > 0 && !dcbm.bytes, "mbind has mtcopy alone");
	tap_ok(!memory_wrong(&memory, "reasons"), "reasons: contents");
	memory_drop(&memory);
}

/* Moves one kind and sees that what moved, dcbm copied. Returns how many pages moved. */
static size_t move_only(const struct kind *kind, const char *engine)
{
	/* KSM gives two addresses one page. */
	size_t addresses = strcmp(kind->name, "merged") ? 1 : 2;
	struct memory memory;
	struct stats done;
	size_t moved = 0, wrong;

	/* A write to a shared page makes a new one, which may lie elsewhere: no migration. */
	if (!memory_make(&memory, kind, HUGE_BYTES, node_at(0),
			 kind->readonly || kind->shared ? 0 : 1))
		return 0;
	done = migrator_stats("dcbm");
	content_start_writers(memory.content);
	for (int n = 1; n <= 4; n++)
		memory_move_counting(&memory, node_at(n), 2, &moved);
	content_stop_writers(memory.content);
	done = migrator_since("dcbm", done);
	wrong = memory_wrong(&memory, kind->name);
	tap_note("%s, %s: %zu pages moved; folios %lld, refused %lld", kind->name, engine, moved,
		 done.folios, done.refused);
	tap_ok((long long)((moved + addresses - 1) / addresses * page_bytes()) <= done.bytes &&
		       !wrong,
	       "only, %s, %s: dcbm copied all that moved, contents", engine, kind->name);
	tap_ok(done.refused > 0 || moved, "only, %s, %s: what stayed is counted", engine,
	       kind->name);
	if (!memory_drop(&memory))
		tap_ok(false, "only, %s, %s: others saw something wrong", engine, kind->name);
	return moved;
}

static void test_only(void)
{
	unsigned int good = 0, batch = 0;
	size_t moved;

	choose("kernel", "syscall_or_cpuset dcbm only");
	/* Nothing is copied by DMA, so what moved, a CPU has copied. */
	engine_set("error_every", 1);
	for (unsigned int n = 0; n < nr_kinds; n++)
		if (kinds[n].moves && kind_possible(&kinds[n])) {
			moved = move_only(&kinds[n], "each copy fails");
			tap_ok(!moved, "only: with an engine that fails no %s moves",
			       kinds[n].name);
		}
	engine_heal();
	for (unsigned int n = 0; n < nr_kinds; n++)
		if (kinds[n].moves && kind_possible(&kinds[n])) {
			moved = move_only(&kinds[n], "good");
			batch += kinds[n].batch;
			good += kinds[n].batch && moved;
			if (!kinds[n].batch)
				tap_ok(!moved, "only: %s stays", kinds[n].name);
		}
	tap_ok(good && good == batch, "only: what dcbm copies moves, %u of %u kinds", good, batch);
	/* A single page: no batch is too small, with the default of min_batch_bytes. */
	file_write_number(MIN_BATCH, MIN_BATCH_BYTES);
	moved = 0;
	{
		struct memory memory;

		memory_need(&memory, "anonymous", page_bytes(), node_at(0), 0);
		memory_move_counting(&memory, node_at(1), 3, &moved);
		memory_drop(&memory);
	}
	tap_ok(moved == 1, "only: a single page is copied by dcbm");
	file_write("0", MIN_BATCH_BYTES);
}

/* The line of move_pages(2) with base pages, of batches of this size; false if there is none. */
static bool learnt(const char *folio, size_t bytes, unsigned long *batches, unsigned long *plain,
		   char *choice, unsigned long *gain)
{
	char text[16384], wanted[64], *line;

	if (file_read(text, sizeof(text), LEARNT) ||
	    strncmp(text, "reason folio bytes batches plain choice gain", 44))
		tap_bail(LEARNT " cannot be read");
	snprintf(wanted, sizeof(wanted), "\nsyscall_or_cpuset %s %zu ", folio, bytes);
	line = strstr(text, wanted);
	return line && sscanf(line + strlen(wanted), "%lu %lu %63s %lu", batches, plain, choice,
			      gain) == 4;
}

static void test_learns(void)
{
	struct stats before = migrator_stats("auto"), dcbm = migrator_stats("dcbm"), all;
	struct stats mtcopy = migrator_stats("mtcopy");
	unsigned long batches = 0, plain = 0, gain = 0;
	long long end = now_ms() + PATIENCE_MS;
	struct memory memory;
	char choice[64] = "";
	unsigned int moves = 0;
	bool tried;

	file_write_number(MIN_BATCH, MIN_BATCH_BYTES);
	/* All that was learnt before is forgotten. */
	choose("none", "all default");
	choose("auto", "all default");
	memory_need(&memory, "anonymous", BYTES, node_at(0), 0);
	do {
		memory_move(&memory, node_at(++moves), 1);
		tried = migrator_since("dcbm", dcbm).bytes + migrator_since("mtcopy", mtcopy).bytes;
	} while (now_ms() < end && (moves < 256 || !tried));
	all = migrator_since("auto", before);
	tap_ok(tried, "auto: tries others than the plain copy, of %u moves", moves);
	tap_ok(learnt("base", BYTES, &batches, &plain, choice, &gain) && batches >= moves / 2 &&
	       plain <= batches && gain > 0, "auto: tells what it learnt");
	tap_note("%lu batches, %lu plain, choice %s, gain %lu; %lld bytes measured", batches, plain,
		 choice, gain, all.bytes);
	tap_ok(plain >= 8, "auto: begins with the plain copy");
	tap_ok(!memory_wrong(&memory, "auto"), "auto: contents");
	memory_drop(&memory);
	choose("none", "all default");
	tap_ok(!learnt("base", BYTES, &batches, &plain, choice, &gain), "auto: forgets when it is left");
	file_write("0", MIN_BATCH_BYTES);
}

/* Of several moves to and fro, in ns. */
static double move_ns(struct memory *memory, const char *migrator, unsigned int *moves)
{
	long long begin;

	file_need(migrator, MIGRATION "/migrator");
	begin = now_ns(CLOCK_MONOTONIC);
	for (int n = 0; n < 4; n++)
		memory_move(memory, node_at(++*moves), 1);
	return now_ns(CLOCK_MONOTONIC) - begin;
}

/*
 * Medians of rounds of all in turn, after "auto" has learnt; a reason that nobody has keeps its
 * state. Only contents are asserted: what else the host does changes the ratios.
 */
static void measure(const char *kind, size_t bytes, unsigned int rounds, unsigned int learning)
{
	static const char *const names[] = { "none", "mtcopy", "dcbm", "auto" };
	static double ns[ARRAY_SIZE(names)][MAX_ROUNDS];
	double middle[ARRAY_SIZE(names)], best;
	struct memory memory;
	unsigned long batches = 0, plain = 0, gain = 0;
	unsigned int moves = 0;
	char choice[64] = "unknown";

	memory_need(&memory, kind, bytes, node_at(0), 0);
	for (unsigned int n = 0; n < learning; n++)
		move_ns(&memory, "auto", &moves);
	for (unsigned int n = 0; n < rounds; n++)
		for (unsigned int k = 0; k < ARRAY_SIZE(names); k++) {
			/* To and fro, so that none always comes after the same one. */
			unsigned int i = n % 2 ? ARRAY_SIZE(names) - 1 - k : k;

			ns[i][n] = move_ns(&memory, names[i], &moves);
		}
	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++)
		middle[i] = median_of(ns[i], rounds);
	best = middle[1] < middle[2] ? middle[1] : middle[2];
	learnt(strchr(kind, ' ') ? "huge" : "base", bytes < BYTES ? bytes : BYTES, &batches, &plain,
	       choice, &gain);
	tap_note("%zu KiB, %s, learnt: %lu batches, %lu plain, %s, gain %lu", bytes >> 10, kind,
		 batches, plain, choice, gain);
	tap_note("%zu KiB, %s: %.3f of none, %.3f of the better of mtcopy (%.3f) and dcbm (%.3f)",
		 bytes >> 10, kind, middle[0] / middle[3], best / middle[3], middle[0] / middle[1],
		 middle[0] / middle[2]);
	tap_ok(!memory_wrong(&memory, kind), "measure, %s, %zu KiB: contents", kind, bytes >> 10);
	memory_drop(&memory);
}

/* Each page is touched once, or an emulator's host would make it while a batch is timed. */
static void warm(void)
{
	for (int n = 0; n < nodes_with_memory(); n++) {
		int node = node_at(n);
		long long bytes = node_free_bytes(node) - 4 * node_reserve_bytes(node);
		void *at;

		if (bytes < (long long)HUGE_BYTES)
			continue;
		bytes -= bytes % HUGE_BYTES;
		at = map_anonymous(bytes, true);
		if (!populate_on(node, at, bytes))
			tap_note("node %d was not touched as a whole", node);
		munmap(at, bytes);
	}
}

static void measure_all(unsigned int rounds)
{
	for (size_t bytes = 4 << 10; bytes <= BYTES; bytes *= bytes < 128 << 10 ? 32 : 2)
		measure("anonymous", bytes, rounds, LEARNING);
	for (size_t bytes = HUGE_BYTES; bytes <= 8 * HUGE_BYTES; bytes *= 2)
		measure("anonymous, 2048 KiB", bytes, rounds, LEARNING);
}

int main(int argc, char **argv)
{
	bool measuring = argc > 2 && !strcmp(argv[1], "measure");

	/* The machine's own engine is measured, if it has one. */
	if (measuring && file_exists("/sys/class/dma/dma0chan0")) {
		tap_start();
		nodes_with_memory();
		migrator_needed();
		atexit(migrator_defaults);
		migrator_need("dcbm");
	} else {
		engine_test();
		engine_start("channels=4");
	}
	if (module_load("mtcopy", ""))
		tap_bail("mtcopy cannot be loaded");
	if (measuring) {
		int rounds = atoi(argv[2]);

		if (rounds < 1 || rounds > MAX_ROUNDS)
			tap_bail("1 to %d rounds", MAX_ROUNDS);
		file_write_number(MIN_BATCH, MIN_BATCH_BYTES);
		choose("none", "damon auto");
		warm();
		if (argc > 4)
			measure(argc > 5 ? "anonymous, 2048 KiB" : "anonymous",
				atoi(argv[4]) * 1024UL, rounds, atoi(argv[3]));
		else
			measure_all(rounds);
		return tap_done();
	}
	test_pinned();
	test_reasons();
	test_only();
	test_learns();
	return tap_done();
}
