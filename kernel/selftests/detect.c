// SPDX-License-Identifier: GPL-2.0-only
/*
 * detect: the tests' own eyes. Whatever a bad migration could do to memory is done to it by
 * hand, and the comparison has to see it; what is right must pass. A kernel that looks for
 * data races has to look.
 */
#include "content.h"
#include "files.h"
#include "memory.h"
#include "nodes.h"
#include "pages.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES	(1UL << 20)

static struct content *fresh(unsigned char **at)
{
	struct content *content;

	*at = map_anonymous(BYTES, false);
	content = content_new(*at, BYTES, 2);
	content_fill(content);
	return content;
}

/* Lets each writer begin at least three more sweeps over the content. */
static void write_some(struct content *content)
{
	uint32_t enough[2];

	for (int n = 0; n < 2; n++)
		enough[n] = content->writers[n].generation + 3;
	content_start_writers(content);
	for (int n = 0; n < 2; n++)
		while (content->writers[n].generation < enough[n])
			usleep(1000);
	content_stop_writers(content);
}

static void test_right(void)
{
	unsigned char *at;
	struct content *content = fresh(&at);

	tap_ok(!content_wrong(content, "fresh"), "a fresh content is right");
	write_some(content);
	tap_ok(content_visits(content) && !content_wrong(content, "written"),
	       "a written content is right");
}

static void test_flipped(void)
{
	unsigned char *at;
	struct content *content = fresh(&at);
	size_t seen = 0, wanted = 0;

	write_some(content);
	/* One bit in every page, every time of another byte. */
	for (size_t page = 0; page < BYTES / page_bytes(); page++, wanted++) {
		unsigned char *byte = at + page * page_bytes() + page * 17 % page_bytes();

		*byte ^= 1 << page % 8;
		seen += content_wrong(content, NULL) == 1;
		*byte ^= 1 << page % 8;
	}
	tap_ok(seen == wanted, "%zu of %zu flipped bits are seen", seen, wanted);
}

static void test_old_page(void)
{
	size_t page = page_bytes();
	unsigned char *at, *old = malloc(page);
	struct content *content = fresh(&at);

	write_some(content);
	memcpy(old, at + 8 * page, page);
	write_some(content);
	memcpy(at + 8 * page, old, page);
	tap_ok(content_wrong(content, NULL) > 0, "a page that is old at the end is seen");
	write_some(content);
	tap_ok(content->writers[0].wrong && content->writers[1].wrong,
	       "both writers see it while they write");
	free(old);
}

static void test_lost_write(void)
{
	unsigned char *at;
	struct content *content = fresh(&at);
	uint64_t *words;

	write_some(content);
	/* A hot word: its upper half is the generation. */
	words = (uint64_t *)at;
	for (size_t n = 0; n < page_bytes() / sizeof(*words); n++)
		if (words[n] >> 32 == content->writers[0].generation) {
			words[n] -= 1ULL << 32;
			break;
		}
	tap_ok(content_wrong(content, NULL) == 1, "a single lost write is seen");
}

static void test_swapped_pages(void)
{
	size_t page = page_bytes();
	unsigned char *at, *old = malloc(page);
	struct content *content = fresh(&at);

	memcpy(old, at, page);
	memcpy(at, at + page, page);
	memcpy(at + page, old, page);
	tap_ok(content_wrong(content, NULL) > page / sizeof(uint64_t),
	       "two pages in each other's place are seen");
	memset(at, 0, page);
	tap_ok(content_wrong(content, NULL) > page / sizeof(uint64_t), "a page of zeros is seen");
	free(old);
}

static void test_places(void)
{
	size_t pages = BYTES / page_bytes();
	unsigned char *at = map_anonymous(BYTES, false);

	tap_ok(populate_on(node_at(0), at, BYTES) && !pages_on(at, BYTES, node_at(1)),
	       "pages are where they were made");
	tap_ok(!move_range(at, BYTES / 2, 0, node_at(1), MPOL_MF_MOVE, 20) &&
	       pages_on(at, BYTES, node_at(1)) == pages / 2,
	       "half of them moved, half of them are seen elsewhere");
	tap_ok(folios_of_size(at, BYTES, page_bytes()) == pages &&
	       !folios_of_size(at, BYTES, 4 * page_bytes()), "they are base pages, not larger folios");
}

#define KCSAN	"/sys/kernel/debug/kcsan"

/* That nothing was reported tells something only if accesses were watched. */
static void test_races(void)
{
	long long before, after;
	unsigned char *at;

	if (!file_exists("/sys/module/kcsan"))
		return;
	before = file_field(KCSAN, "setup_watchpoints");
	at = map_anonymous(8 * BYTES, false);
	memset(at, 1, 8 * BYTES);
	after = file_field(KCSAN, "setup_watchpoints");
	tap_note("KCSAN: %lld watchpoints were set up, and %lld more", before, after - before);
	tap_ok(file_field(KCSAN, "enabled") == 1 && before > 0 && after > before,
	       "KCSAN watches accesses");
}

int main(void)
{
	tap_start();
	nodes_with_memory();
	test_right();
	test_flipped();
	test_old_page();
	test_lost_write();
	test_swapped_pages();
	test_places();
	test_races();
	return tap_done();
}
