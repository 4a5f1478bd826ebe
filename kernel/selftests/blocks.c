// SPDX-License-Identifier: GPL-2.0-only
/* Memory blocks through /sys/devices/system/memory. */
#include "blocks.h"
#include "files.h"
#include "nodes.h"
#include "tap.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCKS		"/sys/devices/system/memory"
#define NODE_BLOCK	"/sys/devices/system/node/node%d/memory%d"

/* Numbers above are not looked for. */
#define MAX_BLOCK	4095

/* A block is emptied in a second or two; kernels with checkers take longer. */
#define PATIENCE_S	60

/* For each block that may do; there are others. */
#define SEARCH_S	15

uint64_t block_bytes(void)
{
	static uint64_t bytes;
	char text[32];

	if (!bytes && !file_read(text, sizeof(text), BLOCKS "/block_size_bytes"))
		bytes = strtoull(text, NULL, 16);
	return bytes;
}

static int block_of(uint64_t frame)
{
	return frame * page_bytes() / block_bytes();
}

bool block_has(int block, uint64_t frame)
{
	return block_of(frame) == block;
}

int block_node(uint64_t frame)
{
	for (int n = 0; block_bytes() && n < nodes_with_memory(); n++)
		if (file_exists(NODE_BLOCK, node_at(n), block_of(frame)))
			return node_at(n);
	return -1;
}

static void ring(int signal)
{
	(void)signal;
}

static int block_state_within(int block, const char *state, unsigned int seconds)
{
	struct sigaction wake = { .sa_handler = ring }, before;
	int error;

	/* Linux tries to empty a block until a signal comes, and of some pages it never gets rid. */
	sigaction(SIGALRM, &wake, &before);
	alarm(seconds);
	error = file_write(state, BLOCKS "/memory%d/state", block);
	alarm(0);
	sigaction(SIGALRM, &before, NULL);
	return error;
}

int block_state(int block, const char *state)
{
	return block_state_within(block, state, PATIENCE_S);
}

static bool make_movable(int block, unsigned int seconds)
{
	if (block_state_within(block, "offline", seconds))
		return false;
	if (!block_state(block, "online_movable"))
		return true;
	block_state(block, "online");
	return false;
}

static bool find_movable(int *block, int *node, unsigned int seconds)
{
	/* The highest blocks have the fewest pages that do not move. */
	for (int n = nodes_with_memory() - 1; n >= 0; n--)
		for (int i = MAX_BLOCK; i >= 0; i--)
			if (file_exists(NODE_BLOCK, node_at(n), i) && make_movable(i, seconds)) {
				*block = i;
				*node = node_at(n);
				return true;
			}
	return false;
}

bool block_make_movable(int *block, int *node)
{
	if (!block_bytes()) {
		tap_note("no memory blocks: a kernel without memory hotplug");
		return false;
	}
	/* Where no block was emptied in little time, each gets more. */
	if (find_movable(block, node, SEARCH_S) || find_movable(block, node, PATIENCE_S))
		return true;
	tap_note("no memory block goes off line and comes back as movable");
	return false;
}

void block_make_normal(int block)
{
	block_state(block, "offline");
	block_state(block, "online");
}
