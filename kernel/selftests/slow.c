// SPDX-License-Identifier: GPL-2.0-only
/*
 * slow: an engine that is slow, tells late, or gives its descriptors back late costs time and
 * nothing else: no byte is copied by the CPU for it, and no channel is retired. One that never
 * gives a descriptor is waited for once.
 */
#include "clock.h"
#include "engine.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "tap.h"

#include <stdio.h>

#define BATCH		(2UL << 20)	/* 512 base pages */
#define CHANNELS	2

/* struct slow - what to make slow; @count tells that it came */
static const struct slow {
	const char *fault;
	unsigned int value;
	const char *count;
	bool ordered;		/* no other engine is asked for its status */
} ways[] = {
	{ "delay_us", 500, "descriptors", false },
	{ "prep_every", 5, "prep", false },
	/* It has finished, and nobody comes to tell. */
	{ "tell_after_us", 40000, "told_late", true },
	/*
	 * An answer comes first and its descriptor some time later: the channel has nothing to do
	 * and none to give.
	 */
	{ "give_back_ms", 5, "spent", false },
	{ "give_back_ms", 50, "spent", false },
	{ "give_back_ms", 200, "spent", false },
};

static void start(struct memory *memory, const char *parameters, unsigned int slack_ms)
{
	engine_start(parameters);
	dcbm_slack(slack_ms);
	memory_need(memory, "anonymous", BATCH, node_at(0), 0);
}

static bool none_retired(void)
{
	return dcbm_devices("faultdma node -1: taken") == CHANNELS && !quarantined_bytes();
}

/* Every page moves, and the engine copies all of them. */
static bool copies_all(struct memory *memory, int node)
{
	struct stats done = migrator_stats("dcbm");
	long long bytes = engine_count("bytes");
	size_t left = memory_move(memory, node, 1);

	done = migrator_since("dcbm", done);
	bytes = engine_count("bytes") - bytes;
	tap_note("%lld of %lu bytes by dcbm, %lld by the engine, fallbacks %lld", done.bytes, BATCH,
		 bytes, done.fallbacks);
	return !left && bytes == (long long)BATCH && done.bytes == (long long)BATCH &&
	       !done.fallbacks;
}

static void test_slow(const struct slow *slow, bool unordered)
{
	char parameters[64], what[96];
	struct memory memory;
	long long seen;

	/* A share has 16 descriptors or more, of 64 KiB at most: the queue is too short for it. */
	snprintf(parameters, sizeof(parameters), "channels=%d depth=8 unordered=%d", CHANNELS,
		 unordered);
	snprintf(what, sizeof(what), "%s, %s=%u", parameters, slow->fault, slow->value);
	start(&memory, parameters, 60000);
	engine_set(slow->fault, slow->value);
	seen = engine_count(slow->count);
	tap_ok(copies_all(&memory, node_at(1)), "%s: no byte is copied by the CPU", what);
	/* Whoever was held up meanwhile did not see it. */
	for (int n = 2; n < 7 && engine_count(slow->count) == seen; n++)
		tap_ok(copies_all(&memory, node_at(n)), "%s: nor of another batch", what);
	tap_ok(engine_count(slow->count) > seen, "%s: came", what);
	tap_ok(none_retired(), "%s: no channel is retired", what);
	tap_ok(!memory_wrong(&memory, what) && memory_drop(&memory), "%s: contents", what);
	tap_ok(engine_stop(), "the engine can go");
}

/* It is waited for as for an answer, but once, and the channel is not retired for it. */
static void test_none(void)
{
	const int slack_ms = 3000, batches = 9;
	struct memory memory;
	struct stats done;
	long long took;
	size_t left = 0;

	start(&memory, "channels=2", slack_ms);
	engine_set("prep_every", 1);
	done = migrator_stats("dcbm");
	took = now_ms();
	for (int n = 1; n <= batches; n++)
		left += memory_move(&memory, node_at(n), 1);
	took = now_ms() - took;
	done = migrator_since("dcbm", done);
	tap_note("no descriptors: %d moves in %lld ms", batches, took);
	tap_ok(!left && !done.bytes, "an engine without descriptors: the CPU copies");
	tap_ok(took >= slack_ms && took < (batches - 1) * slack_ms,
	       "it is waited for once, not for each batch");
	tap_ok(none_retired(), "no channel is retired");
	engine_heal();
	tap_ok(copies_all(&memory, node_at(batches + 1)), "with descriptors it copies all at once");
	tap_ok(!memory_wrong(&memory, "no descriptors") && memory_drop(&memory), "contents");
	tap_ok(engine_stop(), "the engine can go");
}

int main(void)
{
	engine_test();
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		test_slow(&ways[i], false);
		if (!ways[i].ordered)
			test_slow(&ways[i], true);
	}
	test_none();
	return tap_done();
}
