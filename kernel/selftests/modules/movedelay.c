// SPDX-License-Identifier: GPL-2.0-only
/*
 * movedelay: keeps a task busy on its return from a function. With the copy function of a
 * migrator, time passes between the copy of a batch, by whatever lanes, and its moves.
 */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/kprobes.h>
#include <linux/module.h>

static char *function;
module_param(function, charp, 0444);
MODULE_PARM_DESC(function, "its return is delayed");

static unsigned int ms;
module_param(ms, uint, 0444);
MODULE_PARM_DESC(ms, "by so many milliseconds");

/* Counts at the beginning of a delay. */
static atomic_t fired;
module_param_named(fired, fired.counter, int, 0444);

/* Preemption is off. */
static int movedelay_wait(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	atomic_inc(&fired);
	mdelay(ms);
	return 0;
}

static struct kretprobe movedelay_probe = {
	.handler = movedelay_wait,
	/* More tasks at a time than any machine of the lab has CPUs. */
	.maxactive = 64,
};

static int __init movedelay_init(void)
{
	movedelay_probe.kp.symbol_name = function;
	return register_kretprobe(&movedelay_probe);
}
module_init(movedelay_init);

static void __exit movedelay_exit(void)
{
	unregister_kretprobe(&movedelay_probe);
}
module_exit(movedelay_exit);

MODULE_DESCRIPTION("Delays the return of a function");
MODULE_LICENSE("GPL");
