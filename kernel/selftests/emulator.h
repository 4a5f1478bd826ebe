/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether this machine is emulated by a QEMU that may lose the race of a CPU which patches
 * kernel code against one which translates it.
 */
#ifndef _EMULATOR_H
#define _EMULATOR_H

#include <stdbool.h>

/*
 * Before version 8.1 QEMU's TCG can translate a breakpoint that the kernel put into its code
 * for a moment, and keep it after it is gone. Then the kernel dies of "Oops: int3", with or
 * without our series; turning a trace event on and off for a minute while other CPUs pass it
 * is enough. Choosing a migrator where none was, or none, patches migrate_pages(). So tests
 * do this only while nobody migrates, if true; between other migrators nothing is patched.
 */
bool emulator_patches_badly(void);

#endif /* _EMULATOR_H */
