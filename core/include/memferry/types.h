/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The few types that the policy core needs, from the kernel's headers in the kernel and from
 * the compiler's own headers elsewhere. Nothing here may need a C library.
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
 * An argument is out of its documented range: Linux's EINVAL, returned negated. A name of its
 * own because a freestanding compiler has no <errno.h>.
 */
#define FERRY_EINVAL	22

/**
 * struct ferry_bad - which parameter is out of its range
 * @field: the constant of its header that names it; 0 if none is
 * @least: smallest allowed value, given the parameters before it
 * @most: largest allowed value
 */
struct ferry_bad {
	uint32_t field;
	uint64_t least;
	uint64_t most;
};

/* True if @value is from @least to @most; else *@bad says so. */
static inline bool ferry_within(struct ferry_bad *bad, uint32_t field, uint64_t value,
				uint64_t least, uint64_t most)
{
	if (value >= least && value <= most)
		return true;
	*bad = (struct ferry_bad){ .field = field, .least = least, .most = most };
	return false;
}

#endif /* MEMFERRY_TYPES_H */
