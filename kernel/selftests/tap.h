/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a test program prints: the Test Anything Protocol, version 13, with the plan at the
 * end. A program that dies prints no plan, which is a failure for whoever reads it.
 */
#ifndef _TAP_H
#define _TAP_H

#include <stdbool.h>

#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))
#define __printf(text, first)	__attribute__((format(printf, text, first)))

/* Prints the header. First of all calls. */
void tap_start(void);

/* One test: "ok N name" or "not ok N name". Returns @good. */
__printf(2, 3) bool tap_ok(bool good, const char *name, ...);

/* One test that this machine cannot run, and why. */
__printf(2, 3) void tap_skip(const char *name, const char *why, ...);

/* A line for people. */
__printf(1, 2) void tap_note(const char *text, ...);

/* Ends the program: nothing more can be tested. */
_Noreturn __printf(1, 2) void tap_bail(const char *text, ...);

/* Prints the plan and returns the program's exit status. */
int tap_done(void);

#endif /* _TAP_H */
