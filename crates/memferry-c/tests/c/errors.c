/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Every error of memferry.h that a program can cause, and what must be true after it. Prints TAP.
 * The layout assertions are the header's side of those in src/lib.rs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <memferry.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)
#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(memferry_options) == 40, "memferry_options");
AT(memferry_options, size, 0);
AT(memferry_options, migrator, 8);
AT(memferry_options, lanes, 12);
AT(memferry_options, placement, 16);
AT(memferry_options, nice, 20);
AT(memferry_options, backend, 24);
AT(memferry_options, flags, 28);
AT(memferry_options, pool_bytes, 32);
_Static_assert(sizeof(memferry_move_options) == 48, "memferry_move_options");
AT(memferry_move_options, size, 0);
AT(memferry_move_options, batch_bytes, 8);
AT(memferry_move_options, flags, 16);
AT(memferry_move_options, status, 24);
AT(memferry_move_options, status_len, 32);
AT(memferry_move_options, bytes_per_second, 40);
_Static_assert(sizeof(memferry_range) == 16, "memferry_range");
AT(memferry_range, addr, 0);
AT(memferry_range, len, 8);
_Static_assert(sizeof(memferry_count) == 16, "memferry_count");
AT(memferry_count, folios, 0);
AT(memferry_count, bytes, 8);
_Static_assert(sizeof(memferry_result) == 128, "memferry_result");
AT(memferry_result, size, 0);
AT(memferry_result, moved, 8);
AT(memferry_result, already_there, 24);
AT(memferry_result, not_present, 40);
AT(memferry_result, busy, 56);
AT(memferry_result, no_memory, 72);
AT(memferry_result, unsupported, 88);
AT(memferry_result, cancelled_bytes, 104);
AT(memferry_result, elapsed_ns, 112);
AT(memferry_result, error, 120);
AT(memferry_result, reserved, 124);
#endif

static int tests, failures;

#define CHECK(condition) check((condition), #condition, __LINE__)

static void check(int holds, const char *what, int line)
{
	failures += !holds;
	printf("%s %d - line %d: %s\n", holds ? "ok" : "not ok", ++tests, line, what);
	if (!holds)
		printf("# last error: %s\n", memferry_last_error());
}

/* The code, and a message that names what it is about. */
#define FAILS(call, code, mentions) fails((call), (code), (mentions), #call, __LINE__)

static void fails(int got, int code, const char *mentions, const char *call, int line)
{
	int holds = got == code && strstr(memferry_last_error(), mentions);
	failures += !holds;
	printf("%s %d - line %d: %s\n", holds ? "ok" : "not ok", ++tests, line, call);
	if (!holds)
		printf("# returned %d (%s), expected %d and a message with \"%s\": %s\n", got, strerror(-got), code,
		       mentions, memferry_last_error());
}

static size_t page;

static unsigned char *map(size_t bytes, int flags)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	memset(memory, 0x5a, bytes);
	return memory;
}

static int intact(const unsigned char *memory, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (memory[i] != 0x5a)
			return 0;
	return 1;
}

