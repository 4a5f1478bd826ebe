// SPDX-License-Identifier: GPL-2.0-only
/*
 * The files of pghot: sysctls vm.pghot_* and debugfs pghot/. A value that is refused changes
 * nothing. Documentation/admin-guide/mm/pghot.rst describes every file.
 */
#include <linux/debugfs.h>
#include <linux/init.h>
#include <linux/memferry/pace.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/sched/sysctl.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysctl.h>
#include <linux/uaccess.h>
#include <linux/xarray.h>

#include "pghot.h"

/* What is written to any file is shorter than this. */
#define PGHOT_TEXT	128

/**
 * struct pghot_number - a file with one number
 * @name: of the file
 * @value: where it is, or NULL
 * @least: smallest value
 * @most: largest value
 * @get: reads it, if @value is NULL
 * @set: changes it or returns an error, if @value is NULL
 */
struct pghot_number {
	const char *name;
	unsigned int *value;
	unsigned int least;
	unsigned int most;
	unsigned int (*get)(void);
	int (*set)(unsigned int value);
};

static unsigned int pghot_get(const struct pghot_number *number)
{
	return number->value ? READ_ONCE(*number->value) : number->get();
}

/* Takes exactly one number, and at most the newline that echo(1) adds. */
static int pghot_set(const struct pghot_number *number, const char *text, size_t count)
{
	unsigned int value;

	if (strlen(text) != count || kstrtouint(text, 0, &value))
		return -EINVAL;
	if (!number->value)
		return number->set(value);
	if (value < number->least || value > number->most)
		return -EINVAL;
	WRITE_ONCE(*number->value, value);
	return 0;
}

/* --- /proc/sys/vm --- */

static unsigned int pghot_get_target(void)
{
	return pghot_target_nid();
}

static unsigned int pghot_get_threshold(void)
{
	struct ferry_hot_params params;

	pghot_get_params(&params);
	return params.threshold;
}

static unsigned int pghot_get_window(void)
{
	struct ferry_hot_params params;

	pghot_get_params(&params);
	return params.window_ms;
}

static const struct pghot_number pghot_sysctls[] = {
	{ .name = "pghot_enabled_sources", .get = pghot_sources, .set = pghot_set_sources },
	{ .name = "pghot_target_nid", .get = pghot_get_target, .set = pghot_set_target_nid },
	{ .name = "pghot_freq_threshold", .get = pghot_get_threshold, .set = pghot_set_threshold },
	{ .name = "pghot_promote_freq_window_ms", .get = pghot_get_window,
	  .set = pghot_set_window },
	{
		.name = "pghot_promote_rate_limit_MBps",
		.value = &sysctl_numa_balancing_promote_rate_limit,
		.least = 1,
		.most = FERRY_PACE_RATE_MAX >> 20,
	},
};

static int pghot_sysctl(const struct ctl_table *table, int write, void *buffer, size_t *lenp,
			loff_t *ppos)
{
	const struct pghot_number *number = table->data;
	char text[16];
	size_t length;
	int error;

	if (write) {
		if (*ppos)
			return -EINVAL;
		error = pghot_set(number, buffer, *lenp);
		if (!error)
			*ppos += *lenp;
		return error;
	}
	length = scnprintf(text, sizeof(text), "%u\n", pghot_get(number));
	*lenp = *ppos < length ? min(*lenp, (size_t)(length - *ppos)) : 0;
	memcpy(buffer, text + *ppos, *lenp);
	*ppos += *lenp;
	return 0;
}

static struct ctl_table pghot_table[ARRAY_SIZE(pghot_sysctls)];

static void __init pghot_sysctl_init(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(pghot_sysctls); i++)
		pghot_table[i] = (struct ctl_table){
			.procname = pghot_sysctls[i].name,
			.data = (void *)&pghot_sysctls[i],
			.maxlen = sizeof(unsigned int),
			.mode = 0644,
			.proc_handler = pghot_sysctl,
		};
	register_sysctl_init("vm", pghot_table);
}

/* --- debugfs --- */

static const struct pghot_number pghot_debugfs[] = {
	{ .name = "kmigrated_sleep_ms", .value = &pghot_tunables.sleep_ms, .least = 50,
	  .most = 1000 },
	{ .name = "kmigrated_batch_nr", .value = &pghot_tunables.batch_nr, .least = 64,
	  .most = 1024 },
	{ .name = "exchange", .value = &pghot_tunables.exchange, .least = 0, .most = 1 },
	{ .name = "scan_period_ms", .value = &pghot_tunables.scan_period_ms, .least = 50,
	  .most = 60000 },
	/* At least a thousand pages in the shortest period. */
	{ .name = "scan_rate_pages_ps", .value = &pghot_tunables.scan_rate, .least = 1 << 15,
	  .most = INT_MAX },
};

