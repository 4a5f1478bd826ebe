// SPDX-License-Identifier: GPL-2.0-only
/* The heat of sections. */
#include "heat.h"
#include "nodes.h"
#include "pghot.h"
#include "tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Adds the sections that have this number and this node; -1 for any. */
static struct heat heat_of(long long section, int node)
{
	struct heat heat = { .majority = -1 };
	char line[256];
	FILE *file;

	file = fopen(PGHOT_DEBUGFS "/heat", "re");
	if (!file)
		tap_bail(PGHOT_DEBUGFS "/heat: %s", strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		long long number, nid, known, hot, majority;

		if (line[0] == '#')
			continue;
		if (sscanf(line, "%lld %lld %lld %lld %lld", &number, &nid, &known, &hot,
			   &majority) != 5)
			tap_bail("heat has a line '%s'", line);
		if ((section >= 0 && number != section) || (node >= 0 && nid != node))
			continue;
		heat.sections++;
		heat.known += known;
		heat.hot += hot;
		if (majority >= 0)
			heat.majority = majority;
	}
	fclose(file);
	return heat;
}

struct heat heat_of_frame(uint64_t frame)
{
	return heat_of(frame * page_bytes() / SECTION_BYTES, -1);
}

struct heat heat_of_node(int node)
{
	return heat_of(-1, node);
}
