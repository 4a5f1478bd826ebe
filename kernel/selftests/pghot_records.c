// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_records [SECONDS]: records exist while they are wanted, take no more memory than
 * promised, and follow memory that goes off line and comes back; scans of page tables see
 * every kind of memory and hide nothing from others; samples of a counter find their page;
 * sources come and go under load.
 */
#include "blocks.h"
#include "content.h"
#include "files.h"
#include "heat.h"
#include "memory.h"
#include "nodes.h"
#include "pages.h"
#include "pghot.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SOURCES	PGHOT_SYSCTL "enabled_sources"
#define EVENT	PGHOT_DEBUGFS "/hwhints_event"
#define BITMAP	"/sys/kernel/mm/page_idle/bitmap"
#define BYTES	(4UL << 20)

/* Minor faults, each of them: their samples come when the page is mapped. */
#define FAULTS	"1 5 1"

/* Longer than any walk is apart in this test, in ms. */
#define PATIENCE_MS	10000

static int set_sources(unsigned int mask)
{
	return file_write_number(mask, SOURCES);
}

/*
 * New pages come to the LRU lists by batches of each CPU, and have no records before. Asking for
 * a page to move, here to where it is, ends all batches.
 */
static void end_batches(void *at)
{
	int node = node_of(at), status;

	if (move_pages(0, 1, &at, &node, &status, MPOL_MF_MOVE))
		tap_bail("move_pages: %s", strerror(errno));
}

/* --- Someone who reads each page again and again --- */

static struct reader {
	pthread_t thread;
	const volatile unsigned char *at;
	size_t bytes;
	volatile bool stop;
} reader;

static void *read_on(void *unused)
{
	(void)unused;
	while (!reader.stop) {
		for (size_t n = 0; n < reader.bytes; n += page_bytes())
			(void)reader.at[n];
		usleep(5000);
	}
	return NULL;
}

static void reader_start(const void *at, size_t bytes)
{
	reader = (struct reader){ .at = at, .bytes = bytes };
	if (pthread_create(&reader.thread, NULL, read_on, NULL))
		tap_bail("no thread");
}

static void reader_stop(void)
{
	reader.stop = true;
	pthread_join(reader.thread, NULL);
}

/* Waits until so many pages of a node are known; returns how many are. */
static long long wait_known(int node, long long pages)
{
	long long end = pghot_ms() + PATIENCE_MS, known;

	while ((known = heat_of_node(node).known) < pages && pghot_ms() < end)
		usleep(50000);
	return known;
}

/* --- Memory of the records --- */

/* Soon: whoever promotes pages may be looking at the last ones. */
static bool no_bytes(void)
{
	long long end = pghot_ms() + PATIENCE_MS;

	while (pghot_counter("pghot_record_bytes") && pghot_ms() < end)
		usleep(20000);
	return !pghot_counter("pghot_record_bytes");
}

