//! Every allocator policy.
#![forbid(unsafe_code)]
