// SPDX-License-Identifier: GPL-2.0-only
/* Loop devices on memfds, ext4 images, swap space, a tmpfs. */
#include "disk.h"
#include "files.h"
#include "modules.h"
#include "nodes.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <unistd.h>

#define MAX_DISKS	8

static struct disk {
	char path[32];
	char mounted[64];
	int swap;
	int fd;
} disks[MAX_DISKS];
static unsigned int nr_disks;
static char tmpfs[64];
static pid_t owner;

static void undo(void)
{
	/* A child that exits leaves them alone. */
	if (getpid() != owner)
		return;
	while (nr_disks) {
		struct disk *disk = &disks[--nr_disks];

		if (disk->swap)
			swapoff(disk->path);
		if (disk->mounted[0])
			umount2(disk->mounted, MNT_DETACH);
		ioctl(disk->fd, LOOP_CLR_FD, 0);
		close(disk->fd);
	}
	if (tmpfs[0])
		umount2(tmpfs, MNT_DETACH);
}

static void undo_at_exit(void)
{
	if (!owner) {
		owner = getpid();
		atexit(undo);
	}
}

/* Where loop devices and ext4 are not built in: what needs others after them. */
static void load_modules(void)
{
	static const char *const names[] = {
		"loop", "crc32c_generic", "crc16", "mbcache", "jbd2", "ext4",
	};

	if (!access("/dev/loop-control", F_OK))
		return;
	for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++)
		module_load(names[n], "");
}

/* Takes @memory over. */
static struct disk *disk_on(int memory)
{
	struct loop_config config = { .fd = memory };
	struct disk *disk = &disks[nr_disks];
	int control, number;

	if (nr_disks == MAX_DISKS)
		tap_bail("more than %d disks", MAX_DISKS);
	load_modules();
	control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
	if (number < 0)
		tap_bail("no loop device: %s", strerror(errno));
	close(control);
	snprintf(disk->path, sizeof(disk->path), "/dev/loop%d", number);
	disk->fd = open(disk->path, O_RDWR | O_CLOEXEC);
	if (disk->fd < 0 || ioctl(disk->fd, LOOP_CONFIGURE, &config))
		tap_bail("%s: %s", disk->path, strerror(errno));
	close(memory);
	/* A device that is open for writing cannot be mounted. */
	close(disk->fd);
	disk->fd = open(disk->path, O_RDONLY | O_CLOEXEC);
	undo_at_exit();
	nr_disks++;
	return disk;
}

static int new_memory(size_t bytes)
{
	int fd = memfd_create("disk", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, bytes))
		tap_bail("no memory file: %s", strerror(errno));
	return fd;
}

const char *disk_new(size_t bytes)
{
	return disk_on(new_memory(bytes))->path;
}

static void program_folder(char *path, size_t size)
{
	ssize_t length = readlink("/proc/self/exe", path, size - 1);

	path[length < 0 ? 0 : length] = '\0';
	*(strrchr(path, '/') ? strrchr(path, '/') : path) = '\0';
}

static int unpack(const char *name)
{
	char folder[FILE_PATH], command[2 * FILE_PATH];
	static char block[65536], zeros[65536];
	size_t got, offset = 0;
	FILE *pipe;
	int fd;

	program_folder(folder, sizeof(folder));
	snprintf(command, sizeof(command), "gzip -dc '%s/%s' 2>/dev/null", folder, name);
	pipe = popen(command, "re");
	if (!pipe)
		tap_bail("no shell to unpack %s", name);
	fd = new_memory(0);
	while ((got = fread(block, 1, sizeof(block), pipe)) > 0) {
		if (ftruncate(fd, offset + got) ||
		    (memcmp(block, zeros, got) &&
		     pwrite(fd, block, got, offset) != (ssize_t)got))
			tap_bail("%s cannot be unpacked: %s", name, strerror(errno));
		offset += got;
	}
	if (pclose(pipe) || !offset)
		tap_bail("%s/%s cannot be read with gzip", folder, name);
	return fd;
}

const char *disk_ext4(unsigned int block)
{
	static struct disk *mounted[2];
	struct disk **disk = &mounted[block != 4096];
	char name[32];

	if (*disk)
		return (*disk)->mounted;
	snprintf(name, sizeof(name), "ext4-%u.img.gz", block);
	*disk = disk_on(unpack(name));
	mkdir("/tmp", 0777);
	snprintf((*disk)->mounted, sizeof((*disk)->mounted), "/tmp/ext4-%u-%d", block,
		 getpid());
	mkdir((*disk)->mounted, 0755);
	if (mount((*disk)->path, (*disk)->mounted, "ext4", 0, NULL))
		tap_bail("%s: no ext4: %s", (*disk)->path, strerror(errno));
	return (*disk)->mounted;
}

void disk_swap(size_t bytes)
{
	size_t page = page_bytes();
	static struct disk *swap;
	uint32_t *header;
	int fd;

	if (swap)
		return;
	/* What mkswap(8) writes: version, last page, and the signature at the page's end. */
	header = calloc(1, page);
	header[256] = 1;
	header[257] = bytes / page - 1;
	memcpy((char *)header + page - 10, "SWAPSPACE2", 10);
	fd = new_memory(bytes);
	if (pwrite(fd, header, page, 0) != (ssize_t)page)
		tap_bail("no swap space: %s", strerror(errno));
	free(header);
	swap = disk_on(fd);
	if (swapon(swap->path, 0))
		tap_bail("swapon %s: %s", swap->path, strerror(errno));
	swap->swap = 1;
}

const char *disk_tmpfs(void)
{
	char name[sizeof(tmpfs)];

	if (tmpfs[0])
		return tmpfs;
	mkdir("/tmp", 0777);
	snprintf(name, sizeof(name), "/tmp/tmpfs-%d", getpid());
	mkdir(name, 0755);
	if (mount("tmpfs", name, "tmpfs", 0, NULL))
		tap_bail("no tmpfs: %s", strerror(errno));
	strcpy(tmpfs, name);
	undo_at_exit();
	return tmpfs;
}