static void bad_setups(void)
{
	memferry_mover *mover = (memferry_mover *)(void *)&page;
	memferry_options options = { .size = sizeof options };

	FAILS(memferry_new(&options, NULL), -EINVAL, "mover is null");
	FAILS(memferry_new(&options, (memferry_mover **)((char *)&mover + 1)), -EINVAL, "not aligned");
	FAILS(memferry_new((memferry_options *)((char *)&options + 1), &mover), -EINVAL, "not aligned");
	CHECK(mover == NULL);

	options.size = 0;
	FAILS(memferry_new(&options, &mover), -EINVAL, "size is 0");
	options.size = sizeof options - 1;
	FAILS(memferry_new(&options, &mover), -EINVAL, "sizeof(memferry_options)");
	options.size = sizeof options + 8;
	FAILS(memferry_new(&options, &mover), -E2BIG, "later version");
	options.size = SIZE_MAX;
	FAILS(memferry_new(&options, &mover), -E2BIG, "later version");

#define BAD(field, value, mentions)                                        \
	do {                                                               \
		options = (memferry_options){ .size = sizeof options };     \
		options.field = (value);                                   \
		FAILS(memferry_new(&options, &mover), -EINVAL, mentions);  \
	} while (0)
	BAD(migrator, 2, "migrator is 2");
	BAD(lanes, 100000, "lanes is 100000");
	BAD(lanes, UINT32_MAX, "lanes is 4294967295");
	BAD(placement, 2, "placement is 2");
	BAD(nice, -21, "nice is -21");
	BAD(nice, 20, "nice is 20");
	BAD(backend, 3, "backend is 3");
	BAD(flags, 4, "flags is 4");
	options = (memferry_options){ .size = sizeof options, .migrator = MEMFERRY_BATCH, .lanes = 2 };
	FAILS(memferry_new(&options, &mover), -EINVAL, "MEMFERRY_MTCOPY");
	options = (memferry_options){ .size = sizeof options, .migrator = MEMFERRY_BATCH, .nice = 1 };
	FAILS(memferry_new(&options, &mover), -EINVAL, "MEMFERRY_MTCOPY");
	CHECK(mover == NULL);
}

static void nothing_to_move_with(void)
{
	memferry_result result = { .size = sizeof result };
	uint64_t kept = 7;

	FAILS(memferry_move(NULL, &page, page, 0, NULL, &result), -EINVAL, "mover is null");
	FAILS(memferry_move_pid(NULL, 0, 0, page, 0, NULL, &result), -EINVAL, "mover is null");
	FAILS(memferry_prefill(NULL, 0, page, page, &kept), -EINVAL, "mover is null");
	FAILS(memferry_trim(NULL, 0), -EINVAL, "mover is null");
	FAILS(memferry_backend(NULL), -EINVAL, "mover is null");
	CHECK(memferry_cancel(NULL, 1) == -EINVAL);
	CHECK(kept == 7);
	memferry_free(NULL);
}

