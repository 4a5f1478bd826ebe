// SPDX-License-Identifier: GPL-2.0-only
/* What the callers of page migration have in common. */
#include "range.h"
#include "blocks.h"
#include "cgroup.h"
#include "files.h"
#include "memory.h"
#include "nodes.h"
#include "pages.h"
#include "ring.h"
#include "tap.h"

#include <stdlib.h>
#include <sys/mman.h>

bool range_make(struct range *range, size_t bytes, int node, bool huge)
{
	range->bytes = bytes;
	range->at = map_anonymous(bytes, huge);
	return populate_on(node, range->at, bytes);
}

void range_drop_filler(struct range *range)
{
	if (range->filler)
		munmap(range->filler, range->filler_bytes);
	range->filler = NULL;
}

static void unmap(struct range *range)
{
	if (range->at)
		munmap(range->at, range->bytes);
	range->at = NULL;
}

void range_drop(struct range *range)
{
	unmap(range);
	range_drop_filler(range);
	free(range->frames);
}

void range_remember(struct range *range)
{
	range->frames = calloc(range->bytes / page_bytes(), sizeof(*range->frames));
	if (!range->frames)
		tap_bail("no memory for the frames of %zu bytes", range->bytes);
	page_frames(range->at, range->bytes, range->frames);
}

size_t range_moved(const struct range *range)
{
	size_t changed = 0;

	for (size_t n = 0; n < range->bytes / page_bytes(); n++) {
		uint64_t frame = page_frame(range->at + n * page_bytes());

		changed += range->frames[n] != NO_FRAME && frame != NO_FRAME &&
			   frame != range->frames[n];
	}
	return changed;
}

size_t range_moved_percent(const struct range *range)
{
	size_t there = 0;

	for (size_t n = 0; n < range->bytes / page_bytes(); n++)
		there += range->frames[n] != NO_FRAME;
	return range_moved(range) * 100 / there;
}

void range_enter_cpuset(void)
{
	cgroup_make("cpuset");
	cgroup_enter("cpuset");
	file_write_number(node_at(0), "%s/cpuset/cpuset.mems", cgroup_root());
}

void range_leave_group(struct range *range)
{
	(void)range;
	cgroup_enter(NULL);
}

void range_drop_block(struct range *range)
{
	unmap(range);
	if (range->block >= 0)
		block_make_normal(range->block);
}

void range_drop_pin(struct range *range)
{
	if (range->ring)
		ring_free(range->ring);
	range_drop_block(range);
}
