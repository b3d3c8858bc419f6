//! Trace formats in, events out.
#![forbid(unsafe_code)]
