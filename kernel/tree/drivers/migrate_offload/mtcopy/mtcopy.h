/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * mtcopy: several CPUs copy the folios of a migration batch.
 *
 * migrator.c prepares a batch, lanes.c copies its pages on several CPUs, copy.c the bytes.
 */
#ifndef _MTCOPY_H
#define _MTCOPY_H

#include <linux/atomic.h>
#include <linux/cache.h>
#include <linux/completion.h>
#include <linux/memferry/share.h>
#include <linux/migrator.h>
#include <linux/minmax.h>
#include <linux/mm_types.h>
#include <linux/sizes.h>
#include <linux/types.h>
#include <linux/workqueue.h>

/* A share of less than 1/64 of a batch is not worth waking a CPU for. */
#define MTCOPY_LANES_MAX	MIGRATOR_CPUS_MAX

/*
 * A lane takes so much at a time, and has at least so much: about ten microseconds of copying.
 * Taking it costs one atomic operation, waking a CPU for it a few microseconds, and the caller
 * waits in the end for one granule of each helper at most.
 */
#define MTCOPY_GRANULE		max_t(u64, FERRY_SHARE_GRANULE, PAGE_SIZE)
#define MTCOPY_GRANULE_PAGES	((u32)(MTCOPY_GRANULE >> PAGE_SHIFT))

struct mtcopy_batch;

/**
 * enum mtcopy_state - whether a helper may touch the batch
 * @MTCOPY_NONE: no: the batch has no such lane, or nothing is left to copy
 * @MTCOPY_OFFERED: not yet, but whoever makes it @MTCOPY_TAKEN may
 * @MTCOPY_TAKEN: a helper does, or did until it counted itself as finished
 */
enum mtcopy_state {
	MTCOPY_NONE,
	MTCOPY_OFFERED,
	MTCOPY_TAKEN,
};

/**
 * struct mtcopy_lane - one of the CPUs that copy a batch, and its share
 * @work: lets a helper begin; unused in lane 0, the caller
 * @mt: the batch
 * @state: of &enum mtcopy_state; unused in lane 0
 * @index: of this lane
 * @end: page behind the share's last
 * @bytes: copied by this lane, of whichever share
 * @ns: CPU time that took
 * @next: page of this share that is taken next; may pass @end
 *
 * Pages are counted over the whole batch, in the order of its pairs.
 */
struct mtcopy_lane {
	struct work_struct work;
	struct mtcopy_batch *mt;
	atomic_t state;
	unsigned int index;
	u32 end;
	u64 bytes;
	u64 ns;
	/* every lane may write this one */
	atomic_t next ____cacheline_aligned_in_smp;
};

/**
 * struct mtcopy_batch - &migrator_batch.private
 * @batch: the batch, while it is copied
 * @nr_lanes: lanes that share it
 * @nontemporal: write past the caches
 * @unfinished: helpers that may still touch the batch, and 1 for the caller
 * @done: completed by the last of the helpers if the caller waits
 * @begins: page where each pair begins, and the number of all pages behind them
 * @lanes: the lanes; lane k runs on CPU k - 1 of &migrator_batch.cpus
 */
struct mtcopy_batch {
	struct migrator_batch *batch;
	unsigned int nr_lanes;
	bool nontemporal;
	atomic_t unfinished;
	struct completion done;
	u32 *begins;
	struct mtcopy_lane *lanes;
};

/* lanes.c */
int mtcopy_lanes_start(void);
void mtcopy_lanes_stop(void);
void mtcopy_lanes_init(struct mtcopy_batch *mt);
void mtcopy_lanes_exit(void);
void mtcopy_lanes_copy(struct mtcopy_batch *mt, bool high);

/* copy.c */
int mtcopy_copy_pages(struct page *dst, struct page *src, unsigned int nr,
		      bool nontemporal);
void mtcopy_copy_finish(bool nontemporal);

/* copy_x86.c, or nowhere */
unsigned long mtcopy_copy_nontemporal(struct page *dst, struct page *src, unsigned int nr);

#endif /* _MTCOPY_H */
