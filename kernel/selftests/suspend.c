// SPDX-License-Identifier: GPL-2.0-only
/*
 * suspend: what the suspend of the engine's own driver allocates moves pages out of an area of the
 * contiguous memory allocator. dcbm copies none of them, and copies again after the resume.
 */
#include "cma.h"
#include "content.h"
#include "engine.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "pages.h"
#include "tap.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define POWER		"/sys/power"
#define BATCH		(2UL << 20)

/* Something may keep the machine awake for a moment. */
#define TRIES		5

/* Where the pages end that filling gave the range at @at. */
static size_t populated(unsigned char *at, size_t bytes)
{
	size_t end = 0;
	unsigned char resident;

	while (end < bytes && !mincore(at + end, page_bytes(), &resident) && resident & 1)
		end += page_bytes();
	return end;
}

/* Suspends all devices, and resumes them at once. Returns 0 or -errno. */
static int suspend_devices(void)
{
	int error = -EBUSY;

	for (int try = 0; try < TRIES && error == -EBUSY; try++) {
		usleep(try * 200000);
		error = file_write("freeze", POWER "/state");
	}
	return error;
}

static void test_suspend(const struct cma_area *area)
{
	size_t bytes, small;
	unsigned char *at = cma_fill(area, 60, &bytes, &small);
	struct content *content = content_new(at + small, populated(at + small, bytes - small), 0);
	long long moved;
	struct stats done;
	int error;

	content_fill(content);
	tap_note("%zu of %zu pages lie in CMA area '%s'",
		 cma_pages(area, content->at, content->bytes), content->bytes / page_bytes(),
		 area->name);
	/* More than is free there, wherever that lies. */
	file_need_number(area->count / 2 * page_bytes(),
			 "/sys/kernel/debug/faultdma/suspend_bytes");
	done = migrator_stats("dcbm");
	moved = file_field("/proc/vmstat", "pgmigrate_success");
	error = suspend_devices();
	done = migrator_since("dcbm", done);
	moved = file_field("/proc/vmstat", "pgmigrate_success") - moved;
	tap_ok(!error, "the machine was suspended as far as its devices, and resumed");
	tap_ok(done.declined && moved, "%lld pages moved meanwhile, and dcbm declined %lld batches",
	       moved, done.declined);
	tap_ok(!engine_count("asleep"), "a suspended device is given nothing");
	tap_ok(!content_wrong(content, "suspend"), "suspend: contents");
	content_free(content);
	munmap(at, bytes);
}

static void test_resumed(void)
{
	struct stats done = migrator_stats("dcbm");
	struct memory memory;
	size_t wrong;

	memory_need(&memory, "anonymous", BATCH, node_at(0), 0);
	wrong = memory_move(&memory, node_at(1), 1);
	done = migrator_since("dcbm", done);
	wrong += memory_wrong(&memory, "resumed");
	memory_drop(&memory);
	tap_ok(!wrong && done.bytes == (long long)BATCH, "after the resume dcbm copies again");
}

int main(void)
{
	struct cma_area area;

	engine_test();
	if (!cma_find(&area))
		tap_bail("no CMA area");
	engine_start("channels=2");
	if (file_set("devices", POWER "/pm_test") ||
	    file_set("0", "/sys/module/suspend/parameters/pm_test_delay"))
		tap_bail("this kernel cannot suspend its devices alone");
	test_suspend(&area);
	test_resumed();
	tap_ok(engine_stop(), "the engine can go");
	return tap_done();
}
