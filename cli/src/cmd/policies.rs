//! `poolsim policies`: the registry, for people and programs.

use crate::args::PoliciesArgs;
use crate::output::{Ending, Out, Usage, paragraph};
use poolsim_policies::{Effect, ParamDef, Params, PolicyDef, PolicySpec, Registry};
use serde_json::{Value, json};
use std::io::Write;

/// Lists the policies, or describes one.
pub fn run(args: &PoliciesArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let registry = Registry::builtin();
    let defs: Vec<&PolicyDef> = match &args.name {
        Some(name) => {
            let known = registry.resolve(&PolicySpec::named(name));
            vec![known.map_err(|error| Usage(error.to_string()))?.def]
        }
        None => registry.defs().to_vec(),
    };
    if args.json {
        let policies: Vec<Value> = defs.iter().map(|def| document(def)).collect();
        out.json(&json!({ "policies": policies }))?;
    } else if args.name.is_some() {
        describe(defs[0], out)?;
    } else {
        list(&defs, out)?;
    }
    Ok(Ending::Fine)
}

fn list(defs: &[&PolicyDef], out: &mut Out) -> anyhow::Result<()> {
    let mut rows: Vec<(String, &str)> = Vec::new();
    for def in defs {
        let names = std::iter::once(def.name).chain(def.aliases.iter().copied());
        rows.push((names.collect::<Vec<_>>().join(", "), def.summary));
        rows.extend(def.presets.iter().map(|p| (format!("  {}", p.name), p.summary)));
    }
    entries(&rows, out)?;
    writeln!(out)?;
    writeln!(out, "`poolsim policies NAME` describes one, with its parameters.")?;
    Ok(())
}

fn describe(def: &PolicyDef, out: &mut Out) -> anyhow::Result<()> {
    let version = (def.version)(&Params::defaults(def.params));
    writeln!(out, "{}: {}", def.name, def.summary)?;
    if !def.aliases.is_empty() {
        writeln!(out, "Also called {}.", def.aliases.join(", "))?;
    }
    if !version.is_empty() {
        writeln!(out, "Reproduces {version}.")?;
    }
    writeln!(out, "\nRules")?;
    for rule in def.rules.lines() {
        let text = paragraph(rule, 4);
        writeln!(out, "  - {}", text.trim())?;
    }
    writeln!(out, "\nSource")?;
    out.write_all(paragraph(def.source, 2).as_bytes())?;
    writeln!(out, "\nChecked against")?;
    out.write_all(paragraph(def.checked_against, 2).as_bytes())?;
    if !def.presets.is_empty() {
        writeln!(out, "\nPresets")?;
        for preset in def.presets {
            writeln!(out, "  {} = {},{}", preset.name, def.name, preset.items)?;
            out.write_all(paragraph(preset.summary, 6).as_bytes())?;
        }
    }
    if !def.params.is_empty() {
        writeln!(out, "\nParameters")?;
        for param in def.params {
            parameter(param, out)?;
        }
    }
    Ok(())
}

fn parameter(param: &ParamDef, out: &mut Out) -> anyhow::Result<()> {
    let unit = if param.unit.is_empty() { String::new() } else { format!(" [{}]", param.unit) };
    writeln!(out, "  {}{unit}, default {}", param.key, param.default)?;
    out.write_all(paragraph(param.doc, 6).as_bytes())?;
    out.write_all(paragraph(&format!("Allowed: {}.", param.kind.allowed()), 6).as_bytes())?;
    match param.effect {
        Effect::Simulated => {}
        Effect::NoEffect(reason) => {
            let text = format!("Accepted, without effect on a simulation: {reason}.");
            out.write_all(paragraph(&text, 6).as_bytes())?;
        }
        Effect::Selects(table) => {
            for (value, policy) in table {
                let text = format!("The value {value} means the policy {policy}.");
                out.write_all(paragraph(&text, 6).as_bytes())?;
            }
        }
    }
    Ok(())
}

/// Two columns, the second wrapped beside the first.
fn entries(rows: &[(String, &str)], out: &mut Out) -> anyhow::Result<()> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
    for (name, text) in rows {
        let text = paragraph(text, width);
        writeln!(out, "{name:<width$}{}", text.trim())?;
    }
    Ok(())
}

fn document(def: &PolicyDef) -> Value {
    let presets: Vec<Value> = def
        .presets
        .iter()
        .map(|p| {
            json!({ "name": p.name, "spec": format!("{},{}", def.name, p.items), "summary": p.summary })
        })
        .collect();
    let params: Vec<Value> = def
        .params
        .iter()
        .map(|p| {
            json!({
                "key": p.key,
                "default": p.default.to_string(),
                "unit": p.unit,
                "allowed": p.kind.allowed(),
                "simulated": !matches!(p.effect, Effect::NoEffect(_)),
                "doc": p.doc,
            })
        })
        .collect();
    json!({
        "name": def.name,
        "aliases": def.aliases,
        "summary": def.summary,
        "version": (def.version)(&Params::defaults(def.params)),
        "source": def.source,
        "checked_against": def.checked_against,
        "presets": presets,
        "params": params,
    })
}
