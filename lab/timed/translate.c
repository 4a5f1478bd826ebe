/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * QEMU's plugin: counts the instructions of each translated block, adds what expensive ones cost, and calls the model for each access
 * to memory and for each instruction that changes the TLB or reads the clock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timed.h"

struct qemu_plugin_scoreboard *scores;

EXPORT int qemu_plugin_version = QEMU_INTERFACE;

static qemu_plugin_u64 score_at(size_t offset)
{
	return (qemu_plugin_u64){ scores, offset };
}

/* The registers that instructions name by number. */
static const char *const REGISTERS[16] = {
	"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
};

void registers_find(struct cpu *cpu)
{
	struct array *known = qemu_plugin_get_registers();
	const struct register_descriptor *descriptors = (const void *)known->data;

	cpu->bytes = g_byte_array_new();
	for (unsigned int at = 0; at < known->len; at++) {
		for (unsigned int number = 0; number < 16; number++) {
			if (!strcmp(descriptors[at].name, REGISTERS[number]))
				cpu->registers[number] = descriptors[at].handle;
		}
	}
}

uint64_t register_value(struct cpu *cpu, unsigned int number)
{
	uint64_t value;

	g_byte_array_set_size(cpu->bytes, 0);
	/* A result other than the size is of a later interface: without cr3 there would be no TLB. */
	if (!cpu->registers[number] || !qemu_plugin_read_register(cpu->registers[number], cpu->bytes) ||
	    cpu->bytes->len != sizeof(value)) {
		fprintf(stderr, "timed: this QEMU does not tell the register %s\n", REGISTERS[number]);
		abort();
	}
	memcpy(&value, cpu->bytes->data, sizeof(value));
	return value;
}

static void loads_cr3(unsigned int index, void *data)
{
	struct cpu *cpu = &cpus[index];

	/* A kernel without PCID: QEMU's CPU has none. */
	cpu->cr3 = register_value(cpu, (uintptr_t)data);
	memory_flush(cpu, false);
}

static void loads_cr4(unsigned int cpu, void *data)
{
	(void)data;
	memory_flush(&cpus[cpu], true);
}

static void invalidates_page(unsigned int index, void *data)
{
	memory_flush_page(&cpus[index], register_value(&cpus[index], (uintptr_t)data));
}

/* An instruction behind its prefixes. */
struct decoded {
	uint8_t bytes[16];
	size_t count;
	const uint8_t *code;	/* opcode */
	uint8_t rex;
	bool operand_size, repeat, lock;
};

static struct decoded decode(const struct qemu_plugin_insn *insn)
{
	struct decoded d = { .count = 0 };
	size_t at = 0;

	d.count = qemu_plugin_insn_data(insn, d.bytes, 15);
	for (; at < d.count; at++) {
		uint8_t byte = d.bytes[at];

		if (byte == 0x66)
			d.operand_size = true;
		else if (byte == 0xf3 || byte == 0xf2)
			d.repeat = byte == 0xf3;
		else if (byte == 0xf0)
			d.lock = true;
		else if (byte != 0x2e && byte != 0x3e && byte != 0x26 && byte != 0x36 && byte != 0x64 && byte != 0x65)
			break;
	}
	if ((d.bytes[at] & 0xf0) == 0x40)
		d.rex = d.bytes[at++];
	d.code = d.bytes + at;
	return d;
}

/* movnti, movntdq, movntq, movntps, movntpd, and the same with VEX. */
static bool is_nontemporal(const struct decoded *d)
{
	if (d->code[0] == 0x0f)
		return d->code[1] == 0xc3 || d->code[1] == 0xe7 || d->code[1] == 0x2b;
	if (d->code[0] == 0xc5)
		return d->code[2] == 0xe7 || d->code[2] == 0x2b;
	if (d->code[0] == 0xc4)
		return (d->code[1] & 0x1f) == 1 && (d->code[3] == 0xe7 || d->code[3] == 0x2b);
	return false;
}

/* The byte sequence of the guest's call: nopl 0x4d54464d(%rax). */
static const uint8_t CALL[] = { 0x0f, 0x1f, 0x80, 0x4d, 0x46, 0x54, 0x4d };

