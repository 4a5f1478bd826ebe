/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A device: reads from a file into pinned pages, again and again, and compares at once.
 */
#ifndef _DEVICE_H
#define _DEVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct ring;

struct device {
	pthread_t thread;
	struct ring *ring;
	unsigned char *at;
	size_t bytes;
	int file;
	bool pin_each;			/* for each read anew */
	volatile bool stop;
	volatile unsigned long reads;
	unsigned long refused;	/* pins that had to be asked for again */
	unsigned long lost;
	volatile int error;
};

/*
 * Pins the range as a whole, or for each read the page that it goes to. With delays (delay.h)
 * such a read waits for the next one: pinned before the batch is copied, let go before it moves.
 */
void device_start(struct device *device, void *at, size_t bytes, bool pin_each);

/* Waits for so many reads; on a busy machine the thread may come late. */
void device_wait(const struct device *device, unsigned long reads);

/* Ends the reads; what is pinned as a whole stays so until device_free(). */
void device_stop(struct device *device);
void device_free(struct device *device);

#endif /* _DEVICE_H */
