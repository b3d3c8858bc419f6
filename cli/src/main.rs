//! The poolsim command.
fn main() {}
