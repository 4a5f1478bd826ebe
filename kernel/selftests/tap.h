/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a test program prints: the Test Anything Protocol, version 13, with the plan at the
 * end. A program that dies prints no plan, which is a failure for whoever reads it.
 */
#ifndef _TAP_H
#define _TAP_H

#include <stdbool.h>

#define TAP_PRINTF	__attribute__((format(printf, 1, 2)))

/* Prints the header. First of all calls. */
void tap_start(void);

/* One test: "ok N name" or "not ok N name". Returns @good. */
bool tap_ok(bool good, const char *name, ...) __attribute__((format(printf, 2, 3)));

/* One test that this machine cannot run, and why. */
void tap_skip(const char *name, const char *why, ...) __attribute__((format(printf, 2, 3)));

/* A line for people. */
void tap_note(const char *text, ...) TAP_PRINTF;

/* Ends the program: nothing more can be tested. */
void tap_bail(const char *text, ...) TAP_PRINTF __attribute__((noreturn));

/* Prints the plan and returns the program's exit status. */
int tap_done(void);

#endif /* _TAP_H */
