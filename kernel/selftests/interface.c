// SPDX-License-Identifier: GPL-2.0-only
/*
 * interface [SECONDS]: every file under /sys/kernel/mm/migration takes what it documents,
 * gives it back, and refuses everything else with EINVAL without any change; also while
 * pages migrate. Nobody but root may write.
 */
#include "content.h"
#include "emulator.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "modules.h"
#include "nodes.h"
#include "settings.h"
#include "tap.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEXT	512

/* `reasons` of which all but the first and the last two have the default. */
#define REASONS(compaction, demotion, damon)					\
	"compaction " compaction "\nmemory_failure default\nmemory_hotplug default\n"	\
	"syscall_or_cpuset default\nmempolicy_mbind default\nnuma_misplaced default\n"	\
	"contig_range default\nlongterm_pin default\ndemotion " demotion "\ndamon " damon

static const struct setting files[] = {
	{
		.name = "migrator",
		.good = {
			{ "kernel", "none auto [kernel] mtcopy dcbm" },
			{ "mtcopy\n", "none auto kernel [mtcopy] dcbm" },
			{ "mtcopy", "none auto kernel [mtcopy] dcbm" },
			{ "auto", "none [auto] kernel mtcopy dcbm" },
			{ "none\n", "[none] auto kernel mtcopy dcbm" },
		},
		.bad = {
			"non", "nonex", "kerne", "kernel mtcopy", "Kernel", "[kernel]", " kernel",
			"kernel\n\n", "dcbm-not-there", "0", "1", "\n", "mtcopy,kernel", "all",
			"kernel\tmtcopy", "default", "kernel only", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		},
	},
	{
		.name = "reasons",
		.good = {
			{ "compaction none", REASONS("none", "default", "default") },
			{ "demotion mtcopy only\n", REASONS("none", "mtcopy only", "default") },
			{ "compaction default,damon kernel", REASONS("default", "mtcopy only", "kernel") },
			{ "  demotion\tauto\n\ndamon none\ndamon mtcopy\n",
			  REASONS("default", "auto", "mtcopy") },
			{ REASONS("none", "kernel only", "auto"), NULL },
			{ "demotion none only", REASONS("none", "none only", "auto") },
			{ "all default\n", REASONS("default", "default", "default") },
		},
		.bad = {
			"compaction", "all", "none", "compactio none", "compaction,demotion",
			"compaction none onl", "compaction auto only", "compaction default only",
			"compaction mtcopy onl", "compaction mtcopy only only", "compaction mtcop",
			"ALL none", "0", "-1 none", "compaction none\ndemotion", "\n", ",,",
			"demotion none,nothing none", "* none", "all all", "all! none",
		},
	},
	{
		.name = "max_batch_bytes",
		.good = {
			{ "2097152", NULL },
			{ "33554432\n", "33554432" },
			{ "0x400000", "4194304" },
			/* Base pages of 64 KiB and of 4 KiB have it. */
			{ "2162688", NULL },
			{ "4194304", NULL },
		},
		.bad = {
			"0", "4096", "2097151", "2093056", "2097153", "33554433", "33619968",
			"1073741824", "-1",
			"18446744073709551615", "18446744073709547520", "99999999999999999999", "abc",
			"4M", "\n", " ", "4194304 1", "1048576",
		},
	},
	{
		.name = "mtcopy/lanes",
		.good = {
			{ "1", NULL },
			{ "64\n", "64" },
			{ "0x10", "16" },
			{ "2", NULL },
		},
		.bad = {
			"0", "65", "-1", "4294967297", "4294967298", "99999999999999999999", "two",
			"2 2", "\n", " ", "1x", "18446744073709551617",
		},
	},
	{
		.name = "dcbm/lanes",
		.good = {
			{ "1", NULL },
			{ "64\n", "64" },
			{ "0x8", "8" },
			{ "4", NULL },
		},
		.bad = {
			"0", "65", "-1", "4294967297", "99999999999999999999", "four", "4 4", "\n",
			" ", "1x",
		},
	},
};

#define NR_FILES	ARRAY_SIZE(files)

static const struct settings settings = {
	.root = MIGRATION,
	.list = files,
	.nr = NR_FILES,
};

