/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The model of a machine whose memory takes time: what its files share. docs/design/timed.md says what is modelled.
 * Times are picoseconds (ps) of the guest unless a name says otherwise.
 *
 *   translate.c  what each instruction costs, and what calls the model
 *   memory.c     TLB, page walks, caches, streams, memory nodes
 *   clock.c      the CPUs' clocks, how they keep together, and QEMU's view of time
 *   call.c       what the guest may ask, and the totals
 *   parameters.c the file of parameters
 */
#ifndef TIMED_H
#define TIMED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qemu.h"

enum { MAX_CPUS = 16, MAX_NODES = 8, LINE_SHIFT = 6, PAGE_SHIFT = 12 };

/* What the file of parameters says; the same names, and lab/timed.toml has where each number comes from. */
struct parameters {
	uint64_t cpus, nodes;
	uint64_t node_bytes[MAX_NODES], node_fd[MAX_NODES], node_mb_per_s[MAX_NODES];
	uint64_t cpu_node[MAX_CPUS], cpu_group[MAX_CPUS];
	uint64_t latency_ps[MAX_NODES][MAX_NODES];
	uint64_t instruction_ps;
	/* Misses: whether they overlap, within how many instructions, how many at once; lines that a stream has under way. */
	uint64_t overlap, window_instructions, lines_under_way, stream_lines;
	uint64_t l1_bytes, l1_ways;
	uint64_t private_bytes, private_ways, private_hit_ps;
	uint64_t shared_bytes, shared_ways, shared_hit_ps;
	uint64_t from_other_cpu_ps;
	uint64_t tlb_entries, tlb_ways, tlb_hit_ps;
	/* How far a CPU may be ahead of another, and after what time it looks. */
	uint64_t skew_ps, quantum_ps;
	uint64_t syscall_ps, exception_ps, cr3_ps, invlpg_ps, wrmsr_ps, rdtsc_ps, pause_ps, atomic_ps, fence_ps, port_ps, mmio_ps;
	uint64_t wake_ps;
	char truth[4096];
};
extern struct parameters parameters;
/* Returns NULL, or what is wrong. */
const char *parameters_read(const char *path);

/* What translated code itself counts, of each CPU. */
struct score {
	/* Time since the clock was last moved, and instructions in all. */
	uint64_t spent, instructions;
	/* The virtual line of the last access, times two, plus one for a store: such another is free. ~0: none. */
	uint64_t line;
};
extern struct qemu_plugin_scoreboard *scores;

struct tlb_entry {
	uint64_t page;		/* virtual page number */
	uint64_t to;		/* physical address of the page */
	uint32_t generation;
};

struct cache {
	/* sets x ways, most recently used first; a tag is the line + 1, with MODIFIED. 0: empty. A set changes under a lock. */
	_Atomic uint32_t *tags;
	uint32_t sets, ways;
};

enum { STREAMS = 16, NEAR_PAGES = 64, TABLES = 32 };

/* A CPU; its own thread alone writes it, but for its caches, from which other CPUs take lines. */
struct cpu {
	/* Guards l1 and private. */
	atomic_flag caches;
	struct score *score;
	unsigned int index, node, group;
	uint64_t cr3;

	struct tlb_entry near[NEAR_PAGES];	/* by page number: stands for the first-level TLB */
	struct tlb_entry *tlb, *large;		/* base pages and pages of 2 MiB */
	struct tlb_entry tables[TABLES];	/* page tables by their 2 MiB */
	uint32_t generation, global_generation, table_generation;

	struct cache l1, private;
	uint64_t stream_next[STREAMS], stream_length[STREAMS];
	unsigned int stream_turn;
	uint64_t group_start, group_lines, nontemporal_line;

	uint64_t accesses, private_hits, shared_hits, from_other_cpu, tlb_misses, tlb_flushes;
	uint64_t misses[MAX_NODES], written[MAX_NODES];
	uint64_t walk_failures;
	struct byte_array *bytes;
	struct qemu_plugin_register *registers[16];
} __attribute__((aligned(128)));
extern struct cpu cpus[MAX_CPUS];

/* memory.c */
void memory_start(void);
void memory_cpu(struct cpu *cpu);
void memory_load(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);
void memory_store(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);
void memory_nontemporal(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);
void memory_flush(struct cpu *cpu, bool global);
void memory_flush_page(struct cpu *cpu, uint64_t address);
/*
 * The host's address of what the guest's program may write at this virtual address, or NULL: nothing is charged. Valid up to the end
 * of the page.
 */
void *memory_at(struct cpu *cpu, uint64_t address);

/* clock.c */
void clock_start(void);
void clock_end(void);
void clock_look(unsigned int cpu, void *data);
/* The CPU waits until no other is behind: before it reads its clock, and in loops that wait for another. */
void clock_exact(unsigned int cpu, void *data);
void clock_idle(qemu_plugin_id_t id, unsigned int cpu);
void clock_resume(qemu_plugin_id_t id, unsigned int cpu);
uint64_t clock_of(unsigned int cpu);
uint64_t clock_halted(unsigned int cpu);
struct clock_account {
	uint64_t greatest_skew, skew_violations, greatest_lateness, given_up;
};
struct clock_account clock_account(void);

/* translate.c */
void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
uint64_t register_value(struct cpu *cpu, unsigned int number);
void registers_find(struct cpu *cpu);

/* call.c */
void call(unsigned int cpu, void *data);
/* A line came from memory for this virtual address; it counts so much. */
void call_missed(struct cpu *cpu, uint64_t address, uint64_t physical, uint32_t weight);
void call_write_truth(void);

#endif
