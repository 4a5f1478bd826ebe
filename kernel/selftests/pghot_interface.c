// SPDX-License-Identifier: GPL-2.0-only
/*
 * pghot_interface: every sysctl and every file of debugfs of hot-page tracking takes what it
 * documents, gives it back, and refuses everything else with EINVAL without any change. Nobody
 * but root may write.
 */
#include "files.h"
#include "heat.h"
#include "nodes.h"
#include "pghot.h"
#include "settings.h"
#include "tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
		.name = "pghot_freq_threshold",
		.good = { { "1", NULL }, { "3\n", "3" }, { "0x2", "2" } },
		.bad = { "0", "8", "258", "4294967298", NOT_NUMBERS },
	},
	{
		.name = "pghot_promote_freq_window_ms",
		.good = { { "256", NULL }, { "3326\n", "3326" }, { "0x3e8", "1000" } },
		.bad = { "0", "15", "14610", "16384", "4294968296", NOT_NUMBERS },
	},
	{
		.name = "pghot_promote_rate_limit_MBps",
		.good = { { "1", NULL }, { "4194304\n", "4194304" }, { "65536", NULL } },
		.bad = { "0", "4194305", "4294967297", NOT_NUMBERS },
	},
};

static const struct setting files[] = {
	{
		.name = "kmigrated_sleep_ms",
		.good = { { "50", NULL }, { "1000\n", "1000" }, { "100", NULL } },
		.bad = { "0", "49", "1001", "4294967396", NOT_NUMBERS },
	},
	{
		.name = "kmigrated_batch_nr",
		.good = { { "64", NULL }, { "1024\n", "1024" }, { "512", NULL } },
		.bad = { "0", "63", "1025", "4294967808", NOT_NUMBERS },
	},
	{
		.name = "exchange",
		.good = { { "0", NULL }, { "1\n", "1" } },
		.bad = { "2", "4294967297", "y", NOT_NUMBERS },
	},
	{
		.name = "scan_period_ms",
		.good = { { "50", NULL }, { "60000\n", "60000" }, { "250", NULL } },
		.bad = { "0", "49", "60001", "4294967546", NOT_NUMBERS },
	},
	{
		.name = "scan_rate_pages_ps",
		.good = { { "32768", NULL }, { "2147483647\n", "2147483647" }, { "4194304", NULL } },
		.bad = { "0", "32767", "2147483648", "4299161600", NOT_NUMBERS },
	},
	{
		.name = "weights",
		.good = {
			{ "1 1 1", NULL }, { "65535 1 0x10\n", "65535 1 16" }, { "2 2 1", NULL },
		},
		.bad = {
			"1", "1 1", "1 1 1 1", "0 1 1", "1 0 1", "1 1 0", "65536 1 1", "1 1 65536",
			"1  1 1", "1,1,1", "a b c", "1 1 1x", "-1 1 1", " ", "\n",
			"1 1 99999999999999999999",
		},
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
		{ PGHOT_SYSCTL "freq_threshold", 2 },
		{ PGHOT_SYSCTL "promote_rate_limit_MBps", 65536 },
		{ PGHOT_DEBUGFS "/kmigrated_sleep_ms", 100 },
		{ PGHOT_DEBUGFS "/kmigrated_batch_nr", 512 },
		{ PGHOT_DEBUGFS "/exchange", 1 },
		{ PGHOT_DEBUGFS "/scan_period_ms", 250 },
		{ PGHOT_DEBUGFS "/scan_rate_pages_ps", 4194304 },
	};
	char text[64] = "", line[1024] = "";
	const char *format;

	for (unsigned int n = 0; n < ARRAY_SIZE(values); n++)
		tap_ok(file_number("%s", values[n].path) == values[n].value, "%s is %lld at first",
		       strrchr(values[n].path, '/') + 1, values[n].value);
	tap_ok(!file_read(text, sizeof(text), PGHOT_DEBUGFS "/weights") && !strcmp(text, "2 2 1"),
	       "weights are 2 2 1 at first");
	tap_ok(!file_read(text, sizeof(text), PGHOT_DEBUGFS "/hwhints_event") && !text[0],
	       "no event is chosen at first");
	file_read(line, sizeof(line), "/proc/cmdline");
	format = strstr(line, "pghot=precise") ? "precise" : "default";
	tap_ok(file_number(PGHOT_SYSCTL "promote_freq_window_ms") ==
	       (strcmp(format, "precise") ? 3000 : 5000), "the window is the published one at first");
	tap_ok(!file_read(text, sizeof(text), PGHOT_DEBUGFS "/format") && !strcmp(text, format),
	       "records have the format %s, as the kernel was told", format);
	tap_ok(!pghot_counter("pghot_record_bytes") && !heat_of_node(-1).sections,
	       "nothing has records at first");
}