static void test_boot_values(void)
{
	char text[TEXT];

	tap_ok(!file_read(text, sizeof(text), MIGRATION "/migrator") &&
	       !strncmp(text, "[none]", 6), "no migrator at first");
	tap_ok(!file_read(text, sizeof(text), MIGRATION "/reasons") &&
	       !strcmp(text, REASONS("default", "default", "default")),
	       "the default for all reasons at first");
	tap_ok(file_number(MIN_BATCH_BYTES) == MIN_BATCH, "min_batch_bytes is %d", MIN_BATCH);
	tap_ok(file_number(MIGRATION "/max_batch_bytes") == MAX_BATCH, "max_batch_bytes is %d",
	       MAX_BATCH);
	tap_ok(!file_number(MIGRATION "/quarantined_bytes") &&
	       file_write("0", MIGRATION "/quarantined_bytes") < 0 &&
	       setting_mode_is(&settings, "quarantined_bytes", 0444), "nothing is in quarantine");
}

static void test_stats(void)
{
	static const char *const counts[] = { "folios", "bytes", "fallbacks", "declined",
						"refused" };
	static const char *const names[] = { "kernel", "mtcopy", "dcbm" };

	for (unsigned int m = 0; m < ARRAY_SIZE(names); m++) {
		struct stats before, stats;
		struct memory memory;
		bool readonly = true;

		for (unsigned int c = 0; c < ARRAY_SIZE(counts); c++)
			readonly &= file_write("0", MIGRATION "/stats/%s/%s", names[m],
					       counts[c]) < 0;
		tap_ok(readonly, "stats of %s cannot be written", names[m]);

		migrator_choose(names[m]);
		migrator_eager();
		memory_need(&memory, "anonymous", HUGE_BYTES, node_at(0), 0);
		before = migrator_stats(names[m]);
		memory_move(&memory, node_at(1), 10);
		stats = migrator_since(names[m], before);
		tap_ok(stats.folios > 0 && stats.bytes > 0, "stats of %s count", names[m]);
		memory_drop(&memory);
	}
	file_write("none", MIGRATION "/migrator");
}

static void test_permissions(void)
{
	bool modes = true, refused = true, readable = true;
	int status = -1;
	pid_t pid;

	for (unsigned int n = 0; n < NR_FILES; n++)
		modes &= setting_mode_is(&settings, files[n].name, 0644);
	tap_ok(modes, "files are root's, mode 0644");
	tap_ok(setting_mode_is(&settings, "stats/kernel/folios", 0444), "stats have mode 0444");

	fflush(stdout);
	pid = fork();
	if (!pid) {
		if (setgid(65534) || setuid(65534))
			_exit(2);
		for (unsigned int n = 0; n < NR_FILES; n++) {
			char text[TEXT];

			refused &= file_write(files[n].good[0][0], MIGRATION "/%s",
					      files[n].name) == -EACCES;
			readable &= !file_read(text, sizeof(text), MIGRATION "/%s",
					       files[n].name);
		}
		_exit(!refused || !readable);
	}
	waitpid(pid, &status, 0);
	tap_ok(!status, "others read and do not write");
}

static unsigned int nr_found;

static int found(const char *path, const struct stat *stat, int type, struct FTW *at)
{
	(void)path;
	(void)stat;
	(void)at;
	nr_found += type == FTW_F;
	return 0;
}

/* What can be set, what is told, and five counts of each migrator. */
static void test_no_more_files(void)
{
	if (nftw(MIGRATION, found, 8, FTW_PHYS))
		tap_bail(MIGRATION " cannot be walked");
	tap_ok(nr_found == NR_FILES + 2 + 3 * 5 && file_exists(MIGRATION "/dcbm/devices") &&
	       file_exists(MIGRATION "/quarantined_bytes"),
	       "there are no files but these, devices, quarantined_bytes and stats: %u", nr_found);
}

