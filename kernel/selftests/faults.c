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
#define KEPT_BYTES	(12LL << 20)
#define HEALTHY_MS	10000	/* for an engine without faults on a busy machine */

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
	{ "late interrupts", { { "tell_after_us", 500 } }, "told_late", false },
	{ "no descriptors", { { "prep_every", 5 } }, "prep", false },
	{ "late descriptors", { { "depth", 8 }, { "give_back_ms", 5 } }, "spent", false },
	{ "refused descriptors", { { "submit_every", 7 } }, "submit", false },
	{ "late writes, answered",
	  { { "hang_every", 61 }, { "late_ms", 2 * TIMEOUT_MS }, { "late_answer", 1 },
	    { "terminate", 1 } }, "late", false },
	{ "late writes after a terminate that only forgets",
	  { { "hang_every", 59 }, { "late_ms", 3 * TIMEOUT_MS }, { "terminate", 2 } }, "late",
	  false },
	{ "hangs that terminate ends", { { "hang_every", 53 } }, "hung", false },
	{ "hangs whose terminate does not return",
	  { { "hang_every", 67 }, { "terminate", 3 } }, "hung", false },
	{ "another order", { { "shuffle", 1 } }, "descriptors", true },
};

#define NR_FAULTS	ARRAY_SIZE(faults)

/* struct injection - a fault of the channels [@first, @end), and what was counted of it before */
struct injection {
	const struct fault *fault;
	unsigned int first;
	unsigned int end;
	long long count;
};

/* struct test - one case: a fault, and another one if there is one */
struct test {
	struct injection injections[2];
	unsigned int nr;
	char name[160];
};

static bool same_file(const struct fault *a, const struct fault *b)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(a->set) && a->set[i].file; i++)
		for (unsigned int j = 0; j < ARRAY_SIZE(b->set) && b->set[j].file; j++)
			if (!strcmp(a->set[i].file, b->set[j].file))
				return true;
	return false;
}

/* Both are faults of each channel, unless one would overwrite the other. */
static struct test make_test(const struct fault *fault, const struct fault *other)
{
	struct test test = { .nr = other ? 2 : 1 };
	bool apart = other && same_file(fault, other);

	test.injections[0] = (struct injection){ fault, 0, apart ? CHANNELS / 2 : CHANNELS, 0 };
	test.injections[1] = (struct injection){ other, apart ? CHANNELS / 2 : 0, CHANNELS, 0 };
	snprintf(test.name, sizeof(test.name), "%s%s%s", fault->name, other ? " and " : "",
		 other ? other->name : "");
	return test;
}

static long long count_of(const struct injection *injection)
{
	long long sum = 0;

	for (unsigned int channel = injection->first; channel < injection->end; channel++)
		sum += engine_count_one(channel, injection->fault->count);
	return sum;
}

static void inject(const struct test *test)
{
	for (unsigned int n = 0; n < test->nr; n++) {
		const struct injection *one = &test->injections[n];

		for (unsigned int i = 0; i < ARRAY_SIZE(one->fault->set); i++)
			for (unsigned int c = one->first; one->fault->set[i].file && c < one->end; c++)
				engine_set_one(c, one->fault->set[i].file, one->fault->set[i].value);
	}
}

static bool all_came(const struct test *test)
{
	for (unsigned int n = 0; n < test->nr; n++)
		if (count_of(&test->injections[n]) <= test->injections[n].count)
			return false;
	return true;
}

/*
 * A channel that is retired for one fault makes no other one meanwhile, and if its engine
 * cannot be told to stop, only a healthy engine brings it back.
 */
static bool bring_back(const struct test *test)
{
	engine_heal();
	if (!dcbm_recovers())
		return false;
	inject(test);
	return true;
}

/*
 * Moves until dcbm has copied at least a folio of so many batches, and each fault came. Returns
 * how many calls that took; *@moved says how many pages moved.
 */
static unsigned int move_batches(const struct test *test, struct memory *memory,
				 unsigned int batches, size_t *moved)
{
	struct stats before = migrator_stats("dcbm", NULL);
	size_t pages = memory->bytes / page_bytes();
	unsigned int n;

	*moved = 0;
	for (n = 0; n < 40 * batches; n++) {
		if (migrator_since("dcbm", NULL, before).batches >= batches && all_came(test))
			break;
		/* Retired channels come back, so that there are some to fail. */
		if (n % 8 == 7)
			file_write("retry", DCBM "/devices");
		if (n % 8 == 7 && dcbm_devices("faultdma node -1: taken") < CHANNELS / 2 &&
		    !bring_back(test))
			break;
		*moved += pages - memory_move(memory, node_at(n + 1), 1);
	}
	return n;
}