static void test_counters(void)
{
	static const char *const names[] = {
		"pghot_recorded_accesses", "pghot_recorded_hintfaults", "pghot_recorded_hwhints",
		"pghot_recorded_pgtscans", "pghot_refused_latency", "pghot_refused_pace",
		"pghot_refused_isolation", "pghot_promoted", "pghot_exchanged", "pghot_demoted",
		"pghot_wasted_promotions", "pghot_bounced", "pghot_record_bytes",
		"pghot_scanned_ptes", "pghot_scan_us", "pghot_kmigrated_wakeups",
	};
	bool there = true;

	for (unsigned int n = 0; n < ARRAY_SIZE(names); n++) {
		if (file_field("/proc/vmstat", names[n]) >= 0)
			continue;
		tap_note("/proc/vmstat has no %s", names[n]);
		there = false;
	}
	tap_ok(there, "/proc/vmstat has all counters");
}

static void test_permissions(void)
{
	bool modes = true;

	for (unsigned int n = 0; n < of_sysctls.nr; n++)
		modes &= setting_mode_is(&of_sysctls, sysctls[n].name, 0644);
	for (unsigned int n = 0; n < of_debugfs.nr; n++)
		modes &= setting_mode_is(&of_debugfs, files[n].name, 0644);
	tap_ok(modes, "what can be set is root's, mode 0644");
	tap_ok(setting_mode_is(&of_debugfs, "heat", 0444) &&
	       setting_mode_is(&of_debugfs, "format", 0444) &&
	       setting_mode_is(&of_debugfs, "status", 0444), "what cannot has mode 0444");
}

/* What perf itself does not know is refused with its error. */
static void test_events(void)
{
	char text[64] = "";
	int error;

	file_write(SOME_EVENT, PGHOT_DEBUGFS "/hwhints_event");
	error = file_write("4000000000 1 1000", PGHOT_DEBUGFS "/hwhints_event");
	file_read(text, sizeof(text), PGHOT_DEBUGFS "/hwhints_event");
	tap_ok(error < 0 && !strcmp(text, SOME_EVENT), "an event that no PMU has is refused");
	tap_note("error %d", error);
	file_write("\n", PGHOT_DEBUGFS "/hwhints_event");
}

/* What a format has room for, to the last value: a count, and a stamp that comes round. */
static void test_format_limits(void)
{
	static const struct {
		const char *file;
		long long least, most;			/* of one byte */
		long long precise_least, precise_most;	/* of four */
	} limits[] = {
		{ "freq_threshold", 1, 3, 1, 7 },
		{ "promote_freq_window_ms", 256, 3326, 16, 14609 },
	};
	char format[16] = "", path[64];

	file_read(format, sizeof(format), PGHOT_DEBUGFS "/format");
	for (unsigned int n = 0; n < ARRAY_SIZE(limits); n++) {
		bool precise = !strcmp(format, "precise");
		long long least = precise ? limits[n].precise_least : limits[n].least;
		long long most = precise ? limits[n].precise_most : limits[n].most;

		snprintf(path, sizeof(path), PGHOT_SYSCTL "%s", limits[n].file);
		tap_ok(!file_write_number(least, "%s", path) && file_number("%s", path) == least &&
		       file_write_number(least - 1, "%s", path) == -EINVAL &&
		       file_number("%s", path) == least, "%s, %s: %lld and not less", format,
		       limits[n].file, least);
		tap_ok(!file_write_number(most, "%s", path) && file_number("%s", path) == most &&
		       file_write_number(most + 1, "%s", path) == -EINVAL &&
		       file_number("%s", path) == most, "%s, %s: %lld and not more", format,
		       limits[n].file, most);
	}
}

/* The limit of NUMA balancing is the same number. */
static void test_alias(void)
{
	static const char *const limits[] = {
		PGHOT_SYSCTL "promote_rate_limit_MBps",
		"/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps",
	};

	for (int n = 0; n < 2; n++)
		tap_ok(!file_write_number(1234 + n, "%s", limits[n]) &&
		       file_number("%s", limits[!n]) == 1234 + n, "%s is %s", limits[n], limits[!n]);
	file_write("65536", "%s", limits[0]);
}

int main(void)
{
	tap_start();
	if (nodes_with_memory() != 3 || node_slow() != 2)
		tap_bail("this test is for three nodes of which the last one is slow");
	mount_once("debugfs", "/sys/kernel/debug");
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
