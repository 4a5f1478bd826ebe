// SPDX-License-Identifier: GPL-2.0-only
/* The sysfs interface of migration, and the module of mtcopy. */
#include "migrator.h"
#include "files.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const migrate_reasons[NR_REASONS] = {
	"compaction", "memory_failure", "memory_hotplug", "syscall_or_cpuset",
	"mempolicy_mbind", "numa_misplaced", "contig_range", "longterm_pin", "demotion",
	"damon",
};

static const char *const migrators[] = { "none", "kernel", "mtcopy" };
#define NR_MIGRATORS	3

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
	return file_exists("/sys/module/mtcopy") && file_exists(MIGRATION "/mtcopy");
}

static int run(const char *const *command)
{
	int status;
	pid_t pid;

	pid = fork();
	if (!pid) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
		execvp(command[0], (char *const *)command);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -errno;
	return status ? -ENOENT : 0;
}

static char module_path[FILE_PATH];

static int find_module(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	(void)stat;
	if (type == FTW_F && !strcmp(path + ftw->base, "mtcopy.ko")) {
		snprintf(module_path, sizeof(module_path), "%s", path);
		return 1;
	}
	return 0;
}

/* MTCOPY_KO says where the module is when it is not installed. */
static int load_file(void)
{
	const char *given = getenv("MTCOPY_KO");
	struct utsname name;
	char tree[FILE_PATH];
	int fd, error = 0;

	if (given) {
		snprintf(module_path, sizeof(module_path), "%s", given);
	} else if (!module_path[0]) {
		uname(&name);
		snprintf(tree, sizeof(tree), "/lib/modules/%s", name.release);
		nftw(tree, find_module, 16, FTW_PHYS);
	}
	fd = open(module_path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (syscall(SYS_finit_module, fd, "", 0))
		error = -errno;
	close(fd);
	return error == -EEXIST ? 0 : error;
}

int mtcopy_load(void)
{
	static const char *const modprobe[] = { "modprobe", "mtcopy", NULL };
	static const char *const busybox[] = { "busybox", "modprobe", "mtcopy", NULL };
	int error;

	if (mtcopy_loaded())
		return 0;
	error = load_file();
	/* modprobe also loads what the module needs. */
	if (error && run(modprobe))
		run(busybox);
	return mtcopy_loaded() ? 0 : error ? error : -ENOENT;
}

int mtcopy_unload(void)
{
	return syscall(SYS_delete_module, "mtcopy", O_NONBLOCK) ? -errno : 0;
}

int migrator_choose(const char *name)
{
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
	/* Its settings go with it. */
	mtcopy_unload();
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
