/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM pghot

#if !defined(_TRACE_PGHOT_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_PGHOT_H

#include <linux/tracepoint.h>

/* A source reported an access to the folio that begins at @pfn; @ready: it may be promoted. */
TRACE_EVENT(pghot_reported,

	TP_PROTO(unsigned long pfn, int nid, int source, bool ready),

	TP_ARGS(pfn, nid, source, ready),

	TP_STRUCT__entry(
		__field(unsigned long, pfn)
		__field(int, nid)
		__field(int, source)
		__field(bool, ready)
	),

	TP_fast_assign(
		__entry->pfn = pfn;
		__entry->nid = nid;
		__entry->source = source;
		__entry->ready = ready;
	),

	TP_printk("pfn=%lu nid=%d source=%d ready=%d", __entry->pfn, __entry->nid,
		  __entry->source, __entry->ready)
);

/* kmigrated wants to promote it in this round. */
TRACE_EVENT(pghot_chosen,

	TP_PROTO(unsigned long pfn, unsigned int heat),

	TP_ARGS(pfn, heat),

	TP_STRUCT__entry(
		__field(unsigned long, pfn)
		__field(unsigned int, heat)
	),

	TP_fast_assign(
		__entry->pfn = pfn;
		__entry->heat = heat;
	),

	TP_printk("pfn=%lu heat=%u", __entry->pfn, __entry->heat)
);

/* It is in a batch for node @nid. */
TRACE_EVENT(pghot_isolated,

	TP_PROTO(unsigned long pfn, int nid),

	TP_ARGS(pfn, nid),

	TP_STRUCT__entry(
		__field(unsigned long, pfn)
		__field(int, nid)
	),

	TP_fast_assign(
		__entry->pfn = pfn;
		__entry->nid = nid;
	),

	TP_printk("pfn=%lu nid=%d", __entry->pfn, __entry->nid)
);

/* Whoever moved it, its record is at @to now. */
TRACE_EVENT(pghot_moved,

	TP_PROTO(unsigned long pfn, unsigned long to, int nid),

	TP_ARGS(pfn, to, nid),

	TP_STRUCT__entry(
		__field(unsigned long, pfn)
		__field(unsigned long, to)
		__field(int, nid)
	),

	TP_fast_assign(
		__entry->pfn = pfn;
		__entry->to = to;
		__entry->nid = nid;
	),

	TP_printk("pfn=%lu to=%lu nid=%d", __entry->pfn, __entry->to, __entry->nid)
);

#endif /* _TRACE_PGHOT_H */

#include <trace/define_trace.h>
