// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_hints: hint faults as a source. One access is enough however late it comes, its record
 * stays as long as the published one, a batch of them wakes kmigrated, and mappings of slower
 * memory that NUMA balancing leaves out are scanned.
 */
#include "clock.h"
#include "content.h"
#include "files.h"
#include "heat.h"
#include "memory.h"
#include "nodes.h"
#include "pages.h"
#include "pghot.h"
#include "tap.h"
#include "task.h"
#include "trace.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES		(4UL << 20)
#define PAGES		(BYTES / page_bytes())
#define PATIENCE_MS	60000
#define TRIES		20

/* kmigrated is awake by itself for a small part of the time. */
#define BATCH_TRIES	6

/* Pages that kmigrated moves at once. */
#define BATCH		512

/* Scans of this process that begin while others' memory had no access. */
#define SCANS_SEEN	12

/* What happens to a page, as the tracepoints tell it. */
enum { REPORTED, CHOSEN, ISOLATED, MOVED, STEPS };
static const char *const steps[STEPS] = {
	"pghot_reported", "pghot_chosen", "pghot_isolated", "pghot_moved",
};

/* How often all memory of this process was scanned. */
static long long scans(void)
{
	char text[8192] = "", *at;

	file_read(text, sizeof(text), "/proc/self/sched");
	at = strstr(text, "mm->numa_scan_seq");
	if (!at)
		tap_bail("/proc/self/sched does not say how often memory was scanned");
	return atoll(strchr(at, ':') + 1);
}

/* Scans are rationed by CPU time, so it takes some. */
static void wait_scans(long long nr)
{
	long long end = now_ms() + PATIENCE_MS;

	for (nr += scans(); scans() < nr && now_ms() < end; )
		for (volatile int spin = 0; spin < 1000000; spin++)
			;
}

static void test_window(void)
{
	long long wanted = pghot_precise() ? 5000 : 3000;

	file_write("1", PGHOT_SYSCTL "enabled_sources");
	tap_ok(file_number(PGHOT_WINDOW) == wanted, "hint faults: the window is %lld ms", wanted);
	if (pghot_has(PGHOT_PGTSCAN)) {
		file_write("5", PGHOT_SYSCTL "enabled_sources");
		tap_ok(file_number(PGHOT_WINDOW) == 1000, "with page tables: 1000 ms");
		file_write("2000", PGHOT_WINDOW);
		file_write("1", PGHOT_SYSCTL "enabled_sources");
		tap_ok(file_number(PGHOT_WINDOW) == 2000, "one that was set stays");
		file_write_number(wanted, PGHOT_WINDOW);
		file_write("4", PGHOT_SYSCTL "enabled_sources");
		tap_ok(file_number(PGHOT_WINDOW) == 1000, "the one that fits follows the sources");
	}
	pghot_stop();
}

/*
 * Faults of one access per page come later than NUMA balancing would accept. The pace keeps most
 * pages where their records can be seen.
 */
static void test_one_access(void)
{
	struct content *content = pghot_memory(node_slow(), BYTES, false, 0);
	long long recorded, hot = 0, start, ms = 0;
	bool all = true;
	size_t moved;

	file_write("1", PGHOT_RATE);
	pghot_start(PGHOT_HINTFAULT);
	for (int try = 0; try < TRIES; try++) {
		wait_scans(2);
		usleep(20000);
		moved = pages_off(content->at, BYTES, node_slow());
		recorded = pghot_counter("pghot_recorded_accesses");
		start = now_ms();
		read_pages(content->at, BYTES);
		recorded = pghot_counter("pghot_recorded_accesses") - recorded;
		all &= recorded >= (long long)(PAGES - moved);
		usleep(1500000);
		hot = heat_of_node(node_slow()).hot;
		moved = pages_off(content->at, BYTES, node_slow());
		ms = now_ms() - start;
		tap_note("%lld faults recorded; after %lld ms %lld pages are hot, %zu moved",
			 recorded, ms, hot, moved);
		/* Later the records would leave the window. */
		if (ms < 2500)
			break;
	}
	pghot_stop();
	file_write("65536", PGHOT_RATE);
	tap_ok(all, "late faults are recorded");
	tap_ok(ms < 2500 && hot >= (long long)PAGES / 4 && hot + moved >= PAGES,
	       "one access keeps a page hot for 1.5 s");
	tap_ok(!content_wrong(content, "one access"), "one access: contents");
	pghot_memory_drop(content);
}

