//! An interpreter of the probe programs that were run against a real pool.
//!
//! A line is `name|options|program|answers`. Tokens: `aID:SIZE@s` allocate (`p` pages of 32 MiB, `m` MiB, `k` KiB, `b`
//! bytes); `fID@s` free on s; `D` device synchronize; `Ys` synchronize stream s; `Es` an event of s; `Ks` a kernel
//! of 30 ms; `Gs` a kernel that waits until `Os` opens it; `Wxy` y waits for an event of x; `Vs` record an event and
//! keep it; `X` synchronize it; `Ss` destroy and remake stream s; `Tn` trim to n pages; `Hn` set the threshold.
//! Answers: address/reserved in pages relative to the first address, `!error/reserved`, `rN` where another call
//! changed the reserved pages.
//!
//! Work in flight is what the engine makes of it too: fences that are held. A kernel of 30 ms ends when the host
//! waits for it, and not before: no program takes as long.

use crate::support::{attributes, h200, pool};
use poolsim_core::units::{KIB, MIB};
use poolsim_core::{
    AllocRequest, BlockId, Bytes, Device, Policy, PoolId, ReplayTarget, Slot, StreamId, SyncScope,
};
use poolsim_policies::cuda_async::{Attributes, CudaAsync, EventMark, PAGE};
use poolsim_sim::SimDevice;
use std::collections::{BTreeMap, BTreeSet};

/// One line of a probe file.
pub struct Program<'a> {
    pub name: &'a str,
    pub options: &'a str,
    pub code: &'a str,
    pub answers: &'a str,
}

impl<'a> Program<'a> {
    /// The small programs of a probe file; its other lines are summaries.
    pub fn parse(line: &'a str) -> Option<Self> {
        const OTHERS: [&str; 7] = ["env", "random", "time", "oom", "va", "gated", "done"];
        let fields: Vec<&str> = line.split('|').collect();
        let [name, options, code, answers] = fields[..] else { return None };
        (!OTHERS.contains(&name)).then_some(Program { name, options, code, answers })
    }

    /// What the pool answers, in the notation of the recorded answers but for times and digits.
    pub fn run(&self) -> Vec<Answer> {
        let mut machine = Machine::new(options(self.options));
        self.code.split(' ').for_each(|token| machine.step(token));
        machine.answers
    }

    /// What the real pool answered.
    pub fn recorded(&self) -> Vec<Answer> {
        self.answers.split(' ').filter_map(Answer::parse).collect()
    }
}

fn pages(text: &str) -> Bytes {
    (text.parse::<f64>().expect("pages") * PAGE as f64).round() as Bytes
}

fn options(text: &str) -> Attributes {
    let mut attributes = attributes(None);
    for (key, value) in text.split(',').filter_map(|item| item.split_once('=')) {
        match key {
            "thr" => attributes.release_threshold = Some(pages(value)),
            "max" => attributes.max_size = Some(pages(value)),
            "def" => attributes.release_threshold = Some(0),
            "opp" => attributes.opportunistic = value == "1",
            "int" => attributes.internal_dependencies = value == "1",
            "ev" | "evt" => attributes.follow_event_dependencies = value == "1",
            "rev" => {}
            other => panic!("unknown option {other}"),
        }
    }
    attributes
}

/// One answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// An allocation: address (`None` if it failed) and reserved bytes, in pages.
    Block(Option<f64>, f64),
    /// Reserved pages after a call that changed them.
    Reserved(f64),
}

impl Answer {
    fn parse(token: &str) -> Option<Answer> {
        let token = token.split('<').next().expect("a part");
        if let Some((block, reserved)) = token.split_once('/') {
            let addr = if block.starts_with('!') { None } else { Some(block.parse().ok()?) };
            return Some(Answer::Block(addr, reserved.parse().ok()?));
        }
        let (_, reserved) = token.split_once('r')?;
        Some(Answer::Reserved(reserved.parse().ok()?))
    }
}

impl PartialEq for Answer {
    /// Addresses were printed with five digits.
    fn eq(&self, other: &Answer) -> bool {
        let same = |a: f64, b: f64| (a - b).abs() <= 6e-5 * b.abs();
        match (self, other) {
            (Answer::Block(a, r), Answer::Block(b, s)) => {
                r == s && a.zip(*b).map_or(a.is_none() && b.is_none(), |(a, b)| same(a, b))
            }
            (Answer::Reserved(r), Answer::Reserved(s)) => r == s,
            _ => false,
        }
    }
}

/// A gate on some stream's work.
type Gate = usize;

struct Machine {
    dev: SimDevice,
    pool: CudaAsync,
    base: Option<u64>,
    blocks: BTreeMap<u32, BlockId>,
    gates: usize,
    /// Closed gates that the host opens by name: stream by gate.
    closed: BTreeMap<Gate, StreamId>,
    /// What each stream's next work is behind.
    behind: BTreeMap<StreamId, BTreeSet<Gate>>,
    /// What holds fences: the closed gates behind a slot.
    held: Vec<BTreeSet<Gate>>,
    kept: (EventMark, BTreeSet<Gate>),
    answers: Vec<Answer>,
}

fn stream(text: &str) -> StreamId {
    StreamId(if text.is_empty() { 0 } else { text.parse().expect("a stream") })
}