/* What an instruction costs beside instruction_ps; registers what it calls. */
static uint64_t special(struct qemu_plugin_insn *insn, const struct decoded *d)
{
	const struct parameters *p = &parameters;
	const uint8_t *code = d->code;
	uint8_t modrm;
	uintptr_t operand;

	if (code[0] == 0x90 && d->repeat) {
		/* A loop that waits for another CPU: it is not ahead of it, and looks at the line anew. */
		qemu_plugin_register_vcpu_insn_exec_cb(insn, clock_exact, CB_NO_REGS, NULL);
		return p->pause_ps;
	}
	if (code[0] == 0xcf)
		return p->exception_ps;
	if ((code[0] >= 0xe4 && code[0] <= 0xe7) || (code[0] >= 0xec && code[0] <= 0xef))
		return p->port_ps;
	/* xchg with memory has no prefix. */
	if (d->lock || ((code[0] & 0xfe) == 0x86 && code[1] >> 6 != 3))
		return p->atomic_ps;
	if (code[0] != 0x0f)
		return 0;
	if (d->count >= sizeof(CALL) && !memcmp(d->bytes, CALL, sizeof(CALL))) {
		qemu_plugin_register_vcpu_insn_exec_cb(insn, call, CB_R_REGS, NULL);
		return 0;
	}
	modrm = code[2];
	operand = (modrm & 7) | (d->rex & 1) << 3;
	switch (code[1]) {
	case 0x05:	/* syscall: with the sysret that follows */
		return p->syscall_ps;
	case 0x30:	/* wrmsr */
		return p->wrmsr_ps;
	case 0x31:	/* rdtsc */
		qemu_plugin_register_vcpu_insn_exec_cb(insn, clock_exact, CB_NO_REGS, NULL);
		return p->rdtsc_ps;
	case 0x22:	/* mov to a control register */
		if ((modrm >> 3 & 7) == 3 && qemu_plugin_insn_vaddr(insn) >> 63) {
			qemu_plugin_register_vcpu_insn_exec_cb(insn, loads_cr3, CB_R_REGS, (void *)operand);
			return p->cr3_ps;
		}
		if ((modrm >> 3 & 7) == 4)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, loads_cr4, CB_NO_REGS, NULL);
		return p->cr3_ps;
	case 0x01:
		if (modrm == 0xf9) {	/* rdtscp */
			qemu_plugin_register_vcpu_insn_exec_cb(insn, clock_exact, CB_NO_REGS, NULL);
			return p->rdtsc_ps;
		}
		if (modrm >> 6 != 3 && (modrm >> 3 & 7) == 7) {	/* invlpg */
			if (modrm >> 6 == 0 && (modrm & 7) != 4 && (modrm & 7) != 5)
				qemu_plugin_register_vcpu_insn_exec_cb(insn, invalidates_page, CB_R_REGS, (void *)operand);
			else
				qemu_plugin_register_vcpu_insn_exec_cb(insn, loads_cr4, CB_NO_REGS, NULL);
			return p->invlpg_ps;
		}
		return 0;
	case 0x38:
		if (d->operand_size && code[2] == 0x82) {	/* invpcid */
			qemu_plugin_register_vcpu_insn_exec_cb(insn, loads_cr4, CB_NO_REGS, NULL);
			return p->invlpg_ps;
		}
		return 0;
	case 0xae:	/* mfence, sfence, lfence */
		return modrm >= 0xe8 ? p->fence_ps : 0;
	default:
		return 0;
	}
}

void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb);
	uint64_t cost = count * parameters.instruction_ps;

	(void)id;
	for (size_t at = 0; at < count; at++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, at);
		struct decoded d = decode(insn);

		cost += special(insn, &d);
		qemu_plugin_register_vcpu_mem_cb(insn, memory_load, CB_NO_REGS, MEM_R, NULL);
		qemu_plugin_register_vcpu_mem_cb(insn, is_nontemporal(&d) ? memory_nontemporal : memory_store, CB_NO_REGS, MEM_W, NULL);
	}
	qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, clock_look, CB_NO_REGS, COND_GE, score_at(offsetof(struct score, spent)),
						  parameters.quantum_ps, NULL);
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, INLINE_ADD_U64, score_at(offsetof(struct score, spent)), cost);
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, INLINE_ADD_U64, score_at(offsetof(struct score, instructions)), count);
}

static void starts(qemu_plugin_id_t id, unsigned int index)
{
	struct cpu *cpu = &cpus[index];

	(void)id;
	memory_cpu(cpu);
	registers_find(cpu);
	/* From now on other CPUs look into its caches. */
	cpu->score = qemu_plugin_scoreboard_find(scores, index);
	cpu->score->line = ~0ull;
}

static void ends(qemu_plugin_id_t id, void *data)
{
	(void)id, (void)data;
	clock_end();
	call_write_truth();
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc, char **argv)
{
	const char *wrong = "no argument params=FILE";

	for (int at = 0; at < argc; at++) {
		if (!strncmp(argv[at], "params=", 7))
			wrong = parameters_read(argv[at] + 7);
	}
	if (!wrong && (!info->system_emulation || strcmp(info->target_name, "x86_64")))
		wrong = "the model is for qemu-system-x86_64";
	if (!wrong && (uint64_t)info->system.max_vcpus != parameters.cpus)
		wrong = "cpus differs from QEMU's -smp";
	if (wrong) {
		fprintf(stderr, "timed: %s\n", wrong);
		return -1;
	}
	scores = qemu_plugin_scoreboard_new(sizeof(struct score));
	memory_start();
	clock_start();
	qemu_plugin_register_vcpu_init_cb(id, starts);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
	qemu_plugin_register_vcpu_idle_cb(id, clock_idle);
	qemu_plugin_register_vcpu_resume_cb(id, clock_resume);
	qemu_plugin_register_atexit_cb(id, ends, NULL);
	return 0;
}