/* One process sleeps; the other one only reads. */
static void test_shared(void)
{
	unsigned char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				 -1, 0);
	struct content *content = pghot_content(node_slow(), at, BYTES, 0);
	pid_t reader = fork();
	size_t moved;

	if (!reader) {
		mprotect(at, BYTES, PROT_READ);
		for (;;)
			read_pages(at, BYTES);
	}
	pghot_start(PGHOT_HINTFAULT);
	moved = pghot_wait_moved(at, BYTES, node_slow(), PAGES, PATIENCE_MS);
	pghot_stop();
	child_kill(reader);
	tap_ok(moved == PAGES, "shmem that two processes share, one of them read-only: %zu of %zu",
	       moved, PAGES);
	tap_ok(!content_wrong(content, "shared"), "shmem: contents");
	pghot_memory_drop(content);
}

/* Two processes read a file by private mappings. */
static void test_file(void)
{
	struct memory memory;
	size_t moved = 0;
	pid_t reader;
	void *at;

	memory_need(&memory, "ext4 file, read", BYTES, node_slow(), 0);
	at = mmap(memory.at, BYTES, PROT_READ, MAP_PRIVATE | MAP_FIXED, memory.fd, 0);
	if (at == MAP_FAILED)
		tap_bail("the file cannot be mapped");
	read_pages(at, BYTES);
	reader = fork();
	if (!reader) {
		read_pages(at, BYTES);
		pause();
	}
	pages_settle(at);
	pghot_start(PGHOT_HINTFAULT);
	for (long long end = now_ms() + PATIENCE_MS; now_ms() < end; ) {
		read_pages(at, BYTES);
		moved = pages_off(at, BYTES, node_slow());
		if (moved == PAGES)
			break;
	}
	pghot_stop();
	child_kill(reader);
	tap_ok(moved == PAGES, "a file that two processes only read: %zu of %zu", moved, PAGES);
	tap_ok(!memory_wrong(&memory, "file") && memory_drop(&memory), "file: contents");
}

/*
 * How many faults of ours made a page ready until one of them woke kmigrated, after all that had
 * woken it before; 0 if none did. That its timer ends while this process runs is an interrupt.
 */
static size_t faults_until_woken(const struct trace_event *trace, size_t nr)
{
	int kmigrated = pghot_kmigrated(node_slow());
	size_t ready = 0;

	for (size_t n = 0; n < nr; n++) {
		bool fault = trace[n].pid == getpid() && !trace[n].interrupt;

		if (fault && trace_is(&trace[n], steps[REPORTED]))
			ready += trace_field(&trace[n], "ready") == 1;
		if (!trace_is(&trace[n], "sched_waking") ||
		    trace_field(&trace[n], "pid") != kmigrated)
			continue;
		if (fault)
			return ready;
		ready = 0;
	}
	return 0;
}

/*
 * The fault that makes a batch's last page ready wakes kmigrated, which polls for what does not
 * come from faults, and then does not count again what is ready. While it is awake by itself no
 * fault wakes it, or one of a later batch does: then it is tried again.
 */
static void test_batch(bool huge)
{
	/* Pages of one fault. */
	const size_t pages = huge ? HUGE_BYTES / page_bytes() : 1;
	static const char *const events[] = { "pghot/pghot_reported", "sched/sched_waking", NULL };
	const size_t bytes = 4 * BYTES;
	size_t faults = 0, wrong = 0;

	for (int try = 0; try < BATCH_TRIES && !wrong &&
	     (!faults || faults * pages >= 2 * BATCH); try++) {
		struct content *content = pghot_memory(node_slow(), bytes, huge, 0);
		struct trace_event *trace;
		size_t nr;

		pghot_start(PGHOT_HINTFAULT);
		wait_scans(2);
		trace_start(events);
		read_pages(content->at, bytes);
		nr = trace_stop(&trace);
		pghot_stop();
		faults = faults_until_woken(trace, nr);
		free(trace);
		wrong = content_wrong(content, "batch");
		pghot_memory_drop(content);
	}
	tap_ok(faults * pages >= BATCH && faults * pages < 2 * BATCH,
	       "the fault that makes a batch ready wakes kmigrated (%zu faults of %zu pages)",
	       faults, pages);
	tap_ok(!wrong, "batch: contents");
}

/* Notes how long the pages took from one step to another; returns how many took both. */
static size_t note_step(double times[][STEPS], size_t pages, int from, int to)
{
	double *took = calloc(pages, sizeof(*took));
	size_t nr = 0;

	for (size_t n = 0; n < pages; n++)
		if (times[n][from] && times[n][to] >= times[n][from])
			took[nr++] = (times[n][to] - times[n][from]) * 1e6;
	if (nr) {
		double median = median_of(took, nr);

		tap_note("%s to %s: %zu pages, us: median %.0f, nine tenths %.0f, all %.0f",
			 steps[from] + 6, steps[to] + 6, nr, median, took[nr * 9 / 10],
			 took[nr - 1]);
	}
	free(took);
	return nr;
}

