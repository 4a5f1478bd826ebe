// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Random updates of a table with a hot set that moves: nine of ten updates go to a fifth of the pages, spread over
 * the whole table, and after each phase to another fifth.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	PAGES = 8192,
	WORDS = 512, /* of a page */
	HOT = PAGES / 5,
	PHASES = 4,
	UPDATES = 300000, /* of a phase */
};

static uint64_t state = 1;

static uint64_t random_below(uint64_t limit)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return ((state >> 33) * limit) >> 31;
}

int main(void)
{
	uint64_t *table = aligned_alloc(4096, (size_t)PAGES * WORDS * sizeof(*table));
	uint32_t pages[PAGES];
	uint64_t sum = 0;

	if (!table)
		return 1;
	for (uint32_t i = 0; i < PAGES; i++) {
		pages[i] = i;
		table[(size_t)i * WORDS] = i;
	}
	for (int phase = 0; phase < PHASES; phase++) {
		for (uint32_t i = PAGES - 1; i > 0; i--) {
			uint32_t other = random_below(i + 1), page = pages[i];

			pages[i] = pages[other];
			pages[other] = page;
		}
		for (int i = 0; i < UPDATES; i++) {
			uint64_t page = random_below(10) ? random_below(HOT) : HOT + random_below(PAGES - HOT);

			table[(size_t)pages[page] * WORDS + random_below(WORDS)] ^= state;
		}
	}
	for (uint32_t i = 0; i < PAGES; i++)
		sum ^= table[(size_t)i * WORDS];
	printf("%016llx\n", (unsigned long long)sum);
	return 0;
}
