// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/mm/migration: choosing a migrator, its limits, and what it did.
 *
 * Documentation/ABI/testing/sysfs-kernel-mm-migration describes every file. A value that
 * is refused changes nothing.
 */
#include <kunit/visibility.h>
#include <linux/kobject.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "migrator.h"

static struct kobject *migrator_kobj;
VISIBLE_IF_KUNIT struct kobject *migrator_stats_kobj;

/* --- Choices --- */

static ssize_t migrator_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return migrator_show_names(buf);
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
	error = migrator_select(text);
	return error ?: count;
}

static struct kobj_attribute migrator_attr = __ATTR_RW(migrator);

/*
 * Reasons by the names that the tracepoints of migration use, separated by white space;
 * "all" or "none" alone.
 */
int migrator_parse_reasons(const char *text, unsigned int *mask)
{
	char *copy, *cursor, *word;
	unsigned int found = 0;
	int words = 0, reason, error = -EINVAL;

	copy = kstrdup(text, GFP_KERNEL);
	if (!copy)
		return -ENOMEM;
	cursor = strim(copy);
	if (!strcmp(cursor, "all")) {
		*mask = GENMASK(MR_TYPES - 1, 0);
		error = 0;
		goto out;
	}
	if (!strcmp(cursor, "none")) {
		*mask = 0;
		error = 0;
		goto out;
	}
	while ((word = strsep(&cursor, " \t\n"))) {
		if (!*word)
			continue;
		reason = match_string(migrate_reason_names, MR_TYPES, word);
		if (reason < 0)
			goto out;
		found |= BIT(reason);
		words++;
	}
	if (words) {
		*mask = found;
		error = 0;
	}
out:
	kfree(copy);
	return error;
}

static ssize_t reasons_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	unsigned int reason, mask = migrator_reasons();
	ssize_t len = 0;

	if (mask == GENMASK(MR_TYPES - 1, 0))
		return sysfs_emit(buf, "all\n");
	if (!mask)
		return sysfs_emit(buf, "none\n");
	for (reason = 0; reason < MR_TYPES; reason++)
		if (mask & BIT(reason))
			len += sysfs_emit_at(buf, len, "%s%s", len ? " " : "",
					     migrate_reason_names[reason]);
	len += sysfs_emit_at(buf, len, "\n");
	return len;
}

static ssize_t reasons_store(struct kobject *kobj, struct kobj_attribute *attr,
			     const char *buf, size_t count)
{
	unsigned int mask;
	int error;

	if (strlen(buf) != count)
		return -EINVAL;
	error = migrator_parse_reasons(buf, &mask);
	if (error)
		return error;
	migrator_set_reasons(mask);
	return count;
}

static struct kobj_attribute reasons_attr = __ATTR_RW(reasons);

static ssize_t min_batch_bytes_show(struct kobject *kobj, struct kobj_attribute *attr,
				    char *buf)
{
	return sysfs_emit(buf, "%zu\n", migrator_min_batch());
}

static ssize_t migrator_store_bytes(const char *buf, size_t count, int (*set)(size_t))
{
	unsigned long bytes;
	int error;

	if (strlen(buf) != count)
		return -EINVAL;
	/* kstrtoul() says -ERANGE for numbers that no size has: wrong all the same. */
	error = kstrtoul(buf, 0, &bytes) ? -EINVAL : set(bytes);
	return error ?: count;
}

static ssize_t min_batch_bytes_store(struct kobject *kobj, struct kobj_attribute *attr,
				     const char *buf, size_t count)
{
	return migrator_store_bytes(buf, count, migrator_set_min_batch);
}

static struct kobj_attribute min_batch_bytes_attr = __ATTR_RW(min_batch_bytes);

static ssize_t max_batch_bytes_show(struct kobject *kobj, struct kobj_attribute *attr,
				    char *buf)
{
	return sysfs_emit(buf, "%zu\n", migrator_max_batch());
}

static ssize_t max_batch_bytes_store(struct kobject *kobj, struct kobj_attribute *attr,
				     const char *buf, size_t count)
{
	return migrator_store_bytes(buf, count, migrator_set_max_batch);
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
	&min_batch_bytes_attr.attr,
	&max_batch_bytes_attr.attr,
	&quarantined_bytes_attr.attr,
	NULL
};

static const struct attribute_group migrator_group = {
	.attrs = migrator_attrs,
};

/* --- Statistics: stats/MIGRATOR/REASON/COUNT --- */

/* struct migrator_stats_dir - the directory of one migrator */
struct migrator_stats_dir {
	struct kobject kobj;
	struct migrator_stats __percpu *stats;
};

static struct migrator_stats_dir *migrator_stats_dir_of(struct kobject *kobj)
{
	return container_of(kobj, struct migrator_stats_dir, kobj);
}