static void bad_moves(memferry_mover *mover)
{
	size_t bytes = 16 * page;
	unsigned char *memory = map(bytes, MAP_PRIVATE);
	int status[16];
	memferry_move_options how = { .size = sizeof how };
	memferry_result result;

	memset(status, 0x11, sizeof status);
	memset(&result, 0x22, sizeof result);
	result.size = sizeof result;
	memferry_result before = result;
#define MOVE(addr, len, node, how) memferry_move(mover, (addr), (len), (node), (how), &result)

	/* Ranges. */
	FAILS(MOVE(memory + 1, bytes, 0, NULL), -EINVAL, "not aligned");
	FAILS(MOVE(memory, bytes - 1, 0, NULL), -EINVAL, "not aligned");
	FAILS(MOVE(memory, 0, 0, NULL), -EINVAL, "empty");
	FAILS(MOVE(memory, SIZE_MAX, 0, NULL), -EINVAL, "beyond the last address");
	FAILS(MOVE(memory, SIZE_MAX - (page - 1), 0, NULL), -EINVAL, "beyond the last address");
	FAILS(MOVE((void *)(UINTPTR_MAX - page + 1), page, 0, NULL), -EINVAL, "beyond the last address");
	FAILS(MOVE(NULL, page, 0, NULL), -EFAULT, "nothing is mapped");

	/* Nodes. */
	FAILS(MOVE(memory, bytes, -1, NULL), -ENODEV, "node -1");
	FAILS(MOVE(memory, bytes, INT_MIN, NULL), -ENODEV, "node -2147483648");
	FAILS(MOVE(memory, bytes, 1023, NULL), -ENODEV, "node 1023");
	FAILS(MOVE(memory, bytes, INT_MAX, NULL), -ENODEV, "node 2147483647");

	/* Structures. */
	FAILS(MOVE(memory, bytes, 0, (memferry_move_options *)((char *)&how + 4)), -EINVAL, "not aligned");
	how.size = 8;
	FAILS(MOVE(memory, bytes, 0, &how), -EINVAL, "memferry_move_options.size is 8");
	how.size = sizeof how + 1;
	FAILS(MOVE(memory, bytes, 0, &how), -E2BIG, "later version");
	how.size = sizeof how;
	result.size = 0;
	FAILS(MOVE(memory, bytes, 0, &how), -EINVAL, "memferry_result.size is 0");
	result.size = sizeof result * 2;
	FAILS(MOVE(memory, bytes, 0, &how), -E2BIG, "memferry_result.size");
	result.size = sizeof result;
	FAILS(memferry_move(mover, memory, bytes, 0, &how, (memferry_result *)((char *)&result + 1)), -EINVAL,
	      "memferry_result is");

	/* Options. */
	how.flags = 4;
	FAILS(MOVE(memory, bytes, 0, &how), -EINVAL, "0x4");
	how.flags = UINT64_MAX;
	FAILS(MOVE(memory, bytes, 0, &how), -EINVAL, "flags");
	how.flags = 0;
	how.status_len = 16;
	FAILS(MOVE(memory, bytes, 0, &how), -EINVAL, "status is null");
	how.status = (int *)((char *)status + 1);
	FAILS(MOVE(memory, bytes, 0, &how), -EINVAL, "not aligned");
	how.status = status;
	how.status_len = 15;
	FAILS(MOVE(memory, bytes, 0, &how), -EINVAL, "status_len is 15");
	how.status_len = 16;
	how.batch_bytes = page + 1;
	FAILS(MOVE(memory, bytes, 0, &how), -EINVAL, "batch_bytes");
	how.batch_bytes = (uint64_t)1 << 40;
	FAILS(MOVE(memory, bytes, 0, &how), -EINVAL, "batch_bytes");
	how.batch_bytes = 0;

	/* Memory that is not ours to move. */
	CHECK(memferry_backend(mover) == MEMFERRY_USERFAULTFD);
	CHECK(memferry_notes(mover) != NULL);
	memferry_options allows = { .size = sizeof allows, .flags = MEMFERRY_ALLOW_HUGE_PAGES };
	memferry_mover *allowing = NULL;
	CHECK(memferry_new(&allows, &allowing) == 0);
	CHECK(!strstr(memferry_notes(allowing), "stay where they are"));
	memferry_free(allowing);
	unsigned char *hole = map(3 * page, MAP_PRIVATE);
	munmap(hole + page, page);
	FAILS(MOVE(hole, 3 * page, 0, &how), -EFAULT, "nothing is mapped");
	CHECK(intact(hole, page) && intact(hole + 2 * page, page));
	unsigned char *shared = map(page, MAP_SHARED);
	FAILS(MOVE(shared, page, 0, &how), -EOPNOTSUPP, "shared");
	FILE *file = tmpfile();
	CHECK(file && !ftruncate(fileno(file), (off_t)page));
	void *mapped = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
	CHECK(mapped != MAP_FAILED);
	FAILS(MOVE(mapped, page, 0, &how), -EOPNOTSUPP, "file");
	munmap(mapped, page);
	fclose(file);
	uintptr_t own = (uintptr_t)mover & ~(uintptr_t)(page - 1);
	FAILS(MOVE((void *)own, page, 0, &how), -EDEADLK, "moves need themselves");
	uintptr_t stack = (uintptr_t)&own & ~(uintptr_t)(page - 1);
	FAILS(MOVE((void *)stack, page, 0, &how), -EDEADLK, "stack");
	munmap(shared, page);
	munmap(hole, 3 * page);

	/* Another process. */
	uint64_t addr = (uint64_t)(uintptr_t)memory;
#define MOVE_PID(pid, addr, len, node) memferry_move_pid(mover, (pid), (addr), (len), (node), &how, &result)
	FAILS(MOVE_PID(-1, addr, bytes, 0), -EINVAL, "pid is -1");
	FAILS(MOVE_PID(INT_MAX, addr, bytes, 0), -ESRCH, "the process is gone");
	FAILS(MOVE_PID(0, addr + 1, bytes, 0), -EINVAL, "not aligned");
	FAILS(MOVE_PID(0, addr, bytes - 1, 0), -EINVAL, "not aligned");
	FAILS(MOVE_PID(0, addr, 0, 0), -EINVAL, "empty");
	FAILS(MOVE_PID(0, addr, UINT64_MAX, 0), -EINVAL, "beyond the last address");
	FAILS(MOVE_PID(0, UINT64_MAX - page + 1, page, 0), -EINVAL, "beyond the last address");
	FAILS(MOVE_PID(0, addr, bytes, -1), -ENODEV, "node -1");
	FAILS(MOVE_PID(0, addr, bytes, 1023), -ENODEV, "node 1023");
	FAILS(MOVE_PID(0, addr, 17 * page, 0), -EINVAL, "status_len is 16");

	/* Free pages. */
	uint64_t kept = 7;
	FAILS(memferry_prefill(mover, 0, page + 1, page, &kept), -EINVAL, "page_bytes");
	FAILS(memferry_prefill(mover, 0, 0, page, &kept), -EINVAL, "page_bytes");
	FAILS(memferry_prefill(mover, -1, page, page, &kept), -ENODEV, "node -1");
	FAILS(memferry_prefill(mover, 1023, page, page, &kept), -ENODEV, "node 1023");
	FAILS(memferry_prefill(mover, 0, page, page, (uint64_t *)((char *)&kept + 1)), -EINVAL, "kept");
	CHECK(kept == 7);

	/* No failure wrote anything. */
	CHECK(intact(memory, bytes));
	CHECK(memcmp(&result, &before, sizeof result) == 0);
	for (int i = 0; i < 16; i++)
		if (status[i] != 0x11111111)
			CHECK(!"status was written");
	munmap(memory, bytes);
}