static void test_record_memory(void)
{
	bool precise, low = true;
	long long most, bytes;
	char format[32] = "";
	struct heat heat;

	file_read(format, sizeof(format), PGHOT_DEBUGFS "/format");
	precise = !strcmp(format, "precise");
	tap_note("records are of the %s format", format);
	set_sources(1 << PGHOT_HWHINT);
	heat = heat_of_node(node_slow());
	bytes = pghot_counter("pghot_record_bytes");
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

/* --- Page tables --- */

/* Slow walks and the largest threshold: pages are known long before they are ready to leave. */
static void hesitate(void)
{
	file_write("2000", PGHOT_DEBUGFS "/scan_period_ms");
	file_write("3", PGHOT_SYSCTL "freq_threshold");
	file_write("1 1 1", PGHOT_DEBUGFS "/weights");
}

static void test_scan(const char *name)
{
	size_t bytes = kind_named(name)->folio == HUGE_BYTES ? 16 * HUGE_BYTES : BYTES;
	long long known, folios;
	struct memory memory;

	/* Enough folios that those of others, a handful, cannot stand for them. */
	if (!memory_make(&memory, kind_named(name), bytes, node_slow(), 0)) {
		tap_ok(false, "%s: made on the slow node", name);
		return;
	}
	end_batches(memory.at);
	folios = memory_folios_wanted(&memory);
	reader_start(memory.at, memory.bytes);
	set_sources(1 << PGHOT_PGTSCAN);
	known = wait_known(node_slow(), folios);
	reader_stop();
	set_sources(0);
	tap_ok(known >= folios, "%s: of %lld folios %lld are known", name, folios, known);
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
	long long end = pghot_ms() + PATIENCE_MS;
	long long scanned = pghot_counter("pghot_scanned_ptes");

	while (pghot_counter("pghot_scanned_ptes") < scanned + 20000 && pghot_ms() < end) {
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
	end_batches(at);
	touched = page_frame(at);
	left = page_frame(at + page_bytes());
	file_write("50", PGHOT_DEBUGFS "/scan_period_ms");
	if (!touched || !idle_mark(touched) || !idle_mark(left))
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
	long long before = pghot_counter("pghot_scanned_ptes");

	usleep(ms * 1000);
	return pghot_counter("pghot_scanned_ptes") - before;
}

static void test_rest(void)
{
	struct memory memory;
	long long busy, idle, off;

	file_write("50", PGHOT_DEBUGFS "/scan_period_ms");
	/* Nothing is ever ready: the pages stay. */
	file_write("3", PGHOT_SYSCTL "freq_threshold");
	file_write("1", PGHOT_SYSCTL "promote_rate_limit_MBps");
	if (!memory_make(&memory, kind_named("anonymous"), BYTES, node_slow(), 0))
		tap_bail("no memory on the slow node");
	set_sources(1 << PGHOT_PGTSCAN);
	reader_start(memory.at, memory.bytes);
	busy = scanned_in(2000);
	reader_stop();
	usleep(2500000);
	idle = scanned_in(3000) * 2 / 3;
	set_sources(0);
	off = scanned_in(500);
	tap_note("pages looked at in 2 s: %lld with accesses, %lld without", busy, idle);
	tap_ok(busy > 0 && idle * 3 < busy, "walks are rarer while slow memory rests");
	tap_ok(!off, "nothing is scanned without the source");
	memory_drop(&memory);
}

/* --- Samples --- */

static bool run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return !sched_setaffinity(0, sizeof(set), &set);
}

static void test_samples(void)
{
	long long pages = BYTES / page_bytes(), before, known;
	struct memory memory;
	struct heat heat;
	unsigned char *at;
	cpu_set_t all;

	sched_getaffinity(0, sizeof(all), &all);
	if (!memory_make(&memory, kind_named("memory file"), BYTES, node_slow(), 0))
		tap_bail("no memory file on the slow node");
	end_batches(memory.at);
	before = pghot_counter("pghot_recorded_hwhints");
	tap_ok(!file_write(FAULTS, EVENT) && !set_sources(1 << PGHOT_HWHINT),
	       "minor faults are an event");
	/* The last CPU's node is not the configured target. */
	run_on(sysconf(_SC_NPROCESSORS_ONLN) - 1);
	at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0);
	if (at == MAP_FAILED)
		tap_bail("mmap: %s", strerror(errno));
	/* Stores, which change nothing: reads would map the neighbours without a fault. */
	for (size_t n = 0; n < BYTES; n += page_bytes())
		__atomic_fetch_or(at + n, 0, __ATOMIC_RELAXED);
	heat = heat_of_frame(page_frame(at));
	known = heat_of_node(node_slow()).known;
	before = pghot_counter("pghot_recorded_hwhints") - before;
	tap_ok(before >= pages / 2, "%lld faults were sampled", before);
	tap_ok(known >= pages / 2, "of %lld pages %lld are known", pages, known);
	tap_ok(heat.majority == node_at(1), "their node is known: %lld", heat.majority);
	set_sources(0);
	before = pghot_counter("pghot_recorded_hwhints");
	madvise(at, BYTES, MADV_DONTNEED);
	for (size_t n = 0; n < BYTES; n += page_bytes())
		__atomic_fetch_or(at + n, 0, __ATOMIC_RELAXED);
	tap_ok(pghot_counter("pghot_recorded_hwhints") == before, "no sample without the source");
	file_write("\n", EVENT);
	munmap(at, BYTES);
	sched_setaffinity(0, sizeof(all), &all);
	tap_ok(memory_drop(&memory), "the file is as it was");
}

