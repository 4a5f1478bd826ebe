/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/**
 * memferry.h - moves memory pages between the tiers of one machine at the speed of the memory.
 *
 *     memferry_options options = { .size = sizeof options };
 *     memferry_mover *mover;
 *     if (memferry_new(&options, &mover) < 0)
 *         errx(1, "%s", memferry_last_error());
 *
 *     memferry_move_options how = { .size = sizeof how };
 *     memferry_result result = { .size = sizeof result };
 *     if (memferry_move(mover, memory, bytes, node, &how, &result) < 0)
 *         errx(1, "%s", memferry_last_error());
 *     printf("%" PRIu64 " bytes moved\n", result.moved.bytes);
 *     memferry_free(mover);
 *
 * Structures. The caller owns them. Set `size` to sizeof the structure and all else to 0: 0 is the default everywhere.
 * Later versions add fields at the end only and take the sizes of earlier ones.
 *
 * Errors. Functions that return int return 0 or a count when they succeed and a negative errno when they do not;
 * strerror(3) names the code, memferry_last_error() says what was wrong, why, and what to try. A failed call writes
 * nothing to what it was given but where its description says so. Every function can return -EINVAL for an argument
 * that is null, misaligned or out of range, and -EIO for an error in the library itself.
 *
 * Threads. Every function may be called from any thread at any time, but memferry_free() only as the last call for
 * its mover, and memferry_pending_finish() as the last for its move. Moves of one mover take turns, 1 GiB at a time at most, in
 * order of coming; those with a rate let the others go first. Movers are independent of each other.
 *
 * Signals. In every call but memferry_cancel() the thread's signals wait for its end, and so does pthread_cancel(): about a
 * millisecond in a move of up to 2 MiB, and as long as it takes in memferry_new(), memferry_prefill() and memferry_move_pid(),
 * the last of which another thread may end early by memferry_cancel(). memferry_move() and memferry_move_list() of more than 2 MiB or
 * with a rate, and memferry_pending_finish(), sleep while the pages move: the thread's handlers run meanwhile, may touch the memory, and
 * may leave by siglongjmp(), when the move goes on, @result is not written, and the thread's cancellation, where it is asynchronous,
 * stays disabled. A handler that runs at the end of any call may leave it, too.
 *
 * fork. A mover belongs to the process that made it. In a child calls for it return -ESRCH, only memferry_cancel() does
 * not look, and memferry_free() does nothing; make a new one there. While a move is under way fork() waits until no page
 * is away from its place.
 *
 * Loading. Handlers of pthread_atfork(3) and worker threads run the library's code, so the shared library must never be
 * unloaded: it is linked with `-z nodelete`, and dlclose() leaves it in memory. A shared library that the static one is
 * linked into must be linked in the same way.
 *
 * C11 and C++11.
 */
#ifndef MEMFERRY_H
#define MEMFERRY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Version of this header. */
#define MEMFERRY_VERSION "0.1.0"

/** Sets up and carries out moves. Made by memferry_new(), released by memferry_free(). */
typedef struct memferry_mover memferry_mover;

/** What copies: memferry_options.migrator. */
enum {
	/** Whole batches on several lanes. The default. */
	MEMFERRY_MTCOPY = 0,
	/** Whole batches on the calling thread. */
	MEMFERRY_BATCH = 1
};

/** Which CPUs the lanes of MEMFERRY_MTCOPY take: memferry_options.placement. */
enum {
	/** One lane per last-level cache of the caller's node in turn: the most memory bandwidth. The default. */
	MEMFERRY_SPREAD = 0,
	/** All CPUs of one group first: the other groups stay undisturbed. */
	MEMFERRY_FILL = 1
};

