// SPDX-License-Identifier: GPL-2.0-only
/*
 * races [MILLISECONDS] [NAME]: what else happens to memory while it migrates. Several
 * processes move the same pages to different nodes; ranges are unmapped, protected,
 * discarded, forked and remapped; files are truncated; movers get signals and are killed;
 * the target node is full. Whatever is there must be right afterwards, to the last byte.
 */
#include "clock.h"
#include "content.h"
#include "delay.h"
#include "device.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "nodes.h"
#include "tap.h"
#include "task.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES	(2UL << 20)
#define MOVERS	3

/* How long nothing may move before it counts: an emulated kernel with checkers takes its time. */
#define PATIENCE_MS	30000

/* Between the copy of a batch and its moves: time for what else happens. */
#define DELAY_MS	10

/* With each of them a page is written between a copy and its move, if the movers let it be. */
#define READS		50

static long long duration_ms = 200;

/* In shared memory: children see it. */
static struct shared {
	volatile bool stop;
	volatile size_t moved[MOVERS];
} *shared;

static void begin(void)
{
	memset(shared, 0, sizeof(*shared));
}

/* Moves a range from node to node until told to stop. */
static void move_on(unsigned int mover, void *at, size_t folio)
{
	for (unsigned int n = mover; !shared->stop; n++) {
		/* What already lies there is none of what moved. */
		size_t moved = 0;

		move_range_counting(at, BYTES, folio, node_at(n), MPOL_MF_MOVE_ALL, 1, &moved);
		shared->moved[mover] += moved;
	}
}

static pid_t start_mover(unsigned int mover, void *at, size_t folio)
{
	pid_t pid = fork();

	if (pid < 0)
		tap_bail("fork: %s", strerror(errno));
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* A child has no page tables of shared mappings yet. */
	read_pages(at, BYTES);
	move_on(mover, at, folio);
	_exit(0);
}

static bool ended_well(pid_t pid)
{
	int status = -1;

	return waitpid(pid, &status, 0) == pid && !status;
}

static size_t all_moved(void)
{
	size_t moved = 0;

	for (int n = 0; n < MOVERS; n++)
		moved += shared->moved[n];
	return moved;
}

/* Whether what began at @start goes on: for its time, and until something moved. */
static bool goes_on(long long start)
{
	long long passed = now_ms() - start;

	return passed < duration_ms || (!all_moved() && passed < duration_ms + PATIENCE_MS);
}

static void let_move(void)
{
	for (long long start = now_ms(); goes_on(start);)
		usleep(10000);
}

static void movers_of(const char *kind, const char *migrator)
{
	bool good = true;
	pid_t pids[MOVERS];
	struct memory memory;
	size_t wrong;

	if (!memory_test(&memory, kind_named(kind), BYTES, node_at(0), 2))
		return;
	begin();
	for (int n = 0; n < MOVERS; n++)
		pids[n] = start_mover(n, memory.at, memory.folio);
	content_start_writers(memory.content);
	let_move();
	shared->stop = true;
	for (int n = 0; n < MOVERS; n++)
		good &= ended_well(pids[n]);
	content_stop_writers(memory.content);
	wrong = memory_wrong(&memory, kind);
	if (!memory_drop(&memory) || !good) {
		tap_note("%s: a child found something wrong", kind);
		good = false;
	}
	tap_note("%s: the movers saw %zu, %zu and %zu pages where they wanted them", kind,
		 shared->moved[0], shared->moved[1], shared->moved[2]);
	tap_ok(good && all_moved() && !wrong, "%s, moved by %d processes at a time, %s", kind,
	       MOVERS, migrator);
}

static void test_movers(const char *migrator)
{
	movers_of("shared anonymous", migrator);
	movers_of("memory file, 2048 KiB", migrator);
	movers_of("tmpfs file", migrator);
	movers_of("shared with children", migrator);
}