impl Machine {
    fn new(attributes: Attributes) -> Self {
        Machine {
            dev: h200(None),
            pool: pool(attributes),
            base: None,
            blocks: BTreeMap::new(),
            gates: 0,
            closed: BTreeMap::new(),
            behind: BTreeMap::new(),
            held: Vec::new(),
            kept: Default::default(),
            answers: Vec::new(),
        }
    }

    fn reserved(&self) -> f64 {
        self.pool.stats().reserved.current as f64 / PAGE as f64
    }

    fn step(&mut self, token: &str) {
        let before = self.reserved();
        let (call, rest) = token.split_at(1);
        match call {
            "a" => return self.alloc(rest),
            "f" => self.free(rest),
            "D" => {
                self.open(|_| true);
                self.dev.synchronize(SyncScope::Device).unwrap();
                self.pool.synchronized(&mut self.dev, None);
            }
            "Y" => self.synchronize(stream(rest)),
            "E" | "X" => {
                let (mark, gates) = if call == "X" {
                    self.kept.clone()
                } else {
                    (self.pool.record_event(stream(rest)), self.gates_of(stream(rest)))
                };
                self.open(|gate| gates.contains(&gate));
                self.pool.event_synchronized(&mut self.dev, &mark);
            }
            "V" => self.kept = (self.pool.record_event(stream(rest)), self.gates_of(stream(rest))),
            "K" | "G" => {
                self.gates += 1;
                self.closed.insert(self.gates, stream(rest));
                self.behind.entry(stream(rest)).or_default().insert(self.gates);
            }
            "O" => {
                let of: BTreeSet<Gate> =
                    self.closed.iter().filter(|g| *g.1 == stream(rest)).map(|g| *g.0).collect();
                self.open(|gate| of.contains(&gate));
            }
            "W" => {
                let (x, y) = (stream(&rest[..1]), stream(&rest[1..]));
                let mark = self.pool.record_event(x);
                self.pool.wait_event(y, &mark);
                let gates = self.gates_of(x);
                self.behind.entry(y).or_default().extend(gates);
            }
            "S" => self.pool.destroy_stream(&mut self.dev, stream(rest)),
            "T" => {
                self.pool.trim_to(&mut self.dev, pages(rest));
            }
            "H" => self.pool.set_release_threshold(Some(pages(rest))),
            "Q" | "N" | "U" | "C" | "M" | "Z" => {}
            other => panic!("unknown call {other}"),
        }
        if self.reserved() != before {
            self.answers.push(Answer::Reserved(self.reserved()));
        }
    }

    fn alloc(&mut self, rest: &str) {
        let (call, on) = rest.split_once('@').unwrap_or((rest, "0"));
        let (id, size) = call.split_once(':').expect("a size");
        let (number, unit) = size.split_at(size.len() - 1);
        let unit = match unit {
            "p" => PAGE,
            "m" => MIB,
            "k" => KIB,
            _ => 1,
        };
        let size = (number.parse::<f64>().expect("a number") * unit as f64).round() as Bytes;
        let slot = Slot(id.parse().expect("an id"));
        if size == 0 {
            // Programs get a null pointer; no policy sees such a request.
            return self.answers.push(Answer::Block(Some(-1.0), self.reserved()));
        }
        let request = AllocRequest { size, stream: stream(on), pool: PoolId::DEFAULT, slot };
        let granted = self.pool.malloc(&mut self.dev, request).ok();
        let addr = granted.map(|grant| {
            self.blocks.insert(slot.0, grant.block);
            (grant.addr - *self.base.get_or_insert(grant.addr)) as f64 / PAGE as f64
        });
        self.answers.push(Answer::Block(addr, self.reserved()));
    }

    fn free(&mut self, rest: &str) {
        let (id, on) = rest.split_once('@').unwrap_or((rest, "0"));
        // A program whose request failed frees nothing.
        let Some(block) = self.blocks.remove(&id.parse().expect("an id")) else { return };
        let gates = self.gates_of(stream(on));
        if gates.is_empty() {
            return self.pool.free_on(&mut self.dev, block, stream(on));
        }
        self.held.push(gates);
        self.dev.hold(Slot(self.held.len() as u32));
        self.pool.free_on(&mut self.dev, block, stream(on));
        self.dev.end_hold();
    }

    fn synchronize(&mut self, stream: StreamId) {
        let gates = self.gates_of(stream);
        self.open(|gate| gates.contains(&gate));
        self.dev.synchronize(SyncScope::Stream(stream)).unwrap();
        self.pool.synchronized(&mut self.dev, Some(stream));
    }

    /// The closed gates before a stream's next work.
    fn gates_of(&self, stream: StreamId) -> BTreeSet<Gate> {
        let behind = self.behind.get(&stream).into_iter().flatten();
        behind.copied().filter(|gate| self.closed.contains_key(gate)).collect()
    }

    fn open(&mut self, which: impl Fn(Gate) -> bool) {
        self.closed.retain(|&gate, _| !which(gate));
        for (slot, gates) in (1..).zip(&mut self.held) {
            let before = gates.len();
            gates.retain(|&gate| !which(gate));
            if before > 0 && gates.is_empty() {
                self.dev.complete(Slot(slot));
            }
        }
    }
}
