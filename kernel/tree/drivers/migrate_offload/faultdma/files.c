// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/debug/faultdma: a directory per channel, with a file for each fault and each
 * count. A channel that waits for a file to change looks at it when "wake" is written.
 */
#include <linux/debugfs.h>
#include <linux/stringify.h>

#include "faultdma.h"

static int faultdma_wake(void *data, u64 unused)
{
	struct faultdma_channel *channel = data;

	wake_up_all(&channel->wait);
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(faultdma_wake_fops, NULL, faultdma_wake, "%llu\n");

#define FAULTDMA_FAULT(name) \
	debugfs_create_u32(__stringify(name), 0600, dir, &channel->faults.name)
#define FAULTDMA_COUNT(name) \
	debugfs_create_u64("count_" __stringify(name), 0400, dir, &channel->counts.name)

static void faultdma_channel_files(struct faultdma_channel *channel, struct dentry *parent)
{
	struct dentry *dir;
	char name[8];

	snprintf(name, sizeof(name), "%u", channel->index);
	dir = debugfs_create_dir(name, parent);
	FAULTDMA_FAULT(delay_us);
	FAULTDMA_FAULT(shuffle);
	FAULTDMA_FAULT(error_every);
	FAULTDMA_FAULT(silent_every);
	FAULTDMA_FAULT(tell_after_us);
	FAULTDMA_FAULT(hang_every);
	FAULTDMA_FAULT(late_ms);
	FAULTDMA_FAULT(late_answer);
	FAULTDMA_FAULT(prep_every);
	FAULTDMA_FAULT(submit_every);
	FAULTDMA_FAULT(depth);
	FAULTDMA_FAULT(give_back_ms);
	FAULTDMA_FAULT(terminate);
	FAULTDMA_COUNT(descriptors);
	FAULTDMA_COUNT(bytes);
	FAULTDMA_COUNT(interrupts);
	FAULTDMA_COUNT(errors);
	FAULTDMA_COUNT(silent);
	FAULTDMA_COUNT(told_late);
	FAULTDMA_COUNT(hung);
	FAULTDMA_COUNT(late);
	FAULTDMA_COUNT(prep);
	FAULTDMA_COUNT(submit);
	FAULTDMA_COUNT(spent);
	debugfs_create_file_unsafe("wake", 0200, dir, channel, &faultdma_wake_fops);
}

/**
 * faultdma_files - make the files
 * @channels: of the engine
 * @nr: number of them
 *
 * Return: the directory, which the caller removes.
 */
struct dentry *faultdma_files(struct faultdma_channel *channels, unsigned int nr)
{
	struct dentry *dir = debugfs_create_dir("faultdma", NULL);
	unsigned int i;

	for (i = 0; i < nr; i++)
		faultdma_channel_files(&channels[i], dir);
	debugfs_create_u64("iommu_faults", 0400, dir, &faultdma_iommu_faults);
	return dir;
}
