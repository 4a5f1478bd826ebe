// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_interface [one-tier]: every sysctl and every file of debugfs of hot-page tracking takes what
 * it documents, gives it back, and refuses everything else with EINVAL without any change. Nobody
 * but root may write. "one-tier" is for a kernel that knows of no slower memory, where all
 * sources may be on, and do nothing.
 */
#include "content.h"
#include "files.h"
#include "heat.h"
#include "nodes.h"
#include "pghot.h"
#include "settings.h"
#include "tap.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define TIERS	"/sys/devices/virtual/memory_tiering"
#define ONE_TIER_BYTES	(4UL << 20)

/* Minor faults, each of them. */
#define SOME_EVENT	"1 5 1"

#define NOT_NUMBERS	"-1", "abc", "1 2", "0x", "1.5", " ", "\n", "+-1", "99999999999999999999", "1x"

static const struct setting sysctls[] = {
	{
		.name = "pghot_enabled_sources",
		.good = {
			{ "1", NULL }, { "2", NULL }, { "4\n", "4" }, { "0x7", "7" }, { "0", NULL },
		},
		.bad = { "8", "9", "256", "4294967295", "4294967296", "hintfaults", NOT_NUMBERS },
	},
	{
		.name = "pghot_target_nid",
		.good = { { "1", NULL }, { "0\n", "0" } },
		/* Of three nodes the last one is slow. */
		.bad = { "2", "3", "63", "64", "1023", "1024", "4294967295", NOT_NUMBERS },
	},
	{
		.name = "pghot_promote_rate_limit_MBps",
		.good = { { "1", NULL }, { "4194304\n", "4194304" }, { "65536", NULL } },
		.bad = { "0", "4194305", "4294967297", NOT_NUMBERS },
	},
	{
		.name = "pghot_promote_freq_window_ms",
		.good = { { "256", NULL }, { "3326\n", "3326" }, { "0x3e8", "1000" } },
		.bad = { "0", "15", "14610", "16384", "4294968296", NOT_NUMBERS },
	},
};

static const struct setting files[] = {
	{
		.name = "freq_threshold",
		.good = { { "1", NULL }, { "3\n", "3" }, { "0x2", "2" } },
		.bad = { "0", "8", "258", "4294967298", NOT_NUMBERS },
	},
	{
		.name = "hwhints_event",
		.good = {
			{ "1 5 1", NULL }, { "0x1 0x2 1000\n", "1 2 1000" }, { "\n", "" },
		},
		.bad = {
			"1", "1 5", "1 5 0", "1 5 1 1", "1 5 -1", "1 5 x", "a 5 1", "1  5 1",
			"1,5,1", "1 5 9223372036854775808", "4294967297 5 1",
			"1 5 99999999999999999999", "1 99999999999999999999 1", "none",
		},
	},
};

static const struct settings of_sysctls = {
	.root = "/proc/sys/vm", .list = sysctls, .nr = ARRAY_SIZE(sysctls),
};

static const struct settings of_debugfs = {
	.root = PGHOT_DEBUGFS, .list = files, .nr = ARRAY_SIZE(files),
};

static void test_boot_values(void)
{
	static const struct {
		const char *path;
		long long value;
	} values[] = {
		{ PGHOT_SYSCTL "enabled_sources", 0 },
		{ PGHOT_SYSCTL "target_nid", 0 },
		{ PGHOT_RATE, 65536 },
		{ PGHOT_THRESHOLD, 2 },
	};
	char text[64] = "", line[1024] = "";
	bool precise;

	for (unsigned int n = 0; n < ARRAY_SIZE(values); n++)
		tap_ok(file_number("%s", values[n].path) == values[n].value, "%s is %lld at first",
		       strrchr(values[n].path, '/') + 1, values[n].value);
	tap_ok(!file_read(text, sizeof(text), PGHOT_EVENT) && !text[0],
	       "no event is chosen at first");
	file_read(line, sizeof(line), "/proc/cmdline");
	precise = strstr(line, "pghot=precise");
	tap_ok(file_number(PGHOT_WINDOW) == (precise ? 5000 : 3000),
	       "the window is the published one at first");
	tap_ok(pghot_precise() == precise, "records have the format %s, as the kernel was told",
	       precise ? "precise" : "default");
	tap_ok(!pghot_status("record_bytes") && !heat_of_node(-1).sections,
	       "nothing has records at first");
}

static void test_counters(void)
{
	static const char *const names[] = {
		"pghot_recorded_accesses", "pghot_refused_latency", "pghot_refused_pace",
		"pghot_refused_room", "pghot_promoted", "pghot_demoted", "pghot_wasted",
	};
	static const char *const lines[] = {
		"recorded_hintfaults", "recorded_hwhints", "recorded_pgtscans", "exchanged",
		"bounced", "failed_pinned", "failed_owner", "failed_off_lru", "failed_no_block",
		"failed_busy", "scanned_ptes", "scan_us", "wakeups", "record_bytes",
	};

	for (unsigned int n = 0; n < ARRAY_SIZE(names); n++)
		tap_ok(file_field("/proc/vmstat", names[n]) >= 0, "/proc/vmstat has %s", names[n]);
	for (unsigned int n = 0; n < ARRAY_SIZE(lines); n++)
		tap_ok(file_field(PGHOT_DEBUGFS "/status", lines[n]) >= 0, "status has %s",
		       lines[n]);
}

