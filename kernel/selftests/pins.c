// SPDX-License-Identifier: GPL-2.0-only
/*
 * pins [MILLISECONDS]: pages that others hold. Registered buffers, pages in a pipe and
 * secret memory stay where they are, and what is written through the pin is seen; short pins
 * come and go while the pages move; the ring of aio moves by rules of its own.
 */
#include "clock.h"
#include "content.h"
#include "delay.h"
#include "device.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "pages.h"
#include "ring.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define BYTES	(2UL << 20)
#define PINNED	(64UL << 10)
#define MOVING	(256UL << 10)
#define TRIES	3

/* Short pins, one for each read. */
#define PINS	30

#define PATIENCE_MS	90000

/* Between the copy of a batch and its moves: time for a pin that came before the copy to go. */
#define DELAY_MS	10

static long long duration_ms = 200;

/* The first pages pinned for long, in one batch with the others. */
static void test_registered(const char *name, const char *migrator)
{
	size_t pages = PINNED / page_bytes(), left, changed = 0, wrong;
	struct memory memory;
	struct stats before, done;
	struct device device;
	uint64_t *frames;

	if (!memory_test(&memory, kind_named(name), BYTES, node_at(0), 0))
		return;
	/* The content is that of the others. */
	memory.content->at += PINNED;
	memory.content->bytes -= PINNED;
	content_fill(memory.content);
	device_start(&device, memory.at, PINNED, false);
	device_wait(&device, 1);
	frames = calloc(pages, sizeof(*frames));
	page_frames(memory.at, PINNED, frames);

	before = migrator_stats(migrator);
	/* Once: what is pinned makes the kernel try ten times. */
	left = memory_move(&memory, node_at(1), 1);
	done = migrator_since(migrator, before);
	for (size_t n = 0; n < pages; n++)
		changed += page_frame(memory.at + n * page_bytes()) != frames[n];
	/* The one under way may have begun before; the next is of after the move. */
	device_wait(&device, device.reads + 2);
	device_stop(&device);
	wrong = content_wrong(memory.content, name);
	tap_ok(left == pages && !changed, "%s, registered, %s: pinned pages stay, others move",
	       name, migrator);
	tap_ok(device.reads && !device.lost && !device.error && !wrong,
	       "%s, registered, %s: %lu reads into pinned pages, none lost", name, migrator,
	       device.reads);
	if (migrator_copies(migrator))
		tap_ok(done.folios + done.fallbacks == (long long)(BYTES / page_bytes() - pages),
		       "%s, registered, %s: %lld folios for the migrator, no pinned one", name,
		       migrator, done.folios + done.fallbacks);
	ring_unpin(device.ring);
	tap_ok(!memory_move(&memory, node_at(1), 20),
	       "%s, registered, %s: they move when nobody holds them", name, migrator);
	device_free(&device);
	free(frames);
	memory_drop(&memory);
}

/* Each read has a pin of its own, which comes before a copy and goes before the moves. */
static void test_short_pins(const char *name, size_t bytes, const char *migrator)
{
	long long end = now_ms() + duration_ms;
	struct memory memory;
	struct stats before, done;
	struct device device;
	unsigned int delays;
	unsigned long reads;
	size_t moved = 0;

	if (!memory_test(&memory, kind_named(name), bytes, node_at(0), 0))
		return;
	before = migrator_stats(migrator);
	delay_start(migrator, DELAY_MS);
	device_start(&device, memory.at, memory.bytes, true);
	device_wait(&device, 1);
	reads = device.reads;
	/* Until something moved, too: of a large folio the device nearly always holds some page. */
	for (int n = 1; now_ms() < end || ((device.reads < reads + PINS || !moved) &&
					   !device.error && now_ms() < end + PATIENCE_MS); n++)
		memory_move_counting(&memory, node_at(n), TRIES, &moved);
	device_stop(&device);
	delays = delay_stop();
	done = migrator_since(migrator, before);
	tap_note("%s, %s: %zu pages moved, %lu pins, %lu lost, %lld folios copied, %u delays", name,
		 migrator, moved, device.reads, device.lost, done.folios, delays);
	tap_ok(moved && device.reads >= reads + PINS && !device.lost && !device.error,
	       "%s, pinned for each read, %s: nothing lost", name, migrator);
	if (migrator_copies(migrator))
		tap_ok(delays, "%s, pinned for each read, %s: batches were delayed", name, migrator);
	device_free(&device);
	memory_drop(&memory);
}

