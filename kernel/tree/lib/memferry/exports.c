// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes the policy core a module and its functions visible to other modules.
 *
 * extents.c and lanes.c know nothing of the kernel: userspace compiles the same files.
 * Whatever the kernel needs beside them is here.
 */
#include <linux/export.h>
#include <linux/memferry/extents.h>
#include <linux/memferry/lanes.h>
#include <linux/module.h>

EXPORT_SYMBOL_GPL(ferry_extents_scratch);
EXPORT_SYMBOL_GPL(ferry_extents_sum);
EXPORT_SYMBOL_GPL(ferry_extents_apart);
EXPORT_SYMBOL_GPL(ferry_deal_space);
EXPORT_SYMBOL_GPL(ferry_deal);

MODULE_DESCRIPTION("Deals a batch of folios to the lanes of a copy");
MODULE_LICENSE("GPL");
