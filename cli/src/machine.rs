//! The device that a run is simulated on: what flags, sidecar and trace together say.

use crate::args::MachineArgs;
use crate::sidecar::Sidecar;
use poolsim_core::units::ShowBytes;
use poolsim_core::{Bytes, DeviceCaps, TraceHeader};
use poolsim_policies::BuildEnv;
use serde::Serialize;

/// Who said a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// A flag.
    Flag,
    /// The JSON file beside the trace.
    Sidecar,
    /// The trace.
    Trace,
    /// The recording's entries, from which it was inferred.
    Inferred,
    /// Nobody: the built-in profile's device stands in.
    Profile,
    /// The driver of the GPU that the run is on.
    Driver,
}

impl Said {
    fn words(self) -> &'static str {
        match self {
            Said::Flag => "as given",
            Said::Sidecar => "from the sidecar",
            Said::Trace => "from the trace",
            Said::Inferred => "inferred from the recording",
            Said::Profile => "assumed: nothing says it",
            Said::Driver => "as the driver says",
        }
    }
}

/// The simulated machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The device.
    pub caps: DeviceCaps,
    /// Who said its size.
    pub memory_said: Said,
    /// The share of it that the allocator may take; `None` for no limit.
    pub memory_fraction: Option<f64>,
    /// Who said that, if anybody did.
    pub fraction_said: Option<Said>,
}

impl Machine {
    /// Flags before sidecar before trace before `standard`, for each value by itself.
    pub fn new(
        args: &MachineArgs,
        sidecar: Option<&Sidecar>,
        header: &TraceHeader,
        standard: &DeviceCaps,
    ) -> Machine {
        let memory = [
            (args.device_memory, Said::Flag),
            (sidecar.and_then(|s| s.device_memory), Said::Sidecar),
            (header.device_memory, Said::Trace),
        ];
        let fraction = [
            (args.memory_fraction, Said::Flag),
            (sidecar.and_then(|s| s.memory_fraction), Said::Sidecar),
            (header.memory_fraction, Said::Trace),
        ];
        let (total, memory_said) = first(memory).unwrap_or((standard.total, Said::Profile));
        let fraction = first(fraction);
        let name = sidecar
            .and_then(|s| s.device_name.clone())
            .or_else(|| header.device_name.clone())
            .unwrap_or_else(|| match memory_said {
                Said::Profile => standard.name.clone(),
                _ => "unnamed device".into(),
            });
        Machine {
            caps: DeviceCaps { name, total, ..standard.clone() },
            memory_said,
            memory_fraction: fraction.map(|(share, _)| share),
            fraction_said: fraction.map(|(_, said)| said),
        }
    }

    /// Takes over what was inferred of a recording whose source did not say it.
    pub fn adopt(&mut self, inferred: &TraceHeader) {
        if self.memory_said == Said::Profile
            && let Some(total) = inferred.device_memory
        {
            self.caps.total = total;
            self.memory_said = Said::Inferred;
        }
        if self.memory_fraction.is_none() && inferred.memory_fraction.is_some() {
            self.memory_fraction = inferred.memory_fraction;
            self.fraction_said = Some(Said::Inferred);
        }
    }

    /// The machine is this GPU from now on. A memory fraction keeps its meaning in bytes.
    pub fn move_to(&mut self, caps: &DeviceCaps) {
        if let Some(share) = self.memory_fraction
            && self.caps.total != caps.total
        {
            let share = share * self.caps.total as f64 / caps.total as f64;
            self.memory_fraction = Some(share.min(1.0));
        }
        self.caps = caps.clone();
        self.memory_said = Said::Driver;
    }

    /// What a policy may know of it.
    pub fn env(&self) -> BuildEnv {
        BuildEnv { caps: self.caps.clone(), memory_fraction: self.memory_fraction }
    }

    /// One line for people.
    pub fn words(&self) -> String {
        let memory = words(ShowBytes(self.caps.total), self.memory_said);
        let fraction = match (self.memory_fraction, self.fraction_said) {
            (Some(share), Some(said)) => {
                let limit = (share * self.caps.total as f64) as Bytes;
                let share = format!("{share:.4}, {}", ShowBytes(limit));
                format!("memory fraction {}", words(share, said))
            }
            _ => "no memory fraction".into(),
        };
        format!("{}, {memory}; {fraction}", self.caps.name)
    }
}

fn words(value: impl std::fmt::Display, said: Said) -> String {
    format!("{value} ({})", said.words())
}

fn first<T>(values: [(Option<T>, Said); 3]) -> Option<(T, Said)> {
    values.into_iter().find_map(|(value, said)| Some((value?, said)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolsim_core::units::{GIB, MIB};

    fn standard() -> DeviceCaps {
        DeviceCaps {
            name: "std".into(),
            total: 100 * GIB,
            granule: 2 * MIB,
            range_align: MIB,
            paged: true,
        }
    }

    #[test]
    fn on_another_gpu_a_fraction_is_the_same_number_of_bytes() {
        let args = MachineArgs { memory_fraction: Some(0.25), device_memory: None };
        let mut machine = Machine::new(&args, None, &TraceHeader::default(), &standard());
        machine.move_to(&DeviceCaps { total: 50 * GIB, ..standard() });
        assert_eq!(machine.memory_fraction, Some(0.5));
        machine.move_to(&DeviceCaps { total: 10 * GIB, ..standard() });
        assert_eq!(machine.memory_fraction, Some(1.0));
    }

    #[test]
    fn flags_win_over_the_sidecar_and_that_over_the_trace_each_value_by_itself() {
        let header = TraceHeader {
            device_memory: Some(GIB),
            memory_fraction: Some(0.1),
            ..Default::default()
        };
        let sidecar = Sidecar { device_memory: Some(2 * GIB), ..Default::default() };
        let args = MachineArgs { memory_fraction: Some(0.5), device_memory: None };
        let machine = Machine::new(&args, Some(&sidecar), &header, &standard());
        assert_eq!((machine.caps.total, machine.memory_said), (2 * GIB, Said::Sidecar));
        assert_eq!((machine.memory_fraction, machine.fraction_said), (Some(0.5), Some(Said::Flag)));

        let machine = Machine::new(&MachineArgs::default(), None, &header, &standard());
        assert_eq!((machine.caps.total, machine.memory_fraction), (GIB, Some(0.1)));

        let machine =
            Machine::new(&MachineArgs::default(), None, &TraceHeader::default(), &standard());
        assert_eq!((machine.caps.total, machine.memory_said), (100 * GIB, Said::Profile));
        assert_eq!(machine.memory_fraction, None);
    }
}