static uint64_t sum(const memferry_result *result)
{
	return result->moved.bytes + result->already_there.bytes + result->not_present.bytes + result->busy.bytes +
	       result->no_memory.bytes + result->unsupported.bytes + result->cancelled_bytes;
}

static void good_moves(memferry_mover *mover)
{
	size_t bytes = 1024 * page;
	unsigned char *memory = map(bytes, MAP_PRIVATE);
	int *status = malloc(1025 * sizeof *status);
	memferry_move_options how = { .size = sizeof how, .flags = MEMFERRY_RELOCATE, .status_len = 1025 };
	memferry_result result = { .size = sizeof result };
	how.status = status;
	status[1024] = 99;

	CHECK(MOVE(memory, bytes, 0, &how) == 0);
	CHECK(sum(&result) == bytes && result.size == sizeof result && result.elapsed_ns > 0);
	CHECK(status[0] == 0 && status[1023] == 0 && status[1024] == 99);
	CHECK(intact(memory, bytes));

	/* Nothing wanted back; and a range with a page that is not there. */
	CHECK(memferry_move(mover, memory, bytes, 0, NULL, NULL) == 0);
	madvise(memory, page, MADV_DONTNEED);
	CHECK(MOVE(memory, bytes, 0, &how) == 0);
	CHECK(result.not_present.bytes >= page && status[0] == -ENOENT && sum(&result) == bytes);
	memset(memory, 0x5a, page);

	/* Source pages stay in the pool, and leave it. */
	uint64_t kept = 0;
	how.flags = MEMFERRY_RELOCATE | MEMFERRY_KEEP_SOURCE_PAGES;
	CHECK(MOVE(memory, bytes, 0, &how) == 0 && intact(memory, bytes));
	CHECK(memferry_trim(mover, 0) == 0);
	CHECK(memferry_prefill(mover, 0, page, 0, &kept) == 0 && kept == 0);
	CHECK(memferry_prefill(mover, 0, page, 4 << 20, &kept) == 0 && kept >= 4 << 20);
	CHECK(memferry_prefill(mover, 0, page, 4 << 20, NULL) == 0);
	CHECK(memferry_trim(mover, UINT64_MAX) == 0);

	/* 1 MiB/s: a second goes by after the first 2 MiB. */
	how.bytes_per_second = 1 << 20;
	CHECK(MOVE(memory, bytes, 0, &how) == 0 && intact(memory, bytes));
	CHECK(result.elapsed_ns >= 2000000000 - 1000);
	how.bytes_per_second = 0;

	/* Cancelled before it began, and allowed again. */
	CHECK(memferry_cancel(mover, 1) == 0);
	CHECK(MOVE(memory, bytes, 0, &how) == 0 && sum(&result) == bytes && intact(memory, bytes));
	CHECK(result.cancelled_bytes == bytes && result.moved.bytes == 0 && status[5] == -ECANCELED);
	CHECK(memferry_move_pid(mover, 0, (uintptr_t)memory, bytes, 0, &how, &result) == 0);
	CHECK(result.cancelled_bytes == bytes && status[5] == -ECANCELED);
	CHECK(memferry_cancel(mover, 0) == 0);
	CHECK(memferry_move_pid(mover, getpid(), (uintptr_t)memory, bytes, 0, &how, &result) == 0);
	CHECK(result.cancelled_bytes == 0 && sum(&result) == bytes && status[5] == 0);
	free(status);
	munmap(memory, bytes);
}

