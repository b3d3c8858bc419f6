//! How close one trace is to another, in figures that replays depend on.

use super::cycles::lives;
use poolsim_core::{Bytes, EventKind, Trace};

/// A two-sample Kolmogorov-Smirnov test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KsTest {
    /// The largest distance between the two empirical distributions, from 0 (the same) to 1.
    pub distance: f64,
    /// How likely a distance as large is if both are samples of one distribution; asymptotic, and on the safe side (too
    /// high) where many values are equal, as sizes are.
    pub p: f64,
    /// Values on either side.
    pub counts: (usize, usize),
}

/// How close a trace is to the one that it was made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Closeness {
    /// Bytes asked for.
    pub sizes: KsTest,
    /// Requests made until the free, of allocations that were freed.
    pub lifetimes: KsTest,
    /// Peak of the bytes in use, the second's by the first's.
    pub peak_ratio: f64,
    /// Mean over the requests of the bytes in use, the second's by the first's.
    pub mean_ratio: f64,
    /// Share of the allocations that were never freed, in either.
    pub lasting: (f64, f64),
}

/// Compares two traces.
pub fn closeness(one: &Trace, other: &Trace) -> Closeness {
    let (a, b) = (Figures::of(one), Figures::of(other));
    let ratio = |x: f64, y: f64| if x > 0.0 { y / x } else { 1.0 };
    Closeness {
        sizes: ks_test(&a.sizes, &b.sizes),
        lifetimes: ks_test(&a.lifetimes, &b.lifetimes),
        peak_ratio: ratio(a.peak as f64, b.peak as f64),
        mean_ratio: ratio(a.mean, b.mean),
        lasting: (a.lasting, b.lasting),
    }
}

/// The test. Two empty samples are the same; an empty one is as far from any other as can be.
pub fn ks_test(one: &[f64], other: &[f64]) -> KsTest {
    let counts = (one.len(), other.len());
    if one.is_empty() || other.is_empty() {
        let same = one.len() == other.len();
        let (distance, p) = if same { (0.0, 1.0) } else { (1.0, 0.0) };
        return KsTest { distance, p, counts };
    }
    let sorted = |sample: &[f64]| {
        let mut sample = sample.to_vec();
        sample.sort_unstable_by(f64::total_cmp);
        sample
    };
    let (a, b) = (sorted(one), sorted(other));
    let (mut i, mut j, mut distance) = (0, 0, 0.0f64);
    while i < a.len() && j < b.len() {
        let x = a[i].min(b[j]);
        i += a[i..].iter().take_while(|&&y| y <= x).count();
        j += b[j..].iter().take_while(|&&y| y <= x).count();
        distance = distance.max((i as f64 / a.len() as f64 - j as f64 / b.len() as f64).abs());
    }
    let size = (a.len() as f64 * b.len() as f64) / (a.len() as f64 + b.len() as f64);
    KsTest { distance, p: kolmogorov(size.sqrt() * distance), counts }
}

/// The probability that Kolmogorov's distribution exceeds `x` (N. Smirnov, 1948).
fn kolmogorov(x: f64) -> f64 {
    // Below this the series converges slowly, and its value is 1 to 12 digits.
    if x < 0.2 {
        return 1.0;
    }
    let term = |k: i32| {
        let sign = if k % 2 == 1 { 2.0 } else { -2.0 };
        sign * (-2.0 * f64::from(k * k) * x * x).exp()
    };
    (1..=100).map(term).sum::<f64>().clamp(0.0, 1.0)
}

struct Figures {
    sizes: Vec<f64>,
    lifetimes: Vec<f64>,
    peak: Bytes,
    mean: f64,
    lasting: f64,
}

impl Figures {
    fn of(trace: &Trace) -> Figures {
        let lives = lives(trace);
        let mut requests_before = Vec::with_capacity(trace.events.len() + 1);
        let (mut requests, mut live, mut peak, mut sum) = (0u64, 0, 0, 0.0);
        for event in &trace.events {
            requests_before.push(requests);
            match event.kind() {
                kind if kind.makes_live() => {
                    requests += 1;
                    live += event.size;
                    sum += live as f64;
                }
                EventKind::Free | EventKind::FreeDone => live -= event.size,
                _ => {}
            }
            peak = peak.max(live);
        }
        let made = || trace.events.iter().enumerate().filter(|(_, e)| e.kind().makes_live());
        let life = |i: usize| Some((requests_before[i + lives[i]?] - requests_before[i]) as f64);
        let lifetimes: Vec<f64> = made().filter_map(|(i, _)| life(i)).collect();
        let count = requests.max(1) as f64;
        Figures {
            lasting: (count - lifetimes.len() as f64) / count,
            sizes: made().map(|(_, e)| e.size as f64).collect(),
            lifetimes,
            peak,
            mean: sum / count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside a walk over every value: the largest gap of the two step functions, with ties as they are.
    #[test]
    fn the_distance_is_the_largest_gap_of_the_distributions() {
        let gap = |a: &[f64], b: &[f64]| {
            let share =
                |s: &[f64], x: f64| s.iter().filter(|&&y| y <= x).count() as f64 / s.len() as f64;
            a.iter().chain(b).map(|&x| (share(a, x) - share(b, x)).abs()).fold(0.0, f64::max)
        };
        let ties: Vec<f64> = (0..300).map(|i| f64::from(i % 7)).collect();
        let other: Vec<f64> = (0..200).map(|i| f64::from(i % 9)).collect();
        for (a, b) in [(&ties, &other), (&other, &ties), (&ties, &ties)] {
            let test = ks_test(a, b);
            assert!((test.distance - gap(a, b)).abs() < 1e-12, "{test:?} {}", gap(a, b));
        }
        assert!(ks_test(&ties, &ties).p > 0.99);
        assert!(ks_test(&ties, &other).p < 0.01);
        // The 5 % and 1 % points that tables print.
        assert!((kolmogorov(1.3581) - 0.05).abs() < 1e-4, "{}", kolmogorov(1.3581));
        assert!((kolmogorov(1.6276) - 0.01).abs() < 1e-4, "{}", kolmogorov(1.6276));
        assert_eq!(ks_test(&[], &[]).distance, 0.0);
        assert_eq!(ks_test(&[], &[1.0]).distance, 1.0);
    }
}
