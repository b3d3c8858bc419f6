//! `poolsim devices`.

use crate::args::DevicesArgs;
use crate::gpu;
use crate::output::{Ending, Out};
use poolsim_core::units::ShowBytes;
use poolsim_real_backend::driver::Machine;
use serde_json::json;
use std::io::Write;

/// Lists the GPUs, or says what is missing.
pub fn run(args: &DevicesArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let machine = gpu::machine()?;
    if args.json {
        out.json(&document(&machine))?;
        return Ok(Ending::Fine);
    }
    writeln!(out, "CUDA driver for CUDA {}", machine.cuda)?;
    for gpu in &machine.gpus {
        let mut features = Vec::new();
        if gpu.memory_pools {
            features.push("memory pools");
        }
        if gpu.virtual_memory {
            features.push("page mapping");
        }
        let features =
            if features.is_empty() { "no memory pools".into() } else { features.join(", ") };
        writeln!(out, "{:3}  {}  {}  {features}", gpu.index, gpu.name, ShowBytes(gpu.total))?;
    }
    Ok(Ending::Fine)
}

fn document(machine: &Machine) -> serde_json::Value {
    let devices: Vec<_> = machine
        .gpus
        .iter()
        .map(|gpu| {
            json!({
                "index": gpu.index,
                "name": gpu.name,
                "total_bytes": gpu.total,
                "memory_pools": gpu.memory_pools,
                "virtual_memory": gpu.virtual_memory,
            })
        })
        .collect();
    json!({ "cuda": machine.cuda, "devices": devices })
}
