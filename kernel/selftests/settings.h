/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Files that take some values and refuse all others with EINVAL, and then nothing changes.
 */
#ifndef _SETTINGS_H
#define _SETTINGS_H

#include <stdbool.h>

/**
 * struct setting - one file
 * @name: below the root of its settings
 * @good: pairs of what is written and what is read then, NULL: the same; ends with NULL
 * @bad: what is refused; ends with NULL
 */
struct setting {
	const char *name;
	const char *good[16][2];
	const char *bad[24];
};

/**
 * struct settings - the files of one folder
 * @root: the folder
 * @list: the files
 * @nr: number of @list
 */
struct settings {
	const char *root;
	const struct setting *list;
	unsigned int nr;
};

/* One test for each good and each bad value of each file, and for what no file takes. */
void settings_test(const struct settings *settings);

/* Whether a file is root's and has this mode. */
bool setting_mode_is(const struct settings *settings, const char *name, unsigned int mode);

#endif /* _SETTINGS_H */
