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
#include <unistd.h>

static const char *const migrators[] = { "none", "kernel", "mtcopy", "dcbm" };
#define NR_MIGRATORS	4

bool migrator_kernel(void)
{
	return file_exists(MIGRATION "/migrator");
}

void migrator_needed(void)
{
	if (!migrator_kernel())
		tap_bail("no " MIGRATION ": this kernel is without migrators");
}

bool migrator_copies(const char *name)
{
	return strcmp(name, "none") && strcmp(name, "vanilla");
}

bool mtcopy_loaded(void)
{
	return module_loaded("mtcopy") && file_exists(MIGRATION "/mtcopy");
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
	bool automatic = !strcmp(name, "auto");
	int error = 0;

	if (automatic || !strcmp(name, "dcbm"))
		error = choose_dcbm();
	if (!error && (automatic || !strcmp(name, "mtcopy")))
		error = module_load("mtcopy", "");
	return error ? error : file_write(name, MIGRATION "/migrator");
}

void migrator_need(const char *name)
{
	int error = migrator_choose(name);

	if (error)
		tap_bail("migrator %s cannot be chosen: %s", name, strerror(-error));
}

void migrator_eager(void)
{
	if (!migrator_kernel())
		return;
	file_need("0", MIN_BATCH_BYTES);
	file_need("all default", MIGRATION "/reasons");
	if (!mtcopy_loaded())
		return;
	/* A guest that is busy with writers has no idle CPU: helpers run all the same. */
	file_need_number(sysconf(_SC_NPROCESSORS_ONLN), MIGRATION "/mtcopy/lanes");
	file_need("0", MTCOPY_PARAMS "/idle_only");
}

void migrator_defaults(void)
{
	if (!migrator_kernel())
		return;
	file_write("all default", MIGRATION "/reasons");
	file_write("none", MIGRATION "/migrator");
	file_write("0", AUTO_LANES);
	file_write_number(MIN_BATCH, MIN_BATCH_BYTES);
	file_write_number(MAX_BATCH, MIGRATION "/max_batch_bytes");
	/* Their settings go with them. */
	module_unload("mtcopy");
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

static void add(struct stats *sum, struct stats stats, int sign)
{
	sum->folios += sign * stats.folios;
	sum->bytes += sign * stats.bytes;
	sum->fallbacks += sign * stats.fallbacks;
	sum->declined += sign * stats.declined;
	sum->refused += sign * stats.refused;
}

struct stats migrator_stats(const char *name)
{
	struct stats stats = { 0 };
	const struct {
		const char *file;
		long long *count;
	} counts[] = {
		{ "folios", &stats.folios },
		{ "bytes", &stats.bytes },
		{ "fallbacks", &stats.fallbacks },
		{ "declined", &stats.declined },
		{ "refused", &stats.refused },
	};

	if (!migrator_copies(name))
		return stats;
	if (!strcmp(name, "auto")) {
		for (unsigned int n = 0; n < NR_MIGRATORS; n++)
			if (file_exists(MIGRATION "/stats/%s", migrators[n]))
				add(&stats, migrator_stats(migrators[n]), 1);
		return stats;
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(counts); i++) {
		*counts[i].count = file_number(MIGRATION "/stats/%s/%s", name, counts[i].file);
		if (*counts[i].count < 0)
			tap_bail("stats/%s/%s: %s", name, counts[i].file,
				 strerror(-*counts[i].count));
	}
	return stats;
}

struct stats migrator_since(const char *name, struct stats before)
{
	struct stats now = migrator_stats(name);

	add(&now, before, -1);
	return now;
}
