// SPDX-License-Identifier: GPL-2.0-only
/* Figures in TAP and JSON. */
#include "figures.h"
#include "files.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *file;
static char path[FILE_PATH];
static const char *comma;

#define NAME(format)						\
	char name[256];						\
	do {							\
		va_list args;					\
		va_start(args, format);				\
		vsnprintf(name, sizeof(name), format, args);	\
		va_end(args);					\
	} while (0)

/* Also where the program bails out: the figures so far can be read. */
static void end(void)
{
	if (fprintf(file, "\n]}\n") < 0 || fclose(file))
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
}

void figures_start(const char *program)
{
	const char *folder = getenv("RESULTS");

	snprintf(path, sizeof(path), "%s/%s.json", folder ? folder : ".", program);
	file = fopen(path, "we");
	if (!file)
		tap_bail("%s: %s", path, strerror(errno));
	fprintf(file, "{\"schema\":\"memferry-timed/1\",\"modelled\":true,\"figures\":[");
	comma = "";
	atexit(end);
}

static void row(const char *name, const char *unit, double found)
{
	/* JSON has no infinity. */
	fprintf(file, "%s\n{\"name\":\"%s\",\"unit\":\"%s\",\"found\":%.3f", comma, name, unit,
		isfinite(found) ? found : -1);
	comma = ",";
}

static bool judge(bool good, double found, double low, double high, const char *unit, const char *name)
{
	row(name, unit, found);
	fprintf(file, ",\"low\":%.3f,\"high\":%.3f,\"good\":%s}", low, high, good ? "true" : "false");
	return good;
}

bool figure_near(double found, double expected, double tolerance, const char *unit,
		 const char *format, ...)
{
	double low = expected * (1 - tolerance), high = expected * (1 + tolerance);
	bool good = found >= low && found <= high;

	NAME(format);

	judge(good, found, low, high, unit, name);
	return tap_ok(good, "%s: found %.3f %s, expected %.3f within %.1f%%, off by %+.1f%%", name, found,
		      unit, expected, tolerance * 100, expected ? (found / expected - 1) * 100 : 0);
}

bool figure_within(double found, double low, double high, const char *unit, const char *format, ...)
{
	bool good = found >= low && found <= high;

	NAME(format);

	judge(good, found, low, high, unit, name);
	return tap_ok(good, "%s: found %.3f %s, expected %.3f to %.3f", name, found, unit, low, high);
}

void figure_note(double found, const char *unit, const char *format, ...)
{
	NAME(format);

	row(name, unit, found);
	fprintf(file, "}");
	tap_note("%s: %.3f %s", name, found, unit);
}
