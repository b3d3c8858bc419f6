//! How sure a mean is.

use poolsim_core::record::Interval;

/// The 97.5 % quantiles of Student's t for 1, 2, … degrees of freedom.
const T975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The mean of `values` with its 95 % confidence interval; a single value has no width. More than 31 values take the
/// normal distribution's quantile.
pub fn interval(values: &[f64]) -> Interval {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return Interval { mean, low: mean, high: mean };
    }
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let t = T975.get(values.len() - 2).copied().unwrap_or(1.960);
    let half = t * (variance / n).sqrt();
    Interval { mean, low: mean - half, high: mean + half }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_known_sample() {
        // Mean 3, standard deviation 1.5811, standard error 0.7071, t with 4 degrees of freedom 2.776.
        let i = interval(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(i.mean, 3.0);
        assert!((i.high - i.low - 2.0 * 2.776 * 0.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(interval(&[7.0]), Interval { mean: 7.0, low: 7.0, high: 7.0 });
    }
}
