// SPDX-License-Identifier: GPL-2.0-only
/*
 * kunit SUITE...: reads what the kernel's own unit tests said at boot, from debugfs, and
 * fails for a suite that is not there, that ran nothing or in which something failed.
 */
#include "files.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

#define KUNIT	"/sys/kernel/debug/kunit"
#define SIZE	(256 << 10)

/* Prints the suite's lines and counts those of its tests, which are indented once. */
static void read_lines(char *text, unsigned int *good, unsigned int *bad)
{
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		tap_note("%s", line);
		if (!strncmp(line, "    ok ", 7))
			++*good;
		if (!strncmp(line, "    not ok ", 11) || !strncmp(line, "not ok ", 7))
			++*bad;
	}
}

static void test(const char *suite)
{
	unsigned int good = 0, bad = 0;
	char *text = malloc(SIZE);
	int error;

	error = file_read(text, SIZE, KUNIT "/%s/results", suite);
	if (error)
		tap_note("%s/%s/results: %s", KUNIT, suite, strerror(-error));
	else
		read_lines(text, &good, &bad);
	tap_ok(!error && good && !bad, "%s: %u passed, %u failed", suite, good, bad);
	free(text);
}

int main(int argc, char **argv)
{
	tap_start();
	mount_once("debugfs", "/sys/kernel/debug");
	if (argc < 2)
		tap_bail("say which suites");
	for (int n = 1; n < argc; n++)
		test(argv[n]);
	return tap_done();
}
