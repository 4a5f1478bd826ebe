// SPDX-License-Identifier: GPL-2.0-only
/* Readers and writers of small text files. */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT(path)						\
	char name[FILE_PATH];					\
	do {							\
		va_list args;					\
		va_start(args, path);				\
		vsnprintf(name, sizeof(name), path, args);	\
		va_end(args);					\
	} while (0)

static int read_text(char *text, size_t size, const char *name)
{
	size_t have = 0;
	ssize_t got;
	int fd;

	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (have < size - 1) {
		got = read(fd, text + have, size - 1 - have);
		if (got < 0) {
			int error = -errno;

			close(fd);
			return error;
		}
		if (!got)
			break;
		have += got;
	}
	close(fd);
	while (have && text[have - 1] == '\n')
		have--;
	text[have] = '\0';
	return 0;
}

static int write_bytes(const void *bytes, size_t nr, const char *name)
{
	int error = 0;
	ssize_t done;
	int fd;

	fd = open(name, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	done = write(fd, bytes, nr);
	if (done < 0)
		error = -errno;
	else if ((size_t)done != nr)
		error = -EIO;
	close(fd);
	return error;
}

int file_read(char *text, size_t size, const char *path, ...)
{
	FORMAT(path);

	return read_text(text, size, name);
}

int file_write(const char *text, const char *path, ...)
{
	FORMAT(path);

	return write_bytes(text, strlen(text), name);
}

int file_write_bytes(const void *bytes, size_t nr, const char *path, ...)
{
	FORMAT(path);

	return write_bytes(bytes, nr, name);
}

long long file_number(const char *path, ...)
{
	char text[64], *end;
	long long number;
	int error;

	FORMAT(path);

	error = read_text(text, sizeof(text), name);
	if (error)
		return error;
	errno = 0;
	number = strtoll(text, &end, 0);
	if (end == text || errno)
		return -EINVAL;
	return number;
}

int file_write_number(long long number, const char *path, ...)
{
	char text[32];

	FORMAT(path);

	snprintf(text, sizeof(text), "%lld", number);
	return write_bytes(text, strlen(text), name);
}

static void need(const char *text, const char *name)
{
	int error = write_bytes(text, strlen(text), name);

	if (error)
		tap_bail("%s does not take '%s': %s", name, text, strerror(-error));
}

void file_need(const char *text, const char *path, ...)
{
	FORMAT(path);

	need(text, name);
}

void file_need_number(long long number, const char *path, ...)
{
	char text[32];

	FORMAT(path);

	snprintf(text, sizeof(text), "%lld", number);
	need(text, name);
}

bool file_exists(const char *path, ...)
{
	FORMAT(path);

	return !access(name, F_OK);
}

long long file_field(const char *path, const char *name)
{
	size_t length = strlen(name);
	long long number = -ENOENT;
	char line[256];
	FILE *file;

	file = fopen(path, "re");
	if (!file)
		return -errno;
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, name, length) || !strchr(" \t:", line[length]))
			continue;
		number = atoll(line + length + strspn(line + length, " \t:"));
		break;
	}
	fclose(file);
	return number;
}

int file_interrupts(const char *name, unsigned long *counts, int space)
{
	FILE *file = fopen("/proc/interrupts", "re");
	char line[512];
	int lines = 0;

	while (file && fgets(line, sizeof(line), file) && lines < space) {
		char *at = strchr(line, ':'), *end;
		unsigned long part;

		if (!strstr(line, name) || !at)
			continue;
		/* A number for each CPU. */
		for (counts[lines] = 0, at++; part = strtoul(at, &end, 10), end != at && *end == ' ';
		     at = end)
			counts[lines] += part;
		lines++;
	}
	if (file)
		fclose(file);
	return lines;
}

int mount_once(const char *type, const char *where)
{
	struct stat here, above;
	char up[FILE_PATH];

	mkdir(where, 0755);
	snprintf(up, sizeof(up), "%s/..", where);
	if (stat(where, &here) || stat(up, &above))
		return -errno;
	if (here.st_dev != above.st_dev)
		return 0;
	if (mount(type, where, type, 0, NULL) && errno != EBUSY)
		return -errno;
	return 0;
}

static struct saved {
	struct saved *next;
	char path[FILE_PATH];
	char text[256];
} *saved;

static void restore(void)
{
	struct saved *one;

	for (one = saved; one; one = one->next)
		write_bytes(one->text, strlen(one->text), one->path);
}

static void remember(const char *name)
{
	struct saved *one;
	char *open, *close;

	for (one = saved; one; one = one->next)
		if (!strcmp(one->path, name))
			return;
	one = calloc(1, sizeof(*one));
	if (!one || read_text(one->text, sizeof(one->text), name)) {
		free(one);
		return;
	}
	/* Of "always [madvise] never" the choice is what is in brackets. */
	open = strchr(one->text, '[');
	close = strchr(one->text, ']');
	if (open && close > open) {
		*close = '\0';
		memmove(one->text, open + 1, close - open);
	}
	strcpy(one->path, name);
	if (!saved)
		atexit(restore);
	one->next = saved;
	saved = one;
}

void file_restore_at_exit(const char *path, ...)
{
	FORMAT(path);

	remember(name);
}

int file_set(const char *text, const char *path, ...)
{
	FORMAT(path);

	remember(name);
	return write_bytes(text, strlen(text), name);
}
