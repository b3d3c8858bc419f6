//! What every allocator on the GPU is asked after a run.

use crate::latency::Latency;
use poolsim_core::{DeviceOp, Policy};

/// A policy that measures itself.
pub trait Metered: Policy {
    /// Times of requests, with everything under them.
    fn allocs(&self) -> &Latency;
    /// Times of frees.
    fn frees(&self) -> &Latency;
    /// Driver calls that it makes by itself, beside the device's.
    fn driver_calls(&self) -> Vec<(DeviceOp, &Latency)> {
        Vec::new()
    }
}

impl Metered for Box<dyn Metered> {
    fn allocs(&self) -> &Latency {
        (**self).allocs()
    }
    fn frees(&self) -> &Latency {
        (**self).frees()
    }
    fn driver_calls(&self) -> Vec<(DeviceOp, &Latency)> {
        (**self).driver_calls()
    }
}
