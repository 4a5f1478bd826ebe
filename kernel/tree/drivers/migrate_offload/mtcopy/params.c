// SPDX-License-Identifier: GPL-2.0-only
/*
 * Settings: the files in /sys/kernel/mm/migration/mtcopy/, and module parameters of the
 * same names for when the module is loaded.
 *
 * Each setting stands for itself, so a batch reads each once and without a lock, and one
 * write to a file changes one batch whole or not at all.
 */
#include <linux/kernel.h>
#include <linux/kobject.h>
#include <linux/moduleparam.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "mtcopy.h"

/* Few CPUs saturate the memory of a node, and a batch is not worth more of them. */
#define MTCOPY_LANES_DEFAULT	4

static unsigned int mtcopy_lanes;	/* 0 until mtcopy_params_init() */
static bool mtcopy_high;
static enum migrator_placement mtcopy_placement;
static bool mtcopy_nontemporal;
static bool mtcopy_idle_only = true;

/**
 * struct mtcopy_param - a setting
 * @attr: its file
 * @set: reads a new value from text; a wrong one is refused and changes nothing
 * @get: writes the value as text into a page
 */
struct mtcopy_param {
	struct kobj_attribute attr;
	int (*set)(const char *text);
	int (*get)(char *page);
};

static int mtcopy_set_lanes(const char *text)
{
	unsigned int lanes;

	if (kstrtouint(text, 0, &lanes) || !lanes || lanes > MTCOPY_LANES_MAX)
		return -EINVAL;
	WRITE_ONCE(mtcopy_lanes, lanes);
	return 0;
}

static int mtcopy_get_lanes(char *page)
{
	return sysfs_emit(page, "%u\n", READ_ONCE(mtcopy_lanes));
}

static const char * const mtcopy_priorities[] = { "normal", "high" };

static int mtcopy_set_priority(const char *text)
{
	int i = sysfs_match_string(mtcopy_priorities, text);

	if (i < 0)
		return i;
	WRITE_ONCE(mtcopy_high, i);
	return 0;
}

static int mtcopy_get_priority(char *page)
{
	return sysfs_emit(page, READ_ONCE(mtcopy_high) ? "normal [high]\n" : "[normal] high\n");
}

static const char * const mtcopy_placements[] = {
	[MIGRATOR_SPREAD] = "spread",
	[MIGRATOR_FILL] = "fill",
};

static int mtcopy_set_placement(const char *text)
{
	int i = sysfs_match_string(mtcopy_placements, text);

	if (i < 0)
		return i;
	WRITE_ONCE(mtcopy_placement, i);
	return 0;
}

static int mtcopy_get_placement(char *page)
{
	return sysfs_emit(page, READ_ONCE(mtcopy_placement) == MIGRATOR_FILL ?
			  "spread [fill]\n" : "[spread] fill\n");
}

/* These words alone: kstrtobool() looks at the first letter and takes "none" for off. */
static int mtcopy_parse_switch(const char *text, bool *on)
{
	static const char * const words[] = { "0", "n", "off", "1", "y", "on" };
	int i = sysfs_match_string(words, text);

	if (i < 0)
		return i;
	*on = i >= 3;
	return 0;
}

static int mtcopy_set_nontemporal(const char *text)
{
	bool on;

	if (mtcopy_parse_switch(text, &on))
		return -EINVAL;
	if (on && !IS_ENABLED(CONFIG_MIGRATOR_MTCOPY_NONTEMPORAL))
		return -EOPNOTSUPP;
	WRITE_ONCE(mtcopy_nontemporal, on);
	return 0;
}

static int mtcopy_get_nontemporal(char *page)
{
	return sysfs_emit(page, "%d\n", READ_ONCE(mtcopy_nontemporal));
}

static int mtcopy_set_idle_only(const char *text)
{
	bool on;

	if (mtcopy_parse_switch(text, &on))
		return -EINVAL;
	WRITE_ONCE(mtcopy_idle_only, on);
	return 0;
}

static int mtcopy_get_idle_only(char *page)
{
	return sysfs_emit(page, "%d\n", READ_ONCE(mtcopy_idle_only));
}

static ssize_t mtcopy_param_show(struct kobject *kobj, struct kobj_attribute *attr, char *page)
{
	return container_of(attr, struct mtcopy_param, attr)->get(page);
}

static ssize_t mtcopy_param_store(struct kobject *kobj, struct kobj_attribute *attr,
				  const char *text, size_t count)
{
	int error;

	if (strlen(text) != count)
		return -EINVAL;
	error = container_of(attr, struct mtcopy_param, attr)->set(text);
	return error ?: count;
}

static int mtcopy_param_set(const char *text, const struct kernel_param *kp)
{
	return ((struct mtcopy_param *)kp->arg)->set(text);
}

static const struct kernel_param_ops mtcopy_param_ops = {
	.set = mtcopy_param_set,
};

#define MTCOPY_PARAM(_name)								\
	static struct mtcopy_param mtcopy_param_##_name = {				\
		.attr = __ATTR(_name, 0644, mtcopy_param_show, mtcopy_param_store),	\
		.set = mtcopy_set_##_name,						\
		.get = mtcopy_get_##_name,						\
	}

MTCOPY_PARAM(lanes);
MTCOPY_PARAM(priority);
MTCOPY_PARAM(placement);
MTCOPY_PARAM(nontemporal);
MTCOPY_PARAM(idle_only);

/* For loading only, so without a mode: once the module is loaded, there is the file. */
module_param_cb(lanes, &mtcopy_param_ops, &mtcopy_param_lanes, 0);
MODULE_PARM_DESC(lanes, "Lanes per batch, the migrating task included (1 to 64)");
module_param_cb(priority, &mtcopy_param_ops, &mtcopy_param_priority, 0);
MODULE_PARM_DESC(priority, "Priority of the helpers: normal or high");
module_param_cb(placement, &mtcopy_param_ops, &mtcopy_param_placement, 0);
MODULE_PARM_DESC(placement, "Spread the lanes over the last-level caches, or fill one first");
module_param_cb(nontemporal, &mtcopy_param_ops, &mtcopy_param_nontemporal, 0);
MODULE_PARM_DESC(nontemporal, "Write past the caches");
module_param_cb(idle_only, &mtcopy_param_ops, &mtcopy_param_idle_only, 0);
MODULE_PARM_DESC(idle_only, "Take only idle CPUs as helpers");

static struct attribute *mtcopy_attrs[] = {
	&mtcopy_param_lanes.attr.attr,
	&mtcopy_param_priority.attr.attr,
	&mtcopy_param_placement.attr.attr,
	&mtcopy_param_nontemporal.attr.attr,
	&mtcopy_param_idle_only.attr.attr,
	NULL
};

const struct attribute_group mtcopy_group = {
	.name = "mtcopy",
	.attrs = mtcopy_attrs,
};

/**
 * mtcopy_params_init - give the settings that nobody has made their defaults
 */
void mtcopy_params_init(void)
{
	if (!mtcopy_lanes)
		mtcopy_lanes = min_t(unsigned int, MTCOPY_LANES_DEFAULT, num_online_cpus());
}

/**
 * mtcopy_params_read - the settings for one batch
 * @params: receives them
 */
void mtcopy_params_read(struct mtcopy_params *params)
{
	params->lanes = READ_ONCE(mtcopy_lanes);
	params->placement = READ_ONCE(mtcopy_placement);
	params->high = READ_ONCE(mtcopy_high);
	params->nontemporal = READ_ONCE(mtcopy_nontemporal);
	params->idle_only = READ_ONCE(mtcopy_idle_only);
}
