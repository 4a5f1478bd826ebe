/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program that moves all anonymous mappings it has: each as a whole, in pieces of 2 MiB, and page by page. It does so on its
 * first thread, on another one, and on a stack of its own making. What a move needs itself is refused, by EDEADLK; all the
 * rest moves, and the program goes on. Prints TAP. Usage: everything, or with DLOPEN defined: everything LIBRARY
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <memferry.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define PAGE ((size_t)4096)
#define PIECE ((size_t)2 << 20)
#define BYTES ((size_t)3 << 20)
#define BLOCKS 300
#define MAPPINGS 4096

static int (*move)(memferry_mover *, void *, size_t, int, const memferry_move_options *, memferry_result *);
static int (*new_mover)(const memferry_options *, memferry_mover **);
static void (*free_mover)(memferry_mover *);
static const char *(*last_error)(void);

static memferry_mover *mover;

/* What must keep its bytes. */
static unsigned char statics[BYTES];
static __thread unsigned char locals[64 << 10];
static unsigned char *mapped, *blocks[BLOCKS];

static unsigned char byte(size_t index)
{
	return (unsigned char)(index * 7 + (index >> 12));
}

static void fill(unsigned char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = byte(i);
}

static int is_filled(const unsigned char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != byte(i))
			return 0;
	return 1;
}

static size_t block_bytes(size_t number)
{
	return 1 + number * 131;
}

static int check(int holds, const char *what)
{
	static int tests;

	printf("%s %d - %s\n", holds ? "ok" : "not ok", ++tests, what);
	return holds;
}

/* What the moves of one walk came to. */
struct walk {
	uint64_t tried, refused, moved;
	int failed;
};

/* 1 if the range holds what a move needs. */
static int move_one(struct walk *walk, uintptr_t from, uintptr_t to)
{
	memferry_move_options how = { .size = sizeof how, .flags = MEMFERRY_RELOCATE };
	memferry_result result = { .size = sizeof result };
	int error = move(mover, (void *)from, to - from, 0, &how, &result);

	walk->tried++;
	if (!error)
		walk->moved += result.moved.bytes;
	else if (error == -EDEADLK)
		walk->refused++;
	else if (error != -EFAULT) {
		/* What was listed may be gone. */
		printf("# %#lx-%#lx: %s\n", (unsigned long)from, (unsigned long)to, last_error());
		walk->failed++;
	}
	return error == -EDEADLK;
}

static struct { uintptr_t from, to; } mappings[MAPPINGS];

static size_t list_mappings(void)
{
	static char line[4096 + 256];
	FILE *maps = fopen("/proc/self/maps", "r");
	size_t count = 0;

	while (maps && count < MAPPINGS && fgets(line, sizeof line, maps)) {
		unsigned long from, to, inode;
		char rights[5];

		if (sscanf(line, "%lx-%lx %4s %*x %*s %lu", &from, &to, rights, &inode) == 4 && !inode &&
		    !memcmp(rights, "rw-p", 4) && !strstr(line, "[v")) {
			mappings[count].from = from;
			mappings[count++].to = to;
		}
	}
	if (maps)
		fclose(maps);
	return count;
}

static struct walk walk(void)
{
	struct walk walk = { 0 };
	size_t count = list_mappings();

	for (size_t i = 0; i < count; i++) {
		uintptr_t from = mappings[i].from, to = mappings[i].to;

		move_one(&walk, from, to);
		for (uintptr_t piece = from; piece < to; piece = (piece / PIECE + 1) * PIECE) {
			uintptr_t end = (piece / PIECE + 1) * PIECE;

			end = end < to ? end : to;
			/* All pages of a piece that is refused; of another one some. */
			for (uintptr_t at = piece, each = move_one(&walk, piece, end) ? 1 : 61; at < end; at += each * PAGE)
				move_one(&walk, at, at + PAGE);
		}
	}
	return walk;
}

static int walk_and_check(const char *where)
{
	char what[128];
	struct walk came;
	int whole = 1;

	fill(locals, sizeof locals);
	came = walk();
	printf("# %s: %lu moves, %lu refused, %lu MiB moved\n", where, (unsigned long)came.tried,
	       (unsigned long)came.refused, (unsigned long)(came.moved >> 20));
	snprintf(what, sizeof what, "%s: pages move, some are refused, and nothing fails", where);
	int holds = check(!came.failed && came.refused && came.moved > BYTES, what);
	for (size_t i = 0; i < BLOCKS; i++)
		whole &= is_filled(blocks[i], block_bytes(i));
	whole &= is_filled(statics, BYTES) && is_filled(mapped, BYTES) && is_filled(locals, sizeof locals);
	snprintf(what, sizeof what, "%s: every byte is right", where);
	return holds & check(whole, what);
}

static int good = 1;

static void *on_a_thread(void *unused)
{
	(void)unused;
	good &= walk_and_check("another thread");
	return NULL;
}

static ucontext_t own, fiber;

static void on_a_fiber(void)
{
	good &= walk_and_check("a stack of its own making");
}

int main(int argc, char **argv)
{
	memferry_options options = { .size = sizeof options, .lanes = 2, .backend = MEMFERRY_USERFAULTFD };
	pthread_t thread;
	int failed;

	setvbuf(stdout, NULL, _IOLBF, 0);
#ifdef DLOPEN
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;

	if (!library) {
		printf("Bail out! %s\n", dlerror());
		return 1;
	}
	*(void **)&move = dlsym(library, "memferry_move");
	*(void **)&new_mover = dlsym(library, "memferry_new");
	*(void **)&free_mover = dlsym(library, "memferry_free");
	*(void **)&last_error = dlsym(library, "memferry_last_error");
#else
	(void)argc;
	(void)argv;
	move = memferry_move;
	new_mover = memferry_new;
	free_mover = memferry_free;
	last_error = memferry_last_error;
#endif
	for (size_t i = 0; i < BLOCKS; i++) {
		blocks[i] = malloc(block_bytes(i));
		fill(blocks[i], block_bytes(i));
	}
	/* Without a number a mover begins with one lane. */
	failed = new_mover(&options, &mover);
	if (failed == -EINVAL) {
		options.lanes = 1;
		failed = new_mover(&options, &mover);
	}
	if (failed) {
		printf("1..0 # SKIP %s\n", last_error());
		return 77;
	}
	mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapped == MAP_FAILED)
		return 1;
	fill(statics, BYTES);
	fill(mapped, BYTES);
	good &= walk_and_check("the first thread");
	if (pthread_create(&thread, NULL, on_a_thread, NULL) || pthread_join(thread, NULL))
		return 1;
	getcontext(&fiber);
	fiber.uc_stack.ss_size = 64 << 10;
	fiber.uc_stack.ss_sp = malloc(fiber.uc_stack.ss_size);
	fiber.uc_link = &own;
	makecontext(&fiber, on_a_fiber, 0);
	swapcontext(&own, &fiber);
	free_mover(mover);
	puts("1..6");
	return !good;
}
