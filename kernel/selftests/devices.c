// SPDX-License-Identifier: GPL-2.0-only
/*
 * devices: which channels dcbm takes, which it refuses, and what it says of them, with the
 * engine faultdma: engines that cannot be used, others that have channels, and no memory.
 * devices bounce: the same of a machine where all DMA bounces (swiotlb=force).
 * devices pressure: while all memory is taken. Linux gives up kswapd for what comes after.
 */
#include "clock.h"
#include "content.h"
#include "engine.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "modules.h"
#include "nodes.h"
#include "tap.h"
#include "task.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define BATCH	(2UL << 20)	/* 512 base pages */
#define TAKEN	"faultdma node -1: taken"

static void load(void)
{
	module_need("dcbm", "%s", "");
	dcbm_slack(SLACK_MS);
}

/* Whether dcbm copies a batch, with all the bytes right. */
static bool copies(void)
{
	struct memory memory;
	struct stats done;
	size_t wrong;

	memory_need(&memory, "anonymous", BATCH, node_at(0), 0);
	file_write("0", MIN_BATCH_BYTES);
	done = migrator_stats("dcbm");
	wrong = memory_move(&memory, node_at(1), 1);
	done = migrator_since("dcbm", done);
	wrong += memory_wrong(&memory, "a batch");
	memory_drop(&memory);
	return !wrong && done.bytes == (long long)BATCH;
}

static void refuses(const char *engine, unsigned int channels, const char *why)
{
	char text[80];
	int error;

	load();
	error = file_write("dcbm", MIGRATION "/migrator");
	/* Where there is another engine it is taken instead. */
	tap_ok(error == -ENODEV || (!error && dcbm_devices(": taken")),
	       "%s: dcbm becomes active only with another engine", engine);
	snprintf(text, sizeof(text), "faultdma: refused, %s", why);
	tap_ok(dcbm_devices(text) == channels, "%s: %s", engine, text);
	tap_ok(!dcbm_devices("faultdma node"), "%s: no channel of it is taken", engine);
}

/* An engine that cannot be used: it is refused, and the file says why. */
static void test_refused(const char *parameters, const char *why)
{
	int error = module_load("faultdma", parameters);

	/* An architecture may allow no device that reaches less, or have no IOMMU of ours. */
	if (error == -ENODEV && (strstr(parameters, "mask_bits") || strstr(parameters, "iommu"))) {
		tap_skip(why, "no device can have %s here", parameters);
		return;
	}
	if (error)
		tap_bail("faultdma %s: %s", parameters, strerror(-error));
	refuses(parameters, 4, why);
	tap_ok(engine_stop(), "%s: the engine can go", parameters);
}

/*
 * An engine that reports what it has not copied as copied, although its driver says that it does
 * not: what is lost then is why dcbm uses no other drivers.
 */
static void test_lies(const char *fault)
{
	struct memory memory;
	struct stats done;

	engine_start("");
	memory_need(&memory, "anonymous", BATCH, node_at(0), 0);
	engine_set(fault, 3);
	done = migrator_stats("dcbm");
	memory_move(&memory, node_at(1), 1);
	done = migrator_since("dcbm", done);
	tap_ok(done.bytes == (long long)BATCH && engine_count("lies") &&
	       content_wrong(memory.content, NULL), "%s: an engine that lies loses data", fault);
	memory_drop(&memory);
	tap_ok(engine_stop(), "the engine can go");
}

/* What is shown has whole lines, and how many more there are. */
static void test_many(void)
{
	char page[8192], *last;
	unsigned int lines = 0, more = 0;

	module_need("faultdma", "channels=64 depth=16 align=17");
	load();
	tap_ok(file_write("dcbm", MIGRATION "/migrator") == -ENODEV, "64 channels are refused");
	if (file_read(page, sizeof(page), DCBM "/devices"))
		tap_bail("no devices");
	lines = dcbm_devices("faultdma: refused, needs more alignment than a page has");
	last = strrchr(page, '\n');
	tap_ok(last && sscanf(last, "\nand %u more", &more) == 1 && strlen(page) < 4096 &&
	       more && lines + more == 64, "devices has %u lines and tells of %u more", lines, more);
	tap_ok(engine_stop(), "the engine can go");
}

