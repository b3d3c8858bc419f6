//! RMM's debug log, which is no event log.

use super::{Importer, Input};
use crate::open::OpenOptions;
use poolsim_core::TraceError;
use poolsim_core::error::{Place, TraceErrorKind};

/// The row of [`super::IMPORTERS`].
pub static IMPORTER: Importer = Importer {
    name: "rmm-debug-log",
    summary: "RMM's debug log (rmm_log.txt): recognised, but holds no requests",
    extensions: &["txt"],
    sniff,
    read: |_: Input, _: &OpenOptions| {
        let what = "is RMM's debug log, not its event log: it reports failures and growth, and holds no requests \
                    that could be replayed. Record an event log (CSV) instead: wrap the memory resource in \
                    rmm.mr.LoggingResourceAdaptor(upstream, log_file_name=\"rmm.csv\"), or \
                    rmm::mr::logging_resource_adaptor in C++";
        Err(TraceError::new(TraceErrorKind::NoEvents, Place::Whole, what))
    },
};

/// `[thread][time][level] ----- RMM LOG BEGIN`, or any line of that form with a stream in it.
fn sniff(head: &[u8]) -> bool {
    let line = head.split(|&b| b == b'\n').next().unwrap_or(head);
    let has = |needle: &str| memchr::memmem::find(line, needle.as_bytes()).is_some();
    line.starts_with(b"[") && (has("RMM LOG BEGIN") || has("][A][Stream ") || has("][D][Stream "))
}
