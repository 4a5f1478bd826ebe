/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Moves 64 MiB of this process to other pages of node 0, and checks every byte.
 *
 *     cargo build --release -p memferry-c
 *     cc -I crates/memferry-c/include examples/c/move.c target/release/libmemferry.a -pthread -ldl -lm -o move && ./move
 *
 * Exit status: 0 all moved, 1 some pages stayed or the move failed, 2 data was lost.
 */
#include <inttypes.h>
#include <memferry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES ((size_t)64 << 20)
#define NODE 0

static uint64_t word(size_t index)
{
	return (uint64_t)index * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

static void print_count(const char *outcome, memferry_count count)
{
	if (count.folios)
		printf("%s: %" PRIu64 " folios, %" PRIu64 " bytes\n", outcome, count.folios, count.bytes);
}

static int failed(const char *what, int code)
{
	fprintf(stderr, "%s: %s: %s\n", what, strerror(-code), memferry_last_error());
	return EXIT_FAILURE;
}

int main(void)
{
	uint64_t *memory = (uint64_t *)mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		perror("mmap");
		return EXIT_FAILURE;
	}
	for (size_t i = 0; i < BYTES / sizeof *memory; i++)
		memory[i] = word(i);

	/* move_pages(2), the other backend, leaves alone what lies on the node. */
	memferry_options setup = { .size = sizeof setup };
	setup.backend = MEMFERRY_USERFAULTFD;
	memferry_mover *mover;
	int code = memferry_new(&setup, &mover);
	if (code < 0)
		return failed("cannot set up a mover", code);

	/* What became of each page, as move_pages(2) would say it. */
	size_t pages = BYTES / (size_t)sysconf(_SC_PAGESIZE);
	int *status = (int *)malloc(pages * sizeof *status);
	if (!status) {
		perror("malloc");
		return EXIT_FAILURE;
	}
	memferry_move_options options = { .size = sizeof options };
	options.flags = MEMFERRY_RELOCATE;
	options.status = status;
	options.status_len = pages;
	memferry_result result = { .size = sizeof result };
	code = memferry_move(mover, memory, BYTES, NODE, &options, &result);
	if (code < 0)
		return failed("cannot move", code);

	print_count("moved", result.moved);
	print_count("already there", result.already_there);
	print_count("not present", result.not_present);
	print_count("busy", result.busy);
	print_count("no memory", result.no_memory);
	print_count("unsupported", result.unsupported);
	if (result.error)
		failed("a part of the range", result.error);
	size_t arrived = 0;
	for (size_t i = 0; i < pages; i++)
		arrived += status[i] == NODE;
	printf("%zu of %zu pages on node %d\n", arrived, pages, NODE);

	size_t intact = 0;
	for (size_t i = 0; i < BYTES / sizeof *memory; i++)
		intact += memory[i] == word(i);
	printf("%zu of %zu bytes intact\n", intact * sizeof *memory, BYTES);

	free(status);
	memferry_free(mover);
	if (intact * sizeof *memory != BYTES)
		return 2;
	return arrived == pages ? EXIT_SUCCESS : EXIT_FAILURE;
}