/* Reads what is written to a file; 0 or an error. */
static int pghot_copy_text(char *text, const char __user *from, size_t count, loff_t *ppos)
{
	if (*ppos || count >= PGHOT_TEXT)
		return -EINVAL;
	if (copy_from_user(text, from, count))
		return -EFAULT;
	text[count] = '\0';
	return strlen(text) == count ? 0 : -EINVAL;
}

static ssize_t pghot_number_read(struct file *file, char __user *to, size_t count, loff_t *ppos)
{
	char text[16];
	int length;

	length = scnprintf(text, sizeof(text), "%u\n", pghot_get(file->private_data));
	return simple_read_from_buffer(to, count, ppos, text, length);
}

static ssize_t pghot_number_write(struct file *file, const char __user *from, size_t count,
				  loff_t *ppos)
{
	char text[PGHOT_TEXT];
	int error;

	error = pghot_copy_text(text, from, count, ppos);
	if (!error)
		error = pghot_set(file->private_data, text, count);
	return error ?: count;
}

static const struct file_operations pghot_number_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = pghot_number_read,
	.write = pghot_number_write,
};

/* Three numbers, in the order of enum pghot_src. */
static ssize_t pghot_weights_read(struct file *file, char __user *to, size_t count, loff_t *ppos)
{
	unsigned int *weights = pghot_tunables.weights;
	char text[PGHOT_TEXT];
	int length;

	BUILD_BUG_ON(PGHOT_SRC_MAX != 3);
	length = scnprintf(text, sizeof(text), "%u %u %u\n", READ_ONCE(weights[0]),
			   READ_ONCE(weights[1]), READ_ONCE(weights[2]));
	return simple_read_from_buffer(to, count, ppos, text, length);
}

static ssize_t pghot_weights_write(struct file *file, const char __user *from, size_t count,
				   loff_t *ppos)
{
	char text[PGHOT_TEXT], *cursor = text, *word;
	unsigned int weights[PGHOT_SRC_MAX], nr = 0;
	int error;

	error = pghot_copy_text(text, from, count, ppos);
	if (error)
		return error;
	cursor = strim(text);
	while ((word = strsep(&cursor, " "))) {
		if (nr == PGHOT_SRC_MAX || kstrtouint(word, 0, &weights[nr]) ||
		    !weights[nr] || weights[nr] > FERRY_HOT_WEIGHT_MAX)
			return -EINVAL;
		nr++;
	}
	if (nr != PGHOT_SRC_MAX)
		return -EINVAL;
	for (nr = 0; nr < PGHOT_SRC_MAX; nr++)
		WRITE_ONCE(pghot_tunables.weights[nr], weights[nr]);
	return count;
}

static const struct file_operations pghot_weights_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = pghot_weights_read,
	.write = pghot_weights_write,
};

#ifdef CONFIG_PGHOT_HWHINTS
static ssize_t pghot_event_read(struct file *file, char __user *to, size_t count, loff_t *ppos)
{
	char text[PGHOT_TEXT];
	int length = pghot_perf_show_event(text, sizeof(text));

	return simple_read_from_buffer(to, count, ppos, text, length);
}

static ssize_t pghot_event_write(struct file *file, const char __user *from, size_t count,
				 loff_t *ppos)
{
	char text[PGHOT_TEXT];
	int error;

	error = pghot_copy_text(text, from, count, ppos);
	if (!error)
		error = pghot_perf_set_event(strim(text));
	return error ?: count;
}

static const struct file_operations pghot_event_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = pghot_event_read,
	.write = pghot_event_write,
};
#endif

