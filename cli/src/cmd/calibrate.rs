//! `poolsim calibrate`: what memory calls cost on a GPU, as a profile for the simulation.

mod tables;

use crate::args::CalibrateArgs;
use crate::gpu::{self, Gpu, GpuArgs};
use crate::output::{Ending, Out};
use anyhow::Context;
use poolsim_core::units::ShowBytes;
use poolsim_core::{Bytes, DeviceOp};
use poolsim_real_backend::{Calibration, calibrate};
use poolsim_reports::quantity::{show_count, show_nanos};
use poolsim_reports::table::{finish, numbers_right, plain_table};
use poolsim_sim::DeviceProfile;
use poolsim_sim::device::{ProfileFile, ProfileProvenance};
use std::fs::File;
use std::io::Write;
use time::OffsetDateTime;

/// Measures, writes the profile, and says how far it is from the built-in one.
pub fn run(args: &CalibrateArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let gpu_args = GpuArgs { gpu: args.gpu, ..GpuArgs::default() };
    let gpu = Gpu::open(&gpu_args)?;
    // Made first, so that a wrong path fails before the work.
    let mut file = match &args.output {
        Some(path) => Some(File::create(path).with_context(|| path.display().to_string())?),
        None => None,
    };
    let measured = calibrate(gpu.index)?;
    let profile = ProfileFile {
        name: args.name.clone(),
        provenance: provenance(&measured, &gpu)?,
        device: gpu.caps.clone(),
        operations: tables::operations(),
        call: tables::calls(&measured.samples),
    };
    let text = format!(
        "# Made by `poolsim calibrate`; do not edit by hand.\n{}",
        toml::to_string(&profile).context("the profile cannot be written as TOML")?
    );
    let prices = DeviceProfile::parse(&text)?;
    match &mut file {
        Some(file) => {
            file.write_all(text.as_bytes())?;
            out.write_all(beside(&prices, &DeviceProfile::h200()).as_bytes())?;
        }
        None => out.write_all(text.as_bytes())?,
    }
    Ok(Ending::Fine)
}

fn provenance(measured: &Calibration, gpu: &Gpu) -> anyhow::Result<ProfileProvenance> {
    let machine = gpu::machine()?;
    let now = OffsetDateTime::now_utc();
    Ok(ProfileProvenance {
        gpu: gpu.caps.name.clone(),
        driver: machine.version.unwrap_or_else(|| "unknown".into()),
        cuda: machine.cuda,
        date: format!("{}-{:02}-{:02}", now.year(), u8::from(now.month()), now.day()),
        method: format!(
            "poolsim {} calibrate: latency of each driver call by size and state, one host thread; quantiles of \
             `samples` calls; each contains one reading of the clock",
            env!("CARGO_PKG_VERSION")
        ),
        timer_cost_ns: Some((measured.timer_cost_ns * 100.0).round() / 100.0),
        driver_pace_ns: Some(measured.driver_pace_ns.round()),
        notes: tables::NOTES.iter().map(ToString::to_string).collect(),
    })
}

/// Sizes at which two profiles are held against each other.
const SIZES: [Bytes; 5] = [2 << 20, 20 << 20, 256 << 20, 1 << 30, 4 << 30];

/// Each operation's price in both profiles.
fn beside(measured: &DeviceProfile, other: &DeviceProfile) -> String {
    let mut table = plain_table();
    table.set_header([
        "operation",
        "size",
        "samples",
        "measured",
        "built-in profile",
        "built-in against\nmeasured",
    ]);
    for &op in DeviceOp::ALL {
        let sizes = if measured.cost(op, SIZES[0]) == measured.cost(op, SIZES[2]) {
            &SIZES[..1]
        } else {
            &SIZES[..]
        };
        for &size in sizes {
            let (new, old) = (measured.cost(op, size), other.cost(op, size));
            table.add_row([
                op.name().to_string(),
                if sizes.len() == 1 { "any".into() } else { ShowBytes(size).to_string() },
                show_count(measured.samples(op)),
                show_nanos(new),
                show_nanos(old),
                format!("{:+.0} %", (old as f64 / new as f64 - 1.0) * 100.0),
            ]);
        }
    }
    numbers_right(&mut table);
    finish(&table)
}
