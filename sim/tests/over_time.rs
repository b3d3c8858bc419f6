//! Are device calls and heaps over time what the run did, in bounded space?

mod common;

use common::{G, Script, Shelf, device};
use poolsim_core::*;
use poolsim_sim::observe::{Calls, Keyframes};
use poolsim_sim::{Observer, ReplayOptions, Step, replay};
use proptest::prelude::*;

fn run<O: Observer>(script: &Script, observer: &mut O) {
    let options = ReplayOptions::default();
    let (mut policy, mut device) = (Shelf::default(), device(1 << 20));
    replay(&mut script.clone().source(), &mut policy, &mut device, observer, &options).unwrap();
}

/// Every step's calls.
#[derive(Default)]
struct All(Vec<u64>);

impl Observer for All {
    fn on_step(&mut self, step: &Step<'_>) {
        self.0.push(step.ledger.calls.iter().sum());
    }
}

/// Allocations and frees by turns of a few slots.
fn script(moves: &[u32]) -> Script {
    let (mut script, mut live) = (Script::default(), [false; 8]);
    for (at, &slot) in moves.iter().enumerate() {
        script = script.at(at as u64 * 10);
        let held = &mut live[slot as usize];
        script =
            if *held { script.free(slot) } else { script.alloc(slot, G * u64::from(slot + 1)) };
        *held = !*held;
    }
    script
}

/// One halving is not always enough: later keyframes may hold more blocks than those that were dropped.
#[test]
fn keyframes_are_thinned_until_they_fit() {
    let script = script(&[0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 6, 5, 0, 0, 0, 1, 3, 0, 2]);
    let mut frames = Keyframes::new(9, 4, vec![(9, Moment::Peak)]);
    run(&script, &mut frames);
    let frames = frames.into_frames();
    let regular = frames.iter().filter(|f| f.moment == Moment::Regular);
    assert!(regular.map(|f| f.lives.len()).sum::<usize>() <= 4);
}

proptest! {
    /// Each point holds all calls up to its last event, and the points are evenly wide.
    #[test]
    fn calls_are_sums_up_to_a_points_end(
        moves in prop::collection::vec(0u32..8, 1..300), limit in 2usize..20,
    ) {
        let script = script(&moves);
        let mut observer = (Calls::new(limit), All::default());
        run(&script, &mut observer);
        let (calls, all) = observer;
        let points = calls.points();
        prop_assert!(points.len() <= limit + 1);
        prop_assert_eq!(points.last().unwrap().last_event, moves.len() as u64 - 1);
        for point in points {
            prop_assert_eq!(point.calls.iter().sum::<u64>(), all.0[point.last_event as usize]);
        }
        let width = points[0].last_event + 1;
        for (n, point) in points[..points.len() - 1].iter().enumerate() {
            prop_assert_eq!(point.last_event + 1, (n as u64 + 1) * width);
        }
    }

    /// Blocks in use name the request that made them and the free that ended them, as looking through the trace finds.
    #[test]
    fn keyframes_say_from_when_to_when_a_block_was_held(
        moves in prop::collection::vec(0u32..8, 2..300), stride in 1u64..40, blocks in 4usize..200,
    ) {
        let script = script(&moves);
        let peak = moves.len() as u64 / 2;
        let mut frames = Keyframes::new(stride, blocks, vec![(peak, Moment::Peak)]);
        run(&script, &mut frames);
        let frames = frames.into_frames();
        let regular = frames.iter().filter(|f| f.moment == Moment::Regular);
        let held: usize = regular.clone().map(|f| f.lives.len()).sum();
        let largest = regular.map(|f| f.lives.len()).max().unwrap_or(0);
        prop_assert!(held <= blocks.max(largest), "{held} blocks are held");
        prop_assert_eq!(frames.iter().filter(|f| f.event == peak).count(), 1);
        for frame in &frames {
            prop_assert_eq!(frame.heap.blocks().count(), frame.lives.len());
            for ((_, block), life) in frame.heap.blocks().zip(&frame.lives) {
                let Some(slot) = block.slot.filter(|_| block.state == BlockState::Allocated) else { continue };
                let of_slot = |&(_, &s): &(usize, &u32)| s == slot.0;
                let now = frame.event as usize;
                let born = moves.iter().enumerate().take(now + 1).rfind(of_slot).unwrap().0 as u64;
                let died = moves.iter().enumerate().skip(now + 1).find(of_slot);
                prop_assert_eq!(life.born, Some((born, born * 10)));
                prop_assert_eq!(life.died, died.map(|(at, _)| (at as u64, at as u64 * 10)));
            }
        }
    }
}
