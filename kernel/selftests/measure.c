// SPDX-License-Identifier: GPL-2.0-only
/*
 * measure [ROUNDS]: what a migration costs, by migrator and number of lanes, folio size and
 * folios per call: the time that passes and the CPU time of the migrating thread, for the
 * machines where the project's benchmark, a Rust program, does not run. Everything is
 * measured once per round, so that what the host does meanwhile hits all alike; medians are
 * told. Every byte is compared after each move. Writes measure.json to $RESULTS.
 */
#include "clock.h"
#include "content.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROUNDS_MAX	99

static const struct setting {
	const char *migrator;
	unsigned int lanes;
} settings[] = {
	{ "none", 1 },
	{ "kernel", 1 },
	{ "mtcopy", 2 },
	{ "dcbm", 1 },
	{ "dcbm", 2 },
	{ "dcbm", 4 },
	{ "dcbm", 8 },
};

/* Base pages in numbers that were published for those of 64 KiB, too. */
static struct size {
	const char *kind;
	size_t folio;			/* 0 for base pages, until main() fills it in */
	unsigned int folios;
} sizes[] = {
	{ "anonymous", 0, 1 },
	{ "anonymous", 0, 32 },
	{ "anonymous", 0, 256 },
	{ "anonymous", 0, 512 },
	{ "anonymous, 64 KiB", 64UL << 10, 32 },
	{ "anonymous, 2048 KiB", 2UL << 20, 1 },
	{ "anonymous, 2048 KiB", 2UL << 20, 8 },
};

#define NR_SETTINGS	ARRAY_SIZE(settings)
#define NR_SIZES	ARRAY_SIZE(sizes)

static struct result {
	bool there;
	double wall[ROUNDS_MAX], cpu[ROUNDS_MAX];	/* ns */
	long long copied;		/* bytes, by the migrator */
	size_t verified, left;
} results[NR_SIZES][NR_SETTINGS];

/* Chooses the migrator as users do: what it declines by default it declines here. */
static bool choose(const struct setting *setting)
{
	if (migrator_choose(setting->migrator))
		return false;
	return !strcmp(setting->migrator, "none") || !strcmp(setting->migrator, "kernel") ||
	       !file_write_number(setting->lanes, MIGRATION "/%s/lanes", setting->migrator);
}

/* One call of move_pages(2) to the other node. */
static void move_once(const struct size *size, const char *migrator, struct memory *memory,
		      struct result *result, int round)
{
	struct stats before = migrator_stats(migrator);
	size_t pages = size->folios;
	long long wall, cpu, rc;
	void *addresses[512];
	int nodes[512], status[512];

	for (size_t n = 0; n < pages; n++) {
		addresses[n] = memory->at + n * size->folio;
		nodes[n] = node_at(1);
	}
	result->there = true;
	cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
	wall = now_ns(CLOCK_MONOTONIC);
	rc = move_pages(0, pages, addresses, nodes, status, MPOL_MF_MOVE);
	result->wall[round] = now_ns(CLOCK_MONOTONIC) - wall;
	result->cpu[round] = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	if (rc < 0)
		tap_bail("move_pages(2): %s", strerror(-rc));
	result->copied += migrator_since(migrator, before).bytes;
	result->left += memory->bytes / page_bytes() -
			pages_on(memory->at, memory->bytes, node_at(1));
	if (!memory_wrong(memory, size->kind))
		result->verified += memory->bytes;
}

static void measure_round(const struct size *size, struct result *row, int round)
{
	for (unsigned int s = 0; s < NR_SETTINGS; s++) {
		struct memory memory;

		if (!choose(&settings[s]))
			continue;
		/*
		 * The first move after a choice is not like the others: the choice patches the kernel's
		 * text, which an emulator translates anew.
		 */
		for (int warm = 2; warm >= 0; warm--) {
			/*
			 * Memory of its own: what one migrator leaves behind is not the next one's, and
			 * Linux splits folios smaller than 2 MiB when they move a second time.
			 */
			if (!memory_make(&memory, kind_named(size->kind), size->folio * size->folios,
					 node_at(0), 0))
				break;
			if (!warm)
				move_once(size, settings[s].migrator, &memory, &row[s], round);
			else
				memory_move(&memory, node_at(1), 5);
			memory_drop(&memory);
		}
	}
}

