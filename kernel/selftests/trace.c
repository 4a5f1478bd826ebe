// SPDX-License-Identifier: GPL-2.0-only
/* Trace events through an instance of tracefs. */
#include "trace.h"
#include "files.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRACING		"/sys/kernel/tracing"

/* Per CPU. */
#define BUFFER_KIB	8192

static char instance[FILE_PATH / 2];

static void remove_instance(void)
{
	rmdir(instance);
}

static void make_instance(void)
{
	if (instance[0])
		return;
	snprintf(instance, sizeof(instance), TRACING "/instances/selftests-%d", getpid());
	if (mkdir(instance, 0755))
		tap_bail("%s: %s", instance, strerror(errno));
	atexit(remove_instance);
	file_write_number(BUFFER_KIB, "%s/buffer_size_kb", instance);
	/* One order over all CPUs. */
	file_need("global", "%s/trace_clock", instance);
	file_write("1", "%s/options/irq-info", instance);
	file_write("0", "%s/options/overwrite", instance);
}

/* Opening it for a new beginning is what empties the buffer. */
static void empty(void)
{
	char path[FILE_PATH];
	int fd;

	snprintf(path, sizeof(path), "%s/trace", instance);
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	if (fd < 0)
		tap_bail("%s: %s", path, strerror(errno));
	close(fd);
}

void trace_start(const char *const *events)
{
	make_instance();
	file_write("0", "%s/tracing_on", instance);
	file_write("0", "%s/events/enable", instance);
	for (; *events; events++)
		file_need("1", "%s/events/%s/enable", instance, *events);
	empty();
	file_write("1", "%s/tracing_on", instance);
}

static long long lost_events(void)
{
	long long lost = 0;
	char path[FILE_PATH];

	for (int cpu = 0; ; cpu++) {
		snprintf(path, sizeof(path), "%s/per_cpu/cpu%d/stats", instance, cpu);
		if (!file_exists("%s", path))
			return lost;
		lost += file_field(path, "overrun") + file_field(path, "dropped events");
	}
}

/*
 * "   command-123     [001] d.h1.  12.345678: event_name: field=1 other=2"; the third flag is '.'
 * outside of interrupts.
 */
static bool parse(char *line, struct trace_event *event)
{
	char *cpu = strstr(line, " ["), *pid, *end, flags[16];
	int length = 0;

	if (line[0] == '#' || !cpu)
		return false;
	*cpu = '\0';
	pid = strrchr(line, '-');
	if (!pid)
		return false;
	event->pid = atoi(pid + 1);
	if (sscanf(cpu + 2, "%d] %15s %lf: %47[^:]: %n", &event->cpu, flags, &event->seconds,
		   event->name, &length) < 4 || strlen(flags) < 3)
		return false;
	event->interrupt = flags[2] != '.';
	end = cpu + 2 + length;
	end[strcspn(end, "\n")] = '\0';
	snprintf(event->fields, sizeof(event->fields), "%.255s", end);
	return true;
}

size_t trace_stop(struct trace_event **events)
{
	size_t count = 0, space = 0;
	char path[FILE_PATH], line[1024];
	FILE *file;

	file_write("0", "%s/tracing_on", instance);
	file_write("0", "%s/events/enable", instance);
	if (lost_events())
		tap_bail("the trace buffer was too small: %lld events lost", lost_events());
	*events = NULL;
	snprintf(path, sizeof(path), "%s/trace", instance);
	file = fopen(path, "re");
	if (!file)
		tap_bail("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		if (count == space) {
			space = space ? 2 * space : 1024;
			*events = realloc(*events, space * sizeof(**events));
			if (!*events)
				tap_bail("no memory for a trace");
		}
		if (parse(line, &(*events)[count]))
			count++;
	}
	fclose(file);
	return count;
}

bool trace_is(const struct trace_event *event, const char *name)
{
	return !strcmp(event->name, name);
}

long long trace_field(const struct trace_event *event, const char *field)
{
	size_t length = strlen(field);
	const char *at = event->fields;

	while ((at = strstr(at, field))) {
		if (at[length] == '=' && (at == event->fields || at[-1] == ' '))
			return strtoll(at + length + 1, NULL, 0);
		at += length;
	}
	return -1;
}
