// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/mm/migration: choosing a migrator, its limits, and statistics. In debugfs, what
 * "auto" has learnt.
 *
 * Documentation/ABI/testing/sysfs-kernel-mm-migration describes every file. A value that
 * is refused changes nothing.
 */
#include <linux/debugfs.h>
#include <linux/kobject.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "migrator.h"

static struct kobject *migrator_kobj, *migrator_stats_kobj;

static ssize_t migrator_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return migrator_show_names(&migrator_registry, buf);
}

static ssize_t migrator_store(struct kobject *kobj, struct kobj_attribute *attr,
			      const char *buf, size_t count)
{
	char text[MIGRATOR_NAME_LEN + 1];
	int error;

	/* A name, and at most the newline that echo(1) adds. */
	if (strlen(buf) != count || strscpy(text, buf) < 0)
		return -EINVAL;
	if (count && text[count - 1] == '\n')
		text[count - 1] = '\0';
	error = migrator_select(&migrator_registry, text);
	return error ?: count;
}

static struct kobj_attribute migrator_attr = __ATTR_RW(migrator);

static ssize_t reasons_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return migrator_show_reasons(&migrator_registry, buf);
}

static ssize_t reasons_store(struct kobject *kobj, struct kobj_attribute *attr,
			     const char *buf, size_t count)
{
	int error;

	if (strlen(buf) != count)
		return -EINVAL;
	error = migrator_set_reasons(&migrator_registry, buf);
	return error ?: count;
}

static struct kobj_attribute reasons_attr = __ATTR_RW(reasons);

static ssize_t max_batch_bytes_show(struct kobject *kobj, struct kobj_attribute *attr,
				    char *buf)
{
	return sysfs_emit(buf, "%zu\n", READ_ONCE(migrator_registry.max_bytes));
}

static ssize_t max_batch_bytes_store(struct kobject *kobj, struct kobj_attribute *attr,
				     const char *buf, size_t count)
{
	unsigned long bytes;
	int error;

	/* kstrtoul() says -ERANGE for numbers that no size has: wrong all the same. */
	if (strlen(buf) != count || kstrtoul(buf, 0, &bytes))
		return -EINVAL;
	error = migrator_set_max_bytes(&migrator_registry, bytes);
	return error ?: count;
}

static struct kobj_attribute max_batch_bytes_attr = __ATTR_RW(max_batch_bytes);

static ssize_t quarantined_bytes_show(struct kobject *kobj, struct kobj_attribute *attr,
				      char *buf)
{
	return sysfs_emit(buf, "%zu\n", migrator_quarantined_bytes());
}

static struct kobj_attribute quarantined_bytes_attr = __ATTR_RO(quarantined_bytes);

static struct attribute *migrator_attrs[] = {
	&migrator_attr.attr,
	&reasons_attr.attr,
	&max_batch_bytes_attr.attr,
	&quarantined_bytes_attr.attr,
	NULL
};

static const struct attribute_group migrator_group = {
	.attrs = migrator_attrs,
};

/* struct migrator_stats_dir - the directory stats/NAME of one migrator */
struct migrator_stats_dir {
	struct kobject kobj;
	struct migrator_counts __percpu *counts;
};

static ssize_t migrator_count_show(struct kobject *kobj, char *buf, size_t offset)
{
	struct migrator_stats_dir *dir = container_of(kobj, struct migrator_stats_dir, kobj);
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*(u64 *)((void *)per_cpu_ptr(dir->counts, cpu) + offset));
	return sysfs_emit(buf, "%llu\n", sum);
}

#define MIGRATOR_COUNT(_name)								\
static ssize_t _name##_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)	\
{											\
	return migrator_count_show(kobj, buf, offsetof(struct migrator_counts, _name));	\
}											\
static struct kobj_attribute _name##_attr = __ATTR_RO(_name)

MIGRATOR_COUNT(folios);
MIGRATOR_COUNT(bytes);
MIGRATOR_COUNT(fallbacks);
MIGRATOR_COUNT(declined);
MIGRATOR_COUNT(refused);

static struct attribute *migrator_stats_attrs[] = {
	&folios_attr.attr,
	&bytes_attr.attr,
	&fallbacks_attr.attr,
	&declined_attr.attr,
	&refused_attr.attr,
	NULL
};
ATTRIBUTE_GROUPS(migrator_stats);

static void migrator_stats_release(struct kobject *kobj)
{
	kfree(container_of(kobj, struct migrator_stats_dir, kobj));
}

static const struct kobj_type migrator_stats_ktype = {
	.release = migrator_stats_release,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = migrator_stats_groups,
};

/*
 * Adds the directories of a migrator that registers. @counts must live until
 * migrator_sysfs_remove() has returned. Returns the directory of the statistics or an
 * error pointer.
 */
struct kobject *migrator_sysfs_add(const struct migrator *migrator,
				   struct migrator_counts __percpu *counts)
{
	struct migrator_stats_dir *dir;
	int error;

	/* It could not be made at boot. */
	if (!migrator_stats_kobj)
		return ERR_PTR(-ENODEV);
	dir = kzalloc(sizeof(*dir), GFP_KERNEL);
	if (!dir)
		return ERR_PTR(-ENOMEM);
	dir->counts = counts;
	error = kobject_init_and_add(&dir->kobj, &migrator_stats_ktype, migrator_stats_kobj,
				     "%s", migrator->name);
	if (!error && migrator->group)
		error = sysfs_create_group(migrator_kobj, migrator->group);
	if (error) {
		kobject_put(&dir->kobj);
		return ERR_PTR(error);
	}
	return &dir->kobj;
}

/* No file of the migrator is being read or written when this returns. */
void migrator_sysfs_remove(const struct migrator *migrator, struct kobject *kobj)
{
	if (migrator->group)
		sysfs_remove_group(migrator_kobj, migrator->group);
	kobject_del(kobj);
	kobject_put(kobj);
}

static int auto_show(struct seq_file *seq, void *unused)
{
	struct mutex *lock = &migrator_registry.lock;

	mutex_lock(lock);
	migrator_auto_show(rcu_dereference_protected(migrator_registry.policy,
						     lockdep_is_held(lock)), seq);
	mutex_unlock(lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(auto);

int __init migrator_sysfs_init(void)
{
	int error;

	migrator_kobj = kobject_create_and_add("migration", mm_kobj);
	if (!migrator_kobj)
		return -ENOMEM;
	migrator_stats_kobj = kobject_create_and_add("stats", migrator_kobj);
	error = migrator_stats_kobj ? sysfs_create_group(migrator_kobj, &migrator_group) : -ENOMEM;
	if (error) {
		kobject_put(migrator_stats_kobj);
		kobject_put(migrator_kobj);
		migrator_stats_kobj = NULL;
		migrator_kobj = NULL;
		return error;
	}
	debugfs_create_file("auto", 0444, debugfs_create_dir("migration", NULL), NULL, &auto_fops);
	return 0;
}