/* Each read has a pin of its own, which comes before a copy and goes before the moves. */
static void test_device(const char *migrator)
{
	pid_t pids[MOVERS];
	struct memory memory;
	struct device device;
	bool good = true;

	if (!memory_test(&memory, kind_named("memory file"), BYTES, node_at(0), 0))
		return;
	begin();
	for (int n = 0; n < MOVERS; n++)
		pids[n] = start_mover(n, memory.at, memory.folio);
	device_start(&device, memory.at, memory.bytes, true);
	let_move();
	device_wait(&device, READS);
	device_stop(&device);
	shared->stop = true;
	for (int n = 0; n < MOVERS; n++)
		good &= ended_well(pids[n]);
	tap_note("%lu reads, %lu lost, %lu pins refused, %s, %zu pages moved", device.reads,
		 device.lost, device.refused, device.error ? strerror(device.error) : "no error",
		 all_moved());
	tap_ok(good && all_moved() && !device.lost && !device.error,
	       "a device reads while %d processes move, %s", MOVERS, migrator);
	device_free(&device);
	memory_drop(&memory);
}

/* Halves are whole pages. */
#define SLOT	(128UL << 10)
#define SLOTS	(BYTES / SLOT)

static void fill_slot(uint64_t *slot, uint64_t with)
{
	for (size_t n = 0; n < SLOT / sizeof(*slot); n++)
		slot[n] = with + n;
}

static size_t wrong_in_slot(const uint64_t *slot, uint64_t with, bool zero)
{
	size_t wrong = 0;

	for (size_t n = 0; n < SLOT / sizeof(*slot); n++)
		wrong += slot[n] != (zero ? 0 : with + n);
	return wrong;
}

/* What a child sees of the slot is what it was at the fork, whatever the parent does. */
static size_t fork_slot(uint64_t *slot, uint64_t with)
{
	pid_t pid = fork();

	if (!pid)
		_exit(wrong_in_slot(slot, with, false) ? 1 : 0);
	fill_slot(slot, with + 1);
	return (pid > 0 && ended_well(pid) ? 0 : 1) + wrong_in_slot(slot, with + 1, false);
}

