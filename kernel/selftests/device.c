// SPDX-License-Identifier: GPL-2.0-only
/* A thread that reads into pinned pages. */
#include "device.h"
#include "delay.h"
#include "nodes.h"
#include "ring.h"
#include "tap.h"
#include "task.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * A page that lies in CMA or in movable memory moves before it is pinned for long. If it cannot, as when a mover holds it, Linux
 * says ENOMEM (migrate_longterm_unpinnable_folios() of mm/gup.c), with the series or without.
 */
static int device_pin(struct device *device, void *into, size_t size)
{
	int error;

	while ((error = ring_pin(device->ring, into, size)) == -ENOMEM && !device->stop) {
		device->refused++;
		usleep(1000);
	}
	return error;
}

static void device_read(struct device *device, size_t page, unsigned long round)
{
	size_t size = page_bytes(), words = size / sizeof(uint64_t);
	uint64_t *into = (uint64_t *)(device->at + page * size), wanted[words];

	for (size_t n = 0; n < words; n++)
		wanted[n] = round << 32 | (page * words + n);
	if (pwrite(device->file, wanted, size, 0) != (ssize_t)size)
		device->error = errno;
	if (device->pin_each && !device->error)
		device->error = device_pin(device, into, size);
	if (device->stop && device->error == -ENOMEM) {
		device->error = 0;
		return;
	}
	if (device->pin_each && !device->error)
		delay_await(&device->stop);
	if (!device->error && ring_read(device->ring, device->file, into, size, 0) !=
			      (ssize_t)size)
		device->error = EIO;
	if (device->pin_each && !device->error)
		device->error = ring_unpin(device->ring);
	device->reads++;
	if (!device->error && memcmp(into, wanted, size))
		device->lost++;
}

static void *device_run(void *argument)
{
	struct device *device = argument;

	for (unsigned long round = 1; !device->stop && !device->error; round++)
		for (size_t page = 0; page < device->bytes / page_bytes() && !device->stop &&
				      !device->error; page += 7)
			device_read(device, page, round);
	return NULL;
}

void device_start(struct device *device, void *at, size_t bytes, bool pin_each)
{
	memset(device, 0, sizeof(*device));
	device->ring = ring_new();
	device->at = at;
	device->bytes = bytes;
	device->pin_each = pin_each;
	device->file = memfd_create("device", MFD_CLOEXEC);
	if (!pin_each)
		device->error = ring_pin(device->ring, at, bytes);
	thread_start(&device->thread, device_run, device);
}

void device_wait(const struct device *device, unsigned long reads)
{
	while (device->reads < reads && !device->error)
		usleep(1000);
}

void device_stop(struct device *device)
{
	device->stop = true;
	pthread_join(device->thread, NULL);
}

void device_free(struct device *device)
{
	close(device->file);
	ring_free(device->ring);
}