/* A pipe holds the pages themselves: what is written to them later comes out of it. */
static void test_pipe(const char *migrator)
{
	size_t size = page_bytes(), pages = 16, bytes = pages * size, left;
	struct iovec range = { .iov_len = bytes };
	unsigned char *at, *out = malloc(bytes);
	struct content *content, *later;
	uint64_t frames[16], after[16];
	int ends[2];

	at = map_anonymous(bytes, false);
	populate_on(node_at(0), at, bytes);
	content = content_new(at, bytes, 0);
	content_fill(content);
	range.iov_base = at;
	if (pipe(ends) || fcntl(ends[1], F_SETPIPE_SZ, bytes) < 0 ||
	    vmsplice(ends[1], &range, 1, 0) != (ssize_t)bytes)
		tap_bail("vmsplice: %s", strerror(errno));
	page_frames(at, bytes, frames);
	left = move_range(at, bytes, 0, node_at(1), MPOL_MF_MOVE, TRIES);
	page_frames(at, bytes, after);
	tap_ok(left == pages && !memcmp(frames, after, sizeof(frames)) &&
	       !content_wrong(content, "in a pipe"), "pages in a pipe, %s: stay", migrator);
	later = content_new(at, bytes, 0);
	content_fill(later);
	left = 0;
	while (left < bytes) {
		ssize_t got = read(ends[0], out + left, bytes - left);

		if (got <= 0)
			break;
		left += got;
	}
	tap_ok(left == bytes && !content_wrong_at(later, out, "out of a pipe"),
	       "pages in a pipe, %s: come out as they are now", migrator);
	tap_ok(!move_range(at, bytes, 0, node_at(1), MPOL_MF_MOVE, 20) &&
	       !content_wrong(later, "after the pipe"), "pages in a pipe, %s: move afterwards",
	       migrator);
	close(ends[0]);
	close(ends[1]);
	munmap(at, bytes);
	free(out);
	content_free(content);
	content_free(later);
}

/* Submits one read through aio and waits for it. */
static bool aio_read(aio_context_t context, int file, void *into, size_t bytes)
{
	struct iocb request = {
		.aio_lio_opcode = IOCB_CMD_PREAD,
		.aio_fildes = file,
		.aio_buf = (uintptr_t)into,
		.aio_nbytes = bytes,
	}, *requests[] = { &request };
	struct io_event event;

	return syscall(SYS_io_submit, context, 1, requests) == 1 &&
	       syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1 &&
	       event.res == (long long)bytes;
}

/* The kernel writes to the ring through its own mapping; it lies where the context says. */
static void test_aio(const char *migrator)
{
	size_t size = page_bytes(), bytes = 4 * size, moved = 0;
	long long end = now_ms() + duration_ms;
	aio_context_t context = 0;
	struct stats before, done;
	unsigned long reads = 0;
	bool good = true;
	unsigned char *ring;
	uint64_t word = 0;
	int file;

	file = memfd_create("aio", MFD_CLOEXEC);
	if (syscall(SYS_io_setup, 400, &context))
		tap_bail("io_setup: %s", strerror(errno));
	ring = (unsigned char *)context;
	before = migrator_stats(migrator);
	for (int n = 0; good && (n < 4 || now_ms() < end); n++) {
		move_range_counting(ring, bytes, 0, node_at(n), MPOL_MF_MOVE_ALL, TRIES, &moved);
		for (int i = 0; good && i < 100; i++) {
			uint64_t seen = 0;

			word++;
			good = pwrite(file, &word, sizeof(word), 0) == sizeof(word) &&
			       aio_read(context, file, &seen, sizeof(seen)) && seen == word;
			reads++;
		}
	}
	done = migrator_since(migrator, before);
	tap_note("aio, %s: %zu pages of the ring moved, %lu events", migrator, moved, reads);
	tap_ok(moved > bytes / size, "the ring of aio, %s: moves", migrator);
	tap_ok(good, "the ring of aio, %s: no event lost", migrator);
	if (migrator_copies(migrator))
		tap_ok(!done.folios, "the ring of aio, %s: nothing copied by the batch",
		       migrator);
	syscall(SYS_io_destroy, context);
	close(file);
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "anonymous", "memory file" };
	const char *name;

	if (argc > 1)
		duration_ms = atoll(argv[1]);
	tap_start();
	nodes_with_memory();
	for (name = migrator_next(NULL); name; name = migrator_next(name)) {
		for (int n = 0; n < 2; n++) {
			test_registered(names[n], name);
			test_short_pins(names[n], MOVING, name);
		}
		/* While one of two is pinned the other one is a batch. */
		test_short_pins("memory file, 2048 KiB", 2 * HUGE_BYTES, name);
		test_pipe(name);
		test_aio(name);
	}
	return tap_done();
}