/** How pages are moved: memferry_options.backend. */
enum {
	/** userfaultfd where it works, else move_pages(2); between two nodes or more the one that moves base pages faster, as
	 *  memferry_new() measures once in a process. There what userfaultfd cannot move (shared memory, of files, of hugetlbfs) goes
	 *  through move_pages(2), and so do lists of pieces below 128 KiB on average where that is faster for them. The default. */
	MEMFERRY_AUTO = 0,
	/** userfaultfd's UFFDIO_MOVE: Linux 6.8. */
	MEMFERRY_USERFAULTFD = 1,
	/** move_pages(2): any kernel, two memory nodes or more. */
	MEMFERRY_MOVE_PAGES = 2
};

/**
 * memferry_options.flags: use userfaultfd also on a kernel whose UFFDIO_MOVE has known faults by its release
 * (docs/limits.md). For one whose distributor has mended them.
 */
#define MEMFERRY_ALLOW_FAULTY_KERNEL UINT32_C(1)

/**
 * memferry_options.flags: move transparent huge pages through userfaultfd also where that can crash the kernel, which is so before
 * Linux 7.2 (docs/limits.md). Otherwise they stay and count as unsupported; MEMFERRY_AUTO moves them through move_pages(2) where
 * there are several nodes.
 */
#define MEMFERRY_ALLOW_HUGE_PAGES UINT32_C(2)

/** memferry_options.pool_bytes for a mover that keeps no free pages. */
#define MEMFERRY_NO_POOL UINT64_MAX

/** What a mover is set up with. */
typedef struct memferry_options {
	/** sizeof(memferry_options). */
	size_t size;
	/** MEMFERRY_MTCOPY or MEMFERRY_BATCH. */
	uint32_t migrator;
	/** Parallel copiers of every move, the calling thread counted; 0: chosen by measurement while pages move, from one up
	 *  to one per CPU that the process may use by affinity and cgroup quota, at most 4. Moves of less than 8 MiB begin with
	 *  one lane and longer ones with all, until others are surely faster for that kind of pages, which takes some GiB of moves.
	 *  Only MEMFERRY_MTCOPY takes more than 1. */
	uint32_t lanes;
	/** MEMFERRY_SPREAD or MEMFERRY_FILL; for MEMFERRY_MTCOPY. */
	uint32_t placement;
	/** Nice value of the worker threads, -20 (first) to 19 (last), for MEMFERRY_MTCOPY. Below 0 needs CAP_SYS_NICE and
	 *  is ignored without it. */
	int32_t nice;
	/** MEMFERRY_AUTO, MEMFERRY_USERFAULTFD or MEMFERRY_MOVE_PAGES. */
	uint32_t backend;
	/** MEMFERRY_ALLOW_FAULTY_KERNEL, MEMFERRY_ALLOW_HUGE_PAGES, or both. */
	uint32_t flags;
	/** Bytes of free pages that the mover may keep between moves; 0: 64 MiB; MEMFERRY_NO_POOL: none. */
	uint64_t pool_bytes;
} memferry_options;

/** memferry_move_options.flags: also move pages that lie on the target node already, to other pages of it. */
#define MEMFERRY_RELOCATE UINT64_C(1)

/**
 * memferry_move_options.flags: keep the source pages as free pages of their node, up to the pool's limit, instead of
 * giving them back to the kernel. The next move in the other direction finds its destination warm.
 *
 * DANGER. The kernel must hold no reference to the pages of the range but page-table entries and pins (FOLL_PIN):
 * nothing of the range may be under vmsplice(2) or in a MSG_ZEROCOPY transmission. UFFDIO_MOVE does not look at such
 * references, so a page would be reused under its reader, who would read other data. The library cannot check this.
 * Nor may a page of it be freed lazily (MADV_FREE) and not written to since: the kernel may discard it at any time, and a
 * move that is to copy it then never ends.
 */
#define MEMFERRY_KEEP_SOURCE_PAGES UINT64_C(2)

