//! Budgets: what a run may come to, as `reserved<=70GiB, ooms==0`.
//!
//! ```text
//! budget := clause (',' clause)*
//! clause := metric ('<=' | '<' | '==' | '>=' | '>') value
//! value  := a number with the metric's unit | 'baseline' [('+' | '-') (number '%' | number with unit)]
//! ```

use poolsim_core::metric::{self, Metric, Unit, name};
use poolsim_core::{ConfigError, RunRecord};
use poolsim_traces::quantity::{parse_bytes, parse_nanos};
use serde::Serialize;

/// Short names, as people say them.
const SHORT: &[(&str, &str)] = &[
    ("reserved", name::peak_reserved_bytes),
    ("allocated", name::peak_allocated_bytes),
    ("active", name::peak_active_bytes),
    ("requested", name::peak_requested_bytes),
    ("device_time", name::device_time_ns),
];

/// How a value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<=`
    AtMost,
    /// `<`
    Below,
    /// `==`
    Exactly,
    /// `>=`
    AtLeast,
    /// `>`
    Above,
}

/// Longer signs first, so that `<=` is not read as `<`.
const SIGNS: &[(&str, Comparison)] = &[
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("==", Comparison::Exactly),
    ("<", Comparison::Below),
    (">", Comparison::Above),
];

/// What a metric is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A number in the metric's unit.
    Value(f64),
    /// What the baseline came to, times `factor`, plus `more`.
    Baseline {
        /// 1.05 for `baseline+5%`.
        factor: f64,
        /// In the metric's unit.
        more: f64,
    },
}

/// One condition.
#[derive(Clone, Debug)]
pub struct Clause {
    /// As it was written, without blanks.
    pub text: String,
    /// The metric.
    pub metric: &'static Metric,
    /// How it is compared.
    pub comparison: Comparison,
    /// With what.
    pub limit: Limit,
}

/// What became of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// Whether it holds.
    pub holds: bool,
    /// The run's value; `None` if the run does not have it.
    pub value: Option<f64>,
    /// What it was compared with; `None` where there is no baseline, or it does not have the metric.
    pub limit: Option<f64>,
}

/// Reads a budget.
///
/// # Errors
/// Names the clause and what is wrong with it; the nearest metrics for one that there is not.
pub fn parse(text: &str) -> Result<Vec<Clause>, ConfigError> {
    let clauses: Vec<Clause> = text
        .split(',')
        .filter(|part| !part.trim().is_empty())
        .map(clause)
        .collect::<Result<_, _>>()?;
    if clauses.is_empty() {
        return Err(ConfigError(
            "the budget is empty; write it as reserved<=70GiB, ooms==0".into(),
        ));
    }
    Ok(clauses)
}

fn clause(text: &str) -> Result<Clause, ConfigError> {
    let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let wrong = |what: String| ConfigError(format!("`{plain}`: {what}"));
    let sign = SIGNS.iter().find_map(|(sign, comparison)| {
        plain.split_once(sign).map(|(metric, value)| (metric, value, *comparison))
    });
    let Some((metric_name, value, comparison)) = sign else {
        return Err(wrong("there is no <=, <, ==, >= or >; write it as reserved<=70GiB".into()));
    };
    let full =
        SHORT.iter().find(|(short, _)| *short == metric_name).map_or(metric_name, |(_, full)| full);
    let Some(metric) = metric::find(full) else {
        let known =
            SHORT.iter().map(|(short, _)| *short).chain(metric::METRICS.iter().map(|m| m.name));
        let known: Vec<&str> = known.collect();
        return Err(wrong(format!(
            "there is no metric `{metric_name}`; there are {}",
            known.join(", ")
        )));
    };
    let limit = limit(value, metric.unit).map_err(wrong)?;
    Ok(Clause { text: plain.clone(), metric, comparison, limit })
}

fn limit(text: &str, unit: Unit) -> Result<Limit, String> {
    let Some(rest) = text.strip_prefix("baseline") else {
        return number(text, unit).map(Limit::Value);
    };
    let (sign, amount) = match rest.split_at_checked(1) {
        None => return Ok(Limit::Baseline { factor: 1.0, more: 0.0 }),
        Some(("+", amount)) => (1.0, amount),
        Some(("-", amount)) => (-1.0, amount),
        Some(_) => return Err("after `baseline` comes nothing, or + or - and a number".into()),
    };
    match amount.strip_suffix('%').filter(|_| unit != Unit::Ratio) {
        Some(percent) => {
            let share: f64 = percent.parse().map_err(|_| format!("`{amount}` is not a share"))?;
            Ok(Limit::Baseline { factor: 1.0 + sign * share / 100.0, more: 0.0 })
        }
        None => Ok(Limit::Baseline { factor: 1.0, more: sign * number(amount, unit)? }),
    }
}

