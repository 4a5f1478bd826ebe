/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program with a malloc of its own, whose heap two threads move all the time while others use it. One lock guards all of it, and
 * free blocks are linked through their own memory: who holds the lock waits for pages that are away, so a mover that asks
 * this heap for memory meanwhile waits for ever. Prints TAP.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <memferry.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The first arena is for everybody but the workers, and stays: a mover does not move what it stands on. */
#define WORKERS 3
#define MOVERS 2
#define ARENAS (1 + WORKERS)
#define ARENA_BYTES ((size_t)64 << 20)
/* Of each of the threads that move. */
#define MOVES 100
#define GIVEN_BACK ((size_t)64 << 10)
#define BLOCKS 256
#define PATIENCE_S 300

/* Blocks are powers of two, of 32 bytes to 1 MiB, with a header; larger ones are mappings. */
#define CLASSES 16
#define CLASS_BYTES(class) ((size_t)32 << (class))

struct header {
	size_t mapped;		/* bytes of the mapping, if it is one */
	uint16_t arena, class;
	uint32_t offset;	/* of what was given out, from here */
};

struct arena {
	unsigned char *base;
	size_t used;
	struct free_block { struct header header; struct free_block *next; } *free[CLASSES];
};

static struct arena arenas[ARENAS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread unsigned int own_arena;

static void *map(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static struct header *take(unsigned int number, unsigned int class)
{
	struct arena *arena = &arenas[number];
	struct free_block *block = arena->free[class];

	if (!arena->base)
		arena->base = map(ARENA_BYTES);
	if (block)
		arena->free[class] = block->next;
	else if (arena->base && arena->used + CLASS_BYTES(class) <= ARENA_BYTES) {
		block = (void *)(arena->base + arena->used);
		arena->used += CLASS_BYTES(class);
	}
	if (block)
		block->header = (struct header){ .arena = number, .class = class };
	return block ? &block->header : NULL;
}

static void *allocate(size_t bytes, size_t align)
{
	size_t need = bytes + sizeof(struct header) + (align > 16 ? align : 0);
	struct header *header, *before;
	unsigned int class = 0;
	uintptr_t at;

	if (need < bytes)
		return NULL;
	while (class < CLASSES && CLASS_BYTES(class) < need)
		class++;
	if (class < CLASSES) {
		pthread_mutex_lock(&lock);
		header = take(own_arena, class);
		pthread_mutex_unlock(&lock);
	} else {
		header = map(need);
		if (header)
			*header = (struct header){ .mapped = need };
	}
	if (!header)
		return NULL;
	at = (uintptr_t)(header + 1);
	at = (at + align - 1) & ~(uintptr_t)(align - 1);
	/* The header that is found from what was given out. */
	before = (struct header *)at - 1;
	*before = *header;
	before->offset = (uint32_t)((uintptr_t)before - (uintptr_t)header);
	return (void *)at;
}

static struct header *header_of(void *at)
{
	struct header *before = (struct header *)at - 1;

	return (struct header *)((unsigned char *)before - before->offset);
}

static size_t usable(void *at)
{
	struct header *header = header_of(at);
	size_t bytes = header->mapped ? header->mapped : CLASS_BYTES(header->class);

	return bytes - (size_t)((unsigned char *)at - (unsigned char *)header);
}

void *malloc(size_t bytes)
{
	void *at = allocate(bytes, 16);

	if (!at)
		errno = ENOMEM;
	return at;
}

void free(void *at)
{
	struct header *header;
	struct free_block *block;

	if (!at)
		return;
	header = header_of(at);
	if (header->mapped) {
		munmap(header, header->mapped);
		return;
	}
	block = (struct free_block *)header;
	pthread_mutex_lock(&lock);
	/* Large ones give their pages back, but the first. */
	if (CLASS_BYTES(header->class) >= GIVEN_BACK) {
		uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
		uintptr_t start = ((uintptr_t)(block + 1) + page - 1) & ~(page - 1);

		madvise((void *)start, ((uintptr_t)header + CLASS_BYTES(header->class) - start) & ~(page - 1),
			MADV_DONTNEED);
	}
	block->next = arenas[header->arena].free[header->class];
	arenas[header->arena].free[header->class] = block;
	pthread_mutex_unlock(&lock);
}

void *calloc(size_t count, size_t bytes)
{
	void *at = bytes && count > SIZE_MAX / bytes ? NULL : malloc(count * bytes);

	return at ? memset(at, 0, count * bytes) : NULL;
}

void *realloc(void *at, size_t bytes)
{
	void *new = malloc(bytes);

	if (new && at) {
		memcpy(new, at, usable(at) < bytes ? usable(at) : bytes);
		free(at);
	}
	return new;
}

int posix_memalign(void **at, size_t align, size_t bytes)
{
	*at = allocate(bytes, align);
	return *at ? 0 : ENOMEM;
}

void *aligned_alloc(size_t align, size_t bytes)
{
	return allocate(bytes, align);
}

void *memalign(size_t align, size_t bytes)
{
	return allocate(bytes, align);
}

static atomic_int stop;
static atomic_ulong wrong, allocated;

struct block { unsigned char *at; size_t bytes; unsigned char value; };

static int is_filled(const struct block *block)
{
	for (size_t i = 0; i < block->bytes; i++)
		if (block->at[i] != block->value)
			return 0;
	return 1;
}

static void *work(void *number)
{
	static struct block all[ARENAS][BLOCKS];
	struct block *blocks = all[(uintptr_t)number];
	unsigned int random = (unsigned int)(uintptr_t)number;

	own_arena = (unsigned int)(uintptr_t)number;
	while (!stop) {
		struct block *block = &blocks[rand_r(&random) % BLOCKS];

		if (block->at && !is_filled(block))
			wrong++;
		free(block->at);
		block->bytes = 1 + (size_t)rand_r(&random) % ((size_t)16 << rand_r(&random) % 16);
		block->at = malloc(block->bytes);
		block->value = (unsigned char)rand_r(&random);
		if (!block->at)
			abort();
		memset(block->at, block->value, block->bytes);
		allocated++;
	}
	for (int i = 0; i < BLOCKS; i++)
		if (blocks[i].at && !is_filled(&blocks[i]))
			wrong++;
	return NULL;
}

static memferry_mover *mover;
static atomic_ullong moved;
static atomic_int failed;

static void *keep_moving(void *number)
{
	memferry_move_options how = { .size = sizeof how, .flags = MEMFERRY_RELOCATE };

	/* Each begins with another arena; moves of one mover wait for each other. */
	for (uintptr_t n = (uintptr_t)number; n < (uintptr_t)number + MOVES; n++) {
		memferry_result result = { .size = sizeof result };

		if (memferry_move(mover, arenas[1 + n % WORKERS].base, ARENA_BYTES, 0, &how, &result) < 0) {
			printf("# %s\n", memferry_last_error());
			failed++;
		}
		moved += result.moved.bytes;
	}
	return NULL;
}

static void stuck(int number)
{
	static const char text[] = "Bail out! the mover and the program's heap wait for each other\n";

	(void)number;
	_exit(write(STDOUT_FILENO, text, sizeof(text) - 1) < 0 ? 2 : 1);
}

static int check(int holds, const char *what)
{
	static int tests;

	printf("%s %d - %s\n", holds ? "ok" : "not ok", ++tests, what);
	return holds;
}

int main(void)
{
	/* Without a number a mover begins with one lane; move_pages(2) leaves alone what lies on the node. */
	memferry_options options = { .size = sizeof options, .lanes = 2, .backend = MEMFERRY_USERFAULTFD };
	pthread_t threads[WORKERS], movers[MOVERS];
	int failures = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (memferry_new(&options, &mover) == -EINVAL)
		options.lanes = 1;
	if (!mover && memferry_new(&options, &mover) < 0) {
		printf("1..0 # SKIP %s\n", memferry_last_error());
		return 77;
	}
	signal(SIGALRM, stuck);
	alarm(PATIENCE_S);
	for (uintptr_t n = 0; n < WORKERS; n++)
		if (pthread_create(&threads[n], NULL, work, (void *)(n + 1)))
			abort();
	/* Their arenas are there. */
	while (allocated < 100 * WORKERS)
		usleep(1000);
	for (uintptr_t n = 0; n < MOVERS; n++)
		if (pthread_create(&movers[n], NULL, keep_moving, (void *)n))
			abort();
	for (int n = 0; n < MOVERS; n++)
		pthread_join(movers[n], NULL);
	stop = 1;
	for (int n = 0; n < WORKERS; n++)
		pthread_join(threads[n], NULL);
	printf("# %llu MiB moved, %lu blocks allocated\n", (unsigned long long)moved >> 20, (unsigned long)allocated);
	failures += !check(!failed, "every move ends without an error");
	failures += !check(moved > 0, "pages of the heap moved");
	failures += !check(!wrong, "every block kept its contents");
	memferry_free(mover);
	puts("1..3");
	return failures > 0;
}
