/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * faultdma, the DMA engine that fails on demand, and what dcbm says of its channels.
 */
#ifndef _ENGINE_H
#define _ENGINE_H

#include <stdbool.h>

#define DCBM	"/sys/kernel/mm/migration/dcbm"

/* Takes the machine's own engines away until the program ends. */
void engine_alone(void);

/* Loads the engine with parameters, and makes dcbm active with it. Bails out. */
void engine_start(const char *parameters);

/* No migrator, no dcbm, no engine; false if something stays. */
bool engine_stop(void);

/* Writes a fault of all channels, or of one. */
void engine_set(const char *fault, unsigned int value);
void engine_set_one(unsigned int channel, const char *fault, unsigned int value);

/* Makes no faults any more. What hangs ends. */
void engine_heal(void);

/* A count, of all channels, or of one. */
long long engine_count(const char *count);
long long engine_count_one(unsigned int channel, const char *count);

/* Lines of dcbm/devices in which @text occurs. */
unsigned int dcbm_devices(const char *text);

/* Uses retired channels again; false if memory stays in quarantine for ten seconds. */
bool dcbm_recovers(void);

long long quarantined_bytes(void);

#endif /* _ENGINE_H */
