//! Do adaptors do what they say, and nothing else?

mod common;

use common::{G, Script, Shelf, device};
use poolsim_core::*;
use poolsim_sim::adapt::{Call, Checked, Faulty, Limited, Tap};
use poolsim_sim::judge::Judge;
use poolsim_sim::{ReplayOptions, replay};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn story() -> Script {
    Script::default()
        .alloc(0, G)
        .alloc(1, 2 * G)
        .push(EventKind::FreeLater, 0, 0)
        .alloc(2, G)
        .free(1)
        .alloc(3, 4 * G)
        .push(EventKind::FreeDone, 0, 0)
        .alloc(4, G)
}

#[test]
fn a_limit_counts_whole_ranges_and_pages() {
    let mut dev = Limited::new(device(16), 4 * G);
    dev.reserve(2 * G, Backing::Whole).unwrap();
    let paged = dev.reserve(32 * G, Backing::Paged).unwrap();
    assert_eq!(dev.free_bytes(), 2 * G);
    let full = Err(DeviceError::OutOfMemory { asked: 3 * G, free: 2 * G });
    assert_eq!(dev.populate(paged.id, 0, 3 * G, G), full);
    assert_eq!(dev.create(3 * G).map(|_| ()), full);
    assert_eq!(dev.reserve(3 * G, Backing::Whole).map(|_| ()), full);
    dev.populate(paged.id, 0, 2 * G, G).unwrap();
    assert_eq!(dev.free_bytes(), 0);
    assert_eq!(dev.inner.free_bytes(), 12 * G);
}

/// Fails call 1, 2, 3 … until a run makes fewer; the policy must stay legal and give everything back.
#[test]
fn every_call_can_fail() {
    let mut tried = 0;
    for first in 0.. {
        let mut dev = Checked::new(Faulty::new(device(16), first, 2));
        let (mut policy, mut judge) = (Shelf::default(), Judge::new());
        let options = ReplayOptions::default();
        let end =
            replay(&mut story().source(), &mut policy, &mut dev, &mut judge, &options).unwrap();
        judge.verdict().unwrap();
        judge.drain(&mut policy, &mut dev, &end).unwrap();
        assert_eq!(dev.outstanding(), Vec::<String>::new());
        if dev.inner.calls() <= first {
            assert_eq!(end.ooms, 0);
            break;
        }
        // Both the call and its retry failed.
        assert_eq!(end.ooms, 1);
        tried += 1;
    }
    assert_eq!(tried, 4, "the last request takes the block of the first");
}

#[test]
fn a_tap_sees_every_call_without_changing_the_run() {
    let mut plain = device(16);
    let mut tapped = Tap::new(device(16));
    let options = ReplayOptions::default();
    let a = replay(&mut story().source(), &mut Shelf::default(), &mut plain, &mut (), &options);
    let b = replay(&mut story().source(), &mut Shelf::default(), &mut tapped, &mut (), &options);
    assert_eq!(a.unwrap(), b.unwrap());
    assert_eq!(plain.log(), tapped.log());
    assert_eq!(plain.ledger(), tapped.ledger());
    let reserve = |granules, range| Call::Reserve {
        size: granules * G,
        backing: Backing::Whole,
        range: Some(RangeId(range)),
    };
    let fence = Some(FenceId(0));
    let expected = [
        reserve(1, 0),
        reserve(2, 1),
        Call::Record { stream: StreamId(9), fence },
        reserve(1, 2),
        reserve(4, 3),
    ];
    assert_eq!(tapped.calls(), expected);
}

fn caught(call: impl FnOnce(&mut Checked<poolsim_sim::SimDevice>)) -> String {
    let mut dev = Checked::new(device(16));
    dev.reserve(8 * G, Backing::Paged).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| call(&mut dev))).unwrap_err();
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => other.downcast_ref::<&str>().unwrap().to_string(),
    }
}

#[test]
fn illegal_calls_are_caught() {
    let range = RangeId(0);
    assert!(caught(|d| drop(d.reserve(100, Backing::Paged))).contains("off the granule"));
    assert!(caught(|d| drop(d.release(RangeId(5)))).contains("no range 5"));
    assert!(caught(|d| drop(d.populate(range, 7 * G, 2 * G, G))).contains("leaves range"));
    assert!(caught(|d| drop(d.depopulate(range, 0, G))).contains("not every byte"));
    assert!(caught(|d| drop(d.destroy(PageId(1)))).contains("no page 1"));
    assert!(caught(|d| drop(d.wait(StreamId(0), FenceId(1)))).contains("no fence"));
    let mapped = |d: &mut Checked<poolsim_sim::SimDevice>| {
        let page = d.create(G).unwrap();
        d.map(range, 0, page).unwrap();
        page
    };
    assert!(
        caught(|d| drop({
            let p = mapped(d);
            d.destroy(p)
        }))
        .contains("is mapped")
    );
    assert!(
        caught(|d| drop({
            mapped(d);
            d.release(range)
        }))
        .contains("pages are mapped")
    );
}

#[test]
fn what_is_not_given_back_is_listed() {
    let mut dev = Checked::new(device(16));
    let range = dev.reserve(G, Backing::Whole).unwrap();
    let page = dev.create(G).unwrap();
    assert_eq!(dev.outstanding().len(), 2);
    dev.destroy(page).unwrap();
    dev.release(range.id).unwrap();
    assert_eq!(dev.outstanding(), Vec::<String>::new());
}
