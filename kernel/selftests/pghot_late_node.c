// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_late_node: a node of slower memory comes online while sources are on. Its tier is known
 * only then, and its records and its thread follow; they go with its memory. Its thread does not
 * wait while another node's thread moves pages.
 */
#include "blocks.h"
#include "clock.h"
#include "content.h"
#include "delay.h"
#include "files.h"
#include "heat.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "pghot.h"
#include "tap.h"
#include "trace.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NODE		"/sys/devices/system/node/node%d"
#define BYTES		(4UL << 20)
#define PATIENCE_MS	10000
#define PROMOTION_MS	120000	/* seconds, but for kernels with checkers */
#define MOST_BLOCKS	64
/* Each node has two batches, and the other thread comes while they wait. */
#define DELAY_MS	300

static int blocks[MOST_BLOCKS];
static int nr_blocks;

static bool has_memory(int node)
{
	for (int n = 0; n < nodes_with_memory(); n++)
		if (node_at(n) == node)
			return true;
	return false;
}

static void read_blocks(int node)
{
	struct dirent *entry;
	char path[FILE_PATH];
	DIR *folder;
	int block;

	nr_blocks = 0;
	snprintf(path, sizeof(path), NODE, node);
	folder = opendir(path);
	while (folder && (entry = readdir(folder)))
		if (sscanf(entry->d_name, "memory%d", &block) == 1 && nr_blocks < MOST_BLOCKS)
			blocks[nr_blocks++] = block;
	if (folder)
		closedir(folder);
}

/* A node all of whose memory is off line; bails out if there is none. */
static int late_node(void)
{
	for (int node = 0; node < MAX_NODES; node++) {
		if (has_memory(node))
			continue;
		read_blocks(node);
		if (nr_blocks)
			return node;
	}
	tap_bail("no node has memory that is off line");
}

static bool set_blocks(const char *state)
{
	bool good = true;

	for (int n = 0; n < nr_blocks; n++)
		good &= !block_state(blocks[n], state);
	return good;
}

static bool sections_are(int node, long long wanted)
{
	return wait_until(heat_of_node(node).sections == wanted, PATIENCE_MS, 20000);
}

/* Whether pages there are seen by the scan of page tables. */
static bool pages_are_seen(int node)
{
	long long end = now_ms() + PATIENCE_MS;
	void *at = map_anonymous(BYTES, false);
	bool seen;

	populate_on(node, at, BYTES);
	do {
		rewrite_pages(at, BYTES);
		usleep(10000);
		seen = heat_of_node(node).known;
	} while (!seen && now_ms() < end);
	/* The records of freed pages are cleared. */
	munmap(at, BYTES);
	return seen;
}

/* Its own thread promotes what is used there. */
static void test_promotion(int node)
{
	size_t pages = BYTES / page_bytes(), moved;
	struct content *content;

	/* Its frames were used before: they could be hot already. */
	pghot_stop();
	content = pghot_memory(node, BYTES, false, 1);
	pghot_start(PGHOT_PGTSCAN);
	content_start_writers(content);
	moved = pghot_wait_moved(content->at, BYTES, node, pages, PROMOTION_MS);
	content_stop_writers(content);
	tap_ok(pghot_kmigrated(node) > 0 && moved == pages,
	       "its hot pages are promoted: %zu of %zu", moved, pages);
	tap_ok(!pages_on(content->at, BYTES, node_slow()), "to the top tier");
	tap_ok(!content_wrong(content, "promoted"), "contents");
	pghot_memory_drop(content);
}

/* Whether two threads had a batch with the migrator at the same time. */
static bool overlap(const struct trace_event *trace, size_t nr, const int threads[2])
{
	bool busy[2] = { false, false };

	for (size_t n = 0; n < nr; n++) {
		for (int t = 0; t < 2; t++) {
			if (trace[n].pid != threads[t])
				continue;
			busy[t] = trace_is(&trace[n], "migrator_batch_start");
			if (busy[0] && busy[1])
				return true;
		}
	}
	return false;
}

static void test_side_by_side(int late)
{
	static const char *const events[] = {
		"migrator/migrator_batch_start", "migrator/migrator_batch_done", NULL
	};
	int nodes[2] = { node_slow(), late };
	struct content *contents[2];
	struct trace_event *trace;
	size_t moved[2], wrong = 0, nr;
	int threads[2];

	pghot_stop();
	migrator_need("kernel");
	for (int n = 0; n < 2; n++)
		contents[n] = pghot_memory(nodes[n], BYTES, false, 1);
	delay_start("kernel", DELAY_MS);
	trace_start(events);
	for (int n = 0; n < 2; n++)
		content_start_writers(contents[n]);
	pghot_start(PGHOT_PGTSCAN);
	for (int n = 0; n < 2; n++)
		moved[n] = pghot_wait_moved(contents[n]->at, BYTES, nodes[n],
					    BYTES / page_bytes(), PROMOTION_MS);
	nr = trace_stop(&trace);
	delay_stop();
	for (int n = 0; n < 2; n++) {
		threads[n] = pghot_kmigrated(nodes[n]);
		content_stop_writers(contents[n]);
		wrong += content_wrong(contents[n], "two nodes");
		pghot_memory_drop(contents[n]);
	}
	tap_ok(moved[0] == BYTES / page_bytes() && moved[1] == BYTES / page_bytes(),
	       "two nodes are promoted from: %zu and %zu pages", moved[0], moved[1]);
	tap_ok(overlap(trace, nr, threads), "at the same time");
	tap_ok(!wrong, "contents of both");
	free(trace);
	migrator_defaults();
}

int main(void)
{
	long long sections, before;
	int node;

	tap_start();
	pghot_init();
	node = late_node();
	sections = nr_blocks * block_bytes() / SECTION_BYTES;
	tap_note("node %d, %d blocks", node, nr_blocks);
	/* A source that asks for the records of lower tiers alone. */
	file_write_number(1 << PGHOT_HWHINT, PGHOT_SYSCTL "enabled_sources");
	before = heat_of_node(-1).sections;
	tap_ok(!heat_of_node(node).sections, "memory that is off line has no records");
	tap_ok(set_blocks("online_movable") && has_memory(node), "the node comes online");
	tap_ok(sections_are(node, sections), "it is of a lower tier: it has records");
	tap_ok(sections_are(-1, before + sections), "and no other node got some");
	file_write_number(1 << PGHOT_PGTSCAN, PGHOT_SYSCTL "enabled_sources");
	tap_ok(sections_are(node, sections) && pages_are_seen(node), "its pages are seen");
	test_promotion(node);
	test_side_by_side(node);
	tap_ok(set_blocks("offline") && !has_memory(node), "the node goes off line");
	tap_ok(!heat_of_node(node).sections, "its records are gone");
	return tap_done();
}
