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
 * @nontemporal: write past the caches; needs CONFIG_MIGRATOR_MTCOPY_NONTEMPORAL
 *
 * A page that cannot be read is not reported to memory_failure(): the folio is left to
 * the plain copy, which reads the page again and reports it.
 *
 * Context: Any. fail_function can make it fail, to test what becomes of the folio.
 * Return: 0; -EHWPOISON if a machine check stopped it; then @dst has any content.
 */
noinline int mtcopy_copy_pages(struct page *dst, struct page *src, unsigned int nr,
			       bool nontemporal)
{
	unsigned long left;

	if (IS_ENABLED(CONFIG_MIGRATOR_MTCOPY_NONTEMPORAL) && nontemporal)
		left = mtcopy_copy_nontemporal(dst, src, nr);
	else
		left = mtcopy_copy_plain(dst, src, nr);
	return left ? -EHWPOISON : 0;
}
ALLOW_ERROR_INJECTION(mtcopy_copy_pages, ERRNO);

/**
 * mtcopy_copy_finish - let other CPUs see what this one has copied
 * @nontemporal: as for the copies
 *
 * Context: Any, on the CPU that copied; a task that moved to another one in between was
 * scheduled, and that orders its stores as well.
 */
void mtcopy_copy_finish(bool nontemporal)
{
	if (!nontemporal)
		return;
	/*
	 * Before this lane says that it is finished: non-temporal stores are weakly ordered.
	 * That the atomic operation which says so orders them on x86 is not for us to know.
	 */
	wmb();
}
