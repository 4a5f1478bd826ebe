// SPDX-License-Identifier: GPL-2.0-only
/* DAMON that moves pages by itself. */
#include "damon.h"
#include "files.h"
#include "nodes.h"
#include "pages.h"
#include "tap.h"


#define DAMON		"/sys/kernel/mm/damon/admin/kdamonds"

void damon_start(const uint64_t *frames, size_t nr, int nid)
{
	static const char *const settings[][2] = {
		{ "1", "nr_kdamonds" },
		{ "1", "0/contexts/nr_contexts" },
		{ "paddr", "0/contexts/0/operations" },
		{ "5000", "0/contexts/0/monitoring_attrs/intervals/sample_us" },
		{ "20000", "0/contexts/0/monitoring_attrs/intervals/aggr_us" },
		{ "1", "0/contexts/0/targets/nr_targets" },
		{ "1", "0/contexts/0/targets/0/regions/nr_regions" },
		{ "1", "0/contexts/0/schemes/nr_schemes" },
		{ "migrate_cold", "0/contexts/0/schemes/0/action" },
		{ "9223372036854775807", "0/contexts/0/schemes/0/access_pattern/sz/max" },
		{ "1000000", "0/contexts/0/schemes/0/access_pattern/nr_accesses/max" },
		{ "1000000", "0/contexts/0/schemes/0/access_pattern/age/max" },
	};
	uint64_t first = UINT64_MAX, last = 0;

	for (size_t n = 0; n < nr; n++) {
		if (frames[n] < first)
			first = frames[n];
		if (frames[n] != NO_FRAME && frames[n] > last)
			last = frames[n];
	}
	for (unsigned int n = 0; n < ARRAY_SIZE(settings); n++)
		file_need(settings[n][0], DAMON "/%s", settings[n][1]);
	file_write_number(nid, DAMON "/0/contexts/0/schemes/0/target_nid");
	file_write_number(first * page_bytes(), DAMON "/0/contexts/0/targets/0/regions/0/start");
	file_write_number((last + 1) * page_bytes(), DAMON "/0/contexts/0/targets/0/regions/0/end");
	file_need("on", DAMON "/0/state");
}

void damon_stop(void)
{
	file_need("off", DAMON "/0/state");
	file_write("0", DAMON "/nr_kdamonds");
}
