/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Figures of a test: what was found, what was expected. Each is a line of TAP, and a row of
 * $RESULTS/PROGRAM.json. Names hold no quotes.
 */
#ifndef _FIGURES_H
#define _FIGURES_H

#include <stdbool.h>

#include "tap.h"

/* Bails out if the file cannot be made. It ends when the program does. */
void figures_start(const char *program);

/* A test: @found is @expected, or a part of @tolerance more or less. */
__printf(5, 6) bool figure_near(double found, double expected, double tolerance, const char *unit,
				const char *name, ...);

/* A test: @found is @low to @high. */
__printf(5, 6) bool figure_within(double found, double low, double high, const char *unit,
				  const char *name, ...);

/* No test: a figure for people. */
__printf(3, 4) void figure_note(double found, const char *unit, const char *name, ...);

#endif /* _FIGURES_H */
