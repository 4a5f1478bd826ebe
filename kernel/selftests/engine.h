/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * faultdma, the DMA engine that fails on demand, and what dcbm says of its channels.
 */
#ifndef _ENGINE_H
#define _ENGINE_H

#include <stdbool.h>

#define DCBM	"/sys/kernel/mm/migration/dcbm"

/* Of a batch, besides what its bytes take: more than a busy host stops a guest. */
#define SLACK_MS	10000

/*
 * What a test of the engine begins with: the machine's own engines are away, and the settings of
 * migration come back, when the program ends.
 */
void engine_test(void);

/* Loads the engine with parameters, and makes dcbm active with it, eager and patient. Bails out. */
void engine_start(const char *parameters);

/* No migrator, no dcbm, no engine; false if something stays. */
bool engine_stop(void);

/* Writes a fault of all channels, or of one. */
void engine_set(const char *fault, unsigned int value);
void engine_set_one(unsigned int channel, const char *fault, unsigned int value);

/* Makes no faults any more. What hangs goes on to hang. */
void engine_heal(void);

/*
 * Unbinds the driver of the engine and binds it again: dcbm has as many channels as before any
 * was lost. False if memory stays in quarantine in between. Bails out.
 */
bool engine_rebind(void);

/* A count, of all channels, or of one. */
long long engine_count(const char *count);
long long engine_count_one(unsigned int channel, const char *count);

/* Lines of dcbm/devices in which @text occurs. */
unsigned int dcbm_devices(const char *text);

/* How much longer dcbm waits for a batch than its bytes take. Bails out. */
void dcbm_slack(unsigned int ms);

long long quarantined_bytes(void);

#endif /* _ENGINE_H */
