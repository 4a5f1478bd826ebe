// SPDX-License-Identifier: GPL-2.0-only
/*
 * dmatest COUNT DRIVER INTERRUPT COPIES: the machine's DMA channels themselves, without our series. So
 * many are there, of this driver; dmatest makes so many copies with all of them at once and compares
 * every byte; every controller interrupts.
 */
#include "files.h"
#include "tap.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DMA		"/sys/class/dma"
#define DMATEST		"/sys/module/dmatest/parameters"
#define MAX_CHANNELS	64

/* Of dmatest's own kind: a copy has a random length up to that. */
#define BUFFER		"65536"
#define PATIENCE_MS	50000
#define TIMEOUT_MS	"20000"

static struct channel {
	char name[32];
	/* What dmatest says. */
	unsigned int copies, failures;
	bool ended;
} channels[MAX_CHANNELS];

static int by_name(const void *one, const void *other)
{
	const struct channel *a = one, *b = other;

	return strcmp(a->name, b->name);
}

/* Finds those of @driver; returns how many. */
static int find_channels(const char *driver)
{
	struct dirent *entry;
	int count = 0;
	DIR *folder;

	folder = opendir(DMA);
	while (folder && (entry = readdir(folder)) && count < MAX_CHANNELS) {
		char path[FILE_PATH], target[FILE_PATH] = "";
		const char *last;

		snprintf(path, sizeof(path), DMA "/%.31s/device/driver", entry->d_name);
		if (entry->d_name[0] == '.' || readlink(path, target, sizeof(target) - 1) < 0)
			continue;
		last = strrchr(target, '/');
		if (!strcmp(last ? last + 1 : target, driver))
			snprintf(channels[count++].name, sizeof(channels[0].name), "%.31s",
				 entry->d_name);
	}
	if (folder)
		closedir(folder);
	qsort(channels, count, sizeof(channels[0]), by_name);
	return count;
}

static int in_use(int count)
{
	int used = 0;

	for (int n = 0; n < count; n++)
		used += file_number(DMA "/%s/in_use", channels[n].name) != 0;
	return used;
}

/* Takes what dmatest says from the rest of @log. */
static void read_summaries(int log, int count)
{
	char record[2048], name[32];
	unsigned int copies, failures;
	ssize_t bytes;

	while ((bytes = read(log, record, sizeof(record) - 1)) > 0) {
		const char *said;

		record[bytes] = '\0';
		said = strstr(record, "dmatest: ");
		if (!said || sscanf(said, "dmatest: %31[^-]-copy0: summary %u tests, %u failures",
				    name, &copies, &failures) != 3)
			continue;
		tap_note("%.*s", (int)strcspn(said, "\n"), said);
		for (int n = 0; n < count; n++)
			if (!strcmp(channels[n].name, name)) {
				channels[n].copies += copies;
				channels[n].failures += failures;
				channels[n].ended = true;
			}
	}
}

static bool all_ended(int count)
{
	for (int n = 0; n < count; n++)
		if (!channels[n].ended)
			return false;
	return true;
}

static void test_copies(int count, unsigned int copies)
{
	int log;

	file_need(BUFFER, DMATEST "/test_buf_size");
	file_need(TIMEOUT_MS, DMATEST "/timeout");
	file_need_number(copies, DMATEST "/iterations");
	for (int n = 0; n < count; n++)
		file_need(channels[n].name, DMATEST "/channel");
	tap_ok(in_use(count) == count, "dmatest takes all channels at once");
	log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (log < 0 || lseek(log, 0, SEEK_END) < 0)
		tap_bail("no /dev/kmsg");
	file_need("1", DMATEST "/run");
	/* dmatest's own way to wait ends at once if no thread of it has begun yet. */
	for (int try = 0; try < PATIENCE_MS / 10 && !all_ended(count); try++) {
		usleep(10000);
		read_summaries(log, count);
	}
	for (int n = 0; n < count; n++)
		tap_ok(channels[n].copies == copies && !channels[n].failures,
		       "%s: %u copies, %u failures", channels[n].name, channels[n].copies,
		       channels[n].failures);
	close(log);
	file_need("0", DMATEST "/run");
}

int main(int argc, char **argv)
{
	unsigned long before[MAX_CHANNELS], after[MAX_CHANNELS];
	int wanted, count, lines, busy = 0;
	const char *driver, *interrupt;
	unsigned int copies;

	tap_start();
	if (argc < 5)
		tap_bail("say how many channels, of which driver and interrupt, and how many copies");
	wanted = atoi(argv[1]);
	driver = argv[2];
	interrupt = argv[3];
	copies = atoi(argv[4]);
	count = find_channels(driver);
	if (!tap_ok(count == wanted, "%d of %d channels of %s", count, wanted, driver) || !count)
		return tap_done();
	tap_ok(!in_use(count), "nobody has them");
	if (system("busybox modprobe dmatest"))
		tap_bail("the module dmatest cannot be loaded");
	file_interrupts(interrupt, before, MAX_CHANNELS);
	test_copies(count, copies);
	lines = file_interrupts(interrupt, after, MAX_CHANNELS);
	for (int n = 0; n < lines; n++)
		busy += after[n] - before[n] >= copies;
	tap_ok(lines == count && busy == count, "%d of %d controllers interrupted for every copy", busy, count);
	tap_ok(!system("busybox rmmod dmatest"), "dmatest can be unloaded");
	tap_ok(!in_use(count), "all channels are given back");
	return tap_done();
}