/* Scattered pages in no order, an account and statuses for each of their ranges. */
static void lists(memferry_mover *mover)
{
	enum { RANGES = 100 };
	size_t bytes = 1024 * page;
	unsigned char *memory = map(bytes, MAP_PRIVATE);
	memferry_range ranges[RANGES];
	memferry_result total = { .size = sizeof total }, each[RANGES];
	int status[2 * RANGES + 1];
	memferry_move_options how = { .size = sizeof how, .flags = MEMFERRY_RELOCATE };

#define LIST(count, results) memferry_move_list(mover, ranges, (count), 0, &how, &total, (results))
	for (int i = 0; i < RANGES; i++) {
		ranges[i] = (memferry_range){ memory + (size_t)(i * 7 % RANGES) * 10 * page, (size_t)(1 + i % 2) * page };
		each[i] = (memferry_result){ .size = sizeof *each };
	}
	how.status = status;
	how.status_len = RANGES * 3 / 2;
	status[RANGES * 3 / 2] = 99;
	madvise(ranges[4].addr, page, MADV_DONTNEED);
	CHECK(LIST(RANGES, each) == 0);
	CHECK(sum(&total) == RANGES * 3 / 2 * page && total.not_present.bytes == page);
	int wrong = 0, at = 0;
	for (int i = 0; i < RANGES; i++) {
		wrong += sum(&each[i]) != ranges[i].len || each[i].cancelled_bytes || each[i].size != sizeof *each;
		wrong += each[i].not_present.bytes != (i == 4 ? page : 0);
		wrong += status[at] != (i == 4 ? -ENOENT : 0);
		at += 1 + i % 2;
	}
	CHECK(wrong == 0 && status[at] == 99);
	memset(ranges[4].addr, 0x5a, page);
	CHECK(intact(memory, bytes));
	how.status = NULL;
	how.status_len = 0;
	CHECK(LIST(RANGES, NULL) == 0 && sum(&total) == RANGES * 3 / 2 * page && intact(memory, bytes));
	CHECK(memferry_move_list(mover, NULL, 0, 0, NULL, NULL, NULL) == 0);

	FAILS(memferry_move_list(mover, NULL, 1, 0, NULL, NULL, NULL), -EINVAL, "ranges is null");
	each[RANGES - 1].size = 0;
	FAILS(LIST(RANGES, each), -EINVAL, "memferry_result.size is 0");
	how.status = status;
	how.status_len = RANGES * 3 / 2 - 1;
	FAILS(LIST(RANGES, NULL), -EINVAL, "150 pages");
	how.status = NULL;
	how.status_len = 0;
	ranges[0] = (memferry_range){ (char *)ranges[1].addr + page, page };
	FAILS(LIST(2, NULL), -EINVAL, "addresses of another range");
	ranges[0].len = SIZE_MAX;
	FAILS(LIST(2, NULL), -EINVAL, "beyond the last address");
	CHECK(intact(memory, bytes));
	munmap(memory, bytes);
}

