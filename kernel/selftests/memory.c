// SPDX-License-Identifier: GPL-2.0-only
/* The kinds of memory that migrate. */
#include "memory.h"
#include "clock.h"
#include "disk.h"
#include "files.h"
#include "nodes.h"
#include "pages.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT	26
#endif

#define THP		"/sys/kernel/mm/transparent_hugepage"
#define KSM		"/sys/kernel/mm/ksm"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT	21
#endif

/* Waits of this many milliseconds at most, for what the kernel does by itself. */
#define PATIENCE_MS	60000

void *reserve(size_t bytes)
{
	uintptr_t at, aligned;

	at = (uintptr_t)mmap(NULL, bytes + HUGE_BYTES, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if ((void *)at == MAP_FAILED)
		tap_bail("no room for %zu bytes: %s", bytes, strerror(errno));
	aligned = (at + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
	if (aligned > at)
		munmap((void *)at, aligned - at);
	munmap((void *)(aligned + bytes), at + HUGE_BYTES - aligned);
	return (void *)aligned;
}

static void *map(struct memory *memory, int protection, int flags, int fd)
{
	void *at = reserve(memory->bytes);

	if (mmap(at, memory->bytes, protection, flags | MAP_FIXED, fd, 0) == MAP_FAILED)
		tap_bail("%s cannot be mapped: %s", memory->kind->name, strerror(errno));
	memory->at = at;
	return at;
}

void *map_anonymous(size_t bytes, bool huge)
{
	void *at = reserve(bytes);

	if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) == MAP_FAILED)
		tap_bail("no %zu bytes: %s", bytes, strerror(errno));
	madvise(at, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	return at;
}

bool populate_on(int node, void *at, size_t bytes)
{
	memory_policy(MPOL_BIND, node);
	memset(at, 1, bytes);
	memory_policy(MPOL_DEFAULT, 0);
	return pages_on(at, bytes, node) == bytes / page_bytes();
}

void read_pages(const void *at, size_t bytes)
{
	for (size_t offset = 0; offset < bytes; offset += page_bytes())
		(void)*((const volatile unsigned char *)at + offset);
}

void rewrite_pages(void *at, size_t bytes)
{
	for (size_t offset = 0; offset < bytes; offset += page_bytes())
		__atomic_fetch_or((unsigned char *)at + offset, 0, __ATOMIC_RELAXED);
}

/* Folios of one size, of anonymous memory ("enabled") or shmem ("shmem_enabled"). */
static void choose_folio(size_t folio, const char *enabled)
{
	file_restore_at_exit(THP "/%s", enabled);
	for (size_t kib = 16; kib <= HUGE_BYTES >> 10; kib *= 2) {
		if (!file_exists(THP "/hugepages-%zukB/%s", kib, enabled))
			continue;
		file_set(kib << 10 == folio ? "always" : "never", THP "/hugepages-%zukB/%s", kib,
			 enabled);
	}
}

static void make_anon(struct memory *memory)
{
	map(memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	if (memory->folio == page_bytes()) {
		madvise(memory->at, memory->bytes, MADV_NOHUGEPAGE);
	} else {
		choose_folio(memory->folio, "enabled");
		madvise(memory->at, memory->bytes, MADV_HUGEPAGE);
	}
}

static bool settle_mlocked(struct memory *memory)
{
	if (mlock(memory->at, memory->bytes)) {
		tap_note("mlock: %s", strerror(errno));
		return false;
	}
	return true;
}

static void make_shared(struct memory *memory)
{
	choose_folio(memory->folio, "shmem_enabled");
	map(memory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
}

static void make_memfd(struct memory *memory)
{
	memory->fd = memfd_create("memory", MFD_CLOEXEC);
	if (memory->fd < 0 || ftruncate(memory->fd, memory->bytes))
		tap_bail("no memory file: %s", strerror(errno));
	choose_folio(memory->folio, "shmem_enabled");
	map(memory, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd);
	if (memory->folio > page_bytes())
		madvise(memory->at, memory->bytes, MADV_HUGEPAGE);
}

static void make_file(struct memory *memory, const char *folder)
{
	char path[FILE_PATH];
	static int number;

	snprintf(path, sizeof(path), "%s/file-%d", folder, number++);
	memory->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (memory->fd < 0 || ftruncate(memory->fd, memory->bytes))
		tap_bail("%s: %s", path, strerror(errno));
	unlink(path);
}

static void make_tmpfs(struct memory *memory)
{
	choose_folio(memory->folio, "shmem_enabled");
	make_file(memory, disk_tmpfs());
	map(memory, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd);
}

/* What the file system keeps for itself does not migrate, and is to lie anywhere else. */
static const char *ext4(unsigned int block, int node)
{
	const char *folder;

	memory_policy(MPOL_DEFAULT, 0);
	folder = disk_ext4(block);
	memory_policy(MPOL_BIND, node);
	return folder;
}

/* Read-ahead and khugepaged would make large folios, where the file system of the disk has them. */
static void keep_folios_small(const struct memory *memory)
{
	madvise(memory->at, memory->bytes, MADV_RANDOM);
	madvise(memory->at, memory->bytes, MADV_NOHUGEPAGE);
}

static void map_disk(struct memory *memory)
{
	map(memory, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd);
	keep_folios_small(memory);
}

static void make_ext4(struct memory *memory)
{
	make_file(memory, ext4(4096, memory->node));
	map_disk(memory);
}

static void make_ext4_small_blocks(struct memory *memory)
{
	make_file(memory, ext4(1024, memory->node));
	map_disk(memory);
}

/* Written pages of ext4 have buffer heads. */
static bool settle_buffers(struct memory *memory)
{
	size_t pages = memory->bytes / page_bytes();
	size_t found = pages_flagged(memory->at, memory->bytes, PAGE_PRIVATE);

	if (found != pages)
		tap_note("%zu of %zu pages have buffer heads", found, pages);
	return found == pages;
}

/* Written out, dropped, and read again: ext4 then makes no buffer heads. */
static bool settle_clean(struct memory *memory)
{
	size_t found;

	if (munmap(memory->at, memory->bytes) || fsync(memory->fd) ||
	    posix_fadvise(memory->fd, 0, 0, POSIX_FADV_DONTNEED) ||
	    mmap(memory->at, memory->bytes, PROT_READ, MAP_SHARED | MAP_FIXED, memory->fd,
		 0) == MAP_FAILED)
		return false;
	keep_folios_small(memory);
	read_pages(memory->at, memory->bytes);
	found = pages_flagged(memory->at, memory->bytes, PAGE_PRIVATE);
	if (found)
		tap_note("%zu pages that were only read have buffer heads", found);
	return !found;
}

static void make_swapped(struct memory *memory)
{
	/* Less than half of it is used, or pages would not stay in the swap cache. */
	disk_swap(64 << 20);
	make_anon(memory);
}

static bool settle_swapped(struct memory *memory)
{
	size_t pages = memory->bytes / page_bytes(), found = 0;

	for (int try = 0; try < 5; try++) {
		/* What waits on another CPU for its list is not paged out. */
		pages_settle(memory->at);
		madvise(memory->at, memory->bytes, MADV_PAGEOUT);
		read_pages(memory->at, memory->bytes);
		found = pages_flagged(memory->at, memory->bytes, PAGE_SWAPCACHE);
		if (found == pages)
			return true;
	}
	tap_note("%zu of %zu pages are in the swap cache", found, pages);
	return false;
}

/* One child that only looks, and one that writes as we do; both compare at their end. */
static bool fork_twins(struct memory *memory, unsigned int children)
{
	int ends[2];

	if (pipe(ends))
		return false;
	memory->twin = content_new(memory->at, memory->content->bytes, memory->writers ? 1 : 0);
	memory->twin->seed = memory->content->seed;
	memory->twin->writers[0].pages_done = memory->twin->bytes / page_bytes();
	for (unsigned int n = 0; n < children; n++) {
		pid_t pid = fork();
		size_t wrong;
		char byte;

		if (pid < 0)
			return false;
		if (pid) {
			memory->children[n] = pid;
			continue;
		}
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[1]);
		if (n && memory->writers) {
			content_write(memory->twin, 0);
			wrong = content_wrong(memory->twin, "a child that wrote");
		} else {
			struct content *looker = content_new(memory->at, memory->content->bytes,
							     0);

			looker->seed = memory->content->seed;
			/* It only looks, and shall not bind what it shares. */
			memory_policy(MPOL_DEFAULT, 0);
			while (read(ends[0], &byte, 1) > 0)
				;
			wrong = content_wrong(looker, "a child that looked");
		}
		fflush(stdout);
		_exit(!!wrong);
	}
	close(ends[0]);
	memory->go = ends[1];
	return true;
}

static bool settle_forked(struct memory *memory)
{
	return fork_twins(memory, 2);
}

static bool drop_forked(struct memory *memory)
{
	bool good = true;

	memory->twin->writers[0].stop = 1;
	close(memory->go);
	for (int n = 0; n < 2; n++) {
		int status = -1;

		if (memory->children[n] <= 0)
			continue;
		if (waitpid(memory->children[n], &status, 0) != memory->children[n] || status)
			good = false;
	}
	return good;
}

static void make_merged(struct memory *memory)
{
	make_anon(memory);
	/* Each page of the first half has its equal in the second one. */
	memory->content = content_new(memory->at, memory->bytes / 2, memory->writers);
	memory->twin = content_new(memory->at + memory->bytes / 2, memory->bytes / 2, 0);
	memory->twin->seed = memory->content->seed;
}

/* Of 6.12's kpageflags, KPF_KSM is set for every anonymous page. */
static size_t merged(const struct memory *memory)
{
	size_t half = memory->bytes / 2, found = 0;

	for (size_t offset = 0; offset < half; offset += page_bytes()) {
		uint64_t frame = page_frame(memory->at + offset);

		found += frame != NO_FRAME && frame == page_frame(memory->at + half + offset);
	}
	return found;
}

static bool settle_merged(struct memory *memory)
{
	size_t pages = memory->bytes / 2 / page_bytes(), found = 0;

	content_fill(memory->twin);
	if (madvise(memory->at, memory->bytes, MADV_MERGEABLE)) {
		tap_note("MADV_MERGEABLE: %s", strerror(errno));
		return false;
	}
	file_set("10000", KSM "/pages_to_scan");
	file_set("1", KSM "/sleep_millisecs");
	file_set("1", KSM "/run");
	wait_until((found = merged(memory)) == pages, PATIENCE_MS, 20000);
	file_write("0", KSM "/run");
	if (found != pages)
		tap_note("%zu of %zu pages were merged", found, pages);
	return found == pages;
}

#define HUGETLB_POOL	"/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages"

static void map_hugetlb(struct memory *memory)
{
	/* With large base pages the default size is another one. */
	map(memory, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT, -1);
}

/* A pool where they are made, and one where they go. */
static void make_hugetlb(struct memory *memory)
{
	for (int n = 0; n < nodes_with_memory(); n++) {
		file_restore_at_exit(HUGETLB_POOL, node_at(n));
		file_write_number(memory->bytes / HUGE_BYTES + 1, HUGETLB_POOL, node_at(n));
	}
	map_hugetlb(memory);
}

/* Where they go, pages are allocated for the migration alone: temporary ones. */
static void make_hugetlb_temporary(struct memory *memory)
{
	for (int n = 0; n < nodes_with_memory(); n++) {
		file_restore_at_exit(HUGETLB_POOL, node_at(n));
		file_write_number(node_at(n) == memory->node ? memory->bytes / HUGE_BYTES : 0,
				  HUGETLB_POOL, node_at(n));
	}
	map_hugetlb(memory);
}

static bool drop_hugetlb(struct memory *memory)
{
	munmap(memory->at, memory->bytes);
	for (int n = 0; n < nodes_with_memory(); n++)
		file_write_number(0, HUGETLB_POOL, node_at(n));
	return true;
}

static void make_block_device(struct memory *memory)
{
	static const char *disk;

	if (!disk)
		disk = disk_new(memory->bytes);
	memory->fd = open(disk, O_RDWR | O_CLOEXEC);
	if (memory->fd < 0)
		tap_bail("%s: %s", disk, strerror(errno));
	map_disk(memory);
}

/* Those of the device itself get them when they are written out. */
static bool settle_block_device(struct memory *memory)
{
	return !msync(memory->at, memory->bytes, MS_SYNC) && settle_buffers(memory);
}

static bool drop_block_device(struct memory *memory)
{
	/* The next one must find no page on another node. */
	munmap(memory->at, memory->bytes);
	fsync(memory->fd);
	posix_fadvise(memory->fd, 0, 0, POSIX_FADV_DONTNEED);
	return true;
}

static void make_secret(struct memory *memory)
{
#ifdef SYS_memfd_secret
	memory->fd = syscall(SYS_memfd_secret, 0);
#else
	memory->fd = syscall(447, 0);
#endif
	if (memory->fd < 0 || ftruncate(memory->fd, memory->bytes))
		tap_bail("memfd_secret: %s", strerror(errno));
	map(memory, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd);
}

#define ANON_FOLIO(kib)							\
	{								\
		.name = "anonymous, " #kib " KiB",			\
		.folio = kib##UL << 10,					\
		.moves = true,						\
		.batch = true,						\
		.make = make_anon,					\
	}

const struct kind kinds[] = {
	{ .name = "anonymous", .moves = true, .batch = true, .make = make_anon },
	ANON_FOLIO(16),
	ANON_FOLIO(32),
	ANON_FOLIO(64),
	ANON_FOLIO(128),
	ANON_FOLIO(256),
	ANON_FOLIO(512),
	ANON_FOLIO(1024),
	ANON_FOLIO(2048),
	{
		.name = "locked",
		.moves = true,
		.batch = true,
		.make = make_anon,
		.settle = settle_mlocked,
	},
	{
		.name = "shared with children",
		.moves = true,
		.batch = true,
		.shared = true,
		.make = make_anon,
		.settle = settle_forked,
		.drop = drop_forked,
	},
	{
		.name = "merged",
		.moves = true,
		.batch = true,
		.shared = true,
		.make = make_merged,
		.settle = settle_merged,
	},
	{
		.name = "in the swap cache",
		.moves = true,
		.batch = true,
		.make = make_swapped,
		.settle = settle_swapped,
	},
	{ .name = "shared anonymous", .moves = true, .batch = true, .make = make_shared },
	{ .name = "memory file", .moves = true, .batch = true, .make = make_memfd },
	{
		.name = "memory file, 2048 KiB",
		.folio = HUGE_BYTES,
		.moves = true,
		.batch = true,
		.make = make_memfd,
	},
	{ .name = "tmpfs file", .moves = true, .batch = true, .make = make_tmpfs },
	{
		.name = "ext4 file, read",
		.moves = true,
		.batch = true,
		.readonly = true,
		.make = make_ext4,
		.settle = settle_clean,
	},
	{
		.name = "ext4 file, written",
		.moves = true,
		.make = make_ext4,
		.settle = settle_buffers,
	},
	{
		.name = "ext4 file, 1 KiB blocks",
		.moves = true,
		.make = make_ext4_small_blocks,
		.settle = settle_buffers,
	},
	{
		.name = "block device",
		.moves = true,
		.make = make_block_device,
		.settle = settle_block_device,
		.drop = drop_block_device,
	},
	{
		.name = "hugetlb",
		.folio = HUGE_BYTES,
		.moves = true,
		.make = make_hugetlb,
		.drop = drop_hugetlb,
	},
	{
		.name = "hugetlb, temporary",
		.folio = HUGE_BYTES,
		.moves = true,
		.make = make_hugetlb_temporary,
		.drop = drop_hugetlb,
	},
	{ .name = "secret", .make = make_secret },
};

const unsigned int nr_kinds = ARRAY_SIZE(kinds);

const struct kind *kind_named(const char *name)
{
	for (unsigned int n = 0; n < nr_kinds; n++)
		if (!strcmp(kinds[n].name, name))
			return &kinds[n];
	tap_bail("no kind of memory is called '%s'", name);
}

bool kind_possible(const struct kind *kind)
{
	/* Linux makes no anonymous folios of two pages. */
	return !kind->folio || kind->folio == page_bytes() || kind->folio >= 4 * page_bytes();
}

bool memory_make(struct memory *memory, const struct kind *kind, size_t bytes, int node,
		 unsigned int writers)
{
	bool settled;
	size_t elsewhere;

	memset(memory, 0, sizeof(*memory));
	memory->kind = kind;
	memory->bytes = bytes;
	memory->folio = kind->folio ? kind->folio : page_bytes();
	memory->fd = -1;
	memory->node = node;
	memory->writers = kind->readonly ? 0 : writers;
	memory->flags = kind->shared ? MPOL_MF_MOVE_ALL : MPOL_MF_MOVE;
	memory_policy(MPOL_BIND, node);
	kind->make(memory);
	if (!memory->content)
		memory->content = content_new(memory->at, bytes, memory->writers);
	content_fill(memory->content);
	settled = !kind->settle || kind->settle(memory);
	memory_policy(MPOL_DEFAULT, 0);
	elsewhere = memory->bytes / page_bytes() - pages_on(memory->at, memory->bytes, node);
	if (settled && !elsewhere && memory_folios(memory) == memory_folios_wanted(memory))
		return true;
	tap_note("%s: made %zu of %zu folios of %zu bytes, %zu pages not on node %d",
		 kind->name, memory_folios(memory), memory_folios_wanted(memory), memory->folio,
		 elsewhere, node);
	memory_drop(memory);
	return false;
}

bool memory_test(struct memory *memory, const struct kind *kind, size_t bytes, int node,
		 unsigned int writers)
{
	return memory_make(memory, kind, bytes, node, writers) ||
	       tap_ok(false, "%s: cannot be made", kind->name);
}

void memory_need(struct memory *memory, const char *kind, size_t bytes, int node,
		 unsigned int writers)
{
	if (!memory_make(memory, kind_named(kind), bytes, node, writers))
		tap_bail("%s cannot be made", kind);
}

bool memory_drop(struct memory *memory)
{
	bool good = !memory->kind->drop || memory->kind->drop(memory);

	munmap(memory->at, memory->bytes);
	if (memory->fd >= 0)
		close(memory->fd);
	content_free(memory->content);
	if (memory->twin)
		content_free(memory->twin);
	return good;
}

size_t memory_move(struct memory *memory, int node, int tries)
{
	return move_range(memory->at, memory->bytes, memory->folio, node, memory->flags, tries);
}

size_t memory_move_counting(struct memory *memory, int node, int tries, size_t *moved)
{
	return move_range_counting(memory->at, memory->bytes, memory->folio, node, memory->flags,
				   tries, moved);
}

size_t memory_folios_wanted(const struct memory *memory)
{
	return memory->bytes / memory->folio;
}

size_t memory_folios(const struct memory *memory)
{
	return folios_of_size(memory->at, memory->bytes, memory->folio);
}

unsigned int memory_views(const struct memory *memory)
{
	/* Pages merged by KSM are two views of one process; those of children are theirs. */
	return memory->twin && memory->twin->at != memory->at ? 2 : 1;
}

size_t memory_wrong(struct memory *memory, const char *what)
{
	size_t wrong = content_wrong(memory->content, what);

	if (memory_views(memory) > 1)
		wrong += content_wrong(memory->twin, what);
	if (memory->fd >= 0 && !wrong && memory->kind->moves)
		wrong = content_wrong_in_file(memory->content, memory->fd, what);
	return wrong;
}
