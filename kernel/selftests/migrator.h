/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface under test, /sys/kernel/mm/migration, and the modules that copy.
 *
 * Most tests run once with every migrator:
 *
 *	for (name = migrator_next(NULL); name; name = migrator_next(name))
 *
 * On a kernel without the interface that is one pass, with the name "vanilla".
 */
#ifndef _MIGRATOR_H
#define _MIGRATOR_H

#include <stdbool.h>
#include <stddef.h>

#define MIGRATION	"/sys/kernel/mm/migration"

/* Module parameters: of the core, for tests alone; and of mtcopy, for experiments. */
#define MIN_BATCH_BYTES	"/sys/module/migrator/parameters/min_batch_bytes"
#define LARGE_BATCHES	"/sys/module/migrator/parameters/large_batches"
#define GATHER		"/sys/module/migrator/parameters/gather"
#define MTCOPY_PARAMS	"/sys/module/mtcopy/parameters"

/* Lanes that "auto" must use: 100 times CPUs plus channels; 0: as it likes. */
#define AUTO_LANES	"/sys/module/migrator_auto/parameters/lanes"

#define MIN_BATCH	262144
#define MAX_BATCH	4194304

/* Whether this kernel has the interface. */
bool migrator_kernel(void);

/* Bails out if it has not. */
void migrator_needed(void);

/* The one after @previous, chosen, with settings under which every eligible folio goes to it. */
const char *migrator_next(const char *previous);

/* Chooses one, or "auto", loading the modules, and for dcbm an engine if there is none. 0 or -errno. */
int migrator_choose(const char *name);

/* The same, or bails out. */
void migrator_need(const char *name);

/* Whether a name stands for something that copies batches: not "none", not "vanilla". */
bool migrator_copies(const char *name);

/* Every setting as it is after boot, and no migrator. */
void migrator_defaults(void);

/* Every folio of every reason is offered to the migrator, and helpers run at once. */
void migrator_eager(void);

/* Whether the module of mtcopy is loaded, and its settings are there. */
bool mtcopy_loaded(void);

/* What a migrator did. */
struct stats {
	long long folios, bytes, fallbacks, declined, refused;
};

/* Zeros for "none" and "vanilla"; for "auto" sums over all. */
struct stats migrator_stats(const char *name);

/* What happened since @before. */
struct stats migrator_since(const char *name, struct stats before);

#endif /* _MIGRATOR_H */
