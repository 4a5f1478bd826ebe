// SPDX-License-Identifier: GPL-2.0-only
/*
 * Non-temporal copy for x86-64: MOVNTI writes whole cache lines without reading them
 * first and leaves the caches to others. That pays where nobody will soon read what was
 * moved, as in demotion.
 *
 * Only general registers, so that it needs no kernel_fpu_begin(). Loads are of eight
 * bytes and aligned, as in copy_mc_fragile(): on CPUs that survive a machine check in
 * such loads alone, this copy does, too.
 */
#include <linux/instrumented.h>
#include <linux/kmsan.h>
#include <linux/mm.h>
#include <asm/asm.h>

#include "mtcopy.h"

#define MTCOPY_LINE	64

/*
 * Copies @lines cache lines, at least one. Returns how many are left when a load failed.
 */
static unsigned long mtcopy_copy_lines(void *dst, const void *src, unsigned long lines)
{
	asm volatile("1:	movq (%[src]), %%r8\n"
		     "2:	movq 8(%[src]), %%r9\n"
		     "3:	movq 16(%[src]), %%r10\n"
		     "4:	movq 24(%[src]), %%r11\n"
		     "	movnti %%r8, (%[dst])\n"
		     "	movnti %%r9, 8(%[dst])\n"
		     "	movnti %%r10, 16(%[dst])\n"
		     "	movnti %%r11, 24(%[dst])\n"
		     "5:	movq 32(%[src]), %%r8\n"
		     "6:	movq 40(%[src]), %%r9\n"
		     "7:	movq 48(%[src]), %%r10\n"
		     "8:	movq 56(%[src]), %%r11\n"
		     "	movnti %%r8, 32(%[dst])\n"
		     "	movnti %%r9, 40(%[dst])\n"
		     "	movnti %%r10, 48(%[dst])\n"
		     "	movnti %%r11, 56(%[dst])\n"
		     "	addq %[line], %[src]\n"
		     "	addq %[line], %[dst]\n"
		     "	decq %[lines]\n"
		     "	jnz 1b\n"
		     "9:\n"
		     _ASM_EXTABLE_TYPE(1b, 9b, EX_TYPE_DEFAULT_MCE_SAFE)
		     _ASM_EXTABLE_TYPE(2b, 9b, EX_TYPE_DEFAULT_MCE_SAFE)
		     _ASM_EXTABLE_TYPE(3b, 9b, EX_TYPE_DEFAULT_MCE_SAFE)
		     _ASM_EXTABLE_TYPE(4b, 9b, EX_TYPE_DEFAULT_MCE_SAFE)
		     _ASM_EXTABLE_TYPE(5b, 9b, EX_TYPE_DEFAULT_MCE_SAFE)
		     _ASM_EXTABLE_TYPE(6b, 9b, EX_TYPE_DEFAULT_MCE_SAFE)
		     _ASM_EXTABLE_TYPE(7b, 9b, EX_TYPE_DEFAULT_MCE_SAFE)
		     _ASM_EXTABLE_TYPE(8b, 9b, EX_TYPE_DEFAULT_MCE_SAFE)
		     : [dst] "+r" (dst), [src] "+r" (src), [lines] "+r" (lines)
		     : [line] "i" (MTCOPY_LINE)
		     : "r8", "r9", "r10", "r11", "memory", "cc");
	return lines;
}

/*
 * Copies pages past the caches; see mtcopy_copy_finish(). Returns 0, or how many bytes are left,
 * in cache lines, if a machine check stopped it.
 */
unsigned long mtcopy_copy_nontemporal(struct page *dst, struct page *src, unsigned int nr)
{
	unsigned long bytes = (unsigned long)nr << PAGE_SHIFT, left;
	const void *from = page_address(src);
	void *to = page_address(dst);

	instrument_memcpy_before(to, from, bytes);
	left = mtcopy_copy_lines(to, from, bytes / MTCOPY_LINE) * MTCOPY_LINE;
	instrument_memcpy_after(to, from, bytes, left);
	for (; nr && !left; nr--)
		kmsan_copy_page_meta(dst++, src++);
	return left;
}