/** How one move is done. move_pages(2), also where MEMFERRY_AUTO takes it, ignores batch_bytes and flags. */
typedef struct memferry_move_options {
	/** sizeof(memferry_move_options). */
	size_t size;
	/** Bytes that are away from their place together: a multiple of the base page, at most 2 MiB; 0: 1 MiB a lane. A
	 *  transparent huge page is a batch of its own. */
	uint64_t batch_bytes;
	/** MEMFERRY_RELOCATE, MEMFERRY_KEEP_SOURCE_PAGES, or both. */
	uint64_t flags;
	/** Null, or where to write what became of each base page of the range (or of each range of a list, one after the other
	 *  in the order of the list), in move_pages(2)'s terms: the node it lies
	 *  on, or -ENOENT (not present, or the shared zero page), -EBUSY (pinned, shared, in use), -ENOMEM (the node had no
	 *  page), -EINVAL (the mapping does not allow it), -ECANCELED (not looked at). The caller owns it. */
	int *status;
	/** Entries that `status` has room for: at least one per base page; 0 without `status`. */
	size_t status_len;
	/** Bytes moved per second at most; 0: no limit. Between its parts, of 10 ms each but no less than 2 MiB, no page is away. */
	uint64_t bytes_per_second;
} memferry_move_options;

/** Folios and their bytes. A transparent huge page is one folio. */
typedef struct memferry_count {
	uint64_t folios;
	uint64_t bytes;
} memferry_count;

/** The account of a move: every byte of the range is counted exactly once. */
typedef struct memferry_result {
	/** sizeof(memferry_result), set by the caller. */
	size_t size;
	/** They lie on the target node now. */
	memferry_count moved;
	/** They lay there before. */
	memferry_count already_there;
	/** No page: never touched, swapped out, the shared zero page, or unmapped by another thread meanwhile. */
	memferry_count not_present;
	/** Pinned for I/O, shared with another process, in use by the kernel at that moment, or in a part that its owner was about
	 *  to empty, unmap or move elsewhere. */
	memferry_count busy;
	/** The target node had no free page. */
	memferry_count no_memory;
	/** The mapping does not allow it: read-only, or a part of a huge page; or it is a huge page that may not move
	 *  (MEMFERRY_ALLOW_HUGE_PAGES). */
	memferry_count unsupported;
	/** Bytes that were not looked at because the move was cancelled. */
	uint64_t cancelled_bytes;
	/** Time of the move, nanoseconds. */
	uint64_t elapsed_ns;
	/** 0, or a negative errno: what ended the first later part of the range that failed, after an earlier one had moved;
	 *  memferry_last_error() says more. */
	int error;
	/** 0. */
	int reserved;
} memferry_result;

/**
 * Makes a mover and starts its worker threads, which sleep between moves. Moves nothing.
 *
 * @options: null for the defaults.
 * @mover: where to write the mover, which the caller owns and releases with memferry_free(). Null is written there
 *         when the call fails.
 *
 * Returns 0; -EINVAL for options that are out of range or do not go together, more lanes than CPUs among them; -E2BIG
 * for options of a later version of this header; -ENOSYS where neither backend works: memferry_last_error() then says
 * of each why, and what would enable it; -EOPNOTSUPP on a kernel whose base pages are not of 4 KiB; or the error of the system
 * call that failed.
 */
int memferry_new(const memferry_options *options, memferry_mover **mover);

/**
 * Releases a mover: ends its threads and gives its free pages to the kernel. No other call for the mover may be under
 * way or follow. Null is allowed.
 */
void memferry_free(memferry_mover *mover);

/**
 * How the mover moves ranges of anonymous private memory: MEMFERRY_USERFAULTFD or MEMFERRY_MOVE_PAGES. With MEMFERRY_AUTO a
 * mover of the first may move other memory, and lists of small pieces, through the second. Returns -ESRCH in a child of fork.
 */
int memferry_backend(const memferry_mover *mover);

/**
 * What limits moves on this machine, in words for its user, a line each; "" if nothing is known. A program that moves
 * transparent huge pages should show it: on kernels before Linux 7.2 it tells of a fault that can crash the kernel
 * (docs/limits.md), which base pages do not meet.
 *
 * The text belongs to the mover and stays until memferry_free(). Returns null for a null mover and in a child of fork.
 */
const char *memferry_notes(const memferry_mover *mover);

