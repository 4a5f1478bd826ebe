// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of events of one time, in traces whose events were merged.
//!
//! Merging keeps no order within a window, and a file has a window's events by page: a third of the bytes. Replayed
//! like that, every window would be a scan from the lowest page to the highest, which no program did and which some
//! policies suffer from (least recently used, of a set that does not quite fit). So reading deals them out at random,
//! the same way each time.

use crate::event::Event;
use crate::random::{GOLDEN, mixed};

/// Deals out each group of events that have the same time.
pub fn deal(events: &mut [Event]) {
    for (group, of_one_time) in events.chunk_by_mut(|a, b| a.time == b.time).enumerate() {
        let mut state = group as u64;
        for left in (2..=of_one_time.len()).rev() {
            let chosen = (u128::from(mixed(state)) * left as u128) >> 64;
            state = state.wrapping_add(GOLDEN);
            of_one_time.swap(left - 1, chosen as usize);
        }
    }
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