/* Two threads share a mover: each move is whole, and each thread has its own last error. */
static void *other_thread(void *argument)
{
	memferry_mover *mover = argument;
	size_t bytes = 256 * page;
	unsigned char *memory = map(bytes, MAP_PRIVATE);
	memferry_move_options how = { .size = sizeof how, .flags = MEMFERRY_RELOCATE };
	memferry_result result = { .size = sizeof result };
	intptr_t wrong = memferry_last_error()[0] != '\0';

	for (int round = 0; round < 20; round++) {
		wrong += memferry_move(mover, memory, bytes, 0, &how, &result) != 0;
		wrong += sum(&result) != bytes || !intact(memory, bytes);
	}
	munmap(memory, bytes);
	return (void *)wrong;
}

/* Moves on threads of their own: waited for by descriptor, cancelled, refused. */
static void started(memferry_mover *mover)
{
	size_t bytes = 1024 * page;
	unsigned char *memory = map(bytes, MAP_PRIVATE);
	int *status = malloc(1024 * sizeof *status);
	memferry_move_options how = { .size = sizeof how, .flags = MEMFERRY_RELOCATE, .status = status, .status_len = 1024 };
	memferry_result result = { .size = sizeof result };
	memferry_pending *move = NULL;
	uint64_t done = 0, all = 0;

	CHECK(memferry_move_start(mover, memory, bytes, 0, &how, &move) == 0 && move != NULL);
	struct pollfd end = { .fd = memferry_pending_fd(move), .events = POLLIN };
	CHECK(end.fd >= 0 && poll(&end, 1, 60000) == 1 && end.revents == POLLIN);
	CHECK(memferry_pending_progress(move, &done, &all) == 0 && done == bytes && all == bytes);
	CHECK(memferry_pending_progress(move, NULL, NULL) == 0);
	FAILS(memferry_pending_finish(move, &(memferry_result){ .size = 1 }), -EINVAL, "memferry_result");
	CHECK(memferry_pending_finish(move, &result) == 0 && sum(&result) == bytes);
	CHECK(status[0] == 0 && status[1023] == 0 && intact(memory, bytes));

	/* 1 MiB/s: there is time to cancel. */
	how.bytes_per_second = 1 << 20;
	CHECK(memferry_move_start(mover, memory, bytes, 0, &how, &move) == 0);
	CHECK(memferry_pending_cancel(move) == 0);
	CHECK(memferry_pending_finish(move, &result) == 0 && sum(&result) == bytes && intact(memory, bytes));
	CHECK(result.cancelled_bytes > 0);
	how.bytes_per_second = 0;

	FAILS(memferry_move_start(mover, memory, bytes, 0, &how, NULL), -EINVAL, "pending is null");
	FAILS(memferry_move_start(NULL, memory, bytes, 0, &how, &move), -EINVAL, "mover is null");
	FAILS(memferry_move_start(mover, memory, 1, 0, NULL, &move), -EINVAL, "multiples of");
	CHECK(move == NULL);
	FAILS(memferry_pending_fd(NULL), -EINVAL, "pending is null");
	FAILS(memferry_pending_progress(NULL, &done, &all), -EINVAL, "pending is null");
	FAILS(memferry_pending_cancel(NULL), -EINVAL, "pending is null");
	FAILS(memferry_pending_finish(NULL, &result), -EINVAL, "pending is null");
	munmap(memory, bytes);
	free(status);
}

static void two_threads(memferry_mover *mover)
{
	pthread_t threads[2];
	void *wrong;

	FAILS(memferry_trim(NULL, 0), -EINVAL, "mover is null");
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, other_thread, mover) == 0);
	for (int i = 0; i < 2; i++) {
		CHECK(pthread_join(threads[i], &wrong) == 0);
		CHECK(wrong == NULL);
	}
	CHECK(strstr(memferry_last_error(), "mover is null") != NULL);
}

