// SPDX-License-Identifier: GPL-2.0-only
/*
 * The files of pghot: sysctls vm.pghot_* and debugfs pghot/. A value that is refused changes
 * nothing. Documentation/admin-guide/mm/pghot.rst describes every file.
 */
#include <linux/debugfs.h>
#include <linux/init.h>
#include <linux/memferry/pace.h>
#include <linux/mm.h>
#include <linux/sched/sysctl.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysctl.h>
#include <linux/uaccess.h>

#include "pghot.h"

/* Text for any file is shorter than this. */
#define PGHOT_TEXT	128

/* A file with one number, which get() reads and set() changes, or with a text. */
struct pghot_file {
	const char *name;
	unsigned int (*get)(void);
	int (*set)(unsigned int value);
	int (*show)(struct seq_file *to, void *unused);
	int (*store)(char *text);
};

/* Takes one number, or the file's text, and at most the newline that echo(1) adds. */
static int pghot_file_store(const struct pghot_file *file, char *text, size_t count)
{
	unsigned int value;

	if (strlen(text) != count)
		return -EINVAL;
	if (file->store)
		return file->store(strim(text));
	return kstrtouint(text, 0, &value) ? -EINVAL : file->set(value);
}

static unsigned int pghot_get_threshold(void)
{
	return pghot_get_params().threshold;
}

static unsigned int pghot_get_window(void)
{
	return pghot_get_params().window_ms;
}

static unsigned int pghot_get_rate(void)
{
	return READ_ONCE(sysctl_numa_balancing_promote_rate_limit);
}

static int pghot_set_rate(unsigned int value)
{
	if (!value || value > FERRY_PACE_RATE_MAX >> 20)
		return -EINVAL;
	WRITE_ONCE(sysctl_numa_balancing_promote_rate_limit, value);
	return 0;
}

static const struct pghot_file pghot_sysctls[] = {
	{ .name = "pghot_enabled_sources", .get = pghot_sources, .set = pghot_set_sources },
	{ .name = "pghot_target_nid", .get = pghot_target_nid, .set = pghot_set_target_nid },
	{ .name = "pghot_promote_freq_window_ms", .get = pghot_get_window,
	  .set = pghot_set_window },
	{ .name = "pghot_promote_rate_limit_MBps", .get = pghot_get_rate, .set = pghot_set_rate },
};

static const struct pghot_file pghot_debugfs[] = {
	{ .name = "freq_threshold", .get = pghot_get_threshold, .set = pghot_set_threshold },
#ifdef CONFIG_PGHOT_HWHINTS
	/* Which counter has the addresses of data is known to who knows the machine alone. */
	{ .name = "hwhints_event", .show = pghot_perf_show_event, .store = pghot_perf_set_event },
#endif
};

static int pghot_sysctl(const struct ctl_table *table, int write, void *buffer, size_t *lenp,
			loff_t *ppos)
{
	const struct pghot_file *file = table->data;
	unsigned int value = file->get();
	struct ctl_table number = { .data = &value, .maxlen = sizeof(value) };
	int error;

	if (!write)
		return proc_douintvec(&number, write, buffer, lenp, ppos);
	error = *ppos ? -EINVAL : pghot_file_store(file, buffer, *lenp);
	if (!error)
		*ppos += *lenp;
	return error;
}

static int pghot_file_show(struct seq_file *to, void *unused)
{
	const struct pghot_file *file = to->private;

	if (file->show)
		return file->show(to, unused);
	seq_printf(to, "%u\n", file->get());
	return 0;
}

static ssize_t pghot_file_write(struct file *file, const char __user *from, size_t count,
				loff_t *ppos)
{
	char text[PGHOT_TEXT];

	if (*ppos || count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, from, count))
		return -EFAULT;
	text[count] = '\0';
	return pghot_file_store(file_inode(file)->i_private, text, count) ?: count;
}
DEFINE_SHOW_STORE_ATTRIBUTE(pghot_file);