static size_t change_slot(unsigned char *at, unsigned char *spare, unsigned int what,
			  uint64_t with)
{
	uint64_t *slot = (uint64_t *)at;
	size_t wrong;

	fill_slot(slot, with);
	switch (what % 6) {
	case 0:
		wrong = madvise(at, SLOT, MADV_DONTNEED) + wrong_in_slot(slot, 0, true);
		break;
	case 1:
		munmap(at, SLOT);
		if (mmap(at, SLOT, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
			return 1;
		wrong = wrong_in_slot(slot, 0, true);
		break;
	case 2:
		wrong = mprotect(at, SLOT, PROT_READ) + wrong_in_slot(slot, with, false) +
			mprotect(at, SLOT, PROT_READ | PROT_WRITE);
		break;
	case 3:
		return fork_slot(slot, with);
	case 4:
		if (mremap(at, SLOT, SLOT, MREMAP_MAYMOVE | MREMAP_FIXED, spare) == MAP_FAILED)
			return 1;
		wrong = wrong_in_slot((uint64_t *)spare, with, false);
		if (mremap(spare, SLOT, SLOT, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED)
			return 1;
		break;
	default:
		/* The upper half goes and comes back empty, the lower one stays. */
		wrong = madvise(at + SLOT / 2, SLOT / 2, MADV_DONTNEED);
		for (size_t n = 0; n < SLOT / 2 / sizeof(*slot); n++)
			wrong += slot[n] != with + n || slot[n + SLOT / 2 / sizeof(*slot)];
		return wrong;
	}
	fill_slot(slot, with);
	return wrong + wrong_in_slot(slot, with, false);
}

struct move_thread {
	pthread_t thread;
	unsigned int number;
	unsigned char *at;
	size_t folio;
};

static void *run_mover(void *argument)
{
	struct move_thread *mover = argument;

	move_on(mover->number, mover->at, mover->folio);
	return NULL;
}

static void start_thread(struct move_thread *mover, unsigned int number, void *at,
			 size_t folio)
{
	mover->number = number;
	mover->at = at;
	mover->folio = folio;
	thread_start(&mover->thread, run_mover, mover);
}

static void changes_of(bool huge, const char *migrator)
{
	long long start = now_ms();
	unsigned char *at = map_anonymous(BYTES, huge), *spare = reserve(SLOT);
	struct move_thread movers[2];
	unsigned long changes = 0;
	size_t wrong = 0;

	memset(at, 1, BYTES);
	begin();
	for (int n = 0; n < 2; n++)
		start_thread(&movers[n], n, at, huge ? HUGE_BYTES : 0);
	/* Each kind of change at least twice. */
	for (; changes < 12 || goes_on(start); changes++)
		wrong += change_slot(at + rand() % SLOTS * SLOT, spare, changes,
				     (uint64_t)(changes + 1) << 32);
	shared->stop = true;
	for (int n = 0; n < 2; n++)
		pthread_join(movers[n].thread, NULL);
	tap_note("%lu changes, %zu pages moved", changes, all_moved());
	tap_ok(!wrong && all_moved(),
	       "%s ranges unmapped, protected, discarded, forked and remapped, %s",
	       huge ? "2 MiB" : "base page", migrator);
	munmap(at, BYTES);
	munmap(spare, SLOT);
}

static void test_changes(const char *migrator)
{
	changes_of(false, migrator);
	changes_of(true, migrator);
}

/* Only through the file: the mapping may end anywhere. */
static size_t truncate_once(int fd, uint64_t with)
{
	size_t keep = rand() % (BYTES / page_bytes()) * page_bytes() + rand() % 4096 / 8 * 8;
	size_t words = BYTES / sizeof(uint64_t), wrong = 0;
	uint64_t *text = malloc(BYTES);

	for (size_t n = 0; n < words; n++)
		text[n] = with + n;
	if (pwrite(fd, text, BYTES, 0) != (ssize_t)BYTES || ftruncate(fd, keep) ||
	    ftruncate(fd, BYTES) || pread(fd, text, BYTES, 0) != (ssize_t)BYTES)
		wrong++;
	for (size_t n = 0; n < words; n++)
		wrong += text[n] != (n * sizeof(uint64_t) < keep ? with + n : 0);
	free(text);
	return wrong;
}

static void truncated(const char *kind, const char *migrator)
{
	long long start;
	struct move_thread movers[2];
	struct memory memory;
	unsigned long rounds = 0;
	size_t wrong = 0;

	if (!memory_test(&memory, kind_named(kind), BYTES, node_at(0), 0))
		return;
	begin();
	for (int n = 0; n < 2; n++)
		start_thread(&movers[n], n, memory.at, memory.folio);
	start = now_ms();
	for (; rounds < 2 || goes_on(start); rounds++) {
		wrong += truncate_once(memory.fd, (uint64_t)(rounds + 1) << 32);
		/* What is not mapped does not move. */
		read_pages(memory.at, BYTES);
	}
	shared->stop = true;
	for (int n = 0; n < 2; n++)
		pthread_join(movers[n].thread, NULL);
	tap_note("%s: %lu rounds, %zu pages moved", kind, rounds, all_moved());
	tap_ok(!wrong && all_moved(), "%s, truncated while it moves, %s",
	       kind, migrator);
	memory_drop(&memory);
}

static void test_truncate(const char *migrator)
{
	truncated("memory file", migrator);
	truncated("memory file, 2048 KiB", migrator);
	truncated("ext4 file, written", migrator);
}

/* One after the other: where a signal takes longer than the pause, nothing else would be done. */
static void on_alarm(int number)
{
	struct itimerval once = { .it_value.tv_usec = 500 };

	(void)number;
	setitimer(ITIMER_REAL, &once, NULL);
}

static void move_with_signals(void *at)
{
	struct sigaction action = { .sa_handler = on_alarm };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGALRM, &action, NULL);
	on_alarm(SIGALRM);
	read_pages(at, BYTES);
	move_on(0, at, 0);
	_exit(0);
}

static void test_signals(const char *migrator)
{
	struct memory memory;
	size_t wrong;
	pid_t pid;
	bool good;

	if (!memory_test(&memory, kind_named("shared anonymous"), BYTES, node_at(0), 1))
		return;
	begin();
	content_start_writers(memory.content);
	pid = fork();
	if (!pid)
		move_with_signals(memory.at);
	let_move();
	shared->stop = true;
	good = ended_well(pid);
	content_stop_writers(memory.content);
	wrong = memory_wrong(&memory, "signals");
	tap_ok(good && !wrong && shared->moved[0], "a mover gets signals, %s", migrator);
	memory_drop(&memory);
}

static void test_killed(const char *migrator)
{
	long long end;
	struct memory memory;
	unsigned int killed = 0;
	size_t wrong, left;

	if (!memory_test(&memory, kind_named("shared anonymous"), BYTES, node_at(0), 1))
		return;
	begin();
	content_start_writers(memory.content);
	end = now_ms() + duration_ms;
	while (killed < 5 || now_ms() < end) {
		pid_t pid = start_mover(killed % MOVERS, memory.at, 0);

		usleep(1000 + rand() % 20000);
		child_kill(pid);
		killed++;
	}
	content_stop_writers(memory.content);
	wrong = memory_wrong(&memory, "killed movers");
	left = memory_move(&memory, node_at(1), 20);
	wrong += memory_wrong(&memory, "after killed movers");
	tap_ok(!wrong && !left, "%u movers are killed, every page still moves, %s", killed,
	       migrator);
	memory_drop(&memory);
}

/* A process ends while another one moves its pages. */
static void test_exit(const char *migrator)
{
	size_t pages = BYTES / page_bytes(), wrong;
	long long end = now_ms() + duration_ms;
	void **list = calloc(pages, sizeof(*list));
	int *nodes = calloc(pages, sizeof(*nodes)), *status = calloc(pages, sizeof(*status));
	struct memory memory;
	unsigned int exits = 0;
	bool good = true;

	if (!memory_test(&memory, kind_named("anonymous"), BYTES, node_at(0), 0))
		return;
	for (size_t n = 0; n < pages; n++)
		list[n] = memory.at + n * page_bytes();
	for (; exits < 5 || now_ms() < end; exits++) {
		pid_t pid = fork();

		if (!pid) {
			/* Half of them are its own. */
			memset(memory.at, exits, BYTES / 2);
			usleep(rand() % 10000);
			_exit(0);
		}
		for (size_t n = 0; n < pages; n++)
			nodes[n] = node_at(exits % 3);
		move_pages(pid, pages, list, nodes, status, MPOL_MF_MOVE_ALL);
		good &= ended_well(pid);
	}
	wrong = memory_wrong(&memory, "processes that end");
	tap_ok(good && !wrong, "%u processes end while their pages move, %s", exits, migrator);
	memory_drop(&memory);
	free(list);
	free(nodes);
	free(status);
}

/*
 * About so much stays free. A kernel with checkers keeps more for emergencies, and one that
 * has run short of free blocks for a while keeps more as well.
 */
static long long left_free(int node)
{
	long long reserve = node_reserve_bytes(node) * 3 / 2;

	return reserve > 24LL << 20 ? reserve : 24LL << 20;
}

/* More memory by so much, and at most so often, while all of it finds room. */
#define MORE	(8UL << 20)
#define PARTS	9

struct part {
	unsigned char *at;
	size_t bytes;
	struct content *content;
};

static void make_part(struct part *part, size_t bytes)
{
	memory_policy(MPOL_BIND, node_at(0));
	part->bytes = bytes;
	part->at = map_anonymous(bytes, false);
	part->content = content_new(part->at, bytes, 1);
	content_fill(part->content);
	memory_policy(MPOL_DEFAULT, 0);
}

static void test_full_node(const char *migrator)
{
	int node = node_slow() >= 0 ? node_slow() : node_at(1);
	size_t most = node_bytes(node) / HUGE_BYTES * HUGE_BYTES, filled = 0, left = 0;
	size_t pages = 0, found = 0, wrong = 0;
	unsigned int nr = 0;
	unsigned char *filler;
	struct part parts[PARTS];

	/* Filling a node takes its time, so this comes once. */
	if (!strcmp(migrator, "none") || !strcmp(migrator, "kernel"))
		return;
	filler = map_anonymous(most, true);
	/* Not by a policy of the task: page tables would have to lie there, too. */
	if (bind_range(filler, most, MPOL_BIND, node, 0))
		tap_bail("mbind: %s", strerror(errno));
	while (filled < most && node_free_bytes(node) > left_free(node)) {
		/* One touch for a 2 MiB folio, and one each where there was none. */
		for (size_t page = 0; page < HUGE_BYTES; page += page_bytes())
			filler[filled + page] = 1;
		filled += HUGE_BYTES;
	}
	/* CPUs keep free pages on lists of their own, which do not count as free. */
	while (!left && nr < PARTS) {
		struct part *part = &parts[nr];
		size_t unused = nr++ ? 0 : node_free_bytes(node);

		make_part(part, (unused + MORE) / HUGE_BYTES * HUGE_BYTES);
		content_start_writers(part->content);
		left = move_range(part->at, part->bytes, 0, node, MPOL_MF_MOVE, 1);
		content_stop_writers(part->content);
	}
	for (unsigned int n = 0; n < nr; n++) {
		wrong += content_wrong(parts[n].content, "a full node");
		pages += parts[n].bytes / page_bytes();
		found += pages_on(parts[n].at, parts[n].bytes, node) +
			 pages_on(parts[n].at, parts[n].bytes, node_at(0));
	}
	tap_note("node %d, %zu MiB of filler: %zu of %zu pages did not move", node,
		 filled >> 20, left, pages);
	tap_ok(left && found == pages && !wrong,
	       "a full node: what does not fit stays, %s", migrator);
	munmap(filler, most);
	left = 0;
	wrong = 0;
	for (unsigned int n = 0; n < nr; n++) {
		left += move_range(parts[n].at, parts[n].bytes, 0, node, MPOL_MF_MOVE, 20);
		wrong += content_wrong(parts[n].content, "a node with room again");
		munmap(parts[n].at, parts[n].bytes);
		content_free(parts[n].content);
	}
	tap_ok(!left && !wrong, "a full node: it moves when there is room, %s", migrator);
}

static const struct {
	const char *name;
	void (*run)(const char *migrator);
} tests[] = {
	{ "movers", test_movers },
	{ "device", test_device },
	{ "changes", test_changes },
	{ "truncate", test_truncate },
	{ "signals", test_signals },
	{ "killed", test_killed },
	{ "exit", test_exit },
	{ "full", test_full_node },
};

int main(int argc, char **argv)
{
	const char *only = argc > 2 ? argv[2] : NULL, *name;

	if (argc > 1)
		duration_ms = atoll(argv[1]);
	tap_start();
	nodes_with_memory();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	for (name = migrator_next(NULL); name; name = migrator_next(name)) {
		unsigned int delays;

		delay_start(name, DELAY_MS);
		for (unsigned int n = 0; n < ARRAY_SIZE(tests); n++)
			if (!only || !strcmp(only, tests[n].name))
				tests[n].run(name);
		delays = delay_stop();
		if (migrator_copies(name))
			tap_ok(delays, "%u batches were delayed, %s", delays, name);
	}
	return tap_done();
}
