// SPDX-License-Identifier: GPL-2.0-only
/* The Test Anything Protocol on standard output. */
#include "tap.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned int tests;
static unsigned int failures;

void tap_start(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("TAP version 13\n");
}

bool tap_ok(bool good, const char *name, ...)
{
	va_list args;

	va_start(args, name);
	printf("%s %u ", good ? "ok" : "not ok", ++tests);
	vprintf(name, args);
	printf("\n");
	va_end(args);
	if (!good)
		failures++;
	return good;
}

void tap_skip(const char *name, const char *why, ...)
{
	va_list args;

	va_start(args, why);
	printf("ok %u %s # SKIP ", ++tests, name);
	vprintf(why, args);
	printf("\n");
	va_end(args);
}

void tap_note(const char *text, ...)
{
	va_list args;

	va_start(args, text);
	printf("# ");
	vprintf(text, args);
	printf("\n");
	va_end(args);
}

void tap_bail(const char *text, ...)
{
	va_list args;

	va_start(args, text);
	printf("Bail out! ");
	vprintf(text, args);
	printf("\n");
	va_end(args);
	exit(1);
}

int tap_done(void)
{
	printf("1..%u\n", tests);
	return failures || !tests;
}
