// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The core's structures and constants as the C compiler sees them, for the binding's test
 * to compare its own declarations with. Not part of the core.
 */
#include <memferry/balance.h>
#include <memferry/choose.h>
#include <memferry/hotness.h>
#include <memferry/pace.h>
#include <memferry/share.h>

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
	SIZE(ferry_hot_params),
	FIELD(ferry_hot_params, window_ms), FIELD(ferry_hot_params, threshold),
	FIELD(ferry_hot_params, recall), FIELD(ferry_hot_params, step),
	FIELD(ferry_hot_params, sweep_ms), FIELD(ferry_hot_params, cool_sweeps),
	FIELD(ferry_hot_params, freq_shift), FIELD(ferry_hot_params, cost),
	FIELD(ferry_hot_params, damp),
	SIZE(ferry_bad),
	FIELD(ferry_bad, field), FIELD(ferry_bad, least), FIELD(ferry_bad, most),
	SIZE(ferry_hot_view),
	FIELD(ferry_hot_view, freq), FIELD(ferry_hot_view, eighths), FIELD(ferry_hot_view, age),
	FIELD(ferry_hot_view, ready), FIELD(ferry_hot_view, node),
	SIZE(ferry_hot_sweep),
	FIELD(ferry_hot_sweep, now), FIELD(ferry_hot_sweep, last), FIELD(ferry_hot_sweep, number),
	SIZE(ferry_hot_histogram),
	FIELD(ferry_hot_histogram, pages),
	SIZE(ferry_hot_cut),
	FIELD(ferry_hot_cut, heat), FIELD(ferry_hot_cut, above), FIELD(ferry_hot_cut, room),
	SIZE(ferry_balance_params),
	FIELD(ferry_balance_params, rounds), FIELD(ferry_balance_params, fade_shift),
	FIELD(ferry_balance_params, most_shift), FIELD(ferry_balance_params, bounce_rounds),
	SIZE(ferry_balance),
	FIELD(ferry_balance, room),
	SIZE(ferry_choose_option),
	FIELD(ferry_choose_option, start_ns), FIELD(ferry_choose_option, cpus),
	FIELD(ferry_choose_option, channels),
	SIZE(ferry_choose_cost),
	FIELD(ferry_choose_cost, mean), FIELD(ferry_choose_cost, spread),
	FIELD(ferry_choose_cost, margin), FIELD(ferry_choose_cost, samples),
	FIELD(ferry_choose_cost, streak), FIELD(ferry_choose_cost, cpu_share),
	SIZE(ferry_choose),
	FIELD(ferry_choose, slack), FIELD(ferry_choose, bank), FIELD(ferry_choose, nr_options),
	FIELD(ferry_choose, since), FIELD(ferry_choose, turn), FIELD(ferry_choose, next),
	FIELD(ferry_choose, options), FIELD(ferry_choose, costs),
	SIZE(ferry_batch),
	FIELD(ferry_batch, bytes), FIELD(ferry_batch, folio_bytes), FIELD(ferry_batch, cpus),
	FIELD(ferry_batch, channels), FIELD(ferry_batch, urgent),
	SIZE(ferry_choice),
	FIELD(ferry_choice, bytes), FIELD(ferry_choice, cpu_bytes), FIELD(ferry_choice, most_ns),
	FIELD(ferry_choice, option), FIELD(ferry_choice, trial),
	SIZE(ferry_hot_exchange),
	FIELD(ferry_hot_exchange, pages), FIELD(ferry_hot_exchange, hot),
	FIELD(ferry_hot_exchange, hot_room), FIELD(ferry_hot_exchange, cold),
	FIELD(ferry_hot_exchange, cold_room),
	SIZE(ferry_pace_params),
	FIELD(ferry_pace_params, rate), FIELD(ferry_pace_params, burst_ms),
	FIELD(ferry_pace_params, window_ms), FIELD(ferry_pace_params, reference_ms),
	SIZE(ferry_pace),
	FIELD(ferry_pace, tokens), FIELD(ferry_pace, depth), FIELD(ferry_pace, per_ms),
	FIELD(ferry_pace, candidates), FIELD(ferry_pace, per_ms_rest), FIELD(ferry_pace, carry),
	FIELD(ferry_pace, refilled), FIELD(ferry_pace, window_start),
	FIELD(ferry_pace, threshold_ms),
	CONSTANT(FERRY_SHARE_GRANULE), CONSTANT(FERRY_CHOOSE_OPTIONS),
	CONSTANT(FERRY_CHOOSE_SIZES), CONSTANT(FERRY_CHOOSE_PLAIN), CONSTANT(FERRY_CHOOSE_TRIAL),
	CONSTANT(FERRY_HOT_DEFAULT), CONSTANT(FERRY_HOT_PRECISE), CONSTANT(FERRY_HOT_SECTION), CONSTANT(FERRY_HOT_NO_NODE), CONSTANT(FERRY_HOT8_READY),
	CONSTANT(FERRY_HOT32_READY), CONSTANT(FERRY_HOT_EIGHTHS), CONSTANT(FERRY_HOT_AGES),
	CONSTANT(FERRY_HOT_IDLE_AGE), CONSTANT(FERRY_HOT_HEATS), CONSTANT(FERRY_HOT_WEIGHT_MAX),
	CONSTANT(FERRY_HOT_OK), CONSTANT(FERRY_HOT_WINDOW_MS), CONSTANT(FERRY_HOT_THRESHOLD),
	CONSTANT(FERRY_HOT_RECALL), CONSTANT(FERRY_HOT_STEP), CONSTANT(FERRY_HOT_SWEEP_MS),
	CONSTANT(FERRY_HOT_COOL_SWEEPS), CONSTANT(FERRY_HOT_FREQ_SHIFT), CONSTANT(FERRY_HOT_COST),
	CONSTANT(FERRY_HOT_DAMP), CONSTANT(FERRY_PACE_RATE_MAX), CONSTANT(FERRY_PACE_BYTES_MAX),
	CONSTANT(FERRY_PACE_OK), CONSTANT(FERRY_PACE_RATE), CONSTANT(FERRY_PACE_BURST_MS),
	CONSTANT(FERRY_PACE_WINDOW_MS), CONSTANT(FERRY_PACE_REFERENCE_MS),
};

const size_t ferry_nr_layouts = sizeof(ferry_layouts) / sizeof(ferry_layouts[0]);
