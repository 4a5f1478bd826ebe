/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Time between the copy of a batch and its moves, by the module movedelay.
 */
#ifndef _DELAY_H
#define _DELAY_H

#include <stdbool.h>

/*
 * From now on each batch of @migrator waits @ms after its copy, whatever lanes copied it. Does
 * nothing for "none" and "vanilla". Bails out if the module cannot be loaded.
 */
void delay_start(const char *migrator, unsigned int ms);

/* Returns how many batches were delayed. */
unsigned int delay_stop(void);

/*
 * Returns when a batch is delayed that was not when this was called; at once without delays, and
 * after a while if none comes: where all is pinned there is no batch.
 */
void delay_await(const volatile bool *stop);

#endif /* _DELAY_H */
