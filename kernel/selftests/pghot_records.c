// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_records: records exist while they are wanted, take no more memory than promised, and
 * follow memory that goes off line and comes back; scans of page tables see every kind of memory
 * and hide nothing from others; samples of a counter find their page.
 *
 * pghot_records toggle [SECONDS]: sources come and go under load.
 */
#include "blocks.h"
#include "clock.h"
#include "content.h"
#include "emulator.h"
#include "files.h"
#include "heat.h"
#include "memory.h"
#include "nodes.h"
#include "pages.h"
#include "pghot.h"
#include "tap.h"
#include "task.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SOURCES	PGHOT_SYSCTL "enabled_sources"
#define BITMAP	"/sys/kernel/mm/page_idle/bitmap"
#define BYTES	(4UL << 20)

/* Longer than any walk is apart in this test, in ms. */
#define PATIENCE_MS	30000

static int set_sources(unsigned int mask)
{
	return file_write_number(mask, SOURCES);
}

static struct reader {
	pthread_t thread;
	const void *at;
	size_t bytes;
	volatile bool stop;
} reader;

static void *read_on(void *unused)
{
	(void)unused;
	while (!reader.stop) {
		read_pages(reader.at, reader.bytes);
		usleep(5000);
	}
	return NULL;
}

static void reader_start(const void *at, size_t bytes)
{
	reader = (struct reader){ .at = at, .bytes = bytes };
	thread_start(&reader.thread, read_on, NULL);
}

/* Faults again and again: each is a sample, so that accesses are recorded at any time. */
static void *fault_on(void *unused)
{
	unsigned char *at = mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	(void)unused;
	while (!reader.stop) {
		rewrite_pages(at, page_bytes());
		madvise(at, page_bytes(), MADV_DONTNEED);
	}
	munmap(at, page_bytes());
	return NULL;
}

static void fault_start(void)
{
	reader = (struct reader){ 0 };
	thread_start(&reader.thread, fault_on, NULL);
}

static void reader_stop(void)
{
	reader.stop = true;
	pthread_join(reader.thread, NULL);
}

/* Soon: whoever promotes pages may be looking at the last ones. */
static bool no_bytes(void)
{
	return wait_until(!pghot_status("record_bytes"), PATIENCE_MS, 20000);
}

static void test_record_memory(void)
{
	bool precise = pghot_precise(), low = true;
	long long most, bytes;
	struct heat heat;

	tap_note("records have %d bytes", precise ? 4 : 1);
	set_sources(1 << PGHOT_HWHINT);
	heat = heat_of_node(node_slow());
	bytes = pghot_status("record_bytes");
	/* In 1/1000000: 0.025% and 0.1%. */
	most = heat.sections * SECTION_BYTES / 1000000 * (precise ? 1000 : 250);
	tap_ok(heat.sections && heat.sections == heat_of_node(-1).sections,
	       "only the slow node's %lld sections have records", heat.sections);
	tap_ok(bytes >= heat.sections * (precise ? 131072 : 32768) && bytes <= most,
	       "they take %lld bytes, at most %lld", bytes, most);
	set_sources(1 << PGHOT_PGTSCAN);
	for (int n = 0; n < nodes_with_memory(); n++)
		low &= heat_of_node(node_at(n)).sections > 0;
	tap_ok(low, "while page tables are scanned all nodes have records");
	set_sources(0);
	tap_ok(!heat_of_node(-1).sections && no_bytes(), "without sources there are none");
}

/*
 * The largest threshold and the slowest pace: pages are known some walks before they are ready to
 * leave, and then few of them do.
 */
static void hesitate(void)
{
	file_write("3", PGHOT_THRESHOLD);
	file_write("1", PGHOT_RATE);
}