/* --- Under load --- */

static struct content *load_start(void)
{
	unsigned char *at = map_anonymous(BYTES, false);
	struct content *content;

	bind_range(at, BYTES, MPOL_PREFERRED, node_slow(), 0);
	content = content_new(at, BYTES, 2);
	content_fill(content);
	content_start_writers(content);
	return content;
}

static void load_stop(struct content *content, const char *what)
{
	content_stop_writers(content);
	tap_ok(!content_wrong(content, what), "contents %s", what);
	munmap(content->at, content->bytes);
	content_free(content);
}

static void test_toggle(long long seconds)
{
	struct content *content = load_start();
	time_t end = time(NULL) + seconds;
	unsigned int changes = 0;
	int error = 0;

	file_write("50", PGHOT_DEBUGFS "/scan_period_ms");
	while (time(NULL) < end && !error) {
		unsigned int sources = rand() % 8;

		error = set_sources(sources) ?: file_number(SOURCES) != sources;
		error = error ?: file_write_number(1 + rand() % 3, PGHOT_SYSCTL "freq_threshold");
		error = error ?: file_write_number(256 + rand() % 3000,
						   PGHOT_SYSCTL "promote_freq_window_ms");
		error = error ?: file_write(rand() % 2 ? FAULTS : "\n", EVENT);
		heat_of_node(-1);
		usleep(rand() % 50000);
		changes++;
	}
	set_sources(0);
	file_write("\n", EVENT);
	tap_ok(!error, "sources change %u times under load", changes);
	tap_ok(no_bytes(), "and leave no records behind");
	load_stop(content, "while sources change");
}

/* --- Memory that comes and goes --- */

static bool sections_are(int node, long long wanted)
{
	long long end = pghot_ms() + PATIENCE_MS;

	while (heat_of_node(node).sections != wanted && pghot_ms() < end)
		usleep(20000);
	return heat_of_node(node).sections == wanted;
}

static void test_hotplug(void)
{
	bool gone = true, back = true;
	struct content *content;
	int block, node, rounds;
	long long all;

	file_write("50", PGHOT_DEBUGFS "/scan_period_ms");
	set_sources(1 << PGHOT_PGTSCAN);
	if (!block_make_movable(&block, &node))
		tap_bail("no memory goes off line");
	tap_note("block %d of node %d", block, node);
	content = load_start();
	all = heat_of_node(node).sections;
	back = sections_are(node, all);
	for (rounds = 0; rounds < 5; rounds++) {
		if (block_state(block, "offline")) {
			tap_note("round %d: the block does not go", rounds);
			gone = false;
			break;
		}
		/* At once: the memory itself may be gone next. */
		gone &= heat_of_node(node).sections < all;
		block_state(block, "online_movable");
		back &= sections_are(node, all);
	}
	load_stop(content, "while memory goes off line");
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
	test_record_memory();
	hesitate();
	for (unsigned int n = 0; n < ARRAY_SIZE(kinds_seen); n++)
		test_scan(kinds_seen[n]);
	test_samples();
	test_idle_tracking();
	test_rest();
	test_toggle(argc > 1 ? atoll(argv[1]) : 5);
	test_hotplug();
	return tap_done();
}
