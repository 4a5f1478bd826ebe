/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kinds of memory that migrate: each can be made on a given node, with a content, and
 * proves that it is what it says.
 */
#ifndef _MEMORY_H
#define _MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "content.h"

#define HUGE_BYTES	(2UL << 20)

struct memory;

/**
 * struct kind - one kind of memory
 * @name: as tests print it
 * @folio: bytes of its folios; 0 for base pages
 * @moves: move_pages(2) moves it
 * @batch: its folios are copied by the batch
 * @shared: with other mappings, so that only MPOL_MF_MOVE_ALL moves it
 * @readonly: nobody writes to it through the mapping
 * @make: maps it, and makes .content
 * @settle: after the content was filled, or NULL; false if it did not become this kind
 * @drop: what is more to do than to unmap it, or NULL; false if something was wrong
 */
struct kind {
	const char *name;
	size_t folio;
	bool moves;
	bool batch;
	bool shared;
	bool readonly;
	void (*make)(struct memory *memory);
	bool (*settle)(struct memory *memory);
	bool (*drop)(struct memory *memory);
};

struct memory {
	const struct kind *kind;
	unsigned char *at;
	size_t bytes;
	size_t folio;
	int fd;
	int node;
	int flags;			/* of move_pages(2) */
	unsigned int writers;
	struct content *content;
	struct content *twin;		/* a second view with a state of its own, or NULL */
	pid_t children[2];
	int go;				/* closed: the children end */
};

extern const struct kind kinds[];
extern const unsigned int nr_kinds;

/* The kind of a name; bails out if there is none. */
const struct kind *kind_named(const char *name);

/* Whether its folios can be, with base pages of this size. */
bool kind_possible(const struct kind *kind);

/*
 * Makes @bytes of a kind on a node, for @writers writers. Returns false, after a note, if
 * the machine did not give it; then nothing is left.
 */
bool memory_make(struct memory *memory, const struct kind *kind, size_t bytes, int node,
		 unsigned int writers);

/* The same, and a test that failed if it returns false. */
bool memory_test(struct memory *memory, const struct kind *kind, size_t bytes, int node,
		 unsigned int writers);

/* Bails out unless there is @bytes of the kind of this name on a node. */
void memory_need(struct memory *memory, const char *kind, size_t bytes, int node,
		 unsigned int writers);

/* Unmaps it. Returns false if someone who shared it found something wrong. */
bool memory_drop(struct memory *memory);

/* Moves all of it; returns how many base pages lie elsewhere. */
size_t memory_move(struct memory *memory, int node, int tries);

/* The same; adds to @moved how many base pages were elsewhere before and are there afterwards. */
size_t memory_move_counting(struct memory *memory, int node, int tries, size_t *moved);

/* Folios that still have the size of the kind, and how many there must be. */
size_t memory_folios(const struct memory *memory);
size_t memory_folios_wanted(const struct memory *memory);

/* At how many of its addresses each page is mapped. */
unsigned int memory_views(const struct memory *memory);

/* Wrong words everywhere that the content can be seen. */
size_t memory_wrong(struct memory *memory, const char *what);

/* Anonymous memory of base pages, or of 2 MiB folios, aligned to 2 MiB. */
void *map_anonymous(size_t bytes, bool huge);

/* Reserves addresses aligned to 2 MiB. */
void *reserve(size_t bytes);

/* Writes to each byte of a range that has no pages yet; whether all of them are on the node then. */
bool populate_on(int node, void *at, size_t bytes);

/* Reads from each page of a range. */
void read_pages(const void *at, size_t bytes);

/* Writes to each page of a range what it holds: reads would map a file's neighbours without a fault. */
void rewrite_pages(void *at, size_t bytes);

#endif /* _MEMORY_H */
