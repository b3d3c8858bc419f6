//! The bound of a trace, for every command that shows it.

use crate::load::Loaded;
use poolsim_core::metric::name;
use poolsim_core::record::Value;
use poolsim_core::{Bytes, RunRecord, TraceError};
use poolsim_sim::bound::{Bounds, Budget, Instance, Lifetimes, Packing, pack};
use poolsim_traces::import::minimalloc_csv;

/// What sizes are rounded to where nothing else is said: the unit of PyTorch's blocks.
pub const ALIGNMENT: Bytes = 512;

/// In what units a trace is packed.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    /// Sizes are rounded up to this.
    pub alignment: Bytes,
    /// Memory comes in multiples of this.
    pub granule: Bytes,
}

impl Units {
    /// Those of a trace. Buffers of a planner's instance know neither blocks nor a device.
    pub fn of(loaded: &Loaded, alignment: Option<Bytes>) -> Units {
        let own = loaded.events.header().attributes.get(minimalloc_csv::ALIGNMENT);
        match own.and_then(|text| text.parse().ok()).filter(|&n| n > 0) {
            Some(own) => Units { alignment: alignment.unwrap_or(own), granule: 1 },
            None => Units {
                alignment: alignment.unwrap_or(ALIGNMENT),
                granule: loaded.machine.caps.granule,
            },
        }
    }
}

/// The bound of a trace.
pub struct Bound {
    /// The units that it was computed in.
    pub units: Units,
    /// The allocations.
    pub lifetimes: Lifetimes,
    /// What follows from sizes alone.
    pub bounds: Bounds,
    /// A placement that reaches it, or nearly.
    pub packing: Packing,
}

impl Bound {
    /// Reads the trace and packs it.
    ///
    /// # Errors
    /// Those of the trace.
    pub fn of(loaded: &Loaded, units: Units, budget: Budget) -> Result<Bound, TraceError> {
        let mut source = loaded.events.source();
        let lifetimes =
            Lifetimes::read(&mut *source).map_err(|error| error.in_file(&loaded.path))?;
        let bounds = Bounds::of(&lifetimes, units.alignment, units.granule);
        let round =
            |item: &poolsim_sim::bound::Lifetime| item.size.next_multiple_of(units.alignment);
        let packing = pack(&Instance::new(lifetimes.items.iter(), round), budget);
        Ok(Bound { units, lifetimes, bounds, packing })
    }

    /// The packing in whole granules.
    pub fn packed(&self) -> Bytes {
        self.packing.height.next_multiple_of(self.units.granule)
    }

    /// Notes the bound, and how far a run is from it.
    pub fn set(&self, record: &mut RunRecord) {
        record.set(name::live_bound_bytes, Value::Int(self.bounds.live));
        record.set(name::packed_bytes, Value::Int(self.packed()));
        let refused = record.metric(name::ooms).is_none_or(|ooms| ooms.as_f64() > 0.0);
        let Some(reserved) = record.metric(name::peak_reserved_bytes) else { return };
        if !refused && self.bounds.live > 0 {
            let over = reserved.as_f64() / self.bounds.live as f64 - 1.0;
            record.set(name::over_bound, Value::Real(over));
        }
    }
}