static void tell(FILE *file, int rounds)
{
	const char *comma = "";

	fprintf(file, "{\"schema\":\"memferry-guest/1\",\"emulated\":true,\"rows\":[");
	for (unsigned int z = 0; z < NR_SIZES; z++) {
		double none = median_of(results[z][0].wall, rounds);

		for (unsigned int s = 0; s < NR_SETTINGS; s++) {
			struct result *result = &results[z][s];
			double wall = median_of(result->wall, rounds);
			double cpu = median_of(result->cpu, rounds);

			if (!result->there)
				continue;
			tap_note("%7zu B x %3u  %-7s %u lanes: %9.0f ns, of none %5.2f, CPU %9.0f ns, copied by it %3.0f %%",
				 sizes[z].folio, sizes[z].folios, settings[s].migrator,
				 settings[s].lanes, wall, none / wall, cpu,
				 result->copied * 100.0 / (sizes[z].folio * sizes[z].folios * rounds));
			fprintf(file, "%s\n{\"migrator\":\"%s\",\"lanes\":%u,\"folio_bytes\":%zu,\"folios\":%u,\"runs\":%d,\"call_ns\":%.0f,\"of_none\":%.3f,\"cpu_ns\":%.0f,\"copied_bytes\":%lld,\"verified_bytes\":%zu}",
				comma, settings[s].migrator, settings[s].lanes, sizes[z].folio,
				sizes[z].folios, rounds, wall, none / wall, cpu,
				result->copied, result->verified);
			comma = ",";
		}
	}
	fprintf(file, "\n]}\n");
}

static void judge(int rounds)
{
	for (unsigned int z = 0; z < NR_SIZES; z++)
		for (unsigned int s = 0; s < NR_SETTINGS; s++) {
			const struct result *result = &results[z][s];
			const char *migrator = settings[s].migrator;
			size_t bytes = sizes[z].folio * sizes[z].folios;

			if (!result->there) {
				tap_skip(migrator, "%zu B x %u: it or this memory is not to be had",
					 sizes[z].folio, sizes[z].folios);
				continue;
			}
			tap_ok(result->verified == bytes * rounds && !result->left,
			       "%zu B x %u, %s, %u lanes: all moved, every byte right", sizes[z].folio,
			       sizes[z].folios, migrator, settings[s].lanes);
			/* The CPU copies nothing of a batch that was offloaded. */
			if (!strcmp(migrator, "dcbm") && bytes >= MIN_BATCH)
				tap_ok(result->copied == (long long)bytes * rounds,
				       "%zu B x %u, %s, %u lanes: the channels copied every byte",
				       sizes[z].folio, sizes[z].folios, migrator, settings[s].lanes);
		}
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 9;
	const char *folder = getenv("RESULTS");
	char path[FILE_PATH];
	FILE *file;

	if (rounds < 1 || rounds > ROUNDS_MAX)
		tap_bail("1 to %d rounds", ROUNDS_MAX);
	tap_start();
	nodes_with_memory();
	migrator_needed();
	atexit(migrator_defaults);
	for (unsigned int z = 0; z < NR_SIZES; z++)
		if (!sizes[z].folio)
			sizes[z].folio = page_bytes();
	for (unsigned int z = 0; z < NR_SIZES; z++)
		for (int round = 0; round < rounds; round++)
			measure_round(&sizes[z], results[z], round);
	snprintf(path, sizeof(path), "%s/measure.json", folder ? folder : ".");
	file = fopen(path, "we");
	if (!file)
		tap_bail("%s: %s", path, strerror(errno));
	tell(file, rounds);
	if (fclose(file))
		tap_bail("%s: %s", path, strerror(errno));
	judge(rounds);
	return tap_done();
}
