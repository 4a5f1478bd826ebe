// SPDX-License-Identifier: GPL-2.0-only
/*
 * faults WHICH [BATCHES]: an engine that fails in every way that faultdma knows, each alone
 * (WHICH is "alone") or with each other ("pairs"), while pages migrate and writers write. No byte
 * is lost, what a dead channel may still write to stays in quarantine, and when the engine
 * is well again all of it comes back.
 */
#include "content.h"
#include "engine.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES		(256UL << 10)	/* a batch: four channels of 64 KiB */
#define CHANNELS	4
#define TIMEOUT_MS	30

/* struct fault - what to write where, and what counts that it came */
static const struct fault {
	const char *name;
	const struct {
		const char *file;
		unsigned int value;
	} set[4];
	const char *count;
	bool unordered;		/* only an unordered engine has it */
} faults[] = {
	{ "delays", { { "delay_us", 100 } }, "descriptors", false },
	{ "errors", { { "error_every", 7 } }, "errors", false },
	{ "lost interrupts", { { "silent_every", 3 } }, "silent", false },
	{ "no descriptors", { { "prep_every", 5 } }, "prep", false },
	{ "refused descriptors", { { "submit_every", 7 } }, "submit", false },
	{ "late writes, answered",
	  { { "hang_every", 61 }, { "late_ms", 2 * TIMEOUT_MS }, { "late_answer", 1 },
	    { "terminate", 1 } }, "late", false },
	{ "late writes after a terminate that only forgets",
	  { { "hang_every", 59 }, { "late_ms", 3 * TIMEOUT_MS }, { "terminate", 2 } }, "late",
	  false },
	{ "hangs that terminate ends", { { "hang_every", 53 } }, "hung", false },
	{ "another order", { { "shuffle", 1 } }, "descriptors", true },
};

#define NR_FAULTS	ARRAY_SIZE(faults)

static void inject(const struct fault *fault)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(fault->set) && fault->set[i].file; i++)
		engine_set(fault->set[i].file, fault->set[i].value);
}

/* Moves until there were so many batches. Returns how many pages moved. */
static size_t move_batches(struct memory *memory, unsigned int batches)
{
	size_t pages = memory->bytes / page_bytes(), moved = 0;
	unsigned int n;

	for (n = 1; n <= batches; n++) {
		moved += pages - memory_move(memory, node_at(n), 1);
		/* Retired channels come back, so that there are some to fail. */
		if (n % 8 == 0)
			file_write("retry", DCBM "/devices");
	}
	return moved;
}

/* A batch that the healthy engine copies without any help. */
static bool copies_all(struct memory *memory)
{
	struct stats before = migrator_stats("dcbm", NULL), done;
	size_t left;

	/* To another node in any case. */
	left = memory_move(memory, node_at(0), 3) + memory_move(memory, node_at(1), 3);
	done = migrator_since("dcbm", NULL, before);
	return !left && done.bytes >= (long long)memory->bytes;
}

/* What was counted of a fault and of another one, if there is one, when a test began. */
struct seen {
	const struct fault *fault, *other;
	long long count, other_count;
};

static bool both_came(const struct seen *seen)
{
	return engine_count(seen->fault->count) > seen->count &&
	       (!seen->other || engine_count(seen->other->count) > seen->other_count);
}

static void inject_both(const struct seen *seen)
{
	inject(seen->fault);
	if (seen->other)
		inject(seen->other);
}

/*
 * A channel that is retired for one fault makes no other one meanwhile, and if its engine
 * cannot be told to stop, only a healthy engine brings it back.
 */
static bool bring_back(const struct seen *seen)
{
	engine_heal();
	if (!dcbm_recovers())
		return false;
	inject_both(seen);
	return true;
}

