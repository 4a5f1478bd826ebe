// SPDX-License-Identifier: GPL-2.0-only
/* Readers of pagemap and kpageflags. */
#include "pages.h"
#include "nodes.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define PRESENT		(1ULL << 63)
#define FRAME		((1ULL << 55) - 1)

static int open_once(int *fd, const char *path)
{
	if (!*fd) {
		*fd = open(path, O_RDONLY | O_CLOEXEC);
		if (*fd < 0)
			tap_bail("%s: %s", path, strerror(errno));
	}
	return *fd;
}

static int pagemap(void)
{
	static int fd;
	static pid_t whose;

	/* A child has a pagemap of its own. */
	if (whose != getpid()) {
		if (fd)
			close(fd);
		fd = 0;
		whose = getpid();
	}
	return open_once(&fd, "/proc/self/pagemap");
}

static uint64_t of_frame(int fd, uint64_t frame)
{
	uint64_t word = 0;

	if (pread(fd, &word, sizeof(word), frame * sizeof(word)) != sizeof(word))
		return 0;
	return word;
}

uint64_t page_frame(const void *at)
{
	uint64_t entry = of_frame(pagemap(), (uintptr_t)at / page_bytes());

	return entry & PRESENT ? entry & FRAME : NO_FRAME;
}

void page_frames(const void *at, size_t bytes, uint64_t *frames)
{
	for (size_t n = 0; n < bytes / page_bytes(); n++)
		frames[n] = page_frame((const char *)at + n * page_bytes());
}

static uint64_t flags_of_frame(uint64_t frame)
{
	static int fd;

	return frame != NO_FRAME ? of_frame(open_once(&fd, "/proc/kpageflags"), frame) : 0;
}

size_t pages_flagged(const void *at, size_t bytes, uint64_t flags)
{
	size_t found = 0;

	for (size_t offset = 0; offset < bytes; offset += page_bytes())
		found += (flags_of_frame(page_frame((const char *)at + offset)) & flags) == flags;
	return found;
}

/* A head at its own alignment, tails up to the next folio, in one run of frames. */
static bool folio_at(const char *at, size_t folio)
{
	uint64_t first = page_frame(at);
	size_t pages = folio / page_bytes();

	if (first == NO_FRAME)
		return false;
	if (pages == 1)
		return !(flags_of_frame(first) & (PAGE_COMPOUND_HEAD | PAGE_COMPOUND_TAIL));
	if (first % pages || !(flags_of_frame(first) & PAGE_COMPOUND_HEAD))
		return false;
	for (size_t n = 1; n < pages; n++)
		if (page_frame(at + n * page_bytes()) != first + n ||
		    !(flags_of_frame(first + n) & PAGE_COMPOUND_TAIL))
			return false;
	return !(flags_of_frame(first + pages) & PAGE_COMPOUND_TAIL);
}

size_t folios_of_size(const void *at, size_t bytes, size_t folio)
{
	size_t found = 0;

	for (size_t offset = 0; offset + folio <= bytes; offset += folio)
		found += folio_at((const char *)at + offset, folio);
	return found;
}
