// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Deals a batch to lanes so that all of them finish at about the same time.
 *
 * Think of the batch as one line of bytes, its extents one after the other in input
 * order. A deal cuts the line at nr_lanes - 1 places, and lane k copies what lies
 * between cut k and cut k + 1: input order and long runs come for free, and every
 * byte lies in exactly one lane, whatever the sizes.
 *
 * A cut may lie only on the grid: at an extent's end, or a multiple of the granule
 * from its start. So cuts keep the alignment of the extent, and an extent of one
 * granule or less is never cut. Neighbouring places of the grid are at most one
 * granule apart; from this alone follows that a deal exists in which any two lanes
 * differ by at most one granule (proof at ferry_band()). Of the places that keep
 * this bound a cut takes an extent's end if there is one: folios stay whole where
 * there are enough of them.
 */
#ifdef __KERNEL__
#include <linux/memferry/lanes.h>
#else
#include <memferry/lanes.h>
#endif

/* What the steps of one deal share; positions count bytes from the line's start. */
struct ferry_line {
	const struct ferry_extent *extents;
	size_t nr_extents;
	uint64_t total;
	uint64_t granule;
	uint32_t nr_lanes;
	/* entry k: .src the lowest and .dst the highest place where lane k may end */
	struct ferry_extent *ends;
};

static uint64_t ferry_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t ferry_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Rounding to multiples of @granule, a power of two. */
static uint64_t ferry_down(uint64_t bytes, uint64_t granule)
{
	return bytes & ~(granule - 1);
}

static uint64_t ferry_up(uint64_t bytes, uint64_t granule)
{
	return ferry_down(bytes + granule - 1, granule);
}

/*
 * @bytes / @lanes, in four digits of 16 bits: as @lanes is below 2^16, a remainder
 * and a digit fit 32 bits, and no host needs a 64-bit division routine.
 */
static uint64_t ferry_share(uint64_t bytes, uint32_t lanes)
{
	uint64_t quotient = 0;
	uint32_t digit, left = 0;
	int shift;

	for (shift = 48; shift >= 0; shift -= 16) {
		digit = (uint32_t)(bytes >> shift) & 0xffff;
		left = left << 16 | digit;
		quotient = quotient << 16 | left / lanes;
		left %= lanes;
	}
	return quotient;
}

/*
 * Fills in the highest place of the grid where each lane can end if no lane carries
 * more than @most. True if the last lane can reach the line's end; else *@step is by
 * how much @most must grow at least for any of these places to change.
 */
static bool ferry_reach_high(const struct ferry_line *line, uint64_t most, uint64_t *step)
{
	const struct ferry_extent *extent = line->extents;
	uint64_t start = 0, end = 0, target, next;
	uint32_t lane;

	*step = most;
	for (lane = 0; lane < line->nr_lanes; lane++) {
		target = end + most;
		if (target >= line->total) {
			end = line->total;
		} else {
			for (; start + extent->bytes <= target; extent++)
				start += extent->bytes;
			end = start + ferry_down(target - start, line->granule);
			next = ferry_min(end + line->granule, start + extent->bytes);
			*step = ferry_min(*step, next - target);
		}
		line->ends[lane].dst = end;
	}
	return end == line->total;
}

/*
 * The same for the lowest place where each lane can end if no lane carries less than
 * @least. False if a lane would have to end behind the line's end; then *@step is by
 * how much @least must shrink at least for anything to change.
 */
static bool ferry_reach_low(const struct ferry_line *line, uint64_t least, uint64_t *step)
{
	const struct ferry_extent *extent = line->extents;
	uint64_t start = 0, end = 0, target, before;
	uint32_t lane;

	*step = least;
	for (lane = 0; lane < line->nr_lanes; lane++) {
		target = end + least;
		if (target > line->total) {
			*step = ferry_min(*step, target - line->total);
			return false;
		}
		for (; start + extent->bytes < target; extent++)
			start += extent->bytes;
		end = start + ferry_min(ferry_up(target - start, line->granule), extent->bytes);
		if (least) {
			before = start + ferry_down(end - start - 1, line->granule);
			*step = ferry_min(*step, target - before);
		}
		line->ends[lane].src = end;
	}
	return true;
}

