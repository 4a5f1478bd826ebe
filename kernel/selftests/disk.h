/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Disks made of memory: loop devices on files that exist only in memory, with an ext4 file
 * system, as swap space, or bare. Everything is undone when the program ends.
 */
#ifndef _DISK_H
#define _DISK_H

#include <stddef.h>

/* A loop device of @bytes zeros; its path. Bails out if there is none. */
const char *disk_new(size_t bytes);

/*
 * Where an ext4 file system with blocks of @block bytes (1024 or 4096) is mounted: unpacked
 * at the first call from ext4-BLOCK.img.gz beside the program, 16 MiB.
 */
const char *disk_ext4(unsigned int block);

/* Swap space of @bytes. Bails out if it cannot be had. Once per program. */
void disk_swap(size_t bytes);

/* Where a tmpfs of our own is mounted. */
const char *disk_tmpfs(void);

#endif /* _DISK_H */