/*
 * Unloaded before it has finished, dmatest frees what is being written. Its own way to wait ends at
 * once if no thread of it has begun yet.
 */
static void dmatest_ends(void)
{
	tap_ok(wait_until(task_named("dma*chan*-copy*") < 0, 60000, 10000), "dmatest has finished");
	tap_ok(!module_unload("dmatest"), "dmatest goes");
}

/* Somebody else has channels: what is left is taken, and what comes free. */
static void test_taken_by_others(void)
{
	module_need("faultdma", "channels=4");
	load();
	/* It takes one channel more than it is told, and keeps them when it has finished. */
	module_need("dmatest", "max_channels=1 iterations=500 test_buf_size=4096 run=1");
	engine_start("");
	tap_ok(dcbm_devices("refused, in use by others") == 2 && dcbm_devices(": taken") >= 2,
	       "dmatest has two channels");
	tap_ok(copies(), "a batch is copied beside dmatest");
	dmatest_ends();
	tap_ok(!file_write("4", DCBM "/lanes") && !dcbm_devices("in use by others") &&
	       dcbm_devices(TAKEN) == 4, "what has come free is taken");
	tap_ok(engine_stop(), "the engine can go");
}

/* All of them, before dcbm sees any. */
static void test_none_free(void)
{
	module_need("faultdma", "channels=2");
	load();
	module_need("dmatest", "max_channels=0 iterations=500 test_buf_size=4096 run=1");
	tap_ok(file_write("dcbm", MIGRATION "/migrator") == -ENODEV &&
	       dcbm_devices("no DMA channel of this machine is free") == 1,
	       "others have all channels: devices says so");
	dmatest_ends();
	tap_ok(!file_write("dcbm", MIGRATION "/migrator") && dcbm_devices(TAKEN) == 2 &&
	       dcbm_devices("") == 2, "when they are free they are taken");
	/* It has all of them: that nobody else has a free one is nothing to tell. */
	file_write("2", DCBM "/lanes");
	file_write("none", MIGRATION "/migrator");
	tap_ok(!dcbm_devices(""), "given back, none is spoken of");
	tap_ok(engine_stop(), "the engine can go");
}

#define INJECT	"/sys/kernel/debug/fail_function"

/* Of the allocations of a kind, the nth fails. Returns what choosing dcbm says. */
static int choose_without(const char *function, unsigned int nth)
{
	char failure[32];
	int error;

	snprintf(failure, sizeof(failure), "%#lx", -(unsigned long)ENOMEM);
	file_need(function, INJECT "/inject");
	file_need(failure, INJECT "/%s/retval", function);
	file_need("100", INJECT "/probability");
	file_need("1", INJECT "/times");
	file_need_number(nth, INJECT "/interval");
	file_need("0", INJECT "/verbose");
	error = file_write("dcbm", MIGRATION "/migrator");
	file_write("", INJECT "/inject");
	return error;
}

/* Choosing it fails where an allocation does, and all that was taken is given back. */
static void test_no_memory(void)
{
	static const char *const functions[] = { "dcbm_channel_alloc", "dcbm_init_batch" };

	engine_start("channels=4");
	for (unsigned int i = 0; i < ARRAY_SIZE(functions); i++)
		for (unsigned int nth = 1; nth <= 2; nth++) {
			int error;

			file_need("none", MIGRATION "/migrator");
			error = choose_without(functions[i], nth);
			tap_ok(error == -ENOMEM, "%s fails at number %u: dcbm is refused",
			       functions[i], nth);
			tap_ok(!dcbm_devices(": taken"), "%s, %u: no channel stays taken",
			       functions[i], nth);
			tap_ok(!file_write("dcbm", MIGRATION "/migrator") &&
			       dcbm_devices("faultdma node -1: taken") == 4,
			       "%s, %u: with memory it becomes active", functions[i], nth);
		}
	tap_ok(engine_stop(), "the engine can go");
}

