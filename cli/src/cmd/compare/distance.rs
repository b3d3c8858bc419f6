//! How far a simulated metric is from the measured one.

use poolsim_core::RunRecord;
use poolsim_core::metric::{METRICS, Metric};
use poolsim_core::record::Value;
use serde::{Serialize, Serializer};

/// A metric that was both simulated and measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Distance {
    /// Which.
    #[serde(serialize_with = "name_of", rename = "name")]
    pub metric: &'static Metric,
    /// Simulated.
    pub sim: Value,
    /// Measured.
    pub gpu: Value,
    /// The simulated value divided by the measured one, less 1; `None` if only the measured one is 0.
    pub error: Option<f64>,
}

fn name_of<S: Serializer>(metric: &&'static Metric, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(metric.name)
}

/// Every metric that both runs have.
pub fn between(sim: &RunRecord, gpu: &RunRecord) -> Vec<Distance> {
    let both = METRICS.iter().filter_map(|m| Some((m, sim.metric(m.name)?, gpu.metric(m.name)?)));
    both.map(|(metric, sim, gpu)| {
        let (s, g) = (sim.as_f64(), gpu.as_f64());
        let error = if s == g { Some(0.0) } else { (g != 0.0).then(|| s / g - 1.0) };
        Distance { metric, sim, gpu, error }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolsim_core::metric::name;

    #[test]
    fn errors_are_relative_to_what_was_measured() {
        let (mut sim, mut gpu) = (RunRecord::default(), RunRecord::default());
        for (name, s, g) in
            [(name::peak_reserved_bytes, 110, 100), (name::ooms, 0, 0), (name::retries, 3, 0)]
        {
            sim.set(name, Value::Int(s));
            gpu.set(name, Value::Int(g));
        }
        sim.set(name::device_time_ns, Value::Int(1));
        let errors: Vec<_> = between(&sim, &gpu)
            .iter()
            .map(|d| (d.metric.name, d.error.map(|e| (e * 1e6).round() / 1e6)))
            .collect();
        assert_eq!(
            errors,
            [("peak_reserved_bytes", Some(0.1)), ("ooms", Some(0.0)), ("retries", None)]
        );
    }
}