static int pghot_format_show(struct seq_file *file, void *unused)
{
	seq_puts(file, pghot_format() == FERRY_HOT_PRECISE ? "precise\n" : "default\n");
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(pghot_format);

static int pghot_status_show(struct seq_file *file, void *unused)
{
	static const char * const causes[] = { "pinned", "off_lru", "no_block", "busy" };
	unsigned int i;

	BUILD_BUG_ON(ARRAY_SIZE(causes) != KMIGRATED_CAUSES);
	for (i = 0; i < KMIGRATED_CAUSES; i++)
		seq_printf(file, "failed_%s %lu\n", causes[i], READ_ONCE(kmigrated_failures[i]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(pghot_status);

/* --- Heat per section: positions are section numbers, behind the headings --- */

/* A section from number *@pos - 1 on, with a reference. */
static struct pghot_section *pghot_heat_find(loff_t *pos)
{
	struct pghot_section *section;
	unsigned long nr = *pos - 1;

	rcu_read_lock();
	for (section = xa_find(&pghot_sections, &nr, ULONG_MAX, XA_PRESENT); section;
	     section = xa_find_after(&pghot_sections, &nr, ULONG_MAX, XA_PRESENT))
		if (refcount_inc_not_zero(&section->ref))
			break;
	rcu_read_unlock();
	if (section)
		*pos = nr + 1;
	return section;
}

static void *pghot_heat_start(struct seq_file *file, loff_t *pos)
{
	return *pos ? pghot_heat_find(pos) : SEQ_START_TOKEN;
}

static void pghot_heat_stop(struct seq_file *file, void *at)
{
	if (at && at != SEQ_START_TOKEN)
		pghot_put_section(at);
}

static void *pghot_heat_next(struct seq_file *file, void *at, loff_t *pos)
{
	pghot_heat_stop(file, at);
	++*pos;
	return pghot_heat_find(pos);
}

static unsigned int pghot_freq_max(void)
{
	return pghot_format() == FERRY_HOT_PRECISE ? FERRY_HOT32_FREQ_MAX : FERRY_HOT8_FREQ_MAX;
}

static void pghot_heat_headings(struct seq_file *file)
{
	unsigned int freq;

	seq_puts(file, "# section nid pages_known hot majority_node");
	for (freq = 1; freq <= pghot_freq_max(); freq++)
		seq_printf(file, " freq%u", freq);
	seq_putc(file, '\n');
}

static int pghot_heat_show(struct seq_file *file, void *at)
{
	u64 by_freq[FERRY_HOT32_FREQ_MAX + 1] = { 0 }, known = 0, hot = 0;
	struct ferry_hot_histogram *histogram = file->private;
	struct pghot_section *section = at;
	unsigned int freq, age, eighths, threshold = pghot_get_threshold();
	u32 majority;

	if (at == SEQ_START_TOKEN) {
		pghot_heat_headings(file);
		return 0;
	}
	memset(histogram, 0, sizeof(*histogram));
	pghot_count_section(section, pghot_now(), histogram);
	for (eighths = 1; eighths < FERRY_HOT_EIGHTHS; eighths++) {
		for (age = 0; age < FERRY_HOT_AGES; age++) {
			u64 pages = histogram->pages[eighths][age];

			freq = DIV_ROUND_UP(eighths, 8);
			by_freq[freq] += pages;
			known += pages;
			if (freq >= threshold && age < FERRY_HOT_IDLE_AGE)
				hot += pages;
		}
	}
	majority = ferry_hot_majority_node((u16)READ_ONCE(section->majority));
	seq_printf(file, "%lu %d %llu %llu %d", pfn_to_section_nr(section->start_pfn),
		   section->nid, known, hot,
		   majority == FERRY_HOT_NO_NODE ? NUMA_NO_NODE : (int)majority);
	for (freq = 1; freq <= pghot_freq_max(); freq++)
		seq_printf(file, " %llu", by_freq[freq]);
	seq_putc(file, '\n');
	return 0;
}

static const struct seq_operations pghot_heat_operations = {
	.start = pghot_heat_start,
	.next = pghot_heat_next,
	.stop = pghot_heat_stop,
	.show = pghot_heat_show,
};

static int pghot_heat_open(struct inode *inode, struct file *file)
{
	return seq_open_private(file, &pghot_heat_operations,
				sizeof(struct ferry_hot_histogram));
}

static const struct file_operations pghot_heat_fops = {
	.owner = THIS_MODULE,
	.open = pghot_heat_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = seq_release_private,
};

static void __init pghot_debugfs_init(void)
{
	struct dentry *folder = debugfs_create_dir("pghot", NULL);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(pghot_debugfs); i++)
		debugfs_create_file(pghot_debugfs[i].name, 0644, folder,
				    (void *)&pghot_debugfs[i], &pghot_number_fops);
	debugfs_create_file("weights", 0644, folder, NULL, &pghot_weights_fops);
#ifdef CONFIG_PGHOT_HWHINTS
	debugfs_create_file("hwhints_event", 0644, folder, NULL, &pghot_event_fops);
#endif
	debugfs_create_file("format", 0444, folder, NULL, &pghot_format_fops);
	debugfs_create_file("status", 0444, folder, NULL, &pghot_status_fops);
	debugfs_create_file("heat", 0444, folder, NULL, &pghot_heat_fops);
}

void __init pghot_sysfs_init(void)
{
	if (IS_ENABLED(CONFIG_SYSCTL))
		pghot_sysctl_init();
	pghot_debugfs_init();
}
