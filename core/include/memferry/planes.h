/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Bit planes: plane i holds bit i of each of 64 records or more. Eight words of records
 * become eight planes by a transposition in three steps, and back by the same one.
 *
 * A plane is as wide as the compiler's target computes at once; in the kernel, which has no
 * vector registers to spare, it is a word. The code is the same for all of them, but for
 * what AVX-512 has in one instruction: any function of three bits, and counting ones.
 *
 * Elsewhere masks are added up by adders of one bit (carry-save), so that ones are counted only
 * once in a while.
 *
 * For hotness_planes.c only.
 */
#ifndef MEMFERRY_PLANES_H
#define MEMFERRY_PLANES_H

#include "types.h"

#if defined(__KERNEL__) || defined(FERRY_ONE_WORD)
#define PLANE_WORDS	1
#elif defined(__AVX512F__)
#define PLANE_WORDS	8
#elif defined(__AVX2__)
#define PLANE_WORDS	4
#elif defined(__SSE2__) || defined(__ARM_NEON)
#define PLANE_WORDS	2
#else
#define PLANE_WORDS	1
#endif

#if PLANE_WORDS > 1
typedef uint64_t ferry_plane __attribute__((vector_size(8 * PLANE_WORDS)));
#else
typedef uint64_t ferry_plane;
#endif

#if PLANE_WORDS == 8 && defined(__AVX512VPOPCNTDQ__)
#define COUNTS_ONES
#endif

/* The same bits in each word. */
static inline ferry_plane ferry_repeat(uint64_t word)
{
	ferry_plane plane = { 0 };

	return plane + word;
}

/* Eight planes' worth of records, as they lie in memory. */
struct ferry_plane_memory {
	ferry_plane plane;
} __attribute__((packed, may_alias));

/* The words of a plane. */
typedef uint64_t ferry_plane_word __attribute__((may_alias));

#define BLOCK		(64 * PLANE_WORDS)	/* records of eight planes */
/* Blocks that are added up together: several share the adders' upper digits. */
#ifdef COUNTS_ONES
#define GROUP_SHIFT	0
#else
#define GROUP_SHIFT	2
#endif
#define GROUP		(1 << GROUP_SHIFT)

/* Binary digits of a count kept in planes. The kernel warns of frames above 2 KiB. */
#ifdef COUNTS_ONES
#define DIGITS		1
#define GROUPS_MAX	(1 << 20)
#else
#define DIGITS		(PLANE_WORDS > 1 ? 7 : 6)
#define GROUPS_MAX	(((1 << DIGITS) - 1) / GROUP)
#endif

#if PLANE_WORDS == 8
/* A plane as the compiler's built-in functions take it. */
#define WIDE(plane)	((long long __attribute__((vector_size(64))))(plane))

/* The function of three bits whose value for abc is bit abc of @table. */
#define LOGIC(a, b, c, table)							\
	((ferry_plane)__builtin_ia32_pternlogq512_mask(WIDE(a), WIDE(b), WIDE(c),	\
						       table, (unsigned char)-1))
#endif

/* 1 where at least two are. */
static inline ferry_plane ferry_majority(ferry_plane a, ferry_plane b, ferry_plane c)
{
#if PLANE_WORDS == 8
	return LOGIC(a, b, c, 0xe8);
#else
	return (a & b) | ((a | b) & c);
#endif
}

/* Exchanges the upper bits of @low with the lower ones of @high. */
static inline void ferry_swap_bits(ferry_plane *low, ferry_plane *high, int shift,
				   uint64_t mask)
{
#if PLANE_WORDS == 8
	/* mask ? low : high, and the other way round; neither waits for the other. */
	ferry_plane down = *low >> shift, up = *high << shift;

	*high = LOGIC(ferry_repeat(mask), down, *high, 0xca);
	*low = LOGIC(ferry_repeat(mask << shift), up, *low, 0xca);
#else
	ferry_plane swap = (*low >> shift ^ *high) & mask;

	*high ^= swap;
	*low ^= swap << shift;
#endif
}