static unsigned int files_in(const char *folder, const char *prefix)
{
	DIR *entries = opendir(folder);
	struct dirent *entry;
	unsigned int nr = 0;

	while (entries && (entry = readdir(entries)))
		nr += entry->d_name[0] != '.' && !strncmp(entry->d_name, prefix, strlen(prefix));
	if (entries)
		closedir(entries);
	return nr;
}

static void test_permissions(void)
{
	bool modes = true;

	for (unsigned int n = 0; n < of_sysctls.nr; n++)
		modes &= setting_mode_is(&of_sysctls, sysctls[n].name, 0644);
	for (unsigned int n = 0; n < of_debugfs.nr; n++)
		modes &= setting_mode_is(&of_debugfs, files[n].name, 0644);
	tap_ok(modes, "what can be set is root's, mode 0644");
	tap_ok(files_in(of_sysctls.root, "pghot_") == of_sysctls.nr &&
	       files_in(of_debugfs.root, "") == of_debugfs.nr + 2,
	       "there are no files but these, status and heat");
	tap_ok(setting_mode_is(&of_debugfs, "heat", 0444) &&
	       setting_mode_is(&of_debugfs, "status", 0444), "what cannot has mode 0444");
}

/* What perf itself does not know is refused with its error. */
static void test_events(void)
{
	char text[64] = "";
	int error;

	file_write(SOME_EVENT, PGHOT_EVENT);
	error = file_write("4000000000 1 1000", PGHOT_EVENT);
	file_read(text, sizeof(text), PGHOT_EVENT);
	tap_ok(error < 0 && !strcmp(text, SOME_EVENT), "an event that no PMU has is refused");
	tap_note("error %d", error);
	file_write("\n", PGHOT_EVENT);
}

/* What a format has room for, to the last value: a count, and a stamp that comes round. */
static void test_format_limits(void)
{
	static const struct {
		const char *file;
		long long least, most;			/* of one byte */
		long long precise_least, precise_most;	/* of four */
	} limits[] = {
		{ PGHOT_THRESHOLD, 1, 3, 1, 7 },
		{ PGHOT_WINDOW, 256, 3326, 16, 14609 },
	};
	bool precise = pghot_precise();

	for (unsigned int n = 0; n < ARRAY_SIZE(limits); n++) {
		const char *path = limits[n].file;
		long long least = precise ? limits[n].precise_least : limits[n].least;
		long long most = precise ? limits[n].precise_most : limits[n].most;

		tap_ok(!file_write_number(least, "%s", path) && file_number("%s", path) == least &&
		       file_write_number(least - 1, "%s", path) == -EINVAL &&
		       file_number("%s", path) == least, "%s: %lld and not less", path, least);
		tap_ok(!file_write_number(most, "%s", path) && file_number("%s", path) == most &&
		       file_write_number(most + 1, "%s", path) == -EINVAL &&
		       file_number("%s", path) == most, "%s: %lld and not more", path, most);
	}
}

/* The limit of NUMA balancing is the same number. */
static void test_alias(void)
{
	static const char *const limits[] = {
		PGHOT_RATE,
		"/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps",
	};

	for (int n = 0; n < 2; n++)
		tap_ok(!file_write_number(1234 + n, "%s", limits[n]) &&
		       file_number("%s", limits[!n]) == 1234 + n, "%s is %s", limits[n], limits[!n]);
	file_write("65536", "%s", limits[0]);
}

static void test_one_tier(void)
{
	struct content *content;
	size_t pages;

	if (files_in(TIERS, "memory_tier") != 1 || node_slow() < 0)
		tap_bail("this test is for a node without CPUs in the tier of all others");
	pghot_init();
	content = pghot_memory(node_slow(), ONE_TIER_BYTES, false, 1);
	pages = ONE_TIER_BYTES / page_bytes();
	content_start_writers(content);
	for (int source = 0; source < PGHOT_SOURCES; source++) {
		long long scanned, recorded, bytes;

		if (!pghot_has(source))
			continue;
		scanned = pghot_status("scanned_ptes");
		recorded = pghot_counter("pghot_recorded_accesses");
		pghot_start(source);
		usleep(2000000);
		bytes = pghot_status("record_bytes");
		scanned = pghot_status("scanned_ptes") - scanned;
		recorded = pghot_counter("pghot_recorded_accesses") - recorded;
		pghot_stop();
		tap_ok(!bytes && !scanned && !recorded,
		       "one tier, %s: %lld bytes of records, %lld entries scanned, %lld recorded",
		       pghot_sources[source], bytes, scanned, recorded);
	}
	content_stop_writers(content);
	tap_ok(pghot_kmigrated(node_slow()) < 0, "one tier: no thread");
	tap_ok(pages_on(content->at, ONE_TIER_BYTES, node_slow()) == pages, "one tier: nothing moved");
	pghot_memory_drop(content);
}

int main(int argc, char **argv)
{
	tap_start();
	if (argc > 1 && !strcmp(argv[1], "one-tier")) {
		test_one_tier();
		return tap_done();
	}
	if (nodes_with_memory() != 3 || node_slow() != 2)
		tap_bail("this test is for three nodes of which the last one is slow");
	test_boot_values();
	pghot_init();
	test_counters();
	settings_test(&of_sysctls);
	settings_test(&of_debugfs);
	test_format_limits();
	test_events();
	test_alias();
	test_permissions();
	return tap_done();
}
