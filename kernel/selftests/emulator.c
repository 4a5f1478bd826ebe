// SPDX-License-Identifier: GPL-2.0-only
/* Asks the CPU who made it. */
#include "emulator.h"

#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>

#define HYPERVISOR_LEAF	0x40000000

bool emulator_patches_badly(void)
{
	unsigned int highest, name[3];

	__cpuid(HYPERVISOR_LEAF, highest, name[0], name[1], name[2]);
	return !memcmp(name, "TCGTCGTCGTCG", sizeof(name));
}
#else
/* Other architectures patch one instruction at a time. */
bool emulator_patches_badly(void)
{
	return false;
}
#endif
