// SPDX-License-Identifier: GPL-2.0-only
/* The sysfs interface of migration, and the modules behind it. */
#include "migrator.h"
#include "files.h"
#include "modules.h"
#include "tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const migrate_reasons[NR_REASONS] = {
	"compaction", "memory_failure", "memory_hotplug", "syscall_or_cpuset",
	"mempolicy_mbind", "numa_misplaced", "contig_range", "longterm_pin", "demotion",
	"damon",
};

static const char *const migrators[] = { "none", "kernel", "mtcopy", "dcbm" };
#define NR_MIGRATORS	4

bool migrator_kernel(void)
{
	return file_exists(MIGRATION "/migrator");
}

bool migrator_copies(const char *name)
{
	return strcmp(name, "none") && strcmp(name, "vanilla");
}

bool mtcopy_loaded(void)
{
	return module_loaded("mtcopy") && file_exists(MIGRATION "/mtcopy");
}

int mtcopy_load(void)
{
	return module_load("mtcopy", "");
}

int mtcopy_unload(void)
{
	return module_unload("mtcopy");
}

/* A machine without an engine gets one that is made of threads. */
static int choose_dcbm(void)
{
	int error = module_load("dcbm", "");

	if (!error)
		error = file_write("dcbm", MIGRATION "/migrator");
	if (error != -ENODEV)
		return error;
	error = module_load("faultdma", "");
	return error ? error : file_write("dcbm", MIGRATION "/migrator");
}

int migrator_choose(const char *name)
{
	if (!strcmp(name, "dcbm"))
		return choose_dcbm();
	if (!strcmp(name, "mtcopy")) {
		int error = mtcopy_load();

		if (error)
			return error;
	}
	return file_write(name, MIGRATION "/migrator");
}

static void must(int error, const char *what)
{
	if (error)
		tap_bail("%s: %s", what, strerror(-error));
}

void migrator_eager(void)
{
	if (!migrator_kernel())
		return;
	must(file_write("0", MIGRATION "/min_batch_bytes"), "min_batch_bytes");
	must(file_write("all", MIGRATION "/reasons"), "reasons");
	if (module_loaded("dcbm")) {
		must(file_write("4", MIGRATION "/dcbm/lanes"), "dcbm/lanes");
		/* A guest that is emulated may stand still for seconds, the channels with it. */
		must(file_write("30000", MIGRATION "/dcbm/timeout_ms"), "dcbm/timeout_ms");
	}
	if (!mtcopy_loaded())
		return;
	/* A guest that is busy with writers has no idle CPU: helpers run all the same. */
	must(file_write("2", MIGRATION "/mtcopy/lanes"), "mtcopy/lanes");
	must(file_write("0", MIGRATION "/mtcopy/idle_only"), "mtcopy/idle_only");
}

void migrator_defaults(void)
{
	if (!migrator_kernel())
		return;
	file_write("none", MIGRATION "/migrator");
	file_write_number(MIN_BATCH, MIGRATION "/min_batch_bytes");
	file_write_number(MAX_BATCH, MIGRATION "/max_batch_bytes");
	file_write("all", MIGRATION "/reasons");
	/* Their settings go with them. */
	mtcopy_unload();
	module_unload("dcbm");
	module_unload("faultdma");
}

const char *migrator_next(const char *previous)
{
	unsigned int next = 0;
	int error;

	if (!migrator_kernel())
		return previous ? NULL : "vanilla";
	if (!previous)
		atexit(migrator_defaults);
	else
		while (strcmp(migrators[next++], previous))
			;
	error = next == NR_MIGRATORS ? 0 : migrator_choose(migrators[next]);
	if (error)
		tap_ok(false, "migrator %s cannot be chosen: %s", migrators[next],
		       strerror(-error));
	if (error || next == NR_MIGRATORS) {
		migrator_defaults();
		return NULL;
	}
	migrator_eager();
	return migrators[next];
}

struct stats migrator_stats(const char *name, const char *reason)
{
	struct stats sum = { 0 };

	if (!migrator_copies(name))
		return sum;
	for (int n = 0; n < NR_REASONS; n++) {
		const struct {
			const char *file;
			long long *sum;
		} counts[] = {
			{ "batches", &sum.batches },
			{ "folios", &sum.folios },
			{ "bytes", &sum.bytes },
			{ "fallbacks", &sum.fallbacks },
			{ "declined", &sum.declined },
		};

		if (reason && strcmp(reason, migrate_reasons[n]))
			continue;
		for (unsigned int i = 0; i < ARRAY_SIZE(counts); i++) {
			long long count = file_number(MIGRATION "/stats/%s/%s/%s", name,
						      migrate_reasons[n], counts[i].file);

			if (count < 0)
				tap_bail("stats/%s/%s/%s: %s", name, migrate_reasons[n],
					 counts[i].file, strerror(-count));
			*counts[i].sum += count;
		}
	}
	return sum;
}

struct stats migrator_since(const char *name, const char *reason, struct stats before)
{
	struct stats now = migrator_stats(name, reason);

	now.batches -= before.batches;
	now.folios -= before.folios;
	now.bytes -= before.bytes;
	now.fallbacks -= before.fallbacks;
	now.declined -= before.declined;
	return now;
}