/**
 * Moves the pages of this process at @addr to @node. Other threads may use the memory all the while; who touches a page
 * on its way waits for it. Whatever happens, each page ends mapped, with its data, at its address.
 *
 * @addr, @len: start and length in bytes, multiples of the base page, mapped as a whole; with MEMFERRY_USERFAULTFD, and with
 *              MEMFERRY_AUTO on a machine of one node, anonymous private memory.
 * @node: number of a node that has memory.
 * @options: null for the defaults.
 * @result: where to write the account; null when it is not wanted.
 *
 * What the move needs itself is refused: what the library has on the heap and elsewhere, the calling thread's stack, control
 * block and thread-locals, and the statics of shared libraries and of whatever the library is linked into. All else may be
 * moved, the heap too: while it watches a range the library asks malloc(3) for nothing.
 *
 * Trouble with single pages is no error but counted in the result. Returns 0; -EINVAL for a bad range or option or a
 * `status` that is too short; -E2BIG for a structure of a later version of this header; -EFAULT for a range with an
 * unmapped part; -EOPNOTSUPP for memory of a device, and, where userfaultfd alone moves, for memory that is shared, of a
 * file or of hugetlbfs; -EDEADLK for memory that moves need themselves, such as the calling thread's stack; -EBUSY for a
 * range that another userfaultfd watches; -ENODEV for a node that is not there or has no memory; -ESRCH in a child of
 * fork; or the error of the system call that failed. When it fails @result and `status` are not written. A range above
 * 1 GiB or of several mappings is registered part by part: where a later part fails after an earlier one moved, the call
 * returns 0, with the error in the result.
 */
int memferry_move(memferry_mover *mover, void *addr, size_t len, int node, const memferry_move_options *options,
		  memferry_result *result);

/** A range of a list: start and length in bytes, multiples of the base page. */
typedef struct memferry_range {
	void *addr;
	size_t len;
} memferry_range;

/**
 * Moves the pages of a list of ranges of this process to @node, in any order, as memferry_move() does of one. Scattered
 * ranges of one mapping are watched together: a list of 16 KiB pieces costs far less than a call for each.
 *
 * @ranges, @count: the list; no page may be in two of them.
 * @node, @options: as for memferry_move().
 * @total: where to write the account of all ranges; null when it is not wanted.
 * @each: null, or @count results, each with its size set, for the account of each range in the order of the list. Their
 *        elapsed_ns is that of the whole list, and an error is in @total alone.
 *
 * All ranges are checked before any page moves. Returns as memferry_move(); -EINVAL also for ranges with a page in common.
 * A range that cannot be watched counts as busy if another one moves, with the error in @total.
 */
int memferry_move_list(memferry_mover *mover, const memferry_range *ranges, size_t count, int node,
		       const memferry_move_options *options, memferry_result *total, memferry_result *each);

/** A move under way. Made by memferry_move_start(), released by memferry_pending_finish(). */
typedef struct memferry_pending memferry_pending;

/**
 * Starts a move as memferry_move() does it, on a thread of its own. Moves of one mover take turns.
 *
 * @mover, @addr, @len, @node, @options: as for memferry_move(); `status` must stay there until the move is finished.
 *        memferry_cancel() does not end it.
 * @pending: where to write the move; null if it was not started.
 *
 * The mover may be freed meanwhile; the move goes on. Returns 0, or as memferry_move() what can be told before pages move.
 */
int memferry_move_start(memferry_mover *mover, void *addr, size_t len, int node, const memferry_move_options *options,
			memferry_pending **pending);

/**
 * A descriptor that becomes readable when the move is over; for poll(2) and its like only, and the library's until
 * memferry_pending_finish(). Returns -ESRCH in a child of fork.
 */
int memferry_pending_fd(const memferry_pending *pending);

/**
 * How far the move has come: bytes whose fate is known, moved or not, and all bytes. Either place may be null. Returns 0, or
 * -ESRCH in a child of fork.
 */
int memferry_pending_progress(const memferry_pending *pending, uint64_t *done, uint64_t *all);

