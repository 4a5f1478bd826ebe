/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The part of QEMU's plugin interface that the model uses (version 4, QEMU 10.0 and later), and of glib's that it passes.
 * Debian ships no qemu-plugin.h. What the functions do is in QEMU's documentation, "QEMU TCG Plugins".
 */
#ifndef TIMED_QEMU_H
#define TIMED_QEMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QEMU_INTERFACE 4
#define EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;

struct qemu_info {
	const char *target_name;
	struct {
		int min, cur;
	} version;
	bool system_emulation;
	struct {
		int smp_vcpus, max_vcpus;
	} system;
};

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
struct qemu_plugin_scoreboard;
struct qemu_plugin_register;

/* A u64 of each CPU's entry in a scoreboard. */
typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;

enum { CB_NO_REGS, CB_R_REGS };
enum { INLINE_ADD_U64 };
/* Unsigned comparisons of the entry with a constant. */
enum { COND_GE = 7 };
enum { MEM_R = 1, MEM_W };

typedef void (*vcpu_simple_cb)(qemu_plugin_id_t id, unsigned int cpu);
typedef void (*vcpu_cb)(unsigned int cpu, void *data);
typedef void (*vcpu_mem_cb)(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);
typedef void (*vcpu_tb_trans_cb)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
typedef void (*plugin_cb)(qemu_plugin_id_t id, void *data);

void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id, vcpu_simple_cb cb);
void qemu_plugin_register_vcpu_idle_cb(qemu_plugin_id_t id, vcpu_simple_cb cb);
void qemu_plugin_register_vcpu_resume_cb(qemu_plugin_id_t id, vcpu_simple_cb cb);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, vcpu_tb_trans_cb cb);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, plugin_cb cb, void *data);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t at);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t bytes);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);

void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb, int op, qemu_plugin_u64 entry, uint64_t value);
void qemu_plugin_register_vcpu_tb_exec_cond_cb(struct qemu_plugin_tb *tb, vcpu_cb cb, int flags, int cond, qemu_plugin_u64 entry,
					       uint64_t value, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, vcpu_cb cb, int flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, vcpu_mem_cb cb, int flags, int rw, void *data);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *address);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *address);

struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t bytes);
void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *score, unsigned int cpu);

/* glib's. */
struct byte_array {
	uint8_t *data;
	unsigned int len;
};
struct array {
	char *data;
	unsigned int len;
};
struct byte_array *g_byte_array_new(void);
struct byte_array *g_byte_array_set_size(struct byte_array *array, unsigned int bytes);

struct register_descriptor {
	struct qemu_plugin_register *handle;
	const char *name;
	const char *feature;
};
struct array *qemu_plugin_get_registers(void);
int qemu_plugin_read_register(struct qemu_plugin_register *handle, struct byte_array *to);

#endif
