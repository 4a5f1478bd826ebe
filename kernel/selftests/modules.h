/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kernel modules that tests load and unload.
 *
 * They are looked for where modules are installed; NAME_KO (MTCOPY_KO for mtcopy) in the
 * environment says where one is that is not.
 */
#ifndef _MODULES_H
#define _MODULES_H

#include "tap.h"

#include <stdbool.h>

/*
 * Loads one with parameters ("" for none) and those of the kernel's command line; 0 or -errno.
 * Loading what is loaded is no error.
 */
int module_load(const char *name, const char *parameters);

/* Loads one, with parameters in the form of printf(3), or bails out. */
__printf(2, 3) void module_need(const char *name, const char *parameters, ...);

/* 0 or -errno; does not wait for its users. */
int module_unload(const char *name);

bool module_loaded(const char *name);

#endif /* _MODULES_H */
