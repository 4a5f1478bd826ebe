// SPDX-License-Identifier: GPL-2.0-only
/*
 * Settings: the files in /sys/kernel/mm/migration/dcbm/.
 *
 * Each setting stands for itself, so a batch reads each once and without a lock.
 */
#include <linux/kernel.h>
#include <linux/kobject.h>
#include <linux/sizes.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "dcbm.h"

/* Few channels saturate the memory of a node, and other batches want some too. */
static unsigned int dcbm_lanes = 4;

/* A slow engine (100 MB/s) copies a round in 40 ms; folios stay unmapped as long as this. */
static unsigned int dcbm_timeout_ms = 1000;
#define DCBM_TIMEOUT_MS_MAX	60000

/* Copied in some 50 us at 10 GB/s, which falling asleep and waking up can take, too. */
static size_t dcbm_poll_below_bytes = SZ_512K;
#define DCBM_POLL_BYTES_MAX	SZ_64M

/* The parsers end at a zero byte; what is behind it was written, too. */
static bool dcbm_is_text(const char *text, size_t count)
{
	return strlen(text) == count;
}

static ssize_t dcbm_store_uint(const char *text, size_t count, unsigned int least,
			       unsigned int most, unsigned int *value)
{
	unsigned int number;

	if (!dcbm_is_text(text, count) || kstrtouint(text, 0, &number) || number < least ||
	    number > most)
		return -EINVAL;
	WRITE_ONCE(*value, number);
	return count;
}

static ssize_t lanes_show(struct kobject *kobj, struct kobj_attribute *attr, char *page)
{
	return sysfs_emit(page, "%u\n", READ_ONCE(dcbm_lanes));
}

static ssize_t lanes_store(struct kobject *kobj, struct kobj_attribute *attr, const char *text,
			   size_t count)
{
	return dcbm_store_uint(text, count, 1, DCBM_CHANNELS_MAX, &dcbm_lanes);
}

static ssize_t timeout_ms_show(struct kobject *kobj, struct kobj_attribute *attr, char *page)
{
	return sysfs_emit(page, "%u\n", READ_ONCE(dcbm_timeout_ms));
}

static ssize_t timeout_ms_store(struct kobject *kobj, struct kobj_attribute *attr,
				const char *text, size_t count)
{
	return dcbm_store_uint(text, count, 1, DCBM_TIMEOUT_MS_MAX, &dcbm_timeout_ms);
}

static ssize_t poll_below_bytes_show(struct kobject *kobj, struct kobj_attribute *attr,
				     char *page)
{
	return sysfs_emit(page, "%zu\n", READ_ONCE(dcbm_poll_below_bytes));
}

static ssize_t poll_below_bytes_store(struct kobject *kobj, struct kobj_attribute *attr,
				      const char *text, size_t count)
{
	unsigned long bytes;

	if (!dcbm_is_text(text, count) || kstrtoul(text, 0, &bytes) ||
	    bytes > DCBM_POLL_BYTES_MAX)
		return -EINVAL;
	WRITE_ONCE(dcbm_poll_below_bytes, bytes);
	return count;
}

static ssize_t devices_show(struct kobject *kobj, struct kobj_attribute *attr, char *page)
{
	return dcbm_channels_show(page);
}

static ssize_t devices_store(struct kobject *kobj, struct kobj_attribute *attr,
			     const char *text, size_t count)
{
	if (!dcbm_is_text(text, count) || !sysfs_streq(text, "retry"))
		return -EINVAL;
	return dcbm_channels_retry() ?: count;
}

static struct kobj_attribute lanes_attr = __ATTR_RW(lanes);
static struct kobj_attribute timeout_ms_attr = __ATTR_RW(timeout_ms);
static struct kobj_attribute poll_below_bytes_attr = __ATTR_RW(poll_below_bytes);
static struct kobj_attribute devices_attr = __ATTR_RW(devices);

static struct attribute *dcbm_attrs[] = {
	&lanes_attr.attr,
	&timeout_ms_attr.attr,
	&poll_below_bytes_attr.attr,
	&devices_attr.attr,
	NULL
};

const struct attribute_group dcbm_group = {
	.name = "dcbm",
	.attrs = dcbm_attrs,
};

/**
 * dcbm_params_timeout - how long a channel may take
 *
 * Return: milliseconds.
 */
unsigned int dcbm_params_timeout(void)
{
	return READ_ONCE(dcbm_timeout_ms);
}

/**
 * dcbm_params_read - the settings for one batch
 * @params: receives them
 */
void dcbm_params_read(struct dcbm_params *params)
{
	params->lanes = READ_ONCE(dcbm_lanes);
	params->timeout_ms = READ_ONCE(dcbm_timeout_ms);
	params->poll_below_bytes = READ_ONCE(dcbm_poll_below_bytes);
}
