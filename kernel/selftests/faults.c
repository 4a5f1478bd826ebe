// SPDX-License-Identifier: GPL-2.0-only
/*
 * faults WHICH [BATCHES]: an engine that fails in every way of which it tells the truth, each alone
 * (WHICH is "alone") or with each other ("pairs"), or alone while mtcopy has a half of each batch
 * ("hybrid", by "auto"), while pages migrate and writers write, until
 * dcbm has copied something of so many batches. No byte is lost, what a lost channel may still
 * write to stays in quarantine, and comes back when the driver is unbound.
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
#include <sys/resource.h>
#include <unistd.h>

#define BYTES		(64 * page_bytes())	/* a batch: four channels of 16 pages */
#define CHANNELS	4
#define SHORT_MS	30	/* slack where channels hang */
#define KEPT_BYTES	(12LL << 20)

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
	{ "late writes, then an answer",
	  { { "hang_every", 61 }, { "late_ms", 2 * SHORT_MS }, { "late_answer", 1 } }, "late",
	  false },
	{ "late writes", { { "hang_every", 59 }, { "late_ms", 3 * SHORT_MS } }, "late", false },
	{ "hangs", { { "hang_every", 53 } }, "hung", false },
	{ "aborts that write afterwards",
	  { { "abort_every", 57 }, { "late_ms", 2 * SHORT_MS } }, "late", false },
	{ "another order", { { "shuffle", 1 } }, "descriptors", true },
};

#define NR_FAULTS	ARRAY_SIZE(faults)

static bool hybrid;

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
 * Moves until dcbm has copied something of so many batches, and each fault came. Returns how many
 * calls that took; *@moved says how many pages moved, *@released whether unbinding the driver always
 * ended the quarantine, and memory was in it just as long as a channel was retired. (A channel that
 * was only late comes back by itself.)
 */
static unsigned int move_batches(const struct test *test, struct memory *memory,
				 unsigned int batches, size_t *moved, bool *released)
{
	size_t pages = memory->bytes / page_bytes();
	unsigned int n, copied = 0;

	*moved = 0;
	*released = true;
	for (n = 0; n < 40 * batches && (copied < batches || !all_came(test)); n++) {
		struct stats before = migrator_stats("dcbm");

		*moved += pages - memory_move(memory, node_at(n + 1), 1);
		copied += migrator_since("dcbm", before).bytes > 0;
		*released &= wait_until(!quarantined_bytes() == !dcbm_devices(": retired"),
					10000, 1000);
		/* Some are to be left that fail otherwise. */
		if (dcbm_devices("faultdma node -1: taken") > CHANNELS / 2)
			continue;
		/* Unbinding stops the engine, and some of its late writes are to come before. */
		wait_until(all_came(test), 4 * SHORT_MS, 1000);
		*released &= engine_rebind();
	}
	return copied < batches ? 0 : n;
}

/* A fault-free engine copies all, or mtcopy the other half. */
static bool copies_all(struct memory *memory)
{
	const char *name = hybrid ? "auto" : "dcbm";
	struct stats before = migrator_stats(name), done;
	size_t left;

	/* To another node in any case. */
	left = memory_move(memory, node_at(0), 3) + memory_move(memory, node_at(1), 3);
	done = migrator_since(name, before);
	if (!left && done.bytes >= (long long)memory->bytes && !done.fallbacks && !done.declined)
		return true;
	tap_note("%zu pages stayed; bytes %lld of %zu, fallbacks %lld, declined %lld; channels retired: %u",
		 left, done.bytes, memory->bytes, done.fallbacks, done.declined,
		 dcbm_devices(": retired"));
	return false;
}

static void test(const struct fault *fault, const struct fault *other, unsigned int batches)
{
	struct test test = make_test(fault, other);
	const char *what = test.name;
	struct stats before, done;
	struct memory memory;
	size_t moved, wrong, visits;
	unsigned int calls;
	long long copied;
	bool released;

	memory_need(&memory, "anonymous", BYTES, node_at(0), 1);
	for (unsigned int n = 0; n < test.nr; n++)
		test.injections[n].count = count_of(&test.injections[n]);
	copied = engine_count("bytes");
	before = migrator_stats("dcbm");
	dcbm_slack(SHORT_MS);
	inject(&test);
	content_start_writers(memory.content);
	calls = move_batches(&test, &memory, batches, &moved, &released);
	content_stop_writers(memory.content);
	done = migrator_since("dcbm", before);
	visits = content_visits(memory.content);
	copied = engine_count("bytes") - copied;
	tap_note("%s: %u calls, %zu pages moved; folios %lld, fallbacks %lld, declined %lld, quarantined %lld",
		 what, calls, moved, done.folios, done.fallbacks, done.declined,
		 quarantined_bytes());
	wrong = memory_wrong(&memory, what);
	tap_ok(!wrong && visits, "%s: contents", what);
	tap_ok(calls && all_came(&test), "%s: came, and %u batches were copied", what, batches);
	tap_ok(done.bytes == done.folios * (long long)page_bytes() && done.bytes <= copied,
	       "%s: what dcbm says it copied, the engine has", what);
	tap_ok(moved >= calls * (BYTES / page_bytes()) / 4, "%s: pages move", what);
	engine_heal();
	dcbm_slack(SLACK_MS);
	tap_ok(engine_rebind() && released, "%s: quarantine ends with its channel, and by unbinding the driver", what);
	tap_ok(copies_all(&memory), "%s: the engine copies all again", what);
	wrong = memory_wrong(&memory, what);
	tap_ok(memory_drop(&memory) && !wrong, "%s: contents at the end", what);
}

static void start(bool unordered)
{
	char parameters[64];

	snprintf(parameters, sizeof(parameters), "channels=%d unordered=%d", CHANNELS, unordered);
	engine_start(parameters);
	file_write_number(CHANNELS, DCBM "/lanes");
	tap_ok(dcbm_devices("faultdma node -1: taken") == CHANNELS,
	       "%s engine: its channels are taken", unordered ? "unordered" : "ordered");
	if (hybrid) {
		file_need("204", AUTO_LANES);
		migrator_need("auto");
	}
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
	long long now;
	bool enough = wait_until((now = free_bytes()) >= before - KEPT_BYTES, 10000, 200000);

	tap_note("%lld KiB less are free than before", (before - now) >> 10);
	return enough;
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
	struct stats mtcopy;
	unsigned int batches = argc > 2 ? atoi(argv[2]) : 100;

	hybrid = argc > 1 && !strcmp(argv[1], "hybrid");
	engine_test();
	/* The writers keep all CPUs busy; who outranks them has helpers all the same. */
	if (hybrid && (module_load("mtcopy", "") || setpriority(PRIO_PROCESS, 0, -20)))
		tap_bail("no helpers");
	mtcopy = migrator_stats(hybrid ? "mtcopy" : "none");
	test_engine(false, pairs, batches);
	test_engine(true, pairs, batches);
	if (hybrid)
		tap_ok(migrator_since("mtcopy", mtcopy).folios > 0, "mtcopy had its part");
	return tap_done();
}
