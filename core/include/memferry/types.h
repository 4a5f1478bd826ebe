/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The few types and error numbers that the policy core needs, from the kernel's
 * headers in the kernel and from the compiler's own headers elsewhere. Nothing
 * here may need a C library.
 */
#ifndef MEMFERRY_TYPES_H
#define MEMFERRY_TYPES_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

/*
 * Error numbers of the core, returned negated. They are Linux's on all of its
 * architectures but mips, parisc, sparc and alpha, where EOVERFLOW differs; own
 * names because a freestanding compiler has no <errno.h>.
 */
#define FERRY_EEXIST	17	/* two ranges that must be apart overlap */
#define FERRY_EINVAL	22	/* an argument is out of its documented range */
#define FERRY_ENOSPC	28	/* the caller's space is too small */
#define FERRY_EOVERFLOW	75	/* an address or a sum does not fit */

#endif /* MEMFERRY_TYPES_H */
