//! The outcome as JUnit XML: a suite for each run, a case for each condition.

use super::Checked;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use std::io::Write;

/// Writes the report.
pub(super) fn write(checked: &[Checked], mut out: impl Write) -> anyhow::Result<()> {
    let mut report = Report::new("poolsim check");
    for run in checked {
        let mut suite = TestSuite::new(run.trace.as_str());
        for outcome in &run.outcomes {
            let status = if outcome.judged.holds {
                TestCaseStatus::success()
            } else {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_message(outcome.reason.as_str());
                status.set_type("budget");
                status
            };
            let mut case = TestCase::new(outcome.clause.text.as_str(), status);
            case.set_classname("poolsim");
            suite.add_test_case(case);
        }
        report.add_test_suite(suite);
    }
    out.write_all(report.to_string()?.as_bytes())?;
    Ok(out.flush()?)
}