/*
 * struct migrator_count_attr - a file: which count of which reason
 *
 * sysfs does not tell a show function in which group its file is; hence one attribute per
 * reason and count. All migrators share them.
 */
struct migrator_count_attr {
	struct kobj_attribute kattr;
	enum migrate_reason reason;
	size_t offset;
};

static const struct {
	const char *name;
	size_t offset;
} migrator_count_files[] = {
	{ "batches", offsetof(struct migrator_counts, batches) },
	{ "folios", offsetof(struct migrator_counts, folios) },
	{ "bytes", offsetof(struct migrator_counts, bytes) },
	{ "fallbacks", offsetof(struct migrator_counts, fallbacks) },
	{ "declined", offsetof(struct migrator_counts, declined) },
};

#define MIGRATOR_COUNTS		ARRAY_SIZE(migrator_count_files)

static struct migrator_count_attr migrator_count_attrs[MR_TYPES][MIGRATOR_COUNTS];
static struct attribute *migrator_count_lists[MR_TYPES][MIGRATOR_COUNTS + 1];
static struct attribute_group migrator_count_groups[MR_TYPES];
static const struct attribute_group *migrator_stats_groups[MR_TYPES + 2];

static ssize_t migrator_count_show(struct kobject *kobj, struct kobj_attribute *kattr, char *buf)
{
	struct migrator_count_attr *attr = container_of(kattr, struct migrator_count_attr, kattr);
	struct migrator_stats_dir *dir = migrator_stats_dir_of(kobj);
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu) {
		void *counts = &per_cpu_ptr(dir->stats, cpu)->reason[attr->reason];

		sum += READ_ONCE(*(u64 *)(counts + attr->offset));
	}
	return sysfs_emit(buf, "%llu\n", sum);
}

/* Counts of batches that are under way while they are cleared may survive. */
static ssize_t reset_store(struct kobject *kobj, struct kobj_attribute *attr,
			   const char *buf, size_t count)
{
	struct migrator_stats_dir *dir = migrator_stats_dir_of(kobj);
	unsigned int zero;
	int cpu;

	if (strlen(buf) != count || kstrtouint(buf, 10, &zero) || zero)
		return -EINVAL;
	for_each_possible_cpu(cpu)
		memset(per_cpu_ptr(dir->stats, cpu), 0, sizeof(struct migrator_stats));
	return count;
}

static struct kobj_attribute reset_attr = __ATTR_WO(reset);

static struct attribute *migrator_reset_attrs[] = {
	&reset_attr.attr,
	NULL
};

static const struct attribute_group migrator_reset_group = {
	.attrs = migrator_reset_attrs,
};

static void __init migrator_init_counts(void)
{
	unsigned int reason, i;

	for (reason = 0; reason < MR_TYPES; reason++) {
		for (i = 0; i < MIGRATOR_COUNTS; i++) {
			struct migrator_count_attr *attr = &migrator_count_attrs[reason][i];

			sysfs_attr_init(&attr->kattr.attr);
			attr->kattr.attr.name = migrator_count_files[i].name;
			attr->kattr.attr.mode = 0444;
			attr->kattr.show = migrator_count_show;
			attr->reason = reason;
			attr->offset = migrator_count_files[i].offset;
			migrator_count_lists[reason][i] = &attr->kattr.attr;
		}
		migrator_count_groups[reason].name = migrate_reason_names[reason];
		migrator_count_groups[reason].attrs = migrator_count_lists[reason];
		migrator_stats_groups[reason] = &migrator_count_groups[reason];
	}
	migrator_stats_groups[reason] = &migrator_reset_group;
}

static void migrator_stats_release(struct kobject *kobj)
{
	kfree(migrator_stats_dir_of(kobj));
}

static const struct kobj_type migrator_stats_ktype = {
	.release = migrator_stats_release,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = migrator_stats_groups,
};

/*
 * Adds the directories of a migrator that registers. @stats must live until
 * migrator_sysfs_remove() has returned. Returns the directory of the statistics or an
 * error pointer.
 */
struct kobject *migrator_sysfs_add(const struct migrator *migrator,
				   struct migrator_stats __percpu *stats)
{
	struct migrator_stats_dir *dir;
	int error;

	/* It could not be made at boot. */
	if (!migrator_stats_kobj)
		return ERR_PTR(-ENODEV);
	dir = kzalloc(sizeof(*dir), GFP_KERNEL);
	if (!dir)
		return ERR_PTR(-ENOMEM);
	dir->stats = stats;
	error = kobject_init_and_add(&dir->kobj, &migrator_stats_ktype, migrator_stats_kobj,
				     "%s", migrator->name);
	if (!error && migrator->group)
		error = sysfs_create_group(migrator_kobj, migrator->group);
	if (error) {
		kobject_del(&dir->kobj);
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

int __init migrator_sysfs_init(void)
{
	int error;

	migrator_init_counts();
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
	}
	return error;
}