/** Ends the move early, as memferry_cancel() does those of a mover. Returns 0, or -ESRCH in a child of fork. */
int memferry_pending_cancel(memferry_pending *pending);

/**
 * Waits until the move is over, writes its account to @result (null when it is not wanted) and to the `status` of its options,
 * and releases it. Returns as memferry_move(). A child of fork gets -ESRCH, and a @result of a wrong size is refused: both
 * release nothing.
 *
 * It is the last call for its move. Until the move is over memferry_pending_progress(), memferry_pending_fd() and
 * memferry_pending_cancel() may run while it waits, also in a handler of the waiting thread; then the move is gone. A program
 * whose other threads cannot know when that is waits by poll(2) for the descriptor, and finishes after their last call. A
 * handler that leaves it by siglongjmp() while it waits releases nothing, and the move is to be finished by another call; one that
 * leaves it at its end finds the move released, and @result written unless the move failed.
 */
int memferry_pending_finish(memferry_pending *pending, memferry_result *result);

/**
 * Moves pages of any process to @node through move_pages(2), whatever the mover's backend, with as many parallel callers
 * as the mover has lanes. Needs ptrace access to the process: the same user, or CAP_SYS_PTRACE.
 *
 * @pid: the process; 0: this one.
 * @addr: start address in that process, a multiple of the base page.
 * @len, @node, @options, @result: as for memferry_move().
 *
 * Returns 0; -EINVAL and -E2BIG as memferry_move(); -EFAULT when a part is not mapped, and -EOPNOTSUPP when one is memory of a
 * device or of the kernel, both before any page moves; -ESRCH when there is no such process, and in a child of fork; -EPERM
 * or -EACCES when it is not permitted; -ENODEV when the node is not there or not in the process's cpuset; or another
 * error of move_pages(2). If pages have moved all the same it returns 0, with the error in the result alone.
 */
int memferry_move_pid(memferry_mover *mover, int pid, uint64_t addr, uint64_t len, int node,
		      const memferry_move_options *options, memferry_result *result);

/**
 * Ends moves of the mover early, or no longer. While it is on, batches under way are finished, the other pages stay
 * where they are, and the move returns 0 with them in cancelled_bytes; moves that begin later end at once. It stays on
 * until it is turned off, so a request that comes between two moves is not lost.
 *
 * @on: nonzero to cancel, 0 to allow moves again.
 *
 * Never waits, and may be called from a signal handler: it only stores a flag, and leaves memferry_last_error() alone.
 * Returns 0, or -EINVAL for a null mover.
 */
int memferry_cancel(memferry_mover *mover, int on);

/**
 * Allocates free pages ahead of moves to @node, on all lanes, until @bytes of that page size are kept or the pool's limit
 * is reached. A mover of MEMFERRY_MOVE_PAGES (memferry_backend()) keeps none: it allocates nothing, returns 0, and *@kept is 0.
 *
 * @page_bytes: the base page or 2 MiB.
 * @kept: where to write the bytes of that page size that are kept now; null when it is not wanted.
 *
 * Returns 0; -EINVAL for another page size; -ENODEV for a node that is not there or has no memory; -ENOMEM; -ESRCH in a
 * child of fork; or the error of the system call that failed.
 */
int memferry_prefill(memferry_mover *mover, int node, uint64_t page_bytes, uint64_t bytes, uint64_t *kept);

/**
 * Gives free pages back to the kernel until at most @bytes are kept. Returns 0, or -ESRCH in a child of fork.
 */
int memferry_trim(memferry_mover *mover, uint64_t bytes);

/**
 * What was wrong with the last call of this thread that failed, why, and what to try; "" before the first. It belongs
 * to the library and stays until the thread's next failing call, or its end. Calls that succeed leave it alone, but for a move
 * that returns 0 with an error in its result: then it tells of that.
 */
const char *memferry_last_error(void);

/**
 * Version of the library, as in MEMFERRY_VERSION: a string that is never released and never changes.
 */
const char *memferry_version(void);

#ifdef __cplusplus
}
#endif

#endif /* MEMFERRY_H */
