/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What memory holds, known word by word while writers change it.
 *
 * Every 64-bit word of a content has one right value at every moment. Most words never
 * change: their value is made of the content's seed and the word's place, so that a page of
 * another place or another content is seen. Some words of every page are hot: each belongs
 * to one writer, which raises its generation again and again, and before it does so checks
 * that the last generation that it wrote is still there. A write that a migration lost, a
 * page that came back old and a torn word are seen by the writer at its next visit, or by
 * content_wrong() at the end, which compares every byte.
 */
#ifndef _CONTENT_H
#define _CONTENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CONTENT_WRITERS		8
#define CONTENT_HOT_PER_PAGE	16

struct content;

/* One writer. Only its own thread or process changes it, until it ended. */
struct writer {
	struct content *content;
	unsigned int number;
	unsigned int stride;
	volatile uint32_t generation;	/* being written now */
	volatile size_t pages_done;	/* pages of this generation, in the writer's order */
	volatile size_t visits;		/* pages of all generations; never less than before */
	size_t wrong;			/* words that were not what it wrote */
	uint64_t expected, seen;	/* of the first wrong word */
	size_t offset;
	int error;			/* of pwrite(2) and pread(2) */
	volatile int stop;
	volatile int rests;
};

/* How writers reach the memory. */
enum content_way {
	CONTENT_MAPPING,		/* loads and stores */
	CONTENT_FILE,			/* pread(2) and pwrite(2) of .fd */
	CONTENT_PINS,			/* loads, and a reference to the page for each store */
};

/* All of it lies in memory that is shared with children. */
struct content {
	unsigned char *at;
	size_t bytes;
	enum content_way way;
	int fd;
	unsigned int seed;
	unsigned int nr_writers;
	unsigned int pause_us;		/* after each sweep over all pages */
	volatile int rest;
	struct writer writers[CONTENT_WRITERS];
	pthread_t threads[CONTENT_WRITERS];
};

/* A content for @bytes at @at, filled by content_fill(); @writers may be 0. */
struct content *content_new(void *at, size_t bytes, unsigned int writers);
void content_free(struct content *content);

/* Gives every word its first value, through the mapping. */
void content_fill(struct content *content);

/* The same through write(2); 0 or -errno. */
int content_fill_file(struct content *content, int fd);

/* Starts and ends the writers as threads; when it returns all of them write. */
void content_start_writers(struct content *content);
void content_stop_writers(struct content *content);

/* Lets the writers wait where they are, and go on. When it returns none touches the memory. */
void content_rest_writers(struct content *content);
void content_resume_writers(struct content *content);

/* A writer's whole life, for a process of its own; ends when .stop is set. */
void content_write(struct content *content, unsigned int writer);

/*
 * Pages that the slowest writer wrote to, counted at every visit, also while they write; 0
 * without writers.
 */
size_t content_visits(const struct content *content);

/**
 * content_wrong - compare every word with what it must be; no writer may run
 * @what: for the messages about the first wrong words, or NULL for none
 *
 * Returns the number of wrong words, those that writers saw included.
 */
size_t content_wrong(const struct content *content, const char *what);

/* The same for a copy of the content elsewhere, such as what read(2) gave. */
size_t content_wrong_at(const struct content *content, const void *at, const char *what);

/* Reads the whole file through pread(2) and compares; a read error is one wrong word. */
size_t content_wrong_in_file(const struct content *content, int fd, const char *what);

#endif /* _CONTENT_H */
