// SPDX-License-Identifier: GPL-2.0-only
/*
 * unlockedwriter: writes to a memory file through short references to its page-cache folios,
 * with neither the folio lock nor a mapping, as drivers do that took their folios out of the
 * page cache once. It writes on each return from a function, to folios that somebody has
 * locked: with the batch-copy stage of migration these are the folios of the batch, between
 * their copy and their moves.
 *
 * A write adds 1 to the first word of a page. Those words and the number of writes must agree.
 */
#include <linux/atomic.h>
#include <linux/file.h>
#include <linux/highmem.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/pagemap.h>

static char *function;
module_param(function, charp, 0444);
MODULE_PARM_DESC(function, "its return is the moment to write");

static int fd = -1;
module_param(fd, int, 0444);
MODULE_PARM_DESC(fd, "the memory file, as the task that loads the module knows it");

static atomic_t written;
module_param_named(written, written.counter, int, 0444);

static struct file *file;

static void write_page(struct address_space *mapping, pgoff_t index)
{
	struct folio *folio = filemap_get_folio(mapping, index);
	u64 *word;

	if (IS_ERR(folio))
		return;
	if (folio_test_locked(folio)) {
		word = kmap_local_folio(folio, offset_in_folio(folio, index << PAGE_SHIFT));
		++*word;
		kunmap_local(word);
		atomic_inc(&written);
	}
	folio_put(folio);
}

/* Preemption is off. */
static int write_pages(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct address_space *mapping = file->f_mapping;
	pgoff_t index, end = i_size_read(mapping->host) >> PAGE_SHIFT;

	for (index = 0; index < end; index++)
		write_page(mapping, index);
	return 0;
}

static struct kretprobe writer_probe = {
	.handler = write_pages,
	/* More tasks at a time than any machine of the lab has CPUs. */
	.maxactive = 64,
};

static int __init unlockedwriter_init(void)
{
	int error;

	file = fget(fd);
	if (!file)
		return -EBADF;
	writer_probe.kp.symbol_name = function;
	error = register_kretprobe(&writer_probe);
	if (error)
		fput(file);
	return error;
}
module_init(unlockedwriter_init);

static void __exit unlockedwriter_exit(void)
{
	unregister_kretprobe(&writer_probe);
	fput(file);
}
module_exit(unlockedwriter_exit);

MODULE_DESCRIPTION("Writes to a memory file without lock and mapping");
MODULE_LICENSE("GPL");