/* Random bytes, mostly made of pieces of valid values. */
static size_t random_text(char *text, size_t size)
{
	static const char *const pieces[] = {
		"none", "kernel", "mtcopy", "all", "auto", "default", " only", "compaction", "demotion", " ", "\n", ",", "0",
		"1", "-", "2097152", "4194304", "262144", "x", "[", "]", "\t", "\xff",
	};
	size_t length = 0;

	for (int n = rand() % 5; n >= 0; n--) {
		const char *piece = pieces[rand() % ARRAY_SIZE(pieces)];

		if (length + strlen(piece) < size) {
			strcpy(text + length, piece);
			length += strlen(piece);
		}
	}
	while (length < size && !(rand() % 4))
		text[length++] = rand();
	return length;
}

/* Returns whether every file reads as one of the values that it may have. */
static bool valid(void)
{
	long long most = file_number(MIGRATION "/max_batch_bytes");
	long long lanes = file_number(MIGRATION "/mtcopy/lanes");
	long long channels = file_number(MIGRATION "/dcbm/lanes");
	char text[TEXT];

	if (file_read(text, sizeof(text), MIGRATION "/migrator") || !strchr(text, '[') ||
	    strchr(text, '[') != strrchr(text, '['))
		return false;
	if (file_read(text, sizeof(text), MIGRATION "/reasons") || !text[0])
		return false;
	return most >= 2 << 20 && most <= 32 << 20 && lanes >= 1 &&
	       lanes <= 64 && channels >= 1 && channels <= 64;
}

struct fuzz {
	unsigned long writes, taken, refused;
	bool valid;
	int other;			/* an error that no write may have */
};

/* Writes to files from @first on until @end. */
static void fuzz(struct fuzz *fuzz, unsigned int first, time_t end)
{
	while (time(NULL) < end) {
		const struct setting *file = &files[first + rand() % (NR_FILES - first)];
		char text[TEXT];
		size_t length = random_text(text, sizeof(text));
		int error;

		/* write(2) of nothing does not reach the file. */
		if (!length)
			continue;
		error = file_write_bytes(text, length, MIGRATION "/%s", file->name);
		fuzz->writes++;
		fuzz->taken += !error;
		fuzz->refused += error == -EINVAL;
		if (error && error != -EINVAL)
			fuzz->other = error;
		if (!(fuzz->writes % 64) && !valid())
			fuzz->valid = false;
	}
}

static pid_t start_mover(struct content *content, time_t end)
{
	size_t wrong;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid)
		return pid;
	content_start_writers(content);
	for (int n = 0; time(NULL) < end; n++)
		move_range(content->at, content->bytes, 0, node_at(n), MPOL_MF_MOVE_ALL, 2);
	content_stop_writers(content);
	wrong = content_wrong(content, "while settings change");
	fflush(stdout);
	_exit(!!wrong);
}

static void test_random(long long seconds)
{
	struct fuzz seen = { .valid = true };
	size_t bytes = 4UL << 20;
	struct content *content;
	int status = -1;
	time_t end;
	pid_t pid;

	content = content_new(map_anonymous(bytes, false), bytes, 1);
	content_fill(content);
	srand(1);
	fuzz(&seen, 0, time(NULL) + 1);
	migrator_choose("mtcopy");
	end = time(NULL) + seconds;
	pid = start_mover(content, end);
	/* The first files are `migrator` and `reasons`. */
	fuzz(&seen, emulator_patches_badly() ? 2 : 0, end);
	waitpid(pid, &status, 0);
	tap_note("%lu random writes: %lu taken, %lu refused", seen.writes, seen.taken,
		 seen.refused);
	tap_ok(!seen.other && seen.taken && seen.refused,
	       "random writes are taken or refused with EINVAL");
	if (seen.other)
		tap_note("there was error %d", seen.other);
	tap_ok(seen.valid && valid(), "files stay valid");
	tap_ok(!status, "contents while settings change");
	content_free(content);
}

int main(int argc, char **argv)
{
	tap_start();
	nodes_with_memory();
	migrator_needed();
	atexit(migrator_defaults);
	test_boot_values();
	if (module_load("mtcopy", ""))
		tap_bail("mtcopy cannot be loaded");
	module_need("dcbm", "%s", "");
	settings_test(&settings);
	test_stats();
	test_permissions();
	test_no_more_files();
	test_random(argc > 1 ? atoll(argv[1]) : 3);
	return tap_done();
}
