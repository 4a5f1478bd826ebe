// SPDX-License-Identifier: GPL-2.0-only
/* The module movedelay. */
#include "delay.h"
#include "clock.h"
#include "files.h"
#include "migrator.h"
#include "modules.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

#define FIRED		"/sys/module/movedelay/parameters/fired"
#define OPTIMIZATION	"/proc/sys/debug/kprobes-optimization"

/* For a batch to come to its copy. */
#define PATIENCE_MS	100

static void stop_at_exit(void)
{
	delay_stop();
}

void delay_start(const char *migrator, unsigned int ms)
{
	static bool prepared;

	if (!migrator_copies(migrator))
		return;
	if (!prepared) {
		/* The jumps of optimized probes are what emulators patch badly. */
		file_set("0", OPTIMIZATION);
		atexit(stop_at_exit);
		prepared = true;
	}
	module_need("movedelay", "function=%s%s_copy ms=%u",
		    strcmp(migrator, "kernel") ? "" : "migrator_", migrator, ms);
}

unsigned int delay_stop(void)
{
	long long fired = file_number(FIRED);

	if (fired < 0)
		return 0;
	if (module_unload("movedelay"))
		tap_bail("movedelay cannot be unloaded");
	return fired;
}

void delay_await(const volatile bool *stop)
{
	long long end = now_ms() + PATIENCE_MS, fired = file_number(FIRED);

	while (fired >= 0 && !*stop && file_number(FIRED) == fired && now_ms() < end)
		;
}
