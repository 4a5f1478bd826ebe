// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The core's structures and constants as the C compiler sees them, for the binding's test
 * to compare its own declarations with. Not part of the core.
 */
#include <memferry/lanes.h>

#define CONSTANT(name)		{ #name, name, 0, 0 }
#define SIZE(type)		{ #type, 0, sizeof(struct type), _Alignof(struct type) }
#define FIELD(type, field)							\
	{ #type "." #field, offsetof(struct type, field),			\
	  sizeof(((struct type *)0)->field), 0 }

/* @at is a field's offset, or a constant's value. */
struct ferry_layout {
	const char *name;
	uint64_t at, size, align;
};

extern const struct ferry_layout ferry_layouts[];
extern const size_t ferry_nr_layouts;

const struct ferry_layout ferry_layouts[] = {
	SIZE(ferry_extent),
	FIELD(ferry_extent, src),
	FIELD(ferry_extent, dst),
	FIELD(ferry_extent, bytes),
	SIZE(ferry_lane),
	FIELD(ferry_lane, bytes),
	FIELD(ferry_lane, first),
	FIELD(ferry_lane, count),
	SIZE(ferry_deal),
	FIELD(ferry_deal, extents),
	FIELD(ferry_deal, nr_extents),
	FIELD(ferry_deal, granule),
	FIELD(ferry_deal, nr_lanes),
	FIELD(ferry_deal, flags),
	FIELD(ferry_deal, out),
	FIELD(ferry_deal, out_space),
	FIELD(ferry_deal, lanes),
	FIELD(ferry_deal, scratch),
	FIELD(ferry_deal, scratch_space),
	CONSTANT(FERRY_GRANULE_DEFAULT),
	CONSTANT(FERRY_GRANULE_MIN),
	CONSTANT(FERRY_GRANULE_MAX),
	CONSTANT(FERRY_LANES_MAX),
	CONSTANT(FERRY_EXTENTS_MAX),
	CONSTANT(FERRY_BYTES_MAX),
	CONSTANT(FERRY_EEXIST),
	CONSTANT(FERRY_EINVAL),
	CONSTANT(FERRY_EOVERFLOW),
};

const size_t ferry_nr_layouts = sizeof(ferry_layouts) / sizeof(ferry_layouts[0]);