fn number(text: &str, unit: Unit) -> Result<f64, String> {
    let plain = |text: &str, what: &str| {
        let number: Option<f64> = text.parse().ok().filter(|x: &f64| x.is_finite());
        number.ok_or_else(|| format!("`{text}` is not {what}"))
    };
    match unit {
        Unit::Bytes => parse_bytes(text).map(|n| n as f64),
        Unit::Nanos => parse_nanos(text).map(|n| n as f64),
        Unit::Count => plain(text, "a count"),
        Unit::Ratio => match text.strip_suffix('%') {
            Some(percent) => plain(percent, "a share").map(|x| x / 100.0),
            None => plain(text, "a share, as in 12% or 0.12"),
        },
    }
}

impl Clause {
    /// Whether a baseline is needed to judge it.
    pub fn needs_baseline(&self) -> bool {
        matches!(self.limit, Limit::Baseline { .. })
    }

    /// Holds a run against it. What a run did not measure does not hold.
    pub fn judge(&self, run: &RunRecord, baseline: Option<&RunRecord>) -> Judged {
        let metric = |record: &RunRecord| record.metric(self.metric.name).map(|v| v.as_f64());
        let value = metric(run);
        let limit = match self.limit {
            Limit::Value(limit) => Some(limit),
            Limit::Baseline { factor, more } => {
                baseline.and_then(metric).map(|base| base * factor + more)
            }
        };
        let holds = value.zip(limit).is_some_and(|(value, limit)| match self.comparison {
            Comparison::AtMost => value <= limit,
            Comparison::Below => value < limit,
            Comparison::Exactly => value == limit,
            Comparison::AtLeast => value >= limit,
            Comparison::Above => value > limit,
        });
        Judged { holds, value, limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolsim_core::record::Value;
    use poolsim_core::units::GIB;

    fn run(reserved: u64, ooms: u64) -> RunRecord {
        let mut record = RunRecord::default();
        record.set(name::peak_reserved_bytes, Value::Int(reserved));
        record.set(name::ooms, Value::Int(ooms));
        record.set(name::fragmentation, Value::Real(0.25));
        record
    }

    #[test]
    fn budgets_are_read_as_people_write_them() {
        let judged = |budget: &str, run: &RunRecord, base: Option<&RunRecord>| {
            let clauses = parse(budget).unwrap();
            clauses.iter().map(|clause| clause.judge(run, base).holds).collect::<Vec<_>>()
        };
        let (small, large) = (run(60 * GIB, 0), run(75 * GIB, 2));
        assert_eq!(judged("reserved<=70GiB, ooms==0", &small, None), [true, true]);
        assert_eq!(judged("reserved <= 70 GiB,ooms == 0,", &large, None), [false, false]);
        assert_eq!(judged("fragmentation<=25%,fragmentation<0.25", &small, None), [true, false]);
        assert_eq!(judged("reserved<=baseline+5%", &large, Some(&small)), [false]);
        assert_eq!(judged("reserved<=baseline+15GiB", &large, Some(&small)), [true]);
        assert_eq!(judged("reserved<baseline", &small, Some(&large)), [true]);
        // What nobody measured does not hold.
        assert_eq!(judged("retries<=5, reserved<=baseline", &small, None), [false, false]);
    }

    #[test]
    fn wrong_budgets_say_what_would_be_right() {
        for (budget, words) in [
            ("", "reserved<=70GiB"),
            ("reserved", "<="),
            ("reservd<=1GiB", "there are reserved, allocated"),
            ("reserved<=much", "is not a size"),
            ("ooms==none", "is not a count"),
            ("reserved<=baseline*2", "+ or -"),
            ("device_time<=5 lightyears", "is not a time"),
        ] {
            let error = parse(budget).unwrap_err().0;
            assert!(error.contains(words), "{budget}: {error}");
        }
    }
}
