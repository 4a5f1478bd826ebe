// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_exchange: when the top tier is full of memory that nobody uses, hot pages of the slow node
 * change places with it, and what is in use up there stays. Without a source that knows what
 * is cold, kswapd makes the room.
 */
#include "content.h"
#include "files.h"
#include "memory.h"
#include "nodes.h"
#include "pghot.h"
#include "tap.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HOT_BYTES	(16UL << 20)
#define BUSY_BYTES	(16UL << 20)
#define PATIENCE_MS	60000

#define DEMOTION	"/sys/kernel/mm/numa/demotion_enabled"

/* What fills the first node and is then left alone. */
struct filler {
	unsigned char *at;
	size_t bytes;
	struct content *content;
};

static struct content *make(int node, size_t bytes, unsigned int writers)
{
	void *at = map_anonymous(bytes, false);
	struct content *content;

	memory_policy(MPOL_BIND, node);
	memset(at, 1, bytes);
	memory_policy(MPOL_DEFAULT, 0);
	content = content_new(at, bytes, writers);
	content_fill(content);
	pghot_settle(at);
	return content;
}

static void drop(struct content *content)
{
	munmap(content->at, content->bytes);
	content_free(content);
}

/* Leaves a node so much that nothing is reclaimed, and no more. */
static struct content *fill(int node)
{
	long long free = node_free_bytes(node) - node_reserve_bytes(node);

	if (free < (long long)HUGE_BYTES)
		tap_bail("node %d has %lld free bytes", node, free);
	return make(node, free / HUGE_BYTES * HUGE_BYTES, 0);
}

static void run_on_node(int node)
{
	char text[64] = "";
	int cpus[64], nr;
	cpu_set_t set;

	file_read(text, sizeof(text), "/sys/devices/system/node/node%d/cpulist", node);
	nr = list_read(text, cpus, 64);
	CPU_ZERO(&set);
	for (int n = 0; n < nr; n++)
		CPU_SET(cpus[n], &set);
	if (!nr || sched_setaffinity(0, sizeof(set), &set))
		tap_bail("node %d has no CPU for us", node);
}

static size_t on(const struct content *content, int node)
{
	return pages_on(content->at, content->bytes, node);
}

static void test(enum pghot_source source, bool exchange)
{
	size_t hot_pages = HOT_BYTES / page_bytes(), busy_pages = BUSY_BYTES / page_bytes();
	long long exchanged, demoted, wasted;
	int top = node_at(0), low = node_slow();
	struct content *hot, *busy, *filler;
	size_t up, stayed, left, wrong;
	char what[64];

	snprintf(what, sizeof(what), "by %s%s", pghot_sources[source], exchange ? "" : ", by kswapd");
	hot = make(low, HOT_BYTES, 1);
	busy = make(top, BUSY_BYTES, 1);
	filler = fill(top);
	if (on(hot, low) != hot_pages || on(busy, top) != busy_pages)
		tap_bail("%s: memory is not where it should be", what);
	exchanged = pghot_counter("pghot_exchanged");
	demoted = pghot_counter("pghot_demoted");
	wasted = pghot_counter("pghot_wasted_promotions");
	file_write(exchange ? "1" : "0", PGHOT_DEBUGFS "/exchange");
	pghot_start(source);
	content_start_writers(hot);
	content_start_writers(busy);
	pghot_wait_moved(hot->at, HOT_BYTES, low, hot_pages * 9 / 10, PATIENCE_MS);
	content_stop_writers(hot);
	content_stop_writers(busy);
	up = hot_pages - on(hot, low);
	stayed = on(busy, top);
	left = on(filler, low);
	pghot_stop();
	exchanged = pghot_counter("pghot_exchanged") - exchanged;
	demoted = pghot_counter("pghot_demoted") - demoted;
	wasted = pghot_counter("pghot_wasted_promotions") - wasted;
	wrong = content_wrong(hot, "hot") + content_wrong(busy, "busy") +
		content_wrong(filler, "idle");
	tap_note("%s: %zu of %zu hot pages up, %zu of %zu busy ones stayed, %zu idle ones went; "
		 "exchanged %lld, demoted %lld, wasted %lld", what, up, hot_pages, stayed, busy_pages,
		 left, exchanged, demoted, wasted);
	tap_ok(up >= hot_pages * 9 / 10, "%s: what is hot comes up", what);
	tap_ok(left > 0, "%s: what is idle makes room", what);
	tap_ok(!wrong, "%s: contents", what);
	if (exchange) {
		tap_ok(stayed >= busy_pages * 9 / 10, "%s: what is in use stays up", what);
		tap_ok(exchanged > 0 && demoted >= exchanged, "%s: exchanges are counted", what);
		tap_ok(wasted <= (long long)hot_pages / 10, "%s: few promotions are wasted", what);
	} else {
		tap_ok(!exchanged && !demoted, "%s: nothing is exchanged", what);
	}
	drop(hot);
	drop(busy);
	drop(filler);
}

int main(void)
{
	tap_start();
	nodes_with_memory();
	pghot_init();
	file_restore_at_exit(DEMOTION);
	/* So that hot pages belong to the node that is full. */
	run_on_node(node_at(0));
	file_write_number(node_at(0), PGHOT_SYSCTL "target_nid");
	if (pghot_has(PGHOT_PGTSCAN))
		test(PGHOT_PGTSCAN, true);
	file_write("1", DEMOTION);
	test(PGHOT_HINTFAULT, false);
	return tap_done();
}
