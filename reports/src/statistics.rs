//! Whether repeated measurements differ, and by how much: intervals by bootstrap, Mann-Whitney's test, Cliff's delta.
//!
//! Medians and ranks, not means: times of runs have a long upper tail.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;
use statrs::stats_tests::Alternative;
use statrs::stats_tests::mannwhitneyu::{MannWhitneyUMethod, mannwhitneyu};

/// Samples that the bootstrap draws.
const DRAWS: usize = 4000;

/// The same measurements give the same interval.
const SEED: u64 = 1;

/// Chance below which a difference counts as shown.
pub const SIGNIFICANT: f64 = 0.01;

/// Measurements of a kind from which on anything is said of a difference.
pub const FEWEST: usize = 5;

/// A value with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The value of the measurements.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What two sets of measurements say of each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Median of the second divided by that of the first.
    pub ratio: Estimate,
    /// Chance of ranks as far apart as these if there were no difference (Mann-Whitney, two-sided).
    pub p: f64,
    /// Cliff's delta: how much more often a measurement of the second is larger than one of the first than
    /// smaller, from -1 to 1.
    pub effect: f64,
    /// Whether a difference is shown: `p` is below [`SIGNIFICANT`] and the interval does not hold 1.
    pub shown: bool,
}

/// The median with its interval; `None` without measurements.
pub fn median(samples: &[f64]) -> Option<Estimate> {
    let mut random = Pcg64::seed_from_u64(SEED);
    let drawn = || middle(&mut draw(samples, &mut random));
    (!samples.is_empty()).then(|| estimate(middle(&mut samples.to_vec()), drawn))
}

/// How `b` differs from `a`; `None` for fewer than [`FEWEST`] measurements of either, or times of 0.
pub fn difference(a: &[f64], b: &[f64]) -> Option<Difference> {
    if a.len().min(b.len()) < FEWEST || a.iter().chain(b).any(|x| !x.is_finite() || *x <= 0.0) {
        return None;
    }
    let method = MannWhitneyUMethod::AsymptoticInclContinuityCorrection;
    // Without any spread there are no ranks to compare.
    let p = match mannwhitneyu(a, b, method, Alternative::TwoSided) {
        Ok((_, p)) if p.is_finite() => p.clamp(0.0, 1.0),
        _ => 1.0,
    };
    let mut random = Pcg64::seed_from_u64(SEED);
    let ratio = |a: &mut [f64], b: &mut [f64]| middle(b) / middle(a);
    let value = ratio(&mut a.to_vec(), &mut b.to_vec());
    let drawn = || ratio(&mut draw(a, &mut random), &mut draw(b, &mut random));
    let ratio = estimate(value, drawn);
    let pairs = a.iter().flat_map(|x| b.iter().map(move |y| i64::from(y > x) - i64::from(y < x)));
    let effect = pairs.sum::<i64>() as f64 / (a.len() * b.len()) as f64;
    let shown = p < SIGNIFICANT && (ratio.low > 1.0 || ratio.high < 1.0);
    Some(Difference { ratio, p, effect, shown })
}

/// The difference in a sentence.
pub fn words(first: &str, second: &str, difference: Option<&Difference>) -> String {
    let Some(d) = difference else {
        return format!(
            "{second} against {first}: too few measurements to tell ({FEWEST} of each)."
        );
    };
    let (more, r) = (d.ratio.value > 1.0, d.ratio);
    let p = if d.p < 0.001 { "p < 0.001".into() } else { format!("p = {:.3}", d.p) };
    let interval =
        format!("95 % interval {:.3} to {:.3}, {p}, effect {:+.2}", r.low, r.high, d.effect);
    if d.shown {
        let which = if more { "longer" } else { "shorter" };
        format!("{second} took {which} than {first}: {:.3} times ({interval}).", r.value)
    } else {
        format!("{second} against {first}: no difference shown ({interval}).")
    }
}

fn draw(samples: &[f64], random: &mut Pcg64) -> Vec<f64> {
    (0..samples.len()).map(|_| samples[random.random_range(0..samples.len())]).collect()
}

fn estimate(value: f64, mut drawn: impl FnMut() -> f64) -> Estimate {
    let mut values: Vec<f64> = (0..DRAWS).map(|_| drawn()).collect();
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[(share * (DRAWS - 1) as f64).round() as usize];
    Estimate { value, low: at(0.025), high: at(0.975) }
}

fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(n: usize, seed: u64, centre: f64) -> Vec<f64> {
        let mut random = Pcg64::seed_from_u64(seed);
        (0..n).map(|_| centre * (1.0 + 0.1 * random.random::<f64>())).collect()
    }

    /// Of pairs drawn from one distribution hardly any is called different; of pairs 5 % apart nearly all are.
    #[test]
    fn differences_are_shown_where_they_are_and_not_where_they_are_not() {
        let shown = |apart: f64| {
            let pairs = (0..100).map(|i| (noise(30, 2 * i, 1.0), noise(30, 2 * i + 1, apart)));
            pairs.filter(|(a, b)| difference(a, b).unwrap().shown).count()
        };
        assert!(shown(1.0) <= 4, "{}", shown(1.0));
        assert!(shown(1.05) >= 95, "{}", shown(1.05));
    }

    /// The interval of a median holds the true one about as often as it says.
    #[test]
    fn intervals_hold_the_true_median() {
        let holds = |e: Estimate| e.low <= 1.05 && 1.05 <= e.high;
        let held = (0..200).filter(|&i| holds(median(&noise(25, 1000 + i, 1.0)).unwrap())).count();
        assert!((180..=200).contains(&held), "{held} of 200");
    }

    #[test]
    fn equal_and_few_measurements_show_nothing() {
        let same = difference(&[1.0; 9], &[1.0; 9]).unwrap();
        assert!(!same.shown && same.effect == 0.0);
        assert_eq!(difference(&[1.0; 4], &[2.0; 9]), None);
        assert_eq!(median(&[]), None);
        assert!(words("a", "b", Some(&same)).contains("no difference shown"));
    }
}