/* A batch that the healthy engine copies without any help, and in all the time that it needs. */
static bool copies_all(struct memory *memory)
{
	struct stats before = migrator_stats("dcbm", NULL), done;
	size_t left;

	file_write_number(HEALTHY_MS, DCBM "/timeout_ms");
	/* To another node in any case. */
	left = memory_move(memory, node_at(0), 3) + memory_move(memory, node_at(1), 3);
	done = migrator_since("dcbm", NULL, before);
	file_write_number(TIMEOUT_MS, DCBM "/timeout_ms");
	if (!left && done.bytes >= (long long)memory->bytes)
		return true;
	tap_note("%zu pages stayed; batches %lld, bytes %lld of %zu, fallbacks %lld, declined %lld; channels retired: %u",
		 left, done.batches, done.bytes, memory->bytes, done.fallbacks, done.declined,
		 dcbm_devices(": retired"));
	return false;
}

static void test(const struct fault *fault, const struct fault *other, unsigned int batches)
{
	long long late, errors, bytes, copied;
	struct test test = make_test(fault, other);
	const char *what = test.name;
	struct stats before, done;
	struct memory memory;
	size_t moved, wrong, visits;
	unsigned int calls;

	if (!memory_make(&memory, kind_named("anonymous"), BYTES, node_at(0), 1))
		tap_bail("no memory");
	for (unsigned int n = 0; n < test.nr; n++)
		test.injections[n].count = count_of(&test.injections[n]);
	late = engine_count("late");
	errors = engine_count("errors");
	bytes = engine_count("bytes");
	before = migrator_stats("dcbm", NULL);
	inject(&test);
	content_start_writers(memory.content);
	calls = move_batches(&test, &memory, batches, &moved);
	content_stop_writers(memory.content);
	done = migrator_since("dcbm", NULL, before);
	visits = content_visits(memory.content);
	copied = engine_count("bytes") - bytes;
	tap_note("%s: %u calls, %zu pages moved; batches %lld, fallbacks %lld, declined %lld, errors %lld, late %lld, quarantined %lld",
		 what, calls, moved, done.batches, done.fallbacks, done.declined,
		 engine_count("errors") - errors, engine_count("late") - late,
		 quarantined_bytes());
	wrong = memory_wrong(&memory, what);
	tap_ok(!wrong && visits, "%s: contents", what);
	tap_ok(all_came(&test), "%s: came", what);
	tap_ok(done.batches >= batches, "%s: %lld batches", what, done.batches);
	tap_ok(done.bytes == done.folios * (long long)page_bytes() && done.bytes <= copied,
	       "%s: what dcbm says it copied, the engine has", what);
	tap_ok(moved >= calls * (BYTES / page_bytes()) / 4, "%s: pages move", what);
	engine_heal();
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

static long long free_bytes(void)
{
	file_write("3", "/proc/sys/vm/drop_caches");
	return node_free_bytes(node_at(0)) + node_free_bytes(node_at(1));
}

/*
 * Whether memory is as free as it was, but for what slabs keep: the shares of the channels that
 * hang would be more. KASAN keeps what is freed, so this is not for kernels with checkers.
 */
static bool all_is_free(long long before)
{
	long long now = 0;

	for (int try = 0; try < 50; try++) {
		now = free_bytes();
		if (now >= before - KEPT_BYTES)
			break;
		usleep(200000);
	}
	tap_note("%lld KiB less are free than before", (before - now) >> 10);
	return now >= before - KEPT_BYTES;
}

/* Each fault of this kind of engine, and each pair of them, once. */
static void test_engine(bool unordered, bool pairs, unsigned int batches)
{
	long long before;

	/* What is allocated once, and stays. */
	start(unordered);
	engine_stop();
	before = free_bytes();
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
	if (!file_exists("/sys/kernel/debug/kmemleak"))
		tap_ok(all_is_free(before), "%s engine: no page is lost",
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
