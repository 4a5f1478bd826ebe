// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of events of one time, in traces whose events were merged.
//!
//! Merging keeps no order within a window, and a file has a window's events by page: a third of the bytes. Replayed
//! like that, every window would be a scan from the lowest page to the highest, which no program did and which some
//! policies suffer from (least recently used, of a set that does not quite fit). So reading deals them out at random,
//! the same way each time.

use crate::event::Event;

/// Deals out each group of events that have the same time.
pub fn deal(events: &mut [Event]) {
    for (group, of_one_time) in events.chunk_by_mut(|a, b| a.time == b.time).enumerate() {
        let mut state = group as u64;
        for left in (2..=of_one_time.len()).rev() {
            let chosen = (u128::from(next(&mut state)) * left as u128) >> 64;
            of_one_time.swap(left - 1, chosen as usize);
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): every state gives a good number, also those near each other.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time: u64, page: u32) -> Event {
        Event {
            time,
            page,
            reads: 1,
            writes: 0,
        }
    }

    #[test]
    fn events_stay_in_their_window_and_leave_their_order() {
        let sorted: Vec<Event> = (0..2)
            .flat_map(|time| (0..100).map(move |page| event(time, page)))
            .collect();
        let mut dealt = sorted.clone();
        deal(&mut dealt);
        assert_ne!(dealt, sorted);
        // Two windows with the same pages are not dealt alike.
        let pages = |of: &[Event]| of.iter().map(|event| event.page).collect::<Vec<_>>();
        assert_ne!(pages(&dealt[..100]), pages(&dealt[100..]));
        let mut again = dealt.clone();
        again.sort_by_key(|event| (event.time, event.page));
        assert_eq!(again, sorted);
        assert!(dealt.is_sorted_by_key(|event| event.time));
    }

    #[test]
    fn every_machine_deals_alike() {
        let mut events: Vec<Event> = (0..6).map(|page| event(7, page)).collect();
        deal(&mut events);
        let pages: Vec<u32> = events.iter().map(|event| event.page).collect();
        assert_eq!(pages, [1, 3, 4, 0, 2, 5]);
    }
}