/* Where the time goes between a fault and the end of the page's move. */
static void test_steps(void)
{
	static const char *const events[] = { "pghot", NULL };
	const size_t bytes = 4 * BYTES, pages = bytes / page_bytes();
	struct content *content = pghot_memory(node_slow(), bytes, false, 0);
	double (*times)[STEPS] = calloc(pages, sizeof(*times));
	uint64_t *frames = calloc(pages, sizeof(*frames));
	struct trace_event *event;
	size_t nr, moved, n;
	int step;

	page_frames(content->at, bytes, frames);
	pghot_start(PGHOT_HINTFAULT);
	wait_scans(2);
	trace_start(events);
	read_pages(content->at, bytes);
	moved = pghot_wait_moved(content->at, bytes, node_slow(), pages, PATIENCE_MS);
	nr = trace_stop(&event);
	pghot_stop();
	for (size_t e = 0; e < nr; e++) {
		for (n = 0; n < pages && frames[n] != (uint64_t)trace_field(&event[e], "pfn"); n++)
			;
		for (step = 0; step < STEPS && !trace_is(&event[e], steps[step]); step++)
			;
		/* A page that is passed over in a round is chosen again. */
		if (n < pages && step < STEPS && (!times[n][step] || step == CHOSEN))
			times[n][step] = event[e].seconds;
	}
	for (step = 1; step < STEPS; step++)
		note_step(times, pages, step - 1, step);
	tap_ok(moved == pages && note_step(times, pages, 0, STEPS - 1) == pages,
	       "each page is reported, chosen, isolated and moved, in this order");
	free(event);
	free(frames);
	free(times);
	pghot_memory_drop(content);
}

/* What keeps NUMA balancing from scanning memory at @at. */
static size_t skipped(const void *at)
{
	struct trace_event *events;
	size_t nr = trace_stop(&events), found = 0;

	for (size_t n = 0; n < nr; n++) {
		char *start = strstr(events[n].fields, "vm_start=");
		char *end = strstr(events[n].fields, "vm_end=");

		if (start && end && strtoul(start + 9, NULL, 16) <= (unsigned long)at &&
		    strtoul(end + 7, NULL, 16) > (unsigned long)at &&
		    (strstr(events[n].fields, "inactive") || strstr(events[n].fields, "shared_ro")))
			found++;
	}
	free(events);
	return found;
}

static void *touch_after_sleep(void *pipe_fd)
{
	struct content *content;

	/* The content's address comes when it is time. */
	if (read(*(int *)pipe_fd, &content, sizeof(content)) == sizeof(content))
		read_pages(content->at, BYTES);
	return NULL;
}

/* Another thread's scans do not leave out what only the sleeping one uses. */
static void test_slept(void)
{
	static const char *const events[] = { "sched/sched_skip_vma_numa", NULL };
	struct content *content = pghot_memory(node_slow(), BYTES, false, 0);
	pthread_t sleeper;
	size_t left_out, moved;
	int ends[2];

	if (pipe(ends))
		tap_bail("no pipe");
	thread_start(&sleeper, touch_after_sleep, &ends[0]);
	pghot_start(PGHOT_HINTFAULT);
	trace_start(events);
	wait_scans(SCANS_SEEN);
	left_out = skipped(content->at);
	if (write(ends[1], &content, sizeof(content)) != sizeof(content))
		tap_bail("no pipe");
	pthread_join(sleeper, NULL);
	moved = pghot_wait_moved(content->at, BYTES, node_slow(), PAGES, PATIENCE_MS);
	pghot_stop();
	tap_ok(!left_out, "what a sleeping thread used is left out of no scan (%zu times)", left_out);
	tap_ok(moved == PAGES, "and comes up when it is touched once: %zu of %zu pages", moved,
	       PAGES);
	tap_ok(!content_wrong(content, "slept"), "slept: contents");
	pghot_memory_drop(content);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	tap_start();
	nodes_with_memory();
	pghot_init();
	pghot_scan_often();
	file_set("100", PGHOT_SCANS "scan_period_max_ms");
	/* Each node of the top tier has a pace of its own. */
	pghot_run_on(node_at(1));
	file_set("1", PGHOT_SCANS "hot_threshold_ms");
	test_window();
	test_one_access();
	test_batch(false);
	test_batch(true);
	test_steps();
	test_shared();
	test_file();
	test_slept();
	return tap_done();
}
