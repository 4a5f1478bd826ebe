/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The file of parameters: lines of a name and numbers, which cargo xtask writes from the machine's TOML. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timed.h"

struct parameters parameters;

static const struct {
	const char *name;
	uint64_t *to;
	unsigned int most;
} NAMES[] = {
#define ONE(name) { #name, &parameters.name, 1 }
#define MANY(name, most) { #name, parameters.name, most }
	ONE(cpus), MANY(node_bytes, MAX_NODES), MANY(node_fd, MAX_NODES), MANY(node_mb_per_s, MAX_NODES),
	MANY(cpu_node, MAX_CPUS), MANY(cpu_group, MAX_CPUS),
	ONE(instruction_ps), ONE(overlap), ONE(window_instructions), ONE(lines_under_way), ONE(stream_lines),
	ONE(l1_bytes), ONE(l1_ways), ONE(private_bytes), ONE(private_ways), ONE(private_hit_ps),
	ONE(shared_bytes), ONE(shared_ways), ONE(shared_hit_ps), ONE(from_other_cpu_ps),
	ONE(tlb_entries), ONE(tlb_ways), ONE(tlb_hit_ps), ONE(skew_ps), ONE(quantum_ps),
	ONE(syscall_ps), ONE(exception_ps), ONE(cr3_ps), ONE(invlpg_ps), ONE(wrmsr_ps), ONE(rdtsc_ps), ONE(pause_ps),
	ONE(atomic_ps), ONE(fence_ps), ONE(port_ps), ONE(mmio_ps), ONE(wake_ps),
};
enum { NAME_COUNT = sizeof(NAMES) / sizeof(NAMES[0]) };

static char problem[512];

static bool number(char **text, uint64_t *value)
{
	char *end;

	*text += strspn(*text, " \t");
	errno = 0;
	*value = strtoull(*text, &end, 10);
	if (end == *text || errno)
		return false;
	*text = end;
	return true;
}

/* Reads the numbers of a line. Returns how many, or -1 if there is something else or too many. */
static int numbers(char *text, uint64_t *to, unsigned int most)
{
	unsigned int count = 0;
	uint64_t value;

	while (number(&text, &value)) {
		if (count == most)
			return -1;
		to[count++] = value;
	}
	return text[strspn(text, " \t")] ? -1 : (int)count;
}

static const uint64_t MOST_BYTES = 127ull << 30;

static bool power_of_two(uint64_t value)
{
	return value && !(value & (value - 1));
}

static const char *check(const bool *seen, unsigned int latency_rows)
{
	const struct parameters *p = &parameters;
	uint64_t bytes = 0;

	for (unsigned int at = 0; at < NAME_COUNT; at++) {
		if (!seen[at]) {
			snprintf(problem, sizeof(problem), "%s is missing", NAMES[at].name);
			return problem;
		}
	}
	if (p->cpus > MAX_CPUS || !p->cpus)
		return "cpus must be from 1 to 16";
	for (unsigned int cpu = 0; cpu < p->cpus; cpu++) {
		if (p->cpu_node[cpu] >= p->nodes || p->cpu_group[cpu] >= MAX_CPUS)
			return "cpu_node or cpu_group names a node or group that there is not";
		if (!(latency_rows >> p->cpu_node[cpu] & 1))
			return "latency_ps must have a row for each node with CPUs";
	}
	if (!power_of_two(p->tlb_ways) || !power_of_two(p->tlb_entries / p->tlb_ways) || !p->instruction_ps || !p->quantum_ps ||
	    !p->stream_lines || !p->lines_under_way || !p->l1_ways || !p->private_ways || !p->shared_ways)
		return "tlb_entries / tlb_ways must be a power of two, and times and lines more than 0";
	for (unsigned int node = 0; node < p->nodes; node++) {
		bytes += p->node_bytes[node];
		if (!p->node_mb_per_s[node])
			return "node_mb_per_s must be more than 0";
	}
	/* A tag of a cache is a line's number and one bit. */
	return bytes > MOST_BYTES ? "node_bytes are more than 127 GiB" : NULL;
}

const char *parameters_read(const char *path)
{
	bool seen[NAME_COUNT] = { false };
	unsigned int latency_rows = 0;
	char line[4200];
	FILE *file = fopen(path, "r");
	const char *wrong = NULL;

	if (!file) {
		snprintf(problem, sizeof(problem), "%.300s: %s", path, strerror(errno));
		return problem;
	}
	while (!wrong && fgets(line, sizeof(line), file)) {
		unsigned int at;
		char *name, *rest;
		uint64_t row;
		int count;

		line[strcspn(line, "#\n")] = 0;
		name = line + strspn(line, " \t");
		if (!*name)
			continue;
		rest = name + strcspn(name, " \t");
		if (*rest)
			*rest++ = 0;
		snprintf(problem, sizeof(problem), "%s has wrong numbers:%.300s", name, rest);
		if (!strcmp(name, "truth")) {
			snprintf(parameters.truth, sizeof(parameters.truth), "%s", rest + strspn(rest, " \t"));
			continue;
		}
		if (!strcmp(name, "latency_ps")) {
			if (!number(&rest, &row) || row >= MAX_NODES || numbers(rest, parameters.latency_ps[row], MAX_NODES) < 1)
				wrong = problem;
			else
				latency_rows |= 1u << row;
			continue;
		}
		for (at = 0; at < NAME_COUNT && strcmp(name, NAMES[at].name); at++)
			;
		if (at == NAME_COUNT) {
			snprintf(problem, sizeof(problem), "%s is no parameter of the model", name);
			wrong = problem;
			continue;
		}
		count = numbers(rest, NAMES[at].to, NAMES[at].most);
		if (count < 1)
			wrong = problem;
		else
			seen[at] = true;
		if (!strcmp(name, "node_bytes"))
			parameters.nodes = count < 0 ? 0 : count;
	}
	fclose(file);
	return wrong ? wrong : check(seen, latency_rows);
}