/*
 * Finds a load L such that a deal exists in which every lane carries L to
 * L + granule bytes, fills in where each lane may end then, and returns L.
 *
 * Let g be the granule, T the line's length, N the lanes. If lane k can end at every
 * place of the grid from lo[k] to hi[k], lane k + 1 can end at every place from
 * lo[k] + L to hi[k] + L + g: neighbouring places are at most g apart, so the ranges
 * that they open touch. Hence L is good if and only if lo[N] <= T and hi[N] = T.
 *
 * A good L exists. Let L be the smallest for which hi[N] reaches T. If L is 0, lo[N]
 * is 0. Else take the chain h[k] that L - 1 gives, which ends before T: h[k] is the
 * last place up to h[k-1] + L - 1 + g. One of any g neighbouring bytes' ends is a
 * place, so h[k] >= h[k-1] + L, and by induction lo[k] <= h[k]; so lo[N] < T.
 * (The theorem is Barany and Grinberg's, "Block partitions of sequences".)
 *
 * Too small an L fails at hi, too large a one at lo, and no good one is outside
 * [T / N - g, T / N]: hence the bisection. It starts where the band's middle is T / N,
 * as cuts have most freedom there. Leaping over values that change nothing makes a
 * batch of equal folios take three turns at most, not log2(g).
 */
static uint64_t ferry_band(const struct ferry_line *line, uint64_t share)
{
	uint64_t low = share - ferry_min(share, line->granule), high = share;
	uint64_t least = share - ferry_min(share, line->granule / 2), step;

	for (;; least = low + (high - low) / 2) {
		if (!ferry_reach_high(line, least + line->granule, &step))
			low = least + step;
		else if (!ferry_reach_low(line, least, &step))
			high = least - step;
		else
			return least;
	}
}

/*
 * Chooses the cuts from the last to the first and leaves in each lane's bytes the
 * position where it begins. [from, to] is where the cut keeps both of its sides in
 * the band; it holds a place of the grid, as ferry_band() has seen to. Nearest to
 * @ideal wins, extents' ends first.
 */
static void ferry_cut(const struct ferry_line *line, uint64_t least, uint64_t share,
		      struct ferry_lane *lanes)
{
	uint64_t most = least + line->granule;
	uint64_t start = line->total, end = line->total;
	uint64_t ideal, from, to, cut, prev;
	size_t at = line->nr_extents;
	uint32_t lane;

	for (lane = line->nr_lanes - 1; lane > 0; lane--) {
		from = ferry_max(line->ends[lane - 1].src, end - ferry_min(end, most));
		to = ferry_min(line->ends[lane - 1].dst, end - least);
		ideal = lane * share;

		while (start > to)
			start -= line->extents[--at].bytes;
		while (start > ideal) {
			prev = start - line->extents[at - 1].bytes;
			if (prev < from || (prev < ideal && ideal - prev > start - ideal))
				break;
			start = prev;
			at--;
		}
		cut = start;
		if (start < from) {
			cut = start + ferry_down(ferry_max(ideal, start) - start, line->granule);
			cut = ferry_max(cut, start + ferry_up(from - start, line->granule));
			cut = ferry_min(cut, start + ferry_down(to - start, line->granule));
		}
		lanes[lane].bytes = cut;
		end = cut;
	}
	lanes[0].bytes = 0;
}

/* Writes the pieces. Lane k begins at lanes[k].bytes, which becomes its load. */
static void ferry_write(const struct ferry_line *line, struct ferry_extent *out,
			struct ferry_lane *lanes)
{
	const struct ferry_extent *extent = line->extents;
	uint64_t done = 0, left, len;
	uint32_t lane, piece = 0;

	for (lane = 0; lane < line->nr_lanes; lane++) {
		left = lane + 1 < line->nr_lanes ? lanes[lane + 1].bytes : line->total;
		left -= lanes[lane].bytes;
		lanes[lane].bytes = left;
		lanes[lane].first = piece;
		while (left) {
			len = ferry_min(extent->bytes - done, left);
			out[piece].src = extent->src + done;
			out[piece].dst = extent->dst + done;
			out[piece].bytes = len;
			piece++;
			left -= len;
			done += len;
			if (done == extent->bytes) {
				extent++;
				done = 0;
			}
		}
		lanes[lane].count = piece - lanes[lane].first;
	}
}

