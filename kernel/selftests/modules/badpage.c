// SPDX-License-Identifier: GPL-2.0-only
/*
 * badpage: one page of memory that no copy can read: copy_mc_to_kernel() says that it stopped at
 * the page's first byte, as after a machine check. Counts these copies, and how often
 * memory_failure_queue() is told of the page.
 */
#include <linux/atomic.h>
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/module.h>

static unsigned long pfn;
module_param(pfn, ulong, 0444);
MODULE_PARM_DESC(pfn, "frame of the page");

static atomic_t reads;
module_param_named(reads, reads.counter, int, 0444);

static atomic_t reports;
module_param_named(reports, reports.counter, int, 0444);

static noinline void return_at_once(void)
{
	barrier();
}

/* copy_mc_to_kernel(dst, src, len) returns the bytes that are left. */
static int fail_copy(struct kprobe *probe, struct pt_regs *regs)
{
	unsigned long src = regs_get_kernel_argument(regs, 1);
	unsigned long end = src + (unsigned int)regs_get_kernel_argument(regs, 2);
	unsigned long bad = (unsigned long)pfn_to_kaddr(pfn);

	if (bad < src || bad >= end)
		return 0;
	atomic_inc(&reads);
	regs_set_return_value(regs, end - bad);
	instruction_pointer_set(regs, (unsigned long)return_at_once);
	return 1;
}

/* With one, the probe is not optimized, and its pre_handler may leave for another instruction. */
static void after_copy(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe copy_probe = {
	.symbol_name = "copy_mc_to_kernel",
	.pre_handler = fail_copy,
	.post_handler = after_copy,
};

static int count_report(struct kprobe *probe, struct pt_regs *regs)
{
	if (regs_get_kernel_argument(regs, 0) == pfn)
		atomic_inc(&reports);
	return 0;
}

static struct kprobe report_probe = {
	.symbol_name = "memory_failure_queue",
	.pre_handler = count_report,
};

/* The function may begin with a static branch, of 2 or 5 bytes, where no probe can be. */
static int probe_copy(void)
{
	static const unsigned int offsets[] = { 0, 2, 5 };
	int error = -EINVAL;

	for (unsigned int i = 0; error && i < ARRAY_SIZE(offsets); i++) {
		copy_probe.addr = NULL;
		copy_probe.offset = offsets[i];
		error = register_kprobe(&copy_probe);
	}
	return error;
}

static int __init badpage_init(void)
{
	int error = register_kprobe(&report_probe);

	if (error)
		return error;
	error = probe_copy();
	if (error)
		unregister_kprobe(&report_probe);
	return error;
}
module_init(badpage_init);

static void __exit badpage_exit(void)
{
	unregister_kprobe(&copy_probe);
	unregister_kprobe(&report_probe);
}
module_exit(badpage_exit);

MODULE_DESCRIPTION("A page that no copy can read");
MODULE_LICENSE("GPL");
