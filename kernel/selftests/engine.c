// SPDX-License-Identifier: GPL-2.0-only
/* The files of faultdma in debugfs, and those of dcbm. */
#include "engine.h"
#include "files.h"
#include "migrator.h"
#include "modules.h"
#include "nodes.h"
#include "tap.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEBUG	"/sys/kernel/debug"
#define ENGINE	DEBUG "/faultdma"
#define DRIVER	"/sys/bus/platform/drivers/faultdma"

static const char *const faults[] = {
	"delay_us", "shuffle", "error_every", "false_every", "half_every", "abort_every",
	"hang_every", "late_ms", "late_answer", "silent_every", "tell_after_us", "prep_every",
	"submit_every", "depth", "give_back_ms", "prep_ms",
};

/* Devices that were taken from their drivers. */
static struct other {
	char driver[PATH_MAX];
	char device[NAME_MAX + 1];
} others[64];

static unsigned int nr_others;

static void others_back(void)
{
	while (nr_others) {
		struct other *other = &others[--nr_others];

		if (file_write(other->device, "%s/bind", other->driver))
			tap_note("%s did not come back", other->device);
	}
}

/* The first channel of another driver leaves; false if there is none. */
static bool other_away(void)
{
	struct other *other = &others[nr_others];
	struct dirent *entry;
	bool found = false;
	DIR *folder;

	folder = opendir("/sys/class/dma");
	while (folder && !found && (entry = readdir(folder))) {
		char path[FILE_PATH], device[PATH_MAX];

		snprintf(path, sizeof(path), "/sys/class/dma/%.60s/device/driver", entry->d_name);
		if (entry->d_name[0] == '.' || !realpath(path, other->driver) ||
		    strstr(other->driver, "/faultdma"))
			continue;
		*strrchr(path, '/') = '\0';
		if (!realpath(path, device))
			continue;
		snprintf(other->device, sizeof(other->device), "%.255s", strrchr(device, '/') + 1);
		found = true;
	}
	if (folder)
		closedir(folder);
	if (!found)
		return false;
	if (nr_others + 1 == ARRAY_SIZE(others) ||
	    file_write(other->device, "%s/unbind", other->driver))
		tap_bail("%s cannot be taken from its driver", other->device);
	nr_others++;
	return true;
}

/* Takes the machine's own engines away until the program ends. */
static void engine_alone(void)
{
	atexit(others_back);
	while (other_away())
		;
	if (nr_others)
		tap_note("%u other DMA engines are away", nr_others);
}

void engine_test(void)
{
	tap_start();
	nodes_with_memory();
	migrator_needed();
	engine_alone();
	atexit(migrator_defaults);
}

void engine_start(const char *parameters)
{
	module_need("faultdma", "%s", parameters);
	migrator_need("dcbm");
	dcbm_slack(SLACK_MS);
	file_need("0", MIN_BATCH_BYTES);
}

bool engine_stop(void)
{
	if (file_write("none", MIGRATION "/migrator"))
		return false;
	/* Works of dcbm that have just ended, and channels being released. */
	for (int try = 0; try < 100; try++) {
		if (module_loaded("dcbm"))
			module_unload("dcbm");
		if (!module_loaded("dcbm") && module_loaded("faultdma"))
			module_unload("faultdma");
		if (!module_loaded("dcbm") && !module_loaded("faultdma"))
			return true;
		usleep(50000);
	}
	return false;
}

void engine_set_one(unsigned int channel, const char *fault, unsigned int value)
{
	file_need_number(value, ENGINE "/%u/%s", channel, fault);
}

void engine_set(const char *fault, unsigned int value)
{
	for (unsigned int channel = 0; file_exists(ENGINE "/%u", channel); channel++)
		engine_set_one(channel, fault, value);
}

void engine_heal(void)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(faults); i++)
		engine_set(faults[i], 0);
}

bool engine_rebind(void)
{
	long long lanes = file_number(DCBM "/lanes");
	bool released;

	file_need("faultdma", DRIVER "/unbind");
	released = !quarantined_bytes() && !dcbm_devices("faultdma");
	file_need("faultdma", DRIVER "/bind");
	file_need_number(lanes, DCBM "/lanes");
	return released;
}

long long engine_count_one(unsigned int channel, const char *count)
{
	long long one = file_number(ENGINE "/%u/count_%s", channel, count);

	if (one < 0)
		tap_bail("faultdma/%u/count_%s: %s", channel, count, strerror(-one));
	return one;
}

long long engine_count(const char *count)
{
	long long sum = 0;

	for (unsigned int channel = 0; file_exists(ENGINE "/%u", channel); channel++)
		sum += engine_count_one(channel, count);
	return sum;
}

unsigned int dcbm_devices(const char *text)
{
	char page[4097], *line;
	unsigned int found = 0;

	if (file_read(page, sizeof(page), DCBM "/devices"))
		return 0;
	for (line = strtok(page, "\n"); line; line = strtok(NULL, "\n"))
		found += !!strstr(line, text);
	return found;
}

void dcbm_slack(unsigned int ms)
{
	file_need_number(ms, "/sys/module/dcbm/parameters/slack_ms");
}

long long quarantined_bytes(void)
{
	return file_number(MIGRATION "/quarantined_bytes");
}
