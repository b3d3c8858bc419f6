//! What the pool learns of the GPU's progress: fences, events, host waits (rules 17, 20, 21 and 24).

use super::blocks::NONE;
use super::pool::Pool;
use poolsim_core::{Bytes, Device, FenceId, StreamId, SyncScope};

/// A recorded event: how far each stream had freed, for whoever waits for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventMark {
    /// Newest stamp by stream number.
    stamps: Vec<u64>,
}

/// What a host wait covers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waited<'a> {
    Device,
    Stream(StreamId),
    Event(&'a EventMark),
}

fn raise(stamps: &mut Vec<u64>, number: u32, stamp: u64) {
    let at = number as usize;
    if stamps.len() <= at {
        stamps.resize(at + 1, 0);
    }
    stamps[at] = stamps[at].max(stamp);
}

impl Pool {
    /// Frees a live block on a stream (`cudaFreeAsync`).
    #[inline]
    pub(super) fn free(&mut self, dev: &mut dyn Device, id: u32, stream: StreamId) {
        let number = self.number(stream);
        self.put_free(id, number);
        if !dev.idle(stream) {
            self.track(dev, number, &[stream]);
        }
    }

    /// Frees a live block on the unifying stream, behind the present work of other streams. Returns the free's stamp.
    pub(super) fn free_behind(
        &mut self,
        dev: &mut dyn Device,
        id: u32,
        streams: &[StreamId],
    ) -> u64 {
        if self.unifying == NONE {
            self.unifying = self.add_stream(true);
        }
        self.put_free(id, self.unifying);
        self.track(dev, self.unifying, streams);
        self.streams[self.unifying as usize].stamp()
    }

    /// The newest free of a stream waits for a fence on each of `streams`.
    fn track(&mut self, dev: &mut dyn Device, number: u32, streams: &[StreamId]) {
        let stamp = self.streams[number as usize].stamp();
        let mut fences = 0;
        for &stream in streams {
            match dev.record(stream) {
                Ok(fence) => {
                    self.waiting.insert(fence, (number, stamp));
                    fences += 1;
                }
                // Without a fence, the host waits instead; if that fails too, the free waits for a later host wait.
                Err(_) if dev.synchronize(SyncScope::Device).is_ok() => {}
                Err(_) => fences += 1,
            }
        }
        self.streams[number as usize].track(fences);
        self.tracking = true;
    }

    /// Whether [`Pool::settle`] has anything to learn.
    #[inline]
    pub(super) fn tracking(&self) -> bool {
        self.tracking
    }

    /// Learns which frees are finished.
    #[cold]
    pub(super) fn settle(&mut self, dev: &mut dyn Device) {
        let mut passed = std::mem::take(&mut self.passed);
        dev.poll(&mut passed);
        for fence in passed.drain(..) {
            if let Some((number, stamp)) = self.waiting.remove(&fence) {
                self.streams[number as usize].fence_passed(stamp);
            }
        }
        self.passed = passed;
        self.streams.iter_mut().for_each(super::stream::Stream::settle);
        self.tracking =
            !self.waiting.is_empty() || self.streams.iter().any(|stream| stream.tracks());
    }

    /// Marks the present end of a stream's frees (`cudaEventRecord`).
    pub(super) fn record_event(&self, stream: StreamId) -> EventMark {
        let mut stamps = self.behind.get(&stream).cloned().unwrap_or_default();
        if let Some(number) = self.known(stream) {
            raise(&mut stamps, number, self.streams[number as usize].stamp());
        }
        EventMark { stamps }
    }

    /// A stream's later work runs behind an event (`cudaStreamWaitEvent`).
    pub(super) fn wait_event(&mut self, stream: StreamId, event: &EventMark) {
        let own = self.known(stream);
        let behind = self.behind.entry(stream).or_default();
        for (number, &stamp) in (0..).zip(&event.stamps) {
            if Some(number) != own {
                raise(behind, number, stamp);
            }
        }
    }

    /// The host has waited: what is known to be done moves to the common list, then the surplus is given back.
    pub(super) fn waited(&mut self, dev: &mut dyn Device, what: Waited<'_>) -> Bytes {
        if self.tracking {
            self.settle(dev);
        }
        let mark = match what {
            Waited::Device => None,
            Waited::Stream(stream) => Some(self.record_event(stream)),
            Waited::Event(mark) => Some(mark.clone()),
        };
        for number in 0..self.streams.len() as u32 {
            let limit = match &mark {
                None => u64::MAX,
                Some(mark) => mark.stamps.get(number as usize).copied().unwrap_or(0),
            };
            self.streams[number as usize].finish_up_to(limit);
            self.flush(number, limit);
        }
        self.release_surplus(dev)
    }

    /// An idle stream is destroyed: its frees move to the common list, as far as they are finished.
    pub(super) fn destroy_stream(&mut self, dev: &mut dyn Device, stream: StreamId) {
        if self.tracking {
            self.settle(dev);
        }
        if let Some(number) = self.forget_stream(stream) {
            let finished = self.streams[number as usize].finished();
            self.flush(number, finished);
        }
    }

    /// Makes a stream wait, on the GPU, for the youngest free in a block of another stream. `false` if that cannot
    /// be done.
    pub(super) fn wait_behind(
        &mut self,
        dev: &mut dyn Device,
        stream: StreamId,
        other: u32,
        id: u32,
    ) -> bool {
        let stamp = self.blocks.get(id).stamp;
        let mut fences: Vec<(u64, FenceId)> = self
            .waiting
            .iter()
            .filter(|&(_, &(number, s))| number == other && s <= stamp)
            .map(|(&fence, &(_, s))| (s, fence))
            .collect();
        fences.sort_unstable();
        fences.len() >= self.streams[other as usize].fences_up_to(stamp)
            && fences.into_iter().all(|(_, fence)| dev.wait(stream, fence).is_ok())
    }
}