static void test(const struct fault *fault, const struct fault *other, unsigned int batches)
{
	struct seen seen = { .fault = fault, .other = other };
	unsigned int done_batches = 0;
	long long late, errors;
	struct stats before, done;
	struct memory memory;
	char what[160];
	size_t moved, wrong, visits;

	snprintf(what, sizeof(what), "%s%s%s", fault->name, other ? " and " : "",
		 other ? other->name : "");
	if (!memory_make(&memory, kind_named("anonymous"), BYTES, node_at(0), 1))
		tap_bail("no memory");
	seen.count = engine_count(fault->count);
	seen.other_count = other ? engine_count(other->count) : 0;
	late = engine_count("late");
	errors = engine_count("errors");
	before = migrator_stats("dcbm", NULL);
	inject_both(&seen);
	content_start_writers(memory.content);
	moved = 0;
	do {
		moved += move_batches(&memory, batches);
		done_batches += batches;
	} while (!both_came(&seen) && done_batches < 20 * batches && bring_back(&seen));
	content_stop_writers(memory.content);
	done = migrator_since("dcbm", NULL, before);
	visits = content_visits(memory.content);
	tap_note("%s: %zu pages moved; batches %lld, fallbacks %lld, declined %lld, errors %lld, late %lld, quarantined %lld",
		 what, moved, done.batches, done.fallbacks, done.declined,
		 engine_count("errors") - errors, engine_count("late") - late,
		 quarantined_bytes());
	wrong = memory_wrong(&memory, what);
	engine_heal();
	tap_ok(!wrong && visits, "%s: contents", what);
	tap_ok(both_came(&seen), "%s: came", what);
	tap_ok(moved >= done_batches * (BYTES / page_bytes()) / 4, "%s: pages move", what);
	tap_ok(dcbm_recovers(), "%s: nothing stays in quarantine", what);
	tap_ok(copies_all(&memory), "%s: the engine copies all again", what);
	wrong = memory_wrong(&memory, what);
	tap_ok(memory_drop(&memory) && !wrong, "%s: contents at the end", what);
}

static void start(bool unordered)
{
	char parameters[64];

	snprintf(parameters, sizeof(parameters), "channels=%d unordered=%d", CHANNELS, unordered);
	engine_start(parameters);
	file_write("0", MIGRATION "/min_batch_bytes");
	file_write_number(CHANNELS, DCBM "/lanes");
	file_write_number(TIMEOUT_MS, DCBM "/timeout_ms");
	tap_ok(dcbm_devices("faultdma: taken") == CHANNELS ||
	       dcbm_devices(": taken") >= CHANNELS, "%s engine: its channels are taken",
	       unordered ? "unordered" : "ordered");
}

/* Each fault of this kind of engine, and each pair of them, once. */
static void test_engine(bool unordered, bool pairs, unsigned int batches)
{
	start(unordered);
	for (unsigned int a = 0; a < NR_FAULTS; a++) {
		if (faults[a].unordered && !unordered)
			continue;
		if (!pairs) {
			test(&faults[a], NULL, batches);
			continue;
		}
		for (unsigned int b = a + 1; b < NR_FAULTS; b++)
			if (!faults[b].unordered || unordered)
				test(&faults[a], &faults[b], batches);
	}
	tap_ok(engine_stop(), "%s engine: dcbm and the engine can go",
	       unordered ? "unordered" : "ordered");
	tap_ok(!quarantined_bytes(), "%s engine: nothing is in quarantine",
	       unordered ? "unordered" : "ordered");
}

int main(int argc, char **argv)
{
	bool pairs = argc > 1 && !strcmp(argv[1], "pairs");
	unsigned int batches = argc > 2 ? atoi(argv[2]) : 100;

	tap_start();
	nodes_with_memory();
	if (!migrator_kernel())
		tap_bail("no " MIGRATION ": this kernel is without migrators");
	engine_alone();
	atexit(migrator_defaults);
	test_engine(false, pairs, batches);
	test_engine(true, pairs, batches);
	return tap_done();
}