static void test_scan(const char *name)
{
	size_t bytes = kind_named(name)->folio == HUGE_BYTES ? 16 * HUGE_BYTES : BYTES;
	long long known = 0, gone = 0, folios, pages;
	struct memory memory;

	/* Enough folios that those of others, a handful, cannot stand for them. */
	if (!memory_test(&memory, kind_named(name), bytes, node_slow(), 0))
		return;
	pages_settle(memory.at);
	folios = memory_folios_wanted(&memory);
	/* Addresses of a folio, of all its mappings here. */
	pages = memory.folio / page_bytes() * memory_views(&memory);
	reader_start(memory.at, memory.bytes);
	set_sources(1 << PGHOT_PGTSCAN);
	/* What has gone up was known, and is no longer: so this is asked first. */
	wait_until((gone = pages_off(memory.at, memory.bytes, node_slow()) / pages,
		    known = heat_of_node(node_slow()).known, known + gone >= folios), PATIENCE_MS,
		   5000);
	reader_stop();
	set_sources(0);
	tap_ok(known + gone >= folios, "%s: of %lld folios %lld are known, %lld went up", name,
	       folios, known, gone);
	if (memory.folio > page_bytes())
		tap_ok(known < (long long)(bytes / page_bytes()) / 2,
		       "%s: one record per folio", name);
	tap_ok(memory_drop(&memory), "%s: as it was", name);
}

/* Marks a page as idle, or says whether it still is. */
static bool idle_mark(uint64_t frame)
{
	uint64_t bit = 1ULL << frame % 64;
	int fd = open(BITMAP, O_WRONLY | O_CLOEXEC);
	bool good;

	good = fd >= 0 && pwrite(fd, &bit, sizeof(bit), frame / 64 * 8) == sizeof(bit);
	if (fd >= 0)
		close(fd);
	return good;
}

static bool idle_still(uint64_t frame)
{
	int fd = open(BITMAP, O_RDONLY | O_CLOEXEC);
	uint64_t bits = 0;

	if (fd < 0 || pread(fd, &bits, sizeof(bits), frame / 64 * 8) != sizeof(bits))
		tap_bail(BITMAP ": %s", strerror(errno));
	close(fd);
	return bits >> frame % 64 & 1;
}

/* Several walks, which in this guest look at some 5000 pages each; touches a page meanwhile. */
static void let_walk(volatile unsigned char *touch)
{
	long long end = now_ms() + PATIENCE_MS;
	long long scanned = pghot_status("scanned_ptes");

	while (pghot_status("scanned_ptes") < scanned + 10000 && now_ms() < end) {
		if (touch)
			(void)*touch;
		usleep(10000);
	}
}

/* The last walks find the accessed bit clear, but idle page tracking still knows of it. */
static void test_idle_tracking(void)
{
	unsigned char *at = map_anonymous(BYTES, false);
	uint64_t touched, left;

	memset(at, 1, BYTES);
	pages_settle(at);
	touched = page_frame(at);
	left = page_frame(at + page_bytes());
	if (touched == NO_FRAME || !idle_mark(touched) || !idle_mark(left))
		tap_bail("idle pages are not tracked");
	set_sources(1 << PGHOT_PGTSCAN);
	/* More than once: a CPU that has the translation does not set the bit. */
	let_walk(at);
	let_walk(NULL);
	set_sources(0);
	tap_ok(!idle_still(touched) && idle_still(left),
	       "who tracks idle pages sees accesses that a walk took away");
	munmap(at, BYTES);
}

static long long scanned_in(unsigned int ms)
{
	long long before = pghot_status("scanned_ptes");

	usleep(ms * 1000);
	return pghot_status("scanned_ptes") - before;
}

static void test_rest(void)
{
	struct memory memory;
	long long busy = 0, idle, off;
	int rounds = 0;

	/* More than goes by that pace, so that there is slow memory in use. */
	hesitate();
	/* What this process uses while it waits must not lie there. */
	migrate_process(0, node_slow(), node_at(0));
	memory_need(&memory, "anonymous", 4 * BYTES, node_slow(), 0);
	set_sources(1 << PGHOT_PGTSCAN);
	reader_start(memory.at, memory.bytes);
	/* All of the guest may stop for a while. */
	for (int try = 0; try < 3; try++) {
		long long looked = scanned_in(2000);

		busy = looked > busy ? looked : busy;
	}
	reader_stop();
	/* The period doubles after eight walks each time. */
	do
		idle = scanned_in(4000) / 2;
	while (idle * 3 >= busy && ++rounds < 20);
	set_sources(0);
	off = scanned_in(500);
	tap_note("pages looked at in 2 s: %lld with accesses, %lld without", busy, idle);
	tap_ok(busy > 0 && idle * 3 < busy, "walks are rarer while slow memory rests");
	tap_ok(!off, "nothing is scanned without the source");
	memory_drop(&memory);
}

