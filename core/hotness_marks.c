// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What is remembered beside the records: which node a section is used from, and which pages
 * go up and down.
 */
#ifdef __KERNEL__
#include <linux/memferry/hotness_format.h>
#else
#include <memferry/hotness_format.h>
#endif

#define MAJORITY_NODE	((uint32_t)1023)
#define MAJORITY_SHIFT	10
#define MAJORITY_MAX	((uint32_t)63)

/**
 * ferry_hot_majority - count the node of one access to a section
 * @majority: what was known before it; 0 if nothing
 * @node: the node; FERRY_HOT_NO_NODE or more counts for none
 *
 * Boyer's and Moore's vote: a node's own accesses count up, others' down, and at 0 the next
 * one takes over. A node from which more than half of the accesses come prevails; the count
 * ends at 63, so that a section whose user moved follows after as many accesses.
 *
 * The caller stores the result.
 * Return: what is known after it: bits 0-9 the node, 10-15 the count.
 */
uint16_t ferry_hot_majority(uint16_t majority, uint32_t node)
{
	uint32_t known = majority & MAJORITY_NODE, count = majority >> MAJORITY_SHIFT;

	if (node >= FERRY_HOT_NO_NODE)
		return majority;
	if (!count)
		known = node;
	if (known != node)
		count--;
	else if (count < MAJORITY_MAX)
		count++;
	return (uint16_t)(count << MAJORITY_SHIFT | known);
}

/**
 * ferry_hot_majority_node - the node that a section is used from
 * @majority: what is known
 *
 * Return: the node, or FERRY_HOT_NO_NODE if none prevails.
 */
uint32_t ferry_hot_majority_node(uint16_t majority)
{
	return majority >> MAJORITY_SHIFT ? majority & MAJORITY_NODE : FERRY_HOT_NO_NODE;
}

/*
 * An entry for pages that go up and down: bits 0-2 bounces, 3-5 agings without one, 6 the
 * page went down again, 7 in use, 8-15 tag.
 */
#define BOUNCES		((uint32_t)7)
#define BOUNCE_AGE	((uint32_t)7 << 3)
#define BOUNCE_AGE_ONE	((uint32_t)1 << 3)
#define BOUNCE_DOWN	((uint32_t)1 << 6)
#define BOUNCE_USED	((uint32_t)1 << 7)
#define BOUNCE_TAG	((uint32_t)0xff)
#define BOUNCE_SHIFT	8

static bool ferry_hot_tagged(uint16_t entry, uint32_t tag)
{
	return (entry & BOUNCE_USED) && entry >> BOUNCE_SHIFT == (tag & BOUNCE_TAG);
}

/**
 * ferry_hot_promoted - note that a page was promoted
 * @entry: the page's entry: the caller keeps a table of some thousands, all 0 at first, and
 *	takes the one that a hash of the page's number selects
 * @tag: other bits of that hash; the lowest 8 are used
 * @bounced: receives 1 if the page had been promoted and demoted before, else 0
 *
 * Only pages that move have entries, so a small table is enough. Where two pages meet in
 * one, the later replaces the earlier, and a bounce is overlooked; with 8 bits of tag one in
 * 256 such meetings is taken for the same page instead.
 *
 * The caller stores the result, and adds up @bounced.
 * Return: the entry after it.
 */
uint16_t ferry_hot_promoted(uint16_t entry, uint32_t tag, uint32_t *bounced)
{
	uint32_t bounces = 0;

	*bounced = 0;
	if (ferry_hot_tagged(entry, tag)) {
		bounces = entry & BOUNCES;
		if (!(entry & BOUNCE_DOWN))
			return entry;
		*bounced = 1;
		bounces = ferry_hot_least(bounces + 1, BOUNCES);
	}
	return (uint16_t)((tag & BOUNCE_TAG) << BOUNCE_SHIFT | BOUNCE_USED | bounces);
}

/**
 * ferry_hot_demoted - note that a page was demoted
 * @entry: the page's entry
 * @tag: the page's tag
 *
 * The caller stores the result.
 * Return: the entry after it; unchanged if the page's promotion is not known.
 */
uint16_t ferry_hot_demoted(uint16_t entry, uint32_t tag)
{
	return ferry_hot_tagged(entry, tag) ? entry | (uint16_t)BOUNCE_DOWN : entry;
}

/**
 * ferry_hot_bounce_aged - what a cooling makes of an entry
 * @entry: the entry before it
 *
 * Call it for the whole table as often as the records cool. It takes a bounce off, and
 * forgets the page after 8 times without one.
 *
 * The caller stores the result.
 * Return: the entry after it.
 */
uint16_t ferry_hot_bounce_aged(uint16_t entry)
{
	if (!(entry & BOUNCE_USED) || (entry & BOUNCE_AGE) == BOUNCE_AGE)
		return 0;
	if (entry & BOUNCES)
		entry--;
	return (uint16_t)(entry + BOUNCE_AGE_ONE);
}

/**
 * ferry_hot_bounces - how often a page bounced lately
 * @entry: the page's entry
 * @tag: the page's tag
 *
 * A page is worth promoting only if its heat exceeds the border by so many times the damp
 * of struct ferry_hot_params.
 *
 * Return: 0 to 7.
 */
uint32_t ferry_hot_bounces(uint16_t entry, uint32_t tag)
{
	return ferry_hot_tagged(entry, tag) ? entry & BOUNCES : 0;
}
