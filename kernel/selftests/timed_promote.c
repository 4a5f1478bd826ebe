// SPDX-License-Identifier: GPL-2.0-only
/*
 * timed_promote: what changes places, and what does not, where it depends on how often pages are
 * accessed in a second: of that a machine without a host's noise tells.
 *
 * The top tier is full of locked memory and what each test has there.
 */
#include "clock.h"
#include "content.h"
#include "files.h"
#include "filler.h"
#include "memory.h"
#include "nodes.h"
#include "pages.h"
#include "pghot.h"
#include "tap.h"
#include "task.h"
#include "timed.h"

#include <stdint.h>
#include <sys/mman.h>

#define DEMOTION	"/sys/kernel/mm/numa/demotion_enabled"
#define NS_PER_S	1000000000LL

/* While nothing may be demoted, a node whose memory goes to the last page ends the program. */
#define SPARE		(8LL << 20)

/* Of pages that are used alike: 64 MiB above and twice as much below, 100 accesses a second each. */
#define ALIKE_BYTES	(64UL << 20)
#define ALIKE_S		16
/* Later than that it has been seen that exchanges gain nothing. */
#define ALIKE_SEEN_S	6

static struct filler fillers[2];

/* After @there came to the top tier, all of which stays meanwhile. */
static void fill_top(const struct content *there)
{
	const int tops[2] = { node_at(0), node_at(1) };

	file_write("0", DEMOTION);
	filler_make(fillers, tops, 2, SPARE);
	for (int n = 0; n < 2; n++)
		if (mlock(fillers[n].at, fillers[n].bytes))
			tap_bail("cannot lock %zu bytes", fillers[n].bytes);
	file_write("1", DEMOTION);
	if (pages_off(there->at, there->bytes, node_slow()) != there->bytes / page_bytes())
		tap_bail("memory is not where it should be");
}

static void empty_top(void)
{
	for (int n = 0; n < 2; n++) {
		tap_ok(!filler_wrong(&fillers[n]), "node %d: contents", node_at(n));
		filler_drop(&fillers[n]);
	}
}

static uint64_t next_random(void)
{
	static uint64_t state = 1;

	/* Steele's splitmix64. */
	uint64_t z = state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static void read_line(const unsigned char *at)
{
	(void)*(volatile const unsigned char *)at;
}

/* Until @end, lines of both ranges at random. */
static void use_alike(const struct content *top, const struct content *low, long long end)
{
	size_t lines = (top->bytes + low->bytes) / LINE_BYTES, offset;

	while (now_ns(CLOCK_MONOTONIC) < end)
		for (int n = 0; n < 1000; n++) {
			offset = next_random() % lines * LINE_BYTES;
			read_line(offset < top->bytes ? top->at + offset :
							low->at + offset - top->bytes);
		}
}

static void test_alike(void)
{
	struct content *top = pghot_memory(node_at(0), ALIKE_BYTES, false, 0);
	struct content *low = pghot_memory(node_slow(), 2 * ALIKE_BYTES, false, 0);
	long long begin, first, later, trials = pghot_status("trials");

	fill_top(top);
	pghot_start(PGHOT_PGTSCAN);
	first = pghot_status("exchanged");
	begin = now_ns(CLOCK_MONOTONIC);
	use_alike(top, low, begin + ALIKE_SEEN_S * NS_PER_S);
	later = pghot_status("exchanged");
	use_alike(top, low, begin + ALIKE_S * NS_PER_S);
	first = later - first;
	later = pghot_status("exchanged") - later;
	pghot_stop();
	tap_note("used alike: %lld pages changed places in %d s, and then %lld in %d; %lld trials",
		 first, ALIKE_SEEN_S, later, ALIKE_S - ALIKE_SEEN_S,
		 pghot_status("trials") - trials);
	/* Three trials of 256 folios, and as many again for one that chance let win. */
	tap_ok(later <= 6 * 256, "pages that are used alike do not go on changing places");
	tap_ok(!content_wrong(top, "top") && !content_wrong(low, "low"), "used alike: contents");
	empty_top();
	pghot_memory_drop(top);
	pghot_memory_drop(low);
}

int main(void)
{
	tap_start();
	timed_need();
	pghot_init();
	file_set("1", DEMOTION);
	pghot_run_on(node_at(0));
	test_alike();
	return tap_done();
}