/* Words of records to planes, or planes to words of records. */
static inline void ferry_transpose(ferry_plane *planes)
{
	int i;

	for (i = 0; i < 4; i++)
		ferry_swap_bits(&planes[i], &planes[i + 4], 4, 0x0f0f0f0f0f0f0f0fu);
	for (i = 0; i < 8; i += i & 1 ? 3 : 1)
		ferry_swap_bits(&planes[i], &planes[i + 2], 2, 0x3333333333333333u);
	for (i = 0; i < 8; i += 2)
		ferry_swap_bits(&planes[i], &planes[i + 1], 1, 0x5555555555555555u);
}

static inline bool ferry_zero(ferry_plane plane)
{
	const ferry_plane_word *words = (const ferry_plane_word *)&plane;
	uint64_t any = 0;
	int k;

	for (k = 0; k < PLANE_WORDS; k++)
		any |= words[k];
	return !any;
}

#ifdef COUNTS_ONES

/* Adds a mask to a count, word by word. */
static inline void ferry_count(ferry_plane *digit, ferry_plane *ones)
{
	*digit += (ferry_plane)__builtin_ia32_vpopcountq_v8di(WIDE(*ones));
}

/* What a count amounts to; it begins anew. */
static uint64_t ferry_counted(ferry_plane *digit)
{
	const ferry_plane_word *words = (const ferry_plane_word *)digit;
	uint64_t count = 0;
	int k;

	for (k = 0; k < PLANE_WORDS; k++)
		count += words[k];
	*digit ^= *digit;
	return count;
}

#else

/* Adds three planes of one digit: *@sum becomes their sum, and the carry is returned. */
static inline ferry_plane ferry_add(ferry_plane *sum, ferry_plane a, ferry_plane b)
{
	ferry_plane carry = ferry_majority(a, b, *sum);

	*sum ^= a ^ b;
	return carry;
}

/* Adds a mask of each block of a group to a count; @ones is left with any content. */
static inline void ferry_count(ferry_plane *digit, ferry_plane *ones)
{
	ferry_plane carry;
	int i, k;

	/* Each digit adds its planes in pairs, which leaves half as many to the next one. */
	for (i = 0; i < GROUP_SHIFT; i++)
		for (k = 0; k < GROUP >> (i + 1); k++)
			ones[k] = ferry_add(&digit[i], ones[2 * k], ones[2 * k + 1]);
	for (; i < DIGITS; i++) {
		carry = digit[i] & ones[0];
		digit[i] ^= ones[0];
		ones[0] = carry;
	}
}

/* The ones of each byte. */
static inline ferry_plane ferry_ones(ferry_plane plane)
{
	plane -= plane >> 1 & 0x5555555555555555u;
	plane = (plane & 0x3333333333333333u) + (plane >> 2 & 0x3333333333333333u);
	return (plane + (plane >> 4)) & 0x0f0f0f0f0f0f0f0fu;
}

/* The sum of the bytes of each word. */
static inline ferry_plane ferry_bytes(ferry_plane plane)
{
	plane = (plane & 0x00ff00ff00ff00ffu) + (plane >> 8 & 0x00ff00ff00ff00ffu);
	plane += plane >> 16;
	return (plane + (plane >> 32)) & 0xffff;
}

/* What a count in planes amounts to; it begins anew. */
static uint64_t ferry_counted(ferry_plane *digit)
{
	const ferry_plane_word *words;
	ferry_plane low, high = digit[0];
	uint64_t count = 0;
	int i, k;

	for (i = 1; i < DIGITS; i++)
		high |= digit[i];
	if (ferry_zero(high))
		return 0;
	/* Bytes hold 8 ones of each of the digits 0 to 3, and of the digits 4 to 6. */
	low = ferry_ones(digit[0]);
	high = ferry_ones(digit[4]);
	for (i = 1; i < 4; i++)
		low += ferry_ones(digit[i]) << i;
	for (i = 5; i < DIGITS; i++)
		high += ferry_ones(digit[i]) << (i - 4);
	low = ferry_bytes(low) + (ferry_bytes(high) << 4);
	words = (const ferry_plane_word *)&low;
	for (k = 0; k < PLANE_WORDS; k++)
		count += words[k];
	for (i = 0; i < DIGITS; i++)
		digit[i] ^= digit[i];
	return count;
}

#endif /* COUNTS_ONES */

#endif /* MEMFERRY_PLANES_H */
