//! Run records in, bytes out.
#![forbid(unsafe_code)]
