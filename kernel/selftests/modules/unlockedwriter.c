// SPDX-License-Identifier: GPL-2.0-only
/*
 * unlockedwriter: a thread writes to a memory file, page after page and for ever, through short
 * references to its page-cache folios, without the folio lock and without a mapping, as drivers do.
 *
 * A write adds 1 to the first word of a page. Those words and the number of writes must agree.
 */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/kthread.h>
#include <linux/memfd.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/shmem_fs.h>

static bool pins;
module_param(pins, bool, 0444);
MODULE_PARM_DESC(pins, "by memfd_pin_folios(), as udmabuf does; else by shmem_read_mapping_page(), as i915, ttm and SGX do");

static unsigned int pause_ms;
module_param(pause_ms, uint, 0444);
MODULE_PARM_DESC(pause_ms, "after the last page, at most, before it begins anew");

static int fd = -1;
module_param(fd, int, 0444);
MODULE_PARM_DESC(fd, "the memory file, as the task that loads the module knows it");

static struct task_struct *thread;
static struct file *file;
static atomic_long_t written;

static int written_get(char *text, const struct kernel_param *parameter)
{
	return sysfs_emit(text, "%ld\n", atomic_long_read(&written));
}

static const struct kernel_param_ops written_ops = { .get = written_get };
module_param_cb(written, &written_ops, NULL, 0444);

static void stop(void)
{
	if (thread)
		kthread_stop(thread);
	thread = NULL;
}

/* So that written is read when it does not change any more. */
static int stop_set(const char *text, const struct kernel_param *parameter)
{
	stop();
	return 0;
}

static const struct kernel_param_ops stop_ops = { .set = stop_set };
module_param_cb(stop, &stop_ops, NULL, 0200);


static void add_one(struct folio *folio, size_t offset)
{
	u64 *word = kmap_local_folio(folio, offset);

	WRITE_ONCE(*word, *word + 1);
	kunmap_local(word);
	folio_mark_dirty(folio);
	atomic_long_inc(&written);
}

static void write_pinned(pgoff_t index)
{
	loff_t at = (loff_t)index << PAGE_SHIFT;
	struct folio *folio;
	pgoff_t offset;

	if (memfd_pin_folios(file, at, at + PAGE_SIZE - 1, &folio, 1, &offset) != 1)
		return;
	add_one(folio, offset);
	unpin_folio(folio);
}

static void write_read(pgoff_t index)
{
	struct page *page = shmem_read_mapping_page(file->f_mapping, index);

	if (IS_ERR(page))
		return;
	add_one(page_folio(page), offset_in_folio(page_folio(page), (loff_t)index << PAGE_SHIFT));
	put_page(page);
}

static int write_for_ever(void *unused)
{
	pgoff_t index, end = i_size_read(file_inode(file)) >> PAGE_SHIFT;

	while (!kthread_should_stop()) {
		for (index = 0; index < end && !kthread_should_stop(); index++) {
			if (pins)
				write_pinned(index);
			else
				write_read(index);
			cond_resched();
		}
		if (pause_ms)
			msleep(get_random_u32_below(pause_ms));
	}
	return 0;
}

static int __init unlockedwriter_init(void)
{
	file = fget(fd);
	if (!file)
		return -EBADF;
	thread = kthread_run(write_for_ever, NULL, "unlockedwriter");
	if (IS_ERR(thread)) {
		fput(file);
		return PTR_ERR(thread);
	}
	return 0;
}
module_init(unlockedwriter_init);

static void __exit unlockedwriter_exit(void)
{
	stop();
	fput(file);
}
module_exit(unlockedwriter_exit);

MODULE_DESCRIPTION("Writes to a memory file without lock and mapping");
MODULE_LICENSE("GPL");
