/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM migrator

#if !defined(_TRACE_MIGRATOR_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_MIGRATOR_H

#include <linux/migrate.h>
#include <linux/tracepoint.h>

/* A batch goes to a migrator. */
TRACE_EVENT(migrator_batch_start,

	TP_PROTO(const char *migrator, int reason, unsigned int folios, size_t bytes,
		 int dst_nid),

	TP_ARGS(migrator, reason, folios, bytes, dst_nid),

	TP_STRUCT__entry(
		__string(migrator, migrator)
		__string(reason, migrate_reason_names[reason])
		__field(unsigned int, folios)
		__field(size_t, bytes)
		__field(int, dst_nid)
	),

	TP_fast_assign(
		__assign_str(migrator);
		__assign_str(reason);
		__entry->folios = folios;
		__entry->bytes = bytes;
		__entry->dst_nid = dst_nid;
	),

	TP_printk("migrator=%s reason=%s folios=%u bytes=%zu dst_nid=%d",
		  __get_str(migrator), __get_str(reason), __entry->folios, __entry->bytes,
		  __entry->dst_nid)
);

/*
 * It came back; folios and bytes are those that it copied, all others are left to the plain copy.
 * error is the migrator's if it declined the batch.
 */
TRACE_EVENT(migrator_batch_done,

	TP_PROTO(const char *migrator, int reason, unsigned int folios, size_t bytes, u64 ns,
		 int error),

	TP_ARGS(migrator, reason, folios, bytes, ns, error),

	TP_STRUCT__entry(
		__string(migrator, migrator)
		__string(reason, migrate_reason_names[reason])
		__field(unsigned int, folios)
		__field(size_t, bytes)
		__field(u64, ns)
		__field(int, error)
	),

	TP_fast_assign(
		__assign_str(migrator);
		__assign_str(reason);
		__entry->folios = folios;
		__entry->bytes = bytes;
		__entry->ns = ns;
		__entry->error = error;
	),

	TP_printk("migrator=%s reason=%s folios=%u bytes=%zu ns=%llu error=%d",
		  __get_str(migrator), __get_str(reason), __entry->folios, __entry->bytes,
		  __entry->ns, __entry->error)
);

/* What one lane did of a batch; lane 0 is the migrating task itself. */
TRACE_EVENT(migrator_lane_done,

	TP_PROTO(unsigned int lane, int cpu, size_t bytes, u64 ns),

	TP_ARGS(lane, cpu, bytes, ns),

	TP_STRUCT__entry(
		__field(unsigned int, lane)
		__field(int, cpu)
		__field(size_t, bytes)
		__field(u64, ns)
	),

	TP_fast_assign(
		__entry->lane = lane;
		__entry->cpu = cpu;
		__entry->bytes = bytes;
		__entry->ns = ns;
	),

	TP_printk("lane=%u cpu=%d bytes=%zu ns=%llu",
		  __entry->lane, __entry->cpu, __entry->bytes, __entry->ns)
);

/*
 * What a DMA channel did of its share of a batch in one round, which is what it has mapped at a
 * time: entries mapped on each side, descriptors, and bytes that it copied. map_ns: to fill the
 * tables, map them and cut descriptors; submit_ns: until the engine has been given the first of
 * them; copy_ns: from there to its last answer.
 */
TRACE_EVENT(migrator_channel_round,

	TP_PROTO(unsigned int lane, unsigned int mappings, unsigned int descriptors, size_t bytes,
		 u64 map_ns, u64 submit_ns, u64 copy_ns, u64 unmap_ns),

	TP_ARGS(lane, mappings, descriptors, bytes, map_ns, submit_ns, copy_ns, unmap_ns),

	TP_STRUCT__entry(
		__field(unsigned int, lane)
		__field(unsigned int, mappings)
		__field(unsigned int, descriptors)
		__field(size_t, bytes)
		__field(u64, map_ns)
		__field(u64, submit_ns)
		__field(u64, copy_ns)
		__field(u64, unmap_ns)
	),

	TP_fast_assign(
		__entry->lane = lane;
		__entry->mappings = mappings;
		__entry->descriptors = descriptors;
		__entry->bytes = bytes;
		__entry->map_ns = map_ns;
		__entry->submit_ns = submit_ns;
		__entry->copy_ns = copy_ns;
		__entry->unmap_ns = unmap_ns;
	),

	TP_printk("lane=%u mappings=%u descriptors=%u bytes=%zu map_ns=%llu submit_ns=%llu copy_ns=%llu unmap_ns=%llu",
		  __entry->lane, __entry->mappings, __entry->descriptors, __entry->bytes,
		  __entry->map_ns, __entry->submit_ns, __entry->copy_ns, __entry->unmap_ns)
);

#endif /* _TRACE_MIGRATOR_H */

#include <trace/define_trace.h>
