//! A plan for one iteration, and where in it the job is.

use super::learn::{Iteration, Request};
use super::pack::{Arc, pack};
use crate::arena::LaneId;
use poolsim_core::Bytes;

/// Places for the requests of an iteration, by stream and pool.
#[derive(Clone, Debug)]
pub struct Plan {
    requests: Vec<Request>,
    /// Where each request's block goes in its lane's range; `None` if it lives too long to be planned.
    offsets: Vec<Option<Bytes>>,
    heights: Vec<(LaneId, Bytes)>,
    next: usize,
    /// How often the job has come to the iteration's start since the plan was made, up to 2.
    begun: u8,
    asked: usize,
    foreseen: usize,
}

/// What a plan says of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// Where its block goes.
    pub offset: Option<Bytes>,
    /// With this request an iteration begins.
    pub begins: bool,
    /// It is the first or second since the plan was made.
    pub fresh: bool,
}

impl Plan {
    /// Packs an iteration.
    pub fn new(iteration: Iteration) -> Self {
        let Iteration { requests, lives, next } = iteration;
        let mut offsets = vec![None; requests.len()];
        let mut lanes: Vec<LaneId> = requests.iter().map(|r| r.lane).collect();
        lanes.sort_unstable_by_key(|lane| lane.0);
        lanes.dedup();
        let mut heights = Vec::new();
        for lane in lanes {
            let of_lane = (0..requests.len()).filter(|&i| requests[i].lane == lane);
            let (places, arcs): (Vec<usize>, Vec<Arc>) = of_lane
                .filter_map(|i| {
                    Some((i, Arc { start: i as u32, life: lives[i]?, size: requests[i].size }))
                })
                .unzip();
            let packing = pack(&arcs, requests.len() as u32);
            places.iter().zip(&packing.offsets).for_each(|(&i, &at)| offsets[i] = Some(at));
            heights.push((lane, packing.height));
        }
        Plan { requests, offsets, heights, next, begun: 0, asked: 0, foreseen: 0 }
    }

    /// Bytes that a lane's planned blocks take together.
    pub fn height(&self, lane: LaneId) -> Bytes {
        self.heights.iter().find(|(l, _)| *l == lane).map_or(0, |&(_, height)| height)
    }

    /// Takes note of a request: the next one of the plan, or one of the `window` after it, the ones between being left
    /// out this time; any other is unforeseen.
    #[inline]
    pub fn follow(&mut self, request: Request, window: usize) -> Advice {
        self.asked += 1;
        let period = self.requests.len();
        let ahead = (0..=window.min(period - 1))
            .find(|&k| self.requests[(self.next + k) % period] == request);
        let Some(ahead) = ahead else { return Advice::default() };
        self.foreseen += 1;
        let at = self.next + ahead;
        let begins = self.next == 0 || at >= period;
        let fresh = begins && self.begun < 2;
        self.begun += u8::from(fresh);
        self.next = (at + 1) % period;
        Advice { offset: self.offsets[at % period].filter(|_| self.begun > 0), begins, fresh }
    }

    /// Whether the job has left the plan: of the last iteration's number of requests, it foresaw less than half. Asked
    /// after every request.
    #[inline]
    pub fn is_lost(&mut self) -> bool {
        if self.asked < self.requests.len() {
            return false;
        }
        let lost = self.foreseen * 2 < self.asked;
        (self.asked, self.foreseen) = (0, 0);
        lost
    }
}
