// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copying pages: neighbouring pages of one folio to those of another, so that a machine
 * check in the source costs the folio, not the kernel.
 */
#include <linux/error-injection.h>
#include <linux/highmem.h>
#include <linux/kmsan.h>
#include <linux/mm.h>
#include <linux/uaccess.h>
#include <asm/barrier.h>

#include "mtcopy.h"

#ifdef copy_mc_to_kernel
/*
 * As copy_mc_highpage(), but one call for all pages: x86's string instructions take a
 * while to start, and pages that follow each other in a folio do so in the direct map.
 */
static unsigned long mtcopy_copy_plain(struct page *dst, struct page *src, unsigned int nr)
{
	unsigned long left;

	left = copy_mc_to_kernel(page_address(dst), page_address(src), nr << PAGE_SHIFT);
	for (; nr && !left; nr--)
		kmsan_copy_page_meta(dst++, src++);
	return left;
}
#else
/* No machine check to survive, but perhaps more than bytes to copy: arm64's tags. */
static unsigned long mtcopy_copy_plain(struct page *dst, struct page *src, unsigned int nr)
{
	for (; nr; nr--)
		copy_highpage(dst++, src++);
	return 0;
}
#endif

/**
 * mtcopy_copy_pages - copy pages
 * @dst: first page to write
 * @src: first page to read
 * @nr: number of pages; both runs lie in one folio and have MTCOPY_GRANULE bytes at most
 * @nontemporal: write past the caches; needs CONFIG_X86_64
 *
 * Return: 0; -EHWPOISON if a machine check stopped it, which memory_failure() then learns of.
 */
noinline int mtcopy_copy_pages(struct page *dst, struct page *src, unsigned int nr,
			       bool nontemporal)
{
	unsigned long left;

	if (IS_ENABLED(CONFIG_X86_64) && nontemporal)
		left = mtcopy_copy_nontemporal(dst, src, nr);
	else
		left = mtcopy_copy_plain(dst, src, nr);
	if (!left)
		return 0;
	memory_failure_queue(page_to_pfn(src + nr - 1 - (left - 1) / PAGE_SIZE), 0);
	return -EHWPOISON;
}
ALLOW_ERROR_INJECTION(mtcopy_copy_pages, ERRNO);

void mtcopy_copy_finish(bool nontemporal)
{
	/* Non-temporal stores are weakly ordered; what follows says that this lane is finished. */
	if (nontemporal)
		wmb();	/* order them before it */
}