static int pghot_status_show(struct seq_file *file, void *unused)
{
	static const char * const names[PGHOT_STATS] = {
		[PGHOT_HINTFAULT] = "recorded_hintfaults",
		[PGHOT_HWHINT] = "recorded_hwhints",
		[PGHOT_PGTSCAN] = "recorded_pgtscans",
		[PGHOT_EXCHANGED] = "exchanged",
		[PGHOT_BOUNCED] = "bounced",
		[PGHOT_FAILED_PINNED] = "failed_pinned",
		[PGHOT_FAILED_OWNER] = "failed_owner",
		[PGHOT_FAILED_OFF_LRU] = "failed_off_lru",
		[PGHOT_FAILED_NO_BLOCK] = "failed_no_block",
		[PGHOT_FAILED_BUSY] = "failed_busy",
		[PGHOT_SCANNED_PTES] = "scanned_ptes",
		[PGHOT_SCAN_US] = "scan_us",
		[PGHOT_WAKEUPS] = "wakeups",
	};
	unsigned int stat;
	int cpu;

	seq_printf(file, "format %s\n", pghot_precise ? "precise" : "default");
	seq_printf(file, "record_bytes %ld\n", atomic_long_read(&pghot_record_memory));
	seq_printf(file, "looks_sooner %u\n", pghot_looks_sooner());
	for (stat = 0; stat < PGHOT_STATS; stat++) {
		unsigned long sum = 0;

		for_each_possible_cpu(cpu)
			sum += READ_ONCE(per_cpu(pghot_stats, cpu)[stat]);
		seq_printf(file, "%s %lu\n", names[stat], sum);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(pghot_status);

static void pghot_heat_section(struct seq_file *file, const struct pghot_section *section,
			       struct ferry_hot_histogram *histogram, unsigned int freq_max)
{
	u64 by_freq[FERRY_HOT32_FREQ_MAX + 1] = { 0 }, known = 0, hot = 0;
	unsigned int freq, age, eighths, threshold = pghot_get_threshold();
	u32 majority;

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
	for (freq = 1; freq <= freq_max; freq++)
		seq_printf(file, " %llu", by_freq[freq]);
	seq_putc(file, '\n');
}

static int pghot_heat_show(struct seq_file *file, void *unused)
{
	unsigned int freq, freq_max = pghot_precise ? FERRY_HOT32_FREQ_MAX : FERRY_HOT8_FREQ_MAX;
	struct ferry_hot_histogram *histogram = kmalloc(sizeof(*histogram), GFP_KERNEL);
	struct pghot_section *section;
	int nid;

	if (!histogram)
		return -ENOMEM;
	seq_puts(file, "# section nid pages_known hot majority_node");
	for (freq = 1; freq <= freq_max; freq++)
		seq_printf(file, " freq%u", freq);
	seq_putc(file, '\n');
	for_each_online_node(nid) {
		for_each_pghot_section(section, nid) {
			pghot_heat_section(file, section, histogram, freq_max);
			cond_resched();
		}
	}
	kfree(histogram);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(pghot_heat);

static struct ctl_table pghot_table[ARRAY_SIZE(pghot_sysctls)];

void __init pghot_sysfs_init(void)
{
	struct dentry *folder = debugfs_create_dir("pghot", NULL);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(pghot_sysctls); i++)
		pghot_table[i] = (struct ctl_table){
			.procname = pghot_sysctls[i].name,
			.data = (void *)&pghot_sysctls[i],
			.maxlen = sizeof(unsigned int),
			.mode = 0644,
			.proc_handler = pghot_sysctl,
		};
	if (IS_ENABLED(CONFIG_SYSCTL))
		register_sysctl_init("vm", pghot_table);
	for (i = 0; i < ARRAY_SIZE(pghot_debugfs); i++)
		debugfs_create_file(pghot_debugfs[i].name, 0644, folder,
				    (void *)&pghot_debugfs[i], &pghot_file_fops);
	debugfs_create_file("status", 0444, folder, NULL, &pghot_status_fops);
	debugfs_create_file("heat", 0444, folder, NULL, &pghot_heat_fops);
}