static void test_samples(void)
{
	long long pages = BYTES / page_bytes(), before, known;
	struct memory memory;
	struct heat heat;
	unsigned char *at;
	cpu_set_t all;

	sched_getaffinity(0, sizeof(all), &all);
	memory_need(&memory, "memory file", BYTES, node_slow(), 0);
	pages_settle(memory.at);
	before = pghot_status("recorded_hwhints");
	tap_ok(!file_write(PGHOT_FAULTS, PGHOT_EVENT) && !set_sources(1 << PGHOT_HWHINT),
	       "minor faults are an event");
	/* The last CPU's node is not the configured target. */
	run_on_cpu(sysconf(_SC_NPROCESSORS_ONLN) - 1);
	at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0);
	if (at == MAP_FAILED)
		tap_bail("mmap: %s", strerror(errno));
	rewrite_pages(at, BYTES);
	heat = heat_of_frame(page_frame(at));
	known = heat_of_node(node_slow()).known;
	before = pghot_status("recorded_hwhints") - before;
	tap_ok(before >= pages / 2, "%lld faults were sampled", before);
	tap_ok(known >= pages / 2, "of %lld pages %lld are known", pages, known);
	tap_ok(heat.majority == node_at(1), "their node is known: %lld", heat.majority);
	set_sources(0);
	before = pghot_status("recorded_hwhints");
	madvise(at, BYTES, MADV_DONTNEED);
	rewrite_pages(at, BYTES);
	tap_ok(pghot_status("recorded_hwhints") == before, "no sample without the source");
	file_write("\n", PGHOT_EVENT);
	munmap(at, BYTES);
	sched_setaffinity(0, sizeof(all), &all);
	tap_ok(memory_drop(&memory), "the file is as it was");
}

/* Without a policy of its own, with which it would be nobody's to promote. */
static struct content *load_start(void)
{
	struct content *content = pghot_memory(node_slow(), BYTES, false, 2);

	content_start_writers(content);
	return content;
}

static void load_stop(struct content *content, const char *what)
{
	content_stop_writers(content);
	tap_ok(!content_wrong(content, what), "%s: contents", what);
	pghot_memory_drop(content);
}

static int change_sources(void)
{
	unsigned int sources = rand() % 8;
	int error;

	error = set_sources(sources) ?: file_number(SOURCES) != sources;
	error = error ?: file_write_number(1 + rand() % 3, PGHOT_THRESHOLD);
	error = error ?: file_write_number(256 + rand() % 3000, PGHOT_WINDOW);
	return error ?: file_write(rand() % 2 ? PGHOT_FAULTS : "\n", PGHOT_EVENT);
}

static void test_toggle(long long seconds, bool balancing)
{
	const char *what = balancing ? "sources change, with hint faults" : "sources change";
	/* See emulator.h: each hint fault passes what is patched. */
	bool rests = balancing && emulator_patches_badly();
	long long faults = pghot_status("recorded_hintfaults");
	long long end = now_ms() + seconds * 1000, last = end + PATIENCE_MS, now;
	struct content *content;
	unsigned int changes = 0;
	int error = 0;

	if (balancing) {
		/* Scans that are a second apart at least would find few sources on for long enough. */
		pghot_scan_often();
		file_set("100", PGHOT_SCANS "scan_period_max_ms");
		file_need("2", NUMA_BALANCING);
	}
	content = load_start();
	while (!error && ((now = now_ms()) < end ||
			  (balancing && now < last &&
			   pghot_status("recorded_hintfaults") == faults))) {
		if (rests)
			content_rest_writers(content);
		error = change_sources();
		if (rests)
			content_resume_writers(content);
		heat_of_node(-1);
		usleep(rand() % 50000);
		/* Only what is slow has hint faults. */
		if (balancing)
			move_range(content->at, BYTES, 0, node_slow(), MPOL_MF_MOVE, 1);
		changes++;
	}
	if (rests)
		content_rest_writers(content);
	set_sources(0);
	file_write("\n", PGHOT_EVENT);
	faults = pghot_status("recorded_hintfaults") - faults;
	tap_ok(!error, "%s: %u times under load", what, changes);
	tap_ok(!balancing == !faults, "%s: %lld faults recorded", what, faults);
	tap_ok(no_bytes(), "%s: no records are left behind", what);
	load_stop(content, what);
	file_write("0", NUMA_BALANCING);
}