static int ferry_check_arguments(const struct ferry_deal *deal)
{
	bool check = !(deal->flags & FERRY_DEAL_DISJOINT);

	if (!deal->nr_lanes || deal->nr_lanes > FERRY_LANES_MAX || !deal->lanes)
		return -FERRY_EINVAL;
	if (deal->granule < FERRY_GRANULE_MIN || deal->granule > FERRY_GRANULE_MAX ||
	    deal->granule & (deal->granule - 1))
		return -FERRY_EINVAL;
	if (deal->flags & ~FERRY_DEAL_DISJOINT)
		return -FERRY_EINVAL;
	if (deal->nr_extents > FERRY_EXTENTS_MAX)
		return -FERRY_EOVERFLOW;
	if (!deal->nr_extents)
		return 0;
	if (!deal->extents || !deal->out || (check && !deal->scratch))
		return -FERRY_EINVAL;
	if (deal->out_space < ferry_deal_space(deal->nr_extents, deal->nr_lanes))
		return -FERRY_ENOSPC;
	if (check && deal->scratch_space < ferry_extents_scratch(deal->nr_extents))
		return -FERRY_ENOSPC;
	return 0;
}

/**
 * ferry_deal_space - how many pieces a deal can have at most
 * @nr_extents: number of extents of the batch
 * @nr_lanes: number of lanes
 *
 * Each of the nr_lanes - 1 cuts turns at most one piece into two, so there are never
 * more than nr_extents + nr_lanes - 1 pieces; and one extent of nr_lanes granules has
 * as many, so no smaller number would do.
 *
 * Context: Any.
 * Return: the number of entries of struct ferry_deal's @out; 0 if @nr_extents is 0, or
 * if one of the arguments is more than ferry_deal() accepts.
 */
size_t ferry_deal_space(size_t nr_extents, uint32_t nr_lanes)
{
	if (!nr_extents || nr_extents > FERRY_EXTENTS_MAX)
		return 0;
	if (!nr_lanes || nr_lanes > FERRY_LANES_MAX)
		return 0;
	return nr_extents + nr_lanes - 1;
}

/**
 * ferry_deal - deal a batch to lanes
 * @deal: the batch, the number of lanes, and the caller's space for the result
 *
 * On success every byte of the batch lies in exactly one piece of one lane; the loads
 * of any two lanes differ by at most @granule bytes; the pieces, read lane after lane,
 * are the batch in its order. An extent is cut only at multiples of @granule from its
 * start, and only if no extent's end in place of this cut would keep both of its lanes
 * between the least and the largest load. (Cutting the fewest extents of all deals
 * would be bin packing.) Few bytes leave some lanes with nothing. The same arguments
 * always give the same deal.
 *
 * On failure @out and @lanes are as they were. (Before it succeeds the deal keeps its
 * notes in both, but only once nothing can fail any more.)
 *
 * Takes some passes over the batch, typically four to eight, and at most
 * log2(@granule) more, plus what ferry_extents_apart() takes.
 *
 * Context: Any, also atomic; sleeps never. Touches only what @deal points to, so calls
 * with different spaces may run at the same time; the caller keeps the batch unchanged.
 * Return: 0, or
 * * -FERRY_EINVAL - @nr_lanes, @granule or @flags is not as documented, a pointer that
 *   is needed is NULL, or an extent has no bytes
 * * -FERRY_EOVERFLOW - an address, the sum of the bytes or the number of extents is too
 *   large (see ferry_extents_sum())
 * * -FERRY_EEXIST - two extents write one byte, or one reads what another writes (see
 *   ferry_extents_apart())
 * * -FERRY_ENOSPC - @out_space or @scratch_space is too small
 */
int ferry_deal(const struct ferry_deal *deal)
{
	struct ferry_line line = {
		.extents = deal->extents,
		.nr_extents = deal->nr_extents,
		.granule = deal->granule,
		.nr_lanes = deal->nr_lanes,
		.ends = deal->out,
	};
	uint64_t share, least;
	uint32_t lane;
	int error;

	error = ferry_check_arguments(deal);
	if (!error)
		error = ferry_extents_sum(deal->extents, deal->nr_extents, &line.total);
	if (!error && !(deal->flags & FERRY_DEAL_DISJOINT))
		error = ferry_extents_apart(deal->extents, deal->nr_extents, deal->scratch);
	if (error)
		return error;

	if (!deal->nr_extents) {
		for (lane = 0; lane < deal->nr_lanes; lane++)
			deal->lanes[lane] = (struct ferry_lane){ 0 };
		return 0;
	}
	share = ferry_share(line.total, line.nr_lanes);
	least = ferry_band(&line, share);
	ferry_cut(&line, least, share, deal->lanes);
	ferry_write(&line, deal->out, deal->lanes);
	return 0;
}
