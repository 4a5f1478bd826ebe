// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A table that is read from end to end again and again while an index over it is in constant use: each page of the
 * table is touched often within a moment, and then not for long; each page of the index rarely, but always again.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	TABLE_PAGES = 6144,
	INDEX_PAGES = 1536,
	PAGE = 4096,
	WORDS = PAGE / 8,
	LINE_WORDS = 8,
	SCANS = 6,
	LOOKUPS = 12, /* for each page of the table that a scan reads */
	DEPTH = 3,    /* places in the index that a lookup visits */
};

static uint64_t state = 1;

static uint64_t next_random(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return state >> 33;
}

int main(void)
{
	uint64_t *table = aligned_alloc(PAGE, (size_t)TABLE_PAGES * PAGE);
	uint64_t *index = aligned_alloc(PAGE, (size_t)INDEX_PAGES * PAGE);
	uint64_t sum = 0;

	if (!table || !index)
		return 1;
	for (size_t i = 0; i < (size_t)INDEX_PAGES * WORDS; i++)
		index[i] = next_random();
	for (size_t i = 0; i < (size_t)TABLE_PAGES * WORDS; i += LINE_WORDS)
		table[i] = i;
	for (int scan = 0; scan < SCANS; scan++) {
		for (size_t page = 0; page < TABLE_PAGES; page++) {
			for (size_t i = 0; i < WORDS; i += LINE_WORDS)
				sum += table[page * WORDS + i];
			for (int i = 0; i < LOOKUPS; i++) {
				uint64_t at = next_random();

				for (int depth = 0; depth < DEPTH; depth++)
					at = index[at % ((size_t)INDEX_PAGES * WORDS)] + depth;
				sum ^= at;
			}
		}
	}
	printf("%016llx\n", (unsigned long long)sum);
	return 0;
}
