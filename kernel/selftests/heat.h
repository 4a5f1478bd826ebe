/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What hot-page tracking knows of the sections of memory: debugfs, file pghot/heat.
 */
#ifndef _HEAT_H
#define _HEAT_H

#include <stdint.h>

/* Bytes of a section. */
#define SECTION_BYTES	(128ULL << 20)

/**
 * struct heat - of one section, or the sum over several
 * @sections: how many have records
 * @known: pages of which something is known
 * @hot: pages at the threshold or above it, and accessed lately
 * @majority: the node that accesses one of them most, or -1
 */
struct heat {
	long long sections;
	long long known;
	long long hot;
	long long majority;
};

/* Of the section of a page frame; of a node; of all (-1). Bail out if it cannot be read. */
struct heat heat_of_frame(uint64_t frame);
struct heat heat_of_node(int node);

#endif /* _HEAT_H */
