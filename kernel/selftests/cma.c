// SPDX-License-Identifier: GPL-2.0-only
/* Areas of the contiguous memory allocator, through its files in debugfs. */
#include "cma.h"
#include "blocks.h"
#include "files.h"
#include "memory.h"
#include "nodes.h"
#include "pages.h"
#include "tap.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define CMA	"/sys/kernel/debug/cma"
#define STEP	(1UL << 20)

bool cma_find(struct cma_area *area)
{
	struct dirent *entry;
	DIR *folder;

	area->base = area->count = -1;
	folder = opendir(CMA);
	while (folder && (entry = readdir(folder)))
		if (entry->d_name[0] != '.') {
			snprintf(area->name, sizeof(area->name), "%.60s", entry->d_name);
			area->base = file_number(CMA "/%s/base_pfn", area->name);
			area->count = file_number(CMA "/%s/count", area->name);
		}
	if (folder)
		closedir(folder);
	if (area->base <= 0 || area->count <= 0) {
		tap_note("no CMA area under " CMA);
		return false;
	}
	area->node = block_node(area->base);
	return area->node >= 0;
}

size_t cma_pages(const struct cma_area *area, const unsigned char *at, size_t bytes)
{
	size_t found = 0;

	for (size_t n = 0; n < bytes; n += page_bytes()) {
		long long offset = page_frame(at + n) - area->base;

		found += offset >= 0 && offset < area->count;
	}
	return found;
}

static long long cma_free_bytes(void)
{
	return file_field("/proc/meminfo", "CmaFree:") * 1024;
}

unsigned char *cma_fill(const struct cma_area *area, unsigned int percent, size_t *bytes,
			size_t *small)
{
	long long unused = cma_free_bytes(), huge;
	unsigned char *at;

	memory_policy(MPOL_BIND, area->node);
	*bytes = node_free_bytes(area->node) & -STEP;
	at = map_anonymous(*bytes, true);
	/* Huge pages are quick. */
	huge = *bytes - 3 * area->count * page_bytes();
	if (huge < 0)
		huge = 0;
	*small = huge & -HUGE_BYTES;
	madvise(at + *small, *bytes - *small, MADV_NOHUGEPAGE);
	/* In steps: a fault for every page would take a kernel with checkers minutes. */
	for (size_t n = 0; n < *bytes; n += STEP)
		if (node_free_bytes(area->node) < 32 << 20 ||
		    cma_free_bytes() < unused * (100 - percent) / 100 ||
		    madvise(at + n, STEP, MADV_POPULATE_WRITE))
			break;
	memory_policy(MPOL_DEFAULT, 0);
	return at;
}

bool cma_take(const struct cma_area *area)
{
	long long left = area->count - file_number(CMA "/%s/used", area->name);
	long long part = 1024, failures = 0;

	/* A page may be busy for as long as who has it gets no CPU. */
	while (left > 0 && failures < 100) {
		if (part > left)
			part = left;
		if (!file_write_number(part, CMA "/%s/alloc", area->name)) {
			left -= part;
			failures = 0;
		} else if (part > 1) {
			/* Where no gap is so long, or a page in each is busy for a moment. */
			part /= 2;
		} else {
			failures++;
			usleep(200000);
		}
	}
	return !left;
}

void cma_give(const struct cma_area *area)
{
	file_write_number(area->count, CMA "/%s/free", area->name);
}