/* A process that is killed for want of memory before this one is. */
static pid_t victim(const char *score)
{
	pid_t child = fork();

	if (child < 0)
		tap_bail("no process");
	if (!child && (prctl(PR_SET_PDEATHSIG, SIGKILL) ||
		       file_write(score, "/proc/self/oom_score_adj")))
		_exit(1);
	return child;
}

/* Takes all memory there is. */
static _Noreturn void hog(void)
{
	const size_t step = 64UL << 20;

	for (;;) {
		char *at = mmap(NULL, step, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (at == MAP_FAILED)
			_exit(1);
		madvise(at, step, MADV_HUGEPAGE);
		for (size_t offset = 0; offset < step; offset += page_bytes())
			at[offset] = 1;
	}
}

/*
 * dcbm becomes active again and again while a process takes all memory and is killed: each time
 * with all channels or with none, and never with half.
 */
static void test_pressure(void)
{
	unsigned int active = 0, refused = 0, wrong = 0;
	pid_t others[4];
	int status = 0, error;
	pid_t child;

	if (file_exists("/sys/kernel/debug/kmemleak")) {
		tap_skip("all memory is taken", "kmemleak ends with the first record it has no memory for");
		return;
	}
	module_need("faultdma", "channels=4");
	load();
	/* See emulator.h: compaction migrates meanwhile, so it is never without a migrator. */
	file_need("kernel", MIGRATION "/migrator");
	/* Until the memory of the first victim is free, Linux may choose another one. */
	for (unsigned int n = 0; n < ARRAY_SIZE(others); n++) {
		others[n] = victim("900");
		if (!others[n])
			for (;;)
				pause();
	}
	child = victim("1000");
	if (!child)
		hog();
	while (!waitpid(child, &status, WNOHANG)) {
		error = file_write("kernel", MIGRATION "/migrator");
		wrong += error && error != -ENOMEM;
		error = file_write("dcbm", MIGRATION "/migrator");
		active += !error;
		refused += error == -ENOMEM;
		wrong += error && error != -ENOMEM;
		wrong += dcbm_devices(TAKEN) != (error ? 0 : 4);
	}
	for (unsigned int n = 0; n < ARRAY_SIZE(others); n++)
		child_kill(others[n]);
	tap_note("active %u times, refused %u times", active, refused);
	tap_ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
	       "memory came to its end, and whoever took it was killed");
	tap_ok(active + refused && !wrong, "dcbm had all channels or none, %u times",
	       active + refused);
	file_write("kernel", MIGRATION "/migrator");
	tap_ok(!file_write("dcbm", MIGRATION "/migrator") && dcbm_devices(TAKEN) == 4 && copies(),
	       "with memory it becomes active and copies");
	tap_ok(engine_stop(), "the engine can go");
}

int main(int argc, char **argv)
{
	engine_test();
	if (argc == 2 && !strcmp(argv[1], "bounce")) {
		test_refused("", "has its memory in bounce buffers");
		return tap_done();
	}
	if (argc == 2 && !strcmp(argv[1], "pressure")) {
		test_pressure();
		return tap_done();
	}
	test_refused("memcpy=0", "does not copy memory");
	test_refused("slave=1", "kept for peripherals");
	test_refused("mask_bits=26", "does not reach all memory");
	test_refused("align=17", "needs more alignment than a page has");
	test_refused("segment=2048", "copies less than a page at a time");
	test_refused("reports_errors=0", "its driver does not say that it reports failed copies");
	test_refused("iommu=1 bounces=1", "has its memory in bounce buffers");
	test_lies("false_every");
	test_lies("half_every");
	test_many();
	test_taken_by_others();
	test_none_free();
	test_no_memory();
	return tap_done();
}
