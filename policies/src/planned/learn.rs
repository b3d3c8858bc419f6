//! What a job has asked for so far, and whether it has begun to repeat itself.

use crate::arena::LaneId;
use poolsim_core::Bytes;

/// What tells two requests apart: the rounded size, and the stream and pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The block's size.
    pub size: Bytes,
    /// Its stream and pool.
    pub lane: LaneId,
}

/// Most requests of an iteration that is learned; longer ones are not found.
pub const ITERATION_MAX: usize = 1 << 15;
/// Requests that are remembered, at the most: the older half is then forgotten.
const LOG_MAX: usize = 8 * ITERATION_MAX;
/// Checks come after this many more requests, or after an eighth more if that is later.
const CHECK_STEP: usize = 64;
const ALIVE: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Seen {
    request: Request,
    /// Bytes of all blocks in use just before it.
    live_before: Bytes,
    /// The number of the request before which its block was free again.
    freed: u64,
}

/// An iteration that has been seen, from its leanest moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// Its requests in order.
    pub requests: Vec<Request>,
    /// How many requests later each one's block was free again, as seen the last time that this is known; `None` if it
    /// stayed for an iteration or longer.
    pub lives: Vec<Option<u32>>,
    /// The position of the request that comes next.
    pub next: usize,
}

/// The past, and nothing else.
#[derive(Clone, Debug, Default)]
pub struct Learner {
    log: Vec<Seen>,
    /// The number of the log's first request.
    base: u64,
    live: Bytes,
    check_at: usize,
}

impl Learner {
    /// Notes a request; returns its number, for [`Learner::note_free`].
    #[inline]
    pub fn note_request(&mut self, request: Request) -> u64 {
        if self.log.len() >= LOG_MAX {
            self.log.drain(..LOG_MAX / 2);
            self.base += LOG_MAX as u64 / 2;
            self.check_at = self.log.len();
        }
        let number = self.base + self.log.len() as u64;
        self.log.push(Seen { request, live_before: self.live, freed: ALIVE });
        self.live += request.size;
        number
    }

    /// Notes that the block of a request of `size` bytes is free, for reuse too.
    #[inline]
    pub fn note_free(&mut self, number: u64, size: Bytes) {
        self.live -= size;
        let now = self.base + self.log.len() as u64;
        let seen = number.checked_sub(self.base).and_then(|i| self.log.get_mut(i as usize));
        if let Some(seen) = seen {
            seen.freed = now;
        }
    }

    /// Whether enough came since the last look for another one.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.log.len() >= self.check_at
    }

    /// The longest iteration of at least `least` requests that was seen `times` times in a row up to now, each time with the
    /// same requests in the same order, and whose last pass left as many bytes in use as it found.
    pub fn look(&mut self, times: usize, least: usize) -> Option<Iteration> {
        let n = self.log.len();
        self.check_at = n + CHECK_STEP.max(n / 8);
        let longest = (n / times).min(ITERATION_MAX);
        if longest < least {
            return None;
        }
        let repeats = self.repeats(longest * times);
        let steady =
            |&p: &usize| repeats[p] >= (times - 1) * p && self.log[n - p].live_before == self.live;
        let period = (least..=longest).rev().find(steady)?;
        Some(self.iteration(period))
    }

    /// For each `p`, how many of the last requests equal those `p` before them (the Z function of the reversed log, of
    /// its last `len` requests).
    fn repeats(&self, len: usize) -> Vec<usize> {
        let n = self.log.len();
        let back = |i: usize| self.log[n - 1 - i].request;
        let mut z = vec![0; len];
        let (mut left, mut right) = (0, 0);
        for i in 1..len {
            if i < right {
                z[i] = (right - i).min(z[i - left]);
            }
            while i + z[i] < len && back(z[i]) == back(i + z[i]) {
                z[i] += 1;
            }
            if i + z[i] > right {
                (left, right) = (i, i + z[i]);
            }
        }
        z
    }

    fn iteration(&self, period: usize) -> Iteration {
        let last = &self.log[self.log.len() - period..];
        let before = &self.log[self.log.len() - 2 * period..][..period];
        let first =
            (0..period).min_by_key(|&i| last[i].live_before).expect("a period has requests");
        let start = self.base + (self.log.len() - 2 * period) as u64;
        let order = || (first..period).chain(0..first);
        let life = |i: usize| {
            let life = before[i].freed.checked_sub(start + i as u64)?;
            u32::try_from(life).ok().filter(|&life| (life as usize) < period)
        };
        Iteration {
            requests: order().map(|i| last[i].request).collect(),
            lives: order().map(life).collect(),
            next: (period - first) % period,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(size: Bytes) -> Request {
        Request { size, lane: LaneId(0) }
    }

    /// A pass: `keep` blocks that live until its end, then short ones.
    fn pass(learner: &mut Learner, kept: &[Bytes], short: &[Bytes]) {
        let held: Vec<_> = kept.iter().map(|&s| (learner.note_request(request(s)), s)).collect();
        for &size in short {
            let number = learner.note_request(request(size));
            learner.note_free(number, size);
        }
        held.into_iter().rev().for_each(|(number, size)| learner.note_free(number, size));
    }

    #[test]
    fn an_iteration_is_found_once_it_came_again_and_not_before() {
        let (kept, short) = ([512, 1024, 4096], [2048; 5]);
        let mut learner = Learner::default();
        // What came before the loop, and stays, does not matter.
        for i in 0..7 {
            learner.note_request(request(512 * (i + 9)));
        }
        pass(&mut learner, &kept, &short);
        assert_eq!(learner.look(2, 8), None, "nothing has come twice");
        pass(&mut learner, &kept, &short);
        let found = learner.look(2, 8).expect("two passes are the same");
        let sizes: Vec<_> = found.requests.iter().map(|r| r.size).collect();
        assert_eq!(sizes, [512, 1024, 4096, 2048, 2048, 2048, 2048, 2048]);
        assert_eq!(found.lives, [8, 7, 6, 1, 1, 1, 1, 1].map(|n| Some(n).filter(|&n| n < 8)));
        assert_eq!(found.next, 0);
        assert_eq!(learner.look(3, 8), None, "nothing has come three times");
    }

    /// Layers repeat too, but they leave bytes in use.
    #[test]
    fn a_loop_that_grows_is_no_iteration() {
        let mut learner = Learner::default();
        for _ in 0..100 {
            for size in [512, 1024, 2048] {
                learner.note_request(request(size));
            }
        }
        assert_eq!(learner.look(2, 3), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut learner = Learner::default();
        for i in 0..2 * LOG_MAX as u64 {
            let number = learner.note_request(request(512 * (i % 1000 + 1)));
            learner.note_free(number, 512 * (i % 1000 + 1));
        }
        assert!(learner.log.len() <= LOG_MAX);
        assert!(learner.look(2, 100).is_some());
    }
}
