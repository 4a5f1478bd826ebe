/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Small text files of /proc and /sys: one call reads or writes one of them. Paths may be
 * printf formats, because most of them hold a name or a number.
 */
#ifndef _FILES_H
#define _FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "tap.h"

#define FILE_PATH	512

/* Reads a whole small file into @text, without its last newline. Returns 0 or -errno. */
__printf(3, 4) int file_read(char *text, size_t size, const char *path, ...);

/* Writes @text with one write(2). Returns 0 or -errno; a short write is -EIO. */
__printf(2, 3) int file_write(const char *text, const char *path, ...);

/* The same for any bytes. */
__printf(3, 4) int file_write_bytes(const void *bytes, size_t nr, const char *path, ...);

/* The number in a file; -errno if there is none. */
__printf(1, 2) long long file_number(const char *path, ...);

/* Writes a number. Returns 0 or -errno. */
__printf(2, 3) int file_write_number(long long number, const char *path, ...);

/* Write, or bail out: what is written must be taken. */
__printf(2, 3) void file_need(const char *text, const char *path, ...);
__printf(2, 3) void file_need_number(long long number, const char *path, ...);

__printf(1, 2) bool file_exists(const char *path, ...);

/* The number after @name in a file of "name value" lines, such as /proc/vmstat. */
long long file_field(const char *path, const char *name);

/* How often each line with @name in /proc/interrupts came; returns how many lines. */
int file_interrupts(const char *name, unsigned long *counts, int space);

/* Mounts a pseudo file system unless something is mounted there. Returns 0 or -errno. */
int mount_once(const char *type, const char *where);

/* Remembers what a file holds, and writes it back when the program ends by returning. */
__printf(1, 2) void file_restore_at_exit(const char *path, ...);

/* The same, and writes @text until then. Returns 0 or -errno. */
__printf(2, 3) int file_set(const char *text, const char *path, ...);

#endif /* _FILES_H */
