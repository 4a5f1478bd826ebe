// SPDX-License-Identifier: GPL-2.0-only
/* The smallest io_uring: one request at a time. */
#include "ring.h"
#include "tap.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct ring {
	int fd;
	struct io_uring_params params;
	unsigned char *rings;
	size_t rings_bytes;
	struct io_uring_sqe *entries;
};

static unsigned int *at(struct ring *ring, unsigned int offset)
{
	return (unsigned int *)(ring->rings + offset);
}

struct ring *ring_new(void)
{
	struct ring *ring = calloc(1, sizeof(*ring));
	struct io_uring_params *params = &ring->params;

	ring->fd = syscall(SYS_io_uring_setup, 1, params);
	if (ring->fd < 0)
		tap_bail("no io_uring: %s", strerror(errno));
	if (!(params->features & IORING_FEAT_SINGLE_MMAP))
		tap_bail("an io_uring of before Linux 5.4");
	ring->rings_bytes = params->sq_off.array + params->sq_entries * sizeof(unsigned int);
	if (ring->rings_bytes < params->cq_off.cqes +
				params->cq_entries * sizeof(struct io_uring_cqe))
		ring->rings_bytes = params->cq_off.cqes +
				    params->cq_entries * sizeof(struct io_uring_cqe);
	ring->rings = mmap(NULL, ring->rings_bytes, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQ_RING);
	ring->entries = mmap(NULL, params->sq_entries * sizeof(*ring->entries),
			     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
			     IORING_OFF_SQES);
	if (ring->rings == MAP_FAILED || ring->entries == MAP_FAILED)
		tap_bail("an io_uring cannot be mapped: %s", strerror(errno));
	return ring;
}

void ring_free(struct ring *ring)
{
	munmap(ring->rings, ring->rings_bytes);
	munmap(ring->entries, ring->params.sq_entries * sizeof(*ring->entries));
	close(ring->fd);
	free(ring);
}

int ring_pin(struct ring *ring, void *buffer, size_t bytes)
{
	struct iovec range = { .iov_base = buffer, .iov_len = bytes };

	if (syscall(SYS_io_uring_register, ring->fd, IORING_REGISTER_BUFFERS, &range, 1))
		return -errno;
	return 0;
}

int ring_unpin(struct ring *ring)
{
	if (syscall(SYS_io_uring_register, ring->fd, IORING_UNREGISTER_BUFFERS, NULL, 0))
		return -errno;
	return 0;
}

ssize_t ring_read(struct ring *ring, int fd, void *into, size_t bytes, off_t offset)
{
	struct io_uring_params *params = &ring->params;
	unsigned int tail = *at(ring, params->sq_off.tail);
	unsigned int slot = tail & *at(ring, params->sq_off.ring_mask);
	unsigned int head = *at(ring, params->cq_off.head);
	struct io_uring_cqe *done;

	memset(&ring->entries[slot], 0, sizeof(ring->entries[slot]));
	ring->entries[slot].opcode = IORING_OP_READ_FIXED;
	ring->entries[slot].fd = fd;
	ring->entries[slot].addr = (uintptr_t)into;
	ring->entries[slot].len = bytes;
	ring->entries[slot].off = offset;
	at(ring, params->sq_off.array)[slot] = slot;
	__atomic_store_n(at(ring, params->sq_off.tail), tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
		return -errno;
	if (__atomic_load_n(at(ring, params->cq_off.tail), __ATOMIC_ACQUIRE) == head)
		return -EIO;
	done = (struct io_uring_cqe *)(ring->rings + params->cq_off.cqes) +
	       (head & *at(ring, params->cq_off.ring_mask));
	bytes = done->res;
	__atomic_store_n(at(ring, params->cq_off.head), head + 1, __ATOMIC_RELEASE);
	return (int)bytes;
}
