/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hot-page tracking: its sources, settings and counters, and memory that processes use hard
 * enough to be promoted.
 */
#ifndef _PGHOT_H
#define _PGHOT_H

#include <stdbool.h>
#include <stddef.h>

struct content;

#define NUMA_BALANCING	"/proc/sys/kernel/numa_balancing"
#define PGHOT_SYSCTL	"/proc/sys/vm/pghot_"
#define PGHOT_DEBUGFS	"/sys/kernel/debug/pghot"
#define PGHOT_EVENT	PGHOT_DEBUGFS "/hwhints_event"
#define PGHOT_THRESHOLD	PGHOT_DEBUGFS "/freq_threshold"
#define PGHOT_WINDOW	PGHOT_SYSCTL "promote_freq_window_ms"
#define PGHOT_SCANS	"/sys/kernel/debug/sched/numa_balancing/"
#define PGHOT_RATE	PGHOT_SYSCTL "promote_rate_limit_MBps"

/* Minor faults, each of them: their samples come when the page is mapped. */
#define PGHOT_FAULTS	"1 5 1"

/* The kernel's enum pghot_src. */
enum pghot_source { PGHOT_HINTFAULT, PGHOT_HWHINT, PGHOT_PGTSCAN, PGHOT_SOURCES };

extern const char *const pghot_sources[PGHOT_SOURCES];

/*
 * Remembers every setting for when the program ends, and leaves all sources off. Bails out if this kernel or this machine has nothing to track.
 */
void pghot_init(void);

/* Whether this kernel has the source. */
bool pghot_has(enum pghot_source source);

/*
 * Turns one source on, with what it needs, and all others off. Bails out if it cannot. Samples
 * are those of PGHOT_FAULTS, which every machine has.
 */
void pghot_start(enum pghot_source source);

/* Turns all off, and waits until what they found has moved and is counted. */
void pghot_stop(void);

/* A counter of /proc/vmstat; bails out if there is none of that name. */
long long pghot_counter(const char *name);

/* The same, of debugfs pghot/status. */
long long pghot_status(const char *name);

/* Whether records have four bytes, which know their node. */
bool pghot_precise(void);

/*
 * From now on this thread and those that it makes run on the CPUs of a node. If they are never idle
 * while another thread is to be in time, it is the last node: see lab/README.md, --steady-clock.
 */
void pghot_run_on(int node);

/* Memory of a node, settled, with a content for @writers writers. Bails out if it is elsewhere. */
struct content *pghot_memory(int node, size_t bytes, bool huge, unsigned int writers);
/* The same in a mapping that has no pages yet. */
struct content *pghot_content(int node, void *at, size_t bytes, unsigned int writers);
void pghot_memory_drop(struct content *content);

/*
 * Waits until so many base pages of a range lie on nodes other than @node, or a time has
 * passed. Returns how many do.
 */
size_t pghot_wait_moved(const void *at, size_t bytes, int node, size_t pages, long long ms);

/* Until the program ends each process is scanned for hint faults after 100 ms of its time, and later less often. */
void pghot_scan_often(void);

/* The process that promotes the pages of a node, or -1. */
int pghot_kmigrated(int node);

#endif /* _PGHOT_H */