/* No mapping can be made: the move fails, and the process goes on. */
static void without_address_space(memferry_mover *mover)
{
	size_t bytes = (size_t)32 << 20;
	unsigned char *memory = map(bytes, MAP_PRIVATE);
	memferry_move_options how = { .size = sizeof how, .flags = MEMFERRY_RELOCATE };
	struct rlimit limit, none;

	CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
	none = limit;
	none.rlim_cur = page;
	CHECK(setrlimit(RLIMIT_AS, &none) == 0);
	int code = memferry_move(mover, memory, bytes, 0, &how, NULL);
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	FAILS(code, -ENOMEM, "address space");
	CHECK(memferry_move(mover, memory, bytes, 0, &how, NULL) == 0);
	CHECK(intact(memory, bytes));
	munmap(memory, bytes);
}

/* A child has its memory, but not its parent's movers. */
static void fork_child(memferry_mover *mover)
{
	unsigned char *memory = map(page, MAP_PRIVATE);
	int code = 0;
	memferry_pending *move = NULL;
	CHECK(memferry_move_start(mover, memory, page, 0, NULL, &move) == 0);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		int wrong = memferry_move(mover, memory, page, 0, NULL, NULL) != -ESRCH;
		wrong |= (memferry_move_pid(mover, 0, (uintptr_t)memory, page, 0, NULL, NULL) != -ESRCH) << 1;
		wrong |= (memferry_prefill(mover, 0, page, page, NULL) != -ESRCH) << 2;
		wrong |= (memferry_trim(mover, 0) != -ESRCH) << 3;
		wrong |= (memferry_backend(mover) != -ESRCH || memferry_pending_fd(move) != -ESRCH) << 4;
		wrong |= (memferry_notes(mover) != NULL) << 4;
		wrong |= (memferry_pending_finish(move, NULL) != -ESRCH) << 4;
		wrong |= (strstr(memferry_last_error(), "after fork") == NULL) << 5;
		memferry_free(mover);
		memferry_mover *own = NULL;
		wrong |= (memferry_new(NULL, &own) != 0 || memferry_move(own, memory, page, 0, NULL, NULL) != 0) << 6;
		memferry_free(own);
		_exit(wrong);
	}
	CHECK(child > 0 && waitpid(child, &code, 0) == child);
	CHECK(WIFEXITED(code) && WEXITSTATUS(code) == 0);
	CHECK(memferry_pending_finish(move, NULL) == 0);
	/* The parent's mover is as it was. */
	memferry_result result = { .size = sizeof result };
	CHECK(memferry_move(mover, memory, page, 0, NULL, &result) == 0 && sum(&result) == page);
	munmap(memory, page);
}

static void texts(void)
{
	CHECK(strcmp(memferry_version(), MEMFERRY_VERSION) == 0);
}

int main(void)
{
	static const uint32_t migrators[] = { MEMFERRY_MTCOPY, MEMFERRY_BATCH };
	memferry_mover *mover;

	page = (size_t)sysconf(_SC_PAGESIZE);
	CHECK(memferry_last_error()[0] == '\0');
	texts();
	bad_setups();
	nothing_to_move_with();
	for (size_t i = 0; i < sizeof migrators / sizeof *migrators; i++) {
		/* By move_pages(2) nothing is relocated or kept, and between nodes MEMFERRY_AUTO moves shared memory. */
		memferry_options options = { .size = sizeof options, .migrator = migrators[i], .backend = MEMFERRY_USERFAULTFD };
		int code = memferry_new(&options, &mover);
		if (code < 0) {
			printf("# %s\n", memferry_last_error());
			CHECK((code == -ENOSYS || code == -EOPNOTSUPP) && mover == NULL);
			printf("1..%d\n", tests);
			return failures ? 1 : 77;
		}
		bad_moves(mover);
		good_moves(mover);
		lists(mover);
		started(mover);
		two_threads(mover);
		without_address_space(mover);
		fork_child(mover);
		memferry_free(mover);
	}
	memferry_options bare = { .size = sizeof bare, .lanes = 1, .pool_bytes = MEMFERRY_NO_POOL };
	uint64_t kept = 7;
	CHECK(memferry_new(&bare, &mover) == 0);
	CHECK(memferry_prefill(mover, 0, page, page, &kept) == 0 && kept == 0);
	memferry_free(mover);
	printf("1..%d\n", tests);
	return failures ? 1 : 0;
}