static bool sections_are(int node, long long wanted)
{
	return wait_until(heat_of_node(node).sections == wanted, PATIENCE_MS, 20000);
}

/* The first page of a range that lies in a block: its frame, or NO_FRAME. */
static uint64_t frame_in_block(const void *at, int block)
{
	uint64_t frames[BYTES / 4096];

	page_frames(at, BYTES, frames);
	for (size_t n = 0; n < BYTES / page_bytes(); n++)
		if (block_has(block, frames[n]))
			return frames[n];
	return NO_FRAME;
}

/* Of what is used; kernels with checkers walk so slowly that much of it is promoted meanwhile. */
#define KNOWN_PAGES	((long long)(BYTES / page_bytes()) / 8)
#define KNOWN_MS	(6 * PATIENCE_MS)

/*
 * Brings what is used back to a node, where memory for movable pages is taken first, and waits
 * until the records of a block know some of it. Returns how many pages they know.
 */
static long long wait_known_in_block(const struct content *content, int block, int node)
{
	long long end = now_ms() + KNOWN_MS, known = 0;
	uint64_t frame;

	do {
		move_range(content->at, BYTES, 0, node, MPOL_MF_MOVE, 1);
		usleep(20000);
		frame = frame_in_block(content->at, block);
		known = frame != NO_FRAME ? heat_of_frame(frame).known : 0;
	} while (known < KNOWN_PAGES && now_ms() < end);
	return known;
}

static void test_hotplug(void)
{
	long long all, known, accesses, least_known = -1, least_accesses = -1;
	bool gone = true, back = true;
	struct content *content;
	int block, node, rounds;

	/* Promotion leaves most of it where it is for longer than a round takes. */
	hesitate();
	file_need(PGHOT_FAULTS, PGHOT_EVENT);
	set_sources(1 << PGHOT_PGTSCAN | 1 << PGHOT_HWHINT);
	fault_start();
	if (!block_make_movable(&block, &node))
		tap_bail("no memory goes off line");
	tap_note("block %d of node %d", block, node);
	content = load_start();
	all = heat_of_node(node).sections;
	back = sections_are(node, all);
	for (rounds = 0; rounds < 5; rounds++) {
		known = wait_known_in_block(content, block, node);
		accesses = pghot_counter("pghot_recorded_accesses");
		if (block_state(block, "offline")) {
			tap_note("round %d: the block does not go", rounds);
			gone = false;
			break;
		}
		/* At once: the memory itself may be gone next. */
		gone &= heat_of_node(node).sections < all;
		accesses = pghot_counter("pghot_recorded_accesses") - accesses;
		block_state(block, "online_movable");
		back &= sections_are(node, all);
		tap_note("round %d: %lld pages were known, %lld accesses recorded meanwhile", rounds,
			 known, accesses);
		if (!rounds || known < least_known)
			least_known = known;
		if (!rounds || accesses < least_accesses)
			least_accesses = accesses;
	}
	reader_stop();
	load_stop(content, "memory goes off line");
	tap_ok(least_known >= KNOWN_PAGES,
	       "at least %lld of its pages are known when memory goes off line", least_known);
	tap_ok(least_accesses > 0, "and at least %lld accesses are recorded meanwhile",
	       least_accesses);
	tap_ok(gone, "memory that is off line has no records");
	tap_ok(back, "memory that comes back has");
	block_make_normal(block);
	set_sources(0);
}

int main(int argc, char **argv)
{
	static const char *const kinds_seen[] = {
		"anonymous", "anonymous, 64 KiB", "anonymous, 2048 KiB", "shared anonymous",
		"memory file, 2048 KiB", "tmpfs file", "ext4 file, read", "locked",
		"shared with children",
	};

	tap_start();
	pghot_init();
	/* By itself: emulators that execute what was patched away lose the guest by it. */
	if (argc > 1 && !strcmp(argv[1], "toggle")) {
		long long seconds = argc > 2 ? atoll(argv[2]) : 5;

		test_toggle(seconds, false);
		test_toggle(seconds, true);
		return tap_done();
	}
	test_record_memory();
	hesitate();
	for (unsigned int n = 0; n < ARRAY_SIZE(kinds_seen); n++)
		test_scan(kinds_seen[n]);
	test_samples();
	test_idle_tracking();
	test_rest();
	test_hotplug();
	return tap_done();
}
