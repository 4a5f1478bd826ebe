// SPDX-License-Identifier: GPL-2.0-only
/*
 * upstream NAME...: runs Linux's own tests of memory management, built from its source into
 * the folder linux beside this program, once with each migrator. What a test prints is passed
 * on as notes; its exit status and its own "not ok" lines are the result.
 */
#include "files.h"
#include "migrator.h"
#include "nodes.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define POOL		"/proc/sys/vm/nr_hugepages"
#define SKIPPED		4

/**
 * struct test - one of them
 * @arguments: after the program's name
 * @huge_pages: in hugetlb's pool while it runs
 * @migrates: it must make the migrator copy something
 * @fails: lines that may be "not ok" because they are on a kernel without our series, too;
 *	one of these must be part of the line
 */
struct test {
	const char *name;
	const char *arguments[4];
	unsigned int huge_pages;
	bool migrates;
	const char *fails[4];
};

#define UFFD_UNIT(filter)							\
	{ .name = "uffd-unit-tests", .arguments = { "-f", filter }, .huge_pages = 40 }

static const struct test tests[] = {
	/*
	 * Its last part asks for a hugetlb page up to 100 times while two processes do nothing
	 * but read it, and under emulation one of them is always in a fault.
	 */
	{
		.name = "migration",
		.huge_pages = 16,
		.migrates = true,
		.fails = { "migration.shared_anon_htlb" },
	},
	/*
	 * All but "poison", at which the kernel prints a line for every page it finds, minutes
	 * of them on a serial console.
	 */
	UFFD_UNIT("register-ioctls"),
	UFFD_UNIT("zeropage"),
	UFFD_UNIT("move"),
	UFFD_UNIT("wp-"),
	UFFD_UNIT("minor"),
	UFFD_UNIT("sigbus"),
	UFFD_UNIT("events"),
	{ .name = "uffd-stress", .arguments = { "anon", "4", "2" } },
	{ .name = "uffd-stress", .arguments = { "shmem", "4", "2" } },
	{ .name = "uffd-stress", .arguments = { "hugetlb", "8", "2" }, .huge_pages = 16 },
	{ .name = "ksm_functional_tests" },
	{ .name = "cow", .huge_pages = 16 },
	{ .name = "gup_longterm", .huge_pages = 16 },
	{ .name = "compaction_test" },
	{ .name = "hugepage-mmap", .huge_pages = 128 },
	{ .name = "hugepage-mremap", .huge_pages = 16 },
	{ .name = "hugetlb-madvise", .huge_pages = 32 },
	{ .name = "hugetlb_dio", .huge_pages = 16 },
	{ .name = "hugetlb_fault_after_madv", .huge_pages = 1 },
	{ .name = "hugetlb_madv_vs_map", .huge_pages = 1 },
	{ .name = "madv_populate" },
	{ .name = "map_populate" },
	{ .name = "mkdirty" },
	{ .name = "mlock2-tests" },
	/* Guests have no 4 GiB to move 2 GiB about. */
	{ .name = "mremap_test", .fails = { "2GB mremap" } },
	{ .name = "split_huge_page_test" },
	{ .name = "transhuge-stress", .arguments = { "-d", "2" } },
};

#define NR_TESTS	ARRAY_SIZE(tests)

struct result {
	int status;
	unsigned int good, skipped, bad, known;
};

static bool is_known(const struct test *test, const char *line)
{
	for (unsigned int n = 0; n < 4 && test->fails[n]; n++)
		if (strstr(line, test->fails[n]))
			return true;
	return false;
}

static void read_line(const struct test *test, char *line, struct result *result)
{
	const char *text = line + strspn(line, " \t");

	line[strcspn(line, "\n")] = '\0';
	tap_note("%s", line);
	if (!strncmp(text, "not ok", 6) && is_known(test, text))
		result->known++;
	else if (!strncmp(text, "not ok", 6))
		result->bad++;
	else if (!strncmp(text, "ok", 2) && strstr(text, "SKIP"))
		result->skipped++;
	else if (!strncmp(text, "ok", 2))
		result->good++;
}

static void execute(const struct test *test, int output)
{
	const char *command[6] = { test->name };
	char path[FILE_PATH];

	for (unsigned int n = 0; n < 4; n++)
		command[n + 1] = test->arguments[n];
	snprintf(path, sizeof(path), "./%s", test->name);
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	/* ksm_functional_tests executes itself, and looks for itself in the current folder. */
	if (!chdir("linux"))
		execv(path, (char *const *)command);
	dprintf(STDERR_FILENO, "%s: %s\n", path, strerror(errno));
	_exit(127);
}

static struct result run(const struct test *test)
{
	struct result result = { .status = -1 };
	char line[4096];
	int ends[2];
	FILE *output;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		tap_bail("no pipe: %s", strerror(errno));
	fflush(stdout);
	pid = fork();
	if (!pid)
		execute(test, ends[1]);
	close(ends[1]);
	output = fdopen(ends[0], "r");
	while (fgets(line, sizeof(line), output))
		read_line(test, line, &result);
	fclose(output);
	waitpid(pid, &result.status, 0);
	return result;
}

static void test_one(const struct test *test, const char *migrator)
{
	struct stats before, done;
	struct result result;
	char what[96] = "";
	bool failed;
	int status;

	strcpy(what, test->name);
	for (unsigned int n = 0; n < 4 && test->arguments[n]; n++)
		snprintf(what + strlen(what), sizeof(what) - strlen(what), " %s",
			 test->arguments[n]);
	file_write("3", "/proc/sys/vm/drop_caches");
	file_write_number(test->huge_pages, POOL);
	before = migrator_stats(migrator);
	result = run(test);
	done = migrator_since(migrator, before);
	file_write("0", POOL);

	status = WIFEXITED(result.status) ? WEXITSTATUS(result.status) : -1;
	tap_note("%s, %s: status %#x; %u passed, %u skipped, %u failed, %u known to fail; %lld folios copied",
		 what, migrator, result.status, result.good, result.skipped, result.bad, result.known,
		 done.folios);
	/* A test with known failures cannot end with status 0. */
	failed = status && status != SKIPPED && !(status == 1 && result.known);
	if (status == SKIPPED && !result.good && !result.bad)
		tap_skip(test->name, "it says so, see above");
	else
		tap_ok(!failed && !result.bad, "%s, %s", what, migrator);
	if (test->migrates && migrator_copies(migrator))
		tap_ok(done.folios > 0, "%s, %s: copied by the migrator", test->name, migrator);
}

int main(int argc, char **argv)
{
	const char *name;

	tap_start();
	nodes_with_memory();
	if (argc < 2)
		tap_bail("say which tests");
	file_restore_at_exit(POOL);
	for (name = migrator_next(NULL); name; name = migrator_next(name))
		for (int n = 1; n < argc; n++) {
			bool found = false;

			for (unsigned int i = 0; i < NR_TESTS; i++)
				if (!strcmp(argv[n], tests[i].name)) {
					found = true;
					test_one(&tests[i], name);
				}
			if (!found)
				tap_bail("no test is called '%s'", argv[n]);
		}
	return tap_done();
}
