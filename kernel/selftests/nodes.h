/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory nodes: which there are, on which a page lies, and move_pages(2). No libnuma.
 */
#ifndef _NODES_H
#define _NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MAX_NODES	64

#define MPOL_DEFAULT	0
#define MPOL_BIND	2
#define MPOL_INTERLEAVE	3
#define MPOL_F_NUMA_BALANCING	(1 << 13)
#define MPOL_MF_STRICT		(1 << 0)
#define MPOL_MF_MOVE		(1 << 1)
#define MPOL_MF_MOVE_ALL	(1 << 2)

/* Reads a list such as "0-2,5"; returns how many numbers it put into @ids. */
int list_read(const char *list, int *ids, int space);

/* Number of nodes with memory, and the @nth of them. Bails out without two of them. */
int nodes_with_memory(void);
int node_at(int nth);

/* A node with memory and without CPUs, or -1. */
int node_slow(void);

/* Free bytes of a node, and all of them; negative if unknown. */
long long node_free_bytes(int node);
/* What the kernel tries to keep free there; below it, it reclaims, and far below, it kills. */
long long node_reserve_bytes(int node);
long long node_bytes(int node);
/* What programs and files have there. */
long long node_movable_bytes(int node);

size_t page_bytes(void);

/* Node on which the page of an address lies, or -errno (-ENOENT: nothing there). */
int node_of(const void *at);

/* How many base pages of a range lie on @node. */
size_t pages_on(const void *at, size_t bytes, int node);

/* How many lie on another node: what is just moving lies nowhere. */
size_t pages_off(const void *at, size_t bytes, int node);

/*
 * Nodes of every page of a range into @nodes, one per base page. Dies if the kernel does not
 * answer.
 */
void nodes_of(const void *at, size_t bytes, int *nodes);

/*
 * Pages that were touched last wait on a CPU for their LRU list, where nothing isolates them;
 * after this all pages are on one. @at is any page of ours.
 */
void pages_settle(void *at);

/* Where this task's new pages go from now on; MPOL_DEFAULT for anywhere. 0 or -errno. */
int memory_policy(int mode, int node);

/* mbind(2) of a range to one node. 0 or -errno. */
int bind_range(void *at, size_t bytes, int mode, int node, unsigned int flags);
/* To nodes as mbind() takes them, a bit each. */
int bind_range_to(void *at, size_t bytes, int mode, unsigned long mask, unsigned int flags);

/**
 * move_range - move every page of a range to a node with move_pages(2)
 * @pid: whose range; 0 for our own, which is the only kind that is looked at first
 * @folio: bytes from one address that is asked for to the next; the size of the folios there
 * @flags: MPOL_MF_MOVE or MPOL_MF_MOVE_ALL
 * @tries: how often to ask again for those that did not go
 *
 * Returns how many base pages lie elsewhere afterwards.
 */
size_t move_range(void *at, size_t bytes, size_t folio, int node, int flags, int tries);

/* The same; adds to @moved how many base pages were elsewhere before and are there afterwards. */
size_t move_range_counting(void *at, size_t bytes, size_t folio, int node, int flags, int tries,
			   size_t *moved);

/* move_pages(2) itself. */
long move_pages(pid_t pid, unsigned long count, void **pages, const int *nodes, int *status,
		int flags);

/* migrate_pages(2) of all pages of a process from a node to another. */
long migrate_process(pid_t pid, int from, int to);

#endif /* _NODES_H */
